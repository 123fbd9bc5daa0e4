"""Managed PostgreSQL: roles as the large providers have them, made by hand; install, the demo's calls, jobs from outside."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from calls import ask_client, call, one, persist, table
from pg_memoir import Memoir
from pg_memoir_cli.jobs import run_jobs
from pg_memoir_cli.worker import run_reader
from routines import code
from servers import apply, connect, fresh_server, in_database, user_of

pytestmark = pytest.mark.acceptance


@dataclass(frozen=True)
class Provider:
    """What its superuser prepares for role customer and database app, and where that has the extensions."""

    server: str
    database: str
    schema: str


# The customer is no superuser anywhere; what else a provider's role may, and where extensions lie, differs.
PROVIDERS = {
    "amazon": Provider(
        """create role rdsadmin superuser;
        create role rds_superuser nologin;
        grant pg_monitor, pg_signal_backend to rds_superuser with admin option;
        create role customer login createdb createrole;
        grant rds_superuser to customer""",
        """create extension vector; create extension pg_trgm; create extension pgcrypto""",
        "public",
    ),
    "supabase": Provider(
        """create role supabase_admin superuser;
        create role anon nologin; create role authenticated nologin; create role service_role nologin bypassrls;
        create role customer login createdb createrole replication bypassrls;
        grant anon, authenticated, service_role to customer with admin option;
        grant pg_monitor, pg_read_all_data, pg_signal_backend to customer""",
        """create schema extensions;
        create extension vector schema extensions; create extension pg_trgm schema extensions;
        create extension pgcrypto schema extensions;
        grant usage on schema extensions to anon, authenticated, service_role;
        grant usage on schema extensions to customer with grant option;
        alter default privileges for role customer in schema public grant all on functions to anon, authenticated;
        alter default privileges for role customer in schema public grant all on tables to anon, authenticated;
        alter database app set search_path = "$user", public, extensions;
        alter database app set statement_timeout = '2min';
        alter role anon set statement_timeout = '3s'; alter role authenticated set statement_timeout = '8s' """,
        "extensions",
    ),
    "neon": Provider(
        """create role cloud_admin superuser;
        create role neon_superuser nologin createdb createrole replication bypassrls;
        grant pg_read_all_data, pg_write_all_data, pg_monitor to neon_superuser;
        create role customer login createdb createrole replication bypassrls;
        grant neon_superuser to customer""",
        """create extension vector; create extension pg_trgm; create extension pgcrypto;
        alter database app set jit = on; alter database app set jit_above_cost = 0;
        alter database app set idle_in_transaction_session_timeout = '5min' """,
        "public",
    ),
}


@pytest.fixture(
    scope="module",
    params=["amazon", *(pytest.param(name, marks=pytest.mark.extended) for name in ("supabase", "neon"))],
)
def installed(request: pytest.FixtureRequest) -> Iterator[str]:
    """The customer's DSN, pg_memoir installed as docs/start/installation.md says for managed servers."""
    provider = PROVIDERS[request.param]
    with fresh_server() as server:
        with connect(server) as superuser:
            for statement in provider.server.split(";"):
                superuser.execute(statement)
            superuser.execute("create database app owner customer")
        dsn = in_database(server, "app")
        with connect(dsn) as superuser:
            for statement in provider.database.split(";"):
                superuser.execute(statement)
        customer = user_of(dsn, "customer")
        assert apply(customer, 4) == ""
        with connect(customer) as db:
            db.execute("call memoir.setup()")
            db.execute("call memoir.ensure_partitions()")
            db.execute("grant memoir_admin to customer")
            paths = "select distinct substr(c, 13) from pg_proc, unnest(proconfig) c where c like 'search_path=%'"
            [(path,)] = db.execute(f"{paths} and pronamespace = 'memoir'::regnamespace").fetchall()
            assert path == f"pg_catalog, {provider.schema}, pg_temp"
        yield customer


def login(installed: str, name: str, role: str) -> str:
    with connect(installed) as db:
        db.execute(f"create role {name} login in role {role}")
    return user_of(installed, name)


def test_the_demos_calls(installed: str) -> None:
    with connect(login(installed, "service", "memoir_app")) as db:
        persist(db, "alice", "march", "I live in Lisbon, and I never eat meat.", "Noted.")
        asked = "%(user)s, 'today', 'Where do I live?'"
        [(listed,)] = ask_client(db, "alice", f"select memoir.compile_context({asked})")
        assert "Lisbon" in str(listed) and listed[-1]["role"] == "user"
        rows = ask_client(db, "alice", f"select content from memoir.explain_context({asked})")
        assert any("Lisbon" in content for (content,) in rows)
        call(db, "remember", "alice", "Plays the viola")
        assert "viola" in str(ask_client(db, "alice", "select * from memoir.recall(%(user)s, 'viola')"))
        reads = "select has_table_privilege(oid, 'select') from pg_class where relname = 'conversation_history'"
        assert one(db, reads) is False


def test_jobs_run_from_outside(installed: str) -> None:
    with connect(login(installed, "writer", "memoir_app")) as db:
        persist(db, "bob", "s", "My daughter Ida plays chess.", "Nice.")
    with connect(installed) as db:
        often = "memoir.list_jobs() where job in ('extract', 'merge', 'flush', 'expiry')"
        db.execute(f"select memoir.set_schedule(job, '* * * * *') from {often}")
    worker = login(installed, "worker", "memoir_jobs")
    with Memoir(worker) as memoir:  # these servers have no PL/Python, so the worker reads the turns
        assert run_reader(memoir, once=True) >= 1
    assert run_jobs(worker, once=True) >= 4
    with connect(installed) as db:
        outcomes = dict(db.execute("select job, last_outcome from memoir.list_jobs()").fetchall())
        assert {outcomes[job] for job in ("extract", "merge", "flush", "expiry")} == {"done"}
        assert "Ida" in str(table(db, "list_memories", "bob"))


def test_nobody_else_gets_in(installed: str) -> None:
    """Not by a provider's default privileges, nor as a login without a role of ours."""
    with connect(installed) as db:
        db.execute("create role stranger login")
        grant = "grant anon, authenticated to stranger"
        db.execute(f"do $$ begin if to_regrole('anon') is not null then {grant}; end if; end $$")
    with connect(user_of(installed, "stranger")) as db:
        assert not one(db, "select has_schema_privilege('_memoir', 'usage')")
        calls = ("compile_context('alice', 'today', 'Where do I live?')", "set_setting('recall_tokens_max', '1')")
        for query in (f"select memoir.{call}" for call in calls):
            assert code(lambda: db.execute(query)) == "42501", query


def test_a_schema_that_can_not_be_used_is_named() -> None:
    with fresh_server() as server:
        with connect(server) as superuser:
            superuser.execute("create role customer login createrole")
            superuser.execute("create database app owner customer")
        with connect(in_database(server, "app")) as superuser:
            superuser.execute("create schema extensions; create extension vector schema extensions")
            superuser.execute("grant usage on schema extensions to customer")
        complaint = apply(user_of(in_database(server, "app"), "customer"))
        assert "extension vector lies in schema extensions, which role memoir_owner may not use" in complaint
        assert "grant usage on schema extensions to memoir_owner" in complaint  # the hint
