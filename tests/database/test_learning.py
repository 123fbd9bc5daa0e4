"""Weights learnt from a ledger: a user's preference is found again, what was not seen is ranked better, too little teaches nothing."""

import random
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from calls import Db, call, one, persist, raises, remember, remembered, run_job, table
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb
from servers import install


def fill(db: Db, user: str, compiles: int, noise: float = 0.0, fact: int | None = None) -> None:
    """A ledger of compiles of 12 items. Scores follow the words; the user uses what is closest by vector, or has most of a fact."""
    rng = random.Random(7)
    persist(db, user, "talk", *(f"Said in turn {n}, and nothing else." for n in range(40)))
    own = "select user_id, session_id from _memoir.sessions join _memoir.users using (user_id) where users.external_id = %s"
    user_id, session = db.execute(own, [user]).fetchone()
    items_of = "select item_no from _memoir.search_items where user_id = %s order by item_no"
    known = [item for (item,) in db.execute(items_of, [user_id])]
    row = f"""insert into _memoir.compile_ledger values (%s, %s, memoir.now() - %s * interval '1 minute', %s, 1000, 500, 300, 0, 0, '{{}}',
        null, '\\x00', '{{}}', {", ".join(["%s"] * 12)})"""
    for n in range(compiles):
        items = rng.sample(known, 12)
        words, vectors = [rng.random() for _ in items], [rng.random() for _ in items]
        facts = [[rng.randrange(1000) if at == fact else 0 for at in range(7)] for _ in items]
        by = vectors if fact is None else [signals[fact] for signals in facts]
        used = [max(zip(by, items))[1]] if rng.random() >= noise else [rng.choice(items)]
        scores, places, nothing = [0.1 + 0.5 * w for w in words], list(range(1, 13)), [None] * 12
        db.execute("select _memoir.ensure_month(%s, memoir.now())", [user_id])
        arrays = [items, scores, words, vectors, [0.0] * 12, words, [20] * 12, places, nothing, nothing, facts, used]
        db.execute(row, [user_id, uuid.uuid4(), compiles - n, session, *arrays])


def learn(db: Db, user: str, **named: Any) -> dict[str, Any]:
    extra = "".join(f", p_{name} => %({name})s{'::real' if name == 'prior' else ''}" for name in named)
    return db.execute(f"select memoir.learn_weights(%(user)s{extra})", {"user": user, **named}).fetchone()[0]


@pytest.fixture(autouse=True)
def _shipped(db: Db) -> Iterator[None]:
    yield
    call(db, "reset_ranking_profile", None)
    learnt = "memoir.list_ranking_profiles(null) where profile = 'user'"
    db.execute(f"select memoir.reset_ranking_profile(user_name) from {learnt}")


def profiles(db: Db, user: str | None = None) -> list[dict[str, Any]]:
    with db.cursor(row_factory=dict_row) as rows:
        return rows.execute("select * from memoir.list_ranking_profiles(%s)", [user]).fetchall()


def scores(db: Db, user: str) -> dict[str, float]:
    """What a recall gives each item with the weights in force."""
    rows = table(db, "explain_context", user, "s", "What stands in the garden?", columns="content, score")
    return {content: round(score, 3) for content, score in rows if score is not None}


def test_preference_ranks_what_was_not_seen(db: Db, user: str) -> None:
    fill(db, user, 60)
    done = learn(db, user)
    held, old, new = done["held_out"], done["old"], done["new"]
    assert done["compiles"] == 60 and held["compiles"] == 12 and not done["applied"]
    assert held["before"] < 0.7 < 0.85 < held["after"]
    assert held["gain"] == pytest.approx(held["after"] - held["before"], abs=2e-4)
    assert new["vector"] + new["vector_rank"] > old["vector"] + old["vector_rank"] + 0.5 and new["words"] < old["words"]
    # What the ledger says nothing of stays as it was.
    assert all(new[name] == old[name] for name in ("constant", "cover", "date", "speaker", "further"))
    assert learn(db, user) == done
    # Held near what was there.
    stiff = learn(db, user, prior=5.0)
    assert abs(stiff["new"]["vector"] - old["vector"]) < abs(new["vector"] - old["vector"]) / 3


