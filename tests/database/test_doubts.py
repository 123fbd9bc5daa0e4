"""What a message perhaps changed is shown with what was said since beside it, and nothing gives way."""

from __future__ import annotations

from typing import Any

import pytest
from calls import Db, call, persist, table

pytestmark = pytest.mark.usefixtures("little_vectors")

OLD = "buying Wen a telescope for his birthday, budget 200"
NEW = "shop had none left, so Wen's getting a ukulele."
NOTE = "(said later: shop had none left, so Wen's getting a ukulele)"


def told(db: Db, user: str, *messages: str) -> None:
    """Each in a session of its own, answered and extracted."""
    for n, text in enumerate(messages):
        persist(db, user, f"s{n}", text, "I see.")
        call(db, "extract_session", user, f"s{n}")


def shown(db: Db, user: str, asked: str = "What is Wen getting for his birthday, the telescope?") -> str:
    content = call(db, "compile_context", user, "asks", asked)[-1]["content"]
    return str(content).rsplit(asked, 1)[0]


def doubts(db: Db, user: str) -> list[Any]:
    return [change for change, kind in table(db, "list_changes", user, columns="change_id, kind") if kind == "doubted"]


def test_what_may_be_untrue_is_shown_with_what_was_said_since(db: Db, user: str) -> None:
    told(db, user, OLD, NEW)
    ((kind, turns, by),) = table(db, "list_changes", user, columns="kind, turns, by_session")
    assert (kind, by, [turn["session"] for turn in turns]) == ("doubted", "s1", ["s0"])
    text = shown(db, user)
    assert f"telescope for his birthday, budget 200 {NOTE}" in text and "later changed" not in text
    call(db, "undo_change", user, str(doubts(db, user)[0]))
    text = shown(db, user)
    assert "telescope" in text and "said later" not in text and doubts(db, user) == []


def test_a_memory_of_it_is_shown_so_too_and_stays(db: Db, user: str) -> None:
    told(db, user, "My sister Ana lives in Bergen.", "Ana found a flat in Oslo and moves her piano there.")
    ((memory, state),) = table(db, "list_memories", user, columns="memory_id, state")
    assert state == "active"
    call(db, "open_session", user, "asks")
    call(db, "pin", user, "asks", str(memory))  # else the turn that says it is shown in its place
    assert "User's sister Ana lives in Bergen (said later: Ana found a flat in Oslo" in shown(db, user, "Where is Ana?")


@pytest.mark.parametrize("hidden", ["forgotten", "secret"])
def test_what_may_not_be_shown_is_not_said_beside_it(db: Db, user: str, hidden: str) -> None:
    told(db, user, OLD, NEW)
    assert NOTE in shown(db, user)
    if hidden == "forgotten":
        assert call(db, "forget_about", user, "the ukulele")["outcome"] == "forgotten"
    else:
        call(db, "mark_turn", user, "s1", 0, "secret")
    text = shown(db, user)
    assert "ukulele" not in text and "telescope" in text


def test_what_is_sure_later_ends_the_doubt(db: Db, user: str) -> None:
    told(db, user, OLD, NEW)
    assert doubts(db, user)
    persist(
        db, user, "s2", "Actually I'm not buying Wen a telescope for his birthday, I'm buying Wen a drum.", "I see."
    )
    call(db, "extract_session", user, "s2")
    assert {kind for (kind,) in table(db, "list_changes", user, columns="kind")} == {"changed"}
    text = shown(db, user)
    assert "(later changed)" in text and "said later" not in text


def test_a_request_to_forget_puts_nothing_in_doubt(db: Db, user: str) -> None:
    told(db, user, OLD, "Delete Wen's pottery lessons, he stopped them, he's getting old.")
    assert doubts(db, user) == []


def test_summaries_keep_what_is_in_doubt(db: Db, user: str) -> None:
    for text in (OLD, "Which wrapping paper has stars on it?"):
        persist(db, user, "s0", text, "I see.")
    call(db, "extract_session", user, "s0")
    persist(db, user, "s1", NEW, "I see.")
    call(db, "extract_session", user, "s1")
    assert doubts(db, user)
    summary = call(db, "summarize_session", user, "s0")
    assert "telescope" in str(summary)


ALLERGY = "I'm allergic to peanuts."
TESTED = "Had peanuts again, the new doctor says it was never an allergy."


def standing(db: Db, user: str) -> str:
    """The line of the profile that every list begins with."""
    db.execute("call memoir.run_job('profiles')")
    system = call(db, "compile_context", user, "asks", "Good morning, what do I react to?")[0]
    assert system["role"] == "system"
    (line,) = [line for line in system["content"].splitlines() if "allergic" in line]
    return str(line)


@pytest.mark.parametrize("hidden", [None, "forgotten", "secret"])
def test_a_line_of_the_profile_is_shown_so_too(db: Db, user: str, hidden: str | None) -> None:
    told(db, user, ALLERGY, TESTED)
    assert standing(db, user).endswith(f"allergic to peanuts. (said later: {TESTED.rstrip('.')})")
    if hidden == "forgotten":
        assert call(db, "forget_about", user, "the new doctor")["outcome"] == "forgotten"
    elif hidden:
        call(db, "mark_turn", user, "s1", 0, "secret")
    else:
        call(db, "undo_change", user, str(doubts(db, user)[0]))
    line = standing(db, user)
    assert "peanuts" in line and "said later" not in line and "doctor" not in line


def test_a_list_kept_elsewhere_gets_it_with_the_profile(db: Db, user: str) -> None:
    told(db, user, ALLERGY, TESTED)
    db.execute("call memoir.run_job('profiles')")
    assert (
        "peanuts. (said later: Had peanuts again"
        in call(db, "recall_beside", user, "agent", "What do I react to?")["text"]
    )
