"""The gateway's parts that handle bytes: events at any split, edits that leave every other byte."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pg_memoir_gateway.captures import Bases
from pg_memoir_gateway.spans import Edit, NotPlain, apply_edits, body_of, elements, member
from pg_memoir_gateway.sse import Splitter
from pg_memoir_gateway.talk import DIALECTS
from upstream import MAKERS, call, text, thought

FEW = settings(max_examples=60, deadline=None)
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=12,
)
BLOCKS = st.lists(
    st.one_of(
        WORDS.map(text),
        WORDS.map(thought),
        st.builds(call, st.just("read"), st.uuids().map(str), path=WORDS),
        st.builds(call, st.just("memory_query"), st.uuids().map(str), question=WORDS),
    ),
    max_size=4,
)


@FEW
@given(st.lists(VALUES, max_size=4), st.sampled_from([None, 1, 3]), st.booleans())
def test_places_in_a_body_are_those_of_its_values(items: list[Any], indent: int | None, ascii_only: bool) -> None:
    raw = json.dumps({"a": 1, "messages": items, "z": "é"}, indent=indent, ensure_ascii=ascii_only).encode()
    body = body_of(raw)
    assert [json.loads(body.text[node.start : node.end]) for node in body.lists["messages"]] == items
    assert apply_edits(body.text, []).encode() == raw
    for node in body.lists["messages"]:
        changed = apply_edits(body.text, [Edit(node.start, node.end, '"x"')])
        assert changed == body.text[: node.start] + '"x"' + body.text[node.end :]


@pytest.mark.parametrize("raw", [b"", b"[]", b'{"a":', b'{"a":1,"a":2}', b"\xff{}", b'{"a" 1}'])
def test_what_is_no_plain_object_is_left_alone(raw: bytes) -> None:
    with pytest.raises(NotPlain):
        body_of(raw)


def test_a_value_deep_inside_is_found_by_its_names() -> None:
    body = body_of(b'{"messages":[{"content":[ {"type":"x", "input" : {"a": "b"}} ]}]}')
    content = member(body.text, body.lists["messages"][0], "content")
    assert content
    block = elements(body.text, content.start)[0][0]
    given = member(body.text, block, "input")
    assert given and body.text[given.start : given.end] == '{"a": "b"}'


@FEW
@given(st.sampled_from(sorted(MAKERS)), BLOCKS, st.data())
def test_any_split_gives_the_same_events_and_the_same_bytes(path: str, blocks: list[Any], data: Any) -> None:
    """Also with calls of ours in it, that are held back."""
    _, raw = MAKERS[path](blocks, 1, {"model": "m"})
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    split = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)])]
    told = []
    for chunks in ([raw], split, [raw[i : i + 1] for i in range(len(raw))]):
        rounds, splitter = DIALECTS[path].rounds({"memory_query"}, 1), Splitter()
        rounds.begin()
        out = b"".join(rounds.feed(event) for chunk in chunks for event in splitter.feed(chunk))
        assert not splitter.pending and rounds.is_done
        told.append((out + rounds.finish(), rounds.items(), rounds.find_calls()))
    assert told[0] == told[1] == told[2]
    ours = [block for block in blocks if block.get("name") == "memory_query"]
    assert [ident for ident, _, _ in told[0][2]] == [block["id"] for block in ours]
    assert ours or told[0][0] == raw
    assert b"memory_query" not in told[0][0]


@FEW
@given(st.lists(st.binary(min_size=1, max_size=9000), min_size=1, max_size=4))
def test_a_shortened_request_is_made_whole_again(parts: list[bytes]) -> None:
    bases, before = Bases(), b""
    for at in range(1, len(parts) + 1):
        request = b"head" * 2000 + b"".join(parts[:at]) + b"tail" * 2000
        kept, base = bases.shorten(("u", "s", "p"), request)
        if base:
            kept = before[: base["head"]] + kept + before[len(before) - base["tail"] :]
        assert kept == request
        bases.keep(("u", "s", "p"), str(at), zlib.compress(request))
        before = request
