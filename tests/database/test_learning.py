"""Weights learnt from a ledger: a user's preference is found again, what was not seen is ranked better, too little teaches nothing."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb
from servers import install


def filled(db: psycopg.Connection, user: str, compiles: int, noise: float = 0.0, fact: int | None = None) -> None:
    """A ledger of compiles of 12 items. Scores follow the words; the user uses what is closest by vector, or has most of a fact."""
    rng = random.Random(7)
    messages = [
        {"role": ("user", "assistant")[n % 2], "content": f"Said in turn {n}, and nothing else."} for n in range(40)
    ]
    db.execute("select memoir.persist_turn(%s, 'talk', %s)", [user, Jsonb(messages)])
    user_id, session = db.execute(
        "select user_id, session_id from _memoir.sessions join _memoir.users using (user_id) where users.external_id = %s",
        [user],
    ).fetchone()
    known = [
        row[0]
        for row in db.execute("select item_no from _memoir.search_items where user_id = %s order by item_no", [user_id])
    ]
    for n in range(compiles):
        items = rng.sample(known, 12)
        words, vectors = [rng.random() for _ in items], [rng.random() for _ in items]
        scores = [0.1 + 0.5 * w for w in words]
        facts = [[rng.randrange(1000) if at == fact else 0 for at in range(7)] for _ in items]
        by = vectors if fact is None else [row[fact] for row in facts]
        used = [max(zip(by, items))[1]] if rng.random() >= noise else [rng.choice(items)]
        db.execute("select _memoir.ensure_month(%s, memoir.now())", [user_id])
        db.execute(
            """insert into _memoir.compile_ledger values (%s, %s, memoir.now() - %s * interval '1 minute', %s, 1000, 500, 300, 0, 0, '{}', null, '\\x00', '{}', %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)""",
            [
                user_id,
                uuid.uuid4(),
                compiles - n,
                session,
                items,
                scores,
                words,
                vectors,
                [0.0] * 12,
                words,
                [20] * 12,
                list(range(1, 13)),
                [None] * 12,
                [None] * 12,
                facts,
                used,
            ],
        )


def learn(db: psycopg.Connection, user: str, **named: Any) -> dict[str, Any]:
    extra = "".join(f", p_{name} => %({name})s{'::real' if name == 'prior' else ''}" for name in named)
    return db.execute(f"select memoir.learn_weights(%(user)s{extra})", {"user": user, **named}).fetchone()[0]


@pytest.fixture(autouse=True)
def _shipped(db: psycopg.Connection) -> Iterator[None]:
    yield
    db.execute("select memoir.reset_ranking_profile(null)")
    db.execute(
        "select memoir.reset_ranking_profile(p.user_name) from memoir.list_ranking_profiles(null) p where p.profile = 'user'"
    )


def profiles(db: psycopg.Connection, user: str | None = None) -> list[dict[str, Any]]:
    with db.cursor(row_factory=dict_row) as rows:
        return rows.execute("select * from memoir.list_ranking_profiles(%s)", [user]).fetchall()


def scores(db: psycopg.Connection, user: str) -> dict[str, float]:
    """What a recall gives each item: the answer's score with the weights in force."""
    rows = db.execute(
        "select content, score from memoir.explain_context(%s, 's', 'What stands in the garden?') where score is not null",
        [user],
    )
    return {content: round(score, 3) for content, score in rows.fetchall()}


