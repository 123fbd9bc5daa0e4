"""What a user said comes before what the assistant made of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from .candidates import ASSISTANT, BELOW, USER, Candidate
from .items import HAS_SPEAKER, IS_QUESTION


def own_and_echoes(candidates: Sequence[Candidate]) -> tuple[list[Candidate], list[Candidate]]:
    """Return of the best turns without a named speaker the user's own statements, and what the assistant said."""
    said = [c for c in candidates[:60] if c.is_turn and not c.flags & HAS_SPEAKER]
    own = [c for c in said if c.role == USER and not c.flags & IS_QUESTION]
    return own, [c for c in said if c.role == ASSISTANT]


def own_words_first(candidates: list[Candidate], vectors: Mapping[int, np.ndarray]) -> None:
    """Keep of turns that say the same the user's own statement, not what the assistant made of it: it takes the
    better place, and the echo falls behind. Told by their vectors (of unit length, by item): a statement said before,
    as close as a paraphrase is.
    """
    # A short question to the assistant says nothing by itself, however much it is like the query. Its worth is its
    # answer's.
    asking = (c for c in candidates[:60] if c.is_turn and c.role == USER and not c.is_pinned)
    questions = [c for c in asking if _is_short_question(c)]
    if questions:
        answers = {(c.session, c.turn): c for c in candidates if c.is_turn and c.role == ASSISTANT and c.chunk == 0}
    for asks in questions:
        answer = answers.get((asks.session, asks.turn + 1))
        if answer and answer.reason is None and answer.worth < asks.worth:
            answer.worth = asks.worth
        asks.worth *= 0.3
    own, echoes = ([c for c in its if c.item in vectors] for its in own_and_echoes(candidates))
    echoes = echoes[:12]
    if not echoes or not own:
        return
    alike = np.stack([vectors[c.item] for c in echoes]) @ np.stack([vectors[c.item] for c in own]).T >= 0.6
    for row, echo in zip(alike.tolist(), echoes, strict=True):
        for is_alike, mine in zip(row, own, strict=True):
            if is_alike and mine.said < echo.said and echo.reason is None and mine.reason in (None, BELOW):
                mine.reason = None
                mine.worth = max(mine.worth, echo.worth)
                mine.score = max(mine.score, echo.score)
                echo.worth *= 0.2


def _is_short_question(candidate: Candidate) -> bool:
    return bool(candidate.flags & IS_QUESTION) and not candidate.flags & HAS_SPEAKER and candidate.word_count <= 6
