"""Answers in which our tools are called, in the shapes that servers give them: our call is held back, the rest arrives."""

import json
from typing import Any

import pytest
from answers import MAKERS, call, text
from hypothesis import given, settings
from hypothesis import strategies as st
from pg_memoir_gateway.rounds import NO_ANSWER
from pg_memoir_gateway.spans import apply_edits, body_of
from pg_memoir_gateway.sse import Event, Splitter
from pg_memoir_gateway.talk import DIALECTS

OURS = "memory_query"
MESSAGES, CHAT, RESPONSES = DIALECTS
ASKED = '{"question": "where?"}'
PATH = '{"path": "a"}'
each_path = pytest.mark.parametrize("path", DIALECTS)


def make(path: str, limit: int = 4) -> Any:
    return DIALECTS[path].rounds({OURS}, limit)


def event(data: Any) -> Event:
    told = data if isinstance(data, str) else json.dumps(data)
    return Event(f"data: {told}\n\n".encode(), told)


def events_in(raw: bytes) -> list[Any]:
    return [found.json() or found.data for found in Splitter().feed(raw)]


def read(rounds: Any, *told: Any) -> bytes:
    """One answer; what the client gets at once."""
    rounds.begin()
    return b"".join(rounds.feed(one if isinstance(one, Event) else event(one)) for one in told)


def next_of(rounds: Any) -> Any:
    """The list of the request that goes on."""
    key = "input" if "Responses" in type(rounds).__name__ else "messages"
    body = body_of(json.dumps({key: [{"role": "user", "content": "x"}]}).encode())
    return json.loads(apply_edits(body.text, rounds.go_on(body, ["Told."] * len(rounds.find_calls()))))[key]


# Chat completions ---------------------------------------------------------------------------------------------------


def chunk(delta: Any, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"id": "c1", "created": 1, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]} | more


def part(name: str | None, arguments: Any, index: int | None = 0, ident: str | None = "a") -> dict[str, Any]:
    function = {"arguments": arguments} | ({} if name is None else {"name": name})
    told = {"id": ident, "index": index}
    return {"type": "function", "function": function} | {k: v for k, v in told.items() if v is not None}


def calls(*parts: Any, **more: Any) -> dict[str, Any]:
    return {"tool_calls": list(parts)} | more


def ours(finish: str | None = None, **more: Any) -> dict[str, Any]:
    return chunk(calls(part(OURS, ASKED, **more)), finish)


STOP = chunk({}, "stop")
ODD: list[Any] = [{"choices": None}, {"choices": []}, chunk(None), ours(), chunk(None), STOP]
LIST = [{"type": "thinking", "thinking": []}, {"type": "text", "text": "Look."}]
SHAPES: dict[str, tuple[list[Any], str, int]] = {
    "call and end in one": ([chunk(calls(part(OURS, ASKED), content=""), "tool_calls")], "", 0),
    "no id": ([ours("tool_calls", ident="")], "", 0),
    "end is stop": ([ours(), chunk({"role": "assistant", "content": ""}, "stop")], "", 0),
    "arguments are an object": ([chunk(calls(part(OURS, {"question": "where?"}))), STOP], "", 0),
    "name in each piece": ([chunk(calls(part(OURS, p))) for p in ("", ASKED[:8], ASKED[8:], "")] + [STOP], "", 0),
    "name in two pieces": (
        [chunk(calls(part("memory", ""))), chunk(calls(part("_query", "", ident=None)))]
        + [chunk(calls(part(None, ASKED, ident=None))), chunk({}, "tool_calls")], "", 0),
    "name in the second piece": ([chunk(calls(part(None, ""))), ours(ident=None), chunk({}, "tool_calls")], "", 0),
    "the whole call again": ([ours(), ours("tool_calls")], "", 0),
    "text beside": ([chunk(calls(part(OURS, ASKED), content="Look. ")), chunk({"content": "!"}, "stop")], "Look. !", 0),
    "theirs, then ours, one index": (
        [chunk(calls(part("read", PATH))), ours(ident="b"), chunk({}, "tool_calls")], "", 1),
    "ours, then theirs, no index, no ids": (
        [chunk(calls(part(OURS, ASKED, None, None), part("read", PATH, None, None)), "tool_calls")], "", 1),
    "a name that begins like ours": (
        [chunk(calls(part("memory", ""))), chunk(calls(part(None, PATH, ident=None))),
         ours("tool_calls", index=1, ident="b")], "", 1),
    "no reason for the end": ([ours()], "", 0),
    "odd chunks between": (ODD, "", 0),
    "content as a list": ([chunk({"content": LIST}), ours("tool_calls")], "Look.", 0),
}  # fmt: skip


