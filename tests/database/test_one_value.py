"""Facts about others that have one value at a time: a later one supersedes the earlier in the call, and nothing else."""

import pytest
from calls import Db, call, remember, remembered
from internals import memory_row

REPLACED = [
    ("The chairperson of the club is Ada Voss.", "The chairperson of the club is Ben Roth."),
    ("Lives in Bergen.", "Lives in Oslo."),
    ("Ada Voss is married to Ben Roth.", "Ada Voss is married to Tim Low."),
    ("Deploys go out on Tuesdays.", "Deploys go out on Thursdays."),
    ("Our team's standup is at 9:30.", "Our team's standup is at 10."),
]
BOTH = [
    ("Ada Voss's child is Ida.", "Ada Voss's child is Tom."),
    ("Ada Voss speaks the language of Norway.", "Ada Voss speaks the language of Peru."),
    ("The capital of Italy is beautiful.", "The capital of Italy is Rome."),
    ("The club was founded in 1976.", "The club was founded in Ulm."),
    ("The front door code is 1234.", "The back door code is 4321."),
    ("Ada Voss used to live in Ulm.", "Ada Voss lives in Bonn."),
    ("The pool opens on Saturdays.", "The pool opens on Sundays."),
]


@pytest.mark.parametrize(("earlier", "later"), REPLACED)
def test_a_new_value_supersedes_the_old(db: Db, user: str, earlier: str, later: str) -> None:
    first, other = remembered(db, user, earlier), remembered(db, user, "The garden of the club is in Ulm.")
    second = remember(db, user, later)
    assert second["superseded"] == [first] and memory_row(db, other) == ("active",)
    asked = str(call(db, "compile_context", user, "s", f"What about {later[:-1]}?"))
    assert later in asked and earlier not in asked
    # The same value said again is the same memory.
    assert remember(db, user, later)["outcome"] == "duplicate"


@pytest.mark.parametrize(("earlier", "later"), BOTH)
def test_what_can_stand_beside_it_stays(db: Db, user: str, earlier: str, later: str) -> None:
    first = remembered(db, user, earlier)
    assert remember(db, user, later)["superseded"] == [] and memory_row(db, first) == ("active",)
