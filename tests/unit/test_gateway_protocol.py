"""Connections that never come to a request are closed, and no others."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
import uvicorn
from pg_memoir_gateway import protocol


async def app(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body"})


def answers_to(*pieces: bytes, wait: float = 0) -> bytes:
    """What a server says to these bytes, sent one after the other, until it closes the connection."""

    async def run() -> bytes:
        listener = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(
            app, log_level="critical", lifespan="off", http=protocol.BoundedProtocol, timeout_keep_alive=1
        )
        server = uvicorn.Server(config)
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


@pytest.mark.parametrize(
    "pieces", [[], [b"POST / HTTP/1.1\r\nHost: a\r\n"], [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"GET"]]
)
def test_headers_that_never_end(monkeypatch: pytest.MonkeyPatch, pieces: list[bytes]) -> None:
    monkeypatch.setattr(protocol, "HEADER_SECONDS", 0.2)
    assert answers_to(*pieces, wait=0.05).count(b"200 OK") == sum(piece.endswith(b"\r\n\r\n") for piece in pieces)


def test_headers_that_are_too_long() -> None:
    told = answers_to(b"GET / HTTP/1.1\r\n", b"x-a: " + b"a" * (protocol.HEADER_BYTES + 1))
    assert b"400 Bad Request" in told


def test_slow_bodies_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEADER_SECONDS", 0.1)
    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n"
    assert b"200 OK" in answers_to(head, b"a", b"b", b"c", wait=0.15)
