"""A message list with everything that may be in one, and the check that a refused call leaves nothing behind."""

import json
from typing import Any

import psycopg
import pytest
from calls import CALL, call
from internals import count_all_rows
from psycopg.types.json import Jsonb

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
ADDED = ("utc_offset", "turn_index", "message_id", "tokens", "tokenizer", "model", "usage", "created_at")
JSON = set("messages query_parts tools usage metadata settings where value request_headers response_headers".split())
"""Arguments that are JSON whatever is given."""


def as_sent(message: dict[str, Any]) -> dict[str, Any]:
    """The message without what history adds, and without its time."""
    return json.loads(json.dumps({key: value for key, value in message.items() if key not in ADDED}))


def refusal(db: psycopg.Connection, function: str, **named: Any) -> psycopg.Error:
    """The error with which memoir.<function> answers."""
    for name, value in named.items():
        if name.removeprefix("p_") in JSON and isinstance(value, (dict, list, str, int, float)):
            named[name] = Jsonb(value)
    with pytest.raises(psycopg.Error) as caught:
        call(db, function, **named)
    return caught.value


def check_refusal(db: psycopg.Connection, function: str, code: str, *fragments: str, **arguments: Any) -> None:
    """The call raises this code, its message has all fragments, and every table has as many rows as before."""
    before = count_all_rows(db)
    error = refusal(db, function, **arguments)
    assert error.sqlstate == code, f"{error.sqlstate}: {error}"
    for fragment in fragments:
        assert fragment in (error.diag.message_primary or ""), error
    assert count_all_rows(db) == before
