"""run_job: batches with a commit each, one row per run, one run of a job at a time, whatever ends it."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from calls import last_run
from routines import code
from servers import connect, install


@pytest.fixture
def step(db: psycopg.Connection) -> Iterator[Callable[[str], None]]:
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
    db: psycopg.Connection, dsn: str, step: Callable[[str], None]
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


def test_every_job_runs_and_leaves_a_row(db: psycopg.Connection) -> None:
    jobs = [job for (job,) in db.execute("select job from memoir.list_jobs() where job <> 'embed'")]
    assert {"embedder", "merge", "flush", "partitions"} <= set(jobs)
    for job in jobs:
        db.execute("call memoir.run_job(%s)", [job])
        assert last_run(db, job)[0] == "done", last_run(db, job)
    assert db.execute("select count(*) from memoir.list_jobs() where last_outcome = 'done'").fetchone()[0] >= len(jobs)
    assert db.execute("select job from _memoir.job_leases").fetchall() == []


def test_a_batch_a_commit(db: psycopg.Connection, step: Callable[[str], None]) -> None:
    step(
        "begin insert into public.did default values; return jsonb_build_object('more', (select count(*) < 3 from public.did), 'rows', 2, 'none', 0); end"
    )
    db.execute("call memoir.run_job('flush')")
    assert last_run(db, "flush") == ("done", {"rows": 6}, None)
    assert db.execute("select count(distinct xmin::text) from public.did").fetchone() == (3,)


def test_batches_take_about_as_long_as_they_may(db: psycopg.Connection, step: Callable[[str], None]) -> None:
    step(
        "begin insert into public.did default values; perform pg_sleep(0.002); return jsonb_build_object('more', (select count(*) < 20 from public.did)); end"
    )
    most = db.execute("select batch from _memoir.job_list() where job = 'flush'").fetchone()[0]
    for milliseconds, batch in ((1, 1), (10000, most)):  # each goes on from where the run before it ended
        db.execute("truncate public.did")
        db.execute("select memoir.set_setting('job_batch_ms', %s::text::jsonb)", [milliseconds])
        db.execute("call memoir.run_job('flush', 60)")
        assert (
            db.execute(
                "select batch from _memoir.job_runs where job = 'flush' order by run_id desc limit 1"
            ).fetchone()[0]
            == batch
        )
    db.execute("select memoir.reset_setting('job_batch_ms')")  # 100
    asked = [
        (10, 1, 50, 5, 20),
        (10, 1, 50, 400, 2),
        (10, 1, 50, 100, 10),
        (40, 1, 50, 1, 50),
        (3, 1, 50, 9000, 1),
        (20, 16, 64, 9000, 16),
    ]
    assert [db.execute("select _memoir.next_batch(%s, %s, %s, %s)", a[:4]).fetchone()[0] for a in asked] == [
        a[4] for a in asked
    ]


def test_a_failing_batch_is_recorded_and_undone(db: psycopg.Connection, step: Callable[[str], None]) -> None:
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


def test_trouble_with_one_item_is_said(db: psycopg.Connection, step: Callable[[str], None]) -> None:
    step('begin return \'{"failed": 1, "users": 4, "error": "user x: no"}\'; end')
    said: list[str] = []
    db.add_notice_handler(lambda notice: said.append(notice.message_primary or ""))
    db.execute("call memoir.run_job('flush')")
    assert last_run(db, "flush") == ("errors", {"failed": 1, "users": 4}, "user x: no")
    assert any("passed over 1" in line for line in said)


def test_no_batch_after_its_time(db: psycopg.Connection, step: Callable[[str], None]) -> None:
    step(
        'begin update _memoir.job_runs set until = clock_timestamp() where finished_at is null; return \'{"more": true, "rows": 1}\'; end'
    )
    db.execute("call memoir.run_job('flush')")
    assert last_run(db, "flush") == ("time over", {"rows": 1}, None)


def test_one_run_at_a_time(db: psycopg.Connection, memoir_dsn: str, step: Callable[[str], None]) -> None:
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


def test_run_job_waits_for_another_run(db: psycopg.Connection, memoir_dsn: str, step: Callable[[str], None]) -> None:
    results: list = []
    with connect(memoir_dsn) as waiting, blocked_run(db, memoir_dsn, step) as (_, other_run, _result):
        waiter = threading.Thread(
            target=lambda: results.append(code(lambda: waiting.execute("call memoir.run_job('flush')")))
        )
        waiter.start()
        in_pause = "select xact_start from pg_stat_activity where pid = %s and wait_event = 'PgSleep'"
        transactions: set[datetime] = set()
        while len(transactions) < 3:  # none of its transactions stays open
            assert waiter.is_alive() and other_run.is_alive(), results
            transactions |= {start for (start,) in db.execute(in_pause, [waiting.info.backend_pid])}
        assert db.execute("select count(*) from _memoir.job_runs where finished_at is null").fetchone() == (1,)
        step("begin insert into public.did default values; return '{\"own\": 1}'; end")
    waiter.join(30)
    assert results == [None] and last_run(db, "flush") == ("done", {"own": 1}, None)


def test_run_job_names_the_run_it_waited_for(
    db: psycopg.Connection, memoir_dsn: str, step: Callable[[str], None]
) -> None:
    with blocked_run(db, memoir_dsn, step) as (other, _, _result):
        with pytest.raises(psycopg.Error) as raised:
            db.execute("call memoir.run_job('flush', p_wait => 1)")
        assert raised.value.sqlstate == "PM052"
        for part in ("after a wait of 1 s", f"process {other.info.backend_pid}", f"login {other.info.user}"):
            assert part in str(raised.value)
        step("begin return '{}'; end")


def test_run_job_is_cancelled_while_it_waits(
    db: psycopg.Connection, memoir_dsn: str, step: Callable[[str], None]
) -> None:
    results: list = []
    with connect(memoir_dsn) as waiting, blocked_run(db, memoir_dsn, step) as (_, other_run, _result):
        waiter = threading.Thread(
            target=lambda: results.append(code(lambda: waiting.execute("call memoir.run_job('flush')")))
        )
        waiter.start()
        while waiter.is_alive():
            db.execute("select pg_cancel_backend(%s)", [waiting.info.backend_pid])
            waiter.join(0.1)
        assert results == ["57014"] and other_run.is_alive()
        step("begin return '{}'; end")


@pytest.mark.parametrize("wait", [-1, 3601, None])
def test_run_job_refuses_a_wrong_wait(db: psycopg.Connection, wait: int | None) -> None:
    assert code(lambda: db.execute("call memoir.run_job('flush', p_wait => %s)", [wait])) == "PM014"


def test_schedules_do_not_wait(db: psycopg.Connection) -> None:
    commands = [command for (command,) in db.execute("select command from _memoir.cron_list()")]
    assert len(commands) > 20 and all(command.endswith("p_wait => 0)") for command in commands)


def test_a_cancelled_run(db: psycopg.Connection, memoir_dsn: str, step: Callable[[str], None]) -> None:
    with blocked_run(db, memoir_dsn, step) as (other, thread, result):
        db.execute("select pg_cancel_backend(%s)", [other.info.backend_pid])
        thread.join(30)
        assert result == ["57014"]
        assert last_run(db, "flush")[:2] == ("cancelled", {"batches": 1})
        assert db.execute("select count(*) from public.did").fetchone() == (1,)
        step("begin return '{}'; end")
        db.execute("call memoir.run_job('flush')")  # the other session still lives and holds nothing
        assert last_run(db, "flush")[0] == "done"


def test_a_killed_run(db: psycopg.Connection, memoir_dsn: str, step: Callable[[str], None]) -> None:
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


def test_a_run_killed_after_it_noted_how_it_ended(db: psycopg.Connection, step: Callable[[str], None]) -> None:
    run = db.execute(
        "insert into _memoir.job_runs (job, started_at, outcome) values ('flush', now(), 'cancelled') returning run_id"
    ).fetchone()[0]
    step("begin return '{}'; end")
    db.execute("call memoir.run_job('flush')")
    assert db.execute(
        "select outcome, error, finished_at is not null from _memoir.job_runs where run_id = %s", [run]
    ).fetchone() == ("cancelled", None, True)


def test_not_inside_a_transaction(db: psycopg.Connection, memoir_dsn: str) -> None:
    with pytest.raises(psycopg.errors.InvalidTransactionTermination), db.transaction():
        db.execute("call memoir.run_job('flush')")
    with connect(memoir_dsn) as other:
        other.execute("call memoir.run_job('flush')")
        assert last_run(other, "flush")[0] == "done"


def test_a_user_who_cant_be_merged_holds_up_no_other(db: psycopg.Connection, user: str) -> None:
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


class Cron:
    """What cron(5) says of an expression."""

    def __init__(self, expression: str) -> None:
        def values(field: str, low: int, high: int) -> set[int]:
            found: set[int] = set()
            for part in field.split(","):
                span, _, by = part.partition("/")
                first, last = (low, high) if span == "*" else (int(span.split("-")[0]), int(span.split("-")[-1]))
                found |= set(range(first, last + 1, int(by or 1)))
            return found

        minute, hour, day, month, weekday = expression.split()
        self.minutes, self.hours = values(minute, 0, 59), values(hour, 0, 23)
        self.days, self.months, self.weekdays = values(day, 1, 31), values(month, 1, 12), values(weekday, 0, 7)
        self.either = not day.startswith("*") and not weekday.startswith("*")

    def names_day(self, at: datetime) -> bool:
        by_day = at.day in self.days
        by_weekday = bool({at.isoweekday(), at.isoweekday() % 7} & self.weekdays)
        return at.month in self.months and (by_day or by_weekday if self.either else by_day and by_weekday)

    def names(self, at: datetime) -> bool:
        return at.minute in self.minutes and at.hour in self.hours and self.names_day(at)

    def last(self, at: datetime, oldest: datetime) -> datetime | None:
        """The newest minute that it names after `oldest`, up to `at`: minute by minute, but over days that it does not name."""
        at = at.replace(second=0, microsecond=0)
        while at > oldest:
            if not self.names_day(at):
                at = at.replace(hour=0, minute=0) - timedelta(minutes=1)
            elif self.names(at):
                return at
            else:
                at -= timedelta(minutes=1)
        return None


def test_cron_expressions(db: psycopg.Connection) -> None:
    chance = random.Random(7)

    def field(low: int, high: int) -> str:
        first = chance.randint(low, high)
        return chance.choice(
            [
                "*",
                "*",
                f"*/{chance.randint(1, 20)}",
                str(first),
                f"{first}-{chance.randint(first, high)}",
                f"{first}-{high}/{chance.randint(1, 9)}",
                f"{first},{chance.randint(low, high)}",
            ]
        )

    for _ in range(200):
        expression = " ".join(field(*span) for span in ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7)))
        at = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=chance.randrange(4 * 365 * 86400))
        (found,) = db.execute("select _memoir.cron_last(%s, %s)", [expression, at]).fetchone()
        cron, oldest = Cron(expression), at - timedelta(days=400)
        if expected := cron.last(at, oldest):
            assert found == expected, (expression, at)
        else:
            assert found is None or found <= oldest and cron.names(found), (expression, at)


BAD_SCHEDULES = [
    "61 * * * *",
    "* * * *",
    "@hourly",
    "0 0 * * mon",
    "0 0 31 2 *",
    "*/0 * * * *",
    "5/2 * * * *",
    "9-5 * * * *",
    "every minute",
    "0 seconds",
    "60 seconds",
    "5 seconds x",
    "",
]


@pytest.mark.parametrize("bad", BAD_SCHEDULES)
def test_a_schedule_that_names_no_time_is_refused(db: psycopg.Connection, bad: str) -> None:
    before = db.execute("select * from _memoir.schedules order by job").fetchall()
    assert code(lambda: db.execute("select memoir.set_schedule('flush', %s)", [bad])) == "PM015"
    assert db.execute("select * from _memoir.schedules order by job").fetchall() == before


def test_a_schedule_of_no_job_is_refused(db: psycopg.Connection) -> None:
    assert code(lambda: db.execute("select memoir.set_schedule('no such job', '* * * * *')")) == "PM014"
    assert code(lambda: db.execute("select memoir.set_schedule(null, '* * * * *')")) == "PM014"


def test_schedules_are_set_switched_off_and_go_back(db: psycopg.Connection) -> None:
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


def test_upgrade_keeps_schedules(db: psycopg.Connection, memoir_dsn: str) -> None:
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
        ("5 seconds", "1.4", "* * * * *"),
        ("5 seconds", "1.4-1", "* * * * *"),
        ("59 seconds", "0.9", "* * * * *"),
        ("1 second", "1.3.1", "* * * * *"),
        ("5 seconds", "1.5", "5 seconds"),
        ("5 seconds", "1.5-1", "5 seconds"),
        ("5 seconds", "1.10", "5 seconds"),
        ("5 seconds", "2.0", "5 seconds"),
        ("*/5 * * * *", "1.4", "*/5 * * * *"),
        ("*/5 * * * *", "1.6", "*/5 * * * *"),
    ],
)
def test_schedules_in_seconds_need_pg_cron_1_5(db: psycopg.Connection, schedule: str, version: str, given: str) -> None:
    assert db.execute("select _memoir.cron_schedule(%s, %s)", [schedule, version]).fetchone() == (given,)


# What the jobs do -----------------------------------------------------------------------------------------------------


def test_sweep(db: psycopg.Connection, user: str) -> None:
    db.execute(
        "select memoir.open_session(%s, 's', p_system_prompt => 'Be kind.'), memoir.open_session(%s, 't', p_system_prompt => 'Be brief.')",
        [user, user],
    )
    db.execute(
        'select memoir.persist_turn(%s, \'s\', \'[{"role": "user", "content": "hi"}]\', p_key => k) from unnest(\'{old,new}\'::text[]) k',
        [user],
    )
    db.execute(
        "update _memoir.receipts set recorded_at = recorded_at - interval '80 hours' where idempotency_key = 'old'"
    )
    db.execute("select _memoir.store_prompt('Never used.', 'approx')")
    db.execute("update _memoir.system_prompts set created_at = created_at - interval '2 days'")
    db.execute(
        "insert into _memoir.job_runs (job, started_at, finished_at, outcome, counts) values ('merge', now() - interval '30 d', now() - interval '30 d', 'done', "
        "'{\"items\": 1}'), ('merge', now() - interval '2 d', now() - interval '2 d', 'done', '{}'), "
        "('merge', now() - interval '2 d', now() - interval '2 d', 'done', '{\"items\": 1}')"
    )
    db.execute(
        "insert into _memoir.work_items (kind, user_id, state, run_after, created_at) select 'judge', gen_random_uuid(), 'dead', t, t from unnest(array[now(), now() - interval '91 d']) t"
    )
    db.execute(
        "select _memoir.make_part(p, d) from generate_series(0, 1) p, unnest('{2020-01-01,2020-02-01}'::date[]) d"
    )
    db.execute("call memoir.run_job('sweep')")
    outcome, counts, error = last_run(db, "sweep")
    assert (outcome, error) == ("done", None)
    # 2 logs, 2 parts, 2 months
    assert {"receipts": 1, "prompts": 1, "dead letters": 1, "log months": 8}.items() <= counts.items() and counts[
        "runs"
    ] == 2
    assert db.execute("select array_agg(idempotency_key) from _memoir.receipts").fetchone() == (["new"],)
    assert {c for (c,) in db.execute("select content from _memoir.system_prompts")} == {"Be kind.", "Be brief."}
    left = db.execute(
        "select count(*) filter (where relname ~ '^(compile_ledger|admission)') = 0, count(*) > 0 from pg_class where relname ~ '_y2020m0[12]$'"
    )
    assert left.fetchone() == (True, True)  # turns stay


def test_backfill(db: psycopg.Connection, user: str) -> None:
    db.execute("select memoir.remember(%s, 'has a red bicycle')", [user])
    db.execute("delete from _memoir.work_items where kind = 'embed'")
    db.execute("call memoir.run_job('backfill')")
    assert last_run(db, "backfill")[0] == "done"
    of_user = "select count(*) from _memoir.work_items where kind = 'embed' and user_id = (select user_id from _memoir.users where external_id = %s)"
    assert db.execute(of_user, [user]).fetchone() == (1,)
    before = db.execute("select count(*) from _memoir.work_items").fetchone()
    db.execute("call memoir.run_job('backfill')")
    assert (
        db.execute("select count(*) from _memoir.work_items").fetchone() == before and last_run(db, "backfill")[1] == {}
    )


def test_hygiene_counts_whole_rounds(db: psycopg.Connection, user: str) -> None:
    for n in range(5):
        db.execute("select memoir.remember(%s, 'owns ' || %s || ' boats')", [f"{user}-{n}", str(n)])
    db.execute("update _memoir.memory_stats set access_count = 3, last_accessed_at = now()")
    db.execute("call memoir.run_job('hygiene')")
    found, at = db.execute(
        "select state -> 'last', state ->> 'at' from _memoir.job_cursors where job = 'hygiene'"
    ).fetchone()
    assert at and found["memories"] == db.execute("select count(*) from _memoir.memory_store").fetchone()[0] >= 5
    assert found["active"] <= found["memories"] and found.get("stale", 0) == 0
    # In small steps, and beside the last whole round's result until the new one is complete.
    (more,) = db.execute("select _memoir.step_hygiene(2) -> 'more'").fetchone()
    assert more and db.execute("select state -> 'last' from _memoir.job_cursors where job = 'hygiene'").fetchone() == (
        found,
    )
    while db.execute("select _memoir.step_hygiene(2) -> 'more'").fetchone()[0]:
        pass
    assert db.execute("select state -> 'last' from _memoir.job_cursors where job = 'hygiene'").fetchone() == (found,)


def test_sweep_deletes_old_records_of_pg_cron(db: psycopg.Connection) -> None:
    """Of our own calls in this database, and no others. The table is pg_cron's where the server has it here."""
    if db.execute("select to_regclass('cron.job_run_details')").fetchone()[0] is None:
        db.execute("create schema cron")
        db.execute(
            """create table cron.job_run_details (jobid bigint, runid bigserial primary key, job_pid integer, database text,
            username text, command text, status text, return_message text, start_time timestamptz, end_time timestamptz)"""
        )
    ours, theirs = "call memoir.run_job('flush', p_wait => 0)", "vacuum"
    kept = [(ours, "1 day", True), (theirs, "8 days", True), (ours, "8 days", False)]
    for command, age, is_here in [(ours, "8 days", True), *kept]:
        db.execute(
            """insert into cron.job_run_details (jobid, database, username, command, start_time, end_time)
            select 1, case when %s then current_database() else 'other' end, 'memoir_jobs', %s, t, t
            from (select now() - %s::interval) x(t)""",
            [is_here, command, age],
        )
    db.execute("call memoir.run_job('sweep')")
    query = (
        "select command, end_time < now() - interval '2 days', database = current_database() from cron.job_run_details"
    )
    assert sorted(db.execute(query).fetchall()) == sorted((c, age != "1 day", here) for c, age, here in kept)
