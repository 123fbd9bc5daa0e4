"""OpenAI's Responses."""

from __future__ import annotations

from typing import Any

from .dialect import Answer, Item, Message, plain, text_of
from .spans import Body
from .sse import Event

CALLS = ("function_call", "custom_tool_call", "local_shell_call")
RESULTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")


class Responses:
    """Items are those of `input`; an answer is several: thoughts, messages, calls."""

    name = "openai"
    key = "input"

    def items(self, body: Body) -> list[Item]:
        given = body.get("input")
        if isinstance(given, str):
            return [{"type": "message", "role": "user", "content": given}]
        return [node.value for node in body.lists.get("input", []) if isinstance(node.value, dict)]

    def opening(self, body: Body) -> str:
        instructions = body.get("instructions")
        return instructions if isinstance(instructions, str) else ""

    def loose(self, item: Item) -> Any:
        kind = item.get("type", "message")
        if kind == "message":
            if item.get("role") in ("system", "developer"):
                return None
            parts = item.get("content")
            other = [plain(p) for p in parts if not _is_text(p)] if isinstance(parts, list) else []
            return [item.get("role"), text_of(parts).strip(), other]
        if kind in CALLS:
            return [kind, item.get("call_id")]
        if kind in RESULTS:
            return [kind, item.get("call_id"), plain(item.get("output"))]
        return None

    def answer(self, events: list[Event]) -> Answer | None:
        for event in reversed(events):
            data = event.json()
            if isinstance(data, dict) and data.get("type") in ("response.completed", "response.incomplete"):
                found = self.whole(data.get("response"))
                if found and not found.items:  # some servers leave them out of the last event
                    done = [e.json() for e in events if '"response.output_item.done"' in e.data]
                    found.items = [d["item"] for d in done if isinstance(d, dict) and "item" in d]
                return found
        return None

    def whole(self, answer: Any) -> Answer | None:
        if not isinstance(answer, dict) or answer.get("object") != "response":
            return None
        items = [item for item in answer.get("output") or [] if isinstance(item, dict)]
        usage = answer.get("usage") or {}
        return Answer(items, answer.get("model"), usage, answer.get("status"), answer.get("id"))

    def messages(self, items: list[Item]) -> list[Message]:
        """Neighbours of the assistant's are one message: text, then calls."""
        found: list[Message] = []
        for at, item in enumerate(items, 1):
            kind = item.get("type", "message")
            last = found[-1].message if found else {}
            if kind == "message" and item.get("role") == "user":
                found.append(Message({"role": "user", "content": [p for p in map(_part, _parts(item)) if p]}, at))
            elif kind == "message" and item.get("role") == "assistant":
                found.append(Message({"role": "assistant", "content": text_of(item.get("content"))}, at))
            elif kind in CALLS:
                call = _call(item)
                if last.get("role") == "assistant":
                    last["tool_calls"] = [*last.get("tool_calls", []), call]
                    found[-1].through = at
                else:
                    found.append(Message({"role": "assistant", "content": None, "tool_calls": [call]}, at))
            elif kind in RESULTS:
                told = text_of(item.get("output"))
                found.append(Message({"role": "tool", "tool_call_id": item.get("call_id"), "content": told}, at))
        return found


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(part.get("text"), str)


def _parts(item: Item) -> list[Item]:
    content = item.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []


def _part(part: Item) -> Item | None:
    if _is_text(part):
        return {"type": "text", "text": part["text"]}
    if part.get("type") == "input_image" and isinstance(part.get("image_url"), str):
        return {"type": "image_url", "image_url": {"url": part["image_url"]}}
    return None


def _call(item: Item) -> Item:
    arguments = item.get("arguments") or item.get("input") or ""
    function = {
        "name": item.get("name") or item.get("type"),
        "arguments": arguments if isinstance(arguments, str) else "",
    }
    return {"id": item.get("call_id"), "type": "function", "function": function}
