"""Corrections of all shapes and forgets hold, whatever runs afterwards: vectors of another model, the jobs of a memory's life, consolidation,
extraction of the same turns again, an import of what was exported before, dump and restore."""

from __future__ import annotations

import re
import subprocess
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from calls import active, one, run_job
from psycopg.types.json import Jsonb
from servers import PGBIN, connect, database, psql

START = datetime(2026, 3, 2, 9, tzinfo=UTC)

# What is said → what it is about, the words that go, the words that come (none: nothing does). What is extracted of it has no other words.
SAID = {
    "I live in Oslo.": ("replacement", "Oslo", "Bergen"),
    "I love green tea.": ("polarity", "loves green tea", "doesn't love green tea"),
    "I'm allergic to peanuts.": ("retraction", "peanuts", None),
    "I usually swim 5 miles before breakfast, and paint on Sundays.": ("partial", "5 miles", "3 miles"),
    "I work at Siemens as an engineer.": ("bounds", "Siemens", "Bosch"),
    "My daughter Mia plays the cello.": ("forget", "cello", None),
}
TOPICS = dict(
    zip(["Oslo|Bergen|live", "tea", "peanut|allergic", "mile|paint", "Siemens|Bosch|work", "cello|Mia"], range(6))
)
ACROSS = [
    "Where do I live, Oslo or Bergen?",
    "Do I love green tea?",
    "Am I allergic to peanuts?",
    "How many miles do I swim, do I paint?",
    "Where do I work, Siemens or Bosch?",
    "What does my daughter Mia play, the cello?",
]


def vector(text: str) -> list[float]:
    """A direction per topic, so that what is said of one is alike (0.97): the worst case for whatever compares by meaning."""
    numbers = [0.0] * 16
    for words, place in TOPICS.items():
        if re.search(words, text):
            numbers[place] = 1.0
            numbers[8 + zlib.crc32(text.encode()) % 8] = 0.17
            return numbers
    numbers[7] = 1.0
    return numbers


def embed(db: psycopg.Connection, model: str) -> int:
    count = 0
    while claimed := db.execute("select * from memoir.claim_embeddings(200, %s)", [model]).fetchall():
        db.execute(
            "select memoir.store_embeddings(%s::uuid[], %s::int[], %s::real[], %s)",
            [[c[0] for c in claimed], [c[1] for c in claimed], [vector(c[3]) for c in claimed], model],
        )
        count += len(claimed)
    return count


def clock(db: psycopg.Connection, days: float) -> None:
    db.execute("select memoir.set_clock(%s)", [START + timedelta(days=days)])


@pytest.fixture(scope="module", autouse=True)
def models(memoir_dsn: str) -> None:
    with connect(memoir_dsn) as db:
        for name in ("first", "second"):
            db.execute("select memoir.register_embedding_model(%s, 'none', 16)", [name])
        db.execute("select memoir.switch_embedding_model('first')")


@pytest.fixture(autouse=True)
def real_time(db: psycopg.Connection) -> Iterator[None]:
    db.execute("delete from _memoir.work_items")
    yield
    db.execute("select memoir.set_clock(null)")


def say(db: psycopg.Connection, user: str) -> dict[str, str]:
    """The person says it all, it is extracted and has vectors; the memory of each shape."""
    clock(db, 0)
    for text in SAID:
        db.execute(
            "select memoir.persist_turn(%s, 's', %s)",
            [user, Jsonb([{"role": "user", "content": text}, {"role": "assistant", "content": "I see."}])],
        )
    done = one(db, "select memoir.extract_session(%s, 's')", user)
    assert done["stored"] == len(SAID), done
    embed(db, "first")
    found = db.execute(
        "select h.content, m.memory_id::text from _memoir.memory_store m join _memoir.users u using (user_id) "
        "join _memoir.memory_sources x on x.user_id = m.user_id and x.item_id = m.memory_id and x.source_kind = 'turn' "
        "join _memoir.conversation_history h on h.user_id = m.user_id and h.message_id = x.source_id where u.external_id = %s and m.state = 'active'",
        [user],
    ).fetchall()
    assert len(found) == len(SAID)
    return {SAID[text][0]: memory for text, memory in found}


