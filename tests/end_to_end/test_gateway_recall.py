"""The gateway in mode recall: what is remembered stands beside the newest message and stays there; our tools are answered
within the client's message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from gateways import CLAUDE, TOOL, Running, gateway
from pg_memoir import Memoir
from starlette.responses import Response
from upstream import Upstream, call, text, thought, upstream

MARK = {"cache_control": {"type": "ephemeral"}}


@pytest.fixture
def model() -> Iterator[Upstream]:
    with upstream(lambda body: [text("Noted.")]) as running:
        yield running


@pytest.fixture
def recaller(memoir_dsn: str, model: Upstream, user: str) -> Iterator[Running]:
    with gateway(memoir_dsn, model, user, mode="recall", database_ms=20_000) as running:
        yield running


@pytest.fixture
def memoir(memoir_dsn: str) -> Iterator[Memoir]:
    with Memoir(memoir_dsn) as client:
        yield client


def script(model: Upstream, *answers: Any) -> None:
    """The answers to come, in order."""
    left = iter(answers)
    model.answer = lambda body: next(left)


def say(client: Any, messages: list[dict[str, Any]], stream: bool = True) -> Any:
    """Asks, and appends the answer as a client does."""
    if stream:
        with client.messages.stream(model="m", max_tokens=99, tools=[TOOL], messages=messages) as answer:
            told = answer.get_final_message()
    else:
        told = client.messages.create(model="m", max_tokens=99, tools=[TOOL], messages=messages)
    content = [block.model_dump(mode="json", exclude_none=True) for block in told.content]
    for block in content:
        block.pop("parsed_output", None)
    messages.append({"role": "assistant", "content": content})
    return told


def user_says(*texts: str) -> dict[str, Any]:
    blocks = [text(said) for said in texts]
    return {"role": "user", "content": [*blocks[:-1], blocks[-1] | MARK]}


def test_a_second_session_knows_the_first(recaller: Running, model: Upstream) -> None:
    """Recall stands behind the last cache mark, and stays there byte for byte while the list grows."""
    say(recaller.anthropic("first", **CLAUDE), [user_says("My locker code is 4711.")])
    recaller.settle()
    client, listed = recaller.anthropic("second", **CLAUDE), [user_says("What is my locker code?")]
    script(model, [call("read", "toolu_1", path="a")], [text("It is 4711.")], [text("Yes.")])
    say(client, listed)
    first = model.asked[-1].body["messages"][0]["content"]
    assert first[0] == listed[0]["content"][0] and "4711" in first[1]["text"] and "cache_control" not in first[1]
    listed[0]["content"][-1].pop("cache_control")
    listed.append(
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "x"} | MARK]}
    )
    say(client, listed)
    listed[2]["content"][0].pop("cache_control")
    listed.append(user_says("Are you sure?"))
    say(client, listed)
    kept = [asked.body["messages"][0]["content"][1] for asked in model.asked[-3:]]
    assert kept[0] == kept[1] == kept[2]
    names = [[tool["name"] for tool in asked.body["tools"]] for asked in model.asked[-3:]]
    assert names[0] == names[1] == names[2] and names[0][0] == "read" and "memory_query" in names[0]


def test_another_process_sends_the_same_bytes(recaller: Running, model: Upstream, memoir_dsn: str, user: str) -> None:
    """What was added is known from the database, by whoever goes on."""
    say(recaller.anthropic("first", **CLAUDE), [user_says("My locker code is 4711.")])
    recaller.settle()
    listed = [user_says("What is my locker code?")]
    script(
        model, [text("Wait."), call("memory_query", "toolu_m", question="locker code")], [text("4711.")], [text("Yes.")]
    )
    say(recaller.anthropic("second", **CLAUDE), listed)
    recaller.settle()
    listed.append(user_says("Sure?"))
    with gateway(memoir_dsn, model, user, mode="recall", database_ms=20_000) as other:
        say(other.anthropic("second", **CLAUDE), listed)
    before, after = model.asked[-2].body["messages"], model.asked[-1].body["messages"]
    assert after[: len(before)] == before and len(before) == 3 and len(after) == 5


@pytest.mark.parametrize("stream", [True, False])
def test_our_tools_are_answered_within_the_message(
    recaller: Running, model: Upstream, memoir: Memoir, user: str, stream: bool
) -> None:
    """The client sees one message without the call; the next request has the call and its result where they stood."""
    memoir.remember(user, "The vault code of project Heron is HRN-7731-QX.")
    asked = call("memory_query", "toolu_m", question="vault code of project Heron")
    script(model, [thought("Hm."), text("I look."), asked], [thought("Ah."), text("HRN-7731-QX.")], [text("Bye.")])
    listed = [user_says("What is the vault code?")]
    client = recaller.anthropic("s", **CLAUDE)
    told = say(client, listed, stream)
    assert [block.type for block in told.content] == ["thinking", "text", "thinking", "text"]
    assert told.stop_reason == "end_turn" and told.usage.output_tokens == 14
    inner = model.asked[-1].body["messages"]
    assert inner[1]["content"][-1] == asked and "HRN-7731-QX" in inner[2]["content"][0]["content"]
    listed.append(user_says("Thanks."))
    say(client, listed, stream)
    later = model.asked[-1].body["messages"]
    assert later[1:3] == inner[1:] and [b["type"] for b in later[3]["content"]] == ["thinking", "text"]


def test_our_call_beside_the_clients_is_woven_in_when_it_returns(recaller: Running, model: Upstream) -> None:
    ours, theirs = call("memory_query", "toolu_m", question="code"), call("read", "toolu_r", path="a")
    script(model, [text("Both."), ours, theirs], [text("Done.")], [text("Bye.")])
    listed, client = [user_says("Go.")], recaller.anthropic("s", **CLAUDE)
    told = say(client, listed)
    assert [block.type for block in told.content] == ["text", "tool_use"] and told.stop_reason == "tool_use"
    listed.append(
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_r", "content": "x"} | MARK]}
    )
    say(client, listed)
    sent = model.asked[-1].body["messages"]
    assert sent[1]["content"] == [text("Both."), ours, theirs]
    assert [block["tool_use_id"] for block in sent[2]["content"]] == ["toolu_m", "toolu_r"]
    listed.append(user_says("More."))
    say(client, listed)
    assert model.asked[-1].body["messages"][1:3] == [sent[1], {"role": "user", "content": [
        {k: v for k, v in block.items()} for block in sent[2]["content"]]}]  # fmt: skip


OVER = Response('{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}', 529)


def test_no_more_rounds_than_the_setting_says(memoir_dsn: str, model: Upstream, user: str) -> None:
    model.answer = lambda body: [text("Again."), call("memory_query", f"toolu_{len(model.asked)}", question="q")]
    with gateway(memoir_dsn, model, user, mode="recall", fault_rounds=2, database_ms=20_000) as running:
        listed, client = [user_says("Go.")], running.anthropic("s", **CLAUDE)
        told = say(client, listed)
        assert told.stop_reason == "end_turn" and len(model.asked) == 3 and len(told.content) == 3
        listed.append(user_says("And?"))
        say(client, listed)
    assert [m["role"] for m in model.asked[3].body["messages"]] == ["user", "assistant"] * 3 + ["user"]


def test_an_error_within_the_message_is_the_upstreams(recaller: Running, model: Upstream) -> None:
    script(model, [text("Hm."), call("memory_query", "toolu_m", question="q")], OVER, OVER)
    with pytest.raises(Exception, match="Overloaded"):
        say(recaller.anthropic("s", **CLAUDE), [user_says("Go.")])


def test_error_in_a_later_round_is_mended(recaller: Running, model: Upstream) -> None:
    """The client's own request is asked then, and its answer goes on where the first ended."""
    script(model, [text("Hm."), call("memory_query", "toolu_m", question="q")], OVER, [text("It is blue.")])
    told = say(recaller.anthropic("s", **CLAUDE), [user_says("Go.")])
    assert [block.text for block in told.content] == ["Hm.", "It is blue."]
    assert b"memory_query" not in model.asked[-1].raw and b"memory_query" in model.asked[-2].raw


