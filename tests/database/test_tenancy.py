"""Whatever a tenant passes to a function, it reaches its own users, projects and clearance. Generated where the catalogue can say it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from calls import read_turns
from psycopg.types.json import Jsonb
from routines import MESSAGES, Routine, all_routines, code, values_for
from rows import tables_with_users
from servers import add_python, complete, connect, database, roles, unique, user_of

NO_RIGHT = "42501"
# Arguments that name something of a user ...
NAMES_SOMETHING = {
    "p_user",
    "p_session",
    "p_new_session",
    "p_parent",
    "p_memory",
    "p_other",
    "p_call",
    "p_compaction",
    "p_compile",
    "p_report",
    "p_change",
    "p_id",
    "p_ids",
    "p_object",
    "p_query_id",
    "p_objects",
    "p_after_memory",
    "p_after_session",
}
# ... and those that name nothing, or something within what those name (a turn, a key of the user).
NAMES_NOTHING = set(
    """
    p_actor p_after p_after_turn p_after_user p_aliases p_arguments p_as_of p_at_turn p_before p_budget p_category p_confidence p_content p_created_at p_embeddable p_embedding p_event_times p_events
    p_format p_from_turn p_hops p_importance p_key p_kinds p_latency_ms p_limit p_memory_budget p_messages p_metadata p_minutes p_model p_name p_preview p_project p_provenance p_provider p_query
    p_lifted p_lines_after p_lines_before p_names p_relation p_remainder p_temperature p_top_p p_context_window p_dry_run p_response_tokens p_turns p_undone p_weight
    p_annotations p_query_embedding p_query_parts p_reason p_request p_request_headers p_response p_response_headers p_sensitivity p_settings p_slot p_slot_value p_source_key p_source_tool
    p_source_turns p_started_at p_states p_status p_system_prompt p_tags p_target_tokens p_task p_text p_threshold p_to_turn p_tools p_turn p_type p_types p_usage p_used p_valid_at
    p_valid_from p_valid_to p_chains p_profile_version p_shown_from p_after_item
    p_conditions p_count p_depth p_documents p_filter p_items p_keys p_namespace p_offset p_refresh p_with_retracted
    p_answer p_question p_max_tokens p_scope p_changed p_lines p_said""".split()
)
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


@dataclass
class World:
    dsn: str
    logins: dict[str, str]
    routines: list[Routine]
    db: psycopg.Connection  # a superuser's

    def login(self, key: str, **parameters: str) -> psycopg.Connection:
        return connect(user_of(self.dsn, self.logins[key]), **parameters)

    def id_of(self, user: str) -> str:
        return str(self.db.execute("select user_id from _memoir.users where external_id = %s", [user]).fetchone()[0])


@pytest.fixture(scope="module")
def world(server_dsn: str) -> Iterator[World]:
    with database(server_dsn) as dsn:
        complete(dsn, 2)
        add_python(dsn)
        with (
            roles(
                dsn,
                ann="login in role memoir_tenant",
                bob="login in role memoir_tenant",
                red="login in role memoir_tenant",
                both="login in role memoir_tenant",
                normal="login in role memoir_tenant",
                app="login in role memoir_app",
                jobs="login in role memoir_jobs",
                admin="login in role memoir_admin",
            ) as logins,
            connect(dsn) as db,
        ):
            bind = "select memoir.bind_login(%s, %s, %s, %s, p_clearance => %s)"
            for login, users, actor, projects, clearance in (
                ("ann", ["ann"], "agent", None, "private"),
                ("bob", ["bob"], "person", None, "private"),
                ("red", ["ann"], "agent", ["red"], "private"),
                ("both", ["ann"], "agent", ["red", "blue"], "private"),
                ("normal", ["ann"], "agent", None, "normal"),
            ):
                db.execute(bind, [logins[login], users, actor, projects, clearance])
            routines = [r for r in all_routines(db).values() if "tenant" in r.roles and "p_user" in r.arguments]
            yield World(dsn, logins, routines, db)


# Ids ------------------------------------------------------------------------------------------------------------------


def rows_of(world: World, user_id: str) -> dict[str, Any]:
    return {
        table: world.db.execute(
            f"select count(*), md5(string_agg(t::text, chr(10) order by t::text)) from _memoir.{table} t where user_id = %s",
            [user_id],
        ).fetchone()
        for table in tables_with_users(world.db)
    }


def test_no_id_reaches_somebody_else(world: World) -> None:
    """As Ann with the names and ids of Bob's sessions, memories, calls and summaries, one argument at a time."""
    assert len(world.routines) > 20
    unknown = {name for routine in world.routines for name in routine.arguments} - NAMES_SOMETHING - NAMES_NOTHING
    assert not unknown, f"does {unknown} name something of a user? tests/database/test_tenancy.py needs to know"
    shown, controls = [], 0
    with world.login("ann") as ann, world.login("bob") as bob, world.login("app") as app:
        bobs_memory = app.execute(
            "select memoir.remember('bob', 'The safe of Zanzibar opens with 4711.') ->> 'memory_id'"
        ).fetchone()[0]
        prepared = []
        for routine in world.routines:
            theirs = values_for(routine, app, "bob")
            session = theirs.get("p_session") or unique("s")
            app.execute(
                "select memoir.persist_turn('bob', %s, %s)",
                [
                    session,
                    Jsonb([{"role": "user", "content": "Zanzibar it is."}, {"role": "assistant", "content": "Yes."}]),
                ],
            )
            if "p_memory" in routine.arguments:
                theirs["p_memory"] = app.execute("select memoir.remember('bob', %s)", [unique("Zanzibar")]).fetchone()[
                    0
                ]["memory_id"]
            if "p_id" in routine.arguments or "p_ids" in routine.arguments:
                theirs["p_id"] = app.execute("select memoir.remember('bob', %s)", [unique("Zanzibar")]).fetchone()[0][
                    "memory_id"
                ]
                theirs["p_ids"] = [theirs["p_id"]]
            if "p_other" in routine.arguments:
                theirs["p_other"] = app.execute("select memoir.remember('bob', %s)", [unique("Zanzibar")]).fetchone()[
                    0
                ]["memory_id"]
            if "p_parent" in routine.arguments:
                theirs["p_parent"] = values_for(routine, app, "bob")["p_session"]
            prepared.append((routine, theirs, values_for(routine, app, "ann"), session))
        bobs = world.id_of("bob")
        ids = {
            str(uuid)
            for (uuid,) in world.db.execute(
                """select session_id from _memoir.sessions where user_id = %(u)s union select memory_id from _memoir.memory_store where user_id = %(u)s
            union select message_id from _memoir.conversation_history where user_id = %(u)s union select call_id from _memoir.api_calls where user_id = %(u)s""",
                {"u": bobs},
            )
        } | {bobs}
        before, given = rows_of(world, bobs), set()
        for routine, theirs, own, session in prepared:
            # By name, and by the id that the name stands for.
            [session_id] = world.db.execute(
                "select session_id::text from _memoir.sessions where user_id = %s and external_id = %s", [bobs, session]
            ).fetchone()
            for name in sorted(NAMES_SOMETHING & routine.arguments.keys()):
                foreign = {
                    "p_user": ["bob", bobs],
                    "p_memory": [theirs.get("p_memory")],
                    "p_call": [theirs.get("p_call")],
                    "p_compaction": [theirs.get("p_compaction")],
                    "p_parent": [theirs.get("p_parent")],
                    "p_compile": [theirs.get("p_compile")],
                    "p_other": [theirs.get("p_other")],
                    "p_report": [theirs.get("p_report")],
                    "p_id": [theirs.get("p_id")],
                    "p_ids": [theirs.get("p_ids")],
                    "p_object": [theirs.get("p_object")],
                    "p_objects": [theirs.get("p_objects")],
                    "p_change": [theirs.get("p_change")],
                    "p_query_id": [theirs.get("p_query_id")],
                    "p_after_memory": [theirs.get("p_memory") or bobs_memory],
                }
                for value in foreign.get(name, [session, session_id]):
                    answer: list[Any] = []
                    failed = code(lambda: answer.append(routine.call(ann, {**own, name: value})))
                    if name == "p_user":
                        assert failed == "PM001", routine.signature
                    elif name in (
                        "p_memory",
                        "p_other",
                        "p_call",
                        "p_compaction",
                        "p_compile",
                        "p_id",
                        "p_query_id",
                        "p_after_memory",
                        "p_after_session",
                    ) and not (  # fmt: skip
                        failed or ""
                    ).startswith("PM00"):
                        shown.append((routine.name, name, failed))
                    told = str(answer)
                    given.add(str(value))  # may be told again: it is the name of something of her own now
                    if (
                        failed
                        and not failed.startswith("PM")
                        or "Zanzibar" in told
                        or (set(UUID.findall(told)) - given) & ids
                    ):
                        shown.append((routine.name, name, value, failed))
        assert shown == []
        assert rows_of(world, bobs) == before
        seen = 0
        # The positive control: Bob's own ids are good for Bob. What takes something from other calls goes last.
        for routine, theirs, _, _ in sorted(
            prepared, key=lambda each: (each[0].name.startswith(("mark", "erase")), each[0].name == "erase_user")
        ):
            if "p_query" in routine.arguments:
                theirs["p_query"] = "Zanzibar?"
            seen += "Zanzibar" in str(routine.call(bob, theirs))
            controls += 1
        assert controls == len(world.routines) and seen >= 5


