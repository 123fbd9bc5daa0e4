"""Copies of names on a caller's search_path, odd types, and SQL in arguments change nothing that a function does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from calls import call, one, persist, recalled
from catalog import describe, differences
from psycopg.types.json import Jsonb
from routines import World, code, world_of
from servers import ARTIFACT, connect, psql

SKIPPED = {"fail", "enable_jobs", "disable_jobs"}  # for procedures that commit, which name everything in full

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
# Domains under the names of PostgreSQL's own types.
HOSTILE_TYPES = """
    create schema types; grant usage on schema types to public;
    create function types.trap() returns boolean language plpgsql as $$ begin raise exception 'something hostile ran' using errcode = 'HT000'; end $$;
    do $$ declare v text; begin
      foreach v in array '{text,uuid,jsonb,name,bool,int4,int8,timestamptz,date,float4,float8,regclass,bytea,interval,numeric}'::text[] loop
        execute format('create domain types.%I as pg_catalog.text check (types.trap())', v);
        execute format('create function types.cast_%s(pg_catalog.%I) returns types.%I language plpgsql as ''begin perform types.trap(); return null; end''', v, v, v);
      end loop;
    end $$"""


@pytest.fixture(scope="module")
def world(memoir_dsn: str) -> Iterator[World]:
    """Logins in a database that has a schema of traps."""
    with world_of(memoir_dsn, app="app", admin="admin", jobs="jobs") as world:
        source = """select string_agg(prosrc, chr(10)) from pg_proc
            where pronamespace in ('memoir'::regnamespace, '_memoir'::regnamespace)"""
        used = sorted(set(re.findall(r"\b([a-z_0-9]+)\s*\(", one(world.db, source) + ARTIFACT.read_text())))
        with connect(memoir_dsn, options="-ccheck_function_bodies=off") as db:
            db.execute("select set_config('test.names', %s, false)", [",".join(used)])
            db.execute(HOSTILE)
            db.execute(HOSTILE_TYPES)
            assert one(db, "select count(*) from pg_proc where pronamespace = 'hostile'::regnamespace") > 500
            db.execute("set search_path = hostile, pg_catalog")
            for bait in ("select 1 + 1", "select lower('A'::text)", "select 'a'::text || 'b'::text"):
                assert code(lambda: db.execute(bait)) == "HT000"  # the traps do snap
        yield world


@pytest.mark.acceptance
@pytest.mark.parametrize(("path", "year"), [("hostile,pg_catalog,memoir", 2041), ("memoir,hostile", 2042)])
def test_a_hostile_search_path_changes_nothing(world: World, path: str, year: int) -> None:
    """Ahead of everything, and where it waits for a call that fits one of its types better than PostgreSQL's."""
    options = {"options": f"-csearch_path={path}"}
    with world.login("app", **options) as app:
        app.execute("create temp table users as select 1 as n; create temp table sessions as select 1 as n")
        for role in ("app", "admin", "jobs"):
            with world.login(role, **options) as login:
                for routine in world.of_role(role):
                    # A function that pins no path runs as its caller, who alone decides what comes before pg_catalog.
                    is_callers = path.startswith("hostile") and not routine.definer and routine.kind == "f"
                    if routine.name in SKIPPED or is_callers or role == "app" and routine.name == "export_user":
                        continue
                    wanted = "PM025" if routine.name == "learn_weights" else None
                    assert code(lambda: routine.call(login, world.values(routine, app))) == wanted, routine.signature
        assert "Ximena" in str(app.execute("select content from memoir.recall('tom', 'cat')").fetchall())
    call(world.db, "set_clock", f"{year}-05-06T00:00:00Z")
    with connect(world.dsn, **options) as db:  # what a superuser runs, and the install itself
        db.execute("call memoir.ensure_partitions(0)")
        db.execute("call memoir.setup()")
    done = psql(world.dsn, "-1", "-c", f"set search_path = {path}", "-f", str(ARTIFACT))
    assert done.returncode == 0, done.stderr
    assert one(world.db, "select count(*) from pg_class where relname ~ %s", f"_y{year}m05$") > 0
    call(world.db, "set_clock", None)


def test_types_of_a_hostile_schema_change_nothing(world: World) -> None:
    """For functions, and for procedures that commit."""
    path = {"options": "-csearch_path=types,pg_catalog,memoir"}
    with world.login("jobs", **path) as jobs, world.login("app", **path) as app:
        assert code(lambda: jobs.execute("do 'declare v uuid; begin v := gen_random_uuid(); end'")) == "HT000"
        for job in ("merge", "flush", "partitions", "sweep", "hygiene"):
            jobs.execute(f"call memoir.run_job('{job}')")
        for procedure in ("merge_search()", "flush_statistics()", "ensure_partitions(0)"):
            jobs.execute(f"call memoir.{procedure}")
        persist(app, "typed", "s", "My ferret is called Otto.", "Yes.")
        assert "Otto" in str(recalled(app, "typed", "What is my ferret called?"))


# Values in place of which somebody's SQL might come to stand, had any function put its arguments into SQL text.
INJECTIONS = [
    "'; insert into public.canary values (1); --",
    "x') from _memoir.users; insert into public.canary values (2); select ('",
    "\\'); drop schema memoir cascade; --",
    "$$; raise exception 'x'; $$ %s %1$I %L",
    '"; select pg_sleep(9); --',
    '{"a": ',
]


def shapes_of(kind: str, payload: str) -> list[Any]:
    """An argument of that type in every shape that has the payload somewhere."""
    said = {"role": "user", "content": payload, payload: payload, "name": payload}
    values = [
        payload,
        [payload],
        {payload: payload},
        [said],
        [said | {"role": payload}],
        {"recall_tokens_max": payload},
    ]
    return {"jsonb": [Jsonb(v) for v in values], "text[]": [[payload, "b"]]}.get(kind, [payload])


@pytest.mark.acceptance
def test_arguments_are_never_sql(world: World) -> None:
    """Each payload in every shape of an argument. Errors are those of the API."""
    untyped: dict[tuple[str, str], set[str]] = {}
    calls = 0
    world.db.execute("create table public.canary (n integer); grant all on public.canary to public")
    before = describe(world.db)
    with world.login("admin") as admin:
        for routine in world.of_role("admin"):
            kinds = {
                name: kind for name, kind in routine.arguments.items() if kind in ("text", "name", "text[]", "jsonb")
            }
            if not kinds or routine.name in {"fail", "ensure_embedder"}:
                continue
            values = world.values(routine, admin, "mallory")
            for name, value in (
                (n, v) for n, k in kinds.items() for payload in INJECTIONS for v in shapes_of(k, payload)
            ):
                calls += 1
                try:
                    routine.call(admin, {**values, name: value})
                except psycopg.Error as error:
                    if not (error.sqlstate or "").startswith("PM"):
                        untyped.setdefault((routine.name, name), set()).add(f"{error.sqlstate} {error}".splitlines()[0])
    assert calls > 500 and one(world.db, "select count(*) from public.canary") == 0
    after = describe(world.db)
    assert not differences(before, {key: value for key, value in after.items() if key in before or "_y" not in key})
    assert untyped == {}
