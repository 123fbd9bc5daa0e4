"""The worker: it embeds, judges, reads turns and runs jobs from outside, with no transaction open while a model runs. Two workers
do nothing twice, a failure or a kill loses nothing."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from calls import call, messages, one, set_settings, table
from internals import changed_function, end_leases
from parallel import until
from pg_memoir import AsyncMemoir, Memoir, MemoirError
from pg_memoir_cli import worker
from pg_memoir_cli.embedder import EmbedderUnavailable
from pg_memoir_cli.jobs import run_jobs, send_bare
from servers import complete, database
from stubs import ChatCompletionsStub, fake_vector

WORKER = [sys.executable, "-m", "pg_memoir_cli", "worker"]
OPEN = """select count(*) from pg_stat_activity where datname = current_database() and xact_start is not null
    and pid <> pg_backend_pid() and backend_type = 'client backend'"""


def embed(texts):
    return [fake_vector(text) for text in texts]


@pytest.fixture
def memoir(memoir):
    """Without a backlog: tests run in any order, and some leave work."""
    memoir.embed_backlog(embed)
    return memoir


def store(memoir, user, count=3):
    for n in range(count):
        memoir.persist_turn(user, "s1", messages(f"bicycle {n}", f"blue {n}"))


def test_backlog(memoir, memoir_dsn, user):
    store(memoir, user)
    sizes = []

    def watched(texts):
        sizes.append(len(texts))
        with psycopg.connect(memoir_dsn) as connection:
            # Only this look itself may be in a transaction.
            assert one(connection, OPEN) == 0
        return embed(texts)

    assert memoir.embed_backlog(watched, limit=4) == 6 and sizes == [4, 2]
    assert memoir.embed_backlog(watched) == 0
    hits = memoir.recall(user, "bicycle 1", query_embedding=fake_vector("bicycle 1"))
    [hit] = [hit for hit in hits if hit.content == "bicycle 1"]
    assert set(hit.matched_by) >= {"words", "vector"} and hit.vector_score > 0.5


def test_limits_and_errors(memoir, user):
    store(memoir, user)
    users = [user, user + "-2"]
    assert memoir.embed_backlog(embed, max_items=2) == 2
    with pytest.raises(MemoirError, match="embed is None"):
        memoir.embed_backlog()
    # The failed claim's lease is still held, so this one is another user's.
    store(memoir, user + "-2")
    for wrong in ([[0.0] * 384], [[1.0], [1.0]], [[float("nan")] * 384] * 2):
        users.append(f"{user}-{wrong[0][0]}-{len(wrong)}")
        store(memoir, users[-1], count=1)
        with pytest.raises(Exception, match="vectors of lengths|is nan|make vectors|384"):
            memoir.embed_backlog(lambda texts, wrong=wrong: wrong, max_items=2)
    for name in users:  # their leases would end while another test counts
        memoir.erase_user(name)


def test_async_with_both_kinds_of_embedder(memoir_dsn, user):
    async def slow(texts):
        await asyncio.sleep(0.001)
        return embed(texts)

    async def run():
        async with AsyncMemoir(memoir_dsn) as client:
            for function in (slow, embed):
                said = {"role": "user", "content": "one text"}
                await client.persist_turn(f"{user}-{function.__name__}", "s1", [said])
                assert await client.embed_backlog(function) >= 1

    asyncio.run(run())


def outlive_lease(db, kind):
    """Stands for a slow model: its lease is about to end, and is renewed before this returns."""
    leased = f"from _memoir.work_items where kind = '{kind}' and state = 'leased'"
    soon = "leased_until = clock_timestamp() + interval '30 s'"
    db.execute(f"update _memoir.work_items set {soon} where work_id = (select work_id {leased})")
    until(lambda: one(db, f"select leased_until >= clock_timestamp() + interval '290 s' {leased}"))


def test_leases_outlive_a_slow_model(memoir, memoir_dsn, db, user, monkeypatch):
    monkeypatch.setattr("pg_memoir.extras.plans.HEARTBEAT", 0.05)

    def slow(texts):
        outlive_lease(db, "embed")
        return embed(texts)

    store(memoir, user, count=1)
    assert memoir.embed_backlog(slow) == 2

    async def run():
        async with AsyncMemoir(memoir_dsn) as client:
            return await client.embed_backlog(slow)

    store(memoir, user, count=1)
    assert asyncio.run(run()) == 2


def test_a_judge_keeps_its_leases(memoir, db, user, setting, monkeypatch):
    """One who lost the lease stores first: a pair is judged once."""
    monkeypatch.setattr("pg_memoir.extras.plans.HEARTBEAT", 0.05)
    setting("judge", "nli")
    other = memoir.remember(user, "Takes the train to work.", embedding=[1.0] + [0.0] * 383)["memory_id"]
    memory = memoir.remember(user, "Cycles to work every day.", embedding=[0.99, 0.14] + [0.0] * 382)["memory_id"]

    class Slow:
        name = "slow"

        def __call__(self, pairs):
            outlive_lease(db, "nli")
            owner = one(db, "select user_id from _memoir.work_items where kind = 'nli'")
            judged = "select memoir.store_judgements(%s, %s::uuid[], %s::uuid[], '{0.1}', 'other')"
            assert one(db, judged, [owner], [memory], [other]) == 1
            return [0.2 for _ in pairs]

    assert worker.run_judge(memoir, Slow(), once=True) == 0
    assert table(db, "list_judgements", user, columns="judge") == [("other",)]
    assert one(db, "select count(*) from _memoir.work_items where kind = 'nli'") == 0


def test_worker_goes_on_after_failures(memoir, user, caplog):
    memoir.embed_backlog(embed)
    store(memoir, user)
    stop, tries = threading.Event(), []

    def flaky(texts):
        tries.append(len(texts))
        if len(tries) == 1:
            raise EmbedderUnavailable("the model sleeps")
        stop.set()
        return embed(texts)

    thread = threading.Thread(target=worker.run, args=(memoir, flaky), kwargs=dict(interval=0.01, stop=stop, limit=2))
    with caplog.at_level(logging.WARNING):
        thread.start()
        until(lambda: tries)
        store(memoir, user + "-later", count=1)
        thread.join(20)
    stop.set()
    assert not thread.is_alive() and tries and len(tries) == 2 and "the model sleeps" in caplog.text
    with pytest.raises(EmbedderUnavailable):
        store(memoir, user + "-last", count=1)
        worker.run(memoir, lambda texts: (_ for _ in ()).throw(EmbedderUnavailable("gone")), once=True)


def test_worker_process_with_an_endpoint(memoir, memoir_dsn, user):
    store(memoir, user)
    with ChatCompletionsStub() as stub:
        command = [*WORKER, "--dsn", memoir_dsn, "--endpoint", stub.url, "--interval", "0.05"]
        done = subprocess.run([*command, "--once"], capture_output=True, text=True, timeout=60, env=os.environ)
        assert done.returncode == 0, done.stderr
        assert stub.requests and stub.requests[0]["model"] == "all-MiniLM-L6-v2"
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        store(memoir, user + "-more")
        until(lambda: sum("bicycle" in str(r["input"]) for r in stub.requests) >= 2)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)
        assert process.returncode == 0 and "stopped after 6" in said
    hits = memoir.recall(user, "bicycle 2", query_embedding=fake_vector("bicycle 2"), limit=3)
    assert all(hit.vector_score > 0 for hit in hits)


# Jobs from outside ----------------------------------------------------------------------------------------------------


@pytest.fixture
def schedule(db):
    """schedule("* * * * *", jobs...): these then, all others never. The job runs of earlier tests are gone."""
    jobs = [job for (job,) in table(db, "list_jobs", columns="job")]

    def set_all(when, *chosen):
        for job in jobs:
            call(db, "set_schedule", job, when if job in chosen else "off")
        db.execute("delete from _memoir.job_runs")

    yield set_all
    for job in jobs:
        call(db, "set_schedule", job, "default")


@pytest.fixture
def step_flush(db):
    """step_flush(body): what a batch of job flush does instead."""
    head = "create or replace function _memoir.step_flush(p_limit integer) returns jsonb language plpgsql"
    with changed_function(db, "step_flush", lambda old: old):
        yield lambda body: db.execute(f"{head} as $$ {body} $$")


def outcomes_of(memoir):
    return {job.job: job.last_outcome for job in memoir.list_jobs()}


def test_jobs_on_their_schedules(memoir, memoir_dsn, schedule):
    schedule("* * * * *", "merge", "partitions")
    due = {job.job: job.due for job in memoir.list_jobs()}
    assert due["flush"] is None and due["merge"] is not None and run_jobs(memoir_dsn, once=True) >= 1
    after = outcomes_of(memoir)
    assert (after["merge"], after["partitions"], after["sweep"]) == ("done", "done", None)
    # Not again before its next time: the minute may have changed in between, hence "at most".
    assert run_jobs(memoir_dsn, once=True) <= 2


def test_two_workers_run_a_job_once(memoir_dsn, db, schedule):
    schedule("0 0 1 1 *", "hygiene")
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda _: run_jobs(memoir_dsn, once=True), range(3)))
    outcomes = [outcome for (outcome,) in db.execute("select outcome from _memoir.job_runs where job = 'hygiene'")]
    assert "done" in outcomes and set(outcomes) <= {"done", "still running"}


def test_a_failed_job_ends_no_worker(memoir, memoir_dsn, schedule, step_flush, caplog):
    schedule("* * * * *", "flush", "merge")
    step_flush("begin raise 'broken'; end")
    with caplog.at_level(logging.WARNING):
        run_jobs(memoir_dsn, once=True)
    assert "job flush failed" in caplog.text and outcomes_of(memoir)["merge"] == "done"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_worker_ended_in_the_middle_of_a_job(memoir, memoir_dsn, db, schedule, step_flush, how):
    """Its batch is undone, what it had committed stays, and the next run goes on."""
    schedule("* * * * *", "flush")
    command = [*WORKER, "--dsn", memoir_dsn, "--jobs", "--no-embed", "--interval", "0.1"]
    db.execute("create table if not exists public.done (n integer); truncate public.done")
    db.execute("grant all on public.done to public")
    step_flush("""declare n integer := (select count(*) from public.done); begin insert into public.done values (n);
        if n = 3 then perform pg_advisory_xact_lock(4712); end if;
        return jsonb_build_object('more', n < 5, 'rows', 1); end""")
    db.execute("select pg_advisory_lock(4712)")
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    waiting = "select pid from pg_locks where locktype = 'advisory' and not granted and objid = 4712"
    while not (found := db.execute(waiting).fetchone()):
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(how)
    process.communicate(timeout=30)
    assert (process.returncode == 0) == (how == signal.SIGTERM)
    if how == signal.SIGKILL:  # a server looks for a vanished client when it next writes to it
        db.execute("select pg_terminate_backend(%s)", found)
    until(lambda: not db.execute("select 1 from pg_stat_activity where pid = %s", found).fetchone())
    assert one(db, "select count(*) from public.done") == 3
    db.execute("select pg_advisory_unlock_all()")
    run_jobs(memoir_dsn, once=True)
    if outcomes_of(memoir)["flush"] != "done":  # still the same minute
        memoir.run_job("flush")
    assert [n for (n,) in db.execute("select n from public.done order by n")] == [0, 1, 2, 3, 4, 5]
    runs = "select outcome, counts ->> 'rows' from _memoir.job_runs where counts <> '{}' order by run_id"
    ended = "cancelled" if how == signal.SIGTERM else "lost"
    assert db.execute(runs).fetchall() == [(ended, "3"), ("done", "3")]


def test_bare_statements(memoir, db):
    """A worker sends the statements that can't run in a function, such as vacuum."""
    assert memoir.bare_statements() == []
    db.execute("create table _memoir.bloated (n integer) with (autovacuum_enabled = false)")
    db.execute("alter table _memoir.bloated owner to memoir_owner")
    db.execute("insert into _memoir.bloated select generate_series(1, 20001); delete from _memoir.bloated")
    db.execute("select pg_stat_force_next_flush()")
    [row] = until(memoir.bare_statements)
    assert row["statement"] == "vacuum (analyze) _memoir.bloated" and "dead" in row["reason"]
    told = "select count(*) from memoir.health_problems() where problem ~ '1 tables have more than 5 %% dead rows'"
    assert one(db, told) == 1
    send_bare(memoir)
    assert one(db, told) == 0
    assert one(db, "select pg_relation_size('_memoir.bloated')") == 0
    db.execute("drop table _memoir.bloated")


