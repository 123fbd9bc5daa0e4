"""`pg-memoir gateway`: runs the gateway in the foreground, or checks its settings."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import secrets
import sys
from dataclasses import replace

import httpx
import psycopg
import uvicorn
from pg_memoir import AsyncMemoir
from pg_memoir.types import AsyncEmbed

from .app import create_app
from .config import MODES, Config, ConfigError, load
from .protocol import BoundedProtocol
from .rest import make_document

# So soon a thread that reads something large lets the event loop go on. Python's own 5 ms add up over a request.
SWITCH_SECONDS = 0.001


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command line may say."""
    parser.add_argument("--dsn", help="connection string (default: $PG_MEMOIR_DSN, or the server of pg-memoir up)")
    parser.add_argument("--config", metavar="FILE", help="settings (default: $PG_MEMOIR_GATEWAY_CONFIG)")
    parser.add_argument("--host", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on (default: 8787)")
    parser.add_argument("--mode", choices=MODES, help="what may be done to requests (default: manage)")
    parser.add_argument("--user", help="whose requests they are, where no users are listed (default: local)")
    parser.add_argument("--openapi", action="store_true", help="print the OpenAPI document of the REST API, and end")
    parser.add_argument("--check", action="store_true", help="print the settings, try what they name, and end")


def main(options: argparse.Namespace) -> int:
    """Runs it; returns the exit code."""
    if options.openapi:
        print(json.dumps(make_document(), indent=2))
        return 0
    given = {name: getattr(options, name) or None for name in ("dsn", "host", "mode", "user")}
    try:
        private = getattr(options, "private_dsn", "")
        config = load(os.environ, options.config, given | {"port": options.port}, private_dsn=private)
    except ConfigError as error:
        print(f"pg-memoir gateway: {error}", file=sys.stderr)
        return 1
    if options.check:
        return asyncio.run(check(config))
    # Without one of its own, the inspector's is made for as long as the process lives.
    config = replace(config, inspect_token=config.inspect_token or secrets.token_urlsafe(18))
    address = f"http://{config.host}:{config.port}"
    print(f"pg_memoir gateway on {address}, mode {config.mode}. An agent uses it with one of")
    print(f"  export ANTHROPIC_BASE_URL={address}")
    print(f"  export OPENAI_BASE_URL={address}/v1")
    print(f"What it remembers, to look at: {address}/inspect?token={config.inspect_token}", flush=True)
    sys.setswitchinterval(SWITCH_SECONDS)
    logging.getLogger("uvicorn.error").addFilter(_is_news)
    uvicorn.run(
        create_app(config, embed=lend_embedder(options, config.dsn)),
        host=config.host,
        port=config.port,
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=5,
        http=BoundedProtocol,
    )
    return 0


def lend_embedder(options: argparse.Namespace, dsn: str) -> AsyncEmbed | None:
    """Returns what embeds questions for a private server that can't. `pg-memoir` lends it to its commands."""
    if not hasattr(options, "find_embedder"):
        return None
    try:
        embed: AsyncEmbed | None = options.find_embedder(dsn)
    except psycopg.Error as error:
        print(f"The database does not answer, so questions are searched by their words: {error}", file=sys.stderr)
        return None
    return embed


def _is_news(record: logging.LogRecord) -> bool:
    """An answer that is cut because the upstream's was is told to the client, and nobody else."""
    return not (record.exc_info and isinstance(record.exc_info[1], ConnectionAbortedError))


async def check(config: Config) -> int:
    """Prints the settings as JSON, then whether database and upstreams answer; 1 if one does not."""
    print(json.dumps(config.as_dict(), indent=2))
    failed = False
    try:
        async with AsyncMemoir(config.dsn, max_size=1, timeout=5) as memoir:
            await memoir.memory_tools()
        print("database: answers")
    except Exception as error:
        failed = True
        print(f"database: {type(error).__name__}: {error}")
    async with httpx.AsyncClient(timeout=10) as client:
        for name in ("upstream_anthropic", "upstream_openai"):
            try:
                answer = await client.get(getattr(config, name) + "/v1/models")
                print(f"{name}: answers with status {answer.status_code}")
            except httpx.HTTPError as error:
                failed = True
                print(f"{name}: {type(error).__name__}: {error}")
    return int(failed)
