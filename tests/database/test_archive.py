"""Months past retention: compacted, exported or kept, taken out, and every turn accounted for. Clock jumps and month ends included."""

from datetime import date
from typing import Any

import psycopg
import pytest
from calls import Db, call, one, raises, recalled, remember, remembered, run_job, say, set_clock, set_settings, table
from internals import count_rows, memory_row, own_rows, set_memories, user_id
from loops import append, code, read
from parallel import beside, until
from pg_memoir import Memoir, errors
from psycopg.types.json import Jsonb


def archive(db: Db) -> dict[str, int]:
    return run_job(db, "archive")


def expire_memory(db: Db, user: str, content: str, **more: Any) -> str:
    memory = remembered(db, user, content, actor="agent", **more)
    set_memories(db, memory, expires_at="memoir.now()")
    run_job(db, "expiry")
    assert memory_row(db, memory) == ("expired",)
    return memory


def count_turns(db: Db, user: str) -> tuple[int, int, int]:
    """Turns ever written, still there, archived."""
    tables = (("session_counters", "turn_count"), ("archived_turns", "turns"))
    written, archived = (sum(turns for (turns,) in own_rows(db, user, *of)) for of in tables)
    return written, len(own_rows(db, user, "conversation_history", "turn_index")), archived


@pytest.fixture(autouse=True)
def afterwards(db: Db) -> Any:
    set_settings(db, history_days=30)
    yield
    set_settings(db, archive_destination="", archive_requires="compacted", archive_detach="lock", expired_memory_days=0)
    set_clock(db, None)


def test_a_month_goes_when_its_sessions_have_ended(db: Db, user: str) -> None:
    # Over a month's end: the last second of one and the first of the next, in a leap year.
    set_clock(db, "2028-02-29T23:59:59Z")
    say(db, user, "s", "The Zebrafish project moves to Lisbon in May.", "The budget is 90000 euros.")
    set_clock(db, "2028-03-01T00:00:00Z")
    say(db, user, "s", "We start on Monday.")
    stated = {"session": "s", "provenance": "user_stated", "source_turns": [0]}
    known = remembered(db, user, "Zebrafish moves to Lisbon", **stated)
    set_clock(db, "2028-03-30T23:00:00Z")  # not yet thirty days
    set_settings(db, archive_destination="drop")
    archive(db)  # empty months of the install
    assert archive(db) == {} and count_turns(db, user) == (6, 6, 0)
    set_clock(db, "2028-03-31T01:00:00Z")  # due, but the session still runs
    assert archive(db) == {"blocked": 1} and count_turns(db, user) == (6, 6, 0)
    assert db.execute(
        "select month, turns, uncompacted, sessions_open from memoir.archive_plan() where turns > 0"
    ).fetchall() == [(date(2028, 2, 1), 4, 4, 1)]
    db.execute("select memoir.close_session(%s, 's')", [user])
    counts = archive(db)
    assert counts["compacted"] >= 1 and counts["months"] >= 1 and count_turns(db, user) == (6, 2, 4)
    assert [(row["turn_index"]) for (row,) in db.execute("select memoir.history(%s, 's')", [user])] == [4, 5]
    # What was drawn from it is there, the summary is found, the turns are not.
    assert memory_row(db, known) == ("active",)
    kinds = {kind for (kind,) in db.execute("select kind from memoir.recall(%s, 'Zebrafish Lisbon budget')", [user])}
    assert kinds == {"memory", "summary"}
    assert "90000" in str(one(db, "select memoir.compile_context(%s, 'new', 'What is the Zebrafish budget?')", user))
    assert count_rows(db, "audit_log", "action = 'archive' and (detail ->> 'turns')::integer = 4") == 1
    assert archive(db) == {}
    # A clock set back finds what is left, and writes go on.
    set_clock(db, "2028-02-10T00:00:00Z")
    say(db, user, "t", "Once more in February.")
    assert count_turns(db, user) == (8, 4, 4)


