"""A question's vector among one user's items: cosines of the nearest, exact. The signs of the vectors choose whom to
compare, where there are many.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

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
            keys = keys[~np.isin(keys & _NUMBER, hidden)]
    if not len(keys):
        return None
    keys.sort()
    distances, numbers = keys >> 32, keys & _NUMBER
    best = np.float32(1 - distances[0] / 1000000)
    kept = np.isin(numbers, matched)
    kept[:limit] = True
    distances, numbers = distances[kept], numbers[kept]
    none = np.zeros(0, np.float32)
    return Scores(numbers, (1 - distances / 1000000).astype(np.float32), none, none, best)


def _near_by_signs(
    store: Store, vector: np.ndarray, model: int, last: int, hidden: np.ndarray, limit: int
) -> list[int]:
    """Return the items whose signs differ least from a vector's (Hamming distance)."""
    size = (len(vector) + 7) // 8
    rows = np.frombuffer(_signs(store, model, last), np.dtype([("item", ">i4"), ("signs", "u1", (size,))]))
    numbers = rows["item"].astype(np.int64)
    asked = np.packbits(vector > 0)
    words = np.ascontiguousarray(rows["signs"] ^ asked)
    if size % 8 == 0:
        words = words.view(np.uint64)
    keys = (np.bitwise_count(words).sum(1, dtype=np.int64) << 32) | numbers
    if len(hidden):
        keys = keys[~np.isin(numbers, hidden)]
    if len(keys) > limit:
        keys = np.partition(keys, limit - 1)[:limit]
    found: list[int] = (keys & _NUMBER).tolist()
    return found


def _signs(store: Store, model: int, last: int) -> bytes:
    """Return the signs of all items up to a number: packed segments, and those between and behind them row by row."""
    packed = {row["segment"]: row["signs"] for row in store.rows("packed_signs", model)}
    parts = list(packed.values())
    segments = last // SEGMENT + 1
    missing = [n for n in range(segments) if n not in packed]
    while missing:
        first = missing.pop(0)
        end = first
        while missing and missing[0] == end + 1:
            end = missing.pop(0)
        signs = store.rows("signs", model, first * SEGMENT, (end + 1) * SEGMENT - 1)[0]["signs"]
        parts.append(signs or b"")
    return b"".join(parts)
