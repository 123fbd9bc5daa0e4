"""The private server, for people without one: up, down."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from ..app import Stop, app, state_folder

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


def _cluster(*arguments: str, quiet: bool = False) -> str:
    """Runs scripts/cluster.sh, whose progress goes to standard error; returns what it prints."""
    if sys.platform != "linux" or shutil.which("bash") is None:
        raise Stop(
            "the private server needs Linux with bash and apt",
            "elsewhere: docs/start/installation.md, Docker (Dockerfile.postgres), or any PostgreSQL with pgvector",
        )
    home, is_checkout = _home()
    environment = dict(os.environ)
    if not is_checkout:
        environment["PG_MEMOIR_STATE"] = str(state_folder())
    command = ["bash", str(home / "scripts" / "cluster.sh"), *arguments]
    ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if ended.returncode:
        raise Stop("the set-up did not succeed; its last lines above say why")
    return ended.stdout.strip()


@app.command(rich_help_panel=_OWN)
def up() -> None:
    """Start a private PostgreSQL with pg_memoir in it; nothing of the system's own is touched.

    Installs what lacks (PostgreSQL, pgvector, and where they can be had PL/Python and pg_cron; as root or with sudo, on
    Debian and Ubuntu), makes a server of its own without a network port, installs pg_memoir. Running it again starts
    it, or upgrades it after an upgrade of this package. The first time takes some minutes.

    The other commands find it without --dsn. Its folder: $PG_MEMOIR_STATE, else below ~/.local/state (root:
    /var/lib/pg_memoir).
    """
    _cluster("up")
    dsn = _cluster("dsn")
    folder = state_folder()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "dsn").write_text(dsn + "\n", "utf-8")
    print(dsn)


@app.command(rich_help_panel=_OWN)
def down(
    delete: Annotated[bool, typer.Option("--delete", help="Delete it too, with all that is in it.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before deleting.")] = False,
) -> None:
    """Stop the private server; what it holds stays, unless --delete."""
    if delete and not yes:
        typer.confirm("Delete the private server and all memories in it?", abort=True, err=True)
    _cluster("clean" if delete else "down")
    (state_folder() / "dsn").unlink(missing_ok=True)
