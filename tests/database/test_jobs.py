"""run_job: batches with a commit each, one row per run, one run of a job at a time, whatever ends it."""

from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from calls import Db, call, history, one, persist, raises, remember, run_job, set_clock, table
from internals import changed_function, last_run, user_id
from parallel import beside, until
from routines import code
from servers import connect, install

Step = Callable[[str], object]


@pytest.fixture
def step(db: Db) -> Iterator[Step]:
    """Gives job flush another step: step(body of a plpgsql function of p_limit)."""
    head = "create or replace function _memoir.step_flush(p_limit integer) returns jsonb language plpgsql as"
    db.execute("create table if not exists public.did (n integer default 1); grant all on public.did to public")
    db.execute("truncate public.did")
    with changed_function(db, "step_flush", lambda old: old):
        yield lambda body: db.execute(f"{head} $x$ {body} $x$")


@contextmanager
def blocked_run(db: Db, dsn: str, step: Step) -> Iterator[tuple[psycopg.Connection, futures.Future[str | None]]]:
    """A run in another session that has committed one batch and waits in the second for an advisory lock that we hold. It
    comes to its SQLSTATE."""
    step("""begin insert into public.did default values;
        if (select count(*) > 1 from public.did) then perform pg_advisory_xact_lock(4711); end if;
        return '{"more": true, "batches": 1}'; end""")
    db.execute("select pg_advisory_lock(4711)")
    with connect(dsn) as other:
        running = beside(lambda: code(lambda: other.execute("call memoir.run_job('flush', 5)")))
        waits = "select 1 from pg_locks where locktype = 'advisory' and not granted and objid = 4711"
        until(lambda: db.execute(waits).fetchone())
        yield other, running
        db.execute("select pg_advisory_unlock_all()")
        running.result(30)


def test_every_job_runs_and_leaves_a_row(db: Db) -> None:
    jobs = [job for (job,) in db.execute("select job from memoir.list_jobs() where job <> 'embed'")]
    assert {"embedder", "merge", "flush", "partitions"} <= set(jobs)
    for job in jobs:
        db.execute("call memoir.run_job(%s)", [job])
        assert last_run(db, job)[0] == "done", last_run(db, job)
    assert db.execute("select count(*) from memoir.list_jobs() where last_outcome = 'done'").fetchone()[0] >= len(jobs)
    assert db.execute("select job from _memoir.job_leases").fetchall() == []


def test_a_batch_a_commit(db: Db, step: Step) -> None:
    step("""begin insert into public.did default values;
        return jsonb_build_object('more', (select count(*) < 3 from public.did), 'rows', 2, 'none', 0); end""")
    db.execute("call memoir.run_job('flush')")
    assert last_run(db, "flush") == ("done", {"rows": 6}, None)
    assert db.execute("select count(distinct xmin::text) from public.did").fetchone() == (3,)
    # No batch begins after its time.
    step("""begin update _memoir.job_runs set until = clock_timestamp() where finished_at is null;
        return '{"more": true, "rows": 1}'; end""")
    db.execute("call memoir.run_job('flush')")
    assert last_run(db, "flush") == ("time over", {"rows": 1}, None)


def test_batches_grow_and_shrink_with_their_time(db: Db) -> None:
    """Toward setting job_batch_ms, 100 by default."""
    batches = ((10, 1, 50, 5), (10, 1, 50, 100), (10, 1, 50, 400), (40, 1, 50, 1), (20, 16, 64, 9000))
    following = [one(db, "select _memoir.next_batch(%s, %s, %s, %s)", *given) for given in batches]
    assert following == [20, 10, 2, 50, 16]


def test_a_run_ends_with_its_batch_size(db: Db, step: Step, setting: Callable[..., None]) -> None:
    step("""begin insert into public.did default values; perform pg_sleep(0.002);
        return jsonb_build_object('more', (select count(*) < 20 from public.did)); end""")
    most = one(db, "select batch from _memoir.job_list() where job = 'flush'")
    for milliseconds, batch in ((1, 1), (10000, most)):  # the second run begins with the size that the first ended with
        db.execute("truncate public.did")
        setting("job_batch_ms", milliseconds)
        db.execute("call memoir.run_job('flush', 60)")
        assert one(db, "select batch from _memoir.job_runs where job = 'flush' order by run_id desc limit 1") == batch