def test_a_preference_is_found_and_ranks_what_was_not_seen(db: psycopg.Connection, user: str) -> None:
    filled(db, user, 60)
    done = learn(db, user)
    held = done["held_out"]
    assert done["compiles"] == 60 and held["compiles"] == 12 and not done["applied"]
    assert held["before"] < 0.7 < 0.85 < held["after"] and held["gain"] == pytest.approx(
        held["after"] - held["before"], abs=2e-4
    )
    assert done["new"]["vector"] + done["new"]["vector_rank"] > done["old"]["vector"] + done["old"]["vector_rank"] + 0.5
    assert done["new"]["words"] < done["old"]["words"]
    # What the ledger says nothing of stays as it was.
    assert all(
        done["new"][name] == weight
        for name, weight in done["old"].items()
        if name in ("constant", "cover", "date", "speaker", "further")
        or name.startswith(("long.", "memory."))
        and not name.endswith(("_before", "_after"))
    )
    assert db.execute("select settings from _memoir.users where external_id = %s", [user]).fetchone() == ({},)
    assert learn(db, user) == done
    # Held near what was there.
    stiff = learn(db, user, prior=5.0)
    assert abs(stiff["new"]["vector"] - stiff["old"]["vector"]) < abs(done["new"]["vector"] - done["old"]["vector"]) / 3


def test_every_signal_that_the_ledger_keeps_is_learnt(db: psycopg.Connection, user: str) -> None:
    names, kept = db.execute("select _memoir.signal_names(), _memoir.ledger_signals()").fetchone()
    assert set(kept) < set(names) and len(kept) == 7
    filled(db, user, 40, fact=kept.index("cover"))
    done = learn(db, user)
    assert done["new"]["cover"] > done["old"]["cover"] + 0.3 and done["held_out"]["gain"] > 0
    assert all(done["new"].get(name) == done["old"].get(name) for name in kept if name != "cover")


def test_weights_name_the_signals_that_the_scorer_has(db: psycopg.Connection) -> None:
    names, weights = db.execute(
        "select _memoir.signal_names(), _memoir.config(null, null) -> 'rank_weights'"
    ).fetchone()
    assert {name.rpartition(".")[2] for name in weights} == set(names)
    rows = db.execute(
        "select w.* from unnest(_memoir.rank_weights(%s, 6)) w",
        [Jsonb({"words": 0.5, "unnamed.words": 0.25, "memory.last": -1, "long.date": 9})],
    )
    columns = [column.name for column in rows.description]
    assert columns == names
    found = [dict(zip(columns, row)) for row in rows.fetchall()]
    assert [row["words"] for row in found] == [0.5, 0.75, 0.5] and [row["last"] for row in found] == [0, 0, -1]
    assert all(value == 0 for row in found for name, value in row.items() if name not in ("words", "last"))


def test_weights_are_the_users_own_once_applied_and_go_back(db: psycopg.Connection, user: str) -> None:
    filled(db, user, 50)
    done = learn(db, user, apply=True)
    assert done["applied"]
    assert db.execute("select settings from _memoir.users where external_id = %s", [user]).fetchone() == ({},)
    shipped, own = profiles(db, user)
    assert own["weights"] == {"rank_weights": done["new"]} and shipped["weights"]["rank_weights"] == done["old"]
    assert (own["profile"], own["user_name"], own["version"], own["started_from"]) == (
        "user",
        user,
        1,
        shipped["version"],
    )
    assert "50 compiles" in own["source"] and own["made_at"] and not own["is_outdated"]
    # The same ledger was made with other weights: there is nothing to add.
    with pytest.raises(psycopg.Error) as caught:
        learn(db, user)
    assert caught.value.sqlstate == "PM025"
    assert db.execute("select memoir.reset_ranking_profile(%s)", [user]).fetchone() == (True,)
    assert profiles(db, user) == [shipped]
    assert db.execute("select memoir.reset_ranking_profile(%s)", [user]).fetchone() == (False,)


def test_what_gains_nothing_is_not_applied(db: psycopg.Connection, user: str) -> None:
    filled(db, user, 40, noise=1.0)
    done = learn(db, user, apply=True, prior=0.001)
    assert done["applied"] == (done["held_out"]["gain"] > 0)
    assert abs(done["held_out"]["gain"]) < 0.3


