"""A question's vector among one user's items: cosines of the nearest, exact. The signs of the vectors choose whom to
compare, where there are many.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .arrays import is_among
from .store import Store
from .words import Scores, read_longs

LEAST_DIMENSIONS = 256  # signs of fewer tell too little
SEGMENT = 256  # item numbers of a packed segment
_NUMBER = 0xFFFFFFFF


def vector_scores(
    store: Store, vector: np.ndarray, written: str, model: int, config: Mapping[str, Any], last: int,
    matched: np.ndarray, hidden: np.ndarray, limit: int,
) -> Scores | None:  # fmt: skip
    """Return the cosines of the nearest `limit` items and of all that matched by words, best first; None without any.

    `vector`: float32; `written`: the same as a text; `last`: the highest number of an item.
    """
    if last > config["exact_vectors_max"] and len(vector) >= LEAST_DIMENSIONS:
        near = _near_by_signs(store, vector, model, last, hidden, limit * config["sign_candidates"])
        keys = read_longs(store.rows("distances", model, written, sorted({*near, *matched.tolist()}))[0]["keys"])
    else:
        keys = read_longs(store.rows("all_distances", model, written)[0]["keys"])
        if len(hidden):
            keys = keys[~is_among(keys & _NUMBER, hidden)]
    if not len(keys):
        return None
    keys.sort()
    distances, numbers = keys >> 32, keys & _NUMBER
    best = np.float32(1 - distances[0] / 1000000)
    kept = is_among(numbers, matched)
    kept[:limit] = True
    distances, numbers = distances[kept], numbers[kept]
    none = np.zeros(0, np.float32)
    return Scores(numbers, (1 - distances / 1000000).astype(np.float32), none, none, best)


def _near_by_signs(
    store: Store, vector: np.ndarray, model: int, last: int, hidden: np.ndarray, limit: int
) -> list[int]:
    """Return the items whose signs differ least from a vector's (Hamming distance)."""
    items, signs = _signs(store, model, last)
    numbers = np.frombuffer(items, ">i4").astype(np.int64)
    asked = np.packbits(vector > 0)
    # Eight bytes at once, where that goes.
    kind = np.dtype(np.uint64 if len(asked) % 8 == 0 else np.uint8)
    differing = np.frombuffer(signs, kind).reshape(-1, len(asked) // kind.itemsize) ^ asked.view(kind)
    counts = np.bitwise_count(differing)
    distances = np.zeros(len(numbers), np.int64)
    for column in counts.T:  # a sum of each short row would take five times as long
        distances += column
    if len(hidden):
        seen = ~is_among(numbers, hidden)
        numbers, distances = numbers[seen], distances[seen]
    if len(numbers) > limit:
        # The farthest that can be among them, so that few are sorted.
        farthest = np.searchsorted(np.bincount(distances).cumsum(), limit)
        near = np.flatnonzero(distances <= farthest)
        numbers = numbers[near[np.lexsort((numbers[near], distances[near]))[:limit]]]
    found: list[int] = numbers.tolist()
    return found


def _signs(store: Store, model: int, last: int) -> tuple[bytes, bytes]:
    """Return numbers and signs of all items up to a number: packed segments, and those between and behind them row by
    row."""
    packed = {row["segment"]: (row["items"], row["signs"]) for row in store.rows("packed_signs", model)}
    parts = list(packed.values())
    missing = [n for n in range(last // SEGMENT + 1) if n not in packed]
    while missing:
        first = end = missing.pop(0)
        while missing and missing[0] == end + 1:
            end = missing.pop(0)
        row = store.rows("signs", model, first * SEGMENT, (end + 1) * SEGMENT - 1)[0]
        parts.append((row["items"] or b"", row["signs"] or b""))
    return b"".join(items for items, _ in parts), b"".join(signs for _, signs in parts)
