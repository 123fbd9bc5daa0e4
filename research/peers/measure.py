"""pg_memoir beside other memory stores: same conversations, server, run and vectors, each through its own public API.

    python -m research.peers --data locomo.json [--stores langgraph,mem0,langchain,hindsight] [--corpora NAME] [--questions 50]

Every store gets each turn as "name: text" with its date, in order, and is asked each question for 50 results. R@10: share of
the evidence among the ten best. Within 2,000 tokens: the stores' results are filled, best first, as dated lines, counted by the
same tokenizer; for pg_memoir it is the compiled list itself. The query's vector is given to all and its time is not counted.
WAL: records of the server's log that touch the store's database, per write, background writes included; full-page images depend on
how often the server makes checkpoints, so they stand apart. Processor time: of the store's process and of
the server's backends that serve it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from pg_memoir import Memoir
from psycopg.conninfo import conninfo_to_dict

from bench.common import (
    CACHE,
    CachedEmbedder,
    CannotRun,
    fresh_database,
    percentile,
    processor_time,
    progress,
    report,
    run_alone,
    table,
)
from bench.datasets import Asked, Corpus, Remembered, Said
from bench.writes import can_inspect
from research.conversations import read
from research.evidence import ask

# What each needs, pinned; in an environment of its own, since their dependencies exclude each other.
STORES = {
    "langgraph": ("LangGraph PostgresStore", ["langgraph-checkpoint-postgres==3.2.0", "psycopg[binary,pool]"]),
    "mem0": (
        "Mem0",
        ["mem0ai==2.2.1", "langchain-core==1.7.2", "langchain==1.4.0", "pgvector==0.3.6", "psycopg[binary,pool]"],
    ),
    "langchain": ("LangChain PGVectorStore", ["langchain-postgres==0.0.19", "psycopg[binary,pool]"]),
    "hindsight": ("Hindsight", ["hindsight-api-slim==1.1.0"]),
}
LIMIT = 50
BUDGET = 2000


@dataclass
class Measured:
    """One store on all corpora."""

    name: str
    version: str = ""
    settings: str = ""
    ranked: list[float] = field(default_factory=list)
    within: list[float] = field(default_factory=list)
    searches: list[float] = field(default_factory=list)
    writes: list[float] = field(default_factory=list)
    wal: int = 0
    images: int = 0
    ran_searching: float = 0.0
    ran_writing: float = 0.0
    problem: str = ""


class Child:
    """A store in a process of its own."""

    def __init__(self, store: str, dsn: str, embed: CachedEmbedder, folder: str) -> None:
        place = conninfo_to_dict(dsn)
        environment = os.environ | {
            "PEER_DATABASE": json.dumps(place),
            "PEER_FOLDER": folder,
            "OMP_NUM_THREADS": "1",
            "HOME": folder,
        }
        environment.pop("PYTHONPATH", None)
        self._embed = embed
        self._errors = Path(folder, "stderr.log").open("w")
        self._process = subprocess.Popen(
            [environment_of(store), Path(__file__).with_name("stores.py"), store],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self.about = self._read()

    def order(self, **order: Any) -> dict[str, Any]:
        self._write(order)
        return self._read()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._errors.close()

    def _write(self, value: Any) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(value) + "\n")
        self._process.stdin.flush()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout
        while line := self._process.stdout.readline():
            value = json.loads(line)
            if "embed" not in value:
                return dict(value)
            self._write({"vectors": self._embed(value["embed"])})
        raise CannotRun(f"the store ended: {Path(self._errors.name).read_text()[-1500:]}")


def environment_of(store: str) -> Path:
    """The interpreter of a store's own environment, made when it is lacking. Raises CannotRun."""
    folder = CACHE.parent / "peers" / store
    python, stamp, wanted = folder / "bin" / "python", folder / "wanted.txt", "\n".join(STORES[store][1])
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"installing {STORES[store][0]}", file=sys.stderr, flush=True)
        made = subprocess.run(
            [sys.executable, "-m", "venv", "--clear", str(folder)], capture_output=True, text=True, check=False
        )
        if made.returncode == 0:
            made = subprocess.run(
                [str(python), "-m", "pip", "install", "-q", *STORES[store][1]],
                capture_output=True,
                text=True,
                check=False,
            )
        if made.returncode:
            raise CannotRun(f"{STORES[store][0]} does not install: {made.stderr[-800:]}")
        stamp.write_text(wanted)
    return python


