"""What goes in and comes out, as types."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypedDict
from uuid import UUID

from .arguments import Vector

Message = dict[str, Any]
"""One OpenAI chat message: role, content (text, parts or None), tool_calls, tool_call_id, name; on the way in also
created_at (ISO 8601, or an aware datetime)."""

Embed = Callable[[list[str]], Sequence[Vector]]
"""n texts → n vectors, in order."""

AsyncEmbed = Embed | Callable[[list[str]], Awaitable[Sequence[Vector]]]
"""The same, or a coroutine function. A plain function is called in a thread."""


Relation = Literal[
    "supersedes", "relates_to", "contradicts", "elaborates", "caused_by", "parent_of", "references", "depends_on"
]
"""What one memory may be to another."""


class Usage(TypedDict, total=False):
    """What a model call cost. Tokens as the provider counted them; latency in milliseconds. Prompt tokens include
    those read from the prompt cache and written there, for five minutes or for an hour."""

    model: str
    prompt_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cache_write_1h_tokens: int
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
    """`outcome`: 'stored', 'duplicate', 'outdated' or 'refused_tombstone' (with a `hint`). `superseded`, `contradicts`:
    ids of memories it replaced, or stands against."""

    memory_id: str | None
    outcome: str
    superseded: list[str]
    contradicts: list[str]
    similarity: float
    hint: str


class Corrected(TypedDict, total=False):
    """`outcome`: 'corrected', or 'contradicts' where the memory has a higher authority. `remainder`: the memory of what
    is still true. `bounded`: what the old value became for the time in which it was true."""

    memory_id: str | None
    outcome: str
    corrected: list[str]
    remainder: str | None
    bounded: list[str]
    excluded_turns: int
    invalidated_summaries: int


class Retracted(TypedDict, total=False):
    """`state`: 'invalidated', or 'superseded' by its `bounded` copy."""

    memory_id: str
    state: str
    retracted: list[str]
    bounded: list[str]
    excluded_turns: int
    invalidated_summaries: int


class Lifted(TypedDict, total=False):
    """`lifted`: tombstones. `restored`: memories that are active again. `returned_turns`: turns that are recalled
    again.
    """

    memory_id: str | None
    lifted: int
    restored: list[str]
    returned_turns: int


class Validated(TypedDict, total=False):
    """The memory that stands for the validated one, and what it superseded."""

    memory_id: str
    superseded: list[str]


class Context(TypedDict, total=False):
    """A compiled list and what is known about it. Sizes in tokens of `tokenizer`.

    `messages`: the value compile_context returns for the same arguments. `prefix_messages`: how many leading
    messages are the stable prefix, `prefix_hash` their hash. `items`: ids of what recall chose. `weak`: nothing that
    matches well was found, and the recall, kept small, says so.
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
    weak: bool
    statistics_version: int
    task: str
    format: str
    temperature: float  # only where open_session was given it
    top_p: float  # likewise
    report: dict[str, Any]  # on a standby only: for report_context on the primary


class AnthropicRequest(TypedDict, total=False):
    """Arguments for `client.messages.create(**request)`; `system` is absent when there is nothing to say in it."""

    system: Any
    messages: Any


@dataclass(frozen=True, slots=True)
class Hit:
    """One result of recall, best first (rank 1). Scores in [0, 1]; None in an arm that did not find it.

    `kind`: 'memory', 'turn' or 'summary'; session, turn_index, role, name and said_at are set for turns,
    type, tags and project for memories. `matched_by`: of 'words', 'vector', 'neighbour', 'filter'.
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

    `position`: where in the list, None if left out. `arms`: what proposed it. `parts`: the score's parts.
    `words_rank`, `vector_rank`: rank in that arm, 1 is best. `tokens`: what it takes at `fidelity`:
    'full', 'excerpt', and for memories 'detailed', 'compact', 'stub'; None if left out.
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
class Compiled:
    """A compile that was made. Tokens of the list and of its parts; `turn_tokens`: of the shown turns, by fidelity
    (full, detailed, compact, stub). `first_turn`: the first that was shown; `moved`: not the one of the compile
    before. `considered`, `recalled`, `used`: items of the recall; None where nobody said what was used."""

    compile_id: UUID
    recorded_at: datetime
    budget: int
    tokens: int
    system_tokens: int
    tools_tokens: int
    turn_tokens: list[int]
    recall_tokens: int
    first_turn: int | None
    moved: bool
    considered: int
    recalled: int
    used: int | None
    warnings: list[str]


@dataclass(frozen=True, slots=True)
class CompiledItem:
    """One item that a compile considered: its scores, where and at which fidelity it was shown, or the reason why not.
    `line`: what it says today; `kind` is 'gone' where it is known no more."""

    position: int | None
    kind: str
    id: UUID | None
    session: str | None
    turn_index: int | None
    score: float | None
    words: float | None
    vector: float | None
    around: float | None
    session_score: float | None
    tokens: int | None
    fidelity: str | None
    used: bool | None
    reason: str | None
    line: str | None


@dataclass(frozen=True, slots=True)
class UserRow:
    """A user that the login may read. Cost in microcents."""

    user_name: str
    created_at: datetime
    sessions: int
    memories: int
    cost_microcents: int
    last_recorded_at: datetime | None


@dataclass(frozen=True, slots=True)
class CapturedCall:
    """What was kept beside a provider call; `read_call` has its parts, whose sizes are in bytes. `events`: how many."""

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
class CapturedPart:
    """One stored piece of a provider call, byte for byte. `kind`: 'request', 'response' or 'event'."""

    seq: int
    kind: str
    body: bytes
    received_at: datetime | None


@dataclass(frozen=True, slots=True)
class Item:
    """A framework's item as it came. `turn_index`: the first of the turns that tell the same."""

    item_no: int
    item: dict[str, Any]
    part_of: str | None
    turn_index: int | None
    recorded_at: datetime
    retracted_at: datetime | None


