"""What a file is read into, and the place in it where something is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
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
        self.problem = problem

    @property
    def reason(self) -> str:
        """The problem without its values: what errors of one kind have in common."""
        return re.sub(r"'[^']*'|\"[^\"]*\"|[\w-]*\d[\w.:+-]*", "…", self.problem)


UNEXPECTED = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError)
"""Errors of a value of a kind that no export has, deep in one."""


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
    newest: bool = False
    """The file has the newest messages alone, so a later one begins with another message."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One memory to import. `source` and `id`: the store that it comes from, and its id there.

    `said_at`: when it was said or noted. `valid_from`, `valid_to`: when it is true. `relations`: (relation, id of
    another fact of this source).
    """

    user: str
    source: str
    id: str
    content: str
    where: Where
    type: str = "fact"
    category: str | None = None
    said_at: datetime | None = None
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    confidence: float | None = None
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)
    relations: tuple[tuple[str, str], ...] = ()

    @property
    def has_ended(self) -> bool:
        """Whether it is true no more."""
        return self.valid_to is not None and self.valid_to <= datetime.now(UTC)


Item = Conversation | Fact | ConversationError


@dataclass(frozen=True, slots=True)
class ConversationFile:
    """A file's conversations and facts, read as they are asked for. `total`: how many, None if that is not known
    beforehand."""

    total: int | None
    items: Iterator[Item]

    @property
    def conversations(self) -> Iterator[Conversation | ConversationError]:
        """The items without the facts."""
        return (item for item in self.items if not isinstance(item, Fact))


@dataclass(frozen=True, slots=True)
class Options:
    """How a file is read: its names, whose it is, the one format that is expected, users by their names in the file."""

    file: str
    stem: str
    user: str | None
    user_prefix: str | None
    format: str | None = None
    users: Mapping[str, str] = field(default_factory=dict)

    def name(self, own: Any, default: str, prefix: str = "") -> str:
        """Returns the user that a record is of, `own` being its name in the file."""
        if self.user is not None:
            return self.user
        name = str(own) if own not in (None, "") else default
        before = prefix if self.user_prefix is None else self.user_prefix
        return self.users[name] if name in self.users else before + name


_MILLISECONDS = 1e11
"""Numbers from here on are no seconds: they would be of the year 5138 and later."""


def read_time(value: Any, where: Where, path: str) -> datetime | None:
    """ISO 8601, seconds or milliseconds since 1970; without a zone it is UTC. Go writes the year 1 for no time."""
    if value is None:
        return None
    try:
        if isinstance(value, str) and re.fullmatch(r"\d{9,14}(\.\d+)?", value):
            value = float(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000 if abs(value) >= _MILLISECONDS else value, UTC)
        time = datetime.fromisoformat(value)
    except (TypeError, ValueError, OverflowError, OSError):
        raise where.fail(path, f"{value!r} is neither ISO 8601 nor seconds since 1970") from None
    if time.year == 1:
        return None
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
