"""Lasting preferences and facts about a person appear in every list: in the profile, else at the head of recall.
Which statements are lasting is read with the pure package (cases/standing.jsonl)."""

import pytest
from calls import Db, call, table
from talk import compile_text, talk

pytestmark = pytest.mark.usefixtures("little_vectors")


def test_profile_holds_what_stands(db: Db, user: str) -> None:
    said = {
        "lactose intolerant here, so skip the cream. how do I thicken a soup": True,
        "whatever language I write in, answer in Norwegian": True,
        "Ich bin Vegetarierin": True,
        "no emojis in this one please": False,
        "we met with Tom at the Anchor": False,
    }
    for words in said:
        talk(db, user + words, words)
    db.execute("call memoir.run_job('profiles')")
    assert {words: call(db, "profile", user + words)["content"] != "" for words in said} == said


def test_wishes_without_room_lead_the_recall(db: Db, user: str) -> None:
    wishes = ("always answer in bullet points", "never recommend wine", "always give prices in euros")
    talk(db, user, *(f"Please {wish}." for wish in wishes))
    db.execute("select memoir.set_user_settings(%s, '{\"profile_tokens\": 30}')", [user])
    db.execute("call memoir.run_job('profiles')")
    profile = call(db, "profile", user)
    assert len(profile["memory_ids"]) + len(profile["left_out"]) == 3 and profile["left_out"]
    for question in ("What is the tallest mountain?", "Thanks!"):
        prompt = compile_text(db, user, question)
        assert all(wish in prompt.lower() for wish in wishes), question
    warnings = call(db, "context", user, "new", "Where to?")["warnings"]
    assert any("have no room in the profile" in warning for warning in warnings)
    rows = table(db, "explain_context", user, "new", "Where to?", columns="arms, included")
    assert any("standing" in arms for arms, included in rows if included)


def test_profile_is_not_repeated_in_recall(db: Db, user: str) -> None:
    talk(db, user, "I'm vegetarian.")
    db.execute("call memoir.run_job('profiles')")
    assert compile_text(db, user, "Am I a vegetarian?").count("vegetarian") == 1, "the profile's line"


def test_wishes_for_a_project_are_in_its_sessions(db: Db, user: str) -> None:
    for session, project in (("s0", "falcon"), ("asks", "falcon"), ("elsewhere", "heron")):
        call(db, "open_session", user, session, project=project)
    talk(db, user, "For the Falcon project, always write commit messages in French.")
    for session, stands in (("asks", True), ("elsewhere", False)):
        shown = str(call(db, "compile_context", user, session, "What is the tallest mountain?"))
        assert ("commit messages in French" in shown) == stands
    rows = table(db, "explain_context", user, "asks", "What is the tallest mountain?", columns="arms, included")
    assert any("standing" in arms for arms, included in rows if included)


def test_learnt_wish_is_in_the_profile(db: Db, user: str) -> None:
    wish = "Whenever I ask for a recipe, scale it for three people"
    talk(db, user, wish, "When I visit my aunt, she always bakes a plum cake")
    db.execute("call memoir.run_job('profiles')")
    profile = call(db, "profile", user)["content"]
    assert "three people" in profile and "plum cake" not in profile.split("Facts")[0]
