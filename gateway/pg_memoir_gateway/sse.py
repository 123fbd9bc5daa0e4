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
        """What the data says, None where that is no JSON."""
        try:
            return json.loads(self.data)
        except ValueError:
            return None


class Splitter:
    """Takes pieces of a stream, gives the events that are whole."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> list[Event]:
        """The events that a piece completes."""
        self._rest += piece
        events, at = [], 0
        for end in _END.finditer(self._rest):
            # "\r\n\r\n" in two pieces: what has come of it could be taken for less than it is.
            if end.end() == len(self._rest) and end[0] == b"\r\r":
                break
            events.append(event_of(self._rest[at : end.end()]))
            at = end.end()
        self._rest = self._rest[at:]
        return events

    def rest(self) -> bytes:
        """What is left of a stream that was cut."""
        left, self._rest = self._rest, b""
        return left


def event_of(raw: bytes) -> Event:
    """An event of its lines."""
    # Not splitlines(): it also ends a line at U+0085 and U+2028, which may stand in a text.
    lines = _LINE.split(raw.decode("utf-8", "replace"))
    data = [line[5:].removeprefix(" ") for line in lines if line.startswith("data:")]
    return Event(raw, "\n".join(data))


def events_of(pieces: list[bytes]) -> list[Event]:
    """All events of a whole stream."""
    splitter = Splitter()
    return [event for piece in pieces for event in splitter.feed(piece)]
