"""Queued work for a language model, called from inside the server and from outside, against servers that speak the real protocols."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from calls import last_run
from psycopg.types.json import Jsonb
from routines import code
from servers import connect
from stubs import Answer, ChatCompletionsStub

SUMMARY = "- user: the boat is called Brisa\n- assistant: noted"
GOOD = Answer(text=json.dumps({"summary": SUMMARY}), prompt_tokens=1000, completion_tokens=100)


@pytest.fixture(autouse=True)
def clean(db: psycopg.Connection) -> Iterator[None]:
    if not db.execute("select to_regprocedure('_memoir.run_in_python(text,bigint)') is not null").fetchone()[0]:
        pytest.skip("no PL/Python")
    yield
    for key in ("llm_provider", "llm_model", "llm_endpoint", "llm_timeout", "llm_retries", "llm_cost_cap"):
        db.execute("select memoir.reset_setting(%s)", [key])
    db.execute("delete from _memoir.work_items where kind = 'summarise'")


def use(db: psycopg.Connection, stub: ChatCompletionsStub, **changes: Any) -> None:
    for key, value in {
        "provider": "openai",
        "model": "gpt-4o-mini",
        "endpoint": stub.url,
        "timeout": 10,
        "retries": 0,
        **changes,
    }.items():
        db.execute("select memoir.set_setting(%s, %s)", [f"llm_{key}", Jsonb(value)])


def long_session(db: psycopg.Connection, user: str) -> None:
    """A session that has been compacted by rules, which asks for better words."""
    db.execute("select memoir.open_session(%s, 's')", [user])
    for n in range(30):
        turn = [
            {
                "role": "user",
                "content": f"In week {n} we sailed the boat Brisa to harbour number {n}, and it took {n + 3} hours against the wind. "
                * 4,
            },
            {"role": "assistant", "content": f"Week {n} is noted, harbour {n} as well. " * 4},
        ]
        db.execute("select memoir.persist_turn(%s, 's', %s)", [user, Jsonb(turn)])
    db.execute("select memoir.compact_session(%s, 's', 400)", [user])


def waiting(db: psycopg.Connection) -> list[tuple]:
    return db.execute("select state, attempts, last_error from _memoir.work_items where kind = 'summarise'").fetchall()


def costs(db: psycopg.Connection, user: str) -> tuple:
    return db.execute(
        """select u.helper_tokens, u.helper_microcents, u.cost_microcents, s.helper_tokens, s.helper_microcents, s.cost_microcents
        from _memoir.user_counters u join _memoir.session_counters s using (user_id) where user_id = (select user_id from _memoir.users where external_id = %s)""",
        [user],
    ).fetchone()


def test_nothing_is_asked_without_a_model(db: psycopg.Connection, user: str) -> None:
    long_session(db, user)
    assert waiting(db) == []
    db.execute("call memoir.run_job('model')")
    assert last_run(db, "model") == ("done", {}, None)
    assert db.execute("select * from memoir.claim_model_calls(4)").fetchall() == []


def test_a_summary_by_a_model(db: psycopg.Connection, memoir_dsn: str, user: str) -> None:
    open_now: list = []

    class Watching(ChatCompletionsStub):
        def handle(self, path, body):
            with connect(memoir_dsn) as other:
                open_now.append(
                    other.execute(
                        "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() "
                        "and (backend_xid is not null or backend_xmin is not null)"
                    ).fetchone()[0]
                )
                open_now.append(
                    other.execute(
                        "select count(*) from pg_locks where locktype in ('transactionid', 'tuple') and pid <> pg_backend_pid() "
                        "and database = (select oid from pg_database where datname = current_database())"
                    ).fetchone()[0]
                )
            return super().handle(path, body)

    with Watching(GOOD) as stub:
        use(db, stub)
        long_session(db, user)
        asked = len(waiting(db))
        assert asked >= 1
        before = db.execute(
            "select array_agg((c.compaction_id, c.from_turn, c.to_turn)::text order by from_turn) from _memoir.compactions c "
            "where level = 1 and made_by = 'extract' and user_id = (select user_id from _memoir.users where external_id = %s)",
            [user],
        ).fetchone()[0]
        assert "Brisa" not in (
            db.execute("select payload from _memoir.work_items where kind = 'summarise' limit 1").fetchone()[0] or ""
        )
        db.execute("call memoir.run_job('model')")
    assert open_now == [0, 0] * asked  # nothing held while the model was at it
    assert len(stub.requests) == asked and "harbour" in stub.requests[0]["messages"][1]["content"]
    assert last_run(db, "model")[:2] == (
        "done",
        {"calls": asked, "stored": asked, "tokens": 1100 * asked, "cost": (15000 + 6000) * asked},
    ), last_run(db, "model")
    assert waiting(db) == []
    made = db.execute(
        "select from_turn, to_turn, summary_text, made_by from _memoir.compactions where level = 1 and made_by <> 'extract' "
        "and user_id = (select user_id from _memoir.users where external_id = %s)",
        [user],
    ).fetchall()
    assert len(made) == asked == len(before) and all(
        m[3] == "gpt-4o-mini summarise.v1" and m[2].endswith(SUMMARY) for m in made
    )
    assert (
        SUMMARY
        in db.execute(
            "select summary_text from _memoir.sessions where user_id = (select user_id from _memoir.users where external_id = %s)",
            [user],
        ).fetchone()[0]
    )
    assert costs(db, user) == (1100 * asked, 21000 * asked, 21000 * asked) * 2
    assert code(lambda: db.execute("select memoir.compile_context(%s, 's', 'Where did we sail?')", [user])) is None


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
def test_failed_calls(db: psycopg.Connection, user: str, answer: Answer, state: str, error: str) -> None:
    with ChatCompletionsStub(answer) as stub:
        use(db, stub, timeout=1)
        long_session(db, user)
        asked = len(waiting(db))
        db.execute("call memoir.run_job('model')")
        assert [row[0] for row in waiting(db)] == [state] * asked and all(error in row[2] for row in waiting(db))
        if answer.headers:
            assert db.execute(
                "select min(run_after) > now() + interval '14 min' from _memoir.work_items where kind = 'summarise'"
            ).fetchone() == (True,)
        assert last_run(db, "model")[0] == "errors" and last_run(db, "model")[1]["failed"] == asked
    tokens = costs(db, user)[0]
    assert (tokens > 0) == (answer.text is not None)  # a useless answer is paid for


def test_a_summary_of_what_was_forgotten_meanwhile(db: psycopg.Connection, memoir_dsn: str, user: str) -> None:
    class Forgetting(ChatCompletionsStub):
        def handle(self, path, body):
            db2.execute(
                "insert into _memoir.recall_exclusions (user_id, session_id, turn_index, exclusion_id, reason, recorded_at) "
                "select user_id, session_id, 0, gen_random_uuid(), 'test', now() from _memoir.sessions where user_id = (select user_id from _memoir.users where external_id = %s)",
                [user],
            )
            return super().handle(path, body)

    with Forgetting(GOOD) as stub, connect(memoir_dsn) as db2:
        use(db, stub)
        long_session(db, user)
        first = db.execute(
            "select dedup_key from _memoir.work_items where kind = 'summarise' order by work_id"
        ).fetchall()
        db.execute("call memoir.run_job('model')")
        assert waiting(db) == []
        made = db.execute(
            "select count(*) from _memoir.compactions where from_turn = 0 and made_by like 'gpt%%' and user_id = (select user_id from _memoir.users where external_id = %s)",
            [user],
        )
        assert made.fetchone() == (0,) and first


def test_the_cost_cap_ends_a_run(db: psycopg.Connection, user: str) -> None:
    with ChatCompletionsStub(GOOD) as stub:
        use(db, stub, cost_cap=1)
        for n in range(6):
            long_session(db, f"{user}-{n}")
        asked = len(waiting(db))
        db.execute("call memoir.run_job('model')")
        assert last_run(db, "model")[0] == "cost cap" and last_run(db, "model")[1]["calls"] == 4 < asked == 4 + len(
            waiting(db)
        )


def test_a_cancel_gives_everything_back(db: psycopg.Connection, memoir_dsn: str, user: str) -> None:
    with ChatCompletionsStub(Answer(delay=60)) as stub, connect(memoir_dsn) as other:
        use(db, stub, timeout=60)
        for n in range(2):
            long_session(db, f"{user}-{n}")
        asked = len(waiting(db))
        result: list = []
        thread = threading.Thread(
            target=lambda: result.append(code(lambda: other.execute("call memoir.run_job('model')")))
        )
        thread.start()
        while not stub.requests:
            assert thread.is_alive()
        db.execute("select pg_cancel_backend(%s)", [other.info.backend_pid])
        thread.join(30)
        assert result == ["57014"] and last_run(db, "model")[0] == "cancelled"
        assert [row[:2] for row in waiting(db)] == [("ready", 0)] * asked


def test_without_a_key_the_work_waits(db: psycopg.Connection, user: str) -> None:
    with ChatCompletionsStub() as stub:
        use(db, stub, provider="anthropic", model="claude-haiku")
        long_session(db, user)
        assert code(lambda: db.execute("call memoir.run_job('model')")) == "PM051"
        assert last_run(db, "model")[0] == "failed" and "no API key" in last_run(db, "model")[2]
        assert {row[:2] for row in waiting(db)} == {("ready", 0)} and stub.requests == []
