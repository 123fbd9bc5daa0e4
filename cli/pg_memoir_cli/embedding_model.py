"""Registers an embedding model, embeds everything with it, and makes it the one that questions use.

What is there goes on working meanwhile: until the last step questions use the former model. Run again after an
interruption, it goes on where it stopped. An admin's login.
"""

from __future__ import annotations

import argparse
import os
import sys

import psycopg
from pg_memoir import Memoir

from .embedder import load_embedder
from .repeat import PASSING


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add = parser.add_argument
    add("model", metavar="MODEL", help="a folder on this machine and the server's, or its name at the endpoint")
    add("--dsn", default=os.environ.get("PG_MEMOIR_DSN", ""), help="connection string (default: $PG_MEMOIR_DSN)")
    add("--endpoint", metavar="URL", help="an OpenAI-compatible server that has it, such as http://localhost:11434/v1")
    add("--api-key-env", metavar="NAME", help="the variable that holds the endpoint's key")
    add("--languages", nargs="+", metavar="XX", help="those that it reads, as en de zh (default: all)")
    add("--query-prefix", default="", help='what it wants before a question, such as "query: "')
    add("--document-prefix", default="", help='what it wants before a text, such as "passage: "')
    add("--threads", type=int, default=1, help="CPU threads of the model (%(default)s)")


def switch(memoir: Memoir, options: argparse.Namespace) -> int:
    """Returns how many vectors it made."""
    embed = load_embedder(
        model=options.model, endpoint=options.endpoint, api_key_env=options.api_key_env, threads=options.threads
    )
    name = options.model if options.endpoint else os.path.abspath(os.path.expanduser(options.model))
    memoir.register_embedding_model(
        name,
        "openai" if options.endpoint else "embedder",
        len(embed(["dimension"])[0]),
        query_prefix=options.query_prefix,
        document_prefix=options.document_prefix,
        endpoint=options.endpoint,
        languages=options.languages,
    )
    after = memoir.queue_backfill(name)
    while after:
        after = memoir.queue_backfill(name, after=after)
    made = memoir.embed_backlog(embed, model=name)
    if not options.endpoint:
        with psycopg.connect(options.dsn, autocommit=True) as admin:
            _ready(admin, name)
    memoir.switch_embedding_model(name)
    # What was said since.
    return made + memoir.embed_backlog(embed, model=name)


def _ready(admin: psycopg.Connection, name: str) -> None:
    """Starts the server's embedder anew where that is done from the database: questions wait for no job."""
    try:
        admin.execute("select memoir.ensure_embedder()")
    except psycopg.Error as error:
        print(f"pg-memoir: start the embedder with {name} before it is asked: {error.diag.message_primary}")


def main(options: argparse.Namespace) -> int:
    """Runs the command; returns the exit code."""
    try:
        with Memoir(options.dsn, max_size=1) as memoir:
            made = switch(memoir, options)
    except PASSING as error:
        print(f"pg-memoir embedding-model: {error}", file=sys.stderr)
        return 1
    print(f"{options.model}: {made} texts embedded; questions use it now")
    return 0
