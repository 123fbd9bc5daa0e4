"""Command line: `pg-memoir import FILE`, `export USER`, `worker`, `embedding-model MODEL`."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import sys
from typing import Any

import psycopg
from pg_memoir import Memoir, MemoirError, __version__
from pg_memoir.plans import is_export

from . import embedding_model, worker
from .formats import ConversationError
from .importing import import_conversations


def main(arguments: list[str] | None = None) -> int:
    """Runs a command; returns the exit code: 0, 1 after an error, 2 if an import left conversations out."""
    parser = argparse.ArgumentParser(prog="pg-memoir", description="Memory for AI agents in PostgreSQL.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True)

    own = os.environ.get("PG_MEMOIR_DSN", "")
    dsn: dict[str, Any] = {"default": own, "help": "connection string (default: $PG_MEMOIR_DSN)"}

    what = "Imports OpenAI-style JSON or JSONL, ShareGPT, LoCoMo or an export; a re-run adds only what is missing."
    importer = commands.add_parser("import", help="import conversations", description=what)
    importer.add_argument("files", nargs="+", metavar="FILE")
    importer.add_argument("--dsn", **dsn)
    importer.add_argument("--user", help="whose conversations they are (default: as the file says, else its name)")
    importer.add_argument("--user-prefix", help="goes before the users' names in the file (LoCoMo: locomo:)")
    importer.add_argument("--model", help="chat model of the sessions")
    importer.add_argument("--skip-bad", action="store_true", help="go on after a conversation that can't be imported")
    importer.set_defaults(run=_import)

    what = "Writes all that is kept of a user as lines of JSON."
    exporter = commands.add_parser("export", help="export a user", description=what)
    exporter.add_argument("user", metavar="USER")
    exporter.add_argument("--dsn", **dsn)
    exporter.add_argument("--embeddings", action="store_true", help="vectors too")
    exporter.add_argument("--output", metavar="FILE", help="a new file, for its owner only (default: standard output)")
    exporter.set_defaults(run=_export)

    what = (worker.__doc__ or "").splitlines()[0]
    embedding = commands.add_parser("worker", help="embed the backlog, run jobs", description=what)
    worker.add_arguments(embedding)
    embedding.set_defaults(run=worker.main)

    what = (embedding_model.__doc__ or "").splitlines()[0]
    other = commands.add_parser("embedding-model", help="go over to another embedding model", description=what)
    embedding_model.add_arguments(other)
    other.set_defaults(run=embedding_model.main)

    options = parser.parse_args(arguments)
    return int(options.run(options))


def _export(options: argparse.Namespace) -> int:
    try:
        with Memoir(options.dsn, max_size=1) as memoir, contextlib.ExitStack() as files:
            out = sys.stdout
            if options.output:
                descriptor = os.open(options.output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                out = files.enter_context(os.fdopen(descriptor, "w", encoding="utf-8"))
            for line in memoir.export_lines(options.user, embeddings=options.embeddings):
                out.write(line + "\n")
    except (MemoirError, psycopg.Error, OSError) as error:
        print(f"pg-memoir export: {error}", file=sys.stderr)
        return 1
    return 0


def _restore(memoir: Memoir, file: str, user: str | None) -> bool:
    """Imports a file if it is an export of a user; False if it is anything else."""
    with open(file, encoding="utf-8-sig", errors="replace") as lines:
        first = lines.readline(100_000)
        if not is_export(first):
            return False
        done = memoir.import_lines(itertools.chain([first], lines), user=user)
    refused = f", {sum(done.refused.values())} refused" if done.refused else ""
    present = sum(done.present.values())
    print(f"{file}: {sum(done.imported.values())} rows of {done.user}, {present} there already{refused}")
    return True


def _import(options: argparse.Namespace) -> int:
    refused = 0
    try:
        with Memoir(options.dsn, max_size=1) as memoir:
            for file in options.files:
                if _restore(memoir, file, options.user):
                    continue
                done = import_conversations(
                    memoir,
                    file,
                    user=options.user,
                    user_prefix=options.user_prefix,
                    model=options.model,
                    skip_bad=options.skip_bad,
                )
                for error in done.refused:
                    print(f"left out: {error}", file=sys.stderr)
                refused += len(done.refused)
                users = done.users[0] if len(done.users) == 1 else f"{len(done.users)} users"
                print(f"{file}: {done.conversations} conversations, {done.messages} messages, {users}")
    except (ConversationError, MemoirError, psycopg.Error, OSError) as error:
        print(f"pg-memoir import: {error}", file=sys.stderr)
        return 1
    return 2 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
