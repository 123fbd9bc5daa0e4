"""Extraction of what is stored: sources, slots, authority, admission, the job, a model's candidates; again, beside writers, after a forget."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import date
from typing import Any

import pytest
from calls import CALL, Db, call, last_run, one, remembered, run_job, set_settings, store, table
from pg_memoir_server.llm.stretches import located
from psycopg.types.json import Jsonb
from servers import connect

NOTHING = {"turns": 0, "left": 0, "stored": 0, "duplicate": 0, "refused_tombstone": 0, "not_admitted": 0}


def say(db: Db, user: str, *said: str | dict[str, Any], session: str = "s", **named: Any) -> dict[str, Any]:
    """One call with all of it; texts are the user's."""
    sent = [{"role": "user", "content": each} if isinstance(each, str) else each for each in said]
    return store(db, user, session, sent, **named)


def extract(db: Db, user: str, session: str = "s", limit: int = 1000) -> dict[str, Any]:
    return dict(call(db, "extract_session", user, session, limit))


def memories(db: Db, user: str, *columns: str, where: str = "true") -> list[Any]:
    rows = db.execute(
        f"select {', '.join(columns or ('m.content',))} from _memoir.memory_store m join _memoir.users using (user_id) "
        f"where external_id = %s and {where} order by m.recorded_at, m.content",
        [user],
    ).fetchall()
    return rows if len(columns) > 1 else [row[0] for row in rows]


def extract_again(db: Db, user: str) -> dict[str, Any]:
    """The cursor goes back, as if the same turns were new."""
    own = "update _memoir.session_counters c set extracted_through = 0 from _memoir.users u where u.user_id = c.user_id"
    db.execute(f"{own} and external_id = %s", [user])
    return extract(db, user)


def waiting(db: Db, user: str, columns: str = "state") -> list[tuple[Any, ...]]:
    own = "from _memoir.work_items j join _memoir.users using (user_id) where external_id = %s and kind = 'turns'"
    return db.execute(f"select {columns} {own}", [user]).fetchall()


def test_statements_become_sourced_memories(db: Db, user: str) -> None:
    answer = {"role": "assistant", "content": "Noted. I live in the cloud."}
    done = say(db, user, "Hi! I live in Ulm. Please don't use emojis.", answer)
    assert extract(db, user) == NOTHING | {"turns": 2, "stored": 2}
    columns = ("m.content", "provenance::text", "tier", "scope::text", "m.metadata ->> 'extracted_by'")
    assert memories(db, user, *columns) == [
        ("User asks: Please don't use emojis.", "instruction", 4, "global", "rules 1"),
        ("User lives in Ulm.", "user_stated", 3, "global", "rules 1"),
    ]
    sources = db.execute(
        "select s.source_id::text, s.turn_index, substr(h.content, s.span_start, s.span_length) from _memoir.memory_sources s "
        "join _memoir.conversation_history h on h.message_id = s.source_id join _memoir.users u on u.user_id = s.user_id "
        "where external_id = %s order by span_start",
        [user],
    ).fetchall()
    first = done["message_ids"][0]
    assert sources == [(first, 0, "I live in Ulm."), (first, 0, "Please don't use emojis.")]
    assert extract(db, user) == NOTHING


def test_words_of_agents_and_tools_stay_in_their_session(db: Db, user: str) -> None:
    result = '{"order_id": "A-1742", "total": "39.90 EUR", "note": "I live in Ulm"}'
    said = "I've booked the courier for 9 May. I love couriers. Your tracking number is ZX-881."
    say(
        db,
        user,
        "Where is it?",
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": CALL["id"], "content": result},
        {"role": "assistant", "content": said},
        {"role": "assistant", "name": "Mel", "content": "I moved to Bonn in April."},
    )
    say(db, user, "I live in Kiel and always pay on Monday.", session="relay", actor="agent")
    assert extract(db, user)["stored"] == 5 and extract(db, user, "relay")["stored"] == 0
    got = sorted(memories(db, user, "m.content", "provenance::text", "tier", "scope::text", "source_tool"))
    assert [row[1:] for row in got] == [("system_inferred", 1, "local", None)] * 3 + [
        ("tool_output", 1, "local", "track")
    ] * 2
    assert [row[0].split(" on ")[0].split(" for ")[0] for row in got] == [
        "Assistant has booked the courier",
        "Assistant: Your tracking number is ZX-881.",
        "Mel moved to Bonn in April.",
        "Tool track returned order_id A-1742",
        "Tool track returned total 39.90",
    ]


