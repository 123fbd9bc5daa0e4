"""Erasure: of a user, a session, a turn, and out of the files; what is derived goes along, what is not stays."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from calls import persist, remember, remembered
from psycopg.types.json import Jsonb
from servers import connect, roles, unique, user_of

VECTOR = [0.1] * 384


@pytest.fixture(autouse=True)
def internal_names(db: psycopg.Connection) -> None:
    """Internal functions are asked directly here."""
    db.execute("set search_path = pg_catalog, memoir, _memoir, memoir_extensions, public")


def compiled(db: psycopg.Connection, user: str, session: str, query: str | None = "And now?") -> list[dict[str, Any]]:
    return db.execute("select memoir.compile_context(%s, %s, %s)", [user, session, query]).fetchone()[0]


def erase(db: psycopg.Connection, what: str, *arguments: Any) -> dict[str, Any]:
    return db.execute(f"select memoir.erase_{what}({', '.join(['%s'] * len(arguments))})", arguments).fetchone()[0]


def user_id(db: psycopg.Connection, user: str) -> Any:
    return db.execute("select _memoir.user_id('default', %s)", [user]).fetchone()[0]


def tables(db: psycopg.Connection) -> list[str]:
    return [
        name
        for (name,) in db.execute(
            "select relname from pg_class where relnamespace = '_memoir'::regnamespace and relkind in ('r', 'p') and not relispartition order by 1"
        )
    ]


def holding(db: psycopg.Connection, *tokens: str) -> dict[str, list[str]]:
    """{token: tables with a row that holds it, as text, in bytes or as a word}."""
    found: dict[str, list[str]] = {}
    for token in tokens:
        found[token] = [
            t
            for t in tables(db)
            if db.execute(
                f"select 1 from _memoir.{t} t where strpos(lower(t::text), lower(%s)) > 0 or strpos(t::text, encode(%s, 'hex')) > 0 limit 1",
                [token, token.encode()],
            ).fetchone()
        ]
    return found


def embed(db: psycopg.Connection) -> None:
    claimed = db.execute("select * from memoir.claim_embeddings(1000)").fetchall()
    db.execute(
        "select memoir.store_embeddings(%s::uuid[], %s::int[], %s::real[], 'all-MiniLM-L6-v2')",
        [[c[0] for c in claimed], [c[1] for c in claimed], VECTOR * len(claimed)],
    )


def valid(messages: list[dict[str, Any]]) -> None:
    """Ends with the user or a tool's result, starts with the user, every result behind its call and every call with all its results."""
    shown = [m for m in messages if m["role"] != "system"]
    assert shown and shown[0]["role"] == "user" and shown[-1]["role"] in ("user", "tool")
    open_calls: list[str] = []
    for message in shown:
        if message["role"] == "tool":
            open_calls.remove(message["tool_call_id"])
        else:
            assert open_calls == []
            open_calls = [c["id"] for c in message.get("tool_calls", [])]
    assert open_calls == []


# A value of every type, and a row of every table, so that a new table is covered the day it appears.
_VALUES = {
    "uuid": "gen_random_uuid()",
    "text": "'x'",
    "name": "'x'",
    "timestamp with time zone": "now()",
    "integer": "1",
    "bigint": "1",
    "smallint": "1",
    "real": "0.5",
    "boolean": "true",
    "jsonb": "'{}'",
    "bytea": "'x'",
    "tsvector": "'x:1'",
    "halfvec": "(select array_agg(0.1::real)::halfvec from generate_series(1, 384))",
    '"char"': "'t'",
    "xid8": "pg_current_xact_id()",
    "double precision": "0.5",
    "numeric": "1",
    "date": "current_date",
    "interval": "'1 hour'",
}
_CHECKED = {
    ("memory_judgements", "verdict"): "'compatible'",
    ("memory_judgements", "decision"): "'none'",
    ("turn_marks", "mark"): "'secret'",
    ("memory_sources", "link"): "'origin'",
    ("memory_store", "importance"): "'normal'",
    ("fidelity_transitions", "trigger"): "'pressure'",
    ("fault_history", "fault_type"): "'micro_fault'",
    ("tombstones", "kind"): "'value'",
    ("login_users", "login"): "(select min(login) from _memoir.logins)",
}


