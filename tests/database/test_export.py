"""An export comes back as it was, in any batches and however often, and what was forgotten or erased does not come back."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import psycopg
import pytest
from calls import Db, call, embed_waiting, history, one, persist, recalled, remember, remembered, set_clock, table
from loops import step
from pg_memoir import AsyncMemoir, Memoir, MemoirError
from pg_memoir_cli import import_conversations
from pg_memoir_cli.__main__ import main
from psycopg.types.json import Jsonb
from routines import code, world_of
from servers import ROOT, connect, database, unique

SAMPLE = ROOT / "docs" / "start" / "sample.json"


@pytest.fixture(scope="module")
def other_dsn(server_dsn: str, template: str) -> Iterator[str]:
    """Another database with pg_memoir, to import into."""
    with database(server_dsn, f"template {template}") as dsn:
        yield dsn


@pytest.fixture(scope="module")
def other(other_dsn: str) -> Iterator[Db]:
    with connect(other_dsn) as connection:
        yield connection


def export(db: Db, user: str, embeddings: bool = False) -> list[Any]:
    return [line for (line,) in table(db, "export_user", user, embeddings)]


def restore(db: Db, user: str, lines: list[Any], batch: int = 100) -> dict[str, dict[str, int]]:
    total: dict[str, dict[str, int]] = {"imported": {}, "present": {}, "refused": {}}
    for start in range(0, len(lines), batch):
        answer = call(db, "import_user", user, [Jsonb(line) for line in lines[start : start + batch]])
        for outcome, counts in answer.items():
            for kind, count in counts.items():
                total[outcome][kind] = total[outcome].get(kind, 0) + count
    return total


# What calls of the API leave only after jobs.
DERIVED = """
insert into _memoir.compactions (user_id, session_id, compaction_id, from_turn, to_turn, summary_text, made_by, recorded_at)
  values (%(user)s, %(session)s, gen_random_uuid(), 0, 1, 'About the kiln.', 'test', now());
update _memoir.sessions set summary_text = 'About the kiln.', summary_through = 1 where session_id = %(session)s;
insert into _memoir.memory_renditions
  values (%(user)s, %(memory)s, 2, 'kiln', 1, 'estimate', '[]', '["x"]', '[]', '[]', 'test', now());
insert into _memoir.session_objects (user_id, session_id, memory_id, fidelity_ceiling)
  values (%(user)s, %(session)s, %(memory)s, 2);
insert into _memoir.profiles values (%(user)s, 1, 'Has a kiln.', '{}', 'test', now());
insert into _memoir.admission_scores
  values (%(user)s, gen_random_uuid(), now(), %(memory)s, true, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6);
insert into _memoir.turn_pins values (%(user)s, %(session)s, 2, 3, null, 'dear to me', 'person', 'test', now());
insert into _memoir.memory_judgements values (%(user)s, gen_random_uuid(), now(), %(memory)s, %(memory)s, 'value',
  'compatible', 0.1, 0.2, 'none', null, 'test');
