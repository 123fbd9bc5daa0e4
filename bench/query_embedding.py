"""The query's embedding: through the shared embedder, beside the bare model call, and beside a model in each process.

    python -m bench.query_embedding [--embeddings 400] [--separate 4]

One at a time: the call that a compile makes, from the backend over the socket, beside the same runtime called in this process; by
turns. Sixteen at a time: pgbench's connections to the shared embedder, beside processes of their own with sentence-transformers, as
an application or backend without it would load it; more such processes than cores only share the cores. Processor time is that of
the embedder (one at a time: and of the backend), or of those processes. The cosine is to sentence-transformers' vector of the same text.
Last what a core embeds of a backlog, by both runtimes in turn, each on one thread.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import psycopg

from .common import EMBEDDING_MODEL, CannotRun, percentile, progress, report, run_alone, server_dsn, table
from .latency import EMBED, embedder_socket, milliseconds
from .throughput import Bench

CONCURRENT = 16
# Ordinary questions: made-up words would be cut into many more tokens.
ASKED = (
    "When did {who} move to {place}?",
    "What did {who} say about the {thing} last week?",
    "Which {thing} does {who} like best?",
    "Did I ever tell you about my {thing} in {place}?",
    "How much did the {thing} cost that {who} bought?",
    "Who was with me in {place} when the {thing} broke?",
    "Why is {who} worried about the {thing}?",
    "What was the name of the {thing} shop in {place} again?",
)
FILLED = {
    "who": ("my sister", "Ana", "the new manager", "our neighbour", "Tom"),
    "place": ("Bergen", "Lisbon", "the mountains", "New York"),
    "thing": ("guitar", "car", "project", "kitchen", "invoice", "train ticket", "garden"),
}


def embedder_pid(socket: str) -> int:
    """The process behind the socket. It answers only the server's own user, so it is known by its command."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"pg_memoir_server.embedder" in command and socket.encode() in command:
            return int(folder.name)
    raise CannotRun(f"the embedder behind {socket} is not to be found on this machine")


def threads_time(pid: int) -> float:
    """Milliseconds that all threads of a process have run."""
    return sum(int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir()) / 1e6


def reference(texts: list[str], start_at: float) -> tuple[int, float, float, list[list[float]]]:
    """In a process of its own: (embedded, seconds, processor seconds, vectors) of a model loaded before."""
    from pg_memoir_server.runtimes import load

    model = load(EMBEDDING_MODEL, "sentence-transformers")
    model.embed(texts[:3])
    time.sleep(max(0.0, start_at - time.time()))
    begun, ran = time.perf_counter(), time.process_time()
    vectors = [model.embed([text])[0].tolist() for text in texts]
    return len(texts), time.perf_counter() - begun, time.process_time() - ran, vectors


def one_at_a_time(
    connection: psycopg.Connection, socket: str, texts: list[str]
) -> tuple[list[list[str]], list[list[float]]]:
    """Rows of the table, and the vectors that the embedder gave."""
    from pg_memoir_server.runtimes import load

    model = load(EMBEDDING_MODEL)
    pids = embedder_pid(socket), connection.info.backend_pid
    shared: list[float] = []
    bare: list[float] = []
    vectors: list[list[float]] = []
    before, own = [threads_time(pid) for pid in pids], 0.0
    for text in texts:
        shared.append(
            milliseconds(
                lambda: vectors.append(connection.execute(EMBED, (socket, EMBEDDING_MODEL, text)).fetchone()[0])
            )
        )
        ran = time.process_time()
        bare.append(milliseconds(lambda: model.embed([text + " Then?"])))
        own += time.process_time() - ran
    spent = sum(threads_time(pid) - was for pid, was in zip(pids, before, strict=True)) / len(texts)
    own = 1000 * own / len(texts)
    rows = [
        [
            f"bare call of the model ({model.name})",
            f"{percentile(bare, 0.5):.1f}",
            f"{percentile(bare, 0.95):.1f}",
            f"{own:.1f}",
        ],
        [
            "through the shared embedder",
            f"{percentile(shared, 0.5):.1f}",
            f"{percentile(shared, 0.95):.1f}",
            f"{spent:.1f}",
        ],
        [
            "ratio",
            f"{percentile(shared, 0.5) / percentile(bare, 0.5):.2f}",
            f"{percentile(shared, 0.95) / percentile(bare, 0.95):.2f}",
            f"{spent / own:.2f}",
        ],
    ]
    return rows, vectors


