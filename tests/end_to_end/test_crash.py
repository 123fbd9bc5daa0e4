"""The whole server killed in the middle of every job, workers in the middle of everything they claim: nothing is lost, doubled or stuck."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from agents import Agent
from calls import one, remember, run_job, say, set_settings, table, use_vectors
from catalog import differences
from internals import count_all_rows
from parallel import until
from pg_memoir import Memoir
from pg_memoir_cli import worker
from pipeline import HIKES
from routines import code
from servers import PGBIN, ROOT, add_python, complete, connect, environment_of, make_cluster, running, server_folder
from stubs import Answer, ChatCompletionsStub, fake_vector

# In the order in which they run without a crash. Each is killed in a batch after its work and before its commit.
JOBS = (
    "scan flush extract consolidation merge promotion demotion expiry compaction summaries profiles archive partitions"
    " backfill sweep hygiene renditions phases erase"
).split()
BATCH = dict.fromkeys(JOBS, 2) | {"extract": 4}  # its first ones lease a session and read half of it
# These loop in Python and claim what they work on, as a worker outside does: test_a_killed_worker.
CLAIMING = {"embed", "model"}
WRITES_NO_TABLE = {"embedder"}
WAITING = "select count(*) from pg_locks l join pg_database d on d.oid = l.database where d.datname = current_database() and locktype = 'advisory' and not granted and objid = 4713"
HOLD = """
    create function _memoir.hold(p_result jsonb) returns jsonb language plpgsql as $$ begin
      insert into public.batches values (1);
      if (select count(*) = {batch} from public.batches) then perform set_config('lock_timeout', '0', true), pg_advisory_xact_lock(4713); end if;
      return p_result; end $$;
    create table public.batches (n integer); grant all on public.batches to public;
    alter function _memoir.step(text, integer) rename to step_inside;
    create function _memoir.step(p_job text, p_limit integer) returns jsonb language sql as $$ select _memoir.hold(_memoir.step_inside(p_job, least(p_limit, 2))) $$"""
RELEASE = "drop function _memoir.step(text, integer); alter function _memoir.step_inside(text, integer) rename to step"
OUTCOMES = "select array_agg(outcome order by run_id) from _memoir.job_runs where job = %s"
FLUSHED = """
    select (select count(*) from _memoir.compile_ledger),
      (select sum(access_count) from _memoir.memory_stats) - 20 * 6 = (select sum(n) from (
        select count(distinct i.ref_id) as n from _memoir.compile_ledger l, unnest(l.items, l.positions) x(item, position)
        join _memoir.search_items i on i.item_no = x.item and i.kind = 'm'
        where i.user_id = l.user_id and x.position is not null group by l.compile_id) s where n > 0)"""
NOW, LONG_AGO = "2026-03-10T12:00:00Z", "2026-01-10T12:00:00Z"


@pytest.fixture
def folder() -> Iterator[Path]:
    with server_folder() as made:
        make_cluster(made)
        yield made


def kill(folder: Path, spared: int | None = None) -> None:
    """Kills the postmaster and its children at once, as a crash of the machine would; none tidies up after another. With
    `spared` the postmaster is killed alone. Its children then go by themselves, but for that one, which computes."""
    postmaster = int((folder / "data" / "postmaster.pid").read_text().split()[0])
    os.kill(postmaster, signal.SIGSTOP)  # no new children from here on
    processes = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    children = [pid for pid in processes if _status(pid)[1] == postmaster and pid != spared]
    for pid in [postmaster, *([] if spared else children)]:
        os.kill(pid, signal.SIGKILL)
    gone(postmaster, *children)
    # A process that nobody has reaped yet still looks alive to the next postmaster.
    for lock in (folder / "data" / "postmaster.pid", folder / ".s.PGSQL.5432.lock"):
        lock.unlink()
    (folder / "killed").touch()


def gone(*processes: int) -> None:
    """Waits for the end of processes."""
    until(lambda: all(_status(pid)[0] in ("", "Z") for pid in processes))


def _status(pid: int) -> tuple[str, int]:
    """(state, parent) of a process; ("", 0) if there is none."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
        return state, int(parent)
    except OSError:
        return "", 0