def test_refused_additions_are_left_out(recaller: Running, model: Upstream, memoir: Memoir, user: str) -> None:
    """A window that is nearly full: what fits without us passes, and the conversation is left alone from then on."""
    memoir.remember(user, "The harbour crane in Visby is a Liebherr K7.")
    full = Response('{"error":{"message":"maximum context length","type":"invalid_request_error"}}', 400)
    script(model, full, [text("Fine.")], [text("Fine again.")])
    listed, client = [user_says("Which crane does the harbour in Visby have?")], recaller.anthropic("s", **CLAUDE)
    assert say(client, listed).content[0].text == "Fine."
    first, second = model.asked[-2:]
    assert b"Liebherr" in first.raw and b"Liebherr" not in second.raw and b"memory_query" not in second.raw
    listed.append(user_says("And the other crane?"))
    assert say(client, listed).content[0].text == "Fine again."
    assert len(model.asked) == 3 and b"memory_query" not in model.asked[-1].raw
    assert (
        recaller.counts.of("bypasses", reason="status 400")
        == recaller.counts.of("bypasses", reason="refused before")
        == 1
    )


def test_refusal_of_the_clients_own_request(recaller: Running, model: Upstream) -> None:
    """The client gets the answer to its own bytes, and is managed again with the next request."""
    wrong = [Response(f'{{"error":{{"message":"wrong {n}"}}}}', 400) for n in (1, 2)]
    script(model, *wrong, [text("Fine.")])
    client = recaller.anthropic("s", **CLAUDE)
    with pytest.raises(Exception, match="wrong 2"):
        say(client, [user_says("Go on.")])
    say(client, [user_says("Go on.")])
    assert len(model.asked) == 3 and b"memory_query" in model.asked[-1].raw


