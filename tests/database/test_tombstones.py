"""Tombstones: what was rejected stays rejected, whatever it is dressed as and whichever way it comes back."""

from __future__ import annotations

import unicodedata
from typing import Any

import psycopg
import pytest
from calls import remember
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from servers import connect

VALUE = "The gate code is Kestrel 4711, paid in bronze by Maxim Jorvik-Quilp (5.50)"
INVISIBLE = "\u200b\u200d\u2060\ufeff\u00ad\u180e\u202e\u202c\u0336\u20dd"
SPACES = " \t\n\u00a0\u2003\u3000\u2028"
# One letter for another that looks like it: Cyrillic, Greek, Armenian, Cherokee, Lisu, full width, mathematical.
LOOKS = {
    "a": "\u0430\u03b1\uff41\U0001d41a\U0001d4d0",
    "b": "\u13cf\uff42\U0001d5ba"[:2],
    "c": "\u0441\u03f2\u1d04\uff43",
    "d": "\u0501\uff44\U0001d5bd",
    "e": "\u0435\u212e\uff45\U0001d5d8",
    "g": "\u0261\u0581\uff47",
    "h": "\u04bb\u0570\uff48",
    "i": "\u0456\u0131\u03b9\uff49l1|",
    "j": "\u0458\u03f3\uff4a",
    "k": "\u03ba\u043a\uff4b",
    "l": "\u04cf\u0399I1|\uff4c",
    "m": "\uff4d\u217f",
    "n": "\u0578\uff4e",
    "o": "\u043e\u03bf\u03c3\u0585\u0ce6\uff4f0",
    "p": "\u0440\u03c1\uff50",
    "q": "\u051b\u0566\uff51",
    "r": "\u0433\u1d26\uff52",
    "s": "\u0455\ua731\uff53",
    "t": "\u03c4\uff54\U0001d42d",
    "u": "\u03c5\u057d\uff55",
    "v": "\u03bd\u0475\uff56",
    "w": "\u0461\u1d21\uff57",
    "x": "\u0445\u03c7\uff58",
    "y": "\u0443\u03b3\uff59",
    "z": "\u1d22\uff5a",
    "K": "\u041a\u039a\u212a",
    "M": "\u041c\u039c",
    "T": "\u0422\u03a4",
    "J": "\u0408",
    "Q": "\uff31",
    "N": "\u039d",
    "4": "\uff14\u0664\u06f4\u0e54\U0001d7d2",
    "7": "\u0667\u06f7\uff17",
    "1": "l\u0661\uff11",
    "5": "\u0665\uff15",
    "0": "O\u0660",
}


@pytest.fixture(scope="module")
def db(memoir_dsn: str) -> Any:
    with connect(memoir_dsn) as db:
        db.execute(
            "set search_path = pg_catalog, memoir, _memoir, memoir_extensions"
        )  # as inside the functions of the API
        yield db


@st.composite
def disguises(draw: Any, text: str = VALUE) -> str:
    out = ""
    for letter in text:
        how = draw(st.integers(0, 11))
        if how == 0:
            letter = letter.swapcase()
        elif how <= 3 and letter in LOOKS:
            letter = draw(st.sampled_from(LOOKS[letter]))
        elif how == 4 and letter == " ":
            letter = draw(st.text(SPACES, min_size=1, max_size=3))
        elif how == 5 and not letter.isdigit() and letter not in ".-":
            letter += draw(st.sampled_from(INVISIBLE))
        elif how == 6:
            letter = unicodedata.normalize("NFD", letter)
        out += letter
    return draw(st.sampled_from(("", "\u201c", "  "))) + out + draw(st.sampled_from(("", ".", "!", "\u201d", " \n")))


@pytest.mark.acceptance
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(disguise=disguises())
def test_no_disguise_gets_past(db: psycopg.Connection, disguise: str) -> None:
    key = "select _memoir.tombstone_text(%s)"
    assert db.execute(key, [disguise]).fetchone() == db.execute(key, [VALUE]).fetchone(), ascii(disguise)


