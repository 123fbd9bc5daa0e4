"""The gateway in mode observe: what passes is what was sent, to the byte, and is remembered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from gateways import CLAUDE, TOOL, Running, gateway
from pg_memoir import Memoir
from starlette.responses import Response
from upstream import Upstream, call, text, thought, upstream


@pytest.fixture
def model() -> Iterator[Upstream]:
    with upstream(lambda body: [text("Noted, naïve 😀.")]) as running:
        yield running


@pytest.fixture
def observer(memoir_dsn: str, model: Upstream, user: str) -> Iterator[Running]:
    with gateway(memoir_dsn, model, user, mode="observe") as running:
        yield running


ODD = {
    "spaces": b'{ "model" :"m",\n\t"max_tokens": 10 , "messages":[ {"content":"a" ,"role":"user"} ] }  \n',
    "escapes": '{"model":"m","messages":[{"role":"user","content":"\\u00e9 é \\/ \\ud83d 😀"}]}'.encode(),
    "numbers": b'{"model":"m","metadata":{"n":12345678901234567890123,"f":1e-7,"z":-0.0},"messages":[{"role":"user","content":"a"}]}',
    "unknown": b'{"model":"m","zzz":null,"messages":[{"role":"user","content":[{"type":"new","a":[1,null]}]}]}',
    "twice": b'{"model":"x","model":"m","messages":[{"role":"user","content":"a"}]}',
}


@pytest.mark.parametrize("name", ODD)
def test_bodies_and_headers_arrive_as_they_were_sent(observer: Running, model: Upstream, name: str) -> None:
    answer = observer.post("/v1/messages?beta=true", ODD[name], **{"anthropic-beta": "a,b", "X-Odd": "kept"})
    assert answer.status_code == 200
    assert model.asked[-1].raw == ODD[name]
    assert (model.asked[-1].headers["anthropic-beta"], model.asked[-1].headers["x-odd"]) == ("a,b", "kept")


def test_other_paths_pass(observer: Running, model: Upstream) -> None:
    assert httpx.get(observer.url + "/v1/models?limit=2", headers={"x-api-key": "k"}).json()["data"] == []
    assert observer.post("/v1/embeddings", b"{}").json() == {"path": "/v1/embeddings", "data": []}


@pytest.mark.parametrize("status", [400, 429, 529])
def test_errors_come_back_unmodified(observer: Running, model: Upstream, status: int) -> None:
    said = b'{"type":"error","error":{"message":"prompt is too long: 9 > 8"}}'
    model.answer = lambda body: Response(said, status, {"retry-after": "7", "content-type": "application/json"})
    answer = observer.post("/v1/messages", ODD["escapes"])
    assert (answer.status_code, answer.content, answer.headers["retry-after"]) == (status, said, "7")


def test_nobody_upstream_is_said(memoir_dsn: str, user: str) -> None:
    with gateway(memoir_dsn, Upstream(lambda body: [], url="http://127.0.0.1:9"), user) as running:
        answer = running.post("/v1/messages", ODD["escapes"])
    assert answer.status_code == 502 and "ConnectError" in answer.json()["error"]["message"]


def test_growing_list_is_stored_once(observer: Running, model: Upstream, memoir_dsn: str, user: str) -> None:
    """The list grows; thoughts, calls and their results are turns; marks of caching that move change nothing."""
    client = observer.anthropic("s1", **CLAUDE)
    reminder = text("<system-reminder>\nCLAUDE.md: I always deploy on Fridays.\n</system-reminder>")
    asked = [
        {"role": "user", "content": [reminder, text("I live in Porto.") | {"cache_control": {"type": "ephemeral"}}]}
    ]
    steps = iter([[thought("Read it."), text("Reading."), call("read", "toolu_1", path="a")], [text("Porto it is.")]])
    model.answer = lambda body: next(steps)
    with client.messages.stream(model="m", max_tokens=9, tools=[TOOL], messages=asked) as stream:
        first = stream.get_final_message()
    asked[0]["content"][1].pop("cache_control")
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a file"}
    blocks = [block.model_dump(mode="json", exclude_none=True) for block in first.content]
    asked += [{"role": "assistant", "content": blocks}, {"role": "user", "content": [result]}]
    client.messages.create(model="m", max_tokens=9, tools=[TOOL], messages=asked)
    observer.settle()
    with Memoir(memoir_dsn) as memoir:
        told = memoir.history(user, "claude-code s1")
        assert [m["role"] for m in told] == ["user", "assistant", "tool", "assistant"]
        assert told[0]["content"] == "I live in Porto."
        assert len(memoir.list_sessions(user)) == 1
        calls = memoir.list_calls(user, "claude-code s1")
        parts = memoir.read_call(user, calls[-1].call_id)
        assert bytes(parts[0].body) == model.asked[0].raw
        assert b"".join(bytes(part.body) for part in parts[1:]) == model.sent[0]


def test_replayed_conversation_is_known(model: Upstream, memoir_dsn: str, user: str) -> None:
    """A process that has not seen it finds all of it stored, and makes no session of its own."""
    answers = [[call("read", f"toolu_{n}", path="a")] for n in range(4)] + [[text("Done.")]]
    stored = []
    for _ in range(2):
        steps = iter(answers)
        model.answer = lambda body, steps=steps: next(steps)  # type: ignore[misc]
        with gateway(memoir_dsn, model, user, mode="observe") as running:
            asked: list[dict[str, Any]] = [{"role": "user", "content": "Read it all."}]
            for n, answer in enumerate(answers):
                running.anthropic("s1").messages.create(model="m", max_tokens=9, tools=[TOOL], messages=asked)
                running.settle()
                result = {"type": "tool_result", "tool_use_id": f"toolu_{n}", "content": f"part {n}"}
                asked += [{"role": "assistant", "content": answer}, {"role": "user", "content": [result]}]
        with Memoir(memoir_dsn) as memoir:
            stored.append([(row.session, row.turns) for row in memoir.list_sessions(user)])
    assert stored[0] == stored[1] == [("session s1", 10)]


def test_a_changed_past_is_a_branch(observer: Running, memoir_dsn: str, user: str) -> None:
    client = observer.anthropic("s1")

    def ask(*said: str) -> None:
        listed = [{"role": "user" if at % 2 == 0 else "assistant", "content": s} for at, s in enumerate(said)]
        client.messages.create(model="m", max_tokens=9, messages=listed)
        observer.settle()

    ask("One.")
    ask("One.", "Noted, naïve 😀.", "Two.")
    ask("One.", "Noted, naïve 😀.", "Another two.")
    with Memoir(memoir_dsn) as memoir:
        names = {
            row.session: [m["content"] for m in memoir.history(user, row.session)] for row in memoir.list_sessions(user)
        }
    assert sorted(names) == ["session s1", next(n for n in names if "~" in n)]
    assert [said[2] for _, said in sorted(names.items())] == ["Two.", "Another two."]


def test_what_is_no_conversation_is_captured_only(observer: Running, memoir_dsn: str, user: str) -> None:
    raw = json.dumps({"model": "m", "messages": [{"role": "user", "content": "A title, please."}]}).encode()
    observer.post("/v1/messages", raw, **CLAUDE, **{"x-claude-code-session-id": "s1"})
    observer.post("/v1/messages/count_tokens", raw, **CLAUDE, **{"x-claude-code-session-id": "s1"})
    observer.settle()
    with Memoir(memoir_dsn) as memoir:
        assert not memoir.list_sessions(user) and len(memoir.list_calls(user)) == 2


def test_a_list_that_the_provider_keeps_is_one_conversation(
    observer: Running, model: Upstream, memoir_dsn: str, user: str
) -> None:
    """Each request brings what is new alone, and names the answer that it goes on from. Two that go on from one are branches."""
    client: Any = observer.openai("kept")
    first = client.responses.create(model="m", input="My locker code is 4711.")
    second = client.responses.create(model="m", input="The gym is shut.", previous_response_id=first.id)
    client.responses.create(model="m", input="Thanks.", previous_response_id=second.id)
    client.responses.create(model="m", input="Or is it open?", previous_response_id=first.id)
    client.responses.create(model="m", input="Who are you?", previous_response_id="resp_never_seen")
    observer.settle()
    with Memoir(memoir_dsn) as memoir:
        told = [memoir.history(user, s.session) for s in memoir.list_sessions(user)]
    assert sorted([turn["content"] for turn in turns if turn["role"] == "user"] for turns in told) == [
        ["My locker code is 4711.", "Or is it open?"],
        ["My locker code is 4711.", "The gym is shut.", "Thanks."],
    ]
    assert sorted(map(len, told)) == [4, 6]


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_openai_conversations_are_stored(observer: Running, memoir_dsn: str, user: str, api: str) -> None:
    client = observer.openai()
    if api == "chat":
        with client.chat.completions.stream(model="m", messages=[{"role": "user", "content": "Hello."}]) as stream:
            assert stream.get_final_completion().choices[0].message.content == "Noted, naïve 😀."
    else:
        with client.responses.stream(model="m", input="Hello.", store=False) as stream:
            assert stream.get_final_response().output_text == "Noted, naïve 😀."
    observer.settle()
    with Memoir(memoir_dsn) as memoir:
        assert [m["content"] for m in memoir.history(user, "session s1")] == ["Hello.", "Noted, naïve 😀."]
