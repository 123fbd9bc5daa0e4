"""OpenAI's chat completions (and embeddings), with streaming and tool calls. `url` is the SDK's base_url."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from .server import Answer, Refused, StubServer, pieces


def check_messages(messages: list[dict[str, Any]]) -> None:
    """What the API itself refuses: unknown roles, missing content, tool calls without their results and the reverse."""
    if not messages:
        raise Refused("messages is empty")
    waiting: set[str] = set()
    for place, message in enumerate(messages):
        role = message.get("role")
        if role not in ("system", "developer", "user", "assistant", "tool"):
            raise Refused(f"messages[{place}].role: {role!r}")
        if role == "tool":
            if message.get("tool_call_id") not in waiting:
                raise Refused(f"messages[{place}]: 'tool' must follow a message with its tool_calls")
            waiting.discard(message["tool_call_id"])
        elif waiting:
            raise Refused(f"messages[{place}]: tool_call_ids without a response: {sorted(waiting)}")
        if message.get("content") is None and not message.get("tool_calls"):
            raise Refused(f"messages[{place}].content is missing")
        waiting |= {call["id"] for call in message.get("tool_calls", [])}
    if waiting:
        raise Refused(f"tool_call_ids without a response: {sorted(waiting)}")


class ChatCompletionsStub(StubServer):
    """POST /v1/chat/completions and /v1/embeddings."""

    dimension = 384

    @property
    def url(self) -> str:
        return self.origin + "/v1"

    def error_body(self, kind: str, message: str) -> dict[str, Any]:
        return {"error": {"type": kind, "message": message, "param": None, "code": None}}

    def handle(self, path: str, body: dict[str, Any]) -> dict[str, Any] | Iterator[str] | Answer:
        if path == "/v1/embeddings":
            return self._embeddings(body)
        if path != "/v1/chat/completions":
            raise Refused(f"unknown path {path}")
        check_messages(body["messages"])
        answer = self.next_answer(body)
        if answer.status != 200:
            return answer
        return self._chunks(answer, body) if body.get("stream") else self._completion(answer, body)

    def _completion(self, answer: Answer, body: dict[str, Any]) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": answer.text, "refusal": None}
        if answer.tool_calls:
            message["tool_calls"] = [_call(*call) for call in answer.tool_calls]
        told = _logprobs([answer.text]) if answer.text and body.get("logprobs") else None
        choice = {"index": 0, "message": message, "logprobs": told, "finish_reason": _reason(answer)}
        return _head(body, "chat.completion") | {"choices": [choice], "usage": _usage(answer)}

    def _chunks(self, answer: Answer, body: dict[str, Any]) -> Iterator[str]:
        head = _head(body, "chat.completion.chunk")

        def chunk(delta: dict[str, Any], reason: str | None = None) -> str:
            told = _logprobs([delta["content"]]) if delta.get("content") and body.get("logprobs") else None
            return _event(head | {"choices": [{"index": 0, "delta": delta, "logprobs": told, "finish_reason": reason}]})

        yield chunk({"role": "assistant", "content": "" if answer.text else None})
        for piece in pieces(answer.text) if answer.text else []:
            yield chunk({"content": piece})
        for index, call in enumerate(answer.tool_calls):
            whole = _call(*call)
            arguments = whole["function"]["arguments"]
            yield chunk({"tool_calls": [whole | {"index": index, "function": {"name": call[1], "arguments": ""}}]})
            for piece in pieces(arguments):
                yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        yield chunk({}, _reason(answer))
        if (body.get("stream_options") or {}).get("include_usage"):
            yield _event(head | {"choices": [], "usage": _usage(answer)})
        yield "data: [DONE]\n\n"

    def _embeddings(self, body: dict[str, Any]) -> dict[str, Any]:
        texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
        self.requests.append(body)
        data = [
            {"object": "embedding", "index": i, "embedding": fake_vector(t, self.dimension)}
            for i, t in enumerate(texts)
        ]
        return {
            "object": "list",
            "model": body["model"],
            "data": data[::-1],
            "usage": {"prompt_tokens": 1, "total_tokens": 1},
        }


def fake_vector(text: str, dimension: int = 384) -> list[float]:
    """A vector that depends on the text's words only, so that texts with common words are near each other."""
    vector = [0.0] * dimension
    for word in text.lower().split():
        vector[int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big") % dimension] += 1.0
    vector[0] += 1e-3
    return vector


def _call(call_id: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def _logprobs(tokens: list[str]) -> dict[str, Any]:
    among = {"logprob": -0.5, "bytes": None}
    return {
        "content": [among | {"token": t, "top_logprobs": [among | {"token": t}]} for t in tokens],
        "refusal": None,
    }


def _reason(answer: Answer) -> str:
    return answer.stop or ("tool_calls" if answer.tool_calls else "stop")


def _usage(answer: Answer) -> dict[str, int]:
    total = answer.prompt_tokens + answer.completion_tokens
    return {"prompt_tokens": answer.prompt_tokens, "completion_tokens": answer.completion_tokens, "total_tokens": total}


def _head(body: dict[str, Any], kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-stub", "object": kind, "created": 1700000000, "model": body["model"]}


def _event(body: dict[str, Any]) -> str:
    return f"data: {json.dumps(body)}\n\n"
