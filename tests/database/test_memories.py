"""Memories: duplicates, slots, authority, sources and near duplicates when one is remembered, and what forget takes away."""

from typing import Any

import pytest
from calls import BASE, Db, active, call, history, near, persist, raises, recalled, remember, remembered, table

pytestmark = pytest.mark.usefixtures("little_vectors")
FISH, TROUT = "enjoys fishing", "enjoys fishing for trout from a small boat"


def state(db: Db, user: str, memory: str, columns: str = "state") -> Any:
    """Columns of a memory as list_memories has them; the value of one."""
    rows = table(db, "list_memories", user, states=[], columns=f"memory_id::text, {columns}")
    (row,) = [row[1:] for row in rows if row[0] == memory]
    return row[0] if len(row) == 1 else row


def relations(db: Db, user: str, memory: str) -> set[tuple[str, str]]:
    columns = "relation, target_id::text, source_id::text"
    return {
        (kind, to) for kind, to, of in table(db, "memory_graph", user, memory, hops=1, columns=columns) if of == memory
    }


def sources(db: Db, user: str, memory: str) -> list[int]:
    row = call(db, "memory_get", user, [memory])
    return sorted(source["turn_index"] for source in row["sources"])


# Duplicates, slots and authority --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "same",
    [
        "  She\tplays \n THE   cello ",
        "She pl\u200bays the ce\u00adllo\ufeff",
        "Ｓｈｅ ｐｌａｙｓ ｔｈｅ ｃｅｌｌｏ",
        "She\u00a0plays\u2003the cello",
    ],
)
def test_a_text_in_disguise_is_a_duplicate(db: Db, user: str, same: str) -> None:
    first, again = remember(db, user, "She plays the cello"), remember(db, user, same)
    assert (first["outcome"], again["outcome"], again["memory_id"]) == ("stored", "duplicate", first["memory_id"])
    assert active(db, user) == ["She plays the cello"]


def test_other_texts_and_projects_are_no_duplicates(db: Db, user: str) -> None:
    told = [remember(db, user, "She plays the cello"), remember(db, user, "She plays the cell")]
    told += [
        remember(db, user, "She plays the cello", project="band"),
        remember(db, user + "-2", "She plays the cello"),
    ]
    assert {answer["outcome"] for answer in told} == {"stored"}


def test_a_restatement_lends_its_authority(db: Db, user: str) -> None:
    columns = "trust > 0.9, tier, actor, expires_at is null"
    guess = remembered(db, user, "She plays the cello", actor="agent")
    assert state(db, user, guess, columns) == (False, 1, "agent", False)
    assert remembered(db, user, "she plays the cello", actor="person") == guess
    assert state(db, user, guess, columns) == (True, 3, "person", True)


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


@pytest.mark.parametrize(
    ("named", "expected"),
    [
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
    ],
)
def test_authority_follows_who_speaks(db: Db, user: str, named: dict[str, Any], expected: tuple[Any, ...]) -> None:
    persist(db, user, "s", "I fish", "Good.")
    persist(db, user, "s", "a robot in the user's role", actor="agent")
    memory = remembered(db, user, "Fishes on the lake", **named)
    assert state(db, user, memory, "provenance, scope, tier, trust") == (*expected[:3], pytest.approx(expected[3]))


def test_local_memories_stay_in_their_session(db: Db, user: str) -> None:
    for session in ("s", "other"):
        persist(db, user, session, "hello", "hi")
    text = "Debugging the flux capacitor"
    remember(db, user, text, session="s")
    found = [text in recalled(db, user, "flux capacitor", session=session) for session in ("s", None, "other")]
    assert found == [True, False, False]


def test_sources_are_recorded(db: Db, user: str) -> None:
    persist(db, user, "s", "I fish on Sundays", "Nice.", "And I row", "Good.")
    first = remembered(db, user, "Fishes on Sundays", session="s", source_turns=[0, 2, 0])
    assert remembered(db, user, "fishes on sundays", session="s", source_turns=[3]) == first
    assert sources(db, user, first) == [0, 2, 3]


# Near duplicates ------------------------------------------------------------------------------------------------------


def test_near_duplicates_merge_above_the_threshold(db: Db, user: str) -> None:
    first = remembered(db, user, "likes fishing on the lake", embedding=BASE)
    below = remember(db, user, "likes fishing", embedding=near(0.91))
    assert (below["outcome"], state(db, user, first)) == ("stored", "active")
    above = remember(db, user, "likes the lake", embedding=[0.95, 0.0, near(0.95)[1], 0.0])
    assert (above["outcome"], above["memory_id"]) == ("duplicate", first)
    assert above["similarity"] == pytest.approx(0.95, abs=0.002)


def merge_two(db: Db, user: str) -> tuple[str, str]:
    """(dropped, what goes on), of which the first has a source."""
    persist(db, user, "s", "I fish", "Good.")
    short = remembered(db, user, FISH, session="s", actor="person", source_turns=[0], embedding=BASE)
    long = remember(db, user, TROUT, embedding=near(0.97))
    assert (long["outcome"], long["superseded"]) == ("stored", [short])
    return short, long["memory_id"]


def test_the_more_specific_text_inherits_the_sources(db: Db, user: str) -> None:
    short, long = merge_two(db, user)
    assert state(db, user, short, "state, superseded_by::text") == ("superseded", long)
    assert sources(db, user, long) == [0]


