"""A streaming standby answers as its primary does, writes nothing, and says what it has not got yet."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from math import sin

import psycopg
import pytest
from calls import call, export_rows, messages, one, persist, raises, remembered, set_clock, table
from catalog import contents
from internals import count_rows, own_rows
from parallel import until
from pg_memoir import Memoir
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.json import Jsonb
from servers import (
    PGBIN,
    as_server_user,
    connect,
    database,
    environment_of,
    in_database,
    install,
    roles,
    running,
    server_folder,
    user_of,
)

pytestmark = pytest.mark.acceptance
ROOM = """max_connections max_locks_per_transaction max_worker_processes max_wal_senders
    max_prepared_transactions""".split()
CLOCK = "2026-06-15T12:00:00Z"
VECTOR = [0.05 * (n % 7) for n in range(384)]
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
QUERIES = {
    "words": "select memoir.compile_context('alice', 'new', 'What is my cat called?')",
    "vector": "select memoir.compile_context('alice', 'new', 'What is my cat called?', p_query_embedding => %(vector)s::real[])",
    "same session": "select memoir.compile_context('alice', 'chat', 'And how old is it?', p_budget => 600)",
    "anthropic": "select memoir.compile_context('alice', 'chat', 'And how old is it?', p_format => 'anthropic')",
    "as of": "select memoir.compile_context('alice', 'new', 'What is my cat called?', p_as_of => '2026-06-15T12:00:00Z')",
    "nobody": "select memoir.compile_context('nobody', 'new', 'Hello?')",
    "context": "select memoir.context('alice', 'new', 'Where do I live?', p_query_embedding => %(vector)s::real[]) - '{compile_id,report}'::text[] #- '{arms,working}'",
    "explain": "select e::text from memoir.explain_context('alice', 'new', 'What is my cat called?', p_query_embedding => %(vector)s::real[]) e",
    "recall": "select r::text from memoir.recall('alice', 'cat Oslo', p_query_embedding => %(vector)s::real[]) r",
    "match": "select m::text from memoir.match_memories('alice', %(vector)s::real[], 0.1) m",
    "history": "select memoir.history('alice', 'chat')",
    "session": "select memoir.session_info('alice', 'chat')",
    "part": "select memoir.part_of('alice'), memoir.version(), memoir.now()",
}


@dataclass
class Pair:
    primary: str  # superusers of both
    standby: str
    login: str

    def app(self, dsn: str) -> psycopg.Connection:
        return connect(user_of(dsn, self.login))

    def caught_up(self) -> None:
        """Waits until the standby has replayed all that the primary has written."""
        with connect(self.primary) as primary, connect(self.standby) as standby:
            lsn = one(primary, "select pg_current_wal_insert_lsn()")  # what is committed may not be flushed yet
            until(lambda: one(standby, "select pg_last_wal_replay_lsn() >= %s", lsn))


def fill(db: psycopg.Connection) -> None:
    """A user with turns of two months, memories, vectors, posting lists, an open exchange and working notes."""
    for at, content in (("2026-05-30T10:00:00Z", "My cat is called Ximena."), (CLOCK, "We moved to Oslo last year.")):
        set_clock(db, at)
        for n in range(6):
            persist(db, "alice", "chat", f"{content} ({n})", f"I see, number {n}.")
        db.execute("call memoir.run_job('merge')")
    for n, content in enumerate(("Lives in Oslo", "Has a cat", "Likes tea")):
        call(db, "remember", "alice", content, embedding=[x + n / 10 for x in VECTOR])
    with Memoir(db.info.dsn) as memoir:
        memoir.embed_backlog(lambda texts: [[sin(len(text) * k) for k in range(1, 385)] for text in texts])
    for session in ("loop", "notes"):
        call(db, "append_messages", "alice", session, messages("What is the weather where I live?"))
        call(db, "compile_context", "alice", session)  # keeps the recall of the exchange, unlogged
        call(db, "append_messages", "alice", session, [{"role": "assistant", "content": None, "tool_calls": [CALL]}])
        result = {"role": "tool", "tool_call_id": "c1", "content": "Rain, 4 degrees."}
        call(db, "append_messages", "alice", session, [result])
    call(db, "set_working_memory", "alice", "notes", "plan", "look at the sky")


@pytest.fixture(scope="module")
def memoir_dsn(scratch: str) -> Iterator[str]:
    """The primary is a small server of its own: a base backup copies all of a server's databases."""
    with database(scratch) as dsn:
        install(dsn)
        yield dsn


