"""From turns to memories through a language model, end to end: queue, prompts, provider, checks, store; inside the server and in a worker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from agents import Agent
from calls import persist
from pg_memoir import Memoir
from pg_memoir_cli import worker
from psycopg.types.json import Jsonb
from stubs import Answer, ChatCompletionsStub, MessagesStub

pytestmark = pytest.mark.extended

STUBS = {"openai": ChatCompletionsStub, "anthropic": MessagesStub}
PRICE = {"prompt_tokens": 1000, "completion_tokens": 100}
TOKENS, COST = 1100, 1000 * 100 + 100 * 500  # of one call at the prices below
NEAR, CLOSE = "{1,0.1,0,0}", "{1,0.3,0.1,0}"  # cosine .97

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
        db.execute(
            "select memoir.register_model('priced', 'openai', 128000, 4096, p_prompt_microcents_per_1k => 100000, p_completion_microcents_per_1k => 500000)"
        )


# One test goes all three ways, the others go one; `make acceptance` goes the rest.
WAYS = [("openai", "inside"), ("openai", "outside"), ("anthropic", "outside")]


@pytest.fixture(params=[WAYS[0], *(pytest.param(way, marks=pytest.mark.acceptance) for way in WAYS[1:])], ids="-".join)
def way(
    request: pytest.FixtureRequest, db: psycopg.Connection, memoir: Memoir, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, Step]]:
    """(provider, what has the queued calls made): job `model` in the server, whose environment has no key, or the worker's loop."""
    provider, place = request.param
    if (
        place == "inside"
        and not db.execute("select to_regprocedure('_memoir.run_in_python(text,bigint)') is not null").fetchone()[0]
    ):
        pytest.skip("no PL/Python")
    monkeypatch.setenv("PG_MEMOIR_LLM_API_KEY", "sk-x")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield (
        provider,
        (lambda: db.execute("call memoir.run_job('model')"))
        if place == "inside"
        else (lambda: worker.run_models(memoir, once=True, interval=0)),
    )
    for key in ("llm_provider", "llm_model", "llm_endpoint", "llm_timeout", "llm_retries", "judge"):
        db.execute("select memoir.reset_setting(%s)", [key])
    db.execute("delete from _memoir.work_items where kind <> 'embed'")


def use(db: psycopg.Connection, provider: str, url: str) -> None:
    for key, value in {"provider": provider, "model": "priced", "endpoint": url, "timeout": 10, "retries": 1}.items():
        db.execute("select memoir.set_setting(%s, %s)", [f"llm_{key}", Jsonb(value)])


def says(**output: Any) -> Answer:
    return Answer(text="Here you are:\n" + json.dumps(output), **PRICE)


def candidate(turn: int, quote: str, content: str, **more: Any) -> dict[str, Any]:
    return {
        "turn": turn,
        "quote": quote,
        "content": content,
        "type": "fact",
        "importance": 0.9,
    } | more


GOOD = says(new=[candidate(0, "We keep the boat Brisa in Harstad", "The user keeps the boat Brisa in Harstad.")])


def kept(db: psycopg.Connection, user: str, columns: str) -> list[tuple]:
    return db.execute(
        f"select {columns} from _memoir.memory_store m join _memoir.users u using (user_id) where external_id = %s and m.state = 'active' order by content",
        [user],
    ).fetchall()


def waiting(db: psycopg.Connection, kind: str) -> list[tuple]:
    return db.execute("select state, attempts, last_error from _memoir.work_items where kind = %s", [kind]).fetchall()


def costs(db: psycopg.Connection, user: str) -> list[tuple]:
    """Of the user and of each session: helpers' tokens, what they cost, and all costs."""
    of = "select c.helper_tokens, c.helper_microcents, c.cost_microcents from _memoir.{}_counters c join _memoir.users u using (user_id) where external_id = %s"
    return [
        *db.execute(of.format("user"), [user]),
        *db.execute(of.format("session") + " order by c.helper_tokens desc", [user]),
    ]


