"""Numbers in arrays: np.unique and np.isin take many times as long for a few hundred, and load numpy.ma."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Any

import numpy as np


def mask(flags: Iterable[bool]) -> np.ndarray:
    """Return flags as an array to read. NumPy looks at each item of a list, which takes five times as long."""
    return np.frombuffer(bytes(flags), bool)


def pick(columns: Iterable[Any], order: np.ndarray) -> Iterator[list[Any]]:
    """Yield columns, arrays and lists, as lists in an order of their places."""
    places = order.tolist()
    # Of one place an itemgetter returns no tuple, of none there is none.
    taken = itemgetter(*places) if len(places) > 1 else lambda column: [column[n] for n in places]
    for column in columns:
        yield column[order].tolist() if isinstance(column, np.ndarray) else list(taken(column))


def distinct(numbers: np.ndarray) -> np.ndarray:
    """Return each of some numbers once, the least first."""
    found = np.sort(numbers)
    once: np.ndarray = found[_is_first(found)]
    return once


def group(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each of some numbers once, the least first, and the place among these of every number."""
    order = np.argsort(numbers, kind="stable")
    found = numbers[order]
    is_first = _is_first(found)
    place = np.empty(len(numbers), np.int64)
    place[order] = np.cumsum(is_first) - 1
    return found[is_first], place


def is_among(numbers: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return which numbers are among others."""
    if not len(others):
        return np.zeros(len(numbers), bool)
    found = np.sort(others)
    # One below the least other has place -1, where the greatest is.
    is_found: np.ndarray = found[np.searchsorted(found, numbers, "right") - 1] == numbers
    return is_found


def _is_first(found: np.ndarray) -> np.ndarray:
    is_first = np.ones(len(found), bool)
    np.not_equal(found[1:], found[:-1], out=is_first[1:])
    return is_first
