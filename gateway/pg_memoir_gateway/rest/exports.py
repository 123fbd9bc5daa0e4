"""Answers that go through a temporary file, so that a client that reads slowly keeps no transaction open."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, aclosing, contextmanager
from typing import IO

from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from ..gateway import LARGE_BYTES, Gateway
from .document import NDJSON
from .problems import Refused

AT_ONCE = 2  # so many read the database
READ_SECONDS = 300.0  # so long an export may wait and read
SEND_SECONDS = 60.0  # a client that takes nothing more for so long is given up


class Exports:
    """The exports of a process. `explain`: makes the answer to an error."""

    def __init__(self, gateway: Gateway, explain: Callable[[Exception], Response]) -> None:
        self.explain = explain
        self._gateway = gateway
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._users: dict[str, object] = {}

    def make(self, user: str, lines: AsyncGenerator[str, None], headers: Mapping[str, str]) -> Response:
        """Returns an answer of these lines."""
        return _Export(self, user, lines, headers)

    @contextmanager
    def only_one(self, user: str) -> Iterator[Callable[[], None]]:
        """Holds the one export that a user may have at a time, and gives what ends that earlier. Raises Refused if
        there is another."""
        if user in self._users:
            raise Refused(429, f"Another export of user {user!r} goes on. Wait for its end.", {"retry-after": "1"})
        mine = self._users[user] = object()

        def end() -> None:
            if self._users.get(user) is mine:
                del self._users[user]

        try:
            yield end
        finally:
            end()

    async def write(self, lines: AsyncGenerator[str, None], file: IO[bytes]) -> int:
        """Writes lines into a file, and returns how many bytes they are. Raises TimeoutError."""
        await self._gateway.within(READ_SECONDS, self._write(lines, file))
        size = file.tell()
        file.seek(0)
        return size

    async def _write(self, lines: AsyncGenerator[str, None], file: IO[bytes]) -> None:
        piece = bytearray()
        async with self._slots, aclosing(lines):
            async for line in lines:
                piece += line.encode()
                if len(piece) > LARGE_BYTES:
                    await asyncio.to_thread(file.write, piece)
                    piece = bytearray()
        await asyncio.to_thread(file.write, piece)


class _Export(Response):
    """An error is a problem wherever it comes, as the answer begins when all is read."""

    def __init__(
        self, exports: Exports, user: str, lines: AsyncGenerator[str, None], headers: Mapping[str, str]
    ) -> None:
        super().__init__()
        self.exports, self.user, self.lines, self.given = exports, user, lines, headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer: Response

        async def send_in_time(message: Message) -> None:
            async with asyncio.timeout(SEND_SECONDS):
                await send(message)

        with ExitStack() as stack:
            try:
                end = stack.enter_context(self.exports.only_one(self.user))
                file = stack.enter_context(tempfile.TemporaryFile())
                size = await self.exports.write(self.lines, file)
                headers = {**self.given, "content-length": str(size)}
                answer = StreamingResponse(_read_pieces(file, size, end), 200, headers, NDJSON)
            except Exception as error:
                answer = self.exports.explain(error)
            try:
                await answer(scope, receive, send_in_time)
            except (ClientDisconnect, TimeoutError):
                raise ConnectionAbortedError(f"the client does not read the export of {self.user!r}") from None


async def _read_pieces(file: IO[bytes], size: int, end: Callable[[], None]) -> AsyncIterator[bytes]:
    """Yields a file in pieces. `end` comes before the last: a client that has it may ask for the next at once."""
    while piece := await asyncio.to_thread(file.read, LARGE_BYTES):
        if file.tell() >= size:
            end()
        yield piece
