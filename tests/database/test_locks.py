"""No tenant stands in another's way: with every lock taken that a login can take, another user's calls and all jobs go on."""

from collections.abc import Iterator

import psycopg
import pytest
from internals import last_run, user_id
from psycopg.types.json import Jsonb
from routines import MESSAGES, World, code, values_for, world_of
from servers import ARTIFACT, add_python, apply, complete, database, unique


@pytest.fixture(scope="module")
def world(server_dsn: str) -> Iterator[World]:
    tenant = {"role": "tenant", "actor": "person"}
    with database(server_dsn) as dsn:
        complete(dsn, 2)
        add_python(dsn)
        ann, bob = (tenant | {"users": [user]} for user in ("ann", "bob"))
        with world_of(dsn, ann=ann, bob=bob, app="app", jobs="jobs") as world:
            yield world


PROMPT = "You are the assistant of a shop that many tenants run."
MODES = (
    "access share", "row share", "row exclusive", "share update exclusive", "share", "share row exclusive", "exclusive",
    "access exclusive",
)  # fmt: skip


def hold_all_that_can_be(world: World, ann: psycopg.Connection) -> int:
    """In one open transaction: every call for ann, every lock on a relation, and the advisory locks of anything with a name."""
    with world.login("app") as app:
        # All but the one which ends the login's binding.
        routines = [r for r in world.of_role("tenant") if r.kind == "f" and r.name != "erase_user"]
        calls = [(r, values_for(r, app, "ann", login=world.logins["ann"])) for r in routines]
    ann.execute("begin")
    calls.sort(key=lambda call: call[0].name.startswith("erase"))  # what takes everything away comes last
    done = 0
    for routine, values in calls:

        def call(routine=routine, values=values) -> None:
            with ann.transaction():
                routine.call(ann, values)

        done += code(call) is None
    ann.execute("select memoir.open_session('ann', %s, p_system_prompt => %s)", [unique("s"), PROMPT])
    ann.execute("select memoir.persist_turn('ann', %s, %s)", [unique("s"), Jsonb(MESSAGES)])
    relations = """select oid::regclass::text from pg_class where not relispartition and relkind in ('r', 'p', 'v')
        and relnamespace in ('memoir'::regnamespace, '_memoir'::regnamespace)"""
    for (name,) in world.db.execute(relations).fetchall():
        for mode in MODES:

            def lock(name=name, mode=mode) -> None:
                with ann.transaction():
                    ann.execute(f"lock table {name} in {mode} mode nowait")

            assert code(lock) == "42501", (name, mode)
    named = """select memoir.session_info(u.user_name, s.session) ->> 'session_id' from memoir.list_users(p_limit => 1000) u,
        memoir.list_sessions(u.user_name, p_limit => 1000) s
        union select job from memoir.list_jobs() union select 'memoir.install'"""
    names = [name for (name,) in world.db.execute(named)] + [str(user_id(world.db, user)) for user in ("ann", "bob")]
    for key in (1835888489, 1835888490):
        ann.execute("select pg_advisory_lock(%s, hashtext(n)) from unnest(%s::text[]) n", [key, names])
    locks = "pg_advisory_lock(hashtext(n)), pg_advisory_lock(hashtextextended(n, 7306))"
    ann.execute(f"select {locks} from unnest(%s::text[]) n", [names])
    return done


def test_nothing_is_guarded_by_an_advisory_lock() -> None:
    assert "advisory_lock" not in ARTIFACT.read_text() and "advisory_xact" not in ARTIFACT.read_text()


@pytest.mark.acceptance
def test_another_tenant_and_all_jobs_go_on(world: World) -> None:
    with world.login("app") as app:
        for user in ("ann", "bob"):
            for session in ("one", "two"):
                app.execute("select memoir.persist_turn(%s, %s, %s)", [user, session, Jsonb(MESSAGES)])
        routines = [r for r in world.of_role("tenant") if r.kind == "f"]
        theirs = [(r, values_for(r, app, "bob", login=world.logins["bob"])) for r in routines]
    theirs.sort(key=lambda call: call[0].name.startswith("erase"))
    impatient = world.login("bob", options="-c lock_timeout=4s")
    with world.login("ann") as ann, impatient as bob, world.login("jobs") as jobs:
        assert hold_all_that_can_be(world, ann) > 40
        bob.execute("select memoir.open_session('bob', 'shop', p_system_prompt => %s)", [PROMPT])
        bob.execute("select memoir.persist_turn('bob', 'shop', %s)", [Jsonb(MESSAGES)])
        asked = "select memoir.compile_context('bob', 'new', 'What is my cat called?')"
        assert "Ximena" in str(bob.execute(asked).fetchone())
        for routine, values in theirs:
            assert code(lambda: routine.call(bob, values)) != "55P03", routine.signature
        jobs_here = "select job from memoir.list_jobs() where job not in ('embed', 'model')"
        for (job,) in world.db.execute(jobs_here).fetchall():
            jobs.execute("call memoir.run_job(%s)", [job])
            outcome, _, error = last_run(world.db, job)
            # Leaves that somebody has rows locked in are written anew with the next run.
            assert (outcome, error) == ("done", None) or job == "erase" and "lock timeout" in error, job
        ann.execute("rollback")
    assert apply(world.dsn, None) == ""