def fill(db: psycopg.Connection) -> None:
    """Work for every job, at least three batches of two."""
    set_settings(db, tail_items_max=16, compaction_tokens=256, history_days=30, partition_months_ahead=5)
    set_settings(db, archive_destination="drop")
    use_vectors(db)
    db.execute("select memoir.register_model('small', 'openai', 1000, 200)")
    users = [f"u{user}" for user in range(6)]
    db.execute("select memoir.set_clock(%s)", [LONG_AGO])
    for user in users:
        say(db, user, "old", "The garden shed is green.")
        db.execute("select memoir.close_session(%s, 'old')", [user])
    db.execute("select memoir.set_clock(%s)", [NOW])
    for user in users:
        output = "\n".join(f"{n} of many lines of a long output" for n in range(2000))
        Agent(db, user, "agent").calls("Bash", {"command": "make"}, output)
        db.execute("select memoir.open_session(%s, 's', 'small')", [user])
        for n in range(10):
            dry = f"Boat {n} it is: the brush is dry, so the second coat can wait until the evening, or the day after."
            say(db, user, "s", f"I own boat number {n} and paint it on day {n}.", answer=dry, key=f"k{n}")
        for text, vector in HIKES.items():
            remember(db, user, text, embedding=vector)
        by_agent: dict[str, Any] = {"session": "s", "actor": "agent"}
        remember(db, user, "Owns boat number 3", provenance="user_stated", source_turns=[6], **by_agent)
        for text in ("Seems to be idle", "Fades away"):
            remember(db, user, text, **by_agent)
        db.execute("select memoir.compile_context(%s, 'q', 'Who hikes in the Alps each summer?')", [user])
    db.execute("""
        update _memoir.memory_stats s set access_count = 20, relevance_sum = 18 from _memoir.memory_store m
          where m.memory_id = s.memory_id and m.content like 'Owns%';
        select _memoir.enqueue('promote', user_id, '') from _memoir.users;
        update _memoir.memory_store set recorded_at = recorded_at - interval '100 days' where content like 'Seems%';
        update _memoir.memory_store set expires_at = recorded_at where content like 'Fades%';
        update _memoir.receipts set recorded_at = recorded_at - interval '30 days' where idempotency_key < 'k5'""")
    for user in ("gone0", "gone1"):
        remember(db, user, "Bathes in Lake Baikal.")
        db.execute("select memoir.erase_user(%s)", [user])
    db.execute("delete from _memoir.work_items where kind = 'embed'")
    db.execute("update _memoir.work_items set run_after = created_at - interval '1 hour' where kind = 'phases'")


def facts(db: psycopg.Connection) -> dict[str, Any]:
    """What there is, in all tables, and what it says; not what is lost in any crash (unlogged tables), nor the runs themselves."""
    lost = "job_runs compile_buffer user_locks kept_recalls query_answers memory_store_working".split()
    found: dict[str, Any] = {name: count for name, count in count_all_rows(db).items() if name not in lost}
    names = ("memories", "accesses", "words", "compacted", "cursors", "leaves", "profile")
    values = db.execute("""
        select (select array_agg((u.external_id, m.content, m.state, m.tier)::text order by u.external_id, m.content, m.state) from _memoir.memory_store m join _memoir.users u using (user_id)),
          (select sum(access_count) from _memoir.memory_stats),
          (select sum(f) from (select unnest(postings) & 255 as f from _memoir.search_postings union all
                               select p & 255 from _memoir.search_tail t, unnest(t.words) l, unnest(l.positions) p) w),
          (select array_agg((level, from_turn, to_turn)::text order by level, from_turn, to_turn) from _memoir.compactions),
          (select array_agg((job, after_user, state - 'at')::text order by job) from _memoir.job_cursors),
          (select count(*) from pg_class where relnamespace = '_memoir'::regnamespace and relispartition and relkind = 'r'),
          (select array_agg(content order by content) from _memoir.profiles)""").fetchone()
    return found | dict(zip(names, values or (), strict=True))


