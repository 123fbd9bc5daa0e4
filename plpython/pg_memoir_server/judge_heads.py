"""Heads over what the judges know of a text: which of a user's statements or wishes a message ends, and what is a wish.

Logistic regressions (judge_heads.safetensors, learnt by research/judge/train_heads.py) over the states and chances of the
three judges. Of a pair they also see how the encoder's vectors of both differ. Which one of several is over is said by
three things together: the pair, whether the message changes anything at all, and by how much the pair leads before the
others. English.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from .judge import Judge

LEARNT = Path(__file__).with_name("judge_heads.safetensors")
# The lead of a pair is over the others, at least over this usual value of what goes on.
FLOOR = -4.0
# Below this a message changes nothing, so that pairs need not be read.
LEAST = -2.0
# The least mean chance of the judges that a wish must have.
NOT_DENIED = 0.4
Embed = Callable[[Sequence[str]], np.ndarray]


class Heads:
    """`judge`: the judges of English; `embed`: texts → vectors of length 1, n × 384."""

    def __init__(self, judge: Judge, embed: Embed):
        from safetensors.numpy import load_file

        self._judge, self._embed, self._heads = judge, embed, load_file(LEARNT)

    def wishes(self, texts: Sequence[str]) -> list[float]:
        """Return the chance that a text is a lasting wish about how the assistant behaves, for each; 0 where the judges
        deny it."""
        chances = zip(self._are("wish", texts), self._judge.wishes(texts), strict=True)
        return [chance if judged >= NOT_DENIED else 0.0 for chance, judged in chances]

    def scenes(self, texts: Sequence[str]) -> list[float]:
        """Return the chance that a message opens a scene that is played, for each."""
        return self._are("scene", texts)

    def scene_ends(self, texts: Sequence[str]) -> list[float]:
        """Return the chance that a message in a scene ends it, for each."""
        return self._are("scene_end", texts)

    def _are(self, head: str, texts: Sequence[str]) -> list[float]:
        if not texts:
            return []
        chances: list[float] = chance_of(self._apply(head, text_features(self._judge, texts))).tolist()
        return chances

    def over(self, wishes: Sequence[str], message: str) -> list[float]:
        """Return the chance that each of a user's wishes holds no longer after a message."""
        return self._which("wishes", wishes, message)

    def ended(self, statements: Sequence[str], message: str) -> list[float]:
        """Return the chance that each of a user's statements holds no longer after a message."""
        return self._which("statements", statements, message)

    def _which(self, of: str, earlier: Sequence[str], message: str) -> list[float]:
        if not earlier:
            return []
        changes = self._apply(f"{of}.changes", text_features(self._judge, [message])).item()
        if changes < LEAST:
            return [0.0] * len(earlier)
        pairs = self._apply(f"{of}.over", pair_features(self._judge, self._embed, earlier, message))
        chances: list[float] = chance_of(self._apply(f"{of}.which", stacked(pairs, changes))).tolist()
        return chances

    def _apply(self, head: str, given: np.ndarray) -> np.ndarray:
        values: np.ndarray = given @ self._heads[f"{head}.weight"] + self._heads[f"{head}.bias"]
        return values


def text_features(judge: Judge, texts: Sequence[str]) -> np.ndarray:
    return judge.features([("", text) for text in texts])


def pair_features(judge: Judge, embed: Embed, earlier: Sequence[str], message: str) -> np.ndarray:
    vectors = np.asarray(embed([*earlier, message]))
    mine, theirs = vectors[-1], vectors[:-1]
    seen = judge.features([(one, message) for one in earlier])
    return np.concatenate([seen, theirs * mine, np.abs(theirs - mine), (theirs @ mine)[:, None]], axis=1)


def stacked(pairs: np.ndarray, changes: float) -> np.ndarray:
    """Return of each pair: its own value, the message's, and its lead before the others, n × 3."""
    others = [max([FLOOR, *np.delete(pairs, number)]) for number in range(len(pairs))]
    return np.stack([pairs, np.full(len(pairs), changes), pairs - np.array(others)], axis=1)


def chance_of(values: np.ndarray) -> np.ndarray:
    chances: np.ndarray = 1 / (1 + np.exp(-values))
    return chances