@pytest.mark.parametrize("way", WAYS, indirect=True, ids="-".join)
def test_candidates_become_memories(db: psycopg.Connection, user: str, way: tuple[str, Step]) -> None:
    provider, model = way
    persist(db, user, "before", "I live in Bergen.")
    db.execute("call memoir.run_job('extract')")
    db.execute("select memoir.forget(%s, %s)", [user, kept(db, user, "memory_id")[0][0]])
    found = says(
        new=[
            candidate(
                0,
                "We keep the boat Brisa in Harstad",
                "The user keeps the boat Brisa in Harstad.",
                valid_from="2020-05-01",
            ),
            candidate(2, "in the drawer with Tom", "Tom has the key to the drawer."),  # a private turn
            candidate(9, "We keep the boat", "The user keeps a boat elsewhere."),  # no such turn
            candidate(0, "I own three yachts", "The user owns three yachts."),  # no such words
            candidate(
                1, "You want a bigger boat", "The user wants a bigger boat.", importance=1
            ),  # the assistant's word
            candidate(0, "I live in Bergen", "User lives in Bergen."),
        ]
    )  # forgotten for good
    with STUBS[provider](found) as stub:
        use(db, provider, stub.url)
        persist(
            db,
            user,
            "s",
            "We keep the boat Brisa in Harstad. I live in Bergen.",
            "You want a bigger boat.",
            "The spare key is in the drawer with Tom.",
            "Noted.",
        )
        db.execute("select memoir.mark_turn(%s, 's', 2, 'private')", [user])
        db.execute("call memoir.run_job('extract')")
        by_rules = set(kept(db, user, "m.content"))
        assert [row[0] for row in waiting(db, "extract")] == ["ready"] and stub.requests == []
        model()
    [request] = stub.requests
    sent = json.dumps(request)
    assert request["model"] == "priced" and "Harstad" in sent and "drawer" not in sent
    assert waiting(db, "extract") == []
    made = kept(
        db,
        user,
        "m.content, m.provenance::text, m.scope::text, m.tier, m.metadata ->> 'extracted_by', m.valid_from::date::text, m.category",
    )
    assert [row for row in made if row[4] == "priced extract.v2"] == [
        (
            "The user keeps the boat Brisa in Harstad.",
            "user_stated",
            "global",
            3,
            "priced extract.v2",
            "2020-05-01",
            "fact",
        ),
        (
            "The user wants a bigger boat.",
            "system_inferred",
            "local",
            1,
            "priced extract.v2",
            made[-1][5],
            "fact",
        ),
    ]
    # What rules made of turns that the model has read is gone; the private one it has not.
    assert all("Bergen" not in row[0] for row in made) and {row[0] for row in made if row[4] == "rules 1"} <= {
        row[0] for row in by_rules if "drawer" in row[0]
    }
    sources = db.execute(
        """
        select m.content, t.turn_index, substr(t.content, s.span_start, s.span_length) from _memoir.memory_store m join _memoir.users u using (user_id)
        join _memoir.memory_sources s on s.user_id = m.user_id and s.item_id = m.memory_id and s.source_kind = 'turn'
        join _memoir.conversation_history t on t.user_id = m.user_id and t.message_id = s.source_id
        where external_id = %s and m.metadata ->> 'rule' = 'model' order by 1""",
        [user],
    ).fetchall()
    assert sources == [
        ("The user keeps the boat Brisa in Harstad.", 0, "We keep the boat Brisa in Harstad"),
        ("The user wants a bigger boat.", 1, "You want a bigger boat"),
    ]
    assert costs(db, user) == [(TOKENS, COST, COST), (TOKENS, COST, COST), (0, 0, 0)]
    recalled = [
        row[0] for row in db.execute("select content from memoir.recall(%s, 'Where is the boat Brisa?')", [user])
    ]
    assert "The user keeps the boat Brisa in Harstad." in recalled


@pytest.mark.acceptance
def test_bad_answers_and_busy_servers(db: psycopg.Connection, user: str, way: tuple[str, Step]) -> None:
    provider, model = way
    answers = {
        "repaired": [Answer(text="Sure!", **PRICE), GOOD],
        "busy": [Answer(status=429, headers={"retry-after": "0"}), GOOD],
        "useless": [Answer(text="Sure!", **PRICE)] * 2,
        "later": [Answer(status=429, headers={"retry-after": "900"})],
    }
    expected = {
        "repaired": ([], 2, 2),
        "busy": ([], 2, 1),
        "useless": ([("dead", "bad answer, twice")], 2, 2),
        "later": ([("ready", "429")], 1, 0),
    }
    for name, script in answers.items():
        with STUBS[provider](*script) as stub:
            use(db, provider, stub.url)
            persist(db, f"{user}-{name}", "s", "We keep the boat Brisa in Harstad.")
            db.execute("call memoir.run_job('extract')")
            model()
            left, requests, paid = expected[name]
            rows = waiting(db, "extract")
            assert [row[0] for row in rows] == [state for state, _ in left] and all(
                error in row[2] for row, (_, error) in zip(rows, left)
            ), rows
            assert len(stub.requests) == requests, name
        assert costs(db, f"{user}-{name}") == [(paid * TOKENS, paid * COST, paid * COST)] * 2
        by_model = [
            row for row in kept(db, f"{user}-{name}", "m.metadata ->> 'extracted_by'") if row == ("priced extract.v2",)
        ]
        assert len(by_model) == (not left), name
        if left:
            with STUBS[provider](GOOD) as stub:
                use(db, provider, stub.url)
                model()
                assert stub.requests == []  # not before the server's Retry-After; a dead letter not at all
                if name == "later":
                    assert db.execute(
                        "select run_after > now() + interval '14 min' from _memoir.work_items where kind = 'extract'"
                    ).fetchone() == (True,)
                    db.execute("update _memoir.work_items set run_after = now() where kind = 'extract'")
                else:
                    assert db.execute(
                        "select bool_and(memoir.retry_work(work_id)) from memoir.dead_letters where kind = 'extract'"
                    ).fetchone() == (True,)
                model()
            assert waiting(db, "extract") == [] and ("The user keeps the boat Brisa in Harstad.",) in kept(
                db, f"{user}-{name}", "m.content"
            )


def test_a_provider_that_is_down_takes_nothing_with_it(
    db: psycopg.Connection, user: str, way: tuple[str, Step]
) -> None:
    provider, model = way
    with STUBS[provider]() as stub:
        gone = stub.url
    use(db, provider, gone)
    db.execute("select memoir.set_setting('llm_retries', '0')")
    persist(db, user, "s", "We keep the boat Brisa in Harstad. I am allergic to peanuts.", "Noted.")
    db.execute("call memoir.run_job('extract')")
    model()
    [(state, attempts, error)] = waiting(db, "extract")
    assert (state, attempts) == ("ready", 1) and "no answer" in error and costs(db, user) == [(0, 0, 0)] * 2
    assert ("User is allergic to peanuts.",) in kept(db, user, "m.content")
    db.execute("select memoir.compile_context(%s, 'fresh', 'What am I allergic to?')", [user])
    with STUBS[provider](GOOD) as stub:
        use(db, provider, stub.url)
        db.execute("update _memoir.work_items set run_after = now() where kind = 'extract'")
        model()
    assert waiting(db, "extract") == []
    assert kept(db, user, "m.content") == [("The user keeps the boat Brisa in Harstad.",)]


def said_by_model(new: Any = (), **changes: Any) -> Answer:
    return says(new=list(new), **changes)


