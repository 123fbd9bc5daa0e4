"""What waits to be stored, and who waits for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pg_memoir_gateway.config import Config
from pg_memoir_gateway.exchange import Exchange
from pg_memoir_gateway.forms import has_results
from pg_memoir_gateway.gateway import Gateway
from pg_memoir_gateway.known import KnownMessages
from pg_memoir_gateway.record import BEHIND, Recorder


def test_request_waits_for_lagging_storage() -> None:
    work: list[Coroutine[Any, Any, None]] = []
    config = SimpleNamespace(database_ms=100, capture=False, session_header="")
    gateway = SimpleNamespace(config=config, memoir=None, pending_bytes=0, in_background=work.append)
    recorder = Recorder(cast(Any, gateway), KnownMessages(cast(Any, None)))

    async def nothing(*_: object) -> None:
        pass

    async def waited(session: str) -> float:
        begun = time.monotonic()
        await recorder.wait_for(cast(Any, SimpleNamespace(key=("u", session))), begun + 0.1)
        return time.monotonic() - begun

    async def run() -> None:
        for _ in range(BEHIND):
            recorder.queue(Exchange("POST", "/", b"/", [], b"{}", conversation=("u", "s")), "u", "observe", nothing)
        assert await waited("s") < 0.05, "so many need not be there yet"
        recorder.queue(Exchange("POST", "/", b"/", [], b"{}", conversation=("u", "s")), "u", "observe", nothing)
        assert await waited("s") >= 0.1 > 0.05 > await waited("another")
        await work.pop()
        assert await waited("s") < 0.05
        await asyncio.gather(*work)
        assert gateway.pending_bytes == 0

    asyncio.run(run())


@pytest.mark.parametrize(
    ("item", "has"),
    [
        ({"role": "user", "content": "Hello"}, False),
        ({"role": "user", "content": [{"type": "text", "text": "Hello"}]}, False),
        ({"type": "function_call", "call_id": "c", "name": "read", "arguments": "{}"}, False),
        ({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]}, True),
        ({"role": "tool", "tool_call_id": "t", "content": "x"}, True),
        ({"type": "function_call_output", "call_id": "c", "output": "x"}, True),
    ],
)
def test_only_where_tools_answered_is_there_anything_to_lower(item: dict[str, Any], has: bool) -> None:
    assert has_results(cast(Any, SimpleNamespace(items=[{"role": "user", "content": "Go"}, item]))) is has


def test_calls_that_can_not_be_cancelled_are_left() -> None:
    """psycopg asks the server to stop before it gives a cancelled call back, and a frozen server answers neither."""
    left = asyncio.Event()

    async def stubborn() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await left.wait()

    async def run() -> None:
        gateway = Gateway(Config(dsn="dbname=none", database_ms=20))
        with pytest.raises(TimeoutError, match="no answer within"):
            await gateway.in_time(stubborn())
        with pytest.raises(TimeoutError, match="a moment ago"):
            await gateway.in_time(stubborn())
        assert not left.is_set() and len(gateway._left) == 1
        left.set()
        for task in list(gateway._left):
            task.cancel()
            await asyncio.wait({task})
        assert not gateway._left

    asyncio.run(run())


def test_short_wait_does_not_mean_away() -> None:
    """A conversation whose storing lags has little time left for the database, which answers all others."""

    async def answer() -> int:
        return 5

    async def run() -> None:
        gateway = Gateway(Config(dsn="dbname=none", database_ms=1000))
        for left, told in ((0.05, "no answer within"), (-1, "no time is left")):
            with pytest.raises(TimeoutError, match=told):
                await gateway.in_time(asyncio.sleep(60), time.monotonic() + left)
        assert await gateway.in_time(answer()) == 5
        for task in list(gateway._left):
            task.cancel()
            await asyncio.wait({task})

    asyncio.run(run())
