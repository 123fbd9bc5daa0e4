"""Streams of events: their number is bounded, also while many begin at once."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from typing import Any

import pytest
from pg_memoir.types import EventPage
from pg_memoir_gateway.rest import streams
from pg_memoir_gateway.rest.problems import Refused


class Reading:
    """A gateway whose database takes its time."""

    async def within(self, seconds: float, call: Coroutine[Any, Any, Any]) -> Any:
        await asyncio.sleep(0.01)
        return await call


async def read_pages() -> AsyncGenerator[EventPage, None]:
    yield {"events": [], "cursor": "1/2:2:", "more": False}


@pytest.mark.anyio
async def test_streams_are_bounded_while_they_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MOST", 3)
    made = streams.Streams(Reading())  # type: ignore[arg-type]
    begun = await asyncio.gather(*(made.make(read_pages(), {}) for _ in range(8)), return_exceptions=True)
    assert sum(isinstance(each, Refused) and each.status == 429 for each in begun) == 5
