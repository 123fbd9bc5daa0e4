"""Every call of the SQL API, built once for the sync and the async client.

Each function returns a Call: the statement, its parameters, and how to read the answer. An argument left at None is
not sent, so the default is the database's. Their docstrings are the methods' documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar
from uuid import UUID

from .types import (
    Alias, AnthropicRequest, CapturedPart, Considered, Context, Corrected, Hit, Judgement, Lifted, Match, MemoryState, Message, Persisted, Remembered,
    Retracted, Tombstone, Validated, Vector,
)
from .values import to_sql

APPENDING = ("persist_turn", "append_messages")
"""Functions that answer with a turn mark."""

T = TypeVar("T")
Rows = list[dict[str, Any]]
When = datetime | str
"""An aware datetime, or what timestamptz reads (ISO 8601)."""


@dataclass(frozen=True)
class Call(Generic[T]):
    """One statement. `embed`: the text whose vector fills the parameter query_embedding, if the client has an embedder."""

    function: str
    sql: str
    params: dict[str, Any]
    decode: Callable[[Rows], T]
    embed: str | None = None


def _arguments(arguments: dict[str, tuple[str, Any]]) -> tuple[str, dict[str, Any]]:
    # query_embedding stays, as the executor may fill it.
    sent = {name: pair for name, pair in arguments.items() if pair[1] is not None or name == "query_embedding"}
    # The casts choose the function's types; without them psycopg would send float8 where real is declared.
    named = ", ".join(f"p_{name} => %({name})s::{sql_type}" for name, (sql_type, _) in sent.items())
    return named, {name: to_sql(value, sql_type, name) for name, (sql_type, value) in sent.items()}


def _scalar(
    function: str, decode: Callable[[Any], T], arguments: dict[str, tuple[str, Any]], embed: str | None = None
) -> Call[T]:
    named, params = _arguments(arguments)
    return Call(
        function, f"select memoir.{function}({named}) as result", params, lambda rows: decode(rows[0]["result"]), _wanted(embed, params)
    )


def _table(
    function: str, row_type: type[T], arguments: dict[str, tuple[str, Any]], embed: str | None = None
) -> Call[list[T]]:
    named, params = _arguments(arguments)
    sql = f"select * from memoir.{function}({named})"
    if not is_dataclass(row_type):
        return Call(function, sql, params, lambda rows: [row_type(row) for row in rows], _wanted(embed, params))  # type: ignore[call-arg]
    # A newer server may answer with more columns than this version knows.
    names = [field.name for field in fields(row_type)]
    return Call(
        function, sql, params, lambda rows: [row_type(**{name: row[name] for name in names}) for row in rows], _wanted(embed, params)
    )


def _procedure(function: str, arguments: dict[str, tuple[str, Any]] | None = None) -> Call[None]:
    named, params = _arguments(arguments or {})
    return Call(function, f"call memoir.{function}({named})", params, lambda rows: None)


def _wanted(embed: str | None, params: dict[str, Any]) -> str | None:
    return embed if embed and params.get("query_embedding") is None else None


def _as_is(value: Any) -> Any:
    return value


def _nothing(value: Any) -> None:
    return None


# --- sessions and turns -----------------------------------------------------------------------------------------------


def open_session(
    user: str,
    session: str,
    *,
    model: str | None = None,
    system_prompt: str | None = None,
    project: str | None = None,
    task: str | None = None,
    parent: str | None = None,
    settings: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Call[UUID]:
    """Opens a session, or updates what is given of an open one; returns its id.

    `model`: a registered chat model, which decides window and tokenizer. `parent`: a session of the same user whose
    local memories count here too. Raises UnknownModelError, UnknownSessionError, SessionClosedError, InvalidSettingError.
    """
    return _scalar(
        "open_session",
        _as_is,
        {
            "user": ("text", user),
            "session": ("text", session),
            "model": ("text", model),
            "system_prompt": ("text", system_prompt),
            "project": ("text", project),
            "task": ("text", task),
            "parent": ("text", parent),
            "settings": ("jsonb", settings),
            "metadata": ("jsonb", metadata),
        },
    )


def opening(user: str, session: str, **options: Any) -> Call[UUID] | None:
    """open_session if any of its options is given, else None."""
    given = {name: value for name, value in options.items() if value is not None}
    return open_session(user, session, **given) if given else None


def _append(
    function: str,
    user: str,
    session: str,
    messages: Iterable[Any],
    usage: Mapping[str, Any] | None,
    key: str | None,
    actor: str | None,
    metadata: Mapping[str, Any] | None,
) -> Call[Persisted]:
    return _scalar(
        function,
        _as_is,
        {
            "user": ("text", user),
            "session": ("text", session),
            "messages": ("jsonb", [messages] if isinstance(messages, Mapping) else list(messages)),
            "usage": ("jsonb", usage),
            "key": ("text", key),
            "actor": ("text", actor),
            "metadata": ("jsonb", metadata),
        },
    )


def persist_turn(
    user: str,
    session: str,
    messages: Iterable[Any],
    *,
    usage: Mapping[str, Any] | None = None,
    key: str | None = None,
    actor: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Call[Persisted]:
    """Appends one whole exchange, or any run of messages as the OpenAI chat API has them, all or nothing.

    `usage`: as Usage. `key`: idempotency key; the same key and messages return the first result. `actor`: who acts
    ('person', 'agent', 'tool'), for service logins. Raises InvalidMessageError, ToolCallMismatchError (a call is left
    unanswered: use `append`), TextTooLargeError, InvalidTextError, KeyReusedError, SessionClosedError,
    CostBudgetExceededError.
    """
    return _append("persist_turn", user, session, messages, usage, key, actor, metadata)


def append(
    user: str,
    session: str,
    messages: Iterable[Any],
    *,
    usage: Mapping[str, Any] | None = None,
    key: str | None = None,
    actor: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Call[Persisted]:
    """Like persist_turn, but tool calls may stay open: for the steps of an agent loop, followed by a compile
    without a query once their results are appended too."""
    return _append("append_messages", user, session, messages, usage, key, actor, metadata)


def close_session(user: str, session: str) -> Call[None]:
    """Closes a session; it takes no more turns but can still be recalled. Raises UnknownSessionError."""
    return _scalar("close_session", _nothing, {"user": ("text", user), "session": ("text", session)})


def branch_session(user: str, session: str, new_session: str, *, at_turn: int | None = None) -> Call[UUID]:
    """Opens `new_session` with the turns of `session` up to and including `at_turn` (all, if None) shared by reference."""
    return _scalar(
        "branch_session",
        _as_is,
        {
            "user": ("text", user),
            "session": ("text", session),
            "new_session": ("text", new_session),
            "at_turn": ("int", at_turn),
        },
    )


def session_info(user: str, session: str) -> Call[dict[str, Any]]:
    """Settings and counters of a session. Raises UnknownSessionError."""
    return _scalar("session_info", _as_is, {"user": ("text", user), "session": ("text", session)})


def summarize_session(user: str, session: str) -> Call[dict[str, Any]]:
    """A summary of all that was said in a session: `summary`, `through` (its last turn), `compaction_id`, sizes. Recall
    finds it; what compile shows does not change. Raises UnknownSessionError."""
    return _scalar("summarize_session", _as_is, {"user": ("text", user), "session": ("text", session)})


def compact_session(user: str, session: str, *, target_tokens: int | None = None) -> Call[dict[str, Any]]:
    """Puts summaries in the place of a session's oldest exchanges until about `target_tokens` of turns stay shown; the
    turns remain and are recalled. Returns `rows`, `tokens`, `summary_tokens`, `through`, `summary`."""
    return _scalar(
        "compact_session",
        _as_is,
        {"user": ("text", user), "session": ("text", session), "target_tokens": ("int", target_tokens)},
    )


def undo_compaction(user: str, session: str, compaction: UUID | str) -> Call[dict[str, Any]]:
    """Shows the turns of a compaction again. Returns `undone`, `through`, `summary`. Raises UnknownSessionError,
    UnknownMemoryError."""
    return _scalar(
        "undo_compaction",
        _as_is,
        {"user": ("text", user), "session": ("text", session), "compaction": ("uuid", compaction)},
    )


def list_compactions(user: str, session: str) -> Call[list[dict[str, Any]]]:
    """All compactions of a session with range, level, summary, sizes, and whether each `counts` now."""
    return _table("list_compactions", dict, {"user": ("text", user), "session": ("text", session)})


def undo_consolidation(user: str, memory: UUID | str) -> Call[dict[str, Any]]:
    """Takes a consolidated memory back: the memories it was made of stand again (`restored`). Raises UnknownMemoryError."""
    return _scalar("undo_consolidation", _as_is, {"user": ("text", user), "memory": ("uuid", memory)})


def profile(user: str) -> Call[dict[str, Any]]:
    """What is known about the user in any session: `version` (0: nothing yet), `content`, `memory_ids`."""
    return _scalar("profile", _as_is, {"user": ("text", user)})


def history(user: str, session: str, *, from_turn: int | None = None, to_turn: int | None = None) -> Call[list[Message]]:
    """The messages as they were sent, each with its `turn_index`; turns `from_turn` to `to_turn`, both included."""
    arguments = {
        "user": ("text", user),
        "session": ("text", session),
        "from_turn": ("int", from_turn),
        "to_turn": ("int", to_turn),
    }
    named, params = _arguments(arguments)
    return Call(
        "history", f"select memoir.history({named}) as result", params, lambda rows: [row["result"] for row in rows]
    )


# --- compiling --------------------------------------------------------------------------------------------------------


def _compile_arguments(
    user: str,
    session: str,
    query: str | None,
    budget: int | None,
    memory_budget: int | None,
    task: str | None,
    tools: Sequence[Any] | None,
    query_embedding: Vector | None,
    query_parts: Sequence[Any] | None,
    as_of: When | None,
    valid_at: When | None,
    after_turn: str | None,
    format: str,
) -> dict[str, tuple[str, Any]]:
    return {
        "user": ("text", user),
        "session": ("text", session),
        "query": ("text", query),
        "budget": ("int", budget),
        "memory_budget": ("int", memory_budget),
        "task": ("text", task),
        "tools": ("jsonb", tools),
        "query_embedding": ("real[]", query_embedding),
        "query_parts": ("jsonb", query_parts),
        "as_of": ("timestamptz", as_of),
        "valid_at": ("timestamptz", valid_at),
        "format": ("text", format),
        "after_turn": ("text", after_turn),
    }


def compile_context(
    user: str,
    session: str,
    query: str | None = None,
    *,
    budget: int | None = None,
    memory_budget: int | None = None,
    task: str | None = None,
    tools: Sequence[Any] | None = None,
    query_embedding: Vector | None = None,
    query_parts: Sequence[Any] | None = None,
    as_of: When | None = None,
    valid_at: When | None = None,
    after_turn: str | None = None,
) -> Call[list[Any]]:
    """The message list to send to the model, in OpenAI's shape, at most `budget` tokens: a list of dicts (typed Any,
    so that it is what each SDK declares its `messages` to be).

    `query`: the new user message, not yet persisted; None continues the open exchange after its tool results.
    `budget`: tokens of the whole list, by default the model's window less its response reserve. `memory_budget`: tokens
    of recall. `tools`: the definitions that go with the request, as they count too. `query_embedding`: the query's vector,
    if you have it. `query_parts`: multimodal content parts. `as_of`: what was known then; `valid_at`: what was true then.
    `after_turn`: a turn mark the server must have reached (replicas). Raises BudgetTooSmallError,
    NothingToContinueError, ReplicaBehindError, InvalidArgumentError, DimensionMismatchError.
    """
    arguments = _compile_arguments(
        user, session, query, budget, memory_budget, task, tools, query_embedding, query_parts, as_of, valid_at, after_turn, "openai"
    )
    return _scalar("compile_context", _as_is, arguments, embed=query)


def compile_anthropic(
    user: str,
    session: str,
    query: str | None = None,
    *,
    budget: int | None = None,
    memory_budget: int | None = None,
    task: str | None = None,
    tools: Sequence[Any] | None = None,
    query_embedding: Vector | None = None,
    query_parts: Sequence[Any] | None = None,
    as_of: When | None = None,
    valid_at: When | None = None,
    after_turn: str | None = None,
) -> Call[AnthropicRequest]:
    """The same list for Anthropic: `client.messages.create(model=…, max_tokens=…, **request)`, with cache_control
    where the stable prefix ends. Arguments and errors as compile_context."""
    arguments = _compile_arguments(
        user, session, query, budget, memory_budget, task, tools, query_embedding, query_parts, as_of, valid_at, after_turn, "anthropic"
    )
    return _scalar("compile_context", _anthropic_request, arguments, embed=query)


def _anthropic_request(value: Any) -> AnthropicRequest:
    request: AnthropicRequest = {"messages": value["messages"]}
    if value.get("system"):
        request["system"] = value["system"]
    return request


def context(
    user: str,
    session: str,
    query: str | None = None,
    *,
    budget: int | None = None,
    memory_budget: int | None = None,
    task: str | None = None,
    tools: Sequence[Any] | None = None,
    query_embedding: Vector | None = None,
    query_parts: Sequence[Any] | None = None,
    as_of: When | None = None,
    valid_at: When | None = None,
    after_turn: str | None = None,
    format: Literal["openai", "anthropic"] = "openai",
) -> Call[Context]:
    """compile_context with everything known about the list beside it: tokens, budget, prefix hash, item ids, arms,
    warnings (see Context). `format`: 'openai' or 'anthropic', the shape of its `messages`."""
    arguments = _compile_arguments(
        user, session, query, budget, memory_budget, task, tools, query_embedding, query_parts, as_of, valid_at, after_turn, format
    )
    return _scalar("context", _as_is, arguments, embed=query)


def explain(
    user: str,
    session: str,
    query: str | None = None,
    *,
    budget: int | None = None,
    memory_budget: int | None = None,
    task: str | None = None,
    tools: Sequence[Any] | None = None,
    query_embedding: Vector | None = None,
    query_parts: Sequence[Any] | None = None,
    as_of: When | None = None,
    valid_at: When | None = None,
    after_turn: str | None = None,
) -> Call[list[Considered]]:
    """Every item a compile with these arguments considers: score parts, ranks, tokens, place or reason left out."""
    arguments = _compile_arguments(
        user, session, query, budget, memory_budget, task, tools, query_embedding, query_parts, as_of, valid_at, after_turn, "openai"
    )
    return _table("explain_context", Considered, arguments, embed=query)


def report_context(user: str, report: dict[str, Any]) -> Call[bool]:
    """Tells the primary of a compile that a standby made, so that its statistics count: `report` is "report" of what
    context returned there. False when it is known already. Raises InvalidArgumentError."""
    return _scalar("report_context", _as_is, {"user": ("text", user), "report": ("jsonb", report)})


# --- memories ---------------------------------------------------------------------------------------------------------


def remember(
    user: str,
    content: str,
    *,
    session: str | None = None,
    type: str | None = None,
    category: str | None = None,
    importance: str | None = None,
    project: str | None = None,
    actor: str | None = None,
    provenance: str | None = None,
    confidence: float | None = None,
    valid_from: When | None = None,
    valid_to: When | None = None,
    tags: Sequence[str] | None = None,
    slot: str | None = None,
    slot_value: str | None = None,
    aliases: Sequence[str] | None = None,
    sensitivity: str | None = None,
    source_turns: Sequence[int] | None = None,
    source_tool: str | None = None,
    source_key: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    embedding: Vector | None = None,
    key: str | None = None,
    created_at: When | None = None,
    embeddable: bool | None = None,
) -> Call[Remembered]:
    """Stores one memory, unless it is a duplicate, outranked, or forgotten (see `outcome`).

    `session`: where it was said; without one it is global. `slot`, `slot_value`: an attribute that has one value at a
    time ('home city', 'Oslo'): a new value supersedes the old. `source_turns`: turn indexes of `session` it comes from.
    `confidence` in [0, 1]. `sensitivity`: what looks like a key, a card or an account is secret whatever it says.
    `embeddable`: False keeps it from embedding models. `key`: idempotency key. Raises UnknownSessionError, InvalidArgumentError,
    InvalidTextError, TextTooLargeError, TombstoneError, DimensionMismatchError, KeyReusedError.
    """
    return _scalar(
        "remember",
        _as_is,
        {
            "user": ("text", user),
            "content": ("text", content),
            "session": ("text", session),
            "type": ("text", type),
            "category": ("text", category),
            "importance": ("text", importance),
            "project": ("text", project),
            "actor": ("text", actor),
            "provenance": ("text", provenance),
            "confidence": ("real", confidence),
            "valid_from": ("timestamptz", valid_from),
            "valid_to": ("timestamptz", valid_to),
            "tags": ("text[]", tags),
            "slot": ("text", slot),
            "slot_value": ("text", slot_value),
            "aliases": ("text[]", aliases),
            "sensitivity": ("text", sensitivity),
            "source_turns": ("int[]", source_turns),
            "source_tool": ("text", source_tool),
            "source_key": ("text", source_key),
            "metadata": ("jsonb", metadata),
            "embedding": ("real[]", embedding),
            "key": ("text", key),
            "created_at": ("timestamptz", created_at),
            "embeddable": ("boolean", embeddable),
        },
    )


def recall(
    user: str,
    query: str,
    *,
    session: str | None = None,
    limit: int | None = None,
    types: Sequence[str] | None = None,
    tags: Sequence[str] | None = None,
    project: str | None = None,
    kinds: Sequence[Literal["memory", "turn", "summary"]] | None = None,
    after: When | None = None,
    before: When | None = None,
    query_embedding: Vector | None = None,
    as_of: When | None = None,
    valid_at: When | None = None,
) -> Call[list[Hit]]:
    """Searches memories, old turns and summaries by words and vector, best first; at most `limit` (10).

    `session`: only what belongs to it. `types`, `tags`, `project`: only such memories. `after`, `before`: when it was said.
    `as_of`: what was known then; `valid_at`: what was true then.
    """
    return _table(
        "recall",
        Hit,
        {
            "user": ("text", user),
            "query": ("text", query),
            "session": ("text", session),
            "limit": ("int", limit),
            "types": ("text[]", types),
            "tags": ("text[]", tags),
            "project": ("text", project),
            "kinds": ("text[]", kinds),
            "after": ("timestamptz", after),
            "before": ("timestamptz", before),
            "query_embedding": ("real[]", query_embedding),
            "as_of": ("timestamptz", as_of),
            "valid_at": ("timestamptz", valid_at),
        },
        embed=query,
    )


def match_memories(
    user: str, embedding: Vector, *, threshold: float | None = None, limit: int | None = None, project: str | None = None
) -> Call[list[Match]]:
    """Memories whose cosine with `embedding` is at least `threshold` (0.7), nearest first; at most `limit` (10).
    Raises DimensionMismatchError."""
    return _table(
        "match_memories",
        Match,
        {
            "user": ("text", user),
            "embedding": ("real[]", embedding),
            "threshold": ("real", threshold),
            "limit": ("int", limit),
            "project": ("text", project),
        },
    )


def set_working_memory(user: str, session: str, key: str, content: str | None, *, minutes: int | None = None) -> Call[None]:
    """Keeps a note of the session's present state under `key` for `minutes`; None deletes it."""
    return _scalar(
        "set_working_memory",
        _nothing,
        {
            "user": ("text", user),
            "session": ("text", session),
            "key": ("text", key),
            "content": ("text", content),
            "minutes": ("int", minutes),
        },
    )


