"""The providers' protocols: what each refuses, and its answers (answers.py). `url` is the SDK's base_url."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from answers import MAKERS, text
from request_rules import problems

from .server import Answer, Refused, StubServer


class ProviderStub(StubServer):
    """POST to one path."""

    path, base = "", "/v1"

    @property
    def url(self) -> str:
        return self.origin + self.base

    def error_body(self, kind: str, message: str) -> dict[str, Any]:
        return {"error": {"type": kind, "message": message, "param": None, "code": None}}

    def handle(self, path: str, body: dict[str, Any]) -> dict[str, Any] | bytes | Answer:
        if path != self.path:
            raise Refused(f"unknown path {path}")
        if wrong := [*self.refuse(body), *problems(path, json.dumps(body).encode())]:
            raise Refused("; ".join(wrong))
        answer = self.next_answer(body)
        if answer.status != 200:
            return answer
        blocks = [text(answer.text)] if answer.text else []
        blocks += [{"type": "tool_use", "id": i, "name": n, "input": given} for i, n, given in answer.tool_calls]
        told = (answer.prompt_tokens, answer.completion_tokens, answer.stop)
        whole, stream = MAKERS[path](blocks, "stub", body, *told)
        return self.events(stream) if body.get("stream") else whole

    def refuse(self, body: dict[str, Any]) -> Iterator[str]:
        """What this API refuses beyond the rules of request_rules.py."""
        raise NotImplementedError

    def events(self, stream: bytes) -> bytes:
        return stream


class ChatCompletionsStub(ProviderStub):
    """OpenAI's chat completions, and embeddings."""

    path, dimension = "/v1/chat/completions", 384

    def handle(self, path: str, body: dict[str, Any]) -> dict[str, Any] | bytes | Answer:
        return self._embeddings(body) if path == "/v1/embeddings" else super().handle(path, body)

    def refuse(self, body: dict[str, Any]) -> Iterator[str]:
        if not body["messages"]:
            yield "messages is empty"
        for place, message in enumerate(body["messages"]):
            if message.get("role") not in ("system", "developer", "user", "assistant", "tool"):
                yield f"messages[{place}].role: {message.get('role')!r}"

    def _embeddings(self, body: dict[str, Any]) -> dict[str, Any]:
        texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
        self.requests.append(body)
        vectors = [fake_vector(said, self.dimension) for said in texts]
        data = [{"object": "embedding", "index": place, "embedding": vector} for place, vector in enumerate(vectors)]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return {"object": "list", "model": body["model"], "data": data[::-1], "usage": usage}


class MessagesStub(ProviderStub):
    """Anthropic's Messages API."""

    path, base = "/v1/messages", ""

    def error_body(self, kind: str, message: str) -> dict[str, Any]:
        return {"type": "error", "error": {"type": kind, "message": message}}

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
