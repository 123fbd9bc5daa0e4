"""How many servers how many users need: reckoned from bytes and milliseconds that are measured here, on one user's rows.

    python -m bench.scale [--users 1e5,1e7,1e9] [--items 6000] [--cores 32] ...

Measured: bytes on disk (tables, indexes, vectors), log and processor time of a stored message, processor time of a compile given a
vector, private memory of a connection. Extraction and embedding run in jobs. What they take of a
processor is given. Everything else is an assumption, each an option, and printed. A server's share
of a need is what it can give; the need with the most servers is what breaks first.
"""

from __future__ import annotations

import argparse
import random
import sys
from dataclasses import dataclass

import psycopg

from .common import CannotRun, fresh_database, private_bytes, processor_time, report, run_alone, table
from .population import TURNS_PER_SESSION, Words, embed, fill, vector

DAY = 86_400
COMPILES = 40


# What an option sets: name, value, meaning.
ASSUMED = (
    ("active", 0.2, "share of the users who talk on a day"),
    ("messages", 20, "messages of an active user a day"),
    ("memories", 0.1, "memories per message"),
    ("days", 365, "days that messages are kept"),
    ("peak", 3, "the busiest hour over the mean"),
    ("peak-hours", 8, "hours over which the active users of a day spread"),
    ("hot", 0.2, "share of a user's rows that compiles read"),
    ("extract-ms", 16, "processor ms of extraction, per message of a user"),
    ("embed-ms", 8, "processor ms of the embedding of an item"),
    ("wait", 4, "times that a statement's connection is held longer than it runs"),
    ("dead", 4, "rows that a message makes old (counters, queue)"),
    ("cores", 32, "processors of a server"),
    ("memory-gb", 256, "memory of a server"),
    ("disk-tb", 8, "disk of a server"),
    ("log-mb", 100, "MB a second of log that a server writes and sends on"),
    ("vacuum-rows", 50_000, "dead rows a second that autovacuum clears"),
    ("used", 0.5, "share of processors, memory and disk that is planned for"),
)


@dataclass(frozen=True)
class Cost:
    """What one of each costs."""

    disk: float  # bytes of an item (a message or a memory), indexes and vector included
    log: float  # bytes of write-ahead log of an item
    write: float  # ms of a processor to store an item, its words merged
    compile: float  # ms of a processor
    connection: float  # bytes of a backend's own memory


@dataclass(frozen=True)
class Need:
    """What so many users ask of all servers together."""

    users: float
    messages: float  # a second, at the peak
    compiles: float
    cores: float
    disk: float  # bytes
    log: float  # bytes a second
    memory: float  # bytes: what the active users' compiles read again and again
    connections: float
    dead: float  # rows a second for vacuum


def _value(connection: psycopg.Connection, query: str) -> float:
    return float(connection.execute(query).fetchone()[0])


def _stored(connection: psycopg.Connection) -> float:
    return _value(
        connection,
        """select sum(pg_table_size(oid) + pg_indexes_size(oid)) from pg_class
           where relnamespace = '_memoir'::regnamespace and relkind in ('r', 'm')""",
    )


def _ran(connection: psycopg.Connection) -> float:
    ran = processor_time(connection.info.backend_pid)
    if ran is None:
        raise CannotRun("bench.scale must run on the server's machine: it reads processor times of its processes")
    return ran


