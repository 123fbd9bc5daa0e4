"""Several lists in one session of a client that names none of them: what a model began is not what the person said."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from calls import table
from gateways import TOOL, Running, gateway
from upstream import Upstream, call, text, upstream

SYSTEM = "You are a coding agent.\nKeep changes small.\nRun the tests."


@pytest.fixture
def model() -> Iterator[Upstream]:
    with upstream(lambda body: [text("Noted.")]) as running:
        yield running


@pytest.fixture
def manager(memoir_dsn: str, model: Upstream, user: str) -> Iterator[Running]:
    with gateway(memoir_dsn, model, user, mode="manage", database_ms=20_000) as running:
        yield running


def post(running: Running, path: str, system: str, said: list[dict[str, Any]]) -> None:
    """A request in one of two shapes; `said` is in the shape of chats, with one call a message at most."""
    if path == "/v1/chat/completions":
        tool = {"type": "function", "function": {"name": "read", "parameters": TOOL["input_schema"]}}
        messages: list[Any] = [{"role": "system", "content": system}, *said]
        body = {"model": "m", "messages": messages, "tools": [tool]}
    else:
        blocks = []
        for one in said:
            content = one["content"]
            if one["role"] == "tool":
                content = [{"type": "tool_result", "tool_use_id": one["tool_call_id"], "content": content}]
            elif one.get("tool_calls"):
                content = [call("read", made["id"], path="a") for made in one["tool_calls"]]
            blocks.append({"role": "user" if one["role"] == "tool" else one["role"], "content": content})
        body = {"model": "m", "max_tokens": 99, "system": system, "tools": [TOOL], "messages": blocks}
    assert running.post(path, json.dumps(body).encode(), **{"x-session-id": "work"}).status_code == 200


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_lists_of_sub_agents_are_apart_and_no_persons(
    manager: Running, model: Upstream, db: psycopg.Connection, user: str, path: str
) -> None:
    post(manager, path, SYSTEM, [{"role": "user", "content": "Find the slow test. My cat is called Zoe."}])
    lists: list[list[dict[str, Any]]] = [
        [{"role": "user", "content": f"Look at part {n}. I always want answers in rhyme."}] for n in range(2)
    ]
    for step in range(3):
        for n, listed in enumerate(lists):
            ident = f"call_{n}{step}"
            model.answer = lambda body, ident=ident: [call("read", ident, path="a")]  # type: ignore[misc]
            post(manager, path, f"You are searcher {n}.\nReport what you find.", listed)
            function = {"name": "read", "arguments": '{"path": "a"}'}
            made = {"id": ident, "type": "function", "function": function}
            listed.append({"role": "assistant", "content": None, "tool_calls": [made]})
            listed.append({"role": "tool", "tool_call_id": ident, "content": f"line {n} {step}"})
    manager.settle()
    assert manager.counts.of("messages_refused") == 0
    turns = dict(table(db, "list_sessions", user, columns="session, turns"))
    assert sorted(turns.values()) == [2, 6, 6], turns
    db.execute("call memoir.run_job('extract')")
    kept = [content for (content,) in table(db, "list_memories", user, columns="content")]
    assert any("Zoe" in content for content in kept) and not any("rhyme" in content for content in kept), kept
