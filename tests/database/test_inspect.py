"""What a person looks at: who there is, a user in numbers, a session's window over time, one compile taken apart."""

from __future__ import annotations

import uuid

import psycopg
import pytest
from calls import call, persist, remembered, table
from servers import connect, roles, user_of


def test_users_by_name(db: psycopg.Connection, user: str) -> None:
    for name in (f"{user}-b", f"{user}-a"):
        persist(db, name, "s", "Hello there", "Hi.")
    rows = table(db, "list_users", after_user=user, columns="user_name, sessions, memories")
    assert rows[:2] == [(f"{user}-a", 1, 0), (f"{user}-b", 1, 0)]
    assert len(table(db, "list_users", limit=1)) == 1


def test_a_tenant_sees_his_own_users(db: psycopg.Connection, memoir_dsn: str, user: str) -> None:
    persist(db, user, "s", "Hello there", "Hi.")
    persist(db, f"{user}-other", "s", "Hello there", "Hi.")
    with roles(memoir_dsn, one="login in role memoir_tenant", bound="login in role memoir_tenant") as names:
        call(db, "bind_login", names["one"], [user])
        call(db, "bind_login", names["bound"], [user], projects=["red"])
        for name, seen in ((names["one"], [(user,)]), (names["bound"], [])):
            with connect(user_of(memoir_dsn, name)) as login:
                assert table(login, "list_users", columns="user_name") == seen
            call(db, "unbind_login", name)


def test_a_user_in_numbers(db: psycopg.Connection, user: str) -> None:
    persist(db, user, "s", "My dentist is Dr. Okafor", "Noted.")
    old = remembered(db, user, "The dentist is Dr. Okafor", actor="person")
    call(db, "correct", user, old, "The dentist is Dr. Lind")
    stats = call(db, "memory_stats", user)
    assert (stats["sessions"], stats["open_sessions"], stats["turns"], stats["memories"]) == (1, 1, 2, 1)
    assert stats["states"] == {"active": 1, "superseded": 1} and stats["contradictions"] == 0
    assert call(db, "memory_stats", f"{user}-nobody")["memories"] == 0


@pytest.mark.parametrize("flushed", [False, True])
def test_a_window_over_time(db: psycopg.Connection, user: str, flushed: bool) -> None:
    persist(db, user, "old", "The ferry to Runmarö leaves at 8:15.", "Noted.")
    for number in range(12):
        persist(db, user, "s", f"Shelf {number} holds the glazes. " + "They are fired at cone six. " * 20, "Right.")
    sizes = [call(db, "context", user, "s", "When does the ferry leave?", budget=budget) for budget in (9000, 1200)]
    if flushed:
        db.execute("call memoir.flush_statistics()")
    small, large = table(
        db, "list_compiles", user, "s",
        columns="compile_id::text, tokens, budget, system_tokens, tools_tokens, turn_tokens, recall_tokens, moved, first_turn",
    )  # fmt: skip
    assert [large[0], small[0]] == [size["compile_id"] for size in sizes]
    assert [large[1], small[1]] == [size["tokens"] for size in sizes]
    assert (small[7], large[7]) == (True, False) and small[8] > large[8] == 0
    for row in (small, large):
        parts = row[3] + row[4] + sum(row[5]) + row[6]
        assert len(row[5]) == 4 and 0 < row[1] - parts < 40, "what remains is the newest message"
    with pytest.raises(psycopg.Error, match="unknown session"):
        table(db, "list_compiles", user, "elsewhere")


def test_a_compile_taken_apart(db: psycopg.Connection, user: str) -> None:
    persist(db, user, "old", "The ferry to Runmarö leaves at 8:15.", "Noted.")
    door = remembered(db, user, "The cellar door of the ferry house opens with 7719")
    made = call(db, "context", user, "new", "When does the ferry to Runmarö leave?")
    rows = table(
        db,
        "explain_compile",
        user,
        made["compile_id"],
        columns="id::text, kind, position, fidelity, reason, line, score",
    )
    assert [row[0] for row in rows if row[2]] == made["items"]
    assert any("8:15" in row[5] and row[1] == "turn" for row in rows)
    assert all((row[2] is None) == (row[4] is not None) for row in rows), "each is shown, or there is a reason"
    call(db, "forget", user, door)
    gone = table(db, "explain_compile", user, made["compile_id"], columns="kind, line")
    assert not any(line and "7719" in line for _, line in gone)
    call(db, "forget_about", user, "the ferry to Runmarö")
    gone = table(db, "explain_compile", user, made["compile_id"], columns="kind, line")
    assert not any(line and "8:15" in line for _, line in gone)
    with pytest.raises(psycopg.Error, match="no compile"):
        table(db, "explain_compile", user, uuid.uuid4())
