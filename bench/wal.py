"""Write-ahead log per byte of what is stored, for each kind of write and for a mix of them.

    python -m bench.wal [--wal-sizes 150,1000,3000] [--wal-operations 200]

The mix: 70 % turns, 15 % memories, 10 % counter updates of recalled memories, 5 % updates of sessions. Column bytes are those of the
rows that a caller would miss: the turn, the memory, the counters, the session, each with all its columns, uncompressed, and the
vectors of its text. The log is all that comes of an operation, in three parts: rows with their indexes, counters, queue, commits, and
vectors; places and words of the texts (search_items, search_tail); posting lists, which a job merges the words into, every few turns.
Full-page images and the compile ledger are apart, autovacuum is off. The texts are the help pages of Python. The log is read record by
record (pg_walinspect).
"""

from __future__ import annotations

import argparse
import contextlib
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pydoc_data.topics import topics

import psycopg
from psycopg.types.json import Jsonb

from .common import CannotRun, fresh_database, progress, report, run_alone, table
from .population import DIMENSION
from .writes import can_inspect

MIX = {"turn": 0.70, "memory": 0.15, "counter update": 0.10, "session update": 0.05}
# Made-up words would neither be compressed nor come again as those of a language do. This prose comes with Python.
ENGLISH = " ".join(" ".join(topics[name].split()) for name in sorted(topics)).encode("ascii", "replace").decode()
USERS = 1  # whose words are then merged as often as anybody's
APART = {"compile_ledger", "catalogue"}
PARTS = ("rows", "places and words", "posting lists")
REFERENCE = re.compile(r"rel \d+/(\d+)/(\d+)")
# Records of what runs beside (checkpoints) belong to no operation.
RECORDS = """select xid::text, coalesce(block_ref, ''), lower(resource_manager || '/' || record_type), record_length, fpi_length
    from pg_get_wal_records_info(%s, %s) where resource_manager not in ('XLOG', 'Standby', 'CommitTs')"""
# Files of tables, of their indexes, of their TOAST and its index, by the table's name.
NAMES = """select pg_relation_filenode(c.oid)::bigint, regexp_replace(coalesce(o.relname, t.relname, c.relname), '_p[0-9]+(_y[0-9]+m[0-9]+)?(_.*)?$', '')
    from pg_class c left join pg_index i on i.indexrelid = c.oid left join pg_class t on t.oid = i.indrelid
    left join pg_class o on o.reltoastrelid = coalesce(i.indrelid, c.oid)
    where pg_relation_filenode(c.oid) is not null and coalesce(o.relnamespace, t.relnamespace, c.relnamespace) = '_memoir'::regnamespace"""


@dataclass
class Written:
    """What a number of operations put into the log, by part and table, and the column bytes that they store."""

    operations: int = 0
    columns: float = 0
    images: int = 0
    log: Counter[str] = field(default_factory=Counter)

    def each(self, *parts: str) -> float:
        """Bytes of log per operation, in some parts or all."""
        return sum(size for part, size in self.log.items() if part in (parts or PARTS)) / self.operations


def ratios(columns: float, parts: Sequence[float]) -> list[str]:
    """Log per column byte: of the rows, with places and words, with posting lists too."""
    return [f"{sum(parts[:n]) / columns:.2f}" for n in range(1, len(parts) + 1)]


