"""Broad questions: an order of events, a summary, several things. More and shorter lines, spread over sessions, in order of time."""

import re
from typing import Any

import pytest
from calls import Db, call, persist, table

JOBS = "the foundation|the timber frame|the roof slates|the wiring|the oak floor|the paint|the stairs".split("|")
DETAIL = (
    " I measured it twice and wrote the figures into the blue book. The merchant in town wants the order by letter,"
    " and the lorry only comes up the lane when it has not rained for a week. My brother lends me his tools for it."
)
ADVICE = (
    "Certainly! Start with a level line all around and let it dry.\n\n1. Clear the ground.\n2. Check every corner.\n"
    "3. Note what is left over for the next stage, since the merchant takes back what was not opened."
)
ORDER = "In which order did I bring up the jobs on the garden house?"
SUMMARY = "Summarise how the garden houses progressed."


@pytest.fixture
def built(db: Db, user: str, clock: Any) -> str:
    """A house built over five sessions: in each seven jobs are brought up at length and answered at length."""
    for week in range(1, 6):
        for place, job in enumerate(JOBS):
            clock(f"2026-0{week}-03 1{place}:00:00+00")
            of = f"{job} of garden house number {week}"
            said = f"I'm working on {of} and want to plan it.{DETAIL}"
            persist(db, user, f"week {week}", said, f"For {of}: {ADVICE}")
    clock(None)
    db.execute("call memoir.run_job('merge')")
    return user


def ask(db: Db, user: str, query: str, budget: int = 1200) -> dict[str, Any]:
    return dict(call(db, "context", user, "asking", query, memory_budget=budget))


def find_jobs(made: dict[str, Any]) -> list[tuple[str, str]]:
    """(job, week), in the order of the block."""
    content = made["messages"][-1]["content"]
    return re.findall(r"I'm working on ([a-z ]+) of garden house number (\d)", content)


def test_event_order_has_a_line_per_event(db: Db, built: str) -> None:
    got = ask(db, built, ORDER)
    shown = find_jobs(got)
    assert got["arms"]["breadth"] == "order" and got["recall_tokens"] <= 1200
    assert len(set(shown)) >= 20, "an event a line"
    assert {week for _, week in shown} == set("12345"), "from every session"
    assert shown == sorted(shown, key=lambda event: (event[1], JOBS.index(event[0]))), "as they came"
    assert re.search(r"I'm working on .* …", got["messages"][-1]["content"]), "a short line says that there is more"
    # Other questions are answered as before.
    narrow = ask(db, built, "Who lends me his tools for the oak floor of garden house number 3?")
    assert "breadth" not in narrow["arms"] and len(find_jobs(narrow)) < len(shown)
    assert "My brother lends me his tools for it." in narrow["messages"][-1]["content"], "the best is whole"


def test_summary_has_questions_and_answers(db: Db, built: str) -> None:
    columns = "session, turn_index, fidelity, included, reason, parts ->> 'breadth'"
    rows = table(db, "explain_context", built, "asking", SUMMARY, memory_budget=1200, columns=columns)
    assert all(is_shown or reason for *_, is_shown, reason, _ in rows), "each item says why"
    rows = [row for row in rows if row[3]]
    assert {row[5] for row in rows} == {"summary"} and {row[2] for row in rows} & {"stub", "excerpt"}
    places = {(session, turn) for session, turn, *_ in rows}
    answers = [place for place in places if place[1] % 2]
    assert answers and len([a for a in answers if (a[0], a[1] - 1) in places]) >= len(answers) * 0.8


@pytest.mark.parametrize("query", [ORDER, SUMMARY, "How many tools did my brother lend me?"])
def test_never_over_the_budget(db: Db, built: str, query: str) -> None:
    for budget in (17, 40, 100, 300, 700, 2000, 8000):
        got = ask(db, built, query, budget)
        assert got["recall_tokens"] <= budget and got["tokens"] <= got["budget"], budget
