"""Months past retention: compacted, exported or kept, taken out, and every turn accounted for. Clock jumps and month ends included."""

from __future__ import annotations

from datetime import date
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb


def one(db: psycopg.Connection, query: str, *values: object) -> Any:
    return db.execute(query, values).fetchone()[0]


def clock(db: psycopg.Connection, at: str | None) -> None:
    db.execute("select memoir.set_clock(%s)", [at])


def setting(db: psycopg.Connection, **values: Any) -> None:
    for key, value in values.items():
        db.execute("select memoir.set_setting(%s, %s)", [key, Jsonb(value)])


def say(db: psycopg.Connection, user: str, session: str, *texts: str) -> None:
    for text in texts:
        db.execute("select memoir.persist_turn(%s, %s, %s)", [user, session, Jsonb([{"role": "user", "content": text}, {"role": "assistant", "content": "I see."}])])


def archive(db: psycopg.Connection) -> dict[str, int]:
    db.execute("call memoir.run_job('archive')")
    counts, outcome, error = db.execute("select counts, outcome, error from memoir.job_runs order by run_id desc limit 1").fetchone()
    assert outcome == "done", error
    return counts


def accounted(db: psycopg.Connection, user: str) -> tuple[int, int, int]:
    """Turns ever written, still there, archived."""
    return db.execute("""select (select sum(turn_count) from memoir.session_counters where user_id = u.user_id), (select count(*) from memoir.conversation_history where user_id = u.user_id),
        (select coalesce(sum(turns), 0) from memoir.archived_turns where user_id = u.user_id) from memoir.users u where external_id = %s""", [user]).fetchone()


@pytest.fixture(autouse=True)
def afterwards(db: psycopg.Connection) -> Any:
    setting(db, history_days=30)
    yield
    setting(db, archive_destination="", archive_requires="compacted")
    clock(db, None)


def test_a_month_goes_when_its_sessions_have_ended(db: psycopg.Connection, user: str) -> None:
    # Over a month's end: the last second of one and the first of the next, in a leap year.
    clock(db, "2028-02-29T23:59:59Z")
    say(db, user, "s", "The Zebrafish project moves to Lisbon in May.", "The budget is 90000 euros.")
    clock(db, "2028-03-01T00:00:00Z")
    say(db, user, "s", "We start on Monday.")
    known = one(db, "select memoir.remember(%s, 'Zebrafish moves to Lisbon', p_session => 's', p_provenance => 'user_stated', p_source_turns => '{0}')", user)["memory_id"]
    clock(db, "2028-03-30T23:00:00Z")       # not yet thirty days
    setting(db, archive_destination="drop")
    archive(db)                             # empty months of the install
    assert archive(db) == {} and accounted(db, user) == (6, 6, 0)
    clock(db, "2028-03-31T01:00:00Z")       # due, but the session still runs
    assert archive(db) == {"blocked": 1} and accounted(db, user) == (6, 6, 0)
    assert db.execute("select month, turns, uncompacted, sessions_open from memoir.archive_plan() where turns > 0").fetchall() == [(date(2028, 2, 1), 4, 4, 1)]
    db.execute("select memoir.close_session(%s, 's')", [user])
    counts = archive(db)
    assert counts["compacted"] >= 1 and counts["months"] >= 1 and accounted(db, user) == (6, 2, 4)
    assert [(row["turn_index"]) for (row,) in db.execute("select memoir.history(%s, 's')", [user])] == [4, 5]
    # What was drawn from it is there, the summary is found, the turns are not.
    assert one(db, "select state from memoir.memory_store where memory_id = %s", known) == "active"
    kinds = {kind for kind, in db.execute("select kind from memoir.recall(%s, 'Zebrafish Lisbon budget')", [user])}
    assert kinds == {"memory", "summary"}
    assert "90000" in str(one(db, "select memoir.compile_context(%s, 'new', 'What is the Zebrafish budget?')", user))
    assert one(db, "select count(*) from memoir.audit_log where action = 'archive' and (detail ->> 'turns')::integer = 4") == 1
    assert archive(db) == {}
    # A clock set back finds what is left, and writes go on.
    clock(db, "2028-02-10T00:00:00Z")
    say(db, user, "t", "Once more in February.")
    assert accounted(db, user) == (8, 4, 4)


