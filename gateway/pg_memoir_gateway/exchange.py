"""A request and what came back of it, in bytes."""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import zstandard

from .dialect import Answer
from .spans import MOST_BYTES, NotPlain, TooLarge
from .sse import Event, Splitter

if TYPE_CHECKING:
    from .talk import Talk

Headers = list[tuple[bytes, bytes]]

# Headers that hold no credentials, so they may be stored. All others are left out: nobody knows every name of a secret.
HARMLESS = re.compile(
    r"accept(-encoding|-language)?|anthropic-(version|beta|ratelimit-[a-z-]+)|cf-ray"
    r"|content-(encoding|length|type)|date|(x-)?idempotency-key|openai-(beta|model|processing-ms|version)"
    r"|(x-|x-client-)?request-id|retry-after(-ms)?|server"
    r"|(x-)?session[-_]id|user-agent|via|x-app|x-claude-code-(agent-id|request-class|session-id)|x-openai-subagent"
    r"|x-opencode-(client|project|request|session)|x-ratelimit-[a-z-]+|x-should-retry"
    r"|x-stainless-(arch|async|helper|helper-method|lang|os|package-version|read-timeout|retry-count"
    r"|runtime|runtime-version|timeout)"
)
# How a stream of events begins, whatever its content type says.
_EVENT = re.compile(rb"\s*(data|event|id|retry)?:")
# By content encoding. Each gives at most a byte more than is read.
_DECOMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda raw: zlib.decompressobj(31).decompress(raw, MOST_BYTES + 1),
    "deflate": lambda raw: zlib.decompressobj().decompress(raw, MOST_BYTES + 1),
    "zstd": lambda raw: zstandard.ZstdDecompressor().stream_reader(raw).read(MOST_BYTES + 1),
}


@dataclass
class Exchange:
    """`body` is what the client sent, without compression, and `raw` the same as it came. `sent` is what went
    upstream. `chunks` are those of the upstream's answer. Where the model was asked again within the client's
    message, `earlier` are the calls before, and `told` is the whole message. `changes` is the log of what differs:
    start and end in the text of the body, and the length of what stands there; `rewritten`: characters behind what
    differs from the request before. `talk`: the request as it was read. `conversation`: of whom and which, until it
    is stored. `bypassed`: why it passes as it came, if it does. `unread`: the request can't be read. `started`: the
    client has the head of a stream. `answers`: what `read_answer` made of the answer. `span`: of the call, while it is
    traced."""

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
    talk: Talk | None = None
    conversation: tuple[str, str] | None = None
    raw: bytes = b""
    bypassed: str = ""
    unread: bool = False
    started: bool = False
    answers: list[Answer | None] | None = None
    span: Any = None
    _events: list[tuple[float, Event]] = field(default_factory=list)
    _splitter: Splitter | None = None

    def header(self, name: str) -> str:
        """Returns a header of the request, "" if there is none."""
        return _find_header(self.headers, name)

    def answer_header(self, name: str) -> str:
        """Returns a header of the answer, "" if there is none."""
        return _find_header(self.answer_headers, name)

    @property
    def streams(self) -> bool:
        """Is the answer a stream of events? Some servers send one under another content type."""
        if "event-stream" in self.answer_header("content-type").lower():
            return True
        begun = next((piece for _, piece in self.chunks if piece), b"")[:512]
        if self.answer_header("content-encoding") == "gzip":
            begun = zlib.decompressobj(31).decompress(begun)
        return bool(_EVENT.match(begun))

    @property
    def is_success(self) -> bool:
        """Did the upstream accept the request?"""
        return 200 <= self.status < 300

    @property
    def size(self) -> int:
        """Bytes of the request and of the answer."""
        return len(self.body) + sum(len(chunk) for _, chunk in self.chunks)

    @property
    def pending(self) -> bytes:
        """The bytes of a stream that are no whole event yet."""
        return bytes(self._splitter.pending) if self._splitter else b""

    def add_chunk(self, chunk: bytes) -> list[Event]:
        """Adds a piece of the answer. Returns the events of a stream that it completes."""
        self.chunks.append((time.time(), chunk))
        return self._split(*self.chunks[-1]) if self.streams else []

    def _split(self, at: float, piece: bytes | None) -> list[Event]:
        """Splits the next piece of a stream, None for its end. Each event gets the time at which it was whole."""
        self._splitter = self._splitter or Splitter()
        events = self._splitter.close() if piece is None else self._splitter.feed(piece)
        self._events += [(at, event) for event in events]
        return events

    def end_stream(self) -> list[Event]:
        """Returns the rest of a stream that has ended."""
        return self._split(self.chunks[-1][0], None) if self.chunks else []

    def events(self) -> list[tuple[float, Event]]:
        """Returns the events of a stream. One that passed as it came is split now."""
        if self._splitter is None:
            for at, piece in self.answer():
                self._split(at, piece)
            self.end_stream()
        return self._events

    def answer(self) -> list[tuple[float, bytes]]:
        """Returns the chunks of the answer without compression, each with its time. Raises NotPlain for an unknown
        one."""
        encoding = self.answer_header("content-encoding")
        if encoding not in ("", "identity", "gzip"):
            raise NotPlain(f"an answer in {encoding}")
        if encoding != "gzip":
            return self.chunks
        unzip = zlib.decompressobj(31)
        return [(at, piece) for at, chunk in self.chunks if (piece := unzip.decompress(chunk))]

    def begin_round(self, sent: bytes) -> None:
        """Moves the call at hand to the earlier ones, and begins another of the same message."""
        self.earlier.append(replace(self, earlier=[], complete=True))
        self.sent, self.chunks, self.rewritten, self._events, self._splitter = sent, [], 0, [], None
        self.span = None

    def decompress(self) -> None:
        """Sets `body` to what a compressed request holds. Raises NotPlain if it can't be decompressed, and TooLarge."""
        encoding = self.header("content-encoding").strip().lower()
        if encoding in ("", "identity"):
            return
        try:
            body = _DECOMPRESS[encoding](self.raw)
        except KeyError as error:
            raise NotPlain(f"a request in {encoding}") from error
        except (zlib.error, zstandard.ZstdError) as error:
            raise NotPlain(f"no {encoding}: {error}") from error
        if len(body) > MOST_BYTES:
            raise TooLarge(f"over {MOST_BYTES} bytes in {encoding}")
        self.body = self.sent = body


def select_harmless(headers: Headers) -> Headers:
    """Returns those headers that may be stored."""
    return [(key, value) for key, value in headers if HARMLESS.fullmatch(key.decode("latin-1").lower())]


def _find_header(headers: Headers, name: str) -> str:
    wanted = name.lower().encode()
    return next((value.decode("latin-1") for key, value in headers if key.lower() == wanted), "")
