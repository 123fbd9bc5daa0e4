"""Packing: what is worth most within a budget, against the exact optimum; and at which length each thing is shown."""

import itertools
import json
import random
from typing import Any

import psycopg
import pytest
from calls import CALL, Db, call, messages, one, persist, remembered, say, store, table
from psycopg.types.json import Jsonb

FENCE = 22
Steps = list[tuple[int, int, int, float, int]]


def choose(db: Db, steps: Steps, openings: dict[int, int], budget: int) -> tuple[list[int], int, bool]:
    """Chooses of steps (item, which step up, cost and worth that it adds, group): their places in the list; how many tokens
    it thinks they take; whether there was nothing more to choose."""
    names = ("candidate_no", "step", "cost", "worth", "group_no", "opening")
    lines = [dict(zip(names, (item + 1, *more, openings[more[-1]]))) for item, *more in steps]
    chosen = "_memoir.choose(array(select l from jsonb_populate_recordset(null::_memoir.recall_line, %s) l), %s)"
    row = db.execute(f"select chosen, used, everything from {chosen}", [Jsonb(lines), budget]).fetchone()
    return [place - 1 for place in row[0]], row[1], row[2]


@pytest.mark.parametrize("most_steps", [1, 3])
def test_choice_is_near_the_best_there_is(db: Db, most_steps: int) -> None:
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
        chosen, used, everything = choose(db, steps, openings, budget)
        assert (chosen, used, everything) == choose(db, steps, openings, budget)
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


def test_step_up_takes_the_place_of_the_one_before_it(db: Db) -> None:
    steps: Steps = [(0, 1, 20, 0.5, 1), (1, 1, 40, 0.4, 1), (0, 2, 60, 0.3, 1)]
    assert choose(db, steps, {1: 0}, FENCE + 120) == ([1, 2], FENCE + 120, True)
    assert choose(db, steps, {1: 0}, FENCE + 100) == ([0, 1], FENCE + 60, False)
    # A step up that only fits without what it stands on is none, and nothing stands on what has been pushed out.
    assert choose(db, [(0, 1, 20, 0.1, 1), (0, 2, 60, 0.9, 1)], {1: 0}, FENCE + 60)[0] == [0]
    assert choose(db, [(0, 1, 20, 0.1, 1), (1, 1, 90, 0.9, 1), (0, 2, 20, 0.05, 1)], {1: 0}, FENCE + 100)[0] == [1]
    # A long line worth more takes the place of short ones; one that can't fit pushes nothing out.
    lines: Steps = [(0, 1, 20, 0.1, 1), (1, 1, 300, 0.9, 1), (2, 1, 30, 0.05, 1)]
    for room, chosen in ((310, [1]), (320, [0, 1]), (60, [0, 2]), (-10, [])):
        assert choose(db, lines, {1: 10}, FENCE + 10 + room)[0] == chosen


def test_budgets_as_large_as_there_are(db: Db, user: str) -> None:
    largest = 2**31 - 1
    persist(db, user, "old", "I moved to Lisbon in May.")
    for budget, memory_budget in ((largest, largest), (largest, None), (None, largest)):
        sizes = {"budget": budget, "memory_budget": memory_budget}
        made = call(db, "compile_context", user, "new", "Where in Lisbon did I move?", **sizes)
        assert "I moved to Lisbon" in made[-1]["content"]
    call(db, "compile_context", user, "old", "And then?", budget=largest)


def compile_recall(
    db: Db, user: str, query: str, budget: int, session: str = "new"
) -> tuple[str, list[dict[str, Any]]]:
    """The recall of a compile, after checking that two are alike and within the budget; and what explains it."""
    context = call(db, "context", user, session, query, memory_budget=budget)
    content = context["messages"][-1]["content"]
    assert context["recall_tokens"] <= budget
    assert content == call(db, "compile_context", user, session, query, memory_budget=budget)[-1]["content"]
    columns = "to_jsonb(explain_context)"
    rows = [row for (row,) in table(db, "explain_context", user, session, query, memory_budget=budget, columns=columns)]
    rows = [row for row in rows if row["arms"] != ["recent"]]
    assert all((row["fidelity"] is None) == (row["position"] is None) == (row["reason"] is not None) for row in rows)
    return content.removesuffix(query), rows


PARAGRAPH = ("The kiln in the garden shed needs new bricks before the winter sets in. {fact} After that we talked about glazes at great length, "
             "about ash and iron and copper and tin. Nobody could say which of them would hold on a wet shelf, and it grew late.")  # fmt: skip


def test_long_turn_becomes_an_excerpt(db: Db, user: str) -> None:
    facts = [f"My neighbour number {n} keeps {n + 3} tortoises in a bathtub." for n in range(6)]
    say(db, user, "old", *(PARAGRAPH.format(fact=fact) for fact in facts))
    query = "How many tortoises does a neighbour keep in the bathtub?"
    fidelities: dict[int, set[str]] = {}
    for budget in (40, 100, 200, 450, 800):
        recall, rows = compile_recall(db, user, query, budget)
        shown_turns = [row for row in rows if row["fidelity"] and row["kind"] == "turn"]
        fidelities[budget] = {row["fidelity"] for row in shown_turns}
        for turn, fidelity in [(row["turn_index"], row["fidelity"]) for row in shown_turns]:
            whole = table(db, "history", user, "old", turn, turn)[0][0]["content"]
            assert (whole in recall) == (fidelity == "full")
            # What the model is shown says where the rest is.
            assert fidelity == "full" or f"… {facts[turn // 2]} … #{turn}" in recall
    assert "excerpt" in fidelities[100] | fidelities[200] and fidelities[800] == {"full"}
    call(db, "set_user_settings", user, {"fidelity_worth": {"excerpt": 0}})
    assert "excerpt" not in {row["fidelity"] for row in compile_recall(db, user, query, 200)[1]}


