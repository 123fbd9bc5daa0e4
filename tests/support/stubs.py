"""Local servers that speak the model providers' protocols, so that tests use the real SDKs without a network: what each
refuses, and its answers (answers.py). `url` is the SDK's base_url."""

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from answers import MAKERS, text
from request_rules import problems
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from upstream import serving


@dataclass
class Answer:
    """One scripted answer: text, tool calls as (id, name, arguments), counted tokens; or an HTTP error status."""

    text: str | None = None
    tool_calls: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    prompt_tokens: int = 11
    completion_tokens: int = 7
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0  # seconds before the answer
    raw: bytes | None = None  # sent as the body instead of the protocol's
    cut: bool = False  # the connection ends in the middle of the body
    stop: str = ""  # why the model stopped, where it is not the usual


class ProviderStub:
    """Answers POSTs to one path with the script's answers in order, the last one again and again. Use as a context
    manager. A function among them makes the answer from the request's body.

    `requests`: the JSON bodies received. A request that breaks the protocol gets 400 and is not recorded.
    """

    path, base = "", "/v1"

    def __init__(self, *script: Answer | Callable[[dict[str, Any]], Answer]) -> None:
        self.requests: list[dict[str, Any]] = []
        self._script = list(script) or [Answer(text="All right.")]
        self._lock, self._closing = threading.Lock(), threading.Event()

    def __enter__(self) -> Any:
        self._serving = serving(Starlette(routes=[Route("/{path:path}", self._post, methods=["POST"])]))
        self.url = self._serving.__enter__() + self.base
        return self

    def __exit__(self, *exception: Any) -> None:
        self._closing.set()
        self._serving.__exit__(None, None, None)

    async def _post(self, request: Request) -> Response:
        return await run_in_threadpool(self.handle, request.url.path, json.loads(await request.body()))

    def handle(self, path: str, body: dict[str, Any]) -> Response:
        """Answers a request, in a thread of its own."""
        if path != self.path:
            return self._error(400, f"unknown path {path}")
        if wrong := [*self.refuse(body), *problems(path, json.dumps(body).encode())]:
            return self._error(400, "; ".join(wrong))
        with self._lock:
            self.requests.append(body)
            made = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        answer = made if isinstance(made, Answer) else made(body)
        self._closing.wait(answer.delay)
        blocks = [text(answer.text)] if answer.text else []
        blocks += [{"type": "tool_use", "id": i, "name": n, "input": given} for i, n, given in answer.tool_calls]
        told = (answer.prompt_tokens, answer.completion_tokens, answer.stop)
        whole, stream = MAKERS[path](blocks, "stub", body, *told)
        if body.get("stream") and answer.status == 200:
            events = self.events(stream).removesuffix(b"\n\n").split(b"\n\n")
            return StreamingResponse((event + b"\n\n" for event in events), media_type="text/event-stream")
        response = JSONResponse(whole, headers=answer.headers) if answer.status == 200 else self._error(answer.status)
        response.headers.update(answer.headers)
        data = response.body if answer.raw is None else answer.raw
        response.headers["content-length"] = str(len(data))
        response.body = data[: len(data) // 2] if answer.cut else data
        return response

    def _error(self, status: int, message: str = "scripted") -> Response:
        kind = "invalid_request_error" if status == 400 else "api_error"
        return JSONResponse({"type": "error", "error": {"type": kind, "message": message}}, status)

    def refuse(self, body: dict[str, Any]) -> Iterator[str]:
        """What this API refuses beyond the rules of request_rules.py."""
        raise NotImplementedError

    def events(self, stream: bytes) -> bytes:
        return stream


class ChatCompletionsStub(ProviderStub):
    """OpenAI's chat completions, and embeddings."""

    path = "/v1/chat/completions"

    def vector(self, said: str) -> list[float]:
        """The embedding of a text."""
        return fake_vector(said)

    def handle(self, path: str, body: dict[str, Any]) -> Response:
        return self._embeddings(body) if path == "/v1/embeddings" else super().handle(path, body)

    def refuse(self, body: dict[str, Any]) -> Iterator[str]:
        if not body["messages"]:
            yield "messages is empty"
        for place, message in enumerate(body["messages"]):
            if message.get("role") not in ("system", "developer", "user", "assistant", "tool"):
                yield f"messages[{place}].role: {message.get('role')!r}"

    def _embeddings(self, body: dict[str, Any]) -> Response:
        texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
        self.requests.append(body)
        data = [{"object": "embedding", "index": n, "embedding": self.vector(said)} for n, said in enumerate(texts)]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return JSONResponse({"object": "list", "model": body["model"], "data": data[::-1], "usage": usage})


class MessagesStub(ProviderStub):
    """Anthropic's Messages API."""

    path, base = "/v1/messages", ""

    def refuse(self, body: dict[str, Any]) -> Iterator[str]:
        if not isinstance(body.get("max_tokens"), int):
            yield "max_tokens: Field required"
        roles = [message.get("role") for message in body.get("messages") or []]
        if not roles or roles[::2] != ["user"] * len(roles[::2]) or roles[1::2] != ["assistant"] * (len(roles) // 2):
            yield f"messages: roles {roles} do not alternate from the user's"
        if len(roles) % 2 == 0:
            yield "messages: the last message must be from the user"

    def events(self, stream: bytes) -> bytes:
        begun, rest = stream.split(b"\n\n", 1)
        return begun + b'\n\nevent: ping\ndata: {"type": "ping"}\n\n' + rest


class ResponsesStub(ProviderStub):
    """OpenAI's Responses API."""

    path = "/v1/responses"

    def refuse(self, body: dict[str, Any]) -> Iterator[str]:
        items = body.get("input")
        if not items:
            yield "input is empty"
        for place, item in enumerate(items if isinstance(items, list) else []):
            is_known = item.get("role") in ("user", "assistant", "system", "developer") and item.get("content")
            if item.get("type", "message") == "message" and not is_known:
                yield f"input[{place}]: {item}"


def fake_vector(said: str, dimension: int = 384) -> list[float]:
    """A vector that depends on the text's words only, so that texts with common words are near each other."""
    vector = [0.0] * dimension
    for word in said.lower().split():
        vector[int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big") % dimension] += 1.0
    vector[0] += 1e-3
    return vector