def texts(db: Db, user: str, session: str = "s") -> list[str]:
    return [row["content"] for (row,) in db.execute("select memoir.history(%s, %s)", [user, session])]


def list_archive_notes(db: Db, user: str) -> list[str]:
    """What history, session_info and a compile say of what is archived."""
    said: list[str] = []
    db.add_notice_handler(lambda notice: said.append(str(notice.message_primary)))
    texts(db, user)
    info = one(db, "select memoir.session_info(%s, 's')", user)
    compiled = one(db, "select memoir.context(%s, 's', 'And what did I say?')", user)["warnings"]
    return [*said, *(str(r) for r in info.get("archived", [])), *(w for w in compiled if "archived" in w)]


def test_a_kept_month_comes_back(db: Db, user: str) -> None:
    set_clock(db, "2032-01-31T12:00:00Z")
    say(db, user, "s", "The lighthouse keeper feeds two ravens.")
    set_clock(db, "2032-02-01T12:00:00Z")
    say(db, user, "s", "And a heron.")
    written = texts(db, user)
    assert list_archive_notes(db, user) == []
    set_clock(db, "2032-03-15T00:00:00Z")
    set_settings(db, archive_destination="keep", archive_requires="nothing")
    assert archive(db)["months"] >= 1 and count_turns(db, user) == (4, 2, 2)
    found = "select content from memoir.recall(%s, 'Who feeds ravens at the lighthouse?')"
    assert texts(db, user) == written[2:] and "ravens" not in str(db.execute(found, [user]).fetchall())
    says = list_archive_notes(db, user)
    assert len(says) == 3 and all("archived" in line or "from_turn" in line for line in says), says
    assert "turns 0 to 1 (2032-01)" in says[0] and "turns 0 to 1 (2032-01)" in says[2], says

    part = one(db, "select memoir.part_of(%s)", user)
    assert one(db, "select memoir.restore_month(%s, '2032-01-01')", part) == {"restored": 2, "missing": 0}
    assert texts(db, user) == written and count_turns(db, user) == (4, 4, 0) and list_archive_notes(db, user) == []
    assert "ravens" in str(db.execute(found, [user]).fetchall())
    # The job lets it be for as long as was said, then takes it again.
    archive(db)
    assert count_turns(db, user) == (4, 4, 0)
    set_clock(db, "2032-04-20T00:00:00Z")
    while archive(db).get("months"):
        pass
    assert count_turns(db, user) == (4, 0, 4)
    assert one(db, "select memoir.restore_month(%s, '2031-01-01')", part) == {"restored": 0, "missing": 0}


def test_an_exported_month_comes_back_but_for_what_was_erased(db: Db, user: str) -> None:
    set_clock(db, "2033-07-07T00:00:00Z")
    say(db, user, "s", *(f"Heron number {n}" for n in range(3)))
    say(db, user, "gone", "A secret heron.")
    set_clock(db, "2033-10-10T00:00:00Z")
    set_settings(db, archive_destination="client", archive_requires="nothing")
    archive(db)
    part, written = one(db, "select memoir.part_of(%s)", user), texts(db, user)
    month, file, key = date(2033, 7, 1), [], None
    while rows := table(db, "export_month", part, month, key, 3, columns="key, turn"):  # a page at a time
        file += [turn for _, turn in rows]
        key = rows[-1][0]
    assert sorted(turn["content"] for turn in file) == sorted([*written, *texts(db, user, "gone")])
    with raises("PM014"):
        call(db, "confirm_export", part, month, len(file) - 1, "a file")
    archive(db)
    assert count_turns(db, user) == (8, 8, 0), "before all is confirmed, all stays"
    call(db, "confirm_export", part, month, len(file), "a file")
    archive(db)
    assert texts(db, user) == [] and count_turns(db, user) == (8, 0, 8)
    db.execute("select memoir.erase_session(%s, 'gone')", [user])
    restore = "select memoir.restore_month(%s, %s, %s)"
    assert one(db, restore, part, month, None) == {"restored": 0, "missing": 6}
    assert one(db, restore, part, month, Jsonb(file[:3]))["restored"] <= 3  # a part at a time
    assert one(db, restore, part, month, Jsonb(file))["missing"] == 0
    assert texts(db, user) == written and count_turns(db, user) == (6, 6, 0)
    assert "secret" not in str(db.execute("select content from memoir.recall(%s, 'secret heron')", [user]).fetchall())
    assert one(db, restore, part, month, Jsonb(file)) == {"restored": 0, "missing": 0}  # nothing is there twice


