"""What a person says has effect: corrections, requests to forget and wishes, in scripted conversations with the database.
Which sentences these are is read with the pure package; a handful, cases/everyday.jsonl, goes all the way."""

from typing import Any

import psycopg
import pytest
from calls import Db, call, persist, run_job, set_clock, table
from cases import read_cases
from talk import changes, compile_text, memories, spans, talk

pytestmark = pytest.mark.usefixtures("little_vectors")


def cases(kind: str) -> list[dict[str, Any]]:
    return [case for case in read_cases("everyday") if case["kind"] == kind]


KIWIS = "I'm allergic to kiwis and I take zinc tablets"


@pytest.mark.parametrize("case", cases("correction"))
def test_correction_takes_effect(db: Db, user: str, case: dict[str, str]) -> None:
    talk(db, user, case["before"], case["after"])
    new, old = case["new"], case["old"]
    active = memories(db, user)
    assert any(new in m for m in active) and not any(old in m for m in active if new not in m), active
    assert spans(db, user, "changed") >= 1, "the older turn is not marked"


@pytest.mark.parametrize("case", cases("another thing"))
def test_another_thing_changes_nothing(db: Db, user: str, case: dict[str, str]) -> None:
    talk(db, user, case["before"])
    first = memories(db, user)
    talk(db, user, case["before"], case["after"])
    assert changes(db, user) == [] and first and set(first) <= set(memories(db, user))


@pytest.mark.parametrize("case", cases("answer"))
def test_answer_is_about_the_question(db: Db, user: str, case: dict[str, Any]) -> None:
    talk(db, user, case["before"])
    persist(db, user, "later", "I need new ones before winter", case["asked"])
    persist(db, user, "later", case["given"], "Noted.")
    new = case["new"]
    call(db, "extract_session", user, "later")
    assert len(table(db, "list_changes", user, columns="kind")) == (new is not None)
    assert new is None or any(new in m and "?" in m for m in memories(db, user))


def test_correction_within_a_session(db: Db, user: str) -> None:
    persist(db, user, "s", "we'll paint the hall beige. how much do I need?", "Six litres.")
    persist(db, user, "s", "wait, not beige, sand! I always mix them up", "Sand it is.")
    call(db, "extract_session", user, "s")
    assert spans(db, user, "changed") == 1


def test_day_ahead_is_in_the_year_to_come(db: Db, user: str) -> None:
    set_clock(db, "2026-11-20T12:00:00Z")
    try:
        talk(db, user, "my thesis is due on 15 January")
    finally:
        set_clock(db, None)
    assert any("15 January 2027" in m for m in memories(db, user)), memories(db, user)


def test_older_statement_is_shown_with_a_mark(db: Db, user: str) -> None:
    talk(db, user, "I live in Malaga, and my bakery opens at six", "I don't live in Malaga any more, I moved to Cadiz")
    text = compile_text(db, user, "In which city do I live, Malaga?")
    line = next(x for x in text.split("\n") if x.startswith("user: I live in Malaga"))
    assert "(later changed)" in line and "bakery" in line


def test_list_keeps_its_rest_until_undone(db: Db, user: str) -> None:
    talk(db, user, "I am allergic to nuts and cats.", "It turned out I am not allergic to cats.")
    db.execute("call memoir.run_job('profiles')")
    profile = call(db, "profile", user)["content"]
    assert "User is allergic to nuts." in profile and "nuts and cats" not in profile
    (change,) = changes(db, user)
    call(db, "undo_change", user, change)
    active = memories(db, user)
    assert "User is allergic to nuts and cats." in active and "User is allergic to nuts." not in active
    assert changes(db, user) == []
    with pytest.raises(psycopg.Error, match="unknown change"):
        call(db, "undo_change", user, change)


@pytest.mark.parametrize("case", cases("forget"))
def test_request_to_forget_takes_effect(db: Db, user: str, case: dict[str, str]) -> None:
    talk(db, user, [case["said"], "On Mondays I play squash"], case["request"])
    secret = case["secret"]
    assert not any(secret in m or "orget" in m for m in memories(db, user)), memories(db, user)
    assert any("squash" in m for m in memories(db, user)), "another statement went with it"
    assert secret not in compile_text(db, user, "What did I say of it?")


def test_forgotten_person_takes_nothing_else_along(db: Db, user: str) -> None:
    talk(db, user, "I work at Siemens with Karl, he's my brother", "please forget what I said about my brother")
    assert any("Siemens" in m for m in memories(db, user)), memories(db, user)


def test_scratched_statement_is_over(db: Db, user: str) -> None:
    scratch = "scratch Madeira, flights were insane. we're doing Slovenia in October"
    talk(db, user, "in October we're off to Madeira for ten days!", scratch)
    assert spans(db, user, "changed") == 1
    assert "Madeira for ten days (later changed)" in compile_text(db, user, "Where are we going in October?")


def test_forgetting_leaves_the_rest_and_can_be_undone(db: Db, user: str) -> None:
    talk(db, user, KIWIS, "forget that I'm allergic to kiwis")
    found = table(db, "recall", user, "zinc tablets", columns="content", kinds=["turn"])
    assert any("zinc" in text and "kiwis" not in text for (text,) in found), found
    (change,) = {c for (c,) in table(db, "list_changes", user, columns="change_id")}
    assert len(call(db, "undo_change", user, change)["restored"]) == 1
    assert any("kiwis" in m for m in memories(db, user))
    found = table(db, "recall", user, "kiwis zinc", columns="content", kinds=["turn"])
    assert [text for (text,) in found].count(KIWIS) == 1, found


def test_forget_about_has_a_preview(db: Db, user: str) -> None:
    talk(db, user, "my bike lock opens with 5512")
    seen = call(db, "forget_about", user, "my bike lock", preview=True)
    assert seen["outcome"] == "preview" and [t["text"] for t in seen["turns"]] == ["my bike lock opens with 5512"]
    assert changes(db, user) == [] and call(db, "forget_about", user, "my bike lock")["outcome"] == "forgotten"
    assert call(db, "forget_about", user, "my unicycle")["outcome"] == "nothing"


def test_request_in_free_words_forgets_what_is_nearest(db: Db, user: str) -> None:
    request = "Kindly erase the combination for the dome that I gave you, it shouldn't be written anywhere. The wifi can stay."
    talk(db, user, ["The padlock on the dome opens with 7390.", "The wifi up there is called Cassini."], request)
    shown = compile_text(db, user, "How do I get into the dome, and on the wifi?")
    assert "7390" not in shown and "Cassini" in shown
    assert not any("7390" in content or "erase" in content for content in memories(db, user))
    (change,) = changes(db, user)
    call(db, "undo_change", user, change)
    assert "7390" in compile_text(db, user, "How do I get into the dome?")
    talk(db, user, "Never mind the moths in the harmonium, I want every last one of them gone.")
    assert changes(db, user) == []


def test_turn_that_says_more_than_the_profile_is_recalled(db: Db, user: str) -> None:
    """One sentence of it stands in the profile. The other is known from the turn alone."""
    said = "my colleague Sanne can't eat gluten, coming to dinner with me sat. I myself can't eat prawns. menu?"
    talk(db, user, said, "I'm allergic to kiwis at dinner.")
    run_job(db, "profiles")
    question = "What can't I eat at the dinner?"
    reasons = {reason for (reason,) in table(db, "explain_context", user, "asks", question, columns="reason")}
    assert "stands in the profile" in reasons, "what says no more is left out"
    listed = compile_text(db, user, question)
    assert "Sanne" in listed.split("</memoir-profile>")[0] and "prawns" in listed
