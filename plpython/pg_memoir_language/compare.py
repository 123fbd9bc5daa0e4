"""What two statements say to each other, word by word: whether they agree in numbers, names and denials, whether
one says what the other says, whether they contradict each other; and the text that stands for several of them.

False contradictions and false equalities are worse than missed ones: two memories too many are shown beside each
other, one too few is lost.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .data import choices, entries, entry_set
from .patterns import compile_pattern
from .values import UNSPACED, stem

DIGITS = (
    r"0-9\u0660-\u0669\u06f0-\u06f9\u0966-\u096f\u09e6-\u09ef\u0e50-\u0e59\uff10-\uff19〇一二三四五六七八九十百千万两"
)
NUMBER = rf"(?:(?<![[:alnum:]])[-−])?[{DIGITS}]+(?:[.,:/-][{DIGITS}]+)*"
DENYING = ("不", "没", "沒", "無", "无", "未", "ない", "ません", "なかった", "ไม่", "않", "없", "못")
WORD = r"[[:alnum:]]+(?:[.,:/'-][[:alnum:]]+)*"
SIGN = r"[^[:alnum:][:space:]_.,;:!?…。，、！？；：·\"“”„«»'()–—]"
CONTRACTED_NOT = ((r"\m(?:cannot|can't)\M", "can not"), (r"\mwon't\M", "will not"), (r"n't\M", " not"))
TURNED = (
    (r"\mno longer\M|\mnot ((?:\w+ )*)any ?more\M", r"not \1"),
    (r"\m(?:dislike|hate|detest)(s?)\M", r"not like\1"),
    (r"\m(?:love|enjoy)(s?)\M", r"like\1"),
    ("([不没沒])", r" \1 "),  # written without blanks: a denial is a word of its own
)
OPEN = (
    r"[?？؟]|\mnot (?:only|just|necessarily|sure|yet|always|all|every)\M|\mno (?:doubt|wonder|matter|problem|idea)\M"
    r"|\m(?:if|unless|whether|or|either|maybe|perhaps)\M"
)
# Beside these words there may be several values.
SEVERAL = r"\m(?:another|other|second|also|too|sometimes|often|one of|some|each|every|last|next|once|ago)\M"
ONE_VALUE = (
    r"\m(?:is|was|are|were)(?: (?:on|at|in|from|due|due on|set for|scheduled for))?$"
    r"|^(?:my|his|her|our|their|user's) .*\m(?:starts|begins|ends|leaves|departs|arrives|opens|closes) (?:on|at)$"
    r"|\m(?:weighs|costs|earns|pays|born (?:in|on))$"
)
COUNTED = r"^(?:\w+ )?(?:children|kids|sons|daughters|siblings|brothers|sisters|cats|dogs|pets)$"
ONE_NAME = (
    r"^(?:\w+ )?(?:lives|live|resides|is based|am based|works|work|is employed|is married|am married)"
    r" (?:in|at|for|by|to)$"
    r"|^(?:my|his|her|user's) (?:(?:full|first|last|middle) )?name is$|^(?:\w+ )?(?:was|is) born in$"
)
SENTENCE_END = r"[.!?][)\"'”’]?(?=\s)|[。！？।؟]|\n+"
PRONOUNS = ("I", "We", "He", "She", "They", "User")
LONGEST = 400


@dataclass(frozen=True)
class Comparison:
    """`contradiction`: "polarity" (the same but for a denial), "value" (for a number, a date or a name where there
    is room for one) or None. `has_same_points`: numbers, dates, names and denials agree. `is_same`: they do, and
    one says what the other says.
    """

    contradiction: str | None
    has_same_points: bool
    is_same: bool


def compare(one: str, other: str) -> Comparison:
    """Compare two statements."""
    agrees = fixed_points(one) == fixed_points(other)
    return Comparison(find_contradiction(one, other), agrees, agrees and says_same(one, other))


def _value_words() -> str:
    return choices("english", "months", "full_weekdays", "counted", "larger_numbers") or "(?!)"


def fixed_points(text: str) -> frozenset[str]:
    """Return what must agree before two similar texts may count as one: numbers, denials, dates and names."""
    points = {found.lower() for found in compile_pattern(NUMBER).findall(text)}
    # Names: capitals, but for words that merely begin a sentence.
    starts = entry_set("english", "sentence_starts")
    points |= {word.lower() for word in compile_pattern(r"\m[[:upper:]][[:alnum:]]+").findall(text)} - starts
    fixed = compile_pattern(rf"\m(?:{choices(None, 'fixed_words')}|{_value_words()})\M", True, longest=True)
    for match in fixed.finditer(text):
        word = match[0].lower()
        points.add("not" if word.endswith(("n't", "n’t")) else word)
    return frozenset(points | set(compile_pattern("|".join((*DENYING, "안 "))).findall(text)))


def _spell_out(text: str) -> str:
    text = unicodedata.normalize("NFKC", text).lower().replace("’", "'")
    for pattern, by in CONTRACTED_NOT:
        text = compile_pattern(pattern).sub(by, text)
    return text


def _singular(word: str) -> str:
    """Return "eats" as "eat", "dogs" as "dog"."""
    if word == "has":
        return "have"
    if not (word.isascii() and word.isalpha() and len(word) > 3) or word.endswith("ss"):
        return word
    if word.endswith("ies"):
        word = word[:-3] + "y"
    elif word.endswith(("shes", "ches", "sses", "xes", "zes", "oes")):
        word = word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _wording(text: str) -> tuple[list[str], list[str]]:
    """Return a text's words in their order (case, articles, plural endings apart) and its signs ("$", "=")."""
    text = compile_pattern(f"({UNSPACED})").sub(r" \1 ", _spell_out(text))
    signs = compile_pattern(SIGN).findall(text)
    words = compile_pattern(r"[[:alnum:]_]+(?:[.,:/'-][[:alnum:]_]+)*(?:[+#]+(?![[:alnum:]]))?").findall(text)
    # Beside signs an article may be a name: "x = a - b".
    helpers = () if signs else entry_set(None, "helpers")
    return [_singular(word) for word in words if word not in helpers], signs


