"""Export and import: everything comes back as it was, in any batches and however often, and what may not come back does not."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from calls import call, persist, remember, table
from loops import append, code, compiled, read
from pg_memoir import AsyncMemoir, Memoir, MemoirError
from pg_memoir_cli import import_conversations
from pg_memoir_cli.__main__ import main
from psycopg.types.json import Jsonb
from servers import ROOT, connect, in_database, roles, unique, user_of

SAMPLE = ROOT / "scripts" / "sample.json"


@pytest.fixture(scope="module")
def other_dsn(server_dsn: str, template: str) -> Iterator[str]:
    """Another database with pg_memoir, to import into."""
    name = unique("memoir_other")
    with connect(in_database(server_dsn, "postgres")) as admin:
        admin.execute(f"create database {name} template {template}")
        yield in_database(server_dsn, name)
        admin.execute(f"drop database {name} with (force)")


@pytest.fixture
def other(other_dsn: str) -> Iterator[psycopg.Connection]:
    with connect(other_dsn) as connection:
        yield connection


def export(db: psycopg.Connection, user: str, embeddings: bool = False) -> list[Any]:
    return [row[0] for row in db.execute("select memoir.export_user(%s, %s)", [user, embeddings])]


def restore(db: psycopg.Connection, user: str, lines: list[Any], batch: int = 100) -> dict[str, dict[str, int]]:
    total: dict[str, dict[str, int]] = {"imported": {}, "present": {}, "refused": {}}
    for start in range(0, len(lines), batch):
        answer = db.execute(
            "select memoir.import_user(%s, %s)", [user, [Jsonb(line) for line in lines[start : start + batch]]]
        ).fetchone()[0]
        for outcome, counts in answer.items():
            for kind, count in counts.items():
                total[outcome][kind] = total[outcome].get(kind, 0) + count
    return total


def embed(db: psycopg.Connection) -> None:
    """Vectors that tell texts apart, and survive half precision."""
    while claimed := db.execute("select * from memoir.claim_embeddings(200)").fetchall():
        vectors: list[float] = []
        for _, _, _, text, *_ in claimed:
            noise = random.Random(text)
            vectors += [noise.uniform(-1, 1) for _ in range(384)]
        db.execute(
            "select memoir.store_embeddings(%s::uuid[], %s::int[], %s::real[], 'all-MiniLM-L6-v2')",
            [[c[0] for c in claimed], [c[1] for c in claimed], vectors],
        )


def furnish(db: psycopg.Connection, user: str) -> None:
    """Something in every table that is exported."""
    call = db.execute(
        "select memoir.capture_call(%s, 'unopened', %s, %s, p_events => %s)", [user, b"\x00\xff{", b"}", [b"a", b"b"]]
    ).fetchone()
    assert call
    db.execute(
        "select memoir.open_session(%s, 'furnished', p_system_prompt => 'You help with \"pots\".', p_settings => '{\"recall_tokens_max\": 1500}', p_metadata => '{\"a\": [1, 2.50]}')",
        [user],
    )
    made = persist(
        db,
        user,
        "furnished",
        'My kiln is a "Rohde" \\ from \'98\u2028.',
        "Noted ✓",
        "The card is 4111 1111 1111 1111",
        "Thanks",
        "It stands in Ulm",
        "Good",
    )
    db.execute("select memoir.branch_session(%s, 'furnished', 'branch', 4)", [user])
    persist(db, user, "branch", "Another way", "Fine")
    kiln = remember(
        db,
        user,
        "Has a Rohde kiln",
        session="furnished",
        source_turns=[0],
        provenance="user_stated",
        tags=["kiln", "a,b"],
        metadata=Jsonb({"n": 1.0}),
        key="k-1",
    )["memory_id"]
    remember(db, user, "has a ROHDE kiln", session="branch", source_turns=[4], provenance="user_stated")
    remember(
        db, user, "Glazes: celadon", slot="glaze", slot_value="celadon", created_at="2024-02-03T04:05:06.789+02:00"
    )
    remember(db, user, "Glazes: tenmoku", slot="glaze", slot_value="tenmoku")
    gone = remember(db, user, "Lives in Ulm", session="furnished", source_turns=[4], provenance="user_stated")[
        "memory_id"
    ]
    db.execute("select memoir.forget(%s, %s, 'moved')", [user, gone])
    remember(db, user, "The PIN is 4711")
    db.execute("select memoir.set_working_memory(%s, 'branch', 'note', 'fire the kiln at noon', 100000)", [user])
    db.execute("select memoir.mark_turn(%s, 'branch', 4, 'private')", [user])
    db.execute("select memoir.set_user_settings(%s, '{\"recall_tokens_max\": 900}')", [user])
    ids = {
        "user": db.execute("select user_id from _memoir.users where external_id = %s", [user]).fetchone()[0],
        "session": made["session_id"],
        "memory": kiln,
    }
    db.execute(
        "insert into _memoir.compactions (user_id, session_id, compaction_id, from_turn, to_turn, summary_text, made_by, recorded_at) "
        "values (%(user)s, %(session)s, gen_random_uuid(), 0, 1, 'About the kiln.', 'test', now())",
        ids,
    )
    db.execute("set search_path = pg_catalog, memoir, _memoir, memoir_extensions, public")
    db.execute("select _memoir.refresh_summary(%(user)s, %(session)s)", ids)
    for statement in (
        "insert into _memoir.memory_renditions values (%(user)s, %(memory)s, 2, 'kiln', 1, 'estimate', '[]', '[\"x\"]', '[]', '[]', 'test', now())",
        "insert into _memoir.session_objects (user_id, session_id, memory_id, fidelity_ceiling) values (%(user)s, %(session)s, %(memory)s, 2)",
        "insert into _memoir.profiles values (%(user)s, 1, 'Has a kiln.', '{}', 'test', now())",
        "insert into _memoir.admission_scores values (%(user)s, gen_random_uuid(), now(), %(memory)s, true, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)",
        "insert into _memoir.turn_pins values (%(user)s, %(session)s, 2, 3, null, 'dear to me', 'person', 'test', now())",
        "insert into _memoir.memory_judgements values (%(user)s, gen_random_uuid(), now(), %(memory)s, %(memory)s, 'value', 'compatible', 0.1, 0.2, 'none', null, 'test')",
        "update _memoir.users set profile_version = 1 where user_id = %(user)s",
        "update _memoir.user_counters set cost_microcents = 1234567 where user_id = %(user)s",
    ):
        db.execute(statement, ids)
    db.execute("select memoir.erase_turn(%s, 'furnished', 5)", [user])


def same(one: list[Any], two: list[Any]) -> None:
    assert [a for a, b in zip(one, two) if a != b][:2] == [b for a, b in zip(one, two) if a != b][:2] and len(
        one
    ) == len(two)


@pytest.fixture(scope="module")
def ines(memoir_dsn: str) -> str:
    """The sample's user, as make demo stores it, furnished."""
    with Memoir(memoir_dsn, max_size=1) as memoir:
        import_conversations(memoir, SAMPLE)
    with connect(memoir_dsn) as db:
        furnish(db, "ines")
        embed(db)
    return "ines"


