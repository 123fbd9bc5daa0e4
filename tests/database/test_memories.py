"""Memories: slots, authority and near duplicates when one is remembered. test_forgetting.py has the same text said again."""

from typing import Any

import pytest
from calls import BASE, Db, call, near, persist, recalled, remember, remembered, table

pytestmark = pytest.mark.usefixtures("little_vectors")
FISH, TROUT = "enjoys fishing", "enjoys fishing for trout from a small boat"


def state(db: Db, user: str, memory: str, columns: str = "state") -> Any:
    """Columns of a memory as list_memories has them; the value of one."""
    rows = table(db, "list_memories", user, states=[], columns=f"memory_id::text, {columns}")
    (row,) = [row[1:] for row in rows if row[0] == memory]
    return row[0] if len(row) == 1 else row


def relations(db: Db, user: str, memory: str) -> set[tuple[str, str]]:
    columns = "relation, target_id::text, source_id::text"
    found = table(db, "memory_graph", user, memory, hops=1, columns=columns)
    return {(kind, to) for kind, to, of in found if of == memory}


def sources(db: Db, user: str, memory: str) -> list[int]:
    row = call(db, "memory_get", user, [memory])
    return sorted(source["turn_index"] for source in row["sources"])


def home(db: Db, user: str, city: str, **named: Any) -> dict[str, Any]:
    return remember(db, user, f"Lives in {city}", slot="Home  City", slot_value=city, **named)


def test_a_slot_keeps_the_newer_value_of_equals(db: Db, user: str) -> None:
    old = home(db, user, "Oslo")["memory_id"]
    new = home(db, user, "Bergen")
    assert (new["superseded"], new["contradicts"]) == ([old], [])
    assert state(db, user, old, "state, superseded_by::text") == ("superseded", new["memory_id"])
    assert relations(db, user, new["memory_id"]) == {("supersedes", old)}
    assert recalled(db, user, "Oslo Bergen") == ["Lives in Bergen"]
    assert home(db, user, "Ulm", provenance="correction")["superseded"] == [new["memory_id"]]
    assert home(db, user, "Bonn", project="other")["superseded"] == []  # each project has its own


def test_a_lower_authority_only_contradicts(db: Db, user: str) -> None:
    said = home(db, user, "Oslo")["memory_id"]
    guess = home(db, user, "Bergen", actor="agent")
    assert (guess["superseded"], guess["contradicts"]) == ([], [said])
    assert state(db, user, said) == state(db, user, guess["memory_id"]) == "active"
    assert relations(db, user, guess["memory_id"]) == {("contradicts", said)}
    assert set(home(db, user, "Tromsø")["superseded"]) == {said, guess["memory_id"]}  # the person outranks both


INFERRED = ("system_inferred", "local", 1, 0.6)


def test_authority_follows_who_speaks(db: Db, user: str) -> None:
    wanted: list[tuple[dict[str, Any], tuple[Any, ...]]] = [
        ({}, ("user_stated", "global", 3, 1.0)),
        ({"type": "preference"}, ("preference", "global", 4, 0.85)),
        ({"type": "instruction"}, ("instruction", "global", 4, 0.9)),
        ({"session": "s", "actor": "person"}, ("user_stated", "global", 3, 1.0)),
        ({"actor": "agent"}, INFERRED),
        ({"session": "s"}, INFERRED),
        ({"session": "s", "type": "preference"}, INFERRED),
        ({"session": "s", "actor": "tool"}, ("tool_output", "local", 1, 0.7)),
        ({"session": "s", "provenance": "user_stated"}, INFERRED),
        ({"session": "s", "provenance": "correction", "source_turns": [1]}, INFERRED),
        ({"session": "s", "provenance": "user_stated", "source_turns": [0, 1]}, INFERRED),
        ({"session": "s", "provenance": "user_stated", "source_turns": [2]}, INFERRED),
        ({"session": "s", "provenance": "user_stated", "source_turns": [0]}, ("user_stated", "global", 2, 0.8)),
        ({"session": "s", "actor": "tool", "provenance": "user_stated"}, ("tool_output", "local", 1, 0.7)),
    ]
    for number, (named, (*whose, trust)) in enumerate(wanted):
        who = f"{user}-{number}"
        persist(db, who, "s", "I fish", "Good.")
        persist(db, who, "s", "a robot in the user's role", actor="agent")
        memory = remembered(db, who, "Fishes on the lake", **named)
        got = state(db, who, memory, "provenance, scope, tier, trust")
        assert got == (*whose, pytest.approx(trust)), named


def test_near_duplicates_merge_above_the_threshold(db: Db, user: str) -> None:
    first = remembered(db, user, "likes fishing on the lake", embedding=BASE)
    below = remember(db, user, "likes fishing", embedding=near(0.91))
    assert (below["outcome"], state(db, user, first)) == ("stored", "active")
    above = remember(db, user, "likes the lake", embedding=[0.95, 0.0, near(0.95)[1], 0.0])
    assert (above["outcome"], above["memory_id"]) == ("duplicate", first)
    assert above["similarity"] == pytest.approx(0.95, abs=0.002)


def test_authority_beats_length_among_duplicates(db: Db, user: str) -> None:
    said = remembered(db, user, FISH, embedding=BASE)
    guess = remember(db, user, TROUT, actor="agent", embedding=near(0.97))
    assert (guess["outcome"], guess["memory_id"]) == ("duplicate", said)


def test_a_merge_can_be_undone(db: Db, user: str) -> None:
    persist(db, user, "s", "I fish", "Good.")
    short = remembered(db, user, FISH, session="s", actor="person", source_turns=[0], embedding=BASE)
    merged = remember(db, user, TROUT, embedding=near(0.97))
    assert (merged["outcome"], merged["superseded"]) == ("stored", [short])
    long = merged["memory_id"]
    columns = "memory_id::text, other_id::text, judge, verdict, decision, winner_id::text"
    judged = table(db, "list_judgements", user, columns=columns)
    assert judged == [(long, short, "rules", "duplicate", "superseded", long)]
    assert call(db, "undo_merge", user, short) == {"memory_id": short, "merged_into": long, "restored": True}
    assert (state(db, user, short, "state, superseded_by"), state(db, user, long)) == (("active", None), "active")
    assert sources(db, user, long) == []
    judged = table(db, "list_judgements", user, columns="judge, verdict, reason")
    assert judged[0] == ("person", "compatible", "merge undone")
    assert call(db, "undo_merge", user, short)["restored"] is False
    # They stay apart, and the judgements are exported and erased.
    remember(db, user, FISH, embedding=BASE)
    db.execute("call memoir.run_job('consolidation')")
    assert state(db, user, short) == state(db, user, long) == "active"
    rows = [row["row"] for (row,) in table(db, "export_user", user) if row["kind"] == "memory_judgements"]
    assert [row["verdict"] for row in rows] == ["duplicate", "compatible"]
    assert call(db, "erase_user", user)["rows"]["memory_judgements"] == 2
