"""correct, retract, forget, lift: all shapes, what they take with them, and what stays away whatever comes after."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb
from servers import connect, roles, user_of

VECTOR = [1.0, 0.1, 0.0, 0.0]
ACKNOWLEDGED = {"Noted.", "Sorry.", "Nice."}            # neighbours of what is found


def call(db: psycopg.Connection, function: str, *positional: Any, **named: Any) -> Any:
    """memoir.<function>: one value."""
    more = [f"p_{name} => %s" for name in named]
    values = ["{" + ",".join(map(str, v)) + "}" if k.endswith("embedding") else v for k, v in named.items()]
    return db.execute(f"select memoir.{function}({', '.join(['%s'] * len(positional) + more)})", [*positional, *values]).fetchone()[0]


def remember(db: psycopg.Connection, user: str, content: str, **named: Any) -> str:
    return call(db, "remember", user, content, **named)["memory_id"]


def persist(db: psycopg.Connection, user: str, session: str, *texts: str) -> dict[str, Any]:
    messages = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]
    return call(db, "persist_turn", user, session, Jsonb(messages))


def recalled(db: psycopg.Connection, user: str, query: str, **named: Any) -> list[str]:
    more = "".join(f", p_{name} => %({name})s{'::real[]' * (name == 'query_embedding')}" for name in named)
    rows = db.execute(f"select content from memoir.recall(%(user)s, %(query)s{more})", {"user": user, "query": query, **named})
    return sorted(content for (content,) in rows if content not in ACKNOWLEDGED)


def compiled(db: psycopg.Connection, user: str, query: str, **named: Any) -> str:
    messages = call(db, "compile_context", user, "elsewhere", query, query_embedding=VECTOR, **named)
    return str(messages).replace(query, "")


def row(db: psycopg.Connection, memory: str, columns: str = "state::text") -> tuple[Any, ...]:
    return db.execute(f"select {columns} from memoir.memory_store where memory_id = %s", [memory]).fetchone()


def edges(db: psycopg.Connection, memory: str) -> set[tuple[str, str]]:
    return {(r, str(t)) for r, t in db.execute("select relation::text, target_id from memoir.memory_relationships where source_id = %s", [memory])}


def refused(db: psycopg.Connection, user: str, content: str, **named: Any) -> bool:
    return call(db, "remember", user, content, **named)["outcome"] == "refused_tombstone"


def code(db: psycopg.Connection, function: str, *positional: Any, **named: Any) -> str | None:
    try:
        call(db, function, *positional, **named)
    except psycopg.Error as error:
        return error.sqlstate
    return None


@pytest.fixture(scope="module", autouse=True)
def little_model(memoir_dsn: str) -> None:
    with connect(memoir_dsn) as db:
        db.execute("select memoir.register_embedding_model('little', 'none', 4)")
        db.execute("select memoir.switch_embedding_model('little')")


@pytest.fixture
def clock(db: psycopg.Connection) -> Iterator[Any]:
    yield lambda at: db.execute("select memoir.set_clock(%s)", [at])
    db.execute("select memoir.set_clock(null)")


# The five shapes ------------------------------------------------------------------------------------------------------

def test_replacement(db: psycopg.Connection, user: str) -> None:
    persist(db, user, "s", "I live in Oslo.", "Noted.", "I like the harbour.", "Nice.")
    old = remember(db, user, "Lives in Oslo.", session="s", actor="person", source_turns=[0], slot="home", slot_value="Oslo", embedding=VECTOR)
    assert "Oslo" in compiled(db, user, "Where is home?") and recalled(db, user, "live Oslo") == ["I live in Oslo.", "Lives in Oslo."]
    persist(db, user, "t", "No, I live in Bergen.", "Sorry.")
    done = call(db, "correct", user, old, "Lives in Bergen.", "misheard", slot_value="Bergen", session="t", source_turns=[0], embedding=VECTOR)
    assert (done["outcome"], done["corrected"], done["excluded_turns"], done["remainder"]) == ("corrected", [old], 1, None)
    new = done["memory_id"]
    assert row(db, old, "state::text, superseded_by::text, state_reason") == ("superseded", new, "misheard")
    assert row(db, new, "provenance::text, slot, slot_value, scope::text") == ("correction", "home", "bergen", "global")
    assert ("supersedes", old) in edges(db, new)
    assert "Oslo" not in compiled(db, user, "Where is home?") and "Bergen" in compiled(db, user, "Where is home?")
    assert recalled(db, user, "live Oslo Bergen") == ["Lives in Bergen.", "No, I live in Bergen."]
    assert recalled(db, user, "harbour") == ["I like the harbour."]
    # The old text and the old value, from whomever; through re-extraction of the same turn too.
    assert refused(db, user, "lives in OSLO", actor="agent") and refused(db, user, "Home is Oslo, I think.", slot="Home", slot_value="oslo", actor="agent")
    assert refused(db, user, "Lives in Oslo.", session="s", source_turns=[0], provenance="user_stated")
    assert recalled(db, user, "live Oslo Bergen") == ["Lives in Bergen.", "No, I live in Bergen."]
    history = db.execute("select content, state, reason, actor from memoir.memory_history(%s, %s)", [user, new]).fetchall()
    assert history == [("Lives in Oslo.", "active", None, "person"), ("Lives in Oslo.", "superseded", "misheard", "agent"), ("Lives in Bergen.", "active", None, "agent")]
    # A former id stands for what is known now.
    assert call(db, "correct", user, old, "Lives in Voss.", slot_value="Voss")["corrected"] == [new]


def test_polarity(db: psycopg.Connection, user: str) -> None:
    old = remember(db, user, "Likes tea.", embedding=VECTOR)
    new = call(db, "correct", user, old, "No longer likes tea.", embedding=VECTOR)["memory_id"]
    assert recalled(db, user, "tea", query_embedding=VECTOR) == ["No longer likes tea."]
    assert refused(db, user, "Likes tea", actor="agent") and row(db, new) == ("active",)
    assert call(db, "remember", user, "no longer likes tea.")["memory_id"] == new


def test_retraction(db: psycopg.Connection, user: str) -> None:
    persist(db, user, "s", "I own a boat.", "Noted.")
    old = remember(db, user, "Owns a boat.", session="s", actor="person", source_turns=[0], slot="vehicle", slot_value="boat", embedding=VECTOR)
    done = call(db, "retract", user, old, "was a joke")
    assert (done["state"], done["retracted"], done["excluded_turns"], done["bounded"]) == ("invalidated", [old], 1, [])
    assert recalled(db, user, "boat", query_embedding=VECTOR) == [] and "boat" not in compiled(db, user, "What is owned?")
    assert refused(db, user, "Owns a boat!", actor="agent") and refused(db, user, "A boat is owned", slot="vehicle", slot_value="boat")
    assert row(db, old, "state::text, state_reason") == ("invalidated", "was a joke")


def test_partial(db: psycopg.Connection, user: str) -> None:
    persist(db, user, "s", "I live in Ulm and have two cats.", "Noted.")
    old = remember(db, user, "Lives in Ulm, has two cats.", session="s", actor="person", source_turns=[0], slot="home", slot_value="Ulm", tags=["me"])
    done = call(db, "correct", user, old, "Has three cats.", remainder="Lives in Ulm.")
    rest, new = done["remainder"], done["memory_id"]
    assert recalled(db, user, "Ulm cats") == ["Has three cats.", "Lives in Ulm."]
    assert row(db, rest, "slot, slot_value, trust, tags, provenance::text, tier") == ("home", "ulm", 1.0, ["me"], "user_stated", 3)
    assert row(db, new, "slot") == (None,) and row(db, old, "superseded_by::text") == (new,)
    assert edges(db, rest) == edges(db, new) == {("supersedes", old)}
    # What remains may be said again, the whole may not; with the slot's new value, the slot goes with that.
    assert not refused(db, user, "lives in ulm.") and refused(db, user, "Lives in Ulm, has two cats.")
    moved = call(db, "correct", user, remember(db, user, "Works in Bonn as a baker.", slot="workplace", slot_value="Bonn"), "Works in Köln.", remainder="Is a baker.", slot_value="Köln")
    assert row(db, moved["memory_id"], "slot_value") == ("köln",) and row(db, moved["remainder"], "slot") == (None,)
    assert refused(db, user, "Bonn it is", slot="workplace", slot_value="Bonn")


def test_bounds(db: psycopg.Connection, user: str, clock: Any) -> None:
    clock("2026-01-10T00:00:00Z")
    old = remember(db, user, "Lives in Bonn.", slot="home", slot_value="Bonn", embedding=VECTOR)
    clock("2026-04-10T00:00:00Z")
    done = call(db, "correct", user, old, "Lives in Ulm.", valid_from="2026-03-01T00:00:00Z", slot_value="Ulm")
    [kept] = done["bounded"]
    assert row(db, kept, "state::text, valid_to::text, slot_value, content") == ("active", "2026-03-01 00:00:00+00", "bonn", "Lives in Bonn.")
    assert recalled(db, user, "lives Bonn Ulm") == ["Lives in Ulm."] and "Bonn" not in compiled(db, user, "Where does she live?")
    assert recalled(db, user, "lives Bonn Ulm", query_embedding=VECTOR) == ["Lives in Ulm."]
    # What was true then, and what we knew then.
    assert recalled(db, user, "lives Bonn Ulm", valid_at="2026-02-01T00:00:00Z") == ["Lives in Bonn."]
    assert "Bonn" in compiled(db, user, "Where does she live?", valid_at="2026-02-01T00:00:00Z")
    for valid in ("2026-02-01", "2026-03-20"):
        assert recalled(db, user, "lives Bonn Ulm", as_of="2026-03-20T00:00:00Z", valid_at=valid + "T00:00:00Z") == ["Lives in Bonn."]
    # A model that says the old again changes nothing; a person who moves back says something new.
    assert call(db, "remember", user, "Lives in Bonn.", actor="agent")["memory_id"] == kept
    clock("2026-06-10T00:00:00Z")
    back = call(db, "remember", user, "Lives in Bonn.", slot="home", slot_value="Bonn", valid_from="2026-06-01T00:00:00Z")
    assert back["outcome"] == "stored" and back["superseded"] == [done["memory_id"]]
    assert recalled(db, user, "lives Bonn Ulm") == ["Lives in Bonn."]
    assert recalled(db, user, "lives Bonn Ulm", valid_at="2026-05-01T00:00:00Z") == ["Lives in Ulm."]
    assert recalled(db, user, "lives Bonn Ulm", valid_at="2026-02-01T00:00:00Z") == ["Lives in Bonn."]
    # Only for a while: the former value goes on after it. And an end without a successor.
    away = call(db, "correct", user, back["memory_id"], "Lives in Rome.", valid_from="2026-08-01T00:00:00Z", valid_to="2026-09-01T00:00:00Z", slot_value="Rome")
    assert len(away["bounded"]) == 2
    for at, where in (("2026-07-01", "Bonn"), ("2026-08-15", "Rome"), ("2026-10-01", "Bonn")):
        assert recalled(db, user, "lives Bonn Ulm Rome", valid_at=at + "T00:00:00Z") == [f"Lives in {where}."]
    gym = remember(db, user, "Goes to the gym.")
    done = call(db, "retract", user, gym, "stopped", valid_to="2026-05-01T00:00:00Z")
    assert done["state"] == "superseded" and recalled(db, user, "gym") == []
    assert recalled(db, user, "gym", valid_at="2026-04-01T00:00:00Z") == ["Goes to the gym."] and not refused(db, user, "Goes to the gym.")