def test_every_signal_that_the_ledger_keeps_is_learnt(db: Db, user: str) -> None:
    names, kept = db.execute("select _memoir.signal_names(), _memoir.ledger_signals()").fetchone()
    weights = one(db, "select _memoir.config(null, null) -> 'rank_weights'")
    assert {name.rpartition(".")[2] for name in weights} == set(names) > set(kept) and len(kept) == 7
    fill(db, user, 40, fact=kept.index("cover"))
    done = learn(db, user)
    assert done["new"]["cover"] > done["old"]["cover"] + 0.3 and done["held_out"]["gain"] > 0
    assert all(done["new"].get(name) == done["old"].get(name) for name in kept if name != "cover")


def test_applied_weights_are_the_users_own_and_go_back(db: Db, user: str) -> None:
    fill(db, user, 50)
    done = learn(db, user, apply=True)
    assert done["applied"]
    shipped, own = profiles(db, user)
    assert own["weights"] == {"rank_weights": done["new"]} and shipped["weights"]["rank_weights"] == done["old"]
    columns = ("profile", "user_name", "version", "started_from", "is_outdated")
    assert [own[column] for column in columns] == ["user", user, 1, shipped["version"], False]
    assert "50 compiles" in own["source"] and own["made_at"]
    # The same ledger was made with other weights: there is nothing to add.
    with raises("PM025"):
        learn(db, user)
    assert call(db, "reset_ranking_profile", user) is True and profiles(db, user) == [shipped]
    assert call(db, "reset_ranking_profile", user) is False


def test_weights_without_a_gain_are_not_applied(db: Db, user: str) -> None:
    fill(db, user, 40, noise=1.0)
    done = learn(db, user, apply=True, prior=0.001)
    assert done["applied"] == (done["held_out"]["gain"] > 0) and abs(done["held_out"]["gain"]) < 0.3


def test_arguments_and_too_few_compiles_are_refused(db: Db, user: str) -> None:
    wrong: list[dict[str, Any]] = [{"compiles": 5}, {"least": 5}, {"least": 600}, {"prior": 0}, {"prior": None}]
    for named in wrong:
        with raises("PM014"):
            learn(db, user, **named)
    fill(db, user, 39)
    with pytest.raises(psycopg.Error, match="39 compiles") as caught:
        learn(db, user)
    assert caught.value.sqlstate == "PM025" and "credit_recall" in (caught.value.diag.message_hint or "")


def garden(db: Db, user: str) -> tuple[list[str], Any]:
    """Three memories, and the compile that recalled them."""
    ids = [remembered(db, user, f"The {name} stands in the garden.") for name in ("shed", "pond", "swing")]
    context = call(db, "context", user, "asking", "What stands in the garden?")
    assert set(context["items"]) == set(ids)
    return ids, context["compile_id"]


def test_used_items_are_said_before_and_after_the_flush(db: Db, user: str) -> None:
    ids, compiled = garden(db, user)

    def credit(*used: str) -> int:
        return int(one(db, "select memoir.credit_recall(%s, %s, %s::uuid[])", user, compiled, list(used)))

    def find_used() -> set[str]:
        of = "select i.ref_id::text from _memoir.compile_ledger l join _memoir.search_items i on i.user_id = l.user_id and i.item_no = any (l.used)"
        return {ref for (ref,) in db.execute(f"{of} where compile_id = %s", [compiled])}

    assert credit(ids[0], str(uuid.uuid4())) == 1
    db.execute("call memoir.run_job('flush')")
    assert find_used() == {ids[0]} and credit(ids[1], ids[2]) == 2 and find_used() == set(ids[1:])
    assert credit() == 0 and find_used() == set()
    with raises("PM004"):
        db.execute("select memoir.credit_recall(%s, %s, '{}')", [user, uuid.uuid4()])


def test_validated_items_were_used(db: Db, user: str) -> None:
    ids, _ = garden(db, user)
    db.execute("call memoir.run_job('flush')")
    pairs = "select count(*) from _memoir.users u, unnest(_memoir.learning_pairs(u.user_id, '-infinity', 500)) where u.external_id = %s"
    db.execute("set search_path = pg_catalog, memoir_extensions")  # as learn_weights calls it
    assert one(db, pairs, user) == 0
    for key in ids[:2]:
        call(db, "validate", user, key)
        assert one(db, pairs, user) == 2  # one used and two not, then two used and one not


def flat(constant: float) -> Jsonb:
    """Weights with which all that is found scores alike."""
    return Jsonb({"rank_weights": {"constant": constant}})