def test_nothing_of_one_user_names_another(world: World) -> None:
    """Two users with the same words, and every job run over both: no row, derived ones included, holds an id of the other's."""
    vectors = {"a": [0.1] * 384, "b": [0.1] * 383 + [0.2]}
    with world.login("jobs") as jobs, world.login("app") as app:
        for user in ("twin-one", "twin-two"):
            for session in ("s", "t"):
                app.execute("select memoir.persist_turn(%s, %s, %s)", [user, session, Jsonb(MESSAGES * 10)])
            for text, vector in (
                ("My cat is called Ximena.", "a"),
                ("My cat is called Ximena indeed.", "b"),
                ("My dog is called Rex.", "b"),
            ):
                app.execute("select memoir.remember(%s, %s, p_embedding => %s::real[])", [user, text, vectors[vector]])
            app.execute("select memoir.capture_call(%s, 's', 'x')", [user])
            for _ in range(2):
                app.execute("select memoir.compile_context(%s, 'u', 'What is my cat called?')", [user])
            app.execute("select memoir.remember(%s, %s)", [user, f"only {user}"])
        read_turns(jobs)
        claimed = jobs.execute("select user_id::text, item_no, text from memoir.claim_embeddings(1000)").fetchall()
        of = {world.id_of(user): user for user in ("twin-one", "twin-two")}
        other = {"twin-one": "twin-two", "twin-two": "twin-one"}
        assert {user for user, _, _ in claimed} >= set(of)
        for user, _, text in claimed:
            assert user not in of or other[of[user]] not in text
        mine = [(user, item) for user, item, _ in claimed if user in of]
        jobs.execute(
            "select memoir.store_embeddings(%s::uuid[], %s::integer[], %s::real[])",
            [[u for u, _ in mine], [i for _, i in mine], [0.1] * (384 * len(mine))],
        )
        world.db.execute("select memoir.set_setting('tail_items_max', '16')")
        ran = [
            job
            for (job,) in world.db.execute(
                "select job from _memoir.job_list() where not in_python and job <> 'embedder'"
            )
        ]
        assert {"merge", "flush"} <= set(ran)
        for job in ran:
            jobs.execute("call memoir.run_job(%s)", [job])
        assert world.db.execute("select count(*) from _memoir.job_runs where outcome <> 'done'").fetchone() == (0,)
        assert world.db.execute(
            "select count(distinct user_id) from _memoir.search_postings where user_id = any (%s)", [list(of)]
        ).fetchone() == (2,)
        assert world.db.execute(
            "select count(distinct user_id) from _memoir.memory_store where superseded_by is not null and user_id = any (%s)",
            [list(of)],
        ).fetchone() == (2,)
    owner: dict[str, str] = {}
    for column, table in (
        ("session_id", "sessions"),
        ("memory_id", "memory_store"),
        ("message_id", "conversation_history"),
        ("call_id", "api_calls"),
        ("user_id", "users"),
        ("compile_id", "compile_ledger"),
    ):
        owner |= dict(world.db.execute(f"select {column}::text, user_id::text from _memoir.{table}").fetchall())
    mixed, read = set(), 0
    for table in set(tables_with_users(world.db)) - {"login_users"}:
        for user, row in world.db.execute(
            f"select user_id::text, (to_jsonb(t) - 'external_id')::text from _memoir.{table} t where user_id is not null"
        ):
            for uuid in UUID.findall(row):
                read += 1
                if owner.get(uuid, user) != user:
                    mixed.add((table, uuid))
    assert read > 500 and mixed == set()
    # Item numbers say nothing of whose they are: words do.
    for user, name in of.items():
        words = (
            world.db.execute(
                "select string_agg(coalesce(words::text, key), ' ') from _memoir.search_postings where user_id = %s",
                [user],
            ).fetchone()[0]
            or ""
        )
        tail = (
            world.db.execute(
                "select string_agg(words::text, ' ') from _memoir.search_tail where user_id = %s", [user]
            ).fetchone()[0]
            or ""
        )
        assert name.split("-")[1] in words + tail and other[name].split("-")[1] not in words + tail


