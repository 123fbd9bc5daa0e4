"""Upgrades with data: what an earlier version stored is answered as before, in a schema that is as if fresh."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from calls import ask_client, call, messages, one, persist, read_turns, run_job, set_clock, set_settings
from catalog import columns, contents, describe, differences
from internals import count_rows, merged_settings
from loops import read
from servers import ROOT, complete, connect, database, install, psql

pytestmark = pytest.mark.acceptance
# The version whose data all later ones take over. Until the first release it moves on when the baseline is rewritten.
BASE = "cd63730"
USER = "ada"
# Tables that an upgrade writes itself, or that asking writes. All else is kept in the columns that it had.
MAY_CHANGE = set(
    """schema_migrations partitioned_tables compile_buffer kept_recalls setting_definitions settings_merged
    ranking_profiles""".split()  # of which the shipped one
)
# Columns that an upgrade drops (packed_signs is made anew from the vectors) or turns.
DROPPED = {("embeddings", "signs"), ("embedding_models", "languages")}
# Settings with a new default, and the weights of the shipped ranking.
NEW_DEFAULTS = set(
    """exact_vectors_max sign_candidates embed_chunks_max rank_weights own_question_turns weak_recall_tokens
    half_life_days""".split()
)
FIRINGS = read(1, "kiln.md", "\n".join(f"Firing {n}: cone {n % 10}." for n in range(600)))
STEP = messages("Read the notes on the kiln.", *FIRINGS, "Firing 599 used cone 9.")
ASKED = (
    "select memoir.compile_context(%(user)s, 'new', 'What is my cat called, and where do I live?')",
    "select memoir.compile_context(%(user)s, 'agent', 'Is there more to read?', p_budget => 1500)",
    "select memoir.compile_context(%(user)s, 'agent', 'And now?', p_format => 'anthropic')",
    "select memoir.compile_context(%(user)s, 'chat', 'And now?', p_query_embedding => array_fill(0.1::real, '{384}'))",
    "select memoir.history(%(user)s, 'chat')",
    "select m::text from memoir.list_memories(%(user)s) m",
    "select (to_jsonb(r) - 'space')::text from memoir.recall(%(user)s, 'Where do I live?') r",  # a newer column apart
    "select t::text from memoir.list_tombstones(%(user)s) t",
    "select p.weights::text from memoir.list_ranking_profiles(%(user)s) p where profile = 'user'",
    "select memoir.session_info(%(user)s, 'chat')",
)


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built file of the earlier version."""
    sources, out = tmp_path_factory.mktemp("earlier"), tmp_path_factory.mktemp("built")
    command = ["git", "-C", str(ROOT), "archive", BASE, "sql", "migrations", "scripts", "plpython", "client"]
    archive = subprocess.run(command, capture_output=True)
    if archive.returncode:
        pytest.skip(f"this checkout has no commit {BASE}: {archive.stderr.decode()[-200:]}")
    subprocess.run(["tar", "-x", "-C", str(sources)], input=archive.stdout, check=True)
    surroundings = os.environ | {"PG_MEMOIR_PYTHON": sys.executable}
    subprocess.run([str(sources / "scripts/build_sql.sh"), str(out)], check=True, env=surroundings, capture_output=True)
    return out / "pg_memoir.sql"


