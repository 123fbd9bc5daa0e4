"""Whose words: what a person typed, and what clients wrap around it. The forms are in wrappers.toml. Of a client that
is not known, material.py tells a person's words from what a program wrote."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from . import material
from .config import UserRole
from .material import Whose

Wrapper = tuple[re.Pattern[str], Whose, str]
"""A pattern, whose words it matches, and the name of the element where it is that of a tag."""

MOST_TEXTS, MOST_CHARACTERS = 500, 200_000
"""A message of more texts, or of more characters, is an output as a whole: nobody typed it, and reading it takes
long."""

BETWEEN = "\n\n"  # between the texts of a message that are read as one
ELEMENT = re.compile(r"<([A-Za-z][\w-]*)(?:\s[^<>]*)?>")


class Piece(NamedTuple):
    """A part of a text, and whose it is. A question may be a person's: it is recalled for, and states nothing."""

    text: str
    whose: Whose


@cache
def _load_forms() -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath("wrappers.toml").read_text("utf-8"))


OPENING = 200_000  # a client says in which folder it works within so many characters


@cache
def _list_scenery() -> list[Wrapper]:
    return [(_compile_tag(name), "context", name) for name in material.list_scenery()]


@cache
def _list_wrappers(client: str) -> list[Wrapper]:
    """Of a client first, then of all others: a pasted wrapper is no person's word either. Those that take a text from
    its beginning come before those that cut it up."""
    entries = sorted(_load_forms()["wrapper"], key=lambda w: (w["client"] == "", w["client"] != client))
    found = [(re.compile(p), entry["kind"], "") for entry in entries for p in entry.get("patterns", [])]
    found += [(_compile_tag(name), entry["kind"], name) for entry in entries for name in entry.get("elements", [])]
    return sorted(found, key=lambda f: not f[0].pattern.startswith("^"))


def _compile_tag(name: str) -> re.Pattern[str]:
    return re.compile(rf"<(/?){re.escape(name)}(?:\s[^<>]*)?>")


def divide_texts(texts: list[str], client: str, role: UserRole = "person") -> list[list[Piece]]:
    """The texts of a message of the user, each taken apart. No piece is blank."""
    if len(texts) > MOST_TEXTS or sum(map(len, texts)) > MOST_CHARACTERS:
        return [[Piece(text, "output")] if text.strip() else [] for text in texts]
    return (
        [_unwrap(text, _list_wrappers(client)) for text in texts] if role == "person" else _divide(texts, client, role)
    )


def _unwrap(text: str, wrappers: list[Wrapper]) -> list[Piece]:
    found = [Piece(text, "person")]
    for wrapper in wrappers:
        found = [part for piece in found for part in _cut_out(piece, *wrapper)]
    return [_mark_element(piece) for piece in found if piece.text.strip()]


def _mark_element(piece: Piece) -> Piece:
    """A piece that is one element from its first character to its last is an output."""
    text = piece.text.strip()
    opening = ELEMENT.match(text)
    is_output = piece.whose == "person" and opening and text.endswith(f"</{opening[1]}>")
    return Piece(piece.text, "output") if is_output else piece


def _divide(texts: list[str], client: str, role: UserRole) -> list[list[Piece]]:
    """The texts are read as one, since programs spread material over several. Wrappers are looked for last: a file
    that is wrapped can hold the end of its wrapper."""
    spans = material.divide(BETWEEN.join(texts))
    found, start = [], 0
    for text in texts:
        parts: list[Piece] = []
        for span in spans:
            cut = text[max(span.start - start, 0) : max(span.end - start, 0)]
            whose: Whose = "question" if span.whose == "person" and role == "material" else span.whose
            wrappers = _list_wrappers(client) + ([] if whose == "person" else _list_scenery())
            parts += [Piece(p.text, whose if p.whose == "person" else p.whose) for p in _unwrap(cut, wrappers)]
        found.append(parts)
        start += len(text) + len(BETWEEN)
    return found


def _cut_out(piece: Piece, pattern: re.Pattern[str], whose: Whose, element: str) -> list[Piece]:
    if piece.whose != "person" or (element and f"<{element}" not in piece.text):
        return [piece]
    if element:
        spans = _find_elements(piece.text, pattern, whose)
    else:
        spans = [(match.start(), match.end(), whose) for match in pattern.finditer(piece.text)]
    out, at = [], 0
    for start, end, told in spans:
        out += [Piece(piece.text[at:start], "person"), Piece(piece.text[start:end], told)]
        at = end
    return [*out, Piece(piece.text[at:], "person")] if out else [piece]


def _find_elements(text: str, tag: re.Pattern[str], whose: Whose) -> list[tuple[int, int, Whose]]:
    """The elements of a name, those within others with them. A wrapped file may hold such tags itself: where they do
    not go together, nobody can tell whose words stand between them, so they are an output's."""
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


def find_purpose(text: str, client: str) -> str:
    """What a request with this newest text is for, "" where that is a conversation."""
    for entry in _load_forms()["purpose"]:
        if entry["client"] == client and any(re.search(pattern, text) for pattern in entry["patterns"]):
            return str(entry["is"])
    return ""


def find_project(texts: list[str]) -> str:
    """The folder that a client says it works in at the beginning of a text, "" if it does not."""
    for entry in _load_forms()["project"]:
        for pattern in entry["patterns"]:
            for text in texts:
                if match := re.search(pattern, text[:OPENING]):
                    return match["project"][:200]
    return ""
