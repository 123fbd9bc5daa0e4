"""Edits of JSON files that people keep: members are added and removed at their place, and every other byte stays.

Comments and trailing commas are understood, as opencode and editors write them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

_SPACE = re.compile(r"(?:[ \t\r\n\ufeff]+|//[^\n]*|/\*[\s\S]*?\*/)*")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s,:\[\]{}"/]+')


class JsonError(ValueError):
    """The text is no JSON."""


@dataclass
class Node:
    """A value and its place in the text. `members` of an object, `items` of a list; `keys`: where the key of each
    member begins."""

    start: int
    end: int
    value: Any
    members: dict[str, Node] = field(default_factory=dict)
    items: list[Node] = field(default_factory=list)
    keys: dict[str, int] = field(default_factory=dict)

    def spans(self) -> list[tuple[int, int]]:
        """The places of what it contains, each with its key."""
        if self.members:
            return [(self.keys[key], node.end) for key, node in self.members.items()]
        return [(node.start, node.end) for node in self.items]

    def find(self, path: tuple[str | int, ...]) -> Node | None:
        """The value at a path of keys, and of numbers in lists."""
        node: Node | None = self
        for key in path:
            if isinstance(key, str):
                node = node.members.get(key) if node else None
            else:
                node = node.items[key] if node and key < len(node.items) else None
        return node


def parse(text: str) -> Node:
    """Reads a text. Raises JsonError with the line where it ends to be JSON."""
    node = _read_value(text, _skip(text, 0))
    if _skip(text, node.end) != len(text):
        raise _wrong(text, node.end)
    return node


def _wrong(text: str, at: int) -> JsonError:
    return JsonError(f"line {text.count(chr(10), 0, at) + 1} is no JSON")


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _read_value(text: str, at: int) -> Node:
    opening = text[at : at + 1]
    if opening not in ("{", "["):
        token = _TOKEN.match(text, at)
        try:
            return Node(at, token.end(), json.loads(token[0])) if token else _fail(text, at)
        except ValueError:
            raise _wrong(text, at) from None
    node = Node(at, at, {} if opening == "{" else [])
    at = _skip(text, at + 1)
    while text[at : at + 1] != ("}" if opening == "{" else "]"):
        if opening == "{":
            key = _TOKEN.match(text, at)
            colon = _skip(text, key.end()) if key and key[0].startswith('"') else len(text)
            if not key or text[colon : colon + 1] != ":":
                raise _wrong(text, at)
            name = json.loads(key[0])
            if name in node.members:
                raise JsonError(f"line {text.count(chr(10), 0, at) + 1} repeats the key {key[0]}")
            inner = _read_value(text, _skip(text, colon + 1))
            node.members[name], node.keys[name], node.value[name] = inner, at, inner.value
        else:
            inner = _read_value(text, at)
            node.items.append(inner)
            node.value.append(inner.value)
        at = _skip(text, inner.end)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] not in ("}", "]"):
            raise _wrong(text, at)
    node.end = at + 1
    return node


def _fail(text: str, at: int) -> Node:
    raise _wrong(text, at)


def insert(text: str, path: tuple[str, ...], value: Any) -> tuple[str, str]:
    """Adds a value: as the member that the last key of `path` names, or at the end of the list at `path` if that ends
    with "-". Objects and lists on the way are made where they are missing. Returns the new text, and the piece that was
    put into it. Raises JsonError where something else stands on the way."""
    root = node = parse(text)
    depth = 0
    while depth < len(path) - 1 and path[depth] in node.members:
        node = node.members[path[depth]]
        depth += 1
    key, *rest = path[depth:]
    for name in reversed(rest):
        value = [value] if name == "-" else {name: value}
    wanted = list if key == "-" else dict
    if not isinstance(node.value, wanted):
        where = ".".join(path[:depth]) or "the file"
        raise JsonError(f"{where} is no {'list' if wanted is list else 'object'}")
    piece, at = _compose(text, root, node, None if key == "-" else key, value, depth)
    return text[:at] + piece + text[at:], piece


def _compose(text: str, root: Node, node: Node, key: str | None, value: Any, depth: int) -> tuple[str, int]:
    """The text of a new last part of `node`, in the style of the file, and where it belongs."""
    line = "\r\n" if "\r\n" in text else "\n"
    spans = node.spans()
    first = re.search(r"\n([ \t]+)\Z", text[: root.spans()[0][0]]) if root.spans() else None
    unit = first[1] if first else "  "
    is_wide = not spans or "\n" in text[node.start : spans[0][0]]
    written = json.dumps(value, indent=unit if is_wide else None, ensure_ascii=False)
    told = (f"{json.dumps(key, ensure_ascii=False)}: " if key is not None else "") + written
    if not is_wide:
        return f", {told}", _end_of_last(text, node)
    indent = line + unit * (depth + 1)
    told = indent + told.replace("\n", indent)
    if spans:
        return f",{told}" if not _has_comma(text, node) else told, _end_of_last(text, node)
    # An empty container may hold a comment: what is new stands behind it.
    tail = "" if "\n" in text[node.start : node.end] else line + unit * depth
    inner = _skip(text, node.start + 1)
    return told + tail, len(text[:inner].rstrip()) if tail == "" else inner


def _has_comma(text: str, node: Node) -> bool:
    return text[_skip(text, node.spans()[-1][1]) :][:1] == ","


def _end_of_last(text: str, node: Node) -> int:
    end = node.spans()[-1][1]
    return _skip(text, end) + 1 if _has_comma(text, node) else end


def remove(text: str, path: tuple[str | int, ...]) -> str:
    """Removes the member or the item of a list at `path`, with one comma. Used where the piece that was put in is not
    there any more letter by letter."""
    root = parse(text)
    holder = root.find(path[:-1])
    assert holder is not None
    last = path[-1]
    place = last if isinstance(last, int) else list(holder.members).index(last)
    spans = holder.spans()
    start, end = spans[place]
    if place + 1 < len(spans):
        end = spans[place + 1][0]
    elif place:
        start = spans[place - 1][1]
    elif _has_comma(text, holder):
        end = _skip(text, end) + 1
    return text[:start] + text[end:]