def measure(dsn: str, items: int) -> Cost:
    """One user through the API, a third of whose items are memories, the sessions of the newest month."""
    rng = random.Random(17)
    words = Words(rng)
    with psycopg.connect(dsn, autocommit=True) as connection:
        fill(connection, "first", TURNS_PER_SESSION, 5, words)  # its partitions, its plans
        embed(connection, rng)
        connection.execute("checkpoint")
        stored, ran = _stored(connection), _ran(connection)
        at = connection.execute("select pg_current_wal_insert_lsn()").fetchone()[0]
        fill(connection, "second", items - items // 3, items // 3, words)
        connection.execute("call memoir.run_job('merge')")
        write = (_ran(connection) - ran) / items
        embed(connection, rng)
        log = float(connection.execute("select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), %s)", [at]).fetchone()[0])
        connection.execute("vacuum analyze")
        disk = (_stored(connection) - stored) / items
        ask = "select memoir.compile_context('second', 'session-1', %s, p_query_embedding => %s::real[])"
        questions = [(words.sentence(5, 12), vector(rng)) for _ in range(COMPILES)]
        connection.execute(ask, questions[0])
        ran = _ran(connection)
        for question in questions:
            connection.execute(ask, question)
        spent = (_ran(connection) - ran) / COMPILES
        return Cost(disk, log / items, write, spent, private_bytes(connection.info.backend_pid))


def need(cost: Cost, users: float, given: argparse.Namespace) -> Need:
    active = users * given.active
    messages = active * given.messages / DAY * given.peak
    compiles = messages / 2  # an answer for every question
    items = messages * (1 + given.memories)
    kept = active * given.messages * given.days * (1 + given.memories)
    busy = items * cost.write + compiles * cost.compile + messages / 2 * given.extract_ms + items * given.embed_ms
    return Need(
        users,
        messages,
        compiles,
        cores=busy / 1000,
        disk=kept * cost.disk,
        log=items * cost.log,
        memory=active / given.peak_hours * given.days * given.messages * (1 + given.memories) * cost.disk * given.hot,
        connections=(messages + compiles) * max(cost.write, cost.compile) / 1000 * given.wait,
        dead=messages * given.dead,
    )


def servers(of: Need, cost: Cost, given: argparse.Namespace) -> dict[str, float]:
    """Servers that each need alone would take."""
    return {
        "processors": of.cores / (given.cores * given.used),
        "disk": of.disk / (given.disk_tb * 1e12 * given.used),
        "log": of.log / (given.log_mb * 1e6),
        "memory": (of.memory + of.connections * cost.connection) / (given.memory_gb * 1e9 * given.used),
        "vacuum": of.dead / given.vacuum_rows,
    }


def amount(number: float, unit: str = "") -> str:
    for size, name in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:,.1f} {name}{unit}"
    return f"{number:,.1f} {unit}".strip()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--items", type=int, default=6000, help="items of the measured user (%(default)s)")
    for name, default, about in ASSUMED:
        parser.add_argument(f"--{name}", type=type(default), default=default, help=f"{about} (%(default)s)")
    parser.add_argument("--users", default="1e5,1e7,1e9", help="populations (%(default)s)")


def run(given: argparse.Namespace) -> list[tuple[str, str]]:
    with fresh_database("scale") as dsn:
        cost = measure(dsn, given.items)
    needs = [need(cost, float(users), given) for users in given.users.split(",")]
    units = {"disk": "B", "log": "B/s", "memory": "B"}
    wanted = [
        [amount(value, units.get(name, "")) for name, value in vars(of).items() if name != "compiles"] for of in needs
    ]
    shares = [servers(of, cost, given) for of in needs]
    counts = []
    for of, share in zip(needs, shares, strict=True):
        first = max(share, key=lambda name: share[name])
        row = [f"{value:,.1f}" for value in share.values()]
        counts.append([amount(of.users), *row, first if share[first] > 1 else "none"])
    head = ["users", "messages/s", "processors", "disk", "log", "rows in memory", "connections", "dead rows/s"]
    assumed = ", ".join(f"{name} {getattr(given, name.replace('-', '_')):,}" for name, *_ in ASSUMED)
    text = [
        f"Measured on {given.items:,} items: {cost.disk:,.0f} bytes on disk and {cost.log:,.0f} of log an item, "
        f"{cost.write:.1f} ms of a processor to store one, {cost.compile:.1f} a compile, "
        f"{cost.connection / 2**20:.0f} MiB a connection. Assumed: {assumed}.",
        table(head, wanted),
        table(["servers for", *shares[0], "first"], counts),
    ]
    return [report("scale", "\n\n".join(text))]


if __name__ == "__main__":
    sys.exit(run_alone("bench.scale", __doc__, add_arguments, run))