@pytest.mark.parametrize("is_done", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_chat_reads_a_servers_shape(shape: str, is_done: bool) -> None:
    told, said, others = SHAPES[shape]
    rounds = make(CHAT)
    out = read(rounds, *told, *(["[DONE]"] if is_done else []))
    assert rounds.is_done and [one[1:] for one in rounds.find_calls()] == [(OURS, {"question": "where?"})]
    assert rounds.goes_on() == (not others)
    made = rounds.items()[0]
    assert len(made.get("tool_calls", [])) == others
    assert (made["content"] or "") == (said or ("" if others else NO_ANSWER))
    out += rounds.finish()
    assert OURS.encode() not in out
    choices = [c for one in events_in(out) if one != "[DONE]" for c in one.get("choices") or []]
    finish = [c["finish_reason"] for c in choices if c.get("finish_reason")]
    assert finish == [] if "no reason" in shape else [("tool_calls" if others else "stop")]


SWITCHES = {name: st.booleans() for name in ("ids", "named", "closing", "done")}
PLACES = {"index": st.sampled_from(["own", "same", "none"]), "pieces": st.sampled_from([1, 3, 40])}
STYLES = st.fixed_dictionaries(PLACES | SWITCHES)
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
            named = name if at == 0 or style["named"] and style["ids"] else None
            ident = f"c{number}" if style["ids"] and (at == 0 or style["named"]) else None
            told.append(chunk(calls(part(named, given_text[at : at + style["pieces"]], index, ident))))
        number += 1
    if style["closing"]:
        told[-1]["choices"][0]["finish_reason"] = "stop"
    else:
        told.append(STOP)
    return told + (["[DONE]"] if style["done"] else [])


@settings(max_examples=200, deadline=None)
@given(STEPS, STYLES)
def test_chat_keeps_all_but_our_calls(steps: list[Any], style: dict[str, Any]) -> None:
    told, rounds = stream_of(steps, style), make(CHAT)
    out = read(rounds, *told)
    said, mine, theirs = (["".join(t for n, t in steps if n == "text")], *([t for n, t in steps if n == name] for name in (OURS, "read")))  # fmt: skip
    found = rounds.find_calls()
    assert rounds.is_done and [json.dumps(given) for _, _, given in found] == mine
    assert len({ident for ident, _, _ in found}) == len(mine)
    made = rounds.items()[0]
    out += rounds.finish()
    assert OURS.encode() not in out
    assert mine or out == b"".join(event(one).raw for one in told)
    deltas = [c["delta"] for one in events_in(out) if one != "[DONE]" for c in one.get("choices") or []]
    assert "".join(d.get("content") or "" for d in deltas).removesuffix(NO_ANSWER) == said[0]
    parts = [p for d in deltas for p in d.get("tool_calls") or []]
    assert "".join(p["function"]["arguments"] for p in parts) == "".join(theirs)
    assert [c["function"]["arguments"] for c in made.get("tool_calls", [])] == theirs
    if style["index"] == "own":
        assert sorted({p["index"] for p in parts}) == list(range(len(theirs)))


def test_chat_sends_back_what_servers_ask_for() -> None:
    """Thoughts and signatures come back, half a character in each of two pieces is whole, an empty id is replaced."""
    rounds, signed = make(CHAT), {"google": {"thought_signature": "sig"}}
    begun = part(OURS, '{"question": "\ud83d', ident="") | {"extra_content": signed}
    told = [chunk({"reasoning_content": "Hm"}), chunk({"reasoning_content": "m.", "content": "\ud83d"})]
    told += [chunk({"content": "\ude00"}), chunk(calls(begun))]
    read(rounds, *told, chunk(calls(part(None, '\ude00"}', ident=None)), "tool_calls"))
    assert rounds.find_calls()[0][2] == {"question": "😀"} and rounds.goes_on()
    _, made, result = next_of(rounds)
    (one,) = made["tool_calls"]
    assert (made["reasoning_content"], made["content"], one["extra_content"]) == ("Hmm.", "😀", signed)
    assert "😀" in one["function"]["arguments"] and len(one["id"]) == 9
    assert result == {"role": "tool", "tool_call_id": one["id"], "content": "Told."}


def test_chat_ids_of_two_rounds_differ() -> None:
    rounds = make(CHAT)
    for _ in range(2):
        read(rounds, chunk(calls(part(OURS, ASKED, ident="c"), part(OURS, ASKED, 1, "c")), "tool_calls"))
        rounds.find_calls()
    assert len({one.id for now in rounds.rounds for one in now.calls}) == 4


def test_chat_with_several_choices_does_not_go_on() -> None:
    rounds = make(CHAT)
    choices = [{"index": n, "delta": calls(part(OURS, ASKED)), "finish_reason": "tool_calls"} for n in range(2)]
    out = read(rounds, {"choices": choices}, "[DONE]")
    assert not rounds.goes_on() and OURS.encode() not in out + rounds.finish()
    answer = {"choices": [{"index": n, "message": calls(part(OURS, ASKED), content=None)} for n in range(2)]}
    rounds = make(CHAT)
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


def our_block(*pieces: str | None) -> tuple[dict[str, Any], list[Any]]:
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces or (ASKED,)]
    return {"type": "tool_use", "id": "t1", "name": OURS, "input": {}}, deltas


