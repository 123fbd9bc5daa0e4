"""The gateway in mode recall: memories stand beside the newest message and stay there; our tools are answered within the
client's message."""

from typing import Any

import pytest
from answers import call, text, thought
from gateways import APIS, Chat, Messages, Responses, Running, gateway, script
from pg_memoir import Memoir
from starlette.responses import Response as Reply
from upstream import Upstream

MODE = "recall"
each_api = pytest.mark.parametrize("api", APIS)
each_way = pytest.mark.parametrize("stream", [True, False])


def ask(ident: str = "m", question: str = "q") -> Any:
    return call("memory_query", ident, question=question)


def lists(model: Upstream, last: int) -> list[Any]:
    """The lists of the last requests."""
    return [asked.body.get("messages") or asked.body["input"] for asked in model.asked[-last:]]


# All three APIs -----------------------------------------------------------------------------------------------------


@each_way
@each_api
def test_tools_are_answered_in_the_message(
    running: Running, model: Upstream, memoir: Memoir, user: str, api: Any, stream: bool
) -> None:
    """The client sees one message without the call; later requests have the call and its result where they stood."""
    memoir.remember(user, "The vault code of project Heron is HRN-7731-QX.")
    asked = ask(question="vault code of project Heron")
    script(model, [text("I look. "), asked], [text("HRN-7731-QX.")], [text("Bye.")], [text("Bye, bye.")])
    client = api(running)
    assert client.say("What is written?", stream=stream) == ("I look. HRN-7731-QX.", [])
    (inner,) = lists(model, 1)
    assert "HRN-7731-QX" in str(inner[-1]) and "HRN-7731-QX" not in str(inner[:-2])
    first = len(model.asked) - 1
    assert client.idents == {{Messages: f"msg_{first}", Chat: f"chatcmpl-{first}", Responses: f"resp_{first}"}[api]}
    client.say("Thanks.", stream=stream)
    client.say("And again.", stream=stream)
    for later in lists(model, 2):
        assert unmarked(later)[: len(inner)] == unmarked(inner)


def unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: unmarked(inner) for key, inner in value.items() if key != "cache_control"}
    return list(map(unmarked, value)) if isinstance(value, list) else value


@each_way
@each_api
def test_call_beside_the_clients_is_put_back(running: Running, model: Upstream, api: Any, stream: bool) -> None:
    script(model, [text("Both."), ask("m"), call("read", "r", path="é")], [text("Done.")], [text("Bye.")])
    client = api(running)
    assert client.say("Go.", stream=stream) == ("Both.", ["read"])
    client.result("r", "a file", stream=stream)
    client.say("More.", stream=stream)
    sent, later = map(unmarked, lists(model, 2))
    assert str(sent).count("'m'") == 2 and later[: len(sent)] == sent


@each_api
def test_recall_stays_in_its_message(running: Running, model: Upstream, memoir: Memoir, user: str, api: Any) -> None:
    memoir.remember(user, "The vault code of project Heron is HRN-7731-QX.")
    client = api(running)
    client.say("What is the vault code of project Heron?")
    client.say("Sure?")
    first = [next(item for item in unmarked(sent) if item["role"] == "user") for sent in lists(model, 2)]
    assert "HRN-7731-QX" in str(first[0]) and first[0] == first[1]


@each_api
def test_spent_rounds_end_with_an_answer(memoir_dsn: str, model: Upstream, user: str, api: Any) -> None:
    """The last request has none of our tools."""
    model.answer = lambda body: [ask(f"c{len(model.asked)}") if "memory_query" in str(body["tools"]) else text("Done.")]
    with gateway(memoir_dsn, model, user, mode="recall", fault_rounds=2) as running:
        assert api(running).say("Go.") == ("Done.", []) and len(model.asked) == 3


@each_api
def test_any_split_gives_the_same_message(running: Running, model: Upstream, api: Any) -> None:
    model.pieces = lambda raw: [raw[i : i + 7] for i in range(0, len(raw), 7)]
    script(model, [text("naïve 😀 "), ask()], [text("Done."), call("read", "r", path="é")])
    assert api(running).say("Go.") == ("naïve 😀 Done.", ["read"])


# Lists and rounds ---------------------------------------------------------------------------------------------------