def fill(db: psycopg.Connection, table: str, user: Any) -> None:
    """One row with every column that must be given."""
    columns = db.execute(
        """
        select a.attname, format_type(a.atttypid, null), t.typcategory::text, (select min(enumlabel) from pg_enum where enumtypid = a.atttypid), a.attnotnull
        from pg_attribute a join pg_type t on t.oid = a.atttypid
        where attrelid = ('_memoir.' || %s)::regclass and attnum > 0 and not attisdropped and attidentity = '' and a.attnotnull and not a.atthasdef""",
        [table],
    ).fetchall()
    values = {}
    for name, kind, category, label, _ in columns:
        if category == "A":
            values[name] = "'{}'"
        elif label is not None:
            values[name] = f"'{label}'"
        else:
            values[name] = _CHECKED.get((table, name)) or _VALUES[kind.removeprefix("memoir.")]
    values["user_id"] = f"'{user}'"
    if "scope" in values:
        values["scope"], values["local_to"] = "'local'", "gen_random_uuid()"
    db.execute(f"insert into _memoir.{table} ({', '.join(values)}) values ({', '.join(values.values())})")


def test_a_user_is_erased_from_every_table_there_is(db: psycopg.Connection, user: str, memoir_dsn: str) -> None:
    bystander = unique("bystander")
    mine, other = user_id(db, user), user_id(db, bystander)
    with roles(memoir_dsn, bound="login in role memoir_tenant") as names:
        db.execute("select memoir.bind_login(%s, %s)", [names["bound"], ["somebody"]])
        user_tables = {t for (t,) in db.execute("select _memoir.user_tables()")}
        partitioned = {t for (t,) in db.execute("select table_name from _memoir.partitioned_tables")}
        assert (
            partitioned <= user_tables and {"work_items", "audit_log", "compile_buffer", "login_users"} <= user_tables
        )
        for owner in (mine, other):
            for table in sorted(user_tables):
                fill(db, table, owner)
        before = {
            t: db.execute(f"select count(*) from _memoir.{t} where user_id = %s", [mine]).fetchone()[0]
            for t in user_tables
        }
        assert min(before.values()) == 1, before
        answer = erase(db, "user", user)
        assert answer["rows"] == before and answer["total"] == sum(before.values())
        for table in user_tables:
            assert db.execute(
                f"select count(*) filter (where user_id = %s), count(*) filter (where user_id = %s) from _memoir.{table}",
                [mine, other],
            ).fetchone() == (0, 1), table
        # That it happened is kept, and neither whose nor what.
        kept = db.execute(
            "select user_id, detail from _memoir.audit_log where action = 'erase' order by audit_id desc limit 1"
        ).fetchone()
        assert (
            kept[0] is None
            and kept[1] == {"what": "user", "rows": before}
            and holding(db, str(mine)) == {str(mine): []}
        )
        assert erase(db, "user", user) == {"erased": "user", "rows": {}, "total": 0}
        erase(db, "user", bystander)
        db.execute("delete from _memoir.logins where login = %s", [names["bound"]])