def test_what_the_user_asks_through_a_tool_is_done(
    recaller: Running, model: Upstream, memoir: Memoir, user: str
) -> None:
    """The user's message is stored before a tool that quotes it runs."""
    memoir.remember(user, "The gym code is 5512.")
    said = "Please forget my gym code."
    script(model, [call("memory_update", "toolu_f", about="gym code", said=said)], [text("Gone.")])
    say(recaller.anthropic("s", **CLAUDE), [user_says(said)])
    assert "Forgotten" in model.asked[-1].body["messages"][-1]["content"][0]["content"]
    assert "5512" not in str(memoir.recall(user, "gym code"))


@pytest.mark.parametrize("size", [1, 7, 64])
def test_any_split_of_the_stream_gives_the_same_message(recaller: Running, model: Upstream, size: int) -> None:
    model.pieces = lambda raw: [raw[i : i + size] for i in range(0, len(raw), size)]
    script(
        model,
        [text("naïve 😀"), call("memory_query", "toolu_m", question="é")],
        [text("Done."), call("read", "r", path="é")],
    )
    told = say(recaller.anthropic("s", **CLAUDE), [user_says("Go.")])
    assert [b.type for b in told.content] == ["text", "text", "tool_use"] and told.content[2].input == {"path": "é"}
    assert told.content[0].text == "naïve 😀"


def test_sub_agents_and_asides_pass_untouched(recaller: Running, model: Upstream) -> None:
    for headers in (
        {"x-claude-code-request-class": "subagent", "x-claude-code-agent-id": "a1"},
        {"x-claude-code-request-class": "title"},
    ):
        say(recaller.anthropic("s", **CLAUDE, **headers), [user_says("Look.")])
        assert [tool["name"] for tool in model.asked[-1].body["tools"]] == ["read"]
        assert len(model.asked[-1].body["messages"][0]["content"]) == 1


