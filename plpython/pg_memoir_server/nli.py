"""Contradictions judged by a cross-encoder for natural language inference, from a local folder.

For a worker outside the database (pg-memoir worker --nli FOLDER). The model is loaded with the first pair, or by
load().
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any


class NoSuchModel(RuntimeError):
    """The folder holds no model that can tell contradiction."""


def load_cross_encoder(folder: str) -> Any:
    """The model in a folder; nothing is fetched."""
    if not os.path.isdir(folder):
        raise NoSuchModel(f"there is no folder {folder!r}")
    try:
        from sentence_transformers import CrossEncoder  # takes seconds to import
    except ImportError as error:
        raise NoSuchModel(f"the package sentence-transformers is needed: {error}") from None

    return CrossEncoder(folder, device="cpu", local_files_only=True)


class NliJudge:
    """Pairs of texts → how surely they contradict each other, 0 to 1. `name` is recorded with what comes of it."""

    def __init__(self, folder: str, load: Callable[[str], Any] = load_cross_encoder) -> None:
        self.name = "nli " + os.path.basename(os.path.normpath(folder))
        self._folder, self._load = folder, load
        self._model: Any = None
        self._label = 0

    def load(self) -> None:
        """Loads the model unless it is there; raises NoSuchModel."""
        if self._model is None:
            model = self._load(self._folder)
            labels = {str(label).lower(): int(n) for n, label in model.config.id2label.items()}
            if "contradiction" not in labels:
                raise NoSuchModel(f"the model in {self._folder!r} has labels {sorted(labels)}, none is contradiction")
            self._model, self._label = model, labels["contradiction"]

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        if not pairs:
            return []
        self.load()
        # A contradiction holds both ways; what is only more precise may look like one from one side.
        both = self._model.predict([*pairs, *((b, a) for a, b in pairs)], apply_softmax=True, show_progress_bar=False)
        scores = [float(row[self._label]) for row in both]
        return [min(1.0, max(0.0, min(scores[n], scores[n + len(pairs)]))) for n in range(len(pairs))]
