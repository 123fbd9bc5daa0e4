"""What tests say to the database, as an application would: functions of the API by name, with arguments as Python has them."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from math import sqrt
from typing import Any

import psycopg
import pytest
from internals import last_run
from pg_memoir import Memoir
from pg_memoir.call import Call
from pg_memoir_server import reading
from psycopg.types.json import Jsonb

Db = psycopg.Connection[Any]


def one(db: Db, query: str, *values: object) -> Any:
    """The first value of the first row."""
    row = db.execute(query, values).fetchone()
    assert row is not None, query
    return row[0]


def _arguments(positional: tuple[Any, ...], named: dict[str, Any]) -> tuple[str, list[Any]]:
    """The text between a call's brackets, and its values: p_ may lack before a name, what must be JSON is made so."""

    def given(value: Any) -> Any:
        is_json = isinstance(value, dict) or isinstance(value, list) and any(isinstance(item, dict) for item in value)
        return Jsonb(value) if is_json else value

    marks, values = ["%s"] * len(positional), [given(value) for value in positional]
    for name, value in named.items():
        is_vector = name.endswith("embedding")
        marks.append(f"p_{name.removeprefix('p_')} => %s{'::real[]' if is_vector else ''}")
        values.append([float(x) for x in value] if is_vector and isinstance(value, (list, tuple)) else given(value))
    return ", ".join(marks), values


def call(db: Db, function: str, *positional: Any, **named: Any) -> Any:
    """memoir.<function>: its value."""
    marks, values = _arguments(positional, named)
    return one(db, f"select memoir.{function}({marks})", *values)


def table(db: Db, function: str, *positional: Any, columns: str = "*", **named: Any) -> list[tuple[Any, ...]]:
    """memoir.<function>: its rows."""
    marks, values = _arguments(positional, named)
    return db.execute(f"select {columns} from memoir.{function}({marks})", values).fetchall()


def ask_client(db: Db, user: str, query: str) -> list[tuple[Any, ...]]:
    """Returns the rows of a query about %(user)s, run by a client, which makes the recall where the server cannot."""
    asked = Call(query, query, {"user": user}, read=list)
    with Memoir(db.info.dsn, max_size=1) as memoir:
        return [tuple(row.values()) for row in memoir.run(asked)]


# Turns ----------------------------------------------------------------------------------------------------------------


USER = {"role": "user", "content": "Where is my parcel?"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "track", "arguments": '{"parcel": 17}'}}
ANSWER = {"role": "assistant", "content": "On its way."}


def messages(*said: str | dict[str, Any]) -> list[dict[str, Any]]:
    """Texts are the user's and the assistant's in turn; a message stays as it is."""
    roles = ("user", "assistant")
    return [{"role": roles[n % 2], "content": text} if isinstance(text, str) else text for n, text in enumerate(said)]


def store(db: Db, user: str, session: str, sent: Any, function: str = "persist_turn", **named: Any) -> dict[str, Any]:
    """Whatever is sent, also what is no list of messages."""
    made = {name: Jsonb(value) if isinstance(value, (dict, list)) else value for name, value in named.items()}
    return dict(call(db, function, user, session, Jsonb(sent), **made))


def persist(db: Db, user: str, session: str, *said: str | dict[str, Any], **named: Any) -> dict[str, Any]:
    """One call with all of it."""
    return store(db, user, session, messages(*said), **named)


def read_turns(db: Db) -> None:
    """What a worker does on a server without PL/Python: looks through all turns for secrets, of which it finds none, and
    reads them."""
    while claimed := db.execute(
        "select work_id, lease_id, pg_catalog.array_agg(item_no) from memoir.claim_unread(10000) group by 1, 2"
    ).fetchall():
        for work, lease, items in claimed:
            db.execute("select memoir.store_secrets(%s, %s, %s, %s)", [work, lease, items, [""] * len(items)])
    while claims := db.execute("select * from memoir.claim_turns()").fetchall():
        ((work, lease, turns),) = claims
        read = reading.read_turns(json.dumps(turns))
        context = one(db, "select memoir.turns_context(%s, %s, %s)", work, lease, Jsonb(read))
        results = reading.read_context(json.dumps(context))
        db.execute("select memoir.store_turns(%s, %s, %s, %s)", [work, lease, Jsonb(read), Jsonb(results)])