def change(db: psycopg.Connection, user: str, known: dict[str, str], agent: bool = False) -> None:
    """All five shapes and a forget, ten days later: by the person, or by an agent who names the turn in which the person said it."""
    clock(db, 10)
    whose: dict[str, Any] = {}
    if agent:
        turn = one(
            db,
            "select memoir.persist_turn(%s, 'later', %s)",
            user,
            Jsonb(
                [
                    {"role": "user", "content": "No, that is wrong, as you know."},
                    {"role": "assistant", "content": "Sorry."},
                ]
            ),
        )
        whose = {"session": "later", "source_turns": [turn["from_turn"]]}

    def call(function: str, shape: str, *values: object, **named: Any) -> Any:
        more = "".join(f", p_{name} => %s" for name in named)
        return one(
            db,
            f"select memoir.{function}(%s, %s{', %s' * len(values)}{more})",
            user,
            known[shape],
            *values,
            *named.values(),
        )

    call("correct", "replacement", "User lives in Bergen.", slot_value="Bergen", **whose)
    call("correct", "polarity", "User doesn't love green tea.", **whose)
    call("retract", "retraction", **whose)
    call(
        "correct",
        "partial",
        "User usually swims 3 miles before breakfast.",
        remainder="User paints on Sundays.",
        **whose,
    )
    call("correct", "bounds", "User works at Bosch.", valid_from=START + timedelta(days=5), slot_value="Bosch", **whose)
    call("forget", "forget")


def texts(db: psycopg.Connection, user: str, question: str, **named: Any) -> list[str]:
    more = "".join(f", p_{name} => %s" for name in named)
    return [
        row[0]
        for row in db.execute(
            f"select content from memoir.recall(%s, %s, p_query_embedding => %s::real[], p_limit => 50{more})",
            [user, question, vector(question), *named.values()],
        )
    ]


def shown(db: psycopg.Connection, user: str, question: str, **named: Any) -> str:
    """What a compile shows beside the question itself."""
    more = "".join(f", p_{name} => %s" for name in named)
    messages = one(
        db,
        f"select memoir.compile_context(%s, 'elsewhere', %s, p_query_embedding => %s::real[]{more})",
        user,
        question,
        vector(question),
        *named.values(),
    )
    return str(messages).replace(question, "")


def hold(db: psycopg.Connection, user: str, known: dict[str, str], gone: set[str] = frozenset()) -> None:
    """The old values are in neither recall nor compile, the new ones in both, history has all; gone: shapes whose new value has ended since."""
    for question in ACROSS:
        for found in (
            "\n".join(texts(db, user, question)),
            shown(db, user, question),
            shown(db, user, question, as_of=START + timedelta(days=9)),
        ):
            assert "cello" not in found
        for found in ("\n".join(texts(db, user, question)), shown(db, user, question)):
            assert not [old for _, old, _ in SAID.values() if old in found], found
    for question, (shape, old, new) in zip(ACROSS, SAID.values()):
        if new and shape not in gone:
            assert any(new in text for text in texts(db, user, question, kinds=["memory"])), shape
            assert new in shown(db, user, question), shape
        history = db.execute(
            "select content, state from memoir.memory_history(%s, %s)", [user, known[shape]]
        ).fetchall()
        states = [
            (text, state) for text, state in history if text is None or old in text and (not new or new not in text)
        ]
        if shape == "forget":
            assert states[0] == (None, "active") and states[-1] == (None, "forgotten")
        else:
            assert states[0][1] == "active" and {"retraction": "invalidated"}.get(shape, "superseded") in [
                state for _, state in states
            ], (shape, history)
            # What we knew then, as we knew it then.
            assert any(
                old in text for text in texts(db, user, question, as_of=START + timedelta(days=9), kinds=["memory"])
            ), shape
        assert not any("cello" in text for text in texts(db, user, question, as_of=START + timedelta(days=9)))
    if "partial" not in gone:
        assert "User paints on Sundays." in texts(db, user, ACROSS[3], kinds=["memory"])
    then = texts(db, user, ACROSS[4], valid_at=START + timedelta(days=2), kinds=["memory"])
    assert "bounds" in gone or any("Siemens" in text for text in then) and not any("Bosch" in text for text in then)


@pytest.mark.parametrize("agent", [False, True])
def test_at_once(db: psycopg.Connection, user: str, agent: bool) -> None:
    known = say(db, user)
    assert all(
        any(old in text for text in texts(db, user, question, kinds=["memory"]))
        for question, (_, old, _) in zip(ACROSS, SAID.values())
    )
    change(db, user, known, agent)
    hold(db, user, known)
    embed(db, "first")
    hold(db, user, known)


@pytest.mark.acceptance
@pytest.mark.parametrize("agent", [False, True])
def test_vectors_of_another_model(db: psycopg.Connection, user: str, agent: bool) -> None:
    known = say(db, user)
    change(db, user, known, agent)
    embed(db, "first")
    try:
        for model in ("second", "first"):
            db.execute("select memoir.register_embedding_model(%s, 'none', 16)", [model])
            db.execute("select memoir.queue_backfill(%s)", [model])
            embed(db, model)
            db.execute("select memoir.switch_embedding_model(%s)", [model])
            embed(db, model)
            hold(db, user, known)
    finally:
        db.execute("select memoir.switch_embedding_model('first')")