def says_same(one: str, other: str) -> bool:
    """Return whether one text says what the other says, and more at most: its words stand in the other in the same
    order, and what is more doesn't turn it ("rarely", "wants to").
    """
    (words, signs), (others, other_signs) = _wording(one), _wording(other)
    if signs != other_signs:
        return False
    short, long = sorted((words, others), key=len) if len(words) != len(others) else (words, others)
    if not short:
        return False
    qualifier = compile_pattern(f"(?:{choices(None, 'qualifiers')})")
    at = 0
    for word in long:
        if at < len(short) and word == short[at]:
            at += 1
        elif qualifier.fullmatch(word):
            return False
    return at == len(short)


@dataclass
class _Proposition:
    """A sentence's words (plural, tense, articles, denials apart), as they stood, and how many denials."""

    words: list[str] = field(default_factory=list)
    raw: list[str] = field(default_factory=list)
    denials: int = 0


def _read_proposition(text: str) -> _Proposition | None:
    """Return None where rules can't tell what is claimed."""
    text = _spell_out(text)
    for pattern, by in TURNED:
        text = compile_pattern(pattern).sub(by, text)
    if compile_pattern(OPEN).search(text):
        return None
    read = _Proposition()
    negations, helpers = entry_set(None, "negations"), entry_set(None, "helpers")
    for word in compile_pattern(WORD).findall(text):
        if word in negations:
            read.denials += 1
        elif word not in helpers:
            read.raw.append(word)
            read.words.append(_singular(word))
    if compile_pattern(r"[\u4e00-\u9fff]").search(text):
        read.words = read.raw = ["".join(read.words)]
    return read


def _is_value(word: str) -> bool:
    return bool(compile_pattern(rf"[0-9].*|noon|midnight|{_value_words()}").fullmatch(word))