update _memoir.users set profile_version = 1 where user_id = %(user)s"""


def furnish(db: Db, user: str) -> None:
    """Something in every table that is exported."""
    call(db, "capture_call", user, "unopened", b"\x00\xff{", b"}", events=[b"a", b"b"])
    prompted: dict[str, Any] = {"system_prompt": 'You help with "pots".', "settings": {"recall_tokens_max": 1500}}
    call(db, "open_session", user, "furnished", metadata={"a": [1, 2.50]}, **prompted)
    said = ['My kiln is a "Rohde" \\ from \'98\u2028.', "Noted ✓", "The card is 4111 1111 1111 1111", "Thanks"]
    made = persist(db, user, "furnished", *said, "It stands in Ulm", "Good", usage={"prompt_tokens": 1234})
    call(db, "branch_session", user, "furnished", "branch", 4)
    persist(db, user, "branch", "Another way", "Fine")
    first: dict[str, Any] = {"session": "furnished", "provenance": "user_stated"}
    labels = {"tags": ["kiln", "a,b"], "metadata": {"n": 1.0}, "key": "k-1"}
    kiln = remembered(db, user, "Has a Rohde kiln", source_turns=[0], **first, **labels)
    remember(db, user, "has a ROHDE kiln", session="branch", source_turns=[4], provenance="user_stated")
    for glaze, more in (("celadon", {"created_at": "2024-02-03T04:05:06.789+02:00"}), ("tenmoku", {})):
        remember(db, user, f"Glazes: {glaze}", slot="glaze", slot_value=glaze, **more)
    call(db, "forget", user, remembered(db, user, "Lives in Ulm", source_turns=[4], **first), "moved")
    remember(db, user, "The PIN is 4711")
    call(db, "set_working_memory", user, "branch", "note", "fire the kiln at noon", 100000)
    call(db, "mark_turn", user, "branch", 4, "private")
    call(db, "set_user_settings", user, {"recall_tokens_max": 900})
    ids = {"user": one(db, "select user_id from _memoir.users where external_id = %s", user), "memory": kiln}
    for statement in DERIVED.split(";"):
        db.execute(statement, ids | {"session": made["session_id"]})
    call(db, "erase_turn", user, "furnished", 5)


@pytest.fixture(scope="module")
def ines(memoir_dsn: str) -> str:
    """The sample's user, as make demo stores it, furnished."""
    with Memoir(memoir_dsn, max_size=1) as memoir:
        import_conversations(memoir, SAMPLE)
    with connect(memoir_dsn) as db:
        furnish(db, "ines")
        # Vectors that tell texts apart, and survive half precision.
        while embed_waiting(db, lambda t: np.random.default_rng(crc32(t.encode())).uniform(-1, 1, 384), limit=200):
            pass
    return "ines"


# Round trips ----------------------------------------------------------------------------------------------------------


def test_every_table_is_exported_or_exempt(db: Db, ines: str) -> None:
    with db.transaction():
        db.execute("set local search_path = pg_catalog, memoir, _memoir, memoir_extensions")
        ruled = {name: how for name, how in db.execute("select name, how from _memoir.data_export_rules()")}
        tables = {name for (name,) in db.execute("select _memoir.user_tables()")}
    assert set(ruled) <= tables
    kinds = {line["kind"] for line in export(db, ines, True)}
    exported = {t for t in tables if ruled.get(t, "rows") in ("rows", "own")}
    assert kinds - {"header", "end", "system_prompts"} <= exported and len(kinds) > 25
    has_row = "select exists (select from _memoir.{} join _memoir.users u using (user_id) where u.external_id = %s)"
    assert [t for t in exported - kinds - {"users"} if one(db, has_row.format(t), ines)] == []


def test_the_sample_comes_back_line_by_line(db: Db, other: Db, ines: str) -> None:
    header = {"kind": "header", "format": "pg_memoir.export", "version": 1, "user": "ines", "namespace": "default"}
    for embeddings, batch in ((True, 37), (False, 1000)):
        lines = export(db, ines, embeddings)
        assert lines[0] == header | {"embeddings": embeddings}
        assert lines[-1] == {"kind": "end"} and len(lines) > 100
        done = restore(other, ines, lines, batch)
        assert done["refused"] == {} and done["imported"]["conversation_history"] > 50
        assert export(other, ines, embeddings) == lines
        again = restore(other, ines, lines, 11)
        assert again["imported"] == again["refused"] == {} and export(other, ines, embeddings) == lines
        # Asked both, they answer alike.
        for query in ("Which glaze crazed?", "Rohde kiln", "the Lindenhof order"):
            assert set(recalled(other, ines, query, limit=5)) & set(recalled(db, ines, query, limit=5)), query
        assert recalled(other, ines, "Lives in Ulm") == recalled(db, ines, "Lives in Ulm")
        for session in ("furnished", "branch", "celadon-cracks"):
            assert history(other, ines, session) == history(db, ines, session) != []
        one_, two = (call(c, "context", ines, "branch", "x", memory_budget=0)["messages"] for c in (db, other))
        assert one_ == two
        call(other, "erase_user", ines)