def furnish(db: psycopg.Connection, user: str, mark: str) -> dict[str, Any]:
    """A session whose turn 2 says `mark`, with all that can be derived from it, and things that are not."""
    call = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "the pier"}'}}
        ],
    }
    made = persist(
        db,
        user,
        "s",
        "Hello there",
        "Hi",
        f"I keep a {mark} at the pier",
        "Noted, at the pier",
        "Look it up",
        call,
        {"role": "tool", "tool_call_id": "c1", "content": "It is moored"},
        "It is moored there",
    )
    persist(db, user, "other", "I grow tomatoes", "Noted")
    db.execute("select memoir.branch_session(%s, 's', 'b')", [user])
    persist(db, user, "b", "In the branch", "Yes")
    ids = {"user": user_id(db, user), "session": made["session_id"], "turn": made["message_ids"][2]}
    ids["memory"] = remembered(
        db,
        user,
        f"Keeps a {mark}",
        session="s",
        source_turns=[2],
        tags=[mark],
        metadata=Jsonb({"said": mark}),
        slot="boat",
        slot_value=mark,
    )
    ids["unrelated"] = remembered(db, user, "Grows tomatoes", session="other", source_turns=[0])
    ids["merged"] = remembered(db, user, "Says hello", session="s", source_turns=[0])
    db.execute(
        "insert into _memoir.memory_sources (user_id, item_kind, item_id, source_kind, source_id, link) values (%(user)s, 'memory', %(merged)s, 'turn', %(turn)s, 'merged')",
        ids,
    )
    ids["second"] = remembered(db, user, f"Owner of some {mark}", key=f"second-{mark}")
    db.execute(
        "insert into _memoir.memory_sources (user_id, item_kind, item_id, source_kind, source_id) values (%(user)s, 'memory', %(second)s, 'memory', %(memory)s)",
        ids,
    )
    ids["restated"] = remembered(db, user, "Has a boat", session="s", source_turns=[2], provenance="user_stated")
    assert (
        remembered(db, user, "has a BOAT", session="other", source_turns=[0], provenance="user_stated")
        == ids["restated"]
    )
    db.execute(
        "insert into _memoir.memory_renditions values (%(user)s, %(memory)s, 2, %(mark)s, 1, 'estimate', '[]', '[]', '[]', '[]', 'test', now())",
        {**ids, "mark": mark},
    )
    db.execute(
        "insert into _memoir.compactions (user_id, session_id, compaction_id, from_turn, to_turn, summary_text, made_by, recorded_at) "
        "values (%(user)s, %(session)s, gen_random_uuid(), 0, 3, %(mark)s, 'test', now())",
        {**ids, "mark": mark},
    )
    db.execute(
        "update _memoir.sessions set summary_text = %(mark)s, summary_through = 3 where user_id = %(user)s and session_id = %(session)s",
        {**ids, "mark": mark},
    )
    db.execute(
        "insert into _memoir.profiles values (%(user)s, 1, %(mark)s, '{}', 'test', now())", {**ids, "mark": mark}
    )
    db.execute("update _memoir.users set profile_version = 1 where user_id = %(user)s", ids)
    db.execute(
        "insert into _memoir.turn_pins values (%(user)s, %(session)s, 2, 2, null, %(mark)s, 'person', 'test', now())",
        {**ids, "mark": mark},
    )
    db.execute(
        "insert into _memoir.memory_judgements values (%(user)s, gen_random_uuid(), now(), %(unrelated)s, %(memory)s, 'value', 'compatible', 0.1, 0.2, 'none', null, %(mark)s)",
        {**ids, "mark": mark},
    )
    db.execute(
        "insert into _memoir.work_items (kind, user_id, run_after, created_at, payload, last_error) values ('extract', %(user)s, now() + interval '1 day', now(), "
        "jsonb_build_object('turns', jsonb_build_array(%(turn)s::text)), %(mark)s)",
        {**ids, "mark": mark},
    )
    ids["call"] = db.execute(
        "select memoir.capture_call(%s, 's', %s, p_events => %s)", [user, mark.encode(), [mark.encode()]]
    ).fetchone()[0]
    db.execute("select memoir.set_working_memory(%s, 'other', 'n', 'water the tomatoes')", [user])
    embed(db)
    compiled(db, user, "other", f"Where is the {mark}?")
    compiled(db, user, "b", f"Where is the {mark}?")
    db.execute("select _memoir.merge_tail(%(user)s)", ids)
    db.execute("call memoir.flush_statistics()")
    compiled(db, user, "other", f"Where is the {mark} now?")
    embed(db)
    return ids


