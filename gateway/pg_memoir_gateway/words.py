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
def _wrappers(client: str) -> list[tuple[re.Pattern[str], Whose]]:
    """Of a client first, then of all others: a pasted wrapper is no person's word either. Those that take a text from its
    beginning come before those that cut it up."""
    entries = sorted(_forms()["wrapper"], key=lambda w: (w["client"] == "", w["client"] != client))
    found = [(re.compile(pattern), entry["kind"]) for entry in entries for pattern in entry["patterns"]]
    return sorted(found, key=lambda f: (f[0].pattern.startswith(r"^\s*<"), not f[0].pattern.startswith("^")))


def pieces(text: str, client: str) -> list[Piece]:
    """A text of the user's role, taken apart; no piece is blank."""
    found = [Piece(text, "person")]
    for pattern, whose in _wrappers(client):
        found = [part for piece in found for part in _apart(piece, pattern, whose)]
    return [piece for piece in found if piece.text.strip()]


def _apart(piece: Piece, pattern: re.Pattern[str], whose: Whose) -> list[Piece]:
    if piece.whose != "person":
        return [piece]
    out, at = [], 0
    for match in pattern.finditer(piece.text):
        out += [Piece(piece.text[at : match.start()], "person"), Piece(match[0], whose)]
        at = match.end()
    return [*out, Piece(piece.text[at:], "person")] if out else [piece]


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
