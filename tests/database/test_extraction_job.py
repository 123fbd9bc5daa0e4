"""How extraction runs: admission of candidates, the job and its queue, a model's candidates."""

from collections.abc import Callable, Iterator
from concurrent.futures import wait
from functools import partial
from typing import Any

import pytest
from calls import Db, call, embed_waiting, remembered, run_job, set_settings, table
from extracted import extract, extract_again, memories, say, waiting
from internals import changed_function, last_run, own_rows
from parallel import beside, in_parallel
from pg_memoir_server.llm.stretches import locate
from pipeline import candidate
from psycopg.types.json import Jsonb
from routines import code
from servers import connect


def test_candidates_are_scored_and_people_never_rejected(db: Db, user: str) -> None:
    call(db, "set_user_settings", user, {"admission_threshold": 1.0})
    say(db, user, "I live in Ulm.", {"role": "assistant", "content": "I've booked the table for 9 May."})
    done = extract(db, user)
    assert (done["stored"], done["not_admitted"]) == (1, 1) and memories(db, user) == ["User lives in Ulm."]
    scores = "score_total, score_type, score_novelty, score_utility, score_recency, threshold"
    rejected, kept = own_rows(db, user, "admission_scores", f"admitted, {scores}", "true order by admitted")
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
    assert extract(db, user)["stored"] == 2 and embed_waiting(db, [1, 0.01, 0, 0], "four")
    states = memories(db, user, "state::text", "state_reason", where="session_id is not null")
    assert sorted(states, key=str) == [("active", None), ("invalidated", "not admitted")]
    assert memories(db, user, where="session_id is not null and state = 'active'") == ["User lives in Ulm."]


def test_session_waits_once_and_the_job_empties_the_queue(db: Db, user: str) -> None:
    for place in range(3):
        say(db, user, f"I visited Ulm on {place + 1} May.", "How are you?")
    assert len(waiting(db, user)) == 1
    done = run_job(db, "extract")
    assert waiting(db, user) == [] and len(memories(db, user)) == 3 and done["turns"] >= 6 and done["stored"] >= 3


def test_job_makes_the_month_that_it_writes_in(db: Db, user: str, clock: Callable[[str], None]) -> None:
    say(db, user, "I live in Ulm.", "I work at Acme.")
    clock("2051-03-01T00:00:00Z")
    assert run_job(db, "extract").get("failed", 0) == 0 and len(memories(db, user)) == 2
    say(db, user, "I love Bach.")
    assert len(waiting(db, user)) == 1


def test_hanging_session_becomes_a_dead_letter(db: Db, memoir_dsn: str, user: str, clock) -> None:
    """Sessions beside it are extracted meanwhile."""
    for session in ("a", "hangs", "z"):
        say(db, user, "I love Hang Drums." if session == "hangs" else f"I love town {session}1.", session=session)
    set_settings(db, job_unit_seconds=5, work_attempts_max=2)
    hang = "begin if exists (select from unnest(p_turns) t where t.content like '%Hang%') then perform pg_sleep(3600); end if;"
    with changed_function(db, "turns_as_read", lambda old: old.replace("begin", hang, 1)):
        for attempt in (1, 2):
            clock(f"2120-01-0{attempt}T00:00:00Z")  # waited long enough
            say(db, user, f"I hate rain in May {attempt}.", session="warm")
            with connect(memoir_dsn) as other:
                extract(other, user, "warm")  # a process's first extraction loads the package and the judge
                run = beside(lambda: code(lambda: other.execute("call memoir.run_job('extract')")))
                while not run.done():
                    db.execute("call memoir.run_job('flush')")  # as any job that begins meanwhile
                    wait([run], 0.2)
            loved = memories(db, user, where="content like '%%loves%%'")
            assert sorted(loved) == ["User loves town a1.", "User loves town z1."]
            assert last_run(db, "extract")[0] == "errors"
        dead = [("dead", 2, "it took longer than job_unit_seconds")]
        assert waiting(db, user, "state, attempts, last_error") == dead
    db.execute("select memoir.reset_setting('job_unit_seconds'), memoir.reset_setting('work_attempts_max')")


@pytest.mark.acceptance
def test_writers_and_extractors_lose_and_double_nothing(memoir_dsn: str, db: Db, user: str) -> None:
    sessions, each = 4, 12
    writing = set(range(sessions))

    def write(number: int, connection: Db) -> None:
        for turn in range(each):
            say(connection, user, f"I visited town {number * each + turn + 1} yesterday.", session=f"w{number}")
        writing.remove(number)

    def read(connection: Db) -> None:
        while writing:
            connection.execute("call memoir.run_job('extract')")
            for (session,) in table(connection, "list_sessions", user, columns="session"):
                extract(connection, user, session, 2)

    say(db, user, "Hello.", session="w0")
    in_parallel(memoir_dsn, *[partial(write, number) for number in range(sessions)], read, read)
    for number in range(sessions):
        extract(db, user, f"w{number}")
    run_job(db, "extract")
    got = memories(db, user)
    assert len(got) == len(set(got)) == sessions * each and waiting(db, user) == []


@pytest.fixture
def model(db: Db) -> Iterator[None]:
    set_settings(db, llm_provider="openai", llm_model="default")
    yield
    db.execute("select memoir.reset_setting('llm_provider'), memoir.reset_setting('llm_model')")


def claim(db: Db) -> tuple[Any, ...]:
    ((job, lease, kind, given),) = table(db, "claim_model_calls", 10)
    assert kind == "extract"
    return job, lease, given


def answer(db: Db, claimed: tuple[Any, ...], *found: dict[str, Any]) -> int:
    """How many are stored of a model's answer."""
    job, lease, given = claimed
    done = call(db, "store_model_result", job, lease, Jsonb(locate(given, {"new": list(found)})), "m extract.v2")
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
    columns = ("content", "provenance::text", "scope::text", "tier")
    got = {row[0]: row[1:] for row in memories(db, user, *columns, where="metadata ->> 'rule' = 'model'")}
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
    plants = candidate(0, "Tom waters my three plants", "Tom waters the user's three plants.")
    cat = candidate(1, "My cat Ivy", "The user's cat is called Ivy.")
    found = (plants, cat, candidate(2, "Ann feeds the fish", "Ann feeds the fish."))
    assert answer(db, claimed, *found) == 1
    assert memories(db, user, where="metadata ->> 'rule' = 'model'") == ["Ann feeds the fish."]
