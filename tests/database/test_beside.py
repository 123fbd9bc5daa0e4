"""Recall for a list that its application keeps itself, and its messages known again."""

from __future__ import annotations

import psycopg
import pytest
from calls import call, persist


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
