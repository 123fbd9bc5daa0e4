"""Folders of a person's machine. A hook of an agent imports this with each event, so it needs the standard library
alone."""

from __future__ import annotations

import os
from pathlib import Path


def state_folder() -> Path:
    """Where `pg-memoir up` keeps its server: $PG_MEMOIR_STATE, or the user's folder for data."""
    own = os.environ.get("PG_MEMOIR_STATE")
    if own:
        return Path(own)
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        return Path("/var/lib/pg_memoir/default")
    earlier = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "pg_memoir" / "default"
    if (earlier / "pgdata").is_dir():  # made by a release that kept it there
        return earlier
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "pg_memoir"


def read_private_dsn() -> str:
    """Returns the connection string of the server of `pg-memoir up`, "" without one."""
    try:
        return (state_folder() / "dsn").read_text("utf-8").strip()
    except OSError:
        return ""


def agents_folder() -> Path:
    """Where `pg-memoir agents` keeps what it installed, and the log of the hooks."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "pg_memoir" / "agents"