def test_a_failing_batch_is_recorded_and_undone(db: Db, step: Step) -> None:
    step("""begin insert into public.did default values; if (select count(*) > 2 from public.did) then perform 1 / 0; end if;
        return '{"more": true, "rows": 1}'; end""")
    for _ in range(2):  # and the next run begins as if nothing had been
        with raises("PM051", "job flush failed: 22012 division by zero"):
            db.execute("call memoir.run_job('flush')")
        assert last_run(db, "flush")[0] == "failed" and "division" in last_run(db, "flush")[2]
        assert db.execute("select count(*) from public.did").fetchone() == (2,)
    step("begin return '{}'; end")
    db.execute("call memoir.run_job('flush')")
    assert last_run(db, "flush") == ("done", {}, None)


def test_one_run_at_a_time(db: Db, memoir_dsn: str, step: Step) -> None:
    with blocked_run(db, memoir_dsn, step) as (_, running):
        said: list[str] = []
        db.add_notice_handler(lambda notice: said.append(notice.message_primary or ""))
        db.execute("call memoir.run_job('flush', p_wait => 0)")
        assert said[0].startswith("job flush is already running: run ") and last_run(db, "flush")[0] == "still running"
        db.execute("call memoir.run_job('merge')")  # others go on
        assert last_run(db, "merge")[0] == "done"
        assert one(db, "select last_outcome from memoir.list_jobs() where job = 'flush'") == "still running"
        step("begin return '{}'; end")
    assert running.result() is None


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_run_job_waits_for_another_run(db: Db, memoir_dsn: str, step: Step, is_cancelled: bool) -> None:
    """It keeps no transaction open meanwhile, and can be cancelled."""
    with connect(memoir_dsn) as waiting, blocked_run(db, memoir_dsn, step) as (_, other_run):
        process = waiting.info.backend_pid
        waiter = beside(lambda: code(lambda: waiting.execute("call memoir.run_job('flush')")))
        paused = "select xact_start from pg_stat_activity where pid = %s and wait_event = 'PgSleep'"
        transactions: set[datetime] = set()
        while len(transactions) < 3:
            assert not waiter.done() and not other_run.done()
            transactions |= {start for (start,) in db.execute(paused, [process])}
        while is_cancelled and not waiter.done():
            db.execute("select pg_cancel_backend(%s)", [process])
            futures.wait([waiter], 0.1)
        step("begin return '{\"own\": 1}'; end")
    assert waiter.result(30) == ("57014" if is_cancelled else None)
    assert is_cancelled or last_run(db, "flush") == ("done", {"own": 1}, None)


def test_run_job_names_the_run_it_waited_for(db: Db, memoir_dsn: str, step: Step) -> None:
    with blocked_run(db, memoir_dsn, step) as (other, _):
        with pytest.raises(psycopg.Error) as raised:
            db.execute("call memoir.run_job('flush', p_wait => 1)")
        assert raised.value.sqlstate == "PM052"
        for part in ("after a wait of 1 s", f"process {other.info.backend_pid}", f"login {other.info.user}"):
            assert part in str(raised.value)
        step("begin return '{}'; end")


def test_a_cancelled_run(db: Db, memoir_dsn: str, step: Step) -> None:
    with blocked_run(db, memoir_dsn, step) as (other, running):
        db.execute("select pg_cancel_backend(%s)", [other.info.backend_pid])
        assert running.result(30) == "57014" and last_run(db, "flush")[:2] == ("cancelled", {"batches": 1})
        assert db.execute("select count(*) from public.did").fetchone() == (1,)
        step("begin return '{}'; end")
        db.execute("call memoir.run_job('flush')")  # the other session still lives and holds nothing
        assert last_run(db, "flush")[0] == "done"


def test_a_killed_run(db: Db, memoir_dsn: str, step: Step) -> None:
    with blocked_run(db, memoir_dsn, step) as (other, running):
        db.execute("select pg_terminate_backend(%s)", [other.info.backend_pid])
        running.result(30)
        assert last_run(db, "flush")[:2] == (None, {"batches": 1})
        step("begin return '{}'; end")
        while db.execute("select 1 from pg_stat_activity where pid = %s", [other.info.backend_pid]).fetchone():
            pass
        db.execute("call memoir.run_job('flush')")
        assert last_run(db, "flush")[0] == "done"
        runs = "select outcome, counts, error, finished_at is not null from _memoir.job_runs where job = 'flush'"
        lost = ("lost", {"batches": 1}, "its process ended before the job did", True)
        assert db.execute(f"{runs} order by run_id desc offset 1 limit 1").fetchone() == lost
        assert db.execute("select count(*) from _memoir.job_runs where finished_at is null").fetchone() == (0,)


