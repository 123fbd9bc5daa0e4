"""Vectors: claim → embed → store, leases and retries, what is refused, two models side by side."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from calls import Db, call, one, persist, raises, remembered, run_job, table, use_vectors
from internals import clear_work, count_vectors, end_leases, work
from parallel import until
from servers import connect

MODEL = "small"
BOAT, NUTS, CITY = [1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]


@pytest.fixture(scope="module")
def db(memoir_dsn: str) -> Iterator[psycopg.Connection]:
    """One connection for all, its caches warm; vectors of four dimensions, given by the test."""
    with connect(memoir_dsn) as db:
        use_vectors(db, 4, MODEL, document_prefix="doc: ")
        yield db


@pytest.fixture(autouse=True)
def nothing_waiting(db: Db) -> None:
    """What a test claims is its own."""
    clear_work(db)


def claim(db: Db, limit: int = 64, model: str = MODEL) -> list[tuple[Any, ...]]:
    """(user id, item number, model, text) of each."""
    return table(db, "claim_embeddings", limit, model, columns="user_id, item_no, model, text")


def store(db: Db, items: list[tuple[Any, ...]], vectors: list[list[float]], model: str | None = MODEL) -> int:
    stored = "select memoir.store_embeddings(%s::uuid[], %s::int[], %s::real[], %s)"
    return int(one(db, stored, [i[0] for i in items], [i[1] for i in items], [list(v) for v in vectors], model))


def progress(db: Db, model: str = MODEL) -> dict[str, Any]:
    with db.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        return next(r for r in cursor.execute("select * from memoir.embedding_progress()") if r["model"] == model)


def by_vector(db: Db, user: str, vector: list[float]) -> str | None:
    """The best match by meaning alone: the query shares no word with anything."""
    found = table(db, "recall", user, "qqqq", query_embedding=vector, limit=1, columns="content, matched_by")
    return found[0][0] if found and found[0][1] == ["vector"] else None


def test_vectors_are_claimed_and_stored(db: Db, user: str) -> None:
    remembered(db, user, "keeps a boat")
    remembered(db, user, "avoids nuts")
    assert progress(db)["users_waiting"] == 1
    items = claim(db)
    assert [item[2:] for item in items] == [(MODEL, "doc: keeps a boat"), (MODEL, "doc: avoids nuts")]
    assert by_vector(db, user, BOAT) is None and store(db, items, [BOAT, NUTS]) == 2
    assert (by_vector(db, user, BOAT), by_vector(db, user, NUTS)) == ("keeps a boat", "avoids nuts")
    assert claim(db) == [] and store(db, items, [NUTS, BOAT]) == 0  # neither asked nor stored twice
    assert by_vector(db, user, BOAT) == "keeps a boat"


def test_the_text_claimed_carries_the_end_of_the_previous_turn(db: Db, user: str) -> None:
    question = "We looked at the old boats by the pier and then at the new ones. " * 4 + "Which colour do you want?"
    persist(db, user, "s", question, "Blue.")
    persist(db, user, "other", "Another conversation")
    texts = [question, f"{question[-200:]}\nBlue.", "Another conversation"]
    assert [i[3] for i in claim(db)] == [f"doc: {text}" for text in texts]


def test_long_texts_get_vectors_behind_others(db: Db, user: str) -> None:
    """A chunk beyond the 64th waits until nothing else does, and is found by its vector."""
    line = (
        "The pump ran all day at {} percent and the gauges in the hall showed nothing that was out of the ordinary.\n"
    )
    half = [line.format(n) for n in range(350)]
    passage = "A boat called Fiorella lies in the third berth on the left.\n" * 10
    persist(db, user, "s", "".join([*half, passage, *half]))
    persist(db, user, "other", "Another conversation")
    claimed: list[list[tuple[Any, ...]]] = []
    while items := claim(db, 100):
        claimed.append(items)
        store(db, items, [BOAT if item[3].count("Fiorella") > 4 else NUTS for item in items])
    numbers = [item[1] for items in claimed for item in items]
    assert (
        len(claimed[0]) == 65
        and "Another conversation" in claimed[0][-1][3]
        and len(set(numbers)) == len(numbers) > 150
    )
    found = by_vector(db, user, BOAT)
    assert found is not None and "Fiorella" in found


def test_secret_memories_are_never_claimed(db: Db, user: str) -> None:
    remembered(db, user, "the safe opens with a secret", sensitivity="secret")
    remembered(db, user, "keeps a boat", sensitivity="private")
    remembered(db, user, "owns a grey cat")
    remembered(db, user, "owns a grey cat", sensitivity="secret")  # said again, now as a secret
    items = claim(db)
    assert [i[3] for i in items] == ["doc: keeps a boat"]
    store(db, [(i[0], n) for i in items for n in range(1, 10)], [BOAT] * 9)
    assert count_vectors(db, user, MODEL) == 1


def test_partial_stores_in_any_order_lose_nothing(db: Db, user: str) -> None:
    for text in ("keeps a boat", "avoids nuts", "lives in a city"):
        remembered(db, user, text)
    one, two, three = claim(db)
    assert store(db, [three], [CITY]) == 1 and by_vector(db, user, CITY) == "lives in a city"
    assert claim(db) == [one, two] and store(db, [two], [NUTS]) == 1
    assert store(db, [two, one], [BOAT, BOAT]) == 1 and claim(db) == []
    assert (by_vector(db, user, NUTS), by_vector(db, user, BOAT)) == ("avoids nuts", "keeps a boat")


def test_near_duplicates_merge_with_their_vectors(db: Db, user: str) -> None:
    short = remembered(db, user, "keeps a boat")
    long = remembered(db, user, "keeps a wooden sailing boat at the pier")
    remembered(db, user, "keeps a boat with Ann")
    store(db, claim(db), [BOAT, [0.99, 0.14, 0.0, 0.0], [0.99, 0.0, 0.14, 0.0]])
    columns = "memory_id::text, superseded_by::text"
    assert table(db, "list_memories", user, states=["superseded"], columns=columns) == [(short, long)]


def test_two_workers_claim_the_work_of_different_users(db: Db, memoir_dsn: str, user: str) -> None:
    for name in (user, user + "-2"):
        remembered(db, name, "keeps a boat")
        remembered(db, name, "avoids nuts")
    with psycopg.connect(memoir_dsn) as first, connect(memoir_dsn, options="-c statement_timeout=5s") as second:
        mine = claim(first, 2)  # its transaction stays open: skipped, not waited for
        theirs = claim(second)
        assert [len({i[0] for i in items}) for items in (mine, theirs)] == [1, 1]
        assert len({i[:2] for i in mine} | {i[:2] for i in theirs}) == len(mine) + len(theirs) == 4
        assert claim(second) == []
        first.rollback()
        assert claim(second) == mine  # a worker that dies before it commits leaves no lease


def test_an_expired_lease_is_claimed_again(db: Db, user: str) -> None:
    remembered(db, user, "keeps a boat")
    items = claim(db)
    remembered(db, user, "avoids nuts")  # what comes in waits for the batch that is out
    assert len(items) == 1 and claim(db) == []
    end_leases(db)
    assert claim(db)[:1] == items and sorted(work(db, "embed", "state, attempts")) == [("leased", 2), ("ready", 0)]
    assert store(db, items, [BOAT]) == 1  # the late first worker
    assert store(db, items, [NUTS]) == 0 and by_vector(db, user, BOAT) == "keeps a boat"


def test_failures_back_off_and_end_as_dead_letters(db: Db, user: str, clock: Callable[[str], None]) -> None:
    remembered(db, user, "keeps a boat")
    for attempt in range(1, 9):
        clock(f"2040-01-{attempt:02}T00:00:00Z")
        [(work_id, lease)] = table(db, "claim_embeddings", 64, MODEL, columns="work_id, lease_id")
        assert call(db, "fail_work", work_id, lease, f"no luck {attempt}")
        clock(f"2040-01-{attempt:02}T00:00:01Z")
        assert claim(db) == []
    clock("2040-02-01T00:00:00Z")
    assert claim(db) == [] and (progress(db)["dead_letters"], progress(db)["users_waiting"]) == (1, 0)
    assert db.execute("select attempts, last_error from memoir.dead_letters").fetchall() == [(8, "no luck 8")]


@pytest.mark.parametrize(
    ("vector", "code", "named"),
    [(BOAT[:3], "PM030", "3"), ([*BOAT, 0.0], "PM030", "5")]
    + [([0.5, value, 0.0, 0.0], "PM014", "finite") for value in (float("nan"), float("-inf"), 70000.0)],
    ids=["short", "long", "nan", "inf", "large"],
)
def test_bad_vectors_are_refused(db: Db, user: str, vector: list[float], code: str, named: str) -> None:
    remembered(db, user, "keeps a boat")
    items = claim(db)
    for refused in (
        lambda: store(db, items, [vector]),
        lambda: remembered(db, user, "avoids nuts", embedding=vector),
        lambda: by_vector(db, user, vector),
    ):
        with pytest.raises(psycopg.Error, match=rf"\b{named}\b") as caught:
            refused()
        assert caught.value.sqlstate == code
    assert store(db, items, [BOAT]) == 1


def test_unknown_models_are_refused(db: Db, user: str) -> None:
    remembered(db, user, "keeps a boat")
    items = claim(db)
    for refused in (
        lambda: claim(db, model="nobody's"),
        lambda: store(db, items, [BOAT], "nobody's"),
        lambda: db.execute("select memoir.switch_embedding_model('nobody''s')"),
    ):
        with raises("PM031"):
            refused()
    with raises("PM030"):
        db.execute("select memoir.register_embedding_model(%s, 'none', 5)", [MODEL])


@pytest.mark.parametrize(
    ("model", "reason"), [(MODEL, "takes vectors from the client"), ("all-MiniLM-L6-v2", "no embedder")]
)
def test_without_an_embedder_context_says_so_and_uses_words(db: Db, user: str, model: str, reason: str) -> None:
    remembered(db, user, "The boat is called Vesla", embedding=BOAT)
    persist(db, user, "s", "hello", "hi")
    ask = "select memoir.context(%s, 's', 'What is the boat called?', p_query_embedding => %s::real[])"
    with db.transaction(force_rollback=True):
        db.execute("select memoir.set_setting('embedder_socket', '\"\"')")
        db.execute("select memoir.switch_embedding_model(%s)", [model])
        found = db.execute(ask, [user, None]).fetchone()[0]
    assert [w for w in found["warnings"] if "words only" in w and reason in w]
    assert (found["arms"]["vector"], found["arms"]["words"]) == (False, True)
    assert "Vesla" in str(found["messages"])
    given = db.execute(ask.replace("called?", "named?"), [user, BOAT]).fetchone()[0]
    assert (given["arms"]["vector"], given["warnings"]) == (True, [])


def test_second_model_fills_then_takes_over(db: Db, memoir_dsn: str, user: str) -> None:
    boat, nuts = [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]  # three dimensions, other directions
    remembered(db, user, "keeps a boat")
    remembered(db, user, "avoids nuts")
    store(db, claim(db), [BOAT, NUTS])
    call(db, "register_embedding_model", "next", "none", 3)
    assert progress(db, "next")["status"] == "backfilling" and claim(db, model="next") == []
    run_job(db, "backfill")
    assert progress(db, "next")["users_waiting"] >= 1 and run_job(db, "backfill") == {}  # still one job a user
    items = claim(db, 1000, "next")
    vectors = [{"keeps a boat": boat, "avoids nuts": nuts}.get(item[3], [1.0, 0.0, 0.0]) for item in items]
    assert store(db, items, vectors, "next") == len(items)
    assert by_vector(db, user, BOAT) == "keeps a boat"  # the first still answers
    with psycopg.connect(memoir_dsn) as admin:
        admin.execute("select memoir.switch_embedding_model('next')")
        assert by_vector(admin, user, nuts) == "avoids nuts"
        assert by_vector(db, user, NUTS) == "avoids nuts"  # others see it once it is committed
    assert (by_vector(db, user, boat), by_vector(db, user, nuts)) == ("keeps a boat", "avoids nuts")
    with raises("PM030"):
        by_vector(db, user, BOAT)
    assert (progress(db)["status"], progress(db, "next")["status"]) == ("retired", "active")
    run_job(db, "sweep")
    assert by_vector(db, user, boat) == "keeps a boat"
    use_vectors(db, 4, MODEL, document_prefix="doc: ")  # it may come back, from the beginning
    assert by_vector(db, user, BOAT) is None


def test_two_admins_switching_models_both_succeed(db: Db, memoir_dsn: str) -> None:
    call(db, "register_embedding_model", "other", "none", 3)
    with psycopg.connect(memoir_dsn) as first, connect(memoir_dsn) as second, ThreadPoolExecutor(1) as pool:
        call(first, "switch_embedding_model", "other")
        waiting = pool.submit(call, second, "switch_embedding_model", MODEL)
        until(lambda: one(db, "select pg_blocking_pids(%s) <> '{}'", second.info.backend_pid))
        first.commit()
        waiting.result(timeout=30)
    assert table(db, "embedding_progress", columns="model, status").count((MODEL, "active")) == 1
