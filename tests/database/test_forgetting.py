"""The hard cases of remember and forget: disguises, restatements, look-alikes that differ, and all the ways by which the forgotten could return."""

from collections.abc import Callable
from typing import Any

import pytest
from calls import Db, call, export_rows, persist, raises, recalled, remember, remembered, table
from cases import read_cases
from internals import memory_row

pytestmark = pytest.mark.usefixtures("little_vectors")

PERSON, MODEL = "I moved to Ulm in March.", "Noted, Ulm it is."
NEAR = [1.0, 0.1, 0.0, 0.0]
CLOSE = [1.0, 0.15, 0.01, 0.0]  # cosine to NEAR above .99


def claim(db: Db, text: str, model: str) -> Callable[[list[float]], Any]:
    """Claims a text to be embedded; what stores its vector."""
    claims = table(db, "claim_embeddings", 10000, model, columns="user_id, item_no, text")
    users, items, _ = zip(*[claimed for claimed in claims if claimed[2] == text])
    stored = "select memoir.store_embeddings(%s, %s, %s::real[], %s)"
    return lambda vector: db.execute(stored, [[*users], [*items], vector * len(users), model])


def source_turns(db: Db, user: str, memory: str) -> list[tuple[str, int]]:
    """Session and turn of each source."""
    rows = [row for row in export_rows(db, user, "memory_sources") if row["item_id"] == memory]
    return sorted((row["session_id"]["session"], row["turn_index"]) for row in rows)


# Exact duplicates -----------------------------------------------------------------------------------------------------

TEA = "Prefers tea over coffee."
SAME = [case["other"] for case in read_cases("alike") if case["is_same"] == "text"]


def test_text_in_disguise_is_a_duplicate(db: Db, user: str) -> None:
    first = remembered(db, user, TEA)
    answer = {"memory_id": first, "outcome": "duplicate", "superseded": [], "contradicts": []}
    for text in SAME:
        assert remember(db, user, text) == answer, ascii(text)
    assert recalled(db, user, "tea") == [TEA]
    # Composed and decomposed letters too; other letters, other words, other projects and other users are others.
    assert remembered(db, user, "Cafe\u0301 Mu\u0308ller") == remembered(db, user, "café müller")
    for text, named in (("Prefers tee over coffee.", {}), (TEA, {"project": "kiln"})):
        assert remember(db, user, text, **named)["outcome"] == "stored"
    assert remember(db, user + "-2", TEA)["outcome"] == "stored"


def test_restating_raises_authority_and_never_lowers_it(db: Db, user: str, clock: Callable[[str], None]) -> None:
    clock("2026-01-01T00:00:00Z")
    memory = remembered(db, user, "Allergic to peanuts.", actor="agent")
    columns = "provenance, actor, tier, trust, validated_at is not null"
    assert memory_row(db, memory, columns) == ("system_inferred", "agent", 1, pytest.approx(0.6), False)
    clock("2026-01-01T10:00:00Z")
    sure = ("user_stated", "person", 3, 1.0, True)
    assert remembered(db, user, "allergic to peanuts.") == memory and memory_row(db, memory, columns) == sure
    assert remembered(db, user, "ALLERGIC to peanuts.", actor="tool", confidence="0.1") == memory
    assert memory_row(db, memory, columns) == sure and memory_row(db, memory, "expires_at") == (None,)


def test_expired_is_said_anew(db: Db, user: str, clock: Callable[[str], None]) -> None:
    """A memory past its end, not swept yet, must not swallow the same said again."""
    clock("2026-01-01T00:00:00Z")
    old = remembered(db, user, "Deploys on Fridays.", actor="agent")
    clock("2026-01-03T00:00:00Z")
    new = remember(db, user, "Deploys on Fridays.")
    assert new["outcome"] == "stored" and new["memory_id"] != old
    assert memory_row(db, old) == ("expired",) and recalled(db, user, "Fridays") == ["Deploys on Fridays."]


