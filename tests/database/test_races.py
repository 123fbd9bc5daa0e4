"""Races: whatever opens, closes, forgets, embeds, merges or makes partitions beside whatever else; no deadlock, nothing forgotten."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg
import pytest
from calls import history
from psycopg.types.json import Jsonb

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
SAY = "select memoir.persist_turn(%s, %s, %s)"


def pair(tag: str) -> Jsonb:
    return Jsonb([{"role": "user", "content": f"question {tag}"}, {"role": "assistant", "content": f"answer {tag}"}])


def steps(tag: str) -> Jsonb:
    """An exchange of four messages that must be seen together or not at all."""
    return Jsonb(
        [
            {"role": "user", "content": f"q {tag}"},
            {"role": "assistant", "content": None, "tool_calls": [CALL | {"id": tag}]},
            {"role": "tool", "tool_call_id": tag, "content": f"r {tag}"},
            {"role": "assistant", "content": f"a {tag}"},
        ]
    )


def together(dsn: str, *works: Callable[[psycopg.Connection], Any]) -> list[Any]:
    """Runs each in a thread with a connection of its own, all at the same moment; returns results in order, raises what one raised."""
    start = threading.Barrier(len(works))

    def run(work: Callable[[psycopg.Connection], Any]) -> Any:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("set statement_timeout = '60s'")
            connection.execute("set deadlock_timeout = '100ms'")
            start.wait()
            return work(connection)

    with ThreadPoolExecutor(len(works)) as pool:
        return [future.result() for future in [pool.submit(run, work) for work in works]]


@pytest.mark.acceptance
def test_equal_memories_arrive_once(memoir_dsn: str, db: psycopg.Connection, user: str) -> None:
    results = together(
        memoir_dsn,
        *[
            lambda c: [
                c.execute("select memoir.remember(%s, %s)", [user, f"Fact {n % 5}"]).fetchone()[0] for n in range(10)
            ]
        ]
        * 4,
    )
    assert sum(r["outcome"] == "stored" for done in results for r in done) == 5
    assert len({r["memory_id"] for done in results for r in done}) == 5
    # And a slot ends with one value, whoever comes last.
    together(
        memoir_dsn,
        *[
            lambda c, w=w: [
                c.execute(
                    "select memoir.remember(%s, %s, p_slot => 'city', p_slot_value => %s)",
                    [user, f"Lives in {w}.{n}", f"{w}.{n}"],
                )
                for n in range(5)
            ]
            for w in range(4)
        ],
    )
    assert db.execute(
        "select count(*) filter (where state = 'active'), count(*) from _memoir.memory_store join _memoir.users using (user_id) "
        "where external_id = %s and slot = 'city'",
        [user],
    ).fetchone() == (1, 20)


@pytest.mark.acceptance
def test_corrections_race_cleanly(memoir_dsn: str, db: psycopg.Connection, user: str) -> None:
    """Correct, retract, forget, lift, validate and restate one slot's value from all sides: no deadlock, at most one active value."""
    db.execute(SAY, [user, "s", pair("0")])
    first = db.execute(
        "select memoir.remember(%s, 'Lives in 0.', p_slot => 'city', p_slot_value => '0')", [user]
    ).fetchone()[0]["memory_id"]

    def attempt(c: psycopg.Connection, statement: str, *values: Any) -> None:
        try:
            c.execute(statement, values)
        except psycopg.Error as error:
            assert error.sqlstate in ("PM004", "PM040", "PM014"), error

    def works(number: int) -> Callable[[psycopg.Connection], Any]:
        def work(c: psycopg.Connection) -> None:
            for n in range(12):
                value = f"{number}.{n}"
                attempt(
                    c, "select memoir.correct(%s, %s, %s, p_slot_value => %s)", user, first, f"Lives in {value}.", value
                )
                attempt(
                    c,
                    "select memoir.remember(%s, %s, p_slot => 'city', p_slot_value => %s)",
                    user,
                    f"Home is {value}.",
                    f"h{value}",
                )
                attempt(c, "select memoir.validate(%s, %s)", user, first)
                ids = [
                    i
                    for (i,) in c.execute(
                        "select memory_id from memoir.memory_history(%s, %s) order by random() limit 2", [user, first]
                    )
                ]
                attempt(c, "select memoir.lift_tombstone(%s, %s)", user, ids[0])
                if n % 5 == number:
                    attempt(c, "select memoir.retract(%s, %s)", user, ids[-1])
                attempt(c, "select memoir.pin(%s, 's', %s)", user, ids[-1])

        return work

    together(memoir_dsn, *[works(n) for n in range(4)])
    active = db.execute(
        "select slot_value from _memoir.memory_store join _memoir.users using (user_id) where external_id = %s and slot = 'city' and state = 'active'",
        [user],
    ).fetchall()
    assert len(active) <= 1, active
    # Every state a memory is in is the last of its states.
    assert db.execute(
        """select count(*) from _memoir.memory_store m join _memoir.users u using (user_id) where u.external_id = %s and m.state is distinct from
        (select s.state from _memoir.memory_states s where s.user_id = m.user_id and s.memory_id = m.memory_id order by s.seq desc limit 1)""",
        [user],
    ).fetchone() == (0,)


