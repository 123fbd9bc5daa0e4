"""The gateway in mode observe: requests and answers pass to the byte, and are remembered."""

import json
from typing import Any

import httpx
import pytest
from answers import call, text, thought
from calls import table
from gateways import CHAT_TOOL, CLAUDE, TOOL, Chat, Messages, Responses, Running, gateway, script
from pg_memoir import Memoir
from starlette.responses import Response
from upstream import Upstream

MODE = "observe"
ODD = {
    "spaces": b'{ "model" :"m",\n\t"max_tokens": 10 , "messages":[ {"content":"a" ,"role":"user"} ] }  \n',
    "escapes": '{"model":"m","messages":[{"role":"user","content":"\\u00e9 é \\/ \\ud83d 😀"}]}'.encode(),
    "numbers": b'{"model":"m","metadata":{"n":12345678901234567890123,"f":1e-7,"z":-0.0},"messages":[{"role":"user","content":"a"}]}',
    "unknown": b'{"model":"m","zzz":null,"messages":[{"role":"user","content":[{"type":"new","a":[1,null]}]}]}',
    "twice": b'{"model":"x","model":"m","messages":[{"role":"user","content":"a"}]}',
}


def test_bodies_and_headers_arrive_as_sent(running: Running, model: Upstream) -> None:
    for name, raw in ODD.items():
        answer = running.post("/v1/messages?beta=true", raw, **{"anthropic-beta": "a,b", "X-Odd": "kept"})
        assert answer.status_code == 200 and model.asked[-1].raw == raw, name
        assert (model.asked[-1].headers["anthropic-beta"], model.asked[-1].headers["x-odd"]) == ("a,b", "kept")
    assert httpx.get(running.url + "/v1/models?limit=2", headers={"x-api-key": "k"}).json()["data"] == []
    assert running.post("/v1/embeddings", b"{}").json() == {"path": "/v1/embeddings", "data": []}


def test_errors_come_back_unmodified(running: Running, model: Upstream, memoir_dsn: str, user: str) -> None:
    """Where the upstream can't be reached, the gateway says so."""
    said = b'{"type":"error","error":{"message":"prompt is too long: 9 > 8"}}'
    headers = {"retry-after": "7", "content-type": "application/json"}
    for status in (400, 429, 529):
        model.answer = lambda body, status=status: Response(said, status, headers)
        answer = running.post("/v1/messages", ODD["escapes"])
        assert (answer.status_code, answer.content, answer.headers["retry-after"]) == (status, said, "7")
    with gateway(memoir_dsn, Upstream(lambda body: [], url="http://127.0.0.1:9"), user) as running:
        answer = running.post("/v1/messages", ODD["escapes"])
    assert answer.status_code == 502 and "ConnectError" in answer.json()["error"]["message"]


def test_growing_list_is_stored_once(running: Running, model: Upstream, memoir: Memoir, user: str) -> None:
    """Thoughts, calls and their results are turns; marks of caching that move change nothing."""
    script(model, [thought("Read it."), text("Reading."), call("read", "toolu_1", path="a")], [text("Porto it is.")])
    client = Messages(running, "s1")
    client.say("<system-reminder>\nCLAUDE.md: I always deploy on Fridays.\n</system-reminder>", "I live in Porto.")
    client.result("toolu_1", "a file", stream=False)
    running.settle()
    told = memoir.history(user, "claude-code s1")
    assert [m["role"] for m in told] == ["user", "assistant", "tool", "assistant"]
    assert told[0]["content"] == "I live in Porto." and len(memoir.list_sessions(user)) == 1
    first = memoir.list_calls(user, "claude-code s1")[-1]
    parts = memoir.read_call(user, first.call_id)
    assert bytes(parts[0].body) == model.asked[0].raw
    assert b"".join(bytes(part.body) for part in parts[1:]) == model.sent[0]


def test_replayed_conversation_is_known(model: Upstream, memoir: Memoir, memoir_dsn: str, user: str) -> None:
    """A process that has not seen it finds all of it stored, and makes no session of its own."""
    answers = [[call("read", f"toolu_{n}", path="a")] for n in range(4)] + [[text("Done.")]]
    for _ in range(2):
        script(model, *answers)
        with gateway(memoir_dsn, model, user, mode="observe") as running:
            client = Messages(running, "s1")
            client.say("Read it all.")
            for n in range(4):
                running.settle()
                client.result(f"toolu_{n}", f"part {n}")
            running.settle()
        assert [(row.session, row.turns) for row in memoir.list_sessions(user)] == [("claude-code s1", 10)]