def test_a_turn_is_erased_with_all_that_stems_from_it(db: psycopg.Connection, user: str) -> None:
    mark = unique("catamaran").replace("_", "")
    ids = furnish(db, user, mark)
    spread = holding(db, mark)[mark]
    assert {
        "conversation_history",
        "memory_store",
        "memory_renditions",
        "compactions",
        "sessions",
        "profiles",
        "work_items",
        "api_calls",
        "stream_events",
        "kept_recalls",
        "search_postings",
    } <= set(spread), spread
    counted = db.execute(
        "select turn_index from _memoir.conversation_history where session_id = %(session)s order by 1", ids
    ).fetchall()
    answer = erase(db, "turn", user, "b", 2)  # as the branch sees it
    assert (
        answer["turns"] == [2] and answer["rows"]["conversation_history"] == 1 and answer["rows"]["memory_store"] == 2
    )
    assert holding(db, mark) == {mark: []}
    assert db.execute(
        "select turn_index from _memoir.conversation_history where session_id = %(session)s order by 1", ids
    ).fetchall() == [t for t in counted if t != (2,)]
    # Ids are left, in state erased; what something else says too, or what merely resembled it, stays.
    states = dict(
        db.execute(
            "select memory_id::text, state::text from _memoir.memory_store where user_id = %(user)s", ids
        ).fetchall()
    )
    assert states == {
        ids["memory"]: "erased",
        ids["second"]: "erased",
        ids["merged"]: "active",
        ids["unrelated"]: "active",
        ids["restated"]: "active",
    }
    assert db.execute(
        "select count(*) from _memoir.memory_sources where user_id = %(user)s and source_id = %(turn)s", ids
    ).fetchone() == (0,)
    assert (
        db.execute("select items, total_words from _memoir.user_counters where user_id = %(user)s", ids).fetchone()
        == db.execute(
            "select count(*), sum(word_count) from _memoir.search_items where user_id = %(user)s", ids
        ).fetchone()
    )
    assert db.execute(
        "select count(*) from _memoir.search_postings p, unnest(p.postings) i where user_id = %(user)s and not exists "
        "(select from _memoir.search_items s where s.user_id = p.user_id and s.item_no = p.first_item + (i >> 8))",
        ids,
    ).fetchone() == (0,)
    assert db.execute(
        "select cardinality(postings) = cardinality(lengths) and coalesce(cardinality(words) = cardinality(ends) and ends[cardinality(ends)] = cardinality(postings), "
        "words is null and ends is null) from _memoir.search_postings "
        "where user_id = %(user)s group by 1",
        ids,
    ).fetchall() == [(True,)]
    for session in ("s", "b", "other"):
        messages = compiled(db, user, session, "What about the tomatoes, the pier and the boat?")
        valid(messages)
        assert mark not in str(messages)
    assert "moored" in str(compiled(db, user, "s")) and "tomatoes" in str(
        db.execute("select * from memoir.recall(%s, 'tomatoes')", [user]).fetchall()
    )
    with pytest.raises(psycopg.Error, match="turn 2 does not exist"):
        erase(db, "turn", user, "s", 2)
    # What followed it is embedded anew, without its words.
    assert "Noted, at the pier" in [c[3] for c in db.execute("select * from memoir.claim_embeddings(1000)").fetchall()]
    assert persist(db, user, "s", "More", "Yes")["from_turn"] == 8


@pytest.mark.parametrize("turn", range(8))
def test_any_turn_can_be_erased_and_lists_stay_valid(db: psycopg.Connection, user: str, turn: int) -> None:
    mark = unique("mark").replace("_", "")
    furnish(db, user, mark)
    group = [5, 6] if turn in (5, 6) else [turn]
    assert erase(db, "turn", user, "s", turn)["turns"] == group
    for session in ("s", "b"):
        valid(compiled(db, user, session))
        assert db.execute("select count(*) from memoir.history(%s, %s)", [user, session]).fetchone()[0] == 8 - len(
            group
        ) + 2 * (session == "b")
    for at in range(9):
        try:
            db.execute("select memoir.branch_session(%s, 's', %s, %s)", [user, f"b{at}", at])
            valid(compiled(db, user, f"b{at}"))
        except psycopg.Error as error:
            assert error.sqlstate == "PM014" and at == 6
    persist(db, user, "s", "More", "Yes")
    valid(compiled(db, user, "s"))


