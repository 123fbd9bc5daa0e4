"""A change that is only likely ends nothing: both statements stay, are recalled together, and stand in the profile with their dates."""

from __future__ import annotations

from typing import Any

import pytest
from calls import Db, call, persist, table

pytestmark = pytest.mark.usefixtures("little_vectors")

OLD = "I go swimming at the leisure centre with the over-fifties on Friday mornings"
NEW = "I've changed from the swimming to the chair exercises on the Friday, since the chlorine brought me out in spots"
CONTENT = "User goes swimming at the leisure centre with the over-fifties on Friday mornings."


def told(db: Db, user: str, *messages: str) -> None:
    """Each in a session of its own, answered and extracted."""
    for n, text in enumerate(messages):
        persist(db, user, f"s{n}", text, "I see.")
        call(db, "extract_session", user, f"s{n}")


def shown(db: Db, user: str, asked: str = "Do I go swimming at the leisure centre on Fridays?") -> str:
    content = call(db, "compile_context", user, "asks", asked)[-1]["content"]
    return str(content).rsplit(asked, 1)[0]


def likely(db: Db, user: str) -> list[Any]:
    return [change for change, kind in table(db, "list_changes", user, columns="change_id, kind") if kind == "likely"]


def test_both_are_recalled_and_nothing_is_marked(db: Db, user: str) -> None:
    told(db, user, OLD, NEW)
    ((kind, turns, by),) = table(db, "list_changes", user, columns="kind, turns, by_session")
    assert (kind, by, [turn["session"] for turn in turns]) == ("likely", "s1", ["s0"])
    text = shown(db, user)
    assert OLD in text and NEW in text and "later" not in text
    call(db, "undo_change", user, str(likely(db, user)[0]))
    assert likely(db, user) == [] and OLD in shown(db, user)


def test_memories_of_both_stay(db: Db, user: str) -> None:
    told(db, user, OLD, NEW)
    states = dict(table(db, "list_memories", user, columns="content, state", p_states=[]))
    assert states[CONTENT] == "active"


@pytest.mark.parametrize("hidden", ["forgotten", "secret"])
def test_what_may_not_be_shown_does_not_come_along(db: Db, user: str, hidden: str) -> None:
    told(db, user, OLD, NEW)
    assert NEW in shown(db, user)
    if hidden == "forgotten":
        assert call(db, "forget_about", user, "the chair exercises")["outcome"] == "forgotten"
    else:
        call(db, "mark_turn", user, "s1", 0, "secret")
    text = shown(db, user)
    assert "chair" not in text and OLD in text


def test_a_certain_change_ends_the_likely_one(db: Db, user: str) -> None:
    told(db, user, OLD, NEW)
    assert likely(db, user)
    persist(db, user, "s2", "I no longer go swimming at the leisure centre.", "I see.")
    call(db, "extract_session", user, "s2")
    assert {kind for (kind,) in table(db, "list_changes", user, columns="kind")} == {"changed"}
    assert "(later changed)" in shown(db, user)


def standing(db: Db, user: str, word: str) -> str:
    """The line of the profile with a word, as every list begins with it."""
    db.execute("call memoir.run_job('profiles')")
    system = call(db, "compile_context", user, "asks", "Good morning.")[0]
    assert system["role"] == "system"
    (line,) = [line for line in system["content"].splitlines() if word in line]
    return str(line)


@pytest.mark.parametrize("hidden", [None, "forgotten", "secret"])
def test_a_line_of_the_profile_stands_with_the_newer_words_both_dated(db: Db, user: str, hidden: str | None) -> None:
    told(db, user, OLD, NEW)
    line = standing(db, user, "swimming")
    assert line.startswith(f"- {CONTENT} (said on ") and f': "{NEW}")' in line
    if hidden == "forgotten":
        assert call(db, "forget_about", user, "the chair exercises")["outcome"] == "forgotten"
    elif hidden:
        call(db, "mark_turn", user, "s1", 0, "secret")
    else:
        call(db, "undo_change", user, str(likely(db, user)[0]))
    assert standing(db, user, "swimming") == f"- {CONTENT}"


def test_a_list_kept_elsewhere_gets_it_with_the_profile(db: Db, user: str) -> None:
    told(db, user, OLD, NEW)
    db.execute("call memoir.run_job('profiles')")
    assert NEW in call(db, "recall_beside", user, "agent", "Which sport do I do?")["text"]
