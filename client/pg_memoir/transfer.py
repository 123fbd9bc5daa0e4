"""A user's lines from one database to another: export_user and import_user in batches."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from . import admin_calls
from .backlog import Plan
from .errors import InvalidArgumentError

_LINES, _BYTES = 200, 4_000_000
"""A batch: few enough that its transaction stays short, in lines and in bytes."""


@dataclass(slots=True)
class Restored:
    """What an import did: rows by table that were put back, were there already, or may not come back."""

    user: str
    imported: dict[str, int] = field(default_factory=dict)
    present: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)


def is_export(line: str) -> bool:
    """Whether a file that begins with this line is an export of a user."""
    try:
        header = json.loads(line)
    except ValueError:
        return False
    return isinstance(header, dict) and header.get("format") == "pg_memoir.export"


def batches(lines: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for line in lines:
        if not line.strip():
            continue
        if batch and (len(batch) >= _LINES or size + len(line) > _BYTES):
            yield batch
            batch, size = [], 0
        batch.append(line)
        size += len(line)
    if batch:
        yield batch


def restore_plan(lines: Iterable[str], user: str | None) -> Plan[Restored]:
    """The calls of an import: a batch each, in order."""
    done: Restored | None = None
    ended = False
    for batch in batches(lines):
        if done is None:
            if not is_export(batch[0]):
                raise InvalidArgumentError("the first line is no header of an export", hint="export_user writes one")
            done = Restored(user or json.loads(batch[0])["user"])
        answer = yield admin_calls.import_user(done.user, batch)
        for outcome in ("imported", "present", "refused"):
            counts = getattr(done, outcome)
            for table, count in answer[outcome].items():
                counts[table] = counts.get(table, 0) + count
        ended = json.loads(batch[-1]).get("kind") == "end"
    if done is None or not ended:
        raise InvalidArgumentError("the export has no end: it was cut off", hint="what was read is imported; a whole file adds the rest")
    return done
