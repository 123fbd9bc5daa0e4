"""Calls as they went over the wire. An agent sends its whole list with every step, so of a request only what its
conversation's last one lacks is stored: `metadata.base` names that call, `head` and `tail` are the bytes shared with it."""

from __future__ import annotations

import zlib
from collections import OrderedDict
from typing import Any

from pg_memoir import AsyncMemoir

KEPT_BYTES = 8 << 20
"""Requests kept in mind, compressed, to compare the next ones with."""

LEAST = 4_096
"""Shorter requests are stored whole."""


class Bases:
    """The last request of each conversation that this process captured."""

    def __init__(self) -> None:
        self._last: OrderedDict[tuple[str, str, str], tuple[str, bytes]] = OrderedDict()
        self._size = 0

    def shortened(self, key: tuple[str, str, str], request: bytes) -> tuple[bytes, dict[str, Any]]:
        """What is stored of a request, and what says how to make it whole."""
        call, packed = self._last.get(key, ("", b""))
        if not call or len(request) < LEAST:
            return request, {}
        before = zlib.decompress(packed)
        head = _shared(before, request)
        most = min(len(before), len(request)) - head
        tail = _shared(before[::-1][:most], request[::-1][:most])
        return request[head : len(request) - tail], {"base": call, "head": head, "tail": tail}

    def keep(self, key: tuple[str, str, str], call: str, packed: bytes) -> None:
        """Remembers a request, zlib's bytes of it, as its conversation's last, and lets the oldest go."""
        self._size += len(packed) - len(self._last.pop(key, ("", b""))[1])
        self._last[key] = (call, packed)
        while self._size > KEPT_BYTES and len(self._last) > 1:
            self._size -= len(self._last.popitem(last=False)[1][1])


def _shared(one: bytes, other: bytes) -> int:
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
        if "base" in metadata:
            piece = whole[: metadata["head"]] + piece + whole[len(whole) - metadata["tail"] :]
        whole = piece
    return whole
