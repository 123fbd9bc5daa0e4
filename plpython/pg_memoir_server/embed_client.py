"""Client of the shared embedder, for database backends: stdlib only, one deadline over connect, send and receive.

    embed_query("/run/x/embed.sock", "all-MiniLM-L6-v2", "text", 150) -> [0.01, ...]

A connection is kept per process and socket. After two queries in a row that timed out, queries leave the socket alone
for a while, so that an embedder that hangs costs a backend little. Not for use by several threads at once.
"""

from __future__ import annotations

import errno
import json
import os
import select
import socket
import sys
import time
from array import array
from collections.abc import Callable, Sequence

from . import protocol

TYPE_CHECKING = False  # typing itself is slow to load, and every backend loads this
if TYPE_CHECKING:
    from typing import Any

OnWait = Callable[[], object] | None

_SLICE = 0.1  # seconds between calls of on_wait
_AHEAD = 0.005  # seconds that sending ahead may take
_FACTS = 1000  # milliseconds that facts about a question may take
_PAUSE_AFTER = 2  # time-outs in a row
_PAUSE, _PAUSE_MAX = 1.0, 16.0  # seconds, doubled by each further time-out

_write = json.JSONEncoder(ensure_ascii=False).encode
_connections: dict[str, tuple[int, socket.socket]] = {}  # path → (process that opened it, socket)
_begun: dict[str, bytes] = {}  # path → the request that was sent ahead and whose reply nobody has taken
# path → (time-outs in a row, monotonic time until which to leave it alone, which socket that was)
_timeouts: dict[str, tuple[int, float, object]] = {}


class EmbedderError(RuntimeError):
    """Base of what a call can raise."""


class EmbedderUnavailable(EmbedderError):
    """Nobody answers there, or the embedder can't serve now (loading, draining, busy)."""


class EmbedderTimeout(EmbedderUnavailable):
    """No complete answer within the deadline."""


class ModelMismatch(EmbedderError):
    """The embedder runs, but doesn't serve this model."""


class EmbedderRefused(EmbedderError):
    """The request itself was refused, or the peer isn't who it should be."""


class _Stale(Exception):
    """The peer closed a connection that was open before."""


def embed_query(
    path: str, model: str, text: str, timeout_ms: int, on_wait: Callable[[], object] | None = None
) -> list[float]:
    """One text → its vector, ahead of any backlog. Raises EmbedderError's subclasses."""
    return _embed(path, model, [text], "query", timeout_ms, on_wait)[0]


def embed_batch(
    path: str, model: str, texts: Sequence[str], timeout_ms: int, on_wait: Callable[[], object] | None = None
) -> list[list[float]]:
    """n texts → n vectors, behind all queries. `on_wait` is called about every 100 ms (to notice a cancelled
    statement).

    At most protocol.MAX_TEXTS texts and protocol.MAX_BODY bytes a call.
    """
    return _embed(path, model, texts, "backlog", timeout_ms, on_wait) if texts else []


def read(path: str, function: str, text: str, timeout_ms: int = 1000) -> Any:
    """The answer of a function of pg_memoir_language about one text. Raises EmbedderError's subclasses."""
    return _read_json(path, {"op": "read", "function": function}, [text], timeout_ms)


def count_tokens(path: str, tokenizer: str, texts: Sequence[str], timeout_ms: int = 300) -> list[int]:
    """The tokens of each text, at most protocol.MAX_TEXTS. Raises EmbedderError's subclasses."""
    counts: list[int] = _read_json(path, {"op": "count", "tokenizer": tokenizer}, texts, timeout_ms)
    return counts


def _read_json(path: str, header: dict[str, Any], texts: Sequence[str], timeout_ms: int) -> Any:
    body = _write(list(texts)).encode("utf-8", "surrogatepass")
    _check_pause(path)
    try:
        answer = _exchange(path, header, body, timeout_ms, None)[1]
    except EmbedderTimeout:
        _note_timeout(path)
        raise
    _timeouts.pop(path, None)
    return json.loads(answer)


def free_path(given: str | None = None) -> str | None:
    """`given`, else the socket that this process last connected to, if it is there and no reply is outstanding."""
    path = given or next(reversed(_connections), None)
    return path if path and path not in _begun and os.path.exists(path) else None


def begin_ask(path: str, model: str | None, prefix: str, text: str, timeout_ms: int) -> None:
    """Send what ask() will be asked with the same arguments, so that the answer is made meanwhile. Never fails."""
    try:
        _check_pause(path)
        frame = _ask_frame(model, prefix, text, timeout_ms)
        _send(_connection(path, time.monotonic(), None)[0], frame, time.monotonic() + _AHEAD, None)
        _begun[path] = frame
    except (EmbedderError, _Stale):
        _forget(path)