def forget(user: str, memory: UUID | str, *, reason: str | None = None) -> Call[dict[str, Any]]:
    """Takes a memory and what it came from out of recall and leaves a tombstone, so that it does not come back.
    Raises UnknownMemoryError."""
    return _scalar("forget", _as_is, {"user": ("text", user), "memory": ("uuid", memory), "reason": ("text", reason)})


def mark_turn(user: str, session: str, turn: int, *, sensitivity: str | None = None, reason: str | None = None) -> Call[dict[str, Any]]:
    """Says how secret a stored turn is from now on: 'normal', 'private' or 'secret' (default). Made stricter, so do the
    memories that came of it; lowering takes a person with the clearance to see it. Raises UnknownSessionError,
    InvalidArgumentError, NotAuthorizedError."""
    return _scalar(
        "mark_turn",
        _as_is,
        {
            "user": ("text", user),
            "session": ("text", session),
            "turn": ("int", turn),
            "sensitivity": ("text", sensitivity),
            "reason": ("text", reason),
        },
    )


def erase_turn(user: str, session: str, turn: int) -> Call[dict[str, Any]]:
    """Erases one turn (a tool call with its results) and everything that stems from it; returns rows by table. Raises
    UnknownSessionError, InvalidArgumentError, NotAuthorizedError."""
    return _scalar("erase_turn", _as_is, {"user": ("text", user), "session": ("text", session), "turn": ("int", turn)})


