#!/usr/bin/env python3
"""Several servers behind a PL/Proxy router, on one machine: a user's calls go to the server that has his part.

    make up                                                      # once: PostgreSQL, the Python environment, the built SQL
    .local/venv/bin/python deploy/shards.py up FOLDER [--shards 4] [--parts 8]
    .local/venv/bin/python deploy/shards.py login FOLDER NAME ROLE   a login on the router and on every server
    .local/venv/bin/python deploy/shards.py sql FOLDER "select …"    on the router and on every server: settings, bindings
    .local/venv/bin/python deploy/shards.py move FOLDER PART SHARD   moves a part while writes go on
    .local/venv/bin/python deploy/shards.py status FOLDER            parts, users, sizes and jobs of every server
    .local/venv/bin/python deploy/shards.py down FOLDER

Every server is a plain pg_memoir of the same modulus, with a worker for its jobs; the router has no data. A part is
moved by logical replication of its leaves; the last moment, in which its row at the router is locked, lasts as long
as the last bytes need.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
import time
from pathlib import Path

import psycopg
from nodes import DATABASE, Nodes
from psycopg import sql

SETTINGS = """
listen_addresses = ''
port = 5432
timezone = 'UTC'
jit = off
shared_buffers = 64MB
max_connections = 60
max_locks_per_transaction = 256
wal_level = logical
max_wal_senders = 16
max_replication_slots = 16
max_logical_replication_workers = 8
max_sync_workers_per_subscription = 4
"""
ROUTER = "router"
TRIES = 20
QUEUED = ["embedder", "embed", "extract", "model", "scan"]  # jobs that do what is queued, which is handed over last


class Behind(Exception):
    """The new server has not applied yet what the old one has written."""


class Shards(Nodes):
    """Servers s0, s1, … and the router."""

    @property
    def names(self) -> list[str]:
        return sorted(
            (path.name for path in self.folder.glob("s[0-9]*") if path.is_dir()), key=lambda name: int(name[1:])
        )

    def connect(self, node: str) -> psycopg.Connection:
        return psycopg.connect(self.dsn(node), autocommit=True, connect_timeout=3)

    def up(self, shards: int = 4, parts: int = 8) -> None:
        names = self.names or [f"s{n}" for n in range(shards)]
        if len(names) & (len(names) - 1) or parts < len(names):
            raise SystemExit(
                f"shards must be a power of two and no more than the parts, not {len(names)} with {parts} parts"
            )
        self.make_folder(*names, ROUTER)
        fresh = not (self.data(ROUTER) / "PG_VERSION").exists()
        for node in (*names, ROUTER):
            if fresh:
                self.initdb(node, SETTINGS)
            if not self.is_up(node):
                self.start(node)
            if fresh:
                self.install(node, modulus=parts)
        if fresh:
            self.route(names, parts)
        for node in names:
            self.run(
                f"worker-{node}", Path(sys.executable).parent / "pg-memoir", "worker", "--jobs", "--dsn", self.dsn(node)
            )

    def route(self, names: list[str], parts: int) -> None:
        """The router's functions, its servers, and parts dealt out in turn."""
        with self.connect(ROUTER) as db:
            db.execute((Path(__file__).parent / "router.sql").read_text())
            partitions = ", ".join(
                f"p{n} 'host={self.folder / name} port=5432 dbname={DATABASE}'" for n, name in enumerate(names)
            )
            db.execute(f"create server shards foreign data wrapper plproxy options ({partitions})")
            db.execute("grant usage on foreign server shards to public")
            db.execute("create user mapping for postgres server shards options (user 'postgres')")
            db.execute("grant usage on schema routing to public")
            db.execute(
                "insert into routing.parts select n, n %% %s from generate_series(0, %s - 1) n", [len(names), parts]
            )

    def login(self, name: str, role: str) -> None:
        """The same name everywhere: who calls is who the server sees."""
        self.sql(sql.SQL("create role {} login in role {}").format(sql.Identifier(name), sql.Identifier(role)))
        with self.connect(ROUTER) as db:
            db.execute(
                sql.SQL("create user mapping for {} server shards options (user {})").format(
                    sql.Identifier(name), sql.Literal(name)
                )
            )

    def sql(self, query: str | sql.Composed) -> None:
        for node in (*self.names, ROUTER):
            with self.connect(node) as db:
                db.execute(query)

    def router(self, user: str) -> str:
        return f"host={self.folder / ROUTER} port=5432 dbname={DATABASE} user={user}"

    def status(self) -> None:
        with self.connect(ROUTER) as db:
            parts = dict(
                db.execute("select shard, array_agg(part order by part) from routing.parts group by shard").fetchall()
            )
        for number, node in enumerate(self.names):
            if not self.is_up(node):
                print(f"{node}  down   parts {parts.get(number, [])}")
                continue
            with self.connect(node) as db:
                users, turns, size = db.execute(
                    "select (select count(*) from _memoir.users), (select coalesce(sum(turn_count), 0) from _memoir.session_counters),"
                    " pg_size_pretty(pg_database_size(current_database()))"
                ).fetchone()
                failed = [
                    job for (job,) in db.execute("select job from memoir.list_jobs() where last_outcome = 'failed'")
                ]
            print(
                f"{node}  {users} users, {turns} turns, {size}   parts {parts.get(number, [])}   failed jobs: {failed or 'none'}"
            )
        print(f"router  {self.router('LOGIN')}")

    # Moving a part

    def move(self, part: int, to: int) -> float:
        """Moves a part to another server; returns how long its users had to wait, in seconds."""
        with self.connect(ROUTER) as router:
            row = router.execute("select shard from routing.parts where part = %s", [part]).fetchone()
        names = self.names
        if row is None or to not in range(len(names)):
            raise SystemExit(f"there is no part {part}, or no server {to}")
        if row[0] == to:
            raise SystemExit(f"part {part} is on server {to} already")
        source, target = names[row[0]], names[to]
        name = f"move_part_{part}"
        with self.connect(source) as old, self.connect(target) as new, self.connect(ROUTER) as router:
            self.hold_jobs(new)
            old.execute("call memoir.run_job('flush')")  # what compiles left behind is unlogged
            leaves = self.leaves(old, part)
            self.make_leaves(new, part, leaves)
            tables = sql.SQL(", ").join(sql.Identifier("_memoir", leaf) for leaf in leaves)
            try:
                old.execute(
                    sql.SQL("create publication {} for table {} with (publish = 'insert, update, delete')").format(
                        sql.Identifier(name), tables
                    )
                )
                new.execute(
                    sql.SQL("create subscription {} connection {} publication {}").format(
                        sql.Identifier(name), sql.Literal(self.dsn(source)), sql.Identifier(name)
                    )
                )
                self.wait(lambda: self.copied(new, name), "the first copy")
                for attempt in range(TRIES):
                    self.wait(lambda: self.behind(old, name) < 100_000, "what was written since")
                    try:
                        return self.cut_over(router, old, new, part, to, name, tables, min(30, 0.8 * 1.5**attempt))
                    except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected, Behind):
                        if attempt == TRIES - 1:
                            raise
                        time.sleep(0.5)  # a job is at work on the part, or the new server is behind
                raise AssertionError
            finally:
                new.execute(sql.SQL("drop subscription if exists {}").format(sql.Identifier(name)))
                old.execute(sql.SQL("drop publication if exists {}").format(sql.Identifier(name)))
                new.execute("delete from _memoir.job_leases where backend = pg_backend_pid()")

    def cut_over(
        self, router: psycopg.Connection, old: psycopg.Connection, new: psycopg.Connection, part: int, to: int, name: str,
        tables: sql.Composed, patience: float,
    ) -> float:  # fmt: skip
        """Calls of the part's users wait at the router, jobs at the old server, until the new one has everything.

        Where that takes longer than `patience` seconds nothing has happened, and they go on.
        """
        with old.transaction():
            old.execute("select set_config('lock_timeout', %s, true)", [f"{patience * 1000:.0f}ms"])
            old.execute("set local deadlock_timeout = '100ms'")  # of two that wait for each other, the move gives way
            old.execute("set local session_replication_role = replica")  # history may not be truncated otherwise
            with router.transaction():
                router.execute("set local lock_timeout = '5s'")
                started = time.monotonic()
                router.execute("update routing.parts set shard = %s where part = %s", [to, part])
                old.execute(sql.SQL("lock table {} in access exclusive mode").format(tables))
                with self.connect(Path(old.info.host).name) as watch:
                    watch.execute(
                        "select pg_logical_emit_message(true, 'pg_memoir', %s)", [name]
                    )  # what came before is on disk
                    [lsn] = watch.execute("select pg_current_wal_flush_lsn()").fetchone()
                    arrived = "select confirmed_flush_lsn >= %s from pg_replication_slots where slot_name = %s"
                    while not watch.execute(arrived, [lsn, name]).fetchone()[0]:
                        if time.monotonic() - started > patience:
                            raise Behind(f"{name}: the new server is behind")
                        time.sleep(0.01)
                self.hand_over(old, new, part)
                new.execute(sql.SQL("alter subscription {} disable").format(sql.Identifier(name)))
            waited = time.monotonic() - started
            old.execute(sql.SQL("truncate {}").format(tables))
        return waited

    def hold_jobs(self, new: psycopg.Connection) -> None:
        """Takes the leases of the new server's jobs that go through all users: what they did to half a part would be in
        the way of what arrives. They pass on with this connection."""
        take = """
            insert into _memoir.job_leases as l (job, run_id, backend, leased_until)
            select job, 0, pg_backend_pid(), 'infinity' from memoir.list_jobs() where job <> all (%s)
            on conflict (job) do update set run_id = 0, backend = excluded.backend, leased_until = excluded.leased_until
            where not exists (select from pg_stat_activity a where a.pid = l.backend)"""
        lacking = """
            select count(*) from memoir.list_jobs() j where job <> all (%s) and not exists (
              select from _memoir.job_leases l where l.job = j.job and l.backend = pg_backend_pid())"""

        def held() -> bool:
            new.execute(take, [QUEUED])
            return new.execute(lacking, [QUEUED]).fetchone()[0] == 0

        self.wait(held, "jobs at the new server to end")

    def behind(self, old: psycopg.Connection, name: str) -> int:
        """Bytes of the log that the new server has not confirmed yet."""
        query = "select pg_current_wal_flush_lsn() - confirmed_flush_lsn from pg_replication_slots where slot_name = %s"
        return int(old.execute(query, [name]).fetchone()[0])

    def hand_over(self, old: psycopg.Connection, new: psycopg.Connection, part: int) -> None:
        """What is kept by server and not by part: work that waits for the part's users, prompts of their sessions."""
        for table, condition, skipped in (
            ("work_items", sql.SQL("_memoir.part_of(user_id) = {}").format(part), "work_id"),
            ("system_prompts", sql.SQL("true"), ""),
        ):
            columns = [
                column
                for (column,) in old.execute(
                    "select attname from pg_attribute where attrelid = ('_memoir.' || %s)::regclass and attnum > 0 and not attisdropped"
                    " and attname <> %s order by attnum", [table, skipped],
                )
            ]  # fmt: skip
            names, into = sql.SQL(", ").join(map(sql.Identifier, columns)), sql.Identifier("_memoir", table)
            rows = old.execute(sql.SQL("select {}::text from {} t where {}").format(
                sql.SQL("::text, ").join(map(sql.Identifier, columns)), into, condition)).fetchall()  # fmt: skip
            with new.cursor() as cursor, new.transaction():
                for row in rows:
                    cursor.execute(
                        sql.SQL("insert into {} ({}) values ({}) on conflict do nothing").format(
                            into, names, sql.SQL(", ").join(map(sql.Literal, row))
                        )
                    )
            if table == "work_items":
                old.execute(sql.SQL("delete from {} where {}").format(into, condition))

    def leaves(self, db: psycopg.Connection, part: int) -> list[str]:
        """All tables of a part that survive a crash, by name."""
        return [
            leaf
            for (leaf,) in db.execute(
                "select relname from pg_class where relnamespace = '_memoir'::regnamespace and relkind = 'r' and relispartition"
                " and relpersistence = 'p' and relname ~ %s order by 1", [rf"_p{part}(_y\d+m\d+)?$"],
            )
        ]  # fmt: skip

    def make_leaves(self, db: psycopg.Connection, part: int, leaves: list[str]) -> None:
        """The same tables on the new server, which must be empty."""
        for leaf in leaves:
            table, year, month = re.fullmatch(rf"(.+)_p{part}(?:_y(\d+)m(\d+))?", leaf).groups()
            db.execute("select _memoir.make_leaf(%s, %s, %s)", [table, part, f"{year}-{month}-01" if year else None])
            filled = db.execute(
                sql.SQL("select exists (select from {})").format(sql.Identifier("_memoir", leaf))
            ).fetchone()[0]
            if filled:
                raise SystemExit(f"{leaf} is not empty on the new server")

    def copied(self, db: psycopg.Connection, name: str) -> bool:
        query = (
            "select count(*) > 0 and bool_and(r.srsubstate = 'r') from pg_subscription_rel r"
            " join pg_subscription s on s.oid = r.srsubid where s.subname = %s"
        )
        return bool(db.execute(query, [name]).fetchone()[0])

    def wait(self, until, what: str, seconds: float = 600) -> None:
        deadline = time.monotonic() + seconds
        while not until():
            if time.monotonic() > deadline:
                raise SystemExit(f"waited {seconds:.0f} s for {what}")
            time.sleep(0.01)

    def down(self) -> None:
        for node in self.names:
            self.signal(f"worker-{node}", signal.SIGTERM)
        for node in (ROUTER, *self.names):
            self.stop(node, "immediate")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("up", "status", "down", "login", "sql", "move"):
        command = commands.add_parser(name)
        command.add_argument(
            "folder", type=Path, help="data, sockets and logs; a short path, since sockets' paths end at 107 bytes"
        )
        if name == "up":
            command.add_argument("--shards", type=int, default=4)
            command.add_argument("--parts", type=int, default=8)
        for argument in {"login": ("name", "role"), "sql": ("query",), "move": ("part", "to")}.get(name, ()):
            command.add_argument(argument, type=int if name == "move" else str)
    arguments = vars(parser.parse_args())
    shards, command = Shards(arguments.pop("folder")), arguments.pop("command")
    done = getattr(shards, command)(**arguments)
    if command == "move":
        print(f"moved; users of the part waited {done * 1000:.0f} ms")
    if command in ("up", "move"):
        shards.status()


if __name__ == "__main__":
    main()