@pytest.fixture(scope="module")
def pair(scratch: str, memoir_dsn: str) -> Iterator[Pair]:
    with roles(memoir_dsn, app="login in role memoir_app") as names, server_folder() as folder:
        with connect(memoir_dsn) as db:
            fill(db)
            # A standby refuses less room than its primary has, wherever that was set.
            room = dict(db.execute("select name, setting from pg_settings where name = any (%s)", [ROOM]).fetchall())
        primary = conninfo_to_dict(scratch)
        source = ("-h", primary["host"], "-p", primary["port"], "-U", primary["user"])
        target = ("-D", folder / "data", "-R", "-X", "stream", "-c", "fast", "--no-sync")
        as_server_user(PGBIN / "pg_basebackup", *target, *source)
        with running(folder, environment_of(scratch), hot_standby="on", **room) as dsn:
            pair = Pair(memoir_dsn, in_database(dsn, conninfo_to_dict(memoir_dsn)["dbname"]), names["app"])
            pair.caught_up()
            yield pair


def test_it_answers_as_the_primary(pair: Pair) -> None:
    with pair.app(pair.primary) as primary, pair.app(pair.standby) as standby:
        assert standby.execute("select pg_is_in_recovery()").fetchone() == (True,)
        for name, query in QUERIES.items():
            wanted = primary.execute(query, {"vector": VECTOR}).fetchall()
            assert standby.execute(query, {"vector": VECTOR}).fetchall() == wanted and wanted, name
        assert "Ximena" in str(standby.execute(QUERIES["words"]).fetchone())
        assert "Oslo" in str(standby.execute(QUERIES["match"], {"vector": VECTOR}).fetchall())
        [context] = standby.execute(QUERIES["context"], {"vector": VECTOR}).fetchone()
        assert context["arms"]["vector"] is True and context["items"]
        assert all("no vectors yet" in warning for warning in context["warnings"]), context["warnings"]


@pytest.mark.parametrize("where", ["standby", "read only"])
def test_it_writes_nothing(pair: Pair, where: str) -> None:
    dsn = pair.standby if where == "standby" else pair.primary
    with connect(pair.primary) as primary, psycopg.connect(user_of(dsn, pair.login)) as db:
        before = contents(primary)
        if where == "read only":
            db.execute("set transaction read only")
        for query in QUERIES.values():
            db.execute(query, {"vector": VECTOR})
        assert db.execute("select txid_current_if_assigned()").fetchone() == (None,)
        db.rollback()
        assert contents(primary) == before
        if where == "standby":
            refused = [("persist_turn", "alice", "chat", messages("hi")), ("remember", "alice", "no")]
            for function, *arguments in refused:
                with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
                    call(db, function, *arguments)
                db.rollback()


def test_it_says_what_it_has_not_got_yet(pair: Pair) -> None:
    ask = "select memoir.compile_context('alice', 'chat', 'And my dog?', p_after_turn => %s)"
    with pair.app(pair.primary) as primary, pair.app(pair.standby) as standby, connect(pair.standby) as control:
        control.execute("select pg_wal_replay_pause()")
        try:
            done = persist(primary, "alice", "chat", "My dog is Bello.", "Fine.")
            explained = ask.replace("select memoir.compile_context", "select * from memoir.explain_context")
            for query in (ask, ask.replace("compile_context", "context"), explained):
                says = 'this server has 24 turns of session "chat", not yet 26'
                with raises("PM021", says):
                    standby.execute(query, [done["mark"]])
            assert "Bello" not in str(standby.execute(ask, [None]).fetchone())
            assert "Bello" in str(primary.execute(ask, [done["mark"]]).fetchone())
        finally:
            control.execute("select pg_wal_replay_resume()")
        pair.caught_up()
        assert standby.execute(ask, [done["mark"]]).fetchone() == primary.execute(ask, [done["mark"]]).fetchone()
        # A session that has not arrived at all.
        control.execute("select pg_wal_replay_pause()")
        try:
            fresh = persist(primary, "bob", "first", "hi")
            with raises("PM021"):
                marked = "select memoir.compile_context('bob', 'first', 'hi?', p_after_turn => %s)"
                standby.execute(marked, [fresh["mark"]])
        finally:
            control.execute("select pg_wal_replay_resume()")