def erase_session(user: str, session: str) -> Call[dict[str, Any]]:
    """Erases a session and everything that stems from it; returns rows by table. Raises UnknownSessionError,
    NotAuthorizedError."""
    return _scalar("erase_session", _as_is, {"user": ("text", user), "session": ("text", session)})


def erase_user(user: str) -> Call[dict[str, Any]]:
    """Erases every row of a user in every table; returns them by table. The job 'erase' then takes the bytes out of the
    files. Raises NotAuthorizedError."""
    return _scalar("erase_user", _as_is, {"user": ("text", user)})


def export_user(user: str, *, embeddings: bool | None = None) -> Call[list[str]]:
    """All that is kept of a user, as lines of JSON, in memory at once (export_lines reads them as they come). For admins
    and services with clearance secret. Raises UnknownUserError, NotAuthorizedError."""
    named, params = _arguments({"user": ("text", user), "embeddings": ("boolean", embeddings)})
    function = "export_user"
    return Call(function, f"select memoir.{function}({named})::text as result", params, lambda rows: [row["result"] for row in rows])


def extract_session(user: str, session: str, *, limit: int | None = None) -> Call[dict[str, Any]]:
    """Makes memories of what was said in at most `limit` turns that no job has reached yet, and returns counts: "turns", "left",
    "stored", "duplicate", "refused_tombstone", "not_admitted". Raises UnknownSessionError."""
    return _scalar("extract_session", _as_is, {"user": ("text", user), "session": ("text", session), "limit": ("int", limit)})