def test_extracting_again_adds_nothing(db: Db, user: str) -> None:
    say(db, user, "I live in Ulm. I love Bach.", "I love Bach.")
    assert extract(db, user)["stored"] == 2
    columns = ("m.memory_id", "m.content", "m.state", "m.recorded_at", "restatements")
    stats = (
        "(select s.restatements from _memoir.memory_stats s where s.user_id = m.user_id and s.memory_id = m.memory_id)"
    )
    before = memories(db, user, *columns[:4], stats)
    assert sorted(row[4] for row in before) == [0, 1], "said twice, in two turns"
    for _ in range(2):
        assert extract_again(db, user)["stored"] == 0 and memories(db, user, *columns[:4], stats) == before


def test_batches_go_on_where_the_last_one_ended(db: Db, user: str) -> None:
    say(db, user, *(f"I visited {city} yesterday." for city in ("Ulm", "Bonn", "Kiel", "Jena", "Gera")))
    assert [extract(db, user, limit=2)["left"] for _ in range(3)] == [3, 1, 0] and len(memories(db, user)) == 5


def test_move_supersedes_and_an_older_statement_does_not(db: Db, user: str) -> None:
    for session, year, city in (("one", 2024, "Ulm"), ("two", 2025, "Kiel"), ("zero", 2023, "Bonn")):
        at = {"created_at": f"{year}-01-01T00:00:00Z"}
        say(db, user, {"role": "user", "content": f"I live in {city}."} | at, session=session)
    for session in ("one", "two", "zero"):
        extract(db, user, session)
    home = ("m.content", "m.state::text")
    assert memories(db, user, *home, where="slot = 'home city'") == [
        ("User lives in Ulm.", "superseded"),
        ("User lives in Kiel.", "active"),
    ]
    for said, state in (("I no longer live in Rome.", "active"), ("I don't live in Kiel anymore.", "superseded")):
        say(db, user, said, session=said)
        extract(db, user, said)
        assert memories(db, user, *home, where="slot = 'home city'")[1] == ("User lives in Kiel.", state)


def test_forgotten_is_not_extracted_again(db: Db, user: str) -> None:
    say(db, user, "I live in Ulm. I love Bach.")
    extract(db, user)
    (memory,) = memories(db, user, "m.memory_id", where="m.content like '%%Ulm%%'")
    call(db, "forget", user, memory)
    # The same words again; the same turn again; another turn with the value in its slot.
    say(db, user, "I live in Ulm.", "Yes, we live in Ulm with our cat.")
    assert extract_again(db, user)["refused_tombstone"] == 2
    assert memories(db, user, where="m.state = 'active'") == ["User loves Bach."]


def test_sensitivity_is_kept(db: Db, user: str) -> None:
    for text, level in (("I live in Ulm.", "private"), ("I love Bach.", "secret")):
        say(db, user, {"role": "user", "content": text, "sensitivity": level})
    extract(db, user)
    assert memories(db, user, "m.content", "m.sensitivity::text") == [("User lives in Ulm.", "private")]


def test_extraction_can_be_switched_off_for_a_user(db: Db, user: str) -> None:
    say(db, user, "I live in Ulm.")
    call(db, "set_user_settings", user, {"extraction": False})
    assert extract(db, user) == NOTHING | {"turns": 1}
    call(db, "set_user_settings", user, {"extraction": None, "text_search_config": "german"})
    # The rules are those of each text's own language, whatever the setting.
    say(db, user, "I love Bach.", "I hate rain.")
    assert extract(db, user)["stored"] == 2


def test_branch_extracts_only_its_own_turns(db: Db, user: str) -> None:
    say(db, user, "I live in Ulm.", "I love Bach.")
    call(db, "branch_session", user, "s", "b", 1)
    assert extract(db, user, "b")["turns"] == 0
    say(db, user, "I hate rain.", session="b")
    assert extract(db, user, "b")["turns"] == 1 and memories(db, user) == ["User hates rain."]