def test_opening_closing_and_branching_race_cleanly(memoir_dsn: str, db: psycopg.Connection, user: str) -> None:
    def opened(number: int) -> Callable[[psycopg.Connection], Any]:
        return lambda c: c.execute(
            "select memoir.open_session(%s, 's', p_metadata => %s)", [user, Jsonb({f"k{number}": number})]
        ).fetchone()[0]

    assert len(set(together(memoir_dsn, *[opened(n) for n in range(6)]))) == 1
    # Whoever came second changed what the first had opened: nothing given is lost.
    assert db.execute("select memoir.session_info(%s, 's')", [user]).fetchone()[0]["metadata"] == {
        f"k{n}": n for n in range(6)
    }
    db.execute(SAY, [user, "s", pair("0")])

    def branch(c: psycopg.Connection) -> str:
        try:
            c.execute("select memoir.branch_session(%s, 's', 'b')", [user])
            return "done"
        except psycopg.Error as error:
            return error.sqlstate or ""

    assert sorted(together(memoir_dsn, *[branch] * 4)) == ["PM014", "PM014", "PM014", "done"]

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

    first, second, closed_at = together(memoir_dsn, writes, writes, closes)
    assert len(history(db, user, "s")) == 2 + 2 * (first + second) == closed_at  # no turn after the close


class Stop:
    """Set by the first of several workers that ends."""

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds
        self.flag = False

    def __bool__(self) -> bool:
        return self.flag or time.monotonic() > self.end


def until(stop: Stop, work: Callable[[int], Any]) -> int:
    number = 0
    try:
        while not stop:
            work(number)
            number += 1
    except BaseException:
        stop.flag = True
        raise
    return number


@pytest.fixture
def little_model(db: psycopg.Connection) -> Iterator[str]:
    """A model of four dimensions is active for one test."""
    db.execute("select memoir.register_embedding_model('little', 'none', 4)")
    db.execute("select memoir.switch_embedding_model('little')")
    yield "little"
    db.execute("select memoir.register_embedding_model('all-MiniLM-L6-v2', 'embedder', 384)")
    db.execute("select memoir.switch_embedding_model('all-MiniLM-L6-v2')")


def embed_once(c: psycopg.Connection, limit: int = 20) -> int:
    claims = c.execute("select user_id, item_no, text from memoir.claim_embeddings(%s, 'little')", [limit]).fetchall()
    if claims:
        vectors = [[1.0, len(text) % 7 / 1, len(text) % 5 / 1, len(text) % 3 / 1] for _, _, text in claims]
        c.execute(
            "select memoir.store_embeddings(%s, %s, %s::real[], 'little')",
            [[u for u, _, _ in claims], [i for _, i, _ in claims], vectors],
        )
    return len(claims)


