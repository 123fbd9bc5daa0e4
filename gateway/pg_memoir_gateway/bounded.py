"""Calls of the database that end: the server cancels those that take too long or wait too long for a lock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import psycopg
from pg_memoir import AsyncMemoir
from pg_memoir.call import Call
from pg_memoir.types import AsyncEmbed

T = TypeVar("T")

CONNECTIONS = 6
WAIT_SECONDS = 5.0  # a call waits so long for one of them
STATEMENT_MS = 30_000
LOCK_MS = 10_000


class BoundedMemoir(AsyncMemoir):
    """A client with few connections of its own, which open when they are needed. Its limits hold for a transaction, as
    PgBouncer gives the server's connection to somebody else behind it."""

    def __init__(self, dsn: str, embed: AsyncEmbed | None = None) -> None:
        super().__init__(dsn, embed=embed, min_size=0, max_size=CONNECTIONS, timeout=WAIT_SECONDS, connect_timeout=3)

    async def _fetch(self, cursor: psycopg.AsyncCursor[Any], call: Call[T], params: Mapping[str, Any]) -> T:
        async with cursor.connection.transaction():
            await cursor.execute(self._make_limits().encode())
            return await super()._fetch(cursor, call, params)

    def _make_limits(self) -> str:
        return f"set local statement_timeout = {STATEMENT_MS}; set local lock_timeout = {LOCK_MS}"

    async def read_view(self, sql: str, **params: Any) -> list[dict[str, Any]]:
        """Returns what a query of a view in schema memoir answers. Raises InsufficientPrivilege where the login may not
        read it."""
        return await self.run(Call("read_view", sql, params, list))


class ReadOnlyMemoir(BoundedMemoir):
    """A client that can't write. A list that it compiles leaves no trace."""

    def _make_limits(self) -> str:
        return f"{super()._make_limits()}; set local transaction_read_only = on"
