"""Embeds the backlog from outside the database: `python -m pg_memoir.worker`.

For installs without PL/Python (managed PostgreSQL) or with the model on another machine. Any number may run at once;
each batch is claimed, embedded with no transaction open, and stored. SIGTERM and SIGINT stop it after the batch at hand.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable

import psycopg

from .client import Memoir
from .embedders import DEFAULT_MODEL, EmbedderUnavailable, load_embedder
from .errors import MemoirError
from .types import Embed

log = logging.getLogger("pg_memoir.worker")

_LONGEST_WAIT = 60.0  # seconds between tries after failures


def run(
    memoir: Memoir,
    embed: Embed,
    *,
    limit: int = 64,
    model: str | None = None,
    interval: float = 5.0,
    once: bool = False,
    stop: threading.Event | None = None,
) -> int:
    """Keeps the backlog empty until `stop` is set, or until it is empty with `once`; returns how many were embedded.

    `limit`: texts a batch; `interval`: seconds between looks at an empty backlog. With `once` an error passes through;
    otherwise it is logged and tried again, at intervals doubling up to a minute.
    """
    stop = stop or threading.Event()
    total, failures = 0, 0
    while not stop.is_set():
        try:
            stored = memoir.embed_backlog(embed, limit=limit, model=model, max_items=limit)
        except (MemoirError, psycopg.Error, EmbedderUnavailable, OSError) as error:
            if once:
                raise
            failures += 1
            wait = min(_LONGEST_WAIT, interval * 2 ** min(failures, 10))
            log.warning("%s; next try in %.0f s", error, wait)
            stop.wait(wait)
            continue
        failures = 0
        total += stored
        if stored:
            log.info("embedded %d, %d in all", stored, total)
        elif once:
            break
        else:
            stop.wait(interval)
    return total


def add_arguments(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """Describes the worker's options to `parser`; returns what runs it."""
    parser.add_argument("--dsn", default=os.environ.get("PG_MEMOIR_DSN", ""), help="connection string (default: $PG_MEMOIR_DSN)")
    parser.add_argument("--provider", default="auto", help="auto, onnx, sentence-transformers or openai")
    parser.add_argument("--model", default=DEFAULT_MODEL, help="the model's name for the provider, or a folder (%(default)s)")
    parser.add_argument("--registered-as", help="embedding model of the database to work for (default: --model's name)")
    parser.add_argument("--endpoint", help="base of an OpenAI-compatible API, such as http://localhost:11434/v1")
    parser.add_argument("--api-key-env", help="variable that holds the endpoint's key")
    parser.add_argument("--limit", type=int, default=64, help="texts a batch (%(default)s)")
    parser.add_argument("--interval", type=float, default=5.0, help="seconds between looks at an empty backlog (%(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of the model (%(default)s)")
    parser.add_argument("--once", action="store_true", help="stop when the backlog is empty")
    return _main


def _main(options: argparse.Namespace) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    stop = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stop.set())
    try:
        embed = load_embedder(
            options.provider, options.model, endpoint=options.endpoint, api_key_env=options.api_key_env, threads=options.threads
        )
        with Memoir(options.dsn, max_size=1) as memoir:
            # Never vectors of this model for another that is being backfilled too.
            name = options.registered_as or os.path.basename(options.model.rstrip("/"))
            total = run(memoir, embed, limit=options.limit, model=name, interval=options.interval, once=options.once, stop=stop)
    except (MemoirError, psycopg.Error, EmbedderUnavailable, OSError) as error:
        print(f"pg_memoir.worker: {error}", file=sys.stderr)
        return 1
    log.info("stopped after %d", total)
    return 0


if __name__ == "__main__":
    _parser = argparse.ArgumentParser(prog="python -m pg_memoir.worker", description=(__doc__ or "").splitlines()[0])
    _run = add_arguments(_parser)
    sys.exit(_run(_parser.parse_args()))