def test_user_over_install_over_shipped(db: Db, user: str) -> None:
    for who in (user, user + "-other"):
        remember(db, who, "The shed stands in the garden.")
    shipped = scores(db, user)
    assert len(shipped) == 1 and call(db, "set_ranking_profile", None, flat(2), "by hand") == 1
    install_wide = scores(db, user)
    assert install_wide != shipped and call(db, "set_ranking_profile", user, flat(-1), "by hand") == 1
    assert scores(db, user) not in (shipped, install_wide) and scores(db, user + "-other") == install_wide
    made = [("install", 1, "by hand"), ("user", 1, "by hand")]
    assert [(row["profile"], row["version"], row["source"]) for row in profiles(db)][1:] == made
    assert call(db, "set_ranking_profile", user, flat(-2), "again") == 2
    call(db, "reset_ranking_profile", user)
    assert scores(db, user) == install_wide
    assert call(db, "reset_ranking_profile", None) is True and scores(db, user) == shipped


def test_own_weights_survive_an_upgrade(db: Db, user: str, memoir_dsn: str) -> None:
    remember(db, user, "The shed stands in the garden.")
    call(db, "set_ranking_profile", user, flat(-1), "by hand")
    before = scores(db, user)
    [shipped, own] = profiles(db, user)
    # What this release ships is another version than the one that the weights began with.
    db.execute("update _memoir.users set ranking = ranking || '{\"started_from\": 0}' where external_id = %s", [user])
    db.execute("update _memoir.ranking_profiles set version = 0, started_from = 0 where profile = 'shipped'")
    install(memoir_dsn)
    own |= {"started_from": 0, "is_outdated": True}
    assert profiles(db, user) == [shipped, own] and scores(db, user) == before


def test_other_values_are_refused(db: Db, user: str) -> None:
    words: list[Any] = [{"words": "1"}, {"words": -100.01}, 1]
    wrong = [{}, [], None, {"bm25": 1}, {"strength_weights": {"score": None}}, {"weight_access": -0.1}]
    cases = [("PM015", values, "x") for values in [*wrong, *({"rank_weights": each} for each in words)]]
    cases += [("PM014", {"rank_weights": {"words": 1}}, source) for source in (None, "  ")]
    for state, values, source in cases:
        for who in (None, user):
            with raises(state):
                call(db, "set_ranking_profile", who, Jsonb(values), source)
    assert [row["profile"] for row in profiles(db)] == ["shipped"]


def test_profile_goes_with_its_user(db: Db, user: str) -> None:
    call(db, "set_ranking_profile", user, flat(1), "by hand")
    [_, own] = profiles(db, user)
    lines = [Jsonb(line) for (line,) in table(db, "export_user", user)]
    call(db, "erase_user", user)
    assert [row["profile"] for row in profiles(db, user)] == ["shipped"]
    call(db, "import_user", user, lines)
    assert profiles(db, user)[1] == own


LIKED = (
    "walnut boats,slow trains,linen sheets,quiet libraries,paper maps,night shifts,silver rings,loud jazz,sour apples"
)
OWNED = "kayak,violin,telescope,lathe,tractor,harp,caravan,loom,piano,sledge,greenhouse,windmill".split(",")


def test_admission_follows_what_was_used(db: Db, user: str) -> None:
    liked = [*LIKED.split(","), "wooden floors", "Greek olives", "steep hills"]
    for n, (likes, owned) in enumerate(zip(liked, OWNED, strict=True)):
        persist(db, user, f"s{n}", f"I prefer {likes}.", "I see.", f"I own a {owned}.", "I see.")
        call(db, "extract_session", user, f"s{n}")
    for likes, owned in zip(liked, OWNED, strict=True):
        made = call(db, "context", user, "asks", f"Do I own a {owned}, and prefer {likes}?")
        used = [key for key, text in table(db, "recall", user, f"a {owned}", columns="id, content") if owned in text]
        call(db, "credit_recall", user, made["compile_id"], used)
    run_job(db, "flush")
    with raises("PM025"):
        call(db, "learn_admission", user, least=20)
    learnt = call(db, "learn_admission", user, least=10)
    assert learnt["held_out"]["gain"] > 0 and not learnt["applied"]
    # Facts were used and preferences were not, so the prior of the type counts less.
    assert learnt["new"]["type"] < learnt["old"]["type"] and 0.99 < sum(learnt["new"].values()) < 1.01
    assert call(db, "learn_admission", user, apply=True, least=10)["applied"]
    assert call(db, "set_user_settings", user, Jsonb({}))["admission_weights"] == learnt["new"]
