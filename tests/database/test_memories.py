"""remember and forget: duplicates, slots, authority, tombstones, sources, near duplicates."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from calls import BASE, call, memory_row, near, persist, raises, remember, remembered, table, use_vectors
from servers import connect


@pytest.fixture(scope="module")
def db(memoir_dsn: str) -> Iterator[psycopg.Connection]:
    """One connection for all, its caches warm; vectors of four dimensions, given by the test."""
    with connect(memoir_dsn) as db:
        use_vectors(db)
        yield db


def forget(db: psycopg.Connection, user: str, memory: str) -> dict[str, Any]:
    return db.execute("select memoir.forget(%s, %s)", [user, memory]).fetchone()[0]


def recalled_ids(db: psycopg.Connection, user: str, query: str, session: str | None = None) -> set[str]:
    return {
        str(i) for (i,) in db.execute("select id from memoir.recall(%s, %s, p_session => %s)", [user, query, session])
    }


def relations(db: psycopg.Connection, memory: str) -> set[tuple[str, str]]:
    rows = db.execute("select relation, target_id from _memoir.memory_relationships where source_id = %s", [memory])
    return {(relation, str(target)) for relation, target in rows}


def restatements(db: psycopg.Connection, memory: str) -> int:
    return db.execute("select restatements from _memoir.memory_stats where memory_id = %s", [memory]).fetchone()[0]


# Exact duplicates -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "same",
    [
        "she plays THE cello",
        "  She\tplays \n the   cello ",
        "She pl\u200bays the ce\u00adllo\ufeff",
        "Ｓｈｅ ｐｌａｙｓ ｔｈｅ ｃｅｌｌｏ",
        "She\u00a0plays\u2003the cello",
    ],
)
def test_the_same_text_in_disguise_is_a_duplicate(db: psycopg.Connection, user: str, same: str) -> None:
    first = remember(db, user, "She plays the cello")
    again = remember(db, user, same)
    assert (first["outcome"], again["outcome"], again["memory_id"]) == ("stored", "duplicate", first["memory_id"])
    assert restatements(db, first["memory_id"]) == 1
    assert memory_row(db, first["memory_id"], "content, state") == ("She plays the cello", "active")


def test_other_texts_users_and_projects_are_no_duplicates(db: psycopg.Connection, user: str) -> None:
    ids = {
        remember(db, user, "She plays the cello")["memory_id"],
        remember(db, user, "She plays the cell")["memory_id"],
        remember(db, user, "She plays the cello", project="band")["memory_id"],
        remember(db, user + "-2", "She plays the cello")["memory_id"],
    }
    assert len(ids) == 4


def test_a_restatement_lends_its_authority(db: psycopg.Connection, user: str) -> None:
    guess = remember(db, user, "She plays the cello", actor="agent")["memory_id"]
    before = memory_row(db, guess, "trust, tier, actor, expires_at is null")
    said = remember(db, user, "she plays the cello", actor="person")
    assert said["memory_id"] == guess
    assert before == (pytest.approx(0.6), 1, "agent", False)
    assert memory_row(db, guess, "trust, tier, actor, expires_at is null") == (1.0, 3, "person", True)


def test_an_idempotency_key_returns_the_first_result(db: psycopg.Connection, user: str) -> None:
    first = remember(db, user, "The spare key is under the pot", key="k1")
    assert remember(db, user, "The spare key is under the pot", key="k1") == first  # not "duplicate"
    assert restatements(db, first["memory_id"]) == 0
    with raises("PM006"):
        remember(db, user, "The spare key is elsewhere", key="k1")
    assert remember(db, user + "-2", "Another user's key", key="k1")["outcome"] == "stored"


# Slots and authority --------------------------------------------------------------------------------------------------


def test_a_newer_value_of_equal_authority_supersedes(db: psycopg.Connection, user: str) -> None:
    old = remember(db, user, "I live in Oslo", slot="home city", slot_value="Oslo")["memory_id"]
    new = remember(db, user, "I moved to Bergen", slot="Home  City", slot_value="Bergen")
    assert (new["superseded"], new["contradicts"]) == ([old], [])
    assert memory_row(db, old, "state, superseded_by::text") == ("superseded", new["memory_id"])
    assert relations(db, new["memory_id"]) == {("supersedes", old)}
    assert recalled_ids(db, user, "Oslo Bergen") == {new["memory_id"]}


def test_a_lower_authority_only_contradicts(db: psycopg.Connection, user: str) -> None:
    said = remember(db, user, "I live in Oslo", slot="home city", slot_value="Oslo")["memory_id"]
    guess = remember(db, user, "Probably lives in Bergen", slot="home city", slot_value="Bergen", actor="agent")
    assert (guess["superseded"], guess["contradicts"]) == ([], [said])
    assert memory_row(db, said) == memory_row(db, guess["memory_id"]) == ("active",)
    assert relations(db, guess["memory_id"]) == {("contradicts", said)}
    later = remember(db, user, "I live in Tromsø", slot="home city", slot_value="Tromsø")  # the person outranks both
    assert set(later["superseded"]) == {said, guess["memory_id"]}


def test_a_correction_ranks_with_statements(db: psycopg.Connection, user: str) -> None:
    said = remember(db, user, "I live in Oslo", slot="home city", slot_value="Oslo")["memory_id"]
    assert remember(db, user, "No, in Bergen", slot="home city", slot_value="Bergen", provenance="correction")[
        "superseded"
    ] == [said]


def test_a_slot_holds_one_value_per_project(db: psycopg.Connection, user: str) -> None:
    one = remember(db, user, "We build with make", slot="build tool", slot_value="make", project="one")["memory_id"]
    assert (
        remember(db, user, "We build with ninja", slot="build tool", slot_value="ninja", project="two")["superseded"]
        == []
    )
    assert memory_row(db, one) == ("active",)


# Whose word -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ({}, ("user_stated", "global", 3, 1.0)),
        ({"type": "preference"}, ("preference", "global", 4, 0.85)),
        ({"type": "instruction"}, ("instruction", "global", 4, 0.9)),
        ({"session": "s", "actor": "person"}, ("user_stated", "global", 3, 1.0)),
        ({"actor": "agent"}, ("system_inferred", "local", 1, 0.6)),
        ({"session": "s"}, ("system_inferred", "local", 1, 0.6)),
        ({"session": "s", "type": "preference"}, ("system_inferred", "local", 1, 0.6)),
        ({"session": "s", "actor": "tool"}, ("tool_output", "local", 1, 0.7)),
        ({"session": "s", "provenance": "user_stated"}, ("system_inferred", "local", 1, 0.6)),
        ({"session": "s", "provenance": "correction", "source_turns": [1]}, ("system_inferred", "local", 1, 0.6)),
        ({"session": "s", "provenance": "user_stated", "source_turns": [0, 1]}, ("system_inferred", "local", 1, 0.6)),
        ({"session": "s", "provenance": "user_stated", "source_turns": [2]}, ("system_inferred", "local", 1, 0.6)),
        ({"session": "s", "provenance": "user_stated", "source_turns": [0]}, ("user_stated", "global", 2, 0.8)),
        (
            {"session": "s", "actor": "tool", "provenance": "user_stated", "source_turns": [0]},
            ("tool_output", "local", 1, 0.7),
        ),
    ],
)
def test_provenance_scope_tier_and_trust_follow_who_speaks(
    db: psycopg.Connection, user: str, named: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    persist(db, user, "s", "I fish", "Good.")
    persist(db, user, "s", "a robot in the user's role", actor="agent")
    memory = remember(db, user, "Fishes on the lake", **named)["memory_id"]
    provenance, scope, tier, trust = memory_row(db, memory, "provenance, scope, tier, trust")
    assert (provenance, scope, tier, trust) == (*expected[:3], pytest.approx(expected[3]))


def test_local_memories_stay_in_their_session(db: psycopg.Connection, user: str) -> None:
    persist(db, user, "s", "hello", "hi")
    persist(db, user, "other", "hello", "hi")
    memory = remember(db, user, "Debugging the flux capacitor", session="s")["memory_id"]
    assert memory in recalled_ids(db, user, "flux capacitor", "s")
    assert memory not in recalled_ids(db, user, "flux capacitor") | recalled_ids(db, user, "flux capacitor", "other")


def test_sources_are_recorded(db: psycopg.Connection, user: str) -> None:
    persisted = persist(db, user, "s", "I fish on Sundays", "Nice.", "And I row", "Good.")
    first = remember(db, user, "Fishes on Sundays", session="s", source_turns=[0, 2, 0])["memory_id"]
    again = remember(db, user, "fishes on sundays", session="s", source_turns=[3])["memory_id"]
    rows = db.execute(
        "select source_id::text, turn_index from _memoir.memory_sources where item_id = %s order by turn_index", [first]
    ).fetchall()
    assert again == first
    assert rows == [(persisted["message_ids"][n], n) for n in (0, 2, 3)]
    for named in ({"session": "s", "source_turns": [4]}, {"source_turns": [0]}):
        with raises("PM014"):
            remember(db, user, "Rows", **named)


# Near duplicates ------------------------------------------------------------------------------------------------------


def test_near_duplicates_merge_above_the_threshold_only(db: psycopg.Connection, user: str) -> None:
    first = remember(db, user, "likes fishing on the lake", embedding=BASE)["memory_id"]
    below = remember(db, user, "likes fishing", embedding=near(0.91))
    assert (below["outcome"], memory_row(db, first)) == ("stored", ("active",))
    above = remember(db, user, "likes the lake", embedding=[0.95, 0.0, near(0.95)[1], 0.0])
    assert (above["outcome"], above["memory_id"]) == ("duplicate", first)
    assert above["similarity"] == pytest.approx(0.95, abs=0.002)
    assert db.execute(
        "select state, superseded_by::text from _memoir.memory_store where content = 'likes the lake' and user_id = "
        "(select user_id from _memoir.memory_store where memory_id = %s)",
        [first],
    ).fetchall() == [("superseded", first)]


def test_the_more_specific_text_wins_and_inherits_the_sources(db: psycopg.Connection, user: str) -> None:
    persist(db, user, "s", "I fish", "Good.")
    short = remember(db, user, "enjoys fishing", session="s", actor="person", source_turns=[0], embedding=BASE)[
        "memory_id"
    ]
    long = remember(db, user, "enjoys fishing for trout from a small boat", embedding=near(0.97))
    assert (long["outcome"], long["superseded"]) == ("stored", [short])
    assert memory_row(db, short, "state, superseded_by::text") == ("superseded", long["memory_id"])
    assert db.execute(
        "select turn_index from _memoir.memory_sources where item_id = %s", [long["memory_id"]]
    ).fetchall() == [(0,)]


def test_authority_beats_length_among_near_duplicates(db: psycopg.Connection, user: str) -> None:
    said = remember(db, user, "enjoys fishing", embedding=BASE)["memory_id"]
    guess = remember(db, user, "enjoys fishing for trout from a small boat", actor="agent", embedding=near(0.97))
    assert (guess["outcome"], guess["memory_id"]) == ("duplicate", said)


@pytest.mark.parametrize(
    ("one", "other", "judge"),
    [
        ("I am allergic to nuts", "I am not allergic to nuts", "polarity"),
        ("The wedding is on 3 March", "The wedding is on 4 March", "value"),
        ("The wedding is on 3 March", "The wedding is on 3 May", "value"),
        ("my sister is called Anna", "my sister is called Berta", None),
        ("I can eat nuts", "I can't eat nuts", "polarity"),
        ("rent is 1,200 a month", "rent is 1,300 a month", "value"),
    ],
)
def test_negation_numbers_dates_and_names_are_never_merged(
    db: psycopg.Connection, user: str, one: str, other: str, judge: str | None
) -> None:
    """The newer of equals prevails where the two can't both be true, else both stand."""
    first = remember(db, user, one, embedding=BASE)["memory_id"]
    second = remember(db, user, other, embedding=near(0.995))
    assert second["outcome"] == "stored" and second["superseded"] == ([first] if judge else [])
    assert (memory_row(db, first, "state, state_reason"), memory_row(db, second["memory_id"])) == (
        ("superseded", judge) if judge else ("active", None),
        ("active",),
    )


