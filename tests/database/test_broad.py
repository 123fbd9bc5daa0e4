"""Broad questions: an order of events, a summary, several things. More and shorter lines, spread over sessions, in order of time."""

from __future__ import annotations

import re
from typing import Any

import psycopg
import pytest
from calls import call, persist, set_clock, table

JOBS = [
    "the foundation",
    "the timber frame",
    "the roof slates",
    "the wiring",
    "the oak floor",
    "the paint",
    "the stairs",
]
DETAIL = (
    " I measured it twice and wrote the figures into the blue book. The merchant in town wants the order by letter,"
    " and the lorry only comes up the lane when it has not rained for a week. My brother lends me his tools for it."
)
ADVICE = (
    "Certainly! Start with a level line all around and let it dry.\n\n1. Clear the ground.\n2. Check every corner.\n"
    "3. Note what is left over for the next stage, since the merchant takes back what was not opened."
)
ORDER = "In which order did I bring up the jobs on the garden house?"
BROAD = {
    "order": [
        ORDER,
        "Can you list the order in which I brought up different aspects of the house?",
        "In welcher Reihenfolge habe ich die Arbeiten erwähnt?",
        "¿En qué orden mencioné los trabajos?",
        "Dans quel ordre ai-je évoqué les travaux ?",
        "Em que ordem mencionei os trabalhos?",
        "In che ordine ho menzionato i lavori?",
    ],
    "summary": [
        "Summarise what we did on the house.",
        "How has the garden house progressed?",
        "Kannst du unsere Gespräche zusammenfassen?",
        "¿Puedes resumir lo que hicimos?",
        "Peux-tu résumer nos conversations ?",
        "Você pode resumir o que fizemos?",
        "Puoi riassumere quello che abbiamo fatto?",
    ],
    "several": [
        "How many tools did my brother lend me?",
        "What books has Melanie read?",
        "List all the jobs I planned.",
        "What do Jon and Gina have in common?",
        "What happened on the building site?",
        "Wie viele Werkzeuge hat mein Bruder?",
        "¿Cuántas herramientas tengo?",
        "Combien de livres ai-je lus ?",
        "Quantos livros eu li?",
        "Quanti libri ho letto?",
    ],
}


@pytest.fixture
def built(db: psycopg.Connection, user: str) -> str:
    """A house built over five sessions: in each seven jobs are brought up at length and answered at length."""
    for week in range(5):
        for place, job in enumerate(JOBS):
            set_clock(db, f"2026-0{week + 1}-03 1{place}:00:00+00")
            said = f"I'm working on {job} of garden house number {week + 1} and want to plan it."
            persist(
                db,
                user,
                f"week {week + 1}",
                said + DETAIL,
                {"role": "assistant", "content": f"For {job} of garden house number {week + 1}: {ADVICE}"},
            )
    set_clock(db, None)
    db.execute("call memoir.merge_search()")
    return user


def asked(db: psycopg.Connection, user: str, query: str, budget: int = 1200) -> dict[str, Any]:
    got: dict[str, Any] = call(db, "context", user, "asking", query, memory_budget=budget)
    return got


def explained(db: psycopg.Connection, user: str, query: str, budget: int = 1200) -> list[tuple[Any, ...]]:
    return table(
        db,
        "explain_context",
        user,
        "asking",
        query,
        memory_budget=budget,
        columns="session, turn_index, fidelity, included, reason, parts ->> 'breadth', content",
    )


def test_event_order_has_a_line_per_event(db: psycopg.Connection, built: str) -> None:
    got = asked(db, built, ORDER)
    block = got["messages"][-1]["content"]
    assert got["arms"]["breadth"] == "order" and got["recall_tokens"] <= 1200
    shown = re.findall(r"I'm working on ([a-z ]+) of garden house number (\d)", block)
    assert len(set(shown)) >= 20, "an event a line"
    assert {week for _, week in shown} == set("12345"), "from every session"
    assert [week for _, week in shown] == sorted(week for _, week in shown)
    for week in "12345":
        named = [JOBS.index(job) for job, of in shown if of == week]
        assert named == sorted(named), "as they came"
    assert re.search(r"I'm working on .* … #\d+", block), "a short line says where the rest is"


def test_other_questions_are_answered_as_before(db: psycopg.Connection, built: str) -> None:
    got = asked(db, built, "Who lends me his tools for the oak floor of garden house number 3?")
    block = got["messages"][-1]["content"]
    assert "breadth" not in got["arms"]
    assert "My brother lends me his tools for it." in block, "the best is whole"
    assert len(re.findall("I'm working on", block)) < len(
        re.findall("I'm working on", asked(db, built, ORDER)["messages"][-1]["content"])
    )


def test_a_summary_has_questions_and_answers(db: psycopg.Connection, built: str) -> None:
    rows = [row for row in explained(db, built, "Summarise how the garden houses progressed.") if row[3]]
    assert {row[5] for row in rows} == {"summary"}
    places = {(session, turn) for session, turn, *_ in rows}
    answers = [place for place in places if place[1] % 2]
    assert answers and len([a for a in answers if (a[0], a[1] - 1) in places]) >= len(answers) * 0.8
    assert {row[2] for row in rows} & {"stub", "excerpt"}


def test_each_item_says_why(db: psycopg.Connection, built: str) -> None:
    rows = explained(db, built, ORDER)
    assert rows and all(row[3] or row[4] for row in rows)
    assert any(row[2] in ("stub", "excerpt") for row in rows)


def test_never_over_the_budget(db: psycopg.Connection, built: str) -> None:
    for query in (queries[0] for queries in BROAD.values()):
        for budget in (17, 40, 100, 300, 700, 2000, 8000):
            got = asked(db, built, query, budget)
            assert got["recall_tokens"] <= budget and got["tokens"] <= got["budget"], (query, budget)
