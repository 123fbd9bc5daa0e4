"""Partitions: made ahead, made on demand, made by several at once; the same for every user, whatever the modulus."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import psycopg
import pytest
from calls import set_clock
from catalog import describe, differences
from psycopg.types.json import Jsonb
from routines import MESSAGES, all_routines, values_for
from servers import add_python, apply, complete, connect, database, environment_of, fresh_server

LEAVES = """
    select c.relname, c.relpersistence::text, t.table_name::text, t.by_month, t.unlogged, c.reloptions
    from _memoir.partitioned_tables t, pg_partition_tree('_memoir.' || t.table_name) p join pg_class c on c.oid = p.relid where p.isleaf"""


@pytest.fixture(scope="module")
def memoir_dsn(server_dsn: str) -> Iterator[str]:
    with database(server_dsn) as dsn:
        complete(dsn, 2)
        yield dsn


def persist(db: psycopg.Connection, user: str, session: str = "s", **options: object) -> dict:
    extra = "".join(f", {key} => %({key})s" for key in options)
    return db.execute(
        f"select memoir.persist_turn(%(user)s, %(session)s, %(messages)s{extra})",
        {"user": user, "session": session, "messages": Jsonb(MESSAGES), **options},
    ).fetchone()[0]


def months(db: psycopg.Connection, table: str = "conversation_history") -> set[str]:
    return {
        name.rpartition("_y")[2]
        for (name,) in db.execute(
            "select relid::regclass::text from pg_partition_tree(%s::regclass) where isleaf", [f"_memoir.{table}"]
        )
    }


def said(db: psycopg.Connection, *users: str, since: str = "1900-01-01") -> int:
    """How many turns these users have."""
    return db.execute(
        "select count(*) from _memoir.conversation_history h join _memoir.users u using (user_id) where u.external_id = any (%s) and h.recorded_at >= %s",
        [list(users), since],
    ).fetchone()[0]


# All tests share a database, each has years of its own.

# part_of --------------------------------------------------------------------------------------------------------------


def test_part_of_is_the_remainder(server_dsn: str) -> None:
    with database(server_dsn) as empty:
        assert apply(empty) == ""
        with connect(empty) as db:
            db.execute("create table public.probe (user_id uuid) partition by hash (user_id)")
            db.execute("set search_path = memoir, _memoir, memoir_extensions")
            for modulus in (1, 2, 64, 4096):
                db.execute(
                    "update _memoir.installation set modulus = %s", [modulus]
                )  # before there are partitions, it may
                parts = db.execute(
                    """
                    with parts as (
                      select u, memoir.part_of(u) as part, _memoir.user_id('default', u) as id from (
                        select 'user-' || n from generate_series(1, 300) n
                        union all values ('6ba7b811-9dad-11d1-80b4-00c04fd430c8'), ('ж'), (repeat('x', 500)), (' ')) x(u))
                    select u, part, satisfies_hash_partition('public.probe'::regclass, %s, part, id) from parts""",
                    [modulus],
                ).fetchall()
                assert len(parts) == 304
                assert [row for row in parts if not row[2] or not 0 <= row[1] < modulus] == []
                assert len({part for _, part, _ in parts}) > min(modulus, 200) * 0.7


def test_part_of_is_where_rows_are(db: psycopg.Connection) -> None:
    for n in range(20):
        persist(db, f"user-{n}")
    wrong = db.execute("""
        select u.external_id from _memoir.users u join pg_class c on c.oid = u.tableoid where c.relname <> 'users_p' || memoir.part_of(u.external_id)
        union all select u.external_id from _memoir.users u join _memoir.conversation_history h using (user_id) join pg_class c on c.oid = h.tableoid
        where not starts_with(c.relname, 'conversation_history_p' || memoir.part_of(u.external_id) || '_y')""").fetchall()
    assert wrong == []
    assert {part for (part,) in db.execute("select memoir.part_of(external_id) from _memoir.users")} == {0, 1}


# ensure_partitions ----------------------------------------------------------------------------------------------------


def test_ensure_partitions_is_idempotent(db: psycopg.Connection) -> None:
    set_clock(db, "2047-11-30T23:59:59Z")
    db.execute("call memoir.ensure_partitions(3)")
    assert {m for m in months(db) if "2047" <= m < "2049"} == {"2047m11", "2047m12", "2048m01", "2048m02"}
    assert complete_leaves(db) == []
    before = describe(db)
    db.execute("call memoir.ensure_partitions(3)")
    db.execute("call memoir.ensure_partitions()")  # two months ahead, by the setting
    assert not differences(before, describe(db))


def test_leaves_stay_out_of_pg_stat_statements(private_dsn: str) -> None:
    """Even where it counts nested statements; and a caller's own DDL is still counted."""
    seen = """
        select count(*), count(*) filter (where query like '%y2061m%') from public.pg_stat_statements
        where dbid = (select oid from pg_database where datname = current_database())"""
    settings = {"shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.track": "all"}
    with fresh_server(environment_of(private_dsn), **settings) as server, database(server) as dsn:
        complete(dsn, 2)
        with connect(dsn) as db:
            db.execute("create extension pg_stat_statements schema public")
            counts = []
            for month in ("03", "04"):
                set_clock(db, f"2061-{month}-02T00:00:00Z")
                db.execute("call memoir.ensure_partitions(0)")
                counts.append(db.execute(seen).fetchone())
            (first, _), (second, named) = counts
            assert months(db) >= {"2061m03", "2061m04"}
            assert named == 0 and second - first <= 2
            with db.transaction():
                set_clock(db, "2061-05-02T00:00:00Z")
                persist(db, "counted")
                db.execute("create temporary table own_ddl () on commit drop")
            own = "select count(*) from public.pg_stat_statements where query like 'create temporary table own_ddl%'"
            assert db.execute(own).fetchone() == (1,)


