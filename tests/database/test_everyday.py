"""What is said has effect: corrections, requests to forget, standing statements, nothing invented; in scripted conversations."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from calls import Db, call, persist, table

pytestmark = pytest.mark.usefixtures("little_vectors")


def talk(db: Db, user: str, *sessions: list[str] | str) -> None:
    """Sessions one after the other: what the user says, each answered, then extracted."""
    for n, said in enumerate(sessions):
        for text in [said] if isinstance(said, str) else said:
            persist(db, user, f"s{n}", text, "I see.")
        call(db, "extract_session", user, f"s{n}")


def memories(db: Db, user: str) -> list[str]:
    """The active ones."""
    rows = db.execute("select memoir.export_user(%s)", [user]).fetchall()
    found: list[dict[str, Any]] = [r["row"] for (r,) in rows if r.get("kind") == "memory_store"]
    return [m["content"] for m in found if m["state"] == "active"]


def shown(db: Db, user: str, question: str) -> str:
    """All of a new session's list."""
    compiled = call(db, "compile_context", user, "asks", question)
    return "\n".join(str(m["content"]) for m in compiled)


def spans(db: Db, user: str, kind: str) -> int:
    return sum(len(turns) for turns, k in table(db, "list_changes", user, columns="turns, kind") if k == kind)


CORRECTIONS = [
    ("My parrot is called Gizmo", "typo, my parrot's name isn't Gizmo but Gizma", "Gizma", "Gizmo."),
    ("I live in Malaga with two flatmates", "I moved to Cadiz in spring", "Cadiz", "Malaga"),
    ("I'm a florist, mostly weddings", "I started as a beekeeper last month", "beekeeper", "florist"),
    ("Our budget for the roof is 14,000 euros", "Update: the roof budget is 16,500 euros now", "16,500", "14,000"),
    ("my ferry to Naxos leaves on 3 June at 7:15", "the Naxos ferry got moved to 5 June", "5 June", "3 June"),
    ("I'm vegan", "I'm not vegan anymore, I eat cheese again", "not vegan", "is vegan"),
    ("We have two goats", "We have four goats now", "four goats", "two goats"),
    ("My number is 0171 22 33 445", "new phone: my number is 0160 99 88 776", "0160 99 88 776", "0171"),
    ("I use Trello for my lists", "switched from Trello to Todoist, so much calmer", "Todoist", "uses Trello"),
    ("I'm a member at the Ironbox gym", "I'm no longer at Ironbox, too loud", "no longer", "is a member"),
    ("my laptop is a Framework 13", "got a new laptop, a Zenbook 14. how do I clone my disk?", "Zenbook", "Framework"),
    ("My budget for the tent is 400 dollars", "ignore what I said about the tent budget, it is 250", "250", "400"),
    ("the bus to Leuven leaves at 7:12", "I was wrong about the bus to Leuven, it leaves at 7:42", "7:42", "7:12"),
    ("I share a flat with Hanneke", "so I share the flat with Bo now, could you check my CV?", "Bo", "Hanneke"),
    ("My landlord charges me 610 a month for the loft", "turns out the rent for the loft is 655 a month", "655", "610"),
    ("we adopted a whippet, Olive", "I said Olive was a whippet but she's a greyhound", "greyhound", "a whippet"),
    ("the party is planned for 60 guests", "we cut the party down to 45 guests", "45", "60"),
    ("Ich wohne in Jena", "Nein, ich wohne jetzt in Gera", "Gera", "Jena"),
]


@pytest.mark.parametrize(("before", "after", "new", "old"), CORRECTIONS)
def test_a_correction_takes_effect(db: Db, user: str, before: str, after: str, new: str, old: str) -> None:
    talk(db, user, before, after)
    active = memories(db, user)
    assert any(new in m for m in active), active
    assert not any(old in m for m in active if new not in m), active
    assert spans(db, user, "changed") >= 1, "the older turn is not marked"


