"""JSON whose parts are known by their place in the text, so that a text can be changed without being written anew."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

_SPACE = re.compile(r"[ \t\n\r]*")
_scan = json.JSONDecoder().raw_decode


MOST_BYTES = 16 << 20
MOST_VALUES = 50_000
# Larger requests pass untouched: reading them would keep other clients waiting. MOST_VALUES counts objects, and the
# elements of a list. MOST_TEXT counts the characters of one text, which no model reads; images may be larger.
MOST_TEXT = 4 << 20
# Keys under which messages have their texts.
TEXTS = frozenset(("text", "content", "output", "arguments", "instructions", "input", "system"))

_SURROGATE = re.compile("[\ud800-\udfff]")


class NotPlain(ValueError):
    """No JSON object of the shape that is understood here: it is left alone."""


class TooLarge(NotPlain):
    """More than is read here."""


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


def apply_edits(text: str, edits: list[Edit]) -> str:
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


def _refuse_long(value: Any, key: str = "text") -> None:
    """Raises TooLarge where a value has a text of over MOST_TEXT characters."""
    if isinstance(value, str):
        if key in TEXTS and len(value) > MOST_TEXT:
            raise TooLarge(f"a text of {len(value)} characters")
    elif isinstance(value, list):
        for one in value:
            _refuse_long(one, key)
    elif isinstance(value, dict):
        for name, one in value.items():
            _refuse_long(one, name)


def elements(text: str, at: int) -> tuple[list[Node], int]:
    """The elements of the array that begins there, and where it ends."""
    found: list[Node] = []
    at = _skip(text, at + 1)
    if text[at : at + 1] == "]":
        return found, at + 1
    while True:
        found.append(value_at(text, at))
        if found[-1].end - found[-1].start > MOST_TEXT:
            _refuse_long(found[-1].value)
        if len(found) > MOST_VALUES:
            raise TooLarge(f"a list of over {MOST_VALUES} elements")
        at = _skip(text, found[-1].end)
        if text[at : at + 1] == "]":
            return found, at + 1
        if text[at : at + 1] != ",":
            raise NotPlain(f"no comma at {at}")
        at = _skip(text, at + 1)


def members(
    text: str, at: int, parse: Callable[[str, int, str], Node] = lambda text, at, key: value_at(text, at)
) -> Iterator[tuple[str, Node]]:
    """The members of the object that begins there. `parse` reads the value at a place, given its key."""
    at = _skip(text, at + 1)
    while text[at : at + 1] == '"':
        key, _, at = value_at(text, at)
        at = _skip(text, at)
        if text[at : at + 1] != ":":
            raise NotPlain(f"no colon at {at}")
        node = parse(text, _skip(text, at + 1), key)
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
    """Parses a request's body, each element of its lists once. Raises NotPlain if it is no JSON object or has a key
    twice, and TooLarge."""
    if len(raw) > MOST_BYTES or raw.count(b'{"') > MOST_VALUES:
        raise TooLarge(f"{len(raw)} bytes")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotPlain("not UTF-8") from error
    start = _skip(text, 0)
    if text[start : start + 1] != "{":
        raise NotPlain("no object")
    fields: dict[str, Node] = {}
    lists: dict[str, list[Node]] = {}

    def parse(text: str, at: int, key: str) -> Node:
        if key not in LISTS or text[at : at + 1] != "[":
            node = value_at(text, at)
            if node.end - node.start > MOST_TEXT:
                _refuse_long(node.value, key)
            return node
        lists[key], end = elements(text, at)
        return Node([node.value for node in lists[key]], at, end)

    for key, node in members(text, start, parse):
        if key in fields:
            raise NotPlain(f"{key} occurs twice")
        fields[key] = node
    return Body(text, fields, lists)


def write_json(value: Any) -> str:
    """Writes a value as JSON, always the same text. Lone surrogates are escaped, so the text can be encoded."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", text)
