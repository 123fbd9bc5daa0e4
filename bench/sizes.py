"""Latency of compile_context by size of the user, in a small and in a large store, beside bare scans of the same rows.

    python -m bench.sizes [--items 3000000] [--queries 200]

Processor time is what the backend itself ran, by the kernel's account. The floor reads, in one statement, the same user's rows
through the same indexes: the nearest vectors (by their signs first, where compile does so), the posting lists of the question's
words, the session's last turns, the rows of the candidates and the texts of the turns that the recall shows. Planning is the sum over
all statements of a compile; buffers are the mean of ten compiles and locks those of one, in a backend that has made a few.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg

from .common import CannotRun, fresh_database, percentile, progress, report, run_alone, table
from .crowd import FULL, SIZES, Crowd, Topics, last_session, make_crowd, make_measured, name_of
from .latency import COMPILE, ROWS, Query, milliseconds, processor_time
from .population import Words

WARM_UP = 8
NEAREST = """select item_no from _memoir.embeddings where user_id = %(user)s and model_id = %(model)s
          order by embedding operator(memoir_extensions.<=>) %(vector)s::real[]::memoir_extensions.halfvec limit 50"""
NEAREST_BY_SIGNS = """select item_no from _memoir.embeddings where user_id = %(user)s and model_id = %(model)s and item_no = any (array(
            select item_no from _memoir.embeddings where user_id = %(user)s and model_id = %(model)s
            order by (signs operator(memoir_extensions.<~>) memoir_extensions.binary_quantize(%(vector)s::real[]::memoir_extensions.halfvec))::bigint limit %(compared)s))
          order by embedding operator(memoir_extensions.<=>) %(vector)s::real[]::memoir_extensions.halfvec limit 50"""
COMPARED = 960
BUFFERED = 10


@dataclass
class Measured:
    """What compiles of one user cost; times in ms."""

    user: str
    items: int
    elapsed: list[float] = field(default_factory=list)
    ran: list[float] = field(default_factory=list)
    floor: list[float] = field(default_factory=list)
    planning: float | None = None
    buffers: int = 0
    locks: int = 0


def questions(
    connection: psycopg.Connection, user: str, size: int, words: Words, topics: Topics, count: int
) -> list[Query]:
    """Questions in a user's newest session, in the population's words; the same ones whenever they are asked of a user of this size."""
    words.reseed(size), topics.reseed(size)
    return [
        Query(connection, user, last_session(size), words.sentence(5, 12)[:-1] + "?", topics.query())
        for _ in range(count)
    ]


def asked_for(query: Query) -> tuple[Any, ...]:
    return query.user, query.session, query.text, query.vector


def measure(dsn: str, user: str, size: int, words: Words, topics: Topics, count: int) -> Measured:
    """Compiles and floors by turns, in one backend."""
    found = Measured(user, size)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("set search_path = pg_catalog, memoir_extensions, pg_temp")  # where the types of vectors are
        asked = questions(connection, user, size, words, topics, count + WARM_UP)
        exact = int(
            connection.execute("select config ->> 'exact_vectors_max' from _memoir.settings_merged").fetchone()[0]
        )
        connection.execute("set max_parallel_workers_per_gather = 0")  # processor time of helpers would not be counted
        connection.execute(
            "set plan_cache_mode = force_custom_plan"
        )  # or a floor prepared for any user would be used for this one
        floor, pid = ROWS if size <= exact else ROWS.replace(NEAREST, NEAREST_BY_SIGNS), connection.info.backend_pid
        if processor_time(pid) is None:
            raise CannotRun("the system does not tell how long a process has run")
        for number, question in enumerate(asked):
            progress(f"{user}: question {number + 1}")
            bare = ran_ms(pid, lambda: connection.execute(floor, question.floor | {"compared": COMPARED}).fetchone())
            ran = ran_ms(
                pid,
                lambda: found.elapsed.append(
                    milliseconds(lambda: connection.execute(COMPILE, asked_for(question)).fetchone())
                ),
            )
            if number >= WARM_UP:
                found.floor.append(bare)
                found.ran.append(ran)
        found.elapsed = found.elapsed[WARM_UP:]
        found.planning = _planning(connection, asked[:20])
    with psycopg.connect(dsn) as connection:
        for question in asked[:3]:
            connection.execute(COMPILE, asked_for(question))
            connection.rollback()
        for question in asked[:BUFFERED]:
            plan = connection.execute(
                f"explain (analyze, buffers, timing off, format json) {COMPILE}", asked_for(question)
            ).fetchone()[0][0]["Plan"]
            found.buffers += (plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]) // BUFFERED
            connection.rollback()
        connection.execute(COMPILE, asked_for(asked[0]))
        found.locks = connection.execute(
            "select count(*) from pg_locks where pid = pg_backend_pid() and locktype = 'relation' and relation >= 16384"
        ).fetchone()[0]
        connection.rollback()
    return found


def ran_ms(pid: int, work: Any) -> float:
    before = processor_time(pid) or 0
    work()
    time.sleep(0.0005)  # a process's account is settled when it goes to sleep
    return (processor_time(pid) or 0) - before


def _planning(connection: psycopg.Connection, asked: Sequence[Query]) -> float | None:
    """Ms of planning per compile, where pg_stat_statements is there to say it."""
    try:
        connection.execute("create extension if not exists pg_stat_statements schema public")
        connection.execute("set pg_stat_statements.track = 'all'")
        connection.execute("set pg_stat_statements.track_planning = on")
        connection.execute("select public.pg_stat_statements_reset()")
        for question in asked:
            connection.execute(COMPILE, asked_for(question)).fetchone()
        (total,) = connection.execute(
            "select sum(total_plan_time) from public.pg_stat_statements join pg_database d on d.oid = dbid "
            "where datname = current_database()"
        ).fetchone()
        return float(total) / len(asked)
    except psycopg.Error:
        return None
    finally:
        connection.execute("set pg_stat_statements.track_planning = off")


def size_table(rows: Sequence[tuple[str, Measured]]) -> str:
    head = [
        "user",
        "compile, processor ms: p50",
        "p95",
        "p99",
        "floor: p50",
        "p95",
        "p99",
        "ratio of p50",
        "of p99",
        "elapsed ms: p50",
        "p99",
        "planning ms",
        "buffers",
        "locks",
    ]
    cells = []
    for name, m in rows:
        ran, floor = ([percentile(values, share) for share in (0.5, 0.95, 0.99)] for values in (m.ran, m.floor))
        cells.append(
            [
                name,
                *(f"{v:.1f}" for v in ran),
                *(f"{v:.1f}" for v in floor),
                f"{ran[0] / floor[0]:.2f}",
                f"{ran[2] / floor[2]:.2f}",
                f"{percentile(m.elapsed, 0.5):.1f}",
                f"{percentile(m.elapsed, 0.99):.1f}",
                "–" if m.planning is None else f"{m.planning:.1f}",
                f"{m.buffers:,}",
                m.locks,
            ]
        )
    return table(head, cells)


def growth_table(small: Sequence[Measured], large: Sequence[Measured]) -> str:
    rows = []
    for before, after in zip(small, large, strict=False):
        rows.append(
            [
                f"{before.items:,} items",
                f"{percentile(before.ran, 0.5):.1f}",
                f"{percentile(after.ran, 0.5):.1f}",
                f"{percentile(after.ran, 0.5) / percentile(before.ran, 0.5):.2f}",
                f"{before.buffers:,}",
                f"{after.buffers:,}",
                before.locks,
                after.locks,
            ]
        )
    return table(
        [
            "the same user",
            "processor ms p50: small store",
            "large store",
            "ratio",
            "buffers: small",
            "large",
            "locks: small",
            "large",
        ],
        rows,
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--items", type=int, default=FULL, help="items in the large store, a third of them memories (%(default)s)"
    )


def run(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Measures in a database of its own. `options`: of add_arguments, and `keep`."""
    rng = random.Random(1)
    words, topics, crowd = Words(rng), Topics(rng), Crowd(options.items)
    *usual, largest = sorted(SIZES)
    with (
        fresh_database("sizes", getattr(options, "keep", False)) as dsn,
        psycopg.connect(dsn, autocommit=True) as connection,
    ):
        topics.put(connection)
        make_measured(connection, usual, words)
        small = [measure(dsn, name_of(size), size, words, topics, options.queries) for size in usual]
        make_measured(connection, [largest], words)
        make_crowd(connection, crowd, words)
        large = [measure(dsn, name_of(size), size, words, topics, options.queries) for size in sorted(SIZES)]
        rows = [(f"{m.items:,} items", m) for m in large]
        for size in usual:
            if crowd.users(size) > 1:
                rows.append(
                    (
                        f"{size:,}, rows scattered",
                        measure(
                            dsn, f"other-{size}-{0 if size > min(usual) else 7}", size, words, topics, options.queries
                        ),
                    )
                )
    intro = f"{crowd.describe()}; {options.queries} questions of 5 to 12 words by each user, in a session of up to 50 turns.\n\n"
    return [
        report("sizes", intro + size_table(rows)),
        report("growth", f"Small store: {sum(usual):,} items; large: as above.\n\n" + growth_table(small, large)),
    ]


def _options(parser: argparse.ArgumentParser) -> None:
    add_arguments(parser)
    parser.add_argument("--queries", type=int, default=200, help="compiles measured of each user (%(default)s)")


if __name__ == "__main__":
    sys.exit(run_alone("bench.sizes", __doc__, _options, run, keep=True))