# Which say different things, and are alike in all models.
DIFFERENT = [
    ("Prefers running to swimming", "Prefers swimming to running"),
    ("The ferry goes from Turku to Kiel", "The ferry goes from Kiel to Turku"),
    ("Sara lent Ole money", "Ole lent Sara money"),
    ("My uncle is a baker", "My aunt is a baker"),
    ("Eats before training", "Eats after training"),
    ("Rent increased to 900", "Rent decreased to 900"),
    ("The backup is hourly", "The backup is nightly"),
    ("Wants the slides in Polish", "Wants the slides in Czech"),
    ("Weighs 80 kg", "Weighs 80 lb"),
    ("y = p / q", "y = q / p"),
    ("y = p + q", "y = p - q"),
    ("d = a - c", "d = c - a"),
    ("Writes C", "Writes C++"),
    ("Uses vim, not emacs", "Uses emacs, not vim"),
    ("Goes to the gym", "Rarely goes to the gym"),
    ("Lives in the country", "Wants to live in the country"),
    ("The cap is $40", "The cap is €40"),
    ("Mein Bruder ist Arzt", "Meine Schwester ist Ärztin"),
    ("Der Hund jagt den Kater", "Den Hund jagt der Kater"),
    ("Prefiere té a café", "Prefiere café a té"),
    ("Préfère le train à la voiture", "Préfère la voiture au train"),
    ("我喜欢茶胜过咖啡", "我喜欢咖啡胜过茶"),
    ("我弟弟是医生", "我妹妹是医生"),
]


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_what_is_swapped_replaced_or_turned_is_never_merged(
    db: psycopg.Connection, user: str, one: str, other: str
) -> None:
    first = remember(db, user, one, embedding=BASE)
    second = remember(db, user, other, embedding=near(0.995))
    assert (second["outcome"], second["superseded"], memory_row(db, first["memory_id"])) == ("stored", [], ("active",))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("likes dogs", "likes the dog of the neighbour"),
        ("Has two cats.", "Has two cats, grey with white."),
        ("doesn't swim", "does not swim well"),
        ("mag gern schwimmen", "mag gern am see schwimmen"),
        ("喜欢喝茶", "喜欢喝绿茶"),
    ],
)
def test_what_says_the_same_or_more_in_the_same_order_is_merged(
    db: psycopg.Connection, user: str, one: str, other: str
) -> None:
    first = remembered(db, user, one, embedding=BASE)
    assert remember(db, user, other, embedding=near(0.995))["superseded"] == [first]