@pytest.mark.parametrize(("zone", "year"), [("America/New_York", 2143), ("UTC", 2153), ("Asia/Tokyo", 2163)])
def test_no_month_is_skipped_at_a_months_end(db: psycopg.Connection, zone: str, year: int) -> None:
    db.execute("select set_config('timezone', %s, false)", [zone])
    for at, wanted in (
        (f"{year}-01-31T02:00:00Z", ("m01", "m02", "m03")),
        (f"{year + 1}-02-01T03:00:00Z", ("m02", "m03", "m04")),
    ):
        set_clock(db, at)
        db.execute("call memoir.ensure_partitions(2)")
        assert {m for m in months(db) if m.startswith(at[:4])} == {at[:4] + month for month in wanted}


def test_months_ahead_are_checked(db: psycopg.Connection) -> None:
    for ahead in (-1, 121, 2**31 - 1):
        with pytest.raises(psycopg.Error, match=f"months_ahead must be from 0 to 120, not {ahead}") as refused:
            db.execute("call memoir.ensure_partitions(%s)", [ahead])
        assert refused.value.sqlstate == "PM014"


def test_ensure_partitions_twice_at_once(memoir_dsn: str) -> None:
    with connect(memoir_dsn) as one, connect(memoir_dsn) as two:
        set_clock(one, "2045-06-15T00:00:00Z")
        with ThreadPoolExecutor() as pool:
            for done in [pool.submit(db.execute, "call memoir.ensure_partitions(2)") for db in (one, two)]:
                done.result()
        assert {m for m in months(one) if m.startswith("2045")} == {"2045m06", "2045m07", "2045m08"}
        assert complete_leaves(one) == []


def test_ensure_partitions_beside_readers_and_writers(memoir_dsn: str, db: psycopg.Connection, user: str) -> None:
    """Neither waits for an open transaction nor makes others wait behind it."""
    with psycopg.connect(memoir_dsn) as reader, psycopg.connect(memoir_dsn) as writer:
        set_clock(db, "2046-05-15T00:00:00Z")
        persist(db, user)
        reader.execute("begin isolation level repeatable read")
        assert said(reader, user) == 2
        reader.execute("select memoir.compile_context(%s, 'new', 'cat?')", [user])
        persist(writer, user)
        set_clock(db, "2046-06-15T00:00:00Z")
        db.execute("set statement_timeout = '20s'")
        db.execute("call memoir.ensure_partitions(1)")
        assert months(db) >= {"2046m06", "2046m07"}
        assert said(reader, user) == 2
        persist(writer, user)
        writer.commit()
        reader.commit()
        assert said(db, user) == 6


