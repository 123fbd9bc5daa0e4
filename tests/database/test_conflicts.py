"""Conflicts: what rules call a contradiction, who prevails, and what waits for a judge."""

from typing import Any

import pytest
from calls import Db, call, one, persist, remember, remembered, table
from internals import memory_row

pytestmark = pytest.mark.usefixtures("little_vectors")

NEAR, CLOSE = [1, 0.1, 0, 0], [1, 0.3, 0.1, 0]  # cosine .97


def test_authority_then_recency_then_confidence(db: Db, user: str) -> None:
    persist(db, user, "s", "Hello.", "Hi.")
    said = remembered(db, user, "Is allergic to nuts.", embedding=NEAR)
    guess = remember(db, user, "Is not allergic to nuts.", session="s", embedding=CLOSE)
    assert (guess["superseded"], guess["contradicts"]) == ([], [said]) and memory_row(db, said) == ("active",)
    new = remember(db, user, "Isn't allergic to nuts.", embedding=CLOSE)
    assert new["superseded"] == [said]
    assert memory_row(db, said, "state::text, state_reason") == ("superseded", "polarity")
    columns = "decision, judge, verdict, winner_id::text, reason ~ 'after the other'"
    judged = [row for row in table(db, "list_judgements", user, said, columns=columns) if row[0] == "superseded"]
    assert judged == [("superseded", "polarity", "contradiction", new["memory_id"], True)]
    # What was said earlier does not replace what was said later, whichever comes in first.
    may, january = "2026-05-01T00:00:00Z", "2026-01-01T00:00:00Z"
    late = remembered(db, user, "I live in Bergen", slot="home", slot_value="Bergen", created_at=may)
    old = remember(db, user, "I live in Oslo", slot="home", slot_value="Oslo", created_at=january)
    assert old["outcome"] == "outdated"
    assert memory_row(db, old["memory_id"], "state::text, superseded_by::text") == ("superseded", late)
    sure = remembered(db, user, "Born in Rome", slot="born", slot_value="Rome", created_at=may, confidence="0.9")
    unsure = remember(db, user, "Born in Pisa", slot="born", slot_value="Pisa", created_at=may, confidence="0.3")
    assert unsure["outcome"] == "outdated" and memory_row(db, sure) == ("active",)
    # Values of other times do not conflict.
    then = {"valid_from": "2010-01-01T00:00:00Z", "valid_to": "2015-01-01T00:00:00Z"}
    assert remember(db, user, "Lived in Ulm", slot="home", slot_value="Ulm", **then)["superseded"] == []
    assert memory_row(db, late) == ("active",)


def claim(db: Db) -> list[tuple[Any, ...]]:
    return table(db, "claim_judgements", 100, columns="user_id, memory_id::text, other_id::text")


def test_open_cases_wait_for_a_judge(db: Db, user: str, setting: Any, clock: Any) -> None:
    first = remembered(db, user, "Takes the train to work.", embedding=NEAR)
    assert claim(db) == []
    setting("judge", "nli")
    second = remembered(db, user, "Cycles to work every day.", embedding=CLOSE)
    third = remembered(db, user, "Goes to work in Ulm.", embedding=NEAR)
    claims = claim(db)
    assert {row[1:] for row in claims} == {(second, first), (third, first), (third, second)} and claim(
        db
    ) == []  # leased
    scores = [0.97 if row[1:] == (second, first) else 0.2 for row in claims]
    columns = [list(column) for column in zip(*claims)]
    stored = "select memoir.store_judgements(%s, %s::uuid[], %s::uuid[], %s::real[], 'nli tiny')"
    assert one(db, stored, *columns, scores) in (2, 3)
    ended = ("superseded", second, "nli tiny")
    assert memory_row(db, first, "state::text, superseded_by::text, state_reason") == ended
    verdicts = {("nli tiny", "contradiction", "superseded"), ("nli tiny", "compatible", "none")}
    assert set(table(db, "list_judgements", user, columns="judge, verdict, decision")) == verdicts
    # A failing judge gives back; what is forgotten meanwhile is not judged; secrets never are.
    fourth = remembered(db, user, "Walks to work.", embedding=CLOSE)
    [(work, lease)] = set(table(db, "claim_judgements", 100, columns="work_id, lease_id"))
    assert call(db, "fail_work", work, lease, "model is gone")
    assert db.execute("select later, dead from memoir.queue_depth where kind = 'nli'").fetchall() == [(1, 0)]
    call(db, "forget", user, fourth)
    remember(db, user, "Hitchhikes to work.", embedding=CLOSE, sensitivity="secret")
    clock("2099-01-01T00:00:00Z")
    assert claim(db) == []
