"""A recalled question brings its answer: what one of two people asked says little without what the other said."""

from __future__ import annotations

from collections.abc import Sequence

from .candidates import Candidate
from .items import HAS_SPEAKER, IS_QUESTION

FIRST = 20  # candidates whose answers are looked for
SHARE = 0.8  # of a question's worth that its answer has at least


def bring_answers(candidates: Sequence[Candidate]) -> None:
    """Let the next turn of each of the best questions, by somebody else, be worth about as much, if it can be shown."""
    asked = [c for c in candidates[:FIRST] if c.is_turn and c.reason is None and c.flags & IS_QUESTION]
    if not asked:
        return
    turns = {(c.session, c.turn): c for c in candidates if c.is_turn and c.chunk == 0}
    for asks in asked:
        answer = turns.get((asks.session, asks.turn + 1))
        # Two named speakers may have one role.
        if answer is None or answer.role == asks.role and not answer.flags & HAS_SPEAKER:
            continue
        if answer.reason is None:
            answer.worth = max(answer.worth, SHARE * asks.worth)