def test_disguises_are_refused_at_the_door(db: psycopg.Connection, user: str) -> None:
    memory = remember(db, user, VALUE, slot="gate code", slot_value="Kestrel-4711")["memory_id"]
    db.execute("select memoir.retract(%s, %s)", [user, memory])
    for text in (
        VALUE.upper(),
        VALUE.replace("e", "\u0435").replace("K", "\u041a"),
        VALUE.replace("Kestrel", "K e s t r e l"),
        unicodedata.normalize("NFD", VALUE) + ".",
        VALUE.replace("l", "I"),
    ):
        for named in ({}, {"actor": "agent"}, {"provenance": "correction"}, {"type": "instruction"}):
            assert remember(db, user, text, **named)["outcome"] == "refused_tombstone", (ascii(text), named)
    assert (
        remember(db, user, "It opens with that bird.", slot="Gat\u0435 code", slot_value="kestrel 4711", actor="agent")[
            "outcome"
        ]
        == "refused_tombstone"
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Pays 5.50 euros", "Pays 5.60 euros"),
        ("Pays 5.50", "Pays 550"),
        ("It was -5 degrees", "It was 5 degrees"),
        ("Costs 5 $", "Costs 5 \u20ac"),
        ("Codes in C", "Codes in C++"),
        ("Codes in C#", "Codes in C"),
        ("Likes tea", "Likes no tea"),
        ("Room 10-12", "Room 1012"),
        (
            "\u043e\u043d \u0436\u0438\u0432\u0451\u0442 \u0432 \u041c\u043e\u0441\u043a\u0432\u0435",
            "\u043e\u043d \u0436\u0438\u0432\u0451\u0442 \u0432 \u041c\u0438\u043d\u0441\u043a\u0435",
        ),
        ("M\u00fcller", "Muller"),
        ("\u092e\u0948\u0902 \u0915\u093f\u0924\u093e\u092c", "\u092e\u0948\u0902 \u0915\u0941\u0924\u093e\u092c"),
        ("\u0661\u0662", "\u0661\u0663"),
        ("\u559c\u6b22\u8336", "\u4e0d\u559c\u6b22\u8336"),
        ("\U0001f642", "\U0001f641"),
    ],
)
def test_what_differs_stays_different(db: psycopg.Connection, one: str, other: str) -> None:
    keys = db.execute("select _memoir.tombstone_text(%s), _memoir.tombstone_text(%s)", [one, other]).fetchone()
    assert keys[0] and keys[1] and keys[0] != keys[1]


def test_greek_and_cyrillic_keep_their_case_folding(db: psycopg.Connection) -> None:
    for text in (
        "\u039d\u03af\u03ba\u03bf\u03c2 \u03a0\u03b1\u03c0\u03ac\u03c2",
        "\u041c\u0430\u0440\u0438\u044f \u0438\u0437 \u041a\u0438\u0435\u0432\u0430",
        "Stra\u00dfe in \u0130zmir",
        "\u00c5land \u00c9t\u00e9",
    ):
        assert db.execute(
            "select _memoir.tombstone_text(%s) = _memoir.tombstone_text(upper(%s))", [text, text]
        ).fetchone() == (True,), text


def test_the_table_of_look_alikes_agrees_with_unicode(db: psycopg.Connection) -> None:
    """Every single character that Unicode's table confuses with a Latin letter or a digit becomes that one (UTS #39)."""
    confusables = pytest.importorskip("confusable_homoglyphs.confusables").confusables_data
    key = "select _memoir.tombstone_text('x' || %s || 'x')"
    plain = {letter: db.execute(key, [letter]).fetchone()[0] for letter in "abcdefghijklmnopqrstuvwxyz0123456789"}
    checked, missed = 0, []
    for letter, alike in confusables.items():
        folded = unicodedata.normalize("NFKC", letter).lower()
        targets = {plain[c] for item in alike if len(c := item["c"].lower()) == 1 and c in plain}
        if (
            len(letter) != 1
            or letter.isascii()
            or not targets
            or unicodedata.category(folded[0]) in ("Nd", "Mn", "Mc")
            or unicodedata.bidirectional(folded[0]) in ("R", "AL", "AN")
        ):
            continue  # digits go by value; marks and letters written the other way are no disguise
        if len(folded) != 1 or letter != folded and letter.lower() != letter:
            continue  # capitals count as their small letters
        checked += 1
        if db.execute(key, [letter]).fetchone()[0] not in targets:
            missed.append(letter)
    assert checked > 250 and len(missed) <= 8, (checked, missed)


