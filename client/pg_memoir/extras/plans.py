"""Work that takes many calls, as generators: they yield calls and requests for vectors, and get the answers sent.

So the sync and the async client run the same plan, and no transaction is open while a model works.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

from ..arguments import text, whole, wrong
from ..call import Call
from ..errors import InvalidArgumentError
from ..functions import calls
from ..types import Claim, PairClaim, UnreadClaim

T = TypeVar("T")

HEARTBEAT = 100.0  # seconds between two signs of life of who has a lease of 300
Leases = frozenset[tuple[int, UUID]]

_LINES, _BYTES = 200, 4_000_000
"""A batch of an import: few enough that its transaction stays short, in lines and in bytes."""


@dataclass(frozen=True)
class Wanted:
    """A plan's request for vectors of these texts, keeping these leases meanwhile."""

    texts: list[str]
    leases: Leases = frozenset()


Plan = Generator[Call[Any] | Wanted, Any, T]


def leases_of(claims: Iterable[Claim | PairClaim | UnreadClaim]) -> Leases:
    """(work, lease) of what was claimed."""
    return frozenset((claim.work_id, claim.lease_id) for claim in claims)


def embed_backlog(limit: int, model: str | None, max_items: int | None) -> Plan[int]:
    """claim → embed → store, until nothing is left to claim or `max_items` are stored; returns how many were."""
    limit = whole(32)(limit, "limit")
    max_items = None if max_items is None else whole(32)(max_items, "max_items")
    stored = 0
    while max_items is None or stored < max_items:
        batch = limit if max_items is None else min(limit, max_items - stored)
        claims: list[Claim] = yield calls.claim_embeddings(limit=batch, model=model)
        if not claims:
            break
        by_model: dict[str, list[Claim]] = defaultdict(list)
        for claim in claims:
            by_model[claim.model].append(claim)
        before = stored
        for name, some in by_model.items():
            vectors = yield Wanted([claim.text for claim in some], leases_of(claims))
            users, items = [claim.user_id for claim in some], [claim.item_no for claim in some]
            stored += yield calls.store_embeddings(users, items, vectors, name)
        if stored == before:  # claimed, but nothing taken: going on would claim the same for ever
            break
    return stored


@dataclass(slots=True)
class Restored:
    """What an import did: rows by table that were put back, were there already, or may not come back."""

    user: str
    imported: dict[str, int] = field(default_factory=dict)
    present: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)


def is_export(line: str) -> bool:
    """Whether a file that begins with this line is an export of a user."""
    try:
        header = json.loads(line)
    except ValueError:
        return False
    return isinstance(header, dict) and header.get("format") == "pg_memoir.export"


def import_lines(lines: Iterable[str], user: str | None) -> Plan[Restored]:
    """An export's lines, a batch each call, in order."""
    done: Restored | None = None
    ended = False
    for batch in _batches(lines):
        if done is None:
            if not is_export(batch[0]):
                raise InvalidArgumentError("the first line is no header of an export", hint="export_user writes one")
            done = Restored(json.loads(batch[0])["user"] if user is None else text(user, "user"))
        answer = yield calls.import_user(done.user, batch)
        for outcome in ("imported", "present", "refused"):
            counts = getattr(done, outcome)
            for table, count in answer[outcome].items():
                counts[table] = counts.get(table, 0) + count
        ended = json.loads(batch[-1]).get("kind") == "end"
    if done is None or not ended:
        hint = "what was read is imported; a whole file adds the rest"
        raise InvalidArgumentError("the export has no end: it was cut off", hint=hint)
    return done


def _batches(lines: Iterable[str]) -> Iterator[list[str]]:
    if isinstance(lines, str) or not isinstance(lines, Iterable):
        raise wrong(lines, "lines", "a list of lines")
    batch: list[str] = []
    size = 0
    for number, line in enumerate(lines):
        if not text(line, f"lines[{number}]").strip():
            continue
        if batch and (len(batch) >= _LINES or size + len(line) > _BYTES):
            yield batch
            batch, size = [], 0
        batch.append(line)
        size += len(line)
    if batch:
        yield batch
