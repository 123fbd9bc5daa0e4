"""Read the language data: one TOML file a language, `data/<language>.toml`; data/README.md describes the format."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "data"


@dataclass(frozen=True)
class LanguageData:
    """The lists and rules of one language.

    `lists` holds words, phrases and patterns by use; a use has one kind. Rules are as the file holds them, with the
    pieces filled in.
    """

    name: str
    lists: dict[str, tuple[str, ...]]
    statement_rules: tuple[dict[str, Any], ...]
    extraction_rules: tuple[dict[str, Any], ...]


@cache
def languages() -> tuple[str, ...]:
    """Return the names of all languages that have data, in alphabetical order."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


@cache
def load(language: str) -> LanguageData:
    """Read the data of one language. Raises ValueError, naming the file, for what has not the documented form."""
    path = FOLDER / f"{language}.toml"
    with path.open("rb") as file:
        try:
            table = tomllib.load(file)
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"{path}: {error}") from error
    lists: dict[str, tuple[str, ...]] = {}
    for kind in ("words", "phrases", "patterns"):
        for use, value in table.pop(kind, {}).items():
            if use in lists:
                raise ValueError(f"{path}: {use} stands in two sections")
            entries = tuple(value.split()) if kind == "words" else tuple(_join_parts(entry) for entry in value)
            if len(set(entries)) < len(entries):
                twice = next(entry for entry in entries if entries.count(entry) > 1)
                raise ValueError(f"{path}: {use} holds {twice!r} twice")
            if kind == "phrases" and any(set(entry) & set("[]\\(){}?*+|.^$") for entry in entries):
                raise ValueError(f"{path}: {use} holds a pattern among phrases")
            lists[use] = entries
    pieces: dict[str, str] = {}
    for name, value in table.pop("statement_pieces", {}).items():
        pieces[name] = _fill_pieces(path, _join_parts(value), pieces)
    rules = {
        kind: tuple(
            {key: _fill_pieces(path, _join_parts(value), pieces) for key, value in rule.items()}
            for rule in table.pop(kind, [])
        )
        for kind in ("statement_rules", "extraction_rules")
    }
    if table:
        raise ValueError(f"{path}: unknown section {min(table)!r}")
    return LanguageData(language, lists, **rules)


@cache
def entries(language: str | None, *uses: str) -> tuple[str, ...]:
    """Return the entries of these uses in one language, or in all languages (None).

    A language without such a list has no entries. Raises KeyError for a use that no language has.
    """
    found: list[str] = []
    for use in uses:
        named = [name for name in languages() if use in load(name).lists]
        if not named:
            raise KeyError(f"no list {use}")
        for name in named:
            if language in (None, name):
                found += load(name).lists[use]
    return tuple(found)


@cache
def choices(language: str | None, *uses: str) -> str | None:
    """Join the entries of lists to one pattern; None where the language has none."""
    return "|".join(entries(language, *uses)) or None


@cache
def entry_set(language: str | None, use: str) -> frozenset[str]:
    """Return a list as a set."""
    return frozenset(entries(language, use))


def _join_parts(value: Any) -> Any:
    """A long text stands as an array of its parts."""
    return "".join(value) if isinstance(value, list) else value


def _fill_pieces(path: Path, value: Any, pieces: dict[str, str]) -> Any:
    """Replace {{name}} by the piece of that name."""
    if not isinstance(value, str):
        return value
    for name, piece in pieces.items():
        value = value.replace("{{" + name + "}}", piece)
    if "{{" in value:
        raise ValueError(f"{path}: no piece of that name: {value}")
    return value
