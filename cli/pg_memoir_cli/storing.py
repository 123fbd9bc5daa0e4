"""Stores facts of other memory stores as memories.

The foreign id stays in a memory's metadata (`imported_from`, `imported_id`), so a second import knows it: the same fact
adds nothing, a text that changed there corrects the memory, and a fact that has ended there ends here. What a person
corrected or forgot here stays so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import psycopg
from pg_memoir import Memoir, MemoirError
from pg_memoir.texts import replace_unstorable

from .conversations import Fact

STORED, PRESENT, CHANGED, REFUSED = "stored", "present", "changed", "refused"
"""What becomes of a fact: new · there already · its memory changed · forgotten or rejected here before."""

_PAGE, _ROWS = 1000, 100  # memories listed, and read whole, in a call


@dataclass(slots=True)
class _Known:
    """A memory that an import made, with all texts that it had."""

    id: str
    state: str
    ended: bool
    texts: set[str]


@dataclass(slots=True)
class FactStore:
    """Stores facts, and relates them at the end."""

    memoir: Memoir
    _known: dict[tuple[str, str], dict[str, _Known]] = field(default_factory=dict)
    _given: dict[tuple[str, str, str], str] = field(default_factory=dict)
    _related: list[Fact] = field(default_factory=list)

    def store(self, fact: Fact) -> str:
        """Stores one, and returns what became of it. Raises ConversationError."""
        content = replace_unstorable(fact.content)
        given = self._given.setdefault((fact.user, fact.source, fact.id), content)
        if given != content:
            raise fact.where.fail(None, f"the id {fact.id!r} stands twice in the file, here with another text")
        try:
            known = self._find_known(fact.user, fact.source)
            old = known.get(fact.id)
            outcome = self._add(fact, known) if old is None else self._update(fact, content, old)
        except (MemoirError, psycopg.DataError) as error:
            message = error.message if isinstance(error, MemoirError) else str(error).splitlines()[0]
            raise fact.where.fail(f"{fact.source} memory {fact.id!r}", message) from error
        if fact.relations:
            self._related.append(fact)
        return outcome

    def relate(self) -> int:
        """Ties the facts that were stored to each other, as their store has it. Returns how many ties are new."""
        new = 0
        for fact in self._related:
            known = self._find_known(fact.user, fact.source)
            for relation, other in fact.relations:
                ends = known.get(fact.id), known.get(other)
                if ends[0] and ends[1] and ends[0].id != ends[1].id:
                    if ends[0].state == ends[1].state == "active":
                        new += self.memoir.relate(fact.user, ends[0].id, relation, ends[1].id)  # type: ignore[arg-type]
        return new

    def _add(self, fact: Fact, known: dict[str, _Known]) -> str:
        done = self.memoir.remember(
            fact.user,
            fact.content,
            type=fact.type,
            category=fact.category,
            provenance="fact",
            confidence=fact.confidence,
            valid_from=fact.valid_from,
            valid_to=fact.valid_to,
            tags=fact.tags,
            metadata=fact.metadata,
            created_at=fact.said_at,
        )
        if done["outcome"] == "refused_tombstone":
            return REFUSED
        memory = str(done["memory_id"])
        state = "superseded" if done["outcome"] == "outdated" else "active"
        known[fact.id] = _Known(memory, state, fact.has_ended, {replace_unstorable(fact.content)})
        return PRESENT if done["outcome"] == "duplicate" else STORED

    def _update(self, fact: Fact, content: str, old: _Known) -> str:
        if old.state != "active":
            return PRESENT
        if content not in old.texts:
            done = self.memoir.correct(fact.user, old.id, fact.content, reason=f"changed in {fact.source}")
            if done["outcome"] != "corrected":
                return PRESENT
            old.id, old.ended = str(done["memory_id"]), False
            old.texts.add(content)
        elif not fact.has_ended or old.ended:
            return PRESENT
        if fact.has_ended:
            kept = self.memoir.retract(
                fact.user, old.id, reason=f"ended in {fact.source}", valid_to=fact.valid_to, actor="person"
            )
            old.id, old.ended = str(next(iter(kept["bounded"]), old.id)), True
        return CHANGED

    def _find_known(self, user: str, source: str) -> dict[str, _Known]:
        """The memories of a user that earlier imports made, by their ids in the other store."""
        if (user, source) not in self._known:
            self._known[user, source] = self._read_known(user, source)
        return self._known[user, source]

    def _read_known(self, user: str, source: str) -> dict[str, _Known]:
        known: dict[str, _Known] = {}
        last: Any = None
        while True:
            page = self.memoir.list_memories(
                user, states=[], where={"imported_from": source}, limit=_PAGE, after_memory=last
            )
            if not page:
                return known
            last = page[-1].memory_id
            ids = [memory.memory_id for memory in page]
            parts = [ids[place : place + _ROWS] for place in range(0, len(ids), _ROWS)]
            for row in (row for part in parts for row in self.memoir.memory_get(user, part)):
                foreign = str(row["metadata"].get("imported_id"))
                texts = {row["content"]} if row.get("content") else set()
                ended = "valid_to" in row and datetime.fromisoformat(row["valid_to"]) <= datetime.now(UTC)
                one = _Known(row["id"], row["state"], ended, texts)
                before = known.setdefault(foreign, one)
                if before is not one:  # the pages begin with the newest, and the one that stands counts
                    texts |= before.texts
                    chosen = one if one.state == "active" and before.state != "active" else before
                    chosen.texts = texts
                    known[foreign] = chosen
