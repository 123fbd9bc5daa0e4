"""Races: whatever opens, closes, forgets, embeds, merges or makes partitions beside whatever else; no deadlock, nothing forgotten."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any

import psycopg
import pytest
from calls import Db, call, export_rows, history, persist, remember, remembered, set_settings, table
from parallel import in_parallel, until
from psycopg.types.json import Jsonb
from routines import code

SAY = "select memoir.persist_turn(%s, %s, %s)"


def pair(tag: str) -> Jsonb:
    return Jsonb([{"role": "user", "content": f"question {tag}"}, {"role": "assistant", "content": f"answer {tag}"}])


@pytest.mark.acceptance
def test_equal_memories_arrive_once(memoir_dsn: str, db: Db, user: str) -> None:
    results = in_parallel(memoir_dsn, *[lambda c: [remember(c, user, f"Fact {n % 5}") for n in range(10)]] * 4)
    assert sum(r["outcome"] == "stored" for done in results for r in done) == 5
    assert len({r["memory_id"] for done in results for r in done}) == 5

    # And a slot ends with one value, whoever comes last.
    def move(worker: int, c: Db) -> None:
        for n in range(5):
            remember(c, user, f"Lives in {worker}.{n}", slot="city", slot_value=f"{worker}.{n}")

    in_parallel(memoir_dsn, *[partial(move, worker) for worker in range(4)])
    rows = table(db, "list_memories", user, states=[], columns="slot, state::text", limit=1000)
    states = [state for slot, state in rows if slot == "city"]
    assert (states.count("active"), len(states)) == (1, 20)


@pytest.mark.acceptance
def test_corrections_race_cleanly(memoir_dsn: str, db: Db, user: str) -> None:
    """Correct, retract, lift, validate and restate one slot's value from all sides: no deadlock, at most one active value."""
    first = remembered(db, user, "Lives in 0.", slot="city", slot_value="0")

    def attempt(c: Db, function: str, *values: Any, **named: Any) -> None:
        try:
            call(c, function, user, *values, **named)
        except psycopg.Error as error:
            assert error.sqlstate in ("PM004", "PM040", "PM014"), error

    def change(number: int, c: Db) -> None:
        for n in range(12):
            value = f"{number}.{n}"
            attempt(c, "correct", first, f"Lives in {value}.", slot_value=value)
            attempt(c, "remember", f"Home is {value}.", slot="city", slot_value=f"h{value}")
            attempt(c, "validate", first)
            ids = [i for (i,) in table(c, "memory_history", user, first, columns="memory_id")]
            attempt(c, "lift_tombstone", ids[n % len(ids)])
            if n % 5 == number:
                attempt(c, "retract", ids[-1])

    in_parallel(memoir_dsn, *[partial(change, n) for n in range(4)])
    states = table(db, "list_memories", user, states=["active"], columns="slot_value")
    assert len(states) <= 1, states


@pytest.mark.acceptance
def test_writers_and_jobs_race_cleanly(memoir_dsn: str, db: Db, user: str) -> None:
    """Turns, memories, forgetting, closing, compiles, merging and flushing of two users at once: no deadlock, no other error."""
    users = [f"{user}-{n}" for n in range(2)]
    set_settings(db, tail_items_max=16)

    def write(worker: int, c: Db) -> None:
        for n in range(25):
            usage = {"model": "gpt-4o", "prompt_tokens": 9000}
            persist(c, users[n % 2], f"s{n % 3}", f"question {worker}.{n}", "answer", usage=usage)

    def learn(c: Db) -> None:
        for n in range(25):
            done = remember(c, users[n % 2], f"Fact {n}", slot=f"slot{n % 3}", slot_value=str(n))
            if n % 7 == 0 and done["memory_id"]:
                call(c, "forget", users[n % 2], done["memory_id"])

    def close(worker: int, c: Db) -> None:
        for n in range(15):
            persist(c, users[n % 2], f"b{worker}.{n}", "question", "answer")
            call(c, "close_session", users[n % 2], f"b{worker}.{n}")
            call(c, "compile_context", users[n % 2], f"s{n % 3}", "What about fact 3?")

    def maintain(c: Db) -> None:
        for _ in range(15):
            c.execute("call memoir.run_job('merge')")
            c.execute("call memoir.run_job('flush')")

    writers = [partial(work, worker) for work in (write, close) for worker in (1, 2)]
    in_parallel(memoir_dsn, *writers, learn, learn, maintain)
    call(db, "reset_setting", "tail_items_max")
    turns = {name: sum(len(history(db, name, f"s{n}")) for n in range(3)) for name in users}
    assert turns == {users[0]: 52, users[1]: 48}
    for name in users:
        for n in range(3):
            said = [turn["turn_index"] for turn in history(db, name, f"s{n}")]
            assert said == list(range(len(said)))


