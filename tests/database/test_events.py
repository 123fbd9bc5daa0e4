"""Events: what they tell, who sees them, that a cursor loses none whenever transactions commit, and how long they are kept."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from calls import call, one, raises, remembered, run_job, say, set_clock, table
from psycopg.types.json import Jsonb
from servers import apply, connect, database, roles

Db = psycopg.Connection[Any]


@pytest.fixture(autouse=True)
def recorded(db: Db, setting: Any) -> Iterator[None]:
    setting("outbox_days", 7)
    yield


def read(db: Db, user: str | None, after: str | None = None, **named: Any) -> tuple[list[tuple[str, str | None]], str]:
    """(kind, id of the memory) of each event, and the cursor behind them, in pages of two."""
    told, more = [], True
    while more:
        page = call(db, "read_events", user, after=after, limit=2, **named)
        told += [(event["type"].split(".")[1], event["data"].get("memory_id")) for event in page["events"]]
        after, more = page["cursor"], page["more"]
    assert after is not None
    return told, after


def test_events_tell_what_happened(db: Db, user: str) -> None:
    tea, coffee = remembered(db, user, "Drinks green tea."), remembered(db, user, "Drinks black coffee.")
    right = call(db, "correct", user, coffee, "Drinks white coffee.")["memory_id"]
    call(db, "forget", user, tea)
    say(db, user, "s", "Please note: the printer is loud.")  # turns and what tools return are no memories yet
    told, cursor = read(db, user)
    assert told[:2] == [("added", tea), ("added", coffee)] and told[-1] == ("forgotten", tea)
    assert set(told[2:-1]) == {("changed", coffee), ("added", right)}
    assert read(db, user, cursor) == ([], cursor)
    call(db, "lift_tombstone", user, tea)
    assert read(db, user, cursor)[0] == [("changed", tea)]
    assert read(db, user, types=["memory.forgotten"])[0] == [("forgotten", tea)]
    page = call(db, "read_events", user)
    assert [event["data"]["state"] for event in page["events"][:2]] == ["active", "active"]
    kept = one(db, "select string_agg(o::text, ' ') from _memoir.outbox o")
    assert not any(word in kept + str(page) for word in ("green", "black", "coffee", "white"))
    # Every event goes on behind itself, also one in the middle of a page.
    last = page["events"][-1]["cursor"]
    assert read(db, user, last)[0] == []
    newer = remembered(db, user, "Owns a samovar.")
    assert read(db, user, last)[0] == [("added", newer)]
    for event in page["events"]:
        rest = [later["id"] for later in page["events"] if later["id"] > event["id"]]
        assert [later["id"] for later in call(db, "read_events", user, after=event["cursor"])["events"]] == rest
    lines = [line for (line,) in table(db, "export_user", user)]
    call(db, "erase_user", user)
    assert read(db, user)[0] == []
    db.execute("select memoir.import_user(%s, %s)", [user, [Jsonb(line) for line in lines]])
    assert ("added", right) in read(db, user)[0]


def test_events_cost_nothing_unread(db: Db, user: str, setting: Any) -> None:
    with db.transaction():  # no other test's events
        before = one(db, "select last_value from _memoir.outbox_event_id_seq")
        db.execute("select memoir.set_setting('outbox_days', '0')")
        remembered(db, user, "Owns a kayak.")
        assert one(db, "select last_value from _memoir.outbox_event_id_seq") == before
        db.execute("select memoir.set_setting('outbox_days', '7')")
    assert read(db, user)[0] == []
    remembered(db, user, "Owns a canoe.")
    assert len(read(db, user)[0]) == 1


def test_events_right_after_an_upgrade(db: Db, memoir_dsn: str, user: str) -> None:
    """The file of an upgrade makes the table, with partitions wherever there are users."""
    memory = remembered(db, user, "Owns a kayak.")
    leaf = one(db, "select _memoir.leaf_name('outbox', memoir.part_of(%s))", user)
    db.execute(f"drop table _memoir.{leaf}")
    assert apply(memoir_dsn, None) == ""
    call(db, "forget", user, memory)
    assert read(db, user)[0] == [("forgotten", memory)]


def test_events_of_no_user_before_there_are_users(server_dsn: str) -> None:
    """A job may fail before any partition was made."""
    with database(server_dsn) as dsn:
        assert apply(dsn, 8) == ""
        with connect(dsn) as fresh:
            fresh.execute("select memoir.set_setting('outbox_days', '7')")
            fresh.execute("select _memoir.emit(_memoir.no_session(), 'job.failed', null, 'flush')")
            [event] = call(fresh, "read_events", None)["events"]
            assert (event["type"], event["data"]["job"]) == ("job.failed", "flush")


def test_events_that_commit_late(db: Db, memoir_dsn: str, user: str) -> None:
    """The number of an event is drawn before its transaction commits, so a later number may be seen first."""
    early, late = f"{user}-early", f"{user}-late"
    _, cursor = read(db, None, "now")
    with connect(memoir_dsn) as slow, slow.transaction():
        first = remembered(slow, late, "Sails.")
        second = remembered(db, early, "Rows.")
        told, cursor = read(db, None, cursor)
        assert told == [("added", second)]
        third = remembered(db, early, "Swims.")
        told, cursor = read(db, None, cursor)
        assert told == [("added", third)]
    told, cursor = read(db, None, cursor)
    assert told == [("added", first)]
    assert read(db, None, cursor)[0] == []


def test_events_of_a_user_in_order(db: Db, memoir_dsn: str, user: str) -> None:
    """A transaction may have the smaller xid and come second to the user's lock."""
    remembered(db, user, "Lives in Ulm.")
    _, cursor = read(db, user)
    with connect(memoir_dsn) as slow, slow.transaction():
        slow.execute("select pg_current_xact_id()")
        kept = remembered(db, user, "Has a blue bicycle.")
        told, between = read(db, user, cursor)
        assert told == [("added", kept)]
        call(slow, "forget", user, kept)
    assert read(db, user, cursor)[0] == [("added", kept), ("forgotten", kept)]
    assert read(db, user, between)[0] == [("forgotten", kept)]