def test_ensure_partitions_gives_way(memoir_dsn: str, db: psycopg.Connection, user: str) -> None:
    """Whoever holds the parent itself (a manual ANALYZE, say) is waited for in short tries; writers don't queue behind us."""
    with connect(memoir_dsn) as caller, psycopg.connect(memoir_dsn) as holder, connect(memoir_dsn) as writer:
        set_clock(db, "2048-05-15T00:00:00Z")
        persist(db, user)
        set_clock(db, "2048-06-15T00:00:00Z")
        holder.execute("lock table only _memoir.conversation_history_p0 in share update exclusive mode")
        call = threading.Thread(target=caller.execute, args=["call memoir.ensure_partitions(0)"])
        call.start()
        wait_until_somebody_waits(db)
        wait_until(
            db, "exists (select from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database())"
        )  # it has let go
        set_clock(db, "2048-05-15T00:00:00Z")
        writer.execute("set lock_timeout = '1s'")
        persist(writer, user)
        holder.rollback()
        call.join(timeout=30)
        assert not call.is_alive()
        assert "2048m06" in months(db)


def wait_until(db: psycopg.Connection, condition: str) -> None:
    deadline = time.monotonic() + 20
    while not db.execute(f"select {condition}").fetchone()[0]:
        assert time.monotonic() < deadline, f"it did not come to pass: {condition}"
        time.sleep(0.02)


def wait_until_somebody_waits(db: psycopg.Connection) -> None:
    wait_until(
        db,
        "exists (select from pg_locks where not granted and database = (select oid from pg_database where datname = current_database()))",
    )


# Writes into months nobody prepared -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "at",
    [
        "2051-01-31T23:59:59.999999Z",
        "2051-02-28T23:59:59Z",
        "2052-02-29T12:00:00Z",
        "2053-12-31T23:59:59Z",
        "2054-01-01T00:00:00Z",
        "1970-01-01T00:00:00Z",
        "2999-12-01T00:00:00Z",
    ],
)
def test_a_write_makes_its_month(db: psycopg.Connection, user: str, at: str) -> None:
    month = f"{at[:4]}m{at[5:7]}"
    assert month not in months(db)
    set_clock(db, at)
    persist(db, user)
    db.execute("select memoir.capture_call(%s, 's', '\\x00')", [user])
    db.execute("select memoir.remember(%s, 'A fact')", [user])
    assert "Ximena" in str(
        db.execute("select memoir.compile_context(%s, 'new', 'What is my cat called?')", [user]).fetchone()
    )
    db.execute("call memoir.flush_statistics()")
    for table in ("conversation_history", "api_calls", "compile_ledger"):
        assert month in months(db, table)
        assert db.execute(
            f"select count(*) > 0, min(to_char(recorded_at at time zone 'UTC', 'YYYY\"m\"MM')) from _memoir.{table} "
            "where user_id = (select user_id from _memoir.users where external_id = %s)",
            [user],
        ).fetchone() == (True, month)


@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_two_writers_make_one_month(memoir_dsn: str, db: psycopg.Connection, ends: str) -> None:
    """The second waits for the first, and makes the month itself should the first fail."""
    at = {"commit": "2055-01-01T00:00:00Z", "rollback": "2055-02-01T00:00:00Z"}[ends]
    [first, second] = [
        f"{ends}-{n}" for n in range(40) if db.execute("select memoir.part_of(%s)", [f"{ends}-{n}"]).fetchone() == (0,)
    ][:2]
    # In this order, so that a failure ends the first writer first, for which the other threads wait.
    with ThreadPoolExecutor() as pool, psycopg.connect(memoir_dsn) as two, psycopg.connect(memoir_dsn) as one:
        set_clock(db, at)
        persist(one, first)
        waiting = pool.submit(persist, two, second)
        wait_until_somebody_waits(db)
        getattr(one, ends)()
        waiting.result(timeout=20)
        two.commit()
        assert said(db, first, second, since=at) == (4 if ends == "commit" else 2)


@pytest.mark.acceptance
def test_many_writers_at_the_turn_of_a_month(memoir_dsn: str, db: psycopg.Connection) -> None:
    """Users of both parts, old and new, while ensure_partitions runs: no failure, no deadlock, nothing lost."""
    users = [f"many-{n}" for n in range(8)]

    def write(user: str) -> int:
        with connect(memoir_dsn) as own:
            return persist(own, user, "s")["turn_count"] + persist(own, user, "t")["turn_count"]

    set_clock(db, "2056-06-30T00:00:00Z")
    for user in users[:4]:
        persist(db, user)
    set_clock(db, "2056-07-01T00:00:00Z")
    with connect(memoir_dsn) as other, ThreadPoolExecutor(9) as pool:
        ensuring = pool.submit(other.execute, "call memoir.ensure_partitions(1)")
        turns = list(pool.map(write, users))
        ensuring.result()
    assert turns == [6] * 4 + [4] * 4
    assert complete_leaves(db) == []


