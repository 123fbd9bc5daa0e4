"""What goes in, and what calls answer as mappings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, TypedDict

from ..arguments import Vector

Message = dict[str, Any]
"""One OpenAI chat message: role, content (text, parts or None), tool_calls, tool_call_id, name; on the way in also
created_at (ISO 8601, or an aware datetime)."""

Embed = Callable[[list[str]], Sequence[Vector]]
"""n texts → n vectors, in order."""

AsyncEmbed = Embed | Callable[[list[str]], Awaitable[Sequence[Vector]]]
"""The same, or a coroutine function. A plain function is called in a thread."""


Relation = Literal[
    "supersedes", "relates_to", "contradicts", "elaborates", "caused_by", "parent_of", "references", "depends_on"
]
"""What one memory may be to another."""


Actor = Literal["person", "agent", "tool"]
"""Whose word it is."""

Importance = Literal["critical", "important", "normal", "minor"]

Sensitivity = Literal["normal", "private", "secret"]

State = Literal["active", "superseded", "invalidated", "expired", "forgotten", "erased"]
"""States of a memory."""

SessionStatus = Literal["active", "paused", "closed", "expired"]

Task = Literal["continuation", "knowledge", "new_session", "tool_heavy"]
"""What a turn asks of its memory; it decides the weights of the ranking."""


class Usage(TypedDict, total=False):
    """What a model call cost. Tokens as the provider counted them; latency in milliseconds. Prompt tokens include
    those read from the prompt cache and written there, for five minutes or for an hour."""

    model: str
    prompt_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cache_write_1h_tokens: int
    completion_tokens: int
    latency_ms: int
    finish_reason: str | None


class Persisted(TypedDict, total=False):
    """The turns that were appended. `mark` goes into `after_turn` of a compile on a replica."""

    session_id: str
    from_turn: int
    to_turn: int
    turn_count: int
    tokens: int
    mark: str
    message_ids: list[str]
    warnings: list[Any]


class Remembered(TypedDict, total=False):
    """`outcome`: 'stored', 'duplicate', 'outdated' or 'refused_tombstone' (with a `hint`). `superseded`, `contradicts`:
    ids of memories it replaced, or stands against."""

    memory_id: str | None
    outcome: str
    superseded: list[str]
    contradicts: list[str]
    similarity: float
    hint: str


class Corrected(TypedDict, total=False):
    """`outcome`: 'corrected', or 'contradicts' where the memory has a higher authority. `remainder`: the memory of what
    is still true. `bounded`: what the old value became for the time in which it was true."""

    memory_id: str | None
    outcome: str
    corrected: list[str]
    remainder: str | None
    bounded: list[str]
    excluded_turns: int
    invalidated_summaries: int


class Retracted(TypedDict, total=False):
    """`state`: 'invalidated', or 'superseded' by its `bounded` copy."""

    memory_id: str
    state: str
    retracted: list[str]
    bounded: list[str]
    excluded_turns: int
    invalidated_summaries: int


class Lifted(TypedDict, total=False):
    """`lifted`: tombstones. `restored`: memories that are active again. `returned_turns`: turns that are recalled
    again.
    """

    memory_id: str | None
    lifted: int
    restored: list[str]
    returned_turns: int


class Validated(TypedDict, total=False):
    """The memory that stands for the validated one, and what it superseded."""

    memory_id: str
    superseded: list[str]


class Context(TypedDict, total=False):
    """A compiled list and what is known about it. Sizes in tokens of `tokenizer`.

    `messages`: the value compile_context returns for the same arguments. `prefix_messages`: how many leading
    messages are the stable prefix, `prefix_hash` their hash. `items`: ids of what recall chose. `weak`: nothing that
    matches well was found, and the recall, kept small, says so.
    """

    messages: Any
    compile_id: str
    tokens: int
    budget: int
    recall_tokens: int
    prefix_hash: str
    prefix_messages: int
    tokenizer: str
    items: list[str]
    arms: dict[str, Any]
    warnings: list[Any]
    weak: bool
    statistics_version: str
    task: str
    format: str
    temperature: float  # only where open_session was given it
    top_p: float  # likewise
    report: dict[str, Any]  # on a standby only: for report_context on the primary


class AnthropicRequest(TypedDict, total=False):
    """Arguments for `client.messages.create(**request)`; `system` is absent when there is nothing to say in it."""

    system: Any
    messages: Any
