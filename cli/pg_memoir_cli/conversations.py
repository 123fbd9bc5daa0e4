"""What a file of conversations is read into, and the place in it where something is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pg_memoir.types import Message

# Imported turns without a time of their own follow the conversation's at this distance.
TURN_SECONDS = 10


class ConversationError(ValueError):
    """A file can't be read, or the database refuses a conversation of it. The message starts with the place.

    `file`; `line` (JSONL) or `record` (JSON), both from 1; `field`: path inside the record. Unknown ones are None.
    """

    def __init__(self, where: Where, field: str | None, problem: str) -> None:
        super().__init__(": ".join(part for part in (str(where), field, problem) if part))
        self.file, self.line, self.record, self.field = where.file, where.line, where.record, field


@dataclass(frozen=True, slots=True)
class Where:
    """A place in a file."""

    file: str
    line: int | None = None
    record: int | None = None

    def __str__(self) -> str:
        if self.line is not None:
            return f"{self.file}:{self.line}"
        return f"{self.file}: record {self.record}" if self.record is not None else self.file

    def fail(self, field: str | None, problem: str) -> ConversationError:
        return ConversationError(self, field, problem)


@dataclass(frozen=True, slots=True)
class Conversation:
    """One session to import. `messages` as persist_turn takes them."""

    user: str
    session: str
    messages: list[Message]
    where: Where
    system_prompt: str | None = None
    project: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConversationFile:
    """A file's conversations, read as they are asked for. `total`: how many, None if that is not known beforehand."""

    total: int | None
    conversations: Iterator[Conversation | ConversationError]


@dataclass(frozen=True, slots=True)
class Options:
    file: str
    stem: str
    user: str | None
    user_prefix: str | None

    def name(self, own: Any, default: str, prefix: str = "") -> str:
        if self.user is not None:
            return self.user
        before = prefix if self.user_prefix is None else self.user_prefix
        return before + (str(own) if own not in (None, "") else default)


def read_time(value: Any, where: Where, path: str) -> datetime | None:
    """ISO 8601 or seconds since 1970; without a zone it is UTC."""
    if value is None:
        return None
    try:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC)
        time = datetime.fromisoformat(value)
    except (TypeError, ValueError, OverflowError, OSError):
        raise where.fail(path, f"{value!r} is neither ISO 8601 nor seconds since 1970") from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def stamp_messages(messages: list[Message], times: list[datetime | None], start: datetime | None = None) -> None:
    """Sets each message's time. One without a time follows the message before it, or the conversation's start, and is
    never later than the next one with a time."""
    later: list[datetime | None] = []
    for time in reversed(times):
        later.append(time or (later[-1] if later else None))
    before: datetime | None = None
    for message, own, limit in zip(messages, times, reversed(later), strict=True):
        time = own or (before + timedelta(seconds=TURN_SECONDS) if before else start or limit)
        if time and limit and not own:
            time = min(time, limit)
        message.pop("created_at", None)
        if time:
            message["created_at"] = time.isoformat()
            before = time