def live(db: psycopg.Connection) -> None:
    """What a user may have after three months: turns, memories, an archived month, erasures, weights of one's own."""
    set_clock(db, "2031-01-20T10:00:00Z")
    for session, text in (("old", "The lighthouse keeper feeds two ravens."), ("gone", "My locker code is 4711.")):
        persist(db, USER, session, text, "Noted.")
        call(db, "close_session", USER, session)
    set_clock(db, "2031-03-15T10:00:00Z")
    set_settings(db, archive_destination="keep", archive_requires="nothing", history_days=30)
    run_job(db, "archive")
    assert count_rows(db, "archived_turns") > 0
    for text in ("I live in Oslo and my cat is called Ximena.", "I moved to Bergen.", "Please forget my shoe size."):
        persist(db, USER, "chat", text, "Noted.")
    read_turns(db)
    call(db, "append_messages", USER, "agent", STEP)
    kept = call(db, "remember", USER, "Ada's boat is called Runa.", embedding=[0.1] * 384)["memory_id"]
    call(db, "pin", USER, "chat", kept)
    lost = call(db, "remember", USER, "Ada is allergic to peanuts.")["memory_id"]
    call(db, "forget", USER, lost)
    call(db, "erase_session", USER, "gone")
    persist(db, "bob", "s", "Bob was here.")
    db.execute("select memoir.erase_user('bob')")
    weights = one(db, "select weights from memoir.list_ranking_profiles(null) limit 1")
    call(db, "set_ranking_profile", USER, weights, "learnt elsewhere")
    for query in ASKED:  # first asked, frames and kept recalls are made
        ask_client(db, USER, query)
    run_job(db, "flush")


def months_apart(described: dict[str, Any]) -> dict[str, Any]:
    """But for tables of months, which are those in which something was said."""
    return {key: value for key, value in described.items() if not re.search(r"_y[0-9]{4}m[0-9]{2}|archived_.*_p0", key)}


def lasting(db: psycopg.Connection) -> dict[str, list[str]]:
    """Returns the columns that an upgrade leaves as they are, by table."""
    found = columns(db).items()
    return {t: [name for name in names if (t, name) not in DROPPED] for t, names in found if t not in MAY_CHANGE}


def explained(db: psycopg.Connection) -> list[tuple[Any, ...]]:
    """Returns explanations of the compiles of a session, with scores in hundredths, since the buffer rounds them."""
    told = (
        "l.compile_id, e.position, e.kind, e.id, e.session, e.tokens, e.fidelity, e.reason, round(e.score::numeric, 2)"
    )
    compiles = "memoir.list_compiles('ada', 'chat') l, memoir.explain_compile('ada', l.compile_id) e"
    return db.execute(f"select {told} from {compiles} order by 1, 2, 3, 4, 5, 6").fetchall()


def answers(db: psycopg.Connection) -> list[str]:
    return [str(ask_client(db, USER, query)) for query in ASKED]


def test_what_an_earlier_version_stored_is_answered_as_before(scratch: str, earlier: Path) -> None:
    with database(scratch) as dsn, database(scratch) as other:
        done = psql(dsn, "-v", "modulus=1", "-1", "-f", str(earlier))
        assert done.returncode == 0, done.stderr
        with connect(dsn) as db:
            for statement in ("call memoir.setup()", "call memoir.ensure_partitions()"):
                db.execute(statement)
            live(db)
            before, there = answers(db), lasting(db)
            stored, settings, compiles = contents(db, there), merged_settings(db), explained(db)
            assert compiles and count_rows(db, "compile_buffer") > 0
        complete(dsn)
        with connect(dsn) as db:
            assert explained(db) == compiles
            assert answers(db) == before  # here the client makes the recalls
        install(dsn, modulus=1)
        install(other, modulus=1)
        with connect(dsn) as db, connect(other) as fresh:
            assert answers(db) == before
            assert not differences(stored, contents(db, there))
            run_job(db, "flush")
            assert set(compiles) <= set(explained(db))
            # A later version brings settings, and turns those alone that are named above.
            now = merged_settings(db)
            assert {key for key, value in settings.items() if key not in now or now[key] != value} == NEW_DEFAULTS
            db.execute('drop extension "uuid-ossp"')  # an earlier version needed it
            assert not differences(*(months_apart(describe(one)) for one in (fresh, db)))
            # What was rejected stays away, and what was archived comes back.
            again = call(db, "remember", USER, "Ada is allergic to peanuts.", actor="agent")
            assert again["outcome"] == "refused_tombstone", again
            part = one(db, "select memoir.part_of('ada')")
            assert one(db, "select memoir.restore_month(%s, '2031-01-01')", part)["restored"] == 2
            asked = "select * from memoir.recall(%(user)s, 'Who feeds ravens at the lighthouse?')"
            assert "ravens" in str(ask_client(db, USER, asked))