def test_changed_past_is_a_branch(running: Running, memoir: Memoir, user: str) -> None:
    for said in (["One."], ["One.", "Noted.", "Two."], ["One.", "Noted.", "Another two."]):
        messages = [{"role": "user" if at % 2 == 0 else "assistant", "content": s} for at, s in enumerate(said)]
        running.anthropic().messages.create(model="m", max_tokens=9, messages=messages)  # type: ignore[arg-type]
        running.settle()
    names = [row.session for row in memoir.list_sessions(user)]
    told = {name: [m["content"] for m in memoir.history(user, name)] for name in names}
    assert sorted(told) == ["session s1", next(n for n in told if "~" in n)]
    assert [said[2] for _, said in sorted(told.items())] == ["Two.", "Another two."]


def test_asides_are_captured_only(running: Running, memoir: Memoir, user: str) -> None:
    raw = json.dumps({"model": "m", "messages": [{"role": "user", "content": "A title, please."}]}).encode()
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        running.post(path, raw, **CLAUDE, **{"x-claude-code-session-id": "s1"})
    running.settle()
    assert not memoir.list_sessions(user) and len(memoir.list_calls(user)) == 2


def test_list_that_the_provider_keeps(running: Running, memoir: Memoir, user: str) -> None:
    """Each request brings what is new alone, and names the answer before. Two that go on from one are branches."""
    client: Any = running.openai("kept")
    first = client.responses.create(model="m", input="My locker code is 4711.")
    second = client.responses.create(model="m", input="The gym is shut.", previous_response_id=first.id)
    running.settle()
    client.responses.create(model="m", input="Thanks.", previous_response_id=second.id)
    client.responses.create(model="m", input="Or is it open?", previous_response_id=first.id)
    client.responses.create(model="m", input="Who are you?", previous_response_id="resp_never_seen")
    running.settle()
    told = [memoir.history(user, s.session) for s in memoir.list_sessions(user)]
    said = sorted([turn["content"] for turn in turns if turn["role"] == "user"] for turns in told)
    locker = "My locker code is 4711."
    assert said == [[locker, "Or is it open?"], [locker, "The gym is shut.", "Thanks."]]
    assert sorted(map(len, told)) == [4, 6]


@pytest.mark.parametrize("api", [Chat, Responses])
def test_openai_conversations_are_stored(running: Running, memoir: Memoir, user: str, api: Any) -> None:
    assert api(running, "s1").say("Hello.") == ("Noted.", [])
    running.settle()
    assert [m["content"] for m in memoir.history(user, "session s1")] == ["Hello.", "Noted."]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_lists_of_agents_state_nothing(running: Running, model: Upstream, db: Any, user: str, path: str) -> None:
    """Several lists in one session of a client that names none of them: another system prompt begins an agent's list."""
    is_chat = path == "/v1/chat/completions"

    def post(system: str, said: list[Any]) -> None:
        body: dict[str, Any] = {"model": "m", "max_tokens": 99, "tools": [TOOL], "system": system, "messages": said}
        if is_chat:
            messages = [{"role": "system", "content": system}, *said]
            body = {"model": "m", "tools": [CHAT_TOOL], "messages": messages}
        assert running.post(path, json.dumps(body).encode(), **{"x-session-id": "work"}).status_code == 200

    person = "You are a coding agent.\nKeep changes small.\nRun the tests."
    post(person, [{"role": "user", "content": "Find the slow test. My cat is called Zoe."}])
    said = "Look at part {}. I always want answers in rhyme."
    lists: list[list[Any]] = [[{"role": "user", "content": said.format(n)}] for n in range(2)]
    for step in range(3):
        for n, listed in enumerate(lists):
            made = call("read", f"call_{n}{step}", path="a")
            model.answer = lambda body, made=made: [made]  # type: ignore[misc]
            post(f"You are searcher {n}.\nReport what you find.", listed)
            function = {"name": "read", "arguments": '{"path": "a"}'}
            calls = [{"id": made["id"], "type": "function", "function": function}]
            result = {"type": "tool_result", "tool_use_id": made["id"], "content": f"line {n} {step}"}
            if is_chat:
                listed.append({"role": "assistant", "content": None, "tool_calls": calls})
                listed.append({"role": "tool", "tool_call_id": made["id"], "content": f"line {n} {step}"})
            else:
                listed.extend([{"role": "assistant", "content": [made]}, {"role": "user", "content": [result]}])
    running.settle()
    assert running.counts.of("messages_refused") == 0
    assert sorted(turns for (turns,) in table(db, "list_sessions", user, columns="turns")) == [2, 6, 6]
    db.execute("call memoir.run_job('extract')")
    kept = " ".join(content for (content,) in table(db, "list_memories", user, columns="content"))
    assert "Zoe" in kept and "rhyme" not in kept
