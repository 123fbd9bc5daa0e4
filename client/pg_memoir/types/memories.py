"""Rows of memories, sessions and their history."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from .record import MemoryRecord, Record


@dataclass(frozen=True, slots=True)
class MemoryState(MemoryRecord):
    """A state that a memory, or one it replaced or was replaced by, was in. `content` is None once forgotten."""

    memory_id: UUID
    recorded_at: datetime
    state: str
    reason: str | None
    actor: str | None
    set_by: str
    superseded_by: UUID | None
    content: str | None
    valid_from: datetime | None
    valid_to: datetime | None


@dataclass(frozen=True, slots=True)
class Edge(Record):
    """A relation from one memory to another, `hop` steps from the one asked for. A forgotten text is None."""

    hop: int
    source_id: UUID
    relation: str
    target_id: UUID
    weight: float
    source_line: str | None
    target_line: str | None
    made_by: str
    recorded_at: datetime


@dataclass(frozen=True, slots=True)
class Memory(MemoryRecord):
    """A memory as it stands. `content` is None once forgotten; `session`: where it was said; scope local: known there
    only; trust and confidence in [0, 1]."""

    memory_id: UUID
    content: str | None
    type: str
    category: str | None
    project: str
    scope: str
    session: str | None
    tier: int
    state: str
    reason: str | None
    superseded_by: UUID | None
    importance: str
    provenance: str
    actor: str
    trust: float
    confidence: float
    sensitivity: str
    slot: str | None
    slot_value: str | None
    tags: list[str]
    aliases: list[str]
    tokens: int
    said_at: datetime
    valid_from: datetime | None
    valid_to: datetime | None
    expires_at: datetime | None
    recorded_at: datetime


@dataclass(frozen=True, slots=True)
class SessionRow(Record):
    """A session as it stands; tokens and turns are its own, without its parent's. `title`: the first words of the
    person, said at `said_at`."""

    session: str
    status: str
    project: str
    model: str
    task: str | None
    parent: str | None
    parent_turn: int | None
    turns: int | None
    tokens: int | None
    cost_microcents: int | None
    title: str | None
    summary: str | None
    said_at: datetime
    created_at: datetime
    last_recorded_at: datetime | None
    closed_at: datetime | None


@dataclass(frozen=True, slots=True)
class Episode(Record):
    """A stretch of a session about one thing, turns `from_turn` to `to_turn`, in a theme that others may share.
    `title`: the words of the person that say most of it; `score`: of the best turn that a query found in it."""

    theme: int
    episode: int
    from_turn: int
    to_turn: int
    title: str | None
    tokens: int
    score: float | None


@dataclass(frozen=True, slots=True)
class Speaker(Record):
    """Who spoke, by the `name` of the messages, or the role where they have none; turns that say anything."""

    speaker: str
    role: str
    sessions: int
    turns: int
    first_said_at: datetime
    last_said_at: datetime


@dataclass(frozen=True, slots=True)
class Space(Record):
    """A shared space of a user. `address`: the user in it, for any call; `members`: how many there are."""

    space: str
    address: str
    role: str
    members: int
    granted_at: datetime


@dataclass(frozen=True, slots=True)
class SpaceMember(Record):
    """Somebody in a space. `names`: as whom they speak there."""

    member: str
    role: str
    names: list[str]
    granted_by: str
    granted_at: datetime


@dataclass(frozen=True, slots=True)
class Change(Record):
    """What a turn (`by_turn` of `by_session`) changed or had forgotten (`kind`): which spans of which turns."""

    change_id: UUID
    kind: str
    recorded_at: datetime
    by_session: str | None
    by_turn: int | None
    turns: list[dict[str, Any]]
    undone_at: datetime | None


@dataclass(frozen=True, slots=True)
class Alias(Record):
    """Another name, lower case. `stated`: a memory or turn says so, or it was given; else `other` is a phrase with
    these initials."""

    name: str
    other: str
    stated: bool
    items: int
    since: datetime


@dataclass(frozen=True, slots=True)
class Tombstone(Record):
    """A rejected memory that may not come back. `kinds`: 'value' (its text), 'slot_value', 'turn'. `content` is None
    for a forgotten one.
    """

    memory_id: UUID | None
    kinds: list[str]
    reason: str | None
    actor: str
    set_by: str
    recorded_at: datetime
    lifted_at: datetime | None
    lifted_by: str | None
    type: str | None
    project: str | None
    slot: str | None
    content: str | None


@dataclass(frozen=True, slots=True)
class Judgement(Record):
    """A decision about two memories. `decision`: 'superseded' (by `winner_id`), 'contradicts' (both stand),
    'none'.
    """

    recorded_at: datetime
    memory_id: UUID
    other_id: UUID
    judge: str
    verdict: str
    score: float | None
    similarity: float | None
    decision: str
    winner_id: UUID | None
    reason: str


@dataclass(frozen=True, slots=True)
class Item(Record):
    """A framework's item as it came. `turn_index`: the first of the turns that tell the same."""

    item_no: int
    item: dict[str, Any]
    part_of: str | None
    turn_index: int | None
    recorded_at: datetime
    retracted_at: datetime | None


@dataclass(frozen=True, slots=True)
class Document(Record):
    """A JSON document under a namespace and a key."""

    namespace: list[str]
    key: str
    value: Any
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class FoundDocument(Document):
    """A document that was searched for. `score`: a share of the best, a cosine, or half of each; None without a
    query."""

    score: float | None