def test_an_open_exchange_without_its_question_is_over(db: psycopg.Connection, user: str) -> None:
    call = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
    }
    persist(db, user, "s", "Hello", "Hi", "Look", call, {"role": "tool", "tool_call_id": "c1", "content": "seen"})
    valid(compiled(db, user, "s", None))
    erase(db, "turn", user, "s", 2)
    with pytest.raises(psycopg.Error) as caught:
        compiled(db, user, "s", None)
    assert caught.value.sqlstate == "PM022"
    valid(compiled(db, user, "s"))
    persist(db, user, "open", "Hello")
    persist(db, user, "open", call, function="append_messages")
    assert erase(db, "turn", user, "open", 1)["turns"] == [1]
    valid(compiled(db, user, "open", None))  # the call that waited is gone, the question stands
    assert persist(db, user, "open", {"role": "assistant", "content": "Well"})["from_turn"] == 2


def test_a_session_is_erased_with_all_that_stems_from_it(db: psycopg.Connection, user: str) -> None:
    mark = unique("catamaran").replace("_", "")
    ids = furnish(db, user, mark)
    db.execute("select memoir.set_working_memory(%s, 's', 'n', %s)", [user, mark])
    remembered(db, user, f"The {mark} was noted there", session="s")
    persist(db, user, "b", "And in the branch", "Quite")
    answer = erase(db, "session", user, "s")
    assert answer["rows"]["conversation_history"] == 8 and answer["rows"]["sessions"] == 1
    assert holding(db, mark) == {mark: []}
    in_session = [
        t
        for t in tables(db)
        if db.execute(f"select 1 from _memoir.{t} t where strpos(t::text, %s) > 0 limit 1", [ids["session"]]).fetchone()
    ]
    assert in_session == ["sessions"]  # the branch says whose it was
    assert db.execute(
        "select external_id from _memoir.sessions where user_id = %(user)s order by 1", ids
    ).fetchall() == [("b",), ("other",)]
    assert [m["content"] for m in compiled(db, user, "b", "x")][:2] == ["In the branch", "Yes"]
    valid(compiled(db, user, "b", "x"))
    states = dict(
        db.execute(
            "select memory_id::text, state::text from _memoir.memory_store where user_id = %(user)s", ids
        ).fetchall()
    )
    assert (states[ids["memory"]], states[ids["merged"]], states[ids["restated"]], states[ids["unrelated"]]) == (
        "erased",
        "erased",
        "active",
        "active",
    )
    with pytest.raises(psycopg.Error) as caught:
        erase(db, "session", user, "s")
    assert caught.value.sqlstate == "PM003"
    assert persist(db, user, "s", "New", "Start")["from_turn"] == 0


def test_why_somebody_wanted_it_gone_goes_too(db: psycopg.Connection, user: str) -> None:
    mark = unique("reason").replace("_", "")
    persist(db, user, "s", "I keep a boat", "Noted")
    memory = remembered(db, user, "Keeps a boat", session="s", source_turns=[0])
    db.execute("select memoir.forget(%s, %s, %s)", [user, memory, f"because of {mark}"])
    assert len(holding(db, mark)[mark]) >= 3
    erase(db, "turn", user, "s", 0)
    assert holding(db, mark) == {mark: []}
    assert remember(db, user, "Keeps a boat")["memory_id"] is None  # the tombstone is a keyed hash, and holds


