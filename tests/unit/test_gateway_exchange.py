"""What is read of requests and answers, and how much of them."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import pytest
import zstandard
from pg_memoir_gateway import sse
from pg_memoir_gateway.exchange import Exchange, select_harmless
from pg_memoir_gateway.spans import MOST_BYTES, MOST_TEXT, MOST_VALUES, NotPlain, TooLarge, body_of, quoted
from pg_memoir_gateway.sse import Splitter

BODY = b'{"model":"m"}'


def received(raw: bytes, encoding: str) -> Exchange:
    return Exchange("POST", "/v1/messages", b"/", [(b"Content-Encoding", encoding.encode())], raw, raw=raw)


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [
        ("gzip", gzip.compress),
        ("GZIP", gzip.compress),
        ("deflate", zlib.compress),
        ("zstd", zstandard.ZstdCompressor().compress),
        ("identity", bytes),
    ],
)
def test_compressed_requests_are_read(encoding: str, compress: Any) -> None:
    exchange = received(compress(BODY), encoding)
    exchange.decompress()
    assert exchange.body == BODY and exchange.raw == compress(BODY)


@pytest.mark.parametrize(("raw", "encoding"), [(b"no gzip", "gzip"), (b"no zstd", "zstd"), (BODY, "br")])
def test_unreadable_compression(raw: bytes, encoding: str) -> None:
    with pytest.raises(NotPlain):
        received(raw, encoding).decompress()


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.ZstdCompressor().compress])
def test_compressed_bombs_are_not_read(compress: Any) -> None:
    raw = compress(bytes(4 * MOST_BYTES))
    exchange = received(raw, "gzip" if compress is gzip.compress else "zstd")
    with pytest.raises(TooLarge):
        exchange.decompress()
    assert exchange.body == raw


@pytest.mark.parametrize(
    "raw",
    [
        b'{"messages":[' + b'{"role":"user","content":"a"},' * MOST_VALUES + b"{}]}",
        b'{"messages":[' + b"1," * MOST_VALUES + b"1]}",
        b'{"messages":"' + b"a" * MOST_BYTES + b'"}',
        b'{"input":"' + b"a" * (MOST_TEXT + 1) + b'"}',
        b'{"messages":[{"role":"user","content":"' + b"a" * (MOST_TEXT + 1) + b'"}]}',
        b'{"messages":[{"role":"user","content":[{"type":"text","text":"' + b"a" * (MOST_TEXT + 1) + b'"}]}]}',
        b'{"input":[{"type":"function_call_output","output":"' + b"a" * (MOST_TEXT + 1) + b'"}]}',
    ],
)
def test_large_requests_are_not_read(raw: bytes) -> None:
    with pytest.raises(TooLarge):
        body_of(raw)


def test_large_images_are_read() -> None:
    image = {"type": "base64", "media_type": "image/png", "data": "A" * (MOST_TEXT + 1)}
    message = {"role": "user", "content": [{"type": "image", "source": image}]}
    assert body_of(json.dumps({"messages": [message]}).encode()).get("messages") == [message]


@pytest.mark.parametrize("opened", ["[", '{"a":'])
def test_deep_requests_are_not_read(opened: str) -> None:
    with pytest.raises(NotPlain):
        body_of(f'{{"messages":{opened * 100_000}}}'.encode())


@pytest.mark.parametrize(
    ("kind", "chunk", "streams"),
    [
        ("text/event-stream", b"", True),
        ("Text/Event-Stream; charset=utf-8", b"", True),
        ("text/plain", b"data: {}\n\n", True),
        ("", b"\n: ping\n\n", True),
        ("application/octet-stream", b"event: message_start\n", True),
        ("application/json", b' {"data":1}', False),
        ("text/html", b"<html>", False),
        ("", b"", False),
    ],
)
def test_streams_are_known_by_type_or_beginning(kind: str, chunk: bytes, streams: bool) -> None:
    exchange = received(BODY, "identity")
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
    for _ in range(size // 1024):
        assert splitter.feed(b"x" * 1024) == []
    assert searched < 2 * size
    assert [len(event.raw) for event in splitter.feed(b"\n\n")] == [size + 2]


@pytest.mark.parametrize("text", ["\ud83d", "a\udc00b", "\ude00\ud83d", "😀", "\x00"])
def test_quoted_text_can_be_encoded(text: str) -> None:
    assert json.loads(quoted({text: [text]}).encode()) == {text: [text]}


def test_unknown_headers_are_not_kept() -> None:
    secrets = ["x-jwt", "x-github-pat", "authentication", "authorization", "x-api-key", "cookie", "x-stainless-token"]
    sent = [(name.encode(), b"v") for name in [*secrets, "User-Agent", "anthropic-beta", "x-stainless-lang"]]
    assert [name for name, _ in select_harmless(sent)] == [b"User-Agent", b"anthropic-beta", b"x-stainless-lang"]
