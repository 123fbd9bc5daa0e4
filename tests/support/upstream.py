"""A model's API for tests of the gateway: scripted answers in the three protocols, every request judged and kept."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from answers import MAKERS, Block
from request_rules import problems
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route


@dataclass
class Asked:
    """A request that arrived."""

    path: str
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> dict[str, Any]:
        return json.loads(self.raw)


@dataclass
class Upstream:
    """`answer` gives the blocks of the next answer; a Response is sent as it is. `pieces` cuts a stream's bytes up."""

    answer: Callable[[dict[str, Any]], list[Block] | Response]
    pieces: Callable[[bytes], list[bytes]] = lambda raw: [raw]
    asked: list[Asked] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    sent: list[bytes] = field(default_factory=list)
    pause: float = 0
    url: str = ""

    async def handle(self, request: Request) -> Response:
        raw = await request.body()
        path = request.url.path
        self.asked.append(Asked(path, dict(request.headers), raw))
        if path not in MAKERS:
            return JSONResponse({"path": path, "data": []})
        self.wrong += problems(path, raw)
        body = json.loads(raw)
        answer = self.answer(body)
        if isinstance(answer, Response):
            return answer
        whole, stream = MAKERS[path](answer, len(self.asked), body)
        if not body.get("stream"):
            return JSONResponse(whole)
        self.sent.append(stream)
        return StreamingResponse(self._paced(stream), media_type="text/event-stream")

    async def _paced(self, stream: bytes) -> Any:
        for piece in self.pieces(stream):
            yield piece
            await asyncio.sleep(self.pause)


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """An ASGI application on a port of its own; gives its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_level="critical", access_log=False, lifespan="on", timeout_graceful_shutdown=2)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)


@contextmanager
def upstream(answer: Callable[[dict[str, Any]], list[Block] | Response]) -> Iterator[Upstream]:
    """A running upstream. Leaving it, every request that came must have been valid."""
    made = Upstream(answer)
    every = [Route("/{path:path}", made.handle, methods=["GET", "POST", "PUT", "DELETE", "PATCH"])]
    with serving(Starlette(routes=every)) as url:
        made.url = url
        yield made
    assert not made.wrong, made.wrong
