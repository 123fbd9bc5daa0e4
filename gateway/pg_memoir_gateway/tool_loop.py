"""Sends an answer on in which calls of our tools are held back and answered: rounds.py at work."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import httpx
from starlette.types import Send

from .additions import merge_additions, withdrawal_texts
from .dialect import Added, Answer, hash_items
from .exchange import Exchange
from .gateway import log
from .rewriting import Plan
from .spans import write_json
from .sse import Event
from .talk import Talk

if TYPE_CHECKING:
    from .proxy import Proxy, Record

DECODED = ("gzip", "deflate", "zstd")  # encodings of answers that are read here


class ToolLoop:
    """One message of the client. The model is asked again while it calls our tools and nothing else. `is_passing`: an
    answer can't be read, so the provider's bytes pass from there on."""

    def __init__(self, proxy: Proxy, exchange: Exchange, talk: Talk, plan: Plan, record: Record, send: Send) -> None:
        self.proxy, self.exchange, self.talk, self.plan, self.record = proxy, exchange, talk, plan, record
        self.send = send
        self.rounds = talk.dialect.rounds(plan.tools, proxy.gateway.config.fault_rounds)
        self.results: list[list[str]] = []
        self.announced: Added = {}
        self.is_passing = False

    async def run(self) -> None:
        """Answers the client. Raises httpx.HTTPError if the upstream can't be asked, ConnectionAbortedError later."""
        exchange, rounds = self.exchange, self.rounds
        exchange.headers = [(k, b"identity" if k.lower() == b"accept-encoding" else v) for k, v in exchange.headers]
        is_plain = False  # has the client's own request been tried after a round of ours?
        while True:
            answer = await self._ask()
            if exchange.status != 200 or not self.plan.tools or not _decodes(exchange):
                if not rounds.rounds:
                    return await self.proxy.pass_on(exchange, answer, self.record, self.send)
                if is_plain:
                    return await self._fail(answer)
                await answer.aclose()
                self.proxy.bypass(exchange, f"round {exchange.status}")
                rounds.abandon()
                is_plain, exchange.sent = True, exchange.body
                continue
            self.record.begin()
            rounds.begin()
            try:
                whole = await self._read(answer)
            finally:
                await answer.aclose()
            following = None if self.is_passing else await self._answer_calls()
            if following is None:
                return await self._close(whole)
            rounds.end_round()
            exchange.begin_round(following)

    async def _ask(self) -> httpx.Response:
        if not self.rounds.rounds:
            return await self.proxy.ask(self.exchange, self.plan, self.talk)
        try:
            return await self.proxy.request(self.exchange)
        except httpx.HTTPError as error:
            raise ConnectionAbortedError(f"upstream: {error}") from error

    async def _read(self, answer: httpx.Response) -> bytes:
        """Reads one answer of the upstream. A stream goes out as it comes, without our calls. Returns an answer in one
        piece."""
        exchange = self.exchange
        try:
            async for chunk in answer.aiter_bytes():
                events = exchange.add_chunk(chunk)
                if exchange.streams:
                    await self._send_piece(chunk if self.is_passing else self._feed(events))
            if exchange.streams:
                events = exchange.end_stream()
                await self._send_piece(b"" if self.is_passing else self._feed(events))
                return b""
        except httpx.HTTPError as error:
            if exchange.started and not self.is_passing:
                await self._send_piece(exchange.pending)
            raise ConnectionAbortedError(f"upstream: {error}") from error
        whole = b"".join(chunk for _, chunk in exchange.chunks)
        try:
            self.rounds.feed_whole(whole)
        except Exception as error:
            self._give_up(error)
        return whole

    def _feed(self, events: list[Event]) -> bytes:
        """Returns the bytes that the client gets of these events."""
        out = []
        for at, event in enumerate(events):
            try:
                out.append(self.rounds.feed(event))
            except Exception as error:
                self._give_up(error)
                rest = [self.rounds.release(), *(event.raw for event in events[at:]), self.exchange.pending]
                return b"".join([*out, *rest])
        return b"".join(out)

    def _give_up(self, error: Exception) -> None:
        """Passes the provider's bytes from here on: they can't be read."""
        self.is_passing = True
        self._report(error)

    def _report(self, error: Exception) -> None:
        self.proxy.bypass(self.exchange, type(error).__name__)
        log.warning("an answer can't be read: %s: %s", type(error).__name__, error, exc_info=error)

    async def _answer_calls(self) -> bytes | None:
        """Answers the calls of an answer. Returns the request that goes on, None where the message ends."""
        rounds, rewriter = self.rounds, self.proxy.rewriter
        try:
            if rounds.is_done and (calls := rounds.find_calls()):
                self.results.append(await rewriter.answer_calls(self.talk, calls))
                withdrawable = withdrawal_texts(rounds.arguments(), self.results[-1])
                self.announced = merge_additions(self.announced, withdrawable)
                if rounds.goes_on():
                    return await rewriter.go_on(self.talk, self.plan, rounds, self.results[-1])
            if rounds.is_done and any(self.results):
                self._keep_additions()
        except Exception as error:  # the message ends here then
            self._report(error)
        return None

    def _keep_additions(self) -> None:
        """Keeps what was held back for later requests, and the answer as the client knows it."""
        rounds, talk, known = self.rounds, self.talk, self.proxy.known
        added = merge_additions(self.announced, rounds.added(self.results))
        items, link = rounds.items(), talk.chain[-1]
        if talk.dialect.key == "input":
            added = merge_additions(known.added(talk, -1), added)
        else:
            link = hash_items(talk.dialect, items, link)[-1]
        known.add(talk, link, added)
        self.exchange.told = Answer(items, talk.body.get("model"), rounds.count_usage())

    async def _close(self, whole: bytes) -> None:
        """Ends the answer."""
        end = b""
        try:
            if self.exchange.started and not self.is_passing:
                end = self.rounds.finish()
            elif whole and not self.is_passing and self.rounds.is_touched:
                whole = write_json(self.rounds.whole(json.loads(whole))).encode()
        except Exception as error:
            self._give_up(error)
            end = self.rounds.release()
        self.exchange.complete = True
        await self.record.finish()
        await self._send_end(end if self.exchange.started else whole)

    async def _fail(self, answer: httpx.Response) -> None:
        """Gives the client the refusal of an upstream that does not go on with a message it has a part of."""
        body = await answer.aread()
        await answer.aclose()
        self.exchange.chunks.append((time.time(), body))
        await self._send_end(self.rounds.error(body) if self.exchange.started else body)

    async def _send_piece(self, piece: bytes) -> None:
        if not self.exchange.started:
            self.exchange.started = True
            await self.proxy.start(self.exchange, self.send, is_changed=True)
        if piece:
            await self.send({"type": "http.response.body", "body": piece, "more_body": True})

    async def _send_end(self, body: bytes) -> None:
        if not self.exchange.started:
            await self.proxy.start(self.exchange, self.send, is_changed=True, length=len(body))
        await self.send({"type": "http.response.body", "body": body})


def _decodes(exchange: Exchange) -> bool:
    """Can the answer's encoding be read? Some servers compress without being asked. The client gets it as it is
    then."""
    encoding = exchange.answer_header("content-encoding").lower()
    if encoding in DECODED:
        changed = (b"content-encoding", b"content-length")
        exchange.answer_headers = [(k, v) for k, v in exchange.answer_headers if k.lower() not in changed]
    return encoding in ("", "identity", *DECODED)
