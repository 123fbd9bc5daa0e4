"""The exports of ChatGPT and Claude (conversations.json) → OpenAI messages.

ChatGPT keeps a tree: of an answer that was made anew or a question that was edited, every version. Imported is the
branch that was shown last. Claude keeps a list.
"""

from __future__ import annotations

import json
from typing import Any

from pg_memoir.types import Message

from .sharegpt import FieldError

_NOT_SAID = ("user_editable_context", "model_editable_context", "thoughts", "reasoning_recap")


def is_chatgpt(record: Any) -> bool:
    """Whether that is a conversation of a ChatGPT export."""
    return isinstance(record, dict) and isinstance(record.get("mapping"), dict)


def is_claude(record: Any) -> bool:
    """Whether that is a conversation of a Claude export."""
    return isinstance(record, dict) and isinstance(record.get("chat_messages"), list)


def chatgpt_messages(record: dict[str, Any]) -> list[tuple[Message, Any]]:
    """The messages of the branch shown last, each with its time (seconds since 1970, or None). Raises FieldError."""
    found: list[tuple[Message, Any]] = []
    for place, node in _branch(record):
        message = node.get("message")
        if not isinstance(message, dict):
            continue
        path = f"mapping.{place}.message"
        role = (message.get("author") or {}).get("role")
        if role not in ("user", "assistant", "system", "tool"):
            raise FieldError(f"{path}.author.role", f"{role!r} is none of user, assistant, system, tool")
        hidden = (message.get("metadata") or {}).get("is_visually_hidden_from_conversation")
        text = _chatgpt_text(message.get("content"), path)
        if hidden or role == "system" or not text:
            continue
        name = str((message.get("author") or {}).get("name") or "")
        recipient = message.get("recipient") or "all"
        if role == "assistant" and recipient != "all":
            found.append(({"role": "call", "name": str(recipient), "content": text}, message.get("create_time")))
        else:
            found.append(({"role": role, "name": name, "content": text}, message.get("create_time")))
    return _pair_results(found)


def _branch(record: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The nodes from the root to the one that was shown last."""
    mapping = record["mapping"]
    node = record.get("current_node")
    if node not in mapping:  # older exports do not name it: the newest leaf
        leaves = [key for key, value in mapping.items() if isinstance(value, dict) and not value.get("children")]
        node = max(leaves, key=lambda key: (mapping[key].get("message") or {}).get("create_time") or 0, default=None)
    found: list[tuple[str, dict[str, Any]]] = []
    while node is not None and len(found) <= len(mapping):
        value = mapping.get(node)
        if not isinstance(value, dict):
            raise FieldError(f"mapping.{node}", "is named as a parent and is not there")
        found.append((node, value))
        node = value.get("parent")
    if len(found) > len(mapping):
        raise FieldError("mapping", "the parents form a circle")
    return found[::-1]


def _chatgpt_text(content: Any, path: str) -> str:
    """What a message says; pictures and files as a mark."""
    if content is None:
        return ""
    if not isinstance(content, dict):
        raise FieldError(f"{path}.content", f"is a {type(content).__name__}, an object is needed")
    kind = content.get("content_type")
    if kind in _NOT_SAID:
        return ""
    if isinstance(content.get("parts"), list):
        parts = [_chatgpt_part(part) for part in content["parts"]]
        return "\n".join(part for part in parts if part).strip()
    for key in ("text", "result", "content"):
        if isinstance(content.get(key), str):
            return str(content[key]).strip()
    return ""


def _chatgpt_part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict):
        kind = str(part.get("content_type", ""))
        if isinstance(part.get("text"), str):  # a transcript of what was spoken
            return str(part["text"])
        return "[image]" if "image" in kind else "[audio]" if "audio" in kind else "[video]" if "video" in kind else ""
    return ""


def _pair_results(found: list[tuple[Message, Any]]) -> list[tuple[Message, Any]]:
    """Tools have no ids there: each result answers the call before it. A call without a result is left out, a result
    without a call gets one."""
    out: list[tuple[Message, Any]] = []
    place = 0
    while place < len(found):
        message, at = found[place]
        place += 1
        if message["role"] == "call":
            if place < len(found) and found[place][0]["role"] == "tool":
                out += make_exchange(message["name"], message["content"], found[place], at, len(out))
                place += 1
        elif message["role"] == "tool":
            out += make_exchange(message["name"] or "tool", "", (message, at), at, len(out))
        else:
            out.append(({"role": message["role"], "content": message["content"]}, at))
    return out


def make_exchange(tool: str, text: str, result: tuple[Message, Any], at: Any, serial: int) -> list[tuple[Message, Any]]:
    """A call of a tool, whose input was `text`, and its result."""
    name = "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in tool)[:64] or "tool"
    arguments = json.dumps({"input": text} if text else {}, ensure_ascii=False)
    call_id = f"call_{serial}"
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    answer = {"role": "tool", "tool_call_id": call_id, "content": result[0]["content"]}
    return [({"role": "assistant", "content": None, "tool_calls": [call]}, at), (answer, result[1])]


def claude_messages(record: dict[str, Any]) -> list[tuple[Message, Any]]:
    """The messages, each with its time (ISO 8601, or None). Attached texts stand below what was said. Raises
    FieldError."""
    found: list[tuple[Message, Any]] = []
    for place, message in enumerate(record["chat_messages"]):
        path = f"chat_messages[{place}]"
        if not isinstance(message, dict):
            raise FieldError(path, f"is a {type(message).__name__}, an object is needed")
        role = {"human": "user", "assistant": "assistant"}.get(str(message.get("sender")))
        if role is None:
            raise FieldError(f"{path}.sender", f"{message.get('sender')!r} is neither human nor assistant")
        text = _claude_text(message)
        if text:
            found.append(({"role": role, "content": text}, message.get("created_at")))
    return found


def _claude_text(message: dict[str, Any]) -> str:
    blocks = [block for block in message.get("content") or [] if isinstance(block, dict)]
    said = [str(block["text"]) for block in blocks if block.get("type") == "text" and block.get("text")]
    parts = said or [str(message.get("text") or "")]
    for attached in message.get("attachments") or []:
        if isinstance(attached, dict) and attached.get("extracted_content"):
            parts.append(f"[{attached.get('file_name') or 'attachment'}]\n{attached['extracted_content']}")
    for file in message.get("files") or []:
        if isinstance(file, dict) and file.get("file_name"):
            parts.append(f"[file: {file['file_name']}]")
    return "\n\n".join(part.strip() for part in parts if part.strip())