@pytest.mark.parametrize("ceiling", [0, 1, 2, 3, 4])
def test_memory_is_shown_as_its_session_allows(db: Db, user: str, ceiling: int) -> None:
    said = "The harbour plan of step {0} moves the crane by {0} metres towards the old lighthouse."
    content = " ".join(said.format(n) for n in range(4))
    memory = remembered(db, user, content)
    call(db, "open_session", user, "new")
    texts = {
        1: "The harbour plan moves the crane in four steps towards the lighthouse.",
        2: "Harbour plan: crane to lighthouse.",
        3: "a plan about the harbour",
    }
    own = "select s.user_id, s.session_id from _memoir.sessions s join _memoir.users u using (user_id) where u.external_id = %s"
    user_id, session_id = db.execute(own, [user]).fetchone()
    for fidelity, text in texts.items():
        rendition = "values (%s, %s, %s, %s, %s, 'estimate', '[]', '[]', '[]', '[]', 'test', now())"
        row = [user_id, memory, fidelity, text, 4 + len(text) // 4]
        db.execute(f"insert into _memoir.memory_renditions {rendition}", row)
    objects = (
        "insert into _memoir.session_objects (user_id, session_id, memory_id, fidelity_ceiling) values (%s, %s, %s, %s)"
    )
    db.execute(objects, [user_id, session_id, memory, ceiling])
    query, names, seen = "Where does the harbour plan move the crane?", ["full", "detailed", "compact", "stub"], set()
    for budget in (70, 85, 100, 140, 400):
        recall, (row,) = compile_recall(db, user, query, budget)
        seen.add(row["fidelity"])
        if row["fidelity"] in names[1:]:
            assert texts[names.index(row["fidelity"])] in recall and f"{row['fidelity']} of memory {memory}" in recall
        assert (content in recall) == (row["fidelity"] == "full")
    assert seen - {None} <= set(names[ceiling:])
    assert row["fidelity"] == (names[ceiling] if ceiling < 4 else None), "with room enough the highest that is allowed"
    assert ceiling < 4 or row["reason"] == "evicted from the session"
    assert [row["fidelity"] for row in compile_recall(db, user, query, 400, "another")[1]] == ["full"]
    if ceiling == 3:
        # Without a rendition there is still its beginning; what is pinned is shown whole.
        db.execute("delete from _memoir.memory_renditions where user_id = %s", [user_id])
        recall, (row,) = compile_recall(db, user, query, 400)
        assert row["fidelity"] == "stub" and said.format(0)[:30] in recall and "step 3" not in recall
        call(db, "pin", user, "new", memory)
        assert content in compile_recall(db, user, query, 400)[0]


@pytest.mark.parametrize("costs", [(40, 40), (40, 40, 40), (30, 40, 40), (40, 40, 60), (90, 90, 90)])
def test_renditions_of_equal_cost_remain(db: Db, costs: tuple[int, ...]) -> None:
    names = ["stub", "compact", "detailed"][: len(costs)]
    reduced = [
        {"item_no": 1, "fidelity": name, "body": name, "tokens": cost, "share": 0.1 + 0.2 * n}
        for n, (name, cost) in enumerate(zip(names, costs))
    ]
    candidate = {"item_no": 1, "kind": "m", "tokens": 90, "worth": 0.8, "said_at": "2026-01-01", "memory_parts": {}}
    lines = one(
        db,
        """select array(select l.fidelity from unnest(r.lines) l order by l.step) from (select (_memoir.recall_lines(
          array[jsonb_populate_record(null::_memoir.candidate, %s)], array[(1, null, 'whole')::_memoir.item_text], null,
          array(select jsonb_populate_recordset(null::_memoir.reduced_text, %s)))).lines) r""",
        Jsonb(candidate),
        Jsonb(reduced),
    )
    # Of those that cost the same, none but the one worth most; and the whole where it costs no more.
    kept = {cost: name for name, cost in zip(names, costs)} | {90: "full"}
    assert lines and set(lines) <= set(kept.values()) and lines[-1] == "full"


def test_what_is_said_twice_is_shown_once(db: Db, user: str) -> None:
    said = "My tortoise Agatha sleeps in the bathtub"
    for session, end in (("one", "!"), ("two", "."), ("three", "!")):
        persist(db, user, session, said + end)
    remembered(db, user, said.upper())
    recall, rows = compile_recall(db, user, "Where does Agatha the tortoise sleep?", 500)
    assert recall.lower().count(said.lower()) == 1 and len(rows) >= 3
    assert {row["reason"] for row in rows if row["position"] is None} <= {"a copy of another candidate"}


def test_needed_budget_is_enough_and_a_token_less_is_not(db: Db, user: str) -> None:
    """A short tool result is not made longer to fit."""
    calls = [CALL, CALL | {"id": "call_2"}]
    results = [
        {"role": "tool", "tool_call_id": f"call_{n}", "content": text} for n, text in ((1, "three mugs"), (2, ""))
    ]
    sent = messages("Look.", {"role": "assistant", "content": None, "tool_calls": calls}, *results)
    store(db, user, "s", sent, "append_messages")

    def compile_within(budget: int) -> dict[str, Any]:
        return dict(call(db, "context", user, "s", budget=budget, memory_budget=0))

    with pytest.raises(psycopg.Error) as caught:
        compile_within(25)
    needed = json.loads(caught.value.diag.message_detail)["needed"]
    context = compile_within(needed)
    assert context["tokens"] == needed and [m["content"] for m in context["messages"]][-2:] == ["three mugs", ""]
    with pytest.raises(psycopg.Error, match=f"needs a budget of {needed} tokens"):
        compile_within(needed - 1)
