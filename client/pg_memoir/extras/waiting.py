"""What waits for the next event: LISTEN where there is a connection of one's own, else a look now and then."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import psycopg

CHANNEL = "memoir_outbox"
LOOK_SECONDS = 5.0  # between looks where no notification comes, as through PgBouncer
PAUSE_SECONDS = 0.05  # after a notification, so that events that come together are read together
AWAY = (psycopg.OperationalError, psycopg.InterfaceError, OSError)
"""Errors of a server that is away for now."""


class Waiter:
    """Waits for the next event. `dsn`: None where only a pool is known: then it looks each second, as on a standby."""

    def __init__(self, dsn: str | None, connect: Mapping[str, Any]) -> None:
        self._dsn, self._connect = dsn, dict(connect)
        self._connection: psycopg.Connection[Any] | None = None

    def listen(self) -> None:
        """Has to come before the first look, or an event between the two would be noticed late."""
        if self._dsn is not None and (self._connection is None or self._connection.closed):
            self._connection = psycopg.connect(self._dsn, **self._connect)
            try:
                self._connection.execute(f"listen {CHANNEL}".encode())
            except psycopg.errors.ReadOnlySqlTransaction:  # a standby notifies nobody
                self.close()
                self._dsn = self._connection = None

    def wait(self) -> None:
        """Waits until something was noted, or until it is time for another look."""
        if self._connection is None:
            time.sleep(LOOK_SECONDS / 5)
        elif any(True for _ in self._connection.notifies(timeout=LOOK_SECONDS, stop_after=1)):
            time.sleep(PAUSE_SECONDS)

    def close(self) -> None:
        """Closes its connection."""
        if self._connection is not None:
            self._connection.close()


class AsyncWaiter:
    """The same, awaited."""

    def __init__(self, dsn: str | None, connect: Mapping[str, Any]) -> None:
        self._dsn, self._connect = dsn, dict(connect)
        self._connection: psycopg.AsyncConnection[Any] | None = None

    async def listen(self) -> None:
        """See Waiter.listen."""
        if self._dsn is not None and (self._connection is None or self._connection.closed):
            self._connection = await psycopg.AsyncConnection.connect(self._dsn, **self._connect)
            try:
                await self._connection.execute(f"listen {CHANNEL}".encode())
            except psycopg.errors.ReadOnlySqlTransaction:
                await self.close()
                self._dsn = self._connection = None

    async def wait(self) -> None:
        """See Waiter.wait."""
        if self._connection is None:
            await asyncio.sleep(LOOK_SECONDS / 5)
            return
        async for _ in self._connection.notifies(timeout=LOOK_SECONDS, stop_after=1):
            await asyncio.sleep(PAUSE_SECONDS)

    async def close(self) -> None:
        """See Waiter.close."""
        if self._connection is not None:
            await self._connection.close()