def test_not_inside_a_transaction(db: Db, memoir_dsn: str) -> None:
    with pytest.raises(psycopg.errors.InvalidTransactionTermination), db.transaction():
        db.execute("call memoir.run_job('flush')")
    with connect(memoir_dsn) as other:
        other.execute("call memoir.run_job('flush')")
        assert last_run(other, "flush")[0] == "done"


def test_a_user_who_cant_be_merged_holds_up_no_other(db: Db, user: str) -> None:
    for n in range(3):
        remember(db, f"{user}-{n}", "likes tea")
    ids = sorted(user_id(db, f"{user}-{n}") for n in range(3))
    poisoned = ids[0]
    db.execute("update _memoir.user_counters set tail_items = 1000 where user_id = any(%s)", [ids])
    db.execute(f"""
        create function public.no() returns trigger language plpgsql as $$ begin raise exception 'poisoned'; end $$;
        create trigger no before delete on _memoir.search_tail for each row when (old.user_id = '{poisoned}')
          execute function public.no()""")
    try:
        db.execute("call memoir.run_job('merge')")
        outcome, counts, error = last_run(db, "merge")
        assert (outcome, counts["failed"], counts["users"], error) == ("errors", 1, 3, f"user {poisoned}: poisoned")
        left = "select user_id from _memoir.user_counters where tail_items = 1000 and user_id = any(%s)"
        assert db.execute(left, [ids]).fetchall() == [(poisoned,)]
    finally:
        db.execute("drop trigger no on _memoir.search_tail")
    db.execute("call memoir.run_job('merge')")
    assert last_run(db, "merge")[:2] == ("done", {"users": 1, "items": 1})


def test_cron_expression_names_its_last_time(db: Db) -> None:
    for expression, at, last in (
        ("*/15 * * * *", "2024-05-01T10:29:59Z", "2024-05-01T10:15:00Z"),
        ("5,50 3 * * *", "2024-05-01T03:04:00Z", "2024-04-30T03:50:00Z"),
        ("0 9-17/4 * * *", "2024-05-01T16:00:00Z", "2024-05-01T13:00:00Z"),
        ("0 0 29 2 *", "2024-12-31T00:00:00Z", "2024-02-29T00:00:00Z"),
        ("0 12 * * 7", "2024-05-01T00:00:00Z", "2024-04-28T12:00:00Z"),
        ("0 12 1 * 1", "2024-05-08T00:00:00Z", "2024-05-06T12:00:00Z"),
        ("0 12 */2 * 1", "2024-05-08T00:00:00Z", "2024-04-29T12:00:00Z"),
        ("59 23 31 12 *", "2024-06-01T00:00:00Z", "2023-12-31T23:59:00Z"),
    ):
        assert one(db, "select _memoir.cron_last(%s, %s)", expression, at) == datetime.fromisoformat(last)


BAD_SCHEDULES = """61 * * * *|* * * *|@hourly|0 0 * * mon|0 0 31 2 *|*/0 * * * *|5/2 * * * *|9-5 * * * *|every minute
|0 seconds|60 seconds|""".replace("\n", "").split("|")


def test_bad_schedules_and_waits_are_refused(db: Db) -> None:
    before = db.execute("select * from _memoir.schedules order by job").fetchall()
    for bad in BAD_SCHEDULES:
        assert code(lambda: call(db, "set_schedule", "flush", bad)) == "PM015", bad
    for job in ("no such job", None):
        assert code(lambda: call(db, "set_schedule", job, "* * * * *")) == "PM014"
    assert db.execute("select * from _memoir.schedules order by job").fetchall() == before
    for wait in (-1, 3601, None):
        assert code(lambda: db.execute("call memoir.run_job('flush', p_wait => %s)", [wait])) == "PM014"
    commands = [command for (command,) in db.execute("select command from _memoir.cron_list()")]
    assert len(commands) > 20 and all(command.endswith("p_wait => 0)") for command in commands)


def test_schedules_are_set_switched_off_and_go_back(db: Db) -> None:
    shown = "select schedule, due is not null, default_schedule, changed_at is not null, changed_by from memoir.list_jobs() where job = 'sweep'"
    (login,) = db.execute("select session_user").fetchone()
    assert db.execute(shown).fetchone() == ("23 2 * * *", True, "23 2 * * *", False, None)
    for given, schedule, is_due in (
        ("*/5 * * * *", "*/5 * * * *", True),
        ("10 Seconds ", "10 seconds", True),
        ("off", "off", False),
        ("default", "23 2 * * *", True),
        (None, "23 2 * * *", True),
    ):
        assert db.execute("select memoir.set_schedule('sweep', %s)", [given]).fetchone() == (schedule,)
        assert db.execute(shown).fetchone() == (schedule, is_due, "23 2 * * *", True, login)
    told = one(db, "select detail from _memoir.audit_log where action = 'set_schedule' order by audit_id desc limit 1")
    assert told == {"job": "sweep", "schedule": "23 2 * * *"}


