"""A model's API for tests of the gateway: scripted answers in the three protocols, every request judged and kept."""

from __future__ import annotations

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
from request_rules import problems
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

Block = dict[str, Any]


def text(said: str) -> Block:
    return {"type": "text", "text": said}


def call(name: str, ident: str, **arguments: Any) -> Block:
    return {"type": "tool_use", "id": ident, "name": name, "input": arguments}


def thought(said: str) -> Block:
    return {"type": "thinking", "thinking": said, "signature": "sig:" + said}


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


def _events(*told: dict[str, Any], named: bool = True) -> bytes:
    lines = [
        (f"event: {t['type']}\n" if named else "") + f"data: {json.dumps(t, ensure_ascii=False)}\n\n" for t in told
    ]
    return "".join(lines).encode()


def anthropic(blocks: list[Block], number: int, body: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    stop = "tool_use" if any(b["type"] == "tool_use" for b in blocks) else "end_turn"
    usage = {"input_tokens": 10, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 5, "output_tokens": 7}
    whole = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": body["model"], "content": blocks}
    whole |= {"stop_reason": stop, "stop_sequence": None, "usage": usage}
    told: list[dict[str, Any]] = [{"type": "message_start", "message": whole | {"content": [], "stop_reason": None}}]
    for at, block in enumerate(blocks):
        empty = {"text": {"text": ""}, "tool_use": {"input": {}}, "thinking": {"thinking": "", "signature": ""}}
        told.append({"type": "content_block_start", "index": at, "content_block": block | empty.get(block["type"], {})})
        if block["type"] == "text":
            told += [_delta(at, type="text_delta", text=part) for part in _parts(block["text"])]
        elif block["type"] == "tool_use":
            raw = json.dumps(block["input"], ensure_ascii=False)
            told += [_delta(at, type="input_json_delta", partial_json=part) for part in _parts(raw)]
        elif block["type"] == "thinking":
            told.append(_delta(at, type="thinking_delta", thinking=block["thinking"]))
            told.append(_delta(at, type="signature_delta", signature=block["signature"]))
        told.append({"type": "content_block_stop", "index": at})
    told.append({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage})
    return whole, _events(*told, {"type": "message_stop"})


def _delta(at: int, **delta: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": at, "delta": delta}


def _parts(told: str, size: int = 9) -> list[str]:
    return [told[i : i + size] for i in range(0, len(told), size)]


def _said(blocks: list[Block]) -> str:
    return "".join(b["text"] for b in blocks if b["type"] == "text")


def _function(block: Block) -> dict[str, Any]:
    return {"name": block["name"], "arguments": json.dumps(block["input"], ensure_ascii=False)}


def chat(blocks: list[Block], number: int, body: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    calls = [{"id": b["id"], "type": "function", "function": _function(b)} for b in blocks if b["type"] == "tool_use"]
    finish = "tool_calls" if calls else "stop"
    usage = {"prompt_tokens": 20, "completion_tokens": 7, "total_tokens": 27}
    head = {"id": f"chatcmpl-{number}", "created": 1, "model": body["model"]}
    message: dict[str, Any] = {"role": "assistant", "content": _said(blocks) or None, "refusal": None}
    message |= {"tool_calls": calls} if calls else {}
    choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
    whole = head | {"object": "chat.completion", "choices": [choice], "usage": usage}
    head |= {"object": "chat.completion.chunk"}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return head | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}]}

    told = [chunk({"role": "assistant", "content": ""})]
    told += [chunk({"content": part}) for part in _parts(_said(blocks))]
    for at, one in enumerate(calls):
        started = one | {"index": at, "function": {"name": one["function"]["name"], "arguments": ""}}
        told.append(chunk({"tool_calls": [started]}))
        told += [
            chunk({"tool_calls": [{"index": at, "function": {"arguments": p}}]})
            for p in _parts(one["function"]["arguments"])
        ]
    told.append(chunk({}, finish))
    if (body.get("stream_options") or {}).get("include_usage"):
        told.append(head | {"choices": [], "usage": usage})
    return whole, _events(*told, named=False) + b"data: [DONE]\n\n"


def responses(blocks: list[Block], number: int, body: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    output: list[dict[str, Any]] = []
    for at, block in enumerate(blocks):
        if block["type"] == "text":
            part = {"type": "output_text", "text": block["text"], "annotations": [], "logprobs": []}
            output.append(
                {
                    "type": "message",
                    "id": f"msg_{number}_{at}",
                    "role": "assistant",
                    "status": "completed",
                    "content": [part],
                }
            )
        elif block["type"] == "tool_use":
            one = {"type": "function_call", "id": f"fc_{number}_{at}", "call_id": block["id"], "status": "completed"}
            output.append(one | _function(block))
    whole = {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1,
        "model": body["model"],
        "status": "completed",
    }
    whole |= {"output": output, "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "error": None}
    whole |= {
        "usage": {
            "input_tokens": 20,
            "output_tokens": 7,
            "total_tokens": 27,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        }
    }
    begun = whole | {"status": "in_progress", "output": [], "usage": None}
    told: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    for at, item in enumerate(output):
        here = {"output_index": at, "item_id": item["id"]}
        if item["type"] == "message":
            part = item["content"][0]
            told.append(
                {
                    "type": "response.output_item.added",
                    "output_index": at,
                    "item": item | {"content": [], "status": "in_progress"},
                }
            )
            told.append({"type": "response.content_part.added", "content_index": 0, "part": part | {"text": ""}} | here)
            told += [
                {"type": "response.output_text.delta", "content_index": 0, "delta": p, "logprobs": []} | here
                for p in _parts(part["text"])
            ]
            told.append(
                {"type": "response.output_text.done", "content_index": 0, "text": part["text"], "logprobs": []} | here
            )
            told.append({"type": "response.content_part.done", "content_index": 0, "part": part} | here)
        else:
            told.append(
                {
                    "type": "response.output_item.added",
                    "output_index": at,
                    "item": item | {"arguments": "", "status": "in_progress"},
                }
            )
            told += [
                {"type": "response.function_call_arguments.delta", "delta": p} | here for p in _parts(item["arguments"])
            ]
            told.append(
                {"type": "response.function_call_arguments.done", "arguments": item["arguments"], "name": item["name"]}
                | here
            )
        told.append({"type": "response.output_item.done", "output_index": at, "item": item})
    told.append({"type": "response.completed", "response": whole})
    return whole, _events(*({"sequence_number": n} | t for n, t in enumerate(told)))


MAKERS = {"/v1/messages": anthropic, "/v1/chat/completions": chat, "/v1/responses": responses}


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
