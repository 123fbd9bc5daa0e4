"""Recall for a list that its application keeps itself, and its messages known again."""

from __future__ import annotations

import psycopg
import pytest
from calls import call, persist
from psycopg.types.json import Jsonb


def test_recall_for_a_list_that_somebody_else_keeps(db: psycopg.Connection, user: str) -> None:
    persist(db, user, "first", "My locker code is 4711.")
    found = call(db, "recall_beside", user, "second", "What is my locker code?")
    assert "4711" in found["text"] and found["items"] and found["compile_id"]
    own = call(db, "recall_beside", user, "first", "What is my locker code?")
    assert own["text"] == ""  # the list shows it
    lost = call(db, "recall_beside", user, "first", "What is my locker code?", shown_from=2**31 - 1)
    assert "4711" in lost["text"]
    # What the list says itself is not said again, however it is broken into lines.
    said = "Earlier:\nmy locker\ncode is 4711. What is my locker code?"
    assert call(db, "recall_beside", user, "second", "What is my locker code?", said=said)["text"] == ""
    assert call(db, "recall_beside", user, "second", "Zebra crossing?")["text"] == ""
    # How well it must fit is a setting.
    db.execute("select memoir.set_user_settings(%s, '{\"beside_floor\": 10}')", [user])
    assert call(db, "recall_beside", user, "second", "What is my locker code?")["text"] == ""


def test_messages_are_known_again(db: psycopg.Connection, user: str) -> None:
    persist(db, user, "s", "One.")
    added = {"tail": 'a "text"\n'}
    assert (
        call(db, "note_messages", user, "s", [{"chain": "a", "turns": 1, "added": added}, {"chain": "b", "turns": 2}])
        == 2
    )
    assert call(db, "note_messages", user, "s", [{"chain": "a", "turns": 1}]) == 0
    known = db.execute("select * from memoir.known_messages(%s, '{a,b,c}')", [user]).fetchall()
    assert sorted(known) == [("a", "s", 1, added), ("b", "s", 2, None)]
    with pytest.raises(psycopg.Error, match="messages must be a list of objects with chain and turns"):
        call(db, "note_messages", user, "s", [{"chain": 1}])
    db.execute("select memoir.erase_session(%s, 's')", [user])
    assert not db.execute("select * from memoir.known_messages(%s, '{a,b}')", [user]).fetchall()


def entry(text: str, key: str, **more: object) -> dict[str, object]:
    return {"message": {"role": "user", "content": text}, "key": key} | more


def test_an_exchange_is_recorded_with_one_call(db: psycopg.Connection, user: str) -> None:
    answer = {"message": {"role": "assistant", "content": "Noted."}, "key": "k2", "usage": {"completion_tokens": 3}}
    entries = [
        entry("The gate code is 4711.", "k1"),
        {"notes": [{"chain": "a"}]},
        entry("Result of a tool.", "k3", actor="tool"),
        answer | {"notes": [{"chain": "b", "added": {"tail": "x"}}]},
    ]
    done = call(db, "record_exchange", user, "s", entries)
    assert done == {"turns": [1, 1, 2, 3], "refused": []}
    known = db.execute("select * from memoir.known_messages(%s, '{a,b}')", [user]).fetchall()
    assert sorted(known) == [("a", "s", 1, None), ("b", "s", 3, {"tail": "x"})]
    # Again, told a little differently, and with something new: what is recorded stays as it is.
    again = call(db, "record_exchange", user, "s", [entry("The gate code is 4712.", "k1"), *entries[1:]])
    assert again["turns"] == [1, 1, 2, 3]
    more = call(db, "record_exchange", user, "s", [entry("And the cellar?", "k4")], 3)
    assert more["turns"] == [4]
    told = [turn["content"] for (turn,) in db.execute("select memoir.history(%s, 's')", [user]).fetchall()]
    assert told == ["The gate code is 4711.", "Result of a tool.", "Noted.", "And the cellar?"]


def test_a_message_that_is_refused_stops_no_other(db: psycopg.Connection, user: str) -> None:
    orphan = {"message": {"role": "tool", "tool_call_id": "none", "content": "x"}, "key": "k2"}
    done = call(db, "record_exchange", user, "s", [entry("One.", "k1"), orphan, entry("Two.", "k3")])
    assert done["turns"] == [1, 1, 2]
    assert [(one["code"], "none" in one["error"]) for one in done["refused"]] == [("PM011", True)]


@pytest.mark.parametrize("entries", [{"a": 1}, Jsonb([1]), [{"notes": 3}], [{"notes": [{"chain": 1}]}]])
def test_entries_of_another_shape_are_named(db: psycopg.Connection, user: str, entries: object) -> None:
    persist(db, user, "s", "One.")
    with pytest.raises(psycopg.Error, match="must be a") as refused:
        call(db, "record_exchange", user, "s", entries)
    assert refused.value.sqlstate == "PM014"


def test_nothing_is_recorded_in_a_closed_session(db: psycopg.Connection, user: str) -> None:
    persist(db, user, "s", "One.")
    db.execute("select memoir.close_session(%s, 's')", [user])
    with pytest.raises(psycopg.Error, match="closed"):
        call(db, "record_exchange", user, "s", [entry("Two.", "k1")])
