"""Compiles and writes per second at several connections through PgBouncer, and both together while maintenance runs.

    python -m bench.throughput [--seconds 10] [--connections 1,4,16,64]

pgbench sends the calls, so that the client costs little; PgBouncer pools transactions over four connections to the server per core.
A compile has its vector supplied. Together means: compiles come at a third of the rate that one connection reaches alone, first
alone, then beside as many exchanges written a second and all maintenance jobs after one another, again and again.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

from .common import CannotRun, fresh_database, percentile, progress, report, run_alone, table
from .crowd import Topics, copy_user, last_session, make_user
from .pooler import pooler
from .population import Words

ITEMS = 500
USERS = 64
QUESTIONS = 16


@dataclass
class Run:
    """What one pgbench did."""

    done: int
    seconds: float
    latencies: list[float]

    def row(self, name: str) -> list[str]:
        return [
            name,
            f"{self.done / self.seconds:.1f}",
            *(f"{percentile(self.latencies, share):.1f}" for share in (0.5, 0.95, 0.99)),
        ]


def compile_script(words: Words, topics: Topics) -> str:
    vector = "'{" + ",".join(map(str, topics.query())) + "}'::real[]"
    return (
        f"\\set u random(0, {USERS - 1})\nselect length(memoir.compile_context('user-' || :u, '{last_session(ITEMS)}', "
        f"'{words.sentence(5, 12)[:-1]}?', p_query_embedding => {vector})::text);\n"
    )


def write_script(words: Words) -> str:
    messages = f'[{{"role": "user", "content": "{words.sentence(8, 60)}"}}, {{"role": "assistant", "content": "{words.sentence(8, 60)}"}}]'
    return f"\\set u random(0, {USERS - 1})\n\\set s random(1, 5)\nselect length(memoir.persist_turn('user-' || :u, 'written-' || :s, '{messages}')::text);\n"


class Bench:
    """pgbench with a set of scripts."""

    def __init__(self, folder: Path, dsn: str, kinds: dict[str, list[str]]) -> None:
        found = shutil.which("pgbench") or next(
            map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin/pgbench"), reverse=True)), None
        )
        if not found:
            raise CannotRun("pgbench is not installed")
        self._program, self._folder, self._place = found, folder, conninfo_to_dict(dsn)
        self._scripts: dict[str, list[Path]] = {}
        for kind, texts in kinds.items():
            self._scripts[kind] = [folder / f"{kind}-{number}.sql" for number in range(len(texts))]
            for path, text in zip(self._scripts[kind], texts, strict=True):
                path.write_text(text)

    def run(self, kind: str, connections: int, seconds: float, rate: float | None = None) -> Run:
        place, prefix = self._place, self._folder / f"log-{kind}"
        for old in self._folder.glob(f"log-{kind}*"):
            old.unlink()
        arguments = [
            self._program,
            "-n",
            "-M",
            "simple",
            "-h",
            place["host"],
            "-p",
            place["port"],
            "-U",
            place["user"],
            "-c",
            str(connections),
            "-j",
            str(min(2, connections)),
            "-T",
            str(round(seconds)),
            "-l",
            "--log-prefix",
            str(prefix),
            *(["-R", f"{rate:.2f}"] if rate else []),
            *(part for path in self._scripts[kind] for part in ("-f", str(path))),
            place["dbname"],
        ]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CannotRun(f"pgbench: {done.stderr[-800:]}")
        lines = [line.split() for path in self._folder.glob(f"log-{kind}*") for line in path.read_text().splitlines()]
        if not lines:
            raise CannotRun(f"pgbench did nothing in {seconds} s: {done.stdout[-300:]}")
        return Run(len(lines), seconds, [int(line[2]) / 1000 for line in lines])


class Maintenance:
    """All jobs of the database after one another, again and again until it is stopped; not what starts or calls other processes."""

    def __init__(self, dsn: str) -> None:
        self._dsn, self._stop, self.runs, self.failed = dsn, threading.Event(), 0, ""
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> Maintenance:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        try:
            with psycopg.connect(self._dsn, autocommit=True) as connection:
                jobs = [
                    job
                    for (job,) in connection.execute(
                        "select job from _memoir.job_list() where job <> 'embedder' and not in_python"
                    )
                ]
                while not self._stop.is_set():
                    for job in jobs:
                        if self._stop.is_set():
                            return
                        connection.execute(f"call memoir.run_job('{job}', 5)")
                        self.runs += 1
                    self._stop.wait(1)
        except psycopg.Error as error:
            self.failed = str(error)


def measure(dsn: str, words: Words, topics: Topics, counts: Sequence[int], seconds: float) -> list[tuple[str, str]]:
    rows, together = [], []
    with tempfile.TemporaryDirectory() as name, pooler(dsn, 4 * (os.cpu_count() or 1)) as pooled:
        scripts = {
            "compile": [compile_script(words, topics) for _ in range(QUESTIONS)],
            "write": [write_script(words) for _ in range(QUESTIONS)],
        }
        scripts["beside"] = scripts["write"]
        bench = Bench(Path(name), pooled, scripts)
        bench.run("compile", 4, 3), bench.run("write", 4, 2)  # plans, caches
        alone = 0.0
        for kind, said in (("compile", "compile_context"), ("write", "persist_turn, two messages")):
            for count in counts:
                progress(f"{said}, {count} connections")
                run = bench.run(kind, count, seconds)
                rows.append(run.row(f"{said}, {count} connection{'s' if count > 1 else ''}"))
                if kind == "compile" and count == min(counts):
                    alone = run.done / run.seconds
        rate = max(0.5, alone / 3)
        progress("compiles alone")
        before = bench.run("compile", 4, 2 * seconds, rate)
        progress("compiles beside writes and maintenance")
        found: list[Run] = []
        with Maintenance(dsn) as maintenance:
            other = threading.Thread(target=lambda: found.append(bench.run("beside", 4, 2 * seconds, rate)))
            other.start()
            after = bench.run("compile", 4, 2 * seconds, rate)
            other.join()
        if maintenance.failed or not found:
            raise CannotRun(f"maintenance or writing failed: {maintenance.failed}")
        together = [
            before.row("compile_context alone"),
            after.row("compile_context beside the others"),
            found[0].row("persist_turn beside the others"),
            [
                "growth of compile",
                "–",
                *(f"{percentile(after.latencies, p) / percentile(before.latencies, p):.2f}" for p in (0.5, 0.95, 0.99)),
            ],
        ]
    progress("")
    head = [f"{seconds:.0f} s each, ms", "a second", "p50", "p95", "p99"]
    intro = f"{USERS} users of {ITEMS} items each.\n\n"
    note = f"Calls come at {rate:.1f} a second; {maintenance.runs} runs of jobs beside them.\n\n"
    return [
        report("throughput", intro + table(head, rows)),
        report("together", note + table(["ms", "a second", "p50", "p95", "p99"], together)),
    ]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--connections", default="1,4,16,64", help="numbers of connections (%(default)s)")


def run(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Measures in a database of its own; says so aloud and leaves the tables as they are where PgBouncer is not to be had."""
    rng = random.Random(1)
    words, topics = Words(rng), Topics(rng)
    with (
        fresh_database("throughput", getattr(options, "keep", False)) as dsn,
        psycopg.connect(dsn, autocommit=True) as connection,
    ):
        topics.put(connection)
        make_user(connection, "user-0", ITEMS, words)
        copy_user(connection, "user-0", [f"user-{number}" for number in range(1, USERS)])
        connection.execute("vacuum analyze")
        try:
            return measure(
                dsn, words, topics, [int(count) for count in options.connections.split(",")], options.seconds
            )
        except CannotRun as error:
            print(f"throughput is left out: {error}", file=sys.stderr, flush=True)
            return []


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=10, help="of each measurement (%(default)s)")
    add_arguments(parser)


if __name__ == "__main__":
    sys.exit(run_alone("bench.throughput", __doc__, _options, run, keep=True))
