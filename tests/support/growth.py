"""Readers of texts whose time must grow with the length of a text alone."""

import time
from collections.abc import Callable


def check_growth(read: Callable[[str], object], unit: str, start: str = "", end: str = "") -> None:
    """A text five times as long takes at most ten times as long, or less than half a second."""

    def seconds(size: int) -> float:
        text = start + unit * (size // len(unit)) + end
        begun = time.process_time()
        read(text)
        return time.process_time() - begun

    seconds(1000)
    short, long = seconds(20_000), seconds(100_000)
    assert long < max(0.5, 10 * short), (unit, short, long)