def test_an_undone_merge_stays_undone(db: Db, other: Db, user: str) -> None:
    """Two memories that a person set apart are two in the other database as well, where the rules would merge them."""
    direction = [1.0] + [0.0] * 383
    short = remembered(db, user, "enjoys fishing", embedding=direction)
    remember(db, user, "enjoys fishing for trout from a small boat", embedding=direction)
    assert call(db, "undo_merge", user, short)["restored"]
    restore(other, user, export(db, user, embeddings=True))
    remember(other, user, "enjoys fishing", embedding=direction)
    other.execute("call memoir.run_job('consolidation')")
    assert table(other, "list_memories", user, columns="state", states=[]) == [("active",), ("active",)]
    assert call(other, "undo_merge", user, short)["restored"] is False


def test_a_session_goes_on_where_it_was(db: Db, other: Db, user: str) -> None:
    asked, seen = step(1, "look", {}, "seen")
    persist(db, user, "s", "Look", asked, function="append_messages")
    lines = export(db, user)
    restore(other, user, lines)
    assert persist(other, user, "s", seen, function="append_messages")["from_turn"] == 2
    assert call(other, "compile_context", user, "s")[-1]["content"] == "seen"
    # The file is older now: it takes nothing back.
    assert restore(other, user, lines)["imported"] == {}
    assert call(other, "session_info", user, "s")["turns"] == 3


# What does not come back ----------------------------------------------------------------------------------------------


def test_the_forgotten_stays_forgotten(db: Db, other: Db, user: str) -> None:
    persist(db, user, "s", "I live in Ulm", "Noted")
    said = {"session": "s", "source_turns": [0], "provenance": "user_stated"}
    memory = remembered(db, user, "Lives in Ulm", tags=["home"], **said)
    before = export(db, user)
    call(db, "forget", user, memory)
    # Into the same database, from before.
    assert restore(db, user, before)["imported"] == {}
    assert table(db, "list_memories", user, states=[], columns="state") == [("forgotten",)]
    # Into another, which knows that it was forgotten and has nothing else.
    after = export(db, user)
    restore(other, user, [line for line in after if line["kind"] in ("header", "users", "user_keys", "tombstones")])
    assert restore(other, user, before)["refused"].items() >= {"memory_store": 1, "memory_states": 1}.items()
    assert table(other, "list_memories", user, states=[]) == []
    assert remember(other, user, "lives in  ULM")["outcome"] == "refused_tombstone"
    # Tombstones under another key say nothing to each other.
    stranger = [dict(line, row={"secret": "\\x00"}) if line["kind"] == "user_keys" else line for line in after]
    with pytest.raises(psycopg.Error, match="under another key"):
        restore(other, user, stranger)


def test_the_erased_stays_erased(db: Db, user: str) -> None:
    mark = unique("mark").replace("_", "")
    made = persist(db, user, "s", "Hello", "Hi", f"I keep a {mark}", "Noted")
    persist(db, user, "kept", "I grow leeks", "Fine")
    remember(db, user, f"Keeps a {mark}", session="s", source_turns=[2], provenance="user_stated")
    ids = {"user": one(db, "select user_id from _memoir.users where external_id = %s", user), "mark": mark}
    for statement in (DERIVED.split(";")[0], DERIVED.split(";")[4]):
        derived = statement.replace("0, 1,", "0, 3,").replace("'About the kiln.'", "%(mark)s")
        db.execute(derived.replace("'Has a kiln.'", "%(mark)s"), ids | {"session": made["session_id"]})
    call(db, "capture_call", user, "s", mark.encode())
    before = export(db, user)
    assert str(before).count(mark) >= 4
    call(db, "erase_turn", user, "s", 2)

    def read_kept_rows() -> list[Any]:
        kinds = ("conversation_history", "memory_store", "memory_states", "profiles", "compactions", "api_calls")
        return [line for line in export(db, user) if line["kind"] in kinds]

    after = read_kept_rows()
    answer = restore(db, user, before, 3)
    assert {"conversation_history", "compactions", "profiles", "api_calls"} <= set(answer["refused"])
    assert mark not in str(export(db, user)) and mark.encode().hex() not in str(export(db, user))
    assert read_kept_rows() == after and recalled(db, user, mark) == []