@pytest.mark.acceptance
def test_promotion_demotion_expiry(db: psycopg.Connection, user: str) -> None:
    known = say(db, user)
    # An agent said the same beside, in its session.
    for text in (
        "User lives in Oslo.",
        "User loves green tea.",
        "User is allergic to peanuts.",
        "User works at Siemens as an engineer.",
        "User's daughter Mia plays the cello.",
    ):
        db.execute("select memoir.remember(%s, %s, p_session => 's', p_actor => 'agent')", [user, text])
    change(db, user, known)
    embed(db, "first")
    clock(db, 10.1)
    db.execute(
        "update _memoir.memory_stats set access_count = 50, relevance_sum = 45, last_accessed_at = memoir.now() where user_id = (select user_id from _memoir.users where external_id = %s)",
        [user],
    )
    db.execute("select _memoir.enqueue('promote', user_id, '') from _memoir.users where external_id = %s", [user])
    assert run_job(db, "promotion")["users"] == 1
    hold(db, user, known)
    for days in (30, 60, 120):
        clock(db, days)
        for job in ("demotion", "expiry", "profiles"):
            run_job(db, job)
        hold(db, user, known)
    assert (
        one(
            db,
            "select count(*) from _memoir.memory_store m join _memoir.users u using (user_id) where external_id = %s and state = 'active' and tier = 1",
            user,
        )
        == 0
    )


def related(db: psycopg.Connection, user: str, *contents: str, **more: Any) -> list[str]:
    """Memories about one thing, with vectors near each other."""
    made = []
    for place, content in enumerate(contents):
        near = [0.0] * 16
        near[0], near[8 + place] = 1.0, 0.4
        named = "".join(f", p_{name} => %s" for name in more)
        made.append(
            one(
                db,
                f"select memoir.remember(%s, %s, p_embedding => %s::real[]{named})",
                user,
                content,
                near,
                *more.values(),
            )["memory_id"]
        )
    return made


OTHERS = (
    "Goes hiking in the Alps each summer",
    "Goes hiking 40 km around Zermatt",
    "Goes hiking and carries a red tent",
)
ACTS: dict[str, tuple[str, list[str]]] = {
    "replacement": ("select memoir.correct(%s, %s, 'Goes hiking with Carlotta.')", ["Goes hiking with Carlotta."]),
    "polarity": ("select memoir.correct(%s, %s, 'Never goes on tours at all.')", ["Never goes on tours at all."]),
    "retraction": ("select memoir.retract(%s, %s)", []),
    "partial": (
        "select memoir.correct(%s, %s, 'Goes hiking with Dora.', p_remainder => 'Goes hiking in company.')",
        ["Goes hiking in company.", "Goes hiking with Dora."],
    ),
    "bounds": (
        "select memoir.correct(%s, %s, 'Goes hiking with Carlotta.', p_valid_from => memoir.now() - interval '1 hour')",
        ["Goes hiking with Carlotta."],
    ),
    "bounded retraction": ("select memoir.retract(%s, %s, p_valid_to => memoir.now() - interval '1 hour')", []),
    "forget": ("select memoir.forget(%s, %s)", []),
}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("again", [False, True])
def test_what_was_consolidated(db: psycopg.Connection, user: str, act: str, again: bool) -> None:
    """A value that went into a whole (and that into another, and was said once more): it goes out of it, the others stand by themselves."""
    clock(db, 0)
    old, *_ = related(db, user, "Goes hiking with Brigida.", *OTHERS)
    assert run_job(db, "consolidation")["made"] == 1
    [whole] = active(db, user)
    if again:
        related(db, user, "Goes hiking with Brigida.")
        related(db, user, "Saw 7 marmots", "Climbed Piz Palü")
        # What was said once more has its own vector; the wholes have none until they are embedded.
        db.execute(
            "update _memoir.search_items set embeddable = true where user_id = (select user_id from _memoir.users where external_id = %s)",
            [user],
        )
        while claimed := db.execute("select * from memoir.claim_embeddings(50, 'first')").fetchall():
            db.execute(
                "select memoir.store_embeddings(%s::uuid[], %s::int[], %s::real[], 'first')",
                [[c[0] for c in claimed], [c[1] for c in claimed], [[1.0] + [0.0] * 14 + [0.3] for _ in claimed]],
            )
        run_job(db, "consolidation")
    clock(db, 10)
    query, new = ACTS[act]
    db.execute(query, [user, old])
    rest = [*OTHERS, *(["Saw 7 marmots", "Climbed Piz Palü"] if again else [])]
    assert active(db, user) == sorted([*rest, *new])
    for (key,) in db.execute(
        "select memory_id from _memoir.memory_store m join _memoir.users u using (user_id) where u.external_id = %s and metadata ? 'consolidated'",
        [user],
    ).fetchall():
        db.execute("select memoir.undo_consolidation(%s, %s)", [user, key])
    run_job(db, "consolidation")
    assert not any("Brigida" in text for text in active(db, user))
    assert not any("Brigida" in text for text in texts(db, user, "hiking with Brigida"))
    assert whole not in shown(db, user, "With whom does the hiking go on?") and "Brigida" not in shown(
        db, user, "With whom does the hiking go on?"
    )
    # What we knew then: all of it, unless it was forgotten, with the wholes that held it.
    then = [
        *texts(db, user, "hiking with Brigida", as_of=START + timedelta(days=9)),
        shown(db, user, "With whom does the hiking go on?", as_of=START + timedelta(days=9)),
    ]
    assert any("Brigida" in text for text in then) == (act != "forget")
    history = db.execute("select state, content from memoir.memory_history(%s, %s)", [user, old]).fetchall()
    assert history[0][0] == "active" and any("Brigida" in str(text) for _, text in history) == (act != "forget")


