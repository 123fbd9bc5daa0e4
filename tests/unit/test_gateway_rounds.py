"""Answers in which our tools are called, in the shapes that servers give them: our call is held back, the rest arrives."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pg_memoir_gateway.anthropic import MessagesRounds
from pg_memoir_gateway.openai_chat import ChatRounds
from pg_memoir_gateway.openai_responses import ResponsesRounds
from pg_memoir_gateway.rounds import NO_ANSWER
from pg_memoir_gateway.spans import apply_edits, body_of
from pg_memoir_gateway.sse import Event, Splitter
from upstream import MAKERS, call, text

OURS = "memory_query"
MAKE: dict[str, Any] = {
    "/v1/messages": MessagesRounds,
    "/v1/chat/completions": ChatRounds,
    "/v1/responses": ResponsesRounds,
}


def event(data: Any) -> Event:
    told = data if isinstance(data, str) else json.dumps(data)
    return Event(f"data: {told}\n\n".encode(), told)


def events_in(raw: bytes) -> list[Any]:
    return [found.json() or found.data for found in Splitter().feed(raw)]


def read(rounds: Any, *told: Any) -> bytes:
    """One answer; what the client gets at once."""
    rounds.begin()
    return b"".join(rounds.feed(event(one)) for one in told)


# Chat completions ---------------------------------------------------------------------------------------------------


def chunk(delta: Any, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"id": "c1", "created": 1, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]} | more


def part(name: str | None, arguments: Any, index: int | None = 0, ident: str | None = "a") -> dict[str, Any]:
    function = {"arguments": arguments} | ({} if name is None else {"name": name})
    told = {"id": ident, "index": index}
    return {"type": "function", "function": function} | {k: v for k, v in told.items() if v is not None}


def calls(*parts: Any, **more: Any) -> dict[str, Any]:
    return {"tool_calls": list(parts)} | more


ASKED = '{"question": "where?"}'
PATH = '{"path": "a"}'

SHAPES: dict[str, tuple[list[Any], str, int]] = {
    "call and end in one": ([chunk(calls(part(OURS, ASKED), content=""), "tool_calls")], "", 0),
    "no id": ([chunk(calls(part(OURS, ASKED, ident=""), role="assistant"), "tool_calls")], "", 0),
    "end is stop": ([chunk(calls(part(OURS, ASKED))), chunk({"role": "assistant", "content": ""}, "stop")], "", 0),
    "arguments are an object": ([chunk(calls(part(OURS, {"question": "where?"}))), chunk({}, "stop")], "", 0),
    "name in each piece": (
        [chunk(calls(part(OURS, piece))) for piece in ("", '{"question":', ' "where?"}', "")] + [chunk({}, "stop")],
        "",
        0,
    ),
    "name in two pieces": (
        [chunk(calls(part("memory", "", 0))), chunk(calls(part("_query", "", ident=None)))]
        + [chunk(calls(part(None, ASKED, ident=None))), chunk({}, "tool_calls")],
        "",
        0,
    ),
    "name in the second piece": (
        [chunk(calls(part(None, ""))), chunk(calls(part(OURS, ASKED, ident=None))), chunk({}, "tool_calls")],
        "",
        0,
    ),
    "the whole call again": ([chunk(calls(part(OURS, ASKED))), chunk(calls(part(OURS, ASKED)), "tool_calls")], "", 0),
    "text beside": ([chunk(calls(part(OURS, ASKED), content="Look. ")), chunk({"content": "!"}, "stop")], "Look. !", 0),
    "theirs, then ours, one index": (
        [chunk(calls(part("read", PATH, 0, "a"))), chunk(calls(part(OURS, ASKED, 0, "b"))), chunk({}, "tool_calls")],
        "",
        1,
    ),
    "ours, then theirs, no index, no ids": (
        [chunk(calls(part(OURS, ASKED, None, None), part("read", PATH, None, None)), "tool_calls")],
        "",
        1,
    ),
    "a name that begins like ours": (
        [chunk(calls(part("memory", "", 0, "a"))), chunk(calls(part(None, PATH, ident=None)))]
        + [chunk(calls(part(OURS, ASKED, 1, "b")), "tool_calls")],
        "",
        1,
    ),
    "no reason for the end": ([chunk(calls(part(OURS, ASKED)))], "", 0),
    "odd chunks between": (
        [
            {"choices": None},
            {"choices": []},
            chunk(None),
            chunk(calls(part(OURS, ASKED))),
            chunk(None),
            chunk({}, "stop"),
        ],
        "",
        0,
    ),
    "content as a list": (
        [chunk({"content": [{"type": "thinking", "thinking": []}, {"type": "text", "text": "Look."}]})]
        + [chunk(calls(part(OURS, ASKED)), "tool_calls")],
        "Look.",
        0,
    ),
}


@pytest.mark.parametrize("is_done", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_chat_reads_a_servers_shape(shape: str, is_done: bool) -> None:
    told, said, others = SHAPES[shape]
    rounds = ChatRounds({OURS}, 4)
    out = read(rounds, *told, *(["[DONE]"] if is_done else []))
    assert rounds.is_done and [(name, given) for _, name, given in rounds.find_calls()] == [
        (OURS, {"question": "where?"})
    ]
    assert rounds.goes_on() == (not others)
    made = rounds.items()[0]
    assert len(made.get("tool_calls", [])) == others and (made["content"] or "") == (
        said or ("" if others else NO_ANSWER)
    )
    out += rounds.finish()
    assert OURS.encode() not in out
    choices = [c for one in events_in(out) if one != "[DONE]" for c in one.get("choices") or []]
    finish = [c["finish_reason"] for c in choices if c.get("finish_reason")]
    assert finish == [] if "no reason" in shape else [("tool_calls" if others else "stop")]


STYLES = st.fixed_dictionaries(
    {
        "index": st.sampled_from(["own", "same", "none"]),
        "ids": st.booleans(),
        "pieces": st.sampled_from([1, 3, 40]),
        "named": st.booleans(),
        "closing": st.booleans(),
        "done": st.booleans(),
    }
)
STEPS = st.lists(
    st.one_of(
        st.text("ab é", min_size=1, max_size=4).map(lambda said: ("text", said)),
        st.integers(0, 99).map(lambda n: (OURS, json.dumps({"question": f"{n}"}))),
        st.integers(0, 99).map(lambda n: ("read", json.dumps({"path": f"{n}", "more": [n]}))),
    ),
    max_size=6,
    unique_by=str,  # without ids, the same call twice can't be told from one that is repeated
)


def stream_of(steps: list[Any], style: dict[str, Any]) -> list[Any]:
    told, number = [chunk({"role": "assistant", "content": ""})], 0
    for name, given_text in steps:
        if name == "text":
            told.append(chunk({"content": given_text}))
            continue
        index = {"own": number, "same": 0, "none": None}[style["index"]]
        for at in range(0, len(given_text), style["pieces"]):
            first = at == 0
            named = name if first or style["named"] and style["ids"] else None
            ident = f"c{number}" if style["ids"] and (first or style["named"]) else None
            told.append(chunk(calls(part(named, given_text[at : at + style["pieces"]], index, ident))))
        number += 1
    if style["closing"]:
        told[-1]["choices"][0]["finish_reason"] = "stop"
    else:
        told.append(chunk({}, "stop"))
    return told + (["[DONE]"] if style["done"] else [])


@settings(max_examples=300, deadline=None)
@given(STEPS, STYLES)
def test_chat_keeps_all_but_our_calls(steps: list[Any], style: dict[str, Any]) -> None:
    told, rounds = stream_of(steps, style), ChatRounds({OURS}, 4)
    out = read(rounds, *told)
    ours = [given for name, given in steps if name == OURS]
    assert rounds.is_done and [json.dumps(given) for _, _, given in rounds.find_calls()] == ours
    assert len({ident for ident, _, _ in rounds.find_calls()}) == len(ours)
    made = rounds.items()[0]
    out += rounds.finish()
    assert OURS.encode() not in out
    if not ours:
        assert out == b"".join(event(one).raw for one in told)
    deltas = [c["delta"] for one in events_in(out) if one != "[DONE]" for c in one.get("choices") or []]
    said = "".join(d.get("content") or "" for d in deltas).removesuffix(NO_ANSWER)
    assert said == "".join(given for name, given in steps if name == "text")
    theirs = [given for name, given in steps if name == "read"]
    parts = [p for d in deltas for p in d.get("tool_calls") or []]
    assert "".join(p["function"]["arguments"] for p in parts) == "".join(theirs)
    assert [c["function"]["arguments"] for c in made.get("tool_calls", [])] == theirs
    if style["index"] == "own":
        assert sorted({p["index"] for p in parts}) == list(range(len(theirs)))


def test_chat_sends_back_what_servers_ask_for() -> None:
    rounds, signed = ChatRounds({OURS}, 4), {"google": {"thought_signature": "sig"}}
    told = [chunk({"reasoning_content": "Hm"}), chunk({"reasoning_content": "m.", "content": "\ud83d"})]
    told += [
        chunk({"content": "\ude00"}),
        chunk(calls(part(OURS, '{"question": "\ud83d', ident="") | {"extra_content": signed})),
    ]
    read(rounds, *told, chunk(calls(part(None, '\ude00"}', ident=None)), "tool_calls"))
    assert rounds.find_calls()[0][2] == {"question": "😀"} and rounds.goes_on()
    sent = next_of(rounds)["messages"]
    assert sent[1]["reasoning_content"] == "Hmm." and sent[1]["content"] == "😀"
    assert (
        sent[1]["tool_calls"][0]["extra_content"] == signed
        and "😀" in sent[1]["tool_calls"][0]["function"]["arguments"]
    )
    ident = sent[1]["tool_calls"][0]["id"]
    assert len(ident) == 9 and sent[2] == {"role": "tool", "tool_call_id": ident, "content": "Told."}


def test_chat_ids_of_two_rounds_differ() -> None:
    rounds = ChatRounds({OURS}, 4)
    for _ in range(2):
        read(rounds, chunk(calls(part(OURS, ASKED, ident="call_1"), part(OURS, ASKED, 1, "call_1")), "tool_calls"))
        rounds.find_calls()
    assert len({one.id for now in rounds.rounds for one in now.calls}) == 4


def test_chat_with_several_choices_is_not_gone_on_with() -> None:
    rounds = ChatRounds({OURS}, 4)
    both = {
        "choices": [{"index": n, "delta": calls(part(OURS, ASKED)), "finish_reason": "tool_calls"} for n in range(2)]
    }
    out = read(rounds, both, "[DONE]")
    assert not rounds.goes_on()
    assert OURS.encode() not in out + rounds.finish()
    answer = {"choices": [{"index": n, "message": calls(part(OURS, ASKED), content=None)} for n in range(2)]}
    rounds = ChatRounds({OURS}, 4)
    rounds.begin()
    rounds.feed_whole(json.dumps(answer).encode())
    assert rounds.is_touched and OURS not in json.dumps(rounds.whole(answer))


# Messages -----------------------------------------------------------------------------------------------------------


def message(*blocks: tuple[dict[str, Any], list[Any]], stop: str = "tool_use", is_closed: bool = True) -> list[Any]:
    told: list[Any] = [{"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 3}}}]
    for at, (block, deltas) in enumerate(blocks):
        told.append({"type": "content_block_start", "index": at, "content_block": block})
        told += [{"type": "content_block_delta", "index": at, "delta": delta} for delta in deltas]
        told.append({"type": "content_block_stop", "index": at})
    told.append({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 2}})
    return told + ([{"type": "message_stop"}] if is_closed else [])


def our_block(*pieces: str | None, ident: str = "t1") -> tuple[dict[str, Any], list[Any]]:
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces or (ASKED,)]
    return {"type": "tool_use", "id": ident, "name": OURS, "input": {}}, deltas


def next_of(rounds: Any, key: str = "messages") -> Any:
    body = body_of(json.dumps({key: [{"role": "user", "content": "x"}]}).encode())
    return json.loads(apply_edits(body.text, rounds.go_on(body, ["Told."] * len(rounds.find_calls()))))


@pytest.mark.parametrize(
    ("begun", "deltas", "whole"),
    [
        ({"content": None}, [{"type": "compaction_delta", "content": "S", "encrypted_content": "E"}], {"content": "S", "encrypted_content": "E"}),
        ({"new": ""}, [{"type": "new_delta", "new": "a"}, {"type": "new_delta", "new": "b"}], {"new": "ab"}),
        ({}, [{"type": "new_delta", "list": [1], "none": None}], {"list": [1]}),
        ({"text": "a"}, [{"type": "text_delta", "text": "b"}], {"text": "ab"}),
    ],
)  # fmt: skip
def test_messages_sends_blocks_back_whole(begun: Any, deltas: Any, whole: Any) -> None:
    rounds = MessagesRounds({OURS}, 4)
    read(rounds, *message(({"type": "kind"} | begun, deltas), our_block()))
    assert rounds.goes_on() and next_of(rounds)["messages"][1]["content"][0] == {"type": "kind"} | whole


def test_messages_stops_at_a_block_it_cannot_tell() -> None:
    rounds = MessagesRounds({OURS}, 4)
    read(rounds, *message(({"type": "new", "map": {"a": 1}}, [{"type": "map_delta", "map": {"b": 2}}]), our_block()))
    assert not rounds.goes_on() and NO_ANSWER in rounds.finish().decode()


@pytest.mark.parametrize("is_closed", [True, False])
def test_messages_goes_on_after_a_cut_call(is_closed: bool) -> None:
    """The model is told that its arguments are no JSON. An empty text before the call is left out, as the API wants."""
    rounds, empty = MessagesRounds({OURS}, 4), ({"type": "text", "text": ""}, [])
    read(rounds, *message(empty, our_block('{"quest', None), stop="max_tokens", is_closed=is_closed))
    assert rounds.is_done and rounds.find_calls() == [("t1", OURS, None)] and rounds.goes_on()
    assert next_of(rounds)["messages"][1]["content"] == [{"type": "tool_use", "id": "t1", "name": OURS, "input": {}}]


def test_messages_renumbers_the_outer_index_only() -> None:
    rounds = MessagesRounds({OURS}, 4)
    nested = {"type": "text", "text": "", "citations": [{"index": 1}]}
    out = read(rounds, *message(our_block(), (nested, [{"type": "text_delta", "text": "x"}])))
    start = next(e for e in events_in(out) if e["type"] == "content_block_start")
    assert start["index"] == 0 and start["content_block"] == nested


# Responses ----------------------------------------------------------------------------------------------------------


def our_item(**more: Any) -> dict[str, Any]:
    return {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": OURS, "arguments": ASKED} | more


def said_item(said: str = "Hi.") -> dict[str, Any]:
    content = [{"type": "output_text", "text": said, "annotations": []}]
    return {"type": "message", "id": "msg_1", "role": "assistant", "content": content}


def response(*items: Any, has_index: bool = True, has_added: bool = True, has_events: bool = True) -> list[Any]:
    told: list[Any] = []
    for at, item in enumerate(items if has_events else ()):
        here = {"output_index": at} if has_index else {}
        if has_added:
            told.append({"type": "response.output_item.added", "item": item | {"arguments": ""}} | here)
            if item["type"] == "function_call":
                piece = {"type": "response.function_call_arguments.delta", "item_id": item["id"], "delta": ASKED}
                told.append(piece | here)
        told.append({"type": "response.output_item.done", "item": item} | here)
    return [*told, {"type": "response.completed", "response": {"id": "resp_1", "output": list(items)}}]


@pytest.mark.parametrize("how", ["has_index", "has_added", "has_events", ""])
def test_responses_reads_a_servers_shape(how: str) -> None:
    rounds, theirs = ResponsesRounds({OURS}, 4), our_item(id="fc_2", call_id="c2", name="read")
    out = read(rounds, *response(said_item(), our_item(), theirs, **({how: False} if how else {})))
    assert rounds.find_calls() == [("c1", OURS, {"question": "where?"})] and not rounds.goes_on()
    assert rounds.items() == [said_item(), theirs]
    out += rounds.finish()
    assert OURS.encode() not in out and b'"c2"' in out
    assert not {b'"fc_1"', b'"c1"'} & set(out.replace(b",", b" ").split())


@pytest.mark.parametrize("name", [OURS, "read"])
def test_responses_waits_for_the_name_of_a_call(name: str) -> None:
    rounds, item = ResponsesRounds({OURS}, 4), our_item(name=name)
    told = response(item)
    told[0]["item"] = item | {"name": ""}
    out = read(rounds, *told[:2])
    assert out == b"" and rounds.release() == b"".join(event(one).raw for one in told[:2])
    rounds = ResponsesRounds({OURS}, 4)
    out = read(rounds, *told) + rounds.finish()
    assert (out == b"".join(event(one).raw for one in told)) == (name == "read")
    assert len(rounds.find_calls()) == (name == OURS)


@pytest.mark.parametrize("sealed", [{"encrypted_content": "E"}, {}])
def test_responses_leaves_out_what_has_an_id_alone(sealed: dict[str, str]) -> None:
    rounds, thought = ResponsesRounds({OURS}, 4), {"type": "reasoning", "id": "rs_1", "summary": []} | sealed
    read(rounds, *response(thought, said_item(), our_item()))
    assert rounds.goes_on()
    sent = next_of(rounds, "input")["input"][1:]
    assert [item["type"] for item in sent if "id" in item] == (["reasoning", "message"] if sealed else [])
    assert [item["type"] for item in sent][-3:] == ["message", "function_call", "function_call_output"]


def test_responses_goes_on_after_a_hosted_call() -> None:
    rounds, search = ResponsesRounds({OURS}, 4), {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    read(rounds, *response(search, our_item()))
    assert rounds.goes_on()
    rounds = ResponsesRounds({OURS}, 4)
    read(rounds, *response({"type": "computer_call", "id": "cu_1", "call_id": "c0"}, our_item()))
    assert not rounds.goes_on()


# All three ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", MAKE)
def test_rounds_end_with_an_answer(path: str) -> None:
    """The last request is made without our tools; where that does not help, the message says so."""
    rounds, body = MAKE[path]({OURS}, 2), {"model": "m"}
    for number in range(3):
        _, raw = MAKERS[path]([call(OURS, f"t{number}", question="q")], number, body)
        rounds.begin()
        out = b"".join(rounds.feed(one) for one in Splitter().feed(raw))
        rounds.find_calls()
        if number < 2:
            assert rounds.goes_on()
            assert rounds.is_last == (number == 1)
    assert not rounds.goes_on()
    made, told = json.dumps(rounds.items()), out + rounds.finish()
    assert NO_ANSWER in made and NO_ANSWER.encode() in told and OURS.encode() not in told
    assert all(one for one in events_in(told))


@pytest.mark.parametrize("path", MAKE)
def test_rounds_drop_what_the_upstream_refuses(path: str) -> None:
    rounds, body = MAKE[path]({OURS}, 2), {"model": "m"}
    for number, block in enumerate([call(OURS, "t", question="q"), text("Hi.")]):
        _, raw = MAKERS[path]([block], number, body)
        rounds.begin()
        for one in Splitter().feed(raw):
            rounds.feed(one)
        if number == 0:
            assert rounds.goes_on()
            rounds.abandon()
    assert not rounds.goes_on() and rounds.added([["Told."]]) == {} and "Hi." in json.dumps(rounds.items())


BAD: dict[str, Any] = {
    "/v1/messages": {"type": "content_block_start", "content_block": "x"},
    "/v1/chat/completions": {"choices": [{"index": "x", "delta": {}}]},
    "/v1/responses": {"type": "response.completed", "response": [1]},
}


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(MAKE)), st.data())
def test_release_gives_what_was_held_back(path: str, data: Any) -> None:
    """After any event, also where the next can't be read."""
    blocks = data.draw(st.permutations([text("Hi."), call(OURS, "a", question="q"), call("read", "b", path="x")]))
    told = Splitter().feed(MAKERS[path](blocks, 1, {"model": "m"})[1])
    rounds, held = MAKE[path]({OURS}, 2), []
    rounds.begin()
    for one in told[: data.draw(st.integers(0, len(told)))]:
        held += [] if rounds.feed(one) else [one.raw]
    with pytest.raises((ValueError, AttributeError, TypeError)):
        rounds.feed(event(BAD[path]))
    assert rounds.release() == b"".join(held) and rounds.release() == b""
