"""Threads and sessions of Zep → conversations.

The community edition, and episodes of version 3, have the role in role_type and a name in role.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

from pg_memoir.types import Message

from .chat_exports import make_exchange
from .conversations import Conversation, Options, stamp_messages
from .facts import Entry
from .locomo import openai_name

_ROLES = {"user": "user", "norole": "user", "assistant": "assistant", "system": "system", "tool": "tool"}


def group_messages(said: Sequence[tuple[Entry, Any]], others: Sequence[Entry]) -> list[tuple[Entry, Any]]:
    """Returns messages that stand alone (pages of messages, episodes) as threads, each with its owner. Those that stand
    in a thread of the file too are left out."""
    names = {str(thread.get("uuid")): thread.get("thread_id") for thread in others if thread.get("thread_id")}
    known = {str(m.get("uuid")) for t in others for m in t.children("messages") if isinstance(m.value, dict)}
    threads: dict[str, list[tuple[Entry, Any]]] = {}
    for message, owner in said:
        if str(message.get("uuid")) not in known:
            place = str(message.get("thread_uuid") or "")
            threads.setdefault(str(message.get("thread_id") or names.get(place, place)), []).append((message, owner))
    return [
        (Entry({"messages": [m.value for m, _ in group], "thread_id": thread}, group[0][0].where), group[0][1])
        for thread, group in threads.items()
    ]


def read_conversation(thread: Entry, owner: Any, options: Options) -> Iterator[Conversation]:
    """Yields a thread or session with its messages, none if they say nothing. Raises ConversationError."""
    found: list[tuple[Message, Any]] = []
    for message in thread.children("messages"):
        if not isinstance(message.value, dict):
            raise message.fail("", f"is a {type(message.value).__name__}, an object is needed")
        given = message.get("role_type") or message.get("role") or "norole"
        role = "tool" if given == "function" else _ROLES.get(str(given))
        if role is None:
            raise message.fail("role", f"{given!r} is none of {', '.join(_ROLES)}, function")
        other = message.get("role_name") or (message.get("role") if message.get("role_type") else None)
        name = message.get("name") or other
        said_at = message.time("reference_time", "created_at")
        if not message.find_text("content"):
            continue
        said: Message = {"role": role, "content": message.get("content")}
        if role == "tool":
            found += make_exchange(str(name or "tool"), "", (said, said_at), said_at, len(found))
            continue
        if name and name != role:
            said["name"] = openai_name(str(name))
        found.append((said | ({"metadata": message.object("metadata")} if message.object("metadata") else {}), said_at))
    if all(at for _, at in found):
        found.sort(key=itemgetter(1))  # episodes are listed newest first
    messages = [message for message, _ in found]
    stamp_messages(messages, [at for _, at in found], thread.time("created_at"))
    session = next((thread.get(n) for n in ("thread_id", "session_id", "uuid") if thread.get(n)), options.stem)
    if messages:
        user = options.name(owner, options.stem)
        yield Conversation(user, str(session), messages, thread.where, metadata=thread.object("metadata"))
