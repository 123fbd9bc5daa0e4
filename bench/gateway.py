"""Time that the gateway adds to a request, beside the same request sent to the upstream itself.

    python -m bench.gateway [--requests 100] [--steps 40] [--modes manage] [--kilobytes 4] [--streams 200] [--flat 10000] [--beside 5]

METHODS.md says what is measured and how.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import uvicorn
from pg_memoir_gateway import create_app, load
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from .common import fresh_database, percentile, private_bytes, report, run_alone, table

TOOLS = [{"name": "read", "description": "Reads a file", "input_schema": {"type": "object", "properties": {}}}]
HEADERS = {"content-type": "application/json", "x-api-key": "k"}
LINE = "def frobnicate_{at}(x, y): return x * {at} + y  # naïve façade\n"


def step(session: str, at: int) -> list[dict[str, Any]]:
    """What the assistant answers in a step: a text and a call."""
    call = {"type": "tool_use", "id": f"{session}{at}", "name": "read", "input": {"path": f"src/f{at}.py"}}
    return [{"type": "text", "text": f"Step {at}."}, call]


async def answered(request: Request, last: float = 0) -> StreamingResponse:
    """The step that the list comes to, streamed; in so many seconds."""
    messages = json.loads(await request.body())["messages"]
    session = messages[0]["content"].removeprefix("Walk through ").partition(",")[0]
    text, call = step(session, len(messages) // 2)
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
    path = {"type": "input_json_delta", "partial_json": json.dumps(call["input"])}
    told: list[dict[str, Any]] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text["text"]}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": call | {"input": {}}},
        {"type": "content_block_delta", "index": 1, "delta": path},
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": usage},
        {"type": "message_stop"},
    ]

    async def stream() -> AsyncIterator[bytes]:
        for one in told:
            yield _as_event(one)
            await asyncio.sleep(last / len(told))

    return StreamingResponse(stream(), media_type="text/event-stream")


@asynccontextmanager
async def serving(app: Any) -> AsyncIterator[str]:
    """An application on a port of its own."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", access_log=False))
    task = asyncio.create_task(server.serve([listener]))
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task