@pytest.mark.acceptance
def test_the_server_dies_in_every_job_at_once(folder: Path, private_dsn: str) -> None:
    """Each job in a database of its own, as all jobs before it have left it; all held in the middle of a batch, then kill -9."""
    expected: dict[str, dict[str, Any]] = {}
    settings = {"max_locks_per_transaction": "256", "max_connections": "100"}
    environment = environment_of(private_dsn)  # extract needs the Python package
    with running(folder, environment, **settings) as server, ExitStack() as open_ones:
        named = lambda name: server.replace("dbname=postgres", f"dbname={name}")  # noqa: E731
        admin = open_ones.enter_context(connect(server))
        admin.execute("create database whole")
        complete(named("whole"))
        add_python(named("whole"))
        with connect(named("whole")) as db:
            fill(db)
            jobs = {job for (job,) in db.execute("select job from _memoir.job_list()")}
            assert jobs == {*JOBS} | CLAIMING | WRITES_NO_TABLE, "a job without a crash test"
        before: dict[str, Any] = {}
        for job in JOBS:
            if job == "backfill":  # the jobs before it have asked for vectors of what they made
                with connect(named("whole")) as db:
                    db.execute("delete from _memoir.work_items where kind = 'embed'")
                    before = facts(db)
            admin.execute(f"create database in_{job} template whole strategy file_copy")
            with connect(named("whole")) as db:
                run_job(db, job)
                expected[job] = facts(db)
                assert expected[job] != before, f"{job} has nothing to do"
                before = expected[job]
        errors: dict[str, str | None] = {}
        threads = []
        for job in JOBS:
            db, runner = (open_ones.enter_context(connect(named(f"in_{job}"))) for _ in range(2))
            db.execute(HOLD.format(batch=BATCH[job]))
            db.execute("select pg_advisory_lock(4713)")

            def run(job: str = job, runner: psycopg.Connection = runner) -> None:
                errors[job] = code(lambda: runner.execute("call memoir.run_job(%s)", [job]))

            thread = threading.Thread(target=run)
            thread.start()
            while db.execute(WAITING).fetchone() == (0,):
                assert thread.is_alive(), (job, errors)
            db.execute("call memoir.run_job(%s, p_wait => 0)", [job])  # a second runner says so and leaves
            assert one(db, OUTCOMES, job)[-2:] == [None, "still running"], job
            threads.append(thread)
        kill(folder)
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
    with running(folder, environment, **settings) as server:
        for job in JOBS:
            with connect(server.replace("dbname=postgres", f"dbname=in_{job}")) as db:
                assert db.execute("select count(*) from public.batches").fetchone() == (BATCH[job] - 1,), job
                begun = "select outcome, counts from _memoir.job_runs where job = %s and finished_at is null"
                [(outcome, counts)] = db.execute(begun, [job]).fetchall()
                assert outcome is None and counts != {}, job  # the counts of the committed batch
                db.execute(RELEASE)
                if job == "extract":  # it reports the session that it was at, which waits for its next attempt
                    db.execute("call memoir.run_job('extract')")
                    db.execute("update _memoir.work_items set run_after = created_at where kind = 'turns'")
                run_job(db, job)
                if job == "flush":
                    # What was committed is counted once, what was not is lost as it may be.
                    assert db.execute(FLUSHED).fetchone() == (2, True)
                else:
                    assert not differences(expected[job], facts(db)), job
                ended = ["lost", "still running", *(["errors"] if job == "extract" else []), "done"]
                assert one(db, OUTCOMES, job) == ended, job
                assert db.execute("select count(*) from _memoir.job_runs where finished_at is null").fetchone() == (0,)


# The postmaster alone is killed ---------------------------------------------------------------------------------------


@contextmanager
def in_background(db: psycopg.Connection, dsn: str, statement: str) -> Iterator[int]:
    """The backend that is at a statement which does not end."""
    with subprocess.Popen([PGBIN / "psql", "-X", "-c", statement, dsn], stderr=subprocess.PIPE) as client:
        at_it = "select pid from pg_stat_activity where state = 'active' and query = %s"
        while not (found := db.execute(at_it, [statement]).fetchone()):
            assert client.poll() is None, client.stderr and client.stderr.read()
        try:
            yield int(found[0])
        finally:
            client.kill()
            # Whatever the test came to: nothing ends what computes for ever once its postmaster is gone.
            if _status(int(found[0]))[0] not in ("", "Z"):
                os.kill(int(found[0]), signal.SIGKILL)


@pytest.mark.acceptance
def test_the_server_starts_again_beside_a_backend_that_computes(folder: Path) -> None:
    orphans = [ROOT / "scripts/end_orphans.sh", folder / "data"]
    with running(folder) as server:
        loop = "do $$ begin loop perform 1; end loop; end $$"
        with connect(server) as db, in_background(db, server, loop) as backend:
            kill(folder, backend)
            assert _status(backend)[0] == "R", "it should know nothing yet"
            used = pytest.raises(AssertionError, match="pre-existing shared memory block .* is still in use")
            with used, running(folder):
                pass
            begun = time.monotonic()
            done = subprocess.run(orphans, capture_output=True, text=True)
            assert done.returncode == 0 and str(backend) in done.stderr, done.stderr
            assert time.monotonic() - begun < 10
    with running(folder) as server, connect(server) as db:
        # A server that lives is let be, whoever asks.
        done = subprocess.run(orphans, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "") and db.execute("select 1").fetchone() == (1,)


