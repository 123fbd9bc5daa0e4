"""Calls that set up and run the database: settings, models, embeddings, jobs. Built like those in calls.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, Literal
from uuid import UUID

from .calls import Call, _as_is, _nothing, _procedure, _scalar, _table
from .types import Claim, Job, ModelWork, PairClaim, Vector


def bind_login(
    login: str,
    *,
    users: Sequence[str] | None = None,
    actor: str | None = None,
    projects: Sequence[str] | None = None,
    clearance: str | None = None,
    namespace: str | None = None,
) -> Call[None]:
    """Binds a database login to users, projects, an actor class, a clearance and a namespace; None leaves users or
    projects unlimited. Admin only. Raises NotAuthorizedError, InvalidArgumentError."""
    return _scalar(
        "bind_login",
        _nothing,
        {
            "login": ("name", login),
            "users": ("text[]", users),
            "actor": ("text", actor),
            "projects": ("text[]", projects),
            "clearance": ("text", clearance),
            "namespace": ("text", namespace),
        },
    )


def unbind_login(login: str) -> Call[None]:
    """Removes a login's binding. Admin only. Raises NotAuthorizedError, InvalidArgumentError."""
    return _scalar("unbind_login", _nothing, {"login": ("name", login)})


def count_tokens(text: str, *, model: str | None = None) -> Call[int]:
    """Tokens of `text` for a chat model (the default model's, if None), as compile counts them."""
    return _scalar("count_tokens", int, {"text": ("text", text), "model": ("text", model)})


def set_setting(key: str, value: Any) -> Call[None]:
    """Changes a setting for the whole install; admin only. Raises InvalidSettingError, NotAuthorizedError."""
    return _scalar("set_setting", _nothing, {"key": ("text", key), "value": ("jsonb", value)})


def reset_setting(key: str) -> Call[None]:
    """Returns a setting to its default; admin only. Raises InvalidSettingError, NotAuthorizedError."""
    return _scalar("reset_setting", _nothing, {"key": ("text", key)})


def import_user(user: str, lines: Sequence[str]) -> Call[dict[str, dict[str, int]]]:
    """Puts back some lines of an export, one transaction; import_lines takes all of them. Returns rows by table under
    'imported', 'present' and 'refused'. Admin only. Raises InvalidArgumentError, NotAuthorizedError."""
    return _scalar("import_user", _as_is, {"user": ("text", user), "lines": ("text[]::jsonb[]", lines)})


def set_user_settings(user: str, settings: Mapping[str, Any]) -> Call[dict[str, Any]]:
    """Overrides settings for one user, None removes an override; returns all overrides. Those of a session are
    given when it is opened. Raises InvalidSettingError."""
    return _scalar("set_user_settings", _as_is, {"user": ("text", user), "settings": ("jsonb", settings)})


def list_settings() -> Call[list[dict[str, Any]]]:
    """Every setting: key, value, default_value, kind, min_value, max_value, overridable, description."""
    return _table("list_settings", dict[str, Any], {})


def register_model(
    model: str,
    provider: Literal["openai", "anthropic"],
    context_window: int,
    max_output: int,
    *,
    tokenizer: str | None = None,
    message_overhead: int | None = None,
    prompt_microcents_per_1k: int | None = None,
    completion_microcents_per_1k: int | None = None,
    images: str | None = None,
) -> Call[None]:
    """Registers or replaces a chat model; admin only. Window, output and overhead per message in tokens, prices in
    microcents (1e-8 of the currency's unit) per 1,000 tokens; `images`: the rule by which images count, such as
    "tiles:1", "patches:1.62" or "area:1568:1600". Raises InvalidArgumentError, NotAuthorizedError."""
    return _scalar(
        "register_model",
        _nothing,
        {
            "model": ("text", model),
            "provider": ("text", provider),
            "context_window": ("int", context_window),
            "max_output": ("int", max_output),
            "tokenizer": ("text", tokenizer),
            "message_overhead": ("int", message_overhead),
            "prompt_microcents_per_1k": ("bigint", prompt_microcents_per_1k),
            "completion_microcents_per_1k": ("bigint", completion_microcents_per_1k),
            "images": ("text", images),
        },
    )


