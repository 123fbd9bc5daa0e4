"""Turns persisted per second and write-ahead log per turn, beside a plain INSERT of the same two rows.

    python -m bench.writes [--seconds 10] [--writers 1,4,16]

METHODS.md says what is measured and how. Each writer is a process with a connection and a user of its own. The log is
read with pg_walinspect.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import psycopg
from psycopg.types.json import Jsonb

from .common import fresh_database, percentile, progress, report, run_alone, table
from .population import Words

PLAIN = """create table public.plain_turns (user_id uuid, session_id uuid, turn_index integer, role text, content text,
  created_at timestamptz default now(), primary key (user_id, session_id, turn_index))"""
INSERT = "insert into public.plain_turns (user_id, session_id, turn_index, role, content) values (%s, %s, %s, 'user', %s), (%s, %s, %s, 'assistant', %s)"
TURNS = 2  # of an exchange
SLOT = f"memoir_bench_{uuid.uuid4().hex[:8]}"


@dataclass
class Run:
    """What writers did together: exchanges, seconds, latencies in ms, text bytes, WAL bytes without and with full-page images."""

    exchanges: int
    seconds: float
    latencies: list[float]
    text_bytes: int
    wal_bytes: int = 0
    image_bytes: int = 0

    def row(self, name: str) -> list[str]:
        turns = self.exchanges * TURNS
        wal = f"{self.wal_bytes / turns:.0f}" if self.wal_bytes else "-"
        images = f"{self.image_bytes / turns:.0f}" if self.wal_bytes else "-"
        times = [f"{percentile(self.latencies, share):.2f}" for share in (0.5, 0.99)]
        return [name, f"{turns / self.seconds:.0f}", *times, f"{self.text_bytes / turns:.0f}", wal, images]


def write(dsn: str, kind: str, number: int, seconds: float, start_at: float) -> Run:
    """One writer's work from the time `start_at` on: `kind` is 'memoir' or 'plain'."""
    rng = random.Random(f"{kind}:{number}:{seconds}")
    words = Words(rng, 5000)
    user, session = f"writer-{uuid.uuid4().hex[:12]}", uuid.uuid4()
    user_id = uuid.uuid4()
    latencies: list[float] = []
    size = exchanges = 0
    begun = 0.0
    with psycopg.connect(dsn, autocommit=True) as connection:
        if kind == "memoir":
            connection.execute("select memoir.open_session(%s, %s)", (user, str(session)))
        # The first exchange is not timed: what is made once (user, partitions, a backend's plans) is no cost of a turn.
        while not exchanges or time.perf_counter() - begun < seconds:
            asked, said = words.sentence(8, 40), words.sentence(20, 80)
            before = time.perf_counter()
            if kind == "memoir":
                messages = [{"role": "user", "content": asked}, {"role": "assistant", "content": said}]
                connection.execute("select memoir.persist_turn(%s, %s, %s)", (user, str(session), Jsonb(messages)))
            else:
                at = exchanges * TURNS
                connection.execute(INSERT, (user_id, session, at, asked, user_id, session, at + 1, said))
            exchanges += 1
            if exchanges == 1:
                time.sleep(max(0.0, start_at - time.time()))
                begun = time.perf_counter()
                continue
            latencies.append((time.perf_counter() - before) * 1000)
            size += len(asked) + len(said)
        spent = time.perf_counter() - begun
    return Run(exchanges - 1, spent, latencies, size)


def together(connection: psycopg.Connection, dsn: str, kind: str, writers: int, seconds: float, inspect: bool) -> Run:
    """Several writers at once, and the log they wrote."""
    connection.execute("checkpoint")
    start_at = time.time() + 2 + writers / 2  # all are connected and warm by then
    if inspect:  # a slot keeps the log until it is read
        connection.execute("select pg_create_physical_replication_slot(%s, true, true)", (SLOT,))
    start = connection.execute("select pg_current_wal_insert_lsn()").fetchone()[0]
    with ProcessPoolExecutor(writers, multiprocessing.get_context("spawn")) as pool:
        writing = [pool.submit(write, dsn, kind, number, seconds, start_at) for number in range(writers)]
        runs = [each.result() for each in writing]
    end = connection.execute("select pg_current_wal_flush_lsn()").fetchone()[0]
    total = Run(
        sum(run.exchanges for run in runs),
        sum(run.seconds for run in runs) / len(runs),
        [value for run in runs for value in run.latencies],
        sum(run.text_bytes for run in runs),
    )
    if inspect:
        total.wal_bytes, total.image_bytes = connection.execute(
            "select sum(record_size)::bigint, sum(fpi_size)::bigint from pg_get_wal_stats(%s, %s, false)", (start, end)
        ).fetchone()
        connection.execute("select pg_drop_replication_slot(%s)", (SLOT,))
    return total


def can_inspect(connection: psycopg.Connection) -> bool:
    """Whether the server can read its own log (contrib module pg_walinspect)."""
    if connection.execute("select 1 from pg_available_extensions where name = 'pg_walinspect'").fetchone() is None:
        return False
    connection.execute("create extension if not exists pg_walinspect with schema public")
    connection.execute("set search_path = public, pg_catalog")
    return True


def measure(dsn: str, writers: Sequence[int], seconds: float) -> list[tuple[str, str]]:
    """Prints and returns the table."""
    rows = []
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(PLAIN)
        inspect = can_inspect(connection)
        for count in writers:
            named = f"{count} writer{'s' if count > 1 else ''}"
            for kind, name in (("memoir", f"persist_turn, {named}"), ("plain", f"plain INSERT, {named}")):
                progress(name)
                rows.append(together(connection, dsn, kind, count, seconds, inspect).row(name))
    progress("")
    head = [f"{seconds:.0f} s each", "turns/s", "p50 ms", "p99 ms", "text bytes/turn", "WAL bytes/turn"]
    head.append("full-page images, bytes/turn")
    note = "An exchange of two turns is one call; ms are of a call. Other log of the same time (jobs, autovacuum) is counted in.\n\n"
    return [report("writes", note + table(head, rows))]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that `python -m bench` shares."""
    parser.add_argument("--seconds", type=float, default=10, help="of each measurement of writing (%(default)s)")
    parser.add_argument("--writers", default="1,4,16", help="numbers of concurrent writers (%(default)s)")


def run(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Measures in a database of its own. `options`: of add_arguments, and `keep`."""
    with fresh_database("writes", getattr(options, "keep", False)) as dsn:
        return measure(dsn, [int(count) for count in options.writers.split(",")], options.seconds)


if __name__ == "__main__":
    sys.exit(run_alone("bench.writes", __doc__, add_arguments, run, keep=True))
