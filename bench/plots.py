"""Plots of the benchmarks' tables: evidence against tokens, latency against the size of the user.

    python -m bench.plots [--read docs/benchmarks.md bench/RESULTS.md] [--folder bench]

They are drawn from what the page says, so they never show other figures than it does.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from .common import ROOT, CannotRun

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 380, 60, 170, 40, 50
COLOURS = ("#1b6ca8", "#d1495b", "#3c896d", "#8d6a9f", "#b5850b", "#555555")
PAGES = [ROOT / "docs" / "benchmarks.md", ROOT / "bench" / "RESULTS.md"]


@dataclass(frozen=True)
class Line:
    name: str
    points: Sequence[tuple[float, float]]


def section(text: str, name: str) -> str:
    found = re.search(rf"<!-- {re.escape(name)} -->\n(.*?)<!-- /{re.escape(name)} -->", text, re.DOTALL)
    if not found:
        raise CannotRun(f"no table {name}")
    return found[1]


def rows_of(table: str) -> list[list[str]]:
    """Cells of the first Markdown table, its head first."""
    lines = [line for line in table.splitlines() if line.startswith("|")]
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in lines if not re.match(r"\| *-+ *\|", line)
    ]


def number(cell: str) -> float | None:
    found = re.match(r"[\d,]+(\.\d+)?", cell)
    return float(found[0].replace(",", "")) if found else None


def chart(title: str, x_name: str, y_name: str, lines: Sequence[Line], y_log: bool, y_from: float | None = None) -> str:
    """An SVG with a logarithmic x axis. Each line is labelled at its end."""
    xs = sorted({x for line in lines for x, _ in line.points})
    ys = [y for line in lines for _, y in line.points]
    low, high = (min(ys) if y_from is None else y_from), max(ys)
    if y_log:
        low, high = 10 ** math.floor(math.log10(low)), 10 ** math.ceil(math.log10(high))
        ticks = [
            10**power * step
            for power in range(round(math.log10(low)), round(math.log10(high)) + 1)
            for step in (1, 2, 5)
            if 10**power * step <= high
        ]
    else:
        high = 100 if high > 80 else 10 * math.ceil(high / 10)
        ticks = [low + n * (high - low) / 5 for n in range(6)]

    def x_of(x: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (math.log(x) - math.log(xs[0])) / (math.log(xs[-1]) - math.log(xs[0]))

    def y_of(y: float) -> float:
        share = (math.log(y) - math.log(low)) / (math.log(high) - math.log(low)) if y_log else (y - low) / (high - low)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12" '
        f'role="img" aria-label="{escape(title)}">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="14" font-weight="bold">{escape(title)}</text>',
    ]
    for tick in ticks:
        out.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y_of(tick):.1f}" y2="{y_of(tick):.1f}" stroke="#ddd"/>'
        )
        out.append(f'<text x="{LEFT - 6}" y="{y_of(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for x in xs:
        out.append(
            f'<line x1="{x_of(x):.1f}" x2="{x_of(x):.1f}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM + 4}" stroke="#333"/>'
        )
        out.append(f'<text x="{x_of(x):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{x:,.0f}</text>')
    out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM}" stroke="#333"/>')
    out.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 12}" text-anchor="middle">{escape(x_name)}</text>'
    )
    out.append(
        f'<text transform="rotate(-90)" x="{-(TOP + HEIGHT - BOTTOM) / 2:.0f}" y="16" text-anchor="middle">{escape(y_name)}</text>'
    )
    labels: list[float] = []
    for line, colour in sorted(zip(lines, COLOURS, strict=False), key=lambda each: y_of(each[0].points[-1][1])):
        path = " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in line.points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{x_of(x):.1f}" cy="{y_of(y):.1f}" r="3" fill="{colour}"/>' for x, y in line.points]
        at = max(y_of(line.points[-1][1]) + 4, labels[-1] + 14 if labels else 0)  # labels must not cover each other
        labels.append(at)
        out.append(f'<text x="{WIDTH - RIGHT + 8}" y="{at:.1f}" fill="{colour}">{escape(line.name)}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def evidence_by_tokens(text: str) -> str:
    head, *rows = rows_of(section(text, "recall"))
    tokens = [number(cell) for cell in head[1:]]
    lines = [
        Line(row[0], [(x, y) for x, cell in zip(tokens, row[1:], strict=True) if x and (y := number(cell)) is not None])
        for row in rows
        if not row[0].startswith("tokens")
    ]
    return chart(
        "Share of the evidence in the recall, by its budget",
        "tokens",
        "gold turns found, %",
        lines,
        y_log=False,
        y_from=0,
    )


def latency_by_size(text: str) -> str:
    head, *rows = rows_of(section(text, "sizes"))
    columns = {
        "compile, p50": "compile, processor ms: p50",
        "compile, p99": "p99",
        "floor (bare scans), p50": "floor: p50",
    }
    own = [row for row in rows if row[0].endswith(" items")]
    lines = []
    for name, column in columns.items():
        at = head.index(column)
        points = [(x, y) for row in own if (x := number(row[0])) and (y := number(row[at]))]
        lines.append(Line(name, sorted(points)))
    return chart(
        "Processor time of a compile, by the size of the user",
        "items of the user (memories and turns)",
        "ms",
        lines,
        y_log=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.plots", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--read",
        type=Path,
        nargs="+",
        default=PAGES,
        help="the pages with the tables (docs/benchmarks.md, bench/RESULTS.md)",
    )
    parser.add_argument("--folder", type=Path, default=ROOT / "bench", help="where the plots go (%(default)s)")
    options = parser.parse_args()
    text, failed = "".join(page.read_text() for page in options.read), 0
    for name, draw in (("evidence.svg", evidence_by_tokens), ("latency.svg", latency_by_size)):
        try:
            (options.folder / name).write_text(draw(text))
            print(options.folder / name)
        except CannotRun as error:
            print(f"{name}: {error}", file=sys.stderr)
            failed = 2
    return failed


if __name__ == "__main__":
    sys.exit(main())
