"""The speaker's own words of a text: sentences with their spans, clauses, and both in the plain form that rules read.

Spans are 1-based as in SQL: `substr(text, start, length)` is the piece as it was written.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from .data import choices, entry_set
from .foreign import APOSTROPHES, own_words
from .patterns import Pattern, compile_pattern

LONGEST_CLAUSED = 600
MOST_SENTENCES = 60


@dataclass(frozen=True)
class Sentence:
    """A sentence of a text as it was written."""

    start: int
    length: int
    said: str


@dataclass(frozen=True)
class Clause:
    """A clause of a sentence, or the sentence itself as clause 0.

    `plain`: as rules read it; `inherits`: it takes over the subject of the clause before it; `asks`: its sentence is a
    question.
    """

    text_no: int
    sentence_start: int
    clause_no: int
    span_start: int
    span_length: int
    said: str
    sentence: str
    plain: str
    inherits: bool
    is_last: bool
    asks: bool

    @property
    def end(self) -> int:
        return self.span_start + self.span_length


def search(pattern: str | None, text: str, ignore_case: bool = True) -> bool:
    """Return whether a pattern matches anywhere; None never does."""
    return pattern is not None and compile_pattern(pattern, ignore_case).search(text) is not None


def first_group(pattern: str | None, text: str, ignore_case: bool = True) -> str | None:
    """Return the first group of the first match, or the whole match where the pattern has no group."""
    if pattern is None:
        return None
    match = compile_pattern(pattern, ignore_case, longest=True).search(text)
    if not match:
        return None
    group: str | None = match[1] if match.re.groups else match[0]
    return group


def replace_first(pattern: str, by: str, text: str, ignore_case: bool = True) -> str:
    replaced: str = compile_pattern(pattern, ignore_case, longest=True).sub(by, text, count=1)
    return replaced


def replace_all(pattern: str, by: str, text: str, ignore_case: bool = True) -> str:
    replaced: str = compile_pattern(pattern, ignore_case, longest=True).sub(by, text)
    return replaced


# Own words ---------------------------------------------------------------------------------------------------------


@cache
def _sentence_ends() -> tuple[Pattern[str], Pattern[str], Pattern[str]]:
    abbreviated = rf"\m({choices('english', 'abbreviations')})\.(?= ?[[:alnum:],])"
    dated = rf"(\d)\.(?= (?:{choices(None, 'months')})\M)"
    ends = (
        r"""([.!?…。！？]+["”'\)\]]*[ \t]+|\n+|[ \t]+[:;]-?[()DPp](?=[ \t\n]|$)[ \t]*"""
        r"|[\u2600-\u27bf\U0001f300-\U0001faff]\ufe0f?[ \t]*)"
    )
    return (
        compile_pattern(abbreviated, longest=True),
        compile_pattern(dated, True, longest=True),
        compile_pattern(ends, longest=True),
    )


def own_sentences(text: str) -> list[Sentence]:
    """Return the sentences of the speaker's own words."""
    abbreviated, dated, ends = _sentence_ends()
    text = own_words(text)
    text = abbreviated.sub("\\1\x01", text)
    # "am 12. März": no sentence ends there.
    text = dated.sub("\\1\x01", text)
    text = ends.sub("\\1\x02", text)
    sentences, at = [], 1
    for piece in text.split("\x02"):
        trimmed = piece.lstrip(" \t\n\r-*•–—,;:")
        said = trimmed.rstrip(" \t\n\r")
        start = at + len(piece) - len(trimmed)
        at += len(piece)
        if len(said) >= 3:
            sentences.append(Sentence(start, len(said), said.replace("\x01", ".")))
    return sentences


# Clauses -----------------------------------------------------------------------------------------------------------


@cache
def _clause_starts(language: str) -> tuple[Pattern[str], Pattern[str] | None, Pattern[str]] | None:
    joints = choices(language, "clause_joints")
    if joints is None:
        return None
    starts, verbs = choices(language, "clause_starts") or "", choices(language, "clause_verbs")
    subject = rf"(, (?:(?:{joints}) )?|[;:] | +[-–—]+ +| +\(| +(?:{joints}) +)(?=(?:now )?(?:{starts})\M)"
    verb = rf"(,? (?:{joints}) )(?=(?:(?:now|currently|also|still) )?(?:{verbs})\M)"
    return (
        compile_pattern(subject, True, longest=True),
        compile_pattern(verb, True, longest=True) if verbs else None,
        compile_pattern(rf"[\s,;:(–—-]+(({joints})[\s,]*)?$", True, longest=True),
    )


def split_clauses(sentence: str, language: str) -> list[tuple[int, int, str, bool]]:
    """Return the clauses of a sentence: start and length within it, the text, and whether it inherits the subject.

    A clause begins where one with a subject of its own does; where only the verb is new ("and have two sons"), it takes
    over the subject.
    """
    text = sentence.translate(APOSTROPHES).replace("\x02", "").replace("\x03", "")
    patterns = _clause_starts(language)
    end = compile_pattern(r"[\s,;:(–—-]+$", longest=True)
    if patterns:
        subject, verb, end = patterns
        if len(sentence) <= LONGEST_CLAUSED:
            text = subject.sub("\\1\x02", text)
            if verb:
                text = verb.sub("\\1\x02\x03", text)
    pieces = text.split("\x02")
    clauses, at, held = [], 1, ""
    for number, piece in enumerate(pieces):
        # "Ida and I live together": two words are no clause, nor is "Tariq, my son, is nine" three.
        if (
            search(r"^(?:(?:my|our) )?[[:alpha:]'-]+(?: [[:alpha:]'-]+)? and $", held + piece)
            or (
                number + 1 < len(pieces)
                and search(r"^[[:upper:]][[:alpha:]'-]+(?:,| \() ?$", piece, False)
                and search(r"^(?:my|our|the) [[:alpha:]-]+(?: [[:alpha:]-]+)?[,)] ", pieces[number + 1], False)
            )
            or (held.endswith(", ") and search(r"^(?:my|our) [[:alpha:]-]+(?: [[:alpha:]-]+)?, $", piece, False))
        ):
            held += piece
            continue
        inherits = piece.startswith("\x03") and not held
        piece, held = held + piece.lstrip("\x03"), ""
        trimmed = end.sub("", piece, count=1)
        if compile_pattern("[[:alnum:]]").search(trimmed):
            clauses.append((at, len(trimmed), trimmed, inherits))
        at += len(piece)
    return clauses


def asks(sentence: str, language: str) -> bool:
    """Return whether a sentence is a question that asks for more than assent."""
    asked = compile_pattern(r"""[?？]["”')]*$""").search(sentence)
    return asked is not None and not search(choices(language, "tag_questions"), sentence.lower(), False)


def read_clauses(text: str, language: str, text_no: int = 1) -> list[Clause]:
    """Return the sentences of a text and their clauses; a sentence is its own clause 0.

    Nobody says so much at once as was pasted: at most sixty sentences count.
    """
    clauses = []
    sentences = [s for s in own_sentences(text) if 3 <= s.length <= LONGEST_CLAUSED][:MOST_SENTENCES]
    for sentence in sentences:
        said, question = sentence.said, asks(sentence.said, language)
        clauses.append(
            Clause(
                text_no, sentence.start, 0, sentence.start, sentence.length, said, said, plain(said, language), False,
                False, question,
            )
        )  # fmt: skip
        parts = split_clauses(said, language)
        for number, (start, length, part, inherits) in enumerate(parts, 1):
            clauses.append(
                Clause(
                    text_no, sentence.start, number, sentence.start + start - 1, length, part, said,
                    plain(part, language), inherits, number == len(parts), question,
                )
            )  # fmt: skip
    return clauses


# Plain form --------------------------------------------------------------------------------------------------------

CONTRACTIONS = (
    (r"\mi'?m\M", "I am"),
    (r"\m(I|we|they|you)'?ve\M", r"\1 have"),
    (r"\m(I|we|they|you|it|he|she|that)'ll\M", r"\1 will"),
    (r"\m(we|they|you)'re\M", r"\1 are"),
    (r"\mI'd\M", "I would"),
    (r"\m(it|that|he|she|there|what|who|here|where|how|name)'s\M", r"\1 is"),
    (r"\m(that|what)s\M", r"\1 is"),
    (r"\m(?:can't|cant|cannot|won't|wont)\M", "will not"),
    (r"\m(do|does|did|is|are|was|were|has|have|had)n('t|t)\M", r"\1 not"),
)


def plain(text: str, language: str) -> str:
    """Return a clause as rules read it: contractions written out, case kept, without what opens or colours it."""
    text = f" {text.translate(APOSTROPHES).translate({9: ' ', 10: ' ', 13: ' '})} "
    if language == "english":
        for pattern, by in CONTRACTIONS:
            text = replace_all(pattern, by, text)
        text = replace_all(rf"\m({choices('english', 'intensifiers')}) ", "", text)
    text = compile_pattern(" +").sub(" ", text).strip(" ")
    if language == "english":
        if search("^(?:my|our) ", text):
            times = choices("english", "subject_times")
            text = replace_first(rf"^((?:my|our) [[:alpha:] -]{{3,40}}?) (?:{times}) (is|are)\M", r"\1 \2", text)
        # "Tariq, my son, is nine", "Anneke (my wife) is ill": my son Tariq is.
        relative = (
            r"^([[:upper:]][[:alpha:]'-]+)(?:, (my|our) ([[:alpha:]-]+(?: [[:alpha:]-]+)?),"
            r"| \((?:my|our|the) ([[:alpha:]-]+(?: [[:alpha:]-]+)?)\)) "
        )
        match = compile_pattern(relative, longest=True).match(text)
        if match:
            text = f"my {match[3] or ''}{match[4] or ''} {match[1]} {text[match.end() :]}"
    openings, meant = choices(language, "preambles"), choices(language, "meant_openings")
    while len(text) <= LONGEST_CLAUSED:
        before = text
        if text[:3].lower() == "no " and search(meant, text):
            break
        if openings:
            text = replace_first(rf"^(?:{openings})(?:[,.:;!…]+ *| *[–—-]+ +| +)(?=[^ ])", "", text)
        if text == before:
            break
    return text.rstrip(" \t\n\r\f\v.!;,:…")


def without_preamble(said: str, language: str) -> str:
    """Return "Btw, I live in Ulm" without what opens it, as it was written."""
    openings = choices(language, "preambles")
    while openings and len(said) <= LONGEST_CLAUSED:
        before = said
        said = replace_first(rf"^(?:{openings})(?:[,.:;!…]+ *| *[–—-]+ +| +)(?=[^ ])", "", said)
        if said == before:
            break
    return said


# Bare form ---------------------------------------------------------------------------------------------------------

SPELT_OUT = (
    (" i'm ", " i am "), (" im ", " i am "), (" i've ", " i have "), (" ive ", " i have "), (" i'll ", " i will "),
    (" i'd ", " i would "), ("can't", "cannot"), ("won't", "will not"), ("n't", " not"), (" dont ", " do not "),
    ("'re ", " are "), ("'ve ", " have "), ("'ll ", " will "), ("let's ", "let us "), ("it's ", "it is "),
    ("that's ", "that is "), (" gonna ", " going to "), (" wanna ", " want to "), (" gotta ", " have to "),
    ("'cause ", "because "), ("'d ", " would "), ("'m ", " am "), ("'s ", " is "),
)  # fmt: skip


def bare(sentence: str) -> str:
    """Return a sentence as extraction rules read it: lower case, contractions written out, without opening words."""
    text = f" {sentence.lower()} ".translate({9: " ", 10: " ", 13: " "})
    for short, long in SPELT_OUT:
        text = text.replace(short, long)
    text = replace_all(rf"\m({choices('english', 'intensifiers')}) ", "", text, False)
    text = without_opening(compile_pattern("[ ]+").sub(" ", text).strip(" "))
    addressed = (
        r"^(?!(no|nope|sorry|wait|wrong|correction|yesterday|tomorrow|(last|next|on) [[:alpha:]]+"
        r"|(after|before|during|since|despite|besides) (that|this|it"
        r"|those)),)[[:alpha:]]+( [[:alpha:]]+)?, (?=(i|my|we|our) )"
    )
    return replace_first(addressed, "", text, False)


@cache
def _opening_patterns() -> tuple[Pattern[str], ...]:
    patterns = (
        # A name only where it is called.
        rf"^({choices('english', 'calls')}) (there|[[:alpha:]'-]+)[,.!—–-]+ *(?=[^ ])",
        rf"^(({choices('english', 'openings')})[ ,.!:;—–-]+)(?=[^ ])",
        r"^(thanks|thank you) (so much )?for [^,.!?–—-]{2,40}[,.!–—-]+ *(?=[^ ])",
        r"^(i )?(just )?wanted to [^.!?–—-]{0,80}(--?|–|—) ?(?=(i|my|we)\M)",
        r"^([^,.!?]{0,40}, ?)?(i )?(just |also )?want(ed)? to (let you know|tell you|share|mention)( that)?,? "
        r"(?=(i|i'm|i've|i'll|my|we|we're|we've)\M)",
    )
    return tuple(compile_pattern(pattern, True, longest=True) for pattern in patterns)


def without_opening(sentence: str) -> str:
    """Return a sentence without "Oh wow, hey Jon!" and the like at its start."""
    text = sentence
    while len(sentence) <= LONGEST_CLAUSED:
        before = text
        for pattern in _opening_patterns():
            text = pattern.sub("", text, count=1)
        if text == before:
            break
    return text


@cache
def _dangling() -> tuple[Pattern[str], Pattern[str], Pattern[str]]:
    pronouns = (
        r"^(.*?\m([[:alpha:]'-]+)) (?:it|them|him|those|these|another|that|this|this one|that one)(?:"
        rf" (?:{choices('english', 'after_pronouns')})\M| ?[.!,;]|$)"
    )
    return (
        compile_pattern(pronouns),
        compile_pattern(rf"\m({choices('english', 'determiners')}) [[:alpha:]]"),
        compile_pattern(rf"\m(?!({choices('english', 'no_plurals')})\M)[[:alpha:]]{{2,}}[^su]s\M"),
    )


def dangles(sentence: str) -> bool:
    """Return whether what a bare sentence is about is said elsewhere: "I like holding them" where nothing before "them"
    is named. "and it was fun" is about the sentence itself."""
    pronouns, determined, plurals = _dangling()
    match = pronouns.match(sentence)
    if not match or match[2] in entry_set("english", "clause_openers"):
        return False
    return not determined.search(match[1]) and not plurals.search(match[1])


def has_phrase(padded: str, phrases: tuple[str, ...]) -> bool:
    """Return whether words hold one of some phrases, which may go on where it ends."""
    return any(f" {phrase}" in padded for phrase in phrases)


PADDING = str.maketrans({c: " " for c in '\t\r\n"“”„«»()[]{}/–—-*_'} | {c: "'" for c in "’‘ʼ"})


def pad(text: str) -> str:
    return " " + text.lower().translate(PADDING)


def has_words(text: str, words: str) -> bool:
    """Return whether a text has these words as they stand."""

    def space_words(given: str) -> str:
        return " " + " ".join(compile_pattern("[[:alnum:]']+").findall(given.lower().translate(APOSTROPHES))) + " "

    return space_words(words) in space_words(text)
