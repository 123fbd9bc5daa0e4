"""A login reaches its own namespace, users, projects and clearance, whatever it passes to a function, and writes in its own name."""

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from calls import Db, call, embed_waiting, one, persist, read_turns, recalled, remember, remembered, store, table
from catalog import describe, differences
from loops import step
from psycopg.types.json import Jsonb
from routines import MESSAGES, NO_RIGHT, PERSONS, Routine, World, code, world_of
from rows import tables_with_users
from servers import connect, unique, user_of

# Arguments that name something of a user ...
NAMES_SOMETHING = set(
    """p_user p_session p_new_session p_parent p_memory p_other p_call p_compaction p_compile p_report p_change p_id p_ids
    p_object p_query_id p_objects p_after_memory p_after_session p_after_change p_space""".split()
)
# ... and those that name nothing, or something within what those name (a turn, a key of the user).
NAMES_NOTHING = set(
    """p_actor p_after p_after_item p_after_turn p_after_user p_aliases p_annotations p_answer p_arguments p_as_of p_at_turn
    p_before p_budget p_category p_chains p_changed p_conditions p_confidence p_content p_context_window p_count p_created_at
    p_depth p_documents p_dry_run p_embeddable p_embedding p_event_times p_events p_filter p_fixed p_format p_from_turn p_given p_hops
    p_importance p_items p_key p_keys p_kinds p_latency_ms p_lifted p_limit p_lines p_lines_after p_lines_before p_max_tokens p_member
    p_memory_budget p_messages p_metadata p_minutes p_model p_name p_names p_namespace p_note p_offset p_preview p_profile_version
    p_project p_provenance p_provider p_query p_query_embedding p_query_parts p_question p_reason p_refresh p_relation
    p_remainder p_request p_request_headers p_response p_response_headers p_response_tokens p_role p_said p_scope p_sensitivity
    p_settings p_shown_from p_slot p_slot_value p_source_key p_source_tool p_source_turns p_spaces p_started_at p_states p_status p_success
    p_system_prompt p_tags p_target_tokens p_task p_temperature p_text p_threshold p_to_turn p_tools p_top_p p_trigger p_turn p_turns
    p_type p_types p_undone p_usage p_used p_valid_at p_valid_from p_valid_to p_way p_weight p_where p_window p_with_retracted""".split()
)
# Functions for tenants that name no user: of nobody in particular, or of their own rows.
USERLESS = set(
    """count_tokens estimate_tokens list_settings max_tokens memory_resources memory_tools now version login sees_all
    visible_users bound_projects bound_sessions own_clearance list_users""".split()
)
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


@pytest.fixture(scope="module")
def world(memoir_dsn: str) -> Iterator[World]:
    ann = {"role": "tenant", "users": ["ann"], "actor": "agent"}
    with world_of(
        memoir_dsn,
        ann=ann,
        bob={"role": "tenant", "users": ["bob"], "actor": "person"},
        red=ann | {"projects": ["red"]},
        both=ann | {"projects": ["red", "blue"]},
        normal=ann | {"clearance": "normal"},
        unbound="tenant",
        cleared={"role": "app", "clearance": "secret"},
        elsewhere={"role": "app", "namespace": "elsewhere"},
        service={"role": "app", "projects": ["red"], "actor": "agent", "clearance": "normal"},
        reading={"role": "reader", "projects": ["red"]},
        app="app",
        jobs="jobs",
        admin="admin",
    ) as world:
        yield world


def tenants_routines(world: World) -> list[Routine]:
    return [r for r in world.of_role("tenant") if "p_user" in r.arguments]


def refusal(db: Db, function: str, *arguments: Any, **named: Any) -> str | None:
    return code(lambda: call(db, function, *arguments, **named))


# Users ----------------------------------------------------------------------------------------------------------------


def rows_of(world: World, user: str) -> dict[str, Any]:
    query = """select count(*), md5(string_agg(t::text, chr(10) order by t::text)) from _memoir.{} t
        where user_id = (select user_id from _memoir.users where external_id = %s)"""
    names = tables_with_users(world.db)
    return {name: world.db.execute(query.format(name), [user]).fetchone() for name in names}


