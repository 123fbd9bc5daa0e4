"""A stand-in for applications' own tests: Memoir and AsyncMemoir in memory, without a server.

    from pg_memoir.testing import Memoir

    memoir = Memoir()
    memoir.persist_turn("alice", "s1", [{"role": "user", "content": "I live in Lisbon."}])
    messages = memoir.compile_context("alice", "s1", "Where do I live?")

Same methods, arguments, types and errors as the database (one contract suite runs over both). It stores, lists,
searches by common words, forgets, and compiles valid lists within their budget. It does not rank, extract, summarise
well, embed or schedule as the database does: assert on what your application sends and stores, not on which memory
comes first. `memoir.now` sets the time. What only a database can do raises MaintenanceUnavailableError.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from typing import Any, TypeVar

from .. import aio, client
from ..call import Call
from ..calls import calls
from ..types import AsyncEmbed, Embed, PoolLoad
from .store import Store

__all__ = ["AsyncMemoir", "Memoir"]

T = TypeVar("T")


class _Kept:
    """What both clients have: a store, which two of them may share."""

    store: Store

    def pool_load(self) -> PoolLoad:
        """There is no pool to fill."""
        return PoolLoad(0, 0, 0, 0, 0)

    @property
    def now(self) -> datetime | None:
        """The time it is for the store; None: the clock's."""
        return self.store.now

    @now.setter
    def now(self, at: datetime | None) -> None:
        self.store.now = at


class Memoir(_Kept, client.Memoir):
    """pg_memoir.Memoir without a database. `dsn` is taken and not used; `store`: another client's, to see the same."""

    def __init__(
        self, dsn: str | None = None, *, embed: Embed | None = None, store: Store | None = None, **_: Any
    ) -> None:
        self.embed = embed
        self.store = store or Store()

    def close(self) -> None:
        """There is nothing to close."""

    def run(self, call: Call[T]) -> T:
        """Answers a call from memory."""
        return self.store.run(call)

    def export_lines(self, user: str, *, embeddings: bool = False) -> Iterator[str]:
        """As Memoir.export_lines; the database alone exports."""
        yield from self.run(calls.export_user(user, embeddings=embeddings))


class AsyncMemoir(_Kept, aio.AsyncMemoir):
    """pg_memoir.AsyncMemoir without a database; see Memoir."""

    def __init__(
        self, dsn: str | None = None, *, embed: AsyncEmbed | None = None, store: Store | None = None, **_: Any
    ) -> None:
        self.embed = embed
        self.store = store or Store()

    async def open(self) -> None:
        """There is nothing to open."""

    async def close(self) -> None:
        """There is nothing to close."""

    async def run(self, call: Call[T]) -> T:
        """Answers a call from memory; other tasks run meanwhile, as with a server."""
        await asyncio.sleep(0)
        return self.store.run(call)

    async def export_lines(self, user: str, *, embeddings: bool = False) -> AsyncIterator[str]:
        """As AsyncMemoir.export_lines; the database alone exports."""
        for line in await self.run(calls.export_user(user, embeddings=embeddings)):
            yield line