# Round trips ----------------------------------------------------------------------------------------------------------


def test_every_table_is_exported_or_says_why_not(db: psycopg.Connection, ines: str) -> None:
    db.execute("set search_path = pg_catalog, memoir, _memoir, memoir_extensions")
    ruled = {name: how for name, _, how in db.execute("select * from _memoir.export_rules()")}
    tables = {t for (t,) in db.execute("select _memoir.user_tables()")}
    assert set(ruled) <= tables
    kinds = {line["kind"] for line in export(db, ines, True)}
    exported = {t for t in tables if ruled.get(t, "rows") in ("rows", "own")}
    assert kinds - {"header", "end", "system_prompts"} <= exported and len(kinds) > 25
    mine = "select user_id from _memoir.users where external_id = %s"
    assert [
        t
        for t in exported - kinds
        if db.execute(f"select 1 from _memoir.{t} where user_id = ({mine}) limit 1", [ines]).fetchone()
    ] == []


def test_the_sample_comes_back_line_by_line(db: psycopg.Connection, other: psycopg.Connection, ines: str) -> None:
    for embeddings, batch in ((True, 37), (False, 1000)):
        lines = export(db, ines, embeddings)
        assert lines[0] == {
            "kind": "header",
            "format": "pg_memoir.export",
            "version": 1,
            "user": "ines",
            "namespace": "default",
            "embeddings": embeddings,
        }
        assert lines[-1] == {"kind": "end"} and len(lines) > 100
        done = restore(other, ines, lines, batch)
        assert done["refused"] == {} and done["imported"]["conversation_history"] > 50
        same(export(other, ines, embeddings), lines)
        again = restore(other, ines, lines, 11)
        assert again["imported"] == {} and again["refused"] == {}
        same(export(other, ines, embeddings), lines)
        # Asked both, they answer alike.
        for query in ("Which glaze crazed?", "Rohde kiln", "the Lindenhof order", "Lives in Ulm"):
            ask = "select kind, id, content, session, turn_index, said_at from memoir.recall(%s, %s, p_limit => 5)"
            assert set(other.execute(ask, [ines, query])) & set(db.execute(ask, [ines, query])) or not list(
                db.execute(ask, [ines, query])
            )
        for session in ("furnished", "branch", "celadon-cracks"):
            one, two = (list(c.execute("select memoir.history(%s, %s)", [ines, session])) for c in (db, other))
            assert one == two and one
        ask = "select memoir.context(%s, 'branch', 'x', p_memory_budget => 0) - 'compile_id' - 'statistics_version'"
        assert other.execute(ask, [ines]).fetchone() == db.execute(ask, [ines]).fetchone()
        other.execute("select memoir.erase_user(%s)", [ines])


