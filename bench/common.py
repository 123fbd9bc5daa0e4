"""What the benchmarks share: a database of their own, the machine's description, percentiles, tables, cached embeddings."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import platform
import sqlite3
import subprocess
import sys
import uuid
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".local" / "cache"
EMBEDDING_MODEL = "all-MiniLM-L6-v2"
Embed = Callable[[list[str]], list[list[float]]]


class CannotRun(RuntimeError):
    """Something the benchmark needs is not there; the message says what."""


def server_dsn() -> str:
    """The server to measure on; `make bench` sets it."""
    dsn = os.environ.get("PG_MEMOIR_DSN")
    if not dsn:
        raise CannotRun("PG_MEMOIR_DSN is not set: run `make bench`")
    return dsn


@contextlib.contextmanager
def fresh_database(purpose: str, keep: bool = False) -> Iterator[str]:
    """A DSN of a new database with pg_memoir, dropped at the end unless `keep`. Its embedder is the server's own."""
    dsn, name = server_dsn(), f"memoir_bench_{purpose}_{uuid.uuid4().hex[:6]}"
    made = _in_database(dsn, name)
    with psycopg.connect(_in_database(dsn, "postgres"), autocommit=True) as admin:
        admin.execute(f"create database {name}")
        try:
            build = os.environ.get("PG_MEMOIR_BUILD", ROOT / ".local" / "build")
            command: list[str | Path] = ["bash", ROOT / "scripts" / "install.sh", build, made, _embedder_socket(dsn)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise CannotRun(f"pg_memoir could not be installed: {done.stderr[-2000:]}")
            yield made
        finally:
            if keep:
                print(f"kept: {made}", file=sys.stderr)
            else:
                admin.execute(f"drop database {name} with (force)")


def _in_database(dsn: str, name: str) -> str:
    return make_conninfo(**{**conninfo_to_dict(dsn), "dbname": name})


def _embedder_socket(dsn: str) -> str:
    """The socket of the server's own embedder, where its database has pg_memoir."""
    with contextlib.suppress(psycopg.Error), psycopg.connect(dsn) as connection:
        row = connection.execute("select config ->> 'embedder_socket' from _memoir.settings_merged").fetchone()
        return (row and row[0]) or ""
    return ""


# --- The machine -------------------------------------------------------------------------------------------------------

SHOWN_SETTINGS = "shared_buffers work_mem jit fsync synchronous_commit full_page_writes max_wal_size".split()


def machine(dsn: str) -> list[str]:
    """Lines about the machine and the server."""
    with psycopg.connect(dsn) as connection:
        version = connection.execute("select version()").fetchone()[0].split(" on ")[0]
        settings = ", ".join(f"{name} {connection.execute(f'show {name}').fetchone()[0]}" for name in SHOWN_SETTINGS)
        pgvector = connection.execute(
            "select default_version from pg_available_extensions where name = 'vector'"
        ).fetchone()[0]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return [
        f"- machine: {_processor()}, {os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} {platform.release()}",
        f"- server: {version}, pgvector {pgvector}, {settings}",
        f"- client: Python {platform.python_version()}, psycopg {psycopg.__version__}, over a Unix socket, on the same machine",
        f"- load of the machine when the run began: {os.getloadavg()[0]:.1f}",
    ]


def processor_time(pid: int) -> float | None:
    """Milliseconds that a process has run so far, where the system says it."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e6
    except (OSError, ValueError, IndexError):
        return None


def private_bytes(pid: int) -> float:
    """Memory that a process has to itself. Raises OSError where this system does not say it."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024.0 for line in lines if line.startswith(("Private_Clean", "Private_Dirty")))


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


# --- Numbers -----------------------------------------------------------------------------------------------------------


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of the values lie (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1))]


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table, the first column left, the others right."""
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" + " ---: |" * (len(head) - 1)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows])


def report(name: str, text: str) -> tuple[str, str]:
    """Prints a section as it is ready and returns it for bench/RESULTS.md."""
    print(text, end="\n\n", flush=True)
    return name, text


def progress(text: str) -> None:
    """A line on stderr, overwritten by the next on a terminal."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def run_alone(
    module: str,
    description: str | None,
    options: Callable[[argparse.ArgumentParser], object],
    run: Callable[[argparse.Namespace], object],
    *,
    keep: bool = False,
    expected: tuple[type[Exception], ...] = (CannotRun,),
) -> int:
    """What `python -m bench.part` does: reads its options (with `keep` also --keep), runs it, and answers 2 with the message of an `expected` error."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options(parser)
    if keep:
        parser.add_argument("--keep", action="store_true", help="keep the database made")
    try:
        run(parser.parse_args())
    except expected as error:
        print(error, file=sys.stderr)
        return 2
    return 0


# --- Embeddings --------------------------------------------------------------------------------------------------------


class CachedEmbedder:
    """Texts → vectors, each text embedded once and kept in .local/cache, so that a second run is quick."""

    def __init__(self, model: str = EMBEDDING_MODEL) -> None:
        CACHE.mkdir(parents=True, exist_ok=True)
        self._model = model
        self._embed: Embed | None = None
        # Other languages go through a learnt map, which may be learnt anew.
        version = hashlib.sha256((ROOT / "plpython" / "pg_memoir_server" / "multilingual.safetensors").read_bytes())
        self._kept = sqlite3.connect(CACHE / f"embeddings-{model}-{version.hexdigest()[:8]}.sqlite")
        self._kept.execute("create table if not exists vectors (hash blob primary key, vector blob) without rowid")

    def __call__(self, texts: list[str]) -> list[list[float]]:
        keys = [hashlib.sha256(text.encode()).digest() for text in texts]
        found = {key: self._load(key) for key in keys}
        new = [text for text, key in zip(texts, keys, strict=True) if found[key] is None]
        for at in range(0, len(new), 64):
            batch = new[at : at + 64]
            for text, vector in zip(batch, self._load_model()(batch), strict=True):
                key = hashlib.sha256(text.encode()).digest()
                found[key] = vector
                self._kept.execute("insert or replace into vectors values (?, ?)", (key, array("f", vector).tobytes()))
            self._kept.commit()
        return [found[key] or [] for key in keys]

    def _load(self, key: bytes) -> list[float] | None:
        row = self._kept.execute("select vector from vectors where hash = ?", (key,)).fetchone()
        return list(array("f", row[0])) if row else None

    def _load_model(self) -> Embed:
        if self._embed is None:
            from pg_memoir_cli.embedder import load_embedder

            self._embed = load_embedder(model=self._model)
        return self._embed
