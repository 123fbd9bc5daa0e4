"""sync_semantic: what would be embedded and what not, batches with their audit rows; tags and snapshots of turns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from calls import call, history, persist, raises, recalled, remember, table, use_vectors
from psycopg.rows import dict_row
from servers import connect

PRICE = 2_000_000  # microcents per 1,000 tokens


@pytest.fixture(scope="module")
def db(memoir_dsn: str) -> Iterator[psycopg.Connection]:
    with connect(memoir_dsn) as db:
        use_vectors(db, 4, "little", microcents_per_1k=PRICE)
        yield db


def sync(db: psycopg.Connection, user: str, dry_run: bool = True) -> dict[str, Any]:
    with db.cursor(row_factory=dict_row) as cursor:
        [row] = cursor.execute("select * from memoir.sync_semantic(%s, %s, 'little')", [user, dry_run]).fetchall()
    return row


def embed_batch(db: psycopg.Connection, limit: int = 64) -> list[str]:
    """One batch of the queue; the texts that were embedded."""
    found = table(db, "claim_embeddings", limit, "little", columns="user_id, item_no, text")
    users, items, texts = ([row[n] for row in found] for n in range(3))
    store = "select memoir.store_embeddings(%s::uuid[], %s::int[], %s::real[], 'little')"
    db.execute(store, [users, items, [1.0, 0.0, 0.0, 0.0] * len(items)])
    return texts


def batches(db: psycopg.Connection, user: str) -> list[dict[str, Any]]:
    """The audit rows that batches left."""
    return [
        detail
        for (detail,) in db.execute(
            "select detail from _memoir.audit_log a join _memoir.users u using (user_id) "
            "where action = 'sync_batch' and external_id = %s order by audit_id",
            [user],
        )
    ]


def test_what_would_be_embedded_and_what_not(db: psycopg.Connection, user: str, clock: Any) -> None:
    clock("2026-03-01 12:00+00")
    persist(db, user, "s", "I keep bees.", {"role": "assistant", "content": "How many?", "embeddable": False})
    persist(db, user, "s", {"role": "user", "content": "The door's code", "sensitivity": "secret"})
    remember(db, user, "Has a guest until Sunday", valid_to="2026-03-08T00:00:00Z")
    first = sync(db, user)
    assert first["texts"] >= 2 and (first["secret"], first["not_embeddable"]) == (1, 1)
    assert first["microcents"] == -(-first["tokens"] * PRICE // 1000) and not first["queued"]
    assert sync(db, user) == first  # nothing was written
    # Past its time, though no job has ended it yet.
    db.execute(
        "update _memoir.memory_store set expires_at = memoir.now() - interval '1 s' "
        "where user_id = (select user_id from _memoir.users where external_id = %s)",
        [user],
    )
    after = sync(db, user)
    assert after["expired"] == 1 and after["texts"] == first["texts"] - 1
    assert not any("guest" in text or "door" in text or "How many" in text for text in embed_batch(db))


def test_each_batch_of_a_sync_leaves_a_row(db: psycopg.Connection, user: str) -> None:
    while embed_batch(db):
        pass
    persist(db, user, "s", "One kite.", "Two kites.", "Three kites.")
    asked = sync(db, user, dry_run=False)
    assert asked["queued"] and asked["texts"] == 3 and asked["cursor"] == 0 and asked["last_batch_at"] is None
    embed_batch(db, 2)
    embed_batch(db, 2)
    rows = batches(db, user)
    assert [row["texts"] for row in rows] == [2, 1] and len({row["sync"] for row in rows}) == 1
    now = sync(db, user)
    assert rows[-1]["cursor"] == now["cursor"] == now["items"] and now["texts"] == 0 and now["last_batch_at"]
    # What comes by itself is not a sync's.
    persist(db, user, "s", "A fourth.")
    embed_batch(db)
    assert len(batches(db, user)) == 2
    assert not sync(db, user, dry_run=False)["queued"]


def test_an_error_is_told(db: psycopg.Connection, user: str) -> None:
    while embed_batch(db):
        pass
    persist(db, user, "s", "A text that breaks the model.")
    found = table(db, "claim_embeddings", 8, "little", columns="user_id")
    db.execute("select memoir.fail_embeddings(%s, 'little', 'out of memory')", [[user_id for (user_id,) in found]])
    assert sync(db, user)["last_error"] == "out of memory"
    with raises("PM031"):
        call(db, "sync_semantic", user, p_model="nothing")


def test_turns_are_found_by_their_tags(db: psycopg.Connection, user: str) -> None:
    tagged = {"role": "user", "content": "The boiler hums.", "tags": ["home", "repair"]}
    persist(db, user, "s", tagged, "I see.", {"role": "user", "content": "Nothing else.", "tags": []})
    assert history(db, user, "s")[0]["tags"] == ["home", "repair"]
    assert recalled(db, user, "zebra", p_tags=["repair"]) == ["The boiler hums."]
    assert recalled(db, user, "boiler hums", p_tags=["repair"]) == ["The boiler hums."]
    assert recalled(db, user, "boiler", p_tags=["garden"]) == []
    assert recalled(db, user, "zebra", p_tags=["repair"], p_kinds=["memory"]) == []
    assert recalled(db, user, "zebra", p_tags=["repair"], p_types=["fact"]) == []
    call(db, "mark_turn", user, "s", 0, p_sensitivity="private")  # it is indexed anew, tags and all
    assert recalled(db, user, "zebra", p_tags=["home"]) == ["The boiler hums."]


def test_snapshot_keeps_its_reference(db: psycopg.Connection, user: str) -> None:
    while embed_batch(db):
        pass
    summary = "A screenshot of the login form. " + "Its red banner says that the session ended. " * 40
    shot = {"role": "user", "content": summary, "snapshot_ref": "file:///shots/login.png"}
    persist(db, user, "s", shot)
    assert history(db, user, "s")[0]["snapshot_ref"] == "file:///shots/login.png"
    state = sync(db, user)
    assert (state["texts"], state["snapshots"]) == (1, 1) and state["not_embeddable"] > 1
    [text] = embed_batch(db)
    assert text.startswith("A screenshot of the login form.") and len(text) < len(summary) / 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"tags": "home"},
        {"tags": [1]},
        {"tags": [""]},
        {"tags": ["x"] * 33},
        {"snapshot_ref": 7},
        {"snapshot_ref": ""},
        {"snapshot_ref": "file:///a.png", "content": "…"},
    ],
)
def test_wrong_labels_are_named(db: psycopg.Connection, user: str, wrong: dict[str, Any]) -> None:
    with raises("PM010"):
        persist(db, user, "s", {"role": "user", "content": "A text."} | wrong)


def test_the_server_s_load(db: psycopg.Connection) -> None:
    slot = "health_test"
    db.execute("select pg_create_physical_replication_slot(%s, true)", [slot])
    try:
        [(taken, most, share, standbys, held)] = db.execute(
            "select connections, connections_max, connections_share, standbys, slot_lag_bytes from memoir.server_load"
        ).fetchall()
        assert 1 <= taken <= most and share == taken / most and standbys == 0 and held >= 0
        assert not any("connections" in problem for _, problem, _ in table(db, "health_problems"))
    finally:
        db.execute("select pg_drop_replication_slot(%s)", [slot])


def test_recall_takes_a_share_of_the_list(db: psycopg.Connection, user: str) -> None:
    persist(db, user, "old", *(f"The glider number {n} flew over the hills near the lake." for n in range(120)))
    sizes = {}
    for share in (0, 0.02, 0.5):
        call(db, "set_user_settings", user, {"recall_share_max": share, "recall_tokens_max": 400})
        context = call(db, "context", user, "new", "Which glider flew over the hills?", p_budget=8000)
        sizes[share] = context["recall_tokens"]
    assert 0 < sizes[0.02] <= 0.02 * 8000 < sizes[0] <= 400 < sizes[0.5] <= 4000