def ids_of(world: World, user: str) -> set[str]:
    query = """select array[u.user_id::text] || array(select session_id::text from _memoir.sessions s where s.user_id = u.user_id)
        || array(select memory_id::text from _memoir.memory_store m where m.user_id = u.user_id)
        || array(select message_id::text from _memoir.conversation_history h where h.user_id = u.user_id)
        || array(select call_id::text from _memoir.api_calls c where c.user_id = u.user_id)
        from _memoir.users u where u.external_id = %s"""
    return set(one(world.db, query, user))


def test_every_argument_is_known(world: World) -> None:
    unknown = {name for r in tenants_routines(world) for name in r.arguments} - NAMES_SOMETHING - NAMES_NOTHING
    assert not unknown, f"does {unknown} name something of a user? This module needs to know"
    assert {r.name for r in world.of_role("tenant")} - {r.name for r in tenants_routines(world)} == USERLESS
    assert refusal(world.connection("unbound"), "history", "ann", "s") == "PM001"


def test_no_id_reaches_somebody_else(world: World) -> None:
    """As Ann with the names and ids of Bob's sessions, memories, calls and summaries, one argument at a time."""
    ann, bob, app = (world.connection(key) for key in ("ann", "bob", "app"))
    routines, prepared = tenants_routines(world), []
    for routine in routines:
        foreign = world.values(routine, app, "bob", word="Zanzibar", also=NAMES_SOMETHING)
        foreign["p_session"] = foreign.get("p_session") or unique("s")
        persist(app, "bob", foreign["p_session"], "Zanzibar it is.", "Yes.")
        theirs = world.values(routine, app, "bob", word="Zanzibar")
        prepared.append((routine, foreign, theirs, world.values(routine, app, "ann")))
    ids, before, given, shown = ids_of(world, "bob"), rows_of(world, "bob"), set(), []
    bobs = one(world.db, "select user_id::text from _memoir.users where external_id = 'bob'")
    for routine, foreign, _, own in prepared:
        for name in sorted(NAMES_SOMETHING & routine.arguments.keys()):
            # By name, and by the id that the name stands for.
            meant = [foreign[name]]
            if name in ("p_session", "p_parent", "p_after_session"):
                meant.append(call(app, "session_info", "bob", foreign[name])["session_id"])
            for value in [*meant, bobs] if name == "p_user" else meant:
                answer: list[Any] = []
                failed = code(lambda: answer.append(routine.call(ann, {**own, name: value})))
                told = str(answer)
                given.add(str(value))  # may be told again: it is the name of something of her own now
                if name == "p_user":
                    is_right = failed == "PM001"
                else:
                    state = "PM00" if name in STRICT else "PM"
                    is_right = failed.startswith(state) if failed else name not in STRICT
                if not is_right or "Zanzibar" in told or (set(UUID.findall(told)) - given) & ids:
                    shown.append((routine.name, name, value, failed))
    assert shown == [] and rows_of(world, "bob") == before
    # The positive control: Bob's own ids are good for Bob. What takes something from other calls goes last.
    seen = 0
    order = sorted(prepared, key=lambda e: (e[0].name.startswith(("mark", "erase")), e[0].name == "erase_user"))
    for routine, _, theirs, _ in order:
        theirs |= {"p_query": "Zanzibar?"} if "p_query" in theirs else {}
        seen += "Zanzibar" in str(routine.call(bob, theirs))
    assert seen >= 5
    world.bind("bob", users=["bob"], actor="person")  # which the erasure of Bob has ended


STRICT = set(
    "p_memory p_other p_call p_compaction p_compile p_id p_query_id p_after_memory p_after_session p_after_change".split()
)
"""Ids: somebody else's are unknown ones."""


