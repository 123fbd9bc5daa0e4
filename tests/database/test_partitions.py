"""Partitions are made ahead, on demand and by several at once, the same for every user, whatever the modulus and the months kept.

All tests share a database. Each has years of its own.
"""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import psycopg
import pytest
from calls import Db, call, one, persist, raises, remember, set_clock, set_settings, store, table
from catalog import describe, differences
from parallel import beside, until
from psycopg.types.json import Jsonb
from routines import MESSAGES, all_routines, values_for
from servers import add_python, apply, complete, connect, database, environment_of, fresh_server


@pytest.fixture(scope="module")
def memoir_dsn(server_dsn: str) -> Iterator[str]:
    with database(server_dsn) as dsn:
        complete(dsn, 2)
        add_python(dsn)
        yield dsn


def say(db: Db, user: str, session: str = "s") -> dict:
    return store(db, user, session, MESSAGES)


def months(db: Db, name: str = "conversation_history") -> set[str]:
    """The months of a table that have a partition, as 2047m11."""
    query = "select relid::regclass::text from pg_partition_tree(%s::regclass) where isleaf"
    leaves = db.execute(query, [f"_memoir.{name}"])
    return {leaf.rpartition("_y")[2] for (leaf,) in leaves}


def count_turns(db: Db, user: str) -> int:
    return call(db, "memory_stats", user)["turns"]


def wait_until(db: Db, condition: str) -> None:
    until(lambda: one(db, f"select {condition}"))


SOMEBODY_WAITS = "exists (select from pg_locks where not granted and database = (select oid from pg_database where datname = current_database()))"
SOMEBODY_PAUSES = "exists (select from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database())"


# part_of --------------------------------------------------------------------------------------------------------------


def test_part_of_is_the_remainder(server_dsn: str) -> None:
    with database(server_dsn) as empty:
        assert apply(empty) == ""
        with connect(empty) as db:
            db.execute("create table public.probe (user_id uuid) partition by hash (user_id)")
            db.execute("set search_path = memoir, _memoir, memoir_extensions")
            for modulus in (1, 2, 64, 4096):
                # Before there are partitions, it may change.
                db.execute("update _memoir.installation set modulus = %s", [modulus])
                parts = db.execute(
                    """select memoir.part_of(u), satisfies_hash_partition('public.probe'::regclass, %s, memoir.part_of(u), _memoir.user_id('default', u))
                    from (select 'user-' || n from generate_series(1, 300) n union all values ('ж'), (repeat('x', 500)), (' ')) x (u)""",
                    [modulus],
                ).fetchall()
                assert all(is_there and 0 <= part < modulus for part, is_there in parts)
                assert len({part for part, _ in parts}) > min(modulus, 200) * 0.7


def test_part_of_is_where_rows_are(db: Db) -> None:
    users = [f"placed-{n}" for n in range(20)]
    for user in users:
        say(db, user)
    rows = """select u.external_id, regexp_replace(t::regclass::text, '^.*_p([0-9]+).*$', '\\1')::integer
        from _memoir.users u join _memoir.conversation_history h using (user_id), unnest(array[u.tableoid, h.tableoid]) t
        where u.external_id = any (%s)"""
    assert set(db.execute(rows, [users]).fetchall()) == {(user, call(db, "part_of", user)) for user in users}


# ensure_partitions ----------------------------------------------------------------------------------------------------


def test_ensure_partitions_is_idempotent(db: Db) -> None:
    set_clock(db, "2047-11-30T23:59:59Z")
    db.execute("call memoir.ensure_partitions(3)")
    assert {m for m in months(db) if "2047" <= m < "2049"} == {"2047m11", "2047m12", "2048m01", "2048m02"}
    before = describe(db)
    db.execute("call memoir.ensure_partitions(3)")
    db.execute("call memoir.ensure_partitions()")  # two months ahead, by the setting
    assert not differences(before, describe(db))


