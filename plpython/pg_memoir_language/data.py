"""Read the language data: one TOML file a language, `data/<language>.toml`; data/README.md describes the format."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "data"
# What a text is in that is in a language without rules.
NO_LANGUAGE = "simple"
# The words of a rule's `kind`, in their order.
STATEMENT_KIND = ("type", "category", "importance")
EXTRACTION_KIND = ("type", "provenance", "category", "importance", "utility")
# Keys that a rule has besides, with their defaults; None: the key may be missing.
STATEMENT_KEYS = {
    "pattern": "", "not_if": None, "needs": None, "slot": None, "value": None, "whole": False, "exact": False,
    "standing": True,
}  # fmt: skip
EXTRACTION_KEYS = {"pattern": "", "not_if": None, "slot": None, "value": None, "roles": "user named", "at_least": 0}
INSTRUCTION = "instruction instruction important"


@dataclass(frozen=True)
class LanguageData:
    """The lists and rules of one language.

    `lists` holds words, phrases and patterns by use; a use has one kind. Rules have all keys that have a default, and
    the words of their kind one by one.
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
    """Read the data of one language, none for `simple`. Raises ValueError, naming the file, for what has not the
    documented form."""
    if language == NO_LANGUAGE:
        return LanguageData(language, {}, (), ())
    path = FOLDER / f"{language}.toml"
    try:
        table = tomllib.loads(path.read_text("utf-8"))
        pieces: dict[str, str] = {}
        for name, piece in table.pop("pieces", {}).items():
            pieces[name] = _read_pattern(piece, pieces)
        lists: dict[str, tuple[str, ...]] = {}
        for kind in ("words", "phrases", "patterns"):
            for use, value in table.pop(kind, {}).items():
                if use in lists:
                    raise ValueError(f"{use} stands in two sections")
                lists[use] = _read_list(kind, use, value, pieces)
        statements, extractions = table.pop("statement_rules", {}), table.pop("extraction_rules", {})
        if table:
            raise ValueError(f"unknown section {min(table)!r}")
        return LanguageData(
            language, lists,
            tuple(_read_statement_rule(name, rule, pieces) for name, rule in statements.items()),
            tuple(_read_extraction_rule(name, rule, pieces) for name, rule in extractions.items()),
        )  # fmt: skip
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


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


def _read_list(kind: str, use: str, value: Any, pieces: dict[str, str]) -> tuple[str, ...]:
    if kind == "words":
        found = tuple(value.split())
    elif kind == "phrases":
        # A line break stands for a blank.
        found = tuple(" ".join(entry.split()) for entry in value)
        if any(set(entry) & set("[]\\(){}?*+|.^$") for entry in found):
            raise ValueError(f"{use} holds a pattern among phrases")
    else:
        found = tuple(_read_pattern(entry, pieces) for entry in ([value] if isinstance(value, str) else value))
    if len(set(found)) < len(found):
        twice = next(entry for entry in found if found.count(entry) > 1)
        raise ValueError(f"{use} holds {twice!r} twice")
    return found


def _read_pattern(value: str, pieces: dict[str, str]) -> str:
    """Return a pattern without line breaks and the blanks around them, {{name}} replaced by the piece of that name."""
    value = "".join(line.strip() for line in value.split("\n"))
    for name, piece in pieces.items():
        value = value.replace("{{" + name + "}}", piece)
    if "{{" in value:
        raise ValueError(f"no piece of that name: {value}")
    return value


def _read_statement_rule(name: str, given: dict[str, Any], pieces: dict[str, str]) -> dict[str, Any]:
    rule = _read_rule(name, {"kind": INSTRUCTION, **given}, STATEMENT_KIND, STATEMENT_KEYS, pieces)
    if "slot" in rule:
        rule.setdefault("value", "{2}" if "{1}" in rule["slot"] else "{1}")
    return rule


def _read_extraction_rule(name: str, given: dict[str, Any], pieces: dict[str, str]) -> dict[str, Any]:
    rule = _read_rule(name, given, EXTRACTION_KIND, EXTRACTION_KEYS, pieces)
    if not set(rule["roles"].split()) <= {"user", "named", "agent"}:
        raise ValueError(f"rule {name!r}: roles can't be {rule['roles']!r}")
    return rule | {"utility": float(rule["utility"])}


def _read_rule(
    name: str, given: dict[str, Any], kind: tuple[str, ...], keys: dict[str, Any], pieces: dict[str, str]
) -> dict[str, Any]:
    """Return a rule with its defaults, and the words of its kind as values."""
    if unknown := given.keys() - keys.keys() - {"kind"}:
        raise ValueError(f"rule {name!r}: unknown key {min(unknown)}")
    words = given.get("kind", "").split()
    if len(words) != len(kind):
        raise ValueError(f"rule {name!r}: its kind must have the words {', '.join(kind)}")
    if not given.get("pattern"):
        raise ValueError(f"rule {name!r}: it has no pattern")
    rule = {"name": name, **dict(zip(kind, words, strict=True))}
    for key, default in keys.items():
        value = given.get(key, default)
        if value is not None:
            rule[key] = _read_pattern(value, pieces) if key in ("pattern", "not_if", "value") else value
    return rule
