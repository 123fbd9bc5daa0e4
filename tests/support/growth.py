"""Readers of texts whose time must grow with the length of a text alone."""

import time
from collections.abc import Callable


def check_growth(read: Callable[[str], object], unit: str, start: str = "", size: int = 20_000) -> None:
    """A text five times as long takes at most ten times as long, or less than half a second for 100,000 characters."""

    def seconds(length: int) -> float:
        text = start + unit * (length // len(unit))
        begun = time.process_time()
        read(text)
        return time.process_time() - begun

    seconds(1000)
    short, long = seconds(size), seconds(5 * size)
    if long >= max(size / 40_000, 10 * short):  # once more, as a collection of garbage counts, too
        short, long = seconds(size), seconds(5 * size)
    assert long < max(size / 40_000, 10 * short), (unit, short, long)