def body(session: str, steps: int, kilobytes: int) -> bytes:
    """The request after so many steps: one question, then calls and their results of so many kilobytes each."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"Walk through {session}, where does it frobnicate?"}]
    for at in range(steps):
        answer, line = step(session, at), LINE.format(at=at)
        told = (line * (1 + kilobytes * 1024 // len(line)))[: kilobytes * 1024]
        messages.append({"role": "assistant", "content": answer})
        result = {"type": "tool_result", "tool_use_id": answer[1]["id"], "content": told}
        messages.append({"role": "user", "content": [result]})
    return json.dumps({"model": "m", "max_tokens": 9, "stream": True, "tools": TOOLS, "messages": messages}).encode()


async def first_byte(client: httpx.AsyncClient, url: str, session: str, raw: bytes) -> float:
    """Seconds until the answer begins."""
    headers = HEADERS | {"x-claude-code-session-id": session}
    begun = time.perf_counter()
    async with client.stream("POST", url + "/v1/messages", content=raw, headers=headers) as answer:
        async for _ in answer.aiter_raw():
            took = time.perf_counter() - begun
            break
    return took


async def measured(dsn: str, mode: str, kilobytes: int, steps: int, requests: int) -> list[str]:
    """A row: direct, through the gateway, the difference, in milliseconds."""
    direct, through = [], []
    upstream = Starlette(routes=[Route("/{path:path}", answered, methods=["POST"])])
    async with serving(upstream) as there, httpx.AsyncClient(timeout=60) as client:
        given = {"dsn": dsn, "mode": mode, "upstream_anthropic": there, "user": f"u{mode}{kilobytes}"}
        app = create_app(load({}, given=given))
        async with serving(app) as here:
            for at in range(requests):
                session = f"{mode}{kilobytes}-{at // steps}"
                raw = body(session, at % steps, kilobytes)
                direct.append(await first_byte(client, there, session, raw))
                through.append(await first_byte(client, here, session, raw))
                await app.state.gateway.idle()
            bypassed = sum(value for name, _, value in app.state.gateway.counts.items() if name == "bypasses")
    ms = [[1000 * percentile(times, share) for share in (0.5, 0.95)] for times in (direct, through)]
    added = [ms[1][0] - ms[0][0], ms[1][1] - ms[0][1]]
    shown = [f"{a:.1f} / {b:.1f}" for a, b in (*ms, added)]
    return [mode, f"{kilobytes * steps} kB", *shown, f"{ms[1][0] / ms[0][0]:.1f}", f"{bypassed:.0f} of {requests}"]


@asynccontextmanager
async def gateway(dsn: str, upstream: str, user: str, mode: str = "manage") -> AsyncIterator[tuple[str, int]]:
    """A gateway in a process of its own: its address and process id."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    given = {"PG_MEMOIR_DSN": dsn, "PG_MEMOIR_GATEWAY_USER": user}
    given |= {"UPSTREAM_ANTHROPIC": upstream, "UPSTREAM_OPENAI": upstream}
    command = (sys.executable, "-m", "pg_memoir_gateway", "--port", str(port), "--mode", mode)
    process = await asyncio.create_subprocess_exec(*command, env=os.environ | given, stdout=asyncio.subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        await _until(url, "pg_memoir_database_up 1")
        yield url, process.pid
    finally:
        process.terminate()
        await process.wait()


async def streamed(dsn: str, streams: int, last: float = 2) -> dict[str, tuple[list[float], int]]:
    """Of so many answers at once, to each its own, direct and by mode: seconds to their first bytes, and how many are the
    upstream's very bytes."""

    async def slowly(request: Request) -> StreamingResponse:
        return await answered(request, last)

    async def one(client: httpx.AsyncClient, url: str, at: int) -> tuple[float, bytes]:
        raw, begun, came, first = body(f"stream {at}", 0, 1), time.perf_counter(), b"", 0.0
        async with client.stream("POST", f"{url}/v1/messages", content=raw, headers=HEADERS) as answer:
            async for chunk in answer.aiter_raw():
                first = first or time.perf_counter() - begun
                came += chunk
        return first, came

    async def all_of(url: str) -> list[tuple[float, bytes]]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(timeout=120, limits=limits) as client:
            return await asyncio.gather(*(one(client, url, at) for at in range(streams)))

    async with serving(Starlette(routes=[Route("/{path:path}", slowly, methods=["POST"])])) as there:
        direct = await all_of(there)
        done = {"direct": ([first for first, _ in direct], len({came for _, came in direct}))}
        for mode in ("observe", "manage"):
            async with gateway(dsn, there, "streams", mode) as (url, _):
                came = await all_of(url)
                done[mode] = [first for first, _ in came], sum(a == b for (_, a), (_, b) in zip(direct, came))
    return done


async def remembered(dsn: str, requests: int, steps: int, at_once: int = 8) -> list[tuple[int, float]]:
    """Megabytes that a process holds after each fifth of so many requests: conversations of so many steps."""
    upstream = Starlette(routes=[Route("/{path:path}", answered, methods=["POST"])])
    held, numbers = [], iter(range(requests))
    async with (
        serving(upstream) as there,
        gateway(dsn, there, "flat") as (url, pid),
        httpx.AsyncClient(timeout=120) as client,
    ):

        async def work(last: int) -> None:
            while (at := next(numbers, requests)) < last:
                await first_byte(client, url, f"flat {at // steps}", body(f"flat {at // steps}", at % steps, 1))

        for last in range(requests // 5, requests + 1, requests // 5):
            await asyncio.gather(*(work(last) for _ in range(at_once)))
            await _until(url, "pg_memoir_gateway_pending_bytes 0")
            held.append((last, private_bytes(pid) / 2**20))
    return held


def _event(size: int) -> bytes:
    """A stream of Responses with one event of so many bytes."""
    response = {"id": "r", "object": "response", "status": "in_progress", "output": []}
    image = {"type": "response.image_generation_call.partial_image", "output_index": 0, "partial_image_b64": "A" * size}
    end = {"type": "response.completed", "response": response | {"status": "completed"}}
    return b"".join(map(_as_event, [{"type": "response.created", "response": response}, image, end]))


def _as_event(told: dict[str, Any]) -> bytes:
    return f"event: {told['type']}\ndata: {json.dumps(told)}\n\n".encode()


def _list(messages: list[Any]) -> bytes:
    return json.dumps({"model": "m", "max_tokens": 9, "messages": messages}).encode()


def _turns(count: int) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[at % 2], "content": f"Number {at} is green."} for at in range(count)]


