"""A server for the tests, a template with pg_memoir installed, and a fresh copy of it per module.

The server is the tests' own, one per process of a run (`pytest -n 2` makes two): roles, the template and whatever else a
server shares are never met by two tests at once. It is made like the checkout's private one, which must be up for that
(`make test` sees to it and sets PG_MEMOIR_DSN).
"""

import os
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from calls import set_clock, use_vectors
from pg_memoir import Memoir
from pg_memoir_cli import app
from psycopg.types.json import Jsonb
from servers import connect, database, environment_of, fresh_server, in_database, install, unique, use_embedder


@pytest.fixture(scope="session", autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A folder for the journals of gateways, in the place of the user's own."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """What runs the tests that are coroutines, marked anyio."""
    return "asyncio"


@pytest.fixture(scope="session")
def private_dsn() -> str:
    """The checkout's private database; nothing is written there."""
    dsn = os.environ.get("PG_MEMOIR_DSN")
    if not dsn:
        pytest.exit("PG_MEMOIR_DSN is not set: run the tests with `make test`", returncode=3)
    return dsn


@pytest.fixture(scope="session")
def server_dsn(private_dsn: str) -> Iterator[str]:
    """A superuser's DSN of the server that all tests of this process share."""
    with fresh_server(environment_of(private_dsn)) as dsn:
        yield dsn


@pytest.fixture(scope="module")
def scratch(private_dsn: str) -> Iterator[str]:
    """A server for one module: for tests of whole servers."""
    with fresh_server(environment_of(private_dsn)) as dsn:
        yield dsn


@pytest.fixture(scope="session")
def template(server_dsn: str) -> str:
    """The name of a database with pg_memoir freshly installed, to copy from."""
    name = unique("memoir_template")
    with connect(server_dsn) as admin:
        admin.execute(f"create database {name}")
    install(in_database(server_dsn, name))
    return name


@pytest.fixture(scope="module")
def memoir_dsn(server_dsn: str, template: str) -> Iterator[str]:
    """A superuser's DSN of a fresh database with pg_memoir, one per test module."""
    with database(server_dsn, f"template {template}") as dsn:
        yield dsn


@pytest.fixture(scope="module")
def warm(memoir_dsn: str) -> Iterator[list[psycopg.Connection]]:
    """Connections that tests left in order: a new one compiles every function again, a third of a second each time."""
    kept: list[psycopg.Connection] = []
    yield kept
    for connection in kept:
        connection.close()


@pytest.fixture
def db(memoir_dsn: str, warm: list[psycopg.Connection]) -> Iterator[psycopg.Connection]:
    """An autocommit connection to the module's database, as if it were new."""
    connection = warm.pop() if warm else connect(memoir_dsn)
    connection.prepare_threshold = None
    yield connection
    try:
        for reset in ("reset session authorization", "reset role", "reset all", "discard temp", "unlisten *"):
            connection.execute(reset)
        assert connection.autocommit and not connection._notice_handlers
        connection.execute("select pg_advisory_unlock_all()")
        warm.append(connection)
    except (psycopg.Error, AssertionError):
        connection.close()


@pytest.fixture(scope="module")
def little_vectors(memoir_dsn: str) -> None:
    """In this module vectors have four dimensions and are given by the tests."""
    with connect(memoir_dsn) as connection:
        use_vectors(connection)


@pytest.fixture
def embedding_dsn(private_dsn: str, memoir_dsn: str) -> str:
    """The module's database, with the embedder of the checkout's private server."""
    use_embedder(memoir_dsn, private_dsn)
    return memoir_dsn


@pytest.fixture
def setting(db: psycopg.Connection) -> Iterator[Any]:
    """setting(key, value): set for one test."""
    changed = []

    def change(key: str, value: Any) -> None:
        changed.append(key)
        db.execute("select memoir.set_setting(%s, %s)", [key, Jsonb(value)])

    yield change
    for key in changed:
        db.execute("select memoir.reset_setting(%s)", [key])


@pytest.fixture
def clock(db: psycopg.Connection) -> Iterator[Callable[[str], None]]:
    """clock(time): it is then, until the test ends."""
    yield lambda at: set_clock(db, at)
    set_clock(db, None)


@pytest.fixture(scope="module")
def memoir(memoir_dsn: str) -> Iterator[Memoir]:
    with Memoir(memoir_dsn) as client:
        yield client


@pytest.fixture
def run(
    memoir_dsn: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """Runs pg-memoir with these arguments; returns its exit code, standard output and standard error."""
    monkeypatch.setenv("PG_MEMOIR_DSN", memoir_dsn)
    return lambda *arguments: (app.main([*map(str, arguments)]), *capsys.readouterr())


@pytest.fixture
def user() -> str:
    """A user name nobody else uses."""
    return f"user-{uuid.uuid4().hex[:12]}"
