"""Who may do what. Most tests are generated from the catalogue, so that a new function is covered or the test says what it needs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from catalog import contents, describe, differences
from psycopg.types.json import Jsonb
from routines import MESSAGES, PERSONS, Routine, all_routines, code, values_for
from servers import ARTIFACT, ROOT, connect, database, psql, roles, unique, user_of

SNAPSHOT = ROOT / "tests" / "snapshots" / "privileges.txt"
NO_RIGHT = "42501"
NEEDS_CLEARANCE = {"export_user"}  # shows everything, to services with clearance secret
STATISTICS = {"compile_buffer", "kept_recalls"}  # unlogged, left by compiles


@dataclass
class World:
    dsn: str  # a superuser's
    logins: dict[str, str]
    routines: dict[str, Routine]

    def login(self, key: str, **parameters: str) -> psycopg.Connection:
        return connect(user_of(self.dsn, self.logins[key]), **parameters)

    def of_role(self, role: str) -> list[Routine]:
        return [r for r in self.routines.values() if role in r.roles]

    def values(
        self, routine: Routine, db: psycopg.Connection, user: str = "tom", project: str = "global"
    ) -> dict[str, Any]:
        return values_for(routine, db, user, project, self.logins["nobody"])


def bind(db: psycopg.Connection, logins: dict[str, str]) -> None:
    db.execute("select memoir.bind_login(%s, array['tom'], 'agent')", [logins["tenant"]])
    db.execute("select memoir.bind_login(%s, array['ann'], 'person')", [logins["person"]])
    db.execute("select memoir.bind_login(%s, array['tom'], 'agent', array['red'])", [logins["red"]])


@pytest.fixture(scope="module")
def world(memoir_dsn: str) -> Iterator[World]:
    with (
        roles(
            memoir_dsn,
            app="login in role memoir_app",
            reader="login in role memoir_reader",
            tenant="login in role memoir_tenant",
            person="login in role memoir_tenant",
            red="login in role memoir_tenant",
            admin="login in role memoir_admin",
            jobs="login in role memoir_jobs",
            nobody="login",
            pool="login noinherit in role {tenant}, {person}",
        ) as logins,
        connect(memoir_dsn) as db,
    ):
        bind(db, logins)
        yield World(memoir_dsn, logins, all_routines(db))


# The matrix -----------------------------------------------------------------------------------------------------------

MATRIX = """
    with roles(role, short) as (
      values ('memoir_reader', 'reader'), ('memoir_app', 'app'), ('memoir_tenant', 'tenant'), ('memoir_admin', 'admin'), ('memoir_jobs', 'jobs'),
             ('public', 'PUBLIC')),
    ours(catalog, oid) as (select classid, objid from pg_depend where deptype = 'e'),
    rights(kind, name, is_leaf, short, privilege) as (
      select 'schema', n.nspname, false, short, case when has_schema_privilege(role, n.oid, p) then p end
      from pg_namespace n, roles, unnest('{usage,create}'::text[]) p where n.nspname in ('memoir', '_memoir', 'memoir_extensions')
      union all
      select case c.relkind when 'S' then 'sequence' when 'v' then 'view' else 'table' end, case c.relnamespace when '_memoir'::regnamespace then '_memoir.' else '' end || c.relname, c.relispartition, short,
        case when case when c.relkind = 'S' then p in ('select', 'update', 'usage') and has_sequence_privilege(role, c.oid, case when p in ('select', 'update', 'usage') then p else 'usage' end)
                       when p in ('select', 'insert', 'update', 'references') then has_any_column_privilege(role, c.oid, p)
                       else p <> 'usage' and has_table_privilege(role, c.oid, case when p = 'usage' then 'select' else p end) end then p end
      from pg_class c, roles, unnest('{select,insert,update,delete,truncate,references,trigger,usage}'::text[]) p
      where c.relnamespace in ('memoir'::regnamespace, '_memoir'::regnamespace) and c.relkind in ('r', 'p', 'v', 'm', 'S') and ('pg_class'::regclass, c.oid) not in (select * from ours)
      union all
      select 'type', case t.typnamespace when '_memoir'::regnamespace then '_memoir.' else '' end || t.typname, false, short, case when has_type_privilege(role, t.oid, 'usage') then 'usage' end
      from pg_type t left join pg_class c on c.oid = t.typrelid, roles
      where t.typnamespace in ('memoir'::regnamespace, '_memoir'::regnamespace) and t.typcategory <> 'A' and coalesce(c.relkind, 'c') = 'c' and ('pg_type'::regclass, t.oid) not in (select * from ours)
      union all
      select 'routine', case p.pronamespace when '_memoir'::regnamespace then '_memoir.' else '' end || p.proname, false, short, case when has_function_privilege(role, p.oid, 'execute') then 'execute' end
      from pg_proc p, roles where p.pronamespace in ('memoir'::regnamespace, '_memoir'::regnamespace) and ('pg_proc'::regclass, p.oid) not in (select * from ours))
    select kind, name, is_leaf, coalesce(array_agg(short || case when privilege not in ('execute', 'usage') then ':' || privilege else '' end
      order by short, privilege) filter (where privilege is not null), '{}')
    from rights group by kind, name, is_leaf order by kind, name collate "C" """


def matrix(db: psycopg.Connection) -> str:
    """Role × object × privilege as text. What is not named, nobody but the owner may touch."""
    lines = [f"{kind:9}{name:34} {' '.join(rights)}" for kind, name, _, rights in db.execute(MATRIX) if rights]
    return "\n".join(
        [
            "# Who may do what in our schemas; what is not listed, the owner alone. Reviewed: after a wanted change,",
            '# PG_MEMOIR_UPDATE=1 make test ARGS="-k matrix" and read the difference.',
            "",
            *lines,
            "",
        ]
    )


def test_matrix_is_as_reviewed(world: World) -> None:
    with connect(world.dsn) as db:
        now = matrix(db)
        has_python = db.execute("select 1 from pg_language where lanname = 'plpython3u'").fetchone()
    if os.environ.get("PG_MEMOIR_UPDATE"):
        SNAPSHOT.write_text(now)
    reviewed = SNAPSHOT.read_text()
    if not has_python:
        reviewed = "".join(
            line
            for line in reviewed.splitlines(keepends=True)
            if " embed_backlog " not in line and " _run_in_python " not in line
        )
    assert now == reviewed


def test_nobody_reaches_tables_and_public_reaches_nothing(world: World) -> None:
    with connect(world.dsn) as db:
        rights = [(kind, name, rights) for kind, name, _, rights in db.execute(MATRIX) if rights]
        assert [r for r in rights if r[0] in ("table", "sequence", "type")] == []
        assert {str(r[2]) for r in rights if r[0] == "view"} == {"['admin:select']"}, "views are for admins to read"
        assert [r for r in rights if any(right.startswith("PUBLIC") for right in r[2])] == []
        assert [r for r in rights if r[0] == "schema"] == [
            ("schema", schema, ["admin", "app", "jobs", "reader", "tenant"]) for schema in ("_memoir", "memoir")
        ]
        attributes = db.execute("""select rolname, rolsuper, rolcreaterole, rolcreatedb, rolreplication, rolbypassrls, rolcanlogin
                                   from pg_roles where rolname ~ '^memoir_' order by 1""").fetchall()
        assert [row[0] for row in attributes if any(row[1:6])] == [] and [row[0] for row in attributes if row[6]] == [
            "memoir_jobs"
        ]
        assert (
            db.execute("""select r.rolname from pg_auth_members m join pg_roles r on r.oid = m.roleid join pg_roles u on u.oid = m.member
                             where r.rolname ~ '^memoir_' and u.rolname ~ '^memoir_'""").fetchall()
            == []
        )
    for key in ("nobody", "app", "reader", "tenant", "admin", "jobs"):
        with world.login(key) as db:
            assert code(lambda: db.execute("select * from _memoir.users")) == NO_RIGHT
            assert code(lambda: db.execute("select * from _memoir.users_p0")) == NO_RIGHT
            assert code(lambda: db.execute("create table memoir.mine ()")) == NO_RIGHT
            assert code(lambda: db.execute("select memoir.version()")) == (NO_RIGHT if key == "nobody" else None)


# Functions ------------------------------------------------------------------------------------------------------------


def test_definers_pin_a_safe_search_path(world: World) -> None:
    with connect(world.dsn) as db:
        definers = db.execute("""
            select p.oid::regprocedure::text, p.proowner::regrole::text, (select substr(c, 13) from unnest(p.proconfig) c where c like 'search_path=%%')
            from pg_proc p where p.pronamespace in ('memoir'::regnamespace, '_memoir'::regnamespace) and p.prosecdef""").fetchall()
        assert len(definers) > 30
        assert [d for d in definers if d[1] != "memoir_owner"] == []
        paths = {path for _, _, path in definers}
        assert len(paths) == 1 and None not in paths, definers
        schemas = [schema.strip().strip('"') for schema in paths.pop().split(",")]
        assert (
            schemas[:2] == ["pg_catalog", "memoir_extensions"] and schemas[-1] == "pg_temp"
        )  # unnamed, pg_temp would come first
        for schema in schemas[:-1]:
            for role in ("public", "memoir_app", "memoir_tenant", "memoir_admin", "memoir_jobs", "memoir_reader"):
                assert db.execute("select has_schema_privilege(%s, %s, 'create')", [role, schema]).fetchone() == (
                    False,
                )


def test_public_functions_are_documented_and_not_overloaded(world: World) -> None:
    with connect(world.dsn) as db:
        comments = dict(
            db.execute(
                "select oid::regprocedure::text, obj_description(oid, 'pg_proc') from pg_proc where pronamespace in ('memoir'::regnamespace, '_memoir'::regnamespace)"
            )
        )
    public = [r for r in world.routines.values() if r.roles and r.schema == "memoir"]
    assert len(public) > 35
    assert [r.signature for r in public if not comments[r.signature]] == []
    assert [r.signature for r in public if not all(name.startswith("p_") for name in r.arguments)] == []
    names = [(r.schema, r.name) for r in world.routines.values()]
    assert sorted(names) == sorted(set(names))


def test_a_tenant_reaches_its_own_users_only(world: World) -> None:
    taking = [r for r in world.of_role("tenant") if "p_user" in r.arguments]
    assert len(taking) > 15
    with world.login("tenant") as tenant, world.login("app") as app:
        for routine in taking:
            theirs = world.values(routine, app, "stranger")
            assert code(lambda: routine.call(tenant, theirs)) == "PM001", routine.signature
            own = world.values(routine, app)
            if routine.name.startswith(
                "erase_"
            ):  # for people only: tests/database/test_erasure.py has the positive control
                assert code(lambda: routine.call(tenant, own)) == "PM001"
                continue
            if routine.name in PERSONS:
                with world.login("person") as person:
                    assert code(lambda: routine.call(tenant, own)) == "PM001", routine.signature
                    assert code(lambda: routine.call(person, own)) == "PM001", routine.signature
                    hers = world.values(routine, app, "ann")
                    assert code(lambda: routine.call(person, {**hers, "p_memory": theirs["p_memory"]})) == "PM004", (
                        routine.signature
                    )
                    routine.call(person, hers)
                continue
            routine.call(tenant, own)  # the positive control: the same call works
            # Somebody else's things are not reached through one's own name either.
            mixed = {**own, **{key: theirs[key] for key in ("p_memory", "p_call") if key in theirs}}
            if mixed != own:
                assert code(lambda: routine.call(tenant, mixed)) == "PM004", routine.signature
        others = {r.name for r in world.of_role("tenant")} - {r.name for r in taking}
        own_rows = {
            "login",
            "sees_all",
            "visible_users",
            "bound_projects",
            "bound_sessions",
            "own_clearance",  # what the policies ask
            "list_users",  # tests/database/test_inspect.py
        }
        assert others - own_rows == {
            "count_tokens",
            "estimate_tokens",
            "list_settings",
            "max_tokens",
            "memory_resources",
            "memory_tools",
            "now",
            "version",
        }  # of nobody in particular


def test_unbound_logins_get_nothing(world: World) -> None:
    with (
        roles(world.dsn, loose="login in role memoir_tenant") as names,
        connect(user_of(world.dsn, names["loose"])) as loose,
    ):
        assert code(lambda: loose.execute("select memoir.recall('tom', 'cat')")) == "PM001"


def test_namespaces_are_apart(world: World) -> None:
    with connect(world.dsn) as db, roles(world.dsn, other="login in role memoir_app") as names:
        db.execute("select memoir.bind_login(%s, p_namespace => 'elsewhere')", [names["other"]])
        with world.login("app") as app, connect(user_of(world.dsn, names["other"])) as other:
            app.execute("select memoir.persist_turn('same', 's', %s)", [Jsonb(MESSAGES)])
            assert "Ximena" in str(app.execute("select * from memoir.recall('same', 'cat')").fetchall())
            assert other.execute("select * from memoir.recall('same', 'cat')").fetchall() == []
            assert code(lambda: other.execute("select memoir.session_info('same', 's')")) == "PM003"
            # An id chosen as a name is a name like any other.
            [same] = app.execute(
                "select memoir.part_of('same'), (memoir.session_info('same', 's') ->> 'session_id')"
            ).fetchall()
            assert other.execute("select * from memoir.recall(%s, 'cat')", [same[1]]).fetchall() == []
            # Neither is handed the other's texts to work on.
            for service in (app, other):
                assert code(lambda: service.execute("select * from memoir.claim_embeddings(1000)")) == "PM001"
            db.execute("select memoir.unbind_login(%s)", [names["other"]])
            assert "Ximena" in str(app.execute("select * from memoir.claim_embeddings(1000)").fetchall())


def test_a_reader_reads(world: World) -> None:
    with world.login("reader") as reader, world.login("app") as app, connect(world.dsn) as db:
        reading = world.of_role("reader")
        prepared = [(routine, world.values(routine, app)) for routine in reading]
        before = contents(db)
        for routine, values in prepared:
            routine.call(reader, values)
        after = contents(db)
        assert not differences(
            {k: v for k, v in before.items() if k not in STATISTICS},
            {k: v for k, v in after.items() if k not in STATISTICS},
        )
        writing = [r for r in world.of_role("app") if "p_user" in r.arguments and "reader" not in r.roles]
        assert len(writing) > 8
        for routine in writing:
            values = world.values(routine, app)
            assert code(lambda: routine.call(reader, values)) == NO_RIGHT, routine.signature
            # Behind the missing right stands the check inside.
            db.execute(f"grant execute on function {routine.signature} to {world.logins['reader']}")
            assert code(lambda: routine.call(reader, values)) == "PM001", routine.signature
            db.execute(f"revoke execute on function {routine.signature} from {world.logins['reader']}")


def test_admin_functions_refuse_others(world: World) -> None:
    admins = [r for r in world.of_role("admin") if "app" not in r.roles]
    assert len(admins) > 10
    unchecked = {
        "fail",
        "statement_times",
        "ensure_partitions",
        "server_load_now",
        "server_problems",
    }  # harmless, or stopped one call further in
    with (
        world.login("app") as app,
        world.login("tenant") as tenant,
        world.login("reader") as reader,
        world.login("jobs") as jobs,
        connect(world.dsn) as db,
    ):
        for routine in admins:
            values = world.values(routine, app)
            for login in (app, tenant, reader) if "jobs" in routine.roles else (app, tenant, reader, jobs):
                assert code(lambda: routine.call(login, values)) == NO_RIGHT, routine.signature
            if routine.name not in unchecked:
                db.execute(f"grant execute on routine {routine.signature} to {world.logins['app']}")
                # pg_cron may be missing, but who asks is looked at first.
                assert code(lambda: routine.call(app, values)) in ("PM001", NO_RIGHT), routine.signature
                db.execute(f"revoke execute on routine {routine.signature} from {world.logins['app']}")
    with world.login("admin") as admin:
        for routine in admins:
            if routine.name not in {"enable_jobs", "disable_jobs", "fail", "run_in_python"}:
                routine.call(admin, world.values(routine, admin))


def test_jobs_maintain_and_read_nothing(world: World) -> None:
    with world.login("jobs") as jobs, world.login("app") as app:
        allowed = world.of_role("jobs")
        assert {r.name for r in allowed} >= {
            "ensure_partitions",
            "merge_search",
            "flush_statistics",
            "claim_embeddings",
            "store_embeddings",
        }
        for routine in allowed:
            assert "p_user" not in routine.arguments, routine.signature
            if routine.name not in {"ensure_embedder", "embed_backlog", "run_in_python"}:
                routine.call(jobs, world.values(routine, app))
        for routine in world.of_role("app"):
            if "p_user" in routine.arguments:
                assert code(lambda: routine.call(jobs, world.values(routine, app))) == NO_RIGHT, routine.signature


def test_workers_are_checked_inside(world: World) -> None:
    """A tenant who were granted a maintenance function by mistake still could not read other users' texts with it."""
    with world.login("tenant") as tenant, world.login("app") as app, connect(world.dsn) as db:
        for routine in world.of_role("jobs"):
            if "tenant" in routine.roles or routine.name in {
                "ensure_partitions",
                "merge_search",
                "flush_statistics",
                "embed_backlog",
                "run_job",
                "run_in_python",
                "cancel_overdue",
            }:
                continue  # they hand out no text, or stop one call further in
            values = world.values(routine, app)
            db.execute(f"grant execute on routine {routine.signature} to {world.logins['tenant']}")
            assert code(lambda: routine.call(tenant, values)) == "PM001", routine.signature
            db.execute(f"revoke execute on routine {routine.signature} from {world.logins['tenant']}")


