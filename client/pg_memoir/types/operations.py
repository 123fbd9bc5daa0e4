"""Rows of users, jobs, captured calls and work for models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from .record import Record


@dataclass(frozen=True, slots=True)
class UserRow(Record):
    """A user that the login may read. Cost in microcents."""

    user_name: str
    created_at: datetime
    sessions: int
    memories: int
    cost_microcents: int
    last_recorded_at: datetime | None


@dataclass(frozen=True, slots=True)
class CapturedCall(Record):
    """A provider call that was kept. `read_call` has its parts, whose sizes are in bytes; `events`: how many."""

    call_id: UUID
    session: str
    recorded_at: datetime
    started_at: datetime | None
    provider: str | None
    model: str | None
    status: int | None
    latency_ms: int | None
    request_headers: dict[str, Any]
    response_headers: dict[str, Any]
    metadata: dict[str, Any]
    request_bytes: int
    response_bytes: int | None
    events: int


@dataclass(frozen=True, slots=True)
class CapturedPart(Record):
    """One stored piece of a provider call, byte for byte. `kind`: 'request', 'response' or 'event'."""

    seq: int
    kind: str
    body: bytes
    received_at: datetime | None


@dataclass(frozen=True, slots=True)
class Job(Record):
    """A maintenance job. `due`: when its schedule last named a time; None where it is not scheduled or this server
    can't run it."""

    job: str
    schedule: str
    description: str
    due: datetime | None
    last_started: datetime | None
    last_outcome: str | None
    default_schedule: str
    changed_at: datetime | None
    changed_by: str | None


@dataclass(frozen=True, slots=True)
class RankingProfile(Record):
    """Weights of the ranking: `profile` is shipped, install or user; later ones win. `is_outdated`: what is shipped has
    changed since these were made."""

    profile: str
    user_name: str | None
    version: int
    source: str
    started_from: int | None
    is_outdated: bool
    made_at: datetime | None
    made_by: str | None
    weights: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ModelWork(Record):
    """One piece of work for a language model, leased: the input of the prompt of its kind."""

    work_id: int
    lease_id: UUID
    kind: str
    input: Any


@dataclass(frozen=True, slots=True)
class Claim(Record):
    """One text to embed, leased to this worker. (user_id, item_no) names it; `model` is the embedding model.
    heartbeat(work_id, lease_id) keeps the lease."""

    user_id: UUID
    item_no: int
    model: str
    text: str
    work_id: int
    lease_id: UUID


@dataclass(frozen=True, slots=True)
class UnreadClaim(Record):
    """A turn to look through for secrets, leased to this worker. (user_id, item_no) names it."""

    user_id: UUID
    item_no: int
    text: str
    work_id: int
    lease_id: UUID


@dataclass(frozen=True, slots=True)
class TurnsClaim(Record):
    """Turns of a session to read, leased to this worker, as read_turns of pg_memoir_server.reading takes them."""

    work_id: int
    lease_id: UUID
    turns: dict[str, Any]


@dataclass(frozen=True, slots=True)
class PairClaim(Record):
    """Two memories that may contradict each other, leased to this judge. (user_id, memory_id, other_id) names them.
    heartbeat(work_id, lease_id) keeps the lease."""

    user_id: UUID
    memory_id: UUID
    other_id: UUID
    content: str
    other_content: str
    said_at: datetime
    other_said_at: datetime
    work_id: int
    lease_id: UUID


@dataclass(frozen=True, slots=True)
class SyncState(Record):
    """What of a user an embedding model lacks: `texts`, with so many `tokens` (an upper estimate), for `microcents`.
    `cursor` of `items`: how far it has come. Left out: `secret`, `expired`, `not_embeddable`. `snapshots`: texts that
    stand for something referred to."""

    model: str
    status: str
    items: int
    cursor: int
    texts: int
    tokens: int
    microcents: int
    secret: int
    expired: int
    not_embeddable: int
    snapshots: int
    queued: bool
    last_batch_at: datetime | None
    last_error: str | None


@dataclass(frozen=True, slots=True)
class PoolLoad(Record):
    """How full a client's pool of connections is: `size` connections are open, of them `idle`, at most `max_size`;
    `waiting` callers have none yet. `waited_ms`: milliseconds that callers waited since it opened, all together.
    """

    size: int
    idle: int
    max_size: int
    waiting: int
    waited_ms: int

    @classmethod
    def of(cls, stats: Mapping[str, int]) -> PoolLoad:
        """Of what psycopg_pool counts (`get_stats`)."""
        return cls(
            stats.get("pool_size", 0),
            stats.get("pool_available", 0),
            stats.get("pool_max", 0),
            stats.get("requests_waiting", 0),
            stats.get("requests_wait_ms", 0),
        )