LARGE: dict[str, Callable[[], bytes]] = {
    "an event of 4 MB, in pieces of 8 kB": lambda: (
        b'{"model":"m","store":false,"tools":[{"type":"function","name":"read"}],"input":"Draw."}'
    ),
    "a message of 1,000,000 blocks": lambda: _list(
        [{"role": "user", "content": [{"type": "text", "text": "a"}] * 1_000_000}]
    ),
    "100,000 messages": lambda: _list(_turns(100_001)),
    "4,000 messages": lambda: _list(_turns(4_001)),
    "a text of 4 MB": lambda: _list([{"role": "user", "content": "lorem ipsum " * 349_000}]),
    "a text of 15 MB": lambda: _list([{"role": "user", "content": "lorem ipsum " * 1_300_000}]),
    "a text of 100 MB": lambda: _list([{"role": "user", "content": "lorem ipsum " * 8_700_000}]),
}
"""What is sent to a gateway that others use."""


def serve_blindly(port: int) -> None:
    """An upstream that reads no request, so that it does not wait for itself."""
    message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": {}}
    start = _as_event({"type": "message_start", "message": message})
    short, large = start + _as_event({"type": "message_stop"}), _event(4 << 20)

    async def handle(request: Request) -> StreamingResponse:
        async for _ in request.stream():
            pass

        async def stream() -> AsyncIterator[bytes]:
            told = large if request.url.path == "/v1/responses" else short
            for at in range(0, len(told), 8192):
                yield told[at : at + 8192]

        return StreamingResponse(stream(), media_type="text/event-stream")

    app = Starlette(routes=[Route("/{path:path}", handle, methods=["POST"])])
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="critical", access_log=False)


def send_large(url: str, name: str, times: int) -> None:
    """A client that sends one of LARGE so many times."""
    raw, path = LARGE[name](), "/v1/responses" if name.startswith("an event") else "/v1/messages"
    with httpx.Client(timeout=300) as client:
        for at in range(times):
            headers = HEADERS | {"x-session-id": f"{name} {at}"}
            client.post(url + path, content=raw, headers=headers).raise_for_status()


async def beside(dsn: str, times: int) -> dict[str, list[float]]:
    """Seconds of each small request that one client sends, alone and while another sends something large."""
    spawn = multiprocessing.get_context("spawn")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    upstream = spawn.Process(target=serve_blindly, args=(port,), daemon=True)
    upstream.start()
    took: dict[str, list[float]] = {}
    try:
        async with (
            gateway(dsn, f"http://127.0.0.1:{port}", "beside") as (url, _),
            httpx.AsyncClient(timeout=300) as client,
        ):

            async def measure(while_true: Callable[[], bool]) -> list[float]:
                seconds = []
                while while_true():
                    begun = time.perf_counter()
                    raw, headers = body(f"beside {len(seconds)}", 0, 1), HEADERS | {"x-session-id": f"small {begun}"}
                    (await client.post(f"{url}/v1/messages", content=raw, headers=headers)).raise_for_status()
                    seconds.append(time.perf_counter() - begun)
                    await asyncio.sleep(0.01)
                return seconds

            for at in range(10):  # the first requests open connections and plan statements
                await client.post(f"{url}/v1/messages", content=body(f"first {at}", 0, 1), headers=HEADERS)
            end = time.monotonic() + 5
            took["nothing"] = await measure(lambda: time.monotonic() < end)
            for name in LARGE:
                other = spawn.Process(target=send_large, args=(url, name, times), daemon=True)
                other.start()
                took[name] = await measure(other.is_alive)
                await _until(url, "pg_memoir_gateway_pending_bytes 0")
    finally:
        upstream.terminate()
        upstream.join()
    return took


