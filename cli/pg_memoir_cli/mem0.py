"""mem0: what get_all, search and the platform's API answer, points of Qdrant and rows of pgvector with their payload,
the history of a memory, and history.db.

Of a memory's history every version comes, the former ones as ended. A deleted memory has ended, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qsl

from pg_memoir.types import Message

from .conversations import Conversation, Fact, Item, Options, stamp_messages
from .facts import Entry, find_end, make_fact, read_each

SOURCE = "mem0"
TABLES = frozenset({"history", "messages"})
_LISTS = ("results", "memories", "points", "history")
_ENVELOPE = {"results", "relations", "count", "next", "previous"}
_SCOPES = ("user_id", "agent_id", "run_id", "app_id", "session_id", "actor_id", "role", "attributed_to", "hash")


def is_record(record: Any) -> bool:
    """Whether that is a memory of mem0, its history, or an answer with some."""
    if not isinstance(record, dict):
        return False
    if isinstance(record.get("result"), dict):
        return is_record(record["result"])
    if "results" in record and set(record) <= _ENVELOPE and not record["results"]:
        return True
    found = [record[name] for name in _LISTS if isinstance(record.get(name), list)]
    return _is_item(record) or any(_is_item(item) for items in found for item in items[:5])


def _is_item(item: Any) -> bool:
    if not isinstance(item, dict):
        return False
    payload = item.get("payload")
    return "id" in item and "memory" in item or isinstance(payload, dict) and "data" in payload or _is_change(item)


def _is_change(item: dict[str, Any]) -> bool:
    return "memory_id" in item and "event" in item


def read(records: Sequence[Entry], options: Options) -> Iterator[Item]:
    """Reads what belongs together: the lines of a file, or one document."""
    items: list[Entry] = []
    for record in records:
        inner = Entry(record.get("result"), record.where, "result") if "result" in record.value else record
        items += [item for name in _LISTS for item in inner.children(name)] or (
            [] if "relations" in inner.value else [inner]
        )
    changes: dict[str, list[Entry]] = {}
    plain: list[Entry] = []
    for item in items:
        if isinstance(item.value, dict) and _is_change(item.value):
            changes.setdefault(str(item.get("memory_id")), []).append(item)
        elif not (isinstance(item.value, dict) and set(item.value) <= _ENVELOPE | {"messages"}):
            plain.append(item)
    users = {str(i.get("user_id") or "") for i in plain if isinstance(i.value, dict)}
    owner = users.pop() if len(users) == 1 else None
    yield from read_each(plain, _memory, options)
    yield from read_each((rows[0] for rows in changes.values()), _history, changes, options)
    for record in records:
        yield from read_each(record.children("relations"), _relation, options, owner)
        yield from _messages(record.children("messages"), options)


def _memory(item: Entry, options: Options) -> Iterator[Fact]:
    payload = item.get("payload")
    if isinstance(payload, dict):
        item = Entry({"id": item.get("id"), **payload, "memory": payload.get("data")}, item.where, item.path)
    if item.get("id") in (None, ""):
        raise item.fail("id", "is missing")
    known = {"id", "memory", "data", "metadata", "categories", "created_at", "updated_at", "score", "text_lemmatized"}
    rest = {k: v for k, v in item.value.items() if k not in known and (payload or k in _SCOPES or k == "replaced_by")}
    categories = item.texts("categories") or [str(c) for c in [item.object("metadata").get("category")] if c]
    last_day = item.time("expiration_date")
    ended = last_day + timedelta(days=1) if last_day else None  # it holds on that day
    if item.get("replaced_by"):
        ended = find_end(item, "updated_at", "created_at")
    yield make_fact(
        item, options, SOURCE,
        id=str(item.get("id")), content=item.text("memory"), user=item.get("user_id") or item.get("agent_id"),
        said_at=item.time("updated_at", "created_at"), valid_to=ended,
        type="preference" if "user_preferences" in categories else "fact",
        category=categories[0] if categories else None, tags=categories,
        metadata={**item.object("metadata"), **rest},
    )  # fmt: skip


def _history(first: Entry, changes: dict[str, list[Entry]], options: Options) -> Iterator[Fact]:
    """The versions of one memory. A version ends where the next one begins, the last one where it was deleted."""
    memory = str(first.get("memory_id"))
    rows = sorted(changes[memory], key=lambda row: str(row.get("updated_at") or row.get("created_at") or ""))
    ended = None
    versions: list[tuple[str, str, datetime | None, Entry]] = []
    for row in rows:
        if row.find_text("old_memory") and not versions:
            versions.append((f"{row.get('id')}:old", row.text("old_memory"), row.time("created_at"), row))
        if row.get("event") == "DELETE" or row.get("is_deleted"):
            ended = find_end(row, "updated_at", "created_at")
        elif row.find_text("new_memory") and row.get("event") != "NONE":
            versions.append((str(row.get("id")), row.text("new_memory"), row.time("updated_at", "created_at"), row))
            ended = None
    if not versions:
        raise first.fail("new_memory", "no row of this memory has a text")
    ends = [find_end(later[3], "updated_at", "created_at") for _, later in pairwise(versions)]
    for (row_id, text, at, row), end in zip(versions, [*ends, ended], strict=True):
        user = next((r.get(name) for name in ("user_id", "agent_id") for r in rows if r.get(name)), None)
        metadata = {name: row.get(name) for name in _SCOPES} | row.object("metadata")
        yield make_fact(
            row, options, SOURCE,
            id=memory if row_id == versions[-1][0] else f"{memory}@{row_id}", content=text, user=user,
            said_at=at, valid_to=end, tags=row.texts("categories"), metadata=metadata,
        )  # fmt: skip


def _relation(edge: Entry, options: Options, owner: Any) -> Iterator[Fact]:
    """An edge of mem0's graph, which has no id: its three words are one."""
    words = [edge.text(*names) for names in (("source",), ("relationship", "relation"), ("target", "destination"))]
    said = " ".join(word.replace("_", " ") for word in words)
    tags = [words[0], words[2]]
    yield make_fact(
        edge, options, SOURCE, id="/".join(words), content=said, user=owner, category=words[1], tags=tags, metadata={}
    )


def _messages(rows: list[Entry], options: Options) -> Iterator[Item]:
    """history.db has the last ten messages of each scope ("run_id=7&user_id=ada")."""
    scopes: dict[str, list[Entry]] = {}
    for row in rows:
        if row.find_text("content") and row.get("role") in ("user", "assistant", "system"):
            scopes.setdefault(str(row.get("session_scope") or ""), []).append(row)
    yield from read_each((said[0] for said in scopes.values()), _session, scopes, options)


def _session(first: Entry, scopes: dict[str, list[Entry]], options: Options) -> Iterator[Conversation]:
    scope = str(first.get("session_scope") or "")
    named = dict(parse_qsl(scope))
    messages: list[Message] = [{"role": row.get("role"), "content": row.get("content")} for row in scopes[scope]]
    stamp_messages(messages, [row.time("created_at") for row in scopes[scope]])
    user = options.name(named.get("user_id") or named.get("agent_id"), options.stem)
    yield Conversation(user, f"mem0 {scope}"[:200], messages, first.where, metadata=named, newest=True)
