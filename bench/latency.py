"""Latency of compile_context beside the bare index scans it can't do without, many connections, first compiles, memory.

    python -m bench.latency [--queries 300] [--users 1000] [--turns 250 --memories 50]

METHODS.md says what is measured and how. Compiles and floors alternate, query by query, so that both see the
same machine.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg

from .common import (
    EMBEDDING_MODEL,
    fresh_database,
    percentile,
    private_bytes,
    processor_time,
    report,
    run_alone,
    table,
)
from .population import Size, Words, full_user, last_session, populate, vector

WARM_UP = 40
COMPILE = "select memoir.compile_context(p_user => %s, p_session => %s, p_query => %s, p_query_embedding => %s::real[])"
COMPILE_TEXT = "select memoir.compile_context(p_user => %s, p_session => %s, p_query => %s)"
FLOOR = """
select (select count(*) from (
          select item_no from _memoir.embeddings where user_id = %(user)s and model_id = %(model)s
          order by embedding operator(memoir_extensions.<=>) %(vector)s::real[]::memoir_extensions.halfvec limit 50) nearest),
       (select sum(f & 255) from _memoir.search_postings p, unnest(case when words is null then p.postings else p.postings[1 : 1] end) f
        where user_id = %(user)s and key = any (%(keys)s)),  -- of rows that rare words share, one posting
       (select count(content) from (
          select content from _memoir.conversation_history
          where user_id = %(user)s and session_id = %(session)s and recorded_at between %(first)s and %(last)s
          order by turn_index desc limit 50) last_turns)"""
# Beside them, the rows that the ranking weighs and those whose text may be shown, by their keys.
ROWS = (
    FLOOR
    + """,
       (select sum(token_count) from _memoir.search_items where user_id = %(user)s and item_no = any (%(items)s)),
       (select sum(m.trust + coalesce(t.access_count, 0)) from _memoir.memory_store m left join _memoir.memory_stats t on t.user_id = m.user_id and t.memory_id = m.memory_id
        where m.user_id = %(user)s and m.memory_id = any (%(memories)s)),
       (select sum(length(h.content)) from unnest(%(sessions)s::uuid[], %(turns)s::integer[], %(times)s::timestamptz[]) p(session, turn, at)
        join _memoir.conversation_history h on h.user_id = %(user)s and h.session_id = p.session and h.turn_index = p.turn and h.recorded_at = p.at
        where h.recorded_at = any (%(times)s::timestamptz[]))"""
)
EMBED = "select vec, problem from _memoir.py_embed_query(%s, %s, %s, 1000)"


class Query:
    """A question of one measured user, and what the floor needs to know of it beforehand."""

    def __init__(
        self, connection: psycopg.Connection, user: str, session: str, text: str, given: Sequence[float]
    ) -> None:
        self.user, self.session, self.text, self.vector = user, session, text, list(given)
        row = connection.execute(
            """select s.user_id, s.session_id, c.first_recorded_at, c.last_recorded_at, 
                 (select array_agg(distinct x.key) from unnest(tsvector_to_array(to_tsvector('english', %s))) t, lateral (
                   select t union all select _memoir.shared_key(t, r) from unnest('{1,8,64}'::integer[]) r where k.letter_rows & r > 0) x(key)),
                 (select model_id from _memoir.embedding_models where status = 'active')
               from _memoir.users u join _memoir.sessions s using (user_id) join _memoir.session_counters c using (user_id, session_id)
                 join _memoir.user_counters k using (user_id)
               where u.external_id = %s and s.external_id = %s""",
            (text, user, session),
        ).fetchone()
        names = ("user", "session", "first", "last", "keys", "model")
        self.floor: dict[str, Any] = dict(zip(names, row, strict=True)) | {"vector": self.vector}
        considered = connection.execute(
            """with found as (
                 select id, included from memoir.explain_context(%s, %s, %s, p_query_embedding => %s::real[]) where 'recent' <> all (arms))
               select (select array_agg(item_no) from _memoir.search_items i join found on i.ref_id = id where i.user_id = %s),
                 coalesce(array_agg(i.ref_id) filter (where i.kind = 'm'), '{}'), array_agg(i.session_id) filter (where shown),
                 array_agg(i.turn_index) filter (where shown), array_agg(i.recorded_at) filter (where shown)
               from _memoir.search_items i join found on i.ref_id = id, lateral (select i.kind = 't' and included as shown) s
               where i.user_id = %s and i.chunk = 0""",
            (user, session, text, self.vector, row[0], row[0]),
        ).fetchone()
        self.floor |= dict(zip(("items", "memories", "sessions", "turns", "times"), considered, strict=True))


def milliseconds(work: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1000


def queries(connection: psycopg.Connection, size: Size, words: Words, rng: random.Random, count: int) -> list[Query]:
    """Questions in each measured user's newest session, in the population's words."""
    texts = (words.sentence(5, 12)[:-1] + "?" for _ in range(count))
    users = (full_user(n % size.full) for n in range(count))
    return [Query(connection, user, last_session(size), text, vector(rng)) for user, text in zip(users, texts)]


def measure_compiles(connection: psycopg.Connection, asked: Sequence[Query], socket: str) -> dict[str, list[float]]:
    """Times in ms: compile with a vector and its floor; with the embedder also compile by text alone and its floor."""
    times: dict[str, list[float]] = {"with": [], "floor": [], "rows": []} | (
        {"text": [], "again": [], "call": []} if socket else {}
    )
    pid = connection.info.backend_pid
    same_host = bool(
        Path(f"/proc/{pid}/comm").exists() and Path(f"/proc/{pid}/comm").read_text().startswith("postgres")
    )
    if same_host and processor_time(pid) is not None:
        times |= {f"{name}, ran": [] for name in times if name != "call"}
    for number, query in enumerate(asked):
        work: dict[str, Callable[[], Any]] = {
            "floor": lambda: connection.execute(FLOOR, query.floor).fetchone(),
            "rows": lambda: connection.execute(ROWS, query.floor).fetchone(),
            "with": lambda: connection.execute(COMPILE, _given(query)).fetchone(),
        }
        if socket:
            # Another text than compile's, so that neither profits from the other.
            work["call"] = lambda: connection.execute(
                EMBED, (socket, EMBEDDING_MODEL, query.text + " Then?")
            ).fetchone()
            work["text"] = work["again"] = lambda: connection.execute(
                COMPILE_TEXT, (query.user, query.session, query.text)
            ).fetchone()
        for name, call in work.items():
            ran = f"{name}, ran"
            before = processor_time(pid) if ran in times else None
            spent = milliseconds(call)
            if number >= WARM_UP:
                times[name].append(spent)
                if before is not None:
                    time.sleep(0.0005)  # a process's account is settled when it goes to sleep
                    times[ran].append((processor_time(pid) or 0) - before)
    return times


# Lines of the table: name, series; of ratios a second series.
LINES = (
    ("compile, embedding supplied", "with"),
    ("floor: bare scans of the indexes", "floor"),
    ("the same, and the rows they lead to", "rows"),
    ("compile, processor time of the backend", "with, ran"),
    ("floor, processor time of the backend", "floor, ran"),
    ("with the rows, processor time of the backend", "rows, ran"),
    ("compile, query text only", "text"),
    ("floor: bare scans and embedding call", "floor and call"),
    ("of that, embedding call", "call"),
    ("ratio to the scans of the indexes", "with", "floor"),
    ("ratio to those with the rows", "with", "rows"),
    ("ratio of processor times, indexes", "with, ran", "floor, ran"),
    ("ratio of processor times, with the rows", "with, ran", "rows, ran"),
    ("ratio, query text only", "text", "floor and call"),
    ("ratio of processor times, query text only, to a supplied embedding", "text, ran", "with, ran"),
    ("the same, of a question asked again", "again, ran", "with, ran"),
)


def compile_table(times: dict[str, list[float]]) -> str:
    """Percentiles of compiles and floors, and their ratios, of the series that were measured."""
    if "call" in times:
        times["floor and call"] = [a + b for a, b in zip(times["floor"], times["call"], strict=True)]
    shares, rows = (0.5, 0.95, 0.99), []
    for name, *series in LINES:
        if all(each in times for each in series):
            found = [[percentile(times[each], share) for share in shares] for each in series]
            rows.append([name, *(f"{values[0] / (values[1:] or (1,))[0]:.2f}" for values in zip(*found))])
    return table(["ms", "p50", "p95", "p99"], rows)


def embedder_socket(connection: psycopg.Connection) -> str:
    """The shared embedder's socket if it answers, else ''."""
    socket = connection.execute("select config ->> 'embedder_socket' from _memoir.settings_merged").fetchone()[0] or ""
    try:
        problem = connection.execute(EMBED, (socket, EMBEDDING_MODEL, "hello")).fetchone()[1]
    except psycopg.Error as error:
        problem = error.diag.message_primary
    if problem:
        print(f"no embedder, so no compile by text alone: {problem}", file=sys.stderr)
    return "" if problem else socket


