"""Corrections of all shapes and forgets hold, whatever runs afterwards: vectors of another model, the jobs of a memory's life, consolidation,
extraction of the same turns again, an import of what was exported before, dump and restore."""

import re
import subprocess
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import talk
from calls import Db, active, call, embed_waiting, export_rows, persist, remember, remembered, run_job, say, table
from internals import clear_work, read_again, use_memories
from psycopg.types.json import Jsonb
from servers import PGBIN, connect, database, psql

START = datetime(2026, 3, 2, 9, tzinfo=UTC)
THEN = START + timedelta(days=9)

# A statement → the shape of its change, the words that go, the words that come, a question about it.
SAID = {
    "I live in Oslo.": ("replacement", "Oslo", "Bergen", "Where do I live, Oslo or Bergen?"),
    "I love green tea.": ("polarity", "loves green tea", "doesn't love green tea", "Do I love green tea?"),
    "I'm allergic to peanuts.": ("retraction", "peanuts", None, "Am I allergic to peanuts?"),
    "I usually swim 5 miles before breakfast, and paint on Sundays.": (
        "partial", "5 miles", "3 miles", "How many miles do I swim, do I paint?",
    ),
    "I work at Siemens as an engineer.": ("bounds", "Siemens", "Bosch", "Where do I work, Siemens or Bosch?"),
    "My daughter Mia plays the cello.": ("forget", "cello", None, "What does my daughter Mia play, the cello?"),
}  # fmt: skip
TOPICS = ("Oslo|Bergen|live", "tea", "peanut|allergic", "mile|paint", "Siemens|Bosch|work", "cello|Mia")


def vector(text: str) -> list[float]:
    """A direction per topic, so that what is said of one is alike (0.97): the worst case for whatever compares by meaning."""
    numbers = [0.0] * 16
    place = next((place for place, words in enumerate(TOPICS) if re.search(words, text)), 7)
    numbers[place] = 1.0
    if place < 7:
        numbers[8 + zlib.crc32(text.encode()) % 8] = 0.17
    return numbers


def embed(db: Db, model: str = "first", of: Callable[[str], list[float]] = vector) -> None:
    while embed_waiting(db, of, model, 200):
        pass


def day(db: Db, days: float) -> None:
    call(db, "set_clock", START + timedelta(days=days))


@pytest.fixture(scope="module", autouse=True)
def models(memoir_dsn: str) -> None:
    with connect(memoir_dsn) as db:
        for name in ("first", "second"):
            call(db, "register_embedding_model", name, "none", 16)
        call(db, "switch_embedding_model", "first")


@pytest.fixture(autouse=True)
def real_time(db: Db) -> Iterator[None]:
    clear_work(db)
    yield
    call(db, "set_clock", None)


@pytest.fixture
def known(db: Db, user: str) -> dict[str, str]:
    """The person says it all, it is extracted and has vectors; the memory of each shape."""
    day(db, 0)
    say(db, user, "s", *SAID)
    assert call(db, "extract_session", user, "s")["stored"] == len(SAID)
    embed(db)
    found = table(db, "list_memories", user, columns="memory_id::text, content")
    return {shape: key for key, content in found for shape, old, *_ in SAID.values() if old in content}


def change(db: Db, user: str, known: dict[str, str], agent: bool = False) -> None:
    """All five shapes and a forget, ten days later: by the person, or by an agent who names the turn in which the person said it."""
    day(db, 10)
    whose: dict[str, Any] = {}
    if agent:
        turn = persist(db, user, "later", "No, that is wrong, as you know.", "Sorry.")
        whose = {"session": "later", "source_turns": [turn["from_turn"]]}

    def correct(shape: str, content: str, **named: Any) -> None:
        call(db, "correct", user, known[shape], content, **named, **whose)

    correct("replacement", "User lives in Bergen.", slot_value="Bergen")
    correct("polarity", "User doesn't love green tea.")
    call(db, "retract", user, known["retraction"], **whose)
    correct("partial", "User usually swims 3 miles before breakfast.", remainder="User paints on Sundays.")
    correct("bounds", "User works at Bosch.", valid_from=START + timedelta(days=5), slot_value="Bosch")
    call(db, "forget", user, known["forget"])


