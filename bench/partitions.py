"""Does a compile cost more with more partitions? One user's compile at several moduli and months of history.

    python -m bench.partitions [--moduli 16,512] [--months 1,36] [--queries 100]

Every table that a compile reads has all its hash partitions. The user's sessions lie in as many months as there are, and the monthly
partitions are those of the user's own part: no statement looks at another part's. Processor time of the backend, as in bench.sizes.
"""

from __future__ import annotations

import argparse
import random
import sys

import psycopg

from .common import fresh_database, percentile, progress, report, run_alone, table
from .crowd import Topics, make_user
from .population import Words
from .sizes import Measured, measure

ITEMS = 2000
READ = (
    "users",
    "user_counters",
    "sessions",
    "session_counters",
    "profiles",
    "compactions",
    "recall_exclusions",
    "turn_marks",
    "turn_pins",
    "kept_recalls",
    "conversation_history",
    "search_items",
    "search_tail",
    "search_postings",
    "embeddings",
    "memory_store",
    "memory_stats",
    "memory_states",
    "memory_store_working",
    "session_objects",
)


def make_leaves(connection: psycopg.Connection, modulus: int) -> int:
    """All hash partitions of what a compile reads, a transaction each few. Returns how many."""
    made = 0
    for part in range(modulus):
        progress(f"modulus {modulus}: part {part}")
        (count,) = connection.execute(
            "select count(*) from unnest(%s::name[]) t where _memoir.make_leaf(t, %s)", (list(READ), part)
        ).fetchone()
        made += count
    return int(made)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--moduli", default="16,512", help="numbers of hash partitions (%(default)s)")
    parser.add_argument("--months", default="1,36", help="months over which the sessions are spread (%(default)s)")


def run(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Measures in a database of its own for each modulus."""
    found: list[tuple[int, int, Measured]] = []
    for modulus in map(int, options.moduli.split(",")):
        with (
            fresh_database("partitions", getattr(options, "keep", False), modulus) as dsn,
            psycopg.connect(dsn, autocommit=True) as connection,
        ):
            make_leaves(connection, modulus)
            rng = random.Random(1)
            topics = Topics(rng)
            topics.put(connection)
            for months in map(int, options.months.split(",")):
                words = Words(random.Random(2))
                make_user(connection, f"months-{months}", ITEMS, words, months)
                connection.execute("vacuum analyze")
                found.append((modulus, months, measure(dsn, f"months-{months}", ITEMS, words, topics, options.queries)))
    progress("")
    first = percentile(found[0][2].ran, 0.5)
    rows = [
        [
            f"modulus {modulus}, {months} month{'s' if months > 1 else ''}",
            *(f"{percentile(m.ran, share):.1f}" for share in (0.5, 0.95)),
            f"{percentile(m.ran, 0.5) / first:.2f}",
            "–" if m.planning is None else f"{m.planning:.1f}",
            f"{m.buffers:,}",
            m.locks,
        ]
        for modulus, months, m in found
    ]
    head = ["compile, processor ms", "p50", "p95", "of the first", "planning ms", "buffers", "locks"]
    return [
        report("partitions", f"A user of {ITEMS:,} items; {options.queries} questions each.\n\n" + table(head, rows))
    ]


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--queries", type=int, default=100, help="compiles measured of each (%(default)s)")
    add_arguments(parser)


if __name__ == "__main__":
    sys.exit(run_alone("bench.partitions", __doc__, _options, run, keep=True))
