"""Requests against the types of the official `openai` and `anthropic` packages, and the rules their types can't say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

STRICT = ConfigDict(extra="forbid", strict=True)
MAX_CACHE_MARKS = 4
_TOOL_ID = re.compile(r"[a-zA-Z0-9_-]+")
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
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
    if not isinstance(compiled, dict) or not set(compiled) <= {"system", "messages"} or "messages" not in compiled:
        yield "not an object of system and messages"
        return
    adapters = _anthropic_adapters()
    blocks: list[tuple[str, Any]] = []
    system = compiled.get("system", [])
    if isinstance(system, list):
        blocks += [(f"system[{place}]", block) for place, block in enumerate(system)]
        for where, block in blocks:
            problem = _check(adapters["text"], block)
            if problem:
                yield f"{where}: {problem}"
                return
    elif not isinstance(system, str):
        yield f"system is {type(system).__name__}"
        return
    messages = compiled["messages"]
    if not isinstance(messages, list) or not messages:
        yield "messages is empty or not a list"
        return
    for place, message in enumerate(messages):
        problem = _check(adapters["message"], message)
        if problem:
            yield f"messages[{place}]: {problem}"
            return
        if isinstance(message["content"], str):
            if not message["content"].strip():
                yield f"messages[{place}]: empty text"
            continue
        if not message["content"]:
            yield f"messages[{place}]: no content"
        for at, block in enumerate(message["content"]):
            where = f"messages[{place}].content[{at}]"
            problem = _check(adapters[block["type"]], block) if block["type"] in adapters else f"type {block['type']!r}"
            if problem:
                yield f"{where}: {problem}"
                return
            blocks.append((where, block))
    yield from _anthropic_roles(messages)
    yield from _anthropic_tools(messages)
    yield from _anthropic_blocks(blocks)


def _anthropic_roles(messages: list[dict[str, Any]]) -> Iterator[str]:
    roles = [message["role"] for message in messages]
    if roles[0] != "user":
        yield f"messages[0] is of {roles[0]}, must be of user"
    for place in range(1, len(roles)):
        if roles[place] == roles[place - 1]:
            yield f"messages[{place}] is of {roles[place]} like the one before"


def _anthropic_tools(messages: list[dict[str, Any]]) -> Iterator[str]:
    due: list[str] = []
    for place, message in enumerate(messages):
        blocks = message["content"] if isinstance(message["content"], list) else [{"type": "text"}]
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if sorted(results) != sorted(due):
            yield f"messages[{place}] answers {results}, must answer {due}"
        kinds = [block["type"] == "tool_result" for block in blocks]
        if kinds != sorted(kinds, reverse=True):
            yield f"messages[{place}]: tool results must come first"
        due = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if due and message["role"] != "assistant":
            yield f"messages[{place}]: tool use in a message of {message['role']}"
    if due:
        yield f"the last message's tool uses {due} are unanswered"


def _anthropic_blocks(blocks: list[tuple[str, Any]]) -> Iterator[str]:
    marks = 0
    for where, block in blocks:
        marks += block.get("cache_control") is not None
        if block["type"] == "text" and not block["text"].strip():
            yield f"{where}: empty text"
        if block["type"] == "tool_result" and isinstance(block.get("content"), list):
            if any(inner.get("type") == "text" and not inner["text"].strip() for inner in block["content"]):
                yield f"{where}: empty text in a tool result"
        if block["type"] == "tool_use":
            if not _TOOL_ID.fullmatch(block["id"]):
                yield f"{where}: id {block['id']!r}, only letters, digits, _ and - are allowed"
            if not _TOOL_NAME.fullmatch(block["name"]):
                yield f"{where}: name {block['name']!r}"
        if (
            block["type"] == "image"
            and block["source"]["type"] == "base64"
            and block["source"]["media_type"] not in _IMAGE_TYPES
        ):
            yield f"{where}: media type {block['source']['media_type']!r}"
    if marks > MAX_CACHE_MARKS:
        yield f"{marks} cache_control marks, at most {MAX_CACHE_MARKS} are allowed"