def merged(db: psycopg.Connection, user: str) -> tuple[str, str]:
    """(dropped, what goes on), of which the first has a source."""
    persist(db, user, "s", "I fish", "Good.")
    short = remembered(db, user, "enjoys fishing", session="s", actor="person", source_turns=[0], embedding=BASE)
    long = remembered(db, user, "enjoys fishing for trout from a small boat", embedding=near(0.97))
    assert memory_row(db, short) == ("superseded",)
    return short, long


def test_a_merge_is_a_judgement_that_can_be_undone(db: psycopg.Connection, user: str) -> None:
    short, long = merged(db, user)
    columns = "memory_id::text, other_id::text, judge, verdict, similarity, decision, winner_id::text"
    judged = table(db, "list_judgements", user, columns=columns)
    assert [row[:4] + row[5:] for row in judged] == [(long, short, "rules", "duplicate", "superseded", long)]
    assert judged[0][4] == pytest.approx(0.97, abs=0.002)

    assert call(db, "undo_merge", user, short) == {"memory_id": short, "merged_into": long, "restored": True}
    assert (memory_row(db, short, "state, superseded_by"), memory_row(db, long)) == (("active", None), ("active",))
    assert db.execute("select count(*) from _memoir.memory_sources where item_id = %s", [long]).fetchone() == (0,)
    assert db.execute("select restatements from _memoir.memory_stats where memory_id = %s", [long]).fetchone() == (0,)
    assert table(db, "list_judgements", user, columns="judge, verdict, reason")[0] == (
        "person",
        "compatible",
        "merge undone",
    )
    assert call(db, "undo_merge", user, short)["restored"] is False
    # They stay apart.
    user_id = db.execute("select user_id from _memoir.memory_store where memory_id = %s", [short]).fetchone()[0]
    with db.transaction():
        db.execute("set local search_path = memoir, memoir_extensions, public")
        assert db.execute(
            "select _memoir.reconcile_memory(%s, %s, 'test') ->> 'superseded'", [user_id, short]
        ).fetchone() == ("[]",)
    assert (memory_row(db, short), memory_row(db, long)) == (("active",), ("active",))


