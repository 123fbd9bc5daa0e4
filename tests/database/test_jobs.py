"""run_job: batches with a commit each, one row per run, one run of a job at a time, whatever ends it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from calls import Db, last_run, one, persist
from routines import code
from servers import connect, install


@pytest.fixture
def step(db: Db) -> Iterator[Callable[[str], None]]:
    """Gives job flush another step: step(body of a plpgsql function of p_limit)."""
    old = db.execute("select pg_get_functiondef('_memoir.step_flush(integer)'::regprocedure)").fetchone()[0]
    db.execute(
        "create table if not exists public.did (n serial, at timestamptz default clock_timestamp()); grant all on public.did to public; "
        "grant all on sequence public.did_n_seq to public; truncate public.did"
    )

    def put(body: str) -> None:
        db.execute(
            f"create or replace function _memoir.step_flush(p_limit integer) returns jsonb language plpgsql as $x$ {body} $x$"
        )

    yield put
    db.execute(old)


@contextmanager
def blocked_run(
    db: Db, dsn: str, step: Callable[[str], None]
) -> Iterator[tuple[psycopg.Connection, threading.Thread, list]]:
    """A run in another session that has committed one batch and waits in the second for an advisory lock that we hold."""
    step(
        "begin insert into public.did default values; "
        'if (select count(*) > 1 from public.did) then perform pg_advisory_xact_lock(4711); end if; return \'{"more": true, "batches": 1}\'; end'
    )
    db.execute("select pg_advisory_lock(4711)")
    result: list = []
    with connect(dsn) as other:
        thread = threading.Thread(
            target=lambda: result.append(code(lambda: other.execute("call memoir.run_job('flush', 5)")))
        )
        thread.start()
        while not db.execute(
            "select 1 from pg_locks where locktype = 'advisory' and not granted and objid = 4711"
        ).fetchone():
            assert thread.is_alive()
        yield other, thread, result
        db.execute("select pg_advisory_unlock_all()")
        thread.join(30)
        assert not thread.is_alive()


def test_every_job_runs_and_leaves_a_row(db: Db) -> None:
    jobs = [job for (job,) in db.execute("select job from memoir.list_jobs() where job <> 'embed'")]
    assert {"embedder", "merge", "flush", "partitions"} <= set(jobs)
    for job in jobs:
        db.execute("call memoir.run_job(%s)", [job])
        assert last_run(db, job)[0] == "done", last_run(db, job)
    assert db.execute("select count(*) from memoir.list_jobs() where last_outcome = 'done'").fetchone()[0] >= len(jobs)
    assert db.execute("select job from _memoir.job_leases").fetchall() == []


def test_a_batch_a_commit(db: Db, step: Callable[[str], None]) -> None:
    step(
        "begin insert into public.did default values; return jsonb_build_object('more', (select count(*) < 3 from public.did), 'rows', 2, 'none', 0); end"
    )
    db.execute("call memoir.run_job('flush')")
    assert last_run(db, "flush") == ("done", {"rows": 6}, None)
    assert db.execute("select count(distinct xmin::text) from public.did").fetchone() == (3,)


def test_a_failing_batch_is_recorded_and_undone(db: Db, step: Callable[[str], None]) -> None:
    step(
        "begin insert into public.did default values; if (select count(*) > 2 from public.did) then perform 1 / 0; end if; "
        'return \'{"more": true, "rows": 1}\'; end'
    )
    for _ in range(2):  # and the next run begins as if nothing had been
        with pytest.raises(psycopg.Error, match="job flush failed: 22012 division by zero") as raised:
            db.execute("call memoir.run_job('flush')")
        assert raised.value.sqlstate == "PM051"
        assert last_run(db, "flush")[0] == "failed" and "division" in last_run(db, "flush")[2]
        assert db.execute("select count(*) from public.did").fetchone() == (2,)
    step("begin return '{}'; end")
    db.execute("call memoir.run_job('flush')")
    assert last_run(db, "flush") == ("done", {}, None)


def test_no_batch_after_its_time(db: Db, step: Callable[[str], None]) -> None:
    step(
        'begin update _memoir.job_runs set until = clock_timestamp() where finished_at is null; return \'{"more": true, "rows": 1}\'; end'
    )
    db.execute("call memoir.run_job('flush')")
    assert last_run(db, "flush") == ("time over", {"rows": 1}, None)


def test_one_run_at_a_time(db: Db, memoir_dsn: str, step: Callable[[str], None]) -> None:
    with blocked_run(db, memoir_dsn, step) as (_, thread, result):
        said: list[str] = []
        db.add_notice_handler(lambda notice: said.append(notice.message_primary or ""))
        db.execute("call memoir.run_job('flush', p_wait => 0)")
        assert said[0].startswith("job flush is already running: run ") and last_run(db, "flush")[0] == "still running"
        db.execute("call memoir.run_job('merge')")  # others go on
        assert last_run(db, "merge")[0] == "done"
        assert db.execute("select last_outcome from memoir.list_jobs() where job = 'flush'").fetchone() == (
            "still running",
        )
        step("begin return '{}'; end")
    assert result == [None]


def test_run_job_names_the_run_it_waited_for(db: Db, memoir_dsn: str, step: Callable[[str], None]) -> None:
    with blocked_run(db, memoir_dsn, step) as (other, _, _result):
        with pytest.raises(psycopg.Error) as raised:
            db.execute("call memoir.run_job('flush', p_wait => 1)")
        assert raised.value.sqlstate == "PM052"
        for part in ("after a wait of 1 s", f"process {other.info.backend_pid}", f"login {other.info.user}"):
            assert part in str(raised.value)
        step("begin return '{}'; end")


@pytest.mark.parametrize("wait", [-1, 3601, None])
def test_run_job_refuses_a_wrong_wait(db: Db, wait: int | None) -> None:
    assert code(lambda: db.execute("call memoir.run_job('flush', p_wait => %s)", [wait])) == "PM014"


def test_schedules_do_not_wait(db: Db) -> None:
    commands = [command for (command,) in db.execute("select command from _memoir.cron_list()")]
    assert len(commands) > 20 and all(command.endswith("p_wait => 0)") for command in commands)


def test_a_cancelled_run(db: Db, memoir_dsn: str, step: Callable[[str], None]) -> None:
    with blocked_run(db, memoir_dsn, step) as (other, thread, result):
        db.execute("select pg_cancel_backend(%s)", [other.info.backend_pid])
        thread.join(30)
        assert result == ["57014"]
        assert last_run(db, "flush")[:2] == ("cancelled", {"batches": 1})
        assert db.execute("select count(*) from public.did").fetchone() == (1,)
        step("begin return '{}'; end")
        db.execute("call memoir.run_job('flush')")  # the other session still lives and holds nothing
        assert last_run(db, "flush")[0] == "done"


def test_a_killed_run(db: Db, memoir_dsn: str, step: Callable[[str], None]) -> None:
    with blocked_run(db, memoir_dsn, step) as (other, thread, result):
        db.execute("select pg_terminate_backend(%s)", [other.info.backend_pid])
        thread.join(30)
        assert result and last_run(db, "flush")[:2] == (None, {"batches": 1})
        step("begin return '{}'; end")
        while db.execute("select 1 from pg_stat_activity where pid = %s", [other.info.backend_pid]).fetchone():
            pass
        db.execute("call memoir.run_job('flush')")
        assert last_run(db, "flush")[0] == "done"
        lost = db.execute(
            "select outcome, counts, error, finished_at is not null from _memoir.job_runs where job = 'flush' order by run_id desc offset 1 limit 1"
        )
        assert lost.fetchone() == ("lost", {"batches": 1}, "its process ended before the job did", True)
        assert db.execute("select count(*) from _memoir.job_runs where finished_at is null").fetchone() == (0,)


def test_not_inside_a_transaction(db: Db, memoir_dsn: str) -> None:
    with pytest.raises(psycopg.errors.InvalidTransactionTermination), db.transaction():
        db.execute("call memoir.run_job('flush')")
    with connect(memoir_dsn) as other:
        other.execute("call memoir.run_job('flush')")
        assert last_run(other, "flush")[0] == "done"


def test_a_user_who_cant_be_merged_holds_up_no_other(db: Db, user: str) -> None:
    names = [f"{user}-{n}" for n in range(3)]
    for name in names:
        db.execute("select memoir.remember(%s, 'likes tea')", [name])
    ids = dict(
        db.execute("select external_id, user_id from _memoir.users where external_id = any(%s)", [names]).fetchall()
    )
    db.execute("update _memoir.user_counters set tail_items = 1000 where user_id = any(%s)", [list(ids.values())])
    poisoned = sorted(ids.values())[0]
    db.execute(
        "create function public.no() returns trigger language plpgsql as $$ begin raise exception 'poisoned'; end $$; "
        f"create trigger no before delete on _memoir.search_tail for each row when (old.user_id = '{poisoned}') execute function public.no()"
    )
    try:
        db.execute("call memoir.run_job('merge')")
        outcome, counts, error = last_run(db, "merge")
        assert (
            outcome == "errors"
            and counts["failed"] == 1
            and counts["users"] == 3
            and error == f"user {poisoned}: poisoned"
        )
        left = db.execute(
            "select user_id from _memoir.user_counters where tail_items = 1000 and user_id = any(%s)",
            [list(ids.values())],
        ).fetchall()
        assert left == [(poisoned,)]
    finally:
        db.execute("drop trigger no on _memoir.search_tail")
    db.execute("call memoir.run_job('merge')")
    assert last_run(db, "merge")[:2] == ("done", {"users": 1, "items": 1})


# Cron expressions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "at", "last"),
    [
        ("*/15 * * * *", "2024-05-01T10:29:59Z", "2024-05-01T10:15:00Z"),
        ("5,50 3 * * *", "2024-05-01T03:04:00Z", "2024-04-30T03:50:00Z"),
        ("0 9-17/4 * * *", "2024-05-01T16:00:00Z", "2024-05-01T13:00:00Z"),
        ("0 0 29 2 *", "2024-12-31T00:00:00Z", "2024-02-29T00:00:00Z"),
        ("0 12 * * 7", "2024-05-01T00:00:00Z", "2024-04-28T12:00:00Z"),
        ("0 12 1 * 1", "2024-05-08T00:00:00Z", "2024-05-06T12:00:00Z"),
        ("0 12 */2 * 1", "2024-05-08T00:00:00Z", "2024-04-29T12:00:00Z"),
        ("59 23 31 12 *", "2024-06-01T00:00:00Z", "2023-12-31T23:59:00Z"),
    ],
)
def test_cron_expression_names_its_last_time(db: Db, expression: str, at: str, last: str) -> None:
    assert one(db, "select _memoir.cron_last(%s, %s)", expression, at) == datetime.fromisoformat(last)


BAD_SCHEDULES = (
    "61 * * * *|* * * *|@hourly|0 0 * * mon|0 0 31 2 *|*/0 * * * *|5/2 * * * *|9-5 * * * *|every minute|0 seconds|60 seconds|"
).split("|")


@pytest.mark.parametrize("bad", BAD_SCHEDULES)
def test_a_schedule_that_names_no_time_is_refused(db: Db, bad: str) -> None:
    before = db.execute("select * from _memoir.schedules order by job").fetchall()
    assert code(lambda: db.execute("select memoir.set_schedule('flush', %s)", [bad])) == "PM015"
    assert db.execute("select * from _memoir.schedules order by job").fetchall() == before


def test_a_schedule_of_no_job_is_refused(db: Db) -> None:
    assert code(lambda: db.execute("select memoir.set_schedule('no such job', '* * * * *')")) == "PM014"
    assert code(lambda: db.execute("select memoir.set_schedule(null, '* * * * *')")) == "PM014"


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
    told = db.execute(
        "select detail from _memoir.audit_log where action = 'set_schedule' order by audit_id desc limit 1"
    ).fetchone()
    assert told == ({"job": "sweep", "schedule": "23 2 * * *"},)


def test_upgrade_keeps_schedules(db: Db, memoir_dsn: str) -> None:
    db.execute("select memoir.set_schedule('merge', 'off'), memoir.set_schedule('archive', '5 5 * * *')")
    db.execute(
        "update _memoir.schedules set default_schedule = '0 0 1 1 *' where job in ('archive', 'expiry')"
    )  # as an earlier release had it
    db.execute(
        "insert into _memoir.schedules (job, default_schedule, schedule) values ('gone', '* * * * *', '1 * * * *')"
    )
    install(memoir_dsn)
    assert db.execute(
        "select job, schedule, default_schedule from memoir.list_jobs() where job in ('merge', 'archive', 'expiry') order by job"
    ).fetchall() == [
        ("archive", "5 5 * * *", "11 1 * * *"),
        ("expiry", "37 * * * *", "37 * * * *"),
        ("merge", "off", "* * * * *"),
    ]
    assert db.execute("select count(*) from _memoir.schedules where job = 'gone'").fetchone() == (0,)
    db.execute("select memoir.set_schedule('merge', 'default'), memoir.set_schedule('archive', 'default')")


@pytest.mark.parametrize(
    ("schedule", "version", "given"),
    [
        ("5 seconds", "1.4-1", "* * * * *"),
        ("5 seconds", "1.5", "5 seconds"),
        ("5 seconds", "1.10", "5 seconds"),
        ("*/5 * * * *", "1.4", "*/5 * * * *"),
    ],
)
def test_schedules_in_seconds_need_pg_cron_1_5(db: Db, schedule: str, version: str, given: str) -> None:
    assert db.execute("select _memoir.cron_schedule(%s, %s)", [schedule, version]).fetchone() == (given,)


def test_sweep_removes_what_is_past_its_time(db: Db, user: str, clock: Callable[[str], None]) -> None:
    persist(db, user, "s", "hi", "Hello.", key="old")
    clock((datetime.now(UTC) + timedelta(hours=80)).isoformat())
    first = persist(db, user, "s", "hi", "Hello.", key="new")
    db.execute("call memoir.run_job('sweep')")
    outcome, counts, error = last_run(db, "sweep")
    assert (outcome, error) == ("done", None) and counts["receipts"] >= 1
    assert persist(db, user, "s", "hi", "Hello.", key="new") == first
    assert persist(db, user, "s", "hi", "Hello.", key="old")["from_turn"] == 4  # its receipt is gone
