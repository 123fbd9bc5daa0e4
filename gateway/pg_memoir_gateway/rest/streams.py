"""Answers that do not end: events as they come, for clients of text/event-stream (SSE)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping

from pg_memoir.client import CONNECT
from pg_memoir.extras.waiting import AWAY, LOOK_SECONDS, AsyncWaiter
from pg_memoir.types import EventPage
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.responses import Response

from ..gateway import Gateway, log
from .problems import Refused

MEDIA_TYPE = "text/event-stream"
LAST = "Last-Event-ID"
MOST = 100  # streams of a process
CALL_SECONDS = 40.0  # as other calls
PING_SECONDS = 15  # between comments that keep a quiet connection open
SEND_SECONDS = 60.0  # a client that takes nothing for so long is given up


class Streams:
    """The streams of a process. One connection listens for all of them, while there are any."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._open = self._beginning = 0
        self._woken = asyncio.Event()
        self._listener: asyncio.Task[None] | None = None

    async def make(self, pages: AsyncGenerator[EventPage, None], headers: Mapping[str, str]) -> Response:
        """Returns an answer of the events in these pages. Raises what reading the first one raises, and Refused."""
        if self._open + self._beginning >= MOST:
            raise Refused(429, f"There are {MOST} streams of events. Close one, or try again.", {"retry-after": "5"})
        self._beginning += 1
        try:
            first = await self._read(pages)
        finally:
            self._beginning -= 1
        events = self._events(first, pages)
        return EventSourceResponse(
            events, headers=dict(headers), ping=PING_SECONDS, send_timeout=SEND_SECONDS, sep="\n"
        )

    async def _read(self, pages: AsyncGenerator[EventPage, None]) -> EventPage:
        async def read() -> EventPage:
            return await anext(pages)

        return await self._gateway.within(CALL_SECONDS, read())

    async def _events(self, page: EventPage, pages: AsyncGenerator[EventPage, None]) -> AsyncIterator[ServerSentEvent]:
        """Yields events. Where the database goes away the stream ends, and the client comes back with its cursor."""
        self._open += 1
        try:
            while True:
                for event in page["events"]:
                    yield ServerSentEvent(json.dumps(event), event=event["type"], id=event["cursor"])
                if not page["more"]:
                    await self._wait()
                page = await self._read(pages)
        except (*AWAY, TimeoutError) as error:
            log.warning("a stream of events ends: %s: %s", type(error).__name__, error)
        finally:
            self._open -= 1
            if not self._open and self._listener is not None:
                self._listener.cancel()
                self._listener = None
            await pages.aclose()

    async def _wait(self) -> None:
        if self._listener is None or self._listener.done():
            self._listener = asyncio.create_task(self._listen())
        await self._woken.wait()

    async def _listen(self) -> None:
        """Wakes all streams when something was noted, and every LOOK_SECONDS."""
        waiter = AsyncWaiter(self._gateway.config.dsn, CONNECT)
        try:
            while True:
                try:
                    await waiter.listen()
                    await waiter.wait()
                except AWAY:
                    await asyncio.sleep(LOOK_SECONDS)
                woken, self._woken = self._woken, asyncio.Event()
                woken.set()
        finally:
            await waiter.close()
