"""Zep: what its API answers (threads, messages, edges, nodes, episodes of the cloud's versions 2 to 4; sessions, memory
and facts of the community edition), alone or put together in one document.

A fact that was superseded or is true no more has ended. A node is a fact with its summary, and the facts about it
reference it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from .conversations import Fact, Item, Options
from .facts import Entry, find_end, make_fact, read_each
from .zep_messages import group_messages, read_conversation

SOURCE = "zep"
_LISTS = ("items", "users", "threads", "sessions", "edges", "nodes", "facts", "relevant_facts", "episodes")
_COUNTS = {"row_count", "total_count", "total_size", "next_cursor"}


def is_record(record: Any) -> bool:
    """Whether that is something of Zep, or an answer or document with some."""
    if not isinstance(record, dict):
        return False
    if isinstance(record.get("user"), dict) and "user_id" in record["user"] and not {"apps", "memories"} & set(record):
        return True
    found = [record[name] for name in (*_LISTS, "messages") if isinstance(record.get(name), list)]
    listed = any(_is_item(item) for items in found for item in items[:5])
    return listed or _is_item(record) or "messages" in record and bool(_COUNTS & set(record))


def _is_item(item: Any) -> bool:
    if not isinstance(item, dict) or "uuid" not in item:
        return False
    return bool({"fact", "thread_id", "session_id", "role", "source", "user_id"} & set(item)) or _is_node(item)


def _is_node(item: dict[str, Any]) -> bool:
    return "name" in item and "summary" in item and "fact" not in item


def read(records: Sequence[Entry], options: Options) -> Iterator[Item]:
    """Reads what belongs together: the lines of a file, or one document."""
    todo: deque[tuple[Entry, Any]] = deque((record, None) for record in records)
    found: list[tuple[Entry, Any]] = []
    said: list[tuple[Entry, Any]] = []
    users: dict[str, Any] = {}
    while todo:
        entry, owner = todo.popleft()
        if not isinstance(entry.value, dict):
            found.append((entry, owner))
            continue
        about = entry.get("user") if isinstance(entry.get("user"), dict) else entry.value
        owner = about.get("user_id") or about.get("user_uuid") or owner
        if "thread_id" not in about and about.get("user_id") and about.get("uuid"):
            users[str(about["uuid"])] = about["user_id"]
        inner = [(_as_fact(child), owner) for name in _LISTS for child in entry.children(name)]
        todo += inner
        if "role" in entry.value and "content" in entry.value:
            said.append((entry, owner))
        elif "messages" in entry.value or not inner:
            found.append((entry, owner))
    found += group_messages(said, [entry for entry, _ in found if isinstance(entry.value, dict)])
    nodes = {str(entry.get("uuid")) for entry, _ in found if isinstance(entry.value, dict) and _is_node(entry.value)}
    for entry, owner in found:
        yield from read_each([entry], _read_one, users.get(str(owner), owner), nodes, options)


def _as_fact(child: Entry) -> Entry:
    """Version 2 lists the facts of a session as texts."""
    return Entry({"fact": child.value}, child.where, child.path) if isinstance(child.value, str) else child


def _read_one(entry: Entry, owner: Any, nodes: set[str], options: Options) -> Iterator[Item]:
    if "messages" in entry.value:
        yield from read_conversation(entry, owner, options)
    elif entry.find_text("fact"):
        yield _fact(entry, owner, nodes, options)
    elif _is_node(entry.value):
        yield from _node(entry, owner, options)
    elif "content" in entry.value and "source" in entry.value:
        yield _episode(entry, owner, options)
    # Users and threads without messages say nothing by themselves.


def _fact(edge: Entry, owner: Any, nodes: set[str], options: Options) -> Fact:
    ended = edge.time("invalid_at")
    if edge.get("expired_at"):
        ended = min(filter(None, (ended, find_end(edge, "expired_at"))))
    ends = dict.fromkeys(str(edge.get(f"{end}_node_uuid")) for end in ("source", "target"))
    kept = {name: edge.get(name) for name in ("source_node_uuid", "target_node_uuid", "expired_at", "attributes")}
    labels = [str(edge.get(f"{end}_node_name")) for end in ("source", "target") if edge.get(f"{end}_node_name")]
    return make_fact(
        edge, options, SOURCE,
        id=str(edge.get("uuid") or edge.text("fact")), content=edge.text("fact"), user=owner,
        category=edge.find_text("name"), said_at=edge.time("created_at"), valid_from=edge.time("valid_at"),
        valid_to=ended, confidence=edge.get("rating"), tags=labels, metadata=kept,
        relations=tuple(("references", end) for end in ends if end in nodes),
    )  # fmt: skip


def _node(node: Entry, owner: Any, options: Options) -> Iterator[Fact]:
    if node.find_text("summary"):
        yield make_fact(
            node, options, SOURCE,
            id=node.text("uuid"), content=f"{node.text('name')}: {node.text('summary')}", user=owner,
            said_at=node.time("created_at"), tags=[node.text("name"), *node.texts("labels")],
            metadata={"attributes": node.get("attributes")},
        )  # fmt: skip


def _episode(episode: Entry, owner: Any, options: Options) -> Fact:
    return make_fact(
        episode, options, SOURCE,
        id=episode.text("uuid"), content=episode.text("content"), user=owner, type="document_chunk",
        said_at=episode.time("reference_time", "created_at"), category=episode.find_text("source_description"),
        metadata=episode.object("metadata"),
    )  # fmt: skip
