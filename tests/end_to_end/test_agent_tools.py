"""An agent that keeps its own memory: the official SDKs, a scripted model, the real tools; corrections and requests to
forget have effect in the next session."""

import json
import re
from collections.abc import Callable
from typing import Any

import anthropic
import openai
import pytest
from calls import messages
from pg_memoir import Memoir, Reply, Session, from_anthropic, from_openai
from stubs import Answer, ChatCompletionsStub, MessagesStub

Ask = Callable[[Session], Reply]

# What was said in an earlier session, what the user says now, the model's call, what a later question shows and what not.
CORRECTIONS = [
    ("We fly to Madeira on 9 April.", "The Madeira flight was moved to the 12th", "Flies to Madeira on 12 April"),
    ("我的车是红色的本田。", "我现在开蓝色的丰田", "开蓝色的丰田"),
]
LOCKER = ("My locker at the studio is number 90417.", "Please forget my locker at the studio", "90417")
FORGOTTEN = [LOCKER, ("我的密码提示是外婆的名字", "请忘记我的密码提示", "外婆")]


def last_result(body: dict[str, Any]) -> str | None:
    """The result of the call that the request ends with, in either provider's shape."""
    message = body["messages"][-1]
    if message["role"] == "tool":
        return str(message["content"])
    for block in message["content"] if isinstance(message["content"], list) else []:
        if block["type"] == "tool_result":
            content = block["content"]
            return content if isinstance(content, str) else "".join(part["text"] for part in content)
    return None


def model(query: str, then: Callable[[str], tuple[str, dict[str, Any]]]) -> Callable[[dict[str, Any]], Answer]:
    """Searches, then makes the call that `then` makes of the first hit's id, then answers."""

    def answer(body: dict[str, Any]) -> Answer:
        names = {tool.get("name") or tool["function"]["name"] for tool in body["tools"]}
        assert {"memory_search", "memory_correct", "memory_forget"} <= names
        result = last_result(body)
        if result is None:
            return Answer(tool_calls=[("c1", "memory_search", {"query": query})])
        if hit := re.match(r"[0-9a-f-]{36}", result):
            return Answer(tool_calls=[("c2", *then(hit[0]))])
        assert re.match(r"(Corrected: now|Forgotten\.)", result), result
        return Answer(text="Done.")

    return answer


@pytest.fixture(params=["openai", "anthropic"])
def provider(request: pytest.FixtureRequest) -> tuple[type, Callable[[Any], Ask]]:
    def by_openai(stub: Any) -> Ask:
        sdk = openai.OpenAI(base_url=stub.url, api_key="stub", max_retries=0)

        def ask(session: Session) -> Reply:
            tools: Any = session.tools("openai")
            listed: Any = session.compile_context(tools=tools)
            return from_openai(sdk.chat.completions.create(model="gpt-4o", messages=listed, tools=tools))

        return ask

    def by_anthropic(stub: Any) -> Ask:
        sdk = anthropic.Anthropic(base_url=stub.url, api_key="stub", max_retries=0)

        def ask(session: Session) -> Reply:
            tools: Any = session.tools("anthropic")
            request: Any = session.compile_anthropic(tools=tools)
            return from_anthropic(sdk.messages.create(model="claude-opus-4-6", max_tokens=500, tools=tools, **request))

        return ask

    return (ChatCompletionsStub, by_openai) if request.param == "openai" else (MessagesStub, by_anthropic)


def converse(session: Session, ask: Ask, said: str) -> str:
    """One exchange as an application has it."""
    session.append([{"role": "user", "content": said}])
    for _ in range(5):
        reply = ask(session)
        session.append([reply.message, *(session.run_tool(call) for call in reply.tool_calls)])
        if not reply.tool_calls:
            return reply.text
    raise AssertionError("the model goes on calling tools")


def prompt(memoir: Memoir, user: str, question: str) -> str:
    return json.dumps(memoir.compile_context(user, "later", question), ensure_ascii=False)


@pytest.mark.parametrize(("before", "said", "now"), CORRECTIONS)
def test_a_correction_has_effect(memoir_dsn: str, user: str, provider, before: str, said: str, now: str) -> None:
    stub_of, asker = provider
    script = model(before, lambda hit: ("memory_correct", {"id": hit, "content": now, "said": said}))
    with Memoir(memoir_dsn) as memoir, stub_of(script) as stub:
        memoir.persist_turn(user, "first", messages(before, "Ok."))
        assert converse(memoir.session(user, "second"), asker(stub), said) == "Done."
        assert now in [memory.content for memory in memoir.list_memories(user)]
        shown = prompt(memoir, user, before)
        assert f"{before} (later changed)" in shown or shown.count(before) == 1, "in the question alone"
        assert now in shown or said in shown


@pytest.mark.parametrize(("before", "said", "secret"), FORGOTTEN)
def test_a_request_to_forget_has_effect(memoir_dsn, user: str, provider, before: str, said: str, secret: str) -> None:
    stub_of, asker = provider
    script = model(before, lambda hit: ("memory_forget", {"id": hit, "said": said}))
    with Memoir(memoir_dsn) as memoir, stub_of(script) as stub:
        memoir.persist_turn(user, "first", messages(before, "Ok."))
        assert secret in prompt(memoir, user, before)
        assert converse(memoir.session(user, "second"), asker(stub), said) == "Done."
        assert prompt(memoir, user, before).count(secret) == 1, "in the question alone"
        [change] = memoir.list_changes(user)
        memoir.undo_change(user, change.change_id)
        assert prompt(memoir, user, before).count(secret) > 1