# Bindings -------------------------------------------------------------------------------------------------------------


def test_an_agent_is_nobodys_voice(world: World) -> None:
    with (
        world.login("tenant") as agent,
        world.login("person") as person,
        world.login("app") as app,
        connect(world.dsn) as db,
    ):
        for routine in world.of_role("tenant"):
            if "p_actor" in routine.arguments:
                values = world.values(routine, app)
                for actor in ("person", "tool", "system"):
                    assert code(lambda: routine.call(agent, {**values, "p_actor": actor})) in ("PM001", "PM014"), (
                        routine.signature,
                        actor,
                    )
                assert code(lambda: routine.call(agent, {**values, "p_actor": "agent"})) == (
                    "PM001" if routine.name in PERSONS else None
                )  # the positive control
        # Whatever the message's role says, who wrote it is what the login is.
        session = unique("s")
        agent.execute(
            "select memoir.persist_turn('tom', %s, %s)",
            [session, Jsonb([{**MESSAGES[0], "actor": "person"}, MESSAGES[1]])],
        )
        agent.execute("select memoir.remember('tom', 'claims to be his word', p_provenance => 'user_stated')")
        person.execute("select memoir.persist_turn('ann', 's', %s)", [Jsonb(MESSAGES)])
        person.execute("select memoir.remember('ann', 'her word')")
        written = db.execute(
            """
            select distinct h.role::text, h.actor::text from _memoir.conversation_history h join _memoir.sessions s using (user_id, session_id)
            where s.external_id = %s order by 1""",
            [session],
        ).fetchall()
        assert written == [("assistant", "agent"), ("user", "agent")]
        word = "select actor::text, provenance::text, trust from _memoir.memory_store where content = %s"
        assert db.execute(word, ["claims to be his word"]).fetchone()[:2] == ("agent", "system_inferred")
        assert db.execute(word, ["her word"]).fetchone() == ("person", "user_stated", 1.0)


