"""Tokens over time, as the rectangles of a picture: of compiled lists, and of calls as the provider counted them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pg_memoir.extras.providers import cache_counts
from pg_memoir.types import CapturedCall, Compiled, Message

WIDTH, HEIGHT = 960, 240
Parts = tuple[tuple[str, str], ...]
"""Names of parts and what they are called, from the bottom of a bar up."""

COMPILED: Parts = (
    ("system", "System message"),
    ("tools", "Tools"),
    ("full", "Turns, in full"),
    ("detailed", "Turns, detailed"),
    ("compact", "Turns, compact"),
    ("stub", "Turns, stubs"),
    ("recall", "Recall"),
    ("message", "Newest message"),
)
BILLED: Parts = (
    ("full", "Read from the prompt cache"),
    ("recall", "Written to the prompt cache"),
    ("system", "Other input"),
    ("message", "Answer"),
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
    """One list. `row`: where its numbers are from."""

    row: Any
    parts: dict[str, int]
    boxes: list[Box]
    x: float
    width: float

    @property
    def tokens(self) -> int:
        """All tokens of it."""
        return sum(self.parts.values())


@dataclass(frozen=True)
class Chart:
    """Bars from the oldest to the newest; ticks are (y, tokens)."""

    bars: list[Bar]
    ticks: list[tuple[float, int]]
    used: list[tuple[str, str]]
    most: int


def count_parts(compile: Compiled) -> dict[str, int]:
    """Tokens by part; what remains is the newest message."""
    turns = [*compile.turn_tokens, 0, 0, 0, 0][:4]
    known = [compile.system_tokens, compile.tools_tokens, *turns, compile.recall_tokens]
    return dict(zip((name for name, _ in COMPILED), [*known, max(0, compile.tokens - sum(known))], strict=True))


def count_sent(context: Mapping[str, Any]) -> dict[str, int]:
    """The same of a list that was compiled now, whose turns are told together with the newest message."""
    known = {name: context[f"{name}_tokens"] or 0 for name in ("system", "tools", "recall")}
    return known | {"message": max(0, context["tokens"] - sum(known.values()))}


def count_billed(usage: Mapping[str, Any]) -> dict[str, int]:
    """Tokens of a call, in the words of any API."""
    cached = cache_counts(usage)
    read = cached.get("cache_read_tokens", 0)
    written = cached.get("cache_write_tokens", 0) + cached.get("cache_write_1h_tokens", 0)
    plain = usage.get("input_tokens") or usage.get("prompt_tokens") or 0
    if "cache_read_input_tokens" not in usage:  # the others count it among the prompt's
        plain = max(0, plain - read - written)
    answer = usage.get("output_tokens") or usage.get("completion_tokens") or 0
    return {"full": read, "recall": written, "system": plain, "message": answer}


def find_billed(calls: Sequence[CapturedCall], turns: Sequence[Message]) -> list[tuple[Any, dict[str, int]]]:
    """Returns calls with their tokens, oldest first: those that were captured, else the answers among the turns."""
    told: list[tuple[Any, dict[str, int]]]
    told = [(call, count_billed(call.metadata.get("usage") or {})) for call in reversed(calls)]
    if not any(sum(parts.values()) for _, parts in told):
        told = [(turn, count_billed(turn["usage"])) for turn in turns if turn.get("usage")]
    return [(row, parts) for row, parts in told if sum(parts.values())]


def draw_chart(rows: Sequence[tuple[Any, dict[str, int]]], names: Parts = COMPILED) -> Chart:
    """The picture of some lists, oldest first."""
    most = max((sum(parts.values()) for _, parts in rows), default=0)
    top = _round_up(most)
    step = WIDTH / max(12, len(rows))
    bars = []
    for n, (row, parts) in enumerate(rows):
        boxes, y = [], float(HEIGHT)
        for part, tokens in parts.items():
            height = tokens * HEIGHT / top
            y -= height
            if tokens:
                boxes.append(Box(part, round(n * step + 1, 1), round(y, 1), round(step - 2, 1), round(height, 1)))
        bars.append(Bar(row, parts, boxes, round(n * step, 1), round(step, 1)))
    ticks = [(round(HEIGHT - HEIGHT * n / 4, 1), top * n // 4) for n in range(5)]
    used = [(part, label) for part, label in names if any(bar.parts.get(part) for bar in bars)]
    return Chart(bars, ticks, used, most)


def draw_strip(parts: Mapping[str, int]) -> list[Box]:
    """One bar that lies, as wide as the picture."""
    total, x, boxes = max(1, sum(parts.values())), 0.0, []
    for part, tokens in parts.items():
        width = tokens * WIDTH / total
        if tokens:
            boxes.append(Box(part, round(x, 1), 0, round(width, 1), 28))
        x += width
    return boxes


def _round_up(most: int) -> int:
    """The next number with one digit that says something, in quarters."""
    unit = 4
    while unit * 10 < most:
        unit *= 10
    return next(unit * n for n in range(1, 12) if unit * n >= max(most, 4))