def shown(request: dict[str, Any]) -> dict[str, Any]:
    """What a request shows the model: turns, what was said before, memories by number."""
    text = request["messages"][-1]["content"]
    return json.loads(text[text.index("{") : text.rindex("}") + 1])


@pytest.mark.parametrize("way", [("openai", "outside")], indirect=True, ids="-".join)
def test_a_model_reads_in_the_place_of_rules(db: psycopg.Connection, user: str, way: tuple[str, Step]) -> None:
    """It sees the memories, changes and forgets them by number, and what rules made of the turn goes. undo_change takes it back."""
    provider, model = way
    for content in ("User is allergic to nuts and cats.", "User's dentist is Dr Moser.", "User banks with Sparnord."):
        db.execute("select memoir.remember(%s, %s)", [user, content])
    persist(db, user, "old", "I live in Bergen.", "Noted.")
    with STUBS[provider](
        said_by_model([candidate(0, "i live in  Bergen", "User lives in Bergen.", standing=True)])
    ) as stub:
        use(db, provider, stub.url)
        db.execute("call memoir.run_job('extract')")
        model()
        assert [memory["text"] for memory in shown(stub.requests[0])["memories"]] == [
            "User banks with Sparnord.", "User's dentist is Dr Moser.", "User is allergic to nuts and cats."
        ]  # fmt: skip
    persist(
        db,
        user,
        "s",
        "The cat thing was wrong, no allergy. I’m in Oslo now. Where my money is should not be on file. My red hat is at Ida's.",
        "Noted.",
    )
    answers = []

    def answer(body: dict[str, Any]) -> Answer:
        ids = {memory["text"]: memory["id"] for memory in shown(body)["memories"]}
        answers.append(ids)
        return said_by_model(
            [candidate(0, "I'm in Oslo now", "User lives in Oslo."), {"turn": 0, "quote": "no content"}],
            changed=[
                {"id": ids["User is allergic to nuts and cats."], "turn": 0, "quote": "the cat thing was wrong",
                 "content": None, "remains": "User is allergic to nuts."},
                {"id": ids["User lives in Bergen."], "turn": 0, "quote": "I'm in Oslo now", "content": "User lives in Oslo."},
                {"id": 99, "turn": 0, "quote": "I'm in Oslo now", "content": "User has no dentist."},
            ],
            forget=[{"ids": [ids["User banks with Sparnord."]], "turn": 0, "quote": "where my money is should not be on file"}],
        )  # fmt: skip

    with STUBS[provider](answer) as stub:
        use(db, provider, stub.url)
        db.execute("call memoir.run_job('extract')")
        assert ("User lives in Bergen.",) in kept(db, user, "m.content")  # rules alone end nothing here
        model()
        assert len(stub.requests) == 1 and waiting(db, "extract") == []
    assert [row[0] for row in kept(db, user, "m.content")] == [
        "User is allergic to nuts.", "User lives in Oslo.", "User's dentist is Dr Moser."
    ]  # fmt: skip
    changes = db.execute("select change_id, kind from memoir.list_changes(%s)", [user]).fetchall()
    assert {kind for _, kind in changes} == {"changed", "forgotten"}
    for change, _ in changes:
        db.execute("select memoir.undo_change(%s, %s)", [user, change])
    assert {"User lives in Bergen.", "User banks with Sparnord."} <= {row[0] for row in kept(db, user, "m.content")}


@pytest.mark.parametrize("way", [("openai", "outside")], indirect=True, ids="-".join)
def test_whose_words_a_model_quotes(db: psycopg.Connection, user: str, way: tuple[str, Step]) -> None:
    """In any language the person's own words count as theirs; pasted words change nothing, and what nobody said is inferred."""
    provider, model = way
    own = {
        "Ich bin gegen Haselnüsse allergisch.": "User ist gegen Haselnüsse allergisch.",
        "我对花生过敏。": "用户对花生过敏。",
        "मुझे मूंगफली से एलर्जी है।": "User को मूंगफली से एलर्जी है।",
        "У меня аллергия на орехи.": "У User аллергия на орехи.",
    }
    pasted = "Can you polish this letter?\n\nDear Sir or Madam,\nI live in Trondheim and I am a welder.\nKind regards\nSolveig Aune"
    persist(db, user, "s", *[text for said in [*own, pasted] for text in (said, "Noted.")])
    answer = said_by_model(
        [candidate(2 * n, said, content, standing=True) for n, (said, content) in enumerate(own.items())]
        + [
            candidate(8, "I live in Trondheim", "User lives in Trondheim.", standing=True),
            candidate(0, "allergisch", "User owns 4711 yachts in Monaco."),
        ]
    )
    with STUBS[provider](answer) as stub:
        use(db, provider, stub.url)
        db.execute("call memoir.run_job('extract')")
        model()
    made = dict(kept(db, user, "m.content, m.provenance::text || ' ' || m.scope::text || ' ' || m.tier"))
    assert {content: made.get(content) for content in own.values()} == dict.fromkeys(
        own.values(), "user_stated global 3"
    )
    assert {made.get("User lives in Trondheim."), made.get("User owns 4711 yachts in Monaco.")} == {
        "system_inferred local 1"
    }