def test_nothing_of_one_user_names_another(world: World) -> None:
    """Two users with the same words, and every job run over both: no row, derived ones included, has an id of the other's."""
    jobs, app, twins = world.connection("jobs"), world.connection("app"), ("twin-one", "twin-two")
    near = [0.1] * 383 + [0.2]
    for user in twins:
        for session in ("s", "t"):
            store(app, user, session, MESSAGES * 10)
        for text, vector in (("My cat is called Ximena.", [0.1] * 384), ("My cat is called Ximena indeed.", near)):
            remember(app, user, text, embedding=vector)
        call(app, "capture_call", user, "s", b"x")
        for _ in range(2):
            call(app, "compile_context", user, "u", "What is my cat called?")
        remember(app, user, f"The twin is {user}")
    read_turns(jobs)
    embed_waiting(jobs, [0.1] * 384)
    world.db.execute("select memoir.set_setting('tail_items_max', '16')")
    for (job,) in world.db.execute("select job from _memoir.job_list() where not in_python and job <> 'embedder'"):
        jobs.execute("call memoir.run_job(%s)", [job])
    assert one(world.db, "select count(*) from _memoir.job_runs where outcome not in ('done', 'time over')") == 0
    owner: dict[str, str] = {}
    named = {"session_id": "sessions", "memory_id": "memory_store", "message_id": "conversation_history"}
    named |= {"call_id": "api_calls", "user_id": "users", "compile_id": "compile_ledger"}
    for column, name in named.items():
        owner |= dict(world.db.execute(f"select {column}::text, user_id::text from _memoir.{name}").fetchall())
    mixed, read = set(), 0
    for name in set(tables_with_users(world.db)) - {"login_users", "space_members"}:
        row = "select user_id::text, (to_jsonb(t) - 'external_id')::text"
        query = f"{row} from _memoir.{name} t where user_id is not null"
        for user, row in world.db.execute(query):
            read += len(uuids := UUID.findall(row))
            mixed |= {(name, uuid) for uuid in uuids if owner.get(uuid, user) != user}
    assert read > 500 and mixed == set()
    for user, other in (twins, twins[::-1]):
        assert user in str(recalled(app, user, "twin")) and other not in str(recalled(app, user, "twin"))


def test_namespaces_are_apart(world: World) -> None:
    app, other = world.connection("app"), world.connection("elsewhere")
    store(app, "same", "s", MESSAGES)
    assert "Ximena" in str(recalled(app, "same", "cat")) and recalled(other, "same", "cat") == []
    assert refusal(other, "session_info", "same", "s") == "PM003"
    # An id chosen as a name is a name like any other.
    assert recalled(other, call(app, "session_info", "same", "s")["session_id"], "cat") == []
    assert refusal(other, "claim_embeddings", 1000) == "PM001"


def test_errors_name_nothing_of_others(world: World) -> None:
    """A refusal says what was asked, and the same whether it exists or not."""
    store(world.connection("app"), "bob", "known", MESSAGES)

    def describe_refusal(user: str, session: str) -> str:
        with pytest.raises(psycopg.Error) as error:
            call(world.connection("ann"), "history", user, session)
        told = error.value.diag
        return f"{told.message_primary} {told.message_detail} {told.context}".replace(user, "?")

    unknown = describe_refusal("bob", "unknown")
    assert describe_refusal("bob", "known") == unknown == describe_refusal("nobody", "unknown")


# Whose word -----------------------------------------------------------------------------------------------------------


def test_an_agent_is_nobodys_voice(world: World) -> None:
    """Whatever a message's role says, its actor is what the login is."""
    agent, person, app = (world.connection(key) for key in ("ann", "bob", "app"))
    for routine in tenants_routines(world):
        if "p_actor" in routine.arguments:
            values = world.values(routine, app, "ann")
            for actor in ("person", "tool", "system", "agent"):
                failed = code(lambda: routine.call(agent, {**values, "p_actor": actor}))
                is_allowed = actor == "agent" and routine.name not in PERSONS
                assert failed in ((None,) if is_allowed else ("PM001", "PM014")), (routine.signature, actor)
        elif routine.name in PERSONS or routine.name.startswith("erase_"):
            assert code(lambda: routine.call(agent, world.values(routine, app, "ann"))) == "PM001", routine.signature
    session = unique("s")
    store(agent, "ann", session, [MESSAGES[0] | {"actor": "person"}, MESSAGES[1]])
    written = """select array_agg(distinct h.actor::text) from _memoir.conversation_history h
        join _memoir.sessions s using (user_id, session_id) where s.external_id = %s"""
    assert one(world.db, written, session) == ["agent"]
    word = "actor, provenance, trust > 0.9"
    claims = remembered(agent, "ann", "claims to be his word", provenance="user_stated")
    assert table(app, "list_memories", "ann", columns=word, limit=1) == [("agent", "system_inferred", False)], claims
    remember(person, "bob", "his word")
    assert table(app, "list_memories", "bob", columns=word, limit=1) == [("person", "user_stated", True)]


