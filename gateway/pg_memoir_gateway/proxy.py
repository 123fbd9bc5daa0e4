"""The proxy: what a client sends goes upstream as it came, and the answer comes back as it arrives."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import httpx
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from .access import user_of
from .additions import Added, joined, told_of
from .anthropic_rounds import Rounds
from .chat_rounds import ChatRounds
from .dialect import Answer, chain
from .exchange import Exchange
from .gateway import Gateway
from .responses_rounds import ResponsesRounds
from .rewriting import Plan, Rewriter
from .spans import NotPlain, body_of, quoted
from .sse import Splitter
from .store import Store
from .talk import Talk, dialect_of, talk_of

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


class ClientGone(Exception):
    """The client left before it had sent its request."""


class Proxy:
    """An ASGI application."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.store = Store(gateway)
        self.rewriter = Rewriter(gateway, self.store)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        self.gateway.open_requests += 1
        try:
            exchange = await _received(scope, receive)
            try:
                await _while_there(receive, self._forward(exchange, send))
            finally:
                self._keep(exchange)
        except ClientGone:
            pass
        finally:
            self.gateway.open_requests -= 1

    async def _forward(self, exchange: Exchange, send: Send) -> None:
        """Sends it on as it came, or as the mode has it; the answer back, or what is made of it."""
        exchange.sent = exchange.body
        dialect, whose = dialect_of(exchange), user_of(self.gateway.config, Headers(raw=exchange.headers))
        plan, begun = Plan(exchange.body), time.perf_counter()
        if dialect and whose and whose[1] != "observe":
            with contextlib.suppress(NotPlain):
                talk = talk_of(exchange, dialect, body_of(exchange.body), *whose, self.gateway.config)
                exchange.conversation = (talk.user, talk.session)
                plan = await self.rewriter.plan(exchange, talk)
        exchange.sent, exchange.changes, exchange.rewritten = plan.sent, plan.changes, plan.rewritten
        self.gateway.counts.took("added_seconds", time.perf_counter() - begun)
        self.gateway.counts.add("requests", mode=whose[1] if whose else "none")
        if plan.bypassed:
            self.gateway.counts.add("bypasses", reason=plan.bypassed)
        if plan.tools and dialect and exchange.path in ROUNDS:
            return await self._conversed(exchange, talk, plan, send)
        try:
            answer = await self._asked(exchange)
        except httpx.HTTPError as error:
            return await _unreachable(error, send)
        await self._passed(exchange, answer, plan, send)

    async def _asked(self, exchange: Exchange) -> httpx.Response:
        answer = await self.gateway.http.send(self._upstream(exchange), stream=True)
        exchange.status = answer.status_code
        exchange.answer_headers = [(k, v) for k, v in answer.headers.raw if k.lower() not in HOP]
        return answer

    async def _passed(self, exchange: Exchange, answer: httpx.Response, plan: Plan, send: Send) -> None:
        """The answer as it comes."""
        try:
            await _start(send, exchange, plan)
            async for chunk in answer.aiter_raw():
                exchange.chunks.append((time.time(), chunk))
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            exchange.complete = True
            await send({"type": "http.response.body"})
        except httpx.HTTPError as error:  # cut upstream: so it is cut here, too
            raise ConnectionAbortedError(f"upstream: {error}") from error
        finally:
            await answer.aclose()

    async def _conversed(self, exchange: Exchange, talk: Talk, plan: Plan, send: Send) -> None:
        """An answer in which calls of our tools are held back and answered; the model is asked again where it called
        nothing else."""
        exchange.headers = [(k, b"identity" if k.lower() == b"accept-encoding" else v) for k, v in exchange.headers]
        rounds = ROUNDS[exchange.path](plan.tools)
        results: list[list[str]] = []
        told: Added = {}
        while True:
            try:
                answer = await self._asked(exchange)
            except httpx.HTTPError as error:
                if rounds.rounds:
                    raise ConnectionAbortedError(f"upstream: {error}") from error
                return await _unreachable(error, send)
            if exchange.status != 200 or exchange.answer_header("content-encoding"):
                if not rounds.rounds:
                    return await self._passed(exchange, answer, plan, send)
                return await self._failed(exchange, answer, rounds, send)
            rounds.begin()
            try:
                whole = await self._round(exchange, answer, rounds, plan, send)
            finally:
                await answer.aclose()
            if rounds.finished() and rounds.done:
                results.append(await self.rewriter.answered(talk, rounds.finished()))
                told = joined(told, told_of(rounds.arguments(), results[-1]))
                exchange.sent = await self.rewriter.without_withdrawn(talk, exchange.sent)
            if not (rounds.done and rounds.again(self.gateway.config.fault_rounds)):
                break
            rounds.spent()
            exchange.earlier.append(replace(exchange, earlier=[], complete=True))
            exchange.sent, exchange.chunks, exchange.rewritten = rounds.next(exchange.sent, results[-1]), [], 0
        if rounds.done and any(results):
            added = joined(told, rounds.added(results))
            links = chain(talk.dialect, rounds.items(), talk.chain[-1])
            link = talk.chain[-1] if talk.dialect.key == "input" else links[-1]
            self.store.add(talk, link, joined(self.store.added(talk, -1), added) if link == talk.chain[-1] else added)
            exchange.told = Answer(rounds.items(), talk.body.get("model"), rounds.total())
        await self._closed(exchange, rounds, whole, plan, send)

    async def _round(
        self, exchange: Exchange, answer: httpx.Response, rounds: AnyRounds, plan: Plan, send: Send
    ) -> bytes | None:
        """One answer of the upstream: what the client may see of it goes out as it comes. An answer in one piece is
        returned."""
        try:
            if not exchange.streams:
                async for chunk in answer.aiter_raw():
                    exchange.chunks.append((time.time(), chunk))
                raw = b"".join(chunk for _, chunk in exchange.chunks)
                for event in rounds.events_of_whole(raw):
                    rounds.feed(event)
                return raw
            if len(rounds.rounds) == 1:
                await _start(send, exchange, plan, changed=True)
            splitter = Splitter()
            async for chunk in answer.aiter_raw():
                exchange.chunks.append((time.time(), chunk))
                if out := b"".join(rounds.feed(event) for event in splitter.feed(chunk)):
                    await send({"type": "http.response.body", "body": out, "more_body": True})
            if rest := splitter.rest():
                await send({"type": "http.response.body", "body": rest, "more_body": True})
            return None
        except httpx.HTTPError as error:
            if exchange.streams and (rest := splitter.rest()):
                await send({"type": "http.response.body", "body": rest, "more_body": True})
            raise ConnectionAbortedError(f"upstream: {error}") from error

    async def _closed(self, exchange: Exchange, rounds: AnyRounds, whole: bytes | None, plan: Plan, send: Send) -> None:
        """The end of the answer."""
        exchange.complete = True
        if whole is None:
            return await send({"type": "http.response.body", "body": rounds.ended()})
        touched = len(rounds.rounds) > 1 or rounds.finished()
        body = quoted(rounds.whole(json.loads(whole))).encode() if touched else whole
        await _start(send, exchange, plan, changed=True, length=len(body))
        await send({"type": "http.response.body", "body": body})

    async def _failed(self, exchange: Exchange, answer: httpx.Response, rounds: AnyRounds, send: Send) -> None:
        """The upstream refuses to go on with a message that the client has a part of: it gets the refusal's words."""
        body = await answer.aread()
        await answer.aclose()
        exchange.chunks.append((time.time(), body))
        if rounds.streamed:
            await send({"type": "http.response.body", "body": rounds.error(body)})
        else:
            await _start(send, exchange, Plan(b""), changed=True, length=len(body))
            await send({"type": "http.response.body", "body": body})

    def _keep(self, exchange: Exchange) -> None:
        """Has an exchange stored that is part of a conversation."""
        dialect, whose = dialect_of(exchange), user_of(self.gateway.config, Headers(raw=exchange.headers))
        if dialect and whose and exchange.status:
            config = self.gateway.config
            self.store.keep(
                exchange,
                lambda: talk_of(exchange, dialect, body_of(exchange.body), *whose, config),
                self.rewriter.refreshed,
            )

    def _upstream(self, exchange: Exchange) -> httpx.Request:
        """The request as it goes out: the client's, to another host."""
        base = httpx.URL(upstream_of(exchange, self.gateway))
        url = base.copy_with(raw_path=base.raw_path.rstrip(b"/") + exchange.target)
        headers = [(k, v) for k, v in exchange.headers if k.lower() not in OURS]
        if dialect_of(exchange):  # of the compressions that can be read here
            headers = [(k, _readable(v) if k.lower() == b"accept-encoding" else v) for k, v in headers]
        if exchange.sent or exchange.method == "POST":
            headers.append((b"content-length", b"%d" % len(exchange.sent)))
        return httpx.Request(exchange.method, url, headers=headers, content=exchange.sent or None)


