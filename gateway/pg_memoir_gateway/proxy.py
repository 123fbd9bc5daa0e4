"""The proxy: what a client sends goes upstream as it came, and the answer comes back as it arrives."""

from __future__ import annotations

import asyncio
import json
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

from .access import user_of
from .additions import Added, merge_additions, withdrawal_texts
from .anthropic_rounds import Rounds
from .chat_rounds import ChatRounds
from .config import Mode
from .dialect import Answer, chain
from .exchange import Exchange
from .gateway import Gateway, in_thread, log
from .guard import error_response
from .journal import Entry
from .known import KnownMessages
from .record import Recorder
from .responses_rounds import ResponsesRounds
from .rewriting import Plan, Rewriter
from .spans import MOST_BYTES, NotPlain, TooLarge, body_of, quoted
from .sse import Event, Splitter, event_of
from .talk import Talk, dialect_of, talk_of
from .upstreams import NoUpstream, upstream_of

HOP = {b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
"""Headers of one connection, not of the message (RFC 9110, 7.6.1)."""

AnyRounds = Rounds | ChatRounds | ResponsesRounds
ROUNDS: dict[str, type[AnyRounds]] = {
    "/v1/messages": Rounds,
    "/v1/chat/completions": ChatRounds,
    "/v1/responses": ResponsesRounds,
}
"""By path: what reads an answer in which our tools may be called."""

OURS = HOP | {b"host", b"content-length"}
"""What is said anew to the upstream."""


REFUSED = (400, 404, 409, 413, 422)
"""Statuses by which a provider says that it can't take a request. What the gateway added can be why."""

DECODED = ("gzip", "deflate", "zstd")
"""Encodings of answers that are read here."""

ENDS = re.compile(rb"message_stop|\[DONE\]|response\.(completed|incomplete)")
"""The last piece of a stream holds one of these."""

BODY_SECONDS = 60.0
"""A client that sends nothing more of its request for so long is given up."""


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
        known = self.whose and dialect_of(self.exchange) and not self.exchange.unread
        if known and self.entry is None and (entry := self.recorder.journal.entry()):
            self.entry = entry
            assert self.whose
            self._begun = asyncio.create_task(self._write(entry.write_request, self.exchange, *self.whose))

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
            record = Record(self.recorder, exchange, user_of(self.gateway.config, Headers(raw=exchange.headers)))
            try:
                await _while_there(receive, self._forward(exchange, record, send))
            finally:
                self._keep(exchange, record)
        except ClientGone:
            pass
        except TimeoutError:
            answer = error_response(408, "timeout", f"Nothing came of the request's body for {BODY_SECONDS:.0f} s.")
            await answer(scope, receive, send)
        finally:
            self.gateway.open_requests -= 1

    def running(self) -> AbstractAsyncContextManager[None]:
        """While requests are answered."""
        return self.recorder.running(self.read, self.rewriter.refresh_forms)

    def read(self, exchange: Exchange, whose: tuple[str, Mode]) -> Talk:
        """Reads a request as a part of its conversation. Raises NotPlain."""
        dialect = dialect_of(exchange)
        if dialect is None:
            raise NotPlain("no conversation")
        return talk_of(exchange, dialect, body_of(exchange.body), *whose, self.gateway.config)

    async def _forward(self, exchange: Exchange, record: Record, send: Send) -> None:
        """Sends a request on as it came, or as the mode has it. Sends the answer back, or what is made of it."""
        try:
            upstream_of(exchange, self.gateway.config)
        except NoUpstream as error:
            self.gateway.counts.add("requests_refused", reason="path")
            return await _send(send, error_response(404, "not_found_error", str(error)))
        begun = time.perf_counter()
        plan, talk = await self._plan(exchange, record.whose)
        exchange.sent, exchange.changes, exchange.rewritten = plan.sent, plan.changes, plan.rewritten
        self.gateway.counts.took("added_seconds", time.perf_counter() - begun)
        self.gateway.counts.add("requests", mode=record.whose[1] if record.whose else "none")
        if plan.bypassed:
            self._bypass(exchange, plan.bypassed)
        try:
            if talk and plan.tools and exchange.path in ROUNDS:
                return await self._converse(exchange, talk, plan, record, send)
            answer = await self._ask(exchange, plan, talk)
        except httpx.HTTPError as error:
            return await _unreachable(error, send)
        await self._pass(exchange, answer, record, send)

    async def _plan(self, exchange: Exchange, whose: tuple[str, Mode] | None) -> tuple[Plan, Talk | None]:
        """Returns what to send, and the conversation where it was read. Whatever goes wrong, the client's bytes are
        sent."""
        untouched = Plan(exchange.body)
        if not (whose and dialect_of(exchange)):
            return untouched, None
        try:
            exchange.decompress()
            untouched = Plan(exchange.body)
            if len(exchange.body) > MOST_BYTES:
                raise TooLarge(f"{len(exchange.body)} bytes")
            if whose[1] == "observe":
                return untouched, None
            talk = await in_thread(len(exchange.body), lambda: self.read(exchange, whose))
            exchange.conversation = (talk.user, talk.session)
            return await self.rewriter.plan(exchange, talk), talk
        except NotPlain as error:
            exchange.unread = True
            untouched.bypassed = type(error).__name__
            log.info("bypassed: %s: %s", untouched.bypassed, error)
        except Exception as error:  # whatever it is: a request must not fail because of us
            untouched.bypassed = type(error).__name__
            log.warning("bypassed: %s: %s", untouched.bypassed, error, exc_info=True)
        return untouched, None

    def _bypass(self, exchange: Exchange, reason: str) -> None:
        """Counts what passes as it came."""
        exchange.bypassed = exchange.bypassed or reason
        self.gateway.counts.add("bypasses", reason=reason)

    async def _ask(self, exchange: Exchange, plan: Plan, talk: Talk | None) -> httpx.Response:
        """Asks the provider. If it refuses what the gateway made of the request, asks again with the client's own
        bytes."""
        answer = await self._request(exchange)
        if exchange.status not in REFUSED or exchange.sent == exchange.body:
            if talk and exchange.status in REFUSED:
                self.rewriter.untouched.pop((talk.user, talk.session), None)
            return answer
        reason = f"status {exchange.status}"
        await answer.aclose()
        plan.tools, exchange.sent, exchange.changes, exchange.rewritten = set(), exchange.body, [], 0
        answer = await self._request(exchange)
        if talk and exchange.succeeded:  # so it was ours: leave the conversation alone for a while
            self._bypass(exchange, reason)
            self.rewriter.leave_alone(talk)
        return answer

    async def _request(self, exchange: Exchange) -> httpx.Response:
        answer = await self.gateway.http.send(self._upstream(exchange), stream=True)
        exchange.status = answer.status_code
        exchange.answer_headers = [(k, v) for k, v in answer.headers.raw if k.lower() not in HOP]
        return answer

    async def _pass(self, exchange: Exchange, answer: httpx.Response, record: Record, send: Send) -> None:
        """Sends the answer on as it comes."""
        if exchange.succeeded:
            record.begin()
        length, came = exchange.answer_header("content-length"), 0
        try:
            await _start(send, exchange)
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

    async def _converse(self, exchange: Exchange, talk: Talk, plan: Plan, record: Record, send: Send) -> None:
        """Sends an answer on in which calls of our tools are held back and answered. The model is asked again where it
        called nothing else."""
        exchange.headers = [(k, b"identity" if k.lower() == b"accept-encoding" else v) for k, v in exchange.headers]
        rounds = ROUNDS[exchange.path](plan.tools)
        results: list[list[str]] = []
        announced: Added = {}
        plainly = False  # has the client's own request been tried after a round of ours?
        while True:
            try:
                answer = await (self._request(exchange) if rounds.rounds else self._ask(exchange, plan, talk))
            except httpx.HTTPError as error:
                if rounds.rounds:
                    raise ConnectionAbortedError(f"upstream: {error}") from error
                raise
            if exchange.status != 200 or not plan.tools or not _decodes(exchange, answer):
                if not rounds.rounds:
                    return await self._pass(exchange, answer, record, send)
                if plainly:
                    return await self._fail(exchange, answer, rounds, send)
                await answer.aclose()
                self._bypass(exchange, f"round {exchange.status}")
                rounds.abandon()
                plainly, exchange.sent = True, exchange.body
                continue
            record.begin()
            rounds.begin()
            try:
                whole = await self._round(exchange, answer, rounds, send)
            finally:
                await answer.aclose()
            if exchange.unread:
                return await self._close(exchange, rounds, whole, record, send)
            try:
                if rounds.find_calls() and rounds.done:
                    results.append(await self.rewriter.answer_calls(talk, rounds.find_calls()))
                    announced = merge_additions(announced, withdrawal_texts(rounds.arguments(), results[-1]))
                    exchange.sent = await self.rewriter.without_withdrawn(talk, exchange.sent)
                if not (rounds.done and rounds.again(self.gateway.config.fault_rounds)):
                    break
                following = rounds.next(exchange.sent, results[-1])
            except Exception as error:  # the answer ends here then
                self._give_up(exchange, error)
                break
            rounds.spent()
            exchange.earlier.append(replace(exchange, earlier=[], complete=True))
            exchange.sent, exchange.chunks, exchange.rewritten = following, [], 0
        try:
            if rounds.done and any(results):
                self._note(exchange, talk, rounds, merge_additions(announced, rounds.added(results)))
        except Exception as error:
            self._give_up(exchange, error)
        await self._close(exchange, rounds, whole, record, send)

    def _note(self, exchange: Exchange, talk: Talk, rounds: AnyRounds, added: Added) -> None:
        """Keeps what was held back for later requests, and the answer as the client knows it."""
        links = chain(talk.dialect, rounds.items(), talk.chain[-1])
        link = talk.chain[-1] if talk.dialect.key == "input" else links[-1]
        self.known.add(
            talk, link, merge_additions(self.known.added(talk, -1), added) if link == talk.chain[-1] else added
        )
        exchange.told = Answer(rounds.items(), talk.body.get("model"), rounds.total())

    def _give_up(self, exchange: Exchange, error: Exception) -> None:
        """Passes the provider's bytes from here on: they can't be read."""
        exchange.unread = True
        self._bypass(exchange, type(error).__name__)
        log.warning("an answer can't be read: %s: %s", type(error).__name__, error, exc_info=error)

    async def _round(self, exchange: Exchange, answer: httpx.Response, rounds: AnyRounds, send: Send) -> bytes | None:
        """Reads one answer of the upstream. What the client may see of it goes out as it comes. Returns an answer in
        one piece."""
        splitter = Splitter()
        try:
            async for chunk in answer.aiter_bytes():
                exchange.chunks.append((time.time(), chunk))
                if not exchange.streams:
                    continue
                await self._begin_stream(exchange, send)
                await _send_piece(send, self._feed(exchange, rounds, splitter.feed(chunk), splitter))
            if exchange.streams:
                await self._begin_stream(exchange, send)
                if rest := splitter.rest():  # some servers leave out the last empty line
                    await _send_piece(send, self._feed(exchange, rounds, [event_of(rest)], splitter))
                return None
            raw = b"".join(chunk for _, chunk in exchange.chunks)
            try:
                for event in rounds.events_of_whole(raw):
                    rounds.feed(event)
            except Exception as error:
                self._give_up(exchange, error)
            return raw
        except httpx.HTTPError as error:
            if exchange.started:
                await _send_piece(send, splitter.rest())
            raise ConnectionAbortedError(f"upstream: {error}") from error

    async def _begin_stream(self, exchange: Exchange, send: Send) -> None:
        if not exchange.started:
            exchange.started = True
            await _start(send, exchange, changed=True)

    def _feed(self, exchange: Exchange, rounds: AnyRounds, events: list[Event], splitter: Splitter) -> bytes:
        """Returns what the client gets of these events."""
        if exchange.unread:
            return b"".join(event.raw for event in events) + splitter.rest()
        out = []
        for at, event in enumerate(events):
            try:
                out.append(rounds.feed(event))
            except Exception as error:
                self._give_up(exchange, error)
                return b"".join([*out, rounds.release(), *(event.raw for event in events[at:]), splitter.rest()])
        return b"".join(out)

    async def _close(
        self, exchange: Exchange, rounds: AnyRounds, whole: bytes | None, record: Record, send: Send
    ) -> None:
        """Ends the answer."""
        end, body = b"", whole or b""
        try:
            if exchange.started:
                end = b"" if exchange.unread else rounds.finish()
            elif whole and not exchange.unread and rounds.is_touched:
                body = quoted(rounds.whole(json.loads(whole))).encode()
        except Exception as error:
            self._give_up(exchange, error)
            end = rounds.release()
        exchange.complete = True
        await record.finish()
        if exchange.started:
            return await send({"type": "http.response.body", "body": end})
        await _start(send, exchange, changed=True, length=len(body))
        await send({"type": "http.response.body", "body": body})

    async def _fail(self, exchange: Exchange, answer: httpx.Response, rounds: AnyRounds, send: Send) -> None:
        """The upstream refuses to go on with a message that the client has a part of: it gets the refusal's words."""
        body = await answer.aread()
        await answer.aclose()
        exchange.chunks.append((time.time(), body))
        if exchange.started:
            await send({"type": "http.response.body", "body": rounds.error(body)})
        else:
            await _start(send, exchange, changed=True, length=len(body))
            await send({"type": "http.response.body", "body": body})

    def _keep(self, exchange: Exchange, record: Record) -> None:
        """Has an exchange stored that is part of a conversation, if the provider accepted it: else anybody who
        reaches the gateway could have their words stored."""
        whose = record.whose
        if not (whose and exchange.succeeded and dialect_of(exchange)):
            return
        self.recorder.queue(exchange, lambda: self.read(exchange, whose), self.rewriter.refresh_forms, record.entry)

    def _upstream(self, exchange: Exchange) -> httpx.Request:
        """The request as it goes out: the client's, to another host."""
        base = httpx.URL(upstream_of(exchange, self.gateway.config))
        url = base.copy_with(raw_path=base.raw_path.rstrip(b"/") + exchange.target)
        headers = [(k, v) for k, v in exchange.headers if k.lower() not in OURS]
        if dialect_of(exchange):  # of the compressions that can be read here
            headers = [(k, _readable(v) if k.lower() == b"accept-encoding" else v) for k, v in headers]
        sent = exchange.sent
        if sent == exchange.body:
            sent = exchange.raw
        else:
            headers = [(k, v) for k, v in headers if k.lower() != b"content-encoding"]
        if sent or exchange.method == "POST":
            headers.append((b"content-length", b"%d" % len(sent)))
        return httpx.Request(exchange.method, url, headers=headers, content=sent or None)


def _readable(accepted: bytes) -> bytes:
    return b"gzip" if b"gzip" in accepted else b"identity"


def _decodes(exchange: Exchange, answer: httpx.Response) -> bool:
    """Can the answer's encoding be read? Some servers compress though nobody asked for it. The client gets it as it
    is then."""
    encoding = exchange.answer_header("content-encoding").lower()
    if encoding in DECODED:
        changed = (b"content-encoding", b"content-length")
        exchange.answer_headers = [(k, v) for k, v in exchange.answer_headers if k.lower() not in changed]
    return encoding in ("", "identity", *DECODED)


async def _send(send: Send, answer: Response) -> None:
    """Sends a whole answer of ours."""
    await answer({"type": "http"}, _nothing, send)


async def _nothing() -> Message:
    return {"type": "http.disconnect"}


async def _send_piece(send: Send, piece: bytes) -> None:
    if piece:
        await send({"type": "http.response.body", "body": piece, "more_body": True})


async def _start(send: Send, exchange: Exchange, changed: bool = False, length: int | None = None) -> None:
    """Sends the head of an answer. Where its body is not the upstream's own, its length is not either."""
    headers = exchange.answer_headers
    if changed:
        headers = [(k, v) for k, v in headers if k.lower() != b"content-length"]
        headers += [(b"content-length", b"%d" % length)] if length is not None else []
    if exchange.bypassed:
        headers = [*headers, (b"x-pg-memoir", b"bypassed")]
    await send({"type": "http.response.start", "status": exchange.status, "headers": headers})


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


async def _while_there(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Does the work, unless the client leaves: then it is cancelled, and with it the call upstream."""

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    task, left = asyncio.create_task(work), asyncio.create_task(gone())
    try:
        await asyncio.wait({task, left}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
    finally:
        left.cancel()
        task.cancel()
        await asyncio.wait({task, left})


async def _unreachable(error: Exception, send: Send) -> None:
    """What a client gets where there is nobody to ask."""
    await _send(send, error_response(502, "api_error", f"upstream: {type(error).__name__}: {error}"))
