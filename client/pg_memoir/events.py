"""Events behind a cursor, webhooks, and what waits for the next event. How to read the definitions: call.py."""

# mypy: disable-error-code="empty-body"

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg

from .arguments import BigInt, Id, Object
from .call import rows, value
from .types import EventPage, EventType, Webhook, WebhookClaim

CHANNEL = "memoir_outbox"
LOOK_SECONDS = 5.0  # between looks where no notification comes, as through PgBouncer
PAUSE_SECONDS = 0.05  # after a notification, so that events that come together are read together
AWAY = (psycopg.OperationalError, psycopg.InterfaceError, OSError)
"""Errors of a server that is away for now."""


class Events:
    """Events behind a cursor, and webhooks."""

    @value
    def read_events(
        self,
        user: str | None = None,
        *,
        after: str | None = None,
        types: Sequence[EventType] | None = None,
        limit: int | None = None,
    ) -> EventPage:
        """Events of a user, or of all that the login may read, behind the cursor `after`: by default all that are kept,
        with "now" none. At most `limit` (1000). Raises InvalidArgumentError while setting outbox_days is 0, and for a
        cursor of another server."""

    @value
    def add_webhook(
        self, url: str, *, types: Sequence[EventType] | None = None, secret: str | None = None
    ) -> dict[str, Any]:
        """Has a worker send events from now on to an URL; returns {"webhook", "secret"}. Admin only. Raises
        InvalidArgumentError, NotAuthorizedError."""

    @rows
    def list_webhooks(self) -> list[Webhook]:
        """The URLs that events are sent to, with their secrets. Admin only. Raises NotAuthorizedError."""

    @value
    def remove_webhook(self, webhook: BigInt, event: BigInt | None = None) -> bool:
        """Sends nothing more to a webhook, or with `event` forgets one that was set aside for it; False if there is
        none of that number. Admin only."""

    @value
    def claim_webhook(self, *, limit: int | None = None) -> WebhookClaim | None:
        """Leases a webhook that has something to send, with up to `limit` (200) events; None if none has."""

    @value
    def store_webhook(
        self,
        work: BigInt,
        lease: Id,
        cursor: str | None,
        error: str | None = None,
        final: bool | None = None,
        aside: Object | None = None,
    ) -> str:
        """Says how far a claimed webhook was sent, what ended it, and which event was set aside; returns active,
        failing, disabled or lost."""


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