def test_upgrade_keeps_schedules(db: Db, memoir_dsn: str) -> None:
    db.execute("select memoir.set_schedule('merge', 'off'), memoir.set_schedule('archive', '5 5 * * *')")
    # As an earlier release had it.
    db.execute("update _memoir.schedules set default_schedule = '0 0 1 1 *' where job in ('archive', 'expiry')")
    gone = "('gone', '0 0 * * *', '1 * * * *')"
    db.execute(f"insert into _memoir.schedules (job, default_schedule, schedule) values {gone}")
    install(memoir_dsn)
    kept = {job: given for job, *given in table(db, "list_jobs", columns="job, schedule, default_schedule")}
    assert kept["archive"] == ["5 5 * * *", "11 1 * * *"] and kept["expiry"] == ["37 * * * *"] * 2
    assert kept["merge"] == ["off", "* * * * *"] and "gone" not in kept
    assert one(db, "select count(*) from _memoir.schedules where job = 'gone'") == 0
    db.execute("select memoir.set_schedule('merge', 'default'), memoir.set_schedule('archive', 'default')")


def test_schedules_in_seconds_need_pg_cron_1_5(db: Db) -> None:
    for schedule, version, given in (
        ("5 seconds", "1.4-1", "* * * * *"),
        ("5 seconds", "1.5", "5 seconds"),
        ("5 seconds", "1.10", "5 seconds"),
        ("*/5 * * * *", "1.4", "*/5 * * * *"),
    ):
        assert db.execute("select _memoir.cron_schedule(%s, %s)", [schedule, version]).fetchone() == (given,)


def test_sweep_removes_what_is_past_its_time(db: Db, user: str, clock: Callable[[str], None]) -> None:
    """Receipts, unused prompts, dead letters, records of runs and months of logs. Turns and prompts in use stay."""
    clock((datetime.now(UTC) - timedelta(days=100)).isoformat())
    for prompt in ("Be brief.", "Be kind."):  # the second replaces the first
        call(db, "open_session", user, "s", system_prompt=prompt)
    persist(db, user, "s", "hi", "Hello.", key="old")
    db.execute("call memoir.ensure_partitions(0)")
    db.execute("call memoir.run_job('merge')")
    db.execute(
        """update _memoir.job_runs set finished_at = memoir.now();
        update _memoir.system_prompts set created_at = memoir.now();
        insert into _memoir.work_items (kind, user_id, state, run_after, created_at)
        values ('judge', gen_random_uuid(), 'dead', memoir.now(), memoir.now())"""
    )
    set_clock(db, None)
    first = persist(db, user, "s", "hi", "Hello.", key="new")
    counts = run_job(db, "sweep")
    assert counts.keys() >= {"receipts", "prompts", "dead letters", "runs", "log months"}, counts
    assert persist(db, user, "s", "hi", "Hello.", key="new") == first
    assert persist(db, user, "s", "hi", "Hello.", key="old")["from_turn"] == 4  # its receipt is gone
    assert len(history(db, user, "s")) == 6 and "Be kind." in str(call(db, "compile_context", user, "s", "hi"))


def test_sweep_deletes_old_records_of_pg_cron(db: Db) -> None:
    """Only of its own calls in this database. The table is pg_cron's where the server has it here."""
    if one(db, "select to_regclass('cron.job_run_details')") is None:
        db.execute("create schema cron")
        db.execute(
            """create table cron.job_run_details (jobid bigint, runid bigserial primary key, job_pid integer, database text,
            username text, command text, status text, return_message text, start_time timestamptz, end_time timestamptz)"""
        )
    ours = "call memoir.run_job('flush', p_wait => 0)"
    kept = [(ours, 1, True), ("vacuum", 8, True), (ours, 8, False)]
    for command, days, is_here in [(ours, 8, True), *kept]:
        db.execute(
            """insert into cron.job_run_details (jobid, database, username, command, start_time, end_time)
            select 1, case when %s then current_database() else 'other' end, 'memoir_jobs', %s, t, t
            from (select now() - make_interval(days => %s)) x(t)""",
            [is_here, command, days],
        )
    run_job(db, "sweep")
    left = "select command, extract(day from now() - end_time)::integer, database = current_database() from cron.job_run_details"
    assert sorted(db.execute(left).fetchall()) == sorted(kept)
