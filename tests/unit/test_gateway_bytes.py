"""Bytes of requests and answers: how much is read, events at any split, edits that leave every other byte."""

import gzip
import json
import zlib
from typing import Any

import pytest
import zstandard
from answers import MAKERS, call, text, thought
from hypothesis import given, settings
from hypothesis import strategies as st
from pg_memoir import from_anthropic, from_responses
from pg_memoir_gateway import spans, sse
from pg_memoir_gateway.captures import Bases
from pg_memoir_gateway.exchange import Exchange, select_harmless
from pg_memoir_gateway.spans import Body, Edit, NotPlain, TooLarge, apply_edits, body_of, elements, member, write_json
from pg_memoir_gateway.sse import Splitter
from pg_memoir_gateway.talk import DIALECTS, Talk

FEW = settings(max_examples=50, deadline=None)
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NESTED: Any = lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3)  # noqa: E731
VALUES: Any = st.recursive(st.none() | st.booleans() | st.integers() | WORDS, NESTED, max_leaves=12)
IDS = st.uuids().map(str)
READS = st.builds(call, st.just("read"), IDS, path=WORDS)
OURS = st.builds(call, st.just("memory_query"), IDS, question=WORDS)
BLOCKS = st.lists(st.one_of(WORDS.map(text), WORDS.map(thought), READS, OURS), max_size=4)


# Requests -----------------------------------------------------------------------------------------------------------


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


def test_value_deep_inside_is_found_by_its_names() -> None:
    body = body_of(b'{"messages":[{"content":[ {"type":"x", "input" : {"a": "b"}} ]}]}')
    content = member(body.text, body.lists["messages"][0], "content")
    given = content and member(body.text, elements(body.text, content.start)[0][0], "input")
    assert given and body.text[given.start : given.end] == '{"a": "b"}'


ODD = [b"", b"[]", b'{"a":', b'{"a":1,"a":2}', b"\xff{}", b'{"a" 1}']
DEEP = [f'{{"messages":{opened * 100_000}}}'.encode() for opened in ("[", '{"a":')]
A = b"a" * (spans.MOST_TEXT + 1)
LARGE = [
    b'{"messages":[' + b'{"role":"user","content":"a"},' * spans.MOST_VALUES + b"{}]}",
    b'{"messages":[' + b"1," * spans.MOST_VALUES + b"1]}",
    b'{"messages":"' + b"a" * spans.MOST_BYTES + b'"}',
    b'{"input":"' + A + b'"}',
    b'{"messages":[{"role":"user","content":"' + A + b'"}]}',
    b'{"messages":[{"role":"user","content":[{"type":"text","text":"' + A + b'"}]}]}',
    b'{"input":[{"type":"function_call_output","output":"' + A + b'"}]}',
]


def test_odd_and_large_requests_are_not_read() -> None:
    for error, raws in ((NotPlain, ODD + DEEP), (TooLarge, LARGE)):
        for raw in raws:
            with pytest.raises(error):
                body_of(raw)
    image = {"type": "base64", "media_type": "image/png", "data": A.decode()}
    message = {"role": "user", "content": [{"type": "image", "source": image}]}
    assert body_of(json.dumps({"messages": [message]}).encode()).get("messages") == [message], "images may be large"


def received(raw: bytes, encoding: str) -> Exchange:
    return Exchange("POST", "/v1/messages", b"/", [(b"Content-Encoding", encoding.encode())], raw, raw=raw)


ZSTD = zstandard.ZstdCompressor().compress
PACKERS: dict[str, Any] = {"gzip": gzip.compress, "GZIP": gzip.compress, "deflate": zlib.compress, "zstd": ZSTD}


def test_compressed_requests_are_read() -> None:
    for encoding in (*PACKERS, "identity"):
        pack = PACKERS.get(encoding, bytes)
        exchange = received(packed := pack(b"{}"), encoding)
        exchange.decompress()
        assert (exchange.body, exchange.raw) == (b"{}", packed), encoding
        if encoding in ("gzip", "zstd"):
            bomb = received(packed := pack(bytes(4 * spans.MOST_BYTES)), encoding)
            with pytest.raises(TooLarge):
                bomb.decompress()
            assert bomb.body == packed
    for raw, encoding in ((b"no gzip", "gzip"), (b"no zstd", "zstd"), (b"{}", "br")):
        with pytest.raises(NotPlain):
            received(raw, encoding).decompress()


@pytest.mark.parametrize("text", ["\ud83d", "a\udc00b", "\ude00\ud83d", "😀", "\x00"])
def test_quoted_text_can_be_encoded(text: str) -> None:
    assert json.loads(write_json({text: [text]}).encode()) == {text: [text]}


