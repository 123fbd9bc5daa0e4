"""Server-sent events out of a stream of bytes, whatever the pieces it comes in."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LINE = re.compile(r"\r\n|\n|\r")


class Event(NamedTuple):
    """An event as it came, with its empty line, and its data."""

    raw: bytes
    data: str

    def json(self) -> Any:
        """Returns the value of the data, None where that is no JSON."""
        try:
            return json.loads(self.data)
        except ValueError:
            return None


class Splitter:
    """Takes the pieces of a stream and gives its whole events. Each byte is looked at once, however long an event
    is. `pending` are the bytes of an event that is not whole yet."""

    def __init__(self) -> None:
        self.pending = bytearray()
        self._seen = 0

    def feed(self, piece: bytes) -> list[Event]:
        """Returns the events that a piece completes."""
        held_back = self.pending.endswith(b"\r")
        self.pending += piece
        if not held_back and b"\n" not in piece and b"\r" not in piece:  # a part of a long event
            self._seen = len(self.pending)
            return []
        events, at = [], 0
        # An end takes at most four bytes, so the last three seen may be the beginning of one.
        for end in _END.finditer(self.pending, max(0, self._seen - 3)):
            # "\r\n\r\n" in two pieces: what has come of it could be taken for less than it is.
            if end.end() == len(self.pending) and end[0] == b"\r\r":
                break
            events.append(_read_event(bytes(self.pending[at : end.end()])))
            at = end.end()
        del self.pending[:at]
        self._seen = len(self.pending)
        return events

    def close(self) -> list[Event]:
        """Returns the rest of a stream that was cut, as an event. Some servers leave out the last empty line."""
        rest = bytes(self.pending)
        self.pending.clear()
        self._seen = 0
        return [_read_event(rest)] if rest else []


def _read_event(raw: bytes) -> Event:
    # Not splitlines(): it also ends a line at U+0085 and U+2028, which may stand in a text.
    text = raw.decode("utf-8", "replace")
    lines = _LINE.split(text) if "\r" in text else text.split("\n")
    return Event(raw, "\n".join(line[5:].removeprefix(" ") for line in lines if line.startswith("data:")))
