"""How something is done, and whether that worked. How to read the definitions: call.py."""

# mypy: disable-error-code="empty-body"

from collections.abc import Sequence
from typing import Any, Literal

from ..arguments import Id, Object, Text, Vector
from ..call import rows, value
from ..types import Actor, Way


class Experience:
    """How something is done, and whether that worked."""

    @value
    def learn_experience(
        self,
        user: str,
        trigger: Text,
        way: Text,
        *,
        type: Literal["procedure", "lesson", "skill"] | None = None,
        success: bool | None = None,
        note: Text | None = None,
        session: str | None = None,
        project: str | None = None,
        actor: Actor | None = None,
        source_turns: Sequence[int] | None = None,
        tags: Sequence[Text] | None = None,
        metadata: Object | None = None,
        key: str | None = None,
    ) -> dict[str, Any]:
        """Stores how something is done: `trigger` says when, in one line, `way` what to do. Answers as `remember`, and
        with `success` the outcomes: 'tried', 'succeeded', 'failed'. `project`: where it holds, global for all. Raises
        UnknownSessionError, InvalidArgumentError, InvalidTextError, TextTooLargeError, KeyReusedError."""

    @value
    def report_outcome(
        self,
        user: str,
        memory: Id,
        success: bool,
        *,
        note: Text | None = None,
        session: str | None = None,
        actor: Actor | None = None,
        key: str | None = None,
    ) -> dict[str, Any]:
        """Reports whether the way of a procedure, lesson or skill worked; returns 'memory_id', 'tried', 'succeeded',
        'failed', 'note_kept'. `key`: the same outcome is counted once. Raises UnknownMemoryError, UnknownSessionError,
        InvalidArgumentError."""

    @rows
    def recall_experience(
        self,
        user: str,
        task: Text | None = None,
        *,
        session: str | None = None,
        project: str | None = None,
        limit: int | None = None,
        query_embedding: Vector | None = None,
    ) -> list[Way]:
        """The ways that a user's experience has for `task`, best first, at most `limit` (3): those that worked or were
        not tried yet, then those that failed where they are the nearest. Without a task all that did not fail.
        `session` or `project`: of this project and of all. Raises InvalidArgumentError, DimensionMismatchError."""
