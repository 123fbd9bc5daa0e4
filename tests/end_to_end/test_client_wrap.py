"""A wrapped client of the official SDKs against the protocol's stubs: sync and async, whole and streamed, with tools."""

import asyncio
import inspect
import logging
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from pg_memoir import AsyncMemoir, Memoir, errors
from stubs import Answer, ChatCompletionsStub, MessagesStub, ResponsesStub

pytestmark = pytest.mark.extended

WEATHER = {"name": "weather", "description": "The weather.", "input_schema": {"type": "object", "properties": {}}}
QUICK = [("chat", "sync"), ("responses", "sync"), ("messages", "async")]
OTHER = [("chat", "async"), ("responses", "async"), ("messages", "sync")]
DOORS = QUICK + [pytest.param(pair, marks=pytest.mark.acceptance) for pair in OTHER]


class Door:
    """One API of one SDK, as an application uses it: the same test for all."""

    def __init__(self, form: str, runner: asyncio.Runner | None, dsn: str) -> None:
        self.form, self.runner = form, runner
        self.stub_type = {"chat": ChatCompletionsStub, "responses": ResponsesStub, "messages": MessagesStub}[form]
        self.memoir = AsyncMemoir(dsn) if runner else Memoir(dsn)
        self.opened: list[Any] = []  # an async client that is left open fails a later test, whose loop has to close it
        self.tool = WEATHER
        if form != "messages":
            function = {n: WEATHER[n] for n in ("name", "description")} | {"parameters": WEATHER["input_schema"]}
            self.tool = {"type": "function", **({"function": function} if form == "chat" else function)}

    def client(self, stub: Any, **options: Any) -> Any:
        package = anthropic if self.form == "messages" else openai
        kind = getattr(package, ("Async" if self.runner else "") + {openai: "OpenAI", anthropic: "Anthropic"}[package])
        client = kind(api_key="k", base_url=stub.url, max_retries=0)
        self.opened.append(client)
        return self.memoir.wrap(client, **options)

    def run(self, value: Any) -> Any:
        return self.runner.run(value) if self.runner and inspect.iscoroutine(value) else value

    def ask(self, client: Any, messages: list[Any] | str, stream: bool = False, **more: Any) -> tuple[str, list[Any]]:
        """Text and calls of the answer."""
        request: dict[str, Any] = {"model": "gpt-4o", "input" if self.form == "responses" else "messages": messages}
        if self.form == "messages":
            request |= {"model": "claude-sonnet-4-6", "max_tokens": 99}
        api = client.chat.completions if self.form == "chat" else getattr(client, self.form)
        create = api.create
        if stream:
            return self.joined(self.run(self.listed(create, request | more)))
        answer = self.run(create(**request, **more))
        if self.form == "chat":
            return answer.choices[0].message.content or "", [c.id for c in answer.choices[0].message.tool_calls or []]
        if self.form == "responses":
            return answer.output_text, [item.call_id for item in answer.output if item.type == "function_call"]
        blocks = answer.content
        return "".join(b.text for b in blocks if b.type == "text"), [b.id for b in blocks if b.type == "tool_use"]

    def listed(self, create: Any, request: dict[str, Any]) -> Any:
        if not self.runner:
            with create(stream=True, **request) as pieces:
                return list(pieces)

        async def pieces() -> list[Any]:
            async with await create(stream=True, **request) as stream:
                return [piece async for piece in stream]

        return pieces()

    def joined(self, pieces: list[Any]) -> tuple[str, list[Any]]:
        if self.form == "chat":
            deltas = [choice.delta for piece in pieces for choice in piece.choices]
            calls = [call for delta in deltas for call in delta.tool_calls or [] if call.id]
            assert [call.index for call in calls] == list(range(len(calls)))
            return "".join(delta.content or "" for delta in deltas), [call.id for call in calls]
        if self.form == "responses":
            done = pieces[-1].response
            return done.output_text, [item.call_id for item in done.output if item.type == "function_call"]
        starts = [piece for piece in pieces if piece.type == "content_block_start"]
        assert [piece.index for piece in starts] == list(range(len(starts)))
        assert [piece.type for piece in pieces].count("message_start") == 1
        texts = [p.delta.text for p in pieces if p.type == "content_block_delta" and p.delta.type == "text_delta"]
        return "".join(texts), [p.content_block.id for p in starts if p.content_block.type == "tool_use"]

    def result(self, call: str, answer: str) -> list[dict[str, Any]]:
        """An application's messages with a call and its result."""
        if self.form == "chat":
            function = {"name": "weather", "arguments": "{}"}
            calls = [{"id": call, "type": "function", "function": function}]
            asked = {"role": "assistant", "content": None, "tool_calls": calls}
            return [asked, {"role": "tool", "tool_call_id": call, "content": answer}]
        if self.form == "responses":
            asked = {"type": "function_call", "call_id": call, "name": "weather", "arguments": "{}"}
            return [asked, {"type": "function_call_output", "call_id": call, "output": answer}]
        asked = [{"type": "tool_use", "id": call, "name": "weather", "input": {}}]
        told = [{"type": "tool_result", "tool_use_id": call, "content": answer}]
        return [{"role": "assistant", "content": asked}, {"role": "user", "content": told}]

    def history(self, user: str, session: str = "s") -> list[tuple[str, Any]]:
        return [(turn["role"], turn.get("content")) for turn in self.run(self.memoir.history(user, session))]


