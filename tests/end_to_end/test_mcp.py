"""MCP over both transports: what the database defines is offered, the login decides whose memory it is, errors are said."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import psycopg
import pytest
from calls import call, persist
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from routines import world_of
from served import KEYS, USERS, served
from servers import user_of

pytestmark = pytest.mark.extended


@pytest.fixture(scope="module")
def gateway(memoir_dsn: str) -> Iterator[str]:
    with served(memoir_dsn, users=USERS) as (address, _):
        yield address


@asynccontextmanager
async def over_http(address: str, key: str, **headers: str) -> AsyncIterator[ClientSession]:
    client = httpx.AsyncClient(headers={"authorization": f"Bearer {key}", **headers}, timeout=30)
    async with client, streamable_http_client(f"{address}/mcp", http_client=client) as (incoming, outgoing, *_):
        async with ClientSession(incoming, outgoing) as session:
            await session.initialize()
            yield session


@asynccontextmanager
async def over_stdio(dsn: str, *options: str) -> AsyncIterator[ClientSession]:
    started = StdioServerParameters(
        command=sys.executable, args=["-m", "pg_memoir_cli", "mcp", *options], env={**os.environ, "PG_MEMOIR_DSN": dsn}
    )
    async with stdio_client(started) as (incoming, outgoing), ClientSession(incoming, outgoing) as session:
        await session.initialize()
        yield session


async def text_of(session: ClientSession, name: str, **arguments: Any) -> str:
    answer = await session.call_tool(name, arguments)
    assert answer.is_error == answer.content[0].text.startswith("Error: ")
    return str(answer.content[0].text)


def test_the_same_by_both_transports(db: psycopg.Connection, memoir_dsn: str, gateway: str) -> None:
    defined = call(db, "memory_tools", "mcp")

    async def offers(session: ClientSession) -> tuple[list[Any], ...]:
        tools = [tool.model_dump(by_alias=True, exclude_none=True) for tool in (await session.list_tools()).tools]
        found = (await session.list_resources()).resources
        templates = (await session.list_resource_templates()).resource_templates
        read = [json.loads((await session.read_resource(r.uri)).contents[0].text) for r in found]
        return tools, [str(r.uri) for r in found], [t.uri_template for t in templates], read

    async def run() -> None:
        async with over_http(gateway, KEYS["ann"]) as session:
            by_http = await offers(session)
        async with over_stdio(memoir_dsn, "--user", "ann") as session:
            by_stdio = await offers(session)
        async with over_http(gateway, KEYS["ann"], **{"x-pg-memoir-session": "talk"}) as session:
            in_session = await offers(session)
        async with over_stdio(memoir_dsn, "--user", "ann", "--session", "talk") as session:
            assert await offers(session) == in_session
        assert by_http == by_stdio and in_session[0] == defined
        assert by_http[0] == [tool for tool in defined if not tool["_meta"]["pg_memoir/needsSession"]]
        assert {tool["name"] for tool in in_session[0] if tool not in by_http[0]} == {
            *("memory_query", "memory_pin", "memory_objects", "memory_restore", "memory_release")
        }
        assert by_http[1] == ["memoir://episodic", "memoir://semantic", "memoir://jobs/semantic_sync"]
        assert by_http[3] == call(db, "memory_resources")
        assert all(tool in defined for resource in by_http[3] for tool in resource["tools"])

    asyncio.run(run())


@pytest.mark.anyio
async def test_what_one_keeps_another_does_not_see(db: psycopg.Connection, gateway: str) -> None:
    persist(db, "ann", "trip", "The ferry to Runmarö leaves at 8:15.", "Noted.")
    async with over_http(gateway, KEYS["ann"]) as ann, over_http(gateway, KEYS["bob"]) as bob:
        kept = await text_of(ann, "memory_remember", content="The harbour pilot is called Yrsa")
        memory = kept.removeprefix("Kept as ").removesuffix(".")
        found = [await text_of(who, "memory_index", query="Who is the harbour pilot?") for who in (ann, bob)]
        assert "Yrsa" in found[0] and found[1] == "Nothing found."
        call(db, "create_space", "ann", "harbour")
        async with over_http(gateway, KEYS["ann"], **{"x-pg-memoir-space": "harbour"}) as there:
            assert "Kept" in await text_of(there, "memory_remember", content="The crane is called Bo")
        assert "space harbour" in await text_of(ann, "memory_recall", query="What is the crane called?")
        async with over_http(gateway, KEYS["bob"], **{"x-pg-memoir-space": "harbour"}) as there:
            assert "may not read in space" in await text_of(there, "memory_recall", query="What is the crane called?")
        assert await text_of(bob, "memory_get", ids=[memory]) == "No such ids. A search gives ids."
        assert "8:15" in (await ann.read_resource("memoir://episodic/trip")).contents[0].text
        assert "Yrsa" in (await ann.read_resource(f"memoir://semantic/{memory}")).contents[0].text
        known = ("memoir://episodic/trip", f"memoir://semantic/{memory}")
        for uri in (*known, "memoir://elsewhere", "file:///etc/passwd"):
            with pytest.raises(MCPError, match="unknown resource"):
                await bob.read_resource(uri)
        assert await text_of(ann, "memory_forget", id=memory, said="never mind") == "Taken back."
        assert await text_of(ann, "memory_index", query="Who is the harbour pilot?") == "Nothing found."


@pytest.mark.anyio
async def test_an_error_is_an_answer(gateway: str) -> None:
    unknown = {"id": "00000000-0000-0000-0000-000000000001"}
    async with over_http(gateway, KEYS["ann"]) as session:
        for name, arguments, says in (
            ("index", {}, "needs the argument query"),
            ("index", {"query": "x", "user": "bob"}, 'has no argument "user"'),
            ("index", {"query": "x", "limit": 0}, "limit must be from 1"),
            ("get", {"ids": ["seven"]}, "each of ids must be an id"),
            ("get", {"ids": "seven"}, "must be a array"),
            ("timeline", unknown, "unknown id"),
            ("correct", unknown | {"content": "x"}, "unknown memory"),
            ("forget", {"said": "all of it"}, "Not forgotten"),
            ("pin", unknown, "memory_pin needs a session. give p_session; over MCP the header"),
        ):
            assert says in await text_of(session, f"memory_{name}", **arguments), (name, arguments)


@pytest.mark.anyio
async def test_who_is_not_known_is_refused(gateway: str, memoir_dsn: str) -> None:
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    initialize = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about}
    accept = {"accept": "application/json, text/event-stream"}
    wrong = ("Bearer sk-nobody", f"Basic {KEYS['ann']}")
    for headers in ({}, *({"authorization": value} for value in wrong), {"x-user": "ann"}):
        answer = httpx.post(f"{gateway}/mcp", json=initialize, headers=accept | headers)
        assert answer.status_code == 401 and answer.headers["www-authenticate"].startswith("Bearer"), headers
    for path in ("/mcp?user=ann", "/mcp?api_key=" + KEYS["ann"]):
        assert httpx.post(gateway + path, json=initialize, headers=accept).status_code == 401
    with served(memoir_dsn, user="ann") as (address, _):  # of this machine alone: yet no page in its browser gets in
        for header in ({"host": "evil.example"}, {"origin": "https://evil.example"}):
            assert httpx.post(f"{address}/mcp", json=initialize, headers=accept | header).status_code in (403, 421)
        assert httpx.post(f"{address}/mcp", json=initialize, headers=accept).status_code == 200
    async with over_http(gateway, KEYS["ann"]) as session:
        with pytest.raises(MCPError, match="unknown tool"):
            await session.call_tool("memory_sing", {})


@pytest.mark.acceptance
def test_the_login_decides(db: psycopg.Connection, memoir_dsn: str) -> None:
    """By stdio a tenant reaches his own users only, and acts as what he is bound to."""

    async def run(dsn: str) -> str:
        async with over_stdio(dsn, "--user", "cleo") as session:
            kept = await text_of(session, "memory_remember", content="The boat is moored at pier four")
            memory = kept.removeprefix("Kept as ").removesuffix(".")
            assert await text_of(session, "memory_forget", id=memory, said="forget the boat") == "Forgotten."
            await text_of(session, "memory_remember", content="The sail is red")
        return memory

    with world_of(memoir_dsn, tenant={"role": "tenant", "users": ["cleo"], "actor": "person"}) as world:
        dsn = user_of(memoir_dsn, world.logins["tenant"])
        memory = asyncio.run(run(dsn))
        assert call(db, "memory_get", "cleo", [memory])["state"] == "forgotten"
        assert [row[0] for row in db.execute("select actor from memoir.list_memories('cleo')")] == ["person"]
        with pytest.raises(BaseExceptionGroup):  # it ends at once, and said why on its standard error
            asyncio.run(_refused(dsn))
        command = [sys.executable, "-m", "pg_memoir_cli", "mcp", "--user", "ann", "--dsn", dsn]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == 1 and 'may not read for user "ann"' in ended.stderr


async def _refused(dsn: str) -> None:
    async with over_stdio(dsn, "--user", "ann") as session:
        await session.list_tools()