def test_events_are_seen_by_their_own(db: Db, memoir_dsn: str, user: str) -> None:
    mine, other = user, f"{user}-other"
    secret = remembered(db, mine, "Has a password for the safe.", sensitivity="secret")
    work = remembered(db, mine, "Reviews on Fridays.", project="work")
    home = remembered(db, mine, "Cooks on Sundays.")
    theirs = remembered(db, other, "Plays chess.")
    options = {"app": "in role memoir_app", "tenant": "in role memoir_tenant", "worker": "in role memoir_app"}
    with roles(memoir_dsn, **options, none="") as names, connect(memoir_dsn) as asking:
        db.execute("select memoir.bind_login(%s, %s)", [names["tenant"], [mine]])
        db.execute("select memoir.bind_login(%s, p_projects => '{work}')", [names["worker"]])
        # Rows: login, user, the memories of these four that it is told of.
        for login, whose, seen in (
            ("app", None, {work, home, theirs}),
            ("app", mine, {work, home}),
            ("tenant", None, {work, home}),
            ("tenant", mine, {work, home}),
            ("worker", mine, {work}),
        ):
            asking.execute(f"set role {names[login]}")
            told = {memory for _, memory in read(asking, whose)[0]}
            assert told & {secret, work, home, theirs} == seen, login
            asking.execute("reset role")
        for login, whose in (("none", None), ("tenant", other)):
            asking.execute(f"set role {names[login]}")
            with raises("PM001" if whose else "42501"):
                read(asking, whose)
            asking.execute("reset role")
        db.execute("select memoir.unbind_login(unnest(%s::name[]))", [[names["tenant"], names["worker"]]])