@pytest.mark.parametrize(
    ("begun", "deltas", "whole"),
    [
        ({"content": None}, [{"type": "compaction_delta", "content": "S", "encrypted_content": "E"}], {"content": "S", "encrypted_content": "E"}),
        ({"new": ""}, [{"type": "new_delta", "new": "a"}, {"type": "new_delta", "new": "b"}], {"new": "ab"}),
        ({}, [{"type": "new_delta", "list": [1], "none": None}], {"list": [1]}),
        ({"text": "a"}, [{"type": "text_delta", "text": "b"}], {"text": "ab"}),
        ({"map": {"a": 1}}, [{"type": "map_delta", "map": {"b": 2}}], None),
    ],
)  # fmt: skip
def test_messages_sends_blocks_back_whole(begun: Any, deltas: Any, whole: Any) -> None:
    """The message ends at a block that can't be told again."""
    rounds = make(MESSAGES)
    read(rounds, *message(({"type": "kind"} | begun, deltas), our_block()))
    assert rounds.goes_on() == (whole is not None)
    if whole:
        assert next_of(rounds)[1]["content"][0] == {"type": "kind"} | whole
    else:
        assert NO_ANSWER in rounds.finish().decode()


@pytest.mark.parametrize("is_closed", [True, False])
def test_messages_goes_on_after_a_cut_call(is_closed: bool) -> None:
    """The model is told that its arguments are no JSON. An empty text before the call is left out, as the API wants."""
    rounds, empty = make(MESSAGES), ({"type": "text", "text": ""}, [])
    read(rounds, *message(empty, our_block('{"quest', None), stop="max_tokens", is_closed=is_closed))
    assert rounds.is_done and rounds.find_calls() == [("t1", OURS, None)] and rounds.goes_on()
    assert next_of(rounds)[1]["content"] == [{"type": "tool_use", "id": "t1", "name": OURS, "input": {}}]


def test_messages_renumbers_the_outer_index_only() -> None:
    nested = {"type": "text", "text": "", "citations": [{"index": 1}]}
    out = read(make(MESSAGES), *message(our_block(), (nested, [{"type": "text_delta", "text": "x"}])))
    start = next(e for e in events_in(out) if e["type"] == "content_block_start")
    assert start["index"] == 0 and start["content_block"] == nested


# Responses ----------------------------------------------------------------------------------------------------------


def our_item(**more: Any) -> dict[str, Any]:
    return {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": OURS, "arguments": ASKED} | more


SAID = {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "Hi.", "annotations": []}]}  # fmt: skip


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
    rounds, theirs = make(RESPONSES), our_item(id="fc_2", call_id="c2", name="read")
    out = read(rounds, *response(SAID, our_item(), theirs, **({how: False} if how else {})))
    assert rounds.find_calls() == [("c1", OURS, {"question": "where?"})] and not rounds.goes_on()
    assert rounds.items() == [SAID, theirs]
    out += rounds.finish()
    assert OURS.encode() not in out and b'"c2"' in out
    assert not {b'"fc_1"', b'"c1"'} & set(out.replace(b",", b" ").split())


