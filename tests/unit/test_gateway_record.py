"""Exchanges that wait to be stored, requests that wait for them, and connections that never come to a request."""

import asyncio
import socket
import time
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest
import uvicorn
from pg_memoir_gateway import protocol
from pg_memoir_gateway.config import Config
from pg_memoir_gateway.exchange import Exchange
from pg_memoir_gateway.forms import has_results
from pg_memoir_gateway.gateway import Gateway
from pg_memoir_gateway.known import KnownMessages
from pg_memoir_gateway.record import BEHIND, PARSED_BYTES, Recorder


def test_request_waits_for_lagging_storage() -> None:
    work: list[Coroutine[Any, Any, None]] = []
    config = SimpleNamespace(database_ms=100, capture=False, session_header="")
    gateway = SimpleNamespace(config=config, memoir=None, pending_bytes=0, in_background=work.append)
    recorder = Recorder(cast(Any, gateway), KnownMessages(cast(Any, None)))

    async def nothing(*_: object) -> None:
        pass

    def queue(size: int = 2) -> Exchange:
        made = Exchange("POST", "/", b"/", [], b"x" * size, conversation=("u", "s"))
        made.talk = cast(Any, "read")
        recorder.queue(made, "u", "observe", nothing)
        return made

    async def waited(session: str) -> float:
        begun = time.monotonic()
        await recorder.wait_for(cast(Any, SimpleNamespace(key=("u", session))), begun + 0.1)
        return time.monotonic() - begun

    async def run() -> None:
        made = [queue() for _ in range(BEHIND)]
        assert await waited("s") < 0.05, "so many need not be there yet"
        made.append(queue())
        assert await waited("s") >= 0.1 > 0.05 > await waited("another")
        for one in made:
            one.talk = None  # the path holds no conversation
        await work.pop()
        assert await waited("s") < 0.05
        await asyncio.gather(*work)
        assert gateway.pending_bytes == 0
        assert queue(PARSED_BYTES).talk and not queue(1).talk, "much that waits is kept as bytes alone"
        for left in work[-2:]:
            left.close()

    asyncio.run(run())


def test_lists_without_results_have_nothing_to_lower() -> None:
    result = {"type": "tool_result", "tool_use_id": "t", "content": "x"}
    for item, has in (
        ({"role": "user", "content": "Hello"}, False),
        ({"role": "user", "content": [{"type": "text", "text": "Hello"}]}, False),
        ({"type": "function_call", "call_id": "c", "name": "read", "arguments": "{}"}, False),
        ({"role": "user", "content": [result]}, True),
        ({"role": "tool", "tool_call_id": "t", "content": "x"}, True),
        ({"type": "function_call_output", "call_id": "c", "output": "x"}, True),
    ):
        assert has_results(cast(Any, SimpleNamespace(items=[{"role": "user", "content": "Go"}, item]))) is has


async def end_left(gateway: Gateway) -> None:
    for task in list(gateway._left):
        task.cancel()
        await asyncio.wait({task})
    assert not gateway._left


@pytest.mark.anyio
async def test_calls_that_can_not_be_cancelled_are_left() -> None:
    """psycopg asks the server to stop before it gives a cancelled call back, and a frozen server answers neither."""
    left = asyncio.Event()

    async def resist() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await left.wait()

    gateway = Gateway(Config(dsn="dbname=none", database_ms=20))
    for told in ("no answer within", "a moment ago"):
        with pytest.raises(TimeoutError, match=told):
            await gateway.in_time(resist())
    assert len(gateway._left) == 1
    left.set()
    await end_left(gateway)


@pytest.mark.anyio
async def test_short_wait_does_not_mean_away() -> None:
    """A conversation whose storing lags has little time left for the database, which answers all others."""
    gateway = Gateway(Config(dsn="dbname=none", database_ms=1000))
    for left, told in ((0.05, "no answer within"), (-1, "no time is left")):
        with pytest.raises(TimeoutError, match=told):
            await gateway.in_time(asyncio.sleep(60), time.monotonic() + left)
    assert await gateway.in_time(asyncio.sleep(0, 5)) == 5
    await end_left(gateway)


async def app(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body"})


def answers_to(*pieces: bytes, wait: float = 0) -> bytes:
    """What a server says to these bytes, sent one after the other, until it closes the connection."""

    async def run() -> bytes:
        listener = socket.create_server(("127.0.0.1", 0))
        given: Any = {"log_level": "critical", "lifespan": "off", "timeout_keep_alive": 1}
        server = uvicorn.Server(uvicorn.Config(app, http=protocol.BoundedProtocol, **given))
        task = asyncio.create_task(server.serve([listener]))
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(wait)
        told = await asyncio.wait_for(reader.read(), 30)
        writer.close()
        server.should_exit = True
        await task
        return told

    return asyncio.run(run())


HEAD = b"POST / HTTP/1.1\r\nHost: a\r\n"


@pytest.mark.parametrize("pieces", [[], [HEAD], [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"GET"]])
def test_headers_that_never_end(monkeypatch: pytest.MonkeyPatch, pieces: list[bytes]) -> None:
    monkeypatch.setattr(protocol, "HEADER_SECONDS", 0.2)
    assert answers_to(*pieces, wait=0.05).count(b"200 OK") == sum(piece.endswith(b"\r\n\r\n") for piece in pieces)


def test_long_headers_end_and_slow_bodies_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert b"400 Bad Request" in answers_to(HEAD, b"x-a: " + b"a" * (protocol.HEADER_BYTES + 1))
    monkeypatch.setattr(protocol, "HEADER_SECONDS", 0.1)
    assert b"200 OK" in answers_to(HEAD + b"Content-Length: 3\r\n\r\n", b"a", b"b", b"c", wait=0.15)