def test_leaves_stay_out_of_pg_stat_statements(private_dsn: str) -> None:
    """Even where it counts nested statements. A caller's own DDL is still counted."""
    seen = "select count(*), count(*) filter (where query like '%%y2061m%%'), count(*) filter (where query like 'create temp%%') from pg_stat_statements"
    options = {"shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.track": "all"}
    with fresh_server(environment_of(private_dsn), **options) as server, database(server) as dsn:
        complete(dsn, 2)
        with connect(dsn) as db:
            db.execute("create extension pg_stat_statements schema public")
            db.execute("set search_path = public")
            counts = []
            for month in ("03", "04"):
                set_clock(db, f"2061-{month}-02T00:00:00Z")
                db.execute("call memoir.ensure_partitions(0)")
                counts.append(db.execute(seen).fetchone())
            assert months(db) >= {"2061m03", "2061m04"}
            assert counts[1][1] == 0 and counts[1][0] - counts[0][0] <= 2
            with db.transaction():
                set_clock(db, "2061-05-02T00:00:00Z")
                say(db, "counted")
                db.execute("create temporary table own_ddl () on commit drop")
            assert db.execute(seen).fetchone()[1:] == (0, 1)


def test_no_month_is_skipped_at_a_months_end(db: Db) -> None:
    for zone, year in (("America/New_York", 2143), ("UTC", 2153), ("Asia/Tokyo", 2163)):
        db.execute("select set_config('timezone', %s, false)", [zone])
        set_clock(db, f"{year}-01-31T02:00:00Z")
        db.execute("call memoir.ensure_partitions(2)")
        assert {m for m in months(db) if m.startswith(str(year))} == {f"{year}m0{month}" for month in (1, 2, 3)}
    for ahead in (-1, 121, 2**31 - 1):
        with raises("PM014", f"months_ahead must be from 0 to 120, not {ahead}"):
            db.execute("call memoir.ensure_partitions(%s)", [ahead])


def test_ensure_partitions_beside_transactions(memoir_dsn: str, db: Db, user: str) -> None:
    """Neither waits for an open transaction nor makes others wait behind it."""
    with psycopg.connect(memoir_dsn) as reader, psycopg.connect(memoir_dsn) as writer:
        set_clock(db, "2046-05-15T00:00:00Z")
        say(db, user)
        reader.execute("begin isolation level repeatable read")
        assert count_turns(reader, user) == 2
        say(writer, user)
        set_clock(db, "2046-06-15T00:00:00Z")
        db.execute("set statement_timeout = '20s'")
        db.execute("call memoir.ensure_partitions(1)")
        assert months(db) >= {"2046m06", "2046m07"} and count_turns(reader, user) == 2
        say(writer, user)
        writer.commit()
        reader.commit()
        assert count_turns(db, user) == 6


def test_ensure_partitions_gives_way(memoir_dsn: str, db: Db, user: str) -> None:
    """It waits in short tries for a holder of the parent itself (a manual ANALYZE, say), so writers don't queue behind it."""
    with connect(memoir_dsn) as caller, psycopg.connect(memoir_dsn) as holder, connect(memoir_dsn) as writer:
        set_clock(db, "2048-05-15T00:00:00Z")
        say(db, user)
        set_clock(db, "2048-06-15T00:00:00Z")
        holder.execute("lock table only _memoir.conversation_history_p0 in share update exclusive mode")
        ensuring = beside(lambda: caller.execute("call memoir.ensure_partitions(0)"))
        wait_until(db, SOMEBODY_WAITS)
        wait_until(db, SOMEBODY_PAUSES)
        set_clock(db, "2048-05-15T00:00:00Z")
        writer.execute("set lock_timeout = '1s'")
        say(writer, user)
        holder.rollback()
        ensuring.result(30)
        assert "2048m06" in months(db)


