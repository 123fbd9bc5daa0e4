"""sync_semantic says which texts would be embedded and at what cost, and its batches leave audit rows. Turns have tags."""

from collections.abc import Iterator
from typing import Any

import pytest
from calls import Db, call, embed_waiting, history, persist, raises, recalled, remember, table, use_vectors
from internals import own_rows
from psycopg.rows import dict_row
from servers import connect

PRICE = 2_000_000  # microcents per 1,000 tokens


@pytest.fixture(scope="module")
def db(memoir_dsn: str) -> Iterator[Db]:
    with connect(memoir_dsn) as db:
        use_vectors(db, 4, "little", microcents_per_1k=PRICE)
        yield db


@pytest.fixture(autouse=True)
def _empty_queue(db: Db) -> None:
    while embed_batch(db):
        pass


def sync(db: Db, user: str, dry_run: bool = True) -> dict[str, Any]:
    with db.cursor(row_factory=dict_row) as cursor:
        return cursor.execute("select * from memoir.sync_semantic(%s, %s, 'little')", [user, dry_run]).fetchall()[0]


def embed_batch(db: Db, limit: int = 64) -> list[str]:
    """One batch of the queue; the texts that were embedded."""
    return embed_waiting(db, [1, 0, 0, 0], "little", limit)


def test_a_dry_run_counts_and_writes_nothing(db: Db, user: str, clock: Any) -> None:
    clock("2026-03-01 12:00+00")
    persist(db, user, "s", "I keep bees.", {"role": "assistant", "content": "How many?", "embeddable": False})
    persist(db, user, "s", {"role": "user", "content": "The door's code", "sensitivity": "secret"})
    remember(db, user, "Seems to have a guest", session="s")
    call(db, "close_session", user, "s")
    first = sync(db, user)
    assert first["texts"] >= 2 and (first["secret"], first["not_embeddable"]) == (1, 1)
    assert first["microcents"] == -(-first["tokens"] * PRICE // 1000) and not first["queued"]
    assert sync(db, user) == first
    clock("2026-03-03 12:00+00")  # past its time, though no job has ended it yet
    after = sync(db, user)
    assert after["expired"] == 1 and after["texts"] == first["texts"] - 1
    told = str(embed_batch(db))
    assert not any(word in told for word in ("guest", "door", "How many"))


def test_each_batch_of_a_sync_leaves_a_row(db: Db, user: str) -> None:
    persist(db, user, "s", "One kite.", "Two kites.", "Three kites.")
    asked = sync(db, user, dry_run=False)
    assert asked["queued"] and (asked["texts"], asked["cursor"], asked["last_batch_at"]) == (3, 0, None)
    for _ in range(2):
        embed_batch(db, 2)
    now = sync(db, user)
    persist(db, user, "s", "A fourth.")  # what comes by itself is not a sync's
    embed_batch(db)
    rows = [row for (row,) in own_rows(db, user, "audit_log", "detail", "action = 'sync_batch' order by audit_id")]
    assert [row["texts"] for row in rows] == [2, 1] and len({row["sync"] for row in rows}) == 1
    assert rows[-1]["cursor"] == now["cursor"] == now["items"] and now["texts"] == 0 and now["last_batch_at"]
    assert not sync(db, user, dry_run=False)["queued"]


def test_an_error_is_told(db: Db, user: str) -> None:
    persist(db, user, "s", "A text that breaks the model.")
    [(work, lease)] = table(db, "claim_embeddings", 8, "little", columns="work_id, lease_id")
    call(db, "fail_work", work, lease, "out of memory")
    assert sync(db, user)["last_error"] == "out of memory"
    with raises("PM031"):
        call(db, "sync_semantic", user, p_model="nothing")


def test_turns_are_found_by_their_tags(db: Db, user: str) -> None:
    tagged = {"role": "user", "content": "The boiler hums.", "tags": ["home", "repair"]}
    persist(db, user, "s", tagged, "I see.", {"role": "user", "content": "Nothing else.", "tags": []})
    assert history(db, user, "s")[0]["tags"] == ["home", "repair"]
    for query in ("zebra", "boiler hums"):
        assert recalled(db, user, query, tags=["repair"]) == ["The boiler hums."]
    repair = {"tags": ["repair"]}
    for named in ({"tags": ["garden"]}, repair | {"kinds": ["memory"]}, repair | {"types": ["fact"]}):
        assert recalled(db, user, "zebra", **named) == []
    call(db, "mark_turn", user, "s", 0, sensitivity="private")  # it is indexed anew, tags and all
    assert recalled(db, user, "zebra", tags=["home"]) == ["The boiler hums."]


def test_snapshot_keeps_its_reference(db: Db, user: str) -> None:
    summary = "A screenshot of the login form. " + "Its red banner says that the session ended. " * 40
    shot = {"role": "user", "content": summary, "snapshot_ref": "file:///shots/login.png"}
    persist(db, user, "s", shot)
    assert history(db, user, "s")[0]["snapshot_ref"] == "file:///shots/login.png"
    state = sync(db, user)
    assert (state["texts"], state["snapshots"]) == (1, 1) and state["not_embeddable"] > 1
    [text] = embed_batch(db)
    assert text.startswith("A screenshot of the login form.") and len(text) < len(summary) / 2


def test_recall_takes_a_share_of_the_list(db: Db, user: str) -> None:
    persist(db, user, "old", *(f"The glider number {n} flew over the hills near the lake." for n in range(120)))
    sizes = {}
    for share in (0, 0.02, 0.5):
        call(db, "set_user_settings", user, {"recall_share_max": share, "recall_tokens_max": 400})
        sizes[share] = call(db, "context", user, "new", "Which glider flew?", budget=8000)["recall_tokens"]
    assert 0 < sizes[0.02] <= 0.02 * 8000 < sizes[0] <= 400 < sizes[0.5] <= 4000