@pytest.mark.parametrize("act", ACTS)
def test_a_new_value_is_consolidated(db: psycopg.Connection, user: str, act: str) -> None:
    """The old value returns neither in the whole nor when that is taken back, nor when the whole's vector comes near the old one's."""
    clock(db, 0)
    [old] = related(db, user, "Goes hiking with Brigida.", provenance="correction")
    clock(db, 10)
    query, new = ACTS[act]
    db.execute(query, [user, old])
    while claimed := db.execute("select * from memoir.claim_embeddings(50, 'first')").fetchall():
        db.execute(
            "select memoir.store_embeddings(%s::uuid[], %s::int[], %s::real[], 'first')",
            [
                [c[0] for c in claimed],
                [c[1] for c in claimed],
                [[1.0] + [0.0] * 12 + ([0.4, 0.0, 0.0] if "company" in c[3] else [0.0, 0.4, 0.0]) for c in claimed],
            ],
        )
    related(db, user, *OTHERS, provenance="correction")
    assert run_job(db, "consolidation")["made"] == 1
    while claimed := db.execute("select * from memoir.claim_embeddings(50, 'first')").fetchall():
        db.execute(
            "select memoir.store_embeddings(%s::uuid[], %s::int[], %s::real[], 'first')",
            [[c[0] for c in claimed], [c[1] for c in claimed], [[1.0] + [0.0] * 15 for _ in claimed]],
        )
    said = " ".join(active(db, user))
    assert "Brigida" not in said and all(
        text.rstrip(".").removeprefix("Goes hiking ") in said for text in [*OTHERS, *new]
    )
    assert not any("Brigida" in text for text in texts(db, user, "hiking with Brigida"))
    key = one(
        db,
        "select memory_id from _memoir.memory_store m join _memoir.users u using (user_id) where u.external_id = %s and metadata ? 'consolidated'",
        user,
    )
    db.execute("select memoir.undo_consolidation(%s, %s)", [user, key])
    assert active(db, user) == sorted([*OTHERS, *new])


def test_a_correction_may_sound_like_what_it_corrects(db: psycopg.Connection, user: str) -> None:
    """Carried by an agent, without a name or a number that differs: no restatement of what was rejected. Nor is a whole that holds it."""
    turn = one(
        db,
        "select memoir.persist_turn(%s, 's', %s)",
        user,
        Jsonb([{"role": "user", "content": "The sweet one, I said."}, {"role": "assistant", "content": "Sorry."}]),
    )
    [old] = related(db, user, "Likes the dry cider.")
    near = [1.0] + [0.0] * 7 + [0.39] + [0.0] * 7
    done = one(
        db,
        "select memoir.correct(%s, %s, 'Likes the sweet cider.', p_session => 's', p_source_turns => %s)",
        user,
        old,
        [turn["from_turn"]],
    )
    while claimed := db.execute("select * from memoir.claim_embeddings(50, 'first')").fetchall():
        db.execute(
            "select memoir.store_embeddings(%s::uuid[], %s::int[], %s::real[], 'first')",
            [[c[0] for c in claimed], [c[1] for c in claimed], [list(near) for _ in claimed]],
        )
    assert done["outcome"] == "corrected" and active(db, user) == ["Likes the sweet cider."]
    again = one(
        db,
        "select memoir.remember(%s, 'Likes dry cider very much.', p_actor => 'agent', p_embedding => %s::real[])",
        user,
        near,
    )
    assert again["outcome"] == "refused_tombstone" and active(db, user) == ["Likes the sweet cider."]