@pytest.mark.acceptance
def test_a_table_added_by_an_upgrade_gets_its_leaves(server_dsn: str) -> None:
    """Between the upgrade and ensure_partitions, and in months that are prepared for all other tables, writes go on."""
    with database(server_dsn) as dsn, connect(dsn) as db:
        complete(dsn)
        persist(db, "alice")
        db.execute("set role memoir_owner")
        db.execute(
            "create table _memoir.added (user_id uuid, recorded_at timestamptz, primary key (user_id, recorded_at)) partition by hash (user_id)"
        )
        db.execute("insert into _memoir.partitioned_tables values ('added', true)")
        db.execute("reset role")
        persist(db, "alice")
        assert len(months(db, "added")) == 1


# The clock ------------------------------------------------------------------------------------------------------------


def test_recorded_at_never_goes_back_in_a_session(db: psycopg.Connection, user: str) -> None:
    times = [
        "2027-03-31T23:00:00Z",
        "2027-04-01T00:30:00Z",
        "2027-02-15T00:00:00Z",
        "2026-12-31T00:00:00Z",
        "2028-01-01T00:00:00Z",
    ]
    for at in times:
        set_clock(db, at)
        persist(db, user, "s")
    set_clock(db, times[0])
    persist(db, user, "later")  # another session has its own time
    rows = db.execute(
        """select s.external_id, h.recorded_at from _memoir.conversation_history h join _memoir.sessions s using (user_id, session_id)
                         join _memoir.users u using (user_id) where u.external_id = %s order by 1 desc, turn_index""",
        [user],
    ).fetchall()
    written = [at for session, at in rows if session == "s"]
    assert written == sorted(written) and len(written) == 10
    april, new_year = datetime(2027, 4, 1, 0, 30, tzinfo=UTC), datetime(2028, 1, 1, tzinfo=UTC)
    assert written[2:] == [april] * 6 + [new_year] * 2
    assert rows[-1] == ("later", datetime(2027, 3, 31, 23, tzinfo=UTC))
    set_clock(db, "2020-01-01T00:00:00Z")  # all of it can be read at any time, and reading makes no month
    assert len(db.execute("select * from memoir.history(%s, 's')", [user]).fetchall()) == 10
    assert len(db.execute("select memoir.compile_context(%s, 's', 'cat?')", [user]).fetchone()[0]) == 11
    assert "2020m01" not in months(db)


def test_absurd_dates_are_refused(db: psycopg.Connection, user: str) -> None:
    before = months(db)
    for at, shown in (
        ("1492-10-12T00:00:00Z", "1492-10-12"),
        ("9999-12-31T00:00:00Z", "9999-12-31"),
        ("infinity", "infinity"),
        ("-infinity", "-infinity"),
        ("not a time", "not a time"),
        ("2026-13-01T00:00:00Z", "2026-13-01"),
        ("0001-01-01 00:00:00 BC", "BC"),
        (1e18, "1000000000000000000"),
        (-1e18, "-1000"),
        (1e300, "10000"),
        (True, "true"),
        ({}, "{}"),
        ([], "[]"),
        ("294277-01-01T00:00:00Z", "294277"),
        ("", '""'),
        ("epoch" * 9, "epoch"),
    ):
        message = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "created_at": at}]
        with pytest.raises(psycopg.Error) as refused:
            db.execute("select memoir.persist_turn(%s, 's', %s)", [user, Jsonb(message)])
        assert refused.value.sqlstate == "PM010", at
        assert (
            "messages[1].created_at" in refused.value.diag.message_primary
            and shown in refused.value.diag.message_primary
        )
    assert db.execute("select count(*) from _memoir.users where external_id = %s", [user]).fetchone() == (0,)
    assert months(db) == before


def test_old_dates_are_kept_and_make_no_partition(db: psycopg.Connection, user: str) -> None:
    set_clock(db, None)
    before = months(db)
    persisted = db.execute(
        "select memoir.persist_turn(%s, 's', %s)",
        [user, Jsonb([{**m, "created_at": "1998-05-04T03:02:01+02:00"} for m in MESSAGES])],
    ).fetchone()[0]
    assert db.execute(
        "select distinct created_at from _memoir.conversation_history where message_id = any (%s::uuid[])",
        [persisted["message_ids"]],
    ).fetchall() == [(datetime(1998, 5, 4, 1, 2, 1, tzinfo=UTC),)]
    assert months(db) == before


