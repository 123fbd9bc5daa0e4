"""The queue: leases, heartbeats, retries, dead letters; one worker a piece of work, and nothing blocked by a bad one."""

import uuid
from collections.abc import Iterator

import pytest
from calls import Db, call
from internals import end_leases
from internals import work as waiting
from parallel import in_parallel

# What every claim, store and fail function of a kind does to the queue (claim_model_calls, store_model_result, fail_model_call).
TAKE = "select work_id, lease_id, user_id, dedup_key, payload, attempts from _memoir.take_work('judge', 300)"
COMPLETE = """with ours as (select l.work_id from _memoir.leased(%s, %s) l where l.work_id is not null)
              delete from _memoir.work_items w using ours where w.work_id = ours.work_id returning w.work_id"""
FAIL = "select _memoir.give_back(l, %s, %s, %s) from _memoir.leased(%s, %s) l where l.work_id is not null"


@pytest.fixture(autouse=True)
def empty(db: Db) -> Iterator[None]:
    db.execute("delete from _memoir.work_items where kind = 'judge'")
    yield


def ask(db: Db, user: uuid.UUID, key: str = "k", priority: int = 0) -> None:
    db.execute("select _memoir.enqueue('judge', %s, %s, '{\"id\": 1}', %s)", [user, key, priority])


def claim(db: Db, limit: int = 10) -> list[tuple]:
    """(work, lease, user, key, payload, attempts) of each, leased for five minutes."""
    claims: list[tuple] = []
    with db.transaction():
        while len(claims) < limit and (found := db.execute(TAKE).fetchone())[0] is not None:
            claims.append(found)
    return claims


def complete(db: Db, work: int, lease: uuid.UUID) -> bool:
    return db.execute(COMPLETE, [work, lease]).fetchone() is not None


def fail(db: Db, work: int, lease: uuid.UUID, error: str, seconds: float | None = None, final: bool = False) -> str:
    found = db.execute(FAIL, [error, seconds, final, work, lease]).fetchone()
    return found[0] if found else "lost"


def state(db: Db) -> list[tuple]:
    return waiting(db, "judge")


def test_claim_complete(db: Db) -> None:
    one, two = uuid.uuid4(), uuid.uuid4()
    ask(db, one)
    ask(db, one)  # waits once
    ask(db, two, priority=1)
    claims = claim(db)
    assert [(c[2], c[3], c[4], c[5]) for c in claims] == [(two, "k", {"id": 1}, 1), (one, "k", {"id": 1}, 1)]
    assert claim(db) == []
    for work, lease, *_ in claims:
        assert not complete(db, work, uuid.uuid4())
        assert db.execute("select memoir.heartbeat(%s, %s)", [work, lease]).fetchone() == (True,)
        assert complete(db, work, lease)
        assert not call(db, "heartbeat", work, lease) and not call(db, "release_work", work, lease)
        assert fail(db, work, lease, "x") == "lost"
    assert state(db) == []


def test_the_same_work_is_done_by_one(db: Db) -> None:
    user = uuid.uuid4()
    ask(db, user)
    [(work, lease, *_)] = claim(db)
    ask(db, user)  # asked for again while it is out
    assert claim(db) == [] and complete(db, work, lease)
    assert [c[2] for c in claim(db)] == [user]


def test_a_lease_passes_on(db: Db) -> None:
    ask(db, uuid.uuid4())
    [(work, old, *_)] = claim(db)
    end_leases(db)
    [(again, new, *_, attempts)] = claim(db)
    assert (again, attempts) == (work, 2) and new != old
    assert not call(db, "heartbeat", work, old) and not call(db, "release_work", work, old)
    assert not complete(db, work, old) and complete(db, work, new)


def test_backoff_and_dead_letters(db: Db) -> None:
    poisoned, well = uuid.uuid4(), uuid.uuid4()
    ask(db, poisoned, priority=9)
    waits = []
    for attempt in range(1, 9):
        [(work, lease, user, *_)] = claim(db, 1)
        assert user == poisoned
        now = "dead" if attempt == 8 else "ready"
        assert fail(db, work, lease, f"bad {attempt}") == now
        due = "select extract(epoch from run_after - clock_timestamp()) from _memoir.work_items where work_id = %s"
        waits.append(db.execute(due, [work]).fetchone()[0])
        if attempt == 3:
            ask(db, well)
            [(other, own, user, *_)] = claim(db, 5)  # the bad one waits, others pass
            assert user == well and complete(db, other, own)
        db.execute("update _memoir.work_items set run_after = now() where work_id = %s", [work])
    assert all(2**n - 1 < wait <= 2 ** (n + 1) for n, wait in enumerate(waits[:7], 1))
    assert state(db) == [("dead", 8, "bad 8")] and claim(db) == []
    ask(db, poisoned)
    assert len(claim(db)) == 1  # a dead letter is no reason to refuse new work
    assert db.execute("select memoir.retry_work(%s)", [work]).fetchone() == (True,)
    assert db.execute("select memoir.retry_work(%s)", [work]).fetchone() == (False,)
    assert [row[:2] for row in state(db)] == [("ready", 0), ("leased", 1)]
    assert db.execute("select count(*) from _memoir.audit_log where action = 'retry_work'").fetchone() == (1,)


def test_a_server_says_when_to_retry(db: Db) -> None:
    ask(db, uuid.uuid4())
    [(work, lease, *_)] = claim(db)
    assert fail(db, work, lease, "busy", 3600) == "ready"
    late = "run_after - clock_timestamp() between '59 min' and '61 min'"
    assert db.execute(f"select {late} from _memoir.work_items where work_id = %s", [work]).fetchone() == (True,)
    db.execute("update _memoir.work_items set run_after = now()")
    [(work, lease, *_)] = claim(db)
    assert fail(db, work, lease, "never", final=True) == "dead"


def test_leases_that_run_out_end_as_dead_letters(db: Db) -> None:
    ask(db, uuid.uuid4())
    for _ in range(8):
        assert len(claim(db)) == 1
        end_leases(db)
    assert claim(db) == [] and state(db) == [("dead", 8, "leases ran out")]


def test_many_workers_share_the_work(db: Db, memoir_dsn: str) -> None:
    users = [uuid.uuid4() for _ in range(60)]
    for user in users:
        ask(db, user)
    done: list[uuid.UUID] = []

    def work(own: Db) -> None:
        while claims := claim(own, 3):
            for work, lease, user, *_ in claims:
                assert complete(own, work, lease)
                done.append(user)

    in_parallel(memoir_dsn, *[work] * 4)
    assert sorted(done) == sorted(users) and state(db) == []
