"""The gateway in mode recall before OpenAI's APIs, through its own package."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from gateways import Running, gateway
from pg_memoir import Memoir
from upstream import Upstream, call, text, upstream

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}


@pytest.fixture
def model() -> Iterator[Upstream]:
    with upstream(lambda body: [text("Noted.")]) as running:
        yield running


@pytest.fixture
def recaller(memoir_dsn: str, model: Upstream, user: str) -> Iterator[Running]:
    with Memoir(memoir_dsn) as memoir:
        memoir.remember(user, "The vault code of project Heron is HRN-7731-QX.")
    with gateway(memoir_dsn, model, user, mode="recall", database_ms=20_000) as running:
        yield running


class Chat:
    """A client of chat completions; it keeps its list."""

    def __init__(self, running: Running, session: str) -> None:
        self.client = running.openai(session)
        self.messages: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}]
        function = {"name": "read", "description": "Reads", "parameters": SCHEMA}
        self.tools: Any = [{"type": "function", "function": function}]

    def say(self, said: str, stream: bool) -> tuple[str, list[str]]:
        self.messages.append({"role": "user", "content": said})
        return self.go_on(stream)

    def result(self, ident: str, told: str, stream: bool) -> tuple[str, list[str]]:
        self.messages.append({"role": "tool", "tool_call_id": ident, "content": told})
        return self.go_on(stream)

    def go_on(self, stream: bool) -> tuple[str, list[str]]:
        given: Any = {"model": "m", "messages": self.messages, "tools": self.tools}
        if stream:
            with self.client.chat.completions.stream(**given, stream_options={"include_usage": True}) as events:
                self.idents = {event.chunk.id for event in events if event.type == "chunk"}
                told = events.get_final_completion()
        else:
            told = self.client.chat.completions.create(**given)
            self.idents = {told.id}
        message = told.choices[0].message
        calls = [c.model_dump(include={"id", "type", "function"}) for c in message.tool_calls or []]
        for one in calls:
            one["function"].pop("parsed_arguments", None)
        self.messages.append(
            {"role": "assistant", "content": message.content} | ({"tool_calls": calls} if calls else {})
        )
        assert told.usage and told.usage.completion_tokens % 7 == 0
        return message.content or "", [one["function"]["name"] for one in calls]


class Responses:
    """A client of Responses; it keeps its list."""

    def __init__(self, running: Running, session: str) -> None:
        self.client = running.openai(session)
        self.input: list[Any] = []
        self.tools: Any = [{"type": "function", "name": "read", "parameters": SCHEMA, "strict": False}]

    def say(self, said: str, stream: bool) -> tuple[str, list[str]]:
        self.input.append({"role": "user", "content": said})
        return self.go_on(stream)

    def result(self, ident: str, told: str, stream: bool) -> tuple[str, list[str]]:
        self.input.append({"type": "function_call_output", "call_id": ident, "output": told})
        return self.go_on(stream)

    def go_on(self, stream: bool) -> tuple[str, list[str]]:
        given: Any = {"model": "m", "input": self.input, "tools": self.tools, "store": False}
        if stream:
            with self.client.responses.stream(**given) as events:
                numbers = [event.sequence_number for event in events]
                told = events.get_final_response()
            assert numbers == list(range(len(numbers)))
        else:
            told = self.client.responses.create(**given)
        self.idents = {told.id}
        for item in told.output:
            kept = item.model_dump(mode="json", exclude_none=True)
            kept.pop("parsed_arguments", None)
            for part in kept.get("content") or []:
                part.pop("parsed", None)
            self.input.append(kept)
        return told.output_text, [item.name for item in told.output if item.type == "function_call"]


def script(model: Upstream, *answers: Any) -> None:
    left = iter(answers)
    model.answer = lambda body: next(left)


def listed(asked: Any) -> list[dict[str, Any]]:
    """The list of a request, without what ids differ by."""
    return asked.body.get("messages") or asked.body["input"]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("api", [Chat, Responses])
def test_our_tools_are_answered_within_the_message_and_put_back(
    recaller: Running, model: Upstream, api: Any, stream: bool
) -> None:
    asked = call("memory_query", "call_m", question="vault code of project Heron")
    script(model, [text("I look. "), asked], [text("HRN-7731-QX.")], [text("Bye.")], [text("Bye, bye.")])
    client = api(recaller, f"s-{stream}")
    told, calls = client.say("What is written?", stream)
    assert told == "I look. HRN-7731-QX." and not calls
    inner = listed(model.asked[-1])
    assert "HRN-7731-QX" in str(inner[-1])
    first = len(model.asked) - 1
    assert client.idents == {f"chatcmpl-{first}" if api is Chat else f"resp_{first}"}, "one message, the first's"
    client.say("Thanks.", stream)
    client.say("And again.", stream)
    assert listed(model.asked[-2])[: len(inner)] == inner
    assert listed(model.asked[-1])[: len(inner)] == inner


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("api", [Chat, Responses])
def test_our_call_beside_the_clients_is_woven_in(recaller: Running, model: Upstream, api: Any, stream: bool) -> None:
    ours, theirs = call("memory_query", "call_m", question="Heron"), call("read", "call_r", path="é")
    script(model, [text("Both."), ours, theirs], [text("Done.")], [text("Bye.")])
    client = api(recaller, f"w-{stream}")
    told, calls = client.say("What is written?", stream)
    assert (told, calls) == ("Both.", ["read"])
    client.result("call_r", "a file", stream)
    sent = listed(model.asked[-1])
    assert "call_m" in str(sent) and "HRN-7731-QX" in str(sent)
    client.say("More.", stream)
    assert listed(model.asked[-1])[: len(sent)] == sent


@pytest.mark.parametrize("api", [Chat, Responses])
def test_recall_stands_in_the_newest_message_and_stays(recaller: Running, model: Upstream, api: Any) -> None:
    client = api(recaller, "r")
    client.say("What is the vault code of project Heron?", True)
    client.say("Sure?", True)
    first = [next(item for item in listed(asked) if item.get("role") == "user") for asked in model.asked[-2:]]
    assert "HRN-7731-QX" in first[0]["content"] and first[0] == first[1]


@pytest.mark.acceptance
@pytest.mark.parametrize("size", [1, 11])
@pytest.mark.parametrize("api", [Chat, Responses])
def test_any_split_of_the_stream_gives_the_same_message(
    recaller: Running, model: Upstream, api: Any, size: int
) -> None:
    model.pieces = lambda raw: [raw[i : i + size] for i in range(0, len(raw), size)]
    script(
        model,
        [text("naïve 😀 "), call("memory_query", "call_m", question="é")],
        [text("Done."), call("read", "r", path="é")],
    )
    assert api(recaller, f"x-{size}").say("Go.", True) == ("naïve 😀 Done.", ["read"])


def test_several_choices_are_offered_no_tools(recaller: Running, model: Upstream) -> None:
    client = Chat(recaller, "n")
    asked: Any = {"model": "m", "messages": [{"role": "user", "content": "Go."}], "tools": client.tools}
    client.client.chat.completions.create(**asked, n=2)
    assert [tool["function"]["name"] for tool in model.asked[-1].body["tools"]] == ["read"]