def test_ways_back(db: psycopg.Connection, user: str) -> None:
    """Supersede and restore, promotion of a local copy, expiry, and restoring from what was read before."""
    memory = remember(db, user, "Owns a boat.", slot="vehicle", slot_value="boat")["memory_id"]
    kept = db.execute("select m.* from _memoir.memory_store m where memory_id = %s", [memory]).fetchone()
    other = remember(db, user, "Owns a car.", slot="vehicle", slot_value="car")["memory_id"]  # superseded ...
    local = remember(db, user, "owns a boat", actor="agent")["memory_id"]
    db.execute("select memoir.forget(%s, %s)", [user, memory])  # ... then forgotten, copies too
    db.execute("select memoir.retract(%s, %s)", [user, other])
    who = db.execute("select user_id from _memoir.memory_store where memory_id = %s", [memory]).fetchone()[0]
    for one in (memory, local):
        assert db.execute("select state::text from _memoir.memory_store where memory_id = %s", [one]).fetchone() == (
            "forgotten",
        )
        assert db.execute(
            "select _memoir.restore(%s, %s, 'test', 'test', memoir.now(), 'person')", [who, one]
        ).fetchone() == (False,)
        for state in ("expired", "superseded", "invalidated", "active"):
            assert db.execute(
                "select _memoir.set_state(%s, array[%s]::uuid[], %s, 'test', 'test', null, memoir.now())",
                [who, one, state],
            ).fetchone() == (0,)
    assert kept and db.execute("select _memoir.tombstoned(%s, 'Owns a boat')", [who]).fetchone() == (True,)
    assert db.execute("select _memoir.tombstoned(%s, 'It floats', 'vehicle', 'BOAT')", [who]).fetchone() == (True,)
    assert db.execute("select content from memoir.recall(%s, 'boat')", [user]).fetchall() == []


def test_rejected_paraphrase_is_caught(db: psycopg.Connection, user: str) -> None:
    db.execute("select memoir.register_embedding_model('little', 'none', 4)")
    db.execute("select memoir.switch_embedding_model('little')")
    memory = remember(db, user, "Is fond of sailing.", embedding="{1,0,0,0}")["memory_id"]
    db.execute("select memoir.retract(%s, %s)", [user, memory])
    assert (
        remember(db, user, "Is very fond of sailing.", embedding="{1,0.1,0,0}", actor="agent")["outcome"]
        == "refused_tombstone"
    )
    assert db.execute("select content from memoir.recall(%s, 'sailing')", [user]).fetchall() == []
    assert (
        remember(db, user, "Is really fond of sailing.", embedding="{1,0.1,0,0}")["outcome"] == "stored"
    )  # a person's new words


def test_a_rejection_within_a_project_is_the_projects(db: psycopg.Connection, user: str) -> None:
    one = remember(db, user, "We build with make.", project="one", slot="build tool", slot_value="make")["memory_id"]
    two = remember(db, user, "We build with make.", project="two", slot="build tool", slot_value="make")["memory_id"]
    db.execute("select memoir.correct(%s, %s, 'We build with ninja.', p_slot_value => 'ninja')", [user, one])
    assert remember(db, user, "we build with make", project="one")["outcome"] == "refused_tombstone"
    assert db.execute("select state::text from _memoir.memory_store where memory_id = %s", [two]).fetchone() == (
        "active",
    )
    assert remember(db, user, "we build with make", project="three")["outcome"] == "stored"
    db.execute("select memoir.forget(%s, %s)", [user, two])  # forgotten is forgotten everywhere
    assert remember(db, user, "we build with make", project="four")["outcome"] == "refused_tombstone"
