"""Memories about one thing become one, which says all that they say; and back."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from calls import active, one, remembered, run_job

pytestmark = pytest.mark.usefixtures("little_vectors")

# Alike, and no duplicates: names and numbers differ.
HIKES = {
    "Goes hiking in the Alps each summer": (1, 0.1, 0, 0),
    "Goes hiking with Brigida.": (1, 0.3, 0, 0),
    "Goes hiking 40 km around Zermatt": (1, 0, 0.3, 0),
}


def hikes(db: psycopg.Connection, user: str, **more: Any) -> list[str]:
    return [remembered(db, user, text, embedding=vector, **more) for text, vector in HIKES.items()]


def test_a_cluster_becomes_one_and_back(db: psycopg.Connection, user: str) -> None:
    members = hikes(db, user)
    remembered(db, user, "Plays chess", embedding=(0, 0, 0, 1))
    assert run_job(db, "consolidation")["made"] == 1
    whole, other = sorted(active(db, user), key=len, reverse=True)
    assert other == "Plays chess"
    assert whole == "Goes hiking in the Alps each summer; 40 km around Zermatt; with Brigida."
    key = one(db, "select memory_id from _memoir.memory_store where content = %s", whole)
    # All sources named, edges to each, authority no higher than theirs.
    assert {
        row[0]
        for row in db.execute(
            "select source_id::text from _memoir.memory_sources where item_id = %s and source_kind = 'memory'", [key]
        )
    } == set(members)
    edges = db.execute(
        "select relation::text, count(*) from _memoir.memory_relationships where source_id = %s group by 1 order by 1",
        [key],
    ).fetchall()
    assert edges == [("elaborates", 3), ("supersedes", 3)]
    assert (
        db.execute(
            "select tier, trust, confidence, validated_at is not null from _memoir.memory_store where memory_id = %s",
            [key],
        ).fetchone()
        == db.execute(
            "select min(tier), min(trust), min(confidence), true from _memoir.memory_store where memory_id = any (%s)",
            [members],
        ).fetchone()
    )
    found = [row[0] for row in db.execute("select content from memoir.recall(%s, 'hiking Brigida Zermatt')", [user])]
    assert found == [whole]
    assert run_job(db, "consolidation")["made"] == 0

    undone = one(db, "select memoir.undo_consolidation(%s, %s)", user, key)
    assert set(undone["restored"]) == set(members) and sorted([*HIKES, "Plays chess"]) == active(db, user)
    assert one(db, "select count(*) from _memoir.memory_relationships where source_id = %s", key) == 0
    assert one(db, "select memoir.undo_consolidation(%s, %s)", user, key)["restored"] == []
    # They stay apart.
    assert run_job(db, "consolidation")["made"] == 0 and len(active(db, user)) == 4


def test_only_what_gets_shorter_is_put_together(db: psycopg.Connection, user: str) -> None:
    near = [(1, 0.1 * n, 0, 0) for n in range(8)]
    # Three that share nothing but their matter, and one that two others say already.
    for text, vector in zip(("The allotment has a shed", "Grows leeks behind it", "Waters on Tuesdays"), near):
        remembered(db, user, text, embedding=vector)
    assert run_job(db, "consolidation").get("made", 0) == 0
    for text, vector in zip(
        (
            "My uncle Sten repairs church clocks in Visby",
            "My uncle Sten keeps 14 goats",
            "My uncle Sten is deaf in one ear",
        ),
        near[3:],
    ):
        remembered(db, user, text, embedding=vector)

    def tokens() -> int:
        return sum(one(db, "select memoir.estimate_tokens(%s)", text) for text in active(db, user))

    before = tokens()
    assert run_job(db, "consolidation")["made"] == 1
    (whole,) = [text for text in active(db, user) if "Sten" in text]
    assert whole.count("Sten") == 1 and tokens() < before
    for part in ("repairs church clocks in Visby", "keeps 14 goats", "is deaf in one ear"):
        assert part in whole, whole
    assert len(active(db, user)) == 4, "what did not get shorter stays as it was"


def test_no_answer_is_lost_to_words_that_stand_elsewhere(db: psycopg.Connection, user: str) -> None:
    # Every word of the last one is in the first two, and none of them says it.
    for n, text in enumerate(
        (
            "My aunt Liv always drinks black tea with lemon at home",
            "My aunt Liv always drinks oat milk coffee with Per at work",
            "My aunt Liv always drinks black coffee with Per",
        )
    ):
        remembered(db, user, text, embedding=(1, 0.1 * n, 0, 0))
    assert run_job(db, "consolidation")["made"] == 1
    (whole,) = active(db, user)
    assert "black coffee with Per" in whole, whole


@pytest.mark.parametrize(
    "apart",
    [
        {"project": "kiln"},
        {"type": "plan"},
        {"sensitivity": "private"},
        {"actor": "agent"},
        {"slot": "hike"},
        {"valid_to": "2099-01-01"},
    ],
)
def test_what_differs_stays_apart(db: psycopg.Connection, user: str, apart: dict) -> None:
    texts = iter(HIKES.items())
    for text, vector in (next(texts), next(texts)):
        remembered(db, user, text, embedding=vector)
    text, vector = next(texts)
    remembered(db, user, text, embedding=vector, **apart)
    assert run_job(db, "consolidation")["made"] == 0 and len(active(db, user)) == 3


def test_forgetting_a_part_frees_the_others(db: psycopg.Connection, user: str) -> None:
    members = hikes(db, user)
    run_job(db, "consolidation")
    (whole,) = active(db, user)
    db.execute("select memoir.forget(%s, %s)", [user, members[1]])
    assert active(db, user) == sorted(text for text in HIKES if "Brigida" not in text)
    assert "Brigida" not in str(
        db.execute("select content from memoir.recall(%s, 'hiking with Brigida')", [user]).fetchall()
    )
    assert one(db, "select memoir.remember(%s, 'Goes hiking with Brigida')", user)["outcome"] == "refused_tombstone"
    assert (
        one(
            db,
            "select state from _memoir.memory_store m join _memoir.users u using (user_id) where u.external_id = %s and content = %s",
            user,
            whole,
        )
        == "forgotten"
    )


def test_forgetting_the_whole_forgets_all_of_it(db: psycopg.Connection, user: str) -> None:
    hikes(db, user)
    run_job(db, "consolidation")
    key = one(
        db,
        "select memory_id from _memoir.memory_store m join _memoir.users u using (user_id) where u.external_id = %s and m.state = 'active'",
        user,
    )
    db.execute("select memoir.forget(%s, %s)", [user, key])
    assert active(db, user) == []
    for text in HIKES:
        assert one(db, "select memoir.remember(%s, %s)", user, text)["outcome"] == "refused_tombstone"


def test_a_profile_follows(db: psycopg.Connection, user: str) -> None:
    hikes(db, user)
    db.execute("call memoir.run_job('profiles')")
    run_job(db, "consolidation")
    db.execute("call memoir.run_job('profiles')")
    content = one(db, "select memoir.profile(%s) ->> 'content'", user)
    assert content.count("\n- ") == 1 and "Brigida" in content and "Zermatt" in content
