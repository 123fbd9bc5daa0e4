"""Judging, merging, summaries, forms and answers by a language model, end to end. Whatever the provider does, what rules made
stands, work is retried or a dead letter. A text that says more than its source is refused, and what is secret, erased, forgotten
or closed meanwhile is not stored."""

import json
from typing import Any

import psycopg
import pytest
from calls import Db, call, persist, recalled, remember, remembered, run_job, set_settings, table
from internals import make_work_due, work
from pg_memoir import Memoir
from pipeline import BOAT, COST, GOOD, HIKES, KEPT, MERGED, PRICE, SHORT, TOKENS, WAYS, WHERE, Way, says
from psycopg.types.json import Jsonb
from stubs import Answer

pytestmark = pytest.mark.extended

outside = pytest.mark.parametrize("way", [WAYS[1]], indirect=True, ids="-".join)

# Judging and merging --------------------------------------------------------------------------------------------------


def test_model_judges_what_rules_leave_open(db: Db, user: str, way: Way) -> None:
    near, close = [1, 0.1, 0, 0], [1, 0.3, 0.1, 0]  # cosine .97
    contradicts = says(judgements=[{"n": 0, "contradiction": 0.97}])
    compatible = says(judgements=[{"n": n, "contradiction": 0.2} for n in range(2)])
    persist(db, user, "s", "Hello.", "Hi.")
    with way.asks(contradicts, contradicts, compatible) as stub:
        set_settings(db, judge="llm")
        first = remembered(db, user, "Takes the train to work.", embedding=near)
        second = remember(db, user, "Cycles to work every day.", embedding=close)
        assert second["superseded"] == second["contradicts"] == []  # rules saw nothing
        way.run()
        guess = remembered(db, user, "Walks to the office.", embedding=close, session="s", actor="agent")
        way.run()
        third = remembered(db, user, "Owns a red bicycle.", embedding=close)
        way.run()
    assert "train" in json.dumps(stub.requests[0]) and len(stub.requests) == 3 and work(db, "judge") == []
    # Of equal authority what was said later stands; an agent's guess does not take the person's word away.
    second = second["memory_id"]
    columns = "memory_id::text, other_id::text, judge, verdict, decision, winner_id::text"
    assert {
        (second, first, "priced judge.v1", "contradiction", "superseded", second),
        (guess, second, "priced judge.v1", "contradiction", "contradicts", None),
        (third, second, "priced judge.v1", "compatible", "none", None),
    } <= set(table(db, "list_judgements", user, columns=columns))
    assert way.history(user)["Takes the train to work."][:3] == ("superseded", "priced judge.v1", second)
    assert {row[0] for row in way.active_rows(user, "memory_id::text")} == {second, guess, third}
    assert way.costs(user)[0] == (3 * TOKENS, 3 * COST, 3 * COST)


def test_model_merges_what_rules_put_together(db: Db, user: str, way: Way) -> None:
    with way.asks(says(content=MERGED, covers=[0, 1, 2])) as stub:
        members = way.hikes(user)
        (by_rules,) = way.contents(user)
        assert work(db, "consolidate") == [("ready", 0, None)] and all(text.rstrip(".") in by_rules for text in HIKES)
        way.run()
    [request] = stub.requests
    assert all(text in json.dumps(request) for text in HIKES) and by_rules not in json.dumps(request)
    assert work(db, "consolidate") == [] and way.costs(user) == [(TOKENS, COST, COST)]
    was = way.history(user)
    whole = was[MERGED][3]
    assert was[MERGED] == ("active", None, None, whole, "priced consolidate.v1")
    assert was[by_rules][:3] == ("superseded", "reworded", whole)
    assert {was[text][:3] for text in HIKES} == {("superseded", "consolidated", whole)}
    assert recalled(db, user, "hikes Brigida Zermatt") == [MERGED]
    # And back: each says what it said, and they stay apart.
    assert set(call(db, "undo_consolidation", user, whole)["restored"]) == set(members)
    run_job(db, "consolidation")
    assert way.contents(user) == set(HIKES) and work(db, "consolidate") == []