def test_second_session_knows_the_first(running: Running, model: Upstream) -> None:
    """Recall stands behind the last cache mark, and stays there byte for byte while the list grows."""
    Messages(running, "first").say("My locker code is 4711.")
    running.settle()
    client = Messages(running, "second")
    script(model, [call("read", "toolu_1", path="a")], [text("It is 4711.")], [text("Yes.")])
    client.say("What is my locker code?")
    first = lists(model, 1)[0][0]["content"]
    assert first[0] == client.list[0]["content"][0] and "4711" in first[1]["text"] and "cache_control" not in first[1]
    client.result("toolu_1", "x")
    client.say("Are you sure?")
    assert all(sent[0]["content"][1] == first[1] for sent in lists(model, 3))
    names = [[tool["name"] for tool in asked.body["tools"]] for asked in model.asked[-3:]]
    assert names[0] == names[1] == names[2] and names[0][0] == "read" and "memory_query" in names[0]


def test_another_process_sends_the_same(running: Running, model: Upstream, memoir_dsn: str, user: str) -> None:
    """It finds the additions in the database."""
    Messages(running, "first").say("My locker code is 4711.")
    running.settle()
    script(model, [text("Wait."), ask(question="locker code")], [text("4711.")], [text("Yes.")])
    client = Messages(running, "second")
    client.say("What is my locker code?")
    running.settle()
    with gateway(memoir_dsn, model, user, mode="recall") as other:
        client.client = other.anthropic("second", **{"user-agent": "claude-cli/2.1"})
        client.say("Sure?")
    before, after = map(unmarked, lists(model, 2))
    assert after[: len(before)] == before and len(before) == 3 and len(after) == 5


def test_thoughts_and_usage_of_all_rounds(running: Running, model: Upstream) -> None:
    script(model, [thought("Hm."), text("I look."), ask()], [thought("Ah."), text("Found.")], [text("Bye.")])
    client = Messages(running)
    client.say("Go.")
    assert [block.type for block in client.told.content] == ["thinking", "text", "thinking", "text"]
    assert client.told.stop_reason == "end_turn" and client.told.usage.output_tokens == 14
    client.say("Thanks.")
    later = lists(model, 1)[0]
    assert later[1]["content"][-1] == ask() and [b["type"] for b in later[3]["content"]] == ["thinking", "text"]


def test_no_more_rounds_than_the_setting(memoir_dsn: str, model: Upstream, user: str) -> None:
    model.answer = lambda body: [text("Again."), ask(f"toolu_{len(model.asked)}")]
    with gateway(memoir_dsn, model, user, mode="recall", fault_rounds=2) as running:
        client = Messages(running)
        client.say("Go.")
        assert client.told.stop_reason == "end_turn" and len(model.asked) == 3 and len(client.told.content) == 3
        client.say("And?")
    assert [message["role"] for message in model.asked[3].body["messages"]] == ["user", "assistant"] * 3 + ["user"]


@pytest.mark.parametrize("as_text", [True, False])
def test_request_without_tools_has_no_calls(running: Running, model: Upstream, as_text: bool) -> None:
    """With tools again, the calls are back, also where the client sends the answer as one text."""
    script(model, [ask("toolu_m")], [text("Told.")], [text("So.")], [text("Bye.")])
    client = Messages(running, **{"user-agent": "other"})
    client.say("Go.")
    if as_text:
        client.list[-1]["content"] = "Told."
    client.list.append({"role": "user", "content": "Sum up."})
    client.client.messages.create(model="m", max_tokens=99, messages=client.list)
    assert b"toolu_m" not in model.asked[-1].raw
    client.go_on()
    assert model.asked[-1].raw.count(b"toolu_m") == 2


def test_several_choices_are_offered_no_tools(running: Running, model: Upstream) -> None:
    client = Chat(running)
    client.list.append({"role": "user", "content": "Go."})
    client.go_on(stream=False, n=2)
    assert [tool["function"]["name"] for tool in model.asked[-1].body["tools"]] == ["read"]


@pytest.mark.parametrize("sort", ["subagent", "title"])
def test_agents_and_asides_pass_untouched(running: Running, model: Upstream, sort: str) -> None:
    Messages(running, **{"x-claude-code-request-class": sort}).say("Look.")
    assert [tool["name"] for tool in model.asked[-1].body["tools"]] == ["read"]
    assert len(model.asked[-1].body["messages"][0]["content"]) == 1


# Refusals -----------------------------------------------------------------------------------------------------------

OVER = Reply('{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}', 529)
FULL = Reply('{"type":"error","error":{"message":"prompt is too long","type":"invalid_request_error"}}', 400)