@pytest.mark.acceptance
def test_first_writes_of_a_month_race_cleanly(memoir_dsn: str, db: Db, user: str) -> None:
    """A call with usage takes the user's lock before the month's partitions exist, which led to a deadlock once."""
    names = [f"{user}-{n}" for n in range(4)]
    for name in names:
        persist(db, name, "s", "question", "answer")
        call(db, "compile_context", name, "s", "q")
    call(db, "set_clock", "2031-07-01T00:00:01Z")

    def write(name: str, usage: dict[str, Any] | None, c: Db) -> None:
        for n in range(3):
            persist(c, name, "s", f"question {n}", "answer", usage=usage)

    used = {"model": "gpt-4o", "prompt_tokens": 9}
    works: list[Any] = [partial(write, name, usage) for name in names for usage in (None, used)]
    works.append(lambda c: c.execute("call memoir.run_job('flush')"))
    works.append(lambda c: [call(c, "capture_call", name, "s", "x") for name in names])
    in_parallel(memoir_dsn, *works)
    call(db, "set_clock", None)
    assert [len(history(db, name, "s")) for name in names] == [14] * 4


def test_opening_closing_and_branching_race_cleanly(memoir_dsn: str, db: Db, user: str) -> None:
    def open_one(number: int, c: Db) -> Any:
        return call(c, "open_session", user, "s", metadata={f"k{number}": number})

    assert len(set(in_parallel(memoir_dsn, *[partial(open_one, n) for n in range(6)]))) == 1
    # Whoever came second changed what the first had opened: nothing given is lost.
    assert call(db, "session_info", user, "s")["metadata"] == {f"k{n}": n for n in range(6)}
    db.execute(SAY, [user, "s", pair("0")])
    branches = in_parallel(memoir_dsn, *[lambda c: code(lambda: call(c, "branch_session", user, "s", "b"))] * 4)
    assert sorted(map(str, branches)) == ["None", "PM014", "PM014", "PM014"]

    def writes(c: psycopg.Connection) -> int:
        for number in range(200):
            try:
                c.execute(SAY, [user, "s", pair(f"w{number}")])
            except psycopg.Error as error:
                assert error.sqlstate == "PM005"
                return number
        return 200

    def closes(c: psycopg.Connection) -> int:
        time.sleep(0.1)
        c.execute("select memoir.close_session(%s, 's')", [user])
        return len(history(c, user, "s"))

    first, second, closed_at = in_parallel(memoir_dsn, writes, writes, closes)
    assert len(history(db, user, "s")) == 2 + 2 * (first + second) == closed_at  # no turn after the close


def waits_for(db: Db, holder: psycopg.Connection) -> None:
    """Returns when some connection waits for a lock of `holder`."""
    waiting = "select 1 from pg_stat_activity where %s = any (pg_blocking_pids(pid))"
    until(lambda: db.execute(waiting, [holder.info.backend_pid]).fetchone())


def test_work_of_an_open_transaction_is_not_lost(memoir_dsn: str, db: Db, user: str, little_vectors: None) -> None:
    """A worker that looks meanwhile sees a job with nothing to do: it must not take it away from the writer who counts on it."""
    remember(db, user, "Likes tea.", embedding=[1, 0, 0, 0])  # a job, and nothing to embed
    with psycopg.connect(memoir_dsn) as writer:
        remember(writer, user, "Likes hiking.")
        assert table(db, "claim_embeddings", 10000, "little") == []
    assert table(db, "claim_embeddings", 10000, "little", columns="text") == [("Likes hiking.",)]


def test_claims_do_not_wait_for_writers(memoir_dsn: str, db: Db, user: str, little_vectors: None) -> None:
    """A claim that waited would hold up, through the work it has locked, writers of all users."""
    db.execute("set lock_timeout = '1s'")
    table(db, "claim_embeddings", 10000, "little")  # of other tests
    memory, _ = (remembered(db, name, "Likes hiking.") for name in (user, f"{user}-2"))
    columns = "user_id, item_no, work_id, lease_id"
    claims = [table(db, "claim_embeddings", 1, "little", columns=columns)[0] for _ in range(2)]
    call(db, "forget", user, memory)  # the lease runs out with nothing left to embed
    for *_, work, lease in claims:
        call(db, "heartbeat", work, lease, 1)
    with psycopg.connect(memoir_dsn) as writer:
        persist(writer, user, "s", "question", "answer")
        owner, item = claims[1][:2]
        writer.execute("select memoir.store_embeddings(array[%s], array[%s], '{1,0,0,0}', 'little')", [owner, item])
        time.sleep(1.1)
        assert table(db, "claim_embeddings", 10000, "little") == []
    assert len(table(db, "claim_embeddings", 10000, "little")) == 2


