"""Promotion, demotion, expiry, the end of sessions and the profile, on a clock that the tests move."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from calls import Db, active, call, raises, recalled, remember, remembered, run_job, say, set_clock, table
from internals import clear_work, derive_memory, last_run, memory_row, own_rows, set_memories, set_users, use_memories

START = datetime(2026, 1, 1, tzinfo=UTC)
Clock = Callable[..., None]


@pytest.fixture
def clock(db: Db) -> Iterator[Clock]:
    """clock(days, hours): moves to that time after START."""

    def move(days: float = 0, hours: float = 0) -> None:
        set_clock(db, START + timedelta(days=days, hours=hours))

    move()
    yield move
    set_clock(db, None)


def tier(db: Db, key: str) -> int:
    return int(memory_row(db, key, "tier")[0])


def use(db: Db, key: str, accesses: int, relevance: float = 0.8) -> None:
    """As if the memory had been recalled that often, just now."""
    use_memories(db, [key], accesses, relevance)


def call_a_fact(db: Db, *keys: str) -> None:
    """As an extraction with the person's words would say."""
    set_memories(db, *keys, provenance="'fact'")


def report(db: Db, user: str, content: str, said: str = "I like plums.", **named: Any) -> str:
    """What an agent reports that the person said: episodic, tier 2."""
    turn = say(db, user, "s", said)["from_turn"]
    of = {"session": "s", "actor": "agent", "provenance": "user_stated", "source_turns": [turn]}
    return remembered(db, user, content, **of, **named)


def open_session(db: Db, user: str, session: str = "s") -> str:
    call(db, "open_session", user, session)
    return session


def test_use_raises_a_memory_through_the_tiers(db: Db, user: str, clock: Clock) -> None:
    fact = remembered(db, user, "Cycles to the office in Basel", session=open_session(db, user), actor="agent")
    call_a_fact(db, fact)
    assert memory_row(db, fact, "tier, scope::text") == (1, "local")
    clock(hours=2)
    for accesses, relevance in ((2, 0.8), (3, 0.1)):  # too few recalls, not relevant enough
        use(db, fact, accesses, relevance)
        run_job(db, "promotion")
        assert tier(db, fact) == 1
    use(db, fact, 3)
    assert run_job(db, "promotion")["to_tier_2"] == 1
    columns = "tier, scope::text, local_to, expires_at, validated_at, confidence >= 0.7::real"
    now = START + timedelta(hours=2)
    assert memory_row(db, fact, columns) == (2, "global", None, now + timedelta(days=90), now, True)
    # It is a candidate in other sessions now.
    assert "Basel" in str(call(db, "compile_context", user, "other", "Which office in Basel?"))
    clock(days=5)
    for accesses, expected in ((9, 2), (12, 3)):
        use(db, fact, accesses)
        run_job(db, "promotion")
        assert tier(db, fact) == expected
    assert memory_row(db, fact, "expires_at") == (None,)


def test_how_to_act_becomes_procedural(db: Db, user: str, clock: Clock) -> None:
    procedural = {"Prefers short answers": "preference", "Always cite the source.": "fact"}
    keys = [report(db, user, content, content, type=kind) for content, kind in procedural.items()]
    keys.append(report(db, user, "Deploys on Fridays", "Deploys on Fridays", category="workflow"))
    keys += [report(db, user, fact, fact) for fact in ("Runs a marathon each spring", "The answer was always late")]
    assert [tier(db, key) for key in keys] == [2] * 5
    for key in keys:
        use(db, key, 10)
    run_job(db, "promotion")
    assert [tier(db, key) for key in keys] == [4, 4, 4, 3, 3]