def find_contradiction(one: str, other: str) -> str | None:
    """Return the kind of contradiction between two sentences (Comparison), None where rules find none."""
    if max(len(one), len(other)) > LONGEST:
        return None
    mine, theirs = _read_proposition(one), _read_proposition(other)
    if mine is None or theirs is None or not 0 < len(mine.words) <= 40:
        return None
    if mine.words == theirs.words:
        return "polarity" if mine.denials + theirs.denials == 1 else None
    if mine.denials or theirs.denials:
        return None
    start, end = _shared_ends(mine, theirs)
    my_part, their_part = mine.raw[start : len(mine.raw) - end], theirs.raw[start : len(theirs.raw) - end]
    if not 1 <= len(my_part) <= 4 or not 1 <= len(their_part) <= 4 or mine.raw[:start] != theirs.raw[:start]:
        return None
    before, after = " ".join(mine.raw[:start]), " ".join(mine.raw[len(mine.raw) - end :])
    if compile_pattern(SEVERAL).search(f"{before} {after}"):
        return None
    if all(map(_is_value, my_part + their_part)):
        is_counted = compile_pattern(r"^(?:\w+ )?(?:has|have)$").search(before) and compile_pattern(COUNTED).search(
            after
        )
        return "value" if is_counted or compile_pattern(ONE_VALUE).search(before) else None
    if (
        not after
        and compile_pattern(ONE_NAME).search(before)
        and _are_names(my_part, one)
        and _are_names(their_part, other)
    ):
        return "value"
    return None


def _shared_ends(mine: _Proposition, theirs: _Proposition) -> tuple[int, int]:
    """Return with how many words both begin, and end; values beside what differs belong to it."""
    most = min(len(mine.words), len(theirs.words))
    start = end = 0
    while start < most and mine.words[start] == theirs.words[start]:
        start += 1
    while end < most - start and mine.words[-1 - end] == theirs.words[-1 - end]:
        end += 1
    while start > 0 and _is_value(mine.raw[start - 1]):
        start -= 1
    while end > 0 and _is_value(mine.raw[len(mine.raw) - end]):
        end -= 1
    return start, end


def _are_names(words: Sequence[str], text: str) -> bool:
    """Return whether each word stands in a text with a capital."""
    capitals = {word.casefold() for word in compile_pattern(r"\m[[:upper:]][[:alnum:]'’.,:/-]*").findall(text)}
    return all(any(capital.startswith(word.casefold()) for capital in capitals) for word in words)


# Several texts as one ------------------------------------------------------------------------------------------------


def split_sentences(text: str) -> list[str]:
    """Return a text's sentences without the marks of lists around them."""
    marked = compile_pattern(SENTENCE_END).sub(lambda match: match[0].strip("\n") + "\x02", text)
    parts = (part.strip(" \t\r\n-*•") for part in marked.split("\x02"))
    return [part for part in parts if any(character.isalnum() for character in part)]


def join_texts(texts: Iterable[str]) -> str:
    """Return what texts say, each sentence once: one that another says is left out, and those that begin alike
    begin once ("Goes hiking in May; with Ida."). No word is lost that no other sentence has in its place.
    """
    kept: list[str] = []
    for text in sorted(texts, key=len, reverse=True):
        for sentence in split_sentences(text):
            at = next((n for n, said in enumerate(kept) if says_same(said, sentence)), None)
            if at is None:
                kept.append(sentence)
            elif len(sentence) > len(kept[at]):
                kept[at] = sentence
    groups: list[tuple[str | None, str]] = []
    for sentence in kept:
        said = sentence.strip().rstrip(".。…")
        for number, (opening, group) in enumerate(groups):
            shared = opening if opening is not None else _shared_opening(group, said)
            if shared and said.startswith(shared + " "):
                groups[number] = (shared, f"{group}; {said[len(shared) + 1 :]}")
                break
        else:
            groups.append((None, said))
    return " ".join(group if group.endswith(("!", "?", "！", "？")) else f"{group}." for _, group in groups)