# Writes into months without partitions --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "at", ["2051-01-31T23:59:59.999999Z", "2052-02-29T12:00:00Z", "1970-01-01T00:00:00Z", "2999-12-01T00:00:00Z"]
)
def test_write_makes_its_month(db: Db, user: str, at: str) -> None:
    month = f"{at[:4]}m{at[5:7]}"
    assert month not in months(db)
    set_clock(db, at)
    say(db, user)
    call(db, "capture_call", user, "s", b"x")
    remember(db, user, "A fact")
    assert "Ximena" in str(call(db, "compile_context", user, "new", "What is my cat called?"))
    db.execute("call memoir.run_job('flush')")
    assert all(month in months(db, name) for name in ("conversation_history", "api_calls", "compile_ledger"))


@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_two_writers_make_one_month(memoir_dsn: str, db: Db, ends: str) -> None:
    """The second waits for the first, and makes the month itself should the first fail."""
    names = [f"{ends}-{n}" for n in range(40)]
    first, second = [name for name in names if call(db, "part_of", name) == 0][:2]
    # In this order, so that a failure ends the first writer first, for which the other threads wait.
    with ThreadPoolExecutor() as pool, psycopg.connect(memoir_dsn) as two, psycopg.connect(memoir_dsn) as writer:
        set_clock(db, {"commit": "2055-01-01T00:00:00Z", "rollback": "2055-02-01T00:00:00Z"}[ends])
        say(writer, first)
        waiting = pool.submit(say, two, second)
        wait_until(db, SOMEBODY_WAITS)
        getattr(writer, ends)()
        waiting.result(timeout=20)
        two.commit()
        assert count_turns(db, second) == 2
        found = "select count(*) from memoir.list_users(p_limit => 1000) where user_name = %s"
        assert one(db, found, first) == (ends == "commit")


@pytest.mark.acceptance
def test_many_writers_at_the_turn_of_a_month(memoir_dsn: str, db: Db) -> None:
    """Users of both parts, old and new, while ensure_partitions runs: no failure, no deadlock, nothing lost."""
    users = [f"many-{n}" for n in range(8)]

    def write(user: str) -> int:
        with connect(memoir_dsn) as own:
            return say(own, user, "s")["turn_count"] + say(own, user, "t")["turn_count"]

    set_clock(db, "2056-06-30T00:00:00Z")
    for user in users[:4]:
        say(db, user)
    set_clock(db, "2056-07-01T00:00:00Z")
    with connect(memoir_dsn) as other, ThreadPoolExecutor(9) as pool:
        ensuring = pool.submit(other.execute, "call memoir.ensure_partitions(1)")
        assert list(pool.map(write, users)) == [6] * 4 + [4] * 4
        ensuring.result()


@pytest.mark.acceptance
def test_a_table_of_an_upgrade_gets_its_leaves(server_dsn: str) -> None:
    """Between the upgrade and ensure_partitions, in a month that is prepared for all other tables."""
    with database(server_dsn) as dsn, connect(dsn) as db:
        complete(dsn)
        say(db, "alice")
        db.execute("set role memoir_owner")
        columns = "user_id uuid, recorded_at timestamptz, primary key (user_id, recorded_at)"
        db.execute(f"create table _memoir.added ({columns}) partition by hash (user_id)")
        db.execute("insert into _memoir.partitioned_tables values ('added', true)")
        db.execute("reset role")
        say(db, "alice")
        assert len(months(db, "added")) == 1


# The clock ------------------------------------------------------------------------------------------------------------


def test_recorded_at_never_goes_back_in_a_session(db: Db, user: str) -> None:
    for at in ("2027-04-01T00:30:00Z", "2027-02-15T00:00:00Z", "2028-01-01T00:00:00Z"):
        set_clock(db, at)
        say(db, user)
    rows = db.execute(
        """select h.recorded_at from _memoir.conversation_history h join _memoir.users u using (user_id)
        where u.external_id = %s order by turn_index""",
        [user],
    ).fetchall()
    april, new_year = datetime(2027, 4, 1, 0, 30, tzinfo=UTC), datetime(2028, 1, 1, tzinfo=UTC)
    assert [at for (at,) in rows] == [april] * 4 + [new_year] * 2
    set_clock(db, "2020-01-01T00:00:00Z")  # all of it can be read at any time, and reading makes no month
    assert len(call(db, "compile_context", user, "s", "cat?")) == 7 and "2020m01" not in months(db)


