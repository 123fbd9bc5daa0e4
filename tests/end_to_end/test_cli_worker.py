"""Embedding from outside: claim → embed → store, nothing open while the model runs."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
import time

import psycopg
import pytest
from pg_memoir import AsyncMemoir, Memoir, MemoirError
from pg_memoir_cli import worker
from pg_memoir_cli.embedder import EmbedderUnavailable
from pg_memoir_cli.jobs import run_jobs, send_bare
from servers import complete, database
from stubs import ChatCompletionsStub
from stubs.chat_completions import fake_vector


def embed(texts):
    return [fake_vector(text) for text in texts]


@pytest.fixture(scope="module")
def client(memoir_dsn):
    with Memoir(memoir_dsn) as client:
        yield client


@pytest.fixture
def memoir(client):
    """Without a backlog: tests run in any order, and some leave work."""
    client.embed_backlog(embed)
    return client


def store(memoir, user, count=3):
    for number in range(count):
        memoir.persist_turn(
            user,
            "s1",
            [{"role": "user", "content": f"bicycle {number}"}, {"role": "assistant", "content": f"blue {number}"}],
        )


def test_backlog(memoir, memoir_dsn, user):
    store(memoir, user)
    sizes = []

    def watched(texts):
        sizes.append(len(texts))
        with psycopg.connect(memoir_dsn) as connection:
            # Only this look itself may be in a transaction.
            open_now = connection.execute(
                "select count(*) from pg_stat_activity where datname = current_database() and xact_start is not null and pid <> pg_backend_pid() "
                "and backend_type = 'client backend'"
            ).fetchone()
        assert open_now == (0,)
        return embed(texts)

    assert memoir.embed_backlog(watched, limit=4) == 6
    assert sizes == [4, 2]
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
    for one in users:  # their leases would end while another test counts
        memoir.erase_user(one)


def test_async_with_both_kinds_of_embedder(memoir_dsn, user):
    async def slow(texts):
        await asyncio.sleep(0.001)
        return embed(texts)

    async def run():
        async with AsyncMemoir(memoir_dsn) as client:
            counts = []
            for function in (slow, embed):
                await client.persist_turn(
                    f"{user}-{function.__name__}", "s1", [{"role": "user", "content": "one text"}]
                )
                counts.append(await client.embed_backlog(function))
            return counts

    assert all(count >= 1 for count in asyncio.run(run()))


def test_leases_outlive_a_slow_model(memoir, memoir_dsn, user, monkeypatch):
    monkeypatch.setattr("pg_memoir.plans.HEARTBEAT", 0.05)
    store(memoir, user, count=1)

    def slow(texts):
        """Busy until its lease, which is about to end, has been renewed."""
        with psycopg.connect(memoir_dsn, autocommit=True) as connection:
            ours = f"kind = 'embed' and state = 'leased' and user_id = (select user_id from _memoir.users where external_id = '{user}')"
            assert (
                connection.execute(
                    f"update _memoir.work_items set leased_until = clock_timestamp() + interval '30 s' where {ours}"
                ).rowcount
                == 1
            )
            deadline = time.monotonic() + 20
            while connection.execute(
                f"select leased_until < clock_timestamp() + interval '290 s' from _memoir.work_items where {ours}"
            ).fetchone()[0]:
                assert time.monotonic() < deadline
        return embed(texts)

    assert memoir.embed_backlog(slow) == 2

    async def run():
        async with AsyncMemoir(memoir_dsn) as client:
            return await client.embed_backlog(slow)

    store(memoir, user, count=1)
    assert asyncio.run(run()) == 2


def test_a_judge_keeps_its_leases(memoir, memoir_dsn, user, monkeypatch):
    monkeypatch.setattr("pg_memoir.plans.HEARTBEAT", 0.05)
    memoir.set_setting("judge", "nli")
    try:
        near, close = [1.0] + [0.0] * 383, [0.99, 0.14] + [0.0] * 382
        memoir.remember(user, "Takes the train to work.", embedding=near)
        memoir.remember(user, "Cycles to work every day.", embedding=close)
        with psycopg.connect(memoir_dsn, autocommit=True) as connection:

            class Slow:
                name = "slow"

                def __call__(self, pairs):
                    [(job, lease)] = connection.execute(
                        "select work_id, lease_id from _memoir.work_items where kind = 'nli' and state = 'leased'"
                    ).fetchall()
                    connection.execute(
                        "update _memoir.work_items set leased_until = clock_timestamp() + interval '30 s' where work_id = %s",
                        [job],
                    )
                    deadline = time.monotonic() + 20
                    while connection.execute(
                        "select leased_until < clock_timestamp() + interval '290 s' from _memoir.work_items where work_id = %s",
                        [job],
                    ).fetchone()[0]:
                        assert time.monotonic() < deadline
                    # One who lost the lease stores first: a pair is judged once.
                    [(owner, memory)] = connection.execute(
                        "select user_id, dedup_key::uuid from _memoir.work_items where work_id = %s", [job]
                    ).fetchall()
                    [other] = connection.execute(
                        "select (payload -> 'others' ->> 0)::uuid from _memoir.work_items where work_id = %s", [job]
                    ).fetchone()
                    assert connection.execute(
                        "select memoir.store_judgements(%s, %s, %s, '{0.1}', 'other')", [[owner], [memory], [other]]
                    ).fetchone() == (1,)
                    return [0.2 for _ in pairs]

            assert worker.run_judge(memoir, Slow(), once=True) == 0
            assert [row[0] for row in connection.execute("select judge from memoir.list_judgements(%s)", [user])] == [
                "other"
            ]
            assert connection.execute("select count(*) from _memoir.work_items where kind = 'nli'").fetchone() == (0,)
    finally:
        memoir.reset_setting("judge")


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
        deadline = time.monotonic() + 10
        while not tries and time.monotonic() < deadline:
            time.sleep(0.01)
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
        command = [
            sys.executable,
            "-m",
            "pg_memoir_cli",
            "worker",
            "--dsn",
            memoir_dsn,
            "--endpoint",
            stub.url,
            "--interval",
            "0.05",
        ]
        done = subprocess.run([*command, "--once"], capture_output=True, text=True, timeout=60, env=os.environ)
        assert done.returncode == 0, done.stderr
        assert stub.requests and stub.requests[0]["model"] == "all-MiniLM-L6-v2"
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        store(memoir, user + "-more")
        deadline = time.monotonic() + 30
        while sum("bicycle" in str(r["input"]) for r in stub.requests) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)
        assert process.returncode == 0 and "stopped after 6" in said
    assert all(
        hit.vector_score > 0
        for hit in memoir.recall(user, "bicycle 2", query_embedding=fake_vector("bicycle 2"), limit=3)
    )


# Jobs from outside ----------------------------------------------------------------------------------------------------


def schedule(dsn, job, when):
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute("select memoir.set_schedule(%s, %s)", [job, when])


def jobs_of(memoir):
    return {job.job: job for job in memoir.list_jobs()}


def test_jobs_on_their_schedules(memoir, memoir_dsn):
    for job in jobs_of(memoir).values():
        schedule(memoir_dsn, job.job, "* * * * *" if job.job in ("merge", "partitions") else "off")
    before = jobs_of(memoir)
    assert before["flush"].due is None and before["merge"].due is not None
    first = run_jobs(memoir_dsn, once=True)
    after = jobs_of(memoir)
    assert (
        first >= 1
        and after["merge"].last_outcome == after["partitions"].last_outcome == "done"
        and after["sweep"].last_started is None
    )
    # Not again before its next time: the minute may have changed in between, hence "at most".
    assert run_jobs(memoir_dsn, once=True) <= 2
    for job in before:
        schedule(memoir_dsn, job, "default")


def test_two_workers_run_a_job_once(memoir, memoir_dsn):
    for job in jobs_of(memoir):
        schedule(memoir_dsn, job, "0 0 1 1 *" if job == "hygiene" else "off")
    with psycopg.connect(memoir_dsn, autocommit=True) as db:
        db.execute("delete from _memoir.job_runs")
        threads = [threading.Thread(target=run_jobs, args=[memoir_dsn], kwargs={"once": True}) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        outcomes = [row[0] for row in db.execute("select outcome from _memoir.job_runs where job = 'hygiene'")]
    assert "done" in outcomes and set(outcomes) <= {"done", "still running"}
    for job in jobs_of(memoir):
        schedule(memoir_dsn, job, "default")


def test_a_failed_job_ends_no_worker(memoir, memoir_dsn, caplog):
    for job in jobs_of(memoir):
        schedule(memoir_dsn, job, "* * * * *" if job in ("flush", "merge") else "off")
    with psycopg.connect(memoir_dsn, autocommit=True) as db:
        db.execute("delete from _memoir.job_runs")
        old = db.execute("select pg_get_functiondef('_memoir.step_flush(integer)'::regprocedure)").fetchone()[0]
        db.execute(
            "create or replace function _memoir.step_flush(p_limit integer) returns jsonb language plpgsql as $$ begin raise 'broken'; end $$"
        )
        with caplog.at_level(logging.WARNING):
            run_jobs(memoir_dsn, once=True)
        db.execute(old)
    assert "job flush failed" in caplog.text and jobs_of(memoir)["merge"].last_outcome == "done"
    for job in jobs_of(memoir):
        schedule(memoir_dsn, job, "default")


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_worker_ended_in_the_middle_of_a_job(memoir, memoir_dsn, how):
    """Its batch is undone, what it had committed stays, and the next run goes on."""
    for job in jobs_of(memoir):
        schedule(memoir_dsn, job, "* * * * *" if job == "flush" else "off")
    command = [
        sys.executable,
        "-m",
        "pg_memoir_cli",
        "worker",
        "--dsn",
        memoir_dsn,
        "--jobs",
        "--no-embed",
        "--interval",
        "0.1",
    ]
    with psycopg.connect(memoir_dsn, autocommit=True) as db:
        db.execute("delete from _memoir.job_runs")
        db.execute(
            "create table if not exists public.done (n integer); truncate public.done; grant all on public.done to public"
        )
        old = db.execute("select pg_get_functiondef('_memoir.step_flush(integer)'::regprocedure)").fetchone()[0]
        db.execute(
            "create or replace function _memoir.step_flush(p_limit integer) returns jsonb language plpgsql as $$ declare n integer := (select count(*) from public.done); "
            "begin insert into public.done values (n); if n = 3 then perform pg_advisory_xact_lock(4712); end if; "
            "return jsonb_build_object('more', n < 5, 'rows', 1); end $$"
        )
        db.execute("select pg_advisory_lock(4712)")
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        while not db.execute(
            "select 1 from pg_locks where locktype = 'advisory' and not granted and objid = 4712"
        ).fetchone():
            assert process.poll() is None, process.communicate()
            assert db.execute("select count(*) from _memoir.job_runs where outcome is not null").fetchone() == (0,)
            time.sleep(0.02)
        [backend] = db.execute(
            "select pid from pg_locks where locktype = 'advisory' and not granted and objid = 4712"
        ).fetchone()
        process.send_signal(how)
        process.communicate(timeout=30)
        assert (process.returncode == 0) == (how == signal.SIGTERM)
        if how == signal.SIGKILL:  # a server looks for a vanished client when it next writes to it
            db.execute("select pg_terminate_backend(%s)", [backend])
        while db.execute("select 1 from pg_stat_activity where pid = %s", [backend]).fetchone():
            time.sleep(0.02)
        assert db.execute("select count(*) from public.done").fetchone() == (3,)
        db.execute("select pg_advisory_unlock_all()")
        run_jobs(memoir_dsn, once=True)
        if jobs_of(memoir)["flush"].last_outcome != "done":  # still the same minute
            memoir.run_job("flush")
        assert [row[0] for row in db.execute("select n from public.done order by n")] == [0, 1, 2, 3, 4, 5]
        outcomes = db.execute(
            "select outcome, counts ->> 'rows' from _memoir.job_runs where counts <> '{}' order by run_id"
        ).fetchall()
        assert outcomes == [("cancelled" if how == signal.SIGTERM else "lost", "3"), ("done", "3")]
        db.execute(old)
    for job in jobs_of(memoir):
        schedule(memoir_dsn, job, "default")


def test_bare_statements(memoir, memoir_dsn):
    assert memoir.bare_statements() == []
    with psycopg.connect(memoir_dsn, autocommit=True) as db:
        db.execute(
            "create table _memoir.bloated (n integer) with (autovacuum_enabled = false); alter table _memoir.bloated owner to memoir_owner"
        )
        db.execute("insert into _memoir.bloated select generate_series(1, 20001); delete from _memoir.bloated")
        db.execute("select pg_stat_force_next_flush()")
    statements = []
    deadline = time.monotonic() + 30
    while not statements and time.monotonic() < deadline:
        statements = memoir.bare_statements()
    assert [row["statement"] for row in statements] == ["vacuum (analyze) _memoir.bloated"] and "dead" in statements[0][
        "reason"
    ]
    send_bare(memoir)
    with psycopg.connect(memoir_dsn, autocommit=True) as db:
        assert db.execute("select pg_relation_size('_memoir.bloated')").fetchone() == (0,)
        db.execute("drop table _memoir.bloated")


def test_model_calls_from_outside(memoir, memoir_dsn, user, monkeypatch):
    from stubs import Answer

    monkeypatch.setenv("PG_MEMOIR_LLM_API_KEY", "sk-x")
    with ChatCompletionsStub(
        Answer(text='{"summary": "- user: rode a bicycle"}', prompt_tokens=500, completion_tokens=20)
    ) as stub:
        for key, value in {"provider": "openai", "model": "gpt-4o-mini", "endpoint": stub.url, "retries": 0}.items():
            memoir.set_setting(f"llm_{key}", value)
        for n in range(20):
            memoir.persist_turn(
                user,
                "s1",
                [
                    {"role": "user", "content": f"In week {n} I rode the bicycle to place {n}. " * 8},
                    {"role": "assistant", "content": "Noted. " * 20},
                ],
            )
        with psycopg.connect(memoir_dsn, autocommit=True) as db:
            db.execute("select memoir.compact_session(%s, 's1', 300)", [user])
            waiting = db.execute("select count(*) from _memoir.work_items where kind = 'summarise'").fetchone()[0]
        assert waiting >= 1 and worker.run_models(memoir, once=True) == waiting == len(stub.requests)
        with psycopg.connect(memoir_dsn, autocommit=True) as db:
            assert db.execute(
                "select count(*) from _memoir.compactions where made_by = 'gpt-4o-mini summarise.v1'"
            ).fetchone() == (waiting,)
            assert db.execute("select count(*) from _memoir.work_items where kind = 'summarise'").fetchone() == (0,)
        for key in ("provider", "model", "endpoint", "retries"):
            memoir.reset_setting(f"llm_{key}")


def test_turns_are_read_before_they_are_embedded(server_dsn, monkeypatch, caplog):
    """Without PL/Python a worker looks for secrets; until then nothing of the user is embedded or sent to a model."""
    caplog.set_level(logging.INFO)
    with database(server_dsn) as dsn:
        complete(dsn)
        with Memoir(dsn) as memoir, psycopg.connect(dsn, autocommit=True) as db:
            memoir.persist_turn("ann", "s", [{"role": "user", "content": "my password is hunter2x"}])
            memoir.persist_turn("ann", "s", [{"role": "user", "content": "The harbour is grey"}])
            memoir.persist_turn("ann", "s", [{"role": "user", "content": "I pay with 4111 1111 1111 1111"}])
            db.execute("select memoir.set_setting('llm_provider', '\"openai\"')")
            db.execute("select memoir.set_setting('llm_model', '\"gpt-4o-mini\"')")
            db.execute(
                "insert into _memoir.work_items (kind, user_id, dedup_key, payload, run_after, created_at) "
                "select 'extract', user_id, 'x', '{}', now(), now() from _memoir.users"
            )
            assert memoir.claim_embeddings(limit=100) == []
            assert memoir.claim_model_calls(limit=4) == []
            # The guard in SQL knows cards at once, sentences about passwords not.
            level = (
                "select sensitivity::text from _memoir.search_items where kind = 't' and not dead order by turn_index"
            )
            assert [row[0] for row in db.execute(level)] == ["normal", "normal", "secret"]
            # The turn after a secret one is indexed anew, without its end, and read again.
            assert worker.run_reader(memoir, once=True) == 3
            assert [row[0] for row in db.execute(level)] == ["secret", "normal", "secret"]
            assert "marked 1 turns secret" in caplog.text
            embedded = []
            assert memoir.embed_backlog(lambda texts: (embedded.extend(texts), embed(texts))[1]) == 1
            assert len(embedded) == 1 and "harbour" in embedded[0] and "hunter" not in embedded[0]
            # What comes later waits again, and a lease that ran out changes nothing.
            memoir.persist_turn("ann", "s", [{"role": "user", "content": "The quay is long"}])
            assert memoir.claim_embeddings(limit=100) == []
            [claim] = memoir.claim_unread()
            assert "quay" in claim.text and memoir.claim_unread() == []
            db.execute(
                "update _memoir.work_items set leased_until = now() - interval '1 second' where kind = 'secrets'"
            )
            [again] = memoir.claim_unread()
            assert memoir.store_secrets(claim.work_id, claim.lease_id, [claim.item_no], ["password"]) == 0
            assert memoir.store_secrets(again.work_id, again.lease_id, [again.item_no], [""]) == 0
            assert [row[0] for row in db.execute(level)] == ["secret", "normal", "secret", "normal"]
            assert memoir.embed_backlog(embed) == 1
            with pytest.raises(MemoirError, match="1 items and 2 kinds are not parallel"):
                memoir.store_secrets(again.work_id, again.lease_id, [1], ["", ""])


def test_detection_off_leaves_nothing_unread(server_dsn):
    with database(server_dsn) as dsn:
        complete(dsn)
        with Memoir(dsn) as memoir, psycopg.connect(dsn, autocommit=True) as db:
            db.execute("select memoir.set_setting('detect_secrets', 'false')")
            memoir.persist_turn("ann", "s", [{"role": "user", "content": "my password is hunter2x"}])
            assert memoir.claim_unread() == []
            assert memoir.embed_backlog(embed) == 1


def test_a_worker_reads_turns_without_plpython(server_dsn):
    """Memories, changes and requests to forget are found by the worker; the server itself says that it can't."""
    with database(server_dsn) as dsn:
        complete(dsn)
        with Memoir(dsn) as memoir, psycopg.connect(dsn, autocommit=True) as db:

            def say(session: str, text: str) -> None:
                memoir.persist_turn("ann", session, [{"role": "user", "content": text}])
                worker.run_reader(memoir, once=True)

            def active() -> set[str]:
                return {memory.content for memory in memoir.list_memories("ann")}

            say("one", "I am allergic to nuts and cats, and I live in Ulm.")
            assert {"User is allergic to nuts and cats.", "User lives in Ulm."} <= active()
            say("two", "It turned out I am not allergic to cats.")
            assert "User is allergic to nuts." in active() and "User is allergic to nuts and cats." not in active()
            assert [change.kind for change in memoir.list_changes("ann")] == ["changed"]
            say("three", "Please forget where I live.")
            assert not any("Ulm" in content for content in active())
            assert memoir.claim_turns() == []
            # An answer that comes too late changes nothing.
            memoir.persist_turn("ann", "four", [{"role": "user", "content": "I work in Bern."}])
            [claim] = memoir.claim_turns()
            db.execute("update _memoir.work_items set leased_until = now() - interval '1 second' where kind = 'turns'")
            [again] = memoir.claim_turns()
            reading = {"languages": ["english"], "found": [], "requests": [], "stating": []}
            assert memoir.store_turns(claim.work_id, claim.lease_id, reading, None) is None
            assert memoir.store_turns(again.work_id, again.lease_id, reading, None) == {"turns": 1}
            with pytest.raises(MemoirError, match="reading turns needs PL/Python"):
                memoir.persist_turn("ann", "five", [{"role": "user", "content": "I work in Bern."}])
                memoir.extract_session("ann", "five")
            with pytest.raises(MemoirError, match="forget_about needs PL/Python"):
                memoir.forget_about("ann", "Bern")