@pytest.mark.acceptance
def test_a_locomo_conversation_comes_back(
    db: psycopg.Connection, other: psycopg.Connection, memoir_dsn: str, tmp_path: Path
) -> None:
    files = [
        Path(f)
        for f in (
            os.environ.get("PG_MEMOIR_LOCOMO", ""),
            ROOT.parent / "shared/data/locomo_dev.json",
            ROOT.parent.parent / "shared/data/locomo_dev.json",
        )
        if f
    ]
    found = [f for f in files if f.is_file()]
    if not found:
        pytest.skip("no LoCoMo file: PG_MEMOIR_LOCOMO names one")
    conversation = json.loads(found[0].read_text())[0]
    (tmp_path / "one.json").write_text(json.dumps([conversation]))
    with Memoir(memoir_dsn, max_size=1) as memoir:
        [user] = import_conversations(memoir, tmp_path / "one.json").users
    lines = export(db, user)
    assert len(lines) > 300
    assert restore(other, user, lines, 500)["refused"] == {}
    same(export(other, user), lines)


@pytest.mark.acceptance
def test_a_conversation_of_many_sessions_comes_back(
    db: psycopg.Connection, other: psycopg.Connection, user: str
) -> None:
    """Of the shape of the LoCoMo ones, made up: names, dates, metadata, sessions over months, interleaved."""
    words = "kiln glaze harbour letter garden ticket violin ladder winter engine river basket".split()
    noise = random.Random(7)
    for n in range(24):
        messages = [
            {
                "role": ("user", "assistant")[t % 2],
                "name": ("Ann", "Bo")[t % 2],
                "content": " ".join(noise.choices(words, k=noise.randrange(3, 30))) + ".?"[t % 2],
                "created_at": f"2023-{n // 2 + 1:02d}-{noise.randrange(1, 28):02d}T{t:02d}:15:00+00:00",
            }
            for t in range(noise.randrange(4, 14))
        ]
        db.execute(
            "select memoir.persist_turn(%s, %s, %s, p_metadata => %s)",
            [user, f"session_{n % 9}", Jsonb(messages), Jsonb({"dia_id": f"D{n}"})],
        )
    lines = export(db, user)
    assert restore(other, user, lines, 50)["refused"] == {}
    same(export(other, user), lines)
    # Under another name the ids of sessions differ, and everything else is as it was.
    assert restore(other, f"{user}-renamed", lines)["refused"] == {}
    renamed = export(other, f"{user}-renamed")

    def comparable(some: list[Any]) -> list[str]:
        return sorted(json.dumps(line) for line in some if line["kind"] not in ("header", "users"))

    assert comparable(renamed) == comparable(lines)
    assert [r[0] for r in other.execute("select memoir.history(%s, 'session_3')", [f"{user}-renamed"])] == [
        r[0] for r in db.execute("select memoir.history(%s, 'session_3')", [user])
    ]
    assert (
        other.execute("select count(*) from memoir.recall(%s, 'violin and harbour')", [f"{user}-renamed"]).fetchone()[0]
        > 3
    )