# Projects and clearance -----------------------------------------------------------------------------------------------


def test_projects_hide_sessions(world: World) -> None:
    with world.login("red") as red, world.login("app") as app:
        app.execute(
            "select memoir.open_session('ann', 'blue one', p_project => 'blue', p_settings => '{\"recall_tokens_max\": 321}')"
        )
        app.execute(
            "select memoir.persist_turn('ann', 'blue one', %s)",
            [Jsonb([{"role": "user", "content": "The vault is in Genoa."}, {"role": "assistant", "content": "Yes."}])],
        )
        app.execute("select memoir.open_session('ann', 'red one', p_project => 'red')")
        refused = {"PM001", "PM003"}
        for call in (
            "history('ann', {})",
            "session_info('ann', {})",
            "close_session('ann', {})",
            "branch_session('ann', {}, 'new')",
            "recall('ann', 'vault', p_session => {})",
            "compile_context('ann', {}, 'vault?')",
            "context('ann', {}, 'vault?')",
            "explain_context('ann', {}, 'vault?')",
            "open_session('ann', {}, p_task => 'knowledge')",
            'persist_turn(\'ann\', {}, \'[{{"role": "user", "content": "a"}}]\')',
            "remember('ann', 'a fact', p_session => {})",
            "capture_call('ann', {}, 'x')",
            "set_working_memory('ann', {}, 'note', 'text')",
            "open_session('ann', 'red child', p_parent => {})",
        ):
            with pytest.raises(psycopg.Error) as error:
                red.execute(f"select memoir.{call.format(repr('blue one'))}")
            assert error.value.sqlstate in refused, call
            assert "blue" not in str(error.value).replace("blue one", ""), call  # nor which project it is
            red.execute(f"select memoir.{call.format(repr('red one'))}") if "close" not in call else None
        for query in (
            "compile_context('ann', 'red one', 'Where is the vault?')",
            "explain_context('ann', 'red one', 'Where is the vault?')",
            "recall('ann', 'vault Genoa')",
        ):
            assert "Genoa" not in str(red.execute(f"select memoir.{query}").fetchall())
            assert "Genoa" in str(app.execute(f"select memoir.{query}").fetchall())