# Turns, on a server without PL/Python ---------------------------------------------------------------------------------


@pytest.fixture
def without_python(server_dsn):
    """(client, connection) of a database with the SQL core alone."""
    with database(server_dsn) as dsn:
        complete(dsn)
        with Memoir(dsn) as memoir, psycopg.connect(dsn, autocommit=True) as db:
            yield memoir, db


def test_turns_are_read_before_they_are_embedded(without_python, caplog):
    """Without PL/Python a worker looks for secrets; until then nothing of the user is embedded or sent to a model."""
    caplog.set_level(logging.INFO)
    memoir, db = without_python
    for text in ("my password is hunter2x", "The harbour is grey", "I pay with 4111 1111 1111 1111"):
        memoir.persist_turn("ann", "s", messages(text))
    set_settings(db, llm_provider="openai", llm_model="gpt-4o-mini")
    db.execute("select _memoir.enqueue('extract', user_id, 'x', '{}') from _memoir.users")
    assert memoir.claim_embeddings(limit=100) == memoir.claim_model_calls(limit=4) == []

    def levels():
        found = "select sensitivity::text from _memoir.search_items where kind = 't' and not dead order by turn_index"
        return [level for (level,) in db.execute(found)]

    assert levels() == ["normal", "normal", "secret"]  # the guard in SQL knows cards, sentences about passwords not
    # The turn after a secret one is indexed anew, without its end, and read again.
    assert worker.run_reader(memoir, once=True) == 3
    assert levels() == ["secret", "normal", "secret"] and "marked 1 turns secret" in caplog.text
    embedded = []
    assert memoir.embed_backlog(lambda texts: (embedded.extend(texts), embed(texts))[1]) == 1
    assert len(embedded) == 1 and "harbour" in embedded[0] and "hunter" not in embedded[0]
    # What comes later waits again, and a lease that ran out changes nothing.
    memoir.persist_turn("ann", "s", messages("The quay is long"))
    assert memoir.claim_embeddings(limit=100) == []
    [claim] = memoir.claim_unread()
    assert "quay" in claim.text and memoir.claim_unread() == []
    end_leases(db)
    [again] = memoir.claim_unread()
    assert memoir.store_secrets(claim.work_id, claim.lease_id, [claim.item_no], ["password"]) == 0
    assert memoir.store_secrets(again.work_id, again.lease_id, [again.item_no], [""]) == 0
    assert levels() == ["secret", "normal", "secret", "normal"] and memoir.embed_backlog(embed) == 1
    with pytest.raises(MemoirError, match="1 items and 2 kinds are not parallel"):
        memoir.store_secrets(again.work_id, again.lease_id, [1], ["", ""])