def test_what_was_known_then_is_known_again(db: psycopg.Connection, other: psycopg.Connection, user: str) -> None:
    try:
        for at, value in (("2026-01-01", "Ulm"), ("2026-02-01", "Bonn")):
            db.execute("select memoir.set_clock(%s)", [f"{at}T00:00:00Z"])
            remember(db, user, f"The home city is {value}", slot="home", slot_value=value)
    finally:
        db.execute("select memoir.set_clock(null)")
    restore(other, user, export(db, user))
    asked = "select content from memoir.recall(%s, 'home city', p_as_of => %s)"
    for connection in (db, other):
        assert connection.execute(asked, [user, "2026-01-15T00:00:00Z"]).fetchall() == [("The home city is Ulm",)]
        assert connection.execute(asked, [user, "2026-02-15T00:00:00Z"]).fetchall() == [("The home city is Bonn",)]


def test_an_undone_merge_stays_undone(db: psycopg.Connection, other: psycopg.Connection, user: str) -> None:
    """What was said to be two is two in the other database as well, where the rules would have made it one."""
    direction = [1.0] + [0.0] * 383
    short = remember(db, user, "enjoys fishing", embedding=direction)["memory_id"]
    remember(db, user, "enjoys fishing for trout from a small boat", embedding=direction)
    assert db.execute("select memoir.undo_merge(%s, %s) -> 'restored'", [user, short]).fetchone() == (True,)
    restore(other, user, export(db, user, embeddings=True))
    again = """select _memoir.reconcile_memory(m.user_id, m.memory_id, 'test') -> 'superseded'
        from _memoir.memory_store m join _memoir.users u using (user_id) where u.external_id = %s"""
    with other.transaction():
        other.execute("set local search_path = memoir, memoir_extensions, public")
        assert other.execute(again, [user]).fetchall() == [([],), ([],)]
    states = (
        "select m.state::text from _memoir.memory_store m join _memoir.users u using (user_id) where u.external_id = %s"
    )
    assert other.execute(states, [user]).fetchall() == [("active",), ("active",)]


def test_a_session_goes_on_where_it_was(db: psycopg.Connection, other: psycopg.Connection, user: str) -> None:
    call = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
    }
    db.execute("select memoir.append_messages(%s, 's', %s)", [user, Jsonb([{"role": "user", "content": "Look"}, call])])
    lines = export(db, user)
    restore(other, user, lines)
    assert (
        other.execute(
            'select memoir.append_messages(%s, \'s\', \'[{"role": "tool", "tool_call_id": "c1", "content": "seen"}]\')',
            [user],
        ).fetchone()[0]["from_turn"]
        == 2
    )
    assert other.execute("select memoir.compile_context(%s, 's')", [user]).fetchone()[0][-1]["content"] == "seen"
    # The file is older now: it takes nothing back.
    assert restore(other, user, lines)["imported"] == {}
    assert other.execute(
        "select turn_count from _memoir.session_counters c join _memoir.users u using (user_id) where u.external_id = %s",
        [user],
    ).fetchone() == (3,)


def test_objects_come_back_and_go_with_their_session(
    db: psycopg.Connection, other: psycopg.Connection, user: str
) -> None:
    """A managed window goes on elsewhere with the same objects, and an erased session leaves none."""
    call(db, "open_session", user, "s", p_context_window=32_000)
    append(db, user, [{"role": "user", "content": "Find out why the import is slow."}])
    for n in range(12):
        append(db, user, read(n, f"src/part_{n}.py", code(n, 6_000)))
    compiled(db, user)
    [name] = {row[0] for row in table(db, "window_forms", user, "s", columns="object, turn_index") if row[1] == 2}
    restore(other, user, export(db, user))
    assert call(other, "memory_restore", user, "s", name) == code(0, 6_000)
    append(other, user, read(12, "src/part_12.py", code(12, 6_000)))
    compiled(other, user)
    assert name in {row[0] for row in table(other, "window_forms", user, "s", columns="object")}
    types = ["file_context"]
    assert len(table(other, "list_memories", user, p_types=types, columns="memory_id")) == 13
    call(other, "erase_session", user, "s")
    assert (
        table(other, "list_memories", user, p_types=types, p_states=[], columns="content, state")
        == [(None, "erased")] * 13
    )


def test_copy_and_psql_carry_the_lines(db: psycopg.Connection, other: psycopg.Connection, ines: str) -> None:
    lines = export(db, ines)
    with db.cursor().copy("copy (select memoir.export_user('ines')) to stdout") as copy:
        data = b"".join(copy)
    other.execute("create temporary table lines (n bigint generated always as identity, line jsonb)")
    with other.cursor().copy("copy lines (line) from stdin") as copy:
        copy.write(data)
    assert [r[0] for r in other.execute("select line from lines order by n")] == lines
    other.execute("select memoir.import_user('ines', array_agg(line order by n)) from lines")
    same(export(other, ines), lines)
    other.execute("select memoir.erase_user('ines')")