def test_both_doors_take_the_first_project(world: World) -> None:
    """What names no project goes to the first that the login is bound to, by whatever door."""
    with world.login("red") as red, world.login("both") as both:
        for login, project in ((red, "red"), (both, "red")):
            session = unique("s")
            login.execute("select memoir.open_session('ann', %s)", [session])
            memory = login.execute("select memoir.remember('ann', %s)", [unique("fact")]).fetchone()[0]["memory_id"]
            persisted = unique("s")
            login.execute("select memoir.persist_turn('ann', %s, %s)", [persisted, Jsonb(MESSAGES)])
            captured = unique("s")
            call = login.execute("select memoir.capture_call('ann', %s, 'x')", [captured]).fetchone()[0]
            assert login.execute("select count(*) from memoir.read_call('ann', %s)", [call]).fetchone() == (1,)
            assert (
                world.db.execute(
                    "select project from _memoir.sessions where external_id = any (%s)",
                    [[session, persisted, captured]],
                ).fetchall()
                == [(project,)] * 3
            )
            assert world.db.execute(
                "select project from _memoir.memory_store where memory_id = %s", [memory]
            ).fetchone() == (project,)


def test_a_call_of_no_session_is_of_no_project(world: World) -> None:
    with world.login("red") as red, world.login("app") as app:
        call = app.execute("select memoir.capture_call('ann', %s, 'vault')", [unique("never opened")]).fetchone()[0]
        assert app.execute("select count(*) from memoir.read_call('ann', %s)", [call]).fetchone() == (1,)
        assert code(lambda: red.execute("select * from memoir.read_call('ann', %s)", [call])) == "PM004"


