"""The messages of a Letta agent → OpenAI messages, each call followed by its result.

Older agents answer by calling send_message, and their text is thinking. What a person says and what a tool returns is
packed into JSON with its time, and notes of the program look the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from pg_memoir.types import Message

from .claude_code import NO_RESULT
from .facts import Entry


def read_messages(agent: Entry) -> list[tuple[Message, datetime | None]]:
    """Returns the messages of an agent with their times. Raises ConversationError."""
    found: list[tuple[Message, datetime | None]] = []
    waiting: list[str] = []
    for entry in agent.children("messages"):
        if not isinstance(entry.value, dict):
            raise entry.fail("", f"is a {type(entry.value).__name__}, an object is needed")
        at = entry.time("created_at")
        found += [(message, at) for message in _messages(entry, waiting)]
    # With the time of the call: whatever a later file has is behind it.
    last = found[-1][1] if found else None
    return found + [(message, last) for message in _missing_results(waiting)]


def _messages(entry: Entry, waiting: list[str]) -> Iterator[Message]:
    """The messages of one entry. `waiting`: the calls before it that have no result yet."""
    role, text = entry.get("role"), _text(entry.get("content"))
    if role in ("tool", "function"):
        for call, result in _results(entry, text):
            if call in waiting:
                waiting.remove(call)
                yield {"role": "tool", "tool_call_id": call, "content": result}
        return
    if role not in ("user", "assistant", "approval"):
        return
    yield from _missing_results(waiting)
    if role == "user":
        if said := _unpack(text):
            yield {"role": "user", "content": said}
        return
    calls: list[dict[str, Any]] = []
    for call in entry.get("tool_calls") or []:
        function = (call.get("function") if isinstance(call, dict) else None) or {}
        arguments = str(function.get("arguments") or "{}")
        if function.get("name") == "send_message":  # how older agents answer; their text was thinking
            text = str(_object(arguments).get("message") or "")
        elif function:
            called = {"name": str(function.get("name")), "arguments": arguments}
            calls.append({"id": str(call.get("id")), "type": "function", "function": called})
    if text or calls:
        waiting += [call["id"] for call in calls]
        yield {"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})}


def _missing_results(waiting: list[str]) -> Iterator[Message]:
    while waiting:
        yield {"role": "tool", "tool_call_id": waiting.pop(0), "content": NO_RESULT}


def _results(entry: Entry, text: str) -> list[tuple[str, str]]:
    found = [r.value for r in entry.children("tool_returns") if isinstance(r.value, dict) and r.get("tool_call_id")]
    if found and not entry.get("tool_call_id"):
        return [(str(r["tool_call_id"]), _text(r.get("func_response"))) for r in found]
    return [(str(entry.get("tool_call_id")), str(_object(text).get("message", text)))]


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    marks = {"text": "", "image": "[image]"}
    said = [str(p.get("text") or marks[p["type"]]) for p in parts if p.get("type") in marks]
    return "\n".join(text for text in said if text).strip()


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _unpack(text: str) -> str:
    """What the person said: Letta packs it with its time, and packs notes of the program alike."""
    packed = _object(text)
    if "type" not in packed:
        return text
    return str(packed.get("message") or "") if packed["type"] == "user_message" else ""