def test_projects_bound_a_tenant(world: World) -> None:
    """A tenant of project red, and things of the same user in project blue."""
    with world.login("red") as red, world.login("app") as app:
        app.execute("select memoir.remember('tom', 'The vault code is 4711.', p_project => 'blue')")
        reached = []
        for routine in world.of_role("tenant"):
            if "p_user" not in routine.arguments or routine.name.startswith("erase_"):
                continue

            def ours(routine: Routine = routine) -> dict[str, Any]:
                return {
                    **world.values(routine, app, project="red"),
                    **({"p_project": "red"} if "p_project" in routine.arguments else {}),
                }

            if routine.name == "query_answer":  # what a login with all projects asked is not for one with few
                assert code(lambda: routine.call(red, ours())) == "PM004"
            elif routine.name not in PERSONS:
                routine.call(red, ours())  # the positive control
            blue = world.values(routine, app, project="blue")
            for key in ("p_session", "p_memory", "p_call"):
                if key in blue and code(lambda: routine.call(red, {**ours(), key: blue[key]})) not in (
                    "PM001",
                    "PM003",
                    "PM004",
                ):
                    reached.append((routine.name, key))
            if "p_project" in routine.arguments:
                answer: list[Any] = []
                failed = code(
                    lambda: answer.append(routine.call(red, {**ours(), "p_project": "blue", "p_query": "vault code"}))
                )
                if failed != "PM001" and ("reader" not in routine.roles or "4711" in str(answer)):
                    reached.append((routine.name, "p_project"))
        assert reached == []
        for query in (
            "select * from memoir.recall('tom', 'vault code')",
            "select * from memoir.recall('tom', 'vault code', p_project => 'blue')",
            "select memoir.compile_context('tom', 'fresh', 'What is the vault code?')",
            "select * from memoir.explain_context('tom', 'fresh', 'What is the vault code?')",
        ):
            assert "4711" in str(app.execute(query).fetchall())
            assert "4711" not in str(red.execute(query).fetchall())


