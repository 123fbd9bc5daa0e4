"""Words of a question in other languages as English ones, by which English texts are found.

A word becomes those English words that lie nearest to it in the multilingual encoder. The English words are those of
MiniLM's vocabulary, its most frequent first.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import snowballstemmer
from anyascii import anyascii
from pg_memoir_language import data, languages
from pg_memoir_language.patterns import compile_pattern

from .models import DEFAULT_MODEL, model_folder
from .multilingual import LANGUAGES, encoder
from .runtimes import RuntimeUnavailable

log = logging.getLogger("pg_memoir.embedder")

WORDS = 6000  # of the vocabulary; with 21,000 no more was found
LEAST, NEARER = 0.6, 0.1  # cosine of a translation, and how far from that of the best
MOST, MOST_WORDS = 3, 24  # translations of a word, words of a question
# Of scripts without blanks what stands together, of others words of three letters and more.
_UNSPACED = r"[\u30a0-\u30ff]{2,}|[\u4e00-\u9fff]+"
_WORD = rf"{_UNSPACED}|[^\W\d_\u3040-\u30ff\u4e00-\u9fff]{{3,}}"

# Foreign names: in katakana, with a capital in Cyrillic, anything in scripts without capitals.
_NAME = (
    r"[\u30a1-\u30fa\u30fc]{2,}|[\u0410-\u042f\u0401][\u0430-\u044f\u0451]{2,}"
    r"|[\u0600-\u06ff\u0e01-\u0e4e\uac00-\ud7a3]{2,}"
)


class Dictionary:
    """English words with their vectors, made by a thread since that takes some seconds: until then nothing is
    translated. They are kept in `folder`, if there is one, for the next process.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._words: list[str] = []
        self._vectors: np.ndarray | None = None
        self._begun = threading.Event()

    def begin(self) -> None:
        if not self._begun.is_set():
            self._begun.set()
            threading.Thread(target=self.make, name="dictionary", daemon=True).start()

    def make(self) -> None:
        try:
            words = _english_words()
            name = f"dictionary-{hashlib.sha256(' '.join(words).encode()).hexdigest()[:12]}.npy"
            path = self._folder / name if self._folder else None
            if path and path.is_file():
                vectors = np.load(path)
            else:
                vectors = np.concatenate([encoder().encode(words[n : n + 64]) for n in range(0, len(words), 64)])
                if path:
                    self._keep(path, vectors.astype(np.float16))
            self._words, self._vectors = words, vectors.astype(np.float32)
        except Exception:
            log.exception("questions in other languages are not translated")

    def _keep(self, path: Path, vectors: np.ndarray) -> None:
        unfinished = path.with_suffix(f".{os.getpid()}.npy")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(unfinished, vectors)
            unfinished.rename(path)
        except OSError as error:
            log.warning("the dictionary is made anew by each process: %s", error)

    def translate(self, words: list[str]) -> list[list[str]]:
        """Return the English words for each, best first; none while the vectors are being made."""
        if self._vectors is None or not words:
            self.begin()
            return [[] for _ in words]
        near = encoder().encode(words) @ self._vectors.T
        found = []
        for row in near:
            best = np.argsort(-row)[:MOST]
            found.append([self._words[n] for n in best if row[n] >= max(LEAST, row[best[0]] - NEARER)])
        return found


_dictionary = Dictionary()


def keep_in(folder: Path) -> None:
    """Keep the dictionary of this process in a folder; one that is there already is read at once."""
    global _dictionary
    _dictionary = Dictionary(folder)
    if any(folder.glob("dictionary-*.npy")):
        _dictionary.begin()


def _english_words() -> list[str]:
    """Return MiniLM's most frequent words of three letters and more that are not common ones of another language."""
    folder = model_folder(DEFAULT_MODEL)
    if folder is None:
        return []
    vocabulary = json.loads((folder / "tokenizer.json").read_text("utf-8"))["model"]["vocab"]
    left_out = frozenset[str]().union(*(_common_words(one.name) for one in languages.languages()))
    found = [word for word in vocabulary if len(word) > 2 and word.isascii() and word.isalpha()]
    return [word for word in found if word not in left_out][:WORDS]


def _common_words(language: str) -> frozenset[str]:
    return frozenset(word for entry in data.entries(language, "common_words") for word in entry.lower().split())


def to_english(text: str, language: str) -> dict[str, Any] | None:
    """Return the English stems for the words of a question, {"words": what was translated, as written and stemmed as
    English, "terms": a list of stems for each, the best first, "names": what may be a name, in Latin letters}; None of
    a question that is not translated.
    """
    if language not in LANGUAGES:
        return None
    common, pattern = _common_words(language), compile_pattern(_WORD)
    every = dict.fromkeys(word.lower() for word in pattern.findall(text[:1000]))
    words = [word for word in every if word not in common][:MOST_WORDS]
    stem = snowballstemmer.stemmer("english").stemWord  # one a call: it keeps its word in itself
    try:
        translated = _dictionary.translate(words)
    except RuntimeUnavailable:
        return None
    pairs = [
        (word, list(dict.fromkeys(stem(one) for one in found)))
        for word, found in zip(words, translated, strict=True)
        if found
    ]
    names = sorted({anyascii(word) for word in compile_pattern(_NAME).findall(text[:1000])})
    if not pairs and not names:
        return None
    gone = {form for word in [*(word for word, _ in pairs), *common.intersection(every)] for form in (word, stem(word))}
    return {"words": sorted(gone), "terms": [stems for _, stems in pairs], "names": names}