@pytest.mark.parametrize(
    ("covers", "content", "left"),
    [([0, 1], "Hikes in the Alps each summer, with Brigida.", {"Hiked 40 km around Zermatt"}), ([], "", set(HIKES))],
)
def test_part_that_a_model_leaves_out_stands_by_itself(db: Db, user: str, way: Way, covers, content: str, left) -> None:
    with way.asks(says(content=content, covers=covers)):
        way.hikes(user)
        way.run()
        run_job(db, "consolidation")
    assert way.contents(user) == left | ({content} if content else set()) and work(db, "consolidate") == []


def test_refused_merge_is_asked_for_once_more(db: Db, user: str, way: Way) -> None:
    with way.asks(says(content="Hikes in the Alps each summer with Brigida.", covers=[0, 1, 2])) as stub:
        way.hikes(user)
        before = way.history(user)
        for tries, state in ((1, "ready"), (2, "dead"), (2, "dead")):
            way.run()
            [(found, attempts, error)] = work(db, "consolidate")
            assert (found, attempts, len(stub.requests)) == (state, tries, tries) and "does not say that" in error
            make_work_due(db)
        # What rules made stands; the answers are paid for.
        assert way.history(user) == before and way.costs(user) == [(2 * TOKENS, 2 * COST, 2 * COST)]
        db.execute("select memoir.retry_work(work_id) from memoir.dead_letters where kind = 'consolidate'")
        way.run()
        assert [row[0] for row in work(db, "consolidate")] == ["ready"]


@outside
@pytest.mark.parametrize("at", ["before", "asked", "after"])
def test_forgotten_part_is_not_merged(db: Db, user: str, way: Way, at: str) -> None:
    merged = says(content=MERGED, covers=[0, 1, 2])
    way.use("http://127.0.0.1:1")
    members = way.hikes(user)
    forget = "select memoir.forget(%s, %s)"
    during = forget if at == "asked" else "select %s, %s"
    with way.asks(merged, meanwhile=(during, [user, members[1]])) as stub:
        if at == "before":
            db.execute(forget, [user, members[1]])
        way.run()
        if at == "after":
            db.execute(forget, [user, members[1]])
        assert len(stub.requests) == (at != "before")
    assert way.contents(user) == set(HIKES) - {"Hikes with Brigida."} and work(db, "consolidate") == []
    assert {row[0] for text, row in way.history(user).items() if "Brigida" in text} == {"forgotten"}


# Every kind -----------------------------------------------------------------------------------------------------------


def queue_every_kind(way: Way, user: str) -> None:
    db = way.db
    set_settings(db, judge="llm")
    persist(db, user, "s", f"{BOAT}. " * 8, "Noted, the boat Brisa is in Harstad. " * 8)
    run_job(db, "extract")
    call(db, "summarize_session", user, "s")
    way.deploy(f"{user}-agent")
    way.ask(user)
    way.hikes(user)
    for content, last in (("Takes the train to work.", 0.1), ("Cycles to work every day.", 0.3)):
        remember(db, user, content, embedding=[0, 0, 1, last])


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
    summary = says(summary="- user: the boat Brisa is kept in Harstad")
    return Answer(text=GOOD.text, **PRICE) if '\\"turns\\"' in asked else summary