def test_a_kept_recall_is_for_the_same_bounds(world: World) -> None:
    """An exchange that one login has begun and another continues: the recall is made anew unless both may see the same."""
    with world.login("red") as red, world.login("app") as app, world.login("admin") as admin:
        session = unique("s")
        app.execute("select memoir.remember('ann', 'The regatta starts in Trieste.', p_project => 'blue')")
        app.execute("select memoir.open_session('ann', %s, p_project => 'red')", [session])
        query = "Where does the regatta start?"
        assert "Trieste" in str(
            app.execute("select memoir.compile_context('ann', %s, %s)", [session, query]).fetchone()
        )
        call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        app.execute(
            "select memoir.append_messages('ann', %s, %s)",
            [
                session,
                Jsonb(
                    [
                        {"role": "user", "content": query},
                        {"role": "assistant", "content": None, "tool_calls": [call]},
                        {"role": "tool", "tool_call_id": "c1", "content": "nothing"},
                    ]
                ),
            ],
        )
        assert "Trieste" in str(
            admin.execute("select memoir.compile_context('ann', %s)", [session]).fetchone()
        )  # the same bounds: kept
        assert "Trieste" not in str(red.execute("select memoir.compile_context('ann', %s)", [session]).fetchone())
        assert "Trieste" in str(app.execute("select memoir.compile_context('ann', %s)", [session]).fetchone())


def test_a_session_moves_with_what_was_said(world: World) -> None:
    with world.login("red") as red, world.login("both") as both, world.login("app") as app:
        session = unique("s")
        app.execute("select memoir.open_session('ann', %s, p_project => 'red')", [session])
        app.execute(
            "select memoir.persist_turn('ann', %s, %s)",
            [
                session,
                Jsonb(
                    [
                        {"role": "user", "content": "The parrot is named Quetzal."},
                        {"role": "assistant", "content": "Nice."},
                    ]
                ),
            ],
        )
        assert "Quetzal" in str(red.execute("select * from memoir.recall('ann', 'parrot named')").fetchall())
        both.execute("select memoir.open_session('ann', %s, p_project => 'blue')", [session])
        assert "Quetzal" not in str(red.execute("select * from memoir.recall('ann', 'parrot named')").fetchall())
        assert "Quetzal" in str(both.execute("select * from memoir.recall('ann', 'parrot named')").fetchall())


def test_clearance_bounds_explanations(world: World) -> None:
    with world.login("normal") as normal, world.login("ann") as ann, world.login("app") as app:
        app.execute("select memoir.remember('ann', 'The clinic is in Uppsala.', p_sensitivity => 'private')")
        for query in (
            "recall('ann', 'clinic')",
            "explain_context('ann', 'fresh', 'Where is the clinic?')",
            "compile_context('ann', 'fresh', 'Where is the clinic?')",
            "match_memories('ann', array_fill(0.1::real, array[384]), -1)",
        ):
            assert "Uppsala" not in str(normal.execute(f"select memoir.{query}").fetchall()), query
            if "match" not in query:
                assert "Uppsala" in str(ann.execute(f"select memoir.{query}").fetchall()), query


