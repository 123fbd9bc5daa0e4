"""Queued work for a language model, called from inside the server: nothing held while it answers, what fails, what it may cost."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from calls import Db, call, one, persist, raises, set_settings, table
from internals import clear_work, has_python, last_run, work
from parallel import beside, until
from pipeline import costs
from routines import code
from servers import connect
from stubs import Answer, ChatCompletionsStub

SUMMARY = "- user: the boat is called Brisa\n- assistant: noted"
GOOD = Answer(text=json.dumps({"summary": SUMMARY}), prompt_tokens=1000, completion_tokens=100)
SETTINGS = ("provider", "model", "endpoint", "timeout", "retries", "cost_cap")


@pytest.fixture(autouse=True)
def clean(db: Db) -> Iterator[None]:
    if not has_python(db):
        pytest.skip("no PL/Python")
    yield
    for key in SETTINGS:
        call(db, "reset_setting", f"llm_{key}")
    clear_work(db)


def use(db: Db, stub: ChatCompletionsStub, **changed: Any) -> None:
    values = {"provider": "openai", "model": "gpt-4o-mini", "endpoint": stub.url, "timeout": 10, "retries": 0} | changed
    set_settings(db, **{f"llm_{key}": value for key, value in values.items()})


def compact_long_session(db: Db, user: str) -> int:
    """A session that is compacted by rules asks for better words; how many pieces of work wait."""
    for n in range(30):
        said = f"In week {n} we sailed the boat Brisa to harbour {n}, and it took {n + 3} hours against the wind. " * 4
        persist(db, user, "s", said, f"Week {n} is noted, harbour {n} as well. " * 4)
    call(db, "compact_session", user, "s", 400)
    return len(work(db, "summarise"))


def run_model(db: Db) -> tuple[Any, ...]:
    """Outcome, counts and error of a run."""
    db.execute("call memoir.run_job('model')")
    return last_run(db, "model")


def list_makers(db: Db, user: str) -> list[tuple[Any, ...]]:
    return table(db, "list_compactions", user, "s", columns="from_turn, summary, made_by")


def test_nothing_is_asked_without_a_model(db: Db, user: str) -> None:
    assert compact_long_session(db, user) == 0 and run_model(db) == ("done", {}, None)
    assert table(db, "claim_model_calls", 4) == []


def test_summary_by_a_model(db: Db, memoir_dsn: str, user: str) -> None:
    held: list[int] = []
    transactions = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and (backend_xid is not null or backend_xmin is not null)"
    locks = "select count(*) from pg_locks where locktype in ('transactionid', 'tuple') and pid <> pg_backend_pid() and database = (select oid from pg_database where datname = current_database())"

    class Watching(ChatCompletionsStub):
        def handle(self, path: str, body: dict[str, Any]) -> Any:
            with connect(memoir_dsn) as other:
                held.extend((one(other, transactions), one(other, locks)))
            return super().handle(path, body)

    with Watching(GOOD) as stub:
        use(db, stub)
        asked = compact_long_session(db, user)
        outcome, counts, _ = run_model(db)
    assert asked >= 1 and held == [0, 0] * asked, "nothing is held while the model is at it"
    assert len(stub.requests) == asked and "harbour" in stub.requests[0]["messages"][1]["content"]
    paid = {"calls": asked, "stored": asked, "tokens": 1100 * asked, "cost": 21000 * asked}
    assert (outcome, counts) == ("done", paid) and work(db, "summarise") == []
    made = [summary for _, summary, name in list_makers(db, user) if name == "gpt-4o-mini summarise.v1"]
    assert len(made) >= asked and all(summary.endswith(SUMMARY) for summary in made)
    assert SUMMARY in call(db, "compile_context", user, "s", "Where did we sail?")[0]["content"]
    assert costs(db, user) == [(1100 * asked, 21000 * asked, 21000 * asked)] * 2


@pytest.mark.parametrize(
    ("answer", "state", "error"),
    [
        (Answer(text="I would rather not."), "dead", "bad answer, twice"),
        (Answer(status=401), "dead", "answered 401"),
        (Answer(status=529, headers={"retry-after": "900"}), "ready", "answered 529"),
        (Answer(raw=b"garbage"), "ready", "no usable answer"),
        (Answer(delay=60), "ready", "no answer"),
        (Answer(text=json.dumps({"summary": "far too long " * 900})), "ready", "tokens"),
    ],
    ids=["bad output", "refused", "overloaded", "garbage", "hang", "too long"],
)
def test_failed_calls(db: Db, user: str, answer: Answer, state: str, error: str) -> None:
    with ChatCompletionsStub(answer) as stub:
        use(db, stub, timeout=1)
        asked = compact_long_session(db, user)
        outcome, counts, _ = run_model(db)
    rows = work(db, "summarise")
    assert [row[0] for row in rows] == [state] * asked and all(error in row[2] for row in rows)
    if answer.headers:
        call(db, "set_clock", datetime.now(UTC) + timedelta(minutes=14))
        assert table(db, "claim_model_calls", 4) == []
        call(db, "set_clock", None)
    assert outcome == "errors" and counts["failed"] == asked
    assert (costs(db, user)[0][0] > 0) == (answer.text is not None)  # a useless answer is paid for


def test_summary_of_what_was_forgotten_meanwhile(db: Db, memoir_dsn: str, user: str) -> None:
    class Forgetting(ChatCompletionsStub):
        def handle(self, path: str, body: dict[str, Any]) -> Any:
            with connect(memoir_dsn) as other:
                call(other, "mark_turn", user, "s", 0, "secret")
            return super().handle(path, body)

    with Forgetting(GOOD) as stub:
        use(db, stub)
        assert compact_long_session(db, user)
        run_model(db)
    assert work(db, "summarise") == []
    assert not any(first == 0 and "gpt" in name for first, _, name in list_makers(db, user))


def test_cost_cap_ends_a_run(db: Db, user: str) -> None:
    with ChatCompletionsStub(GOOD) as stub:
        use(db, stub, cost_cap=1)
        for n in range(6):
            asked = compact_long_session(db, f"{user}-{n}")
        outcome, counts, _ = run_model(db)
    assert outcome == "cost cap" and counts["calls"] == 4 < asked == 4 + len(work(db, "summarise"))


def test_cancel_gives_everything_back(db: Db, memoir_dsn: str, user: str) -> None:
    with ChatCompletionsStub(Answer(delay=60)) as stub, connect(memoir_dsn) as other:
        use(db, stub, timeout=60)
        asked = compact_long_session(db, user)
        run = beside(lambda: code(lambda: run_model(other)))
        until(lambda: stub.requests)
        db.execute("select pg_cancel_backend(%s)", [other.info.backend_pid])
        assert run.result(30) == "57014"
    assert last_run(db, "model")[0] == "cancelled"
    assert [row[:2] for row in work(db, "summarise")] == [("ready", 0)] * asked


def test_without_a_key_the_work_waits(db: Db, user: str) -> None:
    with ChatCompletionsStub() as stub:
        use(db, stub, provider="anthropic", model="claude-haiku")
        compact_long_session(db, user)
        with raises("PM051"):
            run_model(db)
        assert last_run(db, "model")[0] == "failed" and "no API key" in last_run(db, "model")[2]
        assert {row[:2] for row in work(db, "summarise")} == {("ready", 0)} and stub.requests == []