def test_a_tenant_does_not_move_its_cost_limit(world: World) -> None:
    with world.login("tenant") as tenant, world.login("app") as app:
        for key, value in (
            ("budget_microcents_session", 0),
            ("budget_action", "warn"),
            ("budget_microcents_session", None),
        ):
            assert (
                code(
                    lambda: tenant.execute(
                        "select memoir.open_session('tom', %s, p_settings => %s)", [unique("s"), Jsonb({key: value})]
                    )
                )
                == "PM001"
            )
        tenant.execute(
            "select memoir.open_session('tom', %s, p_settings => '{\"recall_tokens_max\": 500}')", [unique("s")]
        )
        app.execute(
            "select memoir.open_session('tom', %s, p_settings => '{\"budget_microcents_session\": 5}')", [unique("s")]
        )


def test_secrets_stay_below_clearance(world: World) -> None:
    with (
        world.login("app") as app,
        world.login("tenant") as tenant,
        roles(world.dsn, cleared="login in role memoir_app") as names,
        connect(world.dsn) as db,
    ):
        db.execute("select memoir.bind_login(%s, p_clearance => 'secret')", [names["cleared"]])
        app.execute("select memoir.remember('tom', 'The safe opens with 90125.', p_sensitivity => 'secret')")
        query = "select * from memoir.recall('tom', 'safe opens')"
        assert "90125" not in str(app.execute(query).fetchall()) + str(tenant.execute(query).fetchall())
        with connect(user_of(world.dsn, names["cleared"])) as cleared:
            assert "90125" in str(cleared.execute(query).fetchall())
            # Not even then does it go to a model.
            assert "90125" not in str(
                cleared.execute("select memoir.compile_context('tom', 'fresh', 'What opens the safe?')").fetchall()
            )
        assert "90125" not in str(db.execute("select * from memoir.claim_embeddings(1000)").fetchall())