def together(dsn: str, asked: Sequence[Query], count: int, seconds: float = 20) -> str:
    """Compiles of so many connections at once, each with all questions in turn, after a first round."""
    ready = threading.Barrier(count)

    def ask(number: int) -> list[float]:
        with psycopg.connect(dsn, autocommit=True) as connection:
            spent, at = [], 0
            for at in range(5):
                connection.execute(COMPILE, _given(asked[(number + at) % len(asked)])).fetchone()
            ready.wait()
            begun = time.perf_counter()
            while time.perf_counter() - begun < seconds:
                at += 1
                given = _given(asked[(number * 7 + at) % len(asked)])
                spent.append(milliseconds(lambda given=given: connection.execute(COMPILE, given).fetchone()))
        return spent

    with ThreadPoolExecutor(count) as pool:
        found = [ms for its in pool.map(ask, range(count)) for ms in its]
    p50, p99 = percentile(found, 0.5), percentile(found, 0.99)
    row = [count, f"{len(found) / seconds:.0f}", f"{p50:.1f}", f"{p99:.1f}", f"{p99 / p50:.2f}"]
    return table(["connections", "compiles/s", "p50 ms", "p99 ms", "p99 to p50"], [row])


def _given(query: Query) -> tuple[str, str, str, list[float]]:
    return query.user, query.session, query.text, query.vector


