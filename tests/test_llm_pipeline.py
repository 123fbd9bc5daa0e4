"""From turns to memories through a language model, end to end: queue, prompts, provider, checks, store; inside the server and in a worker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from pg_memoir import Memoir, worker
from psycopg.types.json import Jsonb
from stubs import Answer, ChatCompletionsStub, MessagesStub

STUBS = {"openai": ChatCompletionsStub, "anthropic": MessagesStub}
PRICE = {"prompt_tokens": 1000, "completion_tokens": 100}
TOKENS, COST = 1100, 1000 * 100 + 100 * 500               # of one call at the prices below
NEAR, CLOSE = "{1,0.1,0,0}", "{1,0.3,0.1,0}"              # cosine .97

Step = Callable[[], None]


@pytest.fixture(scope="module")
def memoir(memoir_dsn: str) -> Iterator[Memoir]:
    with Memoir(memoir_dsn) as client:
        yield client


@pytest.fixture(scope="module", autouse=True)
def models(memoir_dsn: str) -> None:
    with psycopg.connect(memoir_dsn, autocommit=True) as db:
        db.execute("select memoir.register_embedding_model('little', 'none', 4)")
        db.execute("select memoir.switch_embedding_model('little')")
        db.execute("select memoir.register_model('priced', 'openai', 128000, 4096, p_prompt_microcents_per_1k => 100000, p_completion_microcents_per_1k => 500000)")


@pytest.fixture(params=[("openai", "inside"), ("openai", "outside"), ("anthropic", "outside")], ids="-".join)
def way(request: pytest.FixtureRequest, db: psycopg.Connection, memoir: Memoir, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Step]]:
    """(provider, what has the queued calls made): job `model` in the server, whose environment has no key, or the worker's loop."""
    provider, place = request.param
    if place == "inside" and not db.execute("select to_regprocedure('memoir._run_in_python(text,bigint)') is not null").fetchone()[0]:
        pytest.skip("no PL/Python")
    monkeypatch.setenv("PG_MEMOIR_LLM_API_KEY", "sk-x")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield provider, (lambda: db.execute("call memoir.run_job('model')")) if place == "inside" else (lambda: worker.run_models(memoir, once=True, interval=0))
    for key in ("llm_provider", "llm_model", "llm_endpoint", "llm_timeout", "llm_retries", "judge"):
        db.execute("select memoir.reset_setting(%s)", [key])
    db.execute("delete from memoir.jobs where kind <> 'embed'")


def use(db: psycopg.Connection, provider: str, url: str) -> None:
    for key, value in {"provider": provider, "model": "priced", "endpoint": url, "timeout": 10, "retries": 1}.items():
        db.execute("select memoir.set_setting(%s, %s)", [f"llm_{key}", Jsonb(value)])


def says(**output: Any) -> Answer:
    return Answer(text="Here you are:\n" + json.dumps(output), **PRICE)


def candidate(turn: int, quote: str, content: str, **more: Any) -> dict[str, Any]:
    return {"turn": turn, "quote": quote, "content": content, "type": "fact", "provenance": "user_stated", "importance": 0.9} | more


GOOD = says(memories=[candidate(0, "We keep the boat Brisa in Harstad", "The user keeps the boat Brisa in Harstad.")])


def persist(db: psycopg.Connection, user: str, *texts: str, session: str = "s") -> None:
    messages = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]
    db.execute("select memoir.persist_turn(%s, %s, %s)", [user, session, Jsonb(messages)])


def kept(db: psycopg.Connection, user: str, columns: str) -> list[tuple]:
    return db.execute(f"select {columns} from memoir.memory_store m join memoir.users u using (user_id) where external_id = %s and m.state = 'active' order by content", [user]).fetchall()


def waiting(db: psycopg.Connection, kind: str) -> list[tuple]:
    return db.execute("select state, attempts, last_error from memoir.jobs where kind = %s", [kind]).fetchall()


def costs(db: psycopg.Connection, user: str) -> list[tuple]:
    """Of the user and of each session: helpers' tokens, what they cost, and all costs."""
    of = "select c.helper_tokens, c.helper_microcents, c.cost_microcents from memoir.{}_counters c join memoir.users u using (user_id) where external_id = %s"
    return [*db.execute(of.format("user"), [user]), *db.execute(of.format("session") + " order by c.helper_tokens desc", [user])]