def test_undone_merge_is_erased_and_exported(db: psycopg.Connection, user: str) -> None:
    short, _ = merged(db, user)
    call(db, "undo_merge", user, short)
    verdicts = [
        row["row"]["verdict"] for (row,) in table(db, "export_user", user) if row["kind"] == "memory_judgements"
    ]
    assert verdicts == ["duplicate", "compatible"]
    user_id = db.execute("select user_id from _memoir.memory_store where memory_id = %s", [short]).fetchone()[0]
    call(db, "erase_user", user)
    assert db.execute("select count(*) from _memoir.memory_judgements where user_id = %s", [user_id]).fetchone() == (0,)


# Forget ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "disguise", ["my cat is called ivy", "My  cat is\u200b called Ivy ", "Ｍｙ ｃａｔ ｉｓ ｃａｌｌｅｄ Ｉｖｙ"]
)
def test_what_was_forgotten_does_not_come_back(db: psycopg.Connection, user: str, disguise: str) -> None:
    memory = remember(db, user, "My cat is called Ivy")["memory_id"]
    forget(db, user, memory)
    refused = remember(db, user, disguise)
    assert (refused["outcome"], refused["memory_id"]) == ("refused_tombstone", None)
    assert recalled_ids(db, user, "cat called Ivy") == set()
    assert remember(db, user, "My cat is called Iva")["outcome"] == "stored"
    assert remember(db, user + "-2", disguise)["outcome"] == "stored"


