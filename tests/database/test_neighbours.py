"""What was said before and after a turn belongs to it, whatever else is stored in between."""

from collections.abc import Callable
from typing import Any

import pytest
from calls import Db, call, remember, store, table

QUESTION, ANSWER, LATER = (
    "Which harbour did Philippa choose for the winter?",
    "The one in Lillesand, behind the mole.",
    "Then I shall bring blankets.",
)
QUERY = "harbour Philippa winter"


def say(db: Db, user: str, session: str, *texts: str) -> None:
    """Turns of one side, one call each, as chats between people are stored."""
    for text in texts:
        store(db, user, session, [{"role": "user", "content": text}], "append_messages")


def mark(db: Db, user: str) -> None:
    """The turn before gets new items, and is as it was."""
    last = max(turn["turn_index"] for (turn,) in table(db, "history", user, "s"))
    for sensitivity in ("private", "normal"):
        call(db, "mark_turn", user, "s", last, sensitivity)


BETWEEN: dict[str, Callable[[Db, str], Any]] = {
    "nothing": lambda db, user: None,
    "many memories": lambda db, user: [remember(db, user, f"Owns bicycle number {n}.") for n in range(40)],
    "another session": lambda db, user: say(db, user, "elsewhere", "How about the bicycle?", "It is red."),
    "marks": mark,
}


@pytest.mark.parametrize("between", BETWEEN)
def test_neighbours_are_those_of_the_conversation(db: Db, user: str, between: str) -> None:
    say(db, user, "s", "Good morning.", QUESTION)
    BETWEEN[between](db, user)
    say(db, user, "s", ANSWER)
    BETWEEN[between](db, user)
    say(db, user, "s", LATER)
    rows = table(db, "explain_context", user, "fresh", QUERY, columns="content, arms, session")
    found = {content: arms for content, arms, session in rows if session == "s"}
    # What follows a match in words is a candidate; what is two turns away is not.
    assert found[QUESTION] == ["words"] and found[ANSWER] == ["neighbour"] and LATER not in found, found
    # A vector is made of the turn and the end of the one before it.
    texts = {text for (text,) in table(db, "claim_embeddings", 1000, columns="text")}
    assert {f"Good morning.\n{QUESTION}", f"{QUESTION}\n{ANSWER}", f"{ANSWER}\n{LATER}"} <= texts


def test_what_lies_between_is_no_neighbour(db: Db, user: str) -> None:
    """The same conversation, with and without a memory that matches in between: the turns score the same."""
    scores = []
    for who, is_first in ((user, True), (f"{user}-between", False)):
        if is_first:
            remember(db, who, "Philippa was in the harbour.")
        say(db, who, "s", "Good morning.", QUESTION)
        if not is_first:
            remember(db, who, "Philippa was in the harbour.")
        say(db, who, "s", ANSWER)
        rows = table(db, "explain_context", who, "fresh", QUERY, columns="content, score, kind")
        scores.append({content: score for content, score, kind in rows if kind == "turn"})
    assert scores[0] == scores[1] and ANSWER in scores[0]
