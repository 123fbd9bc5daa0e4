"""Other names of the same thing: what a text says of them, and that what says one name is found by the other, no longer than it may be."""

from __future__ import annotations

from typing import Any

import psycopg
from calls import call, memory_row, persist, remembered
from psycopg.types.json import Jsonb


def compiled(db: psycopg.Connection, user: str, query: str, **named: Any) -> str:
    extra = "".join(f", p_{name} => %({name})s" for name in named)
    return str(
        db.execute(
            f"select memoir.compile_context(%(user)s, 'asking', %(query)s{extra})",
            {"user": user, "query": query, **named},
        ).fetchone()[0][-1]["content"]
    )


def noise(db: psycopg.Connection, user: str) -> None:
    for topic in ("gardening", "taxes", "football", "cooking", "painting", "travel"):
        remembered(db, user, f"Talked about {topic} with a neighbour on the stairs.")


def test_an_alias_given_with_remember_finds_what_the_name_says(db: psycopg.Connection, user: str) -> None:
    noise(db, user)
    remembered(db, user, "The cluster of Kubernetes lives in Frankfurt.")
    assert "Frankfurt" not in compiled(db, user, "where is k8s hosted?")
    remembered(db, user, "Kubernetes was chosen by Ines.", aliases=["k8s"])
    assert "Frankfurt" in compiled(db, user, "where is k8s hosted?")
    assert "Frankfurt" in compiled(db, user, "where is K8S hosted?")


def test_a_memory_stated_again_takes_on_new_names(db: psycopg.Connection, user: str) -> None:
    noise(db, user)
    first = remembered(db, user, "Kubernetes was chosen by Ines.", aliases=["k8s"])
    assert "Ines" not in compiled(db, user, "who picked kube?")
    again = call(db, "remember", user, "Kubernetes was chosen by Ines.", aliases=["kube", "k8s"])
    assert again["outcome"] == "duplicate" and again["memory_id"] == first
    assert memory_row(db, first, "aliases") == (["k8s", "kube"],)
    for name in ("k8s", "kube"):
        assert "Ines" in compiled(db, user, f"who picked {name}?"), name
    db.execute("call memoir.merge_search()")
    assert compiled(db, user, "who picked kube?").count("Ines") == 1
    db.execute("select memoir.forget(%s, %s)", [user, first])
    assert "Ines" not in compiled(db, user, "who picked kube?")


def test_aliases_keep_vector_and_words(db: psycopg.Connection, user: str) -> None:
    remembered(db, user, "Kubernetes was chosen by Ines.")
    db.execute("call memoir.merge_search()")
    counts = """select items, total_words, (select count(*) from _memoir.search_items i where i.user_id = c.user_id)
                from _memoir.user_counters c join _memoir.users u using (user_id) where u.external_id = %s"""
    [before] = db.execute(counts, [user]).fetchall()
    remembered(db, user, "Kubernetes was chosen by Ines.", aliases=["kube"])
    [after] = db.execute(counts, [user]).fetchall()
    assert after == (before[0], before[1] + 1, before[2])


def test_a_name_that_is_a_common_word_tells_nothing(db: psycopg.Connection, user: str) -> None:
    remembered(db, user, "The Concourse pipeline belongs to Ines.", aliases=["set-up", "Concourse"])
    rows = db.execute(
        """select o.names, o.loose from _memoir.user_counters c join _memoir.users u using (user_id),
             _memoir.other_names(u.user_id, c, 'english', 'our set up of the concourse', row('{}', '{}', 0,
               array[_memoir.no_session()], null, 'normal', null, null, null, null, null)::_memoir.search_scope) o
           where u.external_id = %s""",
        [user],
    ).fetchall()
    assert rows == [([], [])], "both are named"
    rows = db.execute(
        """select o.names, o.loose from _memoir.user_counters c join _memoir.users u using (user_id),
             unnest(array['our set up', 'our concourse']) with ordinality q(text, n),
             _memoir.other_names(u.user_id, c, 'english', q.text, row('{}', '{}', 0,
               array[_memoir.no_session()], null, 'normal', null, null, null, null, null)::_memoir.search_scope) o
           where u.external_id = %s order by n""",
        [user],
    ).fetchall()
    assert rows == [([], ["concourse"]), (["set up"], [])]


def test_an_alias_said_in_a_turn_finds_both_ways(db: psycopg.Connection, user: str) -> None:
    noise(db, user)
    persist(db, user, "one", "We moved to GitHub Actions (GHA) in spring.", "Good choice.")
    persist(
        db,
        user,
        "two",
        "GHA costs us ninety euros.",
        "That is fair.",
        "The runners of GitHub Actions stand in Dublin.",
        "Noted.",
    )
    assert "Dublin" in compiled(db, user, "where do the gha machines stand?")
    assert "ninety" in compiled(db, user, "price of github actions")


