"""What others wrote to try MCP servers: the official conformance suite, and the official inspector on every tool."""

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest
from agents import Agent
from calls import call, persist, remembered, table
from conformance import Fixtures
from node import program
from pg_memoir_gateway import mcp_server
from served import served

EXPECTED = Path(__file__).resolve().parents[1] / "node" / "expected_failures.yaml"
pytestmark = [pytest.mark.acceptance, pytest.mark.extended]


def test_the_conformance_suite(memoir_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_server, "Handlers", Fixtures)
    with served(memoir_dsn, user="conformance") as (address, _):
        done = program("conformance", "server", "--url", f"{address}/mcp", "--expected-failures", str(EXPECTED))
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert "✓ tools-list" in done.stdout and "✓ dns-rebinding-protection" in done.stdout


def test_the_official_inspector_calls_every_tool(db: psycopg.Connection, memoir_dsn: str) -> None:
    user = "inspected"
    turn = persist(db, user, "s", "The ferry to Runmarö leaves at 8:15.", "Noted.")["message_ids"][0]
    memory = remembered(db, user, "The ferry is called Silver Ann")
    way = call(db, "learn_experience", user, "moor the ferry", "bow line first")["memory_id"]
    Agent(db, user, "s", "Where do they moor?").calls(
        "Read", {"file_path": "piers.csv"}, "\n".join(f"pier {n}, berth {n * 7}, depth {n % 9} m" for n in range(200))
    )
    [(listed,)] = table(db, "list_memories", user, types=["file_context"], columns="memory_id::text")
    arguments: dict[str, dict[str, Any]] = {
        "memory_index": {"query": "ferry"},
        "memory_recall": {"query": "ferry"},
        "memory_timeline": {"id": turn},
        "memory_get": {"ids": json.dumps([turn, memory])},
        "memory_query": {"question": "When does the ferry leave?"},
        "memory_remember": {"content": "The quay is made of stone"},
        "memory_correct": {"id": memory, "content": "The ferry is called Silver Moon"},
        "memory_forget": {"said": "forget the ferry"},
        "memory_learn": {"when": "sail out", "how": "stern line first", "worked": "true"},
        "memory_outcome": {"id": way, "worked": "true"},
        "memory_experience": {"task": "moor the ferry"},
        "memory_pin": {"id": memory},
        "memory_stats": {},
        "memory_objects": {"query": "piers"},
        "memory_sync": {"dry_run": "true"},
        "memory_restore": {"id": listed, "lines": "2-3"},
        "memory_release": {"ids": json.dumps([listed[:8]])},
    }
    with served(memoir_dsn, user=user) as (address, _):
        server = (f"{address}/mcp", "--transport", "http", "--header", "x-pg-memoir-session: s")
        listed = program("mcp-inspector", "--cli", *server, "--method", "tools/list")
        names = [tool["name"] for tool in json.loads(listed.stdout)["tools"]]
        assert names == [tool["name"] for tool in call(db, "memory_tools", "mcp")]
        assert names == list(arguments), "call what is new here as well"
        for name in names:
            pairs = [part for key, value in arguments[name].items() for part in ("--tool-arg", f"{key}={value}")]
            done = program("mcp-inspector", "--cli", *server, "--method", "tools/call", "--tool-name", name, *pairs)
            answer = json.loads(done.stdout)
            assert not answer["isError"] and answer["content"][0]["text"], (name, done.stdout, done.stderr)
        read = program("mcp-inspector", "--cli", *server, "--method", "resources/list")
        assert len(json.loads(read.stdout)["resources"]) == 3
