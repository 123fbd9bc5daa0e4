"""Choosing lines: what is worth most within a budget, against the exact optimum; and which fidelities remain."""

import itertools
import random
from typing import Any

import pytest
from pg_memoir_kernel import packing
from pg_memoir_kernel.packing import FENCE, Reduced, Text, lines_of

from kernel import make_candidate, make_line

Steps = list[tuple[int, int, int, float, int]]


def choose(steps: Steps, openings: dict[int, int], budget: int) -> tuple[list[int], int, bool]:
    """Chooses of steps (item, which step up, cost and worth that it adds, group): their places in the list; how many tokens
    it thinks they take; whether there was nothing more to choose."""
    lines = [
        make_line(item, step=step, cost=cost, worth=worth, group=group, opening=openings[group])
        for item, step, cost, worth, group in steps
    ]
    return packing.choose(lines, budget)


@pytest.mark.parametrize("most_steps", [1, 3])
def test_choice_is_near_the_best_there_is(most_steps: int) -> None:
    """Items of up to three fidelities, each dearer than the one before it and worth less for what it adds; one of each at most."""
    rng, shares = random.Random(7), []
    for _ in range(60):
        openings = {g: rng.randint(5, 20) for g in (1, 2)}
        steps: Steps = []
        items: list[
            tuple[int, list[tuple[int, float]]]
        ] = []  # of each item its group, and cost and worth of each level
        for item in range(9 if most_steps == 1 else 6):
            group, first, cost, worth, levels = rng.choice((1, 2)), rng.random() ** 3, 0, 0.0, [(0, 0.0)]
            for step in range(1, rng.randint(1, most_steps) + 1):
                adds = rng.randint(10, 60)
                steps.append((item, step, adds, first * adds / 60 * 0.6 ** (step - 1), group))
                cost, worth = cost + adds, worth + steps[-1][3]
                levels.append((cost, worth))
            items.append((group, levels))
        steps.sort(key=lambda step: -step[3] / step[2])
        budget = rng.randint(80, 500)
        chosen, used, everything = choose(steps, openings, budget)
        assert (chosen, used, everything) == choose(steps, openings, budget)
        at = {steps[i][0]: steps[i][1] for i in chosen}
        assert len(at) == len(chosen), "an item is shown at two fidelities"
        assert everything == (at == {item: len(levels) - 1 for item, (_, levels) in enumerate(items)})

        def total(choice: tuple[int, ...], which: int, items: Any = items) -> float:
            return float(sum(levels[step][which] for step, (_, levels) in zip(choice, items)))

        def cost_of(choice: tuple[int, ...], items: Any = items, openings: Any = openings) -> float:
            return (
                FENCE + total(choice, 0) + sum(openings[g] for g in {g for step, (g, _) in zip(choice, items) if step})
            )

        mine = tuple(at.get(item, 0) for item in range(len(items)))
        assert cost_of(mine) <= max(used, FENCE) <= max(budget, FENCE)
        every = itertools.product(*(range(len(levels)) for _, levels in items))
        best = max(total(choice, 1) for choice in every if cost_of(choice) <= budget)
        if best:
            shares.append(total(mine, 1) / best)
    assert sorted(shares)[len(shares) // 2] >= 0.99 and min(shares) >= 0.75


def test_step_up_takes_the_place_of_the_one_before_it() -> None:
    steps: Steps = [(0, 1, 20, 0.5, 1), (1, 1, 40, 0.4, 1), (0, 2, 60, 0.3, 1)]
    assert choose(steps, {1: 0}, FENCE + 120) == ([1, 2], FENCE + 120, True)
    assert choose(steps, {1: 0}, FENCE + 100) == ([0, 1], FENCE + 60, False)
    # A step up that only fits without what it stands on is none, and nothing stands on what has been pushed out.
    assert choose([(0, 1, 20, 0.1, 1), (0, 2, 60, 0.9, 1)], {1: 0}, FENCE + 60)[0] == [0]
    assert choose([(0, 1, 20, 0.1, 1), (1, 1, 90, 0.9, 1), (0, 2, 20, 0.05, 1)], {1: 0}, FENCE + 100)[0] == [1]
    # A long line worth more takes the place of short ones; one that can't fit pushes nothing out.
    lines: Steps = [(0, 1, 20, 0.1, 1), (1, 1, 300, 0.9, 1), (2, 1, 30, 0.05, 1)]
    for room, chosen in ((310, [1]), (320, [0, 1]), (60, [0, 2]), (-10, [])):
        assert choose(lines, {1: 10}, FENCE + 10 + room)[0] == chosen


@pytest.mark.parametrize("costs", [(40, 40), (40, 40, 40), (30, 40, 40), (40, 40, 60), (90, 90, 90)])
def test_renditions_of_equal_cost_remain(costs: tuple[int, ...]) -> None:
    names = ["stub", "compact", "detailed"][: len(costs)]
    reduced = [Reduced(1, name, name, cost, 0.1 + 0.2 * n) for n, (name, cost) in enumerate(zip(names, costs))]
    memory = make_candidate(1, kind=b"m", tokens=90, worth=0.8)
    made, _ = lines_of([memory], {1: Text("whole")}, {}, reduced)
    lines = [line.fidelity for line in sorted(made, key=lambda line: line.step)]
    # Where several cost the same, the one worth most remains; and the whole where it costs no more.
    kept = {cost: name for name, cost in zip(names, costs)} | {90: "full"}
    assert lines and set(lines) <= set(kept.values()) and lines[-1] == "full"