def test_set_role_from_a_pool(world: World) -> None:
    write = "select memoir.persist_turn(%s, 'pooled', %s)"
    with world.login("pool") as pool, connect(world.dsn) as db:
        assert code(lambda: pool.execute(write, ["tom", Jsonb(MESSAGES)])) == NO_RIGHT
        for role, own, other in (("tenant", "tom", "ann"), ("person", "ann", "tom")):
            with pool.transaction():
                pool.execute(f"set local role {world.logins[role]}")
                pool.execute(write, [own, Jsonb(MESSAGES)])
                assert code(lambda: pool.execute(write, [other, Jsonb(MESSAGES)])) == "PM001"
                raise psycopg.Rollback()
            pool.execute(f"set role {world.logins[role]}")
            pool.execute(write, [own, Jsonb(MESSAGES)])
            assert code(lambda: pool.execute(write, [other, Jsonb(MESSAGES)])) == "PM001"
            assert db.execute(
                "select distinct h.actor::text from _memoir.conversation_history h join _memoir.sessions s using (user_id, session_id) "
                "where s.external_id = 'pooled' and h.role = 'user' and s.user_id = (select user_id from _memoir.users where external_id = %s)",
                [own],
            ).fetchall() == [("agent",) if role == "tenant" else ("person",)]
        pool.execute("reset role")
        assert code(lambda: pool.execute(write, ["ann", Jsonb(MESSAGES)])) == NO_RIGHT
        assert code(lambda: pool.execute(f"set role {world.logins['app']}")) == NO_RIGHT
        # A role that the login may become, but has not become, counts for nothing.
        assert code(lambda: pool.execute("set role memoir_owner")) == NO_RIGHT


