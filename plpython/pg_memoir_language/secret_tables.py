"""Tables about secrets: kinds, places, shapes of tokens, marks (secrets.toml, token_shapes.csv)."""

from __future__ import annotations

import csv
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from .patterns import Pattern, compile_pattern


@dataclass(frozen=True)
class Secret:
    """A secret and its kind: "password", "token", "card number" …"""

    kind: str
    value: str


@dataclass(frozen=True)
class Place:
    """A pattern whose first group is a secret, and the texts without which it is not tried."""

    kind: str
    marks: tuple[tuple[str, ...], ...]
    pattern: Pattern[str]
    strength: int | None = None
    deniable: bool = False


@cache
def read_tables() -> dict[str, Any]:
    with (Path(__file__).parent / "secrets.toml").open("rb") as file:
        return tomllib.load(file)


@cache
def read_places(section: str) -> tuple[Place, ...]:
    places = []
    for row in read_tables()[section]:
        pattern = row["pattern"] if isinstance(row["pattern"], str) else "".join(row["pattern"])
        places.append(
            Place(
                row["kind"],
                tuple(tuple(mark.split("&")) for mark in row["marks"]),
                compile_pattern(
                    pattern, not row.get("case", False), row.get("lines", False), longest=section == "places"
                ),
                row.get("strength"),
                row.get("deniable", False),
            )
        )
    return tuple(places)


@cache
def read_token_shapes() -> tuple[tuple[str, tuple[str, ...], Pattern[str]], ...]:
    with (Path(__file__).parent / "token_shapes.csv").open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return tuple(
            (
                row["kind"],
                tuple(m.lstrip("*") for m in row["marks"].split()),
                compile_pattern(f"(?<![A-Za-z0-9+])({row['pattern']})"),
            )
            for row in rows
        )