def test_events_of_jobs_that_fail(db: Db, setting: Any) -> None:
    _, cursor = read(db, None, "now")
    call(db, "add_webhook", "https://example.org/h")
    claim = None
    remembered(db, "jobs", "Has a parrot.")
    claim = call(db, "claim_webhook")
    assert [event["data"]["user"] for event in claim["events"]] == ["jobs"]
    state = call(db, "store_webhook", claim["work_id"], claim["lease_id"], None, "status 410", True)
    assert state == "disabled" and table(db, "list_webhooks", columns="state, last_error") == [
        ("disabled", "status 410")
    ]
    page = call(db, "read_events", None, after=cursor, types=["job.failed"])
    assert [event["data"] for event in page["events"]] == [{"job": "webhook"}]
    problems = [problem for (problem,) in table(db, "health_problems", columns="problem")]
    assert "1 dead letters of kind webhook" in problems
    # Enabled again, it goes on where it stopped.
    assert call(db, "retry_work", claim["work_id"])
    again = call(db, "claim_webhook")
    assert again["events"][0]["id"] == claim["events"][0]["id"]
    assert call(db, "store_webhook", again["work_id"], again["lease_id"], again["cursor"]) == "active"
    assert call(db, "store_webhook", again["work_id"], again["lease_id"], again["cursor"]) == "lost"
    assert call(db, "remove_webhook", again["work_id"]) and not call(db, "remove_webhook", again["work_id"])


def test_webhooks_wait_longer_each_time(db: Db, user: str, setting: Any) -> None:
    made = call(db, "add_webhook", "https://example.org/wait", ["memory.forgotten"])
    memory = remembered(db, user, "Has a hamster.")
    claim = call(db, "claim_webhook")  # nothing for it, but its cursor moves on
    assert claim["events"] == [] and claim["secret"] == made["secret"]
    call(db, "store_webhook", claim["work_id"], claim["lease_id"], claim["cursor"])
    assert call(db, "claim_webhook") is None
    call(db, "forget", user, memory)
    due = "select extract(epoch from run_after - memoir.now()) from _memoir.work_items where work_id = %s"
    now = datetime.now(UTC) + timedelta(days=1)
    for failures in range(1, 5):
        set_clock(db, now)
        claim = call(db, "claim_webhook")
        assert len(claim["events"]) == 1
        state = call(db, "store_webhook", claim["work_id"], claim["lease_id"], None, "status 500")
        assert state == ("failing" if failures < 4 else "disabled")
        assert state == "disabled" or 2**failures / 2 <= one(db, due, claim["work_id"]) <= 2**failures
        assert call(db, "claim_webhook") is None
        now += timedelta(seconds=20) if failures < 3 else timedelta(hours=73)
    set_clock(db, None)
    call(db, "remove_webhook", claim["work_id"])


def test_events_are_kept_for_days(db: Db, user: str) -> None:
    set_clock(db, "2026-03-01T12:00:00Z")
    _, start = read(db, user, "now")
    remembered(db, user, "Has a red kite.")
    _, behind = read(db, user)
    set_clock(db, "2026-03-20T12:00:00Z")
    run_job(db, "sweep")
    assert read(db, user, start)[0] == [("dropped", None)]
    assert read(db, user, behind)[0] == []
    remembered(db, user, "Has a green kite.")
    assert [kind for kind, _ in read(db, user, behind)[0]] == ["added"]
    run_job(db, "sweep")
    assert [kind for kind, _ in read(db, user, start)[0]] == ["dropped", "added"]
    set_clock(db, None)


@pytest.mark.parametrize("after", ["17", "1/2:2:"])
def test_events_refuse_other_cursors(db: Db, after: str) -> None:
    with raises("PM014", f'after is no cursor of this server: "{after}"'):
        call(db, "read_events", None, after=after)


def test_events_of_a_restored_database(db: Db, user: str) -> None:
    """A dump brings numbers of transactions that this server has not reached, and cursors of the other one."""
    memory = remembered(db, user, "Has an old map.")
    made = call(db, "add_webhook", "https://example.org/restored")
    db.execute("update _memoir.outbox set xact_id = '999999999999' where memory_id = %s", [memory])
    db.execute("update _memoir.work_items set payload = payload || '{\"cursor\": \"1/5:5:\"}' where kind = 'webhook'")
    assert ("added", memory) not in read(db, user)[0]
    db.execute("call memoir.setup()")
    assert ("added", memory) in read(db, user)[0]
    claim = call(db, "claim_webhook", 1000)
    assert memory in [event["data"].get("memory_id") for event in claim["events"]]
    call(db, "remove_webhook", made["webhook"])
