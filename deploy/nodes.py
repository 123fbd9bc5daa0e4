"""PostgreSQL servers in a folder, each with a data directory and a socket of its own, and processes beside them."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sysconfig
from pathlib import Path

import psycopg

ROOT = Path(__file__).resolve().parents[1]
BUILD = Path(os.environ.get("PG_MEMOIR_BUILD", ROOT / ".local" / "build"))
PGBIN = Path(os.environ.get("PG_MEMOIR_PGBIN", "/usr/lib/postgresql/15/bin"))
SERVER_USER = os.environ.get("PG_MEMOIR_SERVER_USER", "postgres")
DATABASE = "memoir"
# Where the servers' Python finds plpython/ and its requirements (docs/start/installation.md).
SERVER_PYTHONPATH = os.environ.get("PG_MEMOIR_PYTHONPATH", f"{ROOT / 'plpython'}:{sysconfig.get_path('purelib')}")


def as_server(*command: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    """Runs a command as the server's user (PostgreSQL and PgBouncer refuse root); raises with what it printed."""
    line = [str(part) for part in command]
    if os.geteuid() == 0:
        line = ["setpriv", f"--reuid={SERVER_USER}", f"--regid={SERVER_USER}", "--init-groups", "--", *line]
    done = subprocess.run(
        line, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, **options
    )
    if done.returncode:
        raise SystemExit(f"{shlex.join(line)}\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
    return done


class Nodes:
    """Servers named by their folders; who is up is asked, not noted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()

    def make_folder(self, *nodes: str) -> None:
        for path, mode in ((self.folder, 0o755), *((self.folder / node, 0o700) for node in nodes)):
            path.mkdir(mode=mode, parents=True, exist_ok=True)
            if os.geteuid() == 0:
                shutil.chown(path, SERVER_USER)

    def initdb(self, node: str, settings: str) -> None:
        options = ("-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-instructions")
        as_server(PGBIN / "initdb", "-D", self.data(node), *options)
        self.configure(node, settings)

    def configure(self, node: str, settings: str) -> None:
        text = f"{settings}unix_socket_directories = '{self.folder / node}'\ncluster_name = '{node}'\n"
        self.write(self.data(node) / "pg_memoir.conf", text)
        main = self.data(node) / "postgresql.conf"
        if "pg_memoir.conf" not in main.read_text():
            self.write(main, main.read_text() + "\ninclude 'pg_memoir.conf'\n")

    def install(self, node: str, **variables: object) -> None:
        """A new database with pg_memoir, as scripts/install.sh makes it: with PL/Python where the server has it."""
        with psycopg.connect(self.dsn(node, "postgres"), autocommit=True) as db:
            db.execute(f"create database {DATABASE}")
            has_python = db.execute("select 1 from pg_available_extensions where name = 'plpython3u'").fetchone()
        more: list[list[str | Path]] = []
        if has_python and (BUILD / "pg_memoir_plpython.sql").exists():
            more = [["-c", "create extension plpython3u"], ["-1", "-f", BUILD / "pg_memoir_plpython.sql"]]
        psql = [PGBIN / "psql", "-X", "-q", "-o", os.devnull, "-v", "ON_ERROR_STOP=1", self.dsn(node)]
        named = [part for key, value in variables.items() for part in ("-v", f"{key}={value}")]
        env = os.environ | {"PGOPTIONS": "-c client_min_messages=warning"}
        for arguments in (
            [*named, "-1", "-f", BUILD / "pg_memoir.sql"],
            ["-c", "call memoir.setup()", "-c", "call memoir.ensure_partitions()"],
            *more,
        ):
            done = subprocess.run([*psql, *arguments], env=env, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(done.stderr[-2000:])

    def dsn(self, node: str, database: str = DATABASE) -> str:
        return f"host={self.folder / node} port=5432 dbname={database} user=postgres"

    def data(self, node: str) -> Path:
        return self.folder / node / "data"

    def is_up(self, node: str) -> bool:
        try:
            psycopg.connect(self.dsn(node, "postgres"), connect_timeout=3).close()
        except psycopg.OperationalError:
            return False
        return True

    def ask(self, node: str, query: str) -> object:
        with psycopg.connect(self.dsn(node, "postgres"), autocommit=True, connect_timeout=3) as db:
            row = db.execute(query).fetchone()
            return row[0] if row else None

    def start(self, node: str) -> None:
        log, env = self.folder / node / "log", os.environ | {"PYTHONPATH": SERVER_PYTHONPATH}
        as_server(PGBIN / "pg_ctl", "start", "-D", self.data(node), "-l", log, "-w", "-t", "60", "-s", env=env)

    def stop(self, node: str, mode: str = "fast") -> None:
        pid = self.data(node) / "postmaster.pid"
        if pid.exists() and Path(f"/proc/{pid.read_text().split()[0]}").exists():
            as_server(PGBIN / "pg_ctl", "stop", "-D", self.data(node), "-m", mode, "-w", "-s")

    def write(self, path: Path, text: str) -> None:
        path.write_text(text)
        if os.geteuid() == 0:
            shutil.chown(path, SERVER_USER)
            path.chmod(0o600)

    def run(self, name: str, *command: str | Path, env: dict[str, str] | None = None) -> None:
        """Starts a process that outlives this one; its pid is kept."""
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [str(part) for part in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env=os.environ | (env or {}), user=SERVER_USER if os.geteuid() == 0 and name == "pgbouncer" else None,
            )  # fmt: skip
        (self.folder / f"{name}.pid").write_text(str(process.pid))

    def signal(self, name: str, number: int) -> None:
        pid = self.folder / f"{name}.pid"
        if pid.exists():
            try:
                os.kill(int(pid.read_text()), number)
            except ProcessLookupError:
                pass
            if number == signal.SIGTERM:
                pid.unlink()
