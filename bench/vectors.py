"""Nearest vectors of one user: comparing all, choosing by signs first, or a vector index; by size, time, recall and what writing costs.

    python -m bench.vectors --vectors locomo.json [--vectors realmem/ ...] [--sizes 1000,...,100000] [--hnsw 10000,100000]

Vectors are those of the texts of the data and of all texts that other benchmarks have embedded here (all-MiniLM-L6-v2), and where they
are too few also mixtures of two of them with noise; queries are the data's questions. Recall is the share of the 50 and of the 240
nearest, by cosine, that a method finds among 240. HNSW has m 16 and ef_construction 200, and scans iteratively in strict order: once as an
index of the user's own rows, once as one for all users of the partition, with the user as a filter. Times are processor time of the
backend; the lower quartile, which other work on the machine disturbs least.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray

from .common import CachedEmbedder, CannotRun, fresh_database, percentile, progress, report, run_alone, table
from .datasets import Remembered, read
from .latency import processor_time
from .sizes import ran_ms

WANTED = 240
NOISE = np.random.default_rng(1)
BY_SETTING = """
select (_memoir.vector_scores(c.user_id, c, m.config || jsonb_build_object('exact_vectors_max', %(exact)s::integer, 'sign_candidates', %(times)s::integer),
          %(vector)s::real[]::memoir_extensions.halfvec, %(model)s::smallint, null, '{}', %(wanted)s)).items
