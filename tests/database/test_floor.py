"""The floor of relevance: what is recalled for nothing, where recall ends, what a weak recall says of itself."""

from collections.abc import Iterator
from typing import Any

import pytest
from calls import BASE, CALL, Db, call, embed_waiting, near, persist, recalled, remember, remembered, table, use_vectors
from servers import connect

WEAK = "Weak matches"
KNEE, STOVE = "What did the doctor say about my knee?", "Who built the tiled stove in the hall?"


@pytest.fixture(scope="module")
def db(memoir_dsn: str) -> Iterator[Db]:
    """Vectors of four dimensions, given by the test."""
    with connect(memoir_dsn) as db:
        use_vectors(db)
        yield db


def context(db: Db, user: str, query: str, session: str = "asking", **named: Any) -> dict[str, Any]:
    return dict(call(db, "context", user, session, query, query_embedding=BASE, **named))


def text_of(made: dict[str, Any]) -> str:
    return str(made["messages"][-1]["content"])


@pytest.mark.parametrize("text", ["hi", "That’s perfect, thank you"])  # cases/questions.jsonl has more
def test_small_talk_shows_pinned_items_only(db: Db, user: str, text: str) -> None:
    remember(db, user, "Thanks for the good morning, hello, see you tomorrow.", embedding=near(0.99))
    said = context(db, user, text)
    assert said["arms"]["recall"] == "small talk" and said["items"] == [] and not said["warnings"]
    pinned = remembered(db, user, "The stove is cleaned on Mondays.")
    call(db, "open_session", user, "asking")
    call(db, "pin", user, "asking", pinned)
    said = context(db, user, text)
    assert said["arms"]["recall"] == "searched" and said["items"] == [pinned] and "Mondays" in text_of(said)
    call(db, "set_user_settings", user, {"small_talk_words": 0})
    assert len(context(db, user, text)["items"]) > 1


@pytest.mark.parametrize("asked", ["whats the wifi", "whos the plumber", "wheres the key"])
def test_question_without_its_marks_is_no_small_talk(db: Db, user: str, asked: str) -> None:
    kitchen(db, user, cosine=0.2)
    call(db, "set_user_settings", user, {"relevance_fit": 0})
    assert context(db, user, asked.split(" ", 1)[1])["items"] == []  # said, not asked
    assert context(db, user, asked)["items"] != []


def test_recall_is_no_lone_word(db: Db, user: str) -> None:
    """An answer that says nothing comes with something else, or not at all."""
    persist(db, user, "s", {"role": "assistant", "content": "Okay."})
    embed_waiting(db, near(0.3), "little")
    made = context(db, user, KNEE)
    assert "Okay" not in text_of(made) and made["items"] == [] and made["recall_tokens"] == 0
    reasons = table(db, "explain_context", user, "asking", KNEE, query_embedding=BASE, columns="reason")
    assert reasons == [("says nothing by itself",)]
    persist(db, user, "s2", {"role": "assistant", "content": "The knee must rest."})
    assert "must rest" in text_of(context(db, user, KNEE))


def test_recall_ends_where_relevance_does(db: Db, user: str) -> None:
    remember(db, user, STOVE, embedding=near(0.999))  # asked before
    remember(db, user, "The tiled stove in the hall was built by Konrad in 1911.", embedding=near(0.75))
    remember(db, user, "The tiled stove in the hall was built of green tiles by Konrad and a son.", embedding=near(0.7))
    for n in range(40):
        row = f"Row {n} of an inventory of pots, pans, plates and other kitchenware."
        remember(db, user, row, embedding=near(0.02), created_at="2024-03-01")
    with_floor = context(db, user, STOVE)
    reasons = table(db, "explain_context", user, "asking", STOVE, query_embedding=BASE, columns="reason")
    assert ("below the relevance floor",) in reasons
    call(db, "set_user_settings", user, {"relevance_share": 0, "relevance_fit": 0})
    assert "Konrad" in text_of(with_floor) and not with_floor["weak"]
    assert with_floor["recall_tokens"] < context(db, user, STOVE)["recall_tokens"] * 0.4
    call(db, "set_user_settings", user, {"relevance_share": None, "relevance_fit": None})
    # A search returns as many as it is asked for.
    assert len(recalled(db, user, STOVE, limit=20, query_embedding=BASE)) == 20