@pytest.mark.acceptance
def test_all_that_writes_runs_beside_all_else(
    memoir_dsn: str, db: psycopg.Connection, user: str, little_model: str
) -> None:
    """Writers, memories, forgetting, closing, compiles, workers, merging, flushing of a few users at once: no deadlock, no other error."""
    users = [f"{user}-{n}" for n in range(3)]
    for name in users:
        db.execute(SAY, [name, "base", pair("0")])
    db.execute("select memoir.set_setting('tail_items_max', '16')")
    stop = Stop(4)

    def write(c: psycopg.Connection) -> int:
        return until(
            stop,
            lambda n: c.execute(
                'select memoir.persist_turn(%s, %s, %s, p_usage => \'{"model": "gpt-4o", "prompt_tokens": 9000}\', p_key => %s)',
                [users[n % 3], f"s{n % 4}", steps(f"t{n}"), f"{threading.get_ident()}-{n}"],
            ),
        )

    def remember(c: psycopg.Connection) -> int:
        def one(n: int) -> None:
            name = users[n % 3]
            memory = c.execute(
                "select memoir.remember(%s, %s, p_slot => %s, p_slot_value => %s, p_session => %s, p_embedding => %s::real[])",
                [
                    name,
                    f"Fact {n % 11} of {n % 4}",
                    f"slot{n % 3}",
                    str(n % 5),
                    [None, "base"][n % 2],
                    [1.0, n % 2 / 1, n % 3 / 1, 0.5],
                ],
            ).fetchone()[0]
            if n % 7 == 0 and memory["memory_id"]:
                c.execute("select memoir.forget(%s, %s)", [name, memory["memory_id"]])

        return until(stop, one)

    def sessions(c: psycopg.Connection) -> int:
        def one(n: int) -> None:
            name = users[n % 3]
            c.execute("select memoir.branch_session(%s, 'base', %s)", [name, f"b{n}"])
            c.execute("select memoir.remember(%s, %s, p_session => %s)", [name, f"Local {n}", f"b{n}"])
            c.execute("select memoir.close_session(%s, %s)", [name, f"b{n}"])
            c.execute("select memoir.set_user_settings(%s, '{\"profile_tokens\": 500}')", [name])

        return until(stop, one)

    def compile_(c: psycopg.Connection) -> int:
        return until(
            stop,
            lambda n: c.execute(
                "select memoir.compile_context(%s, %s, 'What about fact 3?', p_query_embedding => '{1,1,1,0}')",
                [users[n % 3], f"s{n % 4}"],
            ),
        )

    def embed(c: psycopg.Connection) -> int:
        return until(stop, lambda n: embed_once(c))

    def maintain(c: psycopg.Connection) -> int:
        def one(n: int) -> None:
            c.execute("call memoir.merge_search()")
            c.execute("call memoir.flush_statistics()")
            c.execute("select memoir.queue_backfill('little')")
            c.execute("select memoir.drop_retired_embeddings(100)")

        return until(stop, one)

    done = together(
        memoir_dsn, write, write, remember, remember, sessions, compile_, compile_, embed, embed, maintain, maintain
    )
    assert all(done), done
    db.execute("select memoir.reset_setting('tail_items_max')")
    for name in users:
        for (session,) in db.execute(
            """select s.external_id from _memoir.sessions s join _memoir.users u using (user_id)
            where u.external_id = %s and s.external_id ~ '^s'""",
            [name],
        ).fetchall():
            assert [m["turn_index"] for m in history(db, name, session)] == list(range(len(history(db, name, session))))
    # Nobody's work was forgotten: what is left in the queue gives every item its vector.
    while embed_once(db, 500):
        pass
    assert db.execute(
        """select count(*) from _memoir.search_items i join _memoir.users u using (user_id) where u.external_id = any (%s) and embeddable and not dead
        and not exists (select from _memoir.embeddings e join _memoir.embedding_models m using (model_id) where m.name = 'little' and e.user_id = i.user_id and e.item_no = i.item_no)""",
        [users],
    ).fetchone() == (0,)
    # And the counters say what is there.
    assert db.execute(
        """select count(*) from _memoir.user_counters c join _memoir.users u using (user_id) where u.external_id = any (%s) and (
        c.items <> (select count(*) from _memoir.search_items i where i.user_id = c.user_id)
        or c.tail_items <> (select count(n) from _memoir.search_tail t, unnest(t.word_counts) n where t.user_id = c.user_id))""",
        [users],
    ).fetchone() == (0,)


