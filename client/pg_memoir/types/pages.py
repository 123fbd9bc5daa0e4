"""Pages that memory writes, and what editing them does."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from .record import Record


@dataclass(frozen=True, slots=True)
class PageSentence(Record):
    """A sentence of a page: the whole text of one memory. `sources`: turns it comes from, as session:turn; empty where
    a person stated it directly. `doubts`: why it may not hold, empty where nothing speaks against it."""

    memory_id: UUID
    text: str
    type: str
    category: str | None
    project: str
    provenance: str
    actor: str
    said_at: datetime
    valid_from: datetime | None
    valid_to: datetime | None
    sources: list[str]
    doubts: list[str]


@dataclass(frozen=True, slots=True)
class PagePhase(Record):
    """A stretch of conversation about one thing: turns `from_turn` to `to_turn` of `session`. `sentences`: how many of
    the page come from it."""

    memory_id: UUID
    session: str
    from_turn: int
    to_turn: int
    said_at: datetime
    sentences: int


@dataclass(frozen=True, slots=True)
class MarkdownPage(Record):
    """A page as it is now. `markdown` has all of it; `left_out`: sentences for which it had no room; `conflicts`: edits
    of a person that were not carried over as they stand, since memory changed meanwhile."""

    user: str
    project: str | None
    topic: str | None
    markdown: str
    sentences: list[PageSentence]
    phases: list[PagePhase]
    left_out: int
    conflicts: list[PageEdit]


EditAction = Literal["correct", "forget", "remember"]
EditOutcome = Literal["planned", "done", "unchanged", "conflict", "refused"]


@dataclass(frozen=True, slots=True)
class PageEdit(Record):
    """One edit of a page. `old`: the sentence as memory has it, `new`: as the page has it, None where it was deleted.
    `outcome`: planned (a preview), done, unchanged (memory has it so already), conflict (memory changed meanwhile),
    refused. `reason` says why; `memory_id` is what the edit is about, afterwards what it made."""

    action: EditAction
    outcome: EditOutcome
    memory_id: UUID | None
    old: str | None
    new: str | None
    reason: str | None = None
    type: str | None = None
    project: str | None = None


@dataclass(frozen=True, slots=True)
class PagePush(Record):
    """What pushing a page did, or with `preview` would do. `untouched`: sentences that nobody changed."""

    user: str
    preview: bool
    untouched: int
    edits: list[PageEdit]

    def count(self, *outcomes: EditOutcome) -> int:
        """Returns how many edits have one of these outcomes."""
        return sum(edit.outcome in outcomes for edit in self.edits)