def test_inference_waits_for_support(db: Db, user: str, clock: Clock) -> None:
    guess = remembered(db, user, "Probably owns a bike", session=open_session(db, user), actor="agent")

    def is_shown(session: str) -> bool:
        asked = "Do they own a bike, probably?"
        return "Probably owns a bike" in str(call(db, "compile_context", user, session, asked))

    def recall_and_promote() -> dict[str, Any]:
        assert all(is_shown("s") for _ in range(3))
        run_job(db, "flush")
        return run_job(db, "promotion")

    assert recall_and_promote()["waiting"] == 1 and tier(db, guess) == 1
    # The same is concluded again in the first session, which adds nothing, and in a second.
    assert remembered(db, user, "Probably owns a bike", session="s", actor="agent") == guess
    assert recall_and_promote()["waiting"] == 1
    again = remembered(db, user, "probably owns a BIKE", session=open_session(db, user, "t"), actor="agent")
    assert again != guess and not is_shown("u") and recall_and_promote()["to_tier_2"] == 1 and is_shown("u")
    assert memory_row(db, again, "state::text, superseded_by::text") == ("superseded", guess)


def test_contested_value_waits_and_supersedes_nothing(db: Db, user: str, clock: Clock) -> None:
    remembered(db, user, "Lives in Kiel", slot="city", slot_value="Kiel")
    of = {"session": open_session(db, user), "actor": "agent", "slot": "city", "slot_value": "Bremen"}
    rumour = remembered(db, user, "Lives in Bremen", **of)
    call_a_fact(db, rumour)
    use(db, rumour, 5)
    assert run_job(db, "promotion")["waiting"] == 1
    set_memories(db, rumour, validated_at="memoir.now()")
    use(db, rumour, 5)
    assert run_job(db, "promotion")["to_tier_2"] == 1
    assert active(db, user) == ["Lives in Bremen", "Lives in Kiel"]


def test_forgotten_value_does_not_rise(db: Db, user: str, clock: Clock) -> None:
    known = remembered(db, user, "Has a scar on the left knee")
    local = remembered(db, user, "has a scar on the LEFT knee", session=open_session(db, user), actor="agent")
    call(db, "forget", user, known)
    call_a_fact(db, local)
    use(db, local, 20)
    run_job(db, "promotion")
    assert memory_row(db, local) == ("forgotten",) and recalled(db, user, "scar knee", session="s") == []


def test_risen_memory_meets_its_twin(db: Db, user: str, clock: Clock) -> None:
    twin = remembered(db, user, "collects stamps")
    local = remembered(db, user, "Collects stamps", session=open_session(db, user), actor="agent")
    call_a_fact(db, local)
    use(db, local, 5)
    assert run_job(db, "promotion")["merged"] == 1
    assert memory_row(db, local, "state::text, superseded_by::text") == ("superseded", twin)


def test_unused_memories_fall_and_go(db: Db, user: str, clock: Clock) -> None:
    idle, busy = report(db, user, "Likes plums"), report(db, user, "Keeps bees")
    vital = report(db, user, "Is allergic to nuts", importance="critical")
    firm = remembered(db, user, "Was born in Graz")
    keys = (idle, busy, vital, firm)
    clock(days=6.5)
    assert run_job(db, "demotion")["demoted"] == 0
    clock(days=61)
    use(db, busy, 4)
    clock(days=62)
    assert run_job(db, "demotion")["demoted"] == 1 and [tier(db, key) for key in keys] == [1, 2, 2, 3]
    assert memory_row(db, idle, "expires_at") == (START + timedelta(days=69),)
    clock(days=69, hours=1)
    run_job(db, "expiry")
    assert table(db, "memory_history", user, idle, columns="state, reason")[-1] == ("expired", "expired")
    clock(days=1000)
    run_job(db, "demotion")
    run_job(db, "expiry")
    assert [memory_row(db, key)[0] for key in keys] == ["expired"] * 3 + ["active"]


def test_demotion_has_settings_and_locks_no_others(db: Db, user: str, clock: Clock) -> None:
    other = user + "-other"
    key, same = report(db, user, "Paints boats"), report(db, other, "Paints boats")
    call(db, "set_user_settings", user, {"demotion_grace_days": 1, "demotion_floor_2": 1})
    clock(3)
    run_job(db, "demotion")
    assert (tier(db, key), tier(db, same)) == (1, 2)
    # Users with nothing to lower are not even locked: that would write.
    before = own_rows(db, other, "user_counters", "xmin::text, xmax::text")
    run_job(db, "demotion")
    assert own_rows(db, other, "user_counters", "xmin::text, xmax::text") == before


