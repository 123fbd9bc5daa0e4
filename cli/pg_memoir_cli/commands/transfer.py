"""In and out: import, export."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from typing import Annotated, Any

import typer
from pg_memoir import Memoir
from pg_memoir.extras.plans import is_export

from ..app import ATTENTION, OK, USAGE, AsJson, Dsn, Stop, User, app, connected
from ..formats import FORMATS, read_conversations
from ..importing import Imported, import_conversations, preview
from ..show import as_json, printable, table

_COUNTS = {
    "conversations": "conversations",
    "messages": "messages",
    "memories": "memories",
    "ended": "of them ended",
    "changed": "memories changed",
    "present": "memories there already",
    "forgotten": "memories forgotten or corrected here before",
    "relations": "relations",
}
_NAMED = 5  # errors of one reason that are named


@app.command("import", rich_help_panel="Conversations")
def import_(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Files, told by their content; .zip too.")],
    user: Annotated[
        str | None, typer.Option(help="Whose all of it is (default: as the file says, else its name).")
    ] = None,
    user_prefix: Annotated[
        str | None, typer.Option(help="Goes before the users' names in the file (LoCoMo: locomo:).")
    ] = None,
    map_: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="NAME=USER", help="A user or agent of the file is this user here. Repeatable."),
    ] = None,
    format: Annotated[
        str | None, typer.Option(help=f"Read this format only: {', '.join(FORMATS)} (default: by the content).")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Chat model of the sessions.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first that can't be read.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would come in, and store nothing.")] = False,
    dsn: Dsn = "",
    json: AsJson = False,
) -> int:
    """Import conversations and memories, with their dates.

    Reads OpenAI-style JSON and JSONL, ShareGPT, LoCoMo, the exports of ChatGPT and Claude (the .zip as it is mailed, or
    conversations.json), transcripts of Claude Code, what mem0, Zep, Letta (.af), Hindsight and OpenMemory export, and
    what `pg-memoir export` wrote. A second run adds only what is missing: an import that was interrupted goes on where
    it stopped, a newer export adds what is new.

    `pg-memoir import chatgpt-export.zip --user alice`

    Ends with 3 where it left something out. Standard error says what, where and why.
    """
    if format is not None and format not in FORMATS:
        raise Stop(f"unknown format {format!r}", f"one of {', '.join(FORMATS)}", USAGE)
    read: dict[str, Any] = dict(user=user, user_prefix=user_prefix, format=format, users=_read_map(map_ or []))
    left_out = 0
    with contextlib.ExitStack() as opened:
        memoir = None if dry_run else opened.enter_context(connected(dsn))
        for file in files:
            if format is None and _restore_export(memoir, file, user, json):
                continue
            if memoir is None:
                done, rows = preview(read_conversations(file, **read).items)
                if rows and not json:
                    table(rows, ("kind", "user", "said_at", "text"))
            else:
                done = import_conversations(memoir, file, model=model, skip_bad=not strict, **read)
            left_out += len(done.refused)
            _report(file, done, dry_run, json)
    return ATTENTION if left_out else OK


def _read_map(given: list[str]) -> dict[str, str]:
    for pair in given:
        if not all(pair.rpartition("=")):
            raise Stop(f"--map {pair!r} is not of the form NAME=USER", code=USAGE)
    return {name: user for name, _, user in (pair.rpartition("=") for pair in given)}


def _report(file: str, done: Imported, dry_run: bool, json: bool) -> None:
    """Says what came in, and what did not: the first of each reason by its place, the rest by number."""
    reasons: dict[str, list[str]] = {}
    for error in done.refused:
        reasons.setdefault(error.reason, []).append(str(error))
    for reason, errors in reasons.items():
        for named in errors[:_NAMED]:
            print(f"left out: {printable(named)}", file=sys.stderr)
        if len(errors) > _NAMED:
            print(f"left out: {len(errors)} in all because {printable(reason)}", file=sys.stderr)
    counts = {name: getattr(done, name) for name in _COUNTS}
    if json:
        because = {reason: len(errors) for reason, errors in reasons.items()}
        left_out = [str(error) for error in done.refused]
        more = {"dry_run": dry_run, "left_out": left_out, "reasons": because}
        return as_json({"file": file, **counts, "users": done.users, **more}, lines=True)
    users = done.users[0] if len(done.users) == 1 else f"{len(done.users)} users"
    told = [
        f"{count} {_COUNTS[name]}" for name, count in counts.items() if count or name in ("conversations", "messages")
    ]
    print(f"{file}: {'would import ' if dry_run else ''}{', '.join(told)}, {printable(users)}")


def _restore_export(memoir: Memoir | None, file: str, user: str | None, json: bool) -> bool:
    """Imports a file if it is an export of a user; False if it is anything else. Without a database it counts lines."""
    with open(file, encoding="utf-8-sig", errors="replace") as lines:
        first = lines.readline(100_000)
        if not is_export(first):
            return False
        if memoir is None:
            rows = sum(1 for line in lines if line.strip()) - 1  # the last one says that it is the end
            print(f"{file}: would import {rows} rows of an export by pg-memoir")
            return True
        done = memoir.import_lines(itertools.chain([first], lines), user=user)
    counts = {name: sum(getattr(done, name).values()) for name in ("imported", "present", "refused")}
    if json:
        as_json({"file": file, "user": done.user, **counts}, lines=True)
    else:
        refused = f", {counts['refused']} refused" if counts["refused"] else ""
        print(f"{file}: {counts['imported']} rows of {done.user}, {counts['present']} there already{refused}")
    return True


@app.command("export", rich_help_panel="Conversations")
def export(
    user: User,
    embeddings: Annotated[bool, typer.Option("--embeddings", help="Vectors too.")] = False,
    output: Annotated[
        str | None, typer.Option(metavar="FILE", help="A new file, for its owner only (default: standard output).")
    ] = None,
    dsn: Dsn = "",
) -> None:
    """Write all that is kept of a user, as lines of JSON.

    `pg-memoir export alice --output alice.jsonl` and, on another server, `pg-memoir import alice.jsonl`.

    Secrets are in it: treat the file like the database.
    """
    with connected(dsn) as memoir, contextlib.ExitStack() as opened:
        out = sys.stdout
        if output:
            descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            out = opened.enter_context(os.fdopen(descriptor, "w", encoding="utf-8"))
        for line in memoir.export_lines(user, embeddings=embeddings):
            out.write(line + "\n")