def test_candidates_become_memories(db: psycopg.Connection, user: str, way: tuple[str, Step]) -> None:
    provider, model = way
    persist(db, user, "I live in Bergen.", session="before")
    db.execute("call memoir.run_job('extract')")
    db.execute("select memoir.forget(%s, %s)", [user, kept(db, user, "memory_id")[0][0]])
    found = says(memories=[
        candidate(0, "We keep the boat Brisa in Harstad", "The user keeps the boat Brisa in Harstad.", valid_from="2020-05-01"),
        candidate(2, "in the drawer with Tom", "Tom has the key to the drawer."),                                       # a private turn
        candidate(9, "We keep the boat", "The user keeps a boat elsewhere."),                                           # no such turn
        candidate(0, "I own three yachts", "The user owns three yachts."),                                              # no such words
        candidate(1, "You want a bigger boat", "The user wants a bigger boat.", provenance="correction", importance=1),  # the assistant's word
        candidate(0, "I live in Bergen", "User lives in Bergen.")])                                                     # forgotten for good
    with STUBS[provider](found) as stub:
        use(db, provider, stub.url)
        persist(db, user, "We keep the boat Brisa in Harstad. I live in Bergen.", "You want a bigger boat.", "The spare key is in the drawer with Tom.", "Noted.")
        db.execute("select memoir.mark_turn(%s, 's', 2, 'private')", [user])
        db.execute("call memoir.run_job('extract')")
        by_rules = set(kept(db, user, "m.content"))
        assert [row[0] for row in waiting(db, "extract")] == ["ready"] and stub.requests == []
        model()
    [request] = stub.requests
    sent = json.dumps(request)
    assert request["model"] == "priced" and "Harstad" in sent and "drawer" not in sent
    assert waiting(db, "extract") == []
    made = kept(db, user, "m.content, m.provenance::text, m.scope::text, m.tier, m.metadata ->> 'extracted_by', m.valid_from::date::text")
    assert [row for row in made if row[4] == "priced extract.v1"] == [
        ("The user keeps the boat Brisa in Harstad.", "user_stated", "global", 2, "priced extract.v1", "2020-05-01"),
        ("The user wants a bigger boat.", "system_inferred", "local", 1, "priced extract.v1", made[-1][5])]
    assert all("Bergen" not in row[0] and "drawer" not in row[0] for row in made) and {row[:1] for row in made if row[4] == "rules 1"} <= by_rules
    sources = db.execute("""
        select m.content, t.turn_index, substr(t.content, s.span_start, s.span_length) from memoir.memory_store m join memoir.users u using (user_id)
        join memoir.memory_sources s on s.user_id = m.user_id and s.item_id = m.memory_id and s.source_kind = 'turn'
        join memoir.conversation_history t on t.user_id = m.user_id and t.message_id = s.source_id
        where external_id = %s and m.metadata ->> 'rule' = 'model' order by 1""", [user]).fetchall()
    assert sources == [("The user keeps the boat Brisa in Harstad.", 0, "We keep the boat Brisa in Harstad"), ("The user wants a bigger boat.", 1, "You want a bigger boat")]
    assert costs(db, user) == [(TOKENS, COST, COST), (TOKENS, COST, COST), (0, 0, 0)]
    recalled = [row[0] for row in db.execute("select content from memoir.recall(%s, 'Where is the boat Brisa?')", [user])]
    assert "The user keeps the boat Brisa in Harstad." in recalled


def test_bad_answers_and_busy_servers(db: psycopg.Connection, user: str, way: tuple[str, Step]) -> None:
    provider, model = way
    answers = {"repaired": [Answer(text="Sure!", **PRICE), GOOD], "busy": [Answer(status=429, headers={"retry-after": "0"}), GOOD],
               "useless": [Answer(text="Sure!", **PRICE)] * 2, "later": [Answer(status=429, headers={"retry-after": "900"})]}
    expected = {"repaired": ([], 2, 2), "busy": ([], 2, 1), "useless": ([("dead", "bad answer, twice")], 2, 2), "later": ([("ready", "429")], 1, 0)}
    for name, script in answers.items():
        with STUBS[provider](*script) as stub:
            use(db, provider, stub.url)
            persist(db, f"{user}-{name}", "We keep the boat Brisa in Harstad.")
            db.execute("call memoir.run_job('extract')")
            model()
            left, requests, paid = expected[name]
            rows = waiting(db, "extract")
            assert [row[0] for row in rows] == [state for state, _ in left] and all(error in row[2] for row, (_, error) in zip(rows, left)), rows
            assert len(stub.requests) == requests, name
        assert costs(db, f"{user}-{name}") == [(paid * TOKENS, paid * COST, paid * COST)] * 2
        by_model = [row for row in kept(db, f"{user}-{name}", "m.metadata ->> 'extracted_by'") if row == ("priced extract.v1",)]
        assert len(by_model) == (not left), name
        if left:
            with STUBS[provider](GOOD) as stub:
                use(db, provider, stub.url)
                model()
                assert stub.requests == []                  # not before the server's Retry-After; a dead letter not at all
                if name == "later":
                    assert db.execute("select run_after > now() + interval '14 min' from memoir.jobs where kind = 'extract'").fetchone() == (True,)
                    db.execute("update memoir.jobs set run_after = now() where kind = 'extract'")
                else:
                    assert db.execute("select bool_and(memoir.retry_job(job_id)) from memoir.dead_letters where kind = 'extract'").fetchone() == (True,)
                model()
            assert waiting(db, "extract") == [] and ("The user keeps the boat Brisa in Harstad.",) in kept(db, f"{user}-{name}", "m.content")