# History --------------------------------------------------------------------------------------------------------------

CHANGES = (
    "update {} set content = 'changed'",
    "update {} set metadata = metadata",
    "delete from {}",
    "truncate {}",
    "delete from {} using pg_class where false or turn_index >= 0",
    "merge into {} t using (select 1) s on t.turn_index >= 0 when matched then update set content = 'changed'",
    "merge into {} t using (select 1) s on t.turn_index >= 0 when matched then delete",
    "insert into {0} select * from {0} on conflict (user_id, session_id, turn_index, recorded_at) do update set content = 'changed'",
)


def test_history_is_append_only(world: World) -> None:
    with connect(world.dsn) as db, world.login("app") as app:
        app.execute("select memoir.persist_turn('tom', %s, %s)", [unique("s"), Jsonb(MESSAGES)])
        db.execute("select memoir.set_clock('2033-03-03T00:00:00Z')")  # a month that is made now
        app.execute("select memoir.persist_turn('tom', %s, %s)", [unique("s"), Jsonb(MESSAGES)])
        db.execute("select memoir.set_clock(null)")
        part = app.execute("select memoir.part_of('tom')").fetchone()[0]
        leaves = [
            name
            for (name,) in db.execute("""
            select relid::regclass::text from pg_partition_tree('_memoir.conversation_history') where isleaf
              and exists (select from _memoir.conversation_history h where h.tableoid = relid) order by 1""")
        ]
        assert f"_memoir.conversation_history_p{part}_y2033m03" in leaves and len(leaves) > 1
        tables = ["_memoir.conversation_history", f"_memoir.conversation_history_p{part}", *leaves]
        before = contents(db)["conversation_history"]
        for key in ("app", "tenant", "admin", "jobs", "reader"):
            with world.login(key) as login:
                for table in tables:
                    for change in CHANGES[:4]:
                        assert code(lambda: login.execute(change.format(table))) == NO_RIGHT, (key, change, table)
        for role in ("memoir_owner", "postgres"):
            db.execute(f"set role {role}")
            for table in tables:
                for change in CHANGES:
                    if change.startswith("merge") and db.info.server_version < 150000:
                        continue
                    assert code(lambda: db.execute(change.format(table))) == "PM024", (role, change, table)
                # An audit row opens the way for a delete, nothing else, and only in its own transaction.
                db.execute("insert into _memoir.audit_log (action) values ('erase')")
                assert code(lambda: db.execute(f"delete from {table}")) == "PM024"
                with db.transaction():
                    with db.transaction():
                        db.execute("insert into _memoir.audit_log (action) values ('erase')")
                        raise psycopg.Rollback()
                    assert in_savepoint(db, f"delete from {table}") == "PM024"
                    db.execute("insert into _memoir.audit_log (action) values ('note')")
                    assert in_savepoint(db, f"delete from {table}") == "PM024"
                    db.execute("insert into _memoir.audit_log (action) values ('erase')")
                    assert in_savepoint(db, CHANGES[0].format(table)) == "PM024"
                    assert in_savepoint(db, f"truncate {table}") == "PM024"
                    assert db.execute(f"delete from {table}").rowcount > 0
                    raise psycopg.Rollback()
            db.execute("reset role")
        assert contents(db)["conversation_history"] == before


def in_savepoint(db: psycopg.Connection, statement: str) -> str | None:
    def run() -> None:
        with db.transaction():
            db.execute(statement)

    return code(run)


