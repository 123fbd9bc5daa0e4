"""OpenAI's Responses API, with streaming and function calls. `url` is the SDK's base_url."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from .server import Answer, Refused, StubServer, pieces


def check_input(items: Any) -> None:
    """What the API itself refuses: no input, a call without its result and the reverse."""
    if not items:
        raise Refused("input is empty")
    calls: set[str] = set()
    for place, item in enumerate([] if isinstance(items, str) else items):
        kind = item.get("type", "message")
        if kind == "function_call":
            calls.add(item["call_id"])
        elif kind == "function_call_output":
            if item["call_id"] not in calls:
                raise Refused(f"input[{place}]: No tool call found for function call output {item['call_id']}")
            calls.discard(item["call_id"])
        elif kind == "message":
            if item.get("role") not in ("user", "assistant", "system", "developer") or not item.get("content"):
                raise Refused(f"input[{place}]: {item}")
    if calls:
        raise Refused(f"No tool output found for function calls {sorted(calls)}")


class ResponsesStub(StubServer):
    """POST /v1/responses."""

    @property
    def url(self) -> str:
        return self.origin + "/v1"

    def error_body(self, kind: str, message: str) -> dict[str, Any]:
        return {"error": {"type": kind, "message": message, "param": None, "code": None}}

    def handle(self, path: str, body: dict[str, Any]) -> dict[str, Any] | Iterator[str] | Answer:
        if path != "/v1/responses":
            raise Refused(f"unknown path {path}")
        check_input(body.get("input"))
        answer = self.next_answer(body)
        if answer.status != 200:
            return answer
        return self._events(answer, body) if body.get("stream") else _response(answer, body)

    def _events(self, answer: Answer, body: dict[str, Any]) -> Iterator[str]:
        whole = _response(answer, body)
        number = 0

        def event(kind: str, **fields: Any) -> str:
            nonlocal number
            number += 1
            return f"event: {kind}\ndata: {json.dumps({'type': kind, 'sequence_number': number - 1, **fields})}\n\n"

        yield event("response.created", response=whole | {"output": [], "status": "in_progress", "usage": None})
        for index, item in enumerate(whole["output"]):
            place = {"output_index": index, "item_id": item["id"]}
            yield event("response.output_item.added", output_index=index, item=item)
            if item["type"] == "message":
                for piece in pieces(item["content"][0]["text"]):
                    yield event("response.output_text.delta", **place, content_index=0, delta=piece, logprobs=[])
            else:
                yield event("response.function_call_arguments.delta", **place, delta=item["arguments"])
            yield event("response.output_item.done", output_index=index, item=item)
        yield event("response.completed", response=whole)


def _response(answer: Answer, body: dict[str, Any]) -> dict[str, Any]:
    output: list[dict[str, Any]] = []
    if answer.text:
        content = [{"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}]
        output.append(
            {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": content}
        )
    for place, (call, name, arguments) in enumerate(answer.tool_calls):
        function = {"call_id": call, "name": name, "arguments": json.dumps(arguments)}
        output.append({"id": f"fc_{place}", "type": "function_call", "status": "completed", **function})
    total = answer.prompt_tokens + answer.completion_tokens
    return {
        "id": "resp_stub", "object": "response", "created_at": 1700000000, "status": "completed", "model": body["model"],
        "output": output, "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "error": None,
        "incomplete_details": None, "instructions": None, "metadata": {}, "temperature": 1.0, "top_p": 1.0,
        "usage": {
            "input_tokens": answer.prompt_tokens, "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": answer.completion_tokens, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": total,
        },
    }  # fmt: skip
