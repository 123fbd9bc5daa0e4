"""Changes that words alone leave in doubt: with the shared embedder they are sure."""

from __future__ import annotations

import pytest
from calls import Db, call, table
from talk import talk

CHANGED = [
    ("I drink five or six coffees a day, black",
     "one coffee in the morning and that's it for me, then tea. Is there a decaf that doesn't taste like cardboard?"),
    ("our labrador Bruno is 13 and his hips are bad, is there a ramp for a small hatchback",
     "We had to say goodbye to Bruno on Saturday, the vet came to the house. What do people do with the ashes?"),
    ("my sister Noor is a flight attendant so she's jetlagged 24/7, what helps?",
     "Noor handed in her wings lol. she's training to be a midwife, first birth next week. what do you give someone who starts that"),
]  # fmt: skip


def kinds(db: Db, user: str) -> list[str]:
    return [kind for (kind,) in table(db, "list_changes", user, columns="kind")]


@pytest.mark.parametrize(("before", "after"), CHANGED)
@pytest.mark.usefixtures("embedding_dsn")
def test_a_change_is_sure_by_words_and_meaning_together(db: Db, user: str, before: str, after: str, setting) -> None:
    talk(db, user, before, after)
    assert kinds(db, user) == ["changed"]
    assert "(later changed)" in str(call(db, "compile_context", user, "asks", before))

    setting("embedder_socket", "")
    talk(db, f"{user} without", before, after)
    assert kinds(db, f"{user} without") == ["doubted"]


@pytest.mark.usefixtures("embedding_dsn")
def test_what_is_alike_and_true_beside_it_changes_nothing(db: Db, user: str) -> None:
    talk(db, user, "The budget for the kitchen is 6,000 euros", "The budget for the shed is 1,500 euros")
    assert kinds(db, user) == ["doubted"]