@pytest.mark.acceptance
def test_no_function_changes_history(world: World) -> None:
    """Every function but those that erase is called, by an admin, on a session with turns; afterwards all its turns are there, word for word."""
    turns = "select message_id, md5(h::text) from _memoir.conversation_history h where user_id = (select user_id from _memoir.users where external_id = 'vera')"
    with connect(world.dsn) as db, world.login("admin") as admin:
        prepared = [
            (routine, world.values(routine, admin, "vera"))
            for routine in world.of_role("admin")
            if not routine.name.startswith("erase_")
            and routine.name
            not in {
                "fail",
                "enable_jobs",
                "disable_jobs",
                "ensure_embedder",
                "embed_backlog",
                "run_in_python",
                "learn_weights",
            }
        ]
        before = dict(db.execute(turns).fetchall())
        assert len(before) >= 2 * len(prepared)
        # Marked secret, a turn takes the calls that may carry it out of the admin's sight: after those are read.
        for routine, values in sorted(prepared, key=lambda pair: pair[0].name == "mark_turn"):
            routine.call(admin, values)
        after = dict(db.execute(turns).fetchall())
        assert before.items() <= after.items()


# Hostile surroundings -------------------------------------------------------------------------------------------------

# Copies, in a schema of somebody's own, of the functions and operators our code uses, better matches for mixed types
# included, and of our own tables and functions. Each raises when used.
HOSTILE = """
do $do$
declare
  v record; v_name text;
begin
  execute 'create schema hostile';
  execute 'create function hostile.trap() returns void language plpgsql as $$ begin raise exception ''something hostile ran'' using errcode = ''HT000''; end $$';
  for v in
    select distinct on (p.proname, args) p.proname, pg_get_function_identity_arguments(p.oid) as args, format_type(p.prorettype, null) as result, p.proretset
    from pg_proc p where p.prokind = 'f' and (p.pronamespace in ('memoir'::regnamespace, '_memoir'::regnamespace)
      or p.pronamespace = 'pg_catalog'::regnamespace and p.proname = any (string_to_array(current_setting('test.names'), ',')))
  loop
    begin
      execute format('create function hostile.%I(%s) returns %s %s language plpgsql as $$ begin perform hostile.trap(); end $$',
        v.proname, v.args, case when v.proretset then 'setof' else '' end, v.result);
    exception when others then null;                      -- polymorphic and internal ones
    end;
  end loop;
  for v in
    with wanted as (
      select oprname, oprleft as l, oprright as r, oprresult as result from pg_operator
      where oprnamespace = 'pg_catalog'::regnamespace and oprleft <> 0 and not exists (
        select from pg_type t where t.oid in (oprleft, oprright, oprresult) and (t.typtype = 'p' or t.typname ~ '(box|line|point|poly|path|seg|circle|net|macaddr|vector|range)'))
      union
      select o, l, r, 'boolean'::regtype                  -- where PostgreSQL has none for the pair, an exact match wins
      from unnest('{int2,int4,int8,numeric,float4,float8,oid}'::regtype[]) l, unnest('{int2,int4,int8,numeric,float4,float8,oid}'::regtype[]) r,
        unnest('{=,<>,<,>,<=,>=,+,-,*,/}'::text[]) o
      where not exists (select from pg_operator where oprname = o and oprleft = l and oprright = r))
    select oprname, format_type(l, null) as l, format_type(r, null) as r, format_type(result, null) as result, row_number() over () as n from wanted
  loop
    execute format('create function hostile.op_%s(%s, %s) returns %s language plpgsql as $$ begin perform hostile.trap(); end $$', v.n, v.l, v.r, v.result);
    execute format('create operator hostile.%s (leftarg = %s, rightarg = %s, function = hostile.op_%s)', v.oprname, v.l, v.r, v.n);
  end loop;
  for v_name in select relname from pg_class where relnamespace = '_memoir'::regnamespace and relkind in ('r', 'p') and not relispartition loop
    execute format('create table hostile.%I (like _memoir.%I)', v_name, v_name);
  end loop;
  execute 'grant usage on schema hostile to public; grant all on all tables in schema hostile to public';
end $do$"""


@pytest.fixture(scope="module")
def hostile(world: World, server_dsn: str, template: str) -> Iterator[World]:
    """The same logins in another database, which has a schema of traps."""
    with database(server_dsn, f"template {template}") as dsn:
        with connect(dsn) as db:
            bind(db, world.logins)
            sources = "\n".join(
                row[0]
                for row in db.execute(
                    "select prosrc from pg_proc where pronamespace in ('memoir'::regnamespace, '_memoir'::regnamespace)"
                )
            )
            used = sorted(set(re.findall(r"\b([a-z_0-9]+)\s*\(", sources + ARTIFACT.read_text())))
            db.execute(
                "select set_config('test.names', %s, false), set_config('check_function_bodies', 'off', false)",
                [",".join(used)],
            )
            db.execute(HOSTILE)
            assert (
                db.execute("select count(*) from pg_proc where pronamespace = 'hostile'::regnamespace").fetchone()[0]
                > 500
            )
            db.execute("set search_path = hostile, pg_catalog")
            for bait in ("select 1 + 1", "select lower('A'::text)", "select 'a'::text || 'b'::text"):
                assert code(lambda: db.execute(bait)) == "HT000"  # the traps do snap
        yield World(dsn, world.logins, world.routines)