def test_initials_count_where_they_are_written_as_such(db: psycopg.Connection, user: str) -> None:
    noise(db, user)
    persist(db, user, "one", "Bought a ticket for the Harbour Art Museum yesterday.", "Enjoy it.")
    assert "ticket" in compiled(db, user, "when do I go to HAM?")
    assert "ticket" not in compiled(db, user, "any ham left?")


def test_what_an_assistant_says_gives_no_names(db: psycopg.Connection, user: str) -> None:
    persist(db, user, "one", "Hello.", "You may like Kubernetes (k8s).")
    assert db.execute("select count(*) from memoir.list_aliases(%s)", [user]).fetchone() == (0,)


def test_an_alias_goes_with_what_said_it(db: psycopg.Connection, user: str) -> None:
    noise(db, user)
    remembered(db, user, "The cluster of Kubernetes lives in Frankfurt.")
    memory = remembered(db, user, "Kubernetes was chosen by Ines.", aliases=["k8s"])
    assert "Frankfurt" in compiled(db, user, "where is k8s hosted?")
    db.execute("select memoir.forget(%s, %s)", [user, memory])
    assert "Frankfurt" not in compiled(db, user, "where is k8s hosted?")
    assert db.execute("select count(*) from memoir.list_aliases(%s)", [user]).fetchone() == (0,)


def test_an_alias_is_not_known_before_it_was_said(db: psycopg.Connection, user: str) -> None:
    noise(db, user)
    remembered(db, user, "The cluster of Kubernetes lives in Frankfurt.")
    [early] = db.execute("select memoir.now()").fetchone()
    remembered(db, user, "Kubernetes was chosen by Ines.", aliases=["k8s"])
    assert "Frankfurt" in compiled(db, user, "where is k8s hosted?")
    assert "Frankfurt" not in compiled(db, user, "where is k8s hosted?", as_of=early)


def test_a_secret_gives_no_names_away(db: psycopg.Connection, user: str) -> None:
    noise(db, user)
    remembered(db, user, "The cluster of Kubernetes lives in Frankfurt.")
    remembered(db, user, "Kubernetes was chosen by Ines.", aliases=["k8s"], sensitivity="secret")
    assert "Frankfurt" not in compiled(db, user, "where is k8s hosted?")


def test_an_erased_turn_takes_its_names_along(db: psycopg.Connection, user: str) -> None:
    persist(db, user, "one", "We moved to GitHub Actions (GHA) in spring.", "Good choice.")
    assert db.execute("select count(*) from memoir.list_aliases(%s)", [user]).fetchone()[0] > 0
    db.execute("select memoir.erase_turn(%s, 'one', 0)", [user])
    assert db.execute(
        "select count(*) from _memoir.search_aliases a join _memoir.users u using (user_id) where u.external_id = %s",
        [user],
    ).fetchone() == (0,)


def test_a_slots_value_by_its_other_name_is_no_other_value(db: psycopg.Connection, user: str) -> None:
    remembered(db, user, "Kubernetes was chosen by Ines.", aliases=["k8s"])
    first = remembered(db, user, "We run on Kubernetes.", slot="platform", slot_value="Kubernetes")
    remembered(db, user, "We are on k8s.", slot="platform", slot_value="k8s")
    assert db.execute("select state::text from _memoir.memory_store where memory_id = %s", [first]).fetchone() == (
        "active",
    )
    remembered(db, user, "We are on Nomad.", slot="platform", slot_value="Nomad")
    assert db.execute("select state::text from _memoir.memory_store where memory_id = %s", [first]).fetchone() == (
        "superseded",
    )


def test_an_import_knows_the_names_again(db: psycopg.Connection, user: str) -> None:
    persist(db, user, "one", "We moved to GitHub Actions (GHA) in spring.", "Good choice.")
    remembered(db, user, "Kubernetes was chosen by Ines.", aliases=["k8s"])
    lines = [row[0] for row in db.execute("select memoir.export_user(%s)", [user])]
    db.execute("select memoir.import_user(%s, %s)", [user + "2", [Jsonb(line) for line in lines]])
    known = [
        db.execute("select array_agg(name || other order by 1) from memoir.list_aliases(%s)", [u]).fetchone()
        for u in (user, user + "2")
    ]
    assert known[0] == known[1] and known[0][0]