def test_erasing_is_for_people_and_services(db: psycopg.Connection, user: str, memoir_dsn: str) -> None:
    persist(db, user, "s", "Hello", "Hi")
    with roles(
        memoir_dsn,
        agent="login in role memoir_tenant",
        person="login in role memoir_tenant",
        bot="login in role memoir_app",
        half="login in role memoir_tenant",
        reader="login in role memoir_reader",
    ) as names:
        for key, actor in (("agent", "agent"), ("person", "person"), ("bot", "agent")):
            db.execute("select memoir.bind_login(%s, %s, %s)", [names[key], [user] if key != "bot" else None, actor])
        db.execute("select memoir.bind_login(%s, %s, 'person', '{red}')", [names["half"], [user]])
        for key in ("agent", "bot", "half", "reader"):
            with connect(user_of(memoir_dsn, names[key])) as login:
                for what, more in (("user", []), ("session", ["s"]), ("turn", ["s", 0])):
                    with pytest.raises(psycopg.Error) as caught:
                        erase(login, what, user, *more)
                    assert caught.value.sqlstate in ("PM001", "42501")
        with connect(user_of(memoir_dsn, names["person"])) as login:
            assert erase(login, "turn", user, "s", 0)["turns"] == [0]
            assert erase(login, "user", user)["total"] > 0
            with pytest.raises(psycopg.Error, match="may not erase"):
                erase(login, "user", user)  # not bound to it any more
    assert db.execute("select count(*) from _memoir.users where external_id = %s", [user]).fetchone() == (0,)


# Beside others --------------------------------------------------------------------------------------------------------


def in_background(dsn: str, statement: str, parameters: list[Any]) -> tuple[threading.Thread, list[Any]]:
    """Runs it on a connection of its own; waits until it waits for a lock or is done."""
    out: list[Any] = []

    def run() -> None:
        with connect(dsn, application_name=name) as db:
            try:
                out.append(db.execute(statement, parameters).fetchone())
            except psycopg.Error as error:
                out.append(error)

    name = unique("background")
    thread = threading.Thread(target=run)
    thread.start()
    with connect(dsn) as db:
        while (
            thread.is_alive()
            and not db.execute(
                "select 1 from pg_stat_activity where application_name = %s and wait_event_type = 'Lock'", [name]
            ).fetchone()
        ):
            thread.join(0.02)
    return thread, out


WRITES = [
    ('select memoir.persist_turn(%s, \'new\', \'[{"role": "user", "content": "?!"}]\')', []),
    ('select memoir.persist_turn(%s, \'s\', \'[{"role": "user", "content": "words"}]\')', []),
    ("select memoir.remember(%s, 'Likes tea')", []),
    ("select memoir.capture_call(%s, 's', 'x')", []),
    ("select memoir.set_user_settings(%s, '{\"frequent_memories\": 2}')", []),
    ("select memoir.set_working_memory(%s, 's', 'k', 'note')", []),
    ("select memoir.compile_context(%s, 's', 'Hello?')", []),
    ("select memoir.branch_session(%s, 's', 'b')", []),
]


@pytest.mark.parametrize(
    "statement",
    [w for w, _ in WRITES],
    ids=[w.split("memoir.")[1].split("(")[0] + str(n) for n, (w, _) in enumerate(WRITES)],
)
def test_erasure_waits_for_earlier_writers(db: psycopg.Connection, memoir_dsn: str, user: str, statement: str) -> None:
    mine = user_id(db, user)
    remains = "select count(*) from _memoir.conversation_history where user_id = %s"
    persist(db, user, "s", "Hello", "Hi")
    with connect(memoir_dsn) as writer:
        writer.execute("begin")
        writer.execute(statement, [user])
        thread, out = in_background(memoir_dsn, "select memoir.erase_user(%s)", [user])
        assert thread.is_alive()
        writer.execute("commit")
        thread.join()
    assert out[0][0]["erased"] == "user"
    for (table,) in db.execute("select _memoir.user_tables()").fetchall():
        assert db.execute(f"select count(*) from _memoir.{table} where user_id = %s", [mine]).fetchone() == (0,), table

    persist(db, user, "s", "Hello", "Hi")
    with connect(memoir_dsn) as eraser:
        eraser.execute("begin")
        eraser.execute("select memoir.erase_user(%s)", [user])
        thread, out = in_background(memoir_dsn, statement, [user])
        if "compile_context" in statement:
            thread.join()  # waits for nobody
        else:
            assert thread.is_alive()
        eraser.execute("commit")
        thread.join()
    assert db.execute(remains + " and content = 'Hello'", [mine]).fetchone() == (0,)
    if "compile_context" in statement:
        assert not isinstance(out[0], Exception)
        assert [
            t
            for (t,) in db.execute("select _memoir.user_tables()").fetchall()
            if db.execute(f"select 1 from _memoir.{t} where user_id = %s", [mine]).fetchone()
        ] == []