@pytest.mark.acceptance
def test_a_job_notices_that_the_postmaster_is_gone(folder: Path) -> None:
    """Between two batches, however many there are."""
    with running(folder, max_locks_per_transaction="256") as server:
        complete(server)
        with connect(server) as db:
            db.execute("""create or replace function _memoir.step(p_job text, p_limit integer) returns jsonb language sql
                as $$ select '{"more": true}'::jsonb from generate_series(1, 1000) limit 1 $$""")
            with in_background(db, server, "call memoir.run_job('sweep')") as backend:
                kill(folder, backend)
                gone(backend)


# Workers outside ------------------------------------------------------------------------------------------------------

STUCK = """
import sys, time
from pg_memoir import Memoir
from pg_memoir_cli import worker
def stuck(texts):
    print("at it", flush=True)
    time.sleep(600)
class Judge:
    name = "stuck"
    __call__ = staticmethod(stuck)
with Memoir(sys.argv[2]) as memoir:
    {"embed": lambda: worker.run(memoir, stuck, once=True), "nli": lambda: worker.run_judge(memoir, Judge(), once=True),
     "summarise": lambda: worker.run_models(memoir, once=True)}[sys.argv[1]]()
"""


class Compatible:
    name = "compatible"

    def __call__(self, pairs: Any) -> list[float]:
        return [0.1 for _ in pairs]


@pytest.mark.parametrize("kind", ["embed", "nli", "summarise"])
def test_a_killed_worker(memoir_dsn: str, db, user: str, setting: Any, monkeypatch, kind: str) -> None:
    """It dies at its model; once its lease is over, another does the work, once."""
    monkeypatch.setenv("PG_MEMOIR_LLM_API_KEY", "sk-x")
    summary = Answer(text='{"summary": "- user: rode a bicycle"}', prompt_tokens=500, completion_tokens=20)
    with Memoir(memoir_dsn) as memoir, ChatCompletionsStub(Answer(delay=600), summary) as stub:
        db.execute("delete from _memoir.work_items")
        if kind == "nli":
            setting("judge", "nli")
            memoir.remember(user, "Takes the train to work.", embedding=[1.0] + [0.0] * 383)
            memoir.remember(user, "Cycles to work every day.", embedding=[0.99, 0.14] + [0.0] * 382)
        else:
            for n in range(12):
                say(db, user, "s", f"In week {n} I rode the bicycle to place {n}. " * 8, answer="Noted. " * 20)
        if kind == "summarise":
            calls = {"provider": "openai", "model": "gpt-4o-mini", "endpoint": stub.url, "retries": 0}
            for key, value in calls.items():
                setting(f"llm_{key}", value)
            db.execute("select memoir.compact_session(%s, 's', 300)", [user])
            db.execute("delete from _memoir.work_items where kind not in ('summarise')")
        process = subprocess.Popen([sys.executable, "-c", STUCK, kind, memoir_dsn], stdout=subprocess.PIPE, text=True)
        if kind == "summarise":
            until(lambda: stub.requests)
        else:
            assert process.stdout and process.stdout.readline() == "at it\n"
        process.kill()
        process.communicate(timeout=30)
        leased = "from _memoir.work_items where kind = %s and state = 'leased'"
        claimed = one(db, f"select count(*) {leased}", kind)
        work: Callable[[], int] = {
            "embed": lambda: memoir.embed_backlog(lambda texts: [fake_vector(text) for text in texts]),
            "nli": lambda: worker.run_judge(memoir, Compatible(), once=True),
            "summarise": lambda: worker.run_models(memoir, once=True),
        }[kind]
        assert claimed >= 1 and work() == 0  # nobody else has it before its time is over
        over = "update _memoir.work_items set leased_until = clock_timestamp() - interval '1 s'"
        db.execute(f"{over} where work_id in (select work_id {leased})", [kind])
        assert work() >= claimed
        assert one(db, "select count(*) from _memoir.work_items where kind = %s", kind) == 0
        if kind == "embed":
            hits = memoir.recall(user, "bicycle", query_embedding=fake_vector("bicycle"))
            assert hits and all(hit.vector_score for hit in hits)
        elif kind == "nli":
            assert table(db, "list_judgements", user, columns="judge") == [("compatible",)]
        else:
            made = "select count(*), count(distinct (session_id, from_turn, to_turn)) from _memoir.compactions"
            made += " where made_by = 'gpt-4o-mini summarise.v1'"
            assert db.execute(made).fetchone() == (claimed, claimed)
