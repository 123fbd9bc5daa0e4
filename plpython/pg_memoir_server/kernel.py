"""The kernel of a compile in a backend: its statements over the user's own leaves, planned once a connection."""

from __future__ import annotations

import json

from pg_memoir_kernel import recall
from pg_memoir_kernel.store import SHARED, statements

from . import tokens

TYPE_CHECKING = False  # typing itself is slow to load, and every backend loads this
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

MOST_PARTS = 8  # parts whose plans a backend keeps, some 30 of 15 kB each
_plans: dict[int, dict[str, Any]] = {}  # by part, the one asked last at the end


class ServerStore:
    """The caller's snapshot.

    Statements name the leaves of the user's part themselves, so that one plan serves all calls and locks no other leaf.
    """

    def __init__(self, plpy: Any, asked: Mapping[str, Any]):
        self._plpy, self._part, self._tokenizer = plpy, asked["part"], asked.get("tokenizer", "estimate")
        self._plans = _plans[self._part] = _plans.pop(self._part, {})
        if len(_plans) > MOST_PARTS:
            del _plans[next(iter(_plans))]
        scope = asked["scope"]
        # The kernel itself leaves out items above the clearance.
        self._shared: tuple[Any, ...] = asked["user"], scope["clearance"], scope["projects"], []

    def rows(self, name: str, *given: Any) -> Sequence[Mapping[str, Any]]:
        plan = self._plans.get(name)
        if plan is None:
            statement = statements()[name]
            plan = self._plpy.prepare(statement.on(self._part), [*SHARED.values(), *statement.types.values()])
            self._plans[name] = plan
        rows: Sequence[Mapping[str, Any]] = self._plpy.execute(plan, [*self._shared, *given])
        return rows

    def of(self, asked: Mapping[str, Any]) -> ServerStore:
        return ServerStore(self._plpy, {"tokenizer": self._tokenizer, **asked})

    def count_tokens(self, text: str) -> int:
        if self._tokenizer == "estimate":
            counted: int = self.rows("counted", text, self._tokenizer)[0]["tokens"]
            return counted
        return tokens.count_shared([text], self._tokenizer)[0]


def run(plpy: Any, asked: str, settings: str, vector: str | None) -> list[Any]:
    """Return recall.answer() of what is asked: recalled, items, trace and rows, JSON but for the items."""
    given = json.loads(asked)
    found = recall.answer(ServerStore(plpy, given), given, settings, vector)
    recalled, rows = (None if found[name] is None else _write(found[name]) for name in ("recalled", "rows"))
    return [recalled, found["items"], None if found["trace"] is None else _write_trace(found["trace"]), rows]


_write = json.JSONEncoder(separators=(",", ":")).encode


def _write_trace(trace: Mapping[str, list[Any]]) -> str:
    """Return columns as JSON: those of whole numbers by Python's own writing, which takes a third of the time."""
    written = {
        name: _write(its) if name in ("forms", "reason_names") else repr(its).replace(" ", "").replace("None", "null")
        for name, its in trace.items()
    }
    return "{" + ",".join(f'"{name}":{its}' for name, its in written.items()) + "}"