# What does not come back ----------------------------------------------------------------------------------------------


def test_the_forgotten_stays_forgotten(db: psycopg.Connection, other: psycopg.Connection, user: str) -> None:
    persist(db, user, "s", "I live in Ulm", "Noted")
    memory = remember(db, user, "Lives in Ulm", session="s", source_turns=[0], provenance="user_stated", tags=["home"])[
        "memory_id"
    ]
    before = export(db, user)
    db.execute("select memoir.forget(%s, %s)", [user, memory])
    # Into the same database, from before.
    answer = restore(db, user, before)
    assert answer["imported"] == {}
    assert db.execute("select state::text from _memoir.memory_store where memory_id = %s", [memory]).fetchone() == (
        "forgotten",
    )
    # Into another, which knows that it was forgotten and has nothing else.
    after = export(db, user)
    restore(other, user, [line for line in after if line["kind"] in ("header", "users", "user_keys", "tombstones")])
    answer = restore(other, user, before)
    assert answer["refused"]["memory_store"] == 1 and answer["refused"]["memory_states"] == 1
    assert other.execute(
        "select count(*) from _memoir.memory_store m join _memoir.users u using (user_id) where u.external_id = %s",
        [user],
    ).fetchone() == (0,)
    assert other.execute(
        "select count(*) from _memoir.memory_sources m join _memoir.users u using (user_id) where u.external_id = %s",
        [user],
    ).fetchone() == (0,)
    assert remember(other, user, "lives in  ULM")["outcome"] == "refused_tombstone"
    # Tombstones under another key say nothing to each other.
    with pytest.raises(psycopg.Error, match="under another key"):
        stranger = [dict(line, row={"secret": "\\x00"}) if line["kind"] == "user_keys" else line for line in after]
        restore(other, user, stranger)


def test_the_erased_stays_erased(db: psycopg.Connection, user: str) -> None:
    mark = unique("mark").replace("_", "")
    persist(db, user, "s", "Hello", "Hi", f"I keep a {mark}", "Noted")
    persist(db, user, "kept", "I grow leeks", "Fine")
    ids = db.execute(
        "select user_id, session_id from _memoir.sessions join _memoir.users u using (user_id) where u.external_id = %s and sessions.external_id = 's'",
        [user],
    ).fetchone()
    remember(db, user, f"Keeps a {mark}", session="s", source_turns=[2], provenance="user_stated")
    db.execute(
        "insert into _memoir.compactions (user_id, session_id, compaction_id, from_turn, to_turn, summary_text, made_by, recorded_at) "
        "values (%s, %s, gen_random_uuid(), 0, 3, %s, 'test', now())",
        [*ids, mark],
    )
    db.execute("insert into _memoir.profiles values (%s, 1, %s, '{}', 'test', now())", [ids[0], mark])
    db.execute("select memoir.capture_call(%s, 's', %s)", [user, mark.encode()])
    before = export(db, user)
    assert str(before).count(mark) >= 4
    db.execute("select memoir.erase_turn(%s, 's', 2)", [user])
    after = export(db, user)
    answer = restore(db, user, before, 3)
    assert {"conversation_history", "compactions", "profiles", "api_calls"} <= set(answer["refused"])
    assert mark not in str(export(db, user)) and mark.encode().hex() not in str(export(db, user))
    assert [
        line
        for line in export(db, user)
        if line["kind"]
        in ("conversation_history", "memory_store", "memory_states", "profiles", "compactions", "api_calls")
    ] == [
        line
        for line in after
        if line["kind"]
        in ("conversation_history", "memory_store", "memory_states", "profiles", "compactions", "api_calls")
    ]
    assert db.execute("select count(*) from memoir.recall(%s, %s)", [user, mark]).fetchone() == (0,)


def test_provenance_is_the_admins_to_restore(db: psycopg.Connection, memoir_dsn: str, user: str) -> None:
    persist(db, user, "s", "Hello", "Hi")
    lines = export(db, user)
    with roles(
        memoir_dsn,
        app="login in role memoir_app",
        full="login in role memoir_app",
        tenant="login in role memoir_tenant",
        admin="login in role memoir_admin",
    ) as names:
        db.execute("select memoir.bind_login(%s, p_clearance => 'secret')", [names["full"]])
        db.execute("select memoir.bind_login(%s, %s, 'person', p_clearance => 'secret')", [names["tenant"], [user]])
        for key, may_export, may_import in (
            ("app", False, False),
            ("full", True, False),
            ("tenant", False, False),
            ("admin", True, True),
        ):
            with connect(user_of(memoir_dsn, names[key])) as login:
                for call, may in (
                    (lambda: export(login, user), may_export),
                    (lambda: restore(login, user, lines), may_import),
                ):
                    try:
                        call()
                        assert may
                    except psycopg.Error as error:
                        assert error.sqlstate in ("PM001", "42501") and not may


