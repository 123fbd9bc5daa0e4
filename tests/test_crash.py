"""The whole server killed in the middle of jobs: after its recovery nothing is lost, doubled or stuck."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.types.json import Jsonb
from routines import code
from servers import PGBIN, as_server_user, complete, connect, running, server_folder

WAITING = "select count(*) from pg_locks where locktype = 'advisory' and not granted and objid = 4713"
# The second batch of whatever job runs does its work and then waits, so that the crash finds it between work and commit.
HOLD = """
    create function memoir._hold(p_result jsonb) returns jsonb language plpgsql as $$ begin
      insert into public.batches values (1);
      if (select count(*) = 2 from public.batches) then perform pg_advisory_xact_lock(4713); end if;
      return p_result; end $$;
    create table public.batches (n integer); grant all on public.batches to public;
    alter function memoir._step(text, integer) rename to _step_inside;
    create function memoir._step(p_job text, p_limit integer) returns jsonb language sql as $$ select memoir._hold(memoir._step_inside(p_job, least(p_limit, 2))) $$"""


@pytest.fixture
def folder() -> Iterator[Path]:
    with server_folder() as made:
        as_server_user(PGBIN / "initdb", "-D", made / "data", "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-instructions", "--no-sync")
        yield made


def kill(folder: Path) -> None:
    """The postmaster and its children at once, as a crash of the machine would; none tidies up after another."""
    postmaster = int((folder / "data" / "postmaster.pid").read_text().split()[0])
    os.kill(postmaster, signal.SIGSTOP)                    # no new children from here on
    children = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and _status(int(path.name))[1] == postmaster]
    for pid in [*children, postmaster]:
        os.kill(pid, signal.SIGKILL)
    while any(_status(pid)[0] not in ("", "Z") for pid in [*children, postmaster]):
        time.sleep(0.02)
    # A process that nobody has reaped yet still looks alive to the next postmaster.
    for lock in (folder / "data" / "postmaster.pid", folder / ".s.PGSQL.5432.lock"):
        lock.unlink()
    (folder / "killed").touch()


def _status(pid: int) -> tuple[str, int]:
    """(state, parent) of a process; ("", 0) if there is none."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
        return state, int(parent)
    except OSError:
        return "", 0


def fill(db: psycopg.Connection) -> None:
    db.execute("select memoir.set_setting('tail_items_max', '16')")
    db.execute("select memoir.register_embedding_model('little', 'none', 4)")
    db.execute("select memoir.switch_embedding_model('little')")
    for user in range(6):
        for n in range(10):
            db.execute("select memoir.persist_turn(%s, 's', %s, p_key => %s)", [f"u{user}", Jsonb([{"role": "user", "content": f"I own boat number {n} and paint it on day {n}."},
                       {"role": "assistant", "content": f"Boat {n} it is."}]), f"k{n}"])
        db.execute("select memoir.compile_context(%s, 's', 'Which boat?')", [f"u{user}"])
        for text, vector in (("Hikes in the Alps each summer", "{1,0.1,0,0}"), ("Hikes with Brigida.", "{1,0.3,0,0}"), ("Hiked 40 km around Zermatt", "{1,0,0.3,0}")):
            db.execute("select memoir.remember(%s, %s, p_embedding => %s)", [f"u{user}", text, vector])
    db.execute("update memoir.receipts set recorded_at = recorded_at - interval '30 days' where idempotency_key < 'k5'")
    for user in range(2):
        db.execute("select memoir.remember(%s, 'Bathes in Lake Baikal.')", [f"gone{user}"])
        db.execute("select memoir.erase_user(%s)", [f"gone{user}"])


def facts(db: psycopg.Connection) -> dict[str, object]:
    """What the jobs below must bring about, and what they must leave alone."""
    names = ("turns", "items", "tail", "words", "receipts", "embed jobs", "hygiene", "wholes", "parts", "to erase")
    return dict(zip(names, db.execute("""
        select (select count(*) from memoir.conversation_history), (select sum(items) from memoir.user_counters), (select count(*) from memoir.search_tail),
          (select sum(f) from (select unnest(frequencies) as f from memoir.search_postings union all
                               select coalesce(cardinality(l.positions), 1) from memoir.search_tail t, unnest(t.words) l) w),
          (select count(*) from memoir.receipts), (select count(*) from memoir.jobs where kind = 'embed'),
          (select state #>> '{last,memories}' from memoir.job_cursors where job = 'hygiene'),
          (select count(distinct source_id) from memoir.memory_relationships where relation = 'elaborates'),
          (select count(*) from memoir.memory_relationships where relation = 'elaborates'), (select count(*) from memoir.erase_queue)""").fetchone()))


def finish(db: psycopg.Connection) -> dict[str, object]:
    for job in ("consolidation", "extract", "merge", "sweep", "backfill", "hygiene", "erase", "flush"):
        db.execute("call memoir.run_job(%s)", [job])
        assert db.execute("select outcome, error from memoir.job_runs where job = %s order by run_id desc limit 1", [job]).fetchone() == ("done", None)
    return facts(db)


@pytest.mark.parametrize("job", ["extract", "merge", "sweep", "hygiene", "consolidation", "erase"])
def test_the_server_dies_in_a_job(folder: Path, job: str) -> None:
    settings = {"fsync": "on", "max_locks_per_transaction": "256"}
    with running(folder, **settings) as dsn:
        with connect(dsn) as db:
            db.execute("create database whole")
        whole = dsn.replace("dbname=postgres", "dbname=whole")
        for made in (dsn, whole):
            complete(made)
            with connect(made) as db:
                fill(db)
        with connect(whole) as db:                         # the same without a crash
            expected = finish(db)
            assert (expected["wholes"], expected["parts"], expected["to erase"]) == (6, 18, 0)
        db, runner = connect(dsn), connect(dsn)
        order = ["consolidation", "extract", "merge", "sweep"]
        for before in order[: order.index(job)] if job in order else order[:2]:
            db.execute("call memoir.run_job(%s)", [before])
        db.execute(HOLD)
        db.execute("select pg_advisory_lock(4713)")
        errors: list[str | None] = []
        thread = threading.Thread(target=lambda: errors.append(code(lambda: runner.execute("call memoir.run_job(%s)", [job]))))
        thread.start()
        while db.execute(WAITING).fetchone() == (0,):
            assert thread.is_alive(), errors
        kill(folder)
        thread.join(30)
        assert not thread.is_alive()
    with running(folder, **settings) as dsn, connect(dsn) as db:
        assert db.execute("select count(*) from public.batches").fetchone() == (1,)
        [(outcome, counts)] = db.execute("select outcome, counts from memoir.job_runs where job = %s and finished_at is null", [job]).fetchall()
        assert outcome is None and counts != {}            # the committed batch and its counts, no more
        db.execute("drop function memoir._step(text, integer); alter function memoir._step_inside(text, integer) rename to _step")
        assert finish(db) == expected
        assert db.execute("select outcome from memoir.job_runs where job = %s order by run_id desc offset 1 limit 1", [job]).fetchone() == ("lost",)
        assert db.execute("select count(*) from memoir.job_runs where finished_at is null").fetchone() == (0,)