def say(db: Db, user: str, session: str, *texts: str, answer: str = "I see.", **named: Any) -> dict[str, Any]:
    """Each text a turn of its own, answered; what the last call returned."""
    done: dict[str, Any] = {}
    for text in texts:
        done = persist(db, user, session, text, answer, **named)
    return done


def history(db: Db, user: str, session: str) -> list[dict[str, Any]]:
    return [message for (message,) in table(db, "history", user, session)]


# Memories -------------------------------------------------------------------------------------------------------------


def remember(db: Db, user: str, content: str, **named: Any) -> dict[str, Any]:
    """All that remember answers."""
    return dict(call(db, "remember", user, content, **named))


def remembered(db: Db, user: str, content: str, **named: Any) -> str:
    """The memory's id."""
    return str(remember(db, user, content, **named)["memory_id"])


def export_rows(db: Db, user: str, kind: str) -> list[dict[str, Any]]:
    """A user's rows of a table, as an export has them."""
    return [line["row"] for (line,) in table(db, "export_user", user) if line.get("kind") == kind]


def edges(db: Db, user: str, memory: str) -> set[tuple[str, str]]:
    """Relation and target of each relation that begins at a memory."""
    rows = export_rows(db, user, "memory_relationships")
    return {(row["relation"], row["target_id"]) for row in rows if row["source_id"] == memory}


BASE = [1.0, 0.0, 0.0, 0.0]


def near(cosine: float) -> list[float]:
    """A unit vector with that cosine to BASE."""
    return [cosine, sqrt(1 - cosine * cosine), 0.0, 0.0]


def active(db: Db, user: str) -> list[str]:
    """What is remembered of a user, and true today."""
    rows = table(db, "list_memories", user, limit=1000, columns="content, valid_to is null or valid_to > memoir.now()")
    return sorted(content for content, is_true in rows if is_true)


def recalled(db: Db, user: str, query: str, **named: Any) -> list[str]:
    """Texts, best first."""
    return [content for (content,) in table(db, "recall", user, query, columns="content", **named)]


# The store as a whole -------------------------------------------------------------------------------------------------


def set_clock(db: Db, at: datetime | str | None) -> None:
    db.execute("select memoir.set_clock(%s)", [at])


def set_settings(db: Db, **values: Any) -> None:
    for key, value in values.items():
        db.execute("select memoir.set_setting(%s, %s)", [key, Jsonb(value)])


def use_vectors(db: Db, dimension: int = 4, name: str = "little", **named: Any) -> None:
    """From now on vectors have that many dimensions and are given by the test."""
    call(db, "register_embedding_model", name, "none", dimension, **named)
    call(db, "switch_embedding_model", name)


def embed_waiting(
    db: Db, vector: Sequence[float] | Callable[[str], Sequence[float]], model: str | None = None, limit: int = 1000
) -> list[str]:
    """Claims texts once and stores a vector for each, always the same or one made of the text; the texts."""
    rows = table(db, "claim_embeddings", limit, model, columns="user_id, item_no, text")
    texts = [text for _, _, text in rows]
    numbers = [float(x) for text in texts for x in (vector(text) if callable(vector) else vector)]
    stored = "select memoir.store_embeddings(%s::uuid[], %s::int[], %s::real[], %s)"
    db.execute(stored, [[row[0] for row in rows], [row[1] for row in rows], numbers, model])
    return texts


def run_job(db: Db, job: str, seconds: int | None = None) -> Counter[str]:
    """Runs it to its end; what it counted."""
    db.execute("call memoir.run_job(%s, %s)", [job, seconds])
    outcome, counts, error = last_run(db, job)
    assert outcome == "done", (job, outcome, error)
    return Counter(counts)


@contextmanager
def raises(code: str, match: str | None = None) -> Iterator[None]:
    """That SQLSTATE, and no other; its text has what matches."""
    with pytest.raises(psycopg.Error, match=match) as caught:
        yield
    assert caught.value.sqlstate == code, caught.value