IMPOSSIBLE = ("1492-10-12T00:00:00Z", "9999-12-31T00:00:00Z", "2026-13-01T00:00:00Z")
ABSURD = (*IMPOSSIBLE, "infinity", "not a time", 1e18, True, {}, "")


def test_absurd_and_old_dates_make_no_partition(db: Db, user: str) -> None:
    set_clock(db, None)
    before = months(db)
    for at in ABSURD:
        with pytest.raises(psycopg.Error) as refused:
            persist(db, user, "s", "a", {"role": "assistant", "content": "b", "created_at": at})
        assert refused.value.sqlstate == "PM010" and "messages[1].created_at" in str(refused.value)
        assert (str(at)[:10] if isinstance(at, str) else "") in str(refused.value)
    assert count_turns(db, user) == 0
    store(db, user, "s", [message | {"created_at": "1998-05-04T03:02:01+02:00"} for message in MESSAGES])
    assert {turn["created_at"] for (turn,) in table(db, "history", user, "s")} == {"1998-05-04T01:02:01+00:00"}
    assert months(db) == before


def test_clock_takes_a_point_in_time_only(db: Db) -> None:
    """Anything else would break every call after it, or mean another time in every session."""
    for at in ("infinity", "now", "2026-01-01T00:00:00", "1969-12-31T00:00:00Z", "2026-02-30T00:00:00Z", 17):
        with raises("PM015", "setting clock can't be"):
            db.execute("select memoir.set_setting('clock', %s)", [Jsonb(at)])


# Leaves ---------------------------------------------------------------------------------------------------------------

# Leaves that lack an index or a trigger of their parent.
INCOMPLETE = """
    with leaves as (select c.oid as leaf, ('_memoir.' || t.table_name)::regclass as root
      from _memoir.partitioned_tables t, pg_partition_tree('_memoir.' || t.table_name) p join pg_class c on c.oid = p.relid where p.isleaf),
    indexes as (select indrelid, regexp_replace(pg_get_indexdef(indexrelid), '^.* USING ', '') as text, indisunique from pg_index where indisvalid),
    triggers as (select tgrelid, tgname, tgfoid, tgenabled from pg_trigger where not tgisinternal
      and tgoldtable is null and tgnewtable is null)
    select leaf::regclass::text, text from leaves join indexes i on indrelid = root
    where not exists (select from indexes x where x.indrelid = leaf and (x.text, x.indisunique) = (i.text, i.indisunique))
    union all select leaf::regclass::text, tgname from leaves join triggers t on tgrelid = root
    where not exists (select from triggers x where x.tgrelid = leaf and (x.tgname, x.tgfoid, x.tgenabled) = (t.tgname, t.tgfoid, t.tgenabled))"""


def test_leaves_are_as_their_parents(db: Db, user: str) -> None:
    set_clock(db, "2057-01-01T00:00:00Z")
    say(db, user)
    assert db.execute(INCOMPLETE).fetchall() == []
    unlogged = """select distinct t.table_name::text from _memoir.partitioned_tables t, pg_partition_tree('_memoir.' || t.table_name) p
        join pg_class c on c.oid = p.relid where p.isleaf and c.relpersistence = 'u'"""
    assert {name for (name,) in db.execute(unlogged)} == {"memory_store_working", "kept_recalls", "query_answers"}
    # A trigger with the rows of a statement is the parent's alone: writes go through the parent.
    of_statements = """select tgrelid::regclass::text, tgname from pg_trigger join pg_class c on c.oid = tgrelid
        where coalesce(tgoldtable, tgnewtable) is not null and c.relnamespace = '_memoir'::regnamespace"""
    unpacked = {("_memoir.embeddings", "unpack_deleted"), ("_memoir.embeddings", "unpack_updated")}
    assert set(db.execute(of_statements)) == unpacked
    # A default partition would swallow a month.
    assert one(db, "select count(*) from pg_partitioned_table where partdefid <> 0") == 0
    keys = """select t.table_name from _memoir.partitioned_tables t where not exists (select from pg_index i join pg_attribute a on a.attrelid = i.indrelid
        and a.attnum = i.indkey[0] where i.indrelid = ('_memoir.' || table_name)::regclass and i.indisprimary and a.attname = 'user_id')"""
    assert db.execute(keys).fetchall() == []