def test_erase_reaches_what_is_archived(db: Db, user: str) -> None:
    set_clock(db, "2030-01-31T23:59:59Z")
    say(db, user, "s", "Keep me.")
    expire_memory(db, user, "Thinks the zither is in Tromsø.")
    set_clock(db, "2030-12-31T00:00:00Z")
    set_settings(db, archive_destination="keep", archive_requires="nothing", expired_memory_days=20)
    archive(db)
    assert count_turns(db, user) == (2, 0, 2)
    month = f"archived_conversation_history_p{call(db, 'part_of', user)}_y2030m01"
    me = user_id(db, user)
    erased = call(db, "erase_user", user)["rows"]
    assert (erased[month], erased["archived_memories"]) == (2, 1)
    for name in (month, "archived_memories"):
        assert count_rows(db, name, "user_id = %s", me) == 0


def test_open_reader_only_delays_a_detach(memoir_dsn: str, db: Db, user: str) -> None:
    """A detach from outside waits for the reader, and calls do not wait for it. A detach by the job tries again."""
    set_clock(db, "2036-07-07T00:00:00Z")
    say(db, user, "s", "The kiln in Delft is number 77.")
    call(db, "close_session", user, "s")
    set_clock(db, "2036-10-10T00:00:00Z")
    set_settings(db, archive_destination="drop")
    part = call(db, "part_of", user)
    with psycopg.connect(memoir_dsn, autocommit=True) as sender, psycopg.connect(memoir_dsn) as reader:
        count_rows(reader, "conversation_history")  # stays in its transaction
        assert archive(db)["locked"] >= 1 and count_turns(db, user) == (2, 2, 0)
        set_settings(db, archive_detach="concurrently")
        assert archive(db)["detaching"] >= 1
        told = table(db, "bare_statements", columns="statement, reason")
        asked = [statement for statement, reason in told if "archived" in reason]
        [mine] = [statement for statement in asked if statement.endswith(f"history_p{part}_y2036m07 concurrently")]
        waiting = beside(lambda: sender.execute(mine))
        blocked = "select exists (select from pg_stat_activity where pid = %s and wait_event_type = 'Lock')"
        until(lambda: one(db, blocked, sender.info.backend_pid))
        db.execute("set lock_timeout = '50ms'")
        assert "number 77" in str(call(db, "compile_context", user, "other", "Where is number 77?"))
        say(db, user, "other", "And on we go.")
        db.execute("reset lock_timeout")
        set_clock(db, "2036-10-13T00:00:00Z")
        assert "wait to be detached" in str(table(db, "health_problems"))
        reader.commit()
        waiting.result(30)
    for statement in asked:
        if statement != mine:
            db.execute(statement)
    assert archive(db)["months"] >= 1 and count_turns(db, user) == (4, 2, 2)


def test_expired_memories_go(db: Db, user: str) -> None:
    set_clock(db, "2034-01-01T00:00:00Z")
    gone = expire_memory(db, user, "Thinks the xylophone is in Trondheim.")
    remember(db, user, "Plays the marimba.")
    set_settings(db, archive_destination="keep", expired_memory_days=20)
    set_clock(db, "2034-01-20T00:00:00Z")
    assert not archive(db).get("memories")  # not yet twenty days
    set_clock(db, "2034-01-22T00:00:00Z")
    assert archive(db)["memories"] >= 1
    assert table(db, "list_memories", user, states=[], columns="content") == [("Plays the marimba.",)]
    assert recalled(db, user, "xylophone Trondheim") == []
    # By its id it can still be forgotten, and stays away then.
    assert call(db, "forget", user, gone)["state"] == "forgotten"
    again = remember(db, user, "Thinks the xylophone is in Trondheim.", actor="agent")
    assert again["outcome"] == "refused_tombstone" and not archive(db).get("memories")