def texts(db: Db, user: str, question: str, **named: Any) -> str:
    rows = table(db, "recall", user, question, query_embedding=vector(question), limit=50, columns="content", **named)
    return "\n".join(content for (content,) in rows)


def compile_text(db: Db, user: str, question: str, **named: Any) -> str:
    return talk.compile_text(db, user, question, query_embedding=vector(question), **named)


def hold(db: Db, user: str, known: dict[str, str]) -> None:
    """The old values are in neither recall nor compile, the new ones in both, history has all."""
    for shape, old, new, question in SAID.values():
        for found in (texts(db, user, question), compile_text(db, user, question)):
            assert not [gone for _, gone, *_ in SAID.values() if gone in found], found
        before = texts(db, user, question, as_of=THEN, kinds=["memory"])
        assert "cello" not in before + compile_text(db, user, question, as_of=THEN)
        if new:
            assert new in texts(db, user, question, kinds=["memory"]) and new in compile_text(db, user, question), shape
        history = table(db, "memory_history", user, known[shape], columns="content, state")
        if shape == "forget":
            assert {text for text, _ in history} == {None} and [s for _, s in history][-1] == "forgotten"
        else:
            ended = "invalidated" if shape == "retraction" else "superseded"
            assert ended in [state for text, state in history if old in text and (not new or new not in text)], history
            assert old in before, (shape, "as we knew it then")
    assert "User paints on Sundays." in texts(db, user, "do I paint?", kinds=["memory"])
    then = texts(db, user, "Where do I work, Siemens or Bosch?", valid_at=START + timedelta(days=2), kinds=["memory"])
    assert "Siemens" in then and "Bosch" not in then


@pytest.mark.parametrize("agent", [False, True])
def test_at_once_and_when_extracted_again(db: Db, user: str, known: dict[str, str], agent: bool) -> None:
    assert all(old in texts(db, user, question, kinds=["memory"]) for _, old, _, question in SAID.values())
    change(db, user, known, agent)
    hold(db, user, known)
    embed(db)
    hold(db, user, known)
    read_again(db)
    assert call(db, "extract_session", user, "s")["stored"] == 0
    embed(db)
    hold(db, user, known)


@pytest.mark.acceptance
def test_vectors_of_another_model(db: Db, user: str, known: dict[str, str]) -> None:
    change(db, user, known)
    embed(db)
    try:
        for model in ("second", "first"):
            call(db, "register_embedding_model", model, "none", 16)
            run_job(db, "backfill")
            embed(db, model)
            call(db, "switch_embedding_model", model)
            embed(db, model)
            hold(db, user, known)
    finally:
        call(db, "switch_embedding_model", "first")


@pytest.mark.acceptance
def test_promotion_demotion_expiry(db: Db, user: str, known: dict[str, str]) -> None:
    for said in ("lives in Oslo", "loves green tea", "is allergic to peanuts", "works at Siemens"):
        remember(db, user, f"User {said}.", session="s", actor="agent")  # an agent said the same, in its session
    change(db, user, known)
    embed(db)
    day(db, 10.1)
    use_memories(db, [row["memory_id"] for row in export_rows(db, user, "memory_store")], 50, 0.9)
    assert run_job(db, "promotion")["users"] == 1
    hold(db, user, known)
    for days in (30, 60, 120):
        day(db, days)
        for job in ("demotion", "expiry", "profiles"):
            run_job(db, job)
        hold(db, user, known)


# Consolidation --------------------------------------------------------------------------------------------------------


