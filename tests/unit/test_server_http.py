"""Embeddings over HTTP: in order, of length one, within a deadline, and the key is shown nowhere. Against a stub endpoint."""

import email.utils
import json
import math
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from pg_memoir_server import http_embed
from pg_memoir_server.http_embed import HttpEmbedder, HttpEmbedError


class Stub(ThreadingHTTPServer):
    """Answers with [3, 4, index] per text, after the replies queued in `script`: (status, headers) or a function."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.script, self.seen = [], []
        self.base = f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.seen.append((self.path, self.headers, body))
        if self.server.script:
            reply = self.server.script.pop(0)
            if callable(reply):
                return reply(self)
            return self.answer(reply[0], b'{"error": "later"}', reply[1])
        rows = [{"index": i, "embedding": [3.0, 4.0, float(i)]} for i in range(len(body["input"]))]
        return self.answer(200, json.dumps({"data": rows[::-1]}).encode())

    def answer(self, status, body, headers=()):
        self.send_response(status)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def stub():
    server = Stub()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_vectors_in_order_and_normalised(stub):
    vectors = HttpEmbedder(stub.base, "m").embed(["a", "b"])
    assert [round(v[2] / v[0] * 3) for v in vectors] == [0, 1]
    assert all(math.isclose(sum(x * x for x in v), 1) for v in vectors)
    path, _, body = stub.seen[0]
    assert path == "/v1/embeddings" and body["model"] == "m" and body["input"] == ["a", "b"]
    assert HttpEmbedder(stub.base + "/embeddings/", "m").url == stub.base + "/embeddings"
    assert HttpEmbedder(stub.base, "m").embed([]) == []


def test_only_what_may_pass_is_tried_again(stub):
    stub.script = [(503, {}), (429, {"retry-after": "0.1"})]
    begun = time.monotonic()
    assert len(HttpEmbedder(stub.base, "m").embed(["a"])) == 1
    assert len(stub.seen) == 3 and time.monotonic() - begun >= 0.3
    stub.script = [(401, {})]
    with pytest.raises(HttpEmbedError, match="401"):
        HttpEmbedder(stub.base, "m").embed(["a"])
    assert len(stub.seen) == 4


def test_one_deadline_over_all_tries(stub):
    stub.script = [(429, {"retry-after": "60"})]
    begun = time.monotonic()
    with pytest.raises(HttpEmbedError, match="429"):
        HttpEmbedder(stub.base, "m", timeout_s=1).embed(["a"])
    assert time.monotonic() - begun < 20 and len(stub.seen) == 1

    def trickle(handler):
        handler.send_response(200)
        handler.send_header("content-length", "1000")
        handler.end_headers()
        for _ in range(40):
            handler.wfile.write(b" ")
            time.sleep(0.1)

    stub.script = [trickle]
    begun = time.monotonic()
    with pytest.raises(HttpEmbedError, match="in time"):
        HttpEmbedder(stub.base, "m", timeout_s=0.5, retries=0).embed(["a"])
    assert time.monotonic() - begun < 2


def test_nonsense_is_an_error(stub):
    rows = (b'"index": 1, "embedding": [1]', b'"index": 0, "embedding": [0, 0]', b'"index": 0, "embedding": [NaN]')
    for body in (b"not json", b"{}", b'{"data": []}', *(b'{"data": [{' + row + b"}]}" for row in rows)):
        stub.script = [lambda handler: handler.answer(200, body)]
        with pytest.raises(HttpEmbedError):
            HttpEmbedder(stub.base, "m").embed(["a"])
    with pytest.raises(HttpEmbedError, match="127.0.0.1:9"):
        HttpEmbedder("http://127.0.0.1:9/v1", "m", timeout_s=1, retries=0).embed(["a"])
    with pytest.raises(HttpEmbedError, match="not http"):
        HttpEmbedder("file:///etc/passwd", "m")


def test_key_is_sent_and_never_shown(stub, monkeypatch, tmp_path):
    monkeypatch.setenv("TEST_API_KEY", "s3cret")
    embedder = HttpEmbedder(stub.base, "m", api_key_env="TEST_API_KEY")
    embedder.embed(["a"])
    assert stub.seen[-1][1]["authorization"] == "Bearer s3cret"
    stub.script = [(400, {})]
    with pytest.raises(HttpEmbedError) as refusal:
        embedder.embed(["a"])
    assert "s3cret" not in str(refusal.value)
    file = tmp_path / "key"
    file.write_text("fromfile\n")
    file.chmod(0o600)
    HttpEmbedder(stub.base, "m", api_key_file=str(file)).embed(["a"])
    assert stub.seen[-1][1]["authorization"] == "Bearer fromfile"


def test_only_keys_are_read(monkeypatch, tmp_path):
    monkeypatch.setenv("PGPASSWORD", "x")
    readable, lines, link = tmp_path / "readable", tmp_path / "lines", tmp_path / "link"
    for file, text, mode in ((readable, "key", 0o644), (lines, "-----BEGIN\nPRIVATE", 0o600)):
        file.write_text(text)
        file.chmod(mode)
    link.symlink_to(lines)
    for name in ("PGPASSWORD", "UNSET_API_KEY"):
        with pytest.raises(HttpEmbedError):
            http_embed.read_key(api_key_env=name)
    for file in (readable, lines, link, tmp_path):
        with pytest.raises(HttpEmbedError):
            http_embed.read_key(api_key_file=str(file))
    assert http_embed.read_key() is None


def test_retry_after():
    now = 1_700_000_000.0
    assert http_embed.retry_after("2.5", now) == 2.5
    assert http_embed.retry_after(email.utils.formatdate(now + 30, usegmt=True), now) == 30
    assert http_embed.retry_after("-3", now) == 0
    assert [http_embed.retry_after(value, now) for value in (None, "soon", "nan")] == [None] * 3
