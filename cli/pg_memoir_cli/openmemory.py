"""OpenMemory, two programs of this name. mem0's: its backup (.zip with memories.json and memories.jsonl.gz, or one of
them). CaviraOSS's: what its API answers (/memory/all, temporal facts), its backup (.json.gz) and its database.

A memory that was deleted, archived or paused has ended. CaviraOSS's waypoints become relations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from .conversations import Fact, Item, Options
from .facts import Entry, find_end, make_fact, read_each

SOURCE = "openmemory"
TABLES = frozenset(
    "users apps categories memories memory_categories waypoints temporal_facts".split()  # of both programs
)
_LISTS = ("memories", "items", "matches", "facts", "temporal_facts")
_STATES = ("active", "paused", "archived", "deleted")


def is_record(record: Any) -> bool:
    """Whether that is a memory of OpenMemory, a backup, or an answer with some."""
    if not isinstance(record, dict):
        return False
    if "export_meta" in record and isinstance(record.get("memories"), list):
        return True
    found = [record[name] for name in _LISTS if isinstance(record.get(name), list)]
    return _is_item(record) or any(_is_item(item) for items in found for item in items[:5])


def _is_item(item: Any) -> bool:
    if not isinstance(item, dict) or "id" not in item:
        return False
    return "content" in item and ("primary_sector" in item or item.get("state") in _STATES) or _is_triple(item)


def _is_triple(item: dict[str, Any]) -> bool:
    return {"subject", "predicate"} <= set(item) and ("object" in item or "obj" in item)


def read(records: Sequence[Entry], options: Options) -> Iterator[Item]:
    """Reads what belongs together: the lines of a file, or one backup."""
    for record in records:
        names = _names(record)
        inner = [child for name in _LISTS for child in record.children(name)]
        envelope = any(isinstance(record.get(name), list) for name in _LISTS)
        yield from read_each(inner if envelope else [record], _read_one, names, options)


def _read_one(entry: Entry, names: _Names, options: Options) -> Iterator[Fact]:
    yield _triple(entry, options) if _is_triple(entry.value) else _memory(entry, names, options)


class _Names:
    """What ids stand for in a backup: users, applications, categories of memories, waypoints from memories."""

    def __init__(self) -> None:
        self.owner: Any = None
        self.users: dict[str, Any] = {}
        self.apps: dict[str, Any] = {}
        self.categories: dict[str, list[str]] = {}
        self.waypoints: dict[str, list[str]] = {}


def _names(record: Entry) -> _Names:
    def rows(name: str) -> list[dict[str, Any]]:
        return [child.value for child in record.children(name) if isinstance(child.value, dict)]

    names = _Names()
    names.owner = record.get("user_id")
    users = rows("users") + ([record.get("user")] if isinstance(record.get("user"), dict) else [])
    names.users = {str(user.get("id", user.get("user_id"))): user.get("user_id") for user in users}
    names.apps = {str(app.get("id")): app.get("name") for app in rows("apps")}
    titles = {str(category.get("id")): str(category.get("name")) for category in rows("categories")}
    for link in rows("memory_categories"):
        if title := titles.get(str(link.get("category_id"))):
            names.categories.setdefault(str(link.get("memory_id")), []).append(title)
    for waypoint in rows("waypoints"):
        names.waypoints.setdefault(str(waypoint.get("src_id")), []).append(str(waypoint.get("dst_id")))
    return names


def _memory(memory: Entry, names: _Names, options: Options) -> Fact:
    if memory.get("id") in (None, ""):
        raise memory.fail("id", "is missing")
    own_id = str(memory.get("id"))
    state, sector = memory.get("state") or "active", memory.find_text("primary_sector")
    if state not in _STATES:
        raise memory.fail("state", f"{state!r} is none of {', '.join(_STATES)}")
    ended = None if state == "active" else find_end(memory, "deleted_at", "archived_at", "updated_at")
    categories = memory.texts("categories") or names.categories.get(own_id, [])
    owner = memory.get("user_id")
    user = names.users.get(str(owner), owner) or names.owner or next(iter(names.users.values()), None)
    kept = memory.object("metadata", "metadata_", "meta") | {
        "app": memory.get("app") or names.apps.get(str(memory.get("app_id"))),
        "state": None if state == "active" else state,
        "salience": memory.get("salience"),
    }
    others = [_dashed(other) for other in names.waypoints.get(own_id, []) if other != own_id]
    return make_fact(
        memory, options, SOURCE,
        id=_dashed(own_id), content=memory.text("content"), user=user, type="event" if sector == "episodic" else "fact",
        category=sector or (categories[0] if categories else None), tags=categories + memory.texts("tags"),
        said_at=memory.time("created_at"), valid_to=ended, metadata=kept,
        relations=tuple(("relates_to", other) for other in others),
    )  # fmt: skip


def _dashed(id_text: str) -> str:
    """An id as the backup has it: the database has UUIDs without dashes."""
    return str(UUID(id_text)) if re.fullmatch("[0-9a-f]{32}", id_text) else id_text


def _triple(fact: Entry, options: Options) -> Fact:
    """A temporal fact: subject, predicate and object, and when it is true."""
    words = [str(fact.get(name)) for name in ("subject", "predicate", "object" if "object" in fact.value else "obj")]
    return make_fact(
        fact, options, SOURCE,
        id=fact.text("id"), content=" ".join(words).replace("_", " "), user=fact.get("user_id"), category=words[1],
        valid_from=fact.time("valid_from"), said_at=fact.time("last_updated", "valid_from"),
        valid_to=fact.time("valid_to"), confidence=fact.get("confidence"), tags=[words[0], words[2]],
        metadata=fact.object("metadata"),
    )  # fmt: skip
