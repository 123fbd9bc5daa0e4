"""Recalls that the client makes: a server without PL/Python has no kernel, so it runs here, over the caller's own
arrays.

A call that needs a recall raises KernelMissingError. In one transaction with one snapshot it then runs again with
what it asked for, until it asks for nothing more.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import KernelMissingError

ISOLATION = "set transaction isolation level repeatable read"
GIVE = "select set_config('memoir.recalled', %(recalls)s, true)"
READ = "select a as result from memoir.recall_arrays(%(user)s, %(name)s, %(given)s::jsonb) a"
MOST = 64  # recalls of one call
PAUSES = [0.005 * 2 ** min(n, 6) for n in range(16)]
"""Seconds at most before a call is tried again, because another one of its session wrote meanwhile."""
HINT = "install the client with its kernel: pip install 'pg_memoir[kernel]'"
_BYTES = re.compile(r"\\x(?:[0-9a-f]{2})*")

Read = Callable[[str, Mapping[str, Any]], Sequence[Mapping[str, Any]]]
"""Runs a statement with parameters and returns its rows."""


@dataclass(frozen=True)
class ClientStore:
    """The kernel's store over memoir.recall_arrays: bytes come as hexadecimal text."""

    read: Read
    user: str
    tokenizer: str

    def rows(self, name: str, *given: Any) -> Sequence[Mapping[str, Any]]:
        found = self.read(READ, {"user": self.user, "name": name, "given": json.dumps(given)})
        return [{key: _decode(value) for key, value in row["result"].items()} for row in found]

    def of(self, asked: Mapping[str, Any]) -> ClientStore:
        return ClientStore(self.read, asked["as"], self.tokenizer)

    def count_tokens(self, text: str) -> int:
        counted: int = self.rows("counted", text, self.tokenizer)[0]["tokens"]
        return counted


def _decode(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("\\x") and _BYTES.fullmatch(value):
        return bytes.fromhex(value[2:])
    return value


def make(error: KernelMissingError, user: str, read: Read) -> tuple[str, dict[str, Any]]:
    """Return what a call asked for: its key, and the recall. Raises the error again where there is no kernel."""
    wanted = error.detail
    try:
        from pg_memoir_kernel import recall
    except ImportError as missing:
        raise KernelMissingError(f"{error} ({missing})", hint=HINT) from None
    asked = wanted["asked"]
    store = ClientStore(read, asked.get("as") or user, asked.get("tokenizer", "estimate"))
    return wanted["key"], recall.answer(store, asked, wanted["settings"], wanted["vector"])
