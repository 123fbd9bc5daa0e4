"""A text that says one name of a thing is found by the other while it may be. unit/test_readings.py has which texts tell names."""


import pytest
from calls import Db, call, persist, remember, remembered, table
from psycopg.types.json import Jsonb
from talk import compile_text

CLUSTER, INES = "The cluster of Kubernetes lives in Frankfurt.", "Kubernetes was chosen by Ines."
HOSTED = "where is k8s hosted?"


def pairs(db: Db, user: str, stated: bool = True) -> set[tuple[str, ...]]:
    rows = table(db, "list_aliases", user, columns="name, other, stated")
    return {tuple(sorted(row[:2])) if stated else tuple(row[:2]) for row in rows if row[2] == stated}


@pytest.fixture(autouse=True)
def noise(db: Db, user: str) -> None:
    for topic in ("gardening", "taxes", "football", "cooking", "painting", "travel"):
        remember(db, user, f"Talked about {topic} with a neighbour on the stairs.")


def test_initials_count_where_they_are_capitals(db: Db, user: str) -> None:
    persist(db, user, "one", "Bought a ticket for the Harbour Art Museum, not in SHOUTED WORDS HERE.", "Enjoy it.")
    assert pairs(db, user, stated=False) == {("ham", "harbour art museum")}
    assert "ticket" in compile_text(db, user, "when do I go to HAM?")
    assert "ticket" not in compile_text(db, user, "any ham left?")


def test_a_name_finds_texts_with_the_other(db: Db, user: str) -> None:
    """Not before it was said, not by a secret, and not once the memory that gave it is forgotten."""
    remember(db, user, CLUSTER)
    assert "Frankfurt" not in compile_text(db, user, HOSTED)
    remember(db, user, "Kubernetes was chosen in spring.", aliases=["k8s"], sensitivity="secret")
    assert "Frankfurt" not in compile_text(db, user, HOSTED)
    early = call(db, "now")
    memory = remembered(db, user, INES, aliases=["k8s"])
    assert "Frankfurt" in compile_text(db, user, HOSTED) and "Frankfurt" in compile_text(db, user, HOSTED.upper())
    assert "Frankfurt" not in compile_text(db, user, HOSTED, as_of=early)
    call(db, "forget", user, memory)
    assert "Frankfurt" not in compile_text(db, user, HOSTED) and pairs(db, user) == set()


def test_names_said_in_a_turn_find_both_ways(db: Db, user: str) -> None:
    """A turn of the user's; an erased one takes its names along."""
    persist(db, user, "one", "We moved to GitHub Actions (GHA) in spring.", "You may like Kubernetes (k8s).")
    persist(db, user, "two", "GHA costs us ninety euros.", "Fair.", "The runners of GitHub Actions stand in Dublin.")
    assert pairs(db, user) == {("gha", "github actions")}
    assert "Dublin" in compile_text(db, user, "where do the gha machines stand?")
    assert "ninety" in compile_text(db, user, "price of github actions")
    call(db, "erase_turn", user, "one", 0)
    assert pairs(db, user) == set()


def test_a_restated_memory_takes_on_new_names(db: Db, user: str) -> None:
    first = remembered(db, user, INES, aliases=["k8s"])
    assert "Ines" not in compile_text(db, user, "who picked kube?")
    assert remember(db, user, INES, aliases=["kube", "k8s"])["memory_id"] == first
    assert table(db, "list_memories", user, columns="aliases", limit=1) != [(["k8s"],)]
    db.execute("call memoir.run_job('merge')")
    for name in ("k8s", "kube"):
        assert compile_text(db, user, f"who picked {name}?").count("Ines") == 1, name


def test_a_slots_value_has_one_identity_by_all_names(db: Db, user: str) -> None:
    remember(db, user, "our pods", aliases=["k8s"], slot="x", slot_value="Kubernetes")
    assert pairs(db, user) == {("k8s", "kubernetes")}
    told = [remember(db, user, f"We use {v}.", slot="use", slot_value=v) for v in ("Kubernetes", "k8s", "Nomad")]
    assert told[1]["superseded"] == [] and told[0]["memory_id"] in told[2]["superseded"]


def test_an_import_knows_the_names_again(db: Db, user: str) -> None:
    persist(db, user, "one", "We moved to GitHub Actions (GHA) in spring.", "Good choice.")
    remember(db, user, INES, aliases=["k8s"])
    call(db, "import_user", user + "2", [Jsonb(line) for (line,) in table(db, "export_user", user)])
    assert pairs(db, user + "2") == pairs(db, user) != set()
