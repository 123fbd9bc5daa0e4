"""How a question matches the items of a user or a space, by words and by vectors, beside the others it is asked of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from .items import IS_QUESTION, Items
from .words import Scores

F32 = np.float32
ALL_WORDS = 0.999  # of a question, by a share in float32


@dataclass(frozen=True)
class Match:
    """Items with what a question has in common with each: `bm25`, `cover` and `telling` of its words (words.Scores),
    `cosine`, ranks by both from 1 (0: nothing in common). `best_bm25`, `best_cosine`: by which values are measured.
    """

    items: Items
    words: Scores | None
    vectors: Scores | None
    bm25: np.ndarray
    cover: np.ndarray
    telling: np.ndarray
    word_rank: np.ndarray
    best_bm25: np.float32
    cosine: np.ndarray
    cosine_rank: np.ndarray
    best_cosine: np.float32


def match(items: Items, words: Scores | None, vectors: Scores | None, query: str) -> Match:
    """Return how a question matches items of one user or space. One that was asked before is no measure for what may
    answer it: values and ranks of others are as if it had not been.
    """
    bm25, cover, telling, word_rank = look_up(words, items.item)
    cosine, cosine_rank = cosines(vectors, items.item)
    asked_before = (items.flags & IS_QUESTION > 0) & (cover >= F32(ALL_WORDS)) & (items.length <= 1.2 * len(query))
    asked_before &= items.is_of(b"t")
    best_bm25, word_rank = _without(asked_before, words, bm25, word_rank)
    best_cosine, cosine_rank = _without(asked_before, vectors, cosine, cosine_rank)
    return Match(
        items, words, vectors, bm25, cover, telling, word_rank, best_bm25, cosine, cosine_rank, best_cosine
    )  # fmt: skip


def level(found: Sequence[Match]) -> list[Match]:
    """Return the matches of several users and spaces measured by the best of all, and ranked among all.

    Cosines compare as they are. BM25 does not, as it weighs a word by how rare it is in one place: the best item of
    each place stands for the share of the question's words that it holds (merging of results in federated search:
    Callan 2000).
    """
    if len(found) < 2:
        return list(found)
    covers = [float(one.cover[np.argmax(np.minimum(one.bm25, one.best_bm25))]) for one in found]
    best_cover, best_cosine = max(covers), max(one.best_cosine for one in found)
    levelled = [
        replace(one, best_bm25=F32(one.best_bm25 * best_cover / cover) if cover else one.best_bm25,
            best_cosine=best_cosine)
        for one, cover in zip(found, covers, strict=True)
    ]  # fmt: skip
    shares = [np.where(one.word_rank > 0, one.bm25 / one.best_bm25, F32(0)) for one in levelled]
    return [
        replace(one, word_rank=_among(one.word_rank, shares, n),
            cosine_rank=_among(one.cosine_rank, [o.cosine * (o.cosine_rank > 0) for o in levelled], n))
        for n, one in enumerate(levelled)
    ]  # fmt: skip


def _among(rank: np.ndarray, values: Sequence[np.ndarray], own: int) -> np.ndarray:
    """Return ranks of the items of one place among those of all, by values of each."""
    others = np.sort(np.concatenate([its[its > 0] for n, its in enumerate(values) if n != own]))
    ahead = len(others) - np.searchsorted(others, values[own], side="right")
    return np.where(rank > 0, rank + ahead, 0)


def look_up(scores: Scores | None, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return score, cover, telling and rank (from 1; 0: none) of each wanted item."""
    n = len(wanted)
    if scores is None or not len(scores.items):
        return np.zeros(n, F32), np.zeros(n, F32), np.zeros(n, F32), np.zeros(n, np.int64)
    place, known = places(scores.items, wanted)
    return (
        np.where(known, scores.scores[place], F32(0)), np.where(known, scores.covers[place], F32(0)),
        np.where(known, scores.tellings[place], F32(0)), np.where(known, place + 1, 0),
    )  # fmt: skip


def cosines(scores: Scores | None, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return cosine and rank (from 1; 0: none) of each wanted item."""
    if scores is None or not len(scores.items):
        return np.zeros(len(wanted), F32), np.zeros(len(wanted), np.int64)
    place, known = places(scores.items, wanted)
    return np.where(known, scores.scores[place], F32(0)), np.where(known, place + 1, 0)


def _without(
    left_out: np.ndarray, scores: Scores | None, values: np.ndarray, rank: np.ndarray
) -> tuple[np.float32, np.ndarray]:
    """Return the best value and the ranks as they are without some items, which keep their own ranks."""
    if scores is None:
        return F32(1), rank
    others = ~left_out & (rank > 0)
    if not left_out.any() or not others.any():
        return max(scores.best, F32(1e-6)), rank
    ahead = np.searchsorted(np.sort(rank[left_out & (rank > 0)]), rank)
    return max(values[others].max(), F32(1e-6)), np.where(others, rank - ahead, rank)


def places(items: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(items)
    at = np.minimum(np.searchsorted(items, wanted, sorter=order), len(items) - 1)
    place = order[at]
    return place, items[place] == wanted
