"""Requests against the types of the official `openai` and `anthropic` packages, and the rules their types can't say."""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError
from request_rules import problems

STRICT = ConfigDict(extra="forbid", strict=True)
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")


@cache
def _openai_adapters() -> dict[str, TypeAdapter[Any]]:
    from openai.types import chat

    by_role = {
        "system": chat.ChatCompletionSystemMessageParam,
        "user": chat.ChatCompletionUserMessageParam,
        "assistant": chat.ChatCompletionAssistantMessageParam,
        "tool": chat.ChatCompletionToolMessageParam,
    }
    # The union first (the promise), then the role's own type: its errors name the field instead of eleven alternatives.
    return {"": _adapter(chat.ChatCompletionMessageParam)} | {role: _adapter(kind) for role, kind in by_role.items()}


@cache
def _anthropic_adapters() -> dict[str, TypeAdapter[Any]]:
    from anthropic import types

    by_kind = {
        "message": types.MessageParam,
        "text": types.TextBlockParam,
        "image": types.ImageBlockParam,
        "tool_use": types.ToolUseBlockParam,
        "tool_result": types.ToolResultBlockParam,
        "document": types.DocumentBlockParam,
    }
    return {kind: _adapter(made) for kind, made in by_kind.items()}


def _adapter(kind: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(kind, config=STRICT)
    except Exception:  # a TypedDict takes its configuration from an attribute
        kind.__pydantic_config__ = STRICT
        return TypeAdapter(kind)


def _check(adapter: TypeAdapter[Any], value: Any) -> str | None:
    try:
        _exhaust(adapter.validate_python(value))
    except ValidationError as error:
        first = error.errors()[0]
        return f"{'.'.join(str(step) for step in first['loc'])}: {first['msg']}"
    return None


def _exhaust(value: Any) -> None:
    """Iterables in the SDKs' types are validated only as they are read."""
    if isinstance(value, dict):
        for inner in value.values():
            _exhaust(inner)
    elif not isinstance(value, (str, bytes, int, float, bool, type(None))):
        for inner in value:
            _exhaust(inner)


def openai_problems(compiled: Any) -> Iterator[str]:
    """What is wrong with a value as `messages` of a chat completion request."""
    if not isinstance(compiled, list) or not compiled:
        yield f"not a list of messages but {type(compiled).__name__}"
        return
    adapters = _openai_adapters()
    for place, message in enumerate(compiled):
        role = message.get("role") if isinstance(message, dict) else None
        if role not in adapters or not role:
            yield f"[{place}]: role {role!r}"
            continue
        problem = _check(adapters[""], message) and (_check(adapters[role], message) or "fits no type of message")
        problem = problem or _check(adapters[role], message)
        if problem:
            yield f"[{place}] ({role}) {problem}"
            continue
        if "tool_calls" in message and not message["tool_calls"]:
            yield f"[{place}] ({role}) tool_calls is empty"
        if isinstance(message.get("content"), list) and not message["content"]:
            yield f"[{place}] ({role}) content is an empty list"
        if role == "assistant" and message.get("content") is None and not message.get("tool_calls"):
            yield f"[{place}] (assistant) neither content nor tool calls"


def anthropic_problems(compiled: Any) -> Iterator[str]:
    """What is wrong with a value as `system` and `messages` of a Messages request."""
    if not isinstance(compiled, dict) or not set(compiled) <= {"system", "messages"} or not compiled.get("messages"):
        yield "not an object of system and messages"
        return
    adapters = _anthropic_adapters()
    values = [(f"messages[{n}]", "message", message) for n, message in enumerate(compiled["messages"])]
    contents = [("system", compiled.get("system", [])), *((where, m.get("content")) for where, _, m in values)]
    blocks = [(f"{where}[{n}]", b) for where, found in contents if isinstance(found, list) for n, b in enumerate(found)]
    for where, kind, value in [*values, *((where, block["type"], block) for where, block in blocks)]:
        problem = _check(adapters[kind], value) if kind in adapters else f"type {kind!r}"
        if problem:
            yield f"{where}: {problem}"
            return
    roles = [message["role"] for message in compiled["messages"]]
    if any(one == other for one, other in zip(roles, roles[1:])):
        yield f"roles do not alternate: {roles}"
    tools = [{"name": "any"}]
    yield from problems("/v1/messages", json.dumps({"model": "any", "tools": tools} | compiled).encode())
    for where, block in blocks:
        inner = block.get("content") if block["type"] == "tool_result" else None
        parts = inner if isinstance(inner, list) else []
        if any(part.get("type") == "text" and not part["text"].strip() for part in parts):
            yield f"{where}: empty text in a tool result"
        if block["type"] == "tool_use" and not (_ID.fullmatch(block["id"]) and _NAME.fullmatch(block["name"])):
            yield f"{where}: id {block['id']!r} or name {block['name']!r} has other characters than letters, digits, _ and -"
        if block["type"] == "image" and block["source"].get("media_type", _IMAGE_TYPES[0]) not in _IMAGE_TYPES:
            yield f"{where}: media type {block['source']['media_type']!r}"
