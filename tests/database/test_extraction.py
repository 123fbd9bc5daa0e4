"""Extraction of what is stored: slots, authority, admission, the job, a model's candidates; again, beside writers, after a forget."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import date
from typing import Any

import psycopg
import pytest
from calls import last_run, set_settings
from pg_memoir_server.llm.stretches import located
from psycopg.types.json import Jsonb
from servers import connect

# In the database --------------------------------------------------------------------------------------------------------------


def say(
    db: psycopg.Connection, user: str, *messages: Any, session: str = "s", actor: str | None = None
) -> dict[str, Any]:
    listed = [{"role": "user", "content": message} if isinstance(message, str) else message for message in messages]
    return db.execute(
        "select memoir.persist_turn(%s, %s, %s, p_actor => %s)", [user, session, Jsonb(listed), actor]
    ).fetchone()[0]


def extract(db: psycopg.Connection, user: str, session: str = "s", limit: int = 1000) -> dict[str, Any]:
    return db.execute("select memoir.extract_session(%s, %s, %s)", [user, session, limit]).fetchone()[0]


def memories(db: psycopg.Connection, user: str, *columns: str, where: str = "true") -> list[Any]:
    rows = db.execute(
        f"select {', '.join(columns or ('m.content',))} from _memoir.memory_store m join _memoir.users using (user_id) "
        f"where external_id = %s and {where} order by m.recorded_at, m.content",
        [user],
    ).fetchall()
    return rows if len(columns) > 1 else [row[0] for row in rows]


def again(db: psycopg.Connection, user: str) -> None:
    """The cursors go back: as if the same turns were new."""
    db.execute(
        "update _memoir.session_counters c set extracted_through = 0 from _memoir.users u where u.user_id = c.user_id and external_id = %s",
        [user],
    )


def test_statements_become_sourced_memories(db: psycopg.Connection, user: str) -> None:
    done = say(
        db,
        user,
        "Hi! I live in Ulm. Please don't use emojis.",
        {"role": "assistant", "content": "Noted. I live in the cloud."},
    )
    assert extract(db, user) == {
        "turns": 2,
        "left": 0,
        "stored": 2,
        "duplicate": 0,
        "refused_tombstone": 0,
        "not_admitted": 0,
    }
    assert memories(
        db, user, "m.content", "provenance::text", "tier", "scope::text", "actor::text", "m.metadata ->> 'extracted_by'"
    ) == [
        ("User asks: Please don't use emojis.", "instruction", 4, "global", "agent", "rules 1"),
        ("User lives in Ulm.", "user_stated", 3, "global", "agent", "rules 1"),
    ]
    sources = db.execute(
        "select s.source_id::text, s.turn_index, substr(h.content, s.span_start, s.span_length) from _memoir.memory_sources s "
        "join _memoir.conversation_history h on h.message_id = s.source_id join _memoir.users u on u.user_id = s.user_id where external_id = %s order by span_start",
        [user],
    ).fetchall()
    assert sources == [
        (done["message_ids"][0], 0, "I live in Ulm."),
        (done["message_ids"][0], 0, "Please don't use emojis."),
    ]


def test_what_an_agent_or_a_tool_says_stays_in_its_session(db: psycopg.Connection, user: str) -> None:
    call = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "find_order", "arguments": "{}"}}],
    }
    say(
        db,
        user,
        "Where is it?",
        call,
        {
            "role": "tool",
            "tool_call_id": "c1",
            "content": '{"order_id": "A-1742", "total": "39.90 EUR", "note": "I live in Ulm"}',
        },
        {
            "role": "assistant",
            "content": "I've booked the courier for 9 May. I love couriers. Your tracking number is ZX-881.",
        },
        {"role": "assistant", "name": "Mel", "content": "I moved to Bonn in April."},
    )
    say(db, user, "I live in Kiel and always pay on Monday.", session="relay", actor="agent")
    assert extract(db, user)["stored"] == 5 and extract(db, user, "relay")["stored"] == 0
    got = memories(db, user, "m.content", "provenance::text", "tier", "scope::text", "source_tool")
    assert [row[1:] for row in sorted(got)] == [("system_inferred", 1, "local", None)] * 3 + [
        ("tool_output", 1, "local", "find_order")
    ] * 2
    assert [row[0].split(" on ")[0].split(" for ")[0] for row in sorted(got)] == [
        "Assistant has booked the courier",
        "Assistant: Your tracking number is ZX-881.",
        "Mel moved to Bonn in April.",
        "Tool find_order returned order_id A-1742",
        "Tool find_order returned total 39.90",
    ]


def test_extracting_again_adds_nothing(db: psycopg.Connection, user: str) -> None:
    say(db, user, "I live in Ulm. I love Bach.", "I love Bach.")
    assert extract(db, user)["stored"] == 2
    before = memories(db, user, "m.memory_id", "m.content", "m.state", "m.recorded_at")
    stats = "select restatements from _memoir.memory_stats s join _memoir.users using (user_id) where external_id = %s order by 1"
    assert db.execute(stats, [user]).fetchall() == [(0,), (1,)]  # said twice, in two turns
    for _ in range(2):
        again(db, user)
        assert extract(db, user)["stored"] == 0
        assert memories(db, user, "m.memory_id", "m.content", "m.state", "m.recorded_at") == before
        assert db.execute(stats, [user]).fetchall() == [(0,), (1,)]
    assert extract(db, user) == {
        "turns": 0,
        "left": 0,
        "stored": 0,
        "duplicate": 0,
        "refused_tombstone": 0,
        "not_admitted": 0,
    }


def test_batches_take_up_where_the_last_one_ended(db: psycopg.Connection, user: str) -> None:
    cities = ["Ulm", "Bonn", "Kiel", "Jena", "Gera"]
    say(db, user, *(f"I visited {city} yesterday." for city in cities))
    assert [extract(db, user, limit=2)["left"] for _ in range(3)] == [3, 1, 0]
    assert len(memories(db, user)) == 5


def test_a_move_supersedes_and_an_older_statement_does_not(db: psycopg.Connection, user: str) -> None:
    def home() -> list[Any]:
        return memories(db, user, "m.content", "m.state::text", where="slot = 'home city'")

    say(db, user, {"role": "user", "content": "I live in Ulm.", "created_at": "2024-01-01T00:00:00Z"}, session="one")
    say(db, user, {"role": "user", "content": "I live in Kiel.", "created_at": "2025-01-01T00:00:00Z"}, session="two")
    say(db, user, {"role": "user", "content": "I live in Bonn.", "created_at": "2023-01-01T00:00:00Z"}, session="zero")
    for session in ("one", "two", "zero"):
        extract(db, user, session)
    assert home() == [("User lives in Ulm.", "superseded"), ("User lives in Kiel.", "active")]
    say(db, user, "I no longer live in Rome.", session="three")
    extract(db, user, "three")
    assert home()[1] == ("User lives in Kiel.", "active")
    say(db, user, "I don't live in Kiel anymore.", session="four")
    extract(db, user, "four")
    assert [state for _, state in home()] == ["superseded", "superseded", "active"]


def test_forgotten_and_secret_are_not_extracted(db: psycopg.Connection, user: str) -> None:
    say(db, user, "I live in Ulm. I love Bach.")
    extract(db, user)
    (memory,) = memories(db, user, "m.memory_id", where="m.content like '%%Ulm%%'")
    db.execute("select memoir.forget(%s, %s)", [user, memory])
    # The same words again, by anybody; the same turn again; another turn with the value in its slot.
    say(db, user, "I live in Ulm.", "Yes, we live in Ulm with our cat.")
    again(db, user)
    assert extract(db, user)["refused_tombstone"] == 2
    assert memories(db, user, where="m.state = 'active'") == ["User loves Bach."]
    # A turn, and a span of one, that is out of recall; lifted, they count again.
    done = say(
        db, user, "I bought a boat in Kiel yesterday.", "I met Tom in Jena yesterday. I met Ann in Gera yesterday."
    )
    first = done["from_turn"]
    exclude = (
        "insert into _memoir.recall_exclusions (user_id, session_id, turn_index, exclusion_id, span_start, span_length, reason, recorded_at) "
        "select user_id, %s, %s, gen_random_uuid(), %s, %s, 'test', now() from _memoir.users where external_id = %s"
    )
    db.execute(exclude, [done["session_id"], first, None, None, user])
    db.execute(exclude, [done["session_id"], first + 1, 5, 3, user])
    assert extract(db, user)["stored"] == 1
    assert [text for text in memories(db, user, where="m.type = 'event'") if "Ann" in text] and len(
        memories(db, user, where="m.type = 'event'")
    ) == 1
    db.execute(
        "update _memoir.recall_exclusions x set lifted_at = now() from _memoir.users u where u.user_id = x.user_id and external_id = %s",
        [user],
    )
    again(db, user)
    extract(db, user)
    assert len(memories(db, user, where="m.type = 'event'")) == 3


def test_extraction_keeps_the_sensitivity(db: psycopg.Connection, user: str) -> None:
    say(db, user, "I live in Ulm.", "I love Bach.")
    db.execute("set session_replication_role = replica")  # sensitivity is set on write; here the guard is passed over
    db.execute(
        "update _memoir.conversation_history h set sensitivity = case turn_index when 0 then 'private' else 'secret' end::_memoir.sensitivity "
        "from _memoir.users u where u.user_id = h.user_id and external_id = %s",
        [user],
    )
    db.execute("reset session_replication_role")
    extract(db, user)
    assert memories(db, user, "m.content", "m.sensitivity::text") == [("User lives in Ulm.", "private")]


def test_extraction_can_be_switched_off_for_a_user(db: psycopg.Connection, user: str) -> None:
    say(db, user, "I live in Ulm.")
    db.execute("select memoir.set_user_settings(%s, %s)", [user, Jsonb({"extraction": False})])
    assert extract(db, user) == {
        "turns": 1,
        "left": 0,
        "stored": 0,
        "duplicate": 0,
        "refused_tombstone": 0,
        "not_admitted": 0,
    }
    db.execute(
        "select memoir.set_user_settings(%s, %s)", [user, Jsonb({"extraction": None, "text_search_config": "german"})]
    )
    # The rules are those of each text's own language, whatever the setting.
    say(db, user, "I love Bach.", "Ik ben gek op Bach, altijd al.", "I hate rain.")
    assert extract(db, user)["stored"] == 2 and memories(db, user) == ["User hates rain.", "User loves Bach."]


def test_a_branch_extracts_only_its_own_turns(db: psycopg.Connection, user: str) -> None:
    say(db, user, "I live in Ulm.", "I love Bach.")
    db.execute("select memoir.branch_session(%s, 's', 'b', 1)", [user])
    assert extract(db, user, "b")["turns"] == 0
    say(db, user, "I hate rain.", session="b")
    assert extract(db, user, "b")["turns"] == 1 and memories(db, user) == ["User hates rain."]


# Admission ----------------------------------------------------------------------------------------------------------------------


def scores(db: psycopg.Connection, user: str) -> list[Any]:
    return db.execute(
        "select a.admitted, a.memory_id is not null, score_total, score_type, score_novelty, score_utility, score_recency, threshold "
        "from _memoir.admission_scores a join _memoir.users using (user_id) where external_id = %s order by a.recorded_at, score_total",
        [user],
    ).fetchall()


def test_every_candidate_is_scored_and_people_are_never_rejected(db: psycopg.Connection, user: str) -> None:
    db.execute("select memoir.set_user_settings(%s, %s)", [user, Jsonb({"admission_threshold": 1.0})])
    say(db, user, "I live in Ulm.", {"role": "assistant", "content": "I've booked the table for 9 May."})
    done = extract(db, user)
    assert (done["stored"], done["not_admitted"]) == (1, 1) and memories(db, user) == ["User lives in Ulm."]
    (rejected, kept) = sorted(scores(db, user))
    assert rejected[:2] == (False, False) and kept[:2] == (True, True)
    weights = (0.35, 0.25, 0.25, 0.15)
    for total, *parts, threshold in (rejected[2:], kept[2:]):
        assert total == pytest.approx(sum(weight * part for weight, part in zip(weights, parts, strict=True)), abs=1e-4)
        assert threshold == 1.0 and 0 <= total <= 1
    # What was not admitted is not stored when it is seen again, and nothing was left to exclude it by.
    again(db, user)
    assert extract(db, user)["not_admitted"] == 1


def test_novelty_is_judged_again_when_the_vector_comes(db: psycopg.Connection, user: str) -> None:
    db.execute("select memoir.register_embedding_model('four', 'none', 4)")
    db.execute("select memoir.switch_embedding_model('four')")
    db.execute("select memoir.remember(%s, 'The courier comes on Tuesday.', p_embedding => '{1,0,0,0}')", [user])
    # Scores on entry about 0.35 * 0.6 + 0.25 * 1 + 0.25 * 0.75 + 0.15 = 0.8; once its vector says it is nothing new, 0.55.
    db.execute("select memoir.set_user_settings(%s, %s)", [user, Jsonb({"admission_threshold": 0.7})])
    say(db, user, "I live in Ulm.", {"role": "assistant", "content": "I've booked the courier for 9 May at noon."})
    assert extract(db, user)["stored"] == 2
    claims = db.execute("select user_id, item_no, text from memoir.claim_embeddings(1000, 'four')").fetchall()
    vectors = [[1.0, 0.01, 0.0, 0.0] for _ in claims]
    db.execute(
        "select memoir.store_embeddings(%s, %s, %s::real[], 'four')",
        [[c[0] for c in claims], [c[1] for c in claims], vectors],
    )
    assert sorted(memories(db, user, "m.content", "m.state::text", "m.state_reason", where="m.session_id is not null"))[
        1
    ] == ("User lives in Ulm.", "active", None)
    assert sorted(memories(db, user, "m.state::text", "m.state_reason", where="m.session_id is not null"))[1] == (
        "invalidated",
        "not admitted",
    )
    assert [(row[0], row[1]) for row in scores(db, user)].count((False, True)) == 1


# The job ------------------------------------------------------------------------------------------------------------------------


def waiting(db: psycopg.Connection, user: str) -> int:
    return db.execute(
        "select count(*) from _memoir.work_items j join _memoir.users using (user_id) where external_id = %s and kind = 'turns'",
        [user],
    ).fetchone()[0]


def test_a_session_waits_once_and_the_job_empties_the_queue(db: psycopg.Connection, user: str) -> None:
    for place in range(3):
        say(db, user, f"I visited Ulm on {place + 1} May.", "How are you?")
    assert waiting(db, user) == 1
    db.execute("call memoir.run_job('extract')")
    assert waiting(db, user) == 0 and len(memories(db, user)) == 3
    (counts, outcome) = db.execute(
        "select counts, outcome from _memoir.job_runs where job = 'extract' order by run_id desc limit 1"
    ).fetchone()
    assert outcome == "done" and counts["turns"] >= 6 and counts["stored"] >= 3
    say(db, user, "I love Bach.")
    assert waiting(db, user) == 1


def test_one_session_that_fails_holds_nobody_up(db: psycopg.Connection, user: str) -> None:
    say(db, user, "I love Bach.", session="bad")
    say(db, user, "I love Ulm.", session="good")
    db.execute(
        "update _memoir.work_items j set dedup_key = 'no uuid' from _memoir.sessions s join _memoir.users u using (user_id) "
        "where u.external_id = %s and s.external_id = 'bad' and j.user_id = s.user_id and j.dedup_key = s.session_id::text",
        [user],
    )
    db.execute("call memoir.run_job('extract')")
    assert memories(db, user) == ["User loves Ulm."]
    assert db.execute(
        "select state, attempts, last_error like '%%no uuid%%' from _memoir.work_items where dedup_key = 'no uuid'"
    ).fetchone() == ("ready", 1, True)
    assert db.execute(
        "select outcome from _memoir.job_runs where job = 'extract' order by run_id desc limit 1"
    ).fetchone() == ("errors",)
    db.execute("delete from _memoir.work_items where dedup_key = 'no uuid'")


def test_hanging_session_becomes_a_dead_letter(db: psycopg.Connection, memoir_dsn: str, user: str, clock: Any) -> None:
    reads = "_memoir.turns_as_read(_memoir.conversation_history[])"
    old = db.execute("select pg_get_functiondef(%s::regprocedure)", [reads]).fetchone()[0]
    for session in ("a", "hangs", "z"):
        say(db, user, "I love Hang Drums." if session == "hangs" else f"I love town {session}1.", session=session)
    set_settings(db, job_unit_seconds=5, work_attempts_max=2)
    try:
        db.execute(
            old.replace(
                "begin",
                "begin if exists (select from unnest(p_turns) t where t.content like '%Hang%') then perform pg_sleep(3600); end if;",
                1,
            )
        )
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
        work = db.execute(
            "select j.state, j.attempts, j.last_error from _memoir.work_items j join _memoir.users using (user_id) where external_id = %s and kind = 'turns'",
            [user],
        )
        assert work.fetchall() == [("dead", 2, "it took longer than job_unit_seconds")]
    finally:
        db.execute(old)
        db.execute("select memoir.reset_setting('job_unit_seconds'), memoir.reset_setting('work_attempts_max')")


def test_an_attempt_whose_process_died_counts(db: psycopg.Connection, memoir_dsn: str, user: str) -> None:
    say(db, user, "I love Bach.")
    with connect(memoir_dsn) as other:
        run = other.execute("select _memoir.job_begin('extract', 60, clock_timestamp())").fetchone()[0]
        assert other.execute("select _memoir.job_step(%s)", [run]).fetchone() == (True,)  # leased, and no more
        process = other.info.backend_pid
    while db.execute("select 1 from pg_stat_activity where pid = %s", [process]).fetchone():
        pass
    db.execute("call memoir.run_job('extract')")
    work = db.execute(
        "select j.state, j.attempts, j.last_error from _memoir.work_items j join _memoir.users using (user_id) where external_id = %s and kind = 'turns'",
        [user],
    )
    assert (
        work.fetchall() == [("ready", 1, "the run that extracted it ended before it did")] and memories(db, user) == []
    )


PASTED = ['<p class="x">', '"so it is ', "``` ", "x = f();\n", "> quoted\n"]


@pytest.mark.acceptance
@pytest.mark.parametrize("unit", PASTED)
def test_pasted_page_states_nothing(db: psycopg.Connection, user: str, unit: str) -> None:
    page = "I love Ulm.\n" + unit * (1_000_000 // len(unit))
    with db.transaction():
        db.execute("set local statement_timeout = '20s'")
        say(db, user, page)
        assert extract(db, user)["left"] == 0
    assert memories(db, user) == ["User loves Ulm."]


@pytest.mark.acceptance
def test_writers_and_extractors_together_lose_and_double_nothing(
    memoir_dsn: str, db: psycopg.Connection, user: str
) -> None:
    sessions, each = 4, 12
    errors: list[BaseException] = []
    writing = threading.Event()
    writing.set()

    def guarded(work: Any) -> threading.Thread:
        def run() -> None:
            try:
                with connect(memoir_dsn) as connection:
                    work(connection)
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def writer(number: int) -> Any:
        def work(connection: psycopg.Connection) -> None:
            for turn in range(each):
                say(connection, user, f"I visited town {number * each + turn + 1} yesterday.", session=f"w{number}")

        return work

    def stepper(connection: psycopg.Connection) -> None:
        while writing.is_set():
            connection.execute("select _memoir.step_extract(3)")
            for number in range(sessions):
                if connection.execute(
                    "select exists (select from _memoir.sessions join _memoir.users u using (user_id) where u.external_id = %s and sessions.external_id = %s)",
                    [user, f"w{number}"],
                ).fetchone()[0]:
                    extract(connection, user, f"w{number}", 2)

    say(db, user, "Hello.", session="w0")
    writers = [guarded(writer(number)) for number in range(sessions)]
    steppers = [guarded(stepper) for _ in range(2)]
    for thread in writers:
        thread.join()
    writing.clear()
    for thread in steppers:
        thread.join()
    assert errors == []
    for number in range(sessions):
        extract(db, user, f"w{number}")
    got = memories(db, user)
    assert len(got) == len(set(got)) == sessions * each
    assert waiting(db, user) == 0
    assert db.execute(
        "select bool_and(extracted_through = turn_count) from _memoir.session_counters join _memoir.users using (user_id) where external_id = %s",
        [user],
    ).fetchone() == (True,)


def test_dates_are_those_of_the_turn_not_of_the_run(db: psycopg.Connection, user: str, clock: Any) -> None:
    clock("2026-03-04T12:00:00Z")
    say(
        db,
        user,
        {"role": "user", "content": "I flew to Rome yesterday.", "created_at": "2020-02-29T10:00:00Z"},
        "I flew to Oslo yesterday.",
    )
    clock("2026-04-04T12:00:00Z")
    extract(db, user)
    assert sorted(memories(db, user, "m.content", "m.valid_from::date", "m.metadata ->> 'event_from'")) == [
        ("User flew to Oslo on 3 March 2026.", date(2026, 3, 3), "2026-03-03"),
        ("User flew to Rome on 28 February 2020.", date(2020, 2, 28), "2020-02-28"),
    ]


def test_yesterday_by_the_senders_clock(db: psycopg.Connection, user: str) -> None:
    """At half past midnight in Tokyo it is still the day before in UTC."""
    moments = {
        "2026-03-20T00:30:00+09:00": ("+09:00", "19 March 2026"),
        "2026-03-20 00:30+0530": ("+05:30", "19 March 2026"),
        "2026-03-20T23:30:00-08": ("-08:00", "19 March 2026"),
        "2026-03-20T00:30:00Z": (None, "19 March 2026"),
    }
    for place, (moment, (offset, day)) in enumerate(moments.items()):
        session = f"s{place}"
        say(db, user, {"role": "user", "content": "I flew home yesterday.", "created_at": moment}, session=session)
        history = db.execute("select h from memoir.history(%s, %s) h", [user, session]).fetchall()
        assert history[0][0].get("utc_offset") == offset, moment
        extract(db, user, session)
        [content] = memories(db, user, where="m.state = 'active'")[-1:]
        assert day in content, moment


def test_named_speakers_change_their_own_statements(db: psycopg.Connection, user: str) -> None:
    for name in ("Mia", "Ida"):
        say(db, user, {"role": "user", "name": name, "content": "I live in Kassel."}, session=name)
        extract(db, user, session=name)
    say(db, user, {"role": "user", "name": "Mia", "content": "I don't live in Kassel any more, I moved to Bonn."})
    extract(db, user)
    active = memories(db, user, where="m.state = 'active'")
    assert "Ida lives in Kassel." in active and "Mia lives in Kassel." not in active


# A model's candidates --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def model(db: psycopg.Connection) -> Iterator[None]:
    for key, value in (("llm_provider", "openai"), ("llm_model", "default")):
        db.execute("select memoir.set_setting(%s, %s)", [key, Jsonb(value)])
    yield
    for key in ("llm_provider", "llm_model"):
        db.execute("select memoir.reset_setting(%s)", [key])


def candidate(turn: int, quote: str, content: str, **more: Any) -> dict[str, Any]:
    return {
        "turn": turn,
        "quote": quote,
        "content": content,
        "type": "fact",
        "importance": 0.8,
    } | more


def answered(db: psycopg.Connection, *found: dict[str, Any]) -> dict[str, Any]:
    """The input that the model got, after its answer was stored."""
    ((job, lease, kind, given),) = db.execute("select * from memoir.claim_model_calls(10)").fetchall()
    assert kind == "extract"
    done = db.execute(
        "select memoir.store_model_result(%s, %s, %s, 'm extract.v2')",
        [job, lease, Jsonb(located(given, {"new": list(found)}))],
    ).fetchone()[0]
    assert "failed" not in done, done
    return given | {"stored": done["stored"]}


def test_a_model_says_better_what_rules_found(db: psycopg.Connection, user: str, model: None) -> None:
    say(
        db,
        user,
        "I live in Ulm, just by the minster. The weather is bad.",
        {"role": "assistant", "content": "Noted. Shall I look for a flat?"},
    )
    extract(db, user)
    assert memories(db, user) == ["User lives in Ulm, just by the minster."]
    given = answered(
        db,
        candidate(
            0,
            "I live in Ulm, just by the minster",
            "The user lives in Ulm by the minster.",
            valid_from="2020-01-01",
            valid_until="2099-12-31",
        ),
    )
    assert [(turn["turn"], turn["role"]) for turn in given["turns"]] == [(0, "user"), (1, "assistant")] and given[
        "stored"
    ] == 1
    assert memories(
        db, user, "m.content", "m.state::text", "tier", "provenance::text", "m.metadata ->> 'extracted_by'"
    ) == [
        ("User lives in Ulm, just by the minster.", "superseded", 3, "user_stated", "rules 1"),
        ("The user lives in Ulm by the minster.", "active", 3, "user_stated", "m extract.v2"),
    ]
    assert memories(db, user, "valid_from::date", "valid_to::date", where="m.state = 'active'") == [
        (date(2020, 1, 1), date(2100, 1, 1))
    ]
    # The same turns once more, by rules or by a model: nothing new.
    again(db, user)
    assert extract(db, user)["stored"] == 0
    assert (
        answered(db, candidate(0, "I live in Ulm, just by the minster", "The user is at home in Ulm."))["stored"] == 0
    )


def test_a_model_claims_no_more_than_its_turns_allow(db: psycopg.Connection, user: str, model: None) -> None:
    say(
        db,
        user,
        "We pay the rent of 900 euros on Mondays, and Tom keeps the keys.",
        {"role": "assistant", "content": "You surely own a yacht in Monaco."},
        session="s",
    )
    extract(db, user)
    done = answered(
        db,
        candidate(0, "the rent of 900 euros", "The user pays a rent of 900 euros on Mondays."),
        candidate(0, "Tom keeps the keys", "The user's PIN is 4711 and Tom keeps the keys."),  # a number nobody said
        candidate(0, "Tom keeps the keys", "The user secretly hates everybody in Paris."),  # not what the turn says
        candidate(1, "own a yacht in Monaco", "The user owns a yacht in Monaco."),  # the assistant's word
        candidate(0, "I never said this", "The user likes gold."),
        candidate(7, "rent", "The user pays rent elsewhere."),
    )
    assert done["stored"] == 4
    got = {
        row[0]: row[1:]
        for row in memories(
            db, user, "m.content", "provenance::text", "scope::text", "tier", where="m.metadata ->> 'rule' = 'model'"
        )
    }
    assert got.pop("The user pays a rent of 900 euros on Mondays.") == ("user_stated", "global", 3)
    assert len(got) == 3 and set(got.values()) == {("system_inferred", "local", 1)}


def test_model_gets_no_private_text(db: psycopg.Connection, user: str, model: None) -> None:
    fish = {"role": "user", "content": "Ann feeds the fish.", "utc_offset": "of my own"}
    say(db, user, "Tom waters my three plants.", "My cat Ivy hides in the cupboard.", fish)
    db.execute("select memoir.mark_turn(%s, 's', 1, 'private')", [user])
    extract(db, user)
    ((job, lease, _, given),) = db.execute("select * from memoir.claim_model_calls(10)").fetchall()
    assert [turn["turn"] for turn in given["turns"]] == [0, 2]
    db.execute(
        "insert into _memoir.recall_exclusions (user_id, session_id, turn_index, exclusion_id, reason, recorded_at) "
        "select user_id, session_id, 0, gen_random_uuid(), 'test', now() from _memoir.sessions join _memoir.users u using (user_id) where u.external_id = %s",
        [user],
    )
    found = [
        candidate(0, "Tom waters my three plants", "Tom waters the user's three plants."),
        candidate(1, "My cat Ivy", "The user's cat is called Ivy."),
        candidate(2, "Ann feeds the fish", "Ann feeds the fish."),
    ]
    assert (
        db.execute(
            "select memoir.store_model_result(%s, %s, %s, 'm extract.v2')",
            [job, lease, Jsonb(located(given, {"new": found}))],
        ).fetchone()[0]["stored"]
        == 1
    )
    assert memories(db, user, where="m.metadata ->> 'rule' = 'model'") == ["Ann feeds the fish."]


# In the compiled list --------------------------------------------------------------------------------------------------------------


def recalled_for(db: psycopg.Connection, user: str, query: str) -> tuple[str, dict[str, str]]:
    """(the recall of a compile in a fresh session, what became of each considered memory or turn)."""
    listed = db.execute("select memoir.compile_context(%s, 'fresh', %s)", [user, query]).fetchone()[0][-1]["content"]
    rows = db.execute("select id::text, reason from memoir.explain_context(%s, 'fresh', %s)", [user, query]).fetchall()
    return listed.removesuffix(query), dict(rows)


def test_a_turn_stands_for_what_was_extracted_from_it(db: psycopg.Connection, user: str) -> None:
    say(
        db,
        user,
        "We live in Ulm, by the minster. I bought a lighthouse in Kiel last month.",
        {"role": "assistant", "content": "Noted."},
    )
    before = recalled_for(db, user, "Where is the minster that we live by?")
    extract(db, user)
    (home,) = memories(db, user, "m.memory_id::text", where="m.content like '%%minster%%'")
    (house,) = memories(db, user, "m.memory_id::text", where="m.content like '%%lighthouse%%'")
    # Extracting changes nothing about which turns are found; recall finds the memory where memories are asked for.
    assert recalled_for(db, user, "Where is the minster that we live by?") == before and home not in before[1]
    assert [
        str(row[0]) for row in db.execute("select id from memoir.recall(%s, 'minster', p_kinds => '{memory}')", [user])
    ] == [home]
    # What is shown counts as use of what it says.
    db.execute("call memoir.flush_statistics()")
    assert db.execute("select access_count > 0 from _memoir.memory_stats where memory_id = %s", [home]).fetchone() == (
        True,
    )
    # When the turn may not be found any more, what else it said is still known.
    db.execute("select memoir.forget(%s, %s)", [user, home])
    listed, reasons = recalled_for(db, user, "Who bought a lighthouse in Kiel?")
    assert "lighthouse" in listed and reasons[house] is None and "minster" not in listed
