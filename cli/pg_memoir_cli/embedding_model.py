"""Registers an embedding model, embeds everything with it, and makes it the one that questions use.

What is there goes on working meanwhile: until the last step questions use the former model. Run again after an
interruption, it goes on where it stopped. An admin's login.
"""

from __future__ import annotations

import os
from typing import Any

import psycopg
from pg_memoir import Memoir

from .embedder import load_embedder


def switch(
    memoir: Memoir,
    dsn: str,
    model: str,
    *,
    endpoint: str | None = None,
    api_key_env: str | None = None,
    threads: int = 1,
    **registered: Any,
) -> int:
    """Returns how many vectors it made. `registered`: what register_embedding_model takes besides."""
    embed = load_embedder(model=model, endpoint=endpoint, api_key_env=api_key_env, threads=threads)
    name = model if endpoint else os.path.abspath(os.path.expanduser(model))
    memoir.register_embedding_model(
        name,
        "openai" if endpoint else "embedder",
        len(embed(["dimension"])[0]),
        endpoint=endpoint,
        **registered,
    )
    memoir.run_job("backfill", seconds=3600)
    made = memoir.embed_backlog(embed, model=name)
    if not endpoint:
        with psycopg.connect(dsn, autocommit=True) as admin:
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