def test_the_clock_takes_a_point_in_time(db: psycopg.Connection, user: str) -> None:
    """Anything else would break every call after it, or mean another time in every session."""
    for at in (
        '"infinity"',
        '"now"',
        '"2026-01-01"',
        '"2026-01-01T00:00:00"',
        '"1969-12-31T00:00:00Z"',
        '"3001-01-01T00:00:00Z"',
        '"2026-02-30T00:00:00Z"',
        "17",
        "true",
    ):
        with pytest.raises(psycopg.Error, match="setting clock can't be") as refused:
            db.execute("select memoir.set_setting('clock', %s)", [at])
        assert refused.value.sqlstate == "PM015"
    persist(db, user)


# Leaves ---------------------------------------------------------------------------------------------------------------


def complete_leaves(db: psycopg.Connection) -> list:
    """Leaves that lack an index or a trigger of their parent, or differ from it in columns, defaults or constraints."""
    return db.execute("""
        with leaves as (select c.oid as leaf, ('_memoir.' || t.table_name)::regclass as root
          from _memoir.partitioned_tables t, pg_partition_tree('_memoir.' || t.table_name) p join pg_class c on c.oid = p.relid where p.isleaf),
        indexes as (select i.indrelid, pg_get_indexdef(i.indexrelid) as full_text, regexp_replace(pg_get_indexdef(i.indexrelid), '^.* USING ', '') as text,
            indisunique, indisvalid from pg_index i),
        triggers as (select tgrelid, tgname, tgtype, tgfoid, tgenabled from pg_trigger where not tgisinternal),
        columns as (select attrelid, attname, atttypid, attnotnull, attstorage, pg_get_expr(adbin, adrelid) as initial
          from pg_attribute left join pg_attrdef on adrelid = attrelid and adnum = attnum where attnum > 0 and not attisdropped),
        checks as (select conrelid, conname, pg_get_constraintdef(oid) as text from pg_constraint where contype = 'c')
        select leaf::regclass::text, 'index ' || i.text from leaves join indexes i on i.indrelid = root
        where not exists (select from indexes x where x.indrelid = leaf and x.text = i.text and x.indisunique = i.indisunique and x.indisvalid)
        union all select leaf::regclass::text, 'trigger ' || t.tgname from leaves join triggers t on t.tgrelid = root
        where not exists (select from triggers x where x.tgrelid = leaf and (x.tgname, x.tgtype, x.tgfoid, x.tgenabled) = (t.tgname, t.tgtype, t.tgfoid, t.tgenabled))
        union all select leaf::regclass::text, 'column ' || c.attname from leaves join columns c on c.attrelid = root
        where not exists (select from columns x where x.attrelid = leaf and x.attname = c.attname and x.atttypid = c.atttypid and x.attnotnull = c.attnotnull
          and x.attstorage = c.attstorage and x.initial is not distinct from c.initial)
        union all select coalesce(r.leaf, l.leaf)::regclass::text, 'check ' || coalesce(r.text, l.text)
        from (select leaf, text from leaves join checks on conrelid = root) r full join (select leaf, text from leaves join checks on conrelid = leaf) l using (leaf, text)
        where r.leaf is null or l.leaf is null""").fetchall()


def test_leaves_are_as_their_parents(db: psycopg.Connection, user: str) -> None:
    set_clock(db, "2057-01-01T00:00:00Z")
    persist(db, user)
    leaves = db.execute(LEAVES).fetchall()
    assert len(leaves) > 80 and any("2057m01" in leaf[0] for leaf in leaves)
    assert [name for name, persistence, _, _, unlogged, _ in leaves if (persistence == "u") != unlogged] == []
    assert {table for _, persistence, table, _, _, _ in leaves if persistence == "u"} == {
        "memory_store_working",
        "kept_recalls",
        "query_answers",
    }
    unlogged = {
        name
        for (name,) in db.execute(
            "select relname from pg_class where relnamespace = '_memoir'::regnamespace and relpersistence = 'u' and relkind = 'r' and not relispartition"
        )
    }
    assert unlogged == {"compile_buffer"}
    assert complete_leaves(db) == []
    tuned = dict(
        db.execute("select table_name::text, options from _memoir.partitioned_tables where options <> ''").fetchall()
    )
    assert {
        (table, ", ".join(option.replace("=", " = ") for option in options or []))
        for _, _, table, _, _, options in leaves
    } == {(table, tuned.get(table, "")) for _, _, table, _, _, _ in leaves}
    # One modulus for all; every partitioned table is known and has no default partition, which would swallow a month.
    assert db.execute("""select count(*) from pg_class c where relnamespace = '_memoir'::regnamespace and relkind = 'p' and not relispartition
                         and relname not in (select table_name from _memoir.partitioned_tables)""").fetchone() == (0,)
    assert db.execute("select count(*) from pg_partitioned_table where partdefid <> 0").fetchone() == (0,)
    assert db.execute("""select count(*) from _memoir.partitioned_tables t, lateral (select count(*) as n from pg_inherits where inhparent = ('_memoir.' || table_name)::regclass) x
                         where x.n <> 2""").fetchone() == (0,)
    assert (
        db.execute("""select t.table_name from _memoir.partitioned_tables t where not exists (select from pg_index i join pg_attribute a on a.attrelid = i.indrelid
                         and a.attnum = i.indkey[0] where i.indrelid = ('_memoir.' || table_name)::regclass and i.indisprimary and a.attname = 'user_id')""").fetchall()
        == []
    )