def ask(
    path: str, model: str | None, prefix: str, text: str, timeout_ms: int, on_wait: OnWait = None
) -> tuple[str, list[float] | None, str | None]:
    """Return of a question what the package reads in it, as JSON, and the vector of `prefix` and its text less secrets.

    Without a model and for small talk there is no vector; where it can't be had within `timeout_ms` the third value
    says why. Raises EmbedderError's subclasses where there are no facts either.
    """
    _check_pause(path)
    frame = _ask_frame(model, prefix, text, timeout_ms)
    deadline = time.monotonic() + max(timeout_ms, _FACTS) / 1000 + _SLICE
    try:
        reply, data = _answered(path, frame, deadline, on_wait)
    except EmbedderTimeout:
        _note_timeout(path)
        raise
    _timeouts.pop(path, None)
    size = reply["rows"] * reply["dimension"] * 4
    vectors = _vectors(path, data[:size], reply["rows"], reply["dimension"])
    return data[size:].decode(), vectors[0] if vectors else None, reply["problem"]


def _ask_frame(model: str | None, prefix: str, text: str, timeout_ms: int) -> bytes:
    header = {"op": "ask", "model": model, "prefix": prefix, "timeout_ms": timeout_ms}
    return _frame(header, _write([text]).encode("utf-8", "surrogatepass"))


def ping(path: str, timeout_ms: int = 1000) -> dict[str, Any]:
    """{pid, version, models: [{name, state, ...}]} of the embedder behind `path`."""
    return _exchange(path, {"op": "ping"}, b"", timeout_ms, None)[0]


def stats(path: str, timeout_ms: int = 1000) -> dict[str, Any]:
    """What ping says, plus counters."""
    return _exchange(path, {"op": "stats"}, b"", timeout_ms, None)[0]


def _embed(
    path: str, model: str, texts: Sequence[str], kind: str, timeout_ms: int, on_wait: OnWait
) -> list[list[float]]:
    if len(texts) > protocol.MAX_TEXTS:
        raise EmbedderRefused(f"{len(texts)} texts in a request, at most {protocol.MAX_TEXTS}")
    _check_pause(path, kind == "query")
    body = _write(list(texts)).encode("utf-8", "surrogatepass")
    header = {"op": "embed", "kind": kind, "model": model, "timeout_ms": timeout_ms}
    try:
        reply, data = _exchange(path, header, body, timeout_ms, on_wait)
    except EmbedderTimeout:
        if kind == "query":  # backlog may have waited for its turn
            _note_timeout(path)
        raise
    _timeouts.pop(path, None)
    if reply["rows"] != len(texts):
        raise EmbedderRefused(f"{path} answered {reply['rows']} vectors for {len(texts)} texts")
    return _vectors(path, data, reply["rows"], reply["dimension"])


def _vectors(path: str, data: bytes, rows: int, width: int) -> list[list[float]]:
    values = array("f")
    if len(data) != rows * width * values.itemsize:
        raise EmbedderRefused(f"{path} answered {len(data)} bytes for {rows} vectors of {width} numbers")
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()
    return [values[row * width : (row + 1) * width].tolist() for row in range(rows)]


def _check_pause(path: str, raises: bool = True) -> None:
    """Raises EmbedderTimeout while an embedder that timed out repeatedly is left alone."""
    if path in _timeouts and _timeouts[path][2] != _socket_there(path):
        _timeouts.pop(path)  # another embedder has taken the place of the one that hung
        _forget(path)
    paused = _timeouts[path][1] - time.monotonic() if path in _timeouts else 0.0
    if paused > 0 and raises:
        raise EmbedderTimeout(f"{path} timed out repeatedly, left alone for {paused:.1f} s more")


def _note_timeout(path: str) -> None:
    count = _timeouts[path][0] + 1 if path in _timeouts else 1
    pause = min(_PAUSE_MAX, _PAUSE * 2 ** (count - _PAUSE_AFTER)) if count >= _PAUSE_AFTER else 0.0
    _timeouts[path] = count, time.monotonic() + pause, _socket_there(path)


def _socket_there(path: str) -> object:
    """Tells one embedder's socket from the next one's; None where there is none."""
    try:
        there = os.stat(path)
    except OSError:
        return None
    return there.st_ino, there.st_ctime_ns


def _exchange(
    path: str, header: dict[str, Any], body: bytes, timeout_ms: int, on_wait: OnWait
) -> tuple[dict[str, Any], bytes]:
    """Sends a request and returns (reply header, body); one reconnect if a kept connection turns out closed."""
    return _answered(path, _frame(header, body), time.monotonic() + timeout_ms / 1000, on_wait)


def _frame(header: dict[str, Any], body: bytes) -> bytes:
    try:
        return protocol.pack(header, body)
    except protocol.ProtocolError as error:
        raise EmbedderRefused(str(error)) from None


