"""Databases for tests: a template with pg_memoir installed, and a fresh copy of it per module.

The server is the checkout's private cluster; `make test` starts it and sets PG_MEMOIR_DSN.
"""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("PG_MEMOIR_BUILD", ROOT / ".local" / "build"))
MODULUS = 2  # few partitions: a copy of the template costs a fraction of a second


def run_psql(dsn: str, *args: str) -> None:
    """psql on a database; raises with what it printed."""
    done = subprocess.run(
        [os.environ.get("PSQL", "psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", *args, dsn],
        env=os.environ | {"PGOPTIONS": "-c client_min_messages=warning"},
        capture_output=True, text=True, check=False,
    )
    if done.returncode:
        raise RuntimeError(f"psql {' '.join(args)}: {done.stderr[-3000:]}")


def install(dsn: str, modulus: int = MODULUS) -> None:
    """Installs or upgrades pg_memoir in a database, as the README says."""
    run_psql(dsn, "-v", f"modulus={modulus}", "-1", "-f", str(BUILD / "pg_memoir.sql"), "-o", "/dev/null")
    run_psql(dsn, "-c", "call memoir.setup()", "-c", "call memoir.ensure_partitions()")
    if has_plpython(dsn):
        run_psql(dsn, "-c", "create extension if not exists plpython3u")
        run_psql(dsn, "-1", "-f", str(BUILD / "pg_memoir_plpython.sql"), "-o", "/dev/null")


def has_plpython(dsn: str) -> bool:
    with psycopg.connect(dsn) as connection:
        found = connection.execute("select 1 from pg_available_extensions where name = 'plpython3u'").fetchone()
    return found is not None and (BUILD / "pg_memoir_plpython.sql").exists()


@pytest.fixture(scope="session")
def server_dsn() -> str:
    dsn = os.environ.get("PG_MEMOIR_DSN")
    if not dsn:
        pytest.exit("PG_MEMOIR_DSN is not set: run the tests with `make test`", returncode=3)
    return dsn


def in_database(dsn: str, name: str) -> str:
    return make_conninfo(**{**conninfo_to_dict(dsn), "dbname": name})


@pytest.fixture(scope="session")
def template(server_dsn: str) -> Iterator[str]:
    """The name of a database with pg_memoir freshly installed, to copy from."""
    name = f"memoir_template_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(in_database(server_dsn, "postgres"), autocommit=True) as admin:
        admin.execute(f"create database {name}")
        install(in_database(server_dsn, name))
        yield name
        admin.execute(f"drop database {name} with (force)")


@pytest.fixture(scope="module")
def memoir_dsn(server_dsn: str, template: str) -> Iterator[str]:
    """A superuser DSN of a fresh database with pg_memoir, one per test module."""
    name = f"memoir_test_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(in_database(server_dsn, "postgres"), autocommit=True) as admin:
        admin.execute(f"create database {name} template {template}")
        yield in_database(server_dsn, name)
        admin.execute(f"drop database {name} with (force)")


@pytest.fixture
def db(memoir_dsn: str) -> Iterator[psycopg.Connection]:
    """An autocommit connection to the module's database."""
    with psycopg.connect(memoir_dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
def user() -> str:
    """A user name nobody else uses."""
    return f"user-{uuid.uuid4().hex[:12]}"