@pytest.mark.parametrize("way", [("openai", "outside")], indirect=True, ids="-".join)
def test_a_stretch_that_is_too_long_for_an_answer(db: psycopg.Connection, user: str, way: tuple[str, Step]) -> None:
    """A cut answer is asked for again in two halves; a day that is none costs nothing but itself."""
    provider, model = way
    cut = Answer(text='{"new": [{"turn"', stop={"openai": "length", "anthropic": "max_tokens"}[provider], **PRICE)
    boat = candidate(0, "the boat Brisa in Harstad", "User keeps the boat Brisa in Harstad.", valid_from="2026-02-30")
    hat = candidate(2, "My hat is at Ida's", "User's hat is at Ida's.")
    persist(db, user, "s", "We keep the boat Brisa in Harstad.", "Noted.", "My hat is at Ida's.", "Noted.")
    with STUBS[provider](cut, cut, said_by_model([boat]), said_by_model([hat])) as stub:
        use(db, provider, stub.url)
        db.execute("call memoir.run_job('extract')")
        for _ in range(3):
            model()
        assert [[turn["turn"] for turn in shown(request)["turns"]] for request in stub.requests[2:]] == [[0, 1], [2, 3]]
    assert waiting(db, "extract") == []
    assert [row[0] for row in kept(db, user, "m.content")] == [boat["content"], hat["content"]]


def test_a_model_judges_what_rules_leave_open(db: psycopg.Connection, user: str, way: tuple[str, Step]) -> None:
    provider, model = way

    def remember(content: str, vector: str, **named: Any) -> str:
        more = "".join(f", p_{name} => %s" for name in named)
        done = db.execute(
            f"select memoir.remember(%s, %s, p_embedding => %s{more})", [user, content, vector, *named.values()]
        ).fetchone()[0]
        assert done["superseded"] == done["contradicts"] == []  # rules saw nothing
        return done["memory_id"]

    persist(db, user, "s", "Hello.", "Hi.")
    with STUBS[provider](
        says(judgements=[{"n": 0, "contradiction": 0.97}]),
        says(judgements=[{"n": 0, "contradiction": 0.97}]),
        says(judgements=[{"n": n, "contradiction": 0.2} for n in range(2)]),
    ) as stub:
        use(db, provider, stub.url)
        db.execute("select memoir.set_setting('judge', '\"llm\"')")
        first = remember("Takes the train to work.", NEAR)
        second = remember("Cycles to work every day.", CLOSE)
        model()
        # Of equal authority: what was said later stands.
        assert db.execute(
            "select state::text, superseded_by::text, state_reason from _memoir.memory_store where memory_id = %s",
            [first],
        ).fetchone() == ("superseded", second, "priced judge.v1")
        # An agent's guess, local to its session, does not take the person's word away.
        guess = remember("Walks to the office.", CLOSE, session="s", actor="agent")
        model()
        compatible = remember("Owns a red bicycle.", CLOSE)
        model()
    assert "train" in json.dumps(stub.requests[0]) and len(stub.requests) == 3 and waiting(db, "judge") == []
    decisions = {
        tuple(map(str, row))
        for row in db.execute(
            "select memory_id, other_id, judge, verdict, decision, winner_id from memoir.list_judgements(%s)", [user]
        )
    }
    assert {
        (second, first, "priced judge.v1", "contradiction", "superseded", second),
        (guess, second, "priced judge.v1", "contradiction", "contradicts", "None"),
        (compatible, second, "priced judge.v1", "compatible", "none", "None"),
    } <= decisions, decisions
    edges = {
        (str(a), r, str(b))
        for a, r, b in db.execute(
            "select source_id, relation::text, target_id from _memoir.memory_relationships r join _memoir.users u using (user_id) where external_id = %s",
            [user],
        )
    }
    assert {(second, "supersedes", first), (guess, "contradicts", second)} <= edges
    assert {row[0] for row in kept(db, user, "m.memory_id::text")} == {second, guess, compatible}
    assert costs(db, user)[0] == (3 * TOKENS, 3 * COST, 3 * COST)


# Alike, and no duplicates: names and numbers differ.
HIKES = {
    "Hikes in the Alps each summer": "{1,0.1,0,0}",
    "Hikes with Brigida.": "{1,0.3,0,0}",
    "Hiked 40 km around Zermatt": "{1,0,0.3,0}",
}
MERGED = "Hikes in the Alps each summer with Brigida, once 40 km around Zermatt."


def hikes(db: psycopg.Connection, user: str) -> list[str]:
    """Three memories that rules have put together; their ids."""
    ids = [
        db.execute("select memoir.remember(%s, %s, p_embedding => %s)", [user, text, vector]).fetchone()[0]["memory_id"]
        for text, vector in HIKES.items()
    ]
    db.execute("call memoir.run_job('consolidation')")
    return ids


def history(db: psycopg.Connection, user: str) -> dict[str, tuple]:
    return {
        row[0]: row[1:]
        for row in db.execute(
            """select content, state::text, state_reason, superseded_by::text, memory_id::text, metadata ->> 'by'
        from _memoir.memory_store m join _memoir.users u using (user_id) where external_id = %s""",
            [user],
        )
    }


def test_a_model_merges_what_rules_put_together(db: psycopg.Connection, user: str, way: tuple[str, Step]) -> None:
    provider, model = way
    with STUBS[provider](says(content=MERGED, covers=[0, 1, 2])) as stub:
        use(db, provider, stub.url)
        members = hikes(db, user)
        [(by_rules,)] = kept(db, user, "content")
        assert waiting(db, "consolidate") == [("ready", 0, None)] and all(
            text.rstrip(".") in by_rules for text in HIKES
        )
        assert "Alps" not in json.dumps(
            db.execute("select payload from _memoir.work_items where kind = 'consolidate'").fetchone()[0]
        )
        model()
    [request] = stub.requests
    assert all(text in json.dumps(request) for text in HIKES) and by_rules not in json.dumps(request)
    assert waiting(db, "consolidate") == [] and costs(db, user) == [(TOKENS, COST, COST)]
    was = history(db, user)
    whole = was[MERGED][3]
    assert was[MERGED] == ("active", None, None, whole, "priced consolidate.v1")
    assert was[by_rules][:3] == ("superseded", "reworded", whole)
    assert {was[text][:3] for text in HIKES} == {("superseded", "consolidated", whole)}
    sources = {
        row[0]
        for row in db.execute(
            "select source_id::text from _memoir.memory_sources where item_id = %s and source_kind = 'memory'", [whole]
        )
    }
    edges = {
        tuple(row)
        for row in db.execute(
            "select relation::text, target_id::text from _memoir.memory_relationships where source_id = %s", [whole]
        )
    }
    assert sources == set(members) and edges == {("elaborates", m) for m in members} | {
        ("supersedes", m) for m in [*members, was[by_rules][3]]
    }
    assert [row[0] for row in db.execute("select content from memoir.recall(%s, 'hikes Brigida Zermatt')", [user])] == [
        MERGED
    ]
    # And back: each says what it said, and they stay apart.
    undone = db.execute("select memoir.undo_consolidation(%s, %s)", [user, whole]).fetchone()[0]
    assert set(undone["restored"]) == set(members) and {row[0] for row in kept(db, user, "content")} == set(HIKES)
    db.execute("call memoir.run_job('consolidation')")
    assert {row[0] for row in kept(db, user, "content")} == set(HIKES) and waiting(db, "consolidate") == []