@pytest.mark.acceptance
def test_a_new_month_under_way(memoir_dsn: str, db: psycopg.Connection, user: str) -> None:
    """The first writes of a month nobody prepared, from all sides at once, some with costs (the user's lock is taken early then)."""
    names = [f"{user}-{n}" for n in range(4)]
    for name in names:
        db.execute(SAY, [name, "s", pair("0")])
        db.execute("select memoir.compile_context(%s, 's', 'q')", [name])
    db.execute("select memoir.set_clock('2031-07-01T00:00:01Z')")
    try:
        usage = Jsonb({"model": "gpt-4o", "prompt_tokens": 9000})
        together(
            memoir_dsn,
            *[
                lambda c, n=n, u=u: [
                    c.execute("select memoir.persist_turn(%s, %s, %s, p_usage => %s)", [n, "s", pair(str(k)), u])
                    for k in range(3)
                ]
                for n in names
                for u in (None, usage)
            ],
            lambda c: c.execute("call memoir.flush_statistics()"),
            lambda c: [c.execute("select memoir.capture_call(%s, 's', 'x')", [n]) for n in names],
        )
    finally:
        db.execute("select memoir.set_clock(null)")
    assert all(len(history(db, name, "s")) == 14 for name in names)


# One at a time, in the order that once went wrong -----------------------------------------------------------------------


def waits_for(db: psycopg.Connection, holder: psycopg.Connection) -> None:
    """Returns when some connection waits for a lock of `holder`."""
    end = time.monotonic() + 30
    while not db.execute(
        "select 1 from pg_stat_activity where %s = any (pg_blocking_pids(pid))", [holder.info.backend_pid]
    ).fetchone():
        assert time.monotonic() < end, "nobody waits"
        time.sleep(0.01)


def test_work_of_an_open_transaction_is_not_lost(
    memoir_dsn: str, db: psycopg.Connection, user: str, little_model: str
) -> None:
    """A worker that looks meanwhile sees a job with nothing to do: it must not take it away from the writer who counts on it."""
    db.execute(
        "select memoir.remember(%s, 'Likes tea.', p_embedding => '{1,0,0,0}')", [user]
    )  # a job, and nothing to embed
    with psycopg.connect(memoir_dsn) as writer:
        writer.execute("select memoir.remember(%s, 'Likes hiking.')", [user])
        assert db.execute("select text from memoir.claim_embeddings(10000, 'little')").fetchall() == []
    assert [text for (text,) in db.execute("select text from memoir.claim_embeddings(10000, 'little')")] == [
        "Likes hiking."
    ]


def test_a_claim_waits_for_nobody(memoir_dsn: str, db: psycopg.Connection, user: str, little_model: str) -> None:
    """Neither for writers nor for another worker that stores: it would hold up, through its jobs, writers of all users."""
    talking, stored = user, user + "-2"
    db.execute("delete from _memoir.work_items")
    for name in (talking, stored):
        db.execute("select memoir.remember(%s, 'Likes hiking.', p_embedding => '{1,0,0,0}')", [name])
    db.execute(
        "update _memoir.work_items j set state = 'leased', leased_until = now() - interval '1 minute' from _memoir.users u where u.user_id = j.user_id and u.external_id = %s",
        [talking],
    )
    with (
        psycopg.connect(memoir_dsn) as writer,
        psycopg.connect(memoir_dsn, options="-c lock_timeout=1s", autocommit=True) as worker,
    ):
        writer.execute(SAY, [talking, "s", pair("x")])
        writer.execute(
            "select memoir.store_embeddings(array[u.user_id], array[i.item_no], '{1,0,0,0}', 'little') from _memoir.users u join _memoir.search_items i using (user_id) "
            "where u.external_id = %s",
            [stored],
        )
        assert worker.execute("select text from memoir.claim_embeddings(10000, 'little')").fetchall() == []
    assert len(db.execute("select text from memoir.claim_embeddings(10000, 'little')").fetchall()) == 2


def test_a_session_closes_between_turns(memoir_dsn: str, db: psycopg.Connection, user: str) -> None:
    """Not while one is being written, not even one without a word to index."""
    db.execute(SAY, [user, "s", pair("0")])
    with (
        psycopg.connect(memoir_dsn) as writer,
        psycopg.connect(memoir_dsn, options="-c lock_timeout=200ms", autocommit=True) as closer,
    ):
        writer.execute(SAY, [user, "s", Jsonb([{"role": "user", "content": "…"}])])
        with pytest.raises(psycopg.errors.LockNotAvailable):
            closer.execute("select memoir.close_session(%s, 's')", [user])


