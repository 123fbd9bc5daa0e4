"""A rejected value stays rejected, whatever it is dressed as and whichever way it comes back."""

import unicodedata
from collections.abc import Iterator
from typing import Any

import pytest
from calls import Db, call, one, recalled, remember, remembered, run_job, table, use_vectors
from confusable_homoglyphs.confusables import confusables_data
from internals import run_internal
from servers import connect


@pytest.fixture(scope="module")
def db(memoir_dsn: str) -> Iterator[Db]:
    """As inside the functions of the API."""
    with connect(memoir_dsn, options="-csearch_path=pg_catalog,memoir,_memoir,memoir_extensions") as db:
        yield db


def key(db: Db, text: str) -> str:
    """What two texts have in common that are the same to a tombstone."""
    return str(run_internal(db, "tombstone_text", text))


def find_alike(letter: str) -> list[str]:
    """Single characters that look like it by Unicode's table, which are no digits of other scripts."""
    near = [other["c"] for other in confusables_data.get(letter, ()) if len(other["c"]) == 1]
    folded = [(c, unicodedata.normalize("NFKC", c).lower()) for c in near if not c.isascii()]
    letters = [(c, f[0]) for c, f in folded]
    return [c for c, f in letters if unicodedata.category(f) in ("Ll", "Lo") and unicodedata.bidirectional(f) == "L"]


def test_different_values_stay_different(db: Db) -> None:
    for text, other in (
        ("Pays 5.50 euros", "Pays 5.60 euros"),
        ("Pays 5.50", "Pays 550"),
        ("It was -5 degrees", "It was 5 degrees"),
        ("Costs 5 $", "Costs 5 €"),
        ("Codes in C", "Codes in C++"),
        ("Likes tea", "Likes no tea"),
        ("Room 10-12", "Room 1012"),
        ("он живёт в Москве", "он живёт в Минске"),
        ("Müller", "Muller"),
        ("मैं किताब", "मैं कुताब"),
        ("١٢", "١٣"),
        ("喜欢茶", "不喜欢茶"),
        ("🙂", "🙁"),
    ):
        assert key(db, text) and key(db, other) and key(db, text) != key(db, other)


@pytest.mark.parametrize("text", ["Νίκος Παπάς", "Мария из Киева", "Straße in İzmir", "Åland Été"])
def test_case_is_folded_in_other_scripts(db: Db, text: str) -> None:
    assert key(db, text) == key(db, one(db, "select upper(%s)", text))


def test_look_alikes_agree_with_unicode(db: Db) -> None:
    """Every single small letter that Unicode's table confuses with a Latin one becomes that one (UTS #39)."""
    plain = {key(db, f"x{letter}x") for letter in "abcdefghijklmnopqrstuvwxyz0123456789"}
    near = {c for letter in "abcdefghijklmnopqrstuvwxyz" for c in find_alike(letter) if c.lower() == c}
    missed = [c for c in near if key(db, f"x{c}x") not in plain]
    assert len(near) > 250 and len(missed) <= 8, missed


def test_no_way_leads_back(db: Db, user: str) -> None:
    """Supersede and restore, a local copy, expiry, a restatement, another word for the slot's value."""
    memory = remembered(db, user, "Owns a boat.", slot="vehicle", slot_value="boat")
    other = remembered(db, user, "Owns a car.", slot="vehicle", slot_value="car")  # superseded ...
    remember(db, user, "owns a boat", actor="agent")
    call(db, "forget", user, memory)  # ... then forgotten, copies too
    call(db, "retract", user, other)
    for job in ("hygiene", "promotion", "sweep"):
        run_job(db, job)
    states = dict(table(db, "list_memories", user, states=[], columns="memory_id::text, state"))
    assert list(states.values()).count("forgotten") == 2 and states[memory] == "forgotten"
    for text, named in (("Owns a boat", {}), ("It floats", {"slot": "vehicle", "slot_value": "BOAT"})):
        assert remember(db, user, text, **named)["outcome"] == "refused_tombstone"
    assert recalled(db, user, "boat") == []


def test_rejected_paraphrase_is_caught(db: Db, user: str) -> None:
    use_vectors(db)
    call(db, "retract", user, remembered(db, user, "Is fond of sailing.", embedding=[1, 0, 0, 0]))
    again: dict[str, Any] = {"embedding": [1, 0.1, 0, 0]}
    assert remember(db, user, "Is very fond of sailing.", actor="agent", **again)["outcome"] == "refused_tombstone"
    assert recalled(db, user, "sailing") == []
    assert remember(db, user, "Is really fond of sailing.", **again)["outcome"] == "stored"  # a person's new words


def test_a_rejection_within_a_project_is_the_projects(db: Db, user: str) -> None:
    def build(project: str, **named: Any) -> dict[str, Any]:
        return remember(db, user, "We build with make.", project=project, **named)

    make = {"slot": "build tool", "slot_value": "make"}
    first, second = (build(project, **make)["memory_id"] for project in ("one", "two"))
    call(db, "correct", user, first, "We build with ninja.", slot_value="ninja")
    assert build("one")["outcome"] == "refused_tombstone"
    assert (build("two")["outcome"], build("three")["outcome"]) == ("duplicate", "stored")
    call(db, "forget", user, second)  # forgotten is forgotten everywhere
    assert build("four")["outcome"] == "refused_tombstone"
