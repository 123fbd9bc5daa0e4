"""A request and what came back of it, in bytes."""

from __future__ import annotations

import time
import zlib
from dataclasses import dataclass, field

from .dialect import Answer

Headers = list[tuple[bytes, bytes]]


@dataclass
class Exchange:
    """`body` is what the client sent, `sent` what went upstream. `chunks` are those of the upstream's answer. Where the
    model was asked again within the client's message, `earlier` are the calls before, and `told` is the whole message. `changes` is the
    log of what differs: start and end in the text of the body, and the length of what stands there; `rewritten`: characters
    behind what differs from the request before. `conversation`: of whom and which, until it is stored."""

    method: str
    path: str
    target: bytes
    headers: Headers
    body: bytes
    began: float = field(default_factory=time.time)
    sent: bytes = b""
    status: int = 0
    answer_headers: Headers = field(default_factory=list)
    chunks: list[tuple[float, bytes]] = field(default_factory=list)
    complete: bool = False
    told: Answer | None = None
    earlier: list[Exchange] = field(default_factory=list)
    changes: list[list[int]] = field(default_factory=list)
    rewritten: int = 0
    conversation: tuple[str, str] | None = None

    def header(self, name: str) -> str:
        """A header of the request, "" if there is none."""
        return _value(self.headers, name)

    def answer_header(self, name: str) -> str:
        """A header of the answer, "" if there is none."""
        return _value(self.answer_headers, name)

    @property
    def streams(self) -> bool:
        """Is the answer a stream of events?"""
        return self.answer_header("content-type").startswith("text/event-stream")

    def answer(self) -> list[tuple[float, bytes]]:
        """The chunks of the answer as they are without compression, each with its time."""
        if self.answer_header("content-encoding") != "gzip":
            return self.chunks
        unzip = zlib.decompressobj(31)
        return [(at, piece) for at, chunk in self.chunks if (piece := unzip.decompress(chunk))]


def _value(headers: Headers, name: str) -> str:
    wanted = name.lower().encode()
    return next((value.decode("latin-1") for key, value in headers if key.lower() == wanted), "")
