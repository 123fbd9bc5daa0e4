"""Lasting wishes that no rule knows: "If I ask for a recipe, make it for three people".

The judge knows a lasting instruction from a task and from a fact. It may be less sure of a sentence that says how far
it holds ("always", "when I", "any").
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import groupby, islice

from .data import choices
from .memories import Extracted, Rule
from .naming import name_speaker
from .statements import state_clause
from .text import Clause, search

# The chance that a sentence is a lasting instruction to the assistant, for each.
Judge = Callable[[Sequence[str]], Sequence[float]]
LEARNT: Rule = {
    "name": "learnt wish",
    "type": "instruction",
    "category": "instruction",
    "importance": "important",
    "standing": True,
}
LONGEST = 200
# Sentences of a text that are read.
MOST = 8
# Characters between a wish and what it excepts.
NEXT = 3
# The chance from which on a sentence that says how far it holds is one, and any other.
SCOPED, ALONE = 0.6, 0.7
# "Would you close each answer with a riddle?"
ASKED_OF_YOU = r"\m(?:can|could|would|will) (?:you|u)\M"


def find_wishes(
    clauses: Sequence[Clause], found: Sequence[Extracted], said: Sequence[datetime], language: str, judge: Judge
) -> list[Extracted]:
    """Return the lasting wishes among whole sentences of which rules made no instruction.

    `clauses`: of persons without a name, in one language; `found`: what rules made of them; `said`: by text.
    """
    scopes, passing = choices(language, "wish_scopes"), choices(language, "passing_wishes")
    if scopes is None:
        return []
    taken = [
        (one.text_no, one.span_start, one.span_start + one.span_length) for one in found if one.type == "instruction"
    ]
    sentences = [
        row
        for row in sorted(clauses, key=lambda c: c.text_no)
        if row.clause_no == 0
        and (not row.asks or search(ASKED_OF_YOU, row.said.lower()))
        and row.span_length <= LONGEST
        and not (passing and search(passing, row.plain))
        and not any(no == row.text_no and start < row.end and row.span_start < end for no, start, end in taken)
    ]
    rows = [row for _, text in groupby(sentences, key=lambda c: c.text_no) for row in islice(text, MOST)]
    chances = judge([row.said for row in rows]) if rows else []
    return [
        replace(state_clause(row, row.said, LEARNT, said[row.text_no - 1], language), standing=True)
        for row, chance in zip(rows, chances, strict=True)
        if chance >= (SCOPED if not row.asks and search(scopes, row.plain) else ALONE)
    ]


def with_exceptions(found: Sequence[Extracted], clauses: Sequence[Clause], languages: Sequence[str]) -> list[Extracted]:
    """Return memories of which a lasting wish also says what the sentences behind it except: "Answer in French. Only
    to my sister in English". `clauses`: of persons without a name; `languages`: by text.
    """
    facts = [(one.text_no, one.span_start, one.span_start + one.span_length) for one in found if not _is_wish(one)]
    # A sentence that states something by itself is no exception, unless it says so.
    behind = {
        (row.text_no, row.sentence_start): row
        for row in clauses
        if row.clause_no == 0
        and not row.asks
        and (
            "exception" in row.said.lower()
            or not any(no == row.text_no and start < row.end and row.span_start < end for no, start, end in facts)
        )
    }
    starts = sorted(behind)
    kept: list[Extracted] = []
    for one in sorted(found, key=lambda one: (one.text_no, one.span_start)):
        last = kept[-1] if kept else None
        if last and _is_wish(last) and last.overlaps(one):
            continue
        exceptions = choices(languages[one.text_no - 1], "wish_exceptions") if _is_wish(one) else None
        first = bisect_left(starts, (one.text_no, one.span_start + one.span_length)) if exceptions else len(starts)
        for place in starts[first:]:
            row = behind[place]
            end = one.span_start + one.span_length
            if row.text_no != one.text_no or row.sentence_start > end + NEXT or row.span_length > LONGEST:
                break
            if not search(exceptions, row.said.lower()):
                break
            said = name_speaker(row.said, "User").rstrip(".") + "."
            one = replace(
                one, span_length=row.end - one.span_start, content=f"{one.content} {said[:1].upper()}{said[1:]}"
            )
        kept.append(one)
    return kept


def _is_wish(one: Extracted) -> bool:
    return one.type == "instruction" and one.slot is None
