"""What was said before and after a turn belongs to it, whatever else is stored in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

QUESTION, ANSWER, LATER = (
    "Which harbour did Philippa choose for the winter?",
    "The one in Lillesand, behind the mole.",
    "Then I shall bring blankets.",
)
QUERY = "harbour Philippa winter"


def say(db: psycopg.Connection, user: str, session: str, *texts: str) -> None:
    """Turns of one side, one call each, as chats between people are stored."""
    for text in texts:
        db.execute(
            "select memoir.append_messages(%s, %s, %s)",
            [user, session, Jsonb([{"role": "user", "content": text, "created_at": "2026-03-01T10:00:00Z"}])],
        )


def nothing(db: psycopg.Connection, user: str) -> None:
    pass


def a_memory(db: psycopg.Connection, user: str) -> None:
    db.execute("select memoir.remember(%s, 'Owns a red bicycle.')", [user])


def many_memories(db: psycopg.Connection, user: str) -> None:
    db.execute(
        "select count(memoir.remember(%s, 'Owns bicycle number ' || n || '.')) from generate_series(1, 40) n", [user]
    )


def another_session(db: psycopg.Connection, user: str) -> None:
    say(db, user, "elsewhere", "How about the bicycle?", "It is red.")


def marks(db: psycopg.Connection, user: str) -> None:
    """The turn before gets new items, and is as it was."""
    for sensitivity in ("private", "normal"):
        db.execute(
            "select memoir.mark_turn(%s, 's', (select max((h ->> 'turn_index')::integer) from memoir.history(%s, 's') h), %s)",
            [user, user, sensitivity],
        )


@pytest.mark.parametrize(
    "between", [nothing, a_memory, many_memories, another_session, marks], ids=lambda f: f.__name__
)
def test_neighbours_are_those_of_the_conversation(
    db: psycopg.Connection, user: str, between: Callable[[psycopg.Connection, str], Any]
) -> None:
    say(db, user, "s", "Good morning.", QUESTION)
    between(db, user)
    say(db, user, "s", ANSWER)
    between(db, user)
    say(db, user, "s", LATER)
    found = dict(
        db.execute(
            "select content, arms from memoir.explain_context(%s, 'fresh', %s) where kind = 'turn' and session = 's'",
            [user, QUERY],
        ).fetchall()
    )
    # What follows a match in words is a candidate; what is two turns away is not.
    assert found[QUESTION] == ["words"] and found[ANSWER] == ["neighbour"] and LATER not in found, found
    items = db.execute(
        "select i.item_no, i.turn_index, i.after_question, p.turn_index, t.body from _memoir.search_items i join _memoir.users u using (user_id) "
        "left join _memoir.search_items p on p.user_id = i.user_id and p.item_no = i.previous_item "
        "join _memoir.sessions s on s.user_id = i.user_id and s.session_id = i.session_id and s.external_id = 's' "
        "cross join lateral _memoir.embedding_texts(i.user_id, array[i.item_no]) t "
        "where u.external_id = %s order by i.turn_index",
        [user],
    ).fetchall()
    assert [(turn, after, before) for _, turn, after, before, _ in items] == [
        (0, False, None),
        (1, False, 0),
        (2, True, 1),
        (3, False, 2),
    ]
    # A vector is made of the turn and the end of the one before it.
    assert [body for *_, body in items][1:] == [
        f"Good morning.\n{QUESTION}",
        f"{QUESTION}\n{ANSWER}",
        f"{ANSWER}\n{LATER}",
    ]


def test_what_lies_between_is_no_neighbour(db: psycopg.Connection, user: str) -> None:
    """The same conversation, with and without a memory that matches in between: the turns score the same."""
    scores = []
    for who in (user, f"{user}-between"):
        db.execute("select memoir.remember(%s, 'Philippa was in the harbour.')", [who]) if who == user else None
        say(db, who, "s", "Good morning.", QUESTION)
        db.execute("select memoir.remember(%s, 'Philippa was in the harbour.')", [who]) if who != user else None
        say(db, who, "s", ANSWER)
        scores.append(
            dict(
                db.execute(
                    "select content, score from memoir.explain_context(%s, 'fresh', %s) where kind = 'turn'",
                    [who, QUERY],
                ).fetchall()
            )
        )
    assert scores[0] == scores[1] and ANSWER in scores[0]