def test_an_open_exchange_goes_on_with_a_warning(pair: Pair) -> None:
    with pair.app(pair.primary) as primary, pair.app(pair.standby) as standby:
        there, here = (call(db, "context", "alice", "loop") for db in (primary, standby))
        result = {"role": "tool", "content": "Rain, 4 degrees.", "tool_call_id": "c1"}
        assert here["messages"][-1] == there["messages"][-1] == result
        assert there["arms"]["recall"] == "kept" and not there["warnings"]
        assert any("not kept" in warning for warning in here["warnings"]) and "Oslo" in str(here["messages"])
        # Working notes are unlogged: the primary shows them, here they are missing.
        shown = ["sky" in str(call(db, "compile_context", "alice", "notes", "What now?")) for db in (primary, standby)]
        assert shown == [True, False]


def test_what_a_standby_compiled_counts_on_the_primary(pair: Pair) -> None:
    ask = "select memoir.context('alice', 'new', 'Where do I live?', p_query_embedding => %s::real[])"
    with pair.app(pair.primary) as primary, pair.app(pair.standby) as standby, connect(pair.primary) as control:
        context = standby.execute(ask, [VECTOR]).fetchone()[0]
        report = "select memoir.report_context('alice', %s)"
        assert context["arms"]["working"] is None and context["items"]
        assert "report" not in primary.execute(ask, [VECTOR]).fetchone()[0]
        control.execute("call memoir.run_job('flush')")

        def count_uses() -> int:
            rows = export_rows(control, "alice", "memory_stats")
            return sum(row["access_count"] for row in rows if row["memory_id"] in context["items"])

        before = count_uses()
        assert primary.execute(report, [Jsonb(context["report"])]).fetchone() == (True,)
        assert primary.execute(report, [Jsonb(context["report"])]).fetchone() == (False,)
        control.execute("call memoir.run_job('flush')")
        assert primary.execute(report, [Jsonb(context["report"])]).fetchone() == (False,)
        known = table(control, "list_memories", "alice", limit=1000, columns="memory_id::text")
        memories = sum(key in context["items"] for (key,) in known)
        assert count_uses() == before + memories and memories > 0
        kept = own_rows(control, "alice", "compile_ledger", "tokens, budget", f"compile_id = '{context['compile_id']}'")
        assert kept == [(context["tokens"], context["budget"])]
        others = [{"items": []}, {"user_id": str(uuid.uuid4())}, {"recorded_at": "2001-01-01T00:00:00Z"}]
        for wrong in ({}, {"items": "x"}, *(context["report"] | other for other in others)):
            with raises("PM014", "report is not what context returned"):
                primary.execute(report, [Jsonb(wrong)])


def test_events_that_commit_late_on_a_standby(pair: Pair) -> None:
    """A standby sees no list of open transactions, so its cursor must not pass one whose event is still to come."""
    with connect(pair.primary) as control, connect(pair.primary) as early, connect(pair.standby) as standby:
        call(control, "set_setting", "outbox_days", Jsonb(7))
        start = call(control, "read_events", None, after="now")["cursor"]
        with connect(pair.primary) as late, late.transaction():
            remembered(late, "late", "Owns a slow boat.")
            remembered(early, "early", "Owns a quick boat.")
            pair.caught_up()
            at_primary = call(control, "read_events", None, after=start)
            at_standby = call(standby, "read_events", None, after=start)
        pair.caught_up()

        def users(cursor: str) -> list[str]:
            return [event["data"]["user"] for event in call(standby, "read_events", None, after=cursor)["events"]]

        seen = [event["data"]["user"] for event in at_standby["events"]]
        assert sorted(seen + users(at_standby["cursor"])) == ["early", "late"]
        assert users(at_primary["cursor"]) == ["late"]
        with Memoir(pair.standby) as reader:  # LISTEN is refused there
            assert next(reader.stream_events(after=start))["data"]["user"] == "late"
        call(control, "set_setting", "outbox_days", Jsonb(0))


def test_promoted_it_is_a_primary(pair: Pair) -> None:
    """The last test here. What was unlogged is empty, everything else goes on."""
    pair.caught_up()
    with connect(pair.standby) as control, pair.app(pair.standby) as db:
        assert control.execute("select pg_promote()").fetchone() == (True,)
        before = call(db, "session_info", "alice", "chat")["turns"]
        assert persist(db, "alice", "chat", "Are you there?")["turn_count"] == before + 1
        assert "Ximena" in str(db.execute(QUERIES["words"]).fetchone())
        assert count_rows(control, "compile_buffer") == 1
        control.execute("call memoir.run_job('flush')")