@pytest.mark.parametrize("way", [("openai", "inside")], indirect=True, ids="-".join)
def test_what_a_model_leaves_out_stands_by_itself(db: psycopg.Connection, user: str, way: tuple[str, Step]) -> None:
    provider, model = way
    with STUBS[provider](
        says(content="Hikes in the Alps each summer, with Brigida.", covers=[0, 1]), says(content="", covers=[])
    ) as stub:
        use(db, provider, stub.url)
        for name, expected in (
            ("some", {"Hikes in the Alps each summer, with Brigida.", "Hiked 40 km around Zermatt"}),
            ("none", set(HIKES)),
        ):
            hikes(db, f"{user}-{name}")
            model()
            db.execute("call memoir.run_job('consolidation')")
            assert {row[0] for row in kept(db, f"{user}-{name}", "content")} == expected and waiting(
                db, "consolidate"
            ) == []
    assert len(stub.requests) == 2


@pytest.mark.parametrize(
    "way",
    [("openai", "inside"), pytest.param(("anthropic", "outside"), marks=pytest.mark.acceptance)],
    indirect=True,
    ids="-".join,
)
def test_a_refused_merge_is_asked_for_once_more(db: psycopg.Connection, user: str, way: tuple[str, Step]) -> None:
    provider, model = way
    with STUBS[provider](says(content="Hikes in the Alps each summer with Brigida.", covers=[0, 1, 2])) as stub:
        use(db, provider, stub.url)
        hikes(db, user)
        before = history(db, user)
        for tries, state in ((1, "ready"), (2, "dead"), (2, "dead")):
            model()
            [(found, attempts, error)] = waiting(db, "consolidate")
            assert (found, attempts, len(stub.requests)) == (state, tries, tries) and "does not say that" in error
            db.execute("update _memoir.work_items set run_after = now() where kind = 'consolidate'")
        # What rules made stands; the answers are paid for.
        assert history(db, user) == before and costs(db, user) == [(2 * TOKENS, 2 * COST, 2 * COST)]
        db.execute("select bool_and(memoir.retry_work(work_id)) from memoir.dead_letters where kind = 'consolidate'")
        model()
        assert [row[0] for row in waiting(db, "consolidate")] == ["ready"]


@pytest.mark.parametrize("way", [("openai", "outside")], indirect=True, ids="-".join)
def test_what_is_gone_meanwhile_is_not_merged(
    db: psycopg.Connection, user: str, memoir_dsn: str, way: tuple[str, Step]
) -> None:
    provider, model = way
    changes = {
        "forgotten": ("select memoir.forget(%s, %s)", {"Hikes in the Alps each summer", "Hiked 40 km around Zermatt"}),
        "tombstone": (
            "select memoir.forget(%s, memory_id) from (select (memoir.remember(%s, %s) ->> 'memory_id')::uuid as memory_id) x",
            None,
        ),
    }
    for name, (statement, left) in changes.items():
        who = f"{user}-{name}"

        class Meanwhile(STUBS[provider]):
            def handle(self, path, body):
                with psycopg.connect(memoir_dsn, autocommit=True) as other:
                    other.execute(statement, [who, members[1]] if name == "forgotten" else [who, who, MERGED])
                return super().handle(path, body)

        with Meanwhile(says(content=MERGED, covers=[0, 1, 2])) as stub:
            use(db, provider, stub.url)
            members = hikes(db, who)
            model()
            assert len(stub.requests) == 1
        contents = {row[0] for row in kept(db, who, "content")}
        assert waiting(db, "consolidate") == [] and MERGED not in contents and (left is None or contents == left), (
            contents
        )
    # After it was merged, forgetting a part takes the part out of all that says it.
    with STUBS[provider](says(content=MERGED, covers=[0, 1, 2])) as stub:
        use(db, provider, stub.url)
        members = hikes(db, user)
        model()
        db.execute("select memoir.forget(%s, %s)", [user, members[1]])
    assert {row[0] for row in kept(db, user, "content")} == changes["forgotten"][1]
    assert {row[0] for text, row in history(db, user).items() if "Brigida" in text} == {"forgotten"}


@pytest.mark.parametrize("way", [("openai", "outside")], indirect=True, ids="-".join)
def test_what_is_not_for_everybody_is_not_sent(db: psycopg.Connection, user: str, way: tuple[str, Step]) -> None:
    provider, model = way
    with STUBS[provider](says(content=MERGED, covers=[0, 1, 2])) as stub:
        use(db, provider, stub.url)
        hikes(db, user)
        db.execute(
            "update _memoir.memory_store m set sensitivity = 'private' from _memoir.users u where u.user_id = m.user_id and external_id = %s and content like '%%Brigida.'",
            [user],
        )
        model()
    assert stub.requests == [] and waiting(db, "consolidate") == []