def test_a_session_closes_between_turns(memoir_dsn: str, db: Db, user: str) -> None:
    """Not while one is being written, not even one without a word to index."""
    db.execute(SAY, [user, "s", pair("0")])
    at_once = psycopg.connect(memoir_dsn, options="-c lock_timeout=200ms", autocommit=True)
    with psycopg.connect(memoir_dsn) as writer, at_once as closer:
        writer.execute(SAY, [user, "s", Jsonb([{"role": "user", "content": "…"}])])
        with pytest.raises(psycopg.errors.LockNotAvailable):
            closer.execute("select memoir.close_session(%s, 's')", [user])


def test_second_opener_changes_the_first_session(memoir_dsn: str, db: Db, user: str) -> None:
    persist(db, user, "other", "question", "answer")
    with psycopg.connect(memoir_dsn) as first, ThreadPoolExecutor(1) as pool:
        opened = call(first, "open_session", user, "s", task="knowledge", metadata={"a": 1})
        later: Any = {"model": "gpt-4", "metadata": {"b": 2}}
        second = pool.submit(in_parallel, memoir_dsn, lambda c: call(c, "open_session", user, "s", **later))
        waits_for(db, first)
        first.commit()
        assert second.result() == [opened]
    info = call(db, "session_info", user, "s")
    assert (info["task"], info["model"], info["metadata"]) == ("knowledge", "gpt-4", {"a": 1, "b": 2})


def test_statistics_of_a_busy_user_wait(memoir_dsn: str, db: Db, user: str) -> None:
    """A flush changes counters that writers change under the user's lock, so it leaves this user for its next run."""
    users = [user, f"{user}-2"]
    for name in users:
        remember(db, name, "Likes hiking.")
        call(db, "compile_context", name, "s", "hiking")
    with psycopg.connect(memoir_dsn) as writer:
        remember(writer, user, "likes hiking.")
        db.execute("set lock_timeout = '1s'")
        for accesses in ([0, 1], [1, 1]):
            db.execute("call memoir.run_job('flush')")
            assert [export_rows(db, name, "memory_stats")[0]["access_count"] for name in users] == accesses
            writer.commit()


def test_partitions_are_made_before_the_users_lock(memoir_dsn: str, db: Db, user: str) -> None:
    """Who makes a month's partitions may need the user's lock next: whoever holds that must not wait for partitions."""
    for session in ("a", "b"):
        db.execute(SAY, [user, session, pair("0")])
    db.execute("select memoir.set_clock('2032-02-01T00:00:01Z')")
    try:
        with psycopg.connect(memoir_dsn, options="-c deadlock_timeout=100ms") as first, ThreadPoolExecutor(1) as pool:
            first.execute("select memoir.capture_call(%s, 'a', 'x')", [user])  # makes the month, takes no user's lock
            used = {"model": "gpt-4o", "prompt_tokens": 9000}
            second = pool.submit(in_parallel, memoir_dsn, lambda c: persist(c, user, "b", "q", "a", usage=used))
            waits_for(db, first)
            first.execute("set lock_timeout = '5s'")
            first.execute("select memoir.remember(%s, 'Likes hiking.')", [user])  # needs it now
            first.commit()
            assert second.result()[0]["turn_count"] == 4
    finally:
        db.execute("select memoir.set_clock(null)")


def test_a_failed_writer_leaves_the_way_free(memoir_dsn: str, db: Db, user: str) -> None:
    """One that dies with its transaction open, having locked the session and the user."""
    db.execute(SAY, [user, "s", pair("0")])
    with closing(psycopg.connect(memoir_dsn)) as dead:
        dead.execute(SAY, [user, "s", pair("lost")])
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(in_parallel, memoir_dsn, lambda c: persist(c, user, "s", "question 1", "answer 1"))
            assert not waiting.done()
            waits_for(db, dead)
            db.execute("select pg_terminate_backend(%s)", [dead.info.backend_pid])
            assert waiting.result()[0]["from_turn"] == 2
    assert [m["content"] for m in history(db, user, "s")] == ["question 0", "answer 0", "question 1", "answer 1"]