@contextmanager
def empty_database(purpose: str) -> Iterator[str]:
    """A database of its own with pgvector and pg_trgm and nothing else."""
    from bench.common import _in_database, server_dsn

    dsn, name = server_dsn(), f"memoir_peer_{purpose}_{os.getpid()}"
    with psycopg.connect(_in_database(dsn, "postgres"), autocommit=True) as admin:
        admin.execute(f"create database {name}")
        try:
            with psycopg.connect(_in_database(dsn, name), autocommit=True) as connection:
                connection.execute("create extension vector")
                connection.execute("create extension pg_trgm")
            # pgvector's own advice for filtered searches and for more than 40 results: without it HNSW would return fewer.
            admin.execute(f"alter database {name} set hnsw.ef_search = {2 * LIMIT}")
            admin.execute(f"alter database {name} set hnsw.iterative_scan = strict_order")
            yield _in_database(dsn, name)
        finally:
            admin.execute(f"drop database {name} with (force)")


def line_of(event: Said | Remembered) -> tuple[str, str]:
    """(text, time) of a turn as all stores get it."""
    if isinstance(event, Remembered):
        return event.content, event.at.isoformat()
    message = event.message
    return f"{message.get('name') or message['role']}: {message['content']}", str(message.get("created_at") or "")


def pick(corpus: Corpus, limit: int, rng: random.Random) -> set[int]:
    """The questions asked: those with evidence, or a sample of them."""
    known = [number for number, question in enumerate(corpus.questions()) if question.evidence]
    return set(rng.sample(known, min(limit, len(known))) if limit else known)


def measure_store(
    store: str,
    corpora: Sequence[Corpus],
    asked: dict[str, set[int]],
    embed: CachedEmbedder,
    counter: psycopg.Connection,
    tokenizer: str,
) -> Measured:
    found = Measured(STORES[store][0])
    with (
        tempfile.TemporaryDirectory() as folder,
        empty_database(store) as dsn,
        psycopg.connect(dsn, autocommit=True) as connection,
    ):
        try:
            child = Child(store, dsn, embed, folder)
        except CannotRun as error:
            found.problem = str(error)
            return found
        try:
            found.version, found.settings = child.about["ready"], child.about["settings"]
            for corpus in corpora:
                _replay(child, connection, corpus, asked[corpus.name], found, counter, tokenizer)
        except CannotRun as error:
            found.problem = str(error)
        finally:
            child.end()
    return found


def _replay(
    child: Child,
    connection: psycopg.Connection,
    corpus: Corpus,
    asked: set[int],
    found: Measured,
    counter: psycopg.Connection,
    tokenizer: str,
) -> None:
    lines: dict[str, str] = {}
    number, log = -1, None
    for event in corpus.events:
        if not isinstance(event, Asked):
            text, at = line_of(event)
            lines[event.key] = f"{at[:10]} {text}"
            log = log or Log(counter, connection)
            server = backends_ran(connection)
            done = child.order(write={"user": corpus.name, "key": event.key, "text": text, "at": at})
            found.writes.append(done["seconds"])
            found.ran_writing += done["ran"] + backends_ran(connection) - server
            continue
        number += 1
        if number not in asked:
            continue
        if log:
            log.add_to(found)
            log = None
            connection.execute("analyze")
        progress(f"{found.name}, {corpus.name}: question {number + 1}")
        server = backends_ran(connection)
        done = child.order(search={"user": corpus.name, "query": event.text, "limit": LIMIT})
        found.ran_searching += done["ran"] + backends_ran(connection) - server
        keys = list(dict.fromkeys(key for key in done["found"] if key in lines))
        found.searches.append(done["seconds"])
        found.ranked.append(float(np.mean([key in keys[:10] for key in event.evidence])))
        costs = counter.execute(
            "select _memoir.count_tokens(%s::text[], %s)", ([lines[key] + "\n" for key in keys], tokenizer)
        ).fetchone()[0]
        taken, left = set(), BUDGET
        for key, cost in zip(keys, costs, strict=True):
            if cost <= left:
                taken.add(key)
                left -= cost
        found.within.append(float(np.mean([key in taken for key in event.evidence])))