def test_pin_keeps_a_memory_as_long_as_it_lasts(db: Db, user: str, clock: Clock) -> None:
    key = report(db, user, "Likes plums")
    call(db, "pin", user, "s", key, turns=2)
    clock(days=62)
    for expected in (2, 1):
        run_job(db, "demotion")
        assert tier(db, key) == expected
        say(db, user, "s", "And pears.")
    call(db, "erase_user", user)  # no session of it shall end in another test


def test_confidence_fades_at_read_and_is_reinforced(db: Db, user: str, clock: Clock) -> None:
    key = remembered(db, user, "Plays the bassoon")

    def authority() -> float:
        rows = table(db, "explain_context", user, "x", "Who plays the bassoon?", columns="id::text, parts")
        return float(dict(rows)[key]["authority"])

    fresh = authority()
    clock(days=365)
    assert authority() == pytest.approx(fresh / 2, rel=1e-3)
    assert memory_row(db, key, "confidence") == (pytest.approx(0.9),)
    remember(db, user, "plays the bassoon")
    assert authority() == pytest.approx(fresh, rel=1e-3)


def test_sessions_end_and_take_what_is_theirs(db: Db, user: str, clock: Clock) -> None:
    say(db, user, "s", "Hello")
    local = remembered(db, user, "Is testing the printer", session="s", actor="agent")
    call(db, "set_working_memory", user, "s", "plan", "print a page")
    call(db, "set_working_memory", user, "s", "soon", "gone soon", 10)
    clock(hours=1)
    assert run_job(db, "expiry")["working"] == 1
    clock(days=20)
    say(db, user, "s", "Still there?")
    clock(days=31)
    assert run_job(db, "expiry")["renewed"] == 1 and memory_row(db, local, "expires_at") == (None,)
    clock(days=49)
    assert run_job(db, "expiry")["sessions"] == 0
    clock(days=50, hours=1)
    assert run_job(db, "expiry")["sessions"] == 1 and call(db, "session_info", user, "s")["status"] == "expired"
    assert memory_row(db, local, "expires_at") == (START + timedelta(days=51),)
    with raises("PM005"):
        say(db, user, "s", "And now?")
    clock(days=51, hours=1)
    assert run_job(db, "expiry")["memories"] == 1 and memory_row(db, local) == ("expired",)
    # A closed session expires in its time, too, and keeps the end it had.
    say(db, user, "t", "Hello")
    call(db, "close_session", user, "t")
    clock(days=100)
    run_job(db, "expiry")
    info = call(db, "session_info", user, "t")
    closed = START + timedelta(days=51, hours=1)
    assert info["status"] == "expired" and datetime.fromisoformat(info["closed_at"]) == closed


@pytest.mark.parametrize(("how", "state"), [("retract", "invalidated"), ("forget", "forgotten")])
def test_derived_memories_go_with_their_source(db: Db, user: str, how: str, state: str) -> None:
    source = remembered(db, user, "Flies a zeppelin")
    derived = remembered(db, user, "Has a pilot's licence for airships")
    second = remembered(db, user, "Is an airship pilot by trade")
    for item, origin in ((derived, source), (second, derived)):
        derive_memory(db, item, origin)
    call(db, how, user, source)
    assert dict(table(db, "list_memories", user, states=[state], columns="memory_id::text, reason")).items() >= {
        (key, "its source was withdrawn") for key in (derived, second)
    }
    assert recalled(db, user, "airship pilot") == []


