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
from psycopg.types.json import Jsonb

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
SAY = "select memoir.persist_turn(%s, %s, %s)"


def pair(tag: str) -> Jsonb:
    return Jsonb([{"role": "user", "content": f"question {tag}"}, {"role": "assistant", "content": f"answer {tag}"}])


def steps(tag: str) -> Jsonb:
    """An exchange of four messages that must be seen together or not at all."""
    return Jsonb([{"role": "user", "content": f"q {tag}"}, {"role": "assistant", "content": None, "tool_calls": [CALL | {"id": tag}]},
                  {"role": "tool", "tool_call_id": tag, "content": f"r {tag}"}, {"role": "assistant", "content": f"a {tag}"}])


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


def history(db: psycopg.Connection, user: str, session: str) -> list[dict[str, Any]]:
    return [row[0] for row in db.execute("select memoir.history(%s, %s)", [user, session])]


def test_equal_memories_arrive_once(memoir_dsn: str, db: psycopg.Connection, user: str) -> None:
    results = together(memoir_dsn, *[lambda c: [c.execute("select memoir.remember(%s, %s)", [user, f"Fact {n % 5}"]).fetchone()[0] for n in range(10)]] * 4)
    assert sum(r["outcome"] == "stored" for done in results for r in done) == 5
    assert len({r["memory_id"] for done in results for r in done}) == 5
    # And a slot ends with one value, whoever comes last.
    together(memoir_dsn, *[lambda c, w=w: [c.execute("select memoir.remember(%s, %s, p_slot => 'city', p_slot_value => %s)", [user, f"Lives in {w}.{n}", f"{w}.{n}"]) for n in range(5)]
                           for w in range(4)])
    assert db.execute("select count(*) filter (where state = 'active'), count(*) from memoir.memory_store join memoir.users using (user_id) "
                      "where external_id = %s and slot = 'city'", [user]).fetchone() == (1, 20)


def test_opening_closing_and_branching_race_cleanly(memoir_dsn: str, db: psycopg.Connection, user: str) -> None:
    def opened(number: int) -> Callable[[psycopg.Connection], Any]:
        return lambda c: c.execute("select memoir.open_session(%s, 's', p_metadata => %s)", [user, Jsonb({f"k{number}": number})]).fetchone()[0]

    assert len(set(together(memoir_dsn, *[opened(n) for n in range(6)]))) == 1
    # Whoever came second changed what the first had opened: nothing given is lost.
    assert db.execute("select memoir.session_info(%s, 's')", [user]).fetchone()[0]["metadata"] == {f"k{n}": n for n in range(6)}
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
    assert len(history(db, user, "s")) == 2 + 2 * (first + second) == closed_at     # no turn after the close


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
        c.execute("select memoir.store_embeddings(%s, %s, %s::real[], 'little')", [[u for u, _, _ in claims], [i for _, i, _ in claims], vectors])
    return len(claims)


