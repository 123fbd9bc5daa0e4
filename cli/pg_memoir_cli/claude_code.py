"""Transcripts of Claude Code (one JSON object a line, one file a session) → OpenAI messages.

Blocks of one answer stand on lines of their own, with results of parallel calls between them: they are put together by
the answer's id. Each line names the one before it: where the person went back and wrote something else, only the way
that was taken last is read. What sub-agents said, notes of the program, its summaries and thinking are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from pg_memoir.types import Message

NO_RESULT = "[no result was recorded]"
# Marks of what neither the person nor the assistant said.
_NOTES = ("isSidechain", "isMeta", "isCompactSummary", "isVisibleInTranscriptOnly")


def is_entry(record: Any) -> bool:
    """Whether a line is one of a transcript."""
    return isinstance(record, dict) and "sessionId" in record and isinstance(record.get("type"), str)


def is_note(record: Any) -> bool:
    """Whether a line may stand in a transcript though it names no session: a snapshot of files, a title."""
    return isinstance(record, dict) and isinstance(record.get("type"), str) and "messages" not in record


def messages(entries: Iterable[dict[str, Any]]) -> list[Message]:
    """The messages of a transcript, each call followed by its result."""
    return [message for _, message in read_messages(entries)]


def read_messages(entries: Iterable[dict[str, Any]]) -> list[tuple[str, Message]]:
    """The messages of a transcript, each with an id that stays the same when the transcript goes on."""
    entries = list(entries)
    left = _find_abandoned(entries)
    said: list[tuple[str, Message]] = []
    answers: dict[str, Message] = {}
    results: dict[str, str] = {}
    for entry in entries:
        message = entry.get("message")
        if not isinstance(message, dict) or any(entry.get(note) for note in _NOTES) or entry.get("uuid") in left:
            continue
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        blocks = [block for block in blocks if isinstance(block, dict)] if isinstance(blocks, list) else []
        if entry["type"] == "assistant":
            key = str(message.get("id") or entry.get("uuid") or len(said))
            if key not in answers:
                answers[key] = {"role": "assistant", "content": None, "created_at": entry.get("timestamp")}
                said.append((str(entry.get("uuid") or f"answer {key}"), answers[key]))
            _add_answer(answers[key], blocks)
        elif entry["type"] == "user":
            for block in blocks:
                if block.get("type") == "tool_result":
                    results[str(block.get("tool_use_id"))] = _text(block.get("content"))
            text = _text([block for block in blocks if block.get("type") in ("text", "image")])
            if text.strip():
                message = {"role": "user", "content": text, "created_at": entry.get("timestamp")}
                said.append((str(entry.get("uuid") or f"user {len(said)}"), message))
    out: list[tuple[str, Message]] = []
    for name, message in said:
        if message["role"] == "assistant" and not message["content"] and not message.get("tool_calls"):
            continue  # thinking alone
        out.append((name, {key: value for key, value in message.items() if value is not None or key == "content"}))
        for call in message.get("tool_calls", []):
            result = {"role": "tool", "tool_call_id": call["id"], "content": results.get(call["id"], NO_RESULT)}
            out.append((f"{name} {call['id']}", result))
    return out


def _find_abandoned(entries: list[dict[str, Any]]) -> set[str]:
    """The lines of ways that were left: of several things that the person typed after the same line, all but the last,
    and what followed them."""
    children: dict[str, list[dict[str, Any]]] = {}
    for entry in entries:
        if isinstance(entry.get("parentUuid"), str) and isinstance(entry.get("uuid"), str):
            children.setdefault(entry["parentUuid"], []).append(entry)
    left: set[str] = set()
    for siblings in children.values():
        todo = [entry["uuid"] for entry in siblings if _is_typed(entry)][:-1]
        while todo:
            one = todo.pop()
            if one not in left:
                left.add(one)
                todo += [entry["uuid"] for entry in children.get(one, [])]
    return left


def _is_typed(entry: dict[str, Any]) -> bool:
    message = entry.get("message")
    if entry["type"] != "user" or not isinstance(message, dict) or any(entry.get(note) for note in _NOTES):
        return False
    content = message.get("content")
    return isinstance(content, str) or any(
        isinstance(block, dict) and block.get("type") != "tool_result" for block in content or []
    )


def _add_answer(answer: Message, blocks: list[dict[str, Any]]) -> None:
    for block in blocks:
        if block.get("type") == "text" and str(block.get("text", "")).strip():
            answer["content"] = "\n\n".join(filter(None, (answer["content"], str(block["text"]).strip())))
        elif block.get("type") == "tool_use":
            arguments = json.dumps(block.get("input", {}), ensure_ascii=False)
            function = {"name": str(block.get("name")), "arguments": arguments}
            calls = answer.setdefault("tool_calls", [])
            calls.append({"id": str(block.get("id")), "type": "function", "function": function})


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(
        str(part.get("text", "")) if part.get("type") == "text" else f"[{part.get('type')}]" for part in parts
    )
