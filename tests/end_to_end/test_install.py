"""Install, upgrade, dump and restore: whatever the way, the database ends up the same. Unfit databases are refused by name."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from calls import ask_client, call
from catalog import contents, describe, differences, outside
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.json import Jsonb
from servers import (
    ARTIFACT,
    PGBIN,
    ROOT,
    apply,
    complete,
    connect,
    database,
    environment_of,
    fresh_server,
    has_plpython,
    in_database,
    install,
    psql,
    roles,
    server_folder,
    user_of,
)

USER = "alice"
MESSAGES = [{"role": "user", "content": "My cat is called Ximena."}, {"role": "assistant", "content": "Noted."}]
EXTENSIONS = ("vector", "pg_trgm", "pgcrypto")


@pytest.fixture
def empty(scratch: str) -> Iterator[str]:
    with database(scratch) as dsn:
        yield dsn


def use(db: psycopg.Connection) -> None:
    """Data of all kinds, settings that differ from the defaults, and months that only writes made."""
    for month in ("2026-05-31T23:59:59.5Z", "2026-06-01T00:00:00Z", "2027-01-15T12:00:00Z"):
        db.execute("select memoir.set_clock(%s)", [month])
        db.execute("select memoir.persist_turn(%s, %s, %s)", [USER, f"s-{month[:7]}", Jsonb(MESSAGES)])
        db.execute("select memoir.persist_turn(%s, 'long', %s)", [USER, Jsonb(MESSAGES)])
    call(db, "remember", USER, "Lives in Oslo", slot="home city", slot_value="Oslo", embedding=[0.1] * 384)
    call(db, "open_session", USER, "prompted", system_prompt="Be kind.", settings={"recall_tokens_max": 900})
    db.execute("select memoir.capture_call(%s, 'long', '\\x00ff'::bytea, p_events => array['\\x01'::bytea])", [USER])
    db.execute("select memoir.set_setting('recall_tokens_max', '1234')")
    db.execute("select memoir.set_setting('partition_months_ahead', '1')")
    db.execute("select memoir.set_user_settings(%s, '{\"frequent_memories\": 2}')", [USER])
    db.execute("select memoir.register_model('house-model', 'openai', 16000, 2000, 'estimate')")
    db.execute("select memoir.register_model('gpt-4o', 'openai', 99000, 2000, 'estimate')")  # over a built-in one
    db.execute("select memoir.register_embedding_model('other', 'none', 8)")
    ask_client(db, USER, "select memoir.compile_context(%(user)s, 'new', 'What is my cat called?')")


def question(db: psycopg.Connection) -> tuple[str, ...]:
    """What a user would see of it: lists and explanation, as text."""
    return tuple(
        str(ask_client(db, USER, query))
        for query in (
            "select memoir.compile_context(%(user)s, 'new', 'What is my cat called, and where do I live?')::text",
            "select memoir.compile_context(%(user)s, 'long', 'And now?', p_format => 'anthropic')::text",
            "select memoir.compile_context(%(user)s, 'prompted', 'And now?')::text",
            "select e::text from memoir.explain_context(%(user)s, 'new', 'What is my cat called?') e",
            "select memoir.session_info(%(user)s, 'long')::text",
        )
    )


# Fresh and upgraded ---------------------------------------------------------------------------------------------------

# What an earlier release may have left behind. Each line must be gone, or be as new, after the upgrade.
EARLIER_RELEASE = """
    create function _memoir.gone(p integer) returns integer language sql as 'select 1';
    create function _memoir.calls_gone() returns integer language sql begin atomic; select _memoir.gone(1); end;
    create procedure memoir.gone_job() language plpgsql as 'begin null; end';
    create function _memoir.fail(p_code text, p_message text, p_hint text default null) returns void language sql as '';
    create function _memoir.login(p_old boolean default true) returns name language sql as 'select current_user';
    create function memoir.recall(p_user text, p_query text, p_old boolean default true) returns text language sql as 'select 1::text';
    grant execute on function memoir.recall(text, text, boolean) to public;
    drop function memoir.match_memories(text, real[], real, integer, text);
    create function memoir.match_memories(p_user text, p_embedding real[], p_threshold real, p_limit integer, p_old_name text) returns integer
      language sql as 'select 1';
    drop function _memoir.shown(text) cascade;
    create or replace function _memoir.tokens_of(p_text text, p_tokenizer text) returns integer language sql volatile as 'select -1';
    alter function memoir.recall(text, text, text, integer, text[], text[], text, text[], timestamptz, timestamptz, real[], timestamptz,
      timestamptz, text, jsonb, text) reset search_path;
    alter function memoir.persist_turn(text, text, jsonb, jsonb, text, text, jsonb) security invoker;
    comment on function memoir.version() is 'an older comment';
    insert into _memoir.setting_definitions values ('gone_setting', 'number', '1', 0, 1, null, true, 'no longer known');
    insert into _memoir.settings (key, value) values ('gone_setting', '0.5');
    update _memoir.setting_definitions set default_value = '7', max_value = 9, description = 'older' where key = 'candidates';
    delete from _memoir.setting_definitions where key = 'window_steps';
    update _memoir.models set context_window = 1000, max_output = 1 where model = 'gpt-4o-mini';
    update _memoir.settings_merged set config = config || '{"gone_setting": 1, "candidates": 7}';
    grant select on _memoir.users to memoir_app;
    grant update on all sequences in schema memoir to public;
    grant select (content) on _memoir.conversation_history to memoir_reader;
    grant all on schema memoir to public;
    grant create on schema memoir to memoir_app;
    grant execute on function _memoir.touch_user(_memoir.caller, text) to public, memoir_reader;
    grant usage on type _memoir.actor to memoir_reader;
    revoke execute on function memoir.context(text, text, text, integer, integer, text, jsonb, real[], jsonb, timestamptz, timestamptz, text, text)
      from memoir_app;"""


@pytest.mark.acceptance
def test_upgraded_equals_fresh(scratch: str, empty: str) -> None:
    with database(scratch) as other:
        install(empty, modulus=1)
        install(other, modulus=1)
        with connect(empty) as fresh, connect(other) as db:
            assert not differences(describe(fresh), describe(db))
            untouched = set(describe(fresh))
            use(db)
            db.execute("call memoir.ensure_partitions()")
            answers = question(db)
            before = contents(db)
            db.execute("set role memoir_owner")
            db.execute(EARLIER_RELEASE)
            db.execute("reset role")
            assert len(differences(describe(fresh), describe(db))) > 15
            install(other, modulus=16)  # the modulus is fixed for life: the option no longer counts
            wanted, got = describe(fresh), describe(db)
            months = ("2026m05", "2026m06", "2027m0")
            made_by_writes = {key for key in got.keys() - untouched if any(month in key for month in months)}
            assert len(made_by_writes) > 50
            assert not differences(wanted, {key: value for key, value in got.items() if key not in made_by_writes})
            assert not differences(before, contents(db)) and question(db)[:3] == answers[:3]
            after = contents(db)
            # Once more, and the core alone: nothing changes, not even what the core does not make.
            for again in (install, apply):
                again(other)
                assert not differences(got, describe(db)) and not differences(after, contents(db))


@pytest.mark.acceptance
def test_upgrade_takes_no_lock_per_partition(scratch: str, empty: str, tmp_path: Path) -> None:
    """Thousands of partitions must not run an upgrade out of locks, nor make it wait for each of their users."""
    counting = tmp_path / "counting.sql"
    count = "select count(*) as n from pg_locks where pid = pg_backend_pid()"
    counting.write_text(f"{ARTIFACT.read_text()}\ncreate table public.held as {count};\n")
    held = []
    with database(scratch) as wide:
        for dsn, modulus in ((empty, 1), (wide, 4)):
            complete(dsn, modulus)
            assert apply(dsn, artifact=counting) == ""
            with connect(dsn) as db:
                held.append(db.execute("select n from public.held").fetchone())
    assert held[0] == held[1]


def test_a_running_writer_does_not_stop_an_upgrade(empty: str) -> None:
    complete(empty)
    with psycopg.connect(empty) as writer:
        writer.execute("select memoir.persist_turn(%s, 's', %s)", [USER, Jsonb(MESSAGES)])
        done = psql(empty, "-1", "-c", "set lock_timeout = '2s'", "-f", str(ARTIFACT))
        assert done.returncode == 0, done.stderr
        writer.execute("select memoir.persist_turn(%s, 's', %s)", [USER, Jsonb(MESSAGES)])
        writer.commit()
        assert writer.execute("select memoir.session_info(%s, 's') ->> 'turns'", [USER]).fetchone() == ("4",)


# Refusals -------------------------------------------------------------------------------------------------------------


def build_from(source: Path, out: Path) -> Path:
    environment = {**os.environ, "PG_MEMOIR_PYTHON": sys.executable}
    subprocess.run([source / "scripts" / "build_sql.sh", out], check=True, capture_output=True, env=environment)
    return out / "pg_memoir.sql"


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy of what the artifact is built from."""
    for folder in ("migrations", "sql", "scripts", "plpython"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    (tmp_path / "client" / "pg_memoir").mkdir(parents=True)
    shutil.copy(ROOT / "client/pg_memoir/__init__.py", tmp_path / "client/pg_memoir/__init__.py")
    return tmp_path


@pytest.mark.acceptance
def test_migrations_run_once_and_are_frozen(empty: str, sources: Path) -> None:
    more = "create table memoir.more (n integer primary key);\ninsert into memoir.more values (1);\n"
    (sources / "migrations" / "9998_more.sql").write_text(more)
    more = build_from(sources, sources / "out")
    with connect(empty) as db:
        complete(empty)
        for _ in range(2):
            assert apply(empty, artifact=more) == ""
            assert db.execute("select count(*) from memoir.more").fetchone() == (1,)
        # Whoever installs an older artifact over a newer one keeps the newer state.
        assert apply(empty) == ""
        before = describe(db)

        changed = sources / "migrations" / "0002_conversations.sql"
        changed.write_text(changed.read_text() + "-- a remark\n")
        complaint = apply(empty, artifact=build_from(sources, sources / "out"))
        assert "migration 0002_conversations was applied with another text" in complaint

        shutil.copy(ROOT / "migrations" / changed.name, changed)
        broken = "create table memoir.half (n integer);\nselect 1 / 0;\n"
        (sources / "migrations" / "9999_broken.sql").write_text(broken)
        assert "division by zero" in apply(empty, artifact=build_from(sources, sources / "out"))
        assert not differences(before, describe(db))


def test_a_schema_of_somebody_else_is_refused(scratch: str, empty: str) -> None:
    with roles(scratch, squatter="nologin") as names, connect(empty) as db:
        db.execute(f"create schema memoir authorization {names['squatter']}")
        assert f"schema memoir belongs to {names['squatter']}" in apply(empty)
        db.execute("drop schema memoir")
        assert apply(empty) == ""


def test_wrong_ways_to_install_are_refused(empty: str) -> None:
    assert "SAVEPOINT can only be used in transaction blocks" in apply(empty, one=False)
    for modulus in (0, 3, 8192):  # no power of two, or too many
        assert "installation_modulus_check" in apply(empty, modulus)
    with connect(empty) as db:
        assert db.execute("select to_regnamespace('memoir')").fetchone() == (None,)


@pytest.mark.parametrize(
    ("encoding", "wrong"), [("LATIN1", "encoding LATIN1"), ("SQL_ASCII", "encoding SQL_ASCII"), ("UTF8", "LC_CTYPE C")]
)
def test_unfit_databases_are_refused(scratch: str, encoding: str, wrong: str) -> None:
    with database(scratch, f"template template0 encoding '{encoding}' lc_collate 'C' lc_ctype 'C'") as dsn:
        complaint = apply(dsn)
        assert f"{conninfo_to_dict(dsn)['dbname']} has {wrong}\n" in complaint and "HINT:" in complaint
        with connect(dsn) as db:
            assert db.execute("select to_regnamespace('memoir'), count(*) from pg_extension").fetchone() == (None, 1)


# Extensions and roles -------------------------------------------------------------------------------------------------


def path_of(db: psycopg.Connection) -> str:
    found = db.execute("""select distinct substr(c, 13) from pg_proc, unnest(proconfig) c
                          where pronamespace in ('memoir'::regnamespace, '_memoir'::regnamespace) and c like 'search_path=%'""").fetchall()
    assert len(found) == 1
    return found[0][0]


def test_extensions_in_public(empty: str) -> None:
    with connect(empty) as db:
        for extension in EXTENSIONS:
            db.execute(f"create extension {extension} schema public")
        db.execute("grant create on schema public to public")
        complaint = apply(empty)
        assert "extension vector lies in schema public, where everybody may create objects" in complaint
        assert "revoke create on schema public from public" in complaint  # the hint
        db.execute("revoke create on schema public from public")
        complete(empty)
        assert path_of(db) == "pg_catalog, public, pg_temp"
        use(db)
        assert "Ximena" in question(db)[0]


@pytest.mark.acceptance
@pytest.mark.parametrize(("schema", "found"), [('"Ext, ra"', 2), ("extensions", 4), ("extensions", 1)])
def test_extensions_in_a_closed_schema(empty: str, schema: str, found: int) -> None:
    """Some are there already, as providers have them; the rest get a schema of ours."""
    with connect(empty) as db:
        db.execute(f"create schema {schema}")
        for extension in EXTENSIONS[:found]:
            db.execute(f"create extension {extension} schema {schema}")
        complete(empty)
        assert path_of(db) == f"pg_catalog, {schema}, {'' if found == 4 else 'memoir_extensions, '}pg_temp"
        use(db)
        assert "Ximena" in question(db)[0]


def test_fresh_extensions_are_ours_alone(empty: str) -> None:
    complete(empty)
    with connect(empty) as db:
        assert path_of(db) == "pg_catalog, memoir_extensions, pg_temp" and outside(db) == set()
        # Members of an extension lose their settings and run-time partitions in a dump.
        members = db.execute("""
            select distinct e.extname from pg_depend d join pg_extension e on e.oid = d.refobjid and d.refclassid = 'pg_extension'::regclass
            where d.deptype = 'e' and e.extname not in ('vector', 'pg_trgm', 'pgcrypto', 'plpgsql')""").fetchall()
        assert members == []
        assert db.execute("""
            select count(*) from pg_depend where deptype = 'e' and classid = 'pg_class'::regclass
              and objid in (select oid from pg_class where relnamespace = '_memoir'::regnamespace)""").fetchone() == (
            0,
        )
        assert describe(db)["database setting search_path"] == ('search_path="$user", public, memoir',)
    with connect(empty) as later:  # the search_path of new connections
        assert "Oslo" in str(ask_client(later, "bob", "select compile_context(%(user)s, 's', 'Oslo?')"))


def test_setup_respects_the_search_path_it_finds(empty: str) -> None:
    name = conninfo_to_dict(empty)["dbname"]
    with connect(empty) as db:
        db.execute(f'alter database {name} set search_path = app, "Odd, one"')
        complete(empty)
        for _ in range(2):
            assert describe(db)["database setting search_path"] == ('search_path=app, "Odd, one", memoir',)
            db.execute("call memoir.setup()")


@pytest.mark.acceptance
def test_two_databases_install_at_once() -> None:
    """The roles are the server's, and new to both. Installers without superuser: test_providers."""
    with fresh_server() as server, database(server) as one, database(server) as other, ThreadPoolExecutor() as pool:
        assert list(pool.map(apply, [one, other])) == ["", ""]


def test_an_install_needs_the_right_to_make_roles(scratch: str) -> None:
    with roles(scratch, weak="login") as names, database(scratch, f"owner {names['weak']}") as dsn:
        with connect(dsn) as db:
            for extension in EXTENSIONS:
                db.execute(f"create extension {extension}")
        complaint = apply(user_of(dsn, names["weak"]))
        assert "memoir_owner" in complaint
        with connect(dsn) as db:
            assert db.execute("select to_regnamespace('memoir')").fetchone() == (None,)


# Dump and restore -----------------------------------------------------------------------------------------------------


@pytest.mark.acceptance
def test_dump_and_restore(scratch: str, empty: str) -> None:
    install(empty, modulus=1)
    with connect(empty) as db, database(scratch) as target:
        use(db)
        dump = subprocess.run([PGBIN / "pg_dump", empty], capture_output=True, text=True, check=True).stdout
        done = psql(target, "-1", "-v", "ON_ERROR_STOP=1", stdin=dump)
        assert done.returncode == 0 and done.stderr == "", done.stderr
        with connect(target) as restored:
            missing = [line for line in differences(describe(db), describe(restored)) if "database setting" not in line]
            assert not missing and not differences(contents(db), contents(restored))
            restored.execute("call memoir.setup()")
            restored.execute("call memoir.ensure_partitions()")
            db.execute("call memoir.ensure_partitions()")
            assert not differences(describe(db), describe(restored)) and question(restored) == question(db)
            for each in (db, restored):  # it goes on as the original does: counters, sequences, months
                each.execute("select memoir.set_clock('2031-01-01T00:00:00Z')")
                each.execute("select memoir.persist_turn(%s, 'long', %s)", [USER, Jsonb(MESSAGES)])
            assert question(restored)[:3] == question(db)[:3]
            assert not differences(describe(db), describe(restored))
        assert apply(target) == ""


@pytest.mark.acceptance
def test_restore_on_a_server_without_the_roles(scratch: str, empty: str) -> None:
    """The restore itself complains about each missing role; setup() makes them and gives them what they own and may do."""
    install(empty, modulus=1)
    with connect(empty) as db, fresh_server(environment_of(scratch)) as fresh:
        db.execute("select memoir.set_clock('2026-05-05T00:00:00Z')")
        db.execute("select memoir.persist_turn(%s, 's', %s)", [USER, Jsonb(MESSAGES)])
        dump = subprocess.run([PGBIN / "pg_dump", empty], capture_output=True, text=True, check=True).stdout
        assert 'role "memoir_owner" does not exist' in psql(fresh, stdin=dump).stderr
        with connect(fresh) as restored:
            restored.execute("call memoir.setup()")
            assert not differences(describe(db), describe(restored))
            assert not differences(contents(db), contents(restored))
            restored.execute("create role service login in role memoir_app")
        assert apply(fresh) == ""
        with connect(user_of(fresh, "service")) as service:
            service.execute("select persist_turn(%s, 's', %s)", [USER, Jsonb(MESSAGES)])
            asked = "select memoir.compile_context(%(user)s, 'new', 'What is my cat called?')"
            assert "Ximena" in str(ask_client(service, USER, asked))


def test_restore_without_privileges(scratch: str, empty: str, tmp_path: Path) -> None:
    """Until setup() nobody gets in, and health says so. After it everybody may do what they could before."""
    install(empty, modulus=1)
    reachable = """select count(*) from pg_proc p, pg_namespace n where n.oid = p.pronamespace and n.nspname in ('memoir', '_memoir')
                   and has_schema_privilege(%s, n.oid, 'usage') and has_function_privilege(%s, p.oid, 'execute')"""
    members = {"tenant": "login in role memoir_tenant", "stranger": "login"}
    with roles(scratch, **members) as names, connect(empty) as db, database(scratch) as target:
        tenant, stranger = names["tenant"], names["stranger"]
        dump = tmp_path / "dump"
        subprocess.run([PGBIN / "pg_dump", "-Fc", "-f", dump, empty], check=True)
        with connect(target) as restored:
            # Privileges that everything gets which the restoring user makes.
            kinds = ("functions", "tables", "sequences", "types", "schemas")
            for kind in kinds:
                restored.execute(f"alter default privileges grant all on {kind} to {stranger}")
            subprocess.run([PGBIN / "pg_restore", "--no-acl", "--no-owner", "-d", target, dump], check=True)
            assert restored.execute(reachable, [tenant, tenant]).fetchone() == (0,)
            status, why = restored.execute("select status, why from memoir.health").fetchone()
            assert status == "red" and "everybody may execute" in why
            restored.execute("call memoir.setup()")
            for kind in kinds:
                restored.execute(f"alter default privileges revoke all on {kind} from {stranger}")
            assert not differences(describe(db), describe(restored))
            counts = [each.execute(reachable, [tenant, tenant]).fetchone() for each in (restored, db)]
            assert counts[0] == counts[1]
            assert restored.execute(reachable, [stranger, stranger]).fetchone() == (0,)
            assert "everybody may execute" not in restored.execute("select why from memoir.health").fetchone()[0]


# PL/Python and the private server ---------------------------------------------------------------------------------------


def test_upgrade_needs_the_python_packages(scratch: str) -> None:
    """A first install goes on without them. An upgrade would leave functions of the earlier release."""
    if not has_plpython(scratch):
        pytest.skip("the server has no PL/Python")

    def upgrade() -> subprocess.CompletedProcess[str]:
        command = [str(ROOT / "scripts" / "install.sh"), str(ARTIFACT.parent), dsn]
        path = os.environ | {"PATH": f"{PGBIN}:{os.environ['PATH']}", "PG_MEMOIR_MODULUS": "1"}
        return subprocess.run(command, capture_output=True, text=True, env=path)

    with fresh_server() as dsn, connect(dsn) as db:
        db.execute("create extension plpython3u")
        first = upgrade()
        assert first.returncode == 0 and "does not load" in first.stderr, first.stderr
        before = describe(db)
        db.execute("create function _memoir.old() returns void language plpython3u as 'pass'")
        second = upgrade()
        assert second.returncode == 1 and "ModuleNotFoundError" in second.stderr, second.stderr
        db.execute("drop function _memoir.old()")
        assert not differences(before, describe(db))


def test_clean_never_deletes_a_running_server(tmp_path: Path) -> None:
    """Where the package that brought PostgreSQL is uninstalled, its unpacked pg_ctl stops the server."""
    program = tmp_path / "postgres"
    shutil.copy(shutil.which("sleep") or "", program)
    with server_folder() as folder, subprocess.Popen([program, "60"]) as server:
        state = folder / "state"
        pgctl = state / "postgresql" / "99.1" / ".pg0" / "installation" / "99.1" / "bin" / "pg_ctl"
        for path, text in (("PG_VERSION", "99"), ("postmaster.pid", str(server.pid))):
            (state / "pgdata").mkdir(parents=True, exist_ok=True)
            (state / "pgdata" / path).write_text(f"{text}\n")
        environment = {**os.environ, "PG_MEMOIR_STATE": str(state)}

        def clean() -> subprocess.CompletedProcess[str]:
            command = ["bash", str(ROOT / "scripts" / "cluster.sh"), "clean"]
            return subprocess.run(command, env=environment, capture_output=True, text=True)

        try:
            refused = clean()
            assert refused.returncode == 1 and f"end process {server.pid}" in refused.stderr and state.is_dir()
            pgctl.parent.mkdir(parents=True)
            pgctl.write_text(f"#!/bin/sh\necho $1 $LD_LIBRARY_PATH >>{folder}/asked\n")
            pgctl.chmod(0o755)
            done = clean()
            assert done.returncode == 0 and not state.exists(), done.stderr
            libraries = pgctl.parents[1] / "lib"
            assert (folder / "asked").read_text() == f"status {libraries}\nstop {libraries}\n"
        finally:
            server.kill()


# pg_cron --------------------------------------------------------------------------------------------------------------

PKGLIBDIR = Path(subprocess.run([PGBIN / "pg_config", "--pkglibdir"], capture_output=True, text=True).stdout.strip())


@pytest.mark.skipif(not (PKGLIBDIR / "pg_cron.so").exists(), reason="pg_cron is not installed")
def test_pg_cron_in_another_database(scratch: str) -> None:
    def installed(name: str) -> str:
        with connect(dsn) as admin:
            admin.execute(f"create database {name}")
        command = [str(ROOT / "scripts" / "install.sh"), str(ARTIFACT.parent), in_database(dsn, name)]
        path = os.environ | {"PATH": f"{PGBIN}:{os.environ['PATH']}"}
        done = subprocess.run(command, capture_output=True, text=True, env=path)
        assert done.returncode == 0, done.stderr
        return done.stderr

    def scheduled() -> dict[str, int]:
        with connect(in_database(dsn, "house")) as db:
            return dict(db.execute("select username, count(*) from cron.job group by 1").fetchall())

    cron = {"shared_preload_libraries": "pg_cron", "cron.database_name": "house", "cron.use_background_workers": "on"}
    with fresh_server(environment_of(scratch), **cron) as dsn:
        assert "pg_cron" not in installed("house")
        jobs = scheduled()["memoir_jobs"]
        assert jobs > 5 and scheduled() == {"memoir_jobs": jobs}
        # Any other database is installed too, and says who is to run its jobs.
        assert "pg_cron works from database house" in installed("shed")
        with connect(in_database(dsn, "shed")) as db, pytest.raises(psycopg.Error) as caught:
            db.execute("call memoir.enable_jobs()")
        assert caught.value.sqlstate == "PM050" and "house" in str(caught.value.diag.message_hint)
        # An admin who is no superuser schedules what he may run himself.
        with connect(in_database(dsn, "house")) as db:
            db.execute("create role keeper login in role memoir_admin")
            for needed in ("memoir_jobs", "usage on schema cron"):
                with connect(in_database(dsn, "house"), user="keeper") as keeper:
                    with pytest.raises(psycopg.Error) as caught:
                        keeper.execute("call memoir.enable_jobs()")
                assert caught.value.sqlstate == "PM050" and needed in str(caught.value.diag.message_hint)
                db.execute(f"grant {needed} to keeper")
            with connect(in_database(dsn, "house"), user="keeper") as keeper:
                keeper.execute("call memoir.enable_jobs()")
                assert scheduled() == {"memoir_jobs": jobs, "keeper": jobs}
                keeper.execute("call memoir.enable_jobs()")  # again: anew, not twice
                assert scheduled() == {"memoir_jobs": jobs, "keeper": jobs}
                keeper.execute("call memoir.disable_jobs()")
            assert scheduled() == {"memoir_jobs": jobs}


def test_restore_of_single_schemas(scratch: str, empty: str, tmp_path: Path) -> None:
    """As docs/guides/operations.md says: three schemas, and the schema of the extensions made before."""
    install(empty, modulus=1)
    dump = tmp_path / "dump"
    schemas = ["-n", "memoir", "-n", "_memoir", "-n", "memoir_case"]
    with connect(empty) as db, database(scratch) as target, connect(target) as restored:
        db.execute("select memoir.remember('ann', 'The harbour code is 4711.')")
        subprocess.run([PGBIN / "pg_dump", "-Fc", *schemas, "-f", dump, empty], check=True)
        restored.execute("create schema memoir_extensions authorization memoir_owner")
        for extension in ("vector", "pg_trgm", "pgcrypto"):
            restored.execute(f"create extension {extension} schema memoir_extensions")
        if has_plpython(empty):
            restored.execute("create extension plpython3u")
        subprocess.run([PGBIN / "pg_restore", "-d", target, dump], check=True)
        restored.execute("call memoir.setup()")
        restored.execute("call memoir.ensure_partitions()")
        asked = "select content from memoir.recall(%(user)s, 'harbour code')"
        assert "4711" in str(ask_client(restored, "ann", asked))
