"""Events and webhooks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NotRequired, TypedDict

from .record import Record

EventType = Literal["memory.added", "memory.changed", "memory.forgotten", "job.failed"]
"""What an event may tell, beside events.dropped."""


class EventData(TypedDict, total=False):
    """What an event is about. `state`: of the memory since then; `job`: the job, or the kind of work, that failed."""

    user: str
    user_id: str
    memory_id: str
    state: str
    memory_type: str
    project: str
    job: str


class Event(TypedDict):
    """Something that happened. `id` is the same however often it comes, `cursor` is what to go on behind it with."""

    id: int
    type: str
    timestamp: str
    data: EventData
    cursor: str


class EventPage(TypedDict):
    """Events behind a cursor. `cursor`: behind all of them; `more`: there may be more now."""

    events: list[Event]
    cursor: str
    more: bool


class AsideEvent(TypedDict):
    """An event that a receiver always refused. `after`: the cursor before it; `error`: how it was refused."""

    event: int
    after: str
    error: str


class WebhookClaim(EventPage):
    """Events to send to an URL, under a lease. `failures`: of the first one, in a row; `aside`: those set aside."""

    work_id: int
    lease_id: str
    url: str
    secret: str
    failures: NotRequired[int]
    aside: NotRequired[list[AsideEvent]]


@dataclass(frozen=True, slots=True)
class Webhook(Record):
    """An URL that events are sent to. `state`: active, failing or disabled; `failures` in a row since
    `failing_since`; `aside`: events that were set aside."""

    webhook: int
    url: str
    types: list[str] | None
    state: str
    failures: int
    failing_since: datetime | None
    last_error: str | None
    secret: str
    aside: list[AsideEvent]
