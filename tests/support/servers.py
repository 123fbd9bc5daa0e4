"""Where things are, psql, what installs pg_memoir; databases, logins and whole servers that a test makes for itself."""

import os
import shlex
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("PG_MEMOIR_BUILD", ROOT / ".local" / "build"))
MODULUS = 2  # few partitions: a copy of the template costs a fraction of a second
PGBIN = Path(os.environ.get("PG_MEMOIR_PGBIN", "/usr/lib/postgresql/15/bin"))
SERVER_USER = os.environ.get("PG_MEMOIR_SERVER_USER", "postgres")
ARTIFACT = BUILD / "pg_memoir.sql"
# A server whose data nobody misses when the machine goes down. What survives a crash of the server itself is the same.
VOLATILE = {"fsync": "off", "full_page_writes": "off"}


def unique(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex[:8]}"


def in_database(dsn: str, name: str) -> str:
    return make_conninfo(**{**conninfo_to_dict(dsn), "dbname": name})


def user_of(dsn: str, user: str) -> str:
    return make_conninfo(**{**conninfo_to_dict(dsn), "user": user})


def connect(dsn: str, **parameters: str) -> psycopg.Connection:
    return psycopg.connect(make_conninfo(dsn, **parameters), autocommit=True)


@contextmanager
def database(server_dsn: str, options: str = "") -> Iterator[str]:
    """DSN of a new database, dropped afterwards."""
    name = unique("memoir_test")
    with connect(in_database(server_dsn, "postgres")) as admin:
        admin.execute(f"create database {name} {options}")
        try:
            yield in_database(server_dsn, name)
        finally:
            admin.execute(f"drop database {name} with (force)")


@contextmanager
def roles(server_dsn: str, **options: str) -> Iterator[dict[str, str]]:
    """New roles, {key: name}: roles(dsn, alice="login in role memoir_app"). Dropped afterwards."""
    names = {key: unique(f"t_{key}") for key in options}
    with connect(server_dsn) as admin:
        try:
            for key, name in names.items():
                admin.execute(f"create role {name} {options[key].format(**names)}")
            yield names
        finally:
            # Not from every database they may own something in: tests drop those first.
            for name in reversed(names.values()):
                if admin.execute("select 1 from pg_roles where rolname = %s", [name]).fetchone():
                    admin.execute(f"drop owned by {name} cascade")
                    admin.execute(f"drop role {name}")


def psql(dsn: str, *args: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """psql without start-up file; the caller looks at the return code."""
    env = os.environ | {"PGOPTIONS": "-c client_min_messages=warning"}
    command = [PGBIN / "psql", "-X", "-q", "-o", os.devnull, *args, dsn]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, env=env)


def run_psql(dsn: str, *args: str) -> None:
    """psql on a database; raises with what it printed."""
    done = psql(dsn, "-v", "ON_ERROR_STOP=1", *args)
    if done.returncode:
        raise RuntimeError(f"psql {' '.join(args)}: {done.stderr[-3000:]}")


def install(dsn: str, modulus: int = MODULUS) -> None:
    """Installs or upgrades pg_memoir in a database, as the README says."""
    run_psql(dsn, "-v", f"modulus={modulus}", "-1", "-f", str(ARTIFACT))
    run_psql(dsn, "-c", "call memoir.setup()", "-c", "call memoir.ensure_partitions()")
    add_python(dsn)


def add_python(dsn: str) -> None:
    """Installs the PL/Python functions, where the server has PL/Python."""
    if has_plpython(dsn):
        run_psql(dsn, "-c", "create extension if not exists plpython3u")
        run_psql(dsn, "-1", "-f", str(BUILD / "pg_memoir_plpython.sql"))


def has_plpython(dsn: str) -> bool:
    with connect(dsn) as db:
        found = db.execute("select 1 from pg_available_extensions where name = 'plpython3u'").fetchone()
    return found is not None and (BUILD / "pg_memoir_plpython.sql").exists()


def apply(dsn: str, modulus: int | None = 1, artifact: Path = ARTIFACT, one: bool = True) -> str:
    """Installs or upgrades the SQL core alone; returns what psql complained about, empty when all went well."""
    given = ([] if modulus is None else [f"-vmodulus={modulus}"]) + (["-1"] if one else [])
    done = psql(dsn, *given, "-f", str(artifact))
    assert (done.returncode == 0) == (done.stderr == ""), done.stderr
    return done.stderr


