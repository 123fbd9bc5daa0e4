"""History is what was sent, once: lossless, with its times, without recall of our own, one result for each key."""

from datetime import UTC, datetime

import psycopg
import pytest
from calls import ANSWER, USER, Db, call, history, persist, remember, store, table
from internals import count_all_rows
from refusals import EXCHANGE, IMAGE, as_sent, check_refusal


def test_history_is_what_was_sent(db: Db, user: str) -> None:
    metadata = {"trace": "t1", "role": "not this", "turn_index": None}
    usage = {"model": "gpt-4o-2024-08-06", "finish_reason": "stop"}
    done = store(db, user, "s", EXCHANGE, p_metadata=metadata, p_usage=usage)
    stored = history(db, user, "s")
    for number, (message, sent) in enumerate(zip(stored, EXCHANGE, strict=True)):
        assert as_sent(message) == {k: v for k, v in sent.items() if k != "created_at"} | {"metadata": metadata}
        assert message["turn_index"] == number and message["message_id"] == done["message_ids"][number]
        assert message.get("model") == ("gpt-4o-2024-08-06" if sent["role"] == "assistant" else None)
        assert message["tokens"] >= 0 and message["tokenizer"] == done["tokenizer"]
    assert datetime.fromisoformat(stored[1]["created_at"]) == datetime(2024, 2, 29, 11, 0, 0, 250000, UTC)
    assert sum(message["tokens"] for message in stored) == done["tokens"]
    assert [m["turn_index"] for (m,) in table(db, "history", user, "s", 2, 4)] == [2, 3, 4]
    # What history gave can be persisted again: its own names are not mistaken for the application's.
    store(db, user, "copy", stored)
    copied = history(db, user, "copy")
    assert [as_sent(m) for m in copied] == [as_sent(m) for m in stored]
    assert [m["turn_index"] for m in copied] == list(range(len(EXCHANGE)))


def test_times_mean_the_same_everywhere(db: Db, user: str) -> None:
    """Without a zone a time is UTC, whatever the session's zone and date style."""
    want = datetime(2024, 3, 4, 5, 6, tzinfo=UTC)
    given = ["2024-03-04T05:06", "2024-03-04 05:06:00", "2024-03-04T06:06:00.000+01", "2024-03-03T20:06:00-09:00"]
    for zone, style in (("UTC", "ISO, MDY"), ("Pacific/Auckland", "SQL, DMY"), ("America/New_York", "German")):
        db.execute(f"set timezone = '{zone}'; set datestyle = '{style}'")
        store(db, user, zone, [USER | {"created_at": at} for at in (*given, want.timestamp())])
        assert {datetime.fromisoformat(m["created_at"]) for m in history(db, user, zone)} == {want}


def test_own_recall_is_stripped(db: Db, user: str) -> None:
    query = "Where was my parcel sent in March?"
    persist(db, user, "old", "My parcel was sent to Ulm in March.", "Noted.")
    compiled = call(db, "compile_context", user, "s", query)[-1]["content"]
    block = compiled.removesuffix(query)
    assert block.startswith("<memoir-recall>") and "Ulm" in block
    kept = [
        "see: " + compiled,  # not at the start
        "<memoir-recall>\nmine\n</memoir-recall>\n\nhello",  # not one of ours
        block.removesuffix("\n\n"),  # not ended as ours are
        compiled.replace("</memoir-recall>", ""),
    ]
    ours = [compiled, block + compiled, [{"type": "text", "text": compiled}, IMAGE]]
    sent = [USER | {"content": content} for content in [*ours, *kept]]
    store(db, user, "s", [*sent, ANSWER | {"content": compiled}])
    stripped = [query, query, [{"type": "text", "text": query}, IMAGE]]
    assert [m["content"] for m in history(db, user, "s")] == [*stripped, *kept, compiled]


def test_a_retry_returns_the_first_result(db: Db, user: str) -> None:
    """The same key with another request is refused. A closed session does not make a retry of what it holds an error."""
    turn = {"user": user, "session": "s", "messages": [USER, ANSWER], "usage": {"prompt_tokens": 5}, "key": "k1"}
    again = {"p_key": "k1", "p_usage": {"prompt_tokens": 5}}
    first = store(db, user, "s", [USER, ANSWER], **again)
    before = count_all_rows(db)
    assert store(db, user, "s", [USER, ANSWER], **again) == first
    says = 'key "k1" was used with another request'
    for other in ({"messages": [USER]}, {"session": "t"}, {"usage": {"prompt_tokens": 6}}, {"actor": "agent"}):
        check_refusal(db, "persist_turn", "PM006", says, **(turn | other))
    check_refusal(db, "append_messages", "PM006", "k1", **turn)
    assert count_all_rows(db) == before
    memory = {"user": user, "content": "Likes tea.", "key": "m1"}
    stored = remember(db, user, "Likes tea.", key="m1")
    assert remember(db, user, "Likes tea.", key="m1") == stored and stored["outcome"] == "stored"
    for other in ({"content": "Likes coffee."}, {"tags": ["x"]}, {"valid_from": "2020-01-01"}, {"key": "k1"}):
        check_refusal(db, "remember", "PM006", "was used with another request", **(memory | other))
    call(db, "close_session", user, "s")
    assert store(db, user, "s", [USER, ANSWER], **again) == first
    assert store(db, user + "-2", "s", [USER], p_key="k1")["turn_count"] == 1  # another user's key
    # A refusal leaves the key free.
    with pytest.raises(psycopg.Error):
        store(db, user, "u", [USER, {"role": "robot"}], p_key="k2")
    assert store(db, user, "u", [USER], p_key="k2")["turn_count"] == 1
