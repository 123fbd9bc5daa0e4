"""A stand-in for applications' own tests: Memoir and AsyncMemoir in memory, without a server.

    from pg_memoir.testing import Memoir

    memoir = Memoir()
    memoir.persist_turn("alice", "s1", [{"role": "user", "content": "I live in Lisbon."}])
    messages = memoir.compile_context("alice", "s1", "Where do I live?")

It persists turns, compiles valid lists within their budget, remembers, lists and forgets memories, and refuses bad
input with the server's errors. `store.now` sets the time. Other calls raise MaintenanceUnavailableError.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from .. import aio, client
from ..call import Call
from .store import Store

__all__ = ["AsyncMemoir", "Memoir"]

T = TypeVar("T")


class _InMemory:
    """A client without a database. `dsn` is not used; `store`: another client's, to see the same."""

    def __init__(self, dsn: str | None = None, *, embed: Any = None, store: Store | None = None, **_: Any) -> None:
        self.embed, self.store = embed, store or Store()


class Memoir(_InMemory, client.Memoir):
    """pg_memoir.Memoir in memory."""

    def close(self) -> None:
        """There is nothing to close."""

    def run(self, call: Call[T]) -> T:
        """Answers a call from memory."""
        return self.store.run(call)


class AsyncMemoir(_InMemory, aio.AsyncMemoir):
    """pg_memoir.AsyncMemoir in memory."""

    async def open(self) -> None:
        """There is nothing to open."""

    async def close(self) -> None:
        """There is nothing to close."""

    async def run(self, call: Call[T]) -> T:
        """Answers a call from memory; other tasks run meanwhile, as with a server."""
        await asyncio.sleep(0)
        return self.store.run(call)
