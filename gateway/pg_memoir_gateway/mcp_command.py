"""`pg-memoir mcp`: the memory of one user over MCP, on standard input and output, as clients start it."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys

import psycopg
from pg_memoir import AsyncMemoir, MemoirError

from .mcp_server import Who, serve_stdio


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command line may say."""
    parser.add_argument(
        "--dsn", default=os.environ.get("PG_MEMOIR_DSN"), help="default: $PG_MEMOIR_DSN, or the server of pg-memoir up"
    )
    user = os.environ.get("PG_MEMOIR_GATEWAY_USER", "local")
    parser.add_argument("--user", default=user, help="whose memory it is (default: $PG_MEMOIR_GATEWAY_USER, local)")
    parser.add_argument("--session", help="the session in which tools are called (default: outside of sessions)")


def main(options: argparse.Namespace) -> int:
    """Serves until the client is gone; returns the exit code."""
    dsn = options.dsn or getattr(options, "private_dsn", "")
    if not dsn:
        hint = "set PG_MEMOIR_DSN, or run pg-memoir up for a private server"
        print(f"pg-memoir mcp: which database? Give --dsn, {hint}", file=sys.stderr)
        return 2
    return asyncio.run(serve(dsn, Who(options.user, options.session)))


async def serve(dsn: str, who: Who) -> int:
    """Serves the memory of a user until the client is gone; returns the exit code."""
    async with AsyncMemoir(dsn, max_size=4) as memoir:
        try:
            await memoir.memory_stats(who.user)  # what the login may not do is said before the client waits for it
        except (MemoirError, psycopg.Error) as error:
            print(f"pg-memoir mcp: {error}", file=sys.stderr)
            return 1
        await serve_stdio(memoir, who)
    return 0