@pytest.fixture(scope="module", params=DOORS, ids="-".join)
def door(request: pytest.FixtureRequest, memoir_dsn: str) -> Iterator[Door]:
    form, mode = request.param
    with asyncio.Runner() as runner:
        made = Door(form, runner if mode == "async" else None, memoir_dsn)
        yield made
        for one in (*made.opened, made.memoir):
            made.run(one.close())


def said(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def sent(body: dict[str, Any]) -> str:
    return str(body.get("messages") or body.get("input"))


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_an_application_that_sends_all_its_messages(door, user, stream):
    """What it sends again is stored once; what another session said is recalled."""
    earlier = [said("My cello is called Bruno."), {"role": "assistant", "content": "Nice."}]
    door.run(door.memoir.persist_turn(user, "earlier", earlier))
    with door.stub_type(Answer(text="Hello!"), Answer(text="It is Bruno.")) as stub:
        client = door.client(stub, user=user, session="s")
        messages = [said("Good morning, I am back.")]
        text, _ = door.ask(client, messages, stream)
        assert text == "Hello!"
        messages += [{"role": "assistant", "content": text}, said("What is my cello called?")]
        assert door.ask(client, messages, stream)[0] == "It is Bruno."
        assert "My cello is called Bruno" in sent(stub.requests[1]) and "I am back" in sent(stub.requests[1])
    assert door.history(user) == [
        ("user", "Good morning, I am back."), ("assistant", "Hello!"),
        ("user", "What is my cello called?"), ("assistant", "It is Bruno."),
    ]  # fmt: skip


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_tools_of_the_application(door, user, stream):
    with door.stub_type(Answer(tool_calls=[("c1", "weather", {})]), Answer(text="Rain.")) as stub:
        client = door.client(stub, user=user, session="s")
        asked = [said("How is the weather?")]
        assert door.ask(client, asked, stream, tools=[door.tool]) == ("", ["c1"])
        assert door.ask(client, asked + door.result("c1", "rain"), stream, tools=[door.tool]) == ("Rain.", [])
    assert [role for role, _ in door.history(user)] == ["user", "assistant", "tool", "assistant"]


def test_two_clients_in_one_session(door, user):
    """Requests of one conversation may reach one process and then another."""
    with door.stub_type(*[Answer(text=f"Answer {n}.") for n in range(4)]) as stub:
        clients = [door.client(stub, user=user, session="s", strict=True) for _ in range(2)]
        messages = []
        for n in range(4):
            messages.append(said(f"Question {n}?"))
            text, _ = door.ask(clients[n % 2], messages, False)
            messages.append({"role": "assistant", "content": text})
    told = [text for n in range(4) for text in (f"Question {n}?", f"Answer {n}.")]
    assert [text for _, text in door.history(user)] == told


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_memory_tools_are_answered_unseen(door, user, stream):
    """A call of memory's own, then one mixed with the application's: it sees its own alone."""
    if stream and door.form == "responses":
        pytest.skip("memory's tools are not offered there")
    own = ("m1", "memory_remember", {"content": "Plays the cello.", "said": "I play the cello"})
    both = [("m2", "memory_search", {"query": "cello"}), ("c1", "weather", {})]
    script = [Answer(tool_calls=[own]), Answer(text="Well, ", tool_calls=both), Answer(text="Rain.")]
    with door.stub_type(*script) as stub:
        client = door.client(stub, user=user, session="s", memory_tools=True)
        asked = [said("I play the cello. How is the weather?")]
        assert door.ask(client, asked, stream, tools=[door.tool]) == ("Well, ", ["c1"])
        assert door.ask(client, asked + door.result("c1", "rain"), stream, tools=[door.tool]) == ("Rain.", [])
        assert "memory_remember" in str(stub.requests[0]["tools"])
    assert [m.content for m in door.run(door.memoir.list_memories(user))] == ["Plays the cello."]
    assert [role for role, _ in door.history(user)] == [
        "user", "assistant", "tool", "assistant", "tool", "tool", "assistant",
    ]  # fmt: skip


def test_a_failed_call_stores_nothing_and_may_be_made_again(door, user):
    with door.stub_type(Answer(status=500), Answer(text="Now.")) as stub:
        client = door.client(stub, user=user, session="s")
        with pytest.raises((openai.InternalServerError, anthropic.InternalServerError)):
            door.ask(client, [said("Are you there?")])
        assert door.history(user) == []
        door.ask(client, [said("Are you there?")])
    assert door.history(user) == [("user", "Are you there?"), ("assistant", "Now.")]


def test_where_memory_fails_the_request_goes_out_as_it_came(door, user, caplog):
    with door.stub_type(Answer(text="Yes.")) as stub, caplog.at_level(logging.WARNING, "pg_memoir"):
        client = door.client(stub, user=user, session="s", model=5)
        assert door.ask(client, [said("Are you there?")])[0] == "Yes." and "model is an int" in caplog.text
        with pytest.raises(errors.InvalidArgumentError, match="model is an int"):
            door.ask(door.client(stub, user=user, session="s", model=5, strict=True), [said("Are you there?")])


def test_a_stream_that_is_left_is_stored_as_far_as_it_came(door, user):
    if door.form == "responses":
        pytest.skip("its whole response comes with the last event")
    with door.stub_type(Answer(text="One two three four five six")) as stub:
        client = door.client(stub, user=user, session="s")
        request = {"model": "gpt-4o", "messages": [said("Count.")], "stream": True, "max_tokens": 9}
        create = client.messages.create if door.form == "messages" else client.chat.completions.create

        async def some() -> None:
            async with await create(**request) as stream:
                for _ in range(4):
                    await anext(stream)

        if door.runner:
            door.runner.run(some())
        else:
            with create(**request) as stream:
                for _ in range(4):
                    next(stream)
    (_, question), (role, answer) = door.history(user)
    assert question == "Count." and role == "assistant" and answer and "One two three four five six".startswith(answer)


def test_the_streaming_helper_of_anthropic(memoir_dsn, user):
    with Memoir(memoir_dsn) as memoir, MessagesStub(Answer(text="Hello there.")) as stub:
        client = memoir.wrap(anthropic.Anthropic(api_key="k", base_url=stub.url), user=user, session="s")
        messages = [said("Hello, it is me.")]
        with client.messages.stream(model="claude-sonnet-4-6", max_tokens=9, messages=messages) as stream:
            assert "".join(stream.text_stream) == "Hello there."
            assert stream.get_final_message().content[0].text == "Hello there."
        assert [turn["role"] for turn in memoir.history(user, "s")] == ["user", "assistant"]
