"""The floor of relevance: what is recalled for nothing, where recall ends, what a weak recall says of itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from calls import near, remember, use_vectors
from psycopg.types.json import Jsonb
from servers import connect

WEAK = "Weak matches"
PHATIC = [
    "hi",
    "Hello there!",
    "thanks so much, that helps a lot",
    "ok great",
    "good morning",
    "See you tomorrow!",
    "bye",
    "no worries",
    "How are you doing today?",
    "what's up?",
    "yes please",
    "go on",
    "haha",
    "That’s perfect, thank you",
]


@pytest.fixture(scope="module")
def db(memoir_dsn: str) -> Iterator[psycopg.Connection]:
    """Vectors of four dimensions, given by the test."""
    with connect(memoir_dsn) as db:
        use_vectors(db)
        yield db


def context(db: psycopg.Connection, user: str, query: str, session: str = "asking", **named: Any) -> dict[str, Any]:
    extra = "".join(f", p_{name} => %({name})s" for name in named)
    return db.execute(
        f"select memoir.context(%(user)s, %(session)s, %(query)s, p_query_embedding => '{{1,0,0,0}}'{extra})",
        {"user": user, "session": session, "query": query, **named},
    ).fetchone()[0]


@pytest.mark.parametrize("text", PHATIC)
def test_small_talk_recalls_nothing(db: psycopg.Connection, user: str, text: str) -> None:
    remember(db, user, "Thanks for the good morning, hello, see you tomorrow.", embedding=near(0.99))
    assert context(db, user, text)["recall_tokens"] == 0
    db.execute("select memoir.set_user_settings(%s, '{\"small_talk_words\": 0}')", [user])
    assert context(db, user, text)["recall_tokens"] > 0


def test_small_talk_shows_pinned_items_only(db: psycopg.Connection, user: str) -> None:
    remember(db, user, "Thanks for the good morning, hello, see you tomorrow.", embedding=near(0.99))
    pinned = db.execute(
        "select memoir.remember(%s, 'The stove is cleaned on Mondays.') ->> 'memory_id'", [user]
    ).fetchone()[0]
    db.execute("select memoir.open_session(%s, 'asking')", [user])
    said = context(db, user, PHATIC[0])
    assert said["arms"]["recall"] == "small talk" and said["items"] == [] and not said["warnings"]
    db.execute("select memoir.pin(%s, 'asking', %s)", [user, pinned])
    said = context(db, user, PHATIC[0])
    assert (
        said["arms"]["recall"] == "searched"
        and said["items"] == [pinned]
        and "Mondays" in said["messages"][-1]["content"]
    )


def test_recall_ends_where_relevance_does(db: psycopg.Connection, user: str) -> None:
    remember(db, user, "Who built the tiled stove in the hall?", embedding=near(0.999))  # asked before
    remember(db, user, "The tiled stove in the hall was built by Konrad in 1911.", embedding=near(0.75))
    remember(
        db, user, "The tiled stove in the hall was built of green tiles by Konrad and his son.", embedding=near(0.7)
    )
    for n in range(40):
        remember(
            db,
            user,
            f"Row {n} of an inventory of pots, pans, plates and other kitchenware.",
            embedding=near(0.02),
            created_at="2024-03-01",
        )
    with_floor = context(db, user, "Who built the tiled stove in the hall?")
    db.execute('select memoir.set_user_settings(%s, \'{"relevance_share": 0, "relevance_fit": 0}\')', [user])
    without = context(db, user, "Who built the tiled stove in the hall?")
    assert "Konrad" in with_floor["messages"][-1]["content"] and not with_floor["weak"]
    assert with_floor["recall_tokens"] < without["recall_tokens"] * 0.4
    db.execute('select memoir.set_user_settings(%s, \'{"relevance_share": null, "relevance_fit": null}\')', [user])
    reasons = db.execute(
        "select distinct reason from memoir.explain_context(%s, 'asking', 'Who built the tiled stove in the hall?', p_query_embedding => '{1,0,0,0}') where not included",
        [user],
    ).fetchall()
    assert ("below the relevance floor",) in reasons
    # A search returns as many as it is asked for.
    assert db.execute(
        "select count(*) from memoir.recall(%s, 'Who built the tiled stove in the hall?', p_limit => 20, p_query_embedding => '{1,0,0,0}')",
        [user],
    ).fetchone() == (20,)


@pytest.mark.acceptance
def test_a_weak_recall_is_small_and_says_so(db: psycopg.Connection, user: str) -> None:
    for n in range(120):  # in a small store nothing at all would be shown
        remember(
            db,
            user,
            f"Row {n} of an inventory of pots, pans, plates and all other kitchenware that stands in the house of an aunt.",
            embedding=near(0.2 + n / 10000),
        )
    asked = context(db, user, "What did the doctor say about my knee?")
    full = context(db, user, "What did the doctor say about my knee?", memory_budget=1000)
    assert full["weak"] and 0 < full["recall_tokens"] <= 300
    assert asked["weak"] and 0 < asked["recall_tokens"] < 2000 * asked["arms"]["strength"] / 0.12 + 1
    assert asked["messages"][-1]["content"].count(WEAK) == 1
    strengths = db.execute(
        "select distinct (parts ->> 'strength')::real from memoir.explain_context(%s, 'asking', 'What did the doctor say about my knee?', p_query_embedding => '{1,0,0,0}') where 'recent' <> all (arms)",
        [user],
    ).fetchall()
    assert (
        len(strengths) == 1
        and strengths[0][0] < 0.12
        and asked["arms"]["strength"] == pytest.approx(strengths[0][0], abs=1e-6)
    )
    remember(db, user, "The doctor says the knee must rest for three weeks.", embedding=near(0.9))
    found = context(db, user, "What did the doctor say about my knee?")
    assert (
        not found["weak"]
        and WEAK not in found["messages"][-1]["content"]
        and "three weeks" in found["messages"][-1]["content"]
    )


KITCHEN = [
    "Pots hang over the stove.",
    "Plates stand in the cupboard on the left.",
    "Marmalade is boiled every February.",
    "Tea comes from a shop in Hamburg.",
    "Bread is baked on Saturdays with rye flour.",
    "The fridge was repaired in spring.",
    "Guests get the blue cups.",
    "Knives are sharpened by a neighbour.",
    "The oven runs on gas.",
    "Salt is kept in a clay jar.",
    "Recipes are written into a red book.",
    "Onions lie in the cellar.",
]


def kitchen(db: psycopg.Connection, user: str, number: int = len(KITCHEN), cosine: float = 0.12) -> list[str]:
    """Ids of memories that all lie that close to the question."""
    return [remember(db, user, text, embedding=near(cosine))["memory_id"] for text in KITCHEN[:number]]


def test_a_small_store_shows_what_fits_and_no_more(db: psycopg.Connection, user: str) -> None:
    ids = kitchen(db, user)
    marmalade = ids[2]
    assert context(db, user, "Which fruit does she use for her marmalade?")["items"] == [marmalade], (
        "by a word that tells"
    )
    close = remember(db, user, "Jam keeps for two years.", embedding=near(0.62))["memory_id"]
    assert context(db, user, "How long can preserves be stored?")["items"] == [close], "by its vector alone"


def test_what_nothing_in_a_small_store_fits_recalls_nothing(db: psycopg.Connection, user: str) -> None:
    kitchen(db, user)
    asked = context(db, user, "What did the doctor say about my knee?")
    assert asked["items"] == [] and asked["recall_tokens"] == 0 and not asked["weak"]
    db.execute("select memoir.set_user_settings(%s, '{\"relevance_fit\": 0}')", [user])
    assert context(db, user, "What did the doctor say about my knee?")["items"] != []


def test_words_of_any_conversation_tell_nothing(db: psycopg.Connection, user: str) -> None:
    kitchen(db, user)
    remember(db, user, "They want to make a change to their usual way of working.", embedding=near(0.12))
    assert context(db, user, "How do I make a usual change in the way people work?")["items"] == []
    assert db.execute(
        "select _memoir.common_terms('english', _memoir.query_terms('english', 'using preferred questions about Kubernetes'))"
    ).fetchone() == (["prefer", "question", "use"],)
    assert db.execute("select _memoir.common_terms('german', '{use}')").fetchone() == ([],)


def test_among_fewer_than_ten_there_is_nothing_to_leave_out(db: psycopg.Connection, user: str) -> None:
    kitchen(db, user, 9)
    assert len(context(db, user, "Which fruit does she use for her marmalade?")["items"]) > 1


def test_a_memory_of_another_project_needs_a_better_fit(db: psycopg.Connection, user: str) -> None:
    kitchen(db, user)
    there = remember(db, user, "Bicycles stand in the shed.", project="garden", embedding=near(0.2))["memory_id"]
    for project, expected in (("garden", [there]), ("office", [])):
        db.execute("select memoir.open_session(%s, %s, p_project => %s)", [user, project, project])
        assert context(db, user, "Where do bicycles go?", session=project)["items"] == expected


def test_in_a_large_store_less_fit_is_enough(db: psycopg.Connection) -> None:
    def fits(items: int) -> bool:
        [found] = db.execute(
            """select _memoir.fits((f).memories, 0.3, 0.2, 0, 0) from _memoir.fit_floor(
               (select config from _memoir.settings_merged), %s, 5, null) f""",
            [items],
        ).fetchone()
        return found

    assert [fits(n) for n in (9, 10, 35, 400)] == [True, False, False, True]


def test_few_words_that_hit_something_rare_are_no_small_talk(db: psycopg.Connection, user: str) -> None:
    kitchen(db, user, cosine=0.05)
    found = remember(db, user, "GHA reads its secrets from the vault of the platform team.", embedding=near(0.1))[
        "memory_id"
    ]
    assert context(db, user, "GHA secrets config")["items"] == [found]
    assert context(db, user, "bicycle pump valve")["items"] == []


def test_a_memory_with_new_names_keeps_its_vector(db: psycopg.Connection, user: str) -> None:
    kitchen(db, user)
    jam = remember(db, user, "Jam keeps for two years.", embedding=near(0.7))["memory_id"]
    again = remember(db, user, "Jam keeps for two years.", aliases=["compote"])
    assert (again["memory_id"], again["outcome"]) == (jam, "duplicate")
    assert context(db, user, "How long can preserves be stored?")["items"] == [jam], "by its vector"


def test_an_exchange_that_goes_on_keeps_its_mark(db: psycopg.Connection, user: str) -> None:
    for n in range(5):
        remember(db, user, f"Row {n} of an inventory of pots and pans.", embedding=near(0.1))
    question = "What did the doctor say about my knee?"
    first = context(db, user, question)
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    db.execute(
        "select memoir.persist_turn(%s, 'asking', %s)",
        [
            user,
            Jsonb(
                [
                    {"role": "user", "content": question},
                    {"role": "assistant", "content": None, "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": "c1", "content": "nothing"},
                ]
            ),
        ],
    )
    again = db.execute("select memoir.context(%s, 'asking')", [user]).fetchone()[0]
    assert first["weak"] and again["weak"] and again["arms"]["recall"] == "kept"
    assert WEAK in str(again["messages"])


def test_without_a_vector_nothing_is_called_weak(db: psycopg.Connection, user: str) -> None:
    db.execute("select memoir.remember(%s, 'Row of an inventory of pots and pans.', p_embeddable => false)", [user])
    asked = db.execute("select memoir.context(%s, 'asking', 'pots for the doctor')", [user]).fetchone()[0]
    assert asked["recall_tokens"] > 0 and not asked["weak"] and asked["arms"]["strength"] is None


# Questions about oneself ----------------------------------------------------------------------------------------------


def test_a_question_about_oneself_recalls_ones_own_turns(db: psycopg.Connection, user: str) -> None:
    """Though no word is shared, and nothing says that they fit."""
    said = [("user", "I've got a Zenbook, how do I clean the keys?"), ("assistant", "A Zenbook wants a soft brush.")]
    said += [(("user", "assistant")[n % 2], f"King number {n} of Norway had {n} horses") for n in range(24)]
    for n in range(0, len(said), 2):
        turns = [{"role": role, "content": text} for role, text in said[n : n + 2]]
        db.execute("select memoir.persist_turn(%s, %s, %s)", [user, f"s{n}", Jsonb(turns)])
    while claimed := db.execute("select user_id, item_no, text from memoir.claim_embeddings(200, 'little')").fetchall():
        vectors = [near(0.45 if "Zenbook" in text else 0.05) for _, _, text in claimed]
        db.execute(
            "select memoir.store_embeddings(%s::uuid[], %s::int[], %s::real[], 'little')",
            [[c[0] for c in claimed], [c[1] for c in claimed], vectors],
        )
    own = context(db, user, "Which laptop do I have?")["messages"][-1]["content"]
    assert "user: I've got a Zenbook" in own
    db.execute("select memoir.set_user_settings(%s, '{\"own_question_turns\": 0}')", [user])
    assert "Zenbook" not in context(db, user, "Which laptop do I have?")["messages"][-1]["content"]
    db.execute("select memoir.set_user_settings(%s, '{\"own_question_turns\": null}')", [user])
    assert "Zenbook" not in context(db, user, "Which laptop does Elon have?")["messages"][-1]["content"]


def test_what_a_new_session_goes_on_with_need_not_fit(db: psycopg.Connection, user: str) -> None:
    """Its words say nothing of the matter; in a session under way the list says it."""
    ids = kitchen(db, user)
    assert set(context(db, user, "I'm done with that. What is the next step?")["items"]) == set(ids)
    assert context(db, user, "What did the doctor say about my knee?")["items"] == []
    turns = [{"role": "user", "content": "Who built the stove?"}, {"role": "assistant", "content": "A Mr Konrad."}]
    db.execute("select memoir.persist_turn(%s, 'under way', %s)", [user, Jsonb(turns)])
    assert context(db, user, "I'm done with that. What is the next step?", session="under way")["items"] == []