def test_ended_is_said_anew_for_another_time(db: Db, user: str) -> None:
    ended = [
        remember(db, user, "I live in Ulm.", actor="person", valid_to=f"{year}-05-01Z") for year in (2020, 2020, 2021)
    ]
    assert [done["outcome"] for done in ended] == ["stored", "duplicate", "stored"]


def test_secret_said_again_becomes_secret(db: Db, user: str) -> None:
    memory = remembered(db, user, "The gate code is 4711.", embedding=[1, 0, 0, 0])
    assert recalled(db, user, "gate code") == ["The gate code is 4711."]
    for named in ({"sensitivity": "secret"}, {}):
        assert remembered(db, user, "the gate code is 4711.", **named) == memory
        assert memory_row(db, memory, "sensitivity, embeddable") == ("secret", False)
    assert recalled(db, user, "gate code", query_embedding=[1, 0, 0, 0]) == []


# Where a memory enters ------------------------------------------------------------------------------------------------


def test_inferred_memories_end_after_their_session(db: Db, user: str, clock: Callable[[str], None]) -> None:
    def hours(*memories: str) -> list[float | None]:
        return [memory_row(db, m, "extract(epoch from expires_at - recorded_at)::float8 / 3600")[0] for m in memories]

    clock("2026-03-01T00:00:00Z")
    persist(db, user, "s", PERSON, MODEL)
    guess = remembered(db, user, "Seems to like Ulm.", session="s")
    said = {"session": "s", "provenance": "user_stated", "source_turns": [0]}
    reported = remembered(db, user, "Moved to Ulm in March.", **said)
    outside = remembered(db, user, "May like fish.", actor="agent")
    assert hours(guess, reported, outside) == [None, 90 * 24, 24]
    call(db, "close_session", user, "s")
    late = remembered(db, user, "Likes the minster.", session="s")
    assert hours(guess, late, reported) == [24, 24, 90 * 24]
    of = {"kinds": ["memory"], "session": "s"}
    assert sorted(recalled(db, user, "Ulm minster", **of)) == ["Likes the minster.", "Seems to like Ulm."]
    persist(db, user, "other", "Hello.", "Hi.")
    assert recalled(db, user, "Ulm minster", kinds=["memory"], session="other") == []
    clock("2026-03-02T00:00:01Z")
    assert recalled(db, user, "Ulm minster", **of) == []
    assert recalled(db, user, "Ulm minster", kinds=["memory"]) == ["Moved to Ulm in March."]


def test_sources_are_recorded_where_the_turns_are(db: Db, user: str) -> None:
    persist(db, user, "a", PERSON, MODEL)
    call(db, "branch_session", user, "a", "b")
    persist(db, user, "b", "And I like it.", MODEL)
    said = {"session": "b", "provenance": "user_stated"}
    memory = remembered(db, user, "Likes Ulm.", source_turns=[0, 2, 2], **said)
    assert remembered(db, user, "likes ulm.", source_turns=[1], **said) != memory  # turn 1 is the model's: local
    assert source_turns(db, user, memory) == [("a", 0), ("b", 2)]
    # A duplicate adds its sources to the memory that is there.
    remember(db, user, "Likes Ulm.", session="a", actor="person", source_turns=[1])
    assert source_turns(db, user, memory) == [("a", 0), ("a", 1), ("b", 2)]


# Near duplicates ------------------------------------------------------------------------------------------------------


def test_fixed_points_keep_similar_texts_apart(db: Db, user: str) -> None:
    """cases/alike.jsonl has texts whose vectors are alike. Where both can't be true, the newer prevails, and the judge is named."""
    for number, case in enumerate(case for case in read_cases("alike") if case["is_same"] != "text"):
        who, is_same = f"{user}-{number}", case["is_same"]
        short, long = sorted((case["one"], case["other"]), key=len)
        first = remembered(db, who, long, embedding=NEAR)
        done = remember(db, who, short, embedding=CLOSE)
        assert (done["memory_id"] == first) == is_same, (short, long)
        judge = memory_row(db, first, "state_reason")[0]
        assert judge == case["judge"] if "judge" in case else judge in (None, "polarity", "value", "slot"), (
            short,
            long,
        )