def test_all_that_writes_runs_beside_all_else(memoir_dsn: str, db: psycopg.Connection, user: str, little_model: str) -> None:
    """Writers, memories, forgetting, closing, compiles, workers, merging, flushing of a few users at once: no deadlock, no other error."""
    users = [f"{user}-{n}" for n in range(3)]
    for name in users:
        db.execute(SAY, [name, "base", pair("0")])
    db.execute("select memoir.set_setting('tail_items_max', '16')")
    stop = Stop(4)

    def write(c: psycopg.Connection) -> int:
        return until(stop, lambda n: c.execute("select memoir.persist_turn(%s, %s, %s, p_usage => '{\"model\": \"gpt-4o\", \"prompt_tokens\": 9000}', p_key => %s)",
                                               [users[n % 3], f"s{n % 4}", steps(f"t{n}"), f"{threading.get_ident()}-{n}"]))

    def remember(c: psycopg.Connection) -> int:
        def one(n: int) -> None:
            name = users[n % 3]
            memory = c.execute("select memoir.remember(%s, %s, p_slot => %s, p_slot_value => %s, p_session => %s, p_embedding => %s::real[])",
                               [name, f"Fact {n % 11} of {n % 4}", f"slot{n % 3}", str(n % 5), [None, "base"][n % 2], [1.0, n % 2 / 1, n % 3 / 1, 0.5]]).fetchone()[0]
            if n % 7 == 0 and memory["memory_id"]:
                c.execute("select memoir.forget(%s, %s)", [name, memory["memory_id"]])
        return until(stop, one)

    def sessions(c: psycopg.Connection) -> int:
        def one(n: int) -> None:
            name = users[n % 3]
            c.execute("select memoir.branch_session(%s, 'base', %s)", [name, f"b{n}"])
            c.execute("select memoir.remember(%s, %s, p_session => %s)", [name, f"Local {n}", f"b{n}"])
            c.execute("select memoir.close_session(%s, %s)", [name, f"b{n}"])
            c.execute("select memoir.set_user_settings(%s, '{\"bm25_b\": 0.5}')", [name])
        return until(stop, one)

    def compile_(c: psycopg.Connection) -> int:
        return until(stop, lambda n: c.execute("select memoir.compile_context(%s, %s, 'What about fact 3?', p_query_embedding => '{1,1,1,0}')", [users[n % 3], f"s{n % 4}"]))

    def embed(c: psycopg.Connection) -> int:
        return until(stop, lambda n: embed_once(c))

    def maintain(c: psycopg.Connection) -> int:
        def one(n: int) -> None:
            c.execute("call memoir.merge_search()")
            c.execute("call memoir.flush_statistics()")
            c.execute("select memoir.queue_backfill('little')")
            c.execute("select memoir.drop_retired_embeddings(100)")
        return until(stop, one)

    done = together(memoir_dsn, write, write, remember, remember, sessions, compile_, compile_, embed, embed, maintain, maintain)
    assert all(done), done
    db.execute("select memoir.reset_setting('tail_items_max')")
    for name in users:
        for session in ("s0", "s1", "s2", "s3"):
            assert [m["turn_index"] for m in history(db, name, session)] == list(range(len(history(db, name, session))))
    # Nobody's work was forgotten: what is left in the queue gives every item its vector.
    while embed_once(db, 500):
        pass
    assert db.execute("""select count(*) from memoir.search_items i join memoir.users u using (user_id) where u.external_id = any (%s) and embeddable and not dead
        and not exists (select from memoir.embeddings e join memoir.embedding_models m using (model_id) where m.name = 'little' and e.user_id = i.user_id and e.item_no = i.item_no)""",
                      [users]).fetchone() == (0,)
    # And the counters say what is there.
    assert db.execute("""select count(*) from memoir.user_counters c join memoir.users u using (user_id) where u.external_id = any (%s) and (
        c.items <> (select count(*) from memoir.search_items i where i.user_id = c.user_id)
        or c.tail_items <> (select count(*) from memoir.search_tail t where t.user_id = c.user_id))""", [users]).fetchone() == (0,)


def test_a_new_month_under_way(memoir_dsn: str, db: psycopg.Connection, user: str) -> None:
    """The first writes of a month nobody prepared, from all sides at once, some with costs (the user's lock is taken early then)."""
    names = [f"{user}-{n}" for n in range(4)]
    for name in names:
        db.execute(SAY, [name, "s", pair("0")])
        db.execute("select memoir.compile_context(%s, 's', 'q')", [name])
    db.execute("select memoir.set_clock('2031-07-01T00:00:01Z')")
    try:
        usage = Jsonb({"model": "gpt-4o", "prompt_tokens": 9000})
        together(memoir_dsn, *[lambda c, n=n, u=u: [c.execute("select memoir.persist_turn(%s, %s, %s, p_usage => %s)", [n, "s", pair(str(k)), u]) for k in range(3)]
                               for n in names for u in (None, usage)],
                 lambda c: c.execute("call memoir.flush_statistics()"), lambda c: [c.execute("select memoir.capture_call(%s, 's', 'x')", [n]) for n in names])
    finally:
        db.execute("select memoir.set_clock(null)")
    assert all(len(history(db, name, "s")) == 14 for name in names)


def test_a_failed_writer_leaves_the_way_free(memoir_dsn: str, db: psycopg.Connection, user: str) -> None:
    """One that dies with its transaction open, having locked the session and the user."""
    db.execute(SAY, [user, "s", pair("0")])
    with closing(psycopg.connect(memoir_dsn)) as dead:
        dead.execute(SAY, [user, "s", pair("lost")])
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(lambda: together(memoir_dsn, lambda c: c.execute(SAY, [user, "s", pair("1")]).fetchone()[0]))
            assert not waiting.done()
            pid = dead.info.backend_pid
            while not db.execute("select 1 from pg_stat_activity where %s = any (pg_blocking_pids(pid))", [pid]).fetchone():
                time.sleep(0.01)
            db.execute("select pg_terminate_backend(%s)", [pid])
            assert waiting.result()[0]["from_turn"] == 2
    assert [m["content"] for m in history(db, user, "s")] == ["question 0", "answer 0", "question 1", "answer 1"]
