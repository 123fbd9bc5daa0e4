"""Memory for coding agents by their hooks: agents install, uninstall, status."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from ..agents.clients import AFTER_INSTALL, AGENTS
from ..agents.files import FileError
from ..agents.installing import Records
from ..agents.installing import install as install_agent
from ..agents.installing import uninstall as uninstall_agent
from ..agents.repository import find_repository, memory_user, person_name, recorded_person
from ..agents.status import describe, read_log
from ..app import ATTENTION, OK, USAGE, AsJson, Dsn, Stop, app, connection_string
from ..embedder import has_package
from ..show import table

agents = typer.Typer(no_args_is_help=True, help="Give coding agents a memory by their hooks, without a proxy.")
app.add_typer(agents, name="agents", rich_help_panel="Running it")

Names = Annotated[list[str], typer.Argument(metavar="AGENT…", help=f"Of {', '.join(AGENTS)}.", show_default=False)]
InProject = Annotated[
    bool, typer.Option("--project", help="In the files of this repository, not in your own of this machine.")
]
Person = Annotated[
    str, typer.Option("--user", metavar="NAME", show_default=False, help="Whose memory (default: your login's name).")
]


def _check_names(names: list[str]) -> None:
    for name in names:
        if name not in AGENTS:
            raise Stop(f"unknown agent {name!r}", f"one of {', '.join(AGENTS)}", USAGE)


def _find_root(is_project: bool) -> Path | None:
    """The folder whose files get the hooks: the nearest one with .git, None for the person's own files."""
    if not is_project:
        return None
    here = Path.cwd()
    root = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), None)
    if root is None:
        raise Stop(f"{here} is in no repository", "leave out --project, or run git init", USAGE)
    return root


def _read_records() -> Records:
    try:
        return Records()
    except FileError as error:
        raise Stop(str(error)) from error


@agents.command()
def install(names: Names, project: InProject = False, user: Person = "", dsn: Dsn = "") -> int:
    """Write the hooks and the MCP entry of agents: claude-code, codex, opencode, cursor.

    A session then begins with what is known about you and the repository, each prompt gets what fits it, and what was
    said is stored. One repository has one memory, whatever agent works in it. Install again to repair or to update.
    """
    _check_names(names)
    root = _find_root(project)
    where = connection_string(dsn)
    if not has_package("pg_memoir_gateway"):
        raise Stop("agents need the package pg-memoir-gateway", "pip install pg-memoir-gateway", USAGE)
    for name in names:
        try:
            files = install_agent(name, root, user=user, dsn=where if dsn else "")
        except (FileError, OSError) as error:
            raise Stop(f"{name}: {error}") from error
        print(f"{name}: {', '.join(map(str, files))}")
        if name in AFTER_INSTALL:
            print(f"  {AFTER_INSTALL[name]}")
    print(f"The memory of this folder is that of user {memory_user(person_name(user), Path.cwd())!r}.")
    return OK


@agents.command()
def uninstall(names: Names, project: InProject = False) -> int:
    """Remove the hooks and the MCP entry of agents; the rest of their files stays as it is.

    What is remembered stays too: `pg-memoir erase` deletes it.
    """
    _check_names(names)
    root = _find_root(project)
    found = []
    for name in names:
        try:
            files = uninstall_agent(name, root)
        except (FileError, OSError) as error:
            raise Stop(f"{name}: {error}") from error
        found += files
        print(f"{name}: {', '.join(map(str, files)) or 'nothing was installed'}")
    return OK if found else ATTENTION


@agents.command()
def status(json: AsJson = False) -> int:
    """Show where hooks are installed, whether they work, how long they take, and why one gave nothing.

    Ends with 3 if something is wrong.
    """
    lines = read_log()
    conditions = [describe(install, lines) for install in _read_records().installs]
    table(conditions, ["agent", "place", "state", "last_event", "median_ms", "note"], json=json)
    if not json:
        print(f"This folder is {find_repository(Path.cwd())}.")
    return ATTENTION if any(one.state in ("broken", "failing") for one in conditions) else OK


@agents.command(hidden=True)
def mcp(user: Person = "", folder: Annotated[str, typer.Option()] = "", dsn: Dsn = "") -> int:
    """Serve the memory of the repository in which an agent starts this, over MCP."""
    from pg_memoir_gateway.mcp_command import serve
    from pg_memoir_gateway.mcp_server import Who

    here = Path(folder) if folder and Path(folder).is_dir() else Path.cwd()
    records = _read_records()
    where = connection_string(records.dsn or dsn)
    person = person_name(user or recorded_person([vars(one) for one in records.installs], here))
    return asyncio.run(serve(where, Who(memory_user(person, here))))


@agents.command(hidden=True, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def hook(context: typer.Context) -> int:
    """Answer an event of an agent, given on standard input (agents call this)."""
    from ..agents.hook import main

    return main(context.args)
