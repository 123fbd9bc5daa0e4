"""The judge of lasting wishes: whether a sentence is one, and which earlier one a message takes back or replaces.

Linear heads (judge_wishes.safetensors, learnt by research/judge/train_wishes.py) over what the three judges know of a
text or a pair. Of a pair they also see how the encoder's vectors of both differ. Which wish goes is said by three
things together: the pair, whether the message changes any wish at all, and by how much the wish leads before the
user's others. English.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from .judge import Judge

LEARNT = Path(__file__).with_name("judge_wishes.safetensors")
# How much the pair of a user's only wish is taken to lead before: the usual value of a wish that goes on.
FLOOR = -4.0
# Below this a message changes no wish, so that pairs need not be read. Nine in ten ordinary messages are.
LEAST = -2.0


class WishJudge:
    """`judge`: the judges of English; `embed`: texts → vectors of length 1, n × 384."""

    def __init__(self, judge: Judge, embed: Callable[[Sequence[str]], np.ndarray]):
        from safetensors.numpy import load_file

        self._judge, self._embed, self._heads = judge, embed, load_file(LEARNT)

    def wishes(self, texts: Sequence[str]) -> list[float]:
        """Return the chance that a text is a lasting wish about how the assistant behaves, for each."""
        if not texts:
            return []
        chances: list[float] = chance_of(self._apply("wish", text_features(self._judge, texts))).tolist()
        return chances

    def over(self, wishes: Sequence[str], message: str) -> list[float]:
        """Return the chance that each of a user's wishes holds no longer after a message."""
        if not wishes:
            return []
        changes = self._apply("changes", text_features(self._judge, [message])).item()
        if changes < LEAST:
            return [0.0] * len(wishes)
        pairs = self._apply("over", pair_features(self._judge, self._embed, wishes, message))
        chances: list[float] = chance_of(self._apply("which", stacked(pairs, changes))).tolist()
        return chances

    def _apply(self, head: str, given: np.ndarray) -> np.ndarray:
        values: np.ndarray = given @ self._heads[f"{head}.weight"] + self._heads[f"{head}.bias"]
        return values


def text_features(judge: Judge, texts: Sequence[str]) -> np.ndarray:
    return judge.features([("", text) for text in texts])


def pair_features(
    judge: Judge, embed: Callable[[Sequence[str]], np.ndarray], wishes: Sequence[str], message: str
) -> np.ndarray:
    vectors = np.asarray(embed([*wishes, message]))
    mine, theirs = vectors[-1], vectors[:-1]
    seen = judge.features([(wish, message) for wish in wishes])
    return np.concatenate([seen, theirs * mine, np.abs(theirs - mine), (theirs @ mine)[:, None]], axis=1)


def stacked(pairs: np.ndarray, changes: float) -> np.ndarray:
    """Return of each wish: its pair, what the message says alone, and its lead before the others, n × 3."""
    others = [max([FLOOR, *np.delete(pairs, number)]) for number in range(len(pairs))]
    return np.stack([pairs, np.full(len(pairs), changes), pairs - np.array(others)], axis=1)


def chance_of(values: np.ndarray) -> np.ndarray:
    chances: np.ndarray = 1 / (1 + np.exp(-values))
    return chances