def at_once(
    dsn: str, socket: str, texts: list[str], seconds: float, separate: int
) -> tuple[list[list[str]], list[list[float]]]:
    """Rows of the table, and the reference's vectors of the first texts."""
    pid = embedder_pid(socket)
    with tempfile.TemporaryDirectory() as folder:
        scripts = [
            f"select count(vec) from _memoir.py_embed_query('{socket}', '{EMBEDDING_MODEL}', '{text}', 5000);\n"
            for text in texts[:CONCURRENT]
        ]
        bench = Bench(Path(folder), dsn, {"embed": scripts})
        before = threads_time(pid)
        run = bench.run("embed", CONCURRENT, seconds)
        spent = (threads_time(pid) - before) / run.done
    progress(f"{separate} models of their own")
    count = max(10, len(texts) // 4)
    with ProcessPoolExecutor(separate, multiprocessing.get_context("spawn")) as pool:
        parts = list(pool.map(reference, [texts[:count]] * separate, [time.time() + 25 + 10 * separate] * separate))
    rate = sum(done / took for done, took, _, _ in parts)
    ran = 1000 * sum(part[2] for part in parts) / sum(part[0] for part in parts)
    shared_rate = run.done / run.seconds
    waited = [f"{percentile(run.latencies, share):.1f}" for share in (0.5, 0.99)]
    rows = [
        [f"shared embedder, {CONCURRENT} connections", f"{shared_rate:.0f}", *waited, f"{spent:.1f}"],
        [f"a model in each of {separate} processes (sentence-transformers)", f"{rate:.0f}", "–", "–", f"{ran:.1f}"],
        ["ratio", f"{shared_rate / rate:.2f}", "–", "–", f"{ran / spent:.2f}"],
    ]
    return rows, parts[0][3]


def a_core(questions: list[str]) -> list[list[str]]:
    """Texts a minute of processor time, of one thread: questions, and pages of Python's help of about as many tokens as the model reads."""
    from pg_memoir_server.runtimes import load

    words = " ".join(topics[name] for name in sorted(topics)).split()
    pages = [" ".join(words[180 * n : 180 * n + 180]) for n in range(24)]
    names = ("onnx", "sentence-transformers")
    models = [load(EMBEDDING_MODEL, name) for name in names]
    rows = [[name] for name in (*names, "ratio")]
    for texts in (questions, pages):
        spent = [0.0, 0.0]
        for turn in range(4):  # the first warms up
            for number, model in enumerate(models):
                ran = time.process_time()
                model.embed(texts)
                spent[number] += (time.process_time() - ran) * (turn > 0)
        rates = [60 * 3 * len(texts) / seconds for seconds in spent]
        for row, rate in zip(rows[:2], rates, strict=True):
            row.append(f"{rate:,.0f}")
        rows[-1].append(f"{rates[0] / rates[1]:.2f}")
    return rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--embeddings", type=int, default=400, help="texts embedded one at a time (%(default)s)")
    parser.add_argument("--separate", type=int, default=4, help="processes with a model of their own (%(default)s)")


def run(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Measures the embedder of the server's own database."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    rng = random.Random(1)
    texts = [
        rng.choice(ASKED).format(**{name: rng.choice(values) for name, values in FILLED.items()})
        for _ in range(options.embeddings)
    ]
    dsn = server_dsn()
    with psycopg.connect(dsn, autocommit=True) as connection:
        socket = embedder_socket(connection)
        if not socket:
            raise CannotRun("the shared embedder does not answer")
        single, vectors = one_at_a_time(connection, socket, texts)
    many, expected = at_once(dsn, socket, texts, options.seconds, options.separate)
    cosines = [
        float(np.dot(a, b) / np.linalg.norm(a) / np.linalg.norm(b)) for a, b in zip(vectors, expected, strict=False)
    ]
    backlog = a_core(texts[:256])
    progress("")
    lengths = [len(text.split()) for text in texts]
    text = "\n\n".join(
        [
            f"{options.embeddings} questions of {min(lengths)} to {max(lengths)} words, {EMBEDDING_MODEL}; "
            f"lowest cosine to the reference of {len(cosines)}: {min(cosines):.6f}.",
            table(["one at a time, ms", "p50", "p95", "processor time"], single),
            table([f"{CONCURRENT} at a time, ms", "a second", "p50", "p99", "processor time of the models"], many),
            table(["texts a minute of a core", "questions", "of 180 words"], backlog),
        ]
    )
    return [report("query-embedding", text)]


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=10, help="of sixteen at a time (%(default)s)")
    add_arguments(parser)


if __name__ == "__main__":
    sys.exit(run_alone("bench.query_embedding", __doc__, _options, run))