def test_what_is_forgotten_is_not_sent_again(
    recaller: Running, model: Upstream, memoir: Memoir, memoir_dsn: str, user: str
) -> None:
    """Neither a recall that stands in a list, nor what a tool of ours answered there, nor what it was called with; by whichever
    process. What stood before stays to the byte."""
    memory = memoir.remember(user, "The gym code is 5512.")["memory_id"]
    listed, client = [user_says("What is the gym code?")], recaller.anthropic("s", **CLAUDE)
    asked = call("memory_query", "toolu_q", question="gym code 5512")
    script(model, [asked], [text("I know it.")], [text("Bye.")], [text("Again.")])
    say(client, listed)
    carried = model.asked[-1].body["messages"]
    assert "5512" in carried[0]["content"][1]["text"] and "5512" in carried[2]["content"][0]["content"]
    recaller.settle()
    memoir.forget(user, memory)
    listed.append(user_says("Thanks."))
    with gateway(memoir_dsn, model, user, mode="recall", database_ms=20_000) as other:
        for running in (recaller, other):
            say(running.anthropic("s", **CLAUDE), list(listed))
            kept = model.asked[-1].body["messages"]
            assert "5512" not in str(kept) and "[withdrawn]" in str(kept[0]) and "[withdrawn]" in str(kept[2])
            assert [block["type"] for block in kept[1]["content"]] == ["tool_use"] and len(kept) == 5
    assert model.asked[-1].body["messages"] == model.asked[-2].body["messages"]


def test_what_a_call_forgets_leaves_the_request_that_goes_on(
    recaller: Running, model: Upstream, memoir: Memoir, user: str
) -> None:
    memoir.remember(user, "The gym code is 5512.")
    said = "Please forget my gym code."
    script(model, [call("memory_update", "toolu_f", about="gym code", said=said)], [text("Gone.")], [text("Bye.")])
    listed, client = [user_says(said)], recaller.anthropic("s", **CLAUDE)
    say(client, listed)
    first, second = (str(asked.body["messages"]) for asked in model.asked[-2:])
    assert "5512" in first and "5512" not in second
    recaller.settle()
    listed.append(user_says("Thanks."))
    say(client, listed)
    before, after = (asked.body["messages"] for asked in model.asked[-2:])
    assert after[: len(before)] == before


def test_spent_rounds_end_with_an_answer(memoir_dsn: str, model: Upstream, user: str) -> None:
    """The last request has none of our tools."""

    def answer(body: Any) -> Any:
        offered = any(tool["name"] == "memory_query" for tool in body["tools"])
        return [call("memory_query", f"toolu_{len(model.asked)}", question="q") if offered else text("Done.")]

    model.answer = answer
    with gateway(memoir_dsn, model, user, mode="recall", fault_rounds=2, database_ms=20_000) as running:
        told = say(running.anthropic("s", **CLAUDE), [user_says("Go.")])
    assert [block.text for block in told.content] == ["Done."] and len(model.asked) == 3


@pytest.mark.parametrize("stream", [True, False])
def test_refused_round_falls_back_to_the_client(recaller: Running, model: Upstream, stream: bool) -> None:
    """Where the upstream refuses what our calls add, the client's own request is answered, and later ones are its own."""
    full = Response('{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long"}}', 400)
    asked = [text("I look. "), call("memory_query", "toolu_m", question="q")]
    script(model, asked, full, [text("Here.")], [text("Bye.")])
    listed, client = [user_says("Go.")], recaller.anthropic("s", **CLAUDE)
    told = say(client, listed, stream)
    assert [block.text for block in told.content] == ["I look. ", "Here."] and told.stop_reason == "end_turn"
    assert [tool["name"] for tool in model.asked[-1].body["tools"]] == ["read"]
    listed.append(user_says("Thanks."))
    say(client, listed, stream)
    assert "toolu_m" not in str(model.asked[-1].body["messages"])


@pytest.mark.parametrize("as_text", [True, False])
def test_request_without_tools_has_no_calls(recaller: Running, model: Upstream, as_text: bool) -> None:
    """With tools again, the calls are back, also where the client sends the answer as one text."""
    script(model, [call("memory_query", "toolu_m", question="q")], [text("Told.")], [text("So.")], [text("Bye.")])
    listed, client = [user_says("Go.")], recaller.anthropic("s")
    say(client, listed)
    if as_text:
        listed[-1]["content"] = "Told."
    listed.append(user_says("Sum up."))
    client.messages.create(model="m", max_tokens=99, messages=listed)
    assert "toolu_m" not in model.asked[-1].raw.decode()
    say(client, listed)
    assert model.asked[-1].raw.decode().count("toolu_m") == 2
