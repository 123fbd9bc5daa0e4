"""A session's window over time, as the rectangles of a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pg_memoir.types import Compiled

WIDTH, HEIGHT = 960, 240
PARTS = (
    ("system", "System message"),
    ("tools", "Tools"),
    ("full", "Turns, in full"),
    ("detailed", "Turns, detailed"),
    ("compact", "Turns, compact"),
    ("stub", "Turns, stubs"),
    ("recall", "Recall"),
    ("message", "Newest message"),
)


@dataclass(frozen=True)
class Box:
    """A part of a bar, or a mark."""

    part: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Bar:
    """One compile."""

    compile: Compiled
    parts: dict[str, int]
    boxes: list[Box]
    x: float
    width: float


@dataclass(frozen=True)
class Chart:
    """Bars from the oldest compile to the newest; ticks are (y, tokens)."""

    bars: list[Bar]
    ticks: list[tuple[float, int]]
    used: list[tuple[str, str]]
    moves: int
    most: int


def count_parts(compile: Compiled) -> dict[str, int]:
    """Tokens by part; what remains is the newest message."""
    turns = [*compile.turn_tokens, 0, 0, 0, 0][:4]
    known = [compile.system_tokens, compile.tools_tokens, *turns, compile.recall_tokens]
    values = [*known, max(0, compile.tokens - sum(known))]
    return {name: value for (name, _), value in zip(PARTS, values)}


def draw_chart(newest_first: Sequence[Compiled]) -> Chart:
    """The picture of a session's compiles."""
    compiles = list(reversed(newest_first))
    most = max((c.tokens for c in compiles), default=0)
    top = _round_up(most)
    step = WIDTH / max(12, len(compiles))
    bars = []
    for n, made in enumerate(compiles):
        parts, boxes, y = count_parts(made), [], float(HEIGHT)
        for part, tokens in parts.items():
            height = tokens * HEIGHT / top
            y -= height
            if tokens:
                boxes.append(Box(part, round(n * step + 1, 1), round(y, 1), round(step - 2, 1), round(height, 1)))
        bars.append(Bar(made, parts, boxes, round(n * step, 1), round(step, 1)))
    ticks = [(round(HEIGHT - HEIGHT * n / 4, 1), top * n // 4) for n in range(5)]
    used = [(part, label) for part, label in PARTS if any(bar.parts[part] for bar in bars)]
    return Chart(bars, ticks, used, sum(c.moved for c in compiles), most)


def _round_up(most: int) -> int:
    """The next number with one digit that says something, in quarters."""
    unit = 4
    while unit * 10 < most:
        unit *= 10
    return next(unit * n for n in range(1, 12) if unit * n >= max(most, 4))
