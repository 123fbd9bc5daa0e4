"""Promotion, demotion, expiry, the end of sessions and the profile, on a clock that the tests move."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from calls import call, last_run, one, remembered, run_job, say

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def clock(db: psycopg.Connection) -> Iterator[Any]:
    """clock(days, hours): moves to that time after START."""

    def move(days: float = 0, hours: float = 0) -> None:
        db.execute("select memoir.set_clock(%s)", [START + timedelta(days=days, hours=hours)])

    move()
    yield move
    db.execute("select memoir.set_clock(null)")


def memory(db: psycopg.Connection, key: str) -> dict[str, Any]:
    cursor = db.execute("select * from _memoir.memory_store where memory_id = %s", [key])
    return dict(zip([c.name for c in cursor.description], cursor.fetchone()))


def used(db: psycopg.Connection, key: str, accesses: int, relevance: float = 0.8) -> None:
    """As if the memory had been recalled that often, just now."""
    db.execute(
        """update _memoir.memory_stats set access_count = %s, relevance_sum = %s, last_accessed_at = memoir.now() where memory_id = %s""",
        [accesses, accesses * relevance, key],
    )
    db.execute("select _memoir.enqueue('promote', user_id, '') from _memoir.memory_store where memory_id = %s", [key])


def test_utility_is_the_formula(db: psycopg.Connection) -> None:
    for relevance, accesses, hours, discount in [(2.4, 3, 10, 0.01), (8, 10, 500, 0.001), (0.1, 1, 0, 0.01)]:
        expected = relevance / accesses * math.log2(1 + accesses) / (1 + discount * hours)
        assert one(db, "select _memoir.utility(%s, %s, %s, %s)", relevance, accesses, hours, discount) == pytest.approx(
            expected
        )
    assert one(db, "select _memoir.utility(0, 0, 10, 0.01)") == 0


def test_use_raises_a_memory_through_the_tiers(db: psycopg.Connection, user: str, clock: Any) -> None:
    turn = say(db, user, "s", "I cycle to the office in Basel.")["from_turn"]
    fact = remembered(db, user, "Cycles to the office in Basel", session="s", provenance="fact", actor="agent")
    db.execute(
        "update _memoir.memory_store set provenance = 'fact' where memory_id = %s", [fact]
    )  # what an extraction with the person's words would say
    assert (memory(db, fact)["tier"], memory(db, fact)["scope"]) == (1, "local")
    clock(hours=2)
    used(db, fact, 2)
    assert run_job(db, "promotion") == {"users": 1}  # too few recalls
    assert not one(db, "select _memoir.may_rise(user_id) from _memoir.users where external_id = %s", user)
    used(db, fact, 3, relevance=0.1)
    assert run_job(db, "promotion")["users"] == 1 and memory(db, fact)["tier"] == 1  # not relevant enough
    used(db, fact, 3)
    assert run_job(db, "promotion")["to_tier_2"] == 1
    got = memory(db, fact)
    assert (got["tier"], got["scope"], got["local_to"], got["expires_at"]) == (
        2,
        "global",
        None,
        START + timedelta(hours=2, days=90),
    )
    assert got["validated_at"] == START + timedelta(hours=2) and got["confidence"] >= 0.7
    # It is a candidate in other sessions now.
    assert "Basel" in str(one(db, "select memoir.compile_context(%s, 'other', 'Which office in Basel?')", user))
    clock(days=5)
    used(db, fact, 9)
    run_job(db, "promotion")
    assert memory(db, fact)["tier"] == 2
    used(db, fact, 12)
    assert run_job(db, "promotion")["to_tier_3"] == 1
    assert (memory(db, fact)["tier"], memory(db, fact)["expires_at"]) == (3, None)
    assert turn == 0


@pytest.mark.parametrize(
    ("content", "more", "tier"),
    [
        ("Prefers short answers", {"type": "preference"}, 4),
        ("Always cite the source.", {}, 4),
        ("Never use tabs in code.", {}, 4),
        ("Runs a marathon each spring", {}, 3),
        ("The answer was always late", {}, 3),
        ("Deploys on Fridays", {"category": "workflow"}, 4),
    ],
)
def test_how_to_act_becomes_procedural(
    db: psycopg.Connection, user: str, clock: Any, content: str, more: dict, tier: int
) -> None:
    turn = say(db, user, "s", content)["from_turn"]
    key = remembered(
        db, user, content, session="s", actor="agent", provenance="user_stated", source_turns=[turn], **more
    )
    assert memory(db, key)["tier"] == 2
    used(db, key, 10)
    run_job(db, "promotion")
    assert memory(db, key)["tier"] == tier


def test_inference_and_conflicts_wait_for_support(db: psycopg.Connection, user: str, clock: Any) -> None:
    say(db, user, "s", "My bike again.")
    guess = remembered(db, user, "Probably owns a bike", session="s", actor="agent")

    def recalled_and_promoted() -> dict[str, Any]:
        for _ in range(3):
            assert "Probably owns a bike" in str(
                call(db, "compile_context", user, "s", "Do they own a bike, probably?")
            )
        run_job(db, "flush")
        return run_job(db, "promotion")

    assert recalled_and_promoted()["waiting"] == 1 and memory(db, guess)["tier"] == 1
    # The same is concluded in a second session, and again in the first, which adds nothing.
    assert remembered(db, user, "Probably owns a bike", session="s", actor="agent") == guess
    assert recalled_and_promoted()["waiting"] == 1
    say(db, user, "t", "I rode my bike.")
    again = remembered(db, user, "probably owns a BIKE", session="t", actor="agent")
    assert again != guess
    found = str(call(db, "compile_context", user, "u", "Do they own a bike, probably?"))
    assert "Probably owns" not in found, found
    assert recalled_and_promoted()["to_tier_2"] == 1 and memory(db, guess)["validated_at"] is not None
    assert (memory(db, again)["state"], str(memory(db, again)["superseded_by"])) == ("superseded", str(guess))
    assert "Probably owns a bike" in str(call(db, "compile_context", user, "u", "Do they own a bike, probably?"))
    # Contested: another value of the slot stands.
    remembered(db, user, "Lives in Kiel", slot="city", slot_value="Kiel")
    rumour = remembered(db, user, "Lives in Bremen", session="s", actor="agent", slot="city", slot_value="Bremen")
    db.execute("update _memoir.memory_store set provenance = 'fact' where memory_id = %s", [rumour])
    used(db, rumour, 5)
    assert run_job(db, "promotion")["waiting"] == 1
    db.execute("update _memoir.memory_store set validated_at = memoir.now() where memory_id = %s", [rumour])
    used(db, rumour, 5)
    assert run_job(db, "promotion")["to_tier_2"] == 1
    # A lower authority supersedes nothing, it only contradicts.
    assert (
        one(
            db,
            "select count(*) from _memoir.memory_relationships where source_id = %s and relation = 'contradicts'",
            rumour,
        )
        == 1
    )
    assert {
        row[0]
        for row in db.execute("select content from _memoir.memory_store where slot = 'city' and state = 'active'")
    } == {"Lives in Kiel", "Lives in Bremen"}


def test_a_forgotten_value_does_not_rise(db: psycopg.Connection, user: str, clock: Any) -> None:
    known = remembered(db, user, "Has a scar on the left knee")
    local = remembered(db, user, "has a scar on the LEFT knee", session=open_session(db, user, "s"), actor="agent")
    assert known != local
    db.execute("select memoir.forget(%s, %s)", [user, known])
    db.execute("update _memoir.memory_store set provenance = 'fact' where memory_id = %s and state = 'active'", [local])
    used(db, local, 20)
    run_job(db, "promotion")
    assert memory(db, local)["state"] == "forgotten"
    assert db.execute("select count(*) from memoir.recall(%s, 'scar knee', 's')", [user]).fetchone() == (0,)


def open_session(db: psycopg.Connection, user: str, session: str) -> str:
    db.execute("select memoir.open_session(%s, %s)", [user, session])
    return session


def test_a_risen_memory_meets_its_twin(db: psycopg.Connection, user: str, clock: Any) -> None:
    say(db, user, "s", "So I collect stamps, as you know.")
    twin = remembered(db, user, "collects stamps")
    local = remembered(db, user, "Collects stamps", session="s", actor="agent")
    assert local != twin
    db.execute("update _memoir.memory_store set provenance = 'fact' where memory_id = %s", [local])
    used(db, local, 5)
    assert run_job(db, "promotion")["merged"] == 1
    assert (memory(db, local)["state"], str(memory(db, local)["superseded_by"])) == ("superseded", str(twin))


def test_what_nobody_uses_falls_and_goes(db: psycopg.Connection, user: str, clock: Any) -> None:
    turn = say(db, user, "s", "I like plums. I keep bees.")["from_turn"]
    idle, busy, vital = (
        remembered(db, user, content, session="s", actor="agent", provenance="user_stated", source_turns=[turn], **more)
        for content, more in (
            ("Likes plums", {}),
            ("Keeps bees", {}),
            ("Is allergic to nuts", {"importance": "critical"}),
        )
    )
    firm = remembered(db, user, "Was born in Graz")
    clock(days=6.5)
    assert run_job(db, "demotion")["demoted"] == 0
    clock(days=61)
    used(db, busy, 4)
    clock(days=62)
    assert run_job(db, "demotion")["demoted"] == 1
    assert [memory(db, key)["tier"] for key in (idle, busy, vital, firm)] == [1, 2, 2, 3]
    assert memory(db, idle)["expires_at"] == START + timedelta(days=69)
    clock(days=69, hours=1)
    run_job(db, "expiry")
    assert (
        memory(db, idle)["state"] == "expired"
        and one(db, "select reason from _memoir.memory_states where memory_id = %s and state = 'expired'", idle)
        == "expired"
    )
    clock(days=1000)
    run_job(db, "demotion"), run_job(db, "expiry")
    assert [memory(db, key)["state"] for key in (idle, busy, vital, firm)] == [
        "expired",
        "expired",
        "expired",
        "active",
    ]


def test_limits_of_ones_own_and_locks_only_where_something_falls(db: psycopg.Connection, user: str, clock: Any) -> None:
    other = user + "-other"
    say(db, user, "s", "I paint boats."), say(db, other, "s", "I paint boats.")
    key, same = (
        remembered(db, name, "Paints boats", session="s", actor="agent", provenance="user_stated", source_turns=[0])
        for name in (user, other)
    )
    db.execute('select memoir.set_user_settings(%s, \'{"demotion_grace_days": 1, "demotion_floor_2": 1}\')', [user])
    clock(3)
    run_job(db, "demotion")
    assert (memory(db, key)["tier"], memory(db, same)["tier"]) == (1, 2)
    # Whoever has nothing to lower is not even locked: that would write.
    locked = "select c.xmin::text, c.xmax::text from _memoir.user_counters c join _memoir.users u using (user_id) where u.external_id = %s"
    before = db.execute(locked, [other]).fetchone()
    run_job(db, "demotion")
    assert db.execute(locked, [other]).fetchone() == before and memory(db, same)["tier"] == 2


def test_a_pin_keeps_a_memory_as_long_as_it_lasts(db: psycopg.Connection, user: str, clock: Any) -> None:
    turn = say(db, user, "s", "I like plums.")["from_turn"]
    key = remembered(db, user, "Likes plums", session="s", actor="agent", provenance="user_stated", source_turns=[turn])
    db.execute("select memoir.pin(%s, 's', %s, p_turns => 2)", [user, key])
    clock(days=62)
    run_job(db, "demotion")
    assert memory(db, key)["tier"] == 2
    say(db, user, "s", "And pears.")
    run_job(db, "demotion")
    assert memory(db, key)["tier"] == 1
    db.execute("select memoir.erase_user(%s)", [user])  # no session of it shall end in another test


def test_confidence_fades_at_read_and_is_reinforced(db: psycopg.Connection, user: str, clock: Any) -> None:
    key = remembered(db, user, "Plays the bassoon")

    def authority() -> float:
        rows = db.execute(
            "select parts from memoir.explain_context(%s, 'x', 'Who plays the bassoon?') where id = %s", [user, key]
        ).fetchone()
        return rows[0]["authority"]

    fresh = authority()
    clock(days=365)
    assert authority() == pytest.approx(fresh / 2, rel=1e-3) and memory(db, key)["confidence"] == pytest.approx(0.9)
    remembered(db, user, "plays the bassoon")
    assert authority() == pytest.approx(fresh, rel=1e-3)


def test_sessions_end_and_take_what_is_theirs_along(db: psycopg.Connection, user: str, clock: Any) -> None:
    say(db, user, "s", "Hello")
    local = remembered(db, user, "Is testing the printer", session="s", actor="agent")
    db.execute("select memoir.set_working_memory(%s, 's', 'plan', 'print a page')", [user])
    db.execute("select memoir.set_working_memory(%s, 's', 'soon', 'gone soon', 10)", [user])
    clock(hours=1)
    assert run_job(db, "expiry")["working"] == 1
    clock(days=20)
    say(db, user, "s", "Still there?")
    clock(days=31)
    assert run_job(db, "expiry")["renewed"] == 1 and memory(db, local)["expires_at"] is None
    clock(days=49)
    assert run_job(db, "expiry")["sessions"] == 0
    clock(days=50, hours=1)
    assert run_job(db, "expiry")["sessions"] == 1
    assert one(db, "select memoir.session_info(%s, 's') ->> 'status'", user) == "expired"
    assert memory(db, local)["expires_at"] == START + timedelta(days=51)
    assert (
        one(
            db,
            "select count(*) from _memoir.memory_store_working w join _memoir.users u using (user_id) where u.external_id = %s",
            user,
        )
        == 0
    )
    with pytest.raises(psycopg.Error) as refused:
        say(db, user, "s", "And now?")
    assert refused.value.sqlstate == "PM005"
    clock(days=51, hours=1)
    assert run_job(db, "expiry")["memories"] == 1 and memory(db, local)["state"] == "expired"
    # A closed session expires in its time, too, and keeps the end it had.
    say(db, user, "t", "Hello")
    db.execute("select memoir.close_session(%s, 't')", [user])
    clock(days=100)
    run_job(db, "expiry")
    assert db.execute(
        "select status, closed_at from _memoir.sessions s join _memoir.users u using (user_id) where u.external_id = %s and s.external_id = 't'",
        [user],
    ).fetchone() == ("expired", START + timedelta(days=51, hours=1))


def test_one_broken_user_does_not_stop_the_others(db: psycopg.Connection, user: str, clock: Any) -> None:
    keys = [
        remembered(db, f"{user}-{n}", "Owns a kayak", session=open_session(db, f"{user}-{n}", "s"), actor="agent")
        for n in range(2)
    ]
    for key in keys:
        db.execute("update _memoir.memory_store set provenance = 'fact' where memory_id = %s", [key])
        used(db, key, 5)
    db.execute(
        'update _memoir.users set settings = \'{"promotion_accesses_1": "broken"}\' where external_id = %s',
        [f"{user}-0"],
    )
    db.execute("call memoir.run_job('promotion')")
    assert last_run(db, "promotion")[1]["failed"] == 1 and [memory(db, key)["tier"] for key in keys] == [1, 2]
    assert db.execute(
        "select attempts, last_error ~ 'broken' from _memoir.work_items where kind = 'promote'"
    ).fetchall() == [(1, True)]
    db.execute("delete from _memoir.work_items where kind = 'promote'")


# Profile ------------------------------------------------------------------------------------------------------------------


def profile(db: psycopg.Connection, user: str) -> dict[str, Any]:
    return one(db, "select memoir.profile(%s)", user)


def system(db: psycopg.Connection, user: str) -> str:
    message = one(db, "select memoir.compile_context(%s, 'any', 'Hm?')", user)[0]
    return message["content"] if message["role"] == "system" else ""


def test_the_profile_holds_what_is_sure_and_open(db: psycopg.Connection, user: str, clock: Any) -> None:
    run_job(db, "profiles")
    assert profile(db, user) == {"version": 0, "content": ""}
    remembered(db, user, "Lives in Trier")
    remembered(db, user, "Prefers tea", type="preference")
    remembered(db, user, "Answer in German", type="instruction")
    for content, more in (
        ("Dreams of Rome", {"actor": "agent"}),
        ("Salary 4711", {"sensitivity": "private"}),
        ("Key abc", {"sensitivity": "secret"}),
        ("Kiln is red", {"project": "kiln"}),
        ("Was in Oslo", {"valid_to": START - timedelta(days=1)}),
        ("Moves to Wien", {"valid_from": START + timedelta(days=10)}),
    ):
        remembered(db, user, content, **more)
    assert run_job(db, "profiles")["changed"] == 1
    first = profile(db, user)
    assert (
        first["version"] == 1
        and first["content"]
        == "Instructions:\n- Answer in German\nPreferences:\n- Prefers tea\nFacts:\n- Lives in Trier"
    )
    assert first["content"] in system(db, user)
    # Nothing new, no new bytes.
    remembered(db, user, "Prefers tea")
    remembered(db, user, "Another secret", sensitivity="secret")
    assert run_job(db, "profiles")["changed"] == 0 and all(
        profile(db, user)[key] == first[key] for key in ("version", "content", "recorded_at")
    )
    # Time alone can change it.
    clock(days=11)
    assert (
        run_job(db, "profiles")["changed"] == 1
        and "Moves to Wien" in profile(db, user)["content"]
        and profile(db, user)["version"] == 2
    )


def test_the_profile_keeps_to_its_budget_weightiest_first(db: psycopg.Connection, user: str) -> None:
    for n in range(60):
        remembered(db, user, f"Owns the book number {n} of a long shelf of books in the hall")
    remembered(db, user, "Is allergic to penicillin", importance="critical")
    run_job(db, "profiles")
    got = profile(db, user)
    assert (
        one(db, "select memoir.count_tokens(%s)", got["content"]) <= 400
        and "penicillin" in got["content"]
        and 5 < len(got["memory_ids"]) < 60
    )
    db.execute("select memoir.set_user_settings(%s, '{\"profile_tokens\": 0}')", [user])
    remembered(db, user, "Is tall")
    run_job(db, "profiles")
    assert profile(db, user)["content"] == "" and "memoir-profile" not in system(db, user)


@pytest.mark.parametrize("how", ["forget", "supersede", "secret"])
def test_what_is_taken_back_leaves_the_profile_at_once(db: psycopg.Connection, user: str, how: str) -> None:
    key = remembered(db, user, "Lives in Trier", slot="home", slot_value="Trier")
    remembered(db, user, "Plays chess")
    run_job(db, "profiles")
    assert "Trier" in system(db, user)
    if how == "forget":
        db.execute("select memoir.forget(%s, %s)", [user, key])
    elif how == "supersede":
        remembered(db, user, "Lives in Koblenz", slot="home", slot_value="Koblenz")
    else:
        remembered(db, user, "Lives in Trier", slot="home", slot_value="Trier", sensitivity="secret")
    assert "Trier" not in system(db, user) and "Plays chess" in system(db, user) and profile(db, user)["version"] == 2
    assert (
        one(
            db,
            "select count(*) from _memoir.profiles p join _memoir.users u using (user_id) where u.external_id = %s and p.content like '%%Trier%%'",
            user,
        )
        == 0
    )
    run_job(db, "profiles")
    assert ("Koblenz" in system(db, user)) == (how == "supersede")
