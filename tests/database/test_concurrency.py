"""Writers, readers and maintenance at the same time, each on a connection of its own: nothing is lost, doubled or seen by halves."""

import json
import re
from itertools import groupby
from threading import Barrier

import psycopg
import pytest
from calls import call, export_rows, history, one, persist, remember, run_job, set_clock, set_settings, table
from loops import step
from parallel import Job, in_parallel
from servers import connect


def pair(tag: str) -> list[dict]:
    return [{"role": "user", "content": f"{tag} part 1"}, {"role": "assistant", "content": f"{tag} part 2"}]


def test_writers_of_one_session_neither_lose_nor_mix(memoir_dsn: str, db: psycopg.Connection, user: str) -> None:
    writers, rounds = 8, 12

    def writer(w: int) -> Job:
        return lambda own: [
            persist(own, user, "s", *pair(f"w{w}-{r}")) for r in range(rounds)
        ]  # the session is opened by whoever comes first

    results = in_parallel(memoir_dsn, *map(writer, range(writers)))

    turns = history(db, user, "s")
    assert [t["turn_index"] for t in turns] == list(range(writers * rounds * 2))
    assert one(db, "select memoir.session_info(%s, 's')", user)["turns"] == len(turns)
    for w, receipts in enumerate(results):
        assert [r["from_turn"] for r in receipts] == sorted(r["from_turn"] for r in receipts)
        for r, receipt in enumerate(receipts):
            mine = turns[receipt["from_turn"] : receipt["to_turn"] + 1]
            assert [(t["role"], t["content"]) for t in mine] == [(m["role"], m["content"]) for m in pair(f"w{w}-{r}")]
            assert receipt["message_ids"] == [t["message_id"] for t in mine]
    rows = sorted(export_rows(db, user, "conversation_history"), key=lambda row: row["turn_index"])
    assert [row["exchange_start"] for row in rows] == [i - i % 2 for i in range(len(turns))]
    before = [row["tokens_before"] for row in rows]  # a running sum: a lost update would show in it
    steps = [later - earlier - t["tokens"] for earlier, later, t in zip(before, before[1:], turns, strict=False)]
    assert before[0] == 0 and len(set(steps)) == 1 and steps[0] >= 0


@pytest.mark.parametrize("what", ["turn", "memory"])
def test_parallel_retries_have_one_effect(memoir_dsn: str, db: psycopg.Connection, user: str, what: str) -> None:
    keys, together = [f"k{r}" for r in range(10)], Barrier(2)

    def call(own: psycopg.Connection, key: str) -> dict:
        together.wait(30)  # of a turn, the session is new as well
        if what == "turn":
            return persist(own, user, key, *pair(key), key=key)
        return remember(own, user, f"The key was {key}.", key=key)

    def client(own: psycopg.Connection) -> list[dict]:
        return [call(own, key) for key in keys]

    first, second = in_parallel(memoir_dsn, client, client)
    assert first == second
    if what == "turn":
        assert [[t["message_id"] for t in history(db, user, key)] for key in keys] == [r["message_ids"] for r in first]
    else:
        assert {r["outcome"] for r in first} == {"stored"}
        stored = [content for (content,) in table(db, "list_memories", user, states=[], columns="content")]
        assert sorted(stored) == sorted(f"The key was {key}." for key in keys)


def whole(tag: str) -> list[dict]:
    called = step(tag, "look", {"at": f"{tag} part 2"}, f"{tag} part 3")
    return [{"role": "user", "content": f"{tag} part 1"}, *called, {"role": "assistant", "content": f"{tag} part 4"}]


def test_a_compile_waits_for_no_open_transaction(memoir_dsn: str, db: psycopg.Connection, user: str) -> None:
    persist(db, user, "s", *pair("said"))
    compile_now = "select memoir.compile_context(%s, 's', 'What did I say?')"
    with connect(memoir_dsn) as own, own.transaction():
        first = one(own, compile_now, user)
        db.execute("set statement_timeout = '20s'")
        assert one(db, compile_now, user) == first
    db.execute("reset statement_timeout")


@pytest.mark.acceptance
def test_compile_shows_whole_exchanges_only(memoir_dsn: str, db: psycopg.Connection, user: str) -> None:
    writers, rounds = 4, 15
    persist(db, user, "s", *whole("w9x0"))
    # Without recall, which may quote a single turn.
    compile_now = "select memoir.compile_context(%s, 's', 'And now?', p_budget => 60000, p_memory_budget => 0)"

    def writer(w: int) -> Job:
        return lambda own: [persist(own, user, "s", *whole(f"w{w}x{r}")) for r in range(rounds)]

    sizes: list[int] = []

    def look() -> None:
        parts = re.findall(r"(w\dx\d+) part (\d)", json.dumps(one(db, compile_now, user)))
        runs = [(tag, "".join(part for _, part in run)) for tag, run in groupby(parts, lambda p: p[0])]
        assert {run for _, run in runs} == {"1234"}, runs
        assert len({tag for tag, _ in runs}) == len(runs)
        sizes.append(len(runs))

    in_parallel(memoir_dsn, *map(writer, range(writers)), look=look)
    look()
    assert sizes == sorted(sizes) and sizes[-1] == writers * rounds + 1
    assert len(set(sizes)) > 2  # it did look meanwhile


def test_a_merge_changes_no_result(memoir_dsn: str, db: psycopg.Connection, user: str) -> None:
    fence = "What about the fence and the bicycle?"
    queries = ["Where does the red bicycle stand?", "bicycle", "painted the fence green", fence]
    recall = "select id, kind, score, words_score, matched_by from memoir.recall(%s, %s, p_limit => 50)"
    set_settings(db, tail_items_max=16)
    run_job(db, "merge")  # what other tests left
    for n in range(5):  # from the third segment on, segments are merged as well
        for r in range(8):
            said = f"The red bicycle number {r} stands by the {'old ' * r}shed, day {n}."
            persist(db, user, f"s{n}", said, f"And who painted fence {n}{r} green? {'The fence, the fence! ' * r}")
        remember(db, user, f"The bicycle of day {n} is {['red', 'blue', 'green', 'black', 'white'][n]}.")
        set_clock(db, "2030-01-01T00:00:00Z")  # freshness is the same before and after
        before = [db.execute(recall, [user, q]).fetchall() for q in queries]
        assert run_job(db, "merge")["items"] == 17 and all(len(rows) > n for rows in before)
        after = [db.execute(recall, [user, q]).fetchall() for q in queries]
        set_clock(db, None)
        assert after == before
    call(db, "reset_setting", "tail_items_max")