def backends_ran(connection: psycopg.Connection) -> float:
    """Seconds that the other backends of this database have run; 0 where the system does not say it."""
    pids = connection.execute(
        "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    ).fetchall()
    return sum(processor_time(pid) or 0 for (pid,) in pids) / 1000


def backend_ran(connection: psycopg.Connection) -> float:
    """Seconds that this connection's own backend has run."""
    return (processor_time(connection.info.backend_pid) or 0) / 1000


class Log:
    """What the server's log holds of a database from now on: records that touch its files. A slot keeps the log until it is read."""

    def __init__(self, reader: psycopg.Connection, database: psycopg.Connection) -> None:
        self._reader, self._slot = reader, f"memoir_peers_{os.getpid()}"
        self._files = (
            "%/"
            + str(database.execute("select oid from pg_database where datname = current_database()").fetchone()[0])
            + "/%"
        )
        reader.execute("select pg_create_physical_replication_slot(%s, true, true)", (self._slot,))
        self._start = reader.execute("select pg_current_wal_insert_lsn()").fetchone()[0]

    def add_to(self, found: Measured) -> None:
        records, images = self._reader.execute(
            """select coalesce(sum(record_length - fpi_length), 0)::bigint, coalesce(sum(fpi_length), 0)::bigint
               from public.pg_get_wal_records_info(%s, pg_current_wal_flush_lsn()) where block_ref like %s""",
            (self._start, self._files),
        ).fetchone()
        self._reader.execute("select pg_drop_replication_slot(%s)", (self._slot,))
        found.wal += records
        found.images += images


def measure_ours(
    corpora: Sequence[Corpus], asked: dict[str, set[int]], embed: CachedEmbedder, counter: psycopg.Connection, dsn: str
) -> Measured:
    """pg_memoir through its client: a persist_turn a turn, its embedding job, a compile a question."""
    found = Measured(
        "pg_memoir", settings="as by default; a write includes its share of the embedding and merging jobs"
    )
    with Memoir(dsn) as memoir, psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("set search_path = pg_catalog, memoir_extensions, pg_temp")  # what ask() calls is no door
        found.version = connection.execute("select memoir.version()").fetchone()[0]
        for corpus in corpora:
            stored: dict[str, str] = {}
            number, fresh, log = -1, 0, None
            for event in corpus.events:
                if not isinstance(event, Asked):
                    log = log or Log(counter, connection)
                    server, ran, start = backends_ran(connection), time.process_time(), time.perf_counter()
                    if isinstance(event, Remembered):
                        stored[event.key] = str(
                            memoir.remember(corpus.name, event.content, created_at=event.at)["memory_id"]
                        )
                    else:
                        stored[event.key] = str(
                            memoir.persist_turn(corpus.name, event.session, [event.message])["message_ids"][0]
                        )
                    found.writes.append(time.perf_counter() - start)
                    found.ran_writing += time.process_time() - ran + backends_ran(connection) - server
                    fresh += 1
                    continue
                number += 1
                if number not in asked[corpus.name]:
                    continue
                if log:
                    _maintain(memoir, connection, embed, found, fresh)
                    log.add_to(found)
                    fresh, log = 0, None
                    connection.execute("analyze")
                progress(f"pg_memoir, {corpus.name}: question {number + 1}")
                gold = [stored[key] for key in event.evidence]
                vector = embed([event.text])[0]
                ranked, shown, _ = ask(connection, corpus.name, event, vector, BUDGET)
                found.ranked.append(float(np.mean([key in ranked[:10] for key in gold])))
                found.within.append(float(np.mean([key in shown for key in gold])))
                server, ran, start = backends_ran(connection), time.process_time(), time.perf_counter()
                memoir.compile_context(
                    corpus.name,
                    event.session or "a session of its own",
                    event.text,
                    memory_budget=BUDGET,
                    query_embedding=vector,
                )
                found.searches.append(time.perf_counter() - start)
                found.ran_searching += time.process_time() - ran + backends_ran(connection) - server
    return found


def _maintain(
    memoir: Memoir, connection: psycopg.Connection, embed: CachedEmbedder, found: Measured, writes: int
) -> None:
    spent = spent_ran = 0.0

    def timed(texts: list[str]) -> list[list[float]]:
        nonlocal spent, spent_ran
        start, ran = time.perf_counter(), time.process_time()
        vectors = embed(texts)
        spent += time.perf_counter() - start
        spent_ran += time.process_time() - ran
        return vectors

    server, own, ran, start = (
        backends_ran(connection),
        backend_ran(connection),
        time.process_time(),
        time.perf_counter(),
    )
    memoir.embed_backlog(timed)
    connection.execute("call memoir.run_job('merge')")
    share = (time.perf_counter() - start - spent) / writes
    found.ran_writing += (
        time.process_time() - ran - spent_ran + backends_ran(connection) - server + backend_ran(connection) - own
    )
    found.writes[-writes:] = [each + share for each in found.writes[-writes:]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data",
        type=Path,
        action="append",
        help="a LoCoMo file, a folder of RealMem dialogues or of BEAM chats; may be given several times",
    )
    parser.add_argument("--stores", default=",".join(STORES), help="stores beside pg_memoir, with commas (%(default)s)")
    parser.add_argument(
        "--corpora", default="", help="only corpora whose 'kind: name' contains one of these, with commas"
    )
    parser.add_argument(
        "--questions", type=int, default=0, help="a sample of so many questions of each corpus (default: all)"
    )


def run(options: argparse.Namespace) -> list[tuple[str, str]]:
    if not options.data:
        raise CannotRun(
            "no data: python -m research.peers --data locomo.json (conversations with gold evidence are not part of the project)"
        )
    wanted = options.stores.split(",") if options.stores else []
    if unknown := set(wanted) - set(STORES):
        raise CannotRun(f"unknown store {', '.join(sorted(unknown))}: {', '.join(STORES)}")
    parts = [part for part in options.corpora.split(",") if part]
    corpora = [
        c
        for path in options.data
        for c in read(path)
        if not parts or any(part in f"{c.kind}: {c.name}" for part in parts)
    ]
    rng = random.Random(0)
    asked = {corpus.name: pick(corpus, options.questions, rng) for corpus in corpora}
    embed = CachedEmbedder()
    with fresh_database("peers") as dsn, psycopg.connect(dsn, autocommit=True) as counter:
        if not can_inspect(counter):
            raise CannotRun("the log can't be read: the contrib module pg_walinspect is missing")
        counter.execute("reset search_path")
        tokenizer = counter.execute(
            "select _memoir.tokenizer_used(tokenizer) from _memoir.models where model = 'default'"
        ).fetchone()[0]
        measured = [measure_ours(corpora, asked, embed, counter, dsn)]
        measured += [measure_store(store, corpora, asked, embed, counter, tokenizer) for store in wanted]
    progress("")
    kinds = ", ".join(sorted({corpus.kind for corpus in corpora}))
    intro = (
        f"{kinds}: {len(corpora)} conversations ({sum(len(corpus.items()) for corpus in corpora):,} turns), {sum(map(len, asked.values()))} questions; tokens counted by "
        f"{tokenizer}; hnsw.ef_search {2 * LIMIT}, hnsw.iterative_scan strict_order in the other stores' databases.\n\n"
    )
    head = [
        "store",
        "R@10",
        f"evidence within {BUDGET:,} tokens",
        "search p50 / p95, ms",
        "processor ms a search",
        "write p50, ms",
        "processor ms a write",
        "WAL bytes a write",
        "full-page images",
    ]
    rows = [[m.name, *_cells(m)] for m in measured]
    notes = "\n".join(f"- {m.name} {m.version}: {m.settings}{'; ' + m.problem if m.problem else ''}" for m in measured)
    return [report("peers", intro + table(head, rows) + "\n\n" + notes)]


def _cells(m: Measured) -> list[str]:
    if m.problem or not m.ranked:
        return ["–"] * 8
    milliseconds = [1000 * each for each in m.searches]
    return [
        f"{100 * np.mean(m.ranked):.1f}",
        f"{100 * np.mean(m.within):.1f}",
        f"{percentile(milliseconds, 0.5):.1f} / {percentile(milliseconds, 0.95):.1f}",
        f"{1000 * m.ran_searching / len(m.searches):.1f}",
        f"{1000 * percentile(m.writes, 0.5):.1f}",
        f"{1000 * m.ran_writing / len(m.writes):.1f}",
        f"{m.wal / len(m.writes):,.0f}",
        f"{m.images / len(m.writes):,.0f}",
    ]


def main() -> int:
    return run_alone("research.peers", __doc__, add_arguments, run)
