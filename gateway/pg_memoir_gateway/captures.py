"""Calls as they went over the wire. An agent sends its whole list with every step, so of a request only what its
conversation's last one lacks is stored: `metadata.base` names that call, `head` and `tail` are the bytes shared with
it."""

from __future__ import annotations

import json
import zlib
from collections import OrderedDict
from datetime import UTC, datetime
from typing import Any

from pg_memoir import AsyncMemoir

from .costs import count_cost, estimate_client_cost
from .dialect import Answer
from .exchange import Exchange, Headers, select_harmless
from .gateway import Gateway, in_thread, log
from .talk import Talk

KEPT_BYTES = 8 << 20  # requests kept in mind, compressed, to compare the next ones with
LEAST = 4_096  # shorter requests are stored whole


class Bases:
    """The last request of each conversation that this process captured."""

    def __init__(self) -> None:
        self._last: OrderedDict[tuple[str, str, str], tuple[str, bytes]] = OrderedDict()
        self._size = 0

    def shorten(self, key: tuple[str, str, str], request: bytes) -> tuple[bytes, dict[str, Any]]:
        """What is stored of a request, and what says how to make it whole."""
        call, packed = self._last.get(key, ("", b""))
        if not call or len(request) < LEAST:
            return request, {}
        before = zlib.decompress(packed)
        head = _count_shared(before, request)
        most = min(len(before), len(request)) - head
        tail = _count_shared(before[::-1][:most], request[::-1][:most])
        return request[head : len(request) - tail], {"base": call, "head": head, "tail": tail}

    def keep(self, key: tuple[str, str, str], call: str, packed: bytes) -> None:
        """Remembers a request, zlib's bytes of it, as its conversation's last, and lets the oldest go."""
        self._size += len(packed) - len(self._last.pop(key, ("", b""))[1])
        self._last[key] = (call, packed)
        while self._size > KEPT_BYTES and len(self._last) > 1:
            self._size -= len(self._last.popitem(last=False)[1][1])


class Captures:
    """Of one process."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self._bases = Bases()

    async def capture(self, exchange: Exchange, talk: Talk) -> None:
        """Stores a call as it went over the wire."""
        split = exchange.events() if exchange.streams else []
        model = talk.body.get("model")
        reply = read_answer(exchange, talk)
        cost = count_cost(reply.usage) if reply else 0.0
        left_out = sum(end - start - length for start, end, length in exchange.changes)
        self.gateway.counts.add("input_cost_tokens", cost, list="sent")
        self.gateway.counts.add(
            "input_cost_tokens", estimate_client_cost(cost, left_out, exchange.rewritten), list="client"
        )
        usage = {name: count for name, count in (reply.usage if reply else {}).items() if isinstance(count, int)}
        for name, count in usage.items():
            self.gateway.counts.add("tokens", count, kind=name)
        sent = exchange.sent or exchange.body
        key = (talk.user, talk.session, exchange.path + talk.kind)
        request, base = await in_thread(len(sent), lambda: self._bases.shorten(key, sent))
        call = await self.gateway.memoir.capture_call(
            talk.user,
            talk.session,
            request,
            response=None if exchange.streams else b"".join(piece for _, piece in exchange.answer()),
            provider=talk.dialect.name,
            model=model if isinstance(model, str) else None,
            status=exchange.status,
            latency_ms=int((exchange.chunks[-1][0] - exchange.began) * 1000) if exchange.chunks else None,
            started_at=datetime.fromtimestamp(exchange.began, UTC),
            request_headers=_decode_headers(exchange.headers),
            response_headers=_decode_headers(exchange.answer_headers),
            events=[event.raw for _, event in split],
            event_times=[datetime.fromtimestamp(at, UTC) for at, _ in split],
            metadata={
                "kind": talk.kind,
                "client": talk.client,
                "path": exchange.path,
                "usage": usage,
                "changes": exchange.changes,
            }
            | base,
        )
        self._bases.keep(key, str(call), await in_thread(len(sent), lambda: zlib.compress(sent, 1)))


def read_answer(exchange: Exchange, talk: Talk) -> Answer | None:
    """Returns the answer to one call, None where it is not whole or can't be read. It is read once."""
    if exchange.answers is None:
        exchange.answers = []
        try:
            if exchange.is_success and exchange.complete and exchange.streams:
                exchange.answers = [talk.dialect.answer([event for _, event in exchange.events()])]
            elif exchange.is_success and exchange.complete:
                exchange.answers = [talk.dialect.whole(json.loads(b"".join(piece for _, piece in exchange.answer())))]
        except Exception as error:  # a server may send anything; what was asked is stored all the same
            log.info("an answer can't be read: %s: %s", type(error).__name__, error)
    return exchange.answers[0] if exchange.answers else None


def _decode_headers(headers: Headers) -> dict[str, str]:
    return {key.decode("latin-1").lower(): value.decode("latin-1") for key, value in select_harmless(headers)}


def _count_shared(one: bytes, other: bytes) -> int:
    """How many bytes two texts begin with alike."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


async def request_of(memoir: AsyncMemoir, user: str, call: str) -> bytes:
    """The request of a captured call, byte for byte. Raises UnknownMemoryError."""
    pieces: list[tuple[bytes, dict[str, Any]]] = []
    known = {str(row.call_id): row.metadata for row in await memoir.list_calls(user, limit=1)}
    while True:
        parts = await memoir.read_call(user, call)
        while call not in known:
            page = await memoir.list_calls(user, limit=500, after=list(known)[-1])
            if not page:
                break
            known |= {str(row.call_id): row.metadata for row in page}
        metadata = known.get(call) or {}
        pieces.append((bytes(parts[0].body), metadata))
        if "base" not in metadata:
            break
        call = metadata["base"]
    whole = b""
    for piece, metadata in reversed(pieces):
        is_part = "base" in metadata
        whole = whole[: metadata["head"]] + piece + whole[len(whole) - metadata["tail"] :] if is_part else piece
    return whole