@pytest.mark.parametrize(
    "lines, problem",
    [
        ([{"kind": "header", "format": "pg_memoir.export", "version": 2}], "no export of a version"),
        ([{"kind": "header"}], "no export of a version"),
        ([{"kind": "audit_log", "row": {}}], "no kind that can be imported"),
        ([{}], "no kind that can be imported"),
        ([{"kind": "search_items", "row": {}}], "no kind that can be imported"),
        ([{"kind": "pg_authid", "row": {}}], "no kind that can be imported"),
        ([{"kind": "tombstones", "row": {"kind": "value"}}], "can't be imported"),
        (
            [{"kind": "conversation_history", "row": {"session_id": {"session": "nowhere"}, "turn_index": 0}}],
            "comes before its session",
        ),
        ([{"kind": "system_prompts", "row": {"content": "x", "prompt_hash": "\\x00"}}], "not the text of its hash"),
    ],
)
def test_lines_that_are_wrong_are_refused(db: psycopg.Connection, user: str, lines: list[Any], problem: str) -> None:
    with pytest.raises(psycopg.Error, match=problem) as caught:
        restore(db, user, lines)
    assert caught.value.sqlstate == "PM014"


def test_another_turn_is_not_overwritten(db: psycopg.Connection, other: psycopg.Connection, user: str) -> None:
    persist(db, user, "s", "Hello", "Hi")
    persist(other, user, "s", "Good day", "Hello")
    with pytest.raises(psycopg.Error, match="has another turn 0"):
        restore(other, user, export(db, user))
    with pytest.raises(psycopg.Error, match="unknown user") as caught:
        export(db, f"{user}-nobody")
    assert caught.value.sqlstate == "PM002"


# By the client --------------------------------------------------------------------------------------------------------


def test_the_client_streams_both_ways(
    memoir_dsn: str, other_dsn: str, ines: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Memoir(memoir_dsn, max_size=2) as one, Memoir(other_dsn, max_size=2) as two:
        lines = list(one.export_lines(ines, embeddings=True))
        assert lines == one.export_user(ines, embeddings=True) and json.loads(lines[0])["kind"] == "header"
        done = two.import_lines(lines)
        assert done.user == ines and done.imported["conversation_history"] > 50 and done.refused == {}
        assert list(two.export_lines(ines, embeddings=True)) == lines
        assert two.import_lines(lines).imported == {}
        with pytest.raises(MemoirError, match="was cut off"):
            two.import_lines(lines[:5])
        with pytest.raises(MemoirError, match="no header"):
            two.import_lines(lines[5:])
        with pytest.raises(MemoirError, match="unknown user"):
            list(one.export_lines("nobody"))

        async def both() -> list[str]:
            async with AsyncMemoir(other_dsn, max_size=1) as three:
                assert (await three.import_lines(lines)).imported == {}
                return [line async for line in three.export_lines(ines, embeddings=True)]

        assert asyncio.run(both()) == lines

        path = tmp_path / "ines.jsonl"
        assert main(["export", ines, "--dsn", memoir_dsn, "--embeddings", "--output", str(path)]) == 0
        assert path.read_text().rstrip("\n").split("\n") == lines and path.stat().st_mode & 0o077 == 0
        assert main(["export", ines, "--dsn", memoir_dsn, "--output", str(path)]) == 1  # not over what is there
        assert two.erase_user(ines)["total"] > 100
        capsys.readouterr()
        assert main(["import", str(path), "--dsn", other_dsn]) == 0
        assert "rows of ines, 2 there already" in capsys.readouterr().out
        assert list(two.export_lines(ines, embeddings=True)) == lines
        assert two.mark_turn(ines, "furnished", 0, sensitivity="private")["sensitivity"] == "private"
        assert two.erase_turn(ines, "furnished", 0)["turns"] == [0]
        assert two.erase_session(ines, "furnished")["total"] > 0
        two.erase_user(ines)
