"""A plot of one session: tokens of each call's list, and what all calls so far cost, by strategy. SVG, without a library."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from .run import Outcome

WIDTH, HEIGHT, LEFT, TOP = 460, 240, 56, 34
COLOURS = ("#888888", "#c28f2c", "#a04b9e", "#1f6fb4", "#2c8c4a")


def draw(outcomes: Sequence[Outcome], title: str) -> str:
    """Returns the text of an SVG file."""
    panels = (
        ("tokens of the list", [[float(size) for size in outcome.sizes] for outcome in outcomes]),
        ("dollars so far", [outcome.spent for outcome in outcomes]),
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * (WIDTH + LEFT + 20)}" height="{HEIGHT + TOP + 60}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="18" font-size="14">{escape(title)}</text>',
    ]
    for number, (name, lines) in enumerate(panels):
        parts += _draw_panel(LEFT + number * (WIDTH + LEFT + 20), name, lines)
    for number, outcome in enumerate(outcomes):
        at = LEFT + number * 215
        parts.append(f'<rect x="{at}" y="{HEIGHT + TOP + 40}" width="12" height="4" fill="{COLOURS[number]}"/>')
        parts.append(f'<text x="{at + 18}" y="{HEIGHT + TOP + 46}">{escape(outcome.strategy)}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _draw_panel(left: int, name: str, lines: Sequence[Sequence[float]]) -> list[str]:
    """Returns the axes and lines of one panel. Calls run from left to right."""
    most = max((max(line) for line in lines if line), default=1.0) or 1.0
    bottom = TOP + HEIGHT
    parts = [
        f'<path d="M{left} {TOP} V{bottom} H{left + WIDTH}" fill="none" stroke="black"/>',
        f'<text x="{left + 6}" y="{TOP + 12}">{name}, up to {most:,.{2 if most < 100 else 0}f}</text>',
        f'<text x="{left}" y="{bottom + 16}">calls 1 to {max(map(len, lines), default=0)}</text>',
    ]
    for colour, line in zip(COLOURS, lines, strict=False):
        step = WIDTH / max(1, len(line) - 1)
        points = " ".join(f"{left + n * step:.1f},{bottom - HEIGHT * value / most:.1f}" for n, value in enumerate(line))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
    return parts