def test_a_client_writes_expired_memories_away(memoir_dsn: str, db: Db, user: str) -> None:
    set_clock(db, "2035-01-01T00:00:00Z")
    say(db, user, "s", "The bassoon is in Coimbra.")
    gone = expire_memory(db, user, "Seems to have a bassoon in Coimbra.", session="s", source_turns=[0])
    set_settings(db, archive_destination="client", expired_memory_days=20)
    set_clock(db, "2035-03-01T00:00:00Z")
    with Memoir(memoir_dsn) as memoir:
        memoir.run_job("archive")
        [row] = [row for row in memoir.export_memories() if str(row["memory_id"]) == gone]
        shown = [row["memory"][key] for key in ("user", "session", "content")]
        assert shown == [user, "s", "Seems to have a bassoon in Coimbra."]
        assert [memoir.confirm_memories([row["user_id"]], [row["memory_id"]]) for _ in range(2)] == [1, 0]
        assert gone not in [str(row["memory_id"]) for row in memoir.export_memories()]
        # That it was is known, and where from: an erase of its turn finds it.
        assert count_rows(db, "archived_memories", "memory is null and memory_id = %s", gone) == 1
        with pytest.raises(errors.UnknownMemoryError, match="its text is no longer here"):
            memoir.forget(user, gone)
        assert count_rows(db, "archived_memories", "memory_id = %s", gone) == 1
        db.execute("select memoir.erase_turn(%s, 's', 0)", [user])
        assert count_rows(db, "archived_memories", "memory_id = %s", gone) == 0
        # The months, by the same client.
        memoir.close_session(user, "s")
        set_clock(db, "2035-04-01T00:00:00Z")
        memoir.run_job("archive")
        waiting = [plan for plan in memoir.archive_plan() if plan["export"] == "ready" and plan["month"].year == 2035]
        for plan in waiting:
            turns = memoir.export_month(plan["part"], plan["month"], limit=5)
            assert len(turns) == plan["turns"]
            assert memoir.confirm_export(plan["part"], plan["month"], len(turns), "a file")
        assert waiting and not memoir.confirm_export(0, date(1999, 1, 1), 0, "a file")


def test_agent_month_is_archived_and_restored(db: Db, user: str) -> None:
    set_clock(db, "2034-05-05T12:00:00Z")
    call(db, "open_session", user, "s", context_window=64_000, response_tokens=4_000)
    append(db, user, [{"role": "user", "content": "Read all parts."}])
    for n in range(14):
        append(db, user, read(n, f"src/part_{n}.py", code(n, 9_000)))
        call(db, "context", user, "s")
    name = next(name for turn, name in table(db, "window_forms", user, "s", columns="turn_index, object") if turn == 2)
    set_clock(db, "2034-07-20T12:00:00Z")
    append(db, user, [{"role": "assistant", "content": "All read."}, {"role": "user", "content": "And now?"}])
    set_settings(db, archive_destination="keep", archive_requires="nothing")
    while archive(db).get("months"):
        pass
    made = call(db, "context", user, "s")
    assert "And now?" in str(made["messages"]) and "archived" in str(made["warnings"])
    question = "What does split_794772 return?"
    assert "split_794772" not in call(db, "memory_query", user, "s", question)["text"]
    with pytest.raises(psycopg.Error, match="archived"):
        call(db, "memory_restore", user, "s", name)
    assert call(db, "restore_month", call(db, "part_of", user), date(2034, 5, 1))["restored"] == 29
    assert call(db, "memory_restore", user, "s", name) == code(0, 9_000)
    assert "split_794772" in call(db, "memory_query", user, "s", question)["text"]
