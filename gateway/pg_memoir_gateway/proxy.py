"""The proxy: requests of a client go upstream as they came, and the answer comes back as it arrives."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

import httpx
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from .access import find_service, find_user
from .config import Mode
from .exchange import Exchange
from .gateway import Gateway, in_thread, log
from .guard import error_response
from .journal import Entry
from .known import KnownMessages
from .record import Recorder
from .rewriting import Plan, Rewriter
from .spans import MOST_BYTES, NotPlain, TooLarge
from .talk import Talk, find_dialect, read_talk
from .tool_loop import ToolLoop
from .traces import begin_call, end_calls
from .upstreams import NoUpstream, find_upstream

# Headers of one connection, not of the message (RFC 9110, 7.6.1).
HOP = {b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
OURS = HOP | {b"host", b"content-length"}  # headers that the proxy sets itself
# Statuses by which a provider says that it can't take a request. Additions of the gateway can be the reason.
REFUSED = (400, 404, 409, 413, 422)
ENDS = re.compile(rb"message_stop|\[DONE\]|response\.(completed|incomplete)")  # in the last piece of a stream
BODY_SECONDS = 60.0  # a client that sends nothing more of its request for so long is given up


class ClientGone(Exception):
    """The client left before it had sent its request."""


class Record:
    """Has an exchange written to the journal while it goes on, so that a kill of the process loses nothing that was
    answered."""

    def __init__(self, recorder: Recorder, exchange: Exchange, whose: tuple[str, Mode] | None) -> None:
        self.recorder = recorder
        self.exchange = exchange
        self.whose = whose
        self.entry: Entry | None = None
        self._begun: asyncio.Task[None] | None = None
        self._written = 0

    def begin(self) -> None:
        """Begins to write the request of a conversation, once the provider has accepted it."""
        if not (self.whose and find_dialect(self.exchange)) or self.exchange.unread or self.entry:
            return
        self.entry = self.recorder.journal.add_entry()
        if self.entry:
            self._begun = asyncio.create_task(self._write(self.entry.write_request, self.exchange, *self.whose))

    async def finish(self) -> None:
        """Returns when the answer so far is on the disk."""
        if self.entry and self._begun and self._written < len(self.exchange.chunks):
            self._written = len(self.exchange.chunks)
            await self._begun
            await self._write(self.entry.write_answer, replace(self.exchange, complete=True))

    async def _write(self, write: Callable[..., None], *values: Any) -> None:
        try:
            await asyncio.to_thread(write, *values)
        except OSError as error:
            self.recorder.gateway.counts.add("journal_errors")
            log.warning("the journal: %s", error)


class Proxy:
    """An ASGI application."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.known = KnownMessages(gateway.memoir)
        self.recorder = Recorder(gateway, self.known)
        self.rewriter = Rewriter(gateway, self.known, self.recorder)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        self.gateway.open_requests += 1
        try:
            exchange = await _receive_request(scope, receive)
            record = Record(self.recorder, exchange, find_user(self.gateway.config, Headers(raw=exchange.headers)))
            try:
                await _run_while_connected(receive, self._forward(exchange, record, send))
            finally:
                # Only exchanges that the provider accepted: else anybody who reaches the gateway could store words.
                if record.whose and exchange.is_success and find_dialect(exchange) and not exchange.unread:
                    self.recorder.queue(exchange, *record.whose, self.rewriter.refresh_forms, record.entry)
                else:
                    end_calls(exchange)
        except ClientGone:
            pass
        except TimeoutError:
            answer = error_response(408, "timeout", f"Nothing came of the request's body for {BODY_SECONDS:.0f} s.")
            await answer(scope, receive, send)
        finally:
            self.gateway.open_requests -= 1

    def running(self) -> AbstractAsyncContextManager[None]:
        """Stores exchanges while requests are answered."""
        return self.recorder.running(self.rewriter.refresh_forms)

    async def _forward(self, exchange: Exchange, record: Record, send: Send) -> None:
        """Sends a request on as it came, or as the mode has it. Sends the answer back, or what is made of it."""
        if service := find_service(self.gateway.config, Headers(raw=exchange.headers)):
            self.gateway.counts.add("requests_refused", reason="service")
            told = (
                f"The key is of the service {service.name!r}, so {exchange.path!r} was sent to no provider. "
                "It opens the REST API below /memoir/v1 alone."
            )
            return await _send(send, error_response(403, "forbidden", told))
        try:
            find_upstream(exchange, self.gateway.config)
        except NoUpstream as error:
            self.gateway.counts.add("requests_refused", reason="path")
            return await _send(send, error_response(404, "not_found_error", str(error)))
        begun = time.perf_counter()
        plan, talk = await self._plan(exchange, record.whose)
        exchange.sent, exchange.rewritten = plan.sent, plan.rewritten
        self.gateway.counts.add_time("added_seconds", time.perf_counter() - begun)
        self.gateway.counts.add("requests", mode=record.whose[1] if record.whose else "none")
        if plan.bypassed:
            self.bypass(exchange, plan.bypassed)
        try:
            if talk and plan.tools:
                return await ToolLoop(self, exchange, talk, plan, record, send).run()
            answer = await self.ask(exchange, plan, talk)
        except httpx.HTTPError as error:
            return await _send(send, error_response(502, "api_error", f"upstream: {type(error).__name__}: {error}"))
        await self.pass_on(exchange, answer, record, send)

    async def _plan(self, exchange: Exchange, whose: tuple[str, Mode] | None) -> tuple[Plan, Talk | None]:
        """Returns what to send, and the conversation where it was read. If anything goes wrong, the client's bytes are
        sent."""
        if not (whose and find_dialect(exchange)):
            return Plan(exchange.body), None
        try:
            exchange.decompress()
            if len(exchange.body) > MOST_BYTES:
                raise TooLarge(f"{len(exchange.body)} bytes")
            if whose[1] == "observe":
                return Plan(exchange.body), None
            talk = await in_thread(len(exchange.body), lambda: read_talk(exchange, *whose, self.gateway.config))
            exchange.conversation = talk.key
            return await self.rewriter.plan(exchange, talk), talk
        except NotPlain as error:
            exchange.unread = True
            reason = type(error).__name__
            log.info("bypassed: %s: %s", reason, error)
        except Exception as error:  # whatever it is: a request must not fail because of us
            reason = type(error).__name__
            log.warning("bypassed: %s: %s", reason, error, exc_info=True)
        return Plan(exchange.body, bypassed=reason), None

    def bypass(self, exchange: Exchange, reason: str) -> None:
        """Counts an exchange that passes as it came."""
        exchange.bypassed = exchange.bypassed or reason
        self.gateway.counts.add("bypasses", reason=reason)

    async def ask(self, exchange: Exchange, plan: Plan, talk: Talk | None) -> httpx.Response:
        """Asks the provider. If it refuses what the gateway made of the request, asks again with the client's own
        bytes."""
        answer = await self.request(exchange)
        if exchange.status not in REFUSED or exchange.sent == exchange.body:
            if talk and exchange.status in REFUSED:
                self.rewriter.leave_alone(talk, 0)
            return answer
        reason = f"status {exchange.status}"
        await answer.aclose()
        plan.tools, exchange.sent, exchange.changes, exchange.rewritten = set(), exchange.body, [], 0
        answer = await self.request(exchange)
        if talk and exchange.is_success:  # so it was ours: leave the conversation alone for a while
            self.bypass(exchange, reason)
            self.rewriter.leave_alone(talk)
        return answer

    async def request(self, exchange: Exchange) -> httpx.Response:
        """Sends the client's request to the provider: other headers of the connection, and what the mode made of the
        body."""
        base = httpx.URL(find_upstream(exchange, self.gateway.config))
        url = base.copy_with(raw_path=base.raw_path.rstrip(b"/") + exchange.target)
        headers = [(k, v) for k, v in exchange.headers if k.lower() not in OURS]
        if find_dialect(exchange):  # of the compressions that can be read here
            headers = [(k, _select_encoding(v) if k.lower() == b"accept-encoding" else v) for k, v in headers]
        is_own = exchange.sent == exchange.body
        sent = exchange.raw if is_own else exchange.sent
        headers = [(k, v) for k, v in headers if is_own or k.lower() != b"content-encoding"]
        if sent or exchange.method == "POST":
            headers.append((b"content-length", b"%d" % len(sent)))
        headers = begin_call(exchange, headers, url.host)
        request = httpx.Request(exchange.method, url, headers=headers, content=sent or None)
        answer = await self.gateway.http.send(request, stream=True)
        exchange.status = answer.status_code
        exchange.answer_headers = [(k, v) for k, v in answer.headers.raw if k.lower() not in HOP]
        return answer

    async def pass_on(self, exchange: Exchange, answer: httpx.Response, record: Record, send: Send) -> None:
        """Sends the answer on as it comes."""
        if exchange.is_success:
            record.begin()
        length, came = exchange.answer_header("content-length"), 0
        try:
            await self.start(exchange, send)
            async for chunk in answer.aiter_raw():
                exchange.chunks.append((time.time(), chunk))
                came += len(chunk)
                if ENDS.search(chunk) or length == str(came):  # the client may take it for the end
                    await record.finish()
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            exchange.complete = True
            await record.finish()
            await send({"type": "http.response.body"})
        except httpx.HTTPError as error:  # cut upstream: so it is cut here, too
            raise ConnectionAbortedError(f"upstream: {error}") from error
        finally:
            await answer.aclose()

    async def start(self, exchange: Exchange, send: Send, is_changed: bool = False, length: int | None = None) -> None:
        """Sends the head of an answer. If its body is not the upstream's own, its length is not either."""
        headers = exchange.answer_headers
        if is_changed:
            headers = [(k, v) for k, v in headers if k.lower() != b"content-length"]
            headers += [(b"content-length", b"%d" % length)] if length is not None else []
        if exchange.bypassed:
            headers = [*headers, (b"x-pg-memoir", b"bypassed")]
        await send({"type": "http.response.start", "status": exchange.status, "headers": headers})


def _select_encoding(accepted: bytes) -> bytes:
    return b"gzip" if b"gzip" in accepted else b"identity"


async def _send(send: Send, answer: Response) -> None:
    """Sends a whole answer of ours."""

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    await answer({"type": "http"}, receive, send)


async def _receive_request(scope: Scope, receive: Receive) -> Exchange:
    parts = []
    while True:
        async with asyncio.timeout(BODY_SECONDS):
            message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            break
    target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
    body = b"".join(parts)
    return Exchange(scope["method"], scope["path"], target, list(scope["headers"]), body, sent=body, raw=body)


async def _run_while_connected(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Does the work, unless the client leaves: then it is cancelled, and with it the call upstream."""

    async def wait_until_gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    task, left = asyncio.create_task(work), asyncio.create_task(wait_until_gone())
    try:
        await asyncio.wait({task, left}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
    finally:
        left.cancel()
        task.cancel()
        await asyncio.wait({task, left})