def test_a_tenant_does_not_move_its_cost_limit(world: World) -> None:
    limit = "budget_microcents_session"
    for key, value in ((limit, 0), ("budget_action", "warn"), (limit, None)):
        for login, state in (("ann", "PM001"), ("app", None)):
            db = world.connection(login)
            assert refusal(db, "open_session", "ann", unique("s"), settings={key: value}) == state
    call(world.connection("ann"), "open_session", "ann", unique("s"), settings={"recall_tokens_max": 500})


def test_set_role_from_a_pool(world: World) -> None:
    """A role that a login may become, but has not become, counts for nothing."""
    logins, name = world.logins, unique("t_pool")
    world.db.execute(f"create role {name} login noinherit in role {logins['ann']}, {logins['bob']}")
    with connect(user_of(world.dsn, name)) as pool:
        assert code(lambda: persist(pool, "ann", "pooled", "Hello")) == NO_RIGHT
        for role, own, other, actor in (("ann", "ann", "bob", "agent"), ("bob", "bob", "ann", "person")):
            for scope in ("local", "session"):
                with pool.transaction():
                    pool.execute(f"set {scope} role {logins[role]}")
                    remember(pool, own, unique("pooled"))
                    with pytest.raises(psycopg.Error, match=other), pool.transaction():
                        persist(pool, other, "pooled", "Hello")
                assert table(world.db, "list_memories", own, columns="actor", limit=1) == [(actor,)]
            pool.execute("reset role")
        assert code(lambda: persist(pool, "ann", "pooled", "Hello")) == NO_RIGHT
        for role in (logins["app"], "memoir_owner"):
            assert code(lambda: pool.execute(f"set role {role}")) == NO_RIGHT
    world.db.execute(f"drop role {name}")


def test_a_login_made_anew_is_not_bound(world: World) -> None:
    name = unique("t_again")
    world.db.execute(f"create role {name} login in role memoir_tenant")
    call(world.db, "bind_login", name, ["ann"])
    world.db.execute(f"drop role {name}")
    call(world.db, "unbind_login", name)
    world.db.execute(f"create role {name} login in role memoir_tenant")
    with connect(user_of(world.dsn, name)) as again:
        assert refusal(again, "recall", "ann", "fact") == "PM001"
    assert refusal(world.db, "unbind_login", name) == "PM014"
    assert refusal(world.db, "bind_login", "memoir_app", projects=["red"]) == "PM014"  # a group can't be bound
    world.db.execute(f"drop role {name}")


# Projects and clearance -----------------------------------------------------------------------------------------------


def test_projects_bound_a_tenant(world: World) -> None:
    """A tenant of project red, and things of the same user in project blue."""
    red, app, reached = world.connection("red"), world.connection("app"), []
    remember(app, "ann", "The vault code is 4711.", project="blue")
    for routine in tenants_routines(world):
        if routine.name.startswith("erase_"):
            continue
        project = {"p_project": "red"} if "p_project" in routine.arguments else {}

        def ours(routine: Routine = routine, project: dict[str, str] = project) -> dict[str, Any]:
            return world.values(routine, app, "ann", project="red") | project

        if routine.name == "query_answer":  # what a login with all projects asked is not for one with few
            assert code(lambda: routine.call(red, ours())) == "PM004"
        elif routine.name not in PERSONS:
            routine.call(red, ours())  # the positive control
        blue = world.values(routine, app, "ann", project="blue")
        for key in blue.keys() & {"p_session", "p_memory", "p_call"}:
            if code(lambda: routine.call(red, ours() | {key: blue[key]})) not in ("PM001", "PM003", "PM004"):
                reached.append((routine.name, key))
        if project:
            answer: list[Any] = []
            asked = {"p_project": "blue", "p_query": "vault code"}
            failed = code(lambda: answer.append(routine.call(red, ours() | asked)))
            if failed != "PM001" and ("reader" not in routine.roles or "4711" in str(answer)):
                reached.append((routine.name, "p_project"))
    assert reached == []
    asked = ("fresh", "What is the vault code?")
    for function, *arguments in (("recall", "vault code"), ("compile_context", *asked), ("explain_context", *asked)):
        assert "4711" in str(table(app, function, "ann", *arguments))
        assert "4711" not in str(table(red, function, "ann", *arguments))