def first_compiles(dsn: str, query: Query, times: int = 15) -> str:
    """First and second compile in a fresh psql, by psql's own clock."""
    literal = "'{" + ",".join(map(str, query.vector)) + "}'::real[]"
    statement = f"select length(memoir.compile_context('{query.user}', '{query.session}', '{query.text}', p_query_embedding => {literal})::text)"
    found: list[list[float]] = []
    for _ in range(times):
        command = ["psql", "-X", "-q", "-c", r"\timing on", "-c", statement, "-c", statement, dsn]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found.append([float(value) for value in re.findall(r"Time: ([\d.]+) ms", done.stdout)])
    rows = [
        [name, *(f"{percentile([pair[at] for pair in found], share):.1f}" for share in (0.5, 0.95))]
        for at, name in enumerate(("first compile", "second compile"))
    ]
    return table([f"ms, of {times} fresh psql connections", "p50", "p95"], rows)


def memory_table(dsn: str, asked: Sequence[Query]) -> str:
    """Private memory of a backend: new, after its first compile, after a hundred."""
    rows = []
    with psycopg.connect(dsn, autocommit=True) as connection:
        rows.append(["new", *_memory(connection)])
        for name, some in (("after one compile", asked[:1]), (f"after {min(100, len(asked))} more", asked[:100])):
            for query in some:
                connection.execute(COMPILE, _given(query)).fetchone()
            rows.append([name, *_memory(connection)])
    return table(["MB of one backend", "private (smaps)", "memory contexts"], rows)


def _memory(connection: psycopg.Connection) -> tuple[str, str]:
    pid, contexts = connection.execute(
        "select pg_backend_pid(), (select sum(total_bytes) from pg_backend_memory_contexts)"
    ).fetchone()
    try:
        private = f"{private_bytes(pid) / 2**20:.1f}"
    except OSError:
        private = "not permitted"
    return private, f"{float(contexts) / 2**20:.1f}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that `python -m bench` shares."""
    parser.add_argument("--queries", type=int, default=300, help="compiles measured of each kind (%(default)s)")
    for name, default, what in (
        ("users", Size.users, "users in the database"),
        ("measured", Size.full, "users that are asked"),
        ("turns", Size.full_turns, "turns of each of these"),
        ("memories", Size.full_memories, "memories of each of these"),
        ("connections", 16, "connections that compile at once"),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{what} (%(default)s)")


def run(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Measures in a database of its own. `options`: of add_arguments, and `keep`."""
    rng = random.Random(1)
    words = Words(rng)
    size = Size(options.users, options.measured, options.turns, options.memories)
    with (
        fresh_database("latency", getattr(options, "keep", False)) as dsn,
        psycopg.connect(dsn, autocommit=True) as connection,
    ):
        populate(connection, size, words, rng)
        # The embedder has its own caches; random vectors of the items don't matter to its time.
        socket = embedder_socket(connection)
        asked = queries(connection, size, words, rng, options.queries + WARM_UP)
        times = measure_compiles(connection, asked, socket)
        intro = f"{size.describe()}; {options.queries} questions of 5 to 12 words, in a session of 50 turns.\n\n"
        return [
            report("latency", intro + compile_table(times)),
            report("connections", together(dsn, asked, options.connections)),
            report("first-compile", first_compiles(dsn, asked[0])),
            report("memory", memory_table(dsn, asked)),
        ]


if __name__ == "__main__":
    sys.exit(run_alone("bench.latency", __doc__, add_arguments, run, keep=True))