async def _until(url: str, line: str) -> None:
    """Waits until the gateway's metrics say so."""
    async with httpx.AsyncClient(timeout=60) as client:
        while True:
            try:
                if line in (await client.get(f"{url}/metrics")).text.splitlines():
                    return
            except httpx.TransportError:  # it is not there yet
                pass
            await asyncio.sleep(0.1)


def run(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Measures all modes, at lists of two sizes, then many streams and very many requests, in a database of its own."""
    rows, more, done = [], [], []
    heads = ["mode", "list grows to", "direct p50 / p95 ms", "gateway", "added", "ratio p50", "bypassed"]
    with fresh_database("gateway") as dsn:
        for mode in options.modes.split(",") if options.requests else ():
            for kilobytes in map(int, options.kilobytes.split(",")):
                rows.append(asyncio.run(measured(dsn, mode, kilobytes, options.steps, options.requests)))
        if rows:
            done.append(report("gateway", table(heads, rows)))
        streams = asyncio.run(streamed(dsn, options.streams)) if options.streams else {}
        for mode, (firsts, same) in streams.items():
            shown = [f"{1000 * percentile(firsts, share):.0f} ms" for share in (0.5, 0.95)]
            told = f"{same} come as the upstream sends them, first byte p50 {shown[0]}, p95 {shown[1]}"
            more.append([f"{options.streams} streams at once, {mode}", told])
        memory = asyncio.run(remembered(dsn, options.flat, options.steps)) if options.flat else []
        for count, megabytes in memory:
            more.append([f"private memory after {count:,} requests", f"{megabytes:.0f} MB"])
        near = asyncio.run(beside(dsn, options.beside)) if options.beside else {}
    done += [report("gateway_load", table(["what", "measured"], more))] if more else []
    if near:
        alone = percentile(near["nothing"], 0.99)
        heads = ["beside", "requests", "p50 ms", "p99 ms", "ratio p99"]
        rows = []
        for name, seconds in near.items():
            half, most = (percentile(seconds, share) for share in (0.5, 0.99))
            rows.append([name, str(len(seconds)), f"{1000 * half:.0f}", f"{1000 * most:.0f}", f"{most / alone:.1f}"])
        done.append(report("gateway_beside", table(heads, rows)))
    return done


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--requests", type=int, default=100, help="of each measurement, 0: none (%(default)s)")
    parser.add_argument("--steps", type=int, default=40, help="requests of one conversation (%(default)s)")
    parser.add_argument("--modes", default="observe,recall,manage", help="of the gateway (%(default)s)")
    parser.add_argument("--kilobytes", default="1,8", help="of the result of each step (%(default)s)")
    parser.add_argument("--streams", type=int, default=200, help="streams at once, 0: none (%(default)s)")
    parser.add_argument(
        "--flat", type=int, default=10_000, help="requests to one process, for its memory, 0: none (%(default)s)"
    )
    parser.add_argument(
        "--beside", type=int, default=5, help="times that something large is sent, 0: never (%(default)s)"
    )


if __name__ == "__main__":
    sys.exit(run_alone("bench.gateway", __doc__, add_arguments, run))