def test_provenance_is_the_admins_to_restore(db: Db, memoir_dsn: str, user: str) -> None:
    persist(db, user, "s", "Hello", "Hi")
    lines = export(db, user)
    full = {"role": "app", "clearance": "secret"}
    tenant = full | {"role": "tenant", "users": [user], "actor": "person"}
    with world_of(memoir_dsn, app="app", full=full, tenant=tenant, admin="admin") as world:
        full, none = ("full", True, False), [(key, False, False) for key in ("app", "tenant")]
        for key, may_export, may_import in (*none, full, ("admin", True, True)):
            login = world.connection(key)
            assert (code(lambda: export(login, user)) in ("PM001", "42501")) != may_export, key
            assert (code(lambda: restore(login, user, lines)) in ("PM001", "42501")) != may_import, key


def test_import_overwrites_no_turn_and_keeps_dates(db: Db, other: Db, user: str) -> None:
    for at, value in (("2026-01-01", "Ulm"), ("2026-02-01", "Bonn")):
        set_clock(db, f"{at}T00:00:00Z")
        remember(db, user, f"The home city is {value}", slot="home", slot_value=value)
    set_clock(db, None)
    restore(other, user, export(db, user))
    for month, value in ((1, "Ulm"), (2, "Bonn")):
        found = recalled(other, user, "home city", as_of=f"2026-0{month}-15T00:00:00Z")
        assert found == [f"The home city is {value}"]
    persist(db, user, "s", "Hello", "Hi")
    persist(other, user, "s", "Good day", "Hello")
    with pytest.raises(psycopg.Error, match="has another turn 0"):
        restore(other, user, export(db, user))


# By the client --------------------------------------------------------------------------------------------------------


def test_the_client_streams_both_ways(memoir_dsn: str, other_dsn: str, ines: str, tmp_path: Path, capsys) -> None:
    with Memoir(memoir_dsn, max_size=2) as source, Memoir(other_dsn, max_size=2) as target:
        lines = list(source.export_lines(ines, embeddings=True))
        assert lines == source.export_user(ines, embeddings=True) and json.loads(lines[0])["kind"] == "header"
        done = target.import_lines(lines)
        assert done.user == ines and done.imported["conversation_history"] > 50 and done.refused == {}
        assert list(target.export_lines(ines, embeddings=True)) == lines
        for part, problem in ((lines[:5], "was cut off"), (lines[5:], "no header")):
            with pytest.raises(MemoirError, match=problem):
                target.import_lines(part)

        async def both() -> list[str]:
            async with AsyncMemoir(other_dsn, max_size=1) as third:
                assert (await third.import_lines(lines)).imported == {}
                return [line async for line in third.export_lines(ines, embeddings=True)]

        assert asyncio.run(both()) == lines
        path = tmp_path / "ines.jsonl"
        to_file = ["export", ines, "--dsn", memoir_dsn, "--embeddings", "--output", str(path)]
        assert main(to_file) == 0
        assert path.read_text().rstrip("\n").split("\n") == lines and path.stat().st_mode & 0o077 == 0
        assert main(to_file) == 1  # not over what is there
        assert target.erase_user(ines)["total"] > 100
        capsys.readouterr()
        assert main(["import", str(path), "--dsn", other_dsn]) == 0
        assert "rows of ines, " in capsys.readouterr().out
        assert list(target.export_lines(ines, embeddings=True)) == lines
        target.erase_user(ines)
