#!/usr/bin/env python3
"""A primary with two standbys, PgBouncer, the gateway and a worker on one machine: what a failover is, to try and to
test.

    make up                                               # once: PostgreSQL, the Python environment, the built SQL
    .local/venv/bin/python deploy/replicas.py up FOLDER        starts everything and prints the connection strings
    .local/venv/bin/python deploy/replicas.py status FOLDER    who is primary, how far the others are behind
    .local/venv/bin/python deploy/replicas.py failover FOLDER  ends the primary, promotes the standby that has most
    .local/venv/bin/python deploy/replicas.py rejoin FOLDER    makes standbys anew of nodes that are down
    .local/venv/bin/python deploy/replicas.py down FOLDER      stops everything; the data stay

A commit waits for one standby (synchronous_standby_names = ANY 1), so what was acknowledged is on the one that is
promoted: the one that received most. Applications write to database `memoir` of PgBouncer and read from
`memoir_read`, which is the standbys, with `p_after_turn`; agents go through the gateway (--gateway-port), whose
upstreams are set as ever (UPSTREAM_ANTHROPIC, UPSTREAM_OPENAI). One script that decides is no cluster manager: in
production that is Patroni's part, or the provider's.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from pathlib import Path

import psycopg
from nodes import DATABASE, PGBIN, Nodes, as_server

NODES = ("a", "b", "c")
APPLICATION = "app"
SETTINGS = """
listen_addresses = ''
port = 5432
timezone = 'UTC'
jit = off
shared_buffers = 128MB
max_locks_per_transaction = 256
max_wal_senders = 8
max_replication_slots = 8
wal_log_hints = on
wal_keep_size = 256MB
synchronous_commit = on
"""
WAITING = f"synchronous_standby_names = 'ANY 1 ({', '.join(NODES)})'\n"


class Cluster(Nodes):
    """Nodes a, b, c in a folder, each a data directory and a socket of its own; who is primary is asked, not noted."""

    def __init__(self, folder: Path, gateway_port: int = 8787) -> None:
        super().__init__(folder)
        self.gateway_port = gateway_port

    def primary(self) -> str | None:
        return next((n for n in NODES if self.is_up(n) and not self.ask(n, "select pg_is_in_recovery()")), None)

    def standbys(self) -> list[str]:
        return [n for n in NODES if self.is_up(n) and self.ask(n, "select pg_is_in_recovery()")]

    def make_standby(self, node: str, primary: str) -> None:
        """A copy of the primary that follows it, whatever the node was before."""
        shutil.rmtree(self.data(node), ignore_errors=True)
        as_server(
            PGBIN / "pg_basebackup", "-D", self.data(node), "-R", "-X", "stream", "-c", "fast",
            "-d", f"host={self.folder / primary} port=5432 user=postgres application_name={node}",
        )  # fmt: skip
        self.configure(node, SETTINGS + WAITING)
        self.start(node)

    def follow(self, node: str, primary: str) -> None:
        """Points a running standby at another primary."""
        conninfo = f"host={self.folder / primary} port=5432 user=postgres application_name={node}"
        with psycopg.connect(self.dsn(node, "postgres"), autocommit=True) as db:
            db.execute(f"alter system set primary_conninfo = '{conninfo}'")
            db.execute("select pg_reload_conf()")

    # Processes beside them

    def bouncer(self, database: str = DATABASE) -> str:
        return f"host={self.folder} port=6432 dbname={database} user={APPLICATION}"

    def route(self) -> None:
        """Tells PgBouncer who is primary and who can be read from."""
        primary = self.primary()
        readers = ",".join(str(self.folder / node) for node in self.standbys() or [primary])
        self.write(
            self.folder / "pgbouncer.ini",
            f"""[databases]
{DATABASE} = host={self.folder / str(primary)} port=5432 dbname={DATABASE} user={APPLICATION}
{DATABASE}_read = host={readers} port=5432 dbname={DATABASE} user={APPLICATION}
[pgbouncer]
listen_port = 6432
listen_addr =
unix_socket_dir = {self.folder}
auth_type = any
pool_mode = transaction
default_pool_size = 8
max_client_conn = 200
server_check_delay = 5
server_login_retry = 1
""",
        )
        self.signal("pgbouncer", signal.SIGHUP)

    # What people call

    def up(self) -> None:
        self.make_folder(*NODES)
        if not (self.data("a") / "PG_VERSION").exists():
            self.initdb("a", SETTINGS)  # alone, it waits for nobody
            self.start("a")
            self.install("a")
            with psycopg.connect(self.dsn("a"), autocommit=True) as db:
                db.execute(f"create role {APPLICATION} login in role memoir_app")
            for node in NODES[1:]:
                self.make_standby(node, "a")
            self.configure("a", SETTINGS + WAITING)
            self.ask("a", "select pg_reload_conf()")
        else:
            for node in NODES:
                if not self.is_up(node):
                    self.start(node)
        self.start_processes()

    def start_processes(self) -> None:
        self.route()
        bouncer = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
        if bouncer is None:
            raise SystemExit("pgbouncer is not installed")
        self.run("pgbouncer", bouncer, "-q", self.folder / "pgbouncer.ini")
        # The worker goes past PgBouncer: jobs hold their connection, and it finds the primary by itself.
        hosts = ",".join(str(self.folder / node) for node in NODES)
        direct = f"host={hosts} port=5432,5432,5432 dbname={DATABASE} user=postgres target_session_attrs=read-write connect_timeout=3"
        self.run("worker", Path(sys.executable).parent / "pg-memoir", "worker", "--jobs", "--dsn", direct)
        gateway = ("-m", "pg_memoir_gateway", "--port", str(self.gateway_port))
        self.run("gateway", sys.executable, *gateway, env={"PG_MEMOIR_DSN": self.bouncer()})

    def status(self) -> None:
        for node in NODES:
            if not self.is_up(node):
                print(f"{node}  down")
            elif self.ask(node, "select pg_is_in_recovery()"):
                behind = self.ask(node, "select pg_wal_lsn_diff(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn())")
                print(f"{node}  standby, {behind} bytes received and not replayed   {self.dsn(node)}")
            else:
                print(f"{node}  primary   {self.dsn(node)}")
        print(f"write to   {self.bouncer()}\nread from  {self.bouncer(f'{DATABASE}_read')}")
        print(f"gateway    http://127.0.0.1:{self.gateway_port}")

    def failover(self) -> str:
        """Ends the primary if it is up, promotes, and points everything at the new one; returns its name."""
        old = self.primary()
        if old is not None:
            self.stop(old, "immediate")
        standbys = self.standbys()
        if not standbys:
            raise SystemExit("there is no standby to promote")
        received = {n: self.ask(n, "select pg_wal_lsn_diff(pg_last_wal_receive_lsn(), '0/0')") for n in standbys}
        new = max(standbys, key=lambda node: received[node])
        as_server(PGBIN / "pg_ctl", "promote", "-D", self.data(new), "-w", "-t", "60", "-s")
        for node in standbys:
            if node != new:
                self.follow(node, new)
        self.route()
        return new

    def rejoin(self) -> None:
        primary = self.primary()
        if primary is None:
            raise SystemExit("there is no primary: failover first")
        for node in NODES:
            if not self.is_up(node):
                self.stop(node, "immediate")
                self.make_standby(node, primary)
        self.route()

    def down(self) -> None:
        for name in ("gateway", "worker", "pgbouncer"):
            self.signal(name, signal.SIGTERM)
        primary = self.primary()
        for node in [n for n in NODES if n != primary] + ([primary] if primary else []):
            self.stop(node, "fast" if node != primary else "immediate")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("up", "status", "failover", "rejoin", "down"))
    parser.add_argument(
        "folder", type=Path, help="data, sockets and logs; a short path, since sockets' paths end at 107 bytes"
    )
    parser.add_argument("--gateway-port", type=int, default=8787, help="port of the gateway (%(default)s)")
    arguments = parser.parse_args()
    cluster = Cluster(arguments.folder, arguments.gateway_port)
    started = time.monotonic()
    done = getattr(cluster, arguments.command)()
    if arguments.command == "failover":
        print(f"{done} is primary after {time.monotonic() - started:.1f} s")
    if arguments.command in ("up", "failover", "rejoin"):
        cluster.status()


if __name__ == "__main__":
    main()
