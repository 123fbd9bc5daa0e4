"""The nearest of one user's vectors: the kernel's signs beside an HNSW index of the user's own.

    python -m research.nearest [--items 60000] [--questions 40]

Vectors of 384 dimensions are sums of two of 1,000 topics and noise. Milliseconds are of the backend's processor. What is found is
counted among the 100 nearest by exact distances. The index is partial (`where user_id = …`), built by pgvector.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np
import psycopg

from bench.common import fresh_database, processor_time, progress, report, run_alone, table
from bench.population import DIMENSION

WANTED = 250  # of a compile
NEAREST = 100
WRITTEN = 1_000  # vectors whose writing is measured
KERNEL = """
create function pg_temp.near(p_user text, p_part integer, p_model integer, p_vector text, p_last integer, p_limit integer,
  out items integer[], out spent float8) language plpython3u as $$
import time
import numpy as np
from pg_memoir_kernel.vectors import vector_scores
from pg_memoir_server.kernel import ServerStore
store = ServerStore(plpy, {"part": p_part, "user": p_user, "scope": {"clearance": "secret", "projects": None}})
settings, none = {"exact_vectors_max": 2500, "sign_candidates": 3}, np.zeros(0, np.int64)
vector = np.fromstring(p_vector[1:-1], np.float32, sep=",")
began = time.process_time()
found = vector_scores(store, vector, p_vector, p_model, settings, p_last, none, none, p_limit)
return found.items.tolist(), (time.process_time() - began) * 1000
$$"""


def measure(dsn: str, items: int, questions: int) -> list[list[Any]]:
    """Return a row for each way: name, ms of a search, ms of an insert, share of the nearest that it finds."""
    rng = np.random.default_rng(5)
    topics = rng.normal(size=(1_000, DIMENSION))

    def vector() -> str:
        one, other = topics[rng.integers(0, len(topics), 2)]
        return "[" + ",".join(f"{x:.3f}" for x in one + other + 0.5 * rng.normal(size=DIMENSION)) + "]"

    def spent(statement: str, given: list[tuple[Any, ...]]) -> float:
        began = processor_time(pid)
        for one in given:
            db.execute(statement, one)
        return (processor_time(pid) - began) / len(given)

    with psycopg.connect(dsn, autocommit=True) as db:
        pid = db.info.backend_pid
        db.execute("set search_path = pg_catalog, memoir_extensions, pg_temp")
        db.execute("set max_parallel_maintenance_workers = 0; set maintenance_work_mem = '1GB'")
        db.execute('select memoir.persist_turn(\'big\', \'s\', \'[{"role": "user", "content": "Hello."}]\')')
        user, part, model = db.execute(
            "select u, _memoir.part_of(u), model_id from _memoir.user_id('default', 'big') u, _memoir.embedding_models"
            " where status = 'active'"
        ).fetchone()  # type: ignore[misc]
        with db.cursor().copy("copy _memoir.embeddings (user_id, item_no, model_id, embedding) from stdin") as copy:
            for n in range(items):
                copy.write_row((user, n, model, vector()))
        db.execute(
            "insert into _memoir.embedding_cursors (user_id, model_id, through_item) values (%s, %s, %s)"
            " on conflict (user_id, model_id) do update set through_item = excluded.through_item",
            (user, model, items - 1),
        )
        db.execute("select _memoir.pack_signs(%s, %s)", (user, model))
        db.execute("vacuum analyze _memoir.embeddings, _memoir.packed_signs")
        db.execute(KERNEL)
        leaf, asked = f"_memoir.embeddings_p{part}", [vector() for _ in range(questions)]
        of_user = f"from {leaf} where user_id = '{user}' and model_id = {model}"
        exact = f"select item_no {of_user} order by embedding::vector({DIMENSION}) <=> %s::vector limit {NEAREST}"
        nearest = [{n for (n,) in db.execute(exact, (one,))} for one in asked]

        def share(found: list[list[int]]) -> str:
            kept = [len(its & set(one[:NEAREST])) / NEAREST for its, one in zip(nearest, found, strict=True)]
            return f"{sum(kept) / len(kept):.3f}"

        def added(first: int) -> float:
            put = "insert into _memoir.embeddings (user_id, item_no, model_id, embedding) values (%s, %s, %s, %s)"
            return spent(put, [(user, first + n, model, vector()) for n in range(WRITTEN)])

        near = "select * from pg_temp.near(%s::text, %s::integer, %s::integer, %s, %s::integer, %s::integer)"
        rows = [db.execute(near, (user, part, model, one, items - 1, WANTED)).fetchone() for one in asked]
        times = sorted(row[1] for row in rows if row)
        result = [["signs", times[len(times) // 2], added(items), share([row[0] for row in rows if row])]]
        progress("building the index")
        lists = f"(embedding::halfvec({DIMENSION})) halfvec_cosine_ops"
        db.execute(
            f"create index one_user on {leaf} using hnsw ({lists}) where user_id = '{user}' and model_id = {model}"
        )
        write = added(items + WRITTEN)
        by_index = f"select item_no {of_user} order by embedding::halfvec({DIMENSION}) <=> %s::halfvec({DIMENSION}) limit {WANTED}"
        for width in (WANTED, 2 * WANTED, 4 * WANTED):
            db.execute(f"set hnsw.ef_search = {width}")
            found = [[n for (n,) in db.execute(by_index, (one,))] for one in asked]
            result.append([f"HNSW, ef_search {width}", spent(by_index, [(one,) for one in asked]), write, share(found)])
        return result


def main() -> int:
    """Measure in a database of its own."""

    def options(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--items", type=int, default=60_000)
        parser.add_argument("--questions", type=int, default=40)

    def run(given: argparse.Namespace) -> None:
        with fresh_database("nearest") as dsn:
            rows = measure(dsn, given.items, given.questions)
        head = ["", "ms of a search", "ms of an insert", f"found of the {NEAREST} nearest"]
        shown = [[name, f"{search:.1f}", f"{write:.2f}", share] for name, search, write, share in rows]
        report("nearest", f"## Nearest of {given.items:,} vectors of a user\n\n" + table(head, shown))

    return run_alone("research.nearest", __doc__, options, run)


if __name__ == "__main__":
    sys.exit(main())