def test_a_group_role_does_not_free_a_login(world: World) -> None:
    """Who is a member of memoir_app may become it, and keeps its namespace, projects, clearance and actor."""
    with (
        roles(
            world.dsn,
            service="login in role memoir_app",
            foreign="login in role memoir_app",
            reading="login in role memoir_reader",
        ) as names,
        world.login("app") as app,
    ):
        world.db.execute(
            "select memoir.bind_login(%s, p_projects => '{red}', p_actor => 'agent', p_clearance => 'normal')",
            [names["service"]],
        )
        world.db.execute("select memoir.bind_login(%s, p_namespace => 'elsewhere')", [names["foreign"]])
        world.db.execute("select memoir.bind_login(%s, p_projects => '{red}')", [names["reading"]])
        app.execute("select memoir.remember('ann', 'The lighthouse is in Cadiz.', p_project => 'blue')")
        for key, role in (("service", "memoir_app"), ("foreign", "memoir_app"), ("reading", "memoir_reader")):
            with connect(user_of(world.dsn, names[key])) as login:
                for _ in range(2):
                    assert "Cadiz" not in str(
                        login.execute("select * from memoir.recall('ann', 'lighthouse')").fetchall()
                    )
                    if key == "service":
                        assert (
                            code(lambda: login.execute("select memoir.remember('ann', 'x y z', p_actor => 'person')"))
                            == "PM001"
                        )
                        assert code(lambda: login.execute("select * from memoir.claim_embeddings()")) == "PM001"
                    assert login.execute("select _memoir.bound_projects()").fetchone() == (
                        None if key == "foreign" else ["red"],
                    )
                    login.execute(f"set role {role}")
        assert "Cadiz" in str(app.execute("select * from memoir.recall('ann', 'lighthouse')").fetchall())
        # A role that is bound itself has its own bounds, and the groups can't be bound.
        assert (
            code(lambda: world.db.execute("select memoir.bind_login('memoir_app', p_projects => '{red}')")) == "PM014"
        )
        for key in ("service", "foreign", "reading"):
            world.db.execute("select memoir.unbind_login(%s)", [names[key]])


# A hostile session ----------------------------------------------------------------------------------------------------


def test_settings_of_a_session_change_no_function(world: World) -> None:
    """What a backslash means decides what the patterns of a function match, from its first call in a session on."""
    with (
        world.login(
            "ann",
            options="-cstandard_conforming_strings=off -crow_security=off -cjit=on -cescape_string_warning=off -cbackslash_quote=on",
        ) as odd,
        world.login("app") as app,
    ):
        # Also through functions that are only passed through, before any other is used.
        text = "Fence [a] \t 12/34 naïve \\ ünïcode 😀"
        assert (
            odd.execute("select memoir.estimate_tokens(%s), memoir.max_tokens(%s)", [text, text]).fetchone()
            == app.execute("select memoir.estimate_tokens(%s), memoir.max_tokens(%s)", [text, text]).fetchone()
        )
        memory = app.execute("select memoir.remember('ann', 'My  old\u200b code is\t99-XY.')").fetchone()[0][
            "memory_id"
        ]
        app.execute("select memoir.forget('ann', %s)", [memory])
        for login in (app, odd):
            for again in ("My old code is 99-XY.", "my OLD  code is 99-xy."):
                assert (
                    login.execute("select memoir.remember('ann', %s)", [again]).fetchone()[0]["outcome"]
                    == "refused_tombstone"
                )
        for statement in (
            "select memoir.open_session('ann', 'cost', p_settings => '{\"budget_microcents_session\": 0}')",
            "select memoir.compile_context('ann', 'x', ' \u00a0 ')",
        ):
            assert code(lambda: odd.execute(statement)) == code(lambda: app.execute(statement)) or "budget" in statement
        assert (
            code(
                lambda: odd.execute(
                    "select memoir.open_session('ann', 'cost', p_settings => '{\"budget_microcents_session\": 0}')"
                )
            )
            == "PM001"
        )
    definers = world.db.execute("""select p.proname from pg_proc p where pronamespace in ('memoir'::regnamespace, '_memoir'::regnamespace) and prosecdef
                                   and not proconfig @> '{standard_conforming_strings=on,row_security=on,jit=off}'""").fetchall()
    assert definers == []
    # Without these settings runs only what reads no table by itself.
    readers = world.db.execute(r"""
        select p.proname, c.relname from pg_proc p join pg_class c on c.relkind in ('r', 'p') and not c.relispartition
          and p.prosrc ~ ('\m(from|join|into|update|only)\s+_memoir\.' || c.relname || '\M')
        where p.pronamespace = 'memoir'::regnamespace and not p.prosecdef and c.relnamespace = '_memoir'::regnamespace""")
    assert readers.fetchall() == []


