"""Items as arrays: the columns of search_items that a recall weighs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from .arrays import pick

ROLES = ("", "system", "user", "assistant", "tool")
IS_QUESTION, AFTER_QUESTION, LAST_CHUNK, HAS_SPEAKER = 1, 2, 4, 8
NO_SESSION = bytes(16)
# As {facts} of queries.sql writes an item, big-endian.
FACTS = np.dtype(
    [
        ("item", ">i4"), ("turn", ">i4"), ("previous", ">i4"), ("start", ">i4"), ("length", ">i4"), ("tokens", ">i4"),
        ("chunk", ">i2"), ("words", ">i2"), ("role", ">i2"), ("flags", ">i2"), ("kind", "S1"), ("created", ">i8"),
        ("recorded", ">i8"), ("ref", "V16"), ("session", "V16"),
    ]
)  # fmt: skip


@dataclass
class Items:
    """Items in one order, a column each. item, turn, previous (-1: none), start, length (characters), tokens, chunk,
    words, role (of ROLES), flags: int64; created, recorded: microseconds since 2000; kind: b"t", b"m" or b"s";
    ref, session: ids of 16 bytes; project, speaker: texts.
    """

    item: np.ndarray
    turn: np.ndarray
    previous: np.ndarray
    start: np.ndarray
    length: np.ndarray
    tokens: np.ndarray
    chunk: np.ndarray
    words: np.ndarray
    role: np.ndarray
    flags: np.ndarray
    created: np.ndarray
    recorded: np.ndarray
    kind: list[bytes]
    ref: list[bytes]
    session: list[bytes]
    project: list[str]
    speaker: list[str | None]

    def __len__(self) -> int:
        return len(self.item)

    def is_of(self, kind: bytes) -> np.ndarray:
        """Return which items are of a kind."""
        found: np.ndarray = np.frombuffer(b"".join(self.kind), np.uint8) == kind[0]
        return found

    def take(self, order: np.ndarray) -> Items:
        """Return some of the items in an order of their places."""
        numbers = [getattr(self, name)[order] for name in NUMBERS]
        return Items(*numbers, *pick((getattr(self, name) for name in COLUMNS[len(NUMBERS) :]), order))

    def join(self, other: Items) -> Items:
        """Return these items and others behind them."""
        if not len(other):
            return self
        pairs = ((getattr(self, name), getattr(other, name)) for name in COLUMNS)
        found: list[Any] = [np.concatenate(p) if isinstance(p[0], np.ndarray) else p[0] + p[1] for p in pairs]
        return Items(*found)


COLUMNS = tuple(field.name for field in fields(Items))
NUMBERS = COLUMNS[:12]


def read_items(row: Mapping[str, Any]) -> Items:
    """Return the items of a row with facts, projects and speakers, in the order of their numbers."""
    facts = np.frombuffer(row["facts"] or b"", FACTS)
    projects: list[str] = row["projects"] or ["global"] * len(facts)
    speakers: list[str | None] = row["speakers"] or [None] * len(facts)
    found = Items(
        **{name: facts[name].astype(np.int64) for name in NUMBERS},
        kind=facts["kind"].tolist(), ref=_ids(facts["ref"]), session=_ids(facts["session"]), project=projects,
        speaker=speakers,
    )  # fmt: skip
    order = np.argsort(found.item)
    return found if (order[1:] > order[:-1]).all() else found.take(order)


def _ids(column: np.ndarray) -> list[bytes]:
    whole = column.tobytes()
    return [whole[n : n + 16] for n in range(0, len(whole), 16)]


def to_bytes(id_: str) -> bytes:
    """Return an id, written with hyphens, as 16 bytes."""
    return bytes.fromhex(id_.replace("-", ""))


def to_text(id_: bytes) -> str:
    """Return an id of 16 bytes as it is written."""
    text = id_.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
