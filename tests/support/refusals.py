"""A message list with everything that may be in one, and the check that a refused call leaves nothing behind."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from calls import CALL, call

IMAGE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "low"}}
EXCHANGE: list[dict[str, Any]] = [
    {"role": "developer", "content": "Be brief."},
    {
        "role": "user",
        "content": [{"type": "text", "text": "Where is it?", "cache_control": None}, IMAGE],
        "name": "Ann",
        "created_at": "2024-02-29T12:00:00.25+01:00",
    },
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [CALL | {"index": None}, CALL | {"id": "call_2"}],
        "audio": None,
    },
    {"role": "tool", "tool_call_id": "call_2", "content": "in Bonn"},
    {
        "role": "tool",
        "tool_call_id": "call_1",
        "content": [{"type": "text", "text": "in "}, {"type": "text", "text": "Cologne"}],
        "x": {"y": [1.50, None]},
    },
    {"role": "assistant", "content": None, "refusal": "I can't tell.", "annotations": []},
    {"role": "user", "content": ""},
    {
        "role": "assistant",
        "content": [{"type": "text", "text": "There."}, {"type": "refusal", "refusal": "Not where."}],
        "name": "bot",
    },
]
ADDED = ("utc_offset", "turn_index", "message_id", "tokens", "tokenizer", "model")


def as_sent(message: dict[str, Any]) -> dict[str, Any]:
    """What history adds taken away; times as points in time."""
    kept = {key: value for key, value in message.items() if key not in ADDED and key != "created_at"}
    return json.loads(json.dumps(kept))


def refused(db: psycopg.Connection, function: str, code: str, *fragments: str, **arguments: Any) -> None:
    """The call raises this code, its message has all fragments, and every table has as many rows as before."""
    before = rows(db)
    with pytest.raises(psycopg.Error) as caught:
        call(db, function, **arguments)
    assert caught.value.sqlstate == code, f"{caught.value.sqlstate}: {caught.value}"
    for fragment in fragments:
        assert fragment in caught.value.diag.message_primary
    assert rows(db) == before


def rows(db: psycopg.Connection) -> dict[str, int]:
    """Rows of every table of the product."""
    tables = db.execute(
        """select relname from pg_class where relnamespace = '_memoir'::regnamespace and relkind in ('r', 'p') and not relispartition"""
    ).fetchall()
    counts = " union all ".join(f"select '{name}', (select count(*) from _memoir.{name})" for (name,) in tables)
    return dict(db.execute(counts).fetchall())
