"""Judging, merging and summaries by a language model, end to end. Whatever the provider does, what rules made stands, work is retried
or a dead letter, and what is forgotten meanwhile is not stored."""

from __future__ import annotations

import json
from typing import Any

import pytest
from calls import Db, call, persist, recalled, remember, remembered, run_job, set_settings, table
from internals import make_work_due, work
from pipeline import (
    BOAT,
    COST,
    GOOD,
    HIKES,
    KEPT,
    MERGED,
    PRICE,
    SHORT,
    STUBS,
    TOKENS,
    WAYS,
    Way,
    active_rows,
    ask,
    contents,
    costs,
    deploy,
    hikes,
    history,
    meanwhile,
    says,
    use,
)
from stubs import Answer

pytestmark = pytest.mark.extended

outside = pytest.mark.parametrize("way", [WAYS[1]], indirect=True, ids="-".join)

# Judging and merging --------------------------------------------------------------------------------------------------


def test_model_judges_what_rules_leave_open(db: Db, user: str, way: Way) -> None:
    provider, model = way
    near, close = [1, 0.1, 0, 0], [1, 0.3, 0.1, 0]  # cosine .97
    contradicts = says(judgements=[{"n": 0, "contradiction": 0.97}])
    compatible = says(judgements=[{"n": n, "contradiction": 0.2} for n in range(2)])
    persist(db, user, "s", "Hello.", "Hi.")
    with STUBS[provider](contradicts, contradicts, compatible) as stub:
        use(db, provider, stub.url)
        set_settings(db, judge="llm")
        first = remembered(db, user, "Takes the train to work.", embedding=near)
        second = remember(db, user, "Cycles to work every day.", embedding=close)
        assert second["superseded"] == second["contradicts"] == []  # rules saw nothing
        model()
        guess = remembered(db, user, "Walks to the office.", embedding=close, session="s", actor="agent")
        model()
        third = remembered(db, user, "Owns a red bicycle.", embedding=close)
        model()
    assert "train" in json.dumps(stub.requests[0]) and len(stub.requests) == 3 and work(db, "judge") == []
    # Of equal authority what was said later stands; an agent's guess does not take the person's word away.
    second = second["memory_id"]
    columns = "memory_id::text, other_id::text, judge, verdict, decision, winner_id::text"
    assert {
        (second, first, "priced judge.v1", "contradiction", "superseded", second),
        (guess, second, "priced judge.v1", "contradiction", "contradicts", None),
        (third, second, "priced judge.v1", "compatible", "none", None),
    } <= set(table(db, "list_judgements", user, columns=columns))
    assert history(db, user)["Takes the train to work."][:3] == ("superseded", "priced judge.v1", second)
    assert {row[0] for row in active_rows(db, user, "memory_id::text")} == {second, guess, third}
    assert costs(db, user)[0] == (3 * TOKENS, 3 * COST, 3 * COST)


def test_model_merges_what_rules_put_together(db: Db, user: str, way: Way) -> None:
    provider, model = way
    with STUBS[provider](says(content=MERGED, covers=[0, 1, 2])) as stub:
        use(db, provider, stub.url)
        members = hikes(db, user)
        (by_rules,) = contents(db, user)
        assert work(db, "consolidate") == [("ready", 0, None)] and all(text.rstrip(".") in by_rules for text in HIKES)
        model()
    [request] = stub.requests
    assert all(text in json.dumps(request) for text in HIKES) and by_rules not in json.dumps(request)
    assert work(db, "consolidate") == [] and costs(db, user) == [(TOKENS, COST, COST)]
    was = history(db, user)
    whole = was[MERGED][3]
    assert was[MERGED] == ("active", None, None, whole, "priced consolidate.v1")
    assert was[by_rules][:3] == ("superseded", "reworded", whole)
    assert {was[text][:3] for text in HIKES} == {("superseded", "consolidated", whole)}
    assert recalled(db, user, "hikes Brigida Zermatt") == [MERGED]
    # And back: each says what it said, and they stay apart.
    assert set(call(db, "undo_consolidation", user, whole)["restored"]) == set(members)
    run_job(db, "consolidation")
    assert contents(db, user) == set(HIKES) and work(db, "consolidate") == []