def test_one_broken_user_does_not_stop_the_others(db: Db, user: str, clock: Clock) -> None:
    names = [f"{user}-{n}" for n in range(2)]
    keys = [remembered(db, name, "Owns a kayak", session=open_session(db, name), actor="agent") for name in names]
    call_a_fact(db, *keys)
    for key in keys:
        use(db, key, 5)
    set_users(db, names[0], settings="""'{"promotion_accesses_1": "broken"}'""")
    db.execute("call memoir.run_job('promotion')")
    assert last_run(db, "promotion")[1]["failed"] == 1 and [tier(db, key) for key in keys] == [1, 2]
    clear_work(db, "promote")


def profile(db: Db, user: str) -> dict[str, Any]:
    """After the job."""
    run_job(db, "profiles")
    return dict(call(db, "profile", user))


def system(db: Db, user: str) -> str:
    message = call(db, "compile_context", user, "any", "Hm?")[0]
    return str(message["content"]) if message["role"] == "system" else ""


def test_profile_holds_what_is_sure_and_open(db: Db, user: str, clock: Clock) -> None:
    assert profile(db, user) == {"version": 0, "content": ""}
    for content, named in {
        "Lives in Trier": {},
        "Prefers tea": {"type": "preference"},
        "Answer in German": {"type": "instruction"},
        "Dreams of Rome": {"actor": "agent"},
        "Salary 4711": {"sensitivity": "private"},
        "Key abc": {"sensitivity": "secret"},
        "Kiln is red": {"project": "kiln"},
        "Was in Oslo": {"valid_to": START - timedelta(days=1)},
        "Moves to Wien": {"valid_from": START + timedelta(days=10)},
    }.items():
        remember(db, user, content, **named)
    first = profile(db, user)
    text = "Instructions:\n- Answer in German\nPreferences:\n- Prefers tea\nFacts:\n- Lives in Trier"
    assert (first["version"], first["content"]) == (1, text) and text in system(db, user)
    # Nothing new, no new bytes.
    remember(db, user, "Prefers tea")
    remember(db, user, "Another secret", sensitivity="secret")
    again = profile(db, user)
    assert all(again[key] == first[key] for key in ("version", "content", "recorded_at"))
    # Time alone can change it.
    clock(days=11)
    later = profile(db, user)
    assert "Moves to Wien" in later["content"] and later["version"] == 2


def test_profile_keeps_to_its_budget_weightiest_first(db: Db, user: str) -> None:
    for n in range(60):
        remember(db, user, f"Owns the book number {n} of a long shelf of books in the hall")
    remember(db, user, "Is allergic to penicillin", importance="critical")
    got = profile(db, user)
    assert call(db, "count_tokens", got["content"]) <= 400 and "penicillin" in got["content"]
    assert 5 < len(got["memory_ids"]) < 60
    call(db, "set_user_settings", user, {"profile_tokens": 0})
    remember(db, user, "Is tall")
    assert profile(db, user)["content"] == "" and "memoir-profile" not in system(db, user)


@pytest.mark.parametrize("how", ["forget", "supersede", "secret"])
def test_withdrawn_memory_leaves_the_profile_at_once(db: Db, user: str, how: str) -> None:
    home = {"slot": "home", "slot_value": "Trier"}
    key = remembered(db, user, "Lives in Trier", **home)
    remember(db, user, "Plays chess")
    profile(db, user)
    assert "Trier" in system(db, user)
    if how == "forget":
        call(db, "forget", user, key)
    elif how == "supersede":
        remember(db, user, "Lives in Koblenz", slot="home", slot_value="Koblenz")
    else:
        remember(db, user, "Lives in Trier", sensitivity="secret", **home)
    assert "Trier" not in system(db, user) and "Plays chess" in system(db, user)
    # No version keeps it, and its successor is there before the job has built the next one.
    assert "Trier" not in str(own_rows(db, user, "profiles", "content"))
    assert ("Koblenz" in system(db, user)) == (how == "supersede")
    before = call(db, "profile", user)
    assert profile(db, user)["content"] == before["content"]
    assert call(db, "profile", user)["version"] in [version for (version,) in own_rows(db, user, "profiles", "version")]
