"""Rows of recalls and compiles."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from .record import MemoryRecord, Record


@dataclass(frozen=True, slots=True)
class Hit(Record):
    """One result of recall, best first (rank 1). Scores in [0, 1]; None in an arm that did not find it.

    `kind`: 'memory', 'turn' or 'summary'; session, turn_index, role, name and said_at are set for turns,
    type, tags and project for memories, space for what is of a shared space. `matched_by`: of 'words', 'vector',
    'neighbour', 'filter'.
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
    space: str | None = None


@dataclass(frozen=True, slots=True)
class Match(Record):
    """One memory near a vector. `similarity`: cosine, in [-1, 1]."""

    id: UUID
    content: str
    similarity: float
    type: str | None
    project: str | None
    recorded_at: datetime


@dataclass(frozen=True, slots=True)
class Way(MemoryRecord):
    """How something was done, and how that went. verdict: worked, untried or failed; `note`: why it failed; `fit`: how
    near `trigger` is to the task; `line`: all of it on one line."""

    rank: int
    memory_id: UUID
    type: str
    trigger: str
    way: str
    verdict: str
    tried: int
    succeeded: int
    failed: int
    last_tried_at: datetime | None
    note: str | None
    fit: float
    score: float
    line: str


@dataclass(frozen=True, slots=True)
class Considered(Record):
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
class Compiled(Record):
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
class CompiledItem(Record):
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
class IndexHit(Record):
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
class TimelineLine(Record):
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
