"""Chances from which on a judge bears witness to a change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Chances from which on a judge bears witness: `beside` each form, `alone`.

    `item`: beside an end or a denial of one item of a list; `named_item`: where a message names the item in whatever
    form; `same`: beside an end that says nothing but what was stated.
    """

    beside: Mapping[str, float]
    alone: float
    item: float
    named_item: float
    same: float


# On texts of writers that the judges have not read next to all are right from there on, alone nine in ten
# (research/judge/exam.py). What corrects, updates or fills a slot, and the opposite liking of the same thing, leave
# little room for doubt.
LIMITS = Limits(
    beside={
        "slip": 0.02, "liking": 0.05, "update": 0.2, "slot": 0.2, "answer": 0.33, "corrected": 0.4, "name": 0.5,
        "same words": 0.5, "permitted": 0.5, "ended": 0.75, "same subject": 0.75, "cue": 0.88, "named": 0.9,
        "value": 0.88, "another value": 0.88, "denied": 0.92, "matter": 0.97,
    },
    alone=0.85, item=0.6, named_item=0.85, same=0.3,
)  # fmt: skip
# Of the judge of other languages.
OTHER_LIMITS = Limits(
    beside={
        "slip": 0.2, "liking": 0.2, "update": 0.33, "slot": 0.33, "answer": 0.5, "corrected": 0.33, "name": 0.6,
        "same words": 0.33, "permitted": 0.5, "cue": 0.6, "ended": 0.4, "named": 0.75, "same subject": 0.4,
        "value": 0.75, "another value": 0.75, "denied": 0.6, "matter": 0.9,
    },
    alone=0.75, item=0.7, named_item=0.9, same=0.3,
)  # fmt: skip
# Chances of the heads that read all candidates together: beside any form, and alone. On texts of writers that they have
# not read 24 in 25 and nine in ten are right. They have seen no repetitions, so the judge must not deny it.
CHOSEN, CHOSEN_ALONE, NOT_DENIED = 0.95, 0.7, 0.2
# From here on it says that a memory's slot is free for another value.
FREES_SLOT = 0.33
# Of two matters that a message may end the better one is meant where it is better by so much.
MARGIN = 0.2
# The chance from which on a sentence counts as a statement: where it is over for certain, and where it is likely.
STATES_CERTAIN, STATES = 0.3, 0.5
# Forms that don't say which item of a list they change.
LOOSE = frozenset({"cue", "value", "same subject", "name", "another value", "matter"})
# Forms that end an item of a list and leave the rest.
ENDING = frozenset({"ended", "denied", "permitted", "named", "liking"})
