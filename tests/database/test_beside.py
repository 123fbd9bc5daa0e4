"""Recall for a list that its application keeps itself, and its messages known again."""

from typing import Any

import psycopg
import pytest
from calls import Db, call, persist, raises, table
from loops import append, read
from psycopg.types.json import Jsonb


def test_recall_for_a_list_that_its_client_keeps(db: Db, user: str) -> None:
    def text(session: str, query: str = "What is my locker code?", **named: Any) -> str:
        return str(call(db, "recall_beside", user, session, query, **named)["text"])

    persist(db, user, "first", "My locker code is 4711.")
    found = call(db, "recall_beside", user, "second", "What is my locker code?")
    assert "4711" in found["text"] and found["items"] and found["compile_id"]
    assert text("first") == "", "the list shows it"
    assert "4711" in text("first", shown_from=2**31 - 1)
    # What the list says itself is not said again, however it is broken into lines.
    assert text("second", said="Earlier:\nmy locker\ncode is 4711. What is my locker code?") == ""
    assert text("second", "Zebra crossing?") == ""
    # How well it must fit is a setting.
    call(db, "set_user_settings", user, {"beside_floor": 10})
    assert text("second") == ""


def find_messages(db: Db, user: str, *chains: str) -> list[tuple[Any, ...]]:
    return sorted(table(db, "known_messages", user, list(chains)))


def test_messages_are_known_again(db: Db, user: str) -> None:
    persist(db, user, "s", "One.")
    added = {"tail": 'a "text"\n'}
    noted = [{"chain": "a", "turns": 1, "added": added}, {"chain": "b", "turns": 2}]
    assert call(db, "note_messages", user, "s", noted) == 2
    assert call(db, "note_messages", user, "s", [{"chain": "a", "turns": 1}]) == 0
    assert find_messages(db, user, "a", "b", "c") == [("a", "s", 1, added), ("b", "s", 2, None)]
    with pytest.raises(psycopg.Error, match="messages must be a list of objects with chain and turns"):
        call(db, "note_messages", user, "s", [{"chain": 1}])
    call(db, "erase_session", user, "s")
    assert find_messages(db, user, "a", "b") == []


def test_what_names_an_object_alone_is_withdrawn_too(db: Db, user: str) -> None:
    persist(db, user, "s", "Where do they moor?")
    append(db, user, read(1, "piers.csv", "\n".join(f"Pier {n} has berth {7 * n}." for n in range(400))))
    [(name,)] = table(db, "list_memories", user, types=["file_context"], columns="left(memory_id::text, 8)")
    added = {"tail": f"[object {name}, turn 2] tool: pier 7, berth 49"}
    call(db, "note_messages", user, "s", [{"chain": "a", "turns": 2, "added": added, "items": [name]}])
    [(_, _, _, known)] = find_messages(db, user, "a")
    assert known["tail"] == added["tail"]
    named = {"session": "s", "source_turns": [2], "actor": "tool"}
    call(db, "forget", user, call(db, "remember", user, "Pier 7 has berth 49.", **named)["memory_id"])
    [(_, _, _, known)] = find_messages(db, user, "a")
    assert known["tail"] == "[withdrawn]"


def entry(text: str, key: str, **more: object) -> dict[str, object]:
    return {"message": {"role": "user", "content": text}, "key": key} | more


def test_exchange_is_recorded_with_one_call(db: Db, user: str) -> None:
    """A message that is refused stops no other. Again, told differently: what is recorded stays as it is."""
    answer = {"message": {"role": "assistant", "content": "Noted."}, "key": "k2", "usage": {"completion_tokens": 3}}
    orphan = {"message": {"role": "tool", "tool_call_id": "none", "content": "x"}, "key": "k5"}
    first, last = entry("The gate code is 4711.", "k1"), answer | {"notes": [{"chain": "b", "added": {"tail": "x"}}]}
    entries = [first, {"notes": [{"chain": "a"}]}, orphan, entry("Result of a tool.", "k3", actor="tool"), last]
    done = call(db, "record_exchange", user, "s", entries)
    assert done["turns"] == [1, 1, 1, 2, 3]
    assert [(one["code"], "none" in one["error"]) for one in done["refused"]] == [("PM011", True)]
    assert find_messages(db, user, "a", "b") == [("a", "s", 1, None), ("b", "s", 3, {"tail": "x"})]
    again = call(db, "record_exchange", user, "s", [entry("The gate code is 4712.", "k1"), *entries[1:]])
    assert again["turns"] == [1, 1, 1, 2, 3]
    assert call(db, "record_exchange", user, "s", [entry("And the cellar?", "k4")], 3)["turns"] == [4]
    told = [turn["content"] for (turn,) in table(db, "history", user, "s")]
    assert told == ["The gate code is 4711.", "Result of a tool.", "Noted.", "And the cellar?"]
    call(db, "close_session", user, "s")
    with pytest.raises(psycopg.Error, match="closed"):
        call(db, "record_exchange", user, "s", [entry("Two.", "k6")])


@pytest.mark.parametrize("entries", [{"a": 1}, Jsonb([1]), [{"notes": 3}], [{"notes": [{"chain": 1}]}]])
def test_entries_of_another_shape_are_named(db: Db, user: str, entries: object) -> None:
    persist(db, user, "s", "One.")
    with raises("PM014", "must be a"):
        call(db, "record_exchange", user, "s", entries)


def test_a_question_asked_before_hides_no_fact(db: Db, user: str) -> None:
    """By words alone: the question has all words of itself, and the fact only those that matter."""
    fact, question = "The staging database listens on port 6543.", "Which port does the staging database listen on?"
    persist(db, user, "s1", fact, "Noted.")
    persist(db, user, "s2", "Our deploy script lives in tools/ship.sh.", "Noted.")
    for n in range(4):
        assert fact in call(db, "recall_beside", user, f"asks {n}", question)["text"], n
        persist(db, user, f"asks {n}", question, "I don't know.")
    assert table(db, "recall", user, question, columns="content")[0] == (fact,)
