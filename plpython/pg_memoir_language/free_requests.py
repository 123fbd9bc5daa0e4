"""Requests to forget in free words: "That business with my foot, I'd rather you didn't keep it. The rest is fine."

A form (a word of forgetting, no idiom) and the judge together tell the request. What it means is found by likeness: the
one statement of the user that is nearest to the request in meaning, with a clear lead over all others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

from .data import choices
from .requests import LONGEST_NAME, LONGEST_SENTENCE, Request
from .text import Clause, own_sentences, search, split_clauses
from .values import Content, read_content


class Judge(Protocol):
    """A learnt model that reads sentences."""

    def asks(self, texts: Sequence[str]) -> Sequence[float]:
        """Return the chance that a sentence asks to forget something, for each."""

    def tells(self, texts: Sequence[str]) -> Sequence[float]:
        """Return the chance that a sentence tells something and asks for nothing, for each."""


Asks = Callable[[Sequence[str]], Sequence[float]]
# The likeness of a text to others, cosines.
Likeness = Callable[[str, Sequence[str]], Sequence[float]]
ASKS = 0.8
MOST_UNITS = 200
# The likeness from which on a statement is meant, its lead over statements of other messages, and what is meant beside
# it in its own message.
MEANT, LEAD, BESIDE = 0.3, 0.1, 0.05
# Words that ask for a kind of value.
KINDS: tuple[tuple[str, Callable[[Content], bool]], ...] = (
    (
        r"\m(?:number|code|combination|digits|pin|password)\M",
        lambda content: any(search(r"\d.*\d.*\d", v.raw) for v in content.values),
    ),
    (r"\mname of\M", lambda content: bool(content.names)),
)
# A question or a task is meant less often than a statement; the nearest ones are asked about.
ASKING, MOST_JUDGED = 0.1, 12


@dataclass(frozen=True)
class Meant:
    """The sentences that are meant, (text, start, length), or none; `is_unclear`: several fit nearly as well."""

    spans: tuple[tuple[int, int, int], ...] = ()
    is_unclear: bool = False


def find_free_requests(clauses: Sequence[Clause], found: Sequence[Request], language: str, asks: Asks) -> list[Request]:
    """Return the requests among sentences of texts in one language in which no rule found any."""
    taken = {request.text_no for request in found}
    cancelled = choices(language, "forget_cancelled")
    for number, group in groupby(sorted(clauses, key=lambda c: c.text_no), key=lambda c: c.text_no):
        if search(cancelled, " ".join(row.said for row in group if row.clause_no == 0)):
            taken.add(number)
    rows = [
        row
        for row in clauses
        if row.clause_no == 0 and row.text_no not in taken and _may_ask(row.said, row.plain, language)
    ]
    chances = asks([row.said for row in rows]) if rows else []
    asking = [row for row, chance in zip(rows, chances, strict=True) if chance >= ASKS]
    requests = []
    for number, group in groupby(sorted(asking, key=lambda c: c.text_no), key=lambda c: c.text_no):
        first = next(group)
        requests.append(
            Request(
                number, first.sentence_start, len(first.sentence), first.said[:LONGEST_NAME], False, language,
                first.plain, is_free=True,
            )
        )  # fmt: skip
    return requests


def _may_ask(said: str, plain: str, language: str) -> bool:
    forms = choices(language, "forget_freely")
    if not forms or len(said) > LONGEST_SENTENCE or search(choices(language, "forget_idioms"), plain):
        return False
    if said.rstrip().endswith("?") and not search(choices(language, "asked_wishes"), said):
        return False
    asked, _ = _divide([said], language)
    return search(forms, asked.lower(), False)


def find_meant(
    text: str, earlier: Sequence[tuple[str, bool]], judge: Judge, likeness: Likeness, language: str
) -> Meant:
    """Return which sentence of earlier texts (with whether the user said them) a message that asks to forget means."""
    sentences = [s.said for s in own_sentences(text)]
    asking = [n for n, chance in enumerate(judge.asks(sentences)) if chance >= ASKS] if sentences else []
    if not asking:
        return Meant()
    asked, kept = _divide([sentences[n] for n in asking], language)
    # What follows says most often what may stay.
    kept = " ".join(filter(None, (kept, *sentences[asking[-1] + 1 :])))
    units = [
        (number, s.start, s.length, s.said)
        for number, (said, is_own) in enumerate(earlier)
        if is_own
        for s in own_sentences(said)[:20]
        if s.said not in sentences
    ][:MOST_UNITS]
    if not units or not asked:
        return Meant()
    texts = [said for *_, said in units]
    held = likeness(kept, texts) if kept else [-1.0] * len(units)
    ranked = sorted(
        (
            (chance, unit)
            for chance, keep, unit in zip(likeness(asked, texts), held, units, strict=True)
            if chance > keep
        ),
        key=lambda row: -row[0],
    )[:MOST_JUDGED]
    told = judge.tells([unit[3] for _, unit in ranked]) if ranked else []
    ranked = sorted(
        ((chance - ASKING * (1 - says), unit) for (chance, unit), says in zip(ranked, told, strict=True)),
        key=lambda row: -row[0],
    )
    if not ranked or ranked[0][0] < MEANT:
        return Meant()
    best, (of, *_) = ranked[0]
    if any(unit[0] != of and chance > best - LEAD for chance, unit in ranked[1:]):
        return Meant(is_unclear=True)
    chosen = [unit for chance, unit in ranked if unit[0] == of and chance > best - BESIDE]
    # "Got a job!! At Hollins Vane.": a request for "the name" is near to the first, and means what the second says.
    for kind, holds in KINDS:
        if search(kind, asked.lower()) and not any(holds(read_content(unit[3], language)) for unit in chosen):
            chosen = [unit for unit in units if unit[0] == of and holds(read_content(unit[3], language))]
            if len(chosen) != 1:
                return Meant(is_unclear=True)
    return Meant(tuple((number, start, length) for number, start, length, _ in chosen))


def _divide(sentences: Sequence[str], language: str) -> tuple[str, str]:
    """Return what sentences ask for, and what they say may stay."""
    keeps = choices(language, "kept_things")
    kept: list[str] = []
    asked: list[str] = []
    for sentence in sentences:
        for _, _, said, _ in split_clauses(sentence, language):
            (kept if keeps and search(keeps, said.lower()) else asked).append(said)
    return " ".join(asked), " ".join(kept)