def test_dates_are_those_of_the_turn(db: Db, user: str, clock: Callable[[str], None]) -> None:
    """Not of the run; and by the sender's clock: at half past midnight in Tokyo it is still the day before in UTC."""
    clock("2026-03-04T12:00:00Z")
    say(db, user, "I flew to Oslo yesterday.")
    clock("2026-04-04T12:00:00Z")
    extract(db, user)
    assert memories(db, user, "m.content", "m.valid_from::date", "m.metadata ->> 'event_from'") == [
        ("User flew to Oslo on 3 March 2026.", date(2026, 3, 3), "2026-03-03")
    ]
    moments = {
        "2026-03-20T00:30:00+09:00": "+09:00",
        "2026-03-20 00:30+0530": "+05:30",
        "2026-03-20T23:30:00-08": "-08:00",
        "2026-03-20T00:30:00Z": None,
    }
    for moment, offset in moments.items():
        say(db, user, {"role": "user", "content": "I flew home yesterday.", "created_at": moment}, session=moment)
        assert table(db, "history", user, moment)[0][0].get("utc_offset") == offset, moment
        extract(db, user, moment)
    assert memories(db, user, where="m.content like '%%home%%'") == ["User flew home on 19 March 2026."]


def test_named_speakers_change_their_own_statements(db: Db, user: str) -> None:
    for name in ("Mia", "Ida"):
        say(db, user, {"role": "user", "name": name, "content": "I live in Kassel."}, session=name)
        extract(db, user, session=name)
    say(db, user, {"role": "user", "name": "Mia", "content": "I don't live in Kassel any more, I moved to Bonn."})
    extract(db, user)
    active = memories(db, user, where="m.state = 'active'")
    assert "Ida lives in Kassel." in active and "Mia lives in Kassel." not in active


# Admission ------------------------------------------------------------------------------------------------------------


def test_candidates_are_scored_and_people_never_rejected(db: Db, user: str) -> None:
    call(db, "set_user_settings", user, {"admission_threshold": 1.0})
    say(db, user, "I live in Ulm.", {"role": "assistant", "content": "I've booked the table for 9 May."})
    done = extract(db, user)
    assert (done["stored"], done["not_admitted"]) == (1, 1) and memories(db, user) == ["User lives in Ulm."]
    rejected, kept = db.execute(
        "select a.admitted, score_total, score_type, score_novelty, score_utility, score_recency, threshold "
        "from _memoir.admission_scores a join _memoir.users using (user_id) where external_id = %s order by 1",
        [user],
    ).fetchall()
    assert (rejected[0], kept[0]) == (False, True)
    for total, *parts, threshold in (rejected[1:], kept[1:]):
        assert total == pytest.approx(sum(w * part for w, part in zip((0.35, 0.25, 0.25, 0.15), parts)), abs=1e-4)
        assert threshold == 1.0 and 0 <= total <= 1
    assert extract_again(db, user)["not_admitted"] == 1


def test_novelty_is_judged_again_with_the_vector(db: Db, user: str) -> None:
    call(db, "register_embedding_model", "four", "none", 4)
    call(db, "switch_embedding_model", "four")
    remembered(db, user, "The courier comes on Tuesday.", embedding=[1, 0, 0, 0])
    # Scores on entry about 0.35 * 0.6 + 0.25 * 1 + 0.25 * 0.75 + 0.15 = 0.8; once its vector says it is nothing new, 0.55.
    call(db, "set_user_settings", user, {"admission_threshold": 0.7})
    say(db, user, "I live in Ulm.", {"role": "assistant", "content": "I've booked the courier for 9 May at noon."})
    assert extract(db, user)["stored"] == 2
    users, items = zip(*table(db, "claim_embeddings", 1000, "four", columns="user_id, item_no"))
    vectors = [1.0, 0.01, 0.0, 0.0] * len(users)
    db.execute("select memoir.store_embeddings(%s, %s, %s::real[], 'four')", [[*users], [*items], vectors])
    states = memories(db, user, "m.state::text", "m.state_reason", where="m.session_id is not null")
    assert sorted(states, key=str) == [("active", None), ("invalidated", "not admitted")]
    assert memories(db, user, where="m.session_id is not null and m.state = 'active'") == ["User lives in Ulm."]


