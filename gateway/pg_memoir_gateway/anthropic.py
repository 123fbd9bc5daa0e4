"""Anthropic's Messages API."""

from __future__ import annotations

import json
from typing import Any

from pg_memoir import from_anthropic

from .dialect import Answer, Item, Message, plain, text_of, without_marks
from .spans import Body
from .sse import Event

THOUGHTS = ("thinking", "redacted_thinking")


class Anthropic:
    """Items are messages; an answer is one."""

    name = "anthropic"
    key = "messages"

    def items(self, body: Body) -> list[Item]:
        return [node.value for node in body.lists.get("messages", [])]

    def opening(self, body: Body) -> str:
        return text_of(body.get("system"))

    def loose(self, item: Item) -> Any:
        blocks = [self._block(block) for block in blocks_of(item)]
        return [item.get("role"), [block for block in blocks if block is not None]]

    def _block(self, block: Item) -> Any:
        kind = block.get("type")
        if kind in THOUGHTS:
            return None
        if kind == "text":
            return ["text", str(block.get("text")).strip()] if str(block.get("text")).strip() else None
        if kind == "tool_use":
            return [kind, block.get("id")]  # clients tidy up the input
        if kind == "tool_result":
            return [kind, block.get("tool_use_id"), plain(block.get("content")), bool(block.get("is_error"))]
        return plain(block)

    def answer(self, events: list[Event]) -> Answer | None:
        told = [event.json() for event in events]
        told = [data for data in told if isinstance(data, dict)]
        if not any(data.get("type") == "message_stop" or (data.get("delta") or {}).get("stop_reason") for data in told):
            return None  # some servers leave out the last event
        start = next((d["message"] for d in told if d.get("type") == "message_start"), None)
        if not isinstance(start, dict):
            return None
        usage, finish = dict(start.get("usage") or {}), None
        blocks: dict[int, Item] = {}
        parts: dict[int, str] = {}
        for data in told:
            kind, at = data.get("type"), data.get("index")
            if kind == "content_block_start":
                blocks[at] = dict(data["content_block"])
            elif kind == "content_block_delta" and at in blocks:
                _add(blocks[at], data.get("delta") or {}, parts, at)
            elif kind == "message_delta":
                finish = (data.get("delta") or {}).get("stop_reason")
                usage |= {k: v for k, v in (data.get("usage") or {}).items() if v is not None}
        for at, text in parts.items():
            blocks[at]["input"] = _parse_json(text)
        return self.whole(
            start | {"content": [blocks[at] for at in sorted(blocks)], "usage": usage, "stop_reason": finish}
        )

    def whole(self, answer: Any) -> Answer | None:
        if not isinstance(answer, dict) or answer.get("type") != "message":
            return None
        item = {"role": "assistant", "content": answer.get("content") or []}
        usage = answer.get("usage") or {}
        return Answer([item], answer.get("model"), usage, answer.get("stop_reason"), answer.get("id"))

    def messages(self, items: list[Item]) -> list[Message]:
        found: list[Message] = []
        for at, item in enumerate(items, 1):
            if item.get("role") == "assistant":
                found.append(Message(dict(from_anthropic(item | {"usage": {}}).message), at))
                continue
            for block in blocks_of(item):
                if block.get("type") == "tool_result":
                    told = {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": _result_text(block)}
                    found.append(Message(told, at))
            parts = [part for block in blocks_of(item) if (part := _part(block)) is not None]
            if parts:
                role = "user" if item.get("role") == "user" else "system"
                found.append(Message({"role": role, "content": parts}, at))
        return found


def blocks_of(item: Item) -> list[Item]:
    """The blocks of a message; a text is one."""
    content = item.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _add(block: Item, delta: Item, parts: dict[int, str], at: int) -> None:
    kind = delta.get("type")
    if kind == "input_json_delta":
        parts[at] = parts.get(at, "") + str(delta.get("partial_json", ""))
    elif kind == "text_delta":
        block["text"] = str(block.get("text", "")) + str(delta.get("text", ""))
    elif kind == "thinking_delta":
        block["thinking"] = str(block.get("thinking", "")) + str(delta.get("thinking", ""))
    elif kind == "signature_delta":
        block["signature"] = delta.get("signature")


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text) if text else {}
    except ValueError:
        return text


def _result_text(block: Item) -> str:
    """A tool's result as text; what is none is named."""
    content = block.get("content")
    if isinstance(content, list):
        return "\n".join(
            str(part.get("text", "")) if part.get("type") == "text" else f"[{part.get('type')}]"
            for part in content
            if isinstance(part, dict)
        )
    return content if isinstance(content, str) else ""


def _part(block: Item) -> Item | None:
    """A block of a user's message as a part in OpenAI's shape, None for what is no part of it."""
    kind = block.get("type")
    if kind == "text":
        return {"type": "text", "text": str(block.get("text", ""))}
    source = block.get("source")
    if kind == "image" and isinstance(source, dict):
        url = source.get("url") or f"data:{source.get('media_type')};base64,{source.get('data')}"
        return {"type": "image_url", "image_url": {"url": url}}
    if kind == "document" and isinstance(source, dict) and source.get("type") in ("base64", "text", "url", "file"):
        return without_marks(block)  # type: ignore[no-any-return]
    return None
