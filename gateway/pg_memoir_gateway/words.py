"""Whose words: what a person typed, and what clients wrap around it. The forms are in wrappers.toml."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any, Literal, NamedTuple

Whose = Literal["person", "output", "context"]


class Piece(NamedTuple):
    """A part of a text, and whose it is."""

    text: str
    whose: Whose


@cache
def _forms() -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath("wrappers.toml").read_text("utf-8"))


@cache
def _wrappers(client: str) -> list[tuple[re.Pattern[str], Whose, bool]]:
    """Of a client first, then of all others: a pasted wrapper is no person's word either. Those that take a text from its
    beginning come before those that cut it up. The last value: is it the tag of an element?"""
    entries = sorted(_forms()["wrapper"], key=lambda w: (w["client"] == "", w["client"] != client))
    found = [(re.compile(p), entry["kind"], False) for entry in entries for p in entry.get("patterns", [])]
    found += [(_tag(name), entry["kind"], True) for entry in entries for name in entry.get("elements", [])]
    return sorted(found, key=lambda f: (f[0].pattern.startswith(r"^\s*<"), not f[0].pattern.startswith("^")))


def _tag(name: str) -> re.Pattern[str]:
    return re.compile(rf"<(/?){re.escape(name)}(?:\s[^<>]*)?>")


def pieces(text: str, client: str) -> list[Piece]:
    """A text of the user's role, taken apart; no piece is blank."""
    found = [Piece(text, "person")]
    for pattern, whose, is_tag in _wrappers(client):
        found = [part for piece in found for part in _apart(piece, pattern, whose, is_tag)]
    return [piece for piece in found if piece.text.strip()]


def _apart(piece: Piece, pattern: re.Pattern[str], whose: Whose, is_tag: bool) -> list[Piece]:
    if piece.whose != "person":
        return [piece]
    if is_tag:
        spans = _elements(piece.text, pattern, whose)
    else:
        spans = [(match.start(), match.end(), whose) for match in pattern.finditer(piece.text)]
    out, at = [], 0
    for start, end, told in spans:
        out += [Piece(piece.text[at:start], "person"), Piece(piece.text[start:end], told)]
        at = end
    return [*out, Piece(piece.text[at:], "person")] if out else [piece]


def _elements(text: str, tag: re.Pattern[str], whose: Whose) -> list[tuple[int, int, Whose]]:
    """The elements of a name, those within others with them. A wrapped file may hold such tags itself: where they do not go
    together, nobody can tell whose words stand between them, so they are an output's."""
    found: list[tuple[int, int, Whose]] = []
    begun, depth, ended = 0, 0, 0
    for match in tag.finditer(text):
        if not match[1]:
            begun, depth = (begun, depth + 1) if depth else (match.start(), 1)
        elif depth:
            depth, ended = depth - 1, match.end()
            if not depth:
                found.append((begun, ended, whose))
        elif found:
            found.append((found[-1][1], match.end(), "output"))
    if depth and (ended > begun or not text[:begun].strip()):  # an open tag within prose is a word
        found.append((begun, ended if ended > begun else len(text), "output"))
    return found


def purpose(text: str, client: str) -> str:
    """What a request with this newest text is for, "" where that is a conversation."""
    for entry in _forms()["purpose"]:
        if entry["client"] == client and any(re.search(pattern, text) for pattern in entry["patterns"]):
            return str(entry["is"])
    return ""


def project(texts: list[str]) -> str:
    """The folder that a client says it works in, "" if it does not."""
    for entry in _forms()["project"]:
        for pattern in entry["patterns"]:
            for text in texts:
                if match := re.search(pattern, text):
                    return match["project"][:200]
    return ""