def _answered(path: str, frame: bytes, deadline: float, on_wait: OnWait) -> tuple[dict[str, Any], bytes]:
    is_sent = _begun.get(path) == frame
    if is_sent:
        del _begun[path]
    for attempt in (1, 2):
        connection, kept = _connection(path, deadline, on_wait)
        done = False
        try:
            if not (is_sent and kept and attempt == 1):
                _send(connection, frame, deadline, on_wait)
            received = bytearray()
            at = protocol.PRELUDE.size
            _receive(connection, received, at, deadline, on_wait)
            head, size = protocol.unpack_prelude(bytes(received[:at]))
            _receive(connection, received, at + head + size, deadline, on_wait)
            reply = protocol.unpack_header(bytes(received[at : at + head]))
            data = bytes(received[at + head :])
            done = len(received) == at + head + size
            if not done:
                raise protocol.ProtocolError("more than one answer")
        except _Stale as error:
            if kept and attempt == 1:
                continue
            raise EmbedderUnavailable(f"{path} closed the connection: {error}") from None
        except protocol.ProtocolError as error:
            raise EmbedderRefused(f"{path} answered: {error}") from None
        finally:
            if not done:  # also on a cancelled statement: the late reply must not meet the next request
                _forget(path)
        if "error" in reply:
            raise _as_error(path, reply)
        return reply, data
    raise AssertionError("unreachable")


def _as_error(path: str, reply: dict[str, Any]) -> EmbedderError:
    kinds = {
        "model": ModelMismatch,
        "timeout": EmbedderTimeout,
        "loading": EmbedderUnavailable,
        "draining": EmbedderUnavailable,
        "busy": EmbedderUnavailable,
    }
    return kinds.get(reply["error"], EmbedderRefused)(f"{path}: {reply.get('message') or reply['error']}")


def _connection(path: str, deadline: float, on_wait: OnWait) -> tuple[socket.socket, bool]:
    """(a connected, checked socket; whether it was open before)."""
    if _begun.pop(path, None) is not None:
        _forget(path)  # the reply to what was sent ahead must not meet another request
    opened = _connections.get(path)
    if opened and opened[0] == os.getpid():
        return opened[1], True
    _forget(path)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        connection.setblocking(False)
        while error := connection.connect_ex(path):
            if error != errno.EAGAIN:  # EAGAIN: more are waiting to connect than the embedder's backlog holds
                raise EmbedderUnavailable(f"no embedder at {path}: {os.strerror(error)}")
            _wait(None, 0, min(deadline, time.monotonic() + 0.005), on_wait)
            if time.monotonic() >= deadline:
                raise EmbedderTimeout(f"{path} accepts no connections")
        _, uid, _ = protocol.PEER.unpack(
            connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, protocol.PEER.size)
        )
        if uid not in (os.geteuid(), 0):
            raise EmbedderRefused(f"the process behind {path} runs as uid {uid}, not as {os.geteuid()} or root")
    except OSError as error:  # a path too long, for one
        connection.close()
        raise EmbedderUnavailable(f"no embedder at {path}: {error}") from None
    except BaseException:
        connection.close()
        raise
    _connections[path] = os.getpid(), connection
    return connection, False


def _forget(path: str) -> None:
    opened = _connections.pop(path, None)
    if opened:
        opened[1].close()


def _wait(connection: socket.socket | None, event: int, deadline: float, on_wait: OnWait) -> bool:
    """Waits until the socket is ready (True) or the deadline has passed (False)."""
    poller = select.poll()
    if connection is not None:
        poller.register(connection, event)
    while (left := deadline - time.monotonic()) > 0:
        if poller.poll(max(1, min(left, _SLICE) * 1000)):
            return True
        if on_wait is not None and left > _SLICE:
            on_wait()
    return False


def _send(connection: socket.socket, frame: bytes, deadline: float, on_wait: OnWait) -> None:
    view = memoryview(frame)
    while view:
        try:
            view = view[connection.send(view, socket.MSG_NOSIGNAL) :]
        except BlockingIOError:
            if not _wait(connection, select.POLLOUT, deadline, on_wait):
                raise EmbedderTimeout("the embedder doesn't take the request in time") from None
        except OSError as error:
            raise _Stale(error.strerror) from None


def _receive(connection: socket.socket, data: bytearray, size: int, deadline: float, on_wait: OnWait) -> None:
    """Fills `data` up to `size` bytes, or further with what is there: an answer is all that can follow a request."""
    while len(data) < size:
        if not _wait(connection, select.POLLIN, deadline, on_wait):
            raise EmbedderTimeout("the embedder doesn't answer in time")
        try:
            part = connection.recv(max(1 << 16, min(size - len(data), 1 << 20)))
        except BlockingIOError:
            continue
        except OSError as error:
            raise _Stale(error.strerror) from None
        if not part:
            raise _Stale("end of stream")
        data += part