def test_unknown_headers_are_not_kept() -> None:
    secrets = ["x-jwt", "x-github-pat", "authentication", "authorization", "x-api-key", "cookie", "x-stainless-token"]
    sent = [(name.encode(), b"v") for name in [*secrets, "User-Agent", "anthropic-beta", "x-stainless-lang"]]
    assert [name for name, _ in select_harmless(sent)] == [b"User-Agent", b"anthropic-beta", b"x-stainless-lang"]


@FEW
@given(st.lists(st.binary(min_size=1, max_size=9000), min_size=1, max_size=4))
def test_shortened_request_is_made_whole_again(parts: list[bytes]) -> None:
    bases, before = Bases(), b""
    for at in range(1, len(parts) + 1):
        request = b"head" * 2000 + b"".join(parts[:at]) + b"tail" * 2000
        kept, base = bases.shorten(("u", "s", "p"), request)
        if base:
            kept = before[: base["head"]] + kept + before[len(before) - base["tail"] :]
        assert kept == request
        bases.keep(("u", "s", "p"), str(at), zlib.compress(request))
        before = request


TYPES = {"/v1/messages": "text text", "/v1/chat/completions": "text text", "/v1/responses": "input_text output_text"}


@pytest.mark.parametrize("path", TYPES)
@FEW
@given(said=WORDS)
def test_content_as_text_or_blocks_is_stored(path: str, said: str) -> None:
    def stored(role: str, content: Any) -> list[Any]:
        around = [{"role": "user", "content": one} for one in ("First.", "Last.")]
        items = [around[0], {"role": role, "content": content}, around[1]]
        talk = Talk("ann", "observe", "", "main", "s", DIALECTS[path], Body("", {}, {}), items, [], role="mixed")
        return [run for message in DIALECTS[path].messages(items) for run in talk.split(message)]

    for role, kind in zip(("user", "assistant"), TYPES[path].split()):
        assert stored(role, said) == stored(role, [{"type": kind, "text": said}]) or not said
    assert [told["content"] for _, told, _ in stored("assistant", said)] == ["First.", said, "Last."]
    assert from_anthropic({"content": said}).text == said
    assert from_responses({"output": [{"type": "message", "content": said}]}).text == said


# Answers ------------------------------------------------------------------------------------------------------------


@FEW
@given(st.sampled_from(sorted(MAKERS)), BLOCKS, st.data())
def test_any_split_gives_the_same_events_and_bytes(path: str, blocks: list[Any], data: Any) -> None:
    """Also with calls of ours in it, that are held back."""
    _, raw = MAKERS[path](blocks, 1, {"model": "m"})
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    split = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)])]
    told = []
    for chunks in ([raw], split, [raw[i : i + 1] for i in range(len(raw))]):
        rounds, exchange = DIALECTS[path].rounds({"memory_query"}, 1), received(b"{}", "identity")
        exchange.answer_headers = [(b"content-type", b"text/event-stream")]
        rounds.begin()
        out = b"".join(rounds.feed(event) for chunk in chunks for event in exchange.add_chunk(chunk))
        assert exchange.pending == b"" and rounds.is_done and exchange.end_stream() == []
        assert b"".join(event.raw for _, event in exchange.events()) == raw, "kept to be stored"
        told.append((out + rounds.finish(), rounds.items(), rounds.find_calls()))
    assert told[0] == told[1] == told[2]
    ours = [block for block in blocks if block.get("name") == "memory_query"]
    assert [ident for ident, _, _ in told[0][2]] == [block["id"] for block in ours]
    assert (ours or told[0][0] == raw) and b"memory_query" not in told[0][0]


def test_streams_are_known_by_type_or_beginning() -> None:
    for kind, chunk, streams in (
        ("text/event-stream", b"", True),
        ("Text/Event-Stream; charset=utf-8", b"", True),
        ("text/plain", b"data: {}\n\n", True),
        ("", b"\n: ping\n\n", True),
        ("application/octet-stream", b"event: message_start\n", True),
        ("application/json", b' {"data":1}', False),
        ("text/html", b"<html>", False),
        ("", b"", False),
    ):
        exchange = received(b"{}", "identity")
        exchange.answer_headers, exchange.chunks = [(b"content-type", kind.encode())], [(0.0, chunk)]
        assert exchange.streams is streams


def test_stream_bytes_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long event in many pieces: what is searched grows with the pieces, not with their square."""
    searched = 0

    class Counting:
        def finditer(self, text: bytes, at: int) -> Any:
            nonlocal searched
            searched += len(text) - at
            return end.finditer(text, at)

    end = sse._END
    monkeypatch.setattr(sse, "_END", Counting())
    splitter, size = Splitter(), 1 << 20
    assert not any(splitter.feed(b"x" * 1024) for _ in range(size // 1024))
    assert searched < 2 * size and [len(event.raw) for event in splitter.feed(b"\n\n")] == [size + 2]