@pytest.mark.acceptance
def test_weak_recall_is_small_and_says_so(db: Db, user: str) -> None:
    for n in range(120):  # in a small store nothing at all would be shown
        row = f"Row {n} of an inventory of pots, pans, plates and all other kitchenware that stands in the house of an aunt."
        remember(db, user, row, embedding=near(0.2 + n / 10000))
    asked, full = context(db, user, KNEE), context(db, user, KNEE, memory_budget=1000)
    strength = asked["arms"]["strength"]
    assert full["weak"] and 0 < full["recall_tokens"] <= 300
    assert asked["weak"] and 0 < asked["recall_tokens"] < 2000 * strength / 0.12 + 1 and strength < 0.12
    assert text_of(asked).count(WEAK) == 1
    remember(db, user, "The doctor says the knee must rest for three weeks.", embedding=near(0.9))
    found = context(db, user, KNEE)
    assert not found["weak"] and WEAK not in text_of(found) and "three weeks" in text_of(found)


def test_weak_recall_does_not_stand_beside_a_list(db: Db, user: str) -> None:
    remember(db, user, "Row 7 of an inventory of pots, pans and plates.", embedding=near(0.11))
    assert context(db, user, KNEE)["weak"]
    made = call(db, "recall_beside", user, "asking", KNEE, query_embedding=BASE)
    assert (made["weak"], made["text"], made["items"], made["tokens"]) == (True, "", [], 0)


KITCHEN = (
    "Pots hang over the stove.|Plates stand in the cupboard on the left.|Marmalade is boiled every February."
    "|Tea comes from a shop in Hamburg.|Bread is baked on Saturdays with rye flour.|The fridge was repaired in spring."
    "|Guests get the blue cups.|Knives are sharpened by a neighbour.|The oven runs on gas.|Salt is kept in a clay jar."
    "|Recipes are written into a red book.|Onions lie in the cellar."
).split("|")


def kitchen(db: Db, user: str, number: int = len(KITCHEN), cosine: float = 0.12) -> list[str]:
    """Ids of memories that all lie that close to the question."""
    return [remembered(db, user, text, embedding=near(cosine)) for text in KITCHEN[:number]]


def test_weak_recall_has_room_for_the_passage_with_the_word(db: Db, user: str) -> None:
    lines = " ".join(f"Line {n}: the pump ran at {n} percent and nothing odd was seen." for n in range(7))
    kitchen(db, user, cosine=0.1)
    remember(db, user, f"{lines} My mechanic is called Fiorella Zanetti.", embedding=near(0.1))
    made = context(db, user, "Who is my mechanic?")
    assert made["weak"] and "Fiorella" in text_of(made) and 150 < made["recall_tokens"] <= 300
    assert context(db, user, "Who is my tailor?")["recall_tokens"] <= 150


def test_weak_recall_leads_with_its_best_passage(db: Db, user: str) -> None:
    """Lines that cost less for what they are worth don't take all the room."""
    lines = " ".join(f"Line {n}: the pump ran at {n} percent and nothing odd was seen." for n in range(7))
    for n, text in enumerate(KITCHEN):
        remember(db, user, f"{text} That was in {2000 + n}.", embedding=near(0.1))
    remember(db, user, f"{lines} Fiorella Zanetti sees to the old Fiat.", embedding=near(0.14))
    call(db, "set_user_settings", user, {"relevance_fit": 0})
    made = context(db, user, "Who repairs a vehicle?")
    assert made["weak"] and "Fiorella" in text_of(made) and made["recall_tokens"] <= 300