@pytest.mark.parametrize("name", [OURS, "read"])
def test_responses_waits_for_the_name_of_a_call(name: str) -> None:
    item = our_item(name=name)
    told = response(item)
    told[0]["item"] = item | {"name": ""}
    rounds, raw = make(RESPONSES), [event(one).raw for one in told]
    assert read(rounds, *told[:2]) == b"" and rounds.release() == b"".join(raw[:2])
    rounds = make(RESPONSES)
    out = read(rounds, *told) + rounds.finish()
    assert (out == b"".join(raw)) == (name == "read") and len(rounds.find_calls()) == (name == OURS)


@pytest.mark.parametrize("sealed", [{"encrypted_content": "E"}, {}])
def test_responses_leaves_out_thoughts_known_by_id(sealed: dict[str, str]) -> None:
    rounds, thought = make(RESPONSES), {"type": "reasoning", "id": "rs_1", "summary": []} | sealed
    read(rounds, *response(thought, SAID, our_item()))
    assert rounds.goes_on()
    sent = next_of(rounds)[1:]
    assert [item["type"] for item in sent if "id" in item] == (["reasoning", "message"] if sealed else [])
    assert [item["type"] for item in sent][-3:] == ["message", "function_call", "function_call_output"]


@pytest.mark.parametrize(("kind", "goes_on"), [("web_search_call", True), ("computer_call", False)])
def test_responses_goes_on_after_a_hosted_call(kind: str, goes_on: bool) -> None:
    rounds = make(RESPONSES)
    read(rounds, *response({"type": kind, "id": "ws_1", "call_id": "c0"}, our_item()))
    assert rounds.goes_on() == goes_on


# All three ----------------------------------------------------------------------------------------------------------


@each_path
def test_rounds_end_with_an_answer(path: str) -> None:
    """The last request is made without our tools; where that does not help, the message says so."""
    rounds = make(path, 2)
    for number in range(3):
        out = read(rounds, *Splitter().feed(MAKERS[path]([call(OURS, f"t{number}", q=1)], number, {"model": "m"})[1]))
        rounds.find_calls()
        assert (rounds.goes_on(), rounds.is_last) == [(True, False), (True, True), (False, True)][number]
        assert len(next_of(rounds)) > 2 * number + 2
    made, told = json.dumps(rounds.items()), out + rounds.finish()
    assert NO_ANSWER in made and NO_ANSWER.encode() in told and OURS.encode() not in told
    assert all(one for one in events_in(told))


@each_path
def test_rounds_drop_what_the_upstream_refuses(path: str) -> None:
    rounds = make(path, 2)
    for number, block in enumerate([call(OURS, "t", question="q"), text("Hi.")]):
        read(rounds, *Splitter().feed(MAKERS[path]([block], number, {"model": "m"})[1]))
        if number == 0:
            assert rounds.goes_on()
            rounds.abandon()
    assert not rounds.goes_on() and rounds.added([["Told."]]) == {} and "Hi." in json.dumps(rounds.items())


BAD: dict[str, Any] = {
    MESSAGES: {"type": "content_block_start", "content_block": "x"},
    CHAT: {"choices": [{"index": "x", "delta": {}}]},
    RESPONSES: {"type": "response.completed", "response": [1]},
}


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(BAD)), st.data())
def test_release_gives_what_was_held_back(path: str, data: Any) -> None:
    """After any event, also where the next can't be read."""
    blocks = data.draw(st.permutations([text("Hi."), call(OURS, "a", question="q"), call("read", "b", path="x")]))
    told = Splitter().feed(MAKERS[path](blocks, 1, {"model": "m"})[1])
    rounds, held = make(path), []
    rounds.begin()
    for one in told[: data.draw(st.integers(0, len(told)))]:
        held += [] if rounds.feed(one) else [one.raw]
    with pytest.raises((ValueError, AttributeError, TypeError)):
        rounds.feed(event(BAD[path]))
    assert rounds.release() == b"".join(held) and rounds.release() == b""