@pytest.mark.parametrize("agent", [False, True])
@pytest.mark.parametrize("by_job", [False, True])
def test_the_same_turns_extracted_again(db: psycopg.Connection, user: str, agent: bool, by_job: bool) -> None:
    known = say(db, user)
    change(db, user, known, agent)
    embed(db, "first")
    db.execute(
        "update _memoir.session_counters c set extracted_through = 0 from _memoir.users u where u.user_id = c.user_id and external_id = %s",
        [user],
    )
    if by_job:
        db.execute(
            "select _memoir.queue_extraction(s.user_id, s.session_id, memoir.now()) from _memoir.sessions s join _memoir.users u using (user_id) where u.external_id = %s",
            [user],
        )
        run_job(db, "extract")
    else:
        assert one(db, "select memoir.extract_session(%s, 's')", user)["stored"] == 0
    assert (
        one(
            db,
            "select min(turn_count - extracted_through) from _memoir.session_counters c join _memoir.users using (user_id) where external_id = %s",
            user,
        )
        == 0
    )
    embed(db, "first")
    hold(db, user, known)


@pytest.mark.acceptance
@pytest.mark.parametrize("elsewhere", [False, True])
def test_an_import_of_what_was_before(db: psycopg.Connection, memoir_dsn: str, user: str, elsewhere: bool) -> None:
    """Into the same database, and over what another one was given afterwards: first the newer export, then the older."""
    known = say(db, user)
    run_job(db, "profiles")
    before = [row[0] for row in db.execute("select memoir.export_user(%s, true)", [user])]
    change(db, user, known)
    embed(db, "first")
    name = f"{user}-too" if elsewhere else user
    exports = [before]
    if elsewhere:
        exports = [[row[0] for row in db.execute("select memoir.export_user(%s, true)", [user])], before]
    for lines in exports:
        db.execute("select memoir.import_user(%s, %s)", [name, [Jsonb(line) for line in lines]])
    embed(db, "first")
    hold(db, name, known)
    run_job(db, "profiles")
    hold(db, name, known)


def test_a_whole_made_elsewhere_of_what_was_rejected_here(db: psycopg.Connection, user: str) -> None:
    """Exported, then consolidated there and forgotten here: the whole does not bring the part back."""
    clock(db, 0)
    there, here = user, f"{user}-here"
    old, *_ = related(db, there, "Goes hiking with Brigida.", *OTHERS)
    first = [row[0] for row in db.execute("select memoir.export_user(%s, true)", [there])]
    db.execute("select memoir.import_user(%s, %s)", [here, [Jsonb(line) for line in first]])
    run_for = one(db, "select user_id from _memoir.users where external_id = %s", there)
    db.execute("update _memoir.user_counters set memories = memories where user_id = %s", [run_for])
    clock(db, 10)
    db.execute("select memoir.forget(%s, %s)", [here, old])
    clock(db, 11)
    run_job(db, "consolidation")
    second = [row[0] for row in db.execute("select memoir.export_user(%s, true)", [there])]
    assert any("consolidated" in str(line) for line in second)
    db.execute("select memoir.import_user(%s, %s)", [here, [Jsonb(line) for line in second]])
    assert not any("Brigida" in text for text in [*active(db, here), *texts(db, here, "hiking with Brigida")])


@pytest.mark.acceptance
def test_dump_and_restore(db: psycopg.Connection, memoir_dsn: str, user: str) -> None:
    known = say(db, user)
    change(db, user, known)
    embed(db, "first")
    dump = subprocess.run([PGBIN / "pg_dump", memoir_dsn], capture_output=True, text=True, check=True).stdout
    with database(memoir_dsn, "template template0") as target:
        assert psql(target, "-1", "-v", "ON_ERROR_STOP=1", stdin=dump).stderr == ""
        with connect(target) as restored:
            restored.execute("call memoir.setup()")
            restored.execute("call memoir.ensure_partitions()")
            hold(restored, user, known)
            # Tombstones compare there as well.
            assert (
                one(restored, "select memoir.remember(%s, 'User lives in Oslo.', p_actor => 'agent')", user)["outcome"]
                == "refused_tombstone"
            )
            restored.execute("update _memoir.session_counters set extracted_through = 0")
            restored.execute("select memoir.extract_session(%s, 's')", [user])
            hold(restored, user, known)
