"""What the stubs share: a threaded server on a free local port, scripted answers, recorded requests."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Answer:
    """One scripted answer: text, tool calls as (id, name, arguments), counted tokens; or an HTTP error status."""

    text: str | None = None
    tool_calls: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    prompt_tokens: int = 11
    completion_tokens: int = 7
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0  # seconds before the answer
    raw: bytes | None = None  # sent as the body instead of the protocol's
    cut: bool = False  # the connection ends in the middle of the body
    stop: str = ""  # why the model stopped, where it is not the usual


class Refused(Exception):
    """The request breaks the provider's protocol; the message says how."""


class StubServer:
    """Answers POSTs with the script's answers in order, the last one again and again. Use as a context manager. A
    function among them makes the answer from the request's body.

    `requests`: the JSON bodies received. A request that breaks the protocol gets 400 and is not recorded.
    """

    def __init__(self, *script: Answer | Callable[[dict[str, Any]], Answer]) -> None:
        self.requests: list[dict[str, Any]] = []
        self._script = list(script) or [Answer(text="All right.")]
        self._lock = threading.Lock()
        self._local = threading.local()
        self.closing = threading.Event()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *arguments: Any) -> None:
                pass

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                try:
                    payload = stub.handle(self.path.partition("?")[0], body)
                except Refused as error:
                    return self._json(400, stub.error_body("invalid_request_error", str(error)))
                if isinstance(payload, Answer):
                    return self._json(payload.status, stub.error_body("api_error", "scripted"), payload)
                if isinstance(payload, dict):
                    return self._json(200, payload, stub.current)
                self._stream(payload)

            def _json(self, status: int, body: dict[str, Any], answer: Answer | None = None) -> None:
                answer = answer or Answer()
                data = answer.raw if answer.raw is not None else json.dumps(body).encode()
                stub.closing.wait(answer.delay)
                try:
                    self.send_response(status)
                    self.send_header("content-type", "application/json")
                    self.send_header("content-length", str(len(data)))
                    for name, value in answer.headers.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(data[: len(data) // 2] if answer.cut else data)
                    self.close_connection = self.close_connection or answer.cut
                except OSError:
                    self.close_connection = True  # whoever asked has given up

            def _stream(self, stream: bytes) -> None:
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("connection", "close")
                self.end_headers()
                for event in stream.removesuffix(b"\n\n").split(b"\n\n"):
                    self.wfile.write(event + b"\n\n")
                    self.wfile.flush()
                self.close_connection = True

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.origin = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()

    def next_answer(self, body: dict[str, Any]) -> Answer:
        """Records a request and takes the answer for it."""
        with self._lock:
            self.requests.append(body)
            answer = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        self._local.answer = answer if isinstance(answer, Answer) else answer(body)
        return self._local.answer

    @property
    def current(self) -> Answer | None:
        """The answer that this thread's request got."""
        return getattr(self._local, "answer", None)

    def handle(self, path: str, body: dict[str, Any]) -> dict[str, Any] | bytes | Answer:
        raise NotImplementedError

    def error_body(self, kind: str, message: str) -> dict[str, Any]:
        raise NotImplementedError