def test_workers_bring_nothing_back(db: psycopg.Connection, memoir_dsn: str, user: str) -> None:
    mine = user_id(db, user)
    persist(db, user, "s", "Hello there", "Hi you")
    compiled(db, user, "s")
    claimed = [c for c in db.execute("select * from memoir.claim_embeddings(1000)").fetchall() if c[0] == mine]
    assert len(claimed) == 2
    with connect(memoir_dsn) as eraser:
        eraser.execute("begin")
        eraser.execute("select memoir.erase_user(%s)", [user])
        thread, out = in_background(
            memoir_dsn,
            "select memoir.store_embeddings(%s::uuid[], %s::int[], %s::real[], 'all-MiniLM-L6-v2')",
            [[c[0] for c in claimed], [c[1] for c in claimed], VECTOR * 2],
        )
        thread.join()  # waits for nobody
        eraser.execute("commit")
    assert out == [(0,)]
    db.execute("call memoir.flush_statistics()")
    db.execute("select _memoir.merge_tail(%s)", [mine])
    assert [
        t
        for (t,) in db.execute("select _memoir.user_tables()").fetchall()
        if db.execute(f"select 1 from _memoir.{t} where user_id = %s", [mine]).fetchone()
    ] == []


# Out of the files -----------------------------------------------------------------------------------------------------


@pytest.fixture
def data_files(db: psycopg.Connection) -> Iterator[Any]:
    """A search for bytes in all relation files of the database."""
    directory, oid = db.execute(
        "select current_setting('data_directory'), oid from pg_database where datname = current_database()"
    ).fetchone()
    folder = Path(directory) / "base" / str(oid)

    def search(*tokens: str) -> dict[str, set[str]]:
        db.execute("checkpoint")
        names = {
            Path(path).name: name
            for path, name in db.execute(
                "select pg_relation_filepath(c.oid), coalesce('toast of ' || t.relname, c.relname) from pg_class c left join pg_class t on t.reltoastrelid = c.oid "
                "where pg_relation_filepath(c.oid) is not null"
            ).fetchall()
        }
        found: dict[str, set[str]] = {token: set() for token in tokens}
        for file in folder.iterdir():
            content = file.read_bytes()
            for token in tokens:
                if token.encode() in content:
                    found[token].add(names.get(file.name.split(".")[0].split("_")[0], file.name))
        return found

    try:
        next(folder.iterdir())
    except PermissionError:
        pytest.skip("the server's files can't be read from here")
    yield search


def run_erase(db: psycopg.Connection) -> None:
    db.execute("call memoir.run_job('erase', 600)")


def run_erase_to_its_end(db: psycopg.Connection) -> None:
    """Whoever has an older snapshot, autovacuum too, leaves work to the next run."""
    deadline = time.monotonic() + 60
    run_erase(db)
    while db.execute("select exists (select from _memoir.erase_queue)").fetchone()[0]:
        assert time.monotonic() < deadline, "the job erase found no end"
        run_erase(db)


