"""What a user says in sessions, and what is known of it afterwards."""

from typing import Any

from calls import Db, call, export_rows, persist, table


def talk(db: Db, user: str, *sessions: list[str] | str) -> None:
    """Sessions one after the other: what the user says, each answered, then extracted."""
    for n, said in enumerate(sessions):
        for text in [said] if isinstance(said, str) else said:
            persist(db, user, f"s{n}", text, "I see.")
        call(db, "extract_session", user, f"s{n}")


def changes(db: Db, user: str) -> list[Any]:
    """But for likely ones, which end nothing."""
    return [change for change, kind in table(db, "list_changes", user, columns="change_id, kind") if kind != "likely"]


def memories(db: Db, user: str) -> list[str]:
    """The active ones."""
    return [row["content"] for row in export_rows(db, user, "memory_store") if row["state"] == "active"]


def compile_text(db: Db, user: str, question: str, **named: Any) -> str:
    """What a new session's list shows beside the question."""
    compiled = call(db, "compile_context", user, "asks", question, **named)
    return "\n".join(str(m["content"]) for m in compiled).removesuffix(question)


def spans(db: Db, user: str, kind: str) -> int:
    return sum(len(turns) for turns, k in table(db, "list_changes", user, columns="turns, kind") if k == kind)