def test_merging_keeps_the_sources_of_both(db: Db, user: str) -> None:
    persist(db, user, "s", PERSON, MODEL, PERSON, MODEL)
    of = {"session": "s", "actor": "person"}
    one_way = remembered(db, user, "Lives in Ulm.", source_turns=[0], embedding=NEAR, **of)
    done = remember(db, user, "Lives in Ulm by now.", source_turns=[2], embedding=CLOSE, **of)
    assert done["superseded"] == [one_way] and source_turns(db, user, done["memory_id"]) == [("s", 0), ("s", 2)]


# Forgetting -----------------------------------------------------------------------------------------------------------


def seen(db: Db, user: str, query: str) -> str:
    """All that recall and a compiled list show for a query, now and as of later, in a fresh session."""
    named: list[dict[str, Any]] = [{}, {"as_of": "2100-01-01T00:00:00Z"}]
    lists = [call(db, "compile_context", user, "fresh", query, query_embedding=NEAR, **more) for more in named]
    return (str(recalled(db, user, query, query_embedding=NEAR)) + str(lists)).replace(query, "")


def test_forgotten_stays_away(db: Db, user: str) -> None:
    slot = {"slot": "gate code", "slot_value": "Kestrel"}
    memory = remembered(db, user, "The gate code is Kestrel.", embedding=NEAR, aliases=["password"], **slot)
    assert "Kestrel" in seen(db, user, "What is the code?")
    counts = {"merged": [], "excluded_turns": 0, "invalidated_summaries": 0}
    done = call(db, "forget", user, memory, "asked to")
    assert done == {"memory_id": memory, "state": "forgotten"} | counts
    assert "Kestrel" not in seen(db, user, "What is the code?")
    assert memory_row(db, memory, "state, state_reason") == ("forgotten", "asked to")
    # Not the text in any disguise, not the value in its slot in other words, not by anybody, not elsewhere.
    ways: list[dict[str, Any]] = [
        {}, {"actor": "agent"}, {"actor": "tool"}, {"provenance": "correction"}, {"project": "kiln"}, {"embedding": NEAR},
        {"type": "instruction"},
    ]  # fmt: skip
    for text in (
        "THE GATE  CODE IS KESTREL.", "The gate code is Kes\u200btrel.", "Ｔｈｅ gate code is Kes\u0007trel.",
        "Th\u0435 gat\u0435 code is \u041aestrel.", "The gate code is K e s t r e l", "The gate code is KestreI",
    ):  # fmt: skip
        for named in ways:
            assert remember(db, user, text, **named)["outcome"] == "refused_tombstone", (ascii(text), named)
    for name, value in (
        ("Gate\u00a0Code", "KESTREL"),
        ("ｇate code", " kes\u00adtrel "),
        ("Gat\u0435 code", "kestrel"),
    ):
        refused = remember(db, user, f"It is still {value}, you know.", slot=name, slot_value=value)
        assert (refused["memory_id"], refused["outcome"]) == (None, "refused_tombstone")
    # Other values, other slots and other users are free.
    assert remember(db, user, "The gate code is Merlin.", slot="gate code", slot_value="Merlin")["outcome"] == "stored"
    assert remember(db, user, "Kestrel is a bird.", slot="bird", slot_value="Kestrel")["outcome"] == "stored"
    assert remember(db, user + "-2", "The gate code is Kestrel.")["outcome"] == "stored"
    # The tombstone holds a keyed hash and no text. Forgetting twice changes nothing.
    columns = "memory_id, kinds, lifted_at, content"
    stones = table(db, "list_tombstones", user, columns=columns)
    assert "Kestrel" not in str(stones) and call(db, "forget", user, memory)["state"] == "forgotten"
    assert table(db, "list_tombstones", user, columns=columns) == stones and len(stones) == 1
    with raises("PM004"):
        call(db, "forget", user + "-2", memory)


