"""Framing between the shared embedder and its clients. Stdlib only.

A frame is a 12-byte prelude (magic, header bytes, body bytes, big-endian), a small JSON header and a body.
Requests: {"op": "embed", "kind": "query"|"backlog", "model", "timeout_ms"} with a JSON array of texts as body,
{"op": "read", "function"} with a JSON array of one text, {"op": "ask", "model" or null, "prefix", "timeout_ms"} with a
question the same way, {"op": "count", "tokenizer"} with texts, or {"op": "ping"|"stats"}. Replies: {"ok": true, ...},
or {"error": kind, "message"}. Bodies: for embed rows × dimension float32 (little-endian), for read the answer as JSON,
for ask both, the vector first, for count a JSON array of numbers.
"""

from __future__ import annotations

import json
import struct

TYPE_CHECKING = False  # typing itself is slow to load, and every backend loads this
if TYPE_CHECKING:
    from typing import Any

PRELUDE = struct.Struct("!4sII")
MAGIC = b"pgm1"
MAX_HEADER = 64 << 10  # bytes
MAX_BODY = 16 << 20  # bytes
MAX_TEXTS = 2048
MAX_QUERY_TEXTS = 8  # more than that is backlog, whatever the client calls it
PEER = struct.Struct("3i")  # struct ucred: pid, uid, gid
_write = json.JSONEncoder(separators=(",", ":")).encode


class ProtocolError(ValueError):
    """A frame that isn't one of ours."""


class Refused(Exception):
    """Raised in the embedder: answered as {"error": kind, "message": ...}."""

    def __init__(self, kind: str, message: str):
        super().__init__(message)
        self.kind = kind


def pack(header: dict[str, Any], body: bytes = b"") -> bytes:
    """One frame; raises ProtocolError where it would be over the limits."""
    head = _write(header).encode()
    if len(head) > MAX_HEADER or len(body) > MAX_BODY:
        raise ProtocolError(
            f"a frame of {len(head)} + {len(body)} bytes is over the limit of {MAX_HEADER} + {MAX_BODY}"
        )
    return PRELUDE.pack(MAGIC, len(head), len(body)) + head + body


def unpack_prelude(data: bytes) -> tuple[int, int]:
    """Prelude → (header bytes, body bytes), both within the limits."""
    magic, head, body = PRELUDE.unpack(data)
    if magic != MAGIC or head > MAX_HEADER or body > MAX_BODY:
        raise ProtocolError("not a frame of the embedder's protocol")
    return head, body


def unpack_header(data: bytes) -> dict[str, Any]:
    """The header's JSON object."""
    try:
        header = json.loads(data)
    except ValueError:
        header = None
    if not isinstance(header, dict):
        raise ProtocolError("the header is not a JSON object")
    return header