def register_embedding_model(
    name: str,
    provider: str,
    dimension: int,
    *,
    query_prefix: str | None = None,
    document_prefix: str | None = None,
    endpoint: str | None = None,
) -> Call[int]:
    """Registers an embedding model beside the present one; the backlog is then embedded with both until
    switch_embedding_model. Returns its number."""
    return _scalar(
        "register_embedding_model",
        int,
        {
            "name": ("text", name),
            "provider": ("text", provider),
            "dimension": ("int", dimension),
            "query_prefix": ("text", query_prefix),
            "document_prefix": ("text", document_prefix),
            "endpoint": ("text", endpoint),
        },
    )


def switch_embedding_model(name: str) -> Call[None]:
    """Makes a registered embedding model the one that queries use, in one transaction. Raises UnknownModelError."""
    return _scalar("switch_embedding_model", _nothing, {"name": ("text", name)})


def embedding_progress() -> Call[list[dict[str, Any]]]:
    """How much of the backlog each embedding model has, one dict each."""
    return _table("embedding_progress", dict[str, Any], {})


def queue_backfill(model: str, *, limit: int | None = None, after: UUID | str | None = None) -> Call[UUID | None]:
    """Queues what an embedding model has not reached, for up to `limit` (1000) users after `after`; returns the last
    user, to go on from, or None at the end. Raises UnknownModelError."""
    return _scalar("queue_backfill", _as_is, {"model": ("text", model), "limit": ("int", limit), "after": ("uuid", after)})


def drop_retired_embeddings(*, limit: int | None = None) -> Call[int]:
    """Drops up to `limit` (10,000) vectors of retired models; returns how many."""
    return _scalar("drop_retired_embeddings", int, {"limit": ("int", limit)})


def claim_embeddings(*, limit: int | None = None, model: str | None = None) -> Call[list[Claim]]:
    """Leases up to `limit` (64) texts of the backlog to this worker."""
    return _table("claim_embeddings", Claim, {"limit": ("int", limit), "model": ("text", model)})


def store_embeddings(user_ids: Sequence[UUID], item_nos: Sequence[int], embeddings: Sequence[Vector], model: str) -> Call[int]:
    """Stores vectors for claimed texts, place by place; returns how many. Raises DimensionMismatchError."""
    return _scalar(
        "store_embeddings",
        int,
        {
            "user_ids": ("uuid[]", user_ids),
            "item_nos": ("int[]", item_nos),
            "embeddings": ("real[][]", embeddings),
            "model": ("text", model),
        },
    )


def claim_judgements(*, limit: int | None = None) -> Call[list[PairClaim]]:
    """Leases about `limit` (16) pairs of similar memories to this judge."""
    return _table("claim_judgements", PairClaim, {"limit": ("int", limit)})


def store_judgements(
    user_ids: Sequence[UUID], memory_ids: Sequence[UUID], other_ids: Sequence[UUID], scores: Sequence[float], judge: str
) -> Call[int]:
    """Stores how surely claimed pairs contradict each other, 0 to 1, place by place; returns how many. `judge`: who found it."""
    return _scalar(
        "store_judgements",
        int,
        {
            "user_ids": ("uuid[]", user_ids),
            "memory_ids": ("uuid[]", memory_ids),
            "other_ids": ("uuid[]", other_ids),
            "scores": ("real[]", scores),
            "judge": ("text", judge),
        },
    )


def fail_judgements(user_ids: Sequence[UUID], memory_ids: Sequence[UUID], error: str) -> Call[None]:
    """Gives claimed pairs of these memories back after an error."""
    return _scalar(
        "fail_judgements", _nothing, {"user_ids": ("uuid[]", user_ids), "memory_ids": ("uuid[]", memory_ids), "error": ("text", error)}
    )


def merge_search() -> Call[None]:
    """Merges the fresh tails of the search structures, user by user."""
    return _procedure("merge_search")


def ensure_partitions() -> Call[None]:
    """Makes the partitions of the months ahead."""
    return _procedure("ensure_partitions")


def flush_statistics() -> Call[None]:
    """Flushes the buffered access statistics and the ledger."""
    return _procedure("flush_statistics")


def run_job(job: str, *, seconds: int | None = None) -> Call[None]:
    """Runs a maintenance job until nothing is left to do, for at most `seconds`; the connection needs statement_timeout 0.
    A job that runs already, and a standby, are left alone. Raises JobFailedError, InvalidArgumentError, NotAuthorizedError."""
    return _procedure("run_job", {"job": ("text", job), "seconds": ("int", seconds)})