def correct(
    user: str,
    memory: UUID | str,
    content: str,
    *,
    reason: str | None = None,
    remainder: str | None = None,
    valid_from: When | None = None,
    valid_to: When | None = None,
    slot_value: str | None = None,
    session: str | None = None,
    source_turns: Sequence[int] | None = None,
    actor: str | None = None,
    embedding: Vector | None = None,
    key: str | None = None,
) -> Call[Corrected]:
    """Replaces a memory by what is right; the old text may not come back, and the turns it came from leave recall.

    `remainder`: the part of the old one that still holds, in words. `valid_from`, `valid_to`: the new value holds from or until
    then, the old one outside that time. `slot_value`: the new value of its slot. `session`, `source_turns`, `actor`: whose
    correction, as in remember. `key`: idempotency key. Raises UnknownMemoryError, TombstoneError, UnknownSessionError,
    InvalidArgumentError, TextTooLargeError, DimensionMismatchError, KeyReusedError.
    """
    return _scalar(
        "correct",
        _as_is,
        {
            "user": ("text", user),
            "memory": ("uuid", memory),
            "content": ("text", content),
            "reason": ("text", reason),
            "remainder": ("text", remainder),
            "valid_from": ("timestamptz", valid_from),
            "valid_to": ("timestamptz", valid_to),
            "slot_value": ("text", slot_value),
            "session": ("text", session),
            "source_turns": ("int[]", source_turns),
            "actor": ("text", actor),
            "embedding": ("real[]", embedding),
            "key": ("text", key),
        },
    )