def test_both_doors_take_the_first_project(world: World) -> None:
    """What names no project goes to the first that the login is bound to, by whatever door."""
    app = world.connection("app")
    for key in ("red", "both"):
        login, (opened, persisted, captured) = world.connection(key), (unique("s") for _ in range(3))
        call(login, "open_session", "ann", opened)
        store(login, "ann", persisted, MESSAGES)
        held = call(login, "capture_call", "ann", captured, b"x")
        assert len(table(login, "read_call", "ann", held)) == 1
        remember(login, "ann", unique("fact"))
        reds = {name for (name,) in table(app, "list_sessions", "ann", columns="session", project="red", limit=1000)}
        assert {opened, persisted} <= reds
        assert table(app, "list_memories", "ann", columns="project", limit=1) == [("red",)]
    # A call of no session is of no project.
    lone = call(app, "capture_call", "ann", unique("never opened"), b"vault")
    assert refusal(world.connection("red"), "read_call", "ann", lone) == "PM004"


def test_a_moved_session_changes_its_readers(world: World) -> None:
    """Turns move with their session. A memory keeps its project, and is found through its session no more."""
    app, red, both, session = *(world.connection(key) for key in ("app", "red", "both")), unique("s")
    call(app, "open_session", "ann", session, project="red")
    persist(app, "ann", session, "The parrot is named Quetzal.", "Nice.")
    remember(app, "ann", "Feeds the parrot papaya.", session=session)
    for project, readers in (("red", (red, both)), ("blue", (both,))):
        call(both, "open_session", "ann", session, project=project)
        for login in (red, both):
            assert ("Quetzal" in str(recalled(login, "ann", "parrot named"))) == (login in readers), project
        assert "papaya" in str(recalled(both, "ann", "parrot papaya", session=session)), project
    assert refusal(red, "recall", "ann", "parrot papaya", session) == "PM001"
    assert table(app, "list_memories", "ann", columns="project", limit=1) == [("red",)]


def test_a_kept_recall_is_for_the_same_bounds(world: World) -> None:
    """An exchange that one login has begun and another continues: the recall is made anew unless both may see the same."""
    app, session, query = world.connection("app"), unique("s"), "Where does the regatta start?"
    remember(app, "ann", "The regatta starts in Trieste.", project="blue", sensitivity="private")
    call(app, "open_session", "ann", session, project="red")
    assert "Trieste" in str(call(app, "compile_context", "ann", session, query))
    persist(app, "ann", session, query, *step(1, "look", {}, "nothing"), function="append_messages")
    for key, is_seen in (("admin", True), ("red", False), ("app", True), ("normal", False), ("app", True)):
        assert ("Trieste" in str(call(world.connection(key), "compile_context", "ann", session))) == is_seen


def test_clearance_bounds_what_is_shown(world: World) -> None:
    """A secret is shown by recall to a cleared login, and never goes to a model."""
    app = world.connection("app")
    remember(app, "ann", "The clinic is in Uppsala.", sensitivity="private")
    remember(app, "ann", "The clinic safe opens with 90125.", sensitivity="secret")
    asked = ("fresh", "Where is the clinic safe?")
    for function, *arguments in (("recall", "clinic safe"), ("explain_context", *asked), ("compile_context", *asked)):
        logins = {key: world.connection(key) for key in ("normal", "ann", "cleared")}
        told = {key: str(table(login, function, "ann", *arguments)) for key, login in logins.items()}
        assert "Uppsala" not in told["normal"] and "Uppsala" in told["ann"], function
        assert "90125" not in told["normal"] + told["ann"], function
        assert ("90125" in told["cleared"]) == (function == "recall"), function
    near = table(world.connection("normal"), "match_memories", "ann", embedding=[0.1] * 384, threshold=-1)
    assert "Uppsala" not in str(near)
    assert "90125" not in str(world.db.execute("select * from memoir.claim_embeddings(1000)").fetchall())


def test_a_group_role_does_not_free_a_login(world: World) -> None:
    """A member of memoir_app may become it, and keeps its namespace, projects, clearance and actor."""
    app = world.connection("app")
    remember(app, "ann", "The lighthouse is in Cadiz.", project="blue")
    for key, role in (("service", "memoir_app"), ("elsewhere", "memoir_app"), ("reading", "memoir_reader")):
        with world.login(key) as login:
            for _ in range(2):
                assert "Cadiz" not in str(recalled(login, "ann", "lighthouse"))
                if key == "service":
                    assert refusal(login, "remember", "ann", "x y z", actor="person") == "PM001"
                    assert refusal(login, "claim_embeddings") == "PM001"
                login.execute(f"set role {role}")
    assert "Cadiz" in str(recalled(app, "ann", "lighthouse"))