def list_jobs() -> Call[list[Job]]:
    """Maintenance jobs with their schedules, when they were last due, and how their last run went."""
    return _table("list_jobs", Job, {})


def retry_job(job: int) -> Call[bool]:
    """Gives a dead letter of the queue another set of attempts; False if there is none of that number. Admin only."""
    return _scalar("retry_job", bool, {"job": ("bigint", job)})


def bare_statements() -> Call[list[dict[str, Any]]]:
    """What maintenance can't do inside a function, as statements to send one by one, each with its reason. Jobs and admin only."""
    return _table("bare_statements", dict[str, Any], {})


def archive_plan() -> Call[list[dict[str, Any]]]:
    """Months of turns past retention: part, month, turns, uncompacted, sessions_open, export (how far it is). Admin only."""
    return _table("archive_plan", dict[str, Any], {})


def export_month(part: int, month: date, *, after: str | None = None, limit: int | None = None) -> Call[list[dict[str, Any]]]:
    """Turns of a month and hash part, `limit` (1000) at a time behind the key `after`: dicts of key and turn. Admin only."""
    return _table(
        "export_month", dict[str, Any], {"part": ("int", part), "month": ("date", month), "after": ("text", after), "limit": ("int", limit)}
    )


def confirm_export(part: int, month: date, turns: int, destination: str) -> Call[bool]:
    """Says that all `turns` of a month and hash part are written away, and where; the job archive then drops them. False if none
    is waiting. Admin only. Raises InvalidArgumentError if there are not so many."""
    return _scalar(
        "confirm_export", bool, {"part": ("int", part), "month": ("date", month), "turns": ("bigint", turns), "destination": ("text", destination)}
    )


def export_memories(*, limit: int | None = None) -> Call[list[dict[str, Any]]]:
    """Archived memories whose text is still here, up to `limit` (1000): dicts of user_id, memory_id and memory. Admin only."""
    return _table("export_memories", dict[str, Any], {"limit": ("int", limit)})


def confirm_memories(user_ids: Sequence[UUID], memory_ids: Sequence[UUID]) -> Call[int]:
    """Says that archived memories are written away, place by place: their text goes. Returns how many. Admin only."""
    return _scalar("confirm_memories", int, {"user_ids": ("uuid[]", user_ids), "memory_ids": ("uuid[]", memory_ids)})


def claim_model_calls(limit: int | None = None) -> Call[list[ModelWork]]:
    """Leases up to `limit` (4) pieces of work for a language model, with the input of their prompts."""
    return _table("claim_model_calls", ModelWork, {"limit": ("int", limit)})


def store_model_result(job: int, lease: UUID, output: Mapping[str, Any], made_by: str, usage: Mapping[str, int] | None = None) -> Call[dict[str, Any]]:
    """Stores what a model answered for claimed work, who made it, and the tokens it took; returns stored, tokens, cost."""
    return _scalar(
        "store_model_result",
        _as_is,
        {"job": ("bigint", job), "lease": ("uuid", lease), "output": ("jsonb", output), "made_by": ("text", made_by), "usage": ("jsonb", usage)},
    )


def fail_model_call(
    job: int, lease: UUID, error: str, final: bool | None = None, retry_seconds: float | None = None, usage: Mapping[str, int] | None = None
) -> Call[dict[str, Any]]:
    """Gives model work back after a failed call, to be tried again, or with `final` as a dead letter."""
    return _scalar(
        "fail_model_call",
        _as_is,
        {
            "job": ("bigint", job),
            "lease": ("uuid", lease),
            "error": ("text", error),
            "final": ("boolean", final),
            "retry_seconds": ("numeric", retry_seconds),
            "usage": ("jsonb", usage),
        },
    )


def release_job(job: int, lease: UUID) -> Call[bool]:
    """Gives a claimed job back that was not begun; False if the lease had run out."""
    return _scalar("release_job", bool, {"job": ("bigint", job), "lease": ("uuid", lease)})


def heartbeat(job: int, lease: UUID, seconds: int | None = None) -> Call[bool]:
    """Keeps a lease for another `seconds` (300); False if it ran out."""
    return _scalar("heartbeat", bool, {"job": ("bigint", job), "lease": ("uuid", lease), "seconds": ("int", seconds)})


def llm_config() -> Call[dict[str, Any] | None]:
    return _scalar("llm_config", _as_is, {})