class Population:
    """Users who write texts of one size, and the log of what they do."""

    def __init__(self, db: psycopg.Connection, size: int) -> None:
        self.db, self.size = db, size
        self.rng = random.Random(f"wal:{size}")
        self.users = [f"wal-{size}-{number}" for number in range(USERS)]
        self.number = 0
        self.database = db.execute("select oid::text from pg_database where datname = current_database()").fetchone()[0]

    def text(self) -> str:
        """A stretch of English, each unlike the others."""
        self.number += 1
        start = self.rng.randrange(len(ENGLISH) - self.size)
        return f"{self.number}: {ENGLISH[start : start + self.size]}"[: self.size]

    def question(self) -> str:
        start = self.rng.randrange(len(ENGLISH) - 60)
        return ENGLISH[start : start + 60]

    # What the operations do: each takes a number and does it once -------------------------------------------------------

    def turn(self, number: int) -> None:
        messages = [{"role": "user", "content": self.text()}, {"role": "assistant", "content": self.text()}]
        self.db.execute("select memoir.persist_turn(%s, 's', %s)", (self.users[number % USERS], Jsonb(messages)))

    def memory(self, number: int) -> None:
        self.db.execute("select memoir.remember(%s, %s)", (self.users[number % USERS], self.text()))

    def session(self, number: int) -> None:
        task = ("knowledge", "continuation")[number // USERS % 2]
        self.db.execute("select memoir.open_session(%s, 's', p_task => %s)", (self.users[number % USERS], task))

    def vectors(self) -> None:
        """As a worker makes them."""
        while claims := self.db.execute("select user_id, item_no from memoir.claim_embeddings(64)").fetchall():
            numbers = [[self.rng.gauss(0, 1) for _ in range(DIMENSION)] for _ in claims]
            self.db.execute(
                "select memoir.store_embeddings(%s, %s, %s::real[])",
                ([c[0] for c in claims], [c[1] for c in claims], numbers),
            )

    # Measurements -------------------------------------------------------------------------------------------------------

    def measure(self, name: str, operations: int) -> Written:
        written = Written()
        act = {"turn": self.turn, "memory": self.memory, "session update": self.session}.get(name)
        tables = {
            "turn": "conversation_history",
            "memory": "memory_store",
            "counter update": "memory_stats",
            "session update": "sessions",
        }[name]
        if act is None:
            self._counters(written, operations)
            return written
        before = self._columns(tables), self._columns("embeddings")
        for number in range(operations):
            with self._logged(written):
                act(number)
            if (number % 25 == 24 or number == operations - 1) and name != "session update":
                with self._logged(written):
                    self.vectors()
                with self._logged(written, "posting lists"):
                    self.db.execute("call memoir.run_job('merge')")
        if name in ("turn", "memory"):  # what waits for the next merge
            with self._logged(written, "posting lists"):
                self.db.execute("select _memoir.merge_tail(user_id) from _memoir.user_counters where tail_items > 0")
        if name == "session update":
            written.operations = operations
            written.columns = operations * before[0][1] / before[0][0]
            return written
        after = self._columns(tables), self._columns("embeddings")
        written.operations = after[0][0] - before[0][0]
        written.columns = sum(new[1] - old[1] for new, old in zip(after, before, strict=True))
        return written

    def _counters(self, written: Written, compiles: int) -> None:
        for number in range(compiles):
            self.db.execute(
                "select memoir.compile_context(%s, %s, %s)",
                (self.users[number % USERS], f"q{number % USERS}", self.question()),
            )
        before = self._updates()
        with self._logged(written):
            self.db.execute("call memoir.run_job('flush')")
        count, size = self._columns("memory_stats")
        written.operations = self._updates() - before
        written.columns = written.operations * size / count

    def _updates(self) -> int:
        self.db.execute("select pg_stat_force_next_flush()")
        return self.db.execute(
            "select sum(n_tup_ins + n_tup_upd)::bigint from pg_stat_user_tables where relname like 'memory_stats_p%'"
        ).fetchone()[0]

    def _columns(self, name: str) -> tuple[int, int]:
        """(rows, bytes of their columns, uncompressed) of a table."""
        columns = self.db.execute("select attname, atttypid::regtype::text from pg_attribute where attrelid = %s::regclass and attnum > 0 and not attisdropped",
                                  (f"_memoir.{name}",)).fetchall()  # fmt: skip
        sizes = [
            f"coalesce(octet_length({c}::text), 0)"
            if t in ("text", "jsonb", "text[]")
            else f"coalesce(pg_column_size({c}), 0)"
            for c, t in columns
        ]
        return self.db.execute(
            f"select count(*), coalesce(sum({' + '.join(sizes)}), 0)::bigint from _memoir.{name}"
        ).fetchone()

    @contextlib.contextmanager
    def _logged(self, written: Written, part: str | None = None) -> Iterator[None]:
        start = self.db.execute("select pg_current_wal_flush_lsn()").fetchone()[0]
        yield
        end = self.db.execute("select pg_current_wal_flush_lsn()").fetchone()[0]
        if start == end:
            return
        names = dict(self.db.execute(NAMES).fetchall())
        records = [
            (xid, REFERENCE.search(reference), kind, length - images, images)
            for xid, reference, kind, length, images in self.db.execute(RECORDS, (start, end))
        ]
        # Other databases of the server write too: a record without a table is ours if its transaction wrote to one of ours.
        ours = {xid for xid, found, *_ in records if found and found[1] == self.database and xid != "0"}
        for xid, found, kind, length, images in records:
            if found[1] != self.database if found else xid not in ours:
                continue
            name = names.get(int(found[2]), "catalogue") if found else kind
            written.images += images
            if name not in APART:
                place = "places and words" if name in ("search_items", "search_tail") else "rows"
                written.log[part or place] += length


def measure(dsn: str, sizes: Sequence[int], operations: int) -> list[tuple[str, str]]:
    """Prints and returns the tables."""
    rows = []
    head = [
        "column bytes",
        *(f"WAL of {part}" for part in PARTS),
        "full-page images",
        "ratio of rows",
        "with places and words",
        "with posting lists",
    ]
    with psycopg.connect(dsn, autocommit=True) as db:
        if not can_inspect(db):
            raise CannotRun("the server has no pg_walinspect")
        # Whatever it cleans up would be counted for the operation at hand.
        db.execute("""do $$ declare t regclass; begin for t in select oid from pg_class where relnamespace = '_memoir'::regnamespace and relkind = 'r' loop
            execute format('alter table %s set (autovacuum_enabled = false, toast.autovacuum_enabled = false)', t); end loop; end $$""")
        for size in sizes:
            population = Population(db, size)
            for name in ("turn", "memory"):  # what is made once is no cost of an operation
                population.measure(name, 8)
            population.measure("counter update", 2)
            db.execute("checkpoint")
            for name in ("turn", "memory", "counter update"):  # nor is the first image of a page
                population.measure(name, 4)
            found = {}
            for name in MIX:
                progress(f"{size} bytes: {name}")
                found[name] = done = population.measure(name, operations)
                columns, parts = done.columns / done.operations, [done.each(part) for part in PARTS]
                rows.append(
                    [
                        f"{size} bytes: {name}",
                        *(f"{value:.0f}" for value in (columns, *parts, done.images / done.operations)),
                        *ratios(columns, parts),
                    ]
                )
            columns = sum(share * found[name].columns / found[name].operations for name, share in MIX.items())
            parts = [sum(share * found[name].each(part) for name, share in MIX.items()) for part in PARTS]
            rows.append(
                [
                    f"**{size} bytes: the mix**",
                    *(f"{value:.0f}" for value in (columns, *parts)),
                    "",
                    *ratios(columns, parts),
                ]
            )
    progress("")
    note = "Bytes per operation; ratios: log per column byte, each with what stands to its left.\n\n"
    return [report("wal", note + table(["texts of", *head], rows))]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that `python -m bench` shares."""
    parser.add_argument("--wal-sizes", default="150,1000,3000", help="bytes of a text (%(default)s)")
    parser.add_argument("--wal-operations", type=int, default=200, help="operations of each kind (%(default)s)")


def run(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Measures in a database of its own. `options`: of add_arguments, and `keep`."""
    with fresh_database("wal", getattr(options, "keep", False)) as dsn:
        return measure(dsn, [int(size) for size in options.wal_sizes.split(",")], options.wal_operations)


if __name__ == "__main__":
    sys.exit(run_alone("bench.wal", __doc__, add_arguments, run, keep=True))