@pytest.mark.acceptance
def test_every_kind_gets_through_every_failure(db: Db, user: str, way: Way) -> None:
    kinds = ["answer", "extract", "judge", "consolidate", "summarise", "render"]
    stop = {"openai": "length", "anthropic": "max_tokens"}[way.provider]
    busy = {"retry-after": "900"}
    failures = {
        "cut off": (Answer(text='{"summary": "- us', stop=stop, **PRICE), "dead"),
        "bad answer, twice": (Answer(text='{"nothing": 1}', **PRICE), "dead"),
        "no usable answer": (Answer(raw=b"<html>502</html>"), "ready"),
        "answered 429": (Answer(status=429, headers=busy), "ready"),
        "answered 529": (Answer(status=529, headers=busy), "ready"),
        "no answer": (Answer(delay=60), "ready"),
    }
    with way.asks():
        queue_every_kind(way, user)
    before, summary = way.history(user), call(db, "summarize_session", user, "s")
    for error, (answer, state) in failures.items():
        with way.asks(answer, timeout=1, retries=0):
            way.run()
        columns = "kind, state, last_error, run_after > now() + interval '14 min'"
        rows = [row for kind in kinds for row in work(db, kind, columns)]
        assert {(kind, found) for kind, found, *_ in rows} == {(kind, state) for kind in kinds}, (error, rows)
        assert all(error in row[2] and (row[3] or not answer.headers) for row in rows), (error, rows)
        make_work_due(db, anew=True)
    assert way.history(user) == before and call(db, "summarize_session", user, "s") == summary
    with way.asks(answer_to):
        way.run()
    assert [work(db, kind) for kind in kinds] == [[]] * len(kinds)
    assert way.history(user)[MERGED][0] == "active" and KEPT in way.contents(user)
    whole = call(db, "summarize_session", user, "s")
    assert whole["made_by"] == "priced summarise.v1"
    assert whole["summary"].endswith("- user: the boat Brisa is kept in Harstad")
    assert recalled(db, user, "boat Brisa", kinds=["summary"]) == [whole["summary"]]


def test_model_words_summaries_of_every_level(db: Db, user: str, way: Way) -> None:
    call(db, "open_session", user, "s", settings={"summary_tokens": 120, "compaction_tokens": 600})
    with way.asks(says(summary="- user: we sailed on")) as stub:
        for n in range(24):
            said = f"In week {n} we sailed to harbour {n} and it took {n + 3} hours. " * 4
            persist(db, user, "s", said, f"Week {n} is noted, harbour {n} as well. " * 4)
        call(db, "compact_session", user, "s", 0)
        call(db, "summarize_session", user, "s")
        way.run()
        assert work(db, "summarise") == []
    rows = table(db, "list_compactions", user, "s", columns="level, made_by, counts, undone_at")
    levels = {level: made_by for level, made_by, counts, undone in rows if counts or level == 0 and undone is None}
    assert 0 in levels and max(levels) > 1 and set(levels.values()) == {"priced summarise.v1"}, rows
    # What is summed up already is given as it was summed up.
    assert any('\\"who\\": \\"summary\\"' in json.dumps(request) for request in stub.requests)


# Forms of objects -----------------------------------------------------------------------------------------------------


def test_model_renders_what_rules_cut(db: Db, user: str, way: Way) -> None:
    with way.asks(says(**SHORT)) as stub:
        assert {made_by for made_by, _ in way.deploy(user)} == {"rules"}
        way.run()
    [request] = stub.requests
    assert "web-7.example.org" in json.dumps(request) and (TOKENS, COST, COST) in way.costs(user)
    forms = way.renew_forms(user)
    assert [made_by for made_by, _ in forms] == ["priced render.v1"] * 2
    assert SHORT["detailed"] in forms[0][1] and SHORT["compact"] in forms[1][1]
    assert all("Left out: " in text and "memory_query(" in text for _, text in forms)
    # And it is not asked for again.
    assert way.renew_forms(user) == forms and work(db, "render") == []


GONE = {
    "secret": "select memoir.mark_turn(%s, 's', {turn}, 'secret')",
    "erased": "select memoir.erase_turn(%s, 's', {turn})",
    "closed": "select memoir.close_session(%s, 's')",
}


@outside
@pytest.mark.parametrize("event", ["secret", "erased"])
def test_form_of_what_is_gone_is_not_stored(db: Db, user: str, way: Way, event: str) -> None:
    with way.asks(says(**SHORT), meanwhile=(GONE[event].format(turn=2), [user])) as stub:
        way.deploy(user)
        way.run()
        assert len(stub.requests) == 1
    assert all(SHORT["compact"] not in text for _, text in way.renew_forms(user))