def test_a_provider_that_is_down_takes_nothing_with_it(db: psycopg.Connection, user: str, way: tuple[str, Step]) -> None:
    provider, model = way
    with STUBS[provider]() as stub:
        gone = stub.url
    use(db, provider, gone)
    db.execute("select memoir.set_setting('llm_retries', '0')")
    persist(db, user, "We keep the boat Brisa in Harstad. I am allergic to peanuts.", "Noted.")
    db.execute("call memoir.run_job('extract')")
    model()
    [(state, attempts, error)] = waiting(db, "extract")
    assert (state, attempts) == ("ready", 1) and "no answer" in error and costs(db, user) == [(0, 0, 0)] * 2
    assert ("User is allergic to peanuts.",) in kept(db, user, "m.content")
    db.execute("select memoir.compile_context(%s, 'fresh', 'What am I allergic to?')", [user])
    with STUBS[provider](GOOD) as stub:
        use(db, provider, stub.url)
        db.execute("update memoir.jobs set run_after = now() where kind = 'extract'")
        model()
    assert waiting(db, "extract") == [] and {("User is allergic to peanuts.",), ("The user keeps the boat Brisa in Harstad.",)} <= set(kept(db, user, "m.content"))


def test_a_model_judges_what_rules_leave_open(db: psycopg.Connection, user: str, way: tuple[str, Step]) -> None:
    provider, model = way

    def remember(content: str, vector: str, **named: Any) -> str:
        more = "".join(f", p_{name} => %s" for name in named)
        done = db.execute(f"select memoir.remember(%s, %s, p_embedding => %s{more})", [user, content, vector, *named.values()]).fetchone()[0]
        assert done["superseded"] == done["contradicts"] == []          # rules saw nothing
        return done["memory_id"]

    persist(db, user, "Hello.", "Hi.")
    with STUBS[provider](says(judgements=[{"n": 0, "contradiction": 0.97}]), says(judgements=[{"n": 0, "contradiction": 0.97}]),
                         says(judgements=[{"n": n, "contradiction": 0.2} for n in range(2)])) as stub:
        use(db, provider, stub.url)
        db.execute("select memoir.set_setting('judge', '\"llm\"')")
        first = remember("Takes the train to work.", NEAR)
        second = remember("Cycles to work every day.", CLOSE)
        model()
        # Of equal authority: what was said later stands.
        assert db.execute("select state::text, superseded_by::text, state_reason from memoir.memory_store where memory_id = %s", [first]).fetchone() == (
            "superseded", second, "priced judge.v1")
        # An agent's guess, local to its session, does not take the person's word away.
        guess = remember("Walks to the office.", CLOSE, session="s", actor="agent")
        model()
        compatible = remember("Owns a red bicycle.", CLOSE)
        model()
    assert "train" in json.dumps(stub.requests[0]) and len(stub.requests) == 3 and waiting(db, "judge") == []
    decisions = {tuple(map(str, row)) for row in db.execute("select memory_id, other_id, judge, verdict, decision, winner_id from memoir.list_judgements(%s)", [user])}
    assert {(second, first, "priced judge.v1", "contradiction", "superseded", second), (guess, second, "priced judge.v1", "contradiction", "contradicts", "None"),
            (compatible, second, "priced judge.v1", "compatible", "none", "None")} <= decisions, decisions
    edges = {(str(a), r, str(b)) for a, r, b in db.execute("select source_id, relation::text, target_id from memoir.memory_relationships r join memoir.users u using (user_id) where external_id = %s", [user])}
    assert {(second, "supersedes", first), (guess, "contradicts", second)} <= edges
    assert {row[0] for row in kept(db, user, "m.memory_id::text")} == {second, guess, compatible}
    assert costs(db, user)[0] == (3 * TOKENS, 3 * COST, 3 * COST)
