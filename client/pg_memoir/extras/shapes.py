"""Messages of other APIs → OpenAI's chat messages, the shape in which turns are stored, and back.

What is opaque (reasoning, compaction, calls of the provider's own tools) has no place among turns and is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ..types import Message
from .providers import from_anthropic, plain

_TEXTS = {"text", "input_text", "output_text"}


def text_of(content: Any) -> str:
    """The text of a content in any of the shapes."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part["text"] for part in map(plain, content) if part.get("type") in _TEXTS)


def from_anthropic_messages(messages: Iterable[Any]) -> list[Message]:
    """Messages as Anthropic's API takes them: a message of the user's may hold results of tools, and then its words."""
    found: list[Message] = []
    for message in map(plain, messages):
        content = message.get("content")
        if message.get("role") == "assistant":
            found.append(from_anthropic({"content": _blocks(content)}).message)
            continue
        if message.get("role") != "user":
            found.append({"role": message.get("role"), "content": text_of(content)})
            continue
        parts = []
        for block in _blocks(content):
            if block.get("type") == "tool_result":
                result = {"role": "tool", "tool_call_id": block.get("tool_use_id")}
                found.append(result | {"content": text_of(block.get("content"))})
            else:
                parts.append(_part_of_block(block))
        if parts:
            found.append({"role": "user", "content": _shortest(parts)})
    return found


def from_input_items(items: str | Iterable[Any]) -> list[Message]:
    """The input, or the output, of the Responses API. Calls that follow each other, and the text before them, are one
    message."""
    found: list[Message] = []
    if isinstance(items, str):
        return [{"role": "user", "content": items}]
    for item in map(plain, items):
        kind = item.get("type") or "message"
        if kind == "function_call":
            function = {"name": item.get("name"), "arguments": item.get("arguments")}
            if not found or found[-1]["role"] != "assistant":
                found.append({"role": "assistant", "content": None})
            found[-1].setdefault("tool_calls", []).append(
                {"id": item.get("call_id"), "type": "function", "function": function}
            )
        elif kind == "function_call_output":
            content = text_of(item.get("output"))
            found.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": content})
        elif kind == "message":
            content = item.get("content")
            if not isinstance(content, str):
                content = _shortest([_part_of_input(part) for part in map(plain, content or [])])
            role = "system" if item.get("role") == "developer" else item.get("role")
            found.append({"role": role, "content": content})
    return found


def to_input_items(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Chat messages, such as a compile's, as input of the Responses API."""
    items: list[dict[str, Any]] = []
    for message in messages:
        role, content = message["role"], message.get("content")
        if role == "tool":
            items.append(
                {"type": "function_call_output", "call_id": message["tool_call_id"], "output": text_of(content)}
            )
            continue
        if role == "assistant":
            content = text_of(content)
        if content:
            parts = content if isinstance(content, str) else [_input_part(part) for part in content]
            items.append({"role": role, "content": parts})
        for call in message.get("tool_calls", []):
            function = call["function"]
            items.append(
                {
                    "type": "function_call",
                    "call_id": call["id"],
                    "name": function["name"],
                    "arguments": function["arguments"],
                }
            )
    return items


def _blocks(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else [dict(plain(b)) for b in content or []]


def _shortest(parts: list[dict[str, Any]]) -> Any:
    """Text alone stands as a text."""
    if all(part["type"] == "text" for part in parts):
        return "\n\n".join(part["text"] for part in parts)
    return parts


def _part_of_block(block: Mapping[str, Any]) -> dict[str, Any]:
    """A block of a user's message at Anthropic's; what is unknown is named, not lost without a word."""
    kind, source = block.get("type"), block.get("source") or {}
    if kind == "text":
        return {"type": "text", "text": block.get("text")}
    if kind == "image" and source.get("type") in ("base64", "url"):
        url = source.get("url") or f"data:{source.get('media_type')};base64,{source.get('data')}"
        return {"type": "image_url", "image_url": {"url": url}}
    if kind == "document":
        return {name: value for name, value in block.items() if name != "cache_control"}
    return {"type": "text", "text": f"[{kind}]"}


def _part_of_input(part: Mapping[str, Any]) -> dict[str, Any]:
    kind = part.get("type")
    if kind in _TEXTS:
        return {"type": "text", "text": part.get("text")}
    if kind == "refusal":
        return {"type": "text", "text": part.get("refusal")}
    if kind == "input_image" and part.get("image_url"):
        image = {"url": part["image_url"]} | ({"detail": part["detail"]} if part.get("detail") else {})
        return {"type": "image_url", "image_url": image}
    if kind == "input_file":
        file = {name: part[name] for name in ("file_id", "file_data", "filename") if part.get(name)}
        return {"type": "file", "file": file}
    if kind == "input_audio":
        return {"type": "input_audio", "input_audio": part.get("input_audio")}
    return {"type": "text", "text": f"[{kind}]"}


def _input_part(part: Mapping[str, Any]) -> dict[str, Any]:
    kind = part["type"]
    if kind == "text":
        return {"type": "input_text", "text": part["text"]}
    if kind == "image_url":
        image = part["image_url"]
        return {"type": "input_image", "image_url": image["url"], "detail": image.get("detail", "auto")}
    if kind == "file":
        return {"type": "input_file", **part["file"]}
    if kind == "document":
        return {"type": "input_text", "text": json.dumps(part, ensure_ascii=False)}
    if kind == "video_url":  # the Responses API takes none
        url = str(part["video_url"]["url"])
        return {"type": "input_text", "text": f"[video: {'not shown' if url.startswith('data:') else url}]"}
    return dict(part)