# The job --------------------------------------------------------------------------------------------------------------


def test_session_waits_once_and_the_job_empties_the_queue(db: Db, user: str) -> None:
    for place in range(3):
        say(db, user, f"I visited Ulm on {place + 1} May.", "How are you?")
    assert len(waiting(db, user)) == 1
    done = run_job(db, "extract")
    assert waiting(db, user) == [] and len(memories(db, user)) == 3 and done["turns"] >= 6 and done["stored"] >= 3
    say(db, user, "I love Bach.")
    assert len(waiting(db, user)) == 1


def test_hanging_session_becomes_a_dead_letter(
    db: Db, memoir_dsn: str, user: str, clock: Callable[[str], None]
) -> None:
    """Sessions beside it are extracted meanwhile."""
    reads = "_memoir.turns_as_read(_memoir.conversation_history[])"
    old = one(db, "select pg_get_functiondef(%s::regprocedure)", reads)
    for session in ("a", "hangs", "z"):
        say(db, user, "I love Hang Drums." if session == "hangs" else f"I love town {session}1.", session=session)
    set_settings(db, job_unit_seconds=5, work_attempts_max=2)
    hang = "begin if exists (select from unnest(p_turns) t where t.content like '%Hang%') then perform pg_sleep(3600); end if;"
    try:
        db.execute(old.replace("begin", hang, 1))
        for attempt in (1, 2):
            clock(f"2120-01-0{attempt}T00:00:00Z")  # waited long enough
            with connect(memoir_dsn) as other:
                run = threading.Thread(target=other.execute, args=["call memoir.run_job('extract')"])
                run.start()
                while run.is_alive():
                    db.execute("call memoir.run_job('flush')")  # as any job that begins meanwhile
                    run.join(0.2)
            assert sorted(memories(db, user)) == ["User loves town a1.", "User loves town z1."]
            assert last_run(db, "extract")[0] == "errors"
        dead = [("dead", 2, "it took longer than job_unit_seconds")]
        assert waiting(db, user, "j.state, j.attempts, j.last_error") == dead
    finally:
        db.execute(old)
        db.execute("select memoir.reset_setting('job_unit_seconds'), memoir.reset_setting('work_attempts_max')")


@pytest.mark.acceptance
def test_writers_and_extractors_lose_and_double_nothing(memoir_dsn: str, db: Db, user: str) -> None:
    sessions, each = 4, 12
    errors: list[BaseException] = []
    writing = threading.Event()
    writing.set()

    def start(work: Callable[[Db], None]) -> threading.Thread:
        def run() -> None:
            try:
                with connect(memoir_dsn) as connection:
                    work(connection)
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def write(number: int, connection: Db) -> None:
        for turn in range(each):
            say(connection, user, f"I visited town {number * each + turn + 1} yesterday.", session=f"w{number}")

    def read(connection: Db) -> None:
        while writing.is_set():
            connection.execute("call memoir.run_job('extract')")
            for (session,) in table(connection, "list_sessions", user, columns="session"):
                extract(connection, user, session, 2)

    say(db, user, "Hello.", session="w0")
    writers = [start(lambda c, number=number: write(number, c)) for number in range(sessions)]
    readers = [start(read) for _ in range(2)]
    for thread in writers:
        thread.join()
    writing.clear()
    for thread in readers:
        thread.join()
    assert errors == []
    for number in range(sessions):
        extract(db, user, f"w{number}")
    run_job(db, "extract")
    got = memories(db, user)
    assert len(got) == len(set(got)) == sessions * each and waiting(db, user) == []


# A model's candidates -------------------------------------------------------------------------------------------------


@pytest.fixture
def model(db: Db) -> Iterator[None]:
    set_settings(db, llm_provider="openai", llm_model="default")
    yield
    db.execute("select memoir.reset_setting('llm_provider'), memoir.reset_setting('llm_model')")


def candidate(turn: int, quote: str, content: str, **more: Any) -> dict[str, Any]:
    return {"turn": turn, "quote": quote, "content": content, "type": "fact", "importance": 0.8} | more


def claim(db: Db) -> tuple[Any, ...]:
    ((job, lease, kind, given),) = table(db, "claim_model_calls", 10)
    assert kind == "extract"
    return job, lease, given


