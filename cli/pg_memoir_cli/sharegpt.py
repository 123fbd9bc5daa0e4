"""ShareGPT turns → OpenAI messages.

ShareGPT gives tool results no id and writes calls in several ways: as a turn of their own ('function_call', its value
JSON), as <tool_call> blocks in the model's text, or not at all. Each result is paired with a call of the model's turn
before it; calls that got no result stay text.
"""

from __future__ import annotations

import json
import re
from typing import Any

from pg_memoir.types import Message

_ROLES = {
    "human": "user", "user": "user",
    "gpt": "assistant", "chatgpt": "assistant", "assistant": "assistant", "model": "assistant",
    "bing": "assistant", "bard": "assistant",
    "system": "system",
    "tool": "tool", "observation": "tool", "function_response": "tool", "function": "tool",
    "function_call": "call", "tool_call": "call",
}  # fmt: skip
_CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
_RESPONSE = re.compile(r"<tool_response>\s*(.*?)\s*</tool_response>", re.DOTALL)


class FieldError(ValueError):
    """`field`: path inside the record; `problem`: what is wrong there."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field, self.problem = field, problem


def messages(turns: Any) -> list[Message]:
    """The value of 'conversations' as messages whose tool calls are all answered. Raises FieldError."""
    if not isinstance(turns, list) or not turns:
        raise FieldError("conversations", "a list of turns is needed")
    out: list[Message] = []
    place = 0
    while place < len(turns):
        role, text = _turn(turns[place], place)
        place += 1
        results: list[str] = []
        if role in ("assistant", "call", "tool"):
            if role == "tool":  # a result nobody asked for in writing
                place -= 1
            while place < len(turns) and _turn(turns[place], place)[0] == "tool":
                value = _turn(turns[place], place)[1]
                results += _RESPONSE.findall(value) or [value]
                place += 1
        if role in ("user", "system"):
            out.append({"role": role, "content": text})
        elif not results:
            out.append({"role": "assistant", "content": text})
        else:
            out += _exchange(role, text, results, len(out))
    return out


def _turn(turn: Any, place: int) -> tuple[str, str]:
    path = f"conversations[{place}]"
    if not isinstance(turn, dict):
        raise FieldError(path, f"is a {type(turn).__name__}, an object is needed")
    role = _ROLES.get(str(turn.get("from", "")).lower())
    if role is None:
        raise FieldError(f"{path}.from", f"{turn.get('from')!r} is none of {', '.join(_ROLES)}")
    if not isinstance(turn.get("value"), str):
        raise FieldError(f"{path}.value", f"{turn.get('value')!r} is not a text")
    return role, turn["value"]


def _exchange(role: str, text: str, results: list[str], serial: int) -> list[Message]:
    """The assistant message with one call per result, and the results."""
    content: str | None = text if role == "assistant" else None
    written = _CALL.findall(text) if role == "assistant" else [text] if role == "call" else []
    calls = [call for part in written for call in _parse_turns(part)]
    if calls and len(calls) <= len(results) and content is not None:
        content = _CALL.sub("", content).strip() or None
    calls = (calls + [("tool", "{}")] * len(results))[: len(results)]
    ids = [f"call_{serial}_{index}" for index in range(len(results))]
    message: Message = {
        "role": "assistant",
        "content": content,
        "tool_calls": [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for call_id, (name, arguments) in zip(ids, calls)
        ],
    }
    return [message, *({"role": "tool", "tool_call_id": i, "content": r} for i, r in zip(ids, results))]


def _parse_turns(text: str) -> list[tuple[str, str]]:
    try:
        value = json.loads(text)
    except ValueError:
        return []
    calls = []
    for call in value if isinstance(value, list) else [value]:
        if isinstance(call, dict) and isinstance(call.get("name"), str):
            arguments = call.get("arguments", call.get("parameters", {}))
            written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            calls.append((call["name"], written))
    return calls
