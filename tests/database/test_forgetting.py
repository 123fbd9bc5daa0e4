"""The hard cases of remember and forget: disguises, restatements, look-alikes that differ, and all the ways by which the forgotten could return."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from calls import memory_row, persist, recalled, remember
from servers import connect, roles, user_of

pytestmark = pytest.mark.usefixtures("little_vectors")

PERSON = {"role": "user", "content": "I moved to Ulm in March."}
MODEL = {"role": "assistant", "content": "Noted, Ulm it is."}


def forget(db: psycopg.Connection, user: str, memory: str, reason: str | None = None) -> dict[str, Any]:
    return db.execute("select memoir.forget(%s, %s, %s)", [user, memory, reason]).fetchone()[0]


# Exact duplicates -----------------------------------------------------------------------------------------------------

SAME = [
    "Prefers tea over coffee.",
    "prefers TEA over coffee.",
    "  Prefers\ttea \n over   coffee. ",
    "Prefers\u00a0tea\u3000over\u2003coffee.",
    "Pre\u200bfers t\u00adea over cof\u2060fee.\ufeff",
    "Ｐｒｅｆｅｒｓ ｔｅａ ｏｖｅｒ ｃｏｆｆｅｅ．",
    "Prefers tea over coﬀee.",
    "\u202ePrefers tea over coffee.\u202c",
    "Prefers te\u0001a over\u2028coffee.",
    "Prefers\u0085tea over coffee\ufe0f.",
    "𝐏refers tea ov\U000e0041er coffee.",
]


def test_the_same_text_in_disguise_is_a_duplicate(db: psycopg.Connection, user: str) -> None:
    first = remember(db, user, SAME[0])
    assert first["outcome"] == "stored"
    for text in SAME:
        assert remember(db, user, text) == {
            "memory_id": first["memory_id"],
            "outcome": "duplicate",
            "superseded": [],
            "contradicts": [],
        }, ascii(text)
    assert memory_row(db, first["memory_id"], "content")[0] == SAME[0]
    assert db.execute(
        "select restatements from _memoir.memory_stats where memory_id = %s", [first["memory_id"]]
    ).fetchone() == (len(SAME),)
    assert recalled(db, user, "tea") == [SAME[0]]
    # Composed and decomposed letters too; other letters, other words, other projects and other users are others.
    assert remember(db, user, "Cafe\u0301 Mu\u0308ller")["memory_id"] == remember(db, user, "café müller")["memory_id"]
    for text, more in (
        ("Prefers tea over coffee", {}),
        ("Prefers tee over coffee.", {}),
        (SAME[0], {"project": "kiln"}),
    ):
        assert remember(db, user, text, **more)["outcome"] == "stored"
    assert remember(db, user + "-2", SAME[0])["outcome"] == "stored"


def test_restating_raises_authority_and_never_lowers_it(db: psycopg.Connection, user: str, clock: Any) -> None:
    clock("2026-01-01T00:00:00Z")
    memory = remember(db, user, "Allergic to peanuts.", actor="agent")["memory_id"]
    assert memory_row(db, memory, "provenance, actor, tier, validated_at") == ("system_inferred", "agent", 1, None)
    assert remember(db, user, "Allergic to peanuts!", actor="agent")["outcome"] == "stored"
    clock("2026-01-01T10:00:00Z")
    assert remember(db, user, "allergic to peanuts.")["memory_id"] == memory  # now the person says so
    assert memory_row(db, memory, "provenance, actor, tier, expires_at") == ("user_stated", "person", 3, None)
    assert (
        memory_row(db, memory, "trust, confidence") == (1.0, pytest.approx(0.9))
        and memory_row(db, memory, "validated_at")[0] is not None
    )
    assert remember(db, user, "ALLERGIC to peanuts.", actor="tool", confidence="0.1")["memory_id"] == memory
    assert memory_row(db, memory, "provenance, actor, tier, trust, expires_at") == (
        "user_stated",
        "person",
        3,
        1.0,
        None,
    )


def test_what_has_expired_is_said_anew(db: psycopg.Connection, user: str, clock: Any) -> None:
    """A memory past its end, not swept yet, must not swallow the same said again."""
    clock("2026-01-01T00:00:00Z")
    old = remember(db, user, "Deploys on Fridays.", actor="agent")["memory_id"]
    clock("2026-01-03T00:00:00Z")
    new = remember(db, user, "Deploys on Fridays.")
    assert new["outcome"] == "stored" and new["memory_id"] != old
    assert memory_row(db, old, "state")[0] == "expired" and recalled(db, user, "Fridays") == ["Deploys on Fridays."]


def test_a_secret_said_again_becomes_secret(db: psycopg.Connection, user: str) -> None:
    memory = remember(db, user, "The gate code is 4711.", embedding=[1, 0, 0, 0])["memory_id"]
    assert recalled(db, user, "gate code") == ["The gate code is 4711."]
    assert remember(db, user, "the gate code is 4711.", sensitivity="secret")["memory_id"] == memory
    assert memory_row(db, memory, "sensitivity, embeddable") == ("secret", False)
    assert db.execute(
        "select count(*) from _memoir.embeddings e join _memoir.search_items i using (user_id, item_no) where ref_id = %s",
        [memory],
    ).fetchone() == (0,)
    assert recalled(db, user, "gate code") == [] and recalled(db, user, "gate code", query_embedding="{1,0,0,0}") == []
    assert (
        remember(db, user, "the gate code is 4711.")["memory_id"] == memory
        and memory_row(db, memory, "sensitivity")[0] == "secret"
    )


# Where a memory enters ------------------------------------------------------------------------------------------------


def test_inferred_memories_end_after_their_session(db: psycopg.Connection, user: str, clock: Any) -> None:
    clock("2026-03-01T00:00:00Z")
    persist(db, user, "s", PERSON, MODEL)
    hours = "extract(epoch from expires_at - recorded_at)::float8 / 3600"
    guess = remember(db, user, "Seems to like Ulm.", session="s")["memory_id"]
    reported = remember(db, user, "Moved to Ulm in March.", session="s", provenance="user_stated", source_turns=[0])[
        "memory_id"
    ]
    outside = remember(db, user, "May like fish.", actor="agent")["memory_id"]
    assert [memory_row(db, memory, hours)[0] for memory in (guess, reported, outside)] == [None, 90 * 24, 24]
    db.execute("select memoir.close_session(%s, 's')", [user])
    late = remember(db, user, "Likes the minster.", session="s")["memory_id"]
    assert [memory_row(db, memory, hours)[0] for memory in (guess, late, reported)] == [24, 24, 90 * 24]
    assert sorted(recalled(db, user, "Ulm minster", kinds=["memory"], session="s")) == [
        "Likes the minster.",
        "Seems to like Ulm.",
    ]
    clock("2026-03-02T00:00:01Z")
    assert recalled(db, user, "Ulm minster", kinds=["memory"], session="s") == []
    assert recalled(db, user, "Ulm minster", kinds=["memory"]) == ["Moved to Ulm in March."]


@pytest.mark.parametrize("provenance", ["user_stated", "correction", "preference", "instruction"])
@pytest.mark.parametrize(
    "claim",
    [{"session": "s"}, {"session": "s", "source_turns": []}, {"session": "s", "source_turns": [1]}, {"actor": "agent"}],
)
def test_no_turn_of_the_person_no_word_of_the_person(
    db: psycopg.Connection, user: str, provenance: str, claim: dict[str, Any]
) -> None:
    persist(db, user, "s", PERSON, MODEL)
    memory = remember(db, user, "Lives in Ulm.", provenance=provenance, **claim)["memory_id"]
    assert memory_row(db, memory, "provenance::text, tier, trust") == ("system_inferred", 1, pytest.approx(0.6))


def test_a_bound_login_can_claim_no_more_than_it_is(memoir_dsn: str, db: psycopg.Connection, user: str) -> None:
    with roles(
        memoir_dsn,
        app="login in role memoir_app",
        agent="login in role memoir_tenant",
        tool="login in role memoir_tenant",
    ) as logins:
        db.execute("select memoir.bind_login(%s, %s, 'agent')", [logins["agent"], [user]])
        db.execute("select memoir.bind_login(%s, %s, 'tool')", [logins["tool"], [user]])
        for login, actor in (("agent", "agent"), ("tool", "tool"), ("app", "person")):
            with connect(user_of(memoir_dsn, logins[login])) as c:
                memory = remember(c, user, f"Said by {login}.", provenance="user_stated")["memory_id"]
                assert memory_row(db, memory, "actor::text, written_by") == (actor, logins[login])
                assert (memory_row(db, memory, "provenance")[0] == "user_stated") == (login == "app")
                for claim in {"person", "agent", "tool"} - {actor} - ({"agent", "tool"} if login == "app" else set()):
                    with pytest.raises(psycopg.Error) as caught:
                        remember(c, user, "Claimed.", actor=claim)
                    assert caught.value.sqlstate == "PM001" and claim in str(caught.value)


def test_sources_are_recorded_where_the_turns_are(db: psycopg.Connection, user: str) -> None:
    done = persist(db, user, "a", PERSON, MODEL)
    db.execute("select memoir.branch_session(%s, 'a', 'b')", [user])
    own = persist(db, user, "b", PERSON | {"content": "And I like it."}, MODEL)
    memory = remember(db, user, "Likes Ulm.", session="b", provenance="user_stated", source_turns=[0, 2, 2])[
        "memory_id"
    ]
    again = remember(db, user, "likes ulm.", session="b", provenance="user_stated", source_turns=[1])
    assert again["outcome"] == "stored" and again["memory_id"] != memory  # turn 1 is the model's: local, another memory
    sources = db.execute(
        "select s.external_id, m.turn_index, m.source_id::text from _memoir.memory_sources m join _memoir.sessions s using (user_id, session_id) "
        "where item_id = %s order by 2",
        [memory],
    ).fetchall()
    assert sources == [("a", 0, done["message_ids"][0]), ("b", 2, own["message_ids"][0])]
    # A duplicate adds its sources to the memory that is there.
    remember(db, user, "LIKES Ulm.", session="a", provenance="user_stated", source_turns=[0])
    remember(db, user, "Likes Ulm.", session="a", actor="person", source_turns=[1])
    assert [
        t
        for (t,) in db.execute("select turn_index from _memoir.memory_sources where item_id = %s order by 1", [memory])
    ] == [0, 1, 2]


# Near duplicates ------------------------------------------------------------------------------------------------------

NEAR = [1.0, 0.1, 0.0, 0.0]
CLOSE = [1.0, 0.15, 0.01, 0.0]  # cosine to NEAR above .99
FAR = [0.0, 0.0, 1.0, 0.0]

APART = [
    ("Is allergic to peanuts.", "Is not allergic to peanuts."),
    ("Her birthday is on 3 March.", "Her birthday is on 4 March."),
    ("Has two cats.", "Has three cats."),
    ("Pays 5 euros.", "Pays 5.50 euros."),
    ("It was -5 degrees outside.", "It was 5 degrees outside."),
    ("The meeting is on Monday.", "The meeting is on Tuesday."),
    ("Lives with Anna in town.", "Lives with Maria in town."),
    ("Alice likes tea.", "Bob likes tea."),
    ("He moved. Bob came.", "He moved. Tom came."),
    ("Never eats meat.", "Eats meat."),
    ("Doesn’t like rain.", "Does like rain."),
    ("Drinks coffee before noon.", "Drinks coffee after noon."),
    ("Isst kein Fleisch.", "Isst Fleisch."),
    ("Je ne mange pas de viande.", "Je mange de viande."),
    ("No come carne.", "Come carne."),
    ("Он не ест мясо.", "Он ест мясо."),
    ("我不喜欢喝茶。", "我喜欢喝茶。"),
    ("肉は食べません。", "肉は食べます。"),
    ("ฉันไม่ชอบชา", "ฉันชอบชา"),
    ("لا أحب الشاي", "أحب الشاي"),
    ("Works without a lamp.", "Works with a lamp."),
    ("The flight leaves at 7:30.", "The flight leaves at 7:45."),
    ("Version 1.2.3 is used.", "Version 1.2.4 is used."),
    ("Room ٣ is ours.", "Room ٤ is ours."),
]
TOGETHER = [
    ("Prefers tea.", "Prefers green tea."),
    ("The user likes hiking in the hills.", "User likes hiking in the hills very much."),
    ("Has 2 cats named Tom and Kit.", "Has 2 grey cats named Tom and Kit."),
    ("Is not fond of rain.", "Is really not fond of rain."),
    ("Was born on 3 March 1990 in Ulm.", "Was born on 3 March 1990 in Ulm, in a blue house."),
    ("My dog is old.", "My dog is very old."),
    ("Doesn't eat meat.", "Doesn’t ever eat meat."),
    ("他很喜欢喝绿茶。", "他真的很喜欢喝绿茶。"),
]


def test_fixed_points_keep_similar_texts_apart(db: psycopg.Connection, user: str) -> None:
    for number, (one, two) in enumerate(APART):
        who = f"{user}-{number}"
        first = remember(db, who, one, embedding=NEAR)
        assert remember(db, who, two, embedding=CLOSE)["outcome"] == "stored", (one, two)
        assert memory_row(db, first["memory_id"], "state_reason")[0] in (None, "polarity", "value", "slot"), (one, two)
    for number, (one, two) in enumerate(TOGETHER):
        who = f"{user}-t{number}"
        short, long = sorted((one, two), key=len)
        first = remember(db, who, long, embedding=NEAR)
        assert remember(db, who, short, embedding=CLOSE)["memory_id"] == first["memory_id"], (one, two)


def test_merging_keeps_the_sources_of_both(db: psycopg.Connection, user: str) -> None:
    persist(db, user, "s", PERSON, MODEL, PERSON, MODEL)
    for first, second in (
        ("Lives in Ulm.", "Lives in Ulm by now."),
        ("Likes the minster there.", "Likes the minster."),
    ):
        one = remember(
            db, user, first, session="s", actor="person", source_turns=[0], embedding=NEAR if "Ulm" in first else FAR
        )
        two = remember(
            db, user, second, session="s", actor="person", source_turns=[2], embedding=CLOSE if "Ulm" in first else FAR
        )
        winner = two["memory_id"] if two["superseded"] else one["memory_id"]
        assert {one["memory_id"], two["memory_id"]} | {winner} == {one["memory_id"], two["memory_id"]} and (
            two["superseded"] == [one["memory_id"]]
        ) == ("Ulm" in first)
        assert [
            t
            for (t,) in db.execute(
                "select turn_index from _memoir.memory_sources where item_id = %s order by 1", [winner]
            )
        ] == [0, 2]


def test_models_of_other_dimensions_do_not_disturb(db: psycopg.Connection, user: str) -> None:
    """Vectors of two models lie side by side while one is backfilled: comparing them would fail, whatever the plan."""
    db.execute("select memoir.register_embedding_model('wide', 'none', 7)")
    first = remember(db, user, "Likes hiking.", embedding=NEAR)
    claims = db.execute(
        "select user_id, item_no from memoir.claim_embeddings(10000, 'wide') where text = 'Likes hiking.'"
    ).fetchall()
    db.execute(
        "select memoir.store_embeddings(%s, %s, %s::real[], 'wide')",
        [[u for u, _ in claims], [i for _, i in claims], [[1.0] * 7] * len(claims)],
    )
    db.execute("set enable_indexscan = off; set enable_bitmapscan = off")
    try:
        assert remember(db, user, "Likes hiking at dawn.", embedding=CLOSE)["superseded"] == [first["memory_id"]]
        assert recalled(db, user, "dawn", query_embedding="{1,0.1,0,0}") == ["Likes hiking at dawn."]
        assert len(db.execute("select * from memoir.match_memories(%s, '{1,0.1,0,0}')", [user]).fetchall()) == 1
    finally:
        db.execute("reset enable_indexscan; reset enable_bitmapscan")


# Forgetting -----------------------------------------------------------------------------------------------------------


def seen(db: psycopg.Connection, user: str, query: str, vector: str = "{1,0.1,0,0}") -> str:
    """All that recall and a compiled list show for a query, now and as of later, in a fresh session."""
    shown = [str(recalled(db, user, query, query_embedding=vector))]
    for more in ("", ", p_as_of => '2100-01-01'"):
        shown.append(
            str(
                db.execute(
                    f"select memoir.compile_context(%s, 'fresh', %s, p_query_embedding => %s{more})",
                    [user, query, vector],
                ).fetchone()[0][:-1]
            )
        )
        shown.append(
            str(
                db.execute(
                    f"select memoir.compile_context(%s, 'fresh', %s, p_query_embedding => %s{more})",
                    [user, query, vector],
                ).fetchone()[0][-1]["content"]
            ).replace(query, "", 1)
        )
    return " ".join(shown)


def test_what_is_forgotten_stays_away(db: psycopg.Connection, user: str) -> None:
    done = remember(
        db,
        user,
        "The gate code is Kestrel.",
        slot="gate code",
        slot_value="Kestrel",
        embedding=NEAR,
        aliases=["password"],
    )
    assert "Kestrel" in seen(db, user, "What is the code?")
    assert forget(db, user, done["memory_id"], "asked to") == {
        "memory_id": done["memory_id"],
        "state": "forgotten",
        "merged": [],
        "excluded_turns": 0,
        "invalidated_summaries": 0,
    }
    assert "Kestrel" not in seen(db, user, "What is the code?")
    assert memory_row(db, done["memory_id"], "state, state_reason") == ("forgotten", "asked to")
    # Not the text in any disguise, not the value in its slot in other words, not by anybody, not elsewhere.
    for text in (
        "The gate code is Kestrel.",
        "THE GATE  CODE IS KESTREL.",
        "The gate code is Kes\u200btrel.",
        "Ｔｈｅ gate code is Kestrel.",
        "The gate code is Kes\u0007trel.",
    ):
        for more in (
            {},
            {"actor": "agent"},
            {"actor": "tool"},
            {"provenance": "correction"},
            {"project": "kiln"},
            {"embedding": NEAR},
            {"type": "preference"},
        ):
            assert remember(db, user, text, **more)["outcome"] == "refused_tombstone", (ascii(text), more)
    for slot, value in (("gate code", "Kestrel"), ("Gate\u00a0Code", "KESTREL"), ("ｇate code", " kes\u00adtrel ")):
        assert remember(db, user, f"It is still {value}, you know.", slot=slot, slot_value=value) | {"hint": ""} == {
            "memory_id": None,
            "outcome": "refused_tombstone",
            "superseded": [],
            "contradicts": [],
            "hint": "",
        }
    # Other values, other slots and other users are free; the tombstone holds a keyed hash and no text.
    assert remember(db, user, "The gate code is Merlin.", slot="gate code", slot_value="Merlin")["outcome"] == "stored"
    assert remember(db, user, "Kestrel is a bird.", slot="bird", slot_value="Kestrel")["outcome"] == "stored"
    assert remember(db, user + "-2", "The gate code is Kestrel.")["outcome"] == "stored"
    stones = db.execute(
        "select t.kind, t.key_hash, t.reason from _memoir.tombstones t where memory_id = %s order by 1",
        [done["memory_id"]],
    ).fetchall()
    assert [(kind, len(key), reason) for kind, key, reason in stones] == [
        ("slot_value", 32, "asked to"),
        ("value", 32, "asked to"),  # its words
        ("value", 32, "asked to"),  # what they claim
    ]
    # Forgetting twice changes nothing.
    before = db.execute("select count(*), count(*) filter (where lifted_at is null) from _memoir.tombstones").fetchone()
    assert forget(db, user, done["memory_id"])["state"] == "forgotten"
    assert (
        db.execute("select count(*), count(*) filter (where lifted_at is null) from _memoir.tombstones").fetchone()
        == before
    )
    with pytest.raises(psycopg.Error) as caught:
        forget(db, user + "-2", done["memory_id"])
    assert caught.value.sqlstate == "PM004"


def test_forgetting_a_fact_reaches_what_was_merged_with_it(db: psycopg.Connection, user: str) -> None:
    """Whichever of the ids an application holds, the fact goes in all its words, and none of them may come back."""
    for place, index in enumerate((0, 1, 2)):
        who = f"{user}-{place}"
        texts = ["Likes hiking.", "Likes hiking at dawn.", "Likes the hiking."]
        ids = [
            remember(db, who, text, embedding=vector)["memory_id"] for text, vector in zip(texts, (NEAR, CLOSE, NEAR))
        ]
        ids[2] = str(
            db.execute(
                "select memory_id from _memoir.memory_store join _memoir.users using (user_id) where external_id = %s and content = %s",
                [who, texts[2]],
            ).fetchone()[0]
        )
        assert len(set(ids)) == 3
        done = forget(db, who, ids[index])
        assert set(done["merged"]) == set(ids) - {ids[index]}
        assert "ik" not in seen(db, who, "What is liked?").replace("like", "")
        assert [remember(db, who, text)["outcome"] for text in texts] == ["refused_tombstone"] * 3


def test_what_a_slot_superseded_is_not_forgotten_with_it(db: psycopg.Connection, user: str) -> None:
    remember(db, user, "Lives in Bonn.", slot="city", slot_value="Bonn")
    ulm = remember(db, user, "Lives in Ulm.", slot="city", slot_value="Ulm")
    forget(db, user, ulm["memory_id"])
    assert remember(db, user, "Lives in Bonn.", slot="city", slot_value="Bonn")["outcome"] == "stored"


def test_forgetting_takes_the_source_turns_out(db: psycopg.Connection, user: str) -> None:
    persist(
        db,
        user,
        "a",
        PERSON | {"content": "My locker number is Heron."},
        MODEL | {"content": "Noted."},
        PERSON | {"content": "I like herons, the birds."},
        MODEL | {"content": "Nice."},
    )
    db.execute("select memoir.branch_session(%s, 'a', 'b', 2)", [user])
    db.execute("select memoir.branch_session(%s, 'a', 'c', 0)", [user])
    persist(db, user, "b", PERSON | {"content": "What now?"}, MODEL | {"content": "No idea."})
    who = db.execute("select user_id from _memoir.users where external_id = %s", [user]).fetchone()[0]
    ids = {
        name: session
        for name, session in db.execute(
            "select external_id, session_id from _memoir.sessions where user_id = %s", [who]
        )
    }
    for name in "abc":
        db.execute(
            "update _memoir.sessions set summary_text = 'Told of a locker.', summary_through = 1 where user_id = %s and session_id = %s",
            [who, ids[name]],
        )
        for start in (0, 2):
            db.execute(
                "insert into _memoir.compactions (user_id, session_id, compaction_id, from_turn, to_turn, summary_text, made_by, recorded_at) "
                "values (%s, %s, gen_random_uuid(), %s, %s, 'Told of a locker.', 'test', now())",
                [who, ids[name], start, start + 1],
            )
    memory = remember(
        db, user, "Uses locker seventeen.", session="b", provenance="user_stated", source_turns=[0], embedding=NEAR
    )["memory_id"]
    # A compile keeps its recall for the exchange; that one holds the turn, not the memory.
    for session, query in (("x", "Which locker number is it?"), ("y", "heron")):
        db.execute("select memoir.compile_context(%s, %s, %s)", [user, session, query])
    kept = "select recall like '%%Heron%%', items ? %s from _memoir.kept_recalls where user_id = %s order by 2"
    assert db.execute(kept, [memory, who]).fetchall() == [(True, False), (True, True)]
    assert "Heron" in seen(db, user, "Which locker number?")
    done = forget(db, user, memory)
    assert (
        done["excluded_turns"] == 1 and done["invalidated_summaries"] == 4
    )  # of a and b, whose turn it is or who share it
    assert "Heron." not in seen(db, user, "Which locker number?") and "Told of" not in seen(db, user, "locker")
    assert recalled(db, user, "herons birds")[
        0
    ] == "I like herons, the birds." and "My locker number is Heron." not in recalled(db, user, "herons birds locker")
    assert [
        s
        for (s,) in db.execute(
            "select external_id from _memoir.sessions where user_id = %s and summary_text is not null", [who]
        )
    ] == ["c"]
    assert db.execute(
        "select count(*) from _memoir.compactions where user_id = %s and undone_at is null", [who]
    ).fetchone() == (4,)
    assert db.execute(
        "select session_id, turn_index, memory_id::text from _memoir.recall_exclusions where user_id = %s", [who]
    ).fetchall() == [(ids["a"], 0, memory)]
    assert [row for row in db.execute(kept, [memory, who]) if row[0]] == []
    # History is lossless: it keeps the turn, and so does the session's own window.
    assert db.execute("select memoir.history(%s, 'a', 0, 0) ->> 'content'", [user]).fetchone() == (
        "My locker number is Heron.",
    )
    assert forget(db, user, memory)["excluded_turns"] == 0


def test_late_vectors_of_a_forgotten_memory(db: psycopg.Connection, user: str) -> None:
    """It was claimed before it was forgotten: its vector must not merge anything into it."""
    kept = remember(db, user, "Likes hiking.", embedding=NEAR)["memory_id"]
    gone = remember(db, user, "Likes hiking at dawn.")["memory_id"]
    claims = db.execute(
        "select user_id, item_no from memoir.claim_embeddings(10000, 'little') where text = 'Likes hiking at dawn.'"
    ).fetchall()
    forget(db, user, gone)
    db.execute(
        "select memoir.store_embeddings(%s, %s, %s::real[], 'little')",
        [[u for u, _ in claims], [i for _, i in claims], [CLOSE] * len(claims)],
    )
    assert (memory_row(db, kept, "state")[0], memory_row(db, gone, "state")[0]) == ("active", "forgotten")
    assert recalled(db, user, "hiking dawn", query_embedding="{1,0.1,0,0}") == ["Likes hiking."]