def answer(db: Db, claimed: tuple[Any, ...], *found: dict[str, Any]) -> int:
    """How many are stored of a model's answer."""
    job, lease, given = claimed
    done = call(db, "store_model_result", job, lease, Jsonb(located(given, {"new": list(found)})), "m extract.v2")
    assert "failed" not in done, done
    return int(done["stored"])


def test_model_claims_no_more_than_its_turns_allow(db: Db, user: str, model: None) -> None:
    yacht = {"role": "assistant", "content": "You surely own a yacht in Monaco."}
    say(db, user, "We pay the rent of 900 euros on Mondays, and Tom keeps the keys.", yacht)
    extract(db, user)
    stored = answer(
        db,
        claim(db),
        candidate(0, "the rent of 900 euros", "The user pays a rent of 900 euros on Mondays."),
        candidate(0, "Tom keeps the keys", "The user's PIN is 4711 and Tom keeps the keys."),  # a number nobody said
        candidate(0, "Tom keeps the keys", "The user secretly hates everybody in Paris."),  # not what the turn says
        candidate(1, "own a yacht in Monaco", "The user owns a yacht in Monaco."),  # the assistant's word
        candidate(0, "I never said this", "The user likes gold."),
        candidate(7, "rent", "The user pays rent elsewhere."),
    )
    columns = ("m.content", "provenance::text", "scope::text", "tier")
    got = {row[0]: row[1:] for row in memories(db, user, *columns, where="m.metadata ->> 'rule' = 'model'")}
    assert got.pop("The user pays a rent of 900 euros on Mondays.") == ("user_stated", "global", 3)
    assert stored == 4 and len(got) == 3 and set(got.values()) == {("system_inferred", "local", 1)}


def test_model_gets_no_private_text(db: Db, user: str, model: None) -> None:
    """And stores nothing of a turn that is marked meanwhile."""
    say(db, user, "Tom waters my three plants.", "My cat Ivy hides in the cupboard.", "Ann feeds the fish.")
    call(db, "mark_turn", user, "s", 1, "private")
    extract(db, user)
    claimed = claim(db)
    assert [turn["turn"] for turn in claimed[2]["turns"]] == [0, 2]
    call(db, "mark_turn", user, "s", 0, "private")
    found = (
        candidate(0, "Tom waters my three plants", "Tom waters the user's three plants."),
        candidate(1, "My cat Ivy", "The user's cat is called Ivy."),
        candidate(2, "Ann feeds the fish", "Ann feeds the fish."),
    )
    assert answer(db, claimed, *found) == 1
    assert memories(db, user, where="m.metadata ->> 'rule' = 'model'") == ["Ann feeds the fish."]


# In the compiled list -------------------------------------------------------------------------------------------------


def recalled_for(db: Db, user: str, query: str) -> tuple[str, dict[str, str]]:
    """The recall of a compile in a fresh session, and why each candidate was left out."""
    content = call(db, "compile_context", user, "fresh", query)[-1]["content"]
    return content.removesuffix(query), dict(
        table(db, "explain_context", user, "fresh", query, columns="id::text, reason")
    )


def test_turn_stands_for_what_was_extracted_from_it(db: Db, user: str) -> None:
    noted = {"role": "assistant", "content": "Noted."}
    say(db, user, "We live in Ulm, by the minster. I bought a lighthouse in Kiel last month.", noted)
    before = recalled_for(db, user, "Where is the minster that we live by?")
    extract(db, user)
    home, house = (
        memories(db, user, "m.memory_id::text", where=f"m.content like '%%{word}%%'")[0]
        for word in ("minster", "house")
    )
    # Extracting changes nothing about which turns are found; recall finds the memory where memories are asked for.
    assert recalled_for(db, user, "Where is the minster that we live by?") == before and home not in before[1]
    assert table(db, "recall", user, "minster", kinds=["memory"], columns="id::text") == [(home,)]
    # When the turn may not be found any more, what else it said is still known.
    call(db, "forget", user, home)
    listed, reasons = recalled_for(db, user, "Who bought a lighthouse in Kiel?")
    assert "lighthouse" in listed and reasons[house] is None and "minster" not in listed