def queue_every_kind(db: psycopg.Connection, user: str) -> None:
    db.execute("select memoir.set_setting('judge', '\"llm\"')")
    persist(db, user, "s", "We keep the boat Brisa in Harstad. " * 8, "Noted, the boat Brisa is in Harstad. " * 8)
    db.execute("call memoir.run_job('extract')")
    db.execute("select memoir.summarize_session(%s, 's')", [user])
    deployed(db, f"{user}-agent")
    db.execute("select memoir.memory_query(%s, 's', %s)", [user, WHERE])
    hikes(db, user)
    for content, vector in (("Takes the train to work.", "{0,0,1,0.1}"), ("Cycles to work every day.", "{0,0,1,0.3}")):
        db.execute("select memoir.remember(%s, %s, p_embedding => %s)", [user, content, vector])


def answer_to(body: dict[str, Any]) -> Answer:
    """A good answer, by what the prompt asks for."""
    asked = json.dumps(body)
    if '\\"pairs\\"' in asked:
        return says(judgements=[{"n": n, "contradiction": 0} for n in range(asked.count('\\"n\\":'))])
    if '\\"memories\\": [' in asked and '\\"turns\\"' not in asked:
        return says(content=MERGED, covers=[0, 1, 2])
    if '\\"detailed\\": ' in asked:
        return says(**SHORT)
    if '\\"passages\\"' in asked:
        return says(answer="In Harstad.")
    return (
        says(new=json.loads(GOOD.text.partition("\n")[2])["new"])
        if '\\"turns\\"' in asked
        else says(summary="- user: the boat Brisa is kept in Harstad")
    )


@pytest.mark.acceptance
@pytest.mark.parametrize("way", [("openai", "inside")], indirect=True, ids="-".join)
def test_every_kind_gets_through_every_failure(db: psycopg.Connection, user: str, way: tuple[str, Step]) -> None:
    """Whatever the provider does, work of each kind is retried later or a dead letter, what rules made stands, and in the end all is done."""
    provider, model = way
    kinds = set(db.execute("select _memoir.llm_kinds()").fetchone()[0])
    failures = {
        "cut off": (
            Answer(text='{"summary": "- us', stop={"openai": "length", "anthropic": "max_tokens"}[provider], **PRICE),
            "dead",
        ),
        "bad answer, twice": (Answer(text='{"nothing": 1}', **PRICE), "dead"),
        "no usable answer": (Answer(raw=b"<html>502</html>"), "ready"),
        "answered 429": (Answer(status=429, headers={"retry-after": "900"}), "ready"),
        "answered 529": (Answer(status=529, headers={"retry-after": "900"}), "ready"),
        "no answer": (Answer(delay=60), "ready"),
    }
    with STUBS[provider]() as stub:
        use(db, provider, stub.url)
        queue_every_kind(db, user)
    before, summary = history(db, user), db.execute("select memoir.summarize_session(%s, 's')", [user]).fetchone()[0]
    own = "select {} from _memoir.work_items where kind = any (%s)"
    assert {row[0] for row in db.execute(own.format("kind"), [list(kinds)])} == kinds
    for error, (answer, state) in failures.items():
        with STUBS[provider](answer) as stub:
            use(db, provider, stub.url)
            for key, value in (("llm_timeout", 1), ("llm_retries", 0)):
                db.execute("select memoir.set_setting(%s, %s)", [key, Jsonb(value)])
            model()
        rows = db.execute(
            own.format("kind, state, last_error, run_after > now() + interval '14 min'"), [list(kinds)]
        ).fetchall()
        assert (
            {row[0] for row in rows} == kinds
            and {row[1] for row in rows} == {state}
            and all(error in row[2] for row in rows)
        ), (error, rows)
        assert all(row[3] for row in rows) or not answer.headers
        db.execute(
            "update _memoir.work_items set state = 'ready', attempts = 0, run_after = now() where kind = any (%s)",
            [list(kinds)],
        )
    assert (
        history(db, user) == before
        and db.execute("select memoir.summarize_session(%s, 's')", [user]).fetchone()[0] == summary
    )

    class ByKind(STUBS[provider]):  # type: ignore[misc]
        def next_answer(self, body: dict[str, Any]) -> Answer:
            with self._lock:
                self.requests.append(body)
                self._local.answer = answer_to(body)
                self._local.answer.delay = 0.2
                return self._local.answer

    with ByKind() as stub:
        use(db, provider, stub.url)
        model()
    assert db.execute(own.format("kind, state, last_error"), [list(kinds)]).fetchall() == []
    assert history(db, user)[MERGED][0] == "active" and ("The user keeps the boat Brisa in Harstad.",) in kept(
        db, user, "m.content"
    )
    whole = db.execute("select memoir.summarize_session(%s, 's')", [user]).fetchone()[0]
    assert whole["made_by"] == "priced summarise.v1" and whole["summary"].endswith(
        "- user: the boat Brisa is kept in Harstad"
    )
    assert [
        row[0]
        for row in db.execute("select content from memoir.recall(%s, 'boat Brisa', p_kinds => '{summary}')", [user])
    ] == [whole["summary"]]


