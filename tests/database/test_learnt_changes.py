"""Changes that no rule knows: told by what was learnt of signals (sql/memory/change_signals.sql), once a rule says nothing."""

from __future__ import annotations

from typing import Any

import pytest
from calls import Db, call, persist, table

pytestmark = pytest.mark.usefixtures("little_vectors")

TOLD = [
    ("Milo is in size 27 shoes, do Superfit run small?", "measured Milo's feet for winter boots: size 29!! is that a normal jump"),
    ("i bank with rabobank, how do i get my transactions out as csv", "closed the rabobank account on friday, my salary goes to Triodos now"),
    ("Soraya's turning 9, loves insects", "my sister just laughed at me on the phone, Soraya's turning 10"),
    ("my reading glasses are plus 1.5 and i keep leaving them on the ferry", "the optician says i need plus 2.25 for my reading glasses"),
]

KEPT = [
    (["The exam for algorithms is on 23 January"], "The exam for databases is on 30 January"),
    (["I visited town 12 yesterday."], "I visited town 13 yesterday."),
    (["We went to the zoo with 4 kids on Sunday"], "We went to the farm with 6 kids on Saturday"),
    (["I play the tuba in the town band"], "the band plays on the square on 3 May"),
    (["Please answer in three sentences at most"], "The fair is on 3 May, write three lines for the poster"),
    (["My brother Ole takes 20 mg of it"], "My neighbour takes 40 mg of it, is that a lot?"),
    (["The kiln is fired on Mondays", "Teo packs the cups on Tuesdays", "The fair wants 40 cups"],
     "All cups for the fair are packed by Teo, he drives there with the van"),
    (["I can't wait to see your pottery"], "I'm always here for you, Mel! We had a blast last year at the Pride fest"),
]  # fmt: skip


def told(db: Db, user: str, *messages: str) -> None:
    """Each in a session of its own, answered and extracted."""
    for n, text in enumerate(messages):
        persist(db, user, f"s{n}", text, "I see.")
        call(db, "extract_session", user, f"s{n}")


def changes(db: Db, user: str) -> list[Any]:
    """But for doubts, which change nothing."""
    return [change for change, kind in table(db, "list_changes", user, columns="change_id, kind") if kind != "doubted"]


@pytest.mark.parametrize(("before", "after"), TOLD)
def test_what_is_untrue_since_is_marked(db: Db, user: str, before: str, after: str) -> None:
    told(db, user, before, after)
    ((change, kind, turns),) = table(db, "list_changes", user, columns="change_id, kind, turns")
    assert kind == "changed"
    assert [turn["session"] for turn in turns] == ["s0"]
    shown = str(call(db, "compile_context", user, "asks", before))
    assert "(later changed)" in shown and after[:30] in shown
    assert call(db, "undo_change", user, str(change))
    assert "(later changed)" not in str(call(db, "compile_context", user, "asks again", before))


@pytest.mark.parametrize(("before", "after"), KEPT)
def test_what_stays_true_is_not(db: Db, user: str, before: list[str], after: str) -> None:
    told(db, user, *before, after)
    assert changes(db, user) == []


def test_trees_ask_for_signals_that_there_are(db: Db) -> None:
    rows = db.execute(
        """
        with u as (select array[(null, null, null, null, null, 'user', 1, 9, 'My cat is 3', 'My cat is 3', false)::_memoir.said_unit] as units)
        select cardinality(g.signals), (select max(greatest(t.a::int, t.b::int, t.c::int)) from _memoir.data_change_trees() t),
          (select bool_and(cardinality(string_to_array(t.leaves, ' ')) = 8) from _memoir.data_change_trees() t),
          array_position(g.signals, null)
        from u, lateral _memoir.change_signals('my cat is 4', array(select c from unnest(_memoir.said_clauses(array['my cat is 4'],
          array['english'])) c where c.clause_no > 0), u.units, array[false], 'english') g
        """
    ).fetchall()
    ((signals, most, whole, missing),) = rows
    assert most <= signals and whole and missing is None


def test_the_chance_is_that_of_the_trees(db: Db) -> None:
    """Counted here once more, from the table as it is shipped."""
    trees = db.execute("select a, x, b, y, c, z, leaves from _memoir.data_change_trees() order by nth").fetchall()
    rows = [[0.0] * 60, [1.0] * 60, [n / 7 for n in range(60)]]
    ((given,),) = db.execute(
        "select _memoir.change_chances(%s::jsonb)",
        ["[" + ",".join('"{' + ",".join(map(str, row)) + '}"' for row in rows) + "]"],
    ).fetchall()
    for row, chance in zip(rows, given, strict=True):
        total = 0.0
        for a, x, b, y, c, z, leaves in trees:
            leaf = (row[int(a) - 1] > float(x)) + 2 * (row[int(b) - 1] > float(y)) + 4 * (row[int(c) - 1] > float(z))
            total += float(leaves.split()[leaf])
        assert chance == pytest.approx(1 / (1 + 2.718281828459045**-total), abs=1e-4)