from _memoir.user_counters c, _memoir.settings_merged m where c.user_id = %(user)s"""
BY_INDEX = """
select array_agg(item_no) from (
  select item_no from {leaf} where user_id = '{user}' and model_id = {model}
  order by (embedding::memoir_extensions.halfvec({dimension})) operator(memoir_extensions.<=>) %(vector)s::real[]::memoir_extensions.halfvec({dimension})
  limit %(wanted)s) x"""


def vectors_of(paths: Sequence[Path], count: int, asked: int) -> tuple[NDArray[np.float32], NDArray[np.float32], int]:
    """(vectors of texts, of questions, how many of the former are real)."""
    embed, rng = CachedEmbedder(), np.random.default_rng(0)
    corpora = [corpus for path in paths for corpus in read(path)]
    texts = list(
        dict.fromkeys(
            item.content if isinstance(item, Remembered) else str(item.message["content"])
            for corpus in corpora
            for item in corpus.items()
        )
    )
    questions = list(dict.fromkeys(question.text for corpus in corpora for question in corpus.questions()))
    random.Random(0).shuffle(texts)
    random.Random(0).shuffle(questions)
    embed([text for text in texts if text.strip()][:count])
    real = np.array(embed.all_but(questions), dtype=np.float32)
    real = rng.permutation(real[np.linalg.norm(real, axis=1) > 0])[:count]
    known = len(real)
    if count > len(real):
        more = count - len(real)
        one, other = (real[rng.integers(0, len(real), more)] for _ in range(2))
        real = np.vstack(
            [real, 0.75 * one + 0.25 * other + rng.normal(0, 0.02, (more, real.shape[1])).astype(np.float32)]
        )
    order = rng.permutation(count)
    return real[order], np.array(embed(questions[:asked]), dtype=np.float32), known


def fill(
    connection: psycopg.Connection, vectors: NDArray[np.float32], sizes: Sequence[int]
) -> dict[int, dict[str, Any]]:
    """A user of each size, all in one partition; what a statement about each needs to know."""
    (model,) = connection.execute("select model_id from _memoir.embedding_models where status = 'active'").fetchone()
    connection.execute("create temp table made (n integer primary key, v memoir_extensions.halfvec not null)")
    with connection.cursor().copy("copy made from stdin") as copy:
        for n, vector in enumerate(vectors, 1):
            copy.write_row((n, "[" + ",".join(f"{x:.4f}" for x in vector) + "]"))
    connection.execute(
        "create temp table users_made as select id, row_number() over () as o "
        "from (select _memoir.user_id('default', 'u' || n) as id from generate_series(1, 10000) n) x where _memoir.part_of(id) = 0"
    )
    known = {}
    for place, size in enumerate(sizes, 1):
        progress(f"{size:,} vectors")
        (user,) = connection.execute("select id from users_made where o = %s", (place,)).fetchone()
        connection.execute(
            "insert into _memoir.user_counters (user_id, items, next_item) values (%s, %s, %s + 1)", (user, size, size)
        )
        connection.execute(
            "insert into _memoir.embeddings (user_id, item_no, model_id, embedding) select %s, n, %s, v from made where n <= %s order by n",
            (user, model, size),
        )
        known[size] = {
            "user": user,
            "model": model,
            "wanted": WANTED,
            "leaf": "_memoir.embeddings_p0",
            "dimension": vectors.shape[1],
        }
    connection.execute("vacuum analyze")
    return known


def time_and_recall(
    connection: psycopg.Connection,
    ask: Callable[[list[float]], list[int]],
    queries: NDArray[np.float32],
    truth: list[list[int]],
) -> tuple[float, float, float, float]:
    """(processor ms, mean recall of the 50 nearest, lowest, mean recall of all wanted)."""
    pid, times, best, recalls = connection.info.backend_pid, [], [], []
    for query, exact in zip(queries, truth, strict=True):
        found: list[int] = []
        times.append(ran_ms(pid, lambda: found.extend(ask(query.tolist()))))
        best.append(len(set(found) & set(exact[:50])) / 50)
        recalls.append(len(set(found) & set(exact)) / max(1, len(exact)))
    return percentile(times[2:], 0.25), float(np.mean(best)), min(best), float(np.mean(recalls))


def by_setting(
    connection: psycopg.Connection, known: dict[str, Any], exact: int, times: int
) -> Callable[[list[float]], list[int]]:
    return lambda vector: connection.execute(
        BY_SETTING, known | {"vector": vector, "exact": exact, "times": times}
    ).fetchone()[0]


def by_index(connection: psycopg.Connection, known: dict[str, Any]) -> Callable[[list[float]], list[int]]:
    statement = BY_INDEX.format(**known)
    return lambda vector: connection.execute(statement, {"vector": vector, "wanted": WANTED}).fetchone()[0] or []


def write_cost(
    connection: psycopg.Connection, known: dict[str, Any], size: int, vectors: NDArray[np.float32], count: int = 200
) -> tuple[float, float]:
    """(processor ms, bytes of log) of one more vector, taken back afterwards."""
    pid = connection.info.backend_pid
    insert = "insert into _memoir.embeddings (user_id, item_no, model_id, embedding) values (%s, %s, %s, %s::memoir_extensions.halfvec)"
    spent, log = 0.0, 0
    for _ in range(2):  # the second time most pages' images are in the log already
        new = vectors[:count] + NOISE.normal(
            0, 0.01, (count, vectors.shape[1])
        )  # no copies: an index would not link them
        rows = [
            (known["user"], size + n, known["model"], "[" + ",".join(f"{x:.4f}" for x in vector) + "]")
            for n, vector in enumerate(new, 1)
        ]
        with connection.transaction():
            before = connection.execute("select pg_current_wal_insert_lsn()").fetchone()[0]
            spent = ran_ms(pid, lambda: connection.cursor().executemany(insert, rows))
            log = connection.execute("select (pg_current_wal_insert_lsn() - %s)::bigint", (before,)).fetchone()[0]
            raise psycopg.Rollback()
    return spent / count, log / count


def measure(
    connection: psycopg.Connection,
    known: dict[int, dict[str, Any]],
    vectors: NDArray[np.float32],
    queries: NDArray[np.float32],
    indexed: Sequence[int],
) -> list[list[str]]:
    rows: list[list[str]] = []
    connection.execute("set max_parallel_workers_per_gather = 0")
    connection.execute("set maintenance_work_mem = '512MB'")
    truths = {}
    for size, of in known.items():
        progress(f"{size:,} vectors: all, signs")
        exact = by_setting(connection, of, 10**9, 1)
        truths[size] = [exact(query.tolist()) for query in queries]
        methods = [("all compared", exact)] + [
            (f"signs, {times} × as many compared", by_setting(connection, of, 0, times)) for times in (2, 4, 6)
        ]
        written = write_cost(connection, of, size, vectors)
        for name, ask in methods:
            rows.append(_row(size, name, time_and_recall(connection, ask, queries, truths[size]), written, "–"))
    for size in indexed:
        of = known[size]
        own = f"where user_id = '{of['user']}' and model_id = {of['model']}"
        for name, where in ((f"HNSW of {size:,}, the user's own", own), ("HNSW of all in the partition", "")):
            progress(f"{size:,} vectors: {name}")
            start = time.perf_counter()
            connection.execute(
                f"create index trial on {of['leaf']} using hnsw ((embedding::memoir_extensions.halfvec({of['dimension']})) memoir.halfvec_cosine_ops) "
                f"with (m = 16, ef_construction = 200) {where}"
            )
            built = f"{time.perf_counter() - start:.0f} s"
            connection.execute("analyze _memoir.embeddings_p0")
            asked = sorted(known) if not where else [size]
            for owner in asked:
                for ef in (100, 240):
                    connection.execute(f"set hnsw.ef_search = {ef}")
                    connection.execute("set hnsw.iterative_scan = strict_order")
                    ask = by_index(connection, known[owner])
                    with connection.transaction():
                        connection.execute("set local enable_seqscan = off")
                        connection.execute("set local enable_sort = off")
                        measured = time_and_recall(connection, ask, queries, truths[owner])
                    rows.append(
                        _row(
                            owner,
                            f"{name}, ef {ef}",
                            measured,
                            write_cost(connection, known[owner], owner, vectors, 50),
                            built,
                        )
                    )
            connection.execute("drop index memoir.trial")
    return rows


def _row(
    size: int, name: str, measured: tuple[float, float, float, float], written: tuple[float, float], built: str
) -> list[str]:
    spent, mean, least, wanted = measured
    return [
        f"{size:,}",
        name,
        f"{spent:.2f}",
        f"{mean:.3f}",
        f"{least:.3f}",
        f"{wanted:.3f}",
        f"{written[0]:.2f}",
        f"{written[1]:,.0f}",
        built,
    ]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--vectors",
        type=Path,
        action="append",
        help="a LoCoMo file, a folder of RealMem dialogues or of BEAM chats, whose texts are embedded",
    )
    parser.add_argument("--sizes", default="1000,5000,10000,20000,100000", help="vectors of a user (%(default)s)")
    parser.add_argument(
        "--hnsw",
        default="10000,100000",
        help="sizes for which HNSW is built, too; the last also for all users (%(default)s)",
    )
    parser.add_argument("--asked", type=int, default=60, help="queries of each (%(default)s)")


def run(options: argparse.Namespace) -> list[tuple[str, str]]:
    if not options.vectors:
        raise CannotRun("no texts: python -m bench.vectors --vectors locomo.json")
    sizes = [int(size) for size in options.sizes.split(",")]
    indexed = [int(size) for size in options.hnsw.split(",") if size]
    vectors, queries, real = vectors_of(options.vectors, max(sizes), options.asked)
    with (
        fresh_database("vectors", getattr(options, "keep", False)) as dsn,
        psycopg.connect(dsn, autocommit=True) as connection,
    ):
        if processor_time(connection.info.backend_pid) is None:
            raise CannotRun("the system does not tell how long a process has run")
        rows = measure(connection, fill(connection, vectors, sizes), vectors, queries, indexed)
    progress("")
    head = [
        "vectors",
        "method",
        "processor ms",
        "recall of 50",
        "least",
        "of 240",
        "write, processor ms",
        "write, log bytes",
        "built in",
    ]
    return [
        report(
            "vectors",
            f"{len(queries)} questions; {real:,} vectors of texts, the rest mixtures of them.\n\n" + table(head, rows),
        )
    ]


if __name__ == "__main__":
    sys.exit(run_alone("bench.vectors", __doc__, add_arguments, run, keep=True))