def test_the_second_opener_changes_what_the_first_opened(memoir_dsn: str, db: psycopg.Connection, user: str) -> None:
    db.execute(SAY, [user, "other", pair("0")])
    with psycopg.connect(memoir_dsn) as first, ThreadPoolExecutor(1) as pool:
        opened = first.execute(
            "select memoir.open_session(%s, 's', p_task => 'knowledge', p_metadata => '{\"a\": 1}')", [user]
        ).fetchone()
        second = pool.submit(
            lambda: together(
                memoir_dsn,
                lambda c: c.execute(
                    "select memoir.open_session(%s, 's', p_model => 'gpt-4', p_metadata => '{\"b\": 2}')", [user]
                ).fetchone(),
            )
        )
        waits_for(db, first)
        first.commit()
        assert second.result() == [opened]
    info = db.execute("select memoir.session_info(%s, 's')", [user]).fetchone()[0]
    assert (info["task"], info["model"], info["metadata"]) == ("knowledge", "gpt-4", {"a": 1, "b": 2})


def test_statistics_of_a_busy_user_wait_their_turn(memoir_dsn: str, db: psycopg.Connection, user: str) -> None:
    """Flushing changes counters of memories, and so do writers under the user's lock: it leaves a user alone who is being written for."""
    busy, idle = user, user + "-2"
    for name in (busy, idle):
        db.execute("select memoir.remember(%s, 'Likes hiking.')", [name])
        db.execute("select memoir.compile_context(%s, 's', 'hiking')", [name])
    left = """select u.external_id from _memoir.compile_buffer join _memoir.users u using (user_id) where u.external_id = any (%s)"""
    with (
        psycopg.connect(memoir_dsn) as writer,
        psycopg.connect(memoir_dsn, options="-c lock_timeout=1s", autocommit=True) as flusher,
    ):
        writer.execute("select memoir.remember(%s, 'likes hiking.')", [busy])
        flusher.execute("call memoir.flush_statistics()")
        assert db.execute(left, [[busy, idle]]).fetchall() == [(busy,)]
    db.execute("call memoir.flush_statistics()")
    assert db.execute(left, [[busy, idle]]).fetchall() == []
    assert db.execute(
        "select array_agg(access_count) from _memoir.memory_stats join _memoir.users u using (user_id) where u.external_id = any (%s)",
        [[busy, idle]],
    ).fetchone() == ([1, 1],)


def test_partitions_are_made_before_the_users_lock(memoir_dsn: str, db: psycopg.Connection, user: str) -> None:
    """Who makes a month's partitions may need the user's lock next: whoever holds that must not wait for partitions."""
    for session in ("a", "b"):
        db.execute(SAY, [user, session, pair("0")])
    db.execute("select memoir.set_clock('2032-02-01T00:00:01Z')")
    try:
        with psycopg.connect(memoir_dsn, options="-c deadlock_timeout=100ms") as first, ThreadPoolExecutor(1) as pool:
            first.execute("select memoir.capture_call(%s, 'a', 'x')", [user])  # makes the month, takes no user's lock
            second = pool.submit(
                lambda: together(
                    memoir_dsn,
                    lambda c: c.execute(
                        'select memoir.persist_turn(%s, \'b\', %s, p_usage => \'{"model": "gpt-4o", "prompt_tokens": 9000}\')',
                        [user, pair("1")],
                    ).fetchone()[0],
                )
            )
            waits_for(db, first)
            first.execute("set lock_timeout = '5s'")
            first.execute("select memoir.remember(%s, 'Likes hiking.')", [user])  # needs it now
            first.commit()
            assert second.result()[0]["turn_count"] == 4
    finally:
        db.execute("select memoir.set_clock(null)")


def test_a_failed_writer_leaves_the_way_free(memoir_dsn: str, db: psycopg.Connection, user: str) -> None:
    """One that dies with its transaction open, having locked the session and the user."""
    db.execute(SAY, [user, "s", pair("0")])
    with closing(psycopg.connect(memoir_dsn)) as dead:
        dead.execute(SAY, [user, "s", pair("lost")])
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(
                lambda: together(memoir_dsn, lambda c: c.execute(SAY, [user, "s", pair("1")]).fetchone()[0])
            )
            assert not waiting.done()
            waits_for(db, dead)
            db.execute("select pg_terminate_backend(%s)", [dead.info.backend_pid])
            assert waiting.result()[0]["from_turn"] == 2
    assert [m["content"] for m in history(db, user, "s")] == ["question 0", "answer 0", "question 1", "answer 1"]
