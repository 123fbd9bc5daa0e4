"""JSON whose parts are known by their place in the text, so that a text can be changed without being written anew."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

_SPACE = re.compile(r"[ \t\n\r]*")
_scan = json.JSONDecoder().raw_decode


class NotPlain(ValueError):
    """No JSON object of the shape that is understood here: it is left alone."""


class Node(NamedTuple):
    """A value and where its text lies."""

    value: Any
    start: int
    end: int


class Edit(NamedTuple):
    """The text from start to end gives way to another."""

    start: int
    end: int
    text: str


def edited(text: str, edits: list[Edit]) -> str:
    """The text with all edits made. They must not overlap; at one place they stand in their order."""
    parts, at = [], 0
    for edit in sorted(edits, key=lambda e: e.start):
        if edit.start < at:
            raise NotPlain("edits overlap")
        parts += [text[at : edit.start], edit.text]
        at = edit.end
    return "".join([*parts, text[at:]])


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def value_at(text: str, at: int) -> Node:
    """The value that begins there."""
    try:
        value, end = _scan(text, at)
    except (ValueError, RecursionError) as error:
        raise NotPlain(f"no JSON at {at}") from error
    return Node(value, at, end)


def elements(text: str, at: int) -> tuple[list[Node], int]:
    """The elements of the array that begins there, and where it ends."""
    found: list[Node] = []
    at = _skip(text, at + 1)
    if text[at : at + 1] == "]":
        return found, at + 1
    while True:
        found.append(value_at(text, at))
        at = _skip(text, found[-1].end)
        if text[at : at + 1] == "]":
            return found, at + 1
        if text[at : at + 1] != ",":
            raise NotPlain(f"no comma at {at}")
        at = _skip(text, at + 1)


def members(text: str, at: int) -> Iterator[tuple[str, Node]]:
    """The members of the object that begins there."""
    at = _skip(text, at + 1)
    while text[at : at + 1] == '"':
        key, _, at = value_at(text, at)
        at = _skip(text, at)
        if text[at : at + 1] != ":":
            raise NotPlain(f"no colon at {at}")
        node = value_at(text, _skip(text, at + 1))
        yield key, node
        at = _skip(text, node.end)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
    if text[at : at + 1] != "}":
        raise NotPlain(f"no end of an object at {at}")


def member(text: str, node: Node, key: str) -> Node | None:
    """A member of an object. Raises NotPlain where the key occurs twice."""
    found = [inner for name, inner in members(text, node.start) if name == key]
    if len(found) > 1:
        raise NotPlain(f"{key} occurs twice")
    return found[0] if found else None


@dataclass
class Body:
    """A request: its text, its members, and the elements of its lists, each with its place."""

    text: str
    fields: dict[str, Node]
    lists: dict[str, list[Node]]

    def get(self, key: str) -> Any:
        """A member's value, None if there is none."""
        node = self.fields.get(key)
        return node.value if node else None


LISTS = ("messages", "input", "tools")


def body_of(raw: bytes) -> Body:
    """A request's body. Raises NotPlain where it is no JSON object, or says a thing twice."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotPlain("not UTF-8") from error
    start = _skip(text, 0)
    if text[start : start + 1] != "{":
        raise NotPlain("no object")
    fields: dict[str, Node] = {}
    lists: dict[str, list[Node]] = {}
    for key, node in members(text, start):
        if key in fields:
            raise NotPlain(f"{key} occurs twice")
        fields[key] = node
        if key in LISTS and isinstance(node.value, list):
            lists[key], _ = elements(text, node.start)
    return Body(text, fields, lists)


def quoted(value: Any) -> str:
    """A value of ours as JSON: always the same text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
