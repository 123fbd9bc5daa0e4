"""What is stored is what was sent, and once."""

from __future__ import annotations

from datetime import UTC, datetime

import psycopg
import pytest
from calls import ANSWER, USER, call, history, store
from psycopg.types.json import Jsonb
from refusals import EXCHANGE, IMAGE, as_sent, refused, rows

# Lossless -------------------------------------------------------------------------------------------------------------


def test_history_is_what_was_sent(db: psycopg.Connection, user: str) -> None:
    done = store(
        db,
        user,
        "s",
        EXCHANGE,
        p_metadata={"trace": "t1", "role": "not this", "turn_index": None},
        p_usage={"model": "gpt-4o-2024-08-06", "finish_reason": "stop"},
    )
    stored = history(db, user, "s")
    for number, (message, sent) in enumerate(zip(stored, EXCHANGE, strict=True)):
        assert as_sent(message) == {k: v for k, v in sent.items() if k != "created_at"} | {
            "metadata": {"trace": "t1", "role": "not this", "turn_index": None}
        }
        assert message["turn_index"] == number and message["message_id"] == done["message_ids"][number]
        assert message.get("model") == ("gpt-4o-2024-08-06" if sent["role"] == "assistant" else None)
        assert message["tokens"] >= 0 and message["tokenizer"] == done["tokenizer"]
    assert datetime.fromisoformat(stored[1]["created_at"]) == datetime(2024, 2, 29, 11, 0, 0, 250000, UTC)
    assert sum(message["tokens"] for message in stored) == done["tokens"]
    assert [m["turn_index"] for (m,) in db.execute("select memoir.history(%s, 's', 2, 4)", [user])] == [2, 3, 4]
    # What history gave can be persisted again: its own names are not mistaken for the application's.
    store(db, user, "copy", stored)
    assert [as_sent(m) for m in history(db, user, "copy")] == [as_sent(m) for m in stored]
    assert [m["turn_index"] for m in history(db, user, "copy")] == list(range(len(EXCHANGE)))


def test_times_mean_the_same_everywhere(db: psycopg.Connection, user: str) -> None:
    """Without a zone a time is UTC, whatever the session's zone and date style."""
    want = datetime(2024, 3, 4, 5, 6, tzinfo=UTC)
    given = [
        "2024-03-04T05:06",
        "2024-03-04 05:06:00",
        "2024-03-04T05:06:00Z",
        "2024-03-04T06:06:00.000+01",
        "2024-03-03T20:06:00-09:00",
        want.timestamp(),
    ]
    try:
        for zone, style in (("UTC", "ISO, MDY"), ("Pacific/Auckland", "SQL, DMY"), ("America/New_York", "German")):
            db.execute(f"set timezone = '{zone}'")
            db.execute(f"set datestyle = '{style}'")
            store(db, user, zone, [USER | {"created_at": value} for value in given])
            assert [datetime.fromisoformat(m["created_at"]) for m in history(db, user, zone)] == [want] * len(given)
    finally:
        db.execute("reset timezone")
        db.execute("reset datestyle")


def test_own_recall_is_stripped_and_nothing_else(db: psycopg.Connection, user: str) -> None:
    store(db, user, "old", [USER | {"content": "My parcel was sent to Ulm in March."}, ANSWER])
    compiled = call(db, "compile_context", p_user=user, p_session="s", p_query="Where was my parcel sent in March?")[
        -1
    ]["content"]
    block = compiled.removesuffix("Where was my parcel sent in March?")
    assert block.startswith("<memoir-recall>") and "Ulm" in block
    parts = [{"type": "text", "text": compiled}, IMAGE]
    kept = [
        "see: " + compiled,  # not at the start
        "<memoir-recall>\nmine\n</memoir-recall>\n\nhello",  # not one of ours
        block.removesuffix("\n\n"),  # not ended as ours are
        compiled.replace("</memoir-recall>", ""),
    ]
    store(
        db,
        user,
        "s",
        [
            USER | {"content": compiled},
            USER | {"content": block + compiled},
            USER | {"content": parts},
            *[USER | {"content": text} for text in kept],
            ANSWER | {"content": compiled},
        ],
    )
    query = "Where was my parcel sent in March?"
    assert [m["content"] for m in history(db, user, "s")] == [
        query,
        query,
        [{"type": "text", "text": query}, IMAGE],
        *kept,
        compiled,
    ]


# Idempotency ----------------------------------------------------------------------------------------------------------


def test_a_retry_returns_the_first_result(db: psycopg.Connection, user: str) -> None:
    first = store(db, user, "s", [USER, ANSWER], p_key="k1", p_usage={"prompt_tokens": 5})
    before = rows(db)
    assert store(db, user, "s", [USER, ANSWER], p_key="k1", p_usage={"prompt_tokens": 5}) == first
    for other in (
        {"p_messages": Jsonb([USER])},
        {"p_session": "t"},
        {"p_usage": Jsonb({"prompt_tokens": 6})},
        {"p_actor": "agent"},
        {"p_metadata": Jsonb({"a": 1})},
    ):
        refused(
            db,
            "persist_turn",
            "PM006",
            'key "k1" was used with another request',
            **(
                {
                    "p_user": user,
                    "p_session": "s",
                    "p_messages": Jsonb([USER, ANSWER]),
                    "p_usage": Jsonb({"prompt_tokens": 5}),
                    "p_key": "k1",
                }
                | other
            ),
        )
    refused(
        db,
        "append_messages",
        "PM006",
        "k1",
        p_user=user,
        p_session="s",
        p_messages=Jsonb([USER, ANSWER]),
        p_usage=Jsonb({"prompt_tokens": 5}),
        p_key="k1",
    )
    memory = {"p_user": user, "p_content": "Likes tea.", "p_key": "m1"}
    stored = call(db, "remember", **memory)
    assert call(db, "remember", **memory) == stored and stored["outcome"] == "stored"
    for other in (
        {"p_content": "Likes coffee."},
        {"p_importance": "minor"},
        {"p_tags": ["x"]},
        {"p_sensitivity": "secret"},
        {"p_category": "drinks"},
        {"p_valid_from": "2020-01-01"},
        {"p_slot": "drink"},
        {"p_actor": "agent"},
        {"p_key": "k1"},
    ):
        refused(db, "remember", "PM006", "was used with another request", **(memory | other))
    # A closed session does not make a retry of what it holds an error; another user's key is another key.
    db.execute("select memoir.close_session(%s, 's')", [user])
    assert store(db, user, "s", [USER, ANSWER], p_key="k1", p_usage={"prompt_tokens": 5}) == first
    assert rows(db) == before | {
        "memory_store": before["memory_store"] + 1,
        "memory_states": before["memory_states"] + 1,
        "memory_stats": before["memory_stats"] + 1,
        "search_items": before["search_items"] + 1,
        "search_tail": before["search_tail"] + 1,
        "receipts": before["receipts"] + 1,
        "work_items": before["work_items"] + 1,
    }  # the closed session's summary
    assert store(db, user + "-2", "s", [USER], p_key="k1")["turn_count"] == 1
    assert refusal_leaves_the_key_free(db, user)


def refusal_leaves_the_key_free(db: psycopg.Connection, user: str) -> bool:
    with pytest.raises(psycopg.Error):
        store(db, user, "u", [USER, {"role": "robot"}], p_key="k2")
    return store(db, user, "u", [USER], p_key="k2")["turn_count"] == 1