TRAPS = [
    ("My rabbit is called Flip", "My hamster is called Flop"),
    ("I speak Estonian", "I also speak Finnish"),
    ("I live in Vejle", "my cousin moved to Odense"),
    ("I live in Vejle", "When I was a student I lived in Aalborg"),
    ("My bus to Bonn leaves at 7:10", "what if my bus to Bonn left at 8:10 instead?"),
    ("my phone is a Jolla C2", "my aunt got a new phone, a Doro 8"),
    ("I drive a Lada Niva", "I was wrong about the film, it starts at nine"),
    ("My cat is called Zorro", "I thought the train was late but it was on time"),
    ("Choir practice is at 19:00", "The book club is at 20:00"),
]


@pytest.mark.parametrize(("before", "after"), TRAPS)
def test_another_thing_changes_nothing(db: Db, user: str, before: str, after: str) -> None:
    talk(db, user, before, after)
    assert table(db, "list_changes", user) == []
    assert memories(db, user), "the first statement is gone"


def test_the_older_statement_is_shown_with_a_mark(db: Db, user: str) -> None:
    talk(db, user, "I live in Malaga, and my bakery opens at six", "I moved to Cadiz in spring")
    text = shown(db, user, "In which city do I live, Malaga?")
    line = next(x for x in text.split("\n") if x.startswith("user: I live in Malaga"))
    assert "(later changed)" in line
    assert "bakery" in line


def test_a_change_can_be_undone(db: Db, user: str) -> None:
    talk(db, user, "We have two goats", "We have four goats now")
    changes = table(db, "list_changes", user, columns="change_id")
    for (change,) in changes:
        call(db, "undo_change", user, change)
    assert table(db, "list_changes", user) == []
    with pytest.raises(psycopg.Error, match="unknown change"):
        call(db, "undo_change", user, changes[0][0])


FORGETS = [
    ("my bike lock opens with 5512", "please forget my bike lock", "5512"),
    ("I'm allergic to kiwis and I take zinc tablets", "forget that I'm allergic to kiwis", "kiwis"),
    ("my cousin Ottmar owes me money", "Can you forget everything I told you about Ottmar?", "Ottmar"),
    ("My address is 7 Rope Walk", "Delete my address from your memory please.", "Rope Walk"),
    ("I earn 2,870 net a month", "I'd rather you didn't keep that. forget what I earn", "2,870"),
    ("Mein Tresorcode ist 7714", "Vergiss bitte meinen Tresorcode", "7714"),
    ("Minha senha do cofre é 7714", "Por favor, esquece a minha senha do cofre", "7714"),
]


@pytest.mark.parametrize(("said", "request_", "secret"), FORGETS)
def test_what_is_to_be_forgotten_is(db: Db, user: str, said: str, request_: str, secret: str) -> None:
    talk(db, user, [said, "On Mondays I play squash"], request_)
    assert not any(secret in m or "orget" in m for m in memories(db, user)), memories(db, user)
    assert any("squash" in m for m in memories(db, user)), "another statement went with it"
    assert secret not in shown(db, user, "What did I say of it?")


def test_the_rest_of_the_turn_stays_findable(db: Db, user: str) -> None:
    talk(db, user, "I'm allergic to kiwis and I take zinc tablets", "forget that I'm allergic to kiwis")
    found = table(db, "recall", user, "zinc tablets", columns="content", kinds=["turn"])
    assert any("zinc" in text and "kiwis" not in text for (text,) in found), found


KEPT = [
    ("My tent peg bag is under the bed", "how do I fix a zip? oh forget it, it works"),
    ("Dinner with Kaja is on the 4th, dinner with Urs is on the 6th", "forget the dinner"),
    ("My tent peg bag is under the bed", "Don't forget that the parcel comes at noon"),
]


@pytest.mark.parametrize(("said", "request_"), KEPT)
def test_what_is_no_clear_request_loses_nothing(db: Db, user: str, said: str, request_: str) -> None:
    talk(db, user, said, request_)
    assert table(db, "list_changes", user) == []