def test_forgotten_slot_value_stays_forgotten(db: psycopg.Connection, user: str) -> None:
    forget(db, user, remember(db, user, "My cat is called Ivy", slot="cat name", slot_value="Ivy")["memory_id"])
    assert (
        remember(db, user, "Ivy is what the cat answers to", slot="Cat Name", slot_value=" ivy ")["outcome"]
        == "refused_tombstone"
    )
    assert remember(db, user, "Now it is Fern", slot="cat name", slot_value="Fern")["outcome"] == "stored"


def test_forget_takes_the_near_duplicates_merged_with_it(db: psycopg.Connection, user: str) -> None:
    short = remember(db, user, "enjoys fishing", embedding=BASE)["memory_id"]
    long = remember(db, user, "enjoys fishing for trout", embedding=near(0.97))["memory_id"]
    assert forget(db, user, long)["merged"] == [short]
    assert remember(db, user, "enjoys fishing")["outcome"] == "refused_tombstone"


def test_forget_takes_memory_turns_and_summaries_out(db: psycopg.Connection, user: str) -> None:
    turns = persist(
        db, user, "old", "My zeppelin is moored in Ulm", "Noted, a zeppelin.", "The weather is fine", "It is."
    )
    persist(db, user, "new", "hello", "hi")
    memory = remember(db, user, "Owns a zeppelin moored in Ulm", session="old", actor="person", source_turns=[0, 1])[
        "memory_id"
    ]
    keys = db.execute(
        "select user_id, session_id from _memoir.sessions where external_id = 'old' and user_id = "
        "(select user_id from _memoir.memory_store where memory_id = %s)",
        [memory],
    ).fetchone()
    for first, last in ((0, 1), (2, 3)):
        db.execute(
            "insert into _memoir.compactions (user_id, session_id, compaction_id, from_turn, to_turn, summary_text, made_by, recorded_at) "
            "values (%s, %s, gen_random_uuid(), %s, %s, 'A summary', 'test', now())",
            [*keys, first, last],
        )
    db.execute(
        "update _memoir.sessions set summary_text = 'Zeppelin talk', summary_through = 2 where session_id = %s",
        [keys[1]],
    )

    def compiled() -> str:
        value = db.execute(
            "select memoir.compile_context(%s, 'new', 'Where is the zeppelin moored?')", [user]
        ).fetchone()[0]
        return json.dumps(value).replace("Where is the zeppelin moored?", "")

    gone = {memory, *turns["message_ids"][:2]}
    assert gone <= recalled_ids(db, user, "zeppelin moored Ulm")
    assert "zeppelin" in compiled()
    done = forget(db, user, memory)
    assert (done["state"], done["excluded_turns"], done["invalidated_summaries"]) == ("forgotten", 2, 2)
    assert not gone & recalled_ids(db, user, "zeppelin moored Ulm weather")
    assert turns["message_ids"][2] in recalled_ids(db, user, "zeppelin weather")
    assert "zeppelin" not in compiled()
    assert db.execute(
        "select undone_at is not null from _memoir.compactions where session_id = %s order by from_turn", [keys[1]]
    ).fetchall() == [(True,), (False,)]
    assert db.execute("select summary_text from _memoir.sessions where session_id = %s", [keys[1]]).fetchone() == (
        None,
    )
    assert db.execute("select count(*) from memoir.history(%s, 'old')", [user]).fetchone() == (4,)

    again = forget(db, user, memory)  # idempotent
    assert (again["state"], again["excluded_turns"], again["invalidated_summaries"]) == ("forgotten", 0, 0)
    assert db.execute("select count(*) from _memoir.recall_exclusions where session_id = %s", [keys[1]]).fetchone() == (
        2,
    )
    assert db.execute(
        "select count(*) from _memoir.memory_states where memory_id = %s and state = 'forgotten'", [memory]
    ).fetchone() == (1,)


def test_an_unknown_memory_is_an_error(db: psycopg.Connection, user: str) -> None:
    foreign = remember(db, user + "-2", "Not yours")["memory_id"]
    remember(db, user, "Mine")
    for memory in (str(uuid.uuid4()), foreign):
        with raises("PM004"):
            forget(db, user, memory)
    assert memory_row(db, foreign) == ("active",)
