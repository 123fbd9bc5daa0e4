"""Commands of other packages on the server of `pg-memoir up`: they find it, and embed questions where it can't."""

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from pg_memoir import Memoir
from pg_memoir_cli import app as cli
from pg_memoir_gateway import command
from servers import complete, database
from upstream import serving

FACT, QUESTION = "I can't eat peanuts.", "Which food must I avoid?"  # they share no word


@pytest.fixture
def own_dsn(server_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server without PL/Python that the commands find in its folder, as `pg-memoir up` leaves it."""
    with database(server_dsn) as dsn:
        complete(dsn)
        monkeypatch.setenv("PG_MEMOIR_STATE", str(tmp_path))
        monkeypatch.delenv("PG_MEMOIR_DSN")
        (tmp_path / "dsn").write_text(dsn + "\n")
        yield dsn


def ask_over_rest(monkeypatch: pytest.MonkeyPatch) -> str:
    """Asks a gateway as `pg-memoir gateway` starts it, but in this process."""
    apps: list[Any] = []
    monkeypatch.setattr(command.uvicorn, "run", lambda app, **_: apps.append(app))
    assert cli.main(["gateway"]) == 0
    with serving(apps[0]) as url:
        return httpx.post(f"{url}/memoir/v1/users/local/recall", json={"query": QUESTION}, timeout=30).text


async def ask_over_stdio() -> str:
    started = StdioServerParameters(command=sys.executable, args=["-m", "pg_memoir_cli", "mcp"], env=dict(os.environ))
    async with stdio_client(started) as (incoming, outgoing), ClientSession(incoming, outgoing) as session:
        await session.initialize()
        return str((await session.call_tool("memory_recall", {"query": "peanuts"})).content[0].text)


def test_gateway_and_mcp_find_their_server(own_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Memoir(own_dsn) as memoir:
        memoir.remember("local", FACT)
        assert not memoir.recall("local", QUESTION)
        embed = cli.find_embedder(own_dsn)  # also for one whose address was exported
        assert embed and memoir.embed_backlog(embed) == 1
    assert FACT in ask_over_rest(monkeypatch)
    assert FACT in asyncio.run(ask_over_stdio())


def test_no_other_server_gets_our_vectors(own_dsn: str, memoir_dsn: str) -> None:
    assert cli.find_embedder(memoir_dsn) is None
