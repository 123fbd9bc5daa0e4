"""Forms of objects and answers to questions by a language model, end to end: a text that says more than its source is refused, and what
is secret, erased, forgotten or closed meanwhile is not stored."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from calls import Db, call, persist, remember, run_job
from internals import make_work_due, work
from pg_memoir import Memoir
from pipeline import (
    BOAT,
    COST,
    HIKES,
    SHORT,
    STUBS,
    TOKENS,
    WAYS,
    WHERE,
    Way,
    answer_of,
    ask,
    costs,
    deploy,
    meanwhile,
    renew_forms,
    says,
    use,
)
from psycopg.types.json import Jsonb

pytestmark = pytest.mark.extended

outside = pytest.mark.parametrize("way", [WAYS[1]], indirect=True, ids="-".join)

# Forms of objects -----------------------------------------------------------------------------------------------------


def test_model_renders_what_rules_cut(db: Db, user: str, way: Way) -> None:
    provider, model = way
    with STUBS[provider](says(**SHORT)) as stub:
        use(db, provider, stub.url)
        assert {made_by for made_by, _ in deploy(db, user)} == {"rules"}
        model()
    [request] = stub.requests
    assert "web-7.example.org" in json.dumps(request) and (TOKENS, COST, COST) in costs(db, user)
    forms = renew_forms(db, user)
    assert [made_by for made_by, _ in forms] == ["priced render.v1"] * 2
    assert SHORT["detailed"] in forms[0][1] and SHORT["compact"] in forms[1][1]
    assert all("Left out: " in text and "memory_query(" in text for _, text in forms)
    # And it is not asked for again.
    assert renew_forms(db, user) == forms and work(db, "render") == []


GONE = {
    "secret": "select memoir.mark_turn(%s, 's', {turn}, 'secret')",
    "erased": "select memoir.erase_turn(%s, 's', {turn})",
    "closed": "select memoir.close_session(%s, 's')",
}


@outside
@pytest.mark.parametrize("event", ["secret", "erased"])
def test_form_of_what_is_gone_is_not_stored(db: Db, user: str, memoir_dsn: str, way: Way, event: str) -> None:
    provider, model = way
    with meanwhile(provider, memoir_dsn, GONE[event].format(turn=2), [user], says(**SHORT)) as stub:
        use(db, provider, stub.url)
        deploy(db, user)
        model()
        assert len(stub.requests) == 1
    assert all(SHORT["compact"] not in text for _, text in renew_forms(db, user))


# Questions to memory_query --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS, indirect=True, ids="-".join)
def test_passages_come_at_once_and_an_answer_later(db: Db, user: str, way: Way) -> None:
    provider, model = way
    persist(db, user, "s", f"{BOAT}.", "Noted.")
    with STUBS[provider](says(answer="In Harstad."), says(answer=None)) as stub:
        use(db, provider, stub.url)
        asked = ask(db, user)
        assert "boat Brisa in Harstad" in asked["text"] and asked["answer"]["state"] == "waiting"
        assert answer_of(db, user, asked) == asked["answer"] and "answer" not in ask(db, user, 600, "session", False)
        # A model that asks with the tool reads passages itself.
        assert "Harstad" in call(db, "call_memory_tool", user, "s", "memory_query", Jsonb({"question": WHERE}))
        model()
        [request] = stub.requests
        assert WHERE in json.dumps(request) and "boat Brisa in Harstad" in json.dumps(request)
        done = {"state": "answered", "text": "In Harstad.", "tokens": 4, "made_by": "priced answer.v1"}
        assert answer_of(db, user, asked) == asked["answer"] | done
        assert work(db, "answer") == [] and (TOKENS, COST, COST) in costs(db, user)
        again = ask(db, user)
        model()
        assert answer_of(db, user, again)["state"] == "unanswered"
    with Memoir(db.info.dsn + f" password={db.info.password}") as client:
        assert client.session(user, "s").query_answer(asked["answer"]["id"])["text"] == "In Harstad."
    call(db, "reset_setting", "llm_provider")
    assert "answer" not in ask(db, user)


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
def test_text_that_can_not_stand_is_refused(
    db: Db, user: str, way: Way, kind: str, answer: dict[str, Any], problem: str
) -> None:
    provider, model = way
    with STUBS[provider](*[says(**answer)] * 4) as stub:
        use(db, provider, stub.url)
        persist(db, user, "s", f"{BOAT}.", "Noted.")
        made = deploy(db, user) if kind == "render" else ask(db, user)
        for _ in range(2):
            model()
            assert problem in work(db, kind)[0][2]
            make_work_due(db)
    assert [state for state, _, _ in work(db, kind)] == ["dead"]
    assert renew_forms(db, user) == made if kind == "render" else answer_of(db, user, made)["state"] == "failed"


@outside
@pytest.mark.parametrize("when", ["waiting", "asked", "answered"])
@pytest.mark.parametrize("event", ["secret", "erased", "forgotten", "closed"])
def test_answer_goes_with_what_it_was_made_of(
    db: Db, user: str, memoir_dsn: str, way: Way, event: str, when: str
) -> None:
    provider, model = way
    forget = "select memoir.forget_about(%s, 'boat Brisa')"
    statement = (GONE | {"forgotten": forget})[event].format(turn=0)
    persist(db, user, "s", f"{BOAT}.", "Noted.")
    during = statement if when == "asked" else "select %s"
    with meanwhile(provider, memoir_dsn, during, [user], says(answer="In Harstad.")) as stub:
        use(db, provider, stub.url)
        asked = ask(db, user)
        if when == "waiting":
            db.execute(statement, [user])
        model()
        assert len(stub.requests) == (when != "waiting") and work(db, "answer") == []
    if when == "answered":
        assert answer_of(db, user, asked)["text"] == "In Harstad."
        db.execute(statement, [user])
    with pytest.raises(psycopg.Error, match="has no question"):
        answer_of(db, user, asked)


@outside
def test_private_text_is_sent_for_no_merge_and_no_answer(db: Db, user: str, way: Way) -> None:
    provider, model = way
    persist(db, user, "s", f"{BOAT}.", "Noted.")
    call(db, "mark_turn", user, "s", 0, "private")
    with STUBS[provider](says(answer="In Harstad.")) as stub:
        use(db, provider, stub.url)
        asked = ask(db, user)
        assert "Harstad" in asked["text"] and "answer" not in asked
        for text, vector in HIKES.items():
            remember(db, user, text, embedding=vector, sensitivity="private")
        run_job(db, "consolidation")
        model()
        assert stub.requests == []