def test_a_tenant_cannot_become_more(world: World) -> None:
    """What SQL itself offers to somebody with a connection."""
    with world.login("ann") as ann:
        for statement in (
            "set role memoir_owner",
            "set role memoir_admin",
            "set role postgres",
            f"set role {world.logins['bob']}",
            "set session authorization postgres",
            f"set session authorization {world.logins['bob']}",
            "select set_config('role', 'memoir_admin', false)",
            "select set_config('session_authorization', 'postgres', false)",
            "alter role current_user superuser",
            f"grant memoir_admin to {world.logins['ann']}",
            "create function memoir.f() returns integer language sql as 'select 1'",
            "create table memoir.t ()",
            "create view memoir.v as select 1",
            "create type memoir.t as (a integer)",
            "create operator memoir.= (leftarg = text, rightarg = text, function = texteq)",
            "alter function memoir.now() owner to current_user",
            "create or replace function memoir.now() returns timestamptz language sql as 'select null'",
            "drop function memoir.now()",
            "comment on schema memoir is 'mine'",
            "alter schema memoir rename to yours",
            "do $$ begin lock table _memoir.users; end $$",
            "truncate _memoir.users",
            "copy _memoir.memory_store to stdout",
            "copy (select * from _memoir.memory_store) to stdout",
            "copy _memoir.memory_store from stdin",
            "select * from _memoir.settings",
            "select * from _memoir.login_users",
            "select nextval('_memoir.work_items_work_id_seq')",
            "select last_value from _memoir.work_items_work_id_seq",
            "do $$ begin perform content from _memoir.memory_store; end $$",
            "create rule r as on select to _memoir.users do instead select 1",
            "create trigger t before insert on _memoir.users execute function suppress_redundant_updates_trigger()",
            "create policy p on _memoir.users using (true)",
            "alter table _memoir.users disable row level security",
            "create index on _memoir.users (namespace)",
            "select pg_read_file('PG_VERSION')",
            "select lo_import('/etc/passwd')",
            "select pg_reload_conf()",
            "load 'auto_explain'",
            "set session_replication_role = replica",
            "set log_statement = 'all'",
            "prepare p as select * from _memoir.users; execute p",
            "explain analyze select * from _memoir.users",
            "create table public.t ()",
            "select memoir.set_clock(now())",
            "select memoir.set_setting('clock', '\"2030-01-01T00:00:00Z\"')",
            "select memoir.bind_login(current_user, array['bob'])",
            "select _memoir.authorise('bob', 'read')",
            "select _memoir.add_items(null, null, null, null, null)",
            "select _memoir.user_id('default', 'bob')",
            "select * from memoir.claim_embeddings()",
            "call memoir.run_job('flush')",
            "call memoir.merge_search()",
            "call memoir.ensure_partitions()",
        ):
            refused = code(lambda: ann.execute(statement))
            assert refused in (NO_RIGHT, "PM001", "42704" if "role" in statement else NO_RIGHT), (statement, refused)
        # The clock is the install's, whatever the session says.
        for name in ("memoir.clock", "memoir.now", "test.clock", "memoir.user_id"):
            ann.execute("select set_config(%s, '2031-01-01T00:00:00Z', false)", [name])
        assert ann.execute("select memoir.now() = pg_catalog.now()").fetchone() == (True,)
        # A role that is the default of one's next session is asked for as well.
        ann.execute(
            "alter role current_user in database " + str(ann.info.dbname) + " set role = 'memoir_admin'"
        ) if not code(lambda: ann.execute("alter role current_user set role = 'memoir_admin'")) else None
        with world.login("ann") as later:
            assert later.execute("select _memoir.login()").fetchone() == (world.logins["ann"],)
        # Functions of its own that set the role are asked for the right to it when they run.
        assert (
            code(
                lambda: ann.execute(
                    "create function pg_temp.f() returns integer language sql set role = 'memoir_admin' as 'select 1'"
                )
            )
            == NO_RIGHT
        )
        # Types and operators of its own change nothing for a function that it calls.
        ann.execute(
            "create function pg_temp.eq(uuid, uuid) returns boolean language sql as 'select true'; "
            "create operator pg_temp.= (leftarg = uuid, rightarg = uuid, function = pg_temp.eq); set search_path = pg_temp, memoir, pg_catalog"
        )
        assert code(lambda: ann.execute("select memoir.history('bob', 's')")) == "PM001"
        assert "Zanzibar" not in str(ann.execute("select * from memoir.recall('ann', 'Zanzibar')").fetchall())


