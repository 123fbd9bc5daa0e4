"""Anthropic's Messages API, with streaming and tool use. `url` is the SDK's base_url."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from .server import Answer, Refused, StubServer, pieces


def check_request(body: dict[str, Any]) -> None:
    """What the API itself refuses: no max_tokens, roles that don't alternate from user, tool_use and tool_result apart."""
    if not isinstance(body.get("max_tokens"), int):
        raise Refused("max_tokens: Field required")
    messages = body.get("messages") or []
    waiting: set[str] = set()
    for place, message in enumerate(messages):
        expected = "assistant" if place % 2 else "user"
        if message.get("role") != expected:
            raise Refused(f"messages.{place}.role: {message.get('role')!r}, expected {expected}")
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not blocks or any(block["type"] == "text" and not block["text"] for block in blocks):
            raise Refused(f"messages.{place}.content: text content blocks must be non-empty")
        answered = {block["tool_use_id"] for block in blocks if block["type"] == "tool_result"}
        if answered != waiting:
            raise Refused(f"messages.{place}: tool_result blocks {sorted(answered)}, tool_use ids {sorted(waiting)}")
        waiting = {block["id"] for block in blocks if block["type"] == "tool_use"}
    if not messages or messages[-1]["role"] != "user":
        raise Refused("messages: the last message must be from the user")


class MessagesStub(StubServer):
    """POST /v1/messages."""

    @property
    def url(self) -> str:
        return self.origin

    def error_body(self, kind: str, message: str) -> dict[str, Any]:
        return {"type": "error", "error": {"type": kind, "message": message}}

    def handle(self, path: str, body: dict[str, Any]) -> dict[str, Any] | Iterator[str] | Answer:
        if path != "/v1/messages":
            raise Refused(f"unknown path {path}")
        check_request(body)
        answer = self.next_answer(body)
        if answer.status != 200:
            return answer
        return self._events(answer, body) if body.get("stream") else self._message(answer, body)

    def _message(self, answer: Answer, body: dict[str, Any]) -> dict[str, Any]:
        content: list[dict[str, Any]] = [{"type": "text", "text": answer.text}] if answer.text else []
        content += [{"type": "tool_use", "id": i, "name": n, "input": a} for i, n, a in answer.tool_calls]
        return {
            "id": "msg_stub",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": content,
            "stop_reason": answer.stop or ("tool_use" if answer.tool_calls else "end_turn"),
            "stop_sequence": None,
            # Anthropic counts tokens read from the cache apart.
            "usage": {
                "input_tokens": answer.prompt_tokens - 1,
                "cache_read_input_tokens": 1,
                "cache_creation_input_tokens": 0,
                "output_tokens": answer.completion_tokens,
            },
        }

    def _events(self, answer: Answer, body: dict[str, Any]) -> Iterator[str]:
        whole = self._message(answer, body)
        usage = whole["usage"]
        start = whole | {"content": [], "stop_reason": None, "usage": usage | {"output_tokens": 1}}
        yield _event("message_start", message=start)
        yield _event("ping")
        for index, block in enumerate(whole["content"]):
            if block["type"] == "text":
                yield _event("content_block_start", index=index, content_block={"type": "text", "text": ""})
                for piece in pieces(block["text"]):
                    yield _event("content_block_delta", index=index, delta={"type": "text_delta", "text": piece})
            else:
                yield _event("content_block_start", index=index, content_block=block | {"input": {}})
                for piece in ["", *pieces(json.dumps(block["input"]))] if block["input"] else [""]:
                    yield _event(
                        "content_block_delta", index=index, delta={"type": "input_json_delta", "partial_json": piece}
                    )
            yield _event("content_block_stop", index=index)
        delta = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        yield _event("message_delta", delta=delta, usage={"output_tokens": usage["output_tokens"]})
        yield _event("message_stop")


def _event(kind: str, **body: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **body})}\n\n"
