"""What a quotation of the user gives authority for: which of the user's clauses hold it, and whether they ask to forget
a thing or say what a tool is about to write. A request reaches what it names; a statement carries the words and values
that it holds."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from . import data
from .change_forms import values_over
from .compare import DENYING
from .data import choices
from .forgetting import speaks_of_name
from .languages import languages, spoken_language, text_language
from .patterns import compile_pattern
from .requests import Request, find_requests
from .statements import clauses_to_state, is_supposed, match_statement, read_own_statement
from .text import Clause, has_words, plain, read_clauses, replace_first, search
from .values import UNSPACED, read_content, stems_of

LONGEST_TEXT, LONGEST_QUOTATION, MOST_HITS = 20000, 1000, 10
DENIALS = tuple(
    "cannot none without neither nor nobody nothing 不 没 沒 無 无 未 ない ません なかった ไม่ 않 없 못".split()
)
PARTS = r"(?<=[,;()–—，；、])"

Span = tuple[int, int]


@dataclass(frozen=True)
class OwnTurn:
    """A turn that the user wrote, newest first in a sequence."""

    index: int
    text: str


@dataclass(frozen=True)
class QuotedTurn:
    """A turn that holds a quotation: where (1-based, end excluded), its language for rules and that for stems."""

    index: int
    text: str
    language: str
    stems: str
    spans: tuple[Span, ...]
    clauses: tuple[Clause, ...]


@dataclass(frozen=True)
class QuotedRequest:
    """A request to forget that is quoted: `matched`: which texts it names, from 1; `is_narrower`: it names less than
    the first.
    """

    turn_index: int
    names: str
    is_all: bool
    span_start: int
    span_length: int
    matched: tuple[int, ...]
    is_narrower: bool


@dataclass(frozen=True)
class QuotedStatement:
    turn_index: int
    matched: tuple[int, ...]


def quotation_spans(text: str, said: str) -> tuple[Span, ...]:
    """Return where a quotation stands in a text, whole words each time; case, punctuation and quotation marks don't
    matter.
    """
    words = compile_pattern("[[:alnum:]]+").findall(said[:LONGEST_QUOTATION])
    pattern = "[^[:alnum:]]+".join(words)
    if len(pattern) < 2:
        return ()
    # Text without spaces has no ends of words.
    if not compile_pattern(f"^{UNSPACED}").search(words[0]):
        pattern = rf"\m{pattern}"
    if not compile_pattern(f"{UNSPACED}$").search(words[-1]):
        pattern = rf"{pattern}\M"
    found = []
    for match in compile_pattern(pattern, True).finditer(text):
        found.append((match.start() + 1, match.end() + 1))
        if len(found) == MOST_HITS:
            break
    return tuple(found)


def _turns_with_quotation(turns: Iterable[OwnTurn], said: str) -> Iterator[QuotedTurn]:
    for turn in turns:
        text = unicodedata.normalize("NFKC", turn.text[:LONGEST_TEXT])
        spans = quotation_spans(text, unicodedata.normalize("NFKC", said))
        if spans:
            language, number = spoken_language(text), text_language(text)
            stems = languages()[number - 1].name if number > 6 else language
            yield QuotedTurn(turn.index, text, language, stems, spans, tuple(read_clauses(text, language)))


def _overlaps(start: int, end: int, spans: Iterable[Span]) -> bool:
    return any(start < last and first < end for first, last in spans)


def parts_of(text: str) -> list[Clause]:
    """Return the clauses of a turn, then its sentences, as parts that may be corrected or forgotten."""
    text = text[:LONGEST_TEXT]
    clauses = read_clauses(text, spoken_language(text))
    return sorted(clauses, key=lambda clause: (clause.clause_no == 0, clause.span_start))[:40]


# Requests ---------------------------------------------------------------------------------------------------------


def request_by_quotation(
    turns: Sequence[OwnTurn], said: str, texts: Sequence[str], slot: str | None
) -> QuotedRequest | None:
    """Return the newest request to forget that is quoted and names one of some texts."""
    for turn in _turns_with_quotation(turns, said):
        for request in _turn_requests(turn):
            if not _overlaps(request.span_start, request.span_start + request.span_length, turn.spans):
                continue
            matter = replace_first("^(?:my|our|the) ", "", request.names)
            rule = read_own_statement(f"My {matter} is 1000")
            names_slot = slot is not None and rule is not None and rule["slot"] == slot
            matched = tuple(
                number
                for number, text in enumerate(texts, 1)
                if names_slot or speaks_of_name(request.names, text, turn.stems)
            )
            narrower = not matched and bool(texts) and speaks_of_name(texts[0], request.names, turn.stems)
            if matched or narrower:
                return QuotedRequest(
                    turn.index, request.names, request.is_all, request.span_start, request.span_length, matched,
                    narrower,
                )  # fmt: skip
    return None


def _turn_requests(turn: QuotedTurn) -> list[Request]:
    """Return the requests that rules know, and in languages without rules the clauses that ask so."""
    found = find_requests(turn.clauses, turn.language)
    if found:
        return found
    for entry in data.entries(None, "forget_asks"):
        pattern = compile_pattern(entry, True, longest=True)
        for clause in turn.clauses:
            match = pattern.search(clause.said) if clause.clause_no > 0 and not clause.asks else None
            if match:
                names = " ".join(group for group in match.groups() if group) or match[0]
                found.append(
                    Request(
                        clause.text_no, clause.span_start, clause.span_length, names, False, turn.language, clause.said
                    )
                )
    return found


# Statements -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Word:
    """A word that tells something, and the forms by which it is compared."""

    word: str
    forms: frozenset[str]


@cache
def _same_claims() -> dict[str, str]:
    return dict(pair.split(">", 1) for pair in data.entries("english", "claim_same"))


def telling_words(text: str, language: str) -> list[Word]:
    """Return the words of a text that tell something, in order: each stem, and the word that stands for the same."""
    text = unicodedata.normalize("NFKC", text).lower()
    for mark in "’‘ʼ'\u00a0":
        text = text.replace(mark, " ")
    text = compile_pattern(r"(\d)(?:st|nd|rd|th)\M").sub(r"\1", text)
    frames = data.entry_set(None, "claim_frames")
    found = []
    for word in compile_pattern(r"[\s,;:!?…\"“”„«»()]+|[.。！？،]+(?:\s+|$)").split(text):
        if not word or word in frames:
            continue
        if word in data.entry_set(language, "function_words"):
            continue
        for root in stems_of(word, language):
            forms = {root}
            if word in _same_claims():
                forms.add(_same_claims()[word])
            # What stemmers leave apart: "wohne" and "wohnt", "my car" and "his car".
            if len(word) >= 5 and language in ("german", "dutch"):
                forms.add(compile_pattern("e?t$").sub("", root))
            elif len(word) >= 5 and language == "arabic":
                forms.add(word[:-1])
            if any(character.isalnum() for character in root):
                found.append(Word(word, frozenset(forms)))
    return found


def telling_forms(text: str, language: str) -> frozenset[str]:
    return frozenset[str]().union(*(word.forms for word in telling_words(text, language)))


def denies(text: str) -> bool:
    """Return whether a text denies something."""
    words = data.entry_set(None, "negations") | set(DENIALS)
    lower = text.lower().replace("’", "'")
    if any(mark in lower for mark in DENYING):
        return True
    if search(r"n't\M", lower):
        return True
    return any(word in words for word in compile_pattern("[[:alnum:]]+").findall(lower))


def _part_of_saying(said: str, denied: bool, over: Sequence[str]) -> str | None:
    """Return what of a clause can say a text that denies something, or one that does not: of "three cats, not two" each
    has its part. `over`: the values of which the clause says that others have their place."""
    parts = [
        part
        for part in compile_pattern(r"[,;()–—，；、]+\s*").split(said)
        if search("[[:alnum:]]", part) and ((not denied and over) or denies(part) == denied)
    ]
    return ", ".join(parts) or None


def says(said: str, sentence: str, content: str, old: str, turn: QuotedTurn) -> bool:
    """Return whether words of a clause say what a text does: its words and values stand there or, in a correction, in
    `old`, the text that is corrected; no word of the clause turns them, and it speaks of the same."""
    language, stems = turn.language, turn.stems
    new = plain(content, language)
    denied = denies(new)
    old_forms, content_forms = telling_forms(old, stems), telling_forms(new, stems)
    changing = data.entry_set(language, "change_words") if old else frozenset[str]()
    # "Not Pepper but Pippa" says Pippa, and denies Pepper.
    over = [value for value in values_over(said, language, False) if telling_forms(value, stems) <= old_forms]
    part = _part_of_saying(said, denied, over)
    if part is None:
        return False
    openers = choices(language, "forget_openers")
    spoken = plain(replace_first(rf"^(?:{openers})+", "", part) if openers else part, language)
    first = choices(language, "first_person")
    # Without rules for a language nobody knows how a clause begins.
    is_self = search(rf"^(?:{f'{first}|' if first else ''}we)\M", spoken) or stems != language
    here = set(telling_forms(spoken, stems)) | {value.key for value in read_content(spoken, language).values}
    if over:
        gone = telling_forms(" ".join(over), stems)
        here = {form for form in here if (form in gone) == denied}
    wants = frozenset("want wants ask asks wish wishes".split())
    for word in telling_words(new, stems):
        if not word.forms & (here | old_forms) and not (is_self and word.word in wants):
            return False
    if not (denied and not denies(old) and content_forms & here) and not (content_forms & here) - old_forms:
        return False
    fixed = compile_pattern(rf"\m({choices(None, 'fixed_words')})\M")
    stated = set(fixed.findall(f"{spoken} {old}".lower()))
    if any(word not in stated and not denies(word) for word in fixed.findall(new.lower())):
        return False
    # No word turns it: "used to", "wants to".
    qualifiers = choices(language, "qualifiers")
    if qualifiers:
        for word in compile_pattern(rf"\m({qualifiers})\M").findall(spoken.lower()):
            if not has_words(new, word) and word not in changing:
                return False
    if old and not telling_forms(sentence, stems) & old_forms:
        return False
    return _is_mostly(spoken, content_forms | old_forms, changing, is_self, stems) and _keeps_order(spoken, new, stems)


def _is_mostly(said: str, forms: frozenset[str], changing: frozenset[str], is_self: bool, stems: str) -> bool:
    """Return whether a clause speaks for the most part of some words, and of nobody else: it begins with one, or with
    its speaker."""
    words = telling_words(said, stems)
    known = [bool(word.forms & forms) or word.word in changing for word in words]
    return 2 * known.count(False) < len(words) and (is_self or known[0])


def _keeps_order(said: str, content: str, stems: str) -> bool:
    """Return whether names, and around words such as "over" all words, stand in the same order in both texts."""
    ordered = search(r"\m(?:over|than|instead|versus|before|after)\M", said)
    starts = data.entry_set("english", "sentence_starts")
    names = {name.lower() for name in compile_pattern(r"\m([[:upper:]][[:alnum:]]*)").findall(said)} - starts
    places = [(at, word.forms) for at, word in enumerate(telling_words(said, stems)) if ordered or word.word in names]
    last = -1
    for word in telling_words(content, stems):
        at = next((place for place, forms in places if forms & word.forms), None)
        if at is not None:
            if at < last:
                return False
            last = at
    return True


def statement_by_quotation(
    turns: Sequence[OwnTurn], said: str, content: str, olds: Sequence[str], slot: str | None
) -> QuotedStatement | None:
    """Return the newest turn of which a quoted clause says a text, beside one of some older texts where it corrects;
    questions, suppositions and reports state nothing."""
    for turn in _turns_with_quotation(turns, said):
        conditions = choices(turn.language, "conditions")
        stated = [
            clause
            for clause in clauses_to_state(turn.clauses, turn.language)
            if clause.clause_no > 0
            and _overlaps(clause.span_start, clause.end, turn.spans)
            and not is_supposed(clause.plain, turn.language)
            and not search(conditions, clause.plain)
        ]
        if not stated:
            continue
        # Of each clause the parts between commas that are quoted.
        parts = []
        for clause in stated:
            at = clause.span_start
            for part in compile_pattern(PARTS).split(clause.said):
                if _overlaps(at, at + len(part), turn.spans):
                    parts.append((at, turn.text[at - 1 : at - 1 + len(part)]))
                at += len(part)
        spoken = ", ".join(part for _, part in sorted(parts))
        sentence = " ".join(sorted({clause.sentence for clause in stated}))
        matched = tuple(
            number
            for number, old in enumerate(olds, 1)
            if says(spoken, sentence, content, old, turn) or _says_slot(stated, content, old, slot, turn)
        )
        if matched:
            return QuotedStatement(turn.index, matched)
    return None


def _says_slot(clauses: Sequence[Clause], content: str, old: str, slot: str | None, turn: QuotedTurn) -> bool:
    """Return whether a clause gives a slot the value that the text gives it: "I moved to Porto", "Lives in Porto". A
    correction is of a memory that has the slot, and may say the value in the words of the old text."""
    told = read_own_statement(content)
    as_name = "form of address"
    for clause in clauses:
        rule = match_statement(clause.plain, False, turn.language, True)
        if not rule or not rule.get("slot"):
            continue
        here = "name" if rule["slot"] == as_name else rule["slot"]
        if old and ("name" if slot == as_name else slot) != here:
            continue
        if told and told["slot"] == here and str(told["value"]).lower() == str(rule["value"]).lower():
            return True
        forms = telling_forms(str(rule["value"]), turn.stems)
        if old and forms <= telling_forms(content, turn.stems) and not denies(content):
            known = forms | telling_forms(old, turn.stems)
            callings = frozenset("want wants like likes prefer prefers call called name named addressed".split())
            if all(word.forms & known or word.word in callings for word in telling_words(content, turn.stems)):
                return True
    return False
