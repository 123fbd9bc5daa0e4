"""In and out: import, export."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from typing import Annotated

import typer
from pg_memoir import Memoir
from pg_memoir.plans import is_export

from ..app import ATTENTION, OK, AsJson, Dsn, User, app, connected
from ..importing import import_conversations
from ..show import as_json, printable


@app.command("import", rich_help_panel="Conversations")
def import_(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Files, told by their content; .zip too.")],
    user: Annotated[
        str | None, typer.Option(help="Whose conversations they are (default: as the file says, else its name).")
    ] = None,
    user_prefix: Annotated[
        str | None, typer.Option(help="Goes before the users' names in the file (LoCoMo: locomo:).")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Chat model of the sessions.")] = None,
    skip_bad: Annotated[bool, typer.Option(help="Go on after a conversation that can't be imported.")] = False,
    dsn: Dsn = "",
    json: AsJson = False,
) -> int:
    """Import conversations, with their dates.

    Reads OpenAI-style JSON and JSONL, ShareGPT, LoCoMo, the exports of ChatGPT and Claude (the .zip as it is mailed, or
    conversations.json), and what `pg-memoir export` wrote. A second run adds only what is missing: an import that was
    interrupted goes on where it stopped, a newer export of the same conversations adds what is new.

    `pg-memoir import chatgpt-export.zip --user alice`

    Ends with 3 where --skip-bad left conversations out; they are named on standard error.
    """
    left_out = 0
    with connected(dsn) as memoir:
        for file in files:
            if _restore_export(memoir, file, user, json):
                continue
            done = import_conversations(
                memoir, file, user=user, user_prefix=user_prefix, model=model, skip_bad=skip_bad
            )
            for error in done.refused:
                print(f"left out: {printable(str(error))}", file=sys.stderr)
            left_out += len(done.refused)
            if json:
                counts = {"conversations": done.conversations, "messages": done.messages, "users": done.users}
                as_json({"file": file, **counts, "left_out": [str(error) for error in done.refused]}, lines=True)
            else:
                users = done.users[0] if len(done.users) == 1 else f"{len(done.users)} users"
                print(f"{file}: {done.conversations} conversations, {done.messages} messages, {printable(users)}")
    return ATTENTION if left_out else OK


def _restore_export(memoir: Memoir, file: str, user: str | None, json: bool) -> bool:
    """Imports a file if it is an export of a user; False if it is anything else."""
    with open(file, encoding="utf-8-sig", errors="replace") as lines:
        first = lines.readline(100_000)
        if not is_export(first):
            return False
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