def remember_related(db: Db, user: str, *contents: str, **named: Any) -> list[str]:
    """Memories about one thing, with vectors near each other."""
    made = []
    for place, content in enumerate(contents):
        near = [0.0] * 16
        near[0], near[8 + place] = 1.0, 0.4
        made.append(remembered(db, user, content, embedding=near, **named))
    return made


def wholes(db: Db, user: str) -> list[str]:
    rows = export_rows(db, user, "memory_store")
    return [row["memory_id"] for row in rows if "consolidated" in (row["metadata"] or {})]


OTHERS = tuple(
    f"Goes hiking {how}" for how in ("in the Alps each summer", "40 km around Zermatt", "and carries a red tent")
)
HOUR = timedelta(hours=1)
DAY_10 = START + timedelta(days=10)
CARLOTTA, DORA = "Goes hiking with Carlotta.", "Goes hiking with Dora."
# Function, arguments, and what is known instead.
ACTS: dict[str, tuple[str, list[Any], dict[str, Any], list[str]]] = {
    "replacement": ("correct", [CARLOTTA], {}, [CARLOTTA]),
    "polarity": ("correct", ["Never goes on tours at all."], {}, ["Never goes on tours at all."]),
    "retraction": ("retract", [], {}, []),
    "partial": ("correct", [DORA], {"remainder": "Goes hiking in company."}, ["Goes hiking in company.", DORA]),
    "bounds": ("correct", [CARLOTTA], {"valid_from": DAY_10 - HOUR}, [CARLOTTA]),
    "bounded retraction": ("retract", [], {"valid_to": DAY_10 - HOUR}, []),
    "forget": ("forget", [], {}, []),
}  # fmt: skip


def act_on(db: Db, user: str, act: str, memory: str) -> list[str]:
    """Ten days later; what is known instead."""
    day(db, 10)
    function, values, named, new = ACTS[act]
    call(db, function, user, memory, *values, **named)
    return new


@pytest.mark.parametrize("act", ACTS)
def test_part_goes_out_of_the_whole(db: Db, user: str, act: str) -> None:
    """The others stand by themselves, also when the whole is taken back or made again."""
    day(db, 0)
    old, *_ = remember_related(db, user, "Goes hiking with Brigida.", *OTHERS)
    assert run_job(db, "consolidation")["made"] == 1
    [whole], [whole_id] = active(db, user), wholes(db, user)
    remember_related(db, user, "Goes hiking with Brigida.")
    new = act_on(db, user, act, old)
    assert active(db, user) == sorted([*OTHERS, *new])
    assert act != "forget" or table(db, "memory_history", user, whole_id, columns="state")[-1] == ("forgotten",)
    for key in wholes(db, user):
        call(db, "undo_consolidation", user, key)
    run_job(db, "consolidation")
    assert "Brigida" not in " ".join(active(db, user)) + texts(db, user, "hiking with Brigida")
    asked = "With whom does the hiking go on?"
    assert whole not in compile_text(db, user, asked) and "Brigida" not in compile_text(db, user, asked)
    # What we knew then: all of it, unless it was forgotten, with the wholes that held it.
    then = texts(db, user, "hiking with Brigida", as_of=THEN) + compile_text(db, user, asked, as_of=THEN)
    history = table(db, "memory_history", user, old, columns="state, content")
    assert ("Brigida" in then) == ("Brigida" in str(history)) == (act != "forget") and history[0][0] == "active"