def test_small_store_shows_what_fits_and_no_more(db: Db, user: str) -> None:
    ids = kitchen(db, user, 9)
    fruit = "Which fruit does she use for her marmalade?"
    assert len(context(db, user, fruit)["items"]) > 1, "among fewer than ten there is nothing to leave out"
    for text in KITCHEN[9:]:
        remember(db, user, text, embedding=near(0.12))
    assert context(db, user, fruit)["items"] == [ids[2]], "by a word that tells"
    close = remembered(db, user, "Jam keeps for two years.", embedding=near(0.62))
    # A memory that gets another name keeps its vector.
    assert remembered(db, user, "Jam keeps for two years.", aliases=["compote"]) == close
    assert context(db, user, "How long can preserves be stored?")["items"] == [close], "by its vector alone"


def test_small_store_without_a_fit_recalls_nothing(db: Db, user: str) -> None:
    kitchen(db, user)
    remember(db, user, "They want to make a change to their usual way of working.", embedding=near(0.12))
    asked = context(db, user, KNEE)
    assert asked["items"] == [] and asked["recall_tokens"] == 0 and not asked["weak"]
    # Words of any conversation tell nothing.
    assert context(db, user, "How do I make a usual change in the way people work?")["items"] == []
    call(db, "set_user_settings", user, {"relevance_fit": 0})
    assert context(db, user, KNEE)["items"] != []


def test_memory_of_another_project_needs_a_better_fit(db: Db, user: str) -> None:
    kitchen(db, user)
    there = remembered(db, user, "Bicycles stand in the shed.", project="garden", embedding=near(0.2))
    for project, expected in (("garden", [there]), ("office", [])):
        call(db, "open_session", user, project, project=project)
        assert context(db, user, "Where do bicycles go?", session=project)["items"] == expected


def test_few_words_that_hit_something_rare_are_no_small_talk(db: Db, user: str) -> None:
    kitchen(db, user, cosine=0.05)
    found = remembered(db, user, "GHA reads its secrets from the vault of the platform team.", embedding=near(0.1))
    assert context(db, user, "GHA secrets config")["items"] == [found]
    assert context(db, user, "bicycle pump valve")["items"] == []


def test_exchange_that_goes_on_keeps_its_mark(db: Db, user: str) -> None:
    for n in range(5):
        remember(db, user, f"Row {n} of an inventory of pots and pans.", embedding=near(0.1))
    first = context(db, user, KNEE)
    result = {"role": "tool", "tool_call_id": CALL["id"], "content": "nothing"}
    persist(db, user, "asking", KNEE, {"role": "assistant", "content": None, "tool_calls": [CALL]}, result)
    again = call(db, "context", user, "asking")
    assert first["weak"] and again["weak"] and again["arms"]["recall"] == "kept" and WEAK in str(again["messages"])


def test_without_a_vector_nothing_is_called_weak(db: Db, user: str) -> None:
    remember(db, user, "Row of an inventory of pots and pans.", embeddable=False)
    asked = call(db, "context", user, "asking", "pots for the doctor")
    assert asked["recall_tokens"] > 0 and not asked["weak"] and asked["arms"]["strength"] is None


def test_question_about_oneself_recalls_ones_own_turns(db: Db, user: str) -> None:
    """Though no word is shared, and nothing says that they fit."""
    persist(db, user, "s", "I've got a Zenbook, how do I clean the keys?", "A Zenbook wants a soft brush.")
    for n in range(0, 24, 2):
        persist(db, user, f"s{n}", *(f"King number {k} of Norway had {k} horses" for k in (n, n + 1)))
    embed_waiting(db, lambda text: near(0.45 if "Zenbook" in text else 0.05), "little")
    assert "user: I've got a Zenbook" in text_of(context(db, user, "Which laptop do I have?"))
    assert "Zenbook" not in text_of(context(db, user, "Which laptop does Elon have?"))
    call(db, "set_user_settings", user, {"own_question_turns": 0})
    assert "Zenbook" not in text_of(context(db, user, "Which laptop do I have?"))


def test_new_session_that_goes_on_needs_no_fit(db: Db, user: str) -> None:
    """Its words say nothing of the matter; in a session under way the list says it."""
    ids, go_on = kitchen(db, user), "I'm done with that. What is the next step?"
    assert set(context(db, user, go_on)["items"]) == set(ids)
    persist(db, user, "under way", "Who built the stove?", "A Mr Konrad.")
    assert context(db, user, go_on, session="under way")["items"] == []
