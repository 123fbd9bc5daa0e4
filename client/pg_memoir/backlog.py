"""Work that takes many calls, as generators: they yield calls and requests for vectors, and get the answers sent.

So the sync and the async client run the same plan, and no transaction is open while a model works.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from . import admin_calls
from .calls import Call
from .types import Claim, PairClaim

T = TypeVar("T")


HEARTBEAT = 100.0  # seconds between two signs of life of who holds a lease of 300
Leases = frozenset[tuple[int, UUID]]


@dataclass(frozen=True)
class Vectors:
    """A plan's request: embed these texts, keeping these leases meanwhile."""

    texts: list[str]
    leases: Leases = frozenset()


def leases_of(claims: Iterable[Claim | PairClaim]) -> Leases:
    """(job, lease) of what was claimed."""
    return frozenset((claim.job_id, claim.lease_id) for claim in claims)


Plan = Generator[Call[Any] | Vectors, Any, T]


def embed_backlog_plan(limit: int, model: str | None, max_items: int | None) -> Plan[int]:
    """claim → embed → store, until nothing is left to claim or `max_items` are stored; returns how many were."""
    stored = 0
    while max_items is None or stored < max_items:
        batch = limit if max_items is None else min(limit, max_items - stored)
        claims: list[Claim] = yield admin_calls.claim_embeddings(limit=batch, model=model)
        if not claims:
            break
        by_model: dict[str, list[Claim]] = defaultdict(list)
        for claim in claims:
            by_model[claim.model].append(claim)
        before = stored
        for name, some in by_model.items():
            vectors = yield Vectors([claim.text for claim in some], leases_of(claims))
            stored += yield admin_calls.store_embeddings(
                [claim.user_id for claim in some], [claim.item_no for claim in some], vectors, name
            )
        if stored == before:  # claimed, but nothing taken: going on would claim the same for ever
            break
    return stored