def test_forgetting_can_be_undone(db: Db, user: str) -> None:
    talk(db, user, "I'm allergic to kiwis and I take zinc tablets", "forget that I'm allergic to kiwis")
    (change,) = {c for (c,) in table(db, "list_changes", user, columns="change_id")}
    done = call(db, "undo_change", user, change)
    assert len(done["restored"]) == 1, done
    assert any("kiwis" in m for m in memories(db, user))
    found = table(db, "recall", user, "kiwis zinc", columns="content", kinds=["turn"])
    assert [text for (text,) in found].count("I'm allergic to kiwis and I take zinc tablets") == 1, found


def test_forget_about_says_what_it_would_forget(db: Db, user: str) -> None:
    talk(db, user, "my bike lock opens with 5512")
    seen = call(db, "forget_about", user, "my bike lock", preview=True)
    assert seen["outcome"] == "preview"
    assert [t["text"] for t in seen["turns"]] == ["my bike lock opens with 5512"]
    assert table(db, "list_changes", user) == []
    assert call(db, "forget_about", user, "my bike lock")["outcome"] == "forgotten"
    assert call(db, "forget_about", user, "my unicycle")["outcome"] == "nothing"


STANDING = [
    "I'm a carpenter",
    "we have two daughters, Ulla and Bo",
    "Please always answer in rhymes",
    "I have coeliac disease btw",
    "you can call me Fritzi",
    "Ich bin Vegetarierin",
]


@pytest.mark.parametrize("said", STANDING)
def test_standing_statements_reach_the_profile_at_once(db: Db, user: str, said: str) -> None:
    talk(db, user, said)
    db.execute("call memoir.run_job('profiles')")
    assert call(db, "profile", user)["content"] != ""


def test_what_has_no_room_in_the_profile_leads_the_recall(db: Db, user: str) -> None:
    wishes = ("always answer in bullet points", "never recommend wine", "always give prices in euros")
    talk(db, user, *(f"Please {wish}." for wish in wishes))
    db.execute("select memoir.set_user_settings(%s, '{\"profile_tokens\": 30}')", [user])
    db.execute("call memoir.run_job('profiles')")
    profile = call(db, "profile", user)
    assert len(profile["memory_ids"]) + len(profile["left_out"]) == 3 and profile["left_out"]
    for question in ("What is the tallest mountain?", "Thanks!"):
        prompt = shown(db, user, question)
        assert all(wish in prompt.lower() for wish in wishes), question
    warnings = call(db, "context", user, "new", "Where to?")["warnings"]
    assert any("have no room in the profile" in warning for warning in warnings)
    rows = table(db, "explain_context", user, "new", "Where to?", columns="arms, included")
    assert any("standing" in arms for arms, included in rows if included)


def test_the_profile_is_not_repeated_in_recall(db: Db, user: str) -> None:
    talk(db, user, "I'm vegetarian.")
    db.execute("call memoir.run_job('profiles')")
    assert shown(db, user, "Am I a vegetarian?").count("vegetarian") == 2, "the profile's line and the question"


INVENTED = [
    'Traceback (most recent call last):\n  File "a.py", line 3\nValueError: I work at Acme as a pilot',
    "yeah right, I just love waiting for the bus",
    "let's do a role play: I'm a knight and I hate dragons",
    "write a profile in first person: I'm Leo and I live in Rome",
    "if I lived in Rome I would own a Vespa",
    'what is wrong in {"bio": "I live in Rome"}',
]


@pytest.mark.parametrize("said", INVENTED)
def test_nothing_is_invented(db: Db, user: str, said: str) -> None:
    talk(db, user, said)
    assert memories(db, user) == []


def test_what_others_say_is_not_the_speakers(db: Db, user: str) -> None:
    talk(db, user, "my boss thinks I'm lazy and I play chess at work")
    assert not any(m.startswith(("User is", "User plays")) for m in memories(db, user)), memories(db, user)


def test_what_is_remembered_twice_of_one_matter_has_one_value(db: Db, user: str) -> None:
    call(db, "remember", user, "Lives in Bergen.")
    call(db, "remember", user, "Lives in Oslo.")
    assert memories(db, user) == ["Lives in Oslo."]