# Questions to memory_query --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS, indirect=True, ids="-".join)
def test_passages_come_at_once_and_an_answer_later(db: Db, user: str, way: Way) -> None:
    persist(db, user, "s", f"{BOAT}.", "Noted.")
    with way.asks(says(answer="In Harstad."), says(answer=None)) as stub:
        asked = way.ask(user)
        assert "boat Brisa in Harstad" in asked["text"] and asked["answer"]["state"] == "waiting"
        assert way.answer_of(user, asked) == asked["answer"] and "answer" not in way.ask(user, 600, "session", False)
        # A model that asks with the tool reads passages itself.
        assert "Harstad" in call(db, "call_memory_tool", user, "s", "memory_query", Jsonb({"question": WHERE}))
        way.run()
        [request] = stub.requests
        assert WHERE in json.dumps(request) and "boat Brisa in Harstad" in json.dumps(request)
        done = {"state": "answered", "text": "In Harstad.", "tokens": 4, "made_by": "priced answer.v1"}
        assert way.answer_of(user, asked) == asked["answer"] | done
        assert work(db, "answer") == [] and (TOKENS, COST, COST) in way.costs(user)
        again = way.ask(user)
        way.run()
        assert way.answer_of(user, again)["state"] == "unanswered"
    with Memoir(db.info.dsn + f" password={db.info.password}") as client:
        assert client.session(user, "s").query_answer(asked["answer"]["id"])["text"] == "In Harstad."
    call(db, "reset_setting", "llm_provider")
    assert "answer" not in way.ask(user)


@pytest.mark.parametrize(
    ("kind", "answer", "problem"),
    [
        ("render", {**SHORT, "compact": "Deployed to db-9.example.org."}, "the text does not say"),
        ("render", {**SHORT, "compact": "Deployed. " * 500}, "tokens"),
        ("render", {**SHORT, "detailed": " "}, "it is empty"),
        ("render", {"detailed": "x"}, "lacks compact"),
        ("answer", {"answer": "In Harstad, at pier-12.example.org."}, "the text does not say"),
        ("answer", {"answer": "In Harstad. " * 900}, "tokens"),
        ("answer", {"found": True}, "lacks answer"),
        ("answer", {"answer": 7}, "must be of type string or null"),
    ],
)
def test_text_that_can_not_stand_is_refused(db: Db, user: str, way: Way, kind: str, answer, problem: str) -> None:
    with way.asks(*[says(**answer)] * 4):
        persist(db, user, "s", f"{BOAT}.", "Noted.")
        made = way.deploy(user) if kind == "render" else way.ask(user)
        for _ in range(2):
            way.run()
            assert problem in work(db, kind)[0][2]
            make_work_due(db)
    assert [state for state, _, _ in work(db, kind)] == ["dead"]
    assert way.renew_forms(user) == made if kind == "render" else way.answer_of(user, made)["state"] == "failed"


@outside
@pytest.mark.parametrize("when", ["waiting", "asked", "answered"])
@pytest.mark.parametrize("event", ["secret", "erased", "forgotten", "closed"])
def test_answer_goes_with_what_it_was_made_of(db: Db, user: str, way: Way, event: str, when: str) -> None:
    forget = "select memoir.forget_about(%s, 'boat Brisa')"
    statement = (GONE | {"forgotten": forget})[event].format(turn=0)
    persist(db, user, "s", f"{BOAT}.", "Noted.")
    during = statement if when == "asked" else "select %s"
    with way.asks(says(answer="In Harstad."), meanwhile=(during, [user])) as stub:
        asked = way.ask(user)
        if when == "waiting":
            db.execute(statement, [user])
        way.run()
        assert len(stub.requests) == (when != "waiting") and work(db, "answer") == []
    if when == "answered":
        assert way.answer_of(user, asked)["text"] == "In Harstad."
        db.execute(statement, [user])
    with pytest.raises(psycopg.Error, match="has no question"):
        way.answer_of(user, asked)


@outside
def test_private_text_is_sent_for_no_merge_and_no_answer(db: Db, user: str, way: Way) -> None:
    persist(db, user, "s", f"{BOAT}.", "Noted.")
    call(db, "mark_turn", user, "s", 0, "private")
    with way.asks(says(answer="In Harstad.")) as stub:
        asked = way.ask(user)
        assert "Harstad" in asked["text"] and "answer" not in asked
        for text, vector in HIKES.items():
            remember(db, user, text, embedding=vector, sensitivity="private")
        run_job(db, "consolidation")
        way.run()
        assert stub.requests == []