@pytest.mark.parametrize(
    ("covers", "content", "left"),
    [
        ([0, 1], "Hikes in the Alps each summer, with Brigida.", {"Hiked 40 km around Zermatt"}),
        ([], "", set(HIKES)),
    ],
)
def test_part_that_a_model_leaves_out_stands_by_itself(
    db: Db, user: str, way: Way, covers: list[int], content: str, left: set[str]
) -> None:
    provider, model = way
    with STUBS[provider](says(content=content, covers=covers)) as stub:
        use(db, provider, stub.url)
        hikes(db, user)
        model()
        run_job(db, "consolidation")
    assert contents(db, user) == left | ({content} if content else set()) and work(db, "consolidate") == []


def test_refused_merge_is_asked_for_once_more(db: Db, user: str, way: Way) -> None:
    provider, model = way
    with STUBS[provider](says(content="Hikes in the Alps each summer with Brigida.", covers=[0, 1, 2])) as stub:
        use(db, provider, stub.url)
        hikes(db, user)
        before = history(db, user)
        for tries, state in ((1, "ready"), (2, "dead"), (2, "dead")):
            model()
            [(found, attempts, error)] = work(db, "consolidate")
            assert (found, attempts, len(stub.requests)) == (state, tries, tries) and "does not say that" in error
            make_work_due(db)
        # What rules made stands; the answers are paid for.
        assert history(db, user) == before and costs(db, user) == [(2 * TOKENS, 2 * COST, 2 * COST)]
        db.execute("select memoir.retry_work(work_id) from memoir.dead_letters where kind = 'consolidate'")
        model()
        assert [row[0] for row in work(db, "consolidate")] == ["ready"]


@outside
@pytest.mark.parametrize("at", ["before", "asked", "after"])
def test_forgotten_part_is_not_merged(db: Db, user: str, memoir_dsn: str, way: Way, at: str) -> None:
    provider, model = way
    merged = says(content=MERGED, covers=[0, 1, 2])
    use(db, provider, "http://127.0.0.1:1")
    members = hikes(db, user)
    forget = "select memoir.forget(%s, %s)"
    with meanwhile(
        provider, memoir_dsn, forget if at == "asked" else "select %s, %s", [user, members[1]], merged
    ) as stub:
        use(db, provider, stub.url)
        if at == "before":
            db.execute(forget, [user, members[1]])
        model()
        if at == "after":
            db.execute(forget, [user, members[1]])
        assert len(stub.requests) == (at != "before")
    assert contents(db, user) == set(HIKES) - {"Hikes with Brigida."} and work(db, "consolidate") == []
    assert {row[0] for text, row in history(db, user).items() if "Brigida" in text} == {"forgotten"}


# Every kind -----------------------------------------------------------------------------------------------------------


def queue_every_kind(db: Db, user: str) -> None:
    set_settings(db, judge="llm")
    persist(db, user, "s", f"{BOAT}. " * 8, "Noted, the boat Brisa is in Harstad. " * 8)
    run_job(db, "extract")
    call(db, "summarize_session", user, "s")
    deploy(db, f"{user}-agent")
    ask(db, user)
    hikes(db, user)
    for content, last in (("Takes the train to work.", 0.1), ("Cycles to work every day.", 0.3)):
        remember(db, user, content, embedding=[0, 0, 1, last])