@pytest.mark.parametrize("way", [("openai", "inside")], indirect=True, ids="-".join)
def test_a_model_words_summaries_of_every_level(db: psycopg.Connection, user: str, way: tuple[str, Step]) -> None:
    provider, model = way
    db.execute(
        "select memoir.open_session(%s, 's', p_settings => '{\"summary_tokens\": 120, \"compaction_tokens\": 600}')",
        [user],
    )
    with STUBS[provider](says(summary="- user: we sailed on")) as stub:
        use(db, provider, stub.url)
        for n in range(24):
            persist(
                db,
                user,
                "s",
                f"In week {n} we sailed to harbour {n} and it took {n + 3} hours. " * 4,
                f"Week {n} is noted, harbour {n} as well. " * 4,
            )
        db.execute("select memoir.compact_session(%s, 's', 0)", [user])
        db.execute("select memoir.summarize_session(%s, 's')", [user])
        model()
        assert waiting(db, "summarise") == []
    rows = db.execute(
        "select level, made_by, counts from memoir.list_compactions(%s, 's') where counts or level = 0 and undone_at is null",
        [user],
    ).fetchall()
    assert (
        min(row[0] for row in rows) == 0
        and max(row[0] for row in rows) > 1
        and {row[1] for row in rows} == {"priced summarise.v1"}
    ), rows
    # What is summed up already is given as it was summed up.
    assert any('\\"who\\": \\"summary\\"' in json.dumps(request) for request in stub.requests)


# Forms of objects -----------------------------------------------------------------------------------------------------

OUTPUT = "\n".join(f"Step {n} of deploy to host web-{n}.example.org took {n * 31} seconds" for n in range(80))
SHORT = {"detailed": "Deployed to web-0.example.org first; 80 hosts.", "compact": "Deployed to 80 hosts."}


def deployed(db: psycopg.Connection, user: str) -> list[tuple[str, str]]:
    """An object whose forms were needed: by whom each was made, and what is shown now."""
    Agent(db, user).calls("Bash", {"command": "deploy"}, OUTPUT)
    return shown_forms(db, user)


def shown_forms(db: psycopg.Connection, user: str) -> list[tuple[str, str]]:
    """As at a moment of compile."""
    rows = db.execute(
        """select f.made_by, f.content from _memoir.users u join _memoir.memory_store m using (user_id),
          lateral (select _memoir.keep_forms(m.user_id, array[m.memory_id, m.memory_id], '{1,2}')) k(kept),
          lateral (select * from _memoir.object_forms(m.user_id, array[m.memory_id, m.memory_id], case when kept is null then null else '{1,2}'::smallint[] end)) f
        where m.is_object and u.external_id = %s""",
        [user],
    ).fetchall()
    return [tuple(row) for row in rows]


def test_a_model_renders_what_rules_cut(db: psycopg.Connection, user: str, way: tuple[str, Step]) -> None:
    provider, model = way
    with STUBS[provider](says(**SHORT)) as stub:
        use(db, provider, stub.url)
        by_rules = deployed(db, user)
        assert {made_by for made_by, _ in by_rules} == {"rules"} and [row[0] for row in waiting(db, "render")] == [
            "ready"
        ]
        model()
    [request] = stub.requests
    assert "web-7.example.org" in json.dumps(request) and waiting(db, "render") == []
    assert (TOKENS, COST, COST) in costs(db, user)
    forms = shown_forms(db, user)
    assert [made_by for made_by, _ in forms] == ["priced render.v1"] * 2
    assert SHORT["detailed"] in forms[0][1] and SHORT["compact"] in forms[1][1]
    assert all("Left out: " in text and "memory_query(" in text for _, text in forms)
    # And it is not asked for again.
    assert shown_forms(db, user) == forms and waiting(db, "render") == []


@pytest.mark.parametrize("way", [("openai", "inside")], indirect=True, ids="-".join)
@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ({**SHORT, "compact": "Deployed to db-9.example.org."}, "the text does not say"),
        ({**SHORT, "compact": "Deployed. " * 500}, "tokens"),
        ({**SHORT, "detailed": " "}, "it is empty"),
        ({"detailed": "x"}, "lacks compact"),
    ],
)
def test_a_form_that_can_not_stand_is_refused(
    db: psycopg.Connection, user: str, way: tuple[str, Step], answer: dict[str, str], problem: str
) -> None:
    provider, model = way
    with STUBS[provider](says(**answer)) as stub:
        use(db, provider, stub.url)
        by_rules = deployed(db, user)
        model()
        [(state, _, error)] = waiting(db, "render")
        assert state in ("ready", "dead") and problem in error
    assert shown_forms(db, user) == by_rules


@pytest.mark.parametrize("way", [("openai", "outside")], indirect=True, ids="-".join)
@pytest.mark.parametrize("event", ["secret", "erased", "forgotten"])
def test_what_is_gone_meanwhile_is_not_rendered(
    db: psycopg.Connection, user: str, memoir_dsn: str, way: tuple[str, Step], event: str
) -> None:
    provider, model = way
    statement = {
        "secret": "select memoir.mark_turn(%s, 's', 2, 'secret')",
        "erased": "select memoir.erase_turn(%s, 's', 2)",
        "forgotten": """select memoir.forget(name, (memoir.remember(name, 'Step 7 took 217 seconds', p_session => 's',
            p_source_turns => '{2}') ->> 'memory_id')::uuid) from (select %s as name) x""",
    }[event]

    class Meanwhile(STUBS[provider]):  # type: ignore[misc]
        def handle(self, path: str, body: dict[str, Any]) -> Any:
            with psycopg.connect(memoir_dsn, autocommit=True) as other:
                other.execute(statement, [user])
            return super().handle(path, body)

    with Meanwhile(says(**SHORT)) as stub:
        use(db, provider, stub.url)
        deployed(db, user)
        model()
        assert len(stub.requests) == 1
    assert all(SHORT["compact"] not in text for _, text in shown_forms(db, user))


# Questions to memory_query --------------------------------------------------------------------------------------------

WHERE = "Where is the boat Brisa kept?"


def ask(db: psycopg.Connection, user: str, *more: Any) -> dict[str, Any]:
    places = "".join(", %s" for _ in more)
    return db.execute(f"select memoir.memory_query(%s, 's', %s{places})", [user, WHERE, *more]).fetchone()[0]