# Locks ----------------------------------------------------------------------------------------------------------------

LOCKED = """select c.relname from pg_locks l join pg_class c on c.oid = l.relation where l.pid = pg_backend_pid() and l.locktype = 'relation' and l.relation >= 16384"""


@pytest.fixture(scope="module")
def parted(server_dsn: str) -> Iterator[str]:
    """Eight parts, and a year of months beside the one that is written to."""
    with database(server_dsn) as dsn:
        assert apply(dsn, 8) == ""
        add_python(dsn)
        with connect(dsn) as db:
            set_clock(db, "2026-05-05T00:00:00Z")
            db.execute("call memoir.ensure_partitions(0)")
            part = db.execute("select memoir.part_of('alice')").fetchone()[0]
            for month in range(1, 13):
                for (table,) in db.execute(
                    "select table_name from _memoir.partitioned_tables where by_month"
                ).fetchall():
                    db.execute("select _memoir.make_leaf(%s, %s, %s)", [table, part, f"2025-{month:02}-01"])
        yield dsn


@pytest.mark.acceptance
def test_a_call_locks_its_users_parts_and_months_only(parted: str) -> None:
    """Every function that takes a user, in a backend that has planned nothing before, and in one where plans may have become generic."""
    reached: dict[str, set[str]] = {}
    with connect(parted) as db:
        part = db.execute("select memoir.part_of('alice')").fetchone()[0]
        # Without a ledger nothing can be learnt.
        called = [
            routine
            for routine in all_routines(db).values()
            if routine.roles and "p_user" in routine.arguments and routine.name != "learn_weights"
        ]
        assert len(called) > 15
        for routine in called:
            with psycopg.connect(parted) as backend:
                for call in range(8):
                    values = values_for(routine, db, "alice")
                    if "p_embedding" in routine.arguments:
                        values["p_embedding"] = [0.1] * 384
                    routine.call(backend, values)
                    for (name,) in backend.execute(LOCKED).fetchall():
                        if re.search(r"_p[0-9]", name) and not re.search(rf"_p{part}(_[a-z]|_y2026m05|$)", name):
                            reached.setdefault(routine.name, set()).add(
                                f"{re.sub(r'_p[0-9].*', '', name)} in call {call + 1}"
                            )
                    backend.commit()
    assert not reached, "\n".join(f"{name}: {', '.join(sorted(tables))}" for name, tables in reached.items())


@pytest.mark.acceptance
def test_a_writes_locks_do_not_grow(server_dsn: str) -> None:
    """Counted: with the modulus and with the months kept."""
    counted = []
    with database(server_dsn) as small, database(server_dsn) as wide:
        assert apply(small, 2) == apply(wide, 64) == ""
        for dsn in (small, wide):
            with connect(dsn) as db:
                db.execute(
                    "select _memoir.make_leaf('conversation_history', p) from _memoir.installation, generate_series(0, modulus - 1) p"
                )
                set_clock(db, "2026-05-05T00:00:00Z")
                persist(db, "alice")
                part = db.execute("select memoir.part_of('alice')").fetchone()[0]
                for kept in (0, 12):
                    for month in range(kept):
                        db.execute(
                            "select _memoir.make_leaf('conversation_history', %s, %s)",
                            [part, f"2025-{month + 1:02}-01"],
                        )
                    with psycopg.connect(dsn) as fresh:
                        persist(fresh, "alice")
                        counted.append(len(fresh.execute(LOCKED).fetchall()))
    assert len(set(counted)) == 1 and counted[0] < 100, counted
