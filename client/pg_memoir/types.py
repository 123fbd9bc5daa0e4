"""What goes in and comes out, as types."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict
from uuid import UUID

Message = dict[str, Any]
"""One OpenAI chat message: role, content (text, parts or None), tool_calls, tool_call_id, name; on the way in also
created_at (ISO 8601, or an aware datetime)."""

Vector = Sequence[float]
"""One embedding; its length is the model's dimension."""

Embed = Callable[[list[str]], Sequence[Vector]]
"""n texts → n vectors, in order."""

AsyncEmbed = Embed | Callable[[list[str]], Awaitable[Sequence[Vector]]]
"""The same, or a coroutine function. A plain function is called in a thread."""


class Usage(TypedDict, total=False):
    """What a model call cost. Tokens as the provider counted them; latency in milliseconds."""

    model: str
    prompt_tokens: int
    completion_tokens: int
    latency_ms: int
    finish_reason: str | None


class Persisted(TypedDict, total=False):
    """What was appended. `mark` goes into `after_turn` of a compile on a replica."""

    session_id: str
    from_turn: int
    to_turn: int
    turn_count: int
    tokens: int
    mark: str
    message_ids: list[str]
    warnings: list[Any]


class Remembered(TypedDict, total=False):
    """`outcome`: 'stored', 'duplicate', 'superseded_older', 'refused_tombstone', …"""

    memory_id: str | None
    outcome: str
    related: list[Any]


class Context(TypedDict, total=False):
    """A compiled list and what is known about it. Sizes in tokens of `tokenizer`.

    `messages`: the value compile_context returns for the same arguments. `prefix_messages`: how many leading
    messages are the stable prefix, `prefix_hash` their hash. `items`: ids of what recall chose.
    """

    messages: Any
    compile_id: str
    tokens: int
    budget: int
    recall_tokens: int
    prefix_hash: str
    prefix_messages: int
    tokenizer: str
    items: list[str]
    arms: dict[str, Any]
    warnings: list[Any]
    statistics_version: int
    task: str
    format: str
    report: dict[str, Any]  # on a standby only: for report_context on the primary


class AnthropicRequest(TypedDict, total=False):
    """Arguments for `client.messages.create(**request)`; `system` is absent when there is nothing to say in it."""

    system: Any
    messages: Any


@dataclass(frozen=True, slots=True)
class Hit:
    """One result of recall, best first (rank 1). Scores in [0, 1]; None in an arm that did not find it.

    `kind`: 'memory', 'turn' or 'summary'; session, turn_index, role, name and said_at are set for turns,
    type, tags and project for memories. `matched_by`: of 'words', 'vector', ….
    """

    rank: int
    kind: str
    id: UUID
    content: str
    score: float
    words_score: float | None
    vector_score: float | None
    matched_by: list[str]
    session: str | None
    turn_index: int | None
    role: str | None
    name: str | None
    said_at: datetime | None
    type: str | None
    tags: list[str] | None
    project: str | None


@dataclass(frozen=True, slots=True)
class Match:
    """One memory near a vector. `similarity`: cosine, in [-1, 1]."""

    id: UUID
    content: str
    similarity: float
    type: str | None
    project: str | None
    recorded_at: datetime


@dataclass(frozen=True, slots=True)
class Considered:
    """One item a compile looked at: where it stands in the list, or the reason why it was left out.

    `position`: place in the list, None if left out. `arms`: what proposed it. `parts`: the score's parts.
    `words_rank`, `vector_rank`: place in that arm, 1 is best. `tokens`: what it takes at `fidelity`.
    """

    position: int | None
    kind: str
    id: UUID | None
    session: str | None
    turn_index: int | None
    chunk: int | None
    arms: list[str] | None
    score: float | None
    parts: dict[str, Any] | None
    words_rank: int | None
    vector_rank: int | None
    tokens: int | None
    fidelity: str | None
    included: bool
    reason: str | None
    content: str | None


@dataclass(frozen=True, slots=True)
class CapturedPart:
    """One stored piece of a provider call, byte for byte. `kind`: 'request', 'response' or 'event'."""

    seq: int
    kind: str
    body: bytes
    received_at: datetime | None


@dataclass(frozen=True, slots=True)
class Job:
    """A maintenance job. `due`: when its schedule last named a time; None where it is not scheduled or this server can't run it."""

    job: str
    schedule: str
    description: str
    due: datetime | None
    last_started: datetime | None
    last_outcome: str | None


@dataclass(frozen=True, slots=True)
class ModelWork:
    """One piece of work for a language model, leased: the input of the prompt of its kind."""

    job_id: int
    lease_id: UUID
    kind: str
    input: Any


@dataclass(frozen=True, slots=True)
class Claim:
    """One text to embed, leased to this worker. (user_id, item_no) names it; `model` is the embedding model."""

    user_id: UUID
    item_no: int
    model: str
    text: str