def test_too_little_is_refused(db: psycopg.Connection, user: str) -> None:
    filled(db, user, 39)
    with pytest.raises(psycopg.Error) as caught:
        learn(db, user)
    assert (
        caught.value.sqlstate == "PM025"
        and "39 compiles" in str(caught.value)
        and "credit_recall" in caught.value.diag.message_hint
    )


@pytest.mark.parametrize("named", [{"compiles": 5}, {"least": 5}, {"least": 600}, {"prior": 0}, {"prior": None}])
def test_arguments(db: psycopg.Connection, user: str, named: dict[str, Any]) -> None:
    with pytest.raises(psycopg.Error) as caught:
        learn(db, user, **named)
    assert caught.value.sqlstate == "PM014"


def test_what_was_used_is_said_before_and_after_the_flush(db: psycopg.Connection, user: str) -> None:
    ids = [
        str(
            db.execute("select memoir.remember(%s, %s)", [user, f"The {name} stands in the garden."]).fetchone()[0][
                "memory_id"
            ]
        )
        for name in ("shed", "pond", "swing")
    ]
    context = db.execute("select memoir.context(%s, 'asking', 'What stands in the garden?')", [user]).fetchone()[0]
    assert set(context["items"]) == set(ids)

    def credit(*used: str) -> int:
        return db.execute(
            "select memoir.credit_recall(%s, %s, %s::uuid[])", [user, context["compile_id"], list(used)]
        ).fetchone()[0]

    def ledger() -> list[Any]:
        return db.execute(
            "select array(select i.ref_id::text from _memoir.search_items i where i.user_id = l.user_id and i.item_no = any (l.used)) from _memoir.compile_ledger l where compile_id = %s",
            [context["compile_id"]],
        ).fetchall()

    assert credit(ids[0], str(uuid.uuid4())) == 1
    db.execute("call memoir.flush_statistics()")
    assert ledger() == [([ids[0]],)]
    assert credit(ids[1], ids[2]) == 2
    assert sorted(ledger()[0][0]) == sorted(ids[1:])
    assert credit() == 0 and ledger() == [([],)]
    with pytest.raises(psycopg.Error) as caught:
        db.execute("select memoir.credit_recall(%s, %s, '{}')", [user, uuid.uuid4()])
    assert caught.value.sqlstate == "PM004"


def test_what_a_person_validated_was_used(db: psycopg.Connection, user: str) -> None:
    ids = [
        str(
            db.execute("select memoir.remember(%s, %s)", [user, f"The {name} stands in the garden."]).fetchone()[0][
                "memory_id"
            ]
        )
        for name in ("shed", "pond", "swing")
    ]
    db.execute("select memoir.context(%s, 'asking', 'What stands in the garden?')", [user])
    db.execute("call memoir.flush_statistics()")
    user_id = db.execute("select user_id from _memoir.users where external_id = %s", [user]).fetchone()[0]

    def pairs() -> int:
        with db.transaction():
            db.execute("set local search_path = pg_catalog, memoir_extensions")  # as learn_weights calls it
            return db.execute(
                "select count(*) from unnest(_memoir.learning_pairs(%s, '-infinity', 500))", [user_id]
            ).fetchone()[0]

    assert pairs() == 0
    db.execute("select memoir.validate(%s, %s)", [user, ids[0]])
    assert pairs() == 2
    db.execute("select memoir.validate(%s, %s)", [user, ids[1]])
    assert pairs() == 2  # two used, one not


# Profiles -------------------------------------------------------------------------------------------------------------


def flat(constant: float) -> Jsonb:
    """Weights with which all that is found scores alike."""
    return Jsonb({"rank_weights": {"constant": constant}})