@dataclass(frozen=True, slots=True)
class Document:
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


@dataclass(frozen=True, slots=True)
class Job:
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
class RankingProfile:
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
class ModelWork:
    """One piece of work for a language model, leased: the input of the prompt of its kind."""

    work_id: int
    lease_id: UUID
    kind: str
    input: Any


@dataclass(frozen=True, slots=True)
class Claim:
    """One text to embed, leased to this worker. (user_id, item_no) names it; `model` is the embedding model.
    heartbeat(work_id, lease_id) keeps the lease."""

    user_id: UUID
    item_no: int
    model: str
    text: str
    work_id: int
    lease_id: UUID


@dataclass(frozen=True, slots=True)
class UnreadClaim:
    """A turn to look through for secrets, leased to this worker. (user_id, item_no) names it."""

    user_id: UUID
    item_no: int
    text: str
    work_id: int
    lease_id: UUID


@dataclass(frozen=True, slots=True)
class TurnsClaim:
    """Turns of a session to read, leased to this worker, as read_turns of pg_memoir_server.reading takes them."""

    work_id: int
    lease_id: UUID
    turns: dict[str, Any]


@dataclass(frozen=True, slots=True)
class PairClaim:
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
class MemoryState:
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
class IndexHit:
    """One result of recall on a line of at most 120 characters; `score` in [0, 1]."""

    rank: int
    kind: str
    id: UUID
    line: str
    score: float
    session: str | None
    turn_index: int | None
    said_at: datetime | None


@dataclass(frozen=True, slots=True)
class TimelineLine:
    """A turn or memory beside the one asked for (`is_anchor`), on a line of at most 120 characters."""

    kind: str
    id: UUID
    session: str | None
    turn_index: int | None
    role: str | None
    name: str | None
    said_at: datetime
    line: str | None
    is_anchor: bool


@dataclass(frozen=True, slots=True)
class Edge:
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
class Memory:
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
class SessionRow:
    """A session as it stands; tokens and turns are its own, without its parent's."""

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
    summary: str | None
    created_at: datetime
    last_recorded_at: datetime | None
    closed_at: datetime | None


@dataclass(frozen=True, slots=True)
class Speaker:
    """Who spoke, by the `name` of the messages, or the role where they have none; turns that say anything."""

    speaker: str
    role: str
    sessions: int
    turns: int
    first_said_at: datetime
    last_said_at: datetime


@dataclass(frozen=True, slots=True)
class SyncState:
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
class Change:
    """What a turn (`by_turn` of `by_session`) changed or had forgotten (`kind`): which spans of which turns."""

    change_id: UUID
    kind: str
    recorded_at: datetime
    by_session: str | None
    by_turn: int | None
    turns: list[dict[str, Any]]
    undone_at: datetime | None


@dataclass(frozen=True, slots=True)
class Alias:
    """Another name, lower case. `stated`: a memory or turn says so, or it was given; else `other` is a phrase with
    these initials."""

    name: str
    other: str
    stated: bool
    items: int
    since: datetime


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What may not come back. `kinds`: 'value' (its text), 'slot_value', 'turn'. `content` is None for what was
    forgotten.
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
class Judgement:
    """What was decided about two memories. `decision`: 'superseded' (by `winner_id`), 'contradicts' (both stand),
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
class PoolLoad:
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