def retract(
    user: str,
    memory: UUID | str,
    *,
    reason: str | None = None,
    valid_to: When | None = None,
    session: str | None = None,
    source_turns: Sequence[int] | None = None,
    actor: str | None = None,
) -> Call[Retracted]:
    """Takes a memory back without a replacement. `valid_to`: it was true until then. `session`, `source_turns`, `actor`: whose
    word, as in remember. Raises UnknownMemoryError, UnknownSessionError, NotAuthorizedError where the memory's authority is higher."""
    return _scalar(
        "retract",
        _as_is,
        {
            "user": ("text", user),
            "memory": ("uuid", memory),
            "reason": ("text", reason),
            "valid_to": ("timestamptz", valid_to),
            "session": ("text", session),
            "source_turns": ("int[]", source_turns),
            "actor": ("text", actor),
        },
    )


def lift_tombstone(
    user: str, memory: UUID | str | None = None, *, content: str | None = None, slot: str | None = None, reason: str | None = None
) -> Call[Lifted]:
    """Lets back what was rejected: by its memory, or by what it says (`content`, `slot`). Only for logins acting as a person.
    Raises UnknownMemoryError, NotAuthorizedError, InvalidArgumentError."""
    return _scalar(
        "lift_tombstone",
        _as_is,
        {
            "user": ("text", user),
            "memory": ("uuid", memory),
            "content": ("text", content),
            "slot": ("text", slot),
            "reason": ("text", reason),
        },
    )