def answer_to(body: dict[str, Any]) -> Answer:
    """A good answer, by what the prompt asks for."""
    asked = json.dumps(body)
    if '\\"pairs\\"' in asked:
        return says(judgements=[{"n": n, "contradiction": 0} for n in range(asked.count('\\"n\\":'))])
    if '\\"memories\\": [' in asked and '\\"turns\\"' not in asked:
        return says(content=MERGED, covers=[0, 1, 2])
    if '\\"detailed\\": ' in asked:
        return says(**SHORT)
    if '\\"passages\\"' in asked:
        return says(answer="In Harstad.")
    summary = says(summary="- user: the boat Brisa is kept in Harstad")
    return Answer(text=GOOD.text, **PRICE) if '\\"turns\\"' in asked else summary


@pytest.mark.acceptance
def test_every_kind_gets_through_every_failure(db: Db, user: str, way: Way) -> None:
    provider, model = way
    kinds = ["answer", "extract", "judge", "consolidate", "summarise", "render"]
    stop = {"openai": "length", "anthropic": "max_tokens"}[provider]
    busy = {"retry-after": "900"}
    failures = {
        "cut off": (Answer(text='{"summary": "- us', stop=stop, **PRICE), "dead"),
        "bad answer, twice": (Answer(text='{"nothing": 1}', **PRICE), "dead"),
        "no usable answer": (Answer(raw=b"<html>502</html>"), "ready"),
        "answered 429": (Answer(status=429, headers=busy), "ready"),
        "answered 529": (Answer(status=529, headers=busy), "ready"),
        "no answer": (Answer(delay=60), "ready"),
    }
    with STUBS[provider]() as stub:
        use(db, provider, stub.url)
        queue_every_kind(db, user)
    before, summary = history(db, user), call(db, "summarize_session", user, "s")
    for error, (answer, state) in failures.items():
        with STUBS[provider](answer) as stub:
            use(db, provider, stub.url, timeout=1, retries=0)
            model()
        columns = "kind, state, last_error, run_after > now() + interval '14 min'"
        rows = [row for kind in kinds for row in work(db, kind, columns)]
        assert {(kind, found) for kind, found, *_ in rows} == {(kind, state) for kind in kinds}, (error, rows)
        assert all(error in row[2] and (row[3] or not answer.headers) for row in rows), (error, rows)
        make_work_due(db, anew=True)
    assert history(db, user) == before and call(db, "summarize_session", user, "s") == summary
    with STUBS[provider](answer_to) as stub:
        use(db, provider, stub.url)
        model()
    assert [work(db, kind) for kind in kinds] == [[]] * len(kinds)
    assert history(db, user)[MERGED][0] == "active" and KEPT in contents(db, user)
    whole = call(db, "summarize_session", user, "s")
    assert whole["made_by"] == "priced summarise.v1"
    assert whole["summary"].endswith("- user: the boat Brisa is kept in Harstad")
    assert recalled(db, user, "boat Brisa", kinds=["summary"]) == [whole["summary"]]


def test_model_words_summaries_of_every_level(db: Db, user: str, way: Way) -> None:
    provider, model = way
    call(db, "open_session", user, "s", settings={"summary_tokens": 120, "compaction_tokens": 600})
    with STUBS[provider](says(summary="- user: we sailed on")) as stub:
        use(db, provider, stub.url)
        for n in range(24):
            said = f"In week {n} we sailed to harbour {n} and it took {n + 3} hours. " * 4
            persist(db, user, "s", said, f"Week {n} is noted, harbour {n} as well. " * 4)
        call(db, "compact_session", user, "s", 0)
        call(db, "summarize_session", user, "s")
        model()
        assert work(db, "summarise") == []
    rows = table(db, "list_compactions", user, "s", columns="level, made_by, counts, undone_at")
    levels = {level: made_by for level, made_by, counts, undone in rows if counts or level == 0 and undone is None}
    assert 0 in levels and max(levels) > 1 and set(levels.values()) == {"priced summarise.v1"}, rows
    # What is summed up already is given as it was summed up.
    assert any('\\"who\\": \\"summary\\"' in json.dumps(request) for request in stub.requests)
