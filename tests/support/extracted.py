"""Turns of a session, their extraction, and columns of the memories that came of them."""

from typing import Any

from calls import Db, call, store
from internals import own_rows, read_again

NOTHING = {"turns": 0, "left": 0, "stored": 0, "duplicate": 0, "refused_tombstone": 0, "not_admitted": 0}


def say(db: Db, user: str, *said: str | dict[str, Any], session: str = "s", **named: Any) -> dict[str, Any]:
    """One call with all of it; texts are the user's."""
    sent = [{"role": "user", "content": each} if isinstance(each, str) else each for each in said]
    return store(db, user, session, sent, **named)


def extract(db: Db, user: str, session: str = "s", limit: int = 1000) -> dict[str, Any]:
    return dict(call(db, "extract_session", user, session, limit))


def memories(db: Db, user: str, *columns: str, where: str = "true") -> list[Any]:
    wanted = ", ".join(columns or ("content",))
    rows = own_rows(db, user, "memory_store", wanted, f"{where} order by recorded_at, content")
    return rows if len(columns) > 1 else [row[0] for row in rows]


def extract_again(db: Db, user: str) -> dict[str, Any]:
    """The cursor goes back, as if the same turns were new."""
    read_again(db, user)
    return extract(db, user)


def waiting(db: Db, user: str, columns: str = "state") -> list[tuple[Any, ...]]:
    return own_rows(db, user, "work_items", columns, "kind = 'turns'")