def _readable(accepted: bytes) -> bytes:
    return b"gzip" if b"gzip" in accepted else b"identity"


def upstream_of(exchange: Exchange, gateway: Gateway) -> str:
    """Whose API a request means: by its path, else by what only one of them sends."""
    if re.match(r"/v1/(chat/|responses|completions|embeddings|realtime)", exchange.path):
        return gateway.config.upstream_openai
    anthropic = exchange.header("anthropic-version") or exchange.header("x-api-key")
    if anthropic or not exchange.path.startswith("/v1/") or exchange.path.startswith("/v1/messages"):
        return gateway.config.upstream_anthropic
    return gateway.config.upstream_openai


async def _start(send: Send, exchange: Exchange, plan: Plan, changed: bool = False, length: int | None = None) -> None:
    """The head of an answer. Where its body is not the upstream's own, its length is not either."""
    headers = exchange.answer_headers
    if changed:
        headers = [(k, v) for k, v in headers if k.lower() != b"content-length"]
        headers += [(b"content-length", b"%d" % length)] if length is not None else []
    if plan.bypassed:
        headers = [*headers, (b"x-pg-memoir", b"bypassed")]
    await send({"type": "http.response.start", "status": exchange.status, "headers": headers})


async def _received(scope: Scope, receive: Receive) -> Exchange:
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            break
    target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
    return Exchange(scope["method"], scope["path"], target, list(scope["headers"]), b"".join(parts))


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
    what = {"type": "api_error", "message": f"upstream: {type(error).__name__}: {error}"}
    body = json.dumps({"type": "error", "error": what}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 502, "headers": headers})
    await send({"type": "http.response.body", "body": body})
