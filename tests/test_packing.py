"""Packing: what is worth most within a budget, against the exact optimum."""

from __future__ import annotations

import itertools
import random
from typing import Any

import psycopg

FENCE = 22


def choose(db: psycopg.Connection, lines: list[tuple[int, float, int]], openings: dict[int, int], budget: int) -> tuple[list[int], int]:
    """What is chosen of lines (cost, worth, group), by place in the list, and how many tokens it thinks they take."""
    row = db.execute(
        """select chosen, used from memoir._choose(jsonb_populate_record(null::memoir.recall_lines, %s::jsonb), %s)""",
        [psycopg.types.json.Jsonb({"places": list(range(1, len(lines) + 1)), "costs": [c for c, _, _ in lines], "worths": [w for _, w, _ in lines],
                                   "groups": [g for _, _, g in lines], "openings": [openings[g] for _, _, g in lines]}), budget],
    ).fetchone()
    return [place - 1 for place in row[0]], row[1]


def spent(lines: list[tuple[int, float, int]], openings: dict[int, int], chosen: Any) -> int:
    return FENCE + sum(lines[i][0] for i in chosen) + sum(openings[g] for g in {lines[i][2] for i in chosen})


def test_choice_is_near_the_best_there_is(db: psycopg.Connection) -> None:
    rng = random.Random(5)
    shares = []
    for _ in range(60):
        openings = {g: rng.randint(5, 20) for g in (1, 2, 3)}
        lines = [(rng.randint(10, 150), rng.random() ** 3, rng.choice((1, 2, 3))) for _ in range(11)]
        lines.sort(key=lambda line: -line[1] / line[0])
        budget = rng.randint(150, 700)
        chosen, used = choose(db, lines, openings, budget)
        assert (chosen, used) == choose(db, lines, openings, budget)
        assert len(set(chosen)) == len(chosen)
        assert spent(lines, openings, chosen) <= max(used, FENCE) <= max(budget, FENCE)
        best = max(sum(lines[i][1] for i in some) for size in range(len(lines) + 1) for some in itertools.combinations(range(len(lines)), size)
                   if spent(lines, openings, some) <= budget)
        if best:
            shares.append(sum(lines[i][1] for i in chosen) / best)
    assert sorted(shares)[len(shares) // 2] >= 0.99
    assert min(shares) >= 0.75  # a handful of lines that fill the budget: the worst of cases


def test_a_long_line_worth_more_takes_the_place_of_short_ones(db: psycopg.Connection) -> None:
    lines = [(20, 0.1, 1), (300, 0.9, 1), (30, 0.05, 1)]
    assert choose(db, lines, {1: 10}, FENCE + 10 + 310) == ([1], FENCE + 10 + 300)
    assert choose(db, lines, {1: 10}, FENCE + 10 + 320)[0] == [0, 1]
    assert choose(db, lines, {1: 10}, FENCE + 10 + 60)[0] == [0, 2]  # one that can't fit pushes nothing out
    assert choose(db, lines, {1: 10}, FENCE)[0] == []


def test_worth_follows_the_score(db: psycopg.Connection) -> None:
    worths = [row[0] for row in db.execute("select memoir._worth(s::real) from unnest('{-1,0,0.05,0.3,0.5,0.9,1,7}'::float8[]) s")]
    assert worths == sorted(worths) and 0 < worths[0] and worths[-1] <= 1
    assert worths[4] == 0.5 and worths[3] < 0.3 < 0.9 < worths[5]


def test_budgets_as_large_as_there_are(db: psycopg.Connection, user: str) -> None:
    largest = 2**31 - 1
    db.execute("select memoir.persist_turn(%s, 'old', %s)", [user, psycopg.types.json.Jsonb([{"role": "user", "content": "I moved to Lisbon in May."}])])
    for budget, memory_budget in ((largest, largest), (largest, None), (None, largest)):
        (messages,) = db.execute("select memoir.compile_context(%s, 'new', 'Where in Lisbon did I move?', p_budget => %s, p_memory_budget => %s)", [user, budget, memory_budget]).fetchone()
        assert "I moved to Lisbon" in messages[-1]["content"]
    db.execute("select memoir.compile_context(%s, 'old', 'And then?', p_budget => %s)", [user, largest])
