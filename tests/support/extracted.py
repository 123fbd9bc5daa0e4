"""Turns of a session, their extraction, and columns of the memories that came of them."""

from __future__ import annotations

from typing import Any

from calls import Db, call, store

NOTHING = {"turns": 0, "left": 0, "stored": 0, "duplicate": 0, "refused_tombstone": 0, "not_admitted": 0}


def say(db: Db, user: str, *said: str | dict[str, Any], session: str = "s", **named: Any) -> dict[str, Any]:
    """One call with all of it; texts are the user's."""
    sent = [{"role": "user", "content": each} if isinstance(each, str) else each for each in said]
    return store(db, user, session, sent, **named)


def extract(db: Db, user: str, session: str = "s", limit: int = 1000) -> dict[str, Any]:
    return dict(call(db, "extract_session", user, session, limit))


def memories(db: Db, user: str, *columns: str, where: str = "true") -> list[Any]:
    rows = db.execute(
        f"select {', '.join(columns or ('m.content',))} from _memoir.memory_store m join _memoir.users using (user_id) "
        f"where external_id = %s and {where} order by m.recorded_at, m.content",
        [user],
    ).fetchall()
    return rows if len(columns) > 1 else [row[0] for row in rows]


def extract_again(db: Db, user: str) -> dict[str, Any]:
    """The cursor goes back, as if the same turns were new."""
    own = "update _memoir.session_counters c set extracted_through = 0 from _memoir.users u where u.user_id = c.user_id"
    db.execute(f"{own} and external_id = %s", [user])
    return extract(db, user)


def waiting(db: Db, user: str, columns: str = "state") -> list[tuple[Any, ...]]:
    own = "from _memoir.work_items j join _memoir.users using (user_id) where external_id = %s and kind = 'turns'"
    return db.execute(f"select {columns} {own}", [user]).fetchall()