def test_authority_beats_length_among_duplicates(db: Db, user: str) -> None:
    said = remembered(db, user, FISH, embedding=BASE)
    guess = remember(db, user, TROUT, actor="agent", embedding=near(0.97))
    assert (guess["outcome"], guess["memory_id"]) == ("duplicate", said)


# Alike in all models, and different. Where both can't be true, the newer of equals prevails and the judge is named.
DIFFERENT = [
    ("I am allergic to nuts", "I am not allergic to nuts", "polarity"),
    ("I can eat nuts", "I can't eat nuts", "polarity"),
    ("The wedding is on 3 March", "The wedding is on 4 March", "value"),
    ("The wedding is on 3 March", "The wedding is on 3 May", "value"),
    ("rent is 1,200 a month", "rent is 1,300 a month", "value"),
    ("my sister is called Anna", "my sister is called Berta", None),
    ("Prefers running to swimming", "Prefers swimming to running", None),
    ("The ferry goes from Turku to Kiel", "The ferry goes from Kiel to Turku", None),
    ("Sara lent Ole money", "Ole lent Sara money", None),
    ("My uncle is a baker", "My aunt is a baker", None),
    ("Eats before training", "Eats after training", None),
    ("Rent increased to 900", "Rent decreased to 900", None),
    ("The backup is hourly", "The backup is nightly", None),
    ("Wants the slides in Polish", "Wants the slides in Czech", None),
    ("Weighs 80 kg", "Weighs 80 lb", None),
    ("y = p / q", "y = q / p", None),
    ("y = p + q", "y = p - q", None),
    ("Writes C", "Writes C++", None),
    ("Uses vim, not emacs", "Uses emacs, not vim", None),
    ("Goes to the gym", "Rarely goes to the gym", None),
    ("Lives in the country", "Wants to live in the country", None),
    ("The cap is $40", "The cap is €40", None),
    ("Mein Bruder ist Arzt", "Meine Schwester ist Ärztin", None),
    ("Der Hund jagt den Kater", "Den Hund jagt der Kater", None),
    ("Prefiere té a café", "Prefiere café a té", None),
    ("Préfère le train à la voiture", "Préfère la voiture au train", None),
    ("我喜欢茶胜过咖啡", "我喜欢咖啡胜过茶", None),
    ("我弟弟是医生", "我妹妹是医生", None),
]


@pytest.mark.parametrize(("one", "other", "judge"), DIFFERENT)
def test_different_statements_are_never_merged(db: Db, user: str, one: str, other: str, judge: str | None) -> None:
    first = remembered(db, user, one, embedding=BASE)
    second = remember(db, user, other, embedding=near(0.995))
    assert (second["outcome"], second["superseded"]) == ("stored", [first] if judge else [])
    assert state(db, user, first, "state, reason") == (("superseded", judge) if judge else ("active", None))
    assert state(db, user, second["memory_id"]) == "active"


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
def test_the_same_statement_with_more_is_merged(db: Db, user: str, one: str, other: str) -> None:
    first = remembered(db, user, one, embedding=BASE)
    assert remember(db, user, other, embedding=near(0.995))["superseded"] == [first]


def test_a_merge_can_be_undone(db: Db, user: str) -> None:
    short, long = merge_two(db, user)
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


# Forget ---------------------------------------------------------------------------------------------------------------


def test_forget_takes_the_near_duplicates_with_it(db: Db, user: str) -> None:
    short, long = merge_two(db, user)
    assert call(db, "forget", user, long)["merged"] == [short]
    assert remember(db, user, FISH)["outcome"] == "refused_tombstone"


def test_forget_takes_turns_and_summaries_out(db: Db, user: str) -> None:
    """History keeps the turns. Other turns stay in recall."""
    padding = [f"The weather is fine on day {n}. " + "It is calm. " * 40 for n in range(12)]
    persist(db, user, "old", "My zeppelin is moored in Ulm", "Noted, a zeppelin.", *padding)
    persist(db, user, "new", "hello", "hi")
    here: dict[str, Any] = {"session": "old", "actor": "person", "source_turns": [0, 1]}
    memory = remembered(db, user, "Owns a zeppelin moored in Ulm", **here)
    assert call(db, "compact_session", user, "old", 300)["rows"] > 0
    query = "Where is the zeppelin moored?"

    def show() -> str:
        return str(call(db, "compile_context", user, "new", query)).replace(query, "") + str(recalled(db, user, query))

    assert "zeppelin" in show()
    done = call(db, "forget", user, memory)
    assert (done["state"], done["excluded_turns"], done["invalidated_summaries"] > 0) == ("forgotten", 2, True)
    assert "zeppelin" not in show() and "weather" in str(recalled(db, user, "fine weather"))
    assert len(history(db, user, "old")) == 14
    again = call(db, "forget", user, memory)
    assert (again["state"], again["excluded_turns"], again["invalidated_summaries"]) == ("forgotten", 0, 0)


def test_an_unknown_memory_is_an_error(db: Db, user: str) -> None:
    foreign = remembered(db, user + "-2", "Not yours")
    remember(db, user, "Mine")
    with raises("PM004"):
        call(db, "forget", user, foreign)
    assert active(db, user + "-2") == ["Not yours"]