def test_errors_name_nothing_of_others(world: World) -> None:
    """A refusal says what was asked, and the same whether it exists or not."""
    with world.login("ann") as ann:

        def refusal(user: str, session: str) -> str:
            with pytest.raises(psycopg.Error) as error:
                ann.execute("select memoir.history(%s, %s)", [user, session])
            return (
                str(error.value.diag.message_primary).replace(user, "?")
                + str(error.value.diag.message_detail)
                + str(error.value.diag.context)
            )

        with world.login("app") as app:
            app.execute("select memoir.persist_turn('bob', 'known', %s)", [Jsonb(MESSAGES)])
        assert refusal("bob", "known") == refusal("bob", "unknown") == refusal("nobody", "unknown")


HOSTILE_TYPES = """
    create schema hostile; grant usage on schema hostile to public;
    create function hostile.trap() returns boolean language plpgsql as $$ begin raise exception 'something hostile ran' using errcode = 'HT000'; end $$;
    do $$ declare v text; begin
      foreach v in array '{text,uuid,jsonb,name,bool,int4,int8,timestamptz,date,float4,float8,regclass,bytea,interval,numeric}'::text[] loop
        execute format('create domain hostile.%I as pg_catalog.text check (hostile.trap())', v);
        execute format('create function hostile.cast_%s(pg_catalog.%I) returns hostile.%I language plpgsql as ''begin perform hostile.trap(); return null; end''', v, v, v);
      end loop;
    end $$"""


def test_types_of_a_hostile_schema_change_nothing(world: World) -> None:
    """Domains under the names of PostgreSQL's own types, ahead on the path: for functions, and for procedures that commit."""
    world.db.execute(HOSTILE_TYPES)
    path = {"options": "-csearch_path=hostile,pg_catalog,memoir"}
    with world.login("jobs", **path) as jobs, world.login("admin", **path) as admin, world.login("ann", **path) as ann:
        assert (
            code(lambda: jobs.execute("do 'declare v uuid; begin v := gen_random_uuid(); end'")) == "HT000"
        )  # the trap does snap
        for job in ("merge", "flush", "partitions", "sweep", "hygiene"):
            jobs.execute(f"call memoir.run_job('{job}')")
        for call in ("merge_search()", "flush_statistics()", "ensure_partitions(0)"):
            jobs.execute(f"call memoir.{call}")
        assert code(lambda: admin.execute("call memoir.enable_jobs()")) in (None, "PM050")
        admin.execute("call memoir.disable_jobs()")
        ann.execute(
            'select memoir.persist_turn(\'ann\', \'typed\', \'[{"role": "user", "content": "My ferret is called Otto."}, {"role": "assistant", "content": "Yes."}]\')'
        )
        assert "Otto" in str(
            ann.execute("select memoir.compile_context('ann', 'other', 'What is my ferret called?')").fetchall()
        )