def test_the_bytes_leave_the_files(db: psycopg.Connection, user: str, data_files: Any) -> None:
    """Tokens of the kind that ends in each place: rows, TOAST, index entries, statistics."""
    token = unique("tok").replace("_", "q")
    noise = random.Random(4)
    long = f"{token} " + "".join(
        chr(noise.randrange(161, 1000)) if n % 9 else " " for n in range(6000)
    )  # too varied to be compressed
    persist(db, user, f"session-{token}", f"I keep {token} in the cellar", long)
    persist(db, user, "stays", "Tomatoes are red", "Yes")
    memory = remembered(
        db,
        user,
        f"Keeps {token}",
        session=f"session-{token}",
        source_turns=[0],
        slot=f"slot {token}",
        slot_value=token,
        tags=[token],
        source_key=token,
    )
    db.execute("select memoir.set_working_memory(%s, %s, 'k', %s)", [user, f"session-{token}", f"note {token}"])
    db.execute("select memoir.capture_call(%s, %s, %s)", [user, f"session-{token}", long.encode()])
    db.execute(
        "select memoir.open_session(%s, %s, p_system_prompt => %s)",
        [user, f"session-{token}", f"You speak with {token}"],
    )
    db.execute(
        "insert into _memoir.work_items (kind, user_id, dedup_key, run_after, created_at, payload) values ('extract', %s, %s, now() + interval '1 day', now(), %s)",
        [user_id(db, user), memory, Jsonb({"of": token, "memory": memory})],
    )
    db.execute("select _memoir.merge_tail(%s)", [user_id(db, user)])
    embed(db)
    compiled(db, user, f"session-{token}", f"Where is {token}?")
    for _ in range(2):
        for (table,) in db.execute(
            "select oid::regclass::text from pg_class where relnamespace = '_memoir'::regnamespace and relkind = 'r'"
        ).fetchall():
            db.execute(f"analyze {table}")
    db.execute("analyze _memoir.conversation_history")
    before = data_files(token)[token]
    kinds = {name.split("_p")[0] for name in before}
    assert {
        "conversation_history",
        "memory_store",
        "search_postings",
        "api_calls",
        "toast of conversation_history",
    } & kinds >= {"conversation_history", "memory_store"}, before
    assert any(name.startswith("toast of") for name in before) and any(
        "pkey" in name or "_idx" in name or "by_" in name for name in before
    ), before
    assert "pg_statistic" not in str(before)  # prevented, not cleared
    erase(db, "session", user, f"session-{token}")
    assert holding(db, token) == {token: ["system_prompts"]}
    assert data_files(token)[token] != set()  # dead rows
    run_erase_to_its_end(db)
    assert data_files(token) == {token: set()}
    assert db.execute("select count(*) from _memoir.erase_queue").fetchone() == (0,)
    assert db.execute("select count(*) from memoir.history(%s, 'stays')", [user]).fetchone() == (2,)

    erase(db, "user", user)
    run_erase_to_its_end(db)
    assert data_files("Tomatoes are red") == {"Tomatoes are red": set()}


def test_the_job_waits_for_whoever_still_sees_the_rows(
    db: psycopg.Connection, memoir_dsn: str, user: str, data_files: Any
) -> None:
    token = unique("tok").replace("_", "q")
    persist(db, user, "s", f"I keep {token} in the cellar", "Noted")
    run_erase(db)
    with connect(memoir_dsn) as reader:
        reader.execute("begin isolation level repeatable read")
        reader.execute("select 1")
        erase(db, "user", user)
        run_erase(db)
        assert db.execute("select count(*) from _memoir.erase_queue").fetchone()[0] > 0
        assert data_files(token)[token] != set()
        reader.execute("commit")
    run_erase_to_its_end(db)
    assert db.execute("select count(*) from _memoir.erase_queue").fetchone() == (0,)
    assert data_files(token) == {token: set()}


def test_no_column_with_words_has_statistics(db: psycopg.Connection, user: str) -> None:
    persist(db, user, "s", "Hello there", "Hi you")
    with_statistics = db.execute("""
        select c.relname, a.attname, format_type(a.atttypid, null) from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
        join pg_type t on t.oid = a.atttypid
        where c.relnamespace = '_memoir'::regnamespace and c.relkind in ('r', 'p') and coalesce(a.attstattarget, -1) <> 0 and (t.typcategory = 'A'
          or t.typname in ('text', 'jsonb', 'bytea', 'tsvector', 'halfvec'))
          and exists (select from pg_attribute u where u.attrelid = c.oid and u.attname = 'user_id')""").fetchall()
    assert with_statistics == []