def complete(dsn: str, modulus: int | None = 1) -> None:
    """Installs the SQL core and makes the partitions of this month."""
    assert apply(dsn, modulus) == ""
    with connect(dsn) as db:
        db.execute("call memoir.setup()")
        db.execute("call memoir.ensure_partitions(0)")


def use_embedder(dsn: str, private_dsn: str) -> None:
    """Has a copied database embed with the embedder of the checkout's private server."""
    with connect(private_dsn) as private:
        row = private.execute("select value from memoir.list_settings() where key = 'embedder_socket'").fetchone()
        private.execute("select memoir.ensure_embedder()")
    with connect(dsn) as db:
        db.execute("call memoir.setup()")  # the search_path of a copied database
        db.execute("select memoir.set_setting('embedder_socket', to_jsonb(%s::text))", row)


def as_server_user(*command: str | Path, env: dict[str, str] | None = None) -> None:
    """Runs a command as the user who runs PostgreSQL, which refuses root; raises with what it printed."""
    line = [str(part) for part in command]
    if os.geteuid() == 0:
        line = ["setpriv", f"--reuid={SERVER_USER}", f"--regid={SERVER_USER}", "--init-groups", "--", *line]
    done = subprocess.run(line, cwd="/", env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{shlex.join(line)}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


@contextmanager
def server_folder() -> Iterator[Path]:
    """A short-named folder of the server's user, for a data directory and its socket."""
    folder = Path(tempfile.mkdtemp(prefix="pgmt-", dir="/tmp"))
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, SERVER_USER)
        yield folder
    finally:
        shutil.rmtree(folder)


def environment_of(dsn: str) -> dict[str, str]:
    """What a running server's PL/Python needs to find its modules."""
    with connect(dsn) as db:
        pid = db.execute("select split_part(pg_read_file('postmaster.pid'), chr(10), 1)").fetchone()[0]
    pairs = (pair.partition("=") for pair in Path(f"/proc/{pid}/environ").read_text().split("\0"))
    ours = ("PYTHON", "PG_MEMOIR", "OMP_", "HF_", "ORT_", "TOKENIZERS_")
    return {key: value for key, _, value in pairs if key.startswith(ours)}


def make_cluster(folder: Path) -> None:
    """Makes an empty data directory, folder/data."""
    access = ("-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8")
    as_server_user(PGBIN / "initdb", "-D", folder / "data", *access, "--no-instructions", "--no-sync")


@contextmanager
def running(folder: Path, environment: dict[str, str] | None = None, **settings: str) -> Iterator[str]:
    """Starts the data directory folder/data on a socket in folder; yields a superuser's DSN. Stopped by its own pid file."""
    socket = {"listen_addresses": "", "unix_socket_directories": str(folder), "port": "5432", "jit": "off"}
    settings = VOLATILE | socket | settings
    options = " ".join(f"-c {key}={shlex.quote(value)}" for key, value in settings.items())
    start = ["-D", folder / "data", "-l", folder / "log", "-o", options, "-w", "-t", "60", "-s"]
    env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **(environment or {})}
    try:
        as_server_user(PGBIN / "pg_ctl", "start", *start, env=env)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{(folder / 'log').read_text()[-2000:]}") from None
    try:
        yield f"host={folder} port=5432 dbname=postgres user=postgres"
    finally:
        if (folder / "killed").exists():  # by the test, which says so with this file
            (folder / "killed").unlink()
        else:
            as_server_user(PGBIN / "pg_ctl", "stop", "-D", folder / "data", "-m", "immediate", "-w", "-s")


# As scripts/cluster.sh has it.
ROOMY = {"timezone": "UTC", "max_locks_per_transaction": "256", "shared_buffers": "256MB", "max_wal_size": "2GB"}


@contextmanager
def fresh_server(environment: dict[str, str] | None = None, **settings: str) -> Iterator[str]:
    """A server of its own that knows no role of ours; yields a superuser's DSN."""
    with server_folder() as folder:
        make_cluster(folder)
        with running(folder, environment, **(ROOMY | settings)) as dsn:
            yield dsn