@pytest.mark.acceptance
@pytest.mark.parametrize(
    ("path", "year"),
    [("hostile,pg_catalog,memoir", 2041), ("memoir,hostile", 2042)],
)
def test_a_hostile_search_path_changes_nothing(hostile: World, path: str, year: int) -> None:
    """Ahead of everything, and where it waits for a call that fits one of its types better than PostgreSQL's."""
    options = {"options": f"-csearch_path={path}"}
    with (
        hostile.login("app", **options) as app,
        hostile.login("admin", **options) as admin,
        hostile.login("jobs", **options) as jobs,
    ):
        app.execute("create temp table users as select 1 as n; create temp table sessions as select 1 as n")
        for login, role in ((app, "app"), (admin, "admin"), (jobs, "jobs")):
            for routine in hostile.of_role(role):
                if routine.name == "export_user" and role == "app":
                    continue  # takes the clearance for everything
                # What is neither a definer nor commits runs as its caller, who alone decides what comes before pg_catalog.
                if (
                    routine.name in {"fail", "enable_jobs", "disable_jobs"}
                    or path.startswith("hostile")
                    and not routine.definer
                    and routine.kind == "f"
                ):
                    continue
                refused = (
                    "PM025"
                    if routine.name == "learn_weights"
                    else "PM001"
                    if role == "app" and routine.name in NEEDS_CLEARANCE
                    else None
                )
                assert code(lambda: routine.call(login, hostile.values(routine, app))) == refused, routine.signature
        assert "Ximena" in str(app.execute("select content from memoir.recall('tom', 'cat')").fetchall())
    with connect(hostile.dsn) as db:
        db.execute("select memoir.set_clock(%s)", [f"{year}-05-06T00:00:00Z"])
    with connect(hostile.dsn, **options) as db:  # what a superuser runs, and the install itself
        db.execute("call memoir.ensure_partitions(0)")
        db.execute("call memoir.setup()")
    done = psql(hostile.dsn, "-1", "-c", f"set search_path = {path}", "-f", str(ARTIFACT))
    assert done.returncode == 0, done.stderr
    with connect(hostile.dsn) as db:
        assert db.execute("select count(*) > 0 from pg_class where relname ~ %s", [f"_y{year}m05$"]).fetchone() == (
            True,
        )


# Values in place of which somebody's SQL might come to stand, had any function put its arguments into SQL text.
INJECTIONS = [
    "'; insert into public.canary values (1); --",
    "x') from _memoir.users; insert into public.canary values (2); select ('",
    "'; drop table _memoir.users; --",
    "\\'); drop schema memoir cascade; --",
    "$$; raise exception 'x'; $$ %s %1$I %L",
    '"; select pg_sleep(9); --',
    '{"a": ',
]


def hostile_values(kind: str, payload: str) -> list[Any]:
    """An argument of that type in every shape that has the payload somewhere."""
    if kind in ("text", "name"):
        return [payload]
    if kind == "text[]":
        return [[payload], [payload, "b"]]
    if kind == "jsonb":
        return [
            Jsonb(payload),
            Jsonb([payload]),
            Jsonb({payload: payload}),
            Jsonb([{"role": "user", "content": payload, payload: payload, "name": payload}]),
            Jsonb([{"role": payload, "content": payload}]),
            Jsonb([{"type": "text", "text": payload}]),
            Jsonb({"recall_tokens_max": payload}),
        ]
    return []


@pytest.mark.acceptance
def test_arguments_are_never_sql(hostile: World) -> None:
    """In a database whose settings may end up anyhow. Each payload in every shape of an argument."""
    untyped: dict[tuple[str, str], set[str]] = {}
    calls = 0
    with hostile.login("admin") as admin, connect(hostile.dsn) as db:
        db.execute("select memoir.set_clock(null)")
        db.execute(
            "drop table if exists public.canary; create table public.canary (n integer); grant all on public.canary to public"
        )
        before = describe(db)
        for routine in hostile.of_role("admin"):
            targets = {
                name: kind for name, kind in routine.arguments.items() if kind in ("text", "name", "text[]", "jsonb")
            }
            if not targets or routine.name in {"fail", "ensure_embedder"}:
                continue
            values = hostile.values(routine, admin, "mallory")
            for name, kind in targets.items():
                for payload in INJECTIONS:
                    for value in hostile_values(kind, payload):
                        calls += 1
                        try:
                            routine.call(admin, {**values, name: value})
                        except psycopg.Error as error:
                            if not error.sqlstate or not error.sqlstate.startswith("PM"):
                                untyped.setdefault((routine.name, name), set()).add(
                                    f"{error.sqlstate} {error}".splitlines()[0]
                                )
        assert calls > 500
        assert db.execute("select count(*) from public.canary").fetchone() == (0,)
        after = describe(db)
        assert not differences(before, {key: value for key, value in after.items() if key in before or "_y" not in key})
    assert untyped == {}