def test_policy_may_drop_what_no_summary_stands_for(db: psycopg.Connection, user: str) -> None:
    clock(db, "2029-05-05T00:00:00Z")
    say(db, user, "s", "Something to lose.")
    clock(db, "2029-09-01T00:00:00Z")
    setting(db, archive_destination="drop", archive_requires="nothing")
    assert archive(db)["months"] >= 1 and accounted(db, user) == (2, 0, 2)
    # The session goes on where it stands.
    say(db, user, "s", "And on we go.")
    messages = one(db, "select memoir.compile_context(%s, 's', 'Well?')", user)
    assert [m["content"] for m in messages][:2] == ["And on we go.", "I see."]


def test_a_kept_month_is_a_table_of_its_own(db: psycopg.Connection, user: str) -> None:
    clock(db, "2030-01-31T23:59:59Z")
    say(db, user, "s", "Keep me.")
    db.execute("select memoir.close_session(%s, 's')", [user])
    clock(db, "2030-12-31T00:00:00Z")
    setting(db, archive_destination="keep")
    assert archive(db)["months"] >= 1 and accounted(db, user) == (2, 0, 2)
    leaf = one(db, "select a.leaf from memoir.archives a join memoir.archived_turns t using (archive_id) join memoir.users u using (user_id) where u.external_id = %s", user)
    assert one(db, f"select count(*) from memoir.archived_{leaf} h join memoir.users u using (user_id) where u.external_id = %s", user) == 2


def test_a_client_exports_before_the_drop(db: psycopg.Connection, user: str) -> None:
    clock(db, "2031-07-07T00:00:00Z")
    say(db, user, "s", *(f"Line {n}" for n in range(5)))
    db.execute("select memoir.close_session(%s, 's')", [user])
    clock(db, "2031-10-10T00:00:00Z")
    setting(db, archive_destination="client")
    archive(db)
    assert accounted(db, user) == (10, 10, 0)
    part = one(db, "select memoir.part_of(%s)", user)
    month, export = db.execute("select month, export from memoir.archive_plan() where part = %s and month > '2031-01-01'", [part]).fetchone()
    assert (month, export) == (date(2031, 7, 1), "ready")
    turns, key = [], None
    while rows := db.execute("select key, turn from memoir.export_month(%s, %s, %s, 3)", [part, month, key]).fetchall():
        turns += [turn for _, turn in rows if turn["user"] == user]
        key = rows[-1][0]
    assert [turn["content"] for turn in turns if turn["role"] == "user"] == [f"Line {n}" for n in range(5)]
    with pytest.raises(psycopg.Error) as refused:
        db.execute("select memoir.confirm_export(%s, %s, 9, 'a file')", [part, month])
    assert refused.value.sqlstate == "PM014"
    db.execute("select memoir.confirm_export(%s, %s, 10, 'a file')", [part, month])
    assert archive(db)["months"] >= 1 and accounted(db, user) == (10, 0, 10)
    assert one(db, "select state || ' ' || destination from memoir.archives where turns = 10") == "dropped a file"


def test_a_reader_in_the_way_only_delays_it(memoir_dsn: str, db: psycopg.Connection, user: str) -> None:
    clock(db, "2032-07-07T00:00:00Z")
    say(db, user, "s", "Wait for me.")
    db.execute("select memoir.close_session(%s, 's')", [user])
    clock(db, "2032-10-10T00:00:00Z")
    setting(db, archive_destination="drop")
    with psycopg.connect(memoir_dsn) as reader:
        reader.execute("select count(*) from memoir.conversation_history")
        counts = archive(db)
        assert counts["held"] >= 1 and accounted(db, user) == (2, 2, 0)
    assert archive(db)["months"] >= 1 and accounted(db, user) == (2, 0, 2)
