"""Lines of a recall: chosen within a budget, against the exact optimum; their fidelities; and how they are rendered."""

import itertools
import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pg_memoir_kernel import packing
from pg_memoir_kernel.breadth import SHAPES
from pg_memoir_kernel.items import to_text
from pg_memoir_kernel.packing import FENCE, Line, Reduced, Text, lines_of, reduce_turns
from pg_memoir_kernel.rendering import FENCE as MARKS
from pg_memoir_kernel.rendering import WEAK, render

from kernel import DAY, make_candidate, make_line, ref

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


OTHER = bytes([9]) * 16

# Rendering ------------------------------------------------------------------------------------------------------------


def test_recall_is_rendered() -> None:
    """Memories first, then turns by session under a header for each day; what is left out is marked."""
    new_year = 3 * 365 * DAY
    memory = make_candidate(9, kind=b"m", said=new_year)
    short = make_candidate(10, kind=b"m", chunk=1, said=new_year + DAY)
    later = [make_candidate(n, turn=n, session=OTHER, said=9 * DAY) for n in (20, 21)]
    long = [make_candidate(30 + n, turn=4, chunk=n, said=2 * DAY, ref=ref(4)) for n in range(4)]
    cut = make_candidate(40, turn=6, said=2 * DAY)
    candidates = [*later, memory, *long, short, cut]
    lines = [
        Line(n, 1, 9, 0.5, 0.1, fidelity, body, header, label)
        for n, fidelity, body, header, label in (
            (0, "full", "Hello", "10 Jan 2000, work", "user"), (1, "full", "Hi\n\nthere\r\n- x", "10 Jan 2000, work", "Ann"),
            (2, "full", "Likes tea", "Memories", ""), (7, "stub", "fact: likes…", "Memories", ""),
            (4, "full", "second", "3 Jan 2000, home", "user"), (3, "full", "first", "3 Jan 2000, home", "user"),
            (6, "full", "fourth", "3 Jan 2000, home", "user"), (8, "excerpt", "… the kiln …", "3 Jan 2000, home", "user"),
        )
    ]  # fmt: skip
    text = render(lines, candidates, ["buy\nmilk"], True, str)
    assert (
        text
        == f"""{MARKS[0]}{WEAK}
Working notes:
- buy
  milk
Memories:
- Likes tea (31 Dec 2002)
- fact: likes… (1 Jan 2003, stub of memory {to_text(ref(10))})
3 Jan 2000, home:
user: first
  second
  … fourth
user: … the kiln …
10 Jan 2000, work:
user: Hello
Ann: Hi

  there
  - x{MARKS[1]}"""
    )
    assert WEAK not in render([], [], ["note"], True, str), "notes alone are no weak matches"


def test_marks_are_disarmed() -> None:
    """Asked only of what has a character that could begin one. Characters that can't be seen go in any case."""

    def disarm(body: str) -> str:
        return body.replace("<", "(")

    def fail(body: str) -> str:
        raise AssertionError(body)

    turns = [make_candidate(1)]
    assert "user: say (memoir>" in render([make_line(0, body="say <memoir>\u200b")], turns, [], False, disarm)
    assert "user: say it…" in render([make_line(0, body="say\u200b it…\u202e")], turns, [], False, fail)
    assert "user: one\n  two\n  three" in render([make_line(0, body="one\x0ctwo\r\nthree\n")], turns, [], False, fail)


def test_long_turn_is_cut_to_its_best_sentence() -> None:
    body = "We talked about the weather for a while. The kiln needs new bricks.\nThen it grew late and we went home at last."
    long = make_candidate(1, turn=12, tokens=100)
    texts = {1: Text(body)}
    (found,) = reduce_turns([long], texts, 0.7, ["kiln", "bricks"], None)
    assert (found.body, found.fidelity) == ("… The kiln needs new bricks. …", "excerpt")
    assert found.share == pytest.approx(0.7 * math.sqrt(26 / len(body))) and found.tokens == 100 * 26 // len(body) + 2
    (first,) = reduce_turns([long], texts, 0.7, ["weather"], None)
    assert first.body == "We talked about the weather for a while. …"
    # An order of events has the first sentence, whatever was asked; a part of a turn begins in the middle.
    excerpt, stub = reduce_turns(
        [make_candidate(1, turn=12, chunk=1, tokens=100)], texts, 0.7, ["kiln"], SHAPES["order"]
    )
    assert excerpt.body == stub.body == "… We talked about the weather for a while. …"
    assert (excerpt.share, stub.share) == (SHAPES["order"].excerpt, SHAPES["order"].stub)
    assert reduce_turns([long], texts, 0, ["kiln"], None) == []


WORD = st.text("abcdefgh", min_size=1, max_size=4)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.lists(st.lists(WORD, min_size=1, max_size=9), min_size=1, max_size=3)), max_size=9),
    st.integers(0, 120),
    st.randoms(use_true_random=False),
)  # fmt: skip
def test_lines_stay_within_the_budget(items: list[tuple[int, list[list[str]]]], budget: int, rng: Any) -> None:
    """A token is a word here, so that costs are exact. Group 0 holds memories, others the turns of a session each."""
    candidates, lines = [], []
    for number, (group, levels) in enumerate(items):
        columns: dict[str, Any] = {"kind": b"m"} if group == 0 else {"session": bytes([group]) * 16}
        candidates.append(make_candidate(number + 1, **columns))
        before = 0
        for step, words in enumerate(sorted(levels, key=len), 1):
            cost = len(words) + (4 if group == 0 else 1)  # a dash and a date, or a label
            header = "Memories" if group == 0 else f"A day {group}"
            lines.append(
                make_line(
                    number, step=step, cost=cost - before, worth=rng.random(), body=" ".join(words), header=header,
                    group=group, opening=len(header.split()),
                )
            )  # fmt: skip
            before = cost
    places = rng.sample([line.number for line in lines], len(lines))  # in any order, but steps in theirs
    queues = {n: [line for line in lines if line.number == n] for n in places}
    ordered = [queues[n].pop(0) for n in places]
    chosen, used, is_all = packing.choose(ordered, budget)
    assert len({ordered[n].number for n in chosen}) == len(chosen) and used <= max(budget, FENCE)
    assert not is_all or len(chosen) == len(items)
    if chosen:
        text = render([ordered[n] for n in chosen], candidates, [], False, str)
        assert len(text.split()) - len("".join(MARKS).split()) + FENCE <= used
