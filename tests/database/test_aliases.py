"""Other names of the same thing: what a text says of them, and that what says one name is found by the other, no longer than it may be."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from calls import call, memory_row, persist, remembered
from psycopg.types.json import Jsonb

SAID = [
    ("We run everything on Kubernetes (k8s) these days.", {("k8s", "kubernetes")}),
    ("I moved our builds to GitHub Actions, or GHA, last week.", {("gha", "github actions")}),
    ("My machine learning (ML) course starts on Monday.", {("ml", "machine learning")}),
    ("GHA (GitHub Actions) is failing again.", {("gha", "github actions")}),
    ("My sister Elizabeth, also known as Lizzy, is visiting.", {("elizabeth", "lizzy")}),
    ("Bob aka Robert Smith called.", {("bob", "robert smith")}),
    ("PTO is short for paid time off at my company.", {("pto", "paid time off")}),
    ("We call the Customer Data Platform CDP for short.", {("cdp", "customer data platform")}),
    (
        "Internationalization (i18n) is hard; localization (l10n) too.",
        {("i18n", "internationalization"), ("l10n", "localization")},
    ),
    ("I live in Berlin (Germany) with Tom (my brother).", set()),
    ("I want tea or coffee. Is it A or B? I like JavaScript (JS9).", set()),
    ("The results (see above) were good (really).", set()),
]


@pytest.mark.parametrize("text, expected", SAID, ids=[text[:30] for text, _ in SAID])
def test_names_that_a_text_gives(db: psycopg.Connection, text: str, expected: set[tuple[str, str]]) -> None:
    found = {row for row in db.execute("select name, other from _memoir.aliases_in(%s) where stated", [text])}
    assert found == expected | {(other, name) for name, other in expected}


def test_phrases_by_their_initials(db: psycopg.Connection) -> None:
    found = db.execute(
        "select name, other from _memoir.aliases_in('We use GitHub Actions and Amazon Web Services in New York, not in SHOUTED WORDS HERE.') where not stated"
    ).fetchall()
    assert set(found) == {("gha", "github actions"), ("aws", "amazon web services")}


@pytest.mark.parametrize(
    "content, aliases, slot_value, expected",
    [
        ("Kubernetes runs our cluster.", ["k8s"], None, {("k8s", "kubernetes")}),
        ("Our builds run on GitHub Actions now.", ["GHA"], None, {("gha", "github actions")}),
        (
            "Her sister is called Elizabeth.",
            ["Lizzy", "Beth"],
            None,
            {("beth", "elizabeth"), ("elizabeth", "lizzy"), ("beth", "lizzy")},
        ),
        ("the thing we run pods on", ["k8s"], "Kubernetes", {("k8s", "kubernetes")}),
        ("Anna met Boris in Prague.", ["Bo"], None, set()),  # whose name, nobody can say
    ],
)
def test_names_given_with_a_memory(
    db: psycopg.Connection, content: str, aliases: list[str], slot_value: str | None, expected: set[tuple[str, str]]
) -> None:
    found = db.execute(
        "select name, other from _memoir.given_aliases(%s, %s, %s)", [content, aliases, slot_value]
    ).fetchall()
    assert {tuple(sorted(pair)) for pair in found} == expected


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