def test_error_within_a_message_is_the_upstreams(running: Running, model: Upstream) -> None:
    script(model, [text("Hm."), ask()], OVER, OVER)
    with pytest.raises(Exception, match="Overloaded"):
        Messages(running).say("Go.")


@each_way
@pytest.mark.parametrize("refusal", [OVER, FULL])
def test_refused_round_falls_back_to_the_client(running: Running, model: Upstream, refusal: Any, stream: bool) -> None:
    """The client's own request is asked then, and its answer goes on where the first ended. Later requests are its own."""
    script(model, [text("I look. "), ask("toolu_m")], refusal, [text("Here.")], [text("Bye.")])
    client = Messages(running)
    assert client.say("Go.", stream=stream) == ("I look. Here.", []) and client.told.stop_reason == "end_turn"
    assert b"memory_query" not in model.asked[-1].raw and b"memory_query" in model.asked[-2].raw
    client.say("Thanks.", stream=stream)
    assert b"toolu_m" not in model.asked[-1].raw


def test_refused_additions_are_left_out(running: Running, model: Upstream, memoir: Memoir, user: str) -> None:
    """The client's own request passes, and the conversation is left alone from then on."""
    memoir.remember(user, "The harbour crane in Visby is a Liebherr K7.")
    script(model, FULL, [text("Fine.")], [text("Fine again.")])
    client = Messages(running)
    assert client.say("Which crane does the harbour in Visby have?")[0] == "Fine."
    first, second = model.asked[-2:]
    assert b"Liebherr" in first.raw and b"Liebherr" not in second.raw and b"memory_query" not in second.raw
    assert client.say("And the other crane?")[0] == "Fine again."
    assert len(model.asked) == 3 and b"memory_query" not in model.asked[-1].raw
    assert [running.counts.of("bypasses", reason=r) for r in ("status 400", "refused before")] == [1, 1]


def test_refusal_of_the_clients_own_request(running: Running, model: Upstream) -> None:
    """The client gets the answer to its own bytes, and is managed again with the next request."""
    script(model, *[Reply(f'{{"error":{{"message":"wrong {n}"}}}}', 400) for n in (1, 2)], [text("Fine.")])
    with pytest.raises(Exception, match="wrong 2"):
        Messages(running).say("Go on.")
    Messages(running).say("Go on.")
    assert len(model.asked) == 3 and b"memory_query" in model.asked[-1].raw


# Forgetting ---------------------------------------------------------------------------------------------------------


def test_forgetting_by_a_tool(running: Running, model: Upstream, memoir: Memoir, user: str) -> None:
    """The message that the call quotes is stored first. The request that goes on has nothing of the memory."""
    memoir.remember(user, "The gym code is 5512.")
    said = "Please forget my gym code."
    script(model, [call("memory_update", "f", about="gym code", said=said)], [text("Gone.")], [text("Bye.")])
    client = Messages(running)
    client.say(said)
    first, second = lists(model, 2)
    assert "5512" in str(first) and "5512" not in str(second) and "Forgotten" in str(second[-1])
    assert "5512" not in str(memoir.recall(user, "gym code"))
    running.settle()
    client.say("Thanks.")
    before, after = map(unmarked, lists(model, 2))
    assert after[: len(before)] == before


def test_forgotten_text_is_not_sent_again(
    running: Running, model: Upstream, memoir: Memoir, memoir_dsn: str, user: str
) -> None:
    """Neither a recall that stands in a list, nor a tool's answer there, nor its arguments; by whichever process."""
    memory = memoir.remember(user, "The gym code is 5512.")["memory_id"]
    script(model, [ask("toolu_q", "gym code 5512")], [text("I know it.")], [text("Bye.")], [text("Bye.")])
    client = Messages(running)
    client.say("What is the gym code?")
    carried = lists(model, 1)[0]
    assert "5512" in carried[0]["content"][1]["text"] and "5512" in carried[2]["content"][0]["content"]
    running.settle()
    memoir.forget(user, memory)
    listed = list(client.list)
    with gateway(memoir_dsn, model, user, mode="recall") as other:
        for one in (running, other):
            again = Messages(one)
            again.list = list(listed)
            again.say("Thanks.")
            kept = lists(model, 1)[0]
            assert "5512" not in str(kept) and "[withdrawn]" in str(kept[0]) and "[withdrawn]" in str(kept[2])
            assert [block["type"] for block in kept[1]["content"]] == ["tool_use"] and len(kept) == 5
    assert unmarked(lists(model, 2)[0]) == unmarked(lists(model, 1)[0])
