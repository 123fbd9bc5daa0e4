"""Requests to forget: which clauses of a text ask so, and what they name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby

from . import data
from .data import choices
from .patterns import Pattern, compile_pattern
from .text import Clause, first_group, plain, replace_first, search
from .values import read_content

LONGEST_TEXT = 20000
SHORTEST_SENTENCE, LONGEST_SENTENCE = 8, 400
SHORTEST_NAME, LONGEST_NAME = 2, 160
IT = "^(?:it|that|this|them|those|him|her)(?: please)?$"


@dataclass(frozen=True)
class Request:
    """A clause that asks to forget something, and what it names; `is_all`: all about it; `said`: in plain form;
    `is_free`: in free words, which are all that it names."""

    text_no: int
    span_start: int
    span_length: int
    names: str
    is_all: bool
    language: str
    said: str
    is_free: bool = False


@cache
def _patterns(language: str) -> tuple[Pattern[str], ...]:
    return tuple(compile_pattern(p, True, longest=True) for p in data.entries(language, "forget_requests"))


def find_requests(clauses: Sequence[Clause], language: str) -> list[Request]:
    """Return the requests to forget among the clauses of texts in one language."""
    found = []
    for _, group in groupby(sorted(clauses, key=lambda c: c.text_no), key=lambda c: c.text_no):
        text = list(group)
        # "Forget my shoe size... no, hang on, keep it."
        whole = " ".join(dict.fromkeys(c.sentence for c in sorted(text, key=lambda c: c.sentence_start)))
        if len(whole) > LONGEST_TEXT or search(choices(language, "forget_cancelled"), whole):
            continue
        instead = choices(language, "forget_instead")
        is_replaced = bool(instead and search(instead, whole.lower()))
        for clause in sorted(text, key=lambda c: c.span_start):
            if is_replaced and search(choices(language, "forget_place"), clause.plain.lower()):
                continue
            if clause.clause_no > 0 and _may_ask(clause, language):
                request = _read_request(clause, text, language)
                if request:
                    found.append(request)
    return found


def _may_ask(clause: Clause, language: str) -> bool:
    if not SHORTEST_SENTENCE <= len(clause.sentence) <= LONGEST_SENTENCE:
        return False
    lower = clause.said.lower()
    if not any(verb in lower for verb in data.entries(language, "forget_verbs")):
        return False
    idioms = choices(language, "forget_idioms")
    return not search(idioms, clause.plain) and (language == "english" or not search(idioms, clause.said))


def _read_request(clause: Clause, text: Sequence[Clause], language: str) -> Request | None:
    openers = f"^(?:{choices(language, 'forget_openers') or '(?!)'})+"
    bare = replace_first(openers, "", clause.plain)
    named = _name_in_front(clause, bare, language)
    is_in_front, is_whole = named is not None, False
    rest = None
    # Where a clause names nothing ("Vergiss bitte, was ich …"), what follows it does.
    if language != "english" and clause.said != clause.sentence:
        behind = plain(clause.sentence[clause.span_start - clause.sentence_start :], language)
        rest = replace_first(openers, "", behind)
    for pattern in _patterns(language):
        if named is not None and not is_whole:
            break
        match = pattern.search(bare)
        hit = (match[1] or "") if match else ""
        if SHORTEST_NAME <= len(hit) <= LONGEST_NAME:
            named, is_whole = hit, False
        elif named is None and rest is not None:
            behind_match = pattern.search(rest)
            named = behind_match[1] if behind_match else None
            is_whole = named is not None
    start, length = clause.span_start, clause.span_length
    if named is None or search(IT, named):
        before = _name_before(clause, bare, named is not None, language, text)
        if before is None:
            return None
        named, said_from = before
        start, length = said_from, clause.span_length + clause.span_start - said_from
    if not SHORTEST_NAME <= len(named) <= LONGEST_NAME:
        return None
    if is_in_front:
        start, length = clause.sentence_start, len(clause.sentence)
    if is_whole:
        length = len(clause.sentence) - start + clause.sentence_start
    named = replace_first(choices(None, "forget_tails") or "(?!)", "", named, False)
    is_all = search(rf"\m(?:{choices(None, 'all_about')})\M", clause.plain)
    return Request(clause.text_no, start, length, named, is_all, language, clause.plain)


def _name_in_front(clause: Clause, bare: str, language: str) -> str | None:
    """Return what "delete it" names: what its sentence says before ("the salary I mentioned, please forget that")."""
    asks = choices(language, "forget_it")
    if clause.span_start == clause.sentence_start or not asks or not search(asks, bare):
        return None
    leads = clause.sentence[: clause.span_start - clause.sentence_start]
    before = plain(replace_first(r"[\s,;:–—-]+(?:and|so)?[\s,]*$", "", leads, False), language)
    for pattern in data.entries(language, "forget_fronted"):
        hit = first_group(pattern, before)
        if hit is not None:
            return hit
    return None


def _name_before(
    clause: Clause, bare: str, is_it: bool, language: str, text: Iterable[Clause]
) -> tuple[str, int] | None:
    """Return what "Please delete it." names, and where that begins: what the sentence before says that is known."""
    asks = choices(language, "forget_it")
    if language != "english" or (not is_it and not search(asks, bare)):
        return None
    earlier = [c for c in text if c.clause_no > 0 and c.sentence_start < clause.sentence_start]
    if not earlier:
        return None
    last = max(c.sentence_start for c in earlier)
    is_person = search(r"\m(?:him|her)\M[^[:alpha:]]*(?:please|pls|now)?[^[:alpha:]]*$", bare)
    for before in sorted((c for c in earlier if c.sentence_start == last), key=lambda c: -c.span_start):
        # "It's over with Jasper. Forget everything I said about him."
        if is_person:
            names = read_content(before.plain, language).names
            if names:
                spoken = [name for name in names if name in before.plain.lower()]
                return max(spoken or names, key=lambda name: before.plain.lower().rfind(name)), before.span_start
        hits = list(
            compile_pattern(choices(language, "forget_before") or "(?!)", True, longest=True).finditer(before.plain)
        )
        # "There is a bug in my script. Remove it.": of neither is said that it is known.
        known = choices(language, "known_of_me")
        if hits and search(known, f"{before.said} {before.plain} {bare}"):
            named = next((group for group in hits[-1].groups() if group is not None), hits[-1][0])
            return named, before.span_start
    return None
