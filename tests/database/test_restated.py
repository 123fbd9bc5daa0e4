"""What was forgotten stays away in other words, too: subject, relation and value are compared, not the sentence."""

from __future__ import annotations

import psycopg
import pytest
from calls import active, call, one, persist, recalled, remember, remembered, run_job

# What is forgotten, in which other words it must not come back, and what says something else.
CASES = {
    "I live in Lindau.": (
        [
            "Note that I live in Lindau",
            "User: I live in Lindau.",
            "The user lives in Lindau",
            "He lives in Lindau.",
            "They lived in Lindau",
            "My home town is Lindau.",
            "The home town is Lindau",
            "Home city: Lindau",
            "Hometown \u2014 Lindau",
            "FYI: the user is based in Lindau!",
            "Lindau is where I live",
            "Please remember that my residence is in Lindau.",
            "It was mentioned that she resides in Lindau",
            "As noted, the user's home town is Lindau, near the lake.",
            "L\u0456ndau is the home town",
        ],
        [
            "I live in Bregenz.",
            "My sister lives in Lindau.",
            "I don't live in Lindau.",
            "I work in Lindau.",
            "I used to live in Lindau until 2019.",
            "Lindau has a harbour.",
            "My home town is Bregenz.",
            "I no longer live in Lindau.",
        ],
    ),
    "My employer is Quellwerk.": (
        [
            "I work at Quellwerk",
            "She works for Quellwerk.",
            "Reminder: the user is employed at Quellwerk",
            "Company: Quellwerk",
        ],
        ["I work at Steinwerk", "My brother works at Quellwerk", "I want to work at Quellwerk"],
    ),
    "I prefer tea over coffee.": (
        ["The user prefers tea over coffee", "Noted: he preferred tea over coffee."],
        ["I prefer coffee over tea.", "I drink tea."],
    ),
    "My dentist is Dr. Halvorsen.": (
        ["The dentist is Dr. Halvorsen", "Dentist: Dr Halvorsen", "Dr. Halvorsen is her dentist"],
        ["My dentist is Dr. Okafor", "My lawyer is Dr. Halvorsen", "My daughter's dentist is Dr. Halvorsen"],
    ),
    "My locker number is 4417.": (
        ["Note: locker number 4417", "The number of the locker is 4417.", "your locker number is 4417"],
        ["My locker number is 4418.", "My badge number is 4417."],
    ),
}


@pytest.mark.parametrize("said", CASES)
def test_no_other_wording_gets_past(db: psycopg.Connection, user: str, said: str) -> None:
    again, other = CASES[said]
    call(db, "forget", user, remembered(db, user, said))
    passed = [text for text in again if remember(db, user, text, actor="agent")["outcome"] != "refused_tombstone"]
    refused = [text for text in other if remember(db, user, text)["outcome"] == "refused_tombstone"]
    assert (passed, refused) == ([], []), f"after {said}"


def test_by_slot_where_the_words_are_others(db: psycopg.Connection, user: str) -> None:
    memory = remembered(db, user, "Moved to Lindau for good last spring", slot="home city", slot_value="Lindau")
    call(db, "forget", user, memory)
    for text in ("Note that the home town is Lindau.", "I live in Lindau", "Residence: Lindau"):
        assert remember(db, user, text)["outcome"] == "refused_tombstone", text
    assert remember(db, user, "The home town is Bregenz")["outcome"] == "stored"


def test_the_users_own_name_is_the_user(db: psycopg.Connection, user: str) -> None:
    remember(db, user, "My name is Solveig.", slot="name", slot_value="Solveig")
    call(db, "forget", user, remembered(db, user, "I live in Lindau."))
    assert remember(db, user, "Solveig lives in Lindau.")["outcome"] == "refused_tombstone"
    assert remember(db, user, "Solveig's home town is Lindau.")["outcome"] == "refused_tombstone"
    assert remember(db, user, "Torben lives in Lindau.")["outcome"] == "stored"


def test_lifting_lets_every_wording_back(db: psycopg.Connection, user: str) -> None:
    memory = remembered(db, user, "I live in Lindau.")
    call(db, "forget", user, memory)
    assert [kinds for (kinds,) in db.execute("select kinds from memoir.list_tombstones(%s)", [user])] == [
        ["slot_value", "value"]
    ]
    assert remember(db, user, "The home town is Lindau")["outcome"] == "refused_tombstone"
    assert call(db, "lift_tombstone", user, content="The home town is Lindau")["memory_id"] == memory
    assert remember(db, user, "Note that the home town is Lindau")["outcome"] != "refused_tombstone"


