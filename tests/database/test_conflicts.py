"""Conflicts: what rules call a contradiction, who prevails, and what waits for a judge."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from calls import call, memory_row, persist, recalled, remembered

pytestmark = pytest.mark.usefixtures("little_vectors")

NEAR, CLOSE = [1, 0.1, 0, 0], [1, 0.3, 0.1, 0]  # cosine .97


def test_authority_then_recency_then_confidence(db: psycopg.Connection, user: str) -> None:
    persist(db, user, "s", "Hello.", "Hi.")
    said = remembered(db, user, "Is allergic to nuts.", embedding=NEAR)
    guess = call(db, "remember", user, "Is not allergic to nuts.", session="s", embedding=CLOSE)
    assert (guess["superseded"], guess["contradicts"]) == ([], [said]) and memory_row(db, said) == ("active",)
    new = call(db, "remember", user, "Isn't allergic to nuts.", embedding=CLOSE)
    assert new["superseded"] == [said] and memory_row(db, said, "state::text, state_reason") == (
        "superseded",
        "polarity",
    )
    [last] = db.execute(
        "select judge, verdict, decision, winner_id::text, reason from memoir.list_judgements(%s, %s) where decision = 'superseded'",
        [user, said],
    ).fetchall()
    assert last[:4] == ("polarity", "contradiction", "superseded", new["memory_id"]) and "after the other" in last[4]
    # What was said earlier does not replace what was said later, whichever comes in first.
    late = remembered(db, user, "I live in Bergen", slot="home", slot_value="Bergen", created_at="2026-05-01T00:00:00Z")
    old = call(
        db, "remember", user, "I live in Oslo", slot="home", slot_value="Oslo", created_at="2026-01-01T00:00:00Z"
    )
    assert old["outcome"] == "outdated" and memory_row(db, old["memory_id"], "state::text, superseded_by::text") == (
        "superseded",
        late,
    )
    sure = remembered(
        db, user, "Born in Rome", slot="born", slot_value="Rome", created_at="2026-05-01T00:00:00Z", confidence="0.9"
    )
    assert call(
        db,
        "remember",
        user,
        "Born in Pisa",
        slot="born",
        slot_value="Pisa",
        created_at="2026-05-01T00:00:00Z",
        confidence="0.3",
    )["outcome"] == "outdated" and memory_row(db, sure) == ("active",)
    # Values of other times do not conflict.
    assert (
        call(
            db,
            "remember",
            user,
            "Lived in Ulm",
            slot="home",
            slot_value="Ulm",
            valid_from="2010-01-01T00:00:00Z",
            valid_to="2015-01-01T00:00:00Z",
        )["superseded"]
        == []
    )
    assert memory_row(db, late) == ("active",)


def test_what_rules_leave_open_waits_for_a_judge(db: psycopg.Connection, user: str) -> None:
    first = remembered(db, user, "Takes the train to work.", embedding=NEAR)
    assert db.execute("select count(*) from memoir.claim_judgements()").fetchone() == (0,)
    db.execute("select memoir.set_setting('judge', '\"nli\"')")
    try:
        second = remembered(db, user, "Cycles to work every day.", embedding=CLOSE)
        third = remembered(db, user, "Goes to work in Ulm.", embedding=NEAR)
        claims = db.execute(
            "select user_id, memory_id::text, other_id::text, content, other_content from memoir.claim_judgements(100)"
        ).fetchall()
        assert {(a, b) for _, a, b, _, _ in claims} == {(second, first), (third, first), (third, second)}
        assert db.execute("select count(*) from memoir.claim_judgements(100)").fetchone() == (0,)  # leased
        scores = [0.97 if (a, b) == (second, first) else 0.2 for _, a, b, _, _ in claims]
        stored = db.execute(
            "select memoir.store_judgements(%s, %s::uuid[], %s::uuid[], %s::real[], 'nli tiny')",
            [*map(list, list(zip(*claims))[:3]), scores],
        ).fetchone()
        assert stored[0] in (2, 3) and memory_row(db, first, "state::text, superseded_by::text, state_reason") == (
            "superseded",
            second,
            "nli tiny",
        )
        verdicts = {
            (j, v, d)
            for j, v, d in db.execute("select judge, verdict, decision from memoir.list_judgements(%s)", [user])
        }
        assert verdicts == {("nli tiny", "contradiction", "superseded"), ("nli tiny", "compatible", "none")}
        assert db.execute("select count(*) from _memoir.work_items where kind = 'nli'").fetchone() == (0,)
        # A failing judge gives back; what is forgotten meanwhile is not judged; secrets never are.
        fourth = remembered(db, user, "Walks to work.", embedding=CLOSE)
        claims = db.execute("select user_id, memory_id from memoir.claim_judgements(100)").fetchall()
        db.execute(
            "select memoir.fail_judgements(%s, %s, 'model is gone')", [[u for u, _ in claims], [m for _, m in claims]]
        )
        assert db.execute("select state, last_error from _memoir.work_items where kind = 'nli'").fetchone() == (
            "ready",
            "model is gone",
        )
        call(db, "forget", user, fourth)
        db.execute("update _memoir.work_items set run_after = '2000-01-01' where kind = 'nli'")
        assert db.execute("select count(*) from memoir.claim_judgements(100)").fetchone() == (0,)
        remembered(db, user, "Hitchhikes to work.", embedding=CLOSE, sensitivity="secret")
        assert db.execute("select count(*) from memoir.claim_judgements(100)").fetchone() == (0,)
    finally:
        db.execute("select memoir.reset_setting('judge')")


def test_a_language_model_judges(db: psycopg.Connection, user: str) -> None:
    db.execute("select memoir.set_setting('judge', '\"llm\"')")
    try:
        first = remembered(db, user, "Takes the train to work.", embedding=NEAR)
        second = remembered(db, user, "Cycles to work every day.", embedding=CLOSE)
        db.execute("set search_path = pg_catalog, memoir, _memoir, memoir_extensions")
        asked: Any = db.execute(
            "select _memoir.judge_input(j) from _memoir.work_items j where kind = 'judge'"
        ).fetchone()[0]
        assert [(p["n"], p["one"], p["other"]) for p in asked["pairs"]] == [
            (0, "Cycles to work every day.", "Takes the train to work.")
        ]
        with pytest.raises(psycopg.Error):
            db.execute(
                "select _memoir.judge_store(j, '{\"judgements\": []}', 'some-model judge.v1') from _memoir.work_items j where kind = 'judge'"
            )
        assert db.execute(
            "select _memoir.judge_store(j, '{\"judgements\": [{\"n\": 0, \"contradiction\": 0.95}]}', 'some-model judge.v1') from _memoir.work_items j where kind = 'judge'"
        ).fetchone() == (1,)
        assert memory_row(db, first, "superseded_by::text, state_reason") == (
            second,
            "some-model judge.v1",
        ) and recalled(db, user, "work") == ["Cycles to work every day."]
    finally:
        db.execute("delete from _memoir.work_items where kind = 'judge'")
        db.execute("select memoir.reset_setting('judge')")