def test_a_worker_reads_turns(without_python):
    """Memories, changes and requests to forget are found by the worker; the server itself says that it can't."""
    memoir, db = without_python

    def active(session, text):
        memoir.persist_turn("ann", session, messages(text))
        worker.run_reader(memoir, once=True)
        return {memory.content for memory in memoir.list_memories("ann")}

    found = active("one", "I am allergic to nuts and cats, and I live in Ulm.")
    assert {"User is allergic to nuts and cats.", "User lives in Ulm."} <= found
    found = active("two", "It turned out I am not allergic to cats.")
    assert "User is allergic to nuts." in found and "User is allergic to nuts and cats." not in found
    assert [change.kind for change in memoir.list_changes("ann")] == ["changed"]
    assert not any("Ulm" in content for content in active("three", "Please forget where I live."))
    assert memoir.claim_turns() == []
    # An answer that comes too late changes nothing.
    memoir.persist_turn("ann", "four", messages("I work in Bern."))
    [claim] = memoir.claim_turns()
    end_leases(db)
    [again] = memoir.claim_turns()
    reading = {"languages": ["english"], "found": [], "requests": [], "stating": []}
    assert memoir.store_turns(claim.work_id, claim.lease_id, reading, None) is None
    assert memoir.store_turns(again.work_id, again.lease_id, reading, None) == {"turns": 1}
    memoir.persist_turn("ann", "five", messages("I work in Bern."))
    with pytest.raises(MemoirError, match="reading turns needs PL/Python"):
        memoir.extract_session("ann", "five")
    with pytest.raises(MemoirError, match="forget_about needs PL/Python"):
        memoir.forget_about("ann", "Bern")