def test_what_says_the_same_is_forgotten_with_it(db: psycopg.Connection, user: str) -> None:
    one_way = remembered(db, user, "I live in Lindau.")
    other_way = remembered(db, user, "The home town is Lindau.")
    remember(db, user, "My sister lives in Lindau.")
    assert call(db, "forget", user, one_way)["merged"] == [other_way]
    assert active(db, user) == ["My sister lives in Lindau."]


def test_corrected_values_stay_corrected(db: psycopg.Connection, user: str) -> None:
    call(db, "correct", user, remembered(db, user, "I live in Lindau."), "I live in Bregenz.")
    assert remember(db, user, "Note that the home town is Lindau", actor="agent")["outcome"] == "refused_tombstone"
    assert remember(db, user, "The home town is Bregenz", actor="agent")["outcome"] != "refused_tombstone"


def texts(db: psycopg.Connection, user: str) -> list[str]:
    return recalled(db, user, "Which home town, Lindau?", kinds="{turn}", limit=50)


@pytest.mark.parametrize("role", ["assistant", "tool"])
def test_a_models_restatement_is_not_recalled(db: psycopg.Connection, user: str, role: str) -> None:
    persist(db, user, "one", "I live in Lindau.", "A fine town.")
    call(db, "extract_session", user, "one")
    memory = one(db, "select id from memoir.recall(%s, 'live Lindau', p_kinds => '{memory}') limit 1", user)
    call(db, "forget", user, memory)
    said = "I looked it up. So your home town is Lindau, isn't it? Trains leave at noon."
    if role == "assistant":
        persist(db, user, "two", "When do trains leave?", said)
    else:
        asked = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        calls = {"role": "assistant", "content": None, "tool_calls": [asked]}
        persist(
            db,
            user,
            "two",
            "When do trains leave?",
            calls,
            {"role": "tool", "tool_call_id": "c1", "content": said},
            "At noon.",
        )
    assert not any("home town is Lindau" in text for text in texts(db, user)), texts(db, user)
    reasons = db.execute(
        "select x.reason, x.memory_id::text from _memoir.recall_exclusions x join _memoir.users u using (user_id)"
        " where u.external_id = %s and x.reason like 'restates%%'",
        [user],
    ).fetchall()
    assert reasons == [("restates what was rejected", str(memory))]
    # What the person says stays where it was said; nothing is extracted from either.
    persist(db, user, "three", "My home town is Lindau, by the way.", "Noted.")
    assert any(text.startswith("My home town is Lindau") for text in texts(db, user))
    run_job(db, "extract")
    assert not any("Lindau" in text for text in active(db, user)), active(db, user)


def test_restated_before_it_was_forgotten(db: psycopg.Connection, user: str) -> None:
    persist(db, user, "one", "I live in Lindau.", "Noted: the user's home town is Lindau.")
    persist(
        db, user, "one", "Which trains are there?", "The sun is out. Since you live in Lindau, take the lake train."
    )
    persist(db, user, "one", "Thanks.", "Lindau has a fine harbour and a lion.")
    call(db, "extract_session", user, "one")
    call(db, "summarize_session", user, "one")
    memory = one(db, "select id from memoir.recall(%s, 'live Lindau', p_kinds => '{memory}') limit 1", user)
    call(db, "forget", user, memory)
    assert not any("home town" in text or "live in" in text for text in texts(db, user)), texts(db, user)
    found = recalled(db, user, "Which town has a fine harbour and a lion?", kinds="{turn}")
    assert "Lindau has a fine harbour and a lion." in found, "what claims nothing of the user stays"
    summary = call(db, "summarize_session", user, "one")["summary"]
    assert "home town" not in summary and "live in Lindau" not in summary, summary


def test_nothing_is_looked_at_where_nothing_was_forgotten(db: psycopg.Connection, user: str) -> None:
    persist(db, user, "one", "Where do I live?", "You live in Lindau.")
    assert "You live in Lindau." in texts(db, user)
    assert (
        one(
            db,
            "select count(*) from _memoir.recall_exclusions x join _memoir.users u using (user_id) where u.external_id = %s",
            user,
        )
        == 0
    )