# What SQL itself offers -----------------------------------------------------------------------------------------------

FORBIDDEN = """
set role memoir_owner
set role memoir_admin
set session authorization postgres
alter role current_user superuser
grant memoir_admin to {ann}
create function memoir.f() returns integer language sql as 'select 1'
create table memoir.t ()
create or replace function memoir.now() returns timestamptz language sql as 'select null'
drop function memoir.now()
copy (select * from _memoir.memory_store) to stdout
create trigger t before insert on _memoir.users execute function suppress_redundant_updates_trigger()
alter table _memoir.users disable row level security
select pg_read_file('PG_VERSION')
set session_replication_role = replica
create function pg_temp.g() returns integer language sql set role = 'memoir_admin' as 'select 1'
select memoir.bind_login(current_user, array['bob'])
select _memoir.authorise('bob', 'read')
"""


def test_a_tenant_cannot_become_more(world: World) -> None:
    """Roles, objects of its own and settings of a session free no tenant."""
    with world.login("ann") as ann:
        for line in FORBIDDEN.strip().splitlines():
            statement = line.replace("{ann}", world.logins["ann"]).replace("{bob}", world.logins["bob"])
            assert code(lambda: ann.execute(statement)) in (NO_RIGHT, "PM001"), statement
        # The clock is the install's, whatever the session says.
        for name in ("memoir.clock", "memoir.now", "test.clock"):
            ann.execute("select set_config(%s, '2031-01-01T00:00:00Z', false)", [name])
        assert one(ann, "select memoir.now() = pg_catalog.now()")
        # Types and operators of its own change nothing for a function that it calls.
        ann.execute(
            "create function pg_temp.eq(uuid, uuid) returns boolean language sql as 'select true'; "
            "create operator pg_temp.= (leftarg = uuid, rightarg = uuid, function = pg_temp.eq);"
            "set search_path = pg_temp, memoir, pg_catalog"
        )
        assert refusal(ann, "history", "bob", "s") == "PM001"
        assert "Zanzibar" not in str(recalled(ann, "ann", "Zanzibar"))


# Domains under the names of PostgreSQL's own types.
HOSTILE_TYPES = """
    create schema types; grant usage on schema types to public;
    create function types.trap() returns boolean language plpgsql as $$ begin raise exception 'something hostile ran' using errcode = 'HT000'; end $$;
    do $$ declare v text; begin
      foreach v in array '{text,uuid,jsonb,name,bool,int4,int8,timestamptz,date,float4,regclass,bytea,interval,numeric}'::text[] loop
        execute format('create domain types.%I as pg_catalog.text check (types.trap())', v);
        execute format('create function types.cast_%s(pg_catalog.%I) returns types.%I language plpgsql as ''begin perform types.trap(); return null; end''', v, v, v);
      end loop;
    end $$"""


def test_types_of_a_hostile_schema_change_nothing(world: World) -> None:
    """For functions, and for procedures that commit."""
    world.db.execute(HOSTILE_TYPES)
    path = {"options": "-csearch_path=types,pg_catalog,memoir"}
    with world.login("jobs", **path) as jobs, world.login("app", **path) as app:
        assert code(lambda: jobs.execute("do 'declare v uuid; begin v := gen_random_uuid(); end'")) == "HT000"
        for job in ("merge", "flush", "partitions", "sweep", "hygiene"):
            jobs.execute(f"call memoir.run_job('{job}')")
        jobs.execute("call memoir.ensure_partitions(0)")
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
    lists = [[payload], [said], [said | {"role": payload}]]
    values = [payload, {payload: payload}, {"recall_tokens_max": payload}, *lists]
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
            texts = ("text", "name", "text[]", "jsonb")
            kinds = {name: kind for name, kind in routine.arguments.items() if kind in texts}
            if not kinds or routine.name in {"fail", "ensure_embedder"}:
                continue
            values = world.values(routine, admin, "mallory")
            wrong = ((n, v) for n, k in kinds.items() for payload in INJECTIONS for v in shapes_of(k, payload))
            for name, value in wrong:
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
