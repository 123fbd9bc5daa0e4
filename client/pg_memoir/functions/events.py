"""Events behind a cursor, and webhooks. How to read the definitions: call.py."""

# mypy: disable-error-code="empty-body"

from collections.abc import Sequence
from typing import Any

from ..arguments import BigInt, Id, Object
from ..call import rows, value
from ..types import EventPage, EventType, Webhook, WebhookClaim


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
