"""Changing what is known, and how it is kept: forget, erase, sync, settings."""

from __future__ import annotations

import sys
from json import loads
from typing import Annotated, Any
from uuid import UUID

import typer
from pg_memoir import Memoir

from ..app import ATTENTION, FAILED, OK, AsJson, Dsn, Stop, User, app, connected
from ..show import Column, as_json, printable, table

_CHANGING = "Changing"


@app.command(rich_help_panel=_CHANGING)
def forget(
    user: User,
    what: Annotated[str, typer.Argument(help="A memory's id, or words that name what to forget.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")] = False,
    reason: Annotated[str | None, typer.Option(help="Why (with an id); kept in the audit log.")] = None,
    dsn: Dsn = "",
    json: AsJson = False,
) -> int:
    """Forget something: first shows what that would take, then asks.

    `pg-memoir forget alice "my locker code"`, or `pg-memoir forget alice 0198…` for one memory.

    What is forgotten leaves a tombstone, so that it does not come back. Words can be taken back for a while (`pg-memoir
    list alice changes`, undo_change). To take bytes out of the files, erase (docs/guides/privacy.md).

    Ends with 3 where words name nothing clearly; nothing is forgotten then. Without a terminal and --yes it only shows.
    """
    with connected(dsn) as memoir:
        memory = _uuid(what)
        preview = _memory(memoir, user, memory) if memory else memoir.forget_about(user, what, preview=True)
        if not json or not yes:
            _show(preview, json)
        if preview["outcome"] != "preview":
            return ATTENTION
        if not yes and not (sys.stdin.isatty() and typer.confirm("Forget this?", err=True)):
            print("nothing is forgotten" + ("" if sys.stdin.isatty() else "; --yes does it"), file=sys.stderr)
            return FAILED
        if memory:
            done = {"outcome": "forgotten"} | memoir.forget(user, memory, reason=reason)
        else:
            done = memoir.forget_about(user, what)
        if json:
            as_json(done)
        else:
            print("forgotten" + (f"; change {done['change_id']}" if done.get("change_id") else ""))
        return OK


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _memory(memoir: Memoir, user: str, memory: UUID) -> dict[str, Any]:
    """What forgetting a memory would take, as forget_about tells it."""
    found = memoir.memory_get(user, [memory])
    if not found or found[0]["kind"] != "memory":
        raise Stop(f"{user} has no memory {memory}", "list and search show the ids of memories")
    turns = [
        {"session": source.get("session"), "turn": source.get("turn_index"), "text": None}
        for source in found[0]["sources"]
        if source["kind"] == "turn"
    ]
    return {
        "outcome": "preview",
        "memories": [{"memory_id": str(memory), "content": found[0].get("content")}],
        "turns": turns,
    }


def _show(preview: dict[str, Any], json: bool) -> None:
    if json:
        return as_json(preview)
    if preview["outcome"] == "unclear":
        print("that names several things; nothing is forgotten. Say more, or give a memory's id", file=sys.stderr)
    elif preview["outcome"] == "nothing":
        print("nothing is known of that", file=sys.stderr)
    for memory in preview.get("memories", []):
        print(f"memory {memory['memory_id']}: {printable(str(memory['content']))}")
    for turn in preview.get("turns", []):
        said = f": {printable(turn['text'])}" if turn["text"] else ""
        print(f"turn {turn['session']}:{turn['turn']}{said}")


@app.command(rich_help_panel=_CHANGING)
def erase(
    user: User,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")] = False,
    dsn: Dsn = "",
    json: AsJson = False,
) -> int:
    """Erase a user: every row in every table. This cannot be taken back.

    `pg-memoir export USER` first keeps a copy. The job erase then takes the bytes out of the files, and rows live on in
    backups until you recycle them (docs/guides/privacy.md).

    Without a terminal and --yes it erases nothing.
    """
    with connected(dsn) as memoir:
        if not yes and not (sys.stdin.isatty() and typer.confirm(f"Erase all that is kept of {user}?", err=True)):
            print("nothing is erased" + ("" if sys.stdin.isatty() else ". --yes does it"), file=sys.stderr)
            return FAILED
        done = memoir.erase_user(user)
    if json:
        as_json(done)
    else:
        print(f"erased: {done['total']} rows")
    return OK


@app.command(rich_help_panel=_CHANGING)
def settings(
    key: Annotated[str | None, typer.Argument(help="Only this setting.", show_default=False)] = None,
    value: Annotated[str | None, typer.Argument(help="Set it to this: JSON, or a text.", show_default=False)] = None,
    user: Annotated[str | None, typer.Option(help="Set it for one user only.", show_default=False)] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Set it to its default.")] = False,
    dsn: Dsn = "",
    json: AsJson = False,
) -> int:
    """List the settings of a server, or change one.

    `pg-memoir settings recall_tokens_max 2000`. docs/reference/settings.md explains them. An admin's login.
    """
    with connected(dsn) as memoir:
        if key is None or (value is None and not reset):
            rows = [row for row in memoir.list_settings() if key in (None, row["key"])]
            if key and not rows:
                raise Stop(f"there is no setting {key}", "pg-memoir settings lists them")
            table(rows, ["key", "value", ("default", lambda row: row["default_value"]), "description"], json=json)
        elif user is not None:
            memoir.set_user_settings(user, {key: None if reset else _read_value(value)})
        elif reset:
            memoir.reset_setting(key)
        else:
            memoir.set_setting(key, _read_value(value))
    return OK


def _read_value(text: str | None) -> Any:
    """JSON, or the text itself: nobody writes quotation marks into a shell."""
    try:
        return loads(text or "")
    except ValueError:
        return text


@app.command(rich_help_panel=_CHANGING)
def sync(
    user: User,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only tell what it would take; nothing is written.")
    ] = False,
    model: Annotated[str | None, typer.Option(help="Only for this embedding model.")] = None,
    dsn: Dsn = "",
    json: AsJson = False,
) -> int:
    """Bring a user's vectors up to date: queue what has none yet, by embedding model.

    `pg-memoir sync alice --dry-run` tells the texts, tokens and price (units of the currency the model is registered
    with) first. A worker, or the database's own job, makes the vectors; each batch leaves a row in the audit log, and
    a second sync tells how far it is.

    Left out: what is secret, expired, or marked as not embeddable.

    Ends with 3 where an error stands in the way.
    """
    with connected(dsn) as memoir:
        rows = memoir.sync_semantic(user, dry_run=dry_run, model=model)
    columns: list[Column] = [
        "model", "status", "texts", "tokens", ("price", lambda row: f"{row['microcents'] / 1e8:.6f}"),
        ("cursor", lambda row: f"{row['cursor']} of {row['items']}"), "secret", "expired", "not_embeddable",
        "snapshots", "queued", "last_batch_at", "last_error",
    ]  # fmt: skip
    table(rows, columns, json=json)
    return ATTENTION if any(row.last_error for row in rows) else OK