def validate(user: str, memory: UUID | str, *, confidence: float | None = None, reason: str | None = None) -> Call[Validated]:
    """A person stands by a memory: it becomes their word and prevails over what it contradicts. Only for logins acting as a person.
    Raises UnknownMemoryError, NotAuthorizedError, InvalidArgumentError."""
    return _scalar(
        "validate",
        _as_is,
        {"user": ("text", user), "memory": ("uuid", memory), "confidence": ("real", confidence), "reason": ("text", reason)},
    )


def relate(
    user: str,
    memory: UUID | str,
    relation: Literal["supersedes", "relates_to", "contradicts", "elaborates", "caused_by", "parent_of", "references", "depends_on"],
    other: UUID | str,
    *,
    weight: float | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Call[bool]:
    """Says what one memory is to another; True if that is new. 'supersedes' makes it so. Raises UnknownMemoryError,
    InvalidArgumentError, NotAuthorizedError."""
    return _scalar(
        "relate",
        _as_is,
        {
            "user": ("text", user),
            "memory": ("uuid", memory),
            "relation": ("text", relation),
            "other": ("uuid", other),
            "weight": ("real", weight),
            "metadata": ("jsonb", metadata),
        },
    )


def pin(user: str, session: str, memory: UUID | str, *, turns: int | None = None, reason: str | None = None) -> Call[dict[str, Any]]:
    """Pins a memory in a session, for its next `turns` turns or, None, until unpin. Raises UnknownMemoryError,
    UnknownSessionError, InvalidArgumentError."""
    return _scalar(
        "pin",
        _as_is,
        {"user": ("text", user), "session": ("text", session), "memory": ("uuid", memory), "turns": ("int", turns), "reason": ("text", reason)},
    )


def unpin(user: str, session: str, memory: UUID | str) -> Call[bool]:
    """Ends a memory's pin in a session; True if there was one. Raises UnknownMemoryError, UnknownSessionError."""
    return _scalar("unpin", _as_is, {"user": ("text", user), "session": ("text", session), "memory": ("uuid", memory)})


def pin_turns(
    user: str, session: str, from_turn: int, to_turn: int | None = None, *, turns: int | None = None, reason: str | None = None
) -> Call[dict[str, Any]]:
    """Keeps turns `from_turn` to `to_turn` (None: that one) out of compaction, for the session's next `turns` turns or, None, until
    unpin_turns. Raises UnknownSessionError, InvalidArgumentError."""
    return _scalar(
        "pin_turns",
        _as_is,
        {
            "user": ("text", user),
            "session": ("text", session),
            "from_turn": ("int", from_turn),
            "to_turn": ("int", to_turn),
            "turns": ("int", turns),
            "reason": ("text", reason),
        },
    )


def unpin_turns(user: str, session: str, from_turn: int | None = None, to_turn: int | None = None) -> Call[int]:
    """Ends the pins that touch these turns (None: all); returns how many. Raises UnknownSessionError."""
    return _scalar(
        "unpin_turns",
        _as_is,
        {"user": ("text", user), "session": ("text", session), "from_turn": ("int", from_turn), "to_turn": ("int", to_turn)},
    )


def memory_history(user: str, memory: UUID | str) -> Call[list[MemoryState]]:
    """The states of a memory, of what it superseded and what superseded it, in order: when, why, by whom.
    Raises UnknownMemoryError."""
    return _table("memory_history", MemoryState, {"user": ("text", user), "memory": ("uuid", memory)})


def list_tombstones(user: str, *, lifted: bool | None = None) -> Call[list[Tombstone]]:
    """What may not come back, newest first; with `lifted`, what was lifted as well."""
    return _table("list_tombstones", Tombstone, {"user": ("text", user), "lifted": ("boolean", lifted)})


def list_aliases(user: str) -> Call[list[Alias]]:
    """What the user's things are called, too: given with `remember`, said in a turn or a memory, or a phrase by its initials."""
    return _table("list_aliases", Alias, {"user": ("text", user)})


def credit_recall(user: str, compile_id: UUID | str, used: Sequence[UUID | str]) -> Call[int]:
    """Says which items of a recall the answer used, by `compile_id` and ids of what `context` returned; [] for none. Returns
    how many of them that compile had considered. What learn_weights learns from. Raises UnknownMemoryError."""
    return _scalar("credit_recall", int, {"user": ("text", user), "compile": ("uuid", compile_id), "used": ("uuid[]", list(used))})


def learn_weights(
    user: str,
    *,
    apply: bool | None = None,
    compiles: int | None = None,
    least: int | None = None,
    prior: float | None = None,
) -> Call[dict[str, Any]]:
    """Learns the ranking's weights anew from what the user's ledger says was used: 'old', 'new', 'held_out' (share of pairs in
    the right order 'before' and 'after'), 'applied'. With `apply` they become the user's own setting, if they gained.
    Raises TooLittleEvidenceError, UnknownUserError, InvalidArgumentError, NotAuthorizedError."""
    return _scalar(
        "learn_weights",
        _as_is,
        {"user": ("text", user), "apply": ("boolean", apply), "compiles": ("int", compiles), "least": ("int", least), "prior": ("real", prior)},
    )


def list_judgements(user: str, memory: UUID | str | None = None, *, limit: int | None = None) -> Call[list[Judgement]]:
    """What was decided about conflicts among memories (or of one), newest first, at most `limit` (100). Raises UnknownMemoryError."""
    return _table("list_judgements", Judgement, {"user": ("text", user), "memory": ("uuid", memory), "limit": ("int", limit)})


# --- captured provider calls ------------------------------------------------------------------------------------------


def capture_call(
    user: str,
    session: str,
    request: bytes,
    *,
    response: bytes | None = None,
    provider: str | None = None,
    model: str | None = None,
    status: int | None = None,
    latency_ms: int | None = None,
    started_at: When | None = None,
    request_headers: Mapping[str, str] | None = None,
    response_headers: Mapping[str, str] | None = None,
    events: Sequence[bytes] | None = None,
    event_times: Sequence[When] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Call[UUID]:
    """Stores a provider call as it went over the wire, replayable byte for byte; returns its id. `events`: the
    stream's events in order, `event_times`: when each arrived."""
    return _scalar(
        "capture_call",
        _as_is,
        {
            "user": ("text", user),
            "session": ("text", session),
            "request": ("bytea", request),
            "response": ("bytea", response),
            "provider": ("text", provider),
            "model": ("text", model),
            "status": ("int", status),
            "latency_ms": ("int", latency_ms),
            "started_at": ("timestamptz", started_at),
            "request_headers": ("jsonb", request_headers),
            "response_headers": ("jsonb", response_headers),
            "events": ("bytea[]", events),
            "event_times": ("timestamptz[]", event_times),
            "metadata": ("jsonb", metadata),
        },
    )


def read_call(user: str, call: UUID | str) -> Call[list[CapturedPart]]:
    """The parts of a captured call, in order. Raises UnknownMemoryError."""
    return _table("read_call", CapturedPart, {"user": ("text", user), "call": ("uuid", call)})
