"""Answers on standard output: tables on a terminal, lines with tabs where the output is piped, JSON where asked for."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import datetime
from typing import Any

from pg_memoir.types.record import plain
from rich.console import Console
from rich.table import Table
from rich.text import Text

Row = Mapping[str, Any]
Column = str | tuple[str, Callable[[Row], Any]]
"""A key of the rows, or a title and what makes the cell."""

# What moves the cursor or paints is no text: stored texts may come from anybody.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def console() -> Console:
    """Standard output, as it is now."""
    return Console(highlight=False, markup=False, emoji=False, soft_wrap=not sys.stdout.isatty())


def printable(text: str) -> str:
    """A text without what a terminal would obey."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def cell(value: Any) -> str:
    """A value as people read it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return value.astimezone().strftime("%Y-%m-%d %H:%M")
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, (list, tuple)):
        return ", ".join(cell(item) for item in value)
    return printable(str(value))


def as_json(value: Any, *, lines: bool = False) -> None:
    """One document, or with `lines` one line of it."""
    print(json.dumps(plain(value), ensure_ascii=False, indent=None if lines else 2))


def table(rows: Iterable[Any], columns: Sequence[Column], *, json: bool = False, nothing: str = "nothing") -> None:
    """Rows (dicts or dataclasses) with these columns; `nothing`: what to say where there are none."""
    if json:
        return as_json(list(rows))
    found: list[Row] = [asdict(row) if is_dataclass(row) and not isinstance(row, type) else row for row in rows]
    makers = [(c, lambda row, key=c: row[key]) if isinstance(c, str) else c for c in columns]
    cells = [[cell(make(row)) for _, make in makers] for row in found]
    if not found:
        print(nothing, file=sys.stderr)
    elif sys.stdout.isatty():
        shown = Table(box=None, header_style="bold", pad_edge=False)
        for title, _ in makers:
            fixed = title.endswith("id") or title in ("said_at", "score", "rank", "#")
            shown.add_column(title.replace("_", " "), no_wrap=fixed, overflow="fold")
        for line in cells:
            shown.add_row(*(Text(text) for text in line))
        console().print(shown)
    else:
        for line in cells:
            print("\t".join(re.sub(r"\s+", " ", text) for text in line))


def facts(values: Row, *, json: bool = False) -> None:
    """A few values, each with its name."""
    if json:
        return as_json(values)
    width = max(map(len, values), default=0) + 2
    for name, value in values.items():
        print(f"{name.replace('_', ' '):<{width}}{cell(value)}")