def answer_of(db: psycopg.Connection, user: str, asked: dict[str, Any]) -> dict[str, Any]:
    return db.execute("select memoir.query_answer(%s, 's', %s)", [user, asked["answer"]["id"]]).fetchone()[0]


@pytest.mark.parametrize("way", WAYS, indirect=True, ids="-".join)
def test_passages_come_at_once_and_an_answer_later(db: psycopg.Connection, user: str, way: tuple[str, Step]) -> None:
    provider, model = way
    persist(db, user, "s", "We keep the boat Brisa in Harstad.", "Noted.")
    with STUBS[provider](says(answer="In Harstad."), says(answer=None)) as stub:
        use(db, provider, stub.url)
        asked = ask(db, user)
        assert "boat Brisa in Harstad" in asked["text"] and asked["answer"]["state"] == "waiting"
        assert answer_of(db, user, asked) == asked["answer"]
        assert "answer" not in ask(db, user, 600, "session", False)
        # A model that asks with the tool reads passages itself.
        tool = "select memoir.call_memory_tool(%s, 's', 'memory_query', %s)"
        assert "Harstad" in db.execute(tool, [user, Jsonb({"question": WHERE})]).fetchone()[0]
        model()
        [request] = stub.requests
        assert WHERE in json.dumps(request) and "boat Brisa in Harstad" in json.dumps(request)
        assert answer_of(db, user, asked) == asked["answer"] | {
            "state": "answered",
            "text": "In Harstad.",
            "tokens": 4,
            "made_by": "priced answer.v1",
        }
        assert waiting(db, "answer") == [] and (TOKENS, COST, COST) in costs(db, user)
        again = ask(db, user)
        model()
        assert answer_of(db, user, again)["state"] == "unanswered"
    with Memoir(db.info.dsn + f" password={db.info.password}") as client:
        assert client.session(user, "s").query_answer(asked["answer"]["id"])["text"] == "In Harstad."
    db.execute("select memoir.reset_setting('llm_provider')")
    assert "answer" not in ask(db, user)


@pytest.mark.parametrize("way", [("openai", "inside")], indirect=True, ids="-".join)
@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ({"answer": "In Harstad, at pier-12.example.org."}, "the text does not say"),
        ({"answer": "In Harstad. " * 900}, "tokens"),
        ({"found": True}, "lacks answer"),
        ({"answer": 7}, "must be of type string or null"),
    ],
)
def test_an_answer_that_passages_do_not_bear_is_refused(
    db: psycopg.Connection, user: str, way: tuple[str, Step], answer: dict[str, Any], problem: str
) -> None:
    provider, model = way
    persist(db, user, "s", "We keep the boat Brisa in Harstad.", "Noted.")
    with STUBS[provider](*[says(**answer)] * 4) as stub:
        use(db, provider, stub.url)
        asked = ask(db, user)
        model()
        [(_, _, error)] = waiting(db, "answer")
        assert problem in error
        db.execute("update _memoir.work_items set run_after = now() where kind = 'answer'")
        model()
    assert [state for state, _, _ in waiting(db, "answer")] == ["dead"]
    assert answer_of(db, user, asked)["state"] == "failed"


@pytest.mark.parametrize("way", [("openai", "outside")], indirect=True, ids="-".join)
@pytest.mark.parametrize("when", ["waiting", "asked", "answered"])
@pytest.mark.parametrize("event", ["secret", "erased", "forgotten", "closed"])
def test_an_answer_goes_with_what_it_was_made_of(
    db: psycopg.Connection, user: str, memoir_dsn: str, way: tuple[str, Step], event: str, when: str
) -> None:
    provider, model = way
    statement = {
        "secret": "select memoir.mark_turn(%s, 's', 0, 'secret')",
        "erased": "select memoir.erase_turn(%s, 's', 0)",
        "forgotten": "select memoir.forget_about(%s, 'boat Brisa')",
        "closed": "select memoir.close_session(%s, 's')",
    }[event]

    def happens() -> None:
        with psycopg.connect(memoir_dsn, autocommit=True) as other:
            other.execute(statement, [user])

    class Meanwhile(STUBS[provider]):  # type: ignore[misc]
        def handle(self, path: str, body: dict[str, Any]) -> Any:
            if when == "asked":
                happens()
            return super().handle(path, body)

    persist(db, user, "s", "We keep the boat Brisa in Harstad.", "Noted.")
    with Meanwhile(says(answer="In Harstad.")) as stub:
        use(db, provider, stub.url)
        asked = ask(db, user)
        if when == "waiting":
            happens()
        model()
        assert len(stub.requests) == (when != "waiting") and waiting(db, "answer") == []
    if when == "answered":
        assert answer_of(db, user, asked)["text"] == "In Harstad."
        happens()
    with pytest.raises(psycopg.Error, match="has no question"):
        answer_of(db, user, asked)
    assert db.execute(
        "select count(*) from _memoir.query_answers join _memoir.users u using (user_id) where external_id = %s", [user]
    ).fetchone() == (0,)


@pytest.mark.parametrize("way", [("openai", "outside")], indirect=True, ids="-".join)
def test_a_question_is_not_answered_from_what_is_private(
    db: psycopg.Connection, user: str, way: tuple[str, Step]
) -> None:
    provider, model = way
    persist(db, user, "s", "We keep the boat Brisa in Harstad.", "Noted.")
    db.execute("select memoir.mark_turn(%s, 's', 0, 'private')", [user])
    with STUBS[provider](says(answer="In Harstad.")) as stub:
        use(db, provider, stub.url)
        asked = ask(db, user)
        assert "Harstad" in asked["text"] and "answer" not in asked
        model()
        assert stub.requests == []
