"""Packing: what is worth most within a budget, against the exact optimum."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

FENCE = 22


def choose(
    db: psycopg.Connection, lines: list[tuple[int, float, int]], openings: dict[int, int], budget: int
) -> tuple[list[int], int]:
    """What is chosen of lines (cost, worth, group), by place in the list, and how many tokens it thinks they take."""
    chosen, used, _ = stepped(db, [(place, 1, *line) for place, line in enumerate(lines)], openings, budget)
    return chosen, used


def stepped(
    db: psycopg.Connection, steps: list[tuple[int, int, int, float, int]], openings: dict[int, int], budget: int
) -> tuple[list[int], int, bool]:
    """The same for steps (item, which step up, cost and worth that it adds, group), and whether there was nothing more to choose."""
    lines = [
        {
            "candidate_no": item + 1,
            "step": step,
            "cost": cost,
            "worth": worth,
            "group_no": group,
            "opening": openings[group],
        }
        for item, step, cost, worth, group in steps
    ]
    row = db.execute(
        "select chosen, used, everything from _memoir.choose(array(select l from jsonb_populate_recordset(null::_memoir.recall_line, %s) l), %s)",
        [psycopg.types.json.Jsonb(lines), budget],
    ).fetchone()
    return [place - 1 for place in row[0]], row[1], row[2]


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
        best = max(
            sum(lines[i][1] for i in some)
            for size in range(len(lines) + 1)
            for some in itertools.combinations(range(len(lines)), size)
            if spent(lines, openings, some) <= budget
        )
        if best:
            shares.append(sum(lines[i][1] for i in chosen) / best)
    assert sorted(shares)[len(shares) // 2] >= 0.99
    assert min(shares) >= 0.75  # a handful of lines that fill the budget: the worst of cases


def test_choice_of_fidelities_is_near_the_best_there_is(db: psycopg.Connection) -> None:
    """Items of up to three fidelities, each dearer than the one before it and worth less for what it adds; one of each at most."""
    rng = random.Random(7)
    shares = []
    for _ in range(60):
        openings = {g: rng.randint(5, 20) for g in (1, 2)}
        steps, items = [], []
        for item in range(6):
            group, cost, worth, levels = rng.choice((1, 2)), 0, 0.0, []
            first = rng.random() ** 3
            for step in range(1, rng.randint(1, 3) + 1):
                adds = rng.randint(10, 60)
                steps.append((item, step, adds, first * adds / 60 * 0.6 ** (step - 1), group))
                cost, worth = cost + adds, worth + steps[-1][3]
                levels.append((cost, worth))
            items.append((group, levels))
        steps.sort(key=lambda step: -step[3] / step[2])
        budget = rng.randint(80, 500)
        chosen, used, everything = stepped(db, steps, openings, budget)
        assert (chosen, used, everything) == stepped(db, steps, openings, budget)
        at = {steps[i][0]: steps[i][1] for i in chosen}
        assert len(at) == len(chosen), "an item is shown at two fidelities"
        assert everything == (at == {item: len(levels) for item, (_, levels) in enumerate(items)})

        def total(choice: tuple[int, ...], which: int, items: list[Any] = items) -> float:
            return sum(levels[step - 1][which] for step, (_, levels) in zip(choice, items, strict=True) if step)

        def takes(choice: tuple[int, ...], items: list[Any] = items, openings: dict[int, int] = openings) -> float:
            return (
                FENCE
                + total(choice, 0)
                + sum(openings[g] for g in {g for step, (g, _) in zip(choice, items, strict=True) if step})
            )

        mine = tuple(at.get(item, 0) for item in range(len(items)))
        assert takes(mine) <= max(used, FENCE) <= max(budget, FENCE)
        best = max(
            total(choice, 1)
            for choice in itertools.product(*(range(len(levels) + 1) for _, levels in items))
            if takes(choice) <= budget
        )
        if best:
            shares.append(total(mine, 1) / best)
    assert sorted(shares)[len(shares) // 2] >= 0.99
    assert min(shares) >= 0.75


def test_a_step_up_takes_the_place_of_the_one_before_it(db: psycopg.Connection) -> None:
    steps = [(0, 1, 20, 0.5, 1), (1, 1, 40, 0.4, 1), (0, 2, 60, 0.3, 1)]
    assert stepped(db, steps, {1: 0}, FENCE + 120) == ([1, 2], FENCE + 120, True)
    assert stepped(db, steps, {1: 0}, FENCE + 100) == ([0, 1], FENCE + 60, False)
    # A step up that only fits without what it stands on is none, and nothing stands on what has been pushed out.
    assert stepped(db, [(0, 1, 20, 0.1, 1), (0, 2, 60, 0.9, 1)], {1: 0}, FENCE + 60)[0] == [0]
    assert stepped(db, [(0, 1, 20, 0.1, 1), (1, 1, 90, 0.9, 1), (0, 2, 20, 0.05, 1)], {1: 0}, FENCE + 100)[0] == [1]


def test_a_long_line_worth_more_takes_the_place_of_short_ones(db: psycopg.Connection) -> None:
    lines = [(20, 0.1, 1), (300, 0.9, 1), (30, 0.05, 1)]
    assert choose(db, lines, {1: 10}, FENCE + 10 + 310) == ([1], FENCE + 10 + 300)
    assert choose(db, lines, {1: 10}, FENCE + 10 + 320)[0] == [0, 1]
    assert choose(db, lines, {1: 10}, FENCE + 10 + 60)[0] == [0, 2]  # one that can't fit pushes nothing out
    assert choose(db, lines, {1: 10}, FENCE)[0] == []


def test_worth_follows_the_score(db: psycopg.Connection) -> None:
    worths = [
        row[0]
        for row in db.execute("select _memoir.worth(s::real) from unnest('{-1,0,0.05,0.3,0.5,0.9,1,7}'::float8[]) s")
    ]
    assert worths == sorted(worths) and 0 < worths[0] and worths[-1] <= 1
    assert worths[4] == 0.5 and worths[3] < 0.3 < 0.9 < worths[5]


def test_budgets_as_large_as_there_are(db: psycopg.Connection, user: str) -> None:
    largest = 2**31 - 1
    db.execute(
        "select memoir.persist_turn(%s, 'old', %s)",
        [user, psycopg.types.json.Jsonb([{"role": "user", "content": "I moved to Lisbon in May."}])],
    )
    for budget, memory_budget in ((largest, largest), (largest, None), (None, largest)):
        (messages,) = db.execute(
            "select memoir.compile_context(%s, 'new', 'Where in Lisbon did I move?', p_budget => %s, p_memory_budget => %s)",
            [user, budget, memory_budget],
        ).fetchone()
        assert "I moved to Lisbon" in messages[-1]["content"]
    db.execute("select memoir.compile_context(%s, 'old', 'And then?', p_budget => %s)", [user, largest])


def shown(
    db: psycopg.Connection, user: str, query: str, budget: int, session: str = "new"
) -> tuple[str, list[dict[str, Any]]]:
    """The recall of a compile, after checking that two are alike and within the budget; and what explains it."""
    arguments = {"user": user, "session": session, "query": query, "budget": budget}
    call = "(p_user => %(user)s, p_session => %(session)s, p_query => %(query)s, p_memory_budget => %(budget)s)"
    (context,) = db.execute(f"select memoir.context{call}", arguments).fetchone()
    assert context["recall_tokens"] <= budget
    content = context["messages"][-1]["content"]
    assert content == db.execute(f"select memoir.compile_context{call} -> -1 ->> 'content'", arguments).fetchone()[0]
    cursor = db.execute(f"select * from memoir.explain_context{call}", arguments)
    rows = [dict(zip([column.name for column in cursor.description], row, strict=True)) for row in cursor.fetchall()]
    rows = [row for row in rows if row["arms"] != ["recent"]]
    assert all((row["fidelity"] is None) == (row["position"] is None) == (row["reason"] is not None) for row in rows)
    return content.removesuffix(query), rows


PARAGRAPH = ("The kiln in the garden shed needs new bricks before the winter sets in. {fact} After that we talked about glazes at great length, "
             "about ash and iron and copper and tin. Nobody could say which of them would hold on a wet shelf, and it grew late.")  # fmt: skip


def test_long_turn_becomes_an_excerpt(db: psycopg.Connection, user: str) -> None:
    facts = [f"My neighbour number {n} keeps {n + 3} tortoises in a bathtub." for n in range(6)]
    turns = [
        {"role": role, "content": text}
        for fact in facts
        for role, text in (("user", PARAGRAPH.format(fact=fact)), ("assistant", "I see."))
    ]
    db.execute("select memoir.persist_turn(%s, 'old', %s)", [user, psycopg.types.json.Jsonb(turns)])
    fidelities = set()
    for budget in (40, 70, 100, 140, 200, 300, 450, 800):
        recall, rows = shown(db, user, "How many tortoises does a neighbour keep in the bathtub?", budget)
        for row in (row for row in rows if row["fidelity"] and row["kind"] == "turn"):
            fidelities.add((budget, row["fidelity"]))
            (whole,) = db.execute(
                "select h ->> 'content' from memoir.history(%s, 'old', %s, %s) h",
                [user, row["turn_index"], row["turn_index"]],
            ).fetchone()
            if row["fidelity"] == "excerpt":
                # What the model is shown says where the rest is.
                assert f"… {facts[row['turn_index'] // 2]} … #{row['turn_index']}" in recall
                assert recall.count(whole) == 0
            else:
                assert row["fidelity"] == "full" and whole in recall
    assert "excerpt" in {fidelity for budget, fidelity in fidelities if budget <= 200}
    assert {fidelity for budget, fidelity in fidelities if budget == 800} == {"full"}
    db.execute(
        "select memoir.set_user_settings(%s, %s)", [user, psycopg.types.json.Jsonb({"fidelity_worth": {"excerpt": 0}})]
    )
    assert "excerpt" not in {
        row["fidelity"]
        for budget in (70, 140, 200)
        for row in shown(db, user, "How many tortoises does a neighbour keep in the bathtub?", budget)[1]
    }


@pytest.mark.parametrize("ceiling", [0, 1, 2, 3, 4])
def test_a_memory_is_shown_as_its_session_allows(db: psycopg.Connection, user: str, ceiling: int) -> None:
    content = " ".join(
        f"The harbour plan of step {n} moves the crane by {n} metres towards the old lighthouse." for n in range(4)
    )
    (memory,) = db.execute("select (memoir.remember(%s, %s) ->> 'memory_id')::uuid", [user, content]).fetchone()
    db.execute("select memoir.open_session(%s, 'new')", [user])
    user_id, session_id = db.execute(
        "select user_id, session_id from _memoir.sessions where user_id = (select user_id from _memoir.users where external_id = %s)",
        [user],
    ).fetchone()
    texts = {
        1: "The harbour plan moves the crane in four steps towards the lighthouse.",
        2: "Harbour plan: crane to lighthouse.",
        3: "a plan about the harbour",
    }
    for fidelity, text in texts.items():
        db.execute(
            "insert into _memoir.memory_renditions values (%s, %s, %s, %s, %s, 'estimate', '[]', '[]', '[]', '[]', 'test', now())",
            [user_id, memory, fidelity, text, 4 + len(text) // 4],
        )
    db.execute(
        "insert into _memoir.session_objects (user_id, session_id, memory_id, fidelity_ceiling) values (%s, %s, %s, %s)",
        [user_id, session_id, memory, ceiling],
    )
    query = "Where does the harbour plan move the crane?"
    names = ["full", "detailed", "compact", "stub"]
    seen = set()
    for budget in (70, 85, 100, 140, 400):
        recall, rows = shown(db, user, query, budget)
        (row,) = rows
        seen.add(row["fidelity"])
        if row["fidelity"] == "full":
            assert content in recall and str(memory) not in recall
        elif row["fidelity"]:
            assert (
                texts[names.index(row["fidelity"])] in recall
                and f"{row['fidelity']} of memory {memory}" in recall
                and content not in recall
            )
        elif ceiling == 4:
            assert row["reason"] == "evicted from the session"
    assert seen - {None} <= set(names[ceiling:])
    assert (row["fidelity"] == names[ceiling]) if ceiling < 4 else seen == {None}, (
        "with room enough it is the highest that is allowed"
    )
    assert [row["fidelity"] for row in shown(db, user, query, 400, "another")[1]] == ["full"]
    if ceiling == 3:
        # Without a rendition there is still its beginning; what is pinned is shown whole.
        db.execute("delete from _memoir.memory_renditions where user_id = %s", [user_id])
        recall, rows = shown(db, user, query, 400)
        assert (
            [row["fidelity"] for row in rows] == ["stub"]
            and "The harbour plan of step 0" in recall
            and "step 3" not in recall
        )
        db.execute("update _memoir.session_objects set pinned_until_turn = 100 where user_id = %s", [user_id])
        assert content in shown(db, user, query, 400)[0]


@pytest.mark.parametrize("costs", [(40, 40), (40, 40, 40), (30, 40, 40), (40, 40, 60), (90, 90), (90, 90, 90)])
def test_renditions_of_equal_cost_remain(db: psycopg.Connection, costs: tuple[int, ...]) -> None:
    names = ["stub", "compact", "detailed"][: len(costs)]
    reduced = [
        {"item_no": 1, "fidelity": name, "body": name, "tokens": cost, "share": 0.1 + 0.2 * n}
        for n, (name, cost) in enumerate(zip(names, costs))
    ]
    candidate = {"item_no": 1, "kind": "m", "tokens": 90, "worth": 0.8, "said_at": "2026-01-01", "memory_parts": {}}
    lines = db.execute(
        """select array(select l.fidelity from unnest(r.lines) l order by l.step) from (select (_memoir.recall_lines(
          array[jsonb_populate_record(null::_memoir.candidate, %s)], array[(1, null, 'whole')::_memoir.item_text], null,
          array(select jsonb_populate_recordset(null::_memoir.reduced_text, %s)))).lines) r""",
        [Jsonb(candidate), Jsonb(reduced)],
    ).fetchone()[0]
    assert lines, "the memory has no line at all"
    # Of those that cost the same, none but the one worth most; and the whole where it costs no more.
    kept = {cost: name for name, cost in zip(names, costs)} | {90: "full"}
    assert set(lines) <= set(kept.values()) and lines[-1] == "full"


def test_the_rest_of_a_short_turn_gains_from_its_best_part(db: psycopg.Connection) -> None:
    def worths(parts: list[tuple[str, int, int, float]], rest: float = 0.3) -> list[float]:
        rows = [{"kind": "t", "ref_id": f"00000000-0000-0000-0000-{int(ref):012}", "chunk": chunk, "span_start": start, "span_length": 400, "tokens": 100, "score": score}
                for ref, chunk, start, score in parts]  # fmt: skip
        config = {"relevance_floor": 0, "relevance_share": 0, "relevance_repeats": 1, "fidelity_worth": {"rest": rest}}
        found = db.execute("""select c.ref_id::text, c.chunk, c.worth from unnest(_memoir.value_candidates(
            array(select r from jsonb_populate_recordset(null::_memoir.ranked_item, %s) r), null, '{}', '{}', '{}', '{}', %s, null, now(), null, 0, 0, 0)) c""",
            [psycopg.types.json.Jsonb(rows), psycopg.types.json.Jsonb(config)]).fetchall()  # fmt: skip
        worth = {(int(ref[-12:]), chunk): value for ref, chunk, value in found}
        return [worth[int(ref), chunk] for ref, chunk, _, _ in parts]

    alone = worths([("1", 0, 1, 0.9), ("2", 0, 1, 0.1)])
    assert worths([("1", 0, 1, 0.9), ("1", 1, 401, 0.1)]) == [alone[0], alone[0] * 0.3]
    longer = worths([("1", 0, 1, 0.9), ("1", 5, 2001, 0.1)])
    assert longer[0] == alone[0] and alone[1] < longer[1] < alone[0] * 0.3 / 4
    assert worths([("1", 0, 1, 0.9), ("1", 1, 401, 0.1)], 0) == alone


def test_what_is_said_twice_is_shown_once(db: psycopg.Connection, user: str) -> None:
    said = "My tortoise Agatha sleeps in the bathtub"
    for session in ("one", "two", "three"):
        db.execute(
            "select memoir.persist_turn(%s, %s, %s)",
            [
                user,
                session,
                psycopg.types.json.Jsonb([{"role": "user", "content": said + ("." if session == "two" else "!")}]),
            ],
        )
    db.execute("select memoir.remember(%s, %s)", [user, said.upper()])
    recall, rows = shown(db, user, "Where does Agatha the tortoise sleep?", 500)
    assert recall.lower().count(said.lower()) == 1
    assert {row["reason"] for row in rows if row["position"] is None} <= {"a copy of another candidate"} and len(
        rows
    ) >= 3


def test_a_short_tool_result_is_not_made_longer_to_fit(db: psycopg.Connection, user: str) -> None:
    """What is said to be needed is enough, and a token less is not."""
    calls = [{"id": f"call_{n}", "type": "function", "function": {"name": "look", "arguments": "{}"}} for n in (1, 2)]
    db.execute(
        "select memoir.append_messages(%s, 's', %s)",
        [
            user,
            psycopg.types.json.Jsonb(
                [
                    {"role": "user", "content": "Look."},
                    {"role": "assistant", "content": None, "tool_calls": calls},
                    {"role": "tool", "tool_call_id": "call_1", "content": "three mugs"},
                    {"role": "tool", "tool_call_id": "call_2", "content": ""},
                ]
            ),
        ],
    )
    compiled = "select memoir.context(%s, 's', p_budget => %s, p_memory_budget => 0)"
    with pytest.raises(psycopg.Error) as caught:
        db.execute(compiled, [user, 25])
    needed = json.loads(caught.value.diag.message_detail)["needed"]
    (context,) = db.execute(compiled, [user, needed]).fetchone()
    assert context["tokens"] == needed and [m["content"] for m in context["messages"]][-2:] == ["three mugs", ""]
    with pytest.raises(psycopg.Error, match=f"needs a budget of {needed} tokens"):
        db.execute(compiled, [user, needed - 1])


def test_more_of_long_turns_are_considered(db: psycopg.Connection) -> None:
    """Words, items, memories: as many as set for short texts and for memories, up to twice as many for long turns."""
    found = [
        db.execute(
            "select _memoir.candidate_limit(240, 2000, jsonb_populate_record(null::_memoir.user_counters, jsonb_build_object('total_words', %s, 'items', %s, 'memories', %s)))",
            counts,
        ).fetchone()[0]
        for counts in ((0, 0, 0), (1500, 100, 0), (2700, 100, 0), (9000, 100, 0), (2700, 100, 100), (2700, 100, 50))
    ]
    assert found == [240, 240, 360, 480, 240, 300]
    assert db.execute("select _memoir.candidate_limit(240, 2000, null)").fetchone()[0] == 240
    assert [
        db.execute("select _memoir.candidate_limit(%s, %s, null)", pair).fetchone()[0]
        for pair in ((240, 2000), (240, 1000), (240, 16), (500, 9000), (40, 2000))
    ] == [240, 150, 61, 500, 40]
