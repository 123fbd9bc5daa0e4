"""Packing: at which length each thing is shown within a budget. tests/unit/test_kernel_packing.py has the choice itself."""

import json
from typing import Any

import psycopg
import pytest
from calls import CALL, Db, call, messages, persist, remembered, say, store, table


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
            # What the model is shown says that there is more.
            assert fidelity == "full" or f"… {facts[turn // 2]} …" in recall
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
    columns = "user_id, session_id, memory_id, fidelity_ceiling"
    objects = f"insert into _memoir.session_objects ({columns}) values (%s, %s, %s, %s)"
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
    texts = ((1, "three mugs"), (2, ""))
    results = [{"role": "tool", "tool_call_id": f"call_{n}", "content": text} for n, text in texts]
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
