"""What the database refuses, one exception per SQLSTATE of class PM (the contract is in sql/base/errors.sql).

Anything else psycopg raises (no connection, a cancelled statement) passes through unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import psycopg


class MemoirError(Exception):
    """Base of all. `str(error)` is the server's message, which names the field and the value.

    `sqlstate`: five characters. `detail`: what DETAIL held, parsed if it is JSON, else text or None.
    `hint`: what to do about it, or None. Raised from the psycopg error, if there was one.
    """

    sqlstate: ClassVar[str] = ""

    def __init__(
        self, message: str, *, detail: Any = None, hint: str | None = None, sqlstate: str | None = None
    ) -> None:
        super().__init__(message)
        self.detail = detail
        self.hint = hint
        self.code = sqlstate or type(self).sqlstate

    @property
    def message(self) -> str:
        """The message alone."""
        return str(self.args[0])


class NotAuthorizedError(MemoirError):
    """The login may not act for this user, or may not do this."""

    sqlstate = "PM001"


class UnknownUserError(MemoirError):
    """No such user."""

    sqlstate = "PM002"


class UnknownSessionError(MemoirError):
    """The user has no such session."""

    sqlstate = "PM003"


class UnknownMemoryError(MemoirError):
    """The user has no such memory or captured call."""

    sqlstate = "PM004"


class SessionClosedError(MemoirError):
    """The session is closed and takes no more turns."""

    sqlstate = "PM005"


class KeyReusedError(MemoirError):
    """The idempotency key was used before with another body."""

    sqlstate = "PM006"


class ChangedElsewhereError(MemoirError):
    """Another writer changed what this call was to build on. Read it again and repeat the call."""

    sqlstate = "PM007"


class InvalidMessageError(MemoirError):
    """A message has a wrong shape, role or type."""

    sqlstate = "PM010"


class ToolCallMismatchError(MemoirError):
    """A tool result without its call, or a call left unanswered."""

    sqlstate = "PM011"


class TextTooLargeError(MemoirError):
    """A text is over the configured size."""

    sqlstate = "PM012"


class InvalidTextError(MemoirError):
    """A name or a key that can't be stored: NUL or a lone surrogate."""

    sqlstate = "PM013"


class InvalidArgumentError(MemoirError):
    """An argument has a value it can't have."""

    sqlstate = "PM014"


class InvalidSettingError(MemoirError):
    """An unknown setting, or a value out of its range."""

    sqlstate = "PM015"


class BudgetTooSmallError(MemoirError):
    """The newest user message does not fit the budget. Sizes are tokens, None where the server did not say."""

    sqlstate = "PM020"

    def _size(self, name: str) -> int | None:
        value = self.detail.get(name) if isinstance(self.detail, dict) else None
        return int(value) if value is not None else None

    @property
    def needed(self) -> int | None:
        """The smallest budget that would do."""
        return self._size("needed")

    @property
    def budget(self) -> int | None:
        """The budget there was."""
        return self._size("budget")

    @property
    def system_tokens(self) -> int | None:
        """Tokens of the system message."""
        return self._size("system")

    @property
    def message_tokens(self) -> int | None:
        """Tokens of the newest user message."""
        return self._size("message")


class ReplicaBehindError(MemoirError):
    """This server has not reached the turn mark given as `after_turn`; ask the primary or again."""

    sqlstate = "PM021"


class NothingToContinueError(MemoirError):
    """No query was given and the session has no open exchange."""

    sqlstate = "PM022"


class CostBudgetExceededError(MemoirError):
    """The session's or the user's cost budget is spent."""

    sqlstate = "PM023"


class AppendOnlyError(MemoirError):
    """History is append-only."""

    sqlstate = "PM024"


class TooLittleEvidenceError(MemoirError):
    """The ledger says too little of what was used to learn from."""

    sqlstate = "PM025"


class KernelMissingError(MemoirError):
    """The server has no PL/Python to make a recall with, and the client has no kernel (pg_memoir[kernel]) either."""

    sqlstate = "PM026"


class DimensionMismatchError(MemoirError):
    """A vector has another dimension than its model."""

    sqlstate = "PM030"


class UnknownModelError(MemoirError):
    """No such chat or embedding model."""

    sqlstate = "PM031"


class TombstoneError(MemoirError):
    """The value was forgotten and may not come back."""

    sqlstate = "PM040"


class MaintenanceUnavailableError(MemoirError):
    """This maintenance can't run here."""

    sqlstate = "PM050"


class JobFailedError(MemoirError):
    """A maintenance job ended with an error, which job_runs holds too."""

    sqlstate = "PM051"


class JobRunningError(MemoirError):
    """Another run of the job did not end in the time that the call waited for it."""

    sqlstate = "PM052"


BY_SQLSTATE: dict[str, type[MemoirError]] = {error.sqlstate: error for error in MemoirError.__subclasses__()}


@contextmanager
def raise_refusals() -> Iterator[None]:
    """Raises what the database refuses as its MemoirError."""
    try:
        yield
    except psycopg.Error as error:
        refusal = from_database(error)
        if refusal is None:
            raise
        raise refusal from error


def from_database(error: psycopg.Error) -> MemoirError | None:
    """The exception for a psycopg error; None if it is not of class PM. A PM code this version does not know
    becomes a plain MemoirError."""
    code = error.sqlstate or ""
    if not code.startswith("PM"):
        return None
    diag = error.diag
    message = diag.message_primary or str(error)
    kind = BY_SQLSTATE.get(code, MemoirError)
    return kind(message, detail=_parse_detail(diag.message_detail), hint=diag.message_hint or None, sqlstate=code)


def _parse_detail(detail: str | None) -> Any:
    if not detail:
        return None
    try:
        return json.loads(detail)
    except ValueError:
        return detail
