"""Breadth: what happened in which order, a summary, how many, all of. The evidence of such a question lies in many
places, so its recall has more and shorter lines, spread over the sessions that match. Where no question says so but
scores fall evenly, only what is beyond half the budget is shortened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from .candidates import ASSISTANT, USER, Candidate, worth


@dataclass(frozen=True)
class Breadth:
    """How lines are weighed and cut for a shape of answer: `power` of the odds, how worth falls (`fall`) within a
    session, an `answer`'s share of its question's worth, the shares of a `stub` and an `excerpt`, and the `longest`
    excerpt in characters. `own`: it is about what the speaker himself said. research/evidence.py shows what the numbers
    bring.
    """

    shape: str
    power: float
    fall: float
    answer: float
    stub: float
    excerpt: float
    longest: int
    own: bool = False


SHAPES = {
    b.shape: b
    for b in (
        Breadth("order", 1.5, 0.6, 0.7, 0.6, 0.8, 240),
        Breadth("summary", 1.5, 0, 0.7, 0.5, 0.8, 300),
        Breadth("several", 3, 0.4, 0, 0.4, 0.7, 240),
        Breadth("even", 4, 0, 0, 0.3, 0.75, 240),
    )
}


def breadth(shape: str | None, own: bool) -> Breadth | None:
    """Return the numbers of a shape of answer, None where one place has the answer."""
    if shape is None:
        return None
    found = SHAPES[shape]
    return replace(found, own=True, answer=0.0) if own else found


def is_even(candidates: Sequence[Candidate]) -> bool:
    """Return whether twenty or more share the worth: the best may have it all, or all the same."""
    total = sum(c.worth for c in candidates)
    squares = sum(c.worth * c.worth for c in candidates)
    return squares > 0 and total * total >= 20 * squares


def spread(candidates: list[Candidate], shape: Breadth) -> list[Candidate]:
    """Return candidates by what a line of each is worth among many, in that order. The odds of a score count less
    than where one place answers; of a turn one part counts; an answer is worth a share of what it answers, little
    where only the speaker's own words are asked for; each further turn of a session is worth less than the one before
    it.
    """
    n = len(candidates)
    if not n:
        return candidates
    worths = [_own(c, shape) for c in candidates]
    part = [0] * n
    seen: dict[tuple[bytes, bytes], int] = {}
    for i in sorted(range(n), key=lambda i: (-candidates[i].worth, i)):
        key = candidates[i].kind, candidates[i].ref
        part[i] = seen[key] = seen.get(key, 0) + 1
    asked = {
        (c.session, c.turn): worths[i]
        for i, c in enumerate(candidates)
        if c.is_turn and c.role == USER and part[i] == 1
    }
    for i, c in enumerate(candidates):
        if c.is_turn and c.role == ASSISTANT and part[i] == 1:
            worths[i] = max(worths[i], shape.answer * asked.get((c.session, c.turn - 1), 0.0))
    counts: dict[tuple[bytes, bytes, int], int] = {}
    placed = [0.0] * n
    for i in sorted(range(n), key=lambda i: (-worths[i], i)):
        c = candidates[i]
        group = c.kind, c.session, part[i]
        nth = counts.get(group, 0)
        counts[group] = nth + 1
        placed[i] = worths[i] / (1 + (shape.fall * nth if c.is_turn else 0)) * (0.1 if part[i] > 1 else 1)
    for i, c in enumerate(candidates):
        c.worth = placed[i]
    order = sorted(range(n), key=lambda i: (not candidates[i].is_pinned, -int(np.rint(placed[i] * 1000000)), i))
    return [candidates[i] for i in order]


def _own(candidate: Candidate, shape: Breadth) -> float:
    if candidate.worth <= 0:
        return 0.0
    share = max(0.0001, min(0.9999, candidate.score))
    # A candidate that lost worth before, as an echo did, stays behind.
    found = min(1.0, candidate.worth / float(worth(candidate.score))) / (1 + (1 / share - 1) ** shape.power)
    is_echo = shape.own and candidate.is_turn and candidate.role == ASSISTANT
    return float(found * 0.2 if is_echo else found)