def test_user_over_install_over_shipped(db: psycopg.Connection, user: str) -> None:
    for who in (user, user + "-other"):
        db.execute("select memoir.remember(%s, 'The shed stands in the garden.')", [who])
    shipped = scores(db, user)
    assert len(shipped) == 1
    assert db.execute("select memoir.set_ranking_profile(null, %s, 'by hand')", [flat(2)]).fetchone() == (1,)
    install_wide = scores(db, user)
    assert install_wide != shipped
    assert db.execute("select memoir.set_ranking_profile(%s, %s, 'by hand')", [user, flat(-1)]).fetchone() == (1,)
    own = scores(db, user)
    assert own not in (shipped, install_wide) and scores(db, user + "-other") == install_wide
    assert [(row["profile"], row["version"], row["source"]) for row in profiles(db)][1:] == [
        ("install", 1, "by hand"),
        ("user", 1, "by hand"),
    ]
    assert db.execute("select memoir.set_ranking_profile(%s, %s, 'again')", [user, flat(-2)]).fetchone() == (2,)
    db.execute("select memoir.reset_ranking_profile(%s)", [user])
    assert scores(db, user) == install_wide
    assert db.execute("select memoir.reset_ranking_profile(null)").fetchone() == (True,)
    assert scores(db, user) == shipped


def test_own_weights_survive_an_upgrade(db: psycopg.Connection, user: str, memoir_dsn: str) -> None:
    db.execute("select memoir.remember(%s, 'The shed stands in the garden.')", [user])
    db.execute("select memoir.set_ranking_profile(%s, %s, 'by hand')", [user, flat(-1)])
    before = scores(db, user)
    [shipped, own] = profiles(db, user)
    # What this release ships is another version than the one that the weights began with.
    db.execute("update _memoir.users set ranking = ranking || '{\"started_from\": 0}' where external_id = %s", [user])
    db.execute(
        "update _memoir.ranking_profiles set version = 0, started_from = 0, weights = '{\"rank_weights\": {\"constant\": 1}}' where profile = 'shipped'"
    )
    install(memoir_dsn)
    assert profiles(db, user) == [shipped, own | {"started_from": 0, "is_outdated": True}]
    assert scores(db, user) == before


@pytest.mark.parametrize(
    ("values", "source", "code"),
    [
        ({}, "x", "PM015"),
        ([], "x", "PM015"),
        (5, "x", "PM015"),
        (None, "x", "PM015"),
        ({"bm25": 1}, "x", "PM015"),
        ({"rank_weights": 1}, "x", "PM015"),
        ({"rank_weights": {"words": "1"}}, "x", "PM015"),
        ({"rank_weights": {"words": 100.01}}, "x", "PM015"),
        ({"rank_weights": {"words": -100.01}}, "x", "PM015"),
        ({"strength_weights": {"score": None}}, "x", "PM015"),
        ({"weight_access": -0.1}, "x", "PM015"),
        ({"weight_access": "1"}, "x", "PM015"),
        ({"rank_weights": {"words": 1}}, "", "PM014"),
        ({"rank_weights": {"words": 1}}, None, "PM014"),
        ({"rank_weights": {"words": 1}}, "  ", "PM014"),
    ],
)
def test_what_is_no_profile_is_refused(
    db: psycopg.Connection, user: str, values: Any, source: str | None, code: str
) -> None:
    for who in (None, user):
        with pytest.raises(psycopg.Error) as caught:
            db.execute("select memoir.set_ranking_profile(%s, %s, %s)", [who, Jsonb(values), source])
        assert caught.value.sqlstate == code
    assert [row["profile"] for row in profiles(db)] == ["shipped"]


def test_a_profile_goes_with_its_user(db: psycopg.Connection, user: str) -> None:
    db.execute("select memoir.set_ranking_profile(%s, %s, 'by hand')", [user, flat(1)])
    [_, own] = profiles(db, user)
    lines = [line for (line,) in db.execute("select * from memoir.export_user(%s)", [user])]
    db.execute("select memoir.erase_user(%s)", [user])
    assert [row["profile"] for row in profiles(db, user)] == ["shipped"]
    db.execute("select memoir.import_user(%s, %s)", [user, [Jsonb(line) for line in lines]])
    assert profiles(db, user)[1] == own