@pytest.mark.parametrize("index", range(3))
def test_forgetting_reaches_what_was_merged(db: Db, user: str, index: int) -> None:
    """Whichever of the ids an application holds, the fact goes in all its words, and none of them may come back."""
    texts = ["Likes hiking.", "Likes hiking at dawn.", "Likes the hiking."]
    for text, vector in zip(texts, (NEAR, CLOSE, NEAR)):
        remember(db, user, text, embedding=vector)
    rows = table(db, "list_memories", user, p_states=[], columns="content, memory_id::text")
    ids = [dict(rows)[text] for text in texts]
    assert set(call(db, "forget", user, ids[index])["merged"]) == set(ids) - {ids[index]}
    assert "hiking" not in seen(db, user, "What is liked?")
    assert [remember(db, user, text)["outcome"] for text in texts] == ["refused_tombstone"] * 3


def test_superseded_value_is_not_forgotten_with_the_slot(db: Db, user: str) -> None:
    remember(db, user, "Lives in Bonn.", slot="city", slot_value="Bonn")
    call(db, "forget", user, remembered(db, user, "Lives in Ulm.", slot="city", slot_value="Ulm"))
    assert remember(db, user, "Lives in Bonn.", slot="city", slot_value="Bonn")["outcome"] == "stored"


def test_forgetting_takes_the_source_turns_out(db: Db, user: str) -> None:
    """Of recall, of recalls that are kept for an exchange, and of summaries, also in branches; history keeps them."""
    persist(db, user, "a", "My locker number is Heron.", "Noted.", "I like herons, the birds.", "Nice.")
    call(db, "branch_session", user, "a", "b", 2)
    call(db, "branch_session", user, "a", "c", 0)
    persist(db, user, "b", "What now?", "No idea.")
    for session in "abc":
        call(db, "summarize_session", user, session)
    of = {"session": "b", "provenance": "user_stated", "source_turns": [0]}
    memory = remembered(db, user, "Uses locker seventeen.", embedding=NEAR, **of)
    query = "Which locker number is it?"
    persist(db, user, "x", query)
    assert "Heron." in str(call(db, "compile_context", user, "x", None)) and "Heron" in seen(db, user, query)
    done = call(db, "forget", user, memory)
    assert done["excluded_turns"] == 1 and done["invalidated_summaries"] >= 2
    assert "Heron." not in seen(db, user, query) + str(call(db, "compile_context", user, "x", None))
    found = recalled(db, user, "herons birds locker")
    assert "I like herons, the birds." in found and "My locker number is Heron." not in found
    assert not any("Heron." in text for text in recalled(db, user, "locker number", kinds=["summary"]))
    # History is lossless: it keeps the turn.
    assert table(db, "history", user, "a", 0, 0)[0][0]["content"] == "My locker number is Heron."
    assert call(db, "forget", user, memory)["excluded_turns"] == 0


def test_late_vector_of_a_forgotten_memory(db: Db, user: str) -> None:
    """It was claimed before it was forgotten: its vector must not merge anything into it."""
    kept = remembered(db, user, "Likes hiking.", embedding=NEAR)
    gone = remembered(db, user, "Likes hiking at dawn.")
    store = claim(db, "Likes hiking at dawn.", "little")
    call(db, "forget", user, gone)
    store(CLOSE)
    assert (memory_row(db, kept), memory_row(db, gone)) == (("active",), ("forgotten",))
    assert recalled(db, user, "hiking dawn", query_embedding=NEAR) == ["Likes hiking."]
