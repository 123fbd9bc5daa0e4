"""What was forgotten stays away in other words, too: subject, relation and value are compared, not the sentence."""

from typing import Any

import pytest
from calls import CALL, Db, active, call, persist, recalled, remember, remembered, run_job, table
from cases import read_cases


@pytest.mark.parametrize("case", read_cases("restated"), ids=lambda case: case["said"])
def test_no_other_wording_gets_past(db: Db, user: str, case: dict[str, Any]) -> None:
    """A forgotten statement does not come back in other words, another statement is stored."""
    call(db, "forget", user, remembered(db, user, case["said"]))
    again = {text: remember(db, user, text, actor="agent")["outcome"] for text in case["again"]}
    assert set(again.values()) == {"refused_tombstone"}, again
    other = {text: remember(db, user, text)["outcome"] for text in case["other"]}
    assert "refused_tombstone" not in other.values(), other


def test_slot_decides_where_words_differ(db: Db, user: str) -> None:
    memory = remembered(db, user, "Moved to Lindau for good last spring", slot="home city", slot_value="Lindau")
    call(db, "forget", user, memory)
    assert remember(db, user, "Residence: Lindau")["outcome"] == "refused_tombstone"
    assert remember(db, user, "The home town is Bregenz")["outcome"] == "stored"


def test_own_name_is_the_user(db: Db, user: str) -> None:
    """Lifting lets every wording back."""
    remember(db, user, "My name is Solveig.", slot="name", slot_value="Solveig")
    memory = remembered(db, user, "I live in Lindau.")
    call(db, "forget", user, memory)
    assert remember(db, user, "Solveig's home town is Lindau.")["outcome"] == "refused_tombstone"
    assert remember(db, user, "Torben lives in Lindau.")["outcome"] == "stored"
    assert table(db, "list_tombstones", user, columns="kinds") == [(["slot_value", "value"],)]
    assert call(db, "lift_tombstone", user, content="The home town is Lindau")["memory_id"] == memory
    assert remember(db, user, "Note that the home town is Lindau")["outcome"] != "refused_tombstone"


def test_same_claim_is_forgotten_with_it(db: Db, user: str) -> None:
    other = "My sister lives in Lindau."
    ids = [remembered(db, user, text) for text in ("I live in Lindau.", "The home town is Lindau.", other)]
    assert call(db, "forget", user, ids[0])["merged"] == [ids[1]] and active(db, user) == [other]


def test_corrected_value_stays_corrected(db: Db, user: str) -> None:
    call(db, "correct", user, remembered(db, user, "I live in Lindau."), "I live in Bregenz.")
    assert remember(db, user, "Note that the home town is Lindau", actor="agent")["outcome"] == "refused_tombstone"
    assert remember(db, user, "The home town is Bregenz", actor="agent")["outcome"] != "refused_tombstone"


def turns(db: Db, user: str) -> str:
    return "\n".join(recalled(db, user, "Which home town, Lindau?", kinds="{turn}", limit=50))


def forget_home(db: Db, user: str, session: str) -> None:
    call(db, "extract_session", user, session)
    call(db, "forget", user, table(db, "recall", user, "live Lindau", kinds=["memory"], columns="id")[0][0])


@pytest.mark.parametrize("role", ["assistant", "tool"])
def test_restatement_by_a_model_is_not_recalled(db: Db, user: str, role: str) -> None:
    persist(db, user, "zero", "Where do I live?", "You live in Lindau.")
    assert "You live in Lindau." in turns(db, user), "before anything is forgotten"
    persist(db, user, "one", "I live in Lindau.", "A fine town.")
    forget_home(db, user, "one")
    said = "I looked it up. So your home town is Lindau, isn't it? Trains leave at noon."
    called = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    result = {"role": "tool", "tool_call_id": CALL["id"], "content": said}
    answer = [said] if role == "assistant" else [called, result, "At noon."]
    persist(db, user, "two", "When do trains leave?", *answer)
    assert "home town is Lindau" not in turns(db, user)
    # What the person says stays where it was said; nothing is extracted from either.
    persist(db, user, "three", "My home town is Lindau, by the way.", "Noted.")
    assert "My home town is Lindau" in turns(db, user)
    run_job(db, "extract")
    assert not any("Lindau" in text for text in active(db, user)), active(db, user)


def test_restated_before_it_was_forgotten(db: Db, user: str) -> None:
    advice = "The sun is out. Since you live in Lindau, take the lake train."
    said = ("I live in Lindau.", "Noted: the user's home town is Lindau.", "Which trains are there?", advice)
    persist(db, user, "one", *said, "Thanks.", "Lindau has a fine harbour and a lion.")
    call(db, "summarize_session", user, "one")
    forget_home(db, user, "one")
    assert "home town" not in turns(db, user) and "live in" not in turns(db, user)
    found = recalled(db, user, "Which town has a fine harbour and a lion?", kinds="{turn}")
    assert "Lindau has a fine harbour and a lion." in found, "what claims nothing of the user stays"
    summary = call(db, "summarize_session", user, "one")["summary"]
    assert "home town" not in summary and "live in Lindau" not in summary, summary
