"""A change that is only likely ends nothing: both statements stay, are recalled together, and stand in the profile with their dates."""

from typing import Any

import pytest
from calls import Db, call, table
from pg_memoir import Memoir
from talk import talk

pytestmark = pytest.mark.usefixtures("little_vectors")

OLD = "I go swimming at the leisure centre with the over-fifties on Friday mornings"
NEW = "With my skin the doctor put a stop to the swimming, it's the chair exercises for me"
CONTENT = "User goes swimming at the leisure centre with the over-fifties on Friday mornings."


@pytest.fixture(autouse=True)
def said(db: Db, user: str) -> None:
    talk(db, user, OLD, NEW)


def recall_text(db: Db, user: str, asked: str = "Do I go swimming at the leisure centre on Fridays?") -> str:
    content = call(db, "compile_context", user, "asks", asked)[-1]["content"]
    return str(content).rsplit(asked, 1)[0]


def likely(db: Db, user: str) -> list[Any]:
    return [change for change, kind in table(db, "list_changes", user, columns="change_id, kind") if kind == "likely"]


def profile_line(db: Db, user: str) -> str:
    """The line of the profile about swimming, as every list begins with it."""
    db.execute("call memoir.run_job('profiles')")
    system = call(db, "compile_context", user, "asks", "Good morning.")[0]
    (line,) = [line for line in system["content"].splitlines() if "swimming" in line]
    return str(line)


def hide(db: Db, user: str, hidden: str | None) -> None:
    """The newer statement is forgotten or marked secret, or the change is undone."""
    if hidden == "forgotten":
        assert call(db, "forget_about", user, "the chair exercises")["outcome"] == "forgotten"
    elif hidden:
        call(db, "mark_turn", user, "s1", 0, "secret")
    else:
        call(db, "undo_change", user, str(likely(db, user)[0]))


def test_both_are_kept_and_nothing_is_marked(db: Db, user: str) -> None:
    ((kind, turns, by),) = table(db, "list_changes", user, columns="kind, turns, by_session")
    assert (kind, by, [turn["session"] for turn in turns]) == ("likely", "s1", ["s0"])
    text = recall_text(db, user)
    assert OLD in text and NEW in text and "later" not in text
    assert dict(table(db, "list_memories", user, columns="content, state", p_states=[]))[CONTENT] == "active"
    call(db, "undo_change", user, str(likely(db, user)[0]))
    assert likely(db, user) == [] and OLD in recall_text(db, user)


def test_certain_change_ends_the_likely_one(db: Db, user: str) -> None:
    talk(db, user, [], [], "I gave up swimming at the leisure centre.")
    assert {kind for (kind,) in table(db, "list_changes", user, columns="kind")} == {"changed"}
    assert "(later changed)" in recall_text(db, user)


@pytest.mark.parametrize("hidden", [None, "forgotten", "secret"])
def test_profile_shows_the_newer_words_both_dated(db: Db, user: str, hidden: str | None) -> None:
    line = profile_line(db, user)
    assert line.startswith(f"- {CONTENT} (said on ") and f': "{NEW}")' in line
    assert NEW in call(db, "recall_beside", user, "agent", "Which sport do I do?")["text"]
    hide(db, user, hidden)
    assert profile_line(db, user) == f"- {CONTENT}"


@pytest.mark.parametrize("hidden", ["forgotten", "secret"])
def test_hidden_words_do_not_come_along(db: Db, user: str, hidden: str) -> None:
    hide(db, user, hidden)
    text = recall_text(db, user)
    assert "chair" not in text and OLD in text


def test_a_page_has_it_under_in_doubt(db: Db, user: str) -> None:
    with Memoir(db.info.dsn, max_size=1) as memoir:
        (doubted,) = [one for one in memoir.memory_page(user).sentences if one.text == CONTENT]
        assert doubted.doubts == ["perhaps changed in s1:0"]
        call(db, "undo_change", user, str(likely(db, user)[0]))
        assert "In doubt" not in memoir.memory_page(user).markdown
