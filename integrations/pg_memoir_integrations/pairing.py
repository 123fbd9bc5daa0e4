"""Items of a session for frameworks whose messages are chat messages: they come back as they came, and turns say the
same. The calls of one answer become turns with the last of their results."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pg_memoir import Message
from pg_memoir.call import Call
from pg_memoir.errors import ChangedElsewhereError
from pg_memoir.functions import calls

from .running import ATTEMPTS

Told = tuple[dict[str, Any], list[Message]]
"""An item as it came, and what it says as OpenAI's chat messages."""

_UNNAMED = re.compile(r"[^a-zA-Z0-9_-]")
_VIDEO = re.compile(r"https?://|data:video/")
_IMAGE = re.compile(r"https?://|data:image/")
_FILES = (["file_id"], ["file_data"])


@dataclass
class _Round:
    """An answer that calls tools, and the results that are there."""

    name: str
    asked: Message
    results: dict[str, Message] = field(default_factory=dict)


def append_told(
    user: str, session: str, told: Sequence[Told], read: Callable[[dict[str, Any]], list[Message]]
) -> Generator[Call[Any], Any, None]:
    """Yields the calls that append items. `read`: what an item of the session says. A result whose call is an earlier
    item needs that item, so the calls are repeated while other writers are faster."""
    if not waits_for_calls(told):
        yield calls.append_items(user, session, pair_messages(told))
        return
    for attempt in range(ATTEMPTS):
        items = yield calls.list_items(user, session)
        waiting = [(each.item, read(each.item)) for each in items if each.turn_index is None and each.part_of]
        last = items[-1].item_no if items else -1
        try:
            yield calls.append_items(user, session, pair_messages(told, waiting), after_item=last)
            return
        except ChangedElsewhereError:
            if attempt == ATTEMPTS - 1:
                raise


def waits_for_calls(told: Sequence[Told]) -> bool:
    """Says whether a result answers a call that did not come with it."""
    messages = [message for _, some in told for message in some]
    asked = {call["id"] for message in messages for call in message.get("tool_calls") or ()}
    return not {message["tool_call_id"] for message in messages if message["role"] == "tool"} <= asked


def pair_messages(told: Iterable[Told], waiting: Iterable[Told] = ()) -> list[dict[str, Any]]:
    """Returns entries of append_items. `waiting`: earlier items whose calls wait for results."""
    rounds: dict[str, _Round] = {}
    for item, messages in waiting:
        _enter(item, messages, rounds)
    return [_enter(item, messages, rounds) for item, messages in told]


def _enter(item: dict[str, Any], messages: list[Message], rounds: dict[str, _Round]) -> dict[str, Any]:
    """Returns the entry of an item: what it says, or the round of calls that it belongs to."""
    entry: dict[str, Any] = {"item": item, "messages": []}
    for message in map(storable, messages):
        if asked := message.get("tool_calls"):
            entry["part_of"] = asked[0]["id"]
            rounds |= dict.fromkeys([call["id"] for call in asked], _Round(asked[0]["id"], message))
        elif message["role"] != "tool":
            entry["messages"] += [message] if message["content"] or message["role"] == "user" else []
        elif found := rounds.pop(message["tool_call_id"], None):
            entry["part_of"] = found.name
            found.results[message["tool_call_id"]] = message
            if len(found.results) == len(found.asked["tool_calls"]):
                entry["messages"] += [found.asked, *found.results.values()]
    return entry


def storable(message: Message) -> Message:
    """Returns a chat message as a turn can hold it. A part that it can't hold is named. Thoughts are left out."""
    role = message["role"]
    kept: Message = {"role": role, "content": _content(message.get("content"), role)}
    asked = {call["id"]: call["function"] for call in message.get("tool_calls") or () if call["id"]}
    if asked:
        kept["tool_calls"] = [{"id": name, "type": "function", "function": _function(asked[name])} for name in asked]
    if role == "tool":
        kept["tool_call_id"] = message["tool_call_id"]
    return kept


def _function(called: dict[str, Any]) -> dict[str, Any]:
    return {"name": _UNNAMED.sub("_", called["name"])[:64] or "_", "arguments": called["arguments"]}


def _content(content: Any, role: str) -> Any:
    if content is None or isinstance(content, str):
        return content
    parts = [shown for part in content if (shown := _part(part, role))]
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts) or ("" if role in ("user", "tool") else None)
    return parts


def _part(part: Any, role: str) -> dict[str, Any] | None:
    """Returns a part as a turn can hold it, None for a thought."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    kind = str(part.get("type", "part"))
    held = part.get(kind)
    if kind == "text" and isinstance(held, str):
        return {"type": "text", "text": held}
    if kind in ("thinking", "redacted_thinking", "reasoning"):
        return None
    if role == "user" and isinstance(held, dict):
        if kind == "video_url" and _VIDEO.match(str(held.get("url"))):
            return {"type": kind, kind: {"url": held["url"]}}
        if kind == "image_url" and _IMAGE.match(str(held.get("url"))):
            detail = {"detail": held["detail"]} if held.get("detail") in ("auto", "low", "high") else {}
            return {"type": kind, kind: {"url": held["url"]} | detail}
        given = [name for name in ("data", "format", "file_id", "file_data") if isinstance(held.get(name), str)]
        if kind == "input_audio" and given == ["data", "format"] or kind == "file" and given[:1] in _FILES:
            return {"type": kind, kind: held}
    return {"type": "text", "text": f"[{kind}]"}