# Locks ----------------------------------------------------------------------------------------------------------------

LOCKED = """select c.relname from pg_locks l join pg_class c on c.oid = l.relation
    where l.pid = pg_backend_pid() and l.locktype = 'relation' and l.relation >= 16384"""


def add_months(db: Db, tables: list[str]) -> int:
    """Makes a year of months beside the one that is written to, in alice's part, which it returns."""
    part = call(db, "part_of", "alice")
    for name in tables:
        for month in range(1, 13):
            db.execute("select _memoir.make_leaf(%s, %s, %s)", [name, part, f"2025-{month:02}-01"])
    return part


@pytest.mark.acceptance
def test_calls_lock_their_users_parts_and_months(server_dsn: str) -> None:
    """Every function that takes a user, in a backend that has planned nothing before, and where plans may have become generic."""
    reached: set[str] = set()
    with database(server_dsn) as dsn:
        assert apply(dsn, 8) == ""
        add_python(dsn)
        with connect(dsn) as db:
            set_clock(db, "2026-05-05T00:00:00Z")
            set_settings(db, outbox_days=7)  # else read_events refuses
            db.execute("call memoir.ensure_partitions(0)")
            by_month = db.execute("select table_name from _memoir.partitioned_tables where by_month").fetchall()
            part = add_months(db, [name for (name,) in by_month])
            shared = one(
                db, "select _memoir.part_of(_memoir.no_session())"
            )  # events of the install: one table, no months
            routines = [r for r in all_routines(db).values() if r.roles and "p_user" in r.arguments]
            assert len(routines) > 15
            spaces = (
                "select memoir.part_of('@space:' || space) from memoir.list_spaces('alice')"  # in parts of their own
            )
            parts = {str(part)}
            for routine in routines:
                if routine.name == "learn_weights":  # without a ledger nothing can be learnt
                    continue
                with psycopg.connect(dsn) as backend:
                    for _ in range(8):
                        values = values_for(routine, db, "alice", also={"p_user"})
                        values |= {"p_embedding": [0.1] * 384} if "p_embedding" in routine.arguments else {}
                        routine.call(backend, values)
                        locked = backend.execute(LOCKED).fetchall()
                        parts |= {str(place) for (place,) in backend.execute(spaces)}
                        for (name,) in locked:
                            own = rf"_p({'|'.join(parts)})(_[a-z]|_y2026m05|$)|^outbox_p{shared}(_[a-z]|$)"
                            if re.search(r"_p[0-9]", name) and not re.search(own, name):
                                reached.add(f"{routine.name}: {re.sub(r'_p[0-9].*', '', name)}")
                        backend.commit()
    assert not reached, sorted(reached)


@pytest.mark.acceptance
def test_locks_of_a_write_do_not_grow(server_dsn: str) -> None:
    """Neither with the modulus nor with the months kept."""
    counted = []
    for modulus in (2, 64):
        with database(server_dsn) as dsn, connect(dsn) as db:
            assert apply(dsn, modulus) == ""
            leaves = "_memoir.make_leaf('conversation_history', p) from generate_series(0, %s) p"
            db.execute(f"select {leaves}", [modulus - 1])
            set_clock(db, "2026-05-05T00:00:00Z")
            say(db, "alice")
            for tables in ([], ["conversation_history"]):
                add_months(db, tables)
                with psycopg.connect(dsn) as fresh:
                    say(fresh, "alice")
                    counted.append(len(fresh.execute(LOCKED).fetchall()))
    assert len(set(counted)) == 1 and counted[0] < 100, counted
