"""Reads the transcript that an agent keeps of a session: messages, each with an id that stays the same when the session
goes on."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pg_memoir.types import Message

from .. import claude_code

Told = list[tuple[str, Message]]
_QUERY = re.compile(r"<user_query>\s*(.*?)\s*</user_query>", re.S)
_TOOL_CALLS = ("function_call", "custom_tool_call")
_MARKS = ("<memoir-profile>", "<memoir-recall>")


def read_told(agent: str, payload: dict[str, Any]) -> Told:
    """The messages of a session, in order. Calls at the end that have no result yet are left out."""
    told = list_told(agent, payload)
    while told and _is_open(told):
        told.pop()
    return told


def list_told(agent: str, payload: dict[str, Any]) -> Told:
    """The same, with those calls."""
    return READERS[agent](payload)


def read_added(payload: dict[str, Any]) -> str:
    """Returns the texts that hooks added to a session so far. Lines without our marks are not parsed."""
    if isinstance(payload.get("said"), str):
        return str(payload["said"])
    found = []
    for line in read_lines(payload):
        if any(mark in line for mark in _MARKS):
            found += [text for text in _list_texts(load_line(line)) if any(mark in text for mark in _MARKS)]
    return "\n".join(dict.fromkeys(found))


def _is_open(told: Told) -> bool:
    last = told[-1][1]
    return bool(last.get("tool_calls")) or last.get("content") == claude_code.NO_RESULT


def _read_claude_code(payload: dict[str, Any]) -> Told:
    # Each request that was sent stands there too, in lines of their own kinds, which are most of the file.
    lines = (line for line in read_lines(payload) if '"parentUuid"' in line[:300])
    return claude_code.read_messages(entry for entry in map(load_line, lines) if claude_code.is_entry(entry))


def _read_codex(payload: dict[str, Any]) -> Told:
    told: Told = []
    is_answer = False  # does the next call belong to the message before it?
    for number, line in enumerate(read_lines(payload)):  # lines are only ever added
        record = load_line(line) if '"response_item"' in line[:200] else {}
        item, at = record.get("payload") or {}, record.get("timestamp")
        kind = item.get("type")
        # A session that goes on from a copy of another has its items. Only old ones are without ids.
        name = str(item.get("id") or f"{payload.get('session_id')} {number}")
        if kind == "message" and item.get("role") in ("user", "assistant"):
            text = "\n\n".join(text for text in _list_texts(item.get("content")) if text.strip())
            if text:
                told.append((name, {"role": item["role"], "content": text, "created_at": at}))
            is_answer = item["role"] == "assistant" and bool(text)
        elif kind in _TOOL_CALLS:
            if not is_answer:
                told.append((name, {"role": "assistant", "content": None, "created_at": at}))
            given = item.get("arguments") if kind == "function_call" else json.dumps({"input": item.get("input")})
            function = {"name": str(item.get("name")), "arguments": str(given or "{}")}
            call = {"id": str(item.get("call_id")), "type": "function", "function": function}
            told[-1][1].setdefault("tool_calls", []).append(call)
            is_answer = True
        elif str(kind).removesuffix("_output") in _TOOL_CALLS:
            output = item.get("output")
            text = output if isinstance(output, str) else "\n".join(_list_texts(output))
            told.append((name, {"role": "tool", "tool_call_id": str(item.get("call_id")), "content": text}))
            is_answer = False
    return told


def _read_opencode(payload: dict[str, Any]) -> Told:
    told: Told = []
    for one in payload.get("messages") or []:
        info, parts = one.get("info") or {}, one.get("parts") or []
        own = [p for p in parts if p.get("type") == "text" and not p.get("synthetic") and not p.get("ignored")]
        text = "\n\n".join(str(part["text"]) for part in own if str(part.get("text") or "").strip())
        message: Message = {"role": info.get("role"), "content": text or None}
        if isinstance(at := (info.get("time") or {}).get("created"), (int, float)):
            message["created_at"] = datetime.fromtimestamp(at / 1000, UTC).isoformat()
        name, results = str(info.get("id")), []
        for part in parts if info.get("role") == "assistant" else []:
            state = part.get("state") or {}
            if part.get("type") != "tool" or state.get("status") not in ("completed", "error"):
                continue
            function = {"name": str(part.get("tool")), "arguments": json.dumps(state.get("input") or {})}
            call = {"id": str(part.get("callID")), "type": "function", "function": function}
            message.setdefault("tool_calls", []).append(call)
            result = str(state.get("output") or state.get("error") or "")
            results.append((f"{name} {call['id']}", {"role": "tool", "tool_call_id": call["id"], "content": result}))
        if text or results:
            told += [(name, message), *results]
    return told


def _read_cursor(payload: dict[str, Any]) -> Told:
    """Cursor's lines have no ids, and no results of tools."""
    told: Told = []
    for number, line in enumerate(read_lines(payload)):
        record = load_line(line)
        role, content = record.get("role"), (record.get("message") or {}).get("content")
        if role not in ("user", "assistant"):
            continue
        text = "\n\n".join(text for text in _list_texts(content) if text.strip())
        typed = _QUERY.findall(text) if role == "user" else []
        text = "\n\n".join(typed) or text
        if text:
            digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
            told.append((f"{payload.get('conversation_id')} {number} {digest}", {"role": role, "content": text}))
    return told


READERS: dict[str, Callable[[dict[str, Any]], Told]] = {
    "claude-code": _read_claude_code,
    "codex": _read_codex,
    "opencode": _read_opencode,
    "cursor": _read_cursor,
}


def read_lines(payload: dict[str, Any]) -> Iterator[str]:
    """The lines of a transcript, none where the event names no file."""
    path = payload.get("transcript_path")
    if not isinstance(path, str) or not Path(path).is_file():
        return
    with Path(path).open(encoding="utf-8", errors="replace") as file:
        yield from file


def load_line(line: str) -> dict[str, Any]:
    """A line's object; the last one may be half written."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _list_texts(value: Any) -> list[str]:
    """All texts of a content: itself, or those of its parts."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for item in value for text in _list_texts(item)]
    if not isinstance(value, dict):
        return []
    if isinstance(value.get("text"), str):
        return [value["text"]]
    return [text for key in ("content", "payload", "attachment") for text in _list_texts(value.get(key))]