@pytest.mark.parametrize("act", ACTS)
def test_new_value_is_consolidated_without_the_old(db: Db, user: str, act: str) -> None:
    """The old value returns neither in the whole nor when that is taken back, nor when the whole's vector comes near the old one's."""
    day(db, 0)
    [old] = remember_related(db, user, "Goes hiking with Brigida.", provenance="correction")
    new = act_on(db, user, act, old)
    embed(db, of=lambda text: [1.0] + [0.0] * 12 + ([0.4, 0.0, 0.0] if "company" in text else [0.0, 0.4, 0.0]))
    remember_related(db, user, *OTHERS, provenance="correction")
    assert run_job(db, "consolidation")["made"] == 1
    embed(db, of=lambda text: [1.0] + [0.0] * 15)
    said = " ".join(active(db, user))
    assert all(text.rstrip(".").removeprefix("Goes hiking ") in said for text in [*OTHERS, *new])
    assert "Brigida" not in said + texts(db, user, "hiking with Brigida")
    (key,) = wholes(db, user)
    call(db, "undo_consolidation", user, key)
    assert active(db, user) == sorted([*OTHERS, *new])


def test_correction_may_sound_like_what_it_corrects(db: Db, user: str) -> None:
    """Carried by an agent, without a name or a number that differs: no restatement of what was rejected."""
    turn = persist(db, user, "s", "The sweet one, I said.", "Sorry.")
    [old] = remember_related(db, user, "Likes the dry cider.")
    near = [1.0] + [0.0] * 7 + [0.39] + [0.0] * 7
    by = {"session": "s", "source_turns": [turn["from_turn"]]}
    assert call(db, "correct", user, old, "Likes the sweet cider.", **by)["outcome"] == "corrected"
    embed(db, of=lambda text: near)
    again = remember(db, user, "Likes dry cider very much.", actor="agent", embedding=near)
    assert again["outcome"] == "refused_tombstone" and active(db, user) == ["Likes the sweet cider."]


# Elsewhere ------------------------------------------------------------------------------------------------------------


def export(db: Db, user: str) -> list[Jsonb]:
    return [Jsonb(line) for (line,) in table(db, "export_user", user, True)]


@pytest.mark.acceptance
@pytest.mark.parametrize("elsewhere", [False, True])
def test_import_of_an_earlier_export(db: Db, user: str, known: dict[str, str], elsewhere: bool) -> None:
    """Into the same database, and over what another one was given afterwards: first the newer export, then the older."""
    run_job(db, "profiles")
    before = export(db, user)
    change(db, user, known)
    embed(db)
    name = f"{user}-too" if elsewhere else user
    for lines in [export(db, user), before] if elsewhere else [before]:
        call(db, "import_user", name, lines)
    embed(db)
    hold(db, name, known)
    run_job(db, "profiles")
    hold(db, name, known)


def test_whole_of_an_import_brings_nothing_back(db: Db, user: str) -> None:
    """Exported, then consolidated there and forgotten here."""
    day(db, 0)
    there, here = user, f"{user}-here"
    old, *_ = remember_related(db, there, "Goes hiking with Brigida.", *OTHERS)
    call(db, "import_user", here, export(db, there))
    day(db, 10)
    call(db, "forget", here, old)
    day(db, 11)
    run_job(db, "consolidation")
    second = export(db, there)
    assert any("consolidated" in str(line.obj) for line in second)
    call(db, "import_user", here, second)
    assert "Brigida" not in " ".join(active(db, here)) + texts(db, here, "hiking with Brigida")


@pytest.mark.acceptance
def test_dump_and_restore(db: Db, memoir_dsn: str, user: str, known: dict[str, str]) -> None:
    change(db, user, known)
    embed(db)
    dump = subprocess.run([PGBIN / "pg_dump", memoir_dsn], capture_output=True, text=True, check=True).stdout
    with database(memoir_dsn, "template template0") as target:
        assert psql(target, "-1", "-v", "ON_ERROR_STOP=1", stdin=dump).stderr == ""
        with connect(target) as restored:
            restored.execute("call memoir.setup()")
            restored.execute("call memoir.ensure_partitions()")
            hold(restored, user, known)
            # Tombstones compare there as well.
            assert remember(restored, user, "User lives in Oslo.", actor="agent")["outcome"] == "refused_tombstone"
            read_again(restored)
            call(restored, "extract_session", user, "s")
            hold(restored, user, known)