def _shared_opening(one: str, other: str) -> str:
    """Return the words with which two sentences begin alike, where each goes on: two at least, or who it is about."""
    if compile_pattern("[!?！？;]").search(one) or compile_pattern("[!?！？;]").search(other):
        return ""
    words, others = one.split(" "), other.split(" ")
    count = 0
    while count + 1 < min(len(words), len(others)) and words[count] == others[count]:
        count += 1
    return " ".join(words[:count]) if count > 1 or count == 1 and words[0] in PRONOUNS else ""


def find_condensable(texts: Sequence[str]) -> list[int]:
    """Return which texts (from 0) get shorter beside the others: one that gains less than a tenth is better found by
    itself.
    """
    whole = len(join_texts(texts))
    return [
        number
        for number, text in enumerate(texts)
        if (whole - len(join_texts([*texts[:number], *texts[number + 1 :]]))) * 10 <= len(text) * 9
    ]


def _hard_points(text: str, is_lenient: bool) -> set[str]:
    """Return what a text that stands for another must hold of it: numbers, dates, names, and that something is denied.

    Number words count as numbers. What merely begins a sentence is no name: a verb or an adverb, or (lenient) any word.
    """
    points, numbers = set(), entries("english", "counted")
    denial = compile_pattern(f"(?:{choices('english', 'denials')})")
    soft = compile_pattern(f"(?:{choices('english', 'soft_words')})")
    firsts = compile_pattern(r"(?:^|[.!?;:]\s+)([[:upper:]][[:alnum:]]*)").findall(text)
    for point in fixed_points(text):
        if denial.fullmatch(point):
            points.add("not")
        elif not soft.fullmatch(point) and not any(
            first.lower() == point
            and (is_lenient or first.endswith(("s", "ed", "ing", "ly")))
            and not compile_pattern(rf"[[:alnum:],] +{first}\M").search(text)
            for first in firsts
        ):
            points.add(str(numbers.index(point) + 1) if point in numbers else point)
    return points


def _has_point(text: str, points: Iterable[str], point: str) -> bool:
    if point in points:
        return True
    if point == "not":
        return False
    if point.isascii() and point.isdigit():
        return bool(compile_pattern(rf"(?:^|\D){point}(?:$|\D)").search(text))
    return point in text.lower()


def _has_words_of(text: str, given: str) -> bool:
    """Return whether six in ten of a text's words were given, and all of its numbers but years and days."""
    numbers = compile_pattern(r"\d+")
    free = compile_pattern(r"(?:19|20)\d\d|[12]?\d|3[01]")
    missing = {n for n in numbers.findall(text) if not free.fullmatch(n)} - set(numbers.findall(given))
    skipped = entry_set("english", "function_words") | {"user", "assistant", "tool"}

    def stems(of: str) -> set[str]:
        words = compile_pattern(r"[[:alpha:]][[:alnum:]]*").findall(of.lower())
        return {stem(word, "english") for word in words if word not in skipped}

    wanted = stems(text)
    return not missing and bool(wanted) and len(wanted & stems(given)) >= 0.6 * len(wanted)


def find_merge_problem(text: str, covered: Iterable[str], given: Sequence[str]) -> str | None:
    """Return what is wrong with a text that shall stand for some (`covered`) of the texts that were given; None if
    nothing.
    """
    points = _hard_points(text, False)
    lost = sorted({p for one in covered for p in _hard_points(one, False) if not _has_point(text, points, p)})
    if lost:
        return f'it covers a memory with "{lost[0]}" and does not say that'
    whole = "\n".join(given)
    known = {point for one in given for point in _hard_points(one, False)}
    new = sorted(point for point in _hard_points(text, True) if not _has_point(whole, known, point))
    if new:
        return f'no memory that was given says "{new[0]}"'
    if len(text) > 1.5 * len(whole) + 40 or not _has_words_of(text, whole):
        return "it says more than the memories that were given"
    return None
