"""Memories about one thing become one, which says all that they say; and back."""

import pytest
from calls import Db, active, call, edges, export_rows, recalled, remember, remembered, run_job
from internals import memory_row

pytestmark = pytest.mark.usefixtures("little_vectors")

# Alike, and no duplicates: names and numbers differ.
HIKES = {
    "Goes hiking in the Alps each summer": (1, 0.1, 0, 0),
    "Goes hiking with Brigida.": (1, 0.3, 0, 0),
    "Goes hiking 40 km around Zermatt": (1, 0, 0.3, 0),
}


def hikes(db: Db, user: str) -> list[str]:
    return [remembered(db, user, text, embedding=vector) for text, vector in HIKES.items()]


def consolidate(db: Db) -> int:
    """How many wholes are made."""
    return int(run_job(db, "consolidation")["made"])


def key_of(db: Db, user: str, text: str) -> str:
    rows = export_rows(db, user, "memory_store")
    return str(next(row["memory_id"] for row in rows if row["content"] == text))


def test_cluster_becomes_one_and_back(db: Db, user: str) -> None:
    members = hikes(db, user)
    remember(db, user, "Plays chess", embedding=(0, 0, 0, 1))
    run_job(db, "profiles")
    assert consolidate(db) == 1
    run_job(db, "profiles")
    profile = call(db, "profile", user)["content"]
    assert profile.count("\n- ") == 2 and "Brigida" in profile and "Zermatt" in profile
    whole = "Goes hiking in the Alps each summer; 40 km around Zermatt; with Brigida."
    assert active(db, user) == [whole, "Plays chess"]
    key = key_of(db, user, whole)
    # All sources named, edges to each, authority no higher than theirs.
    sources = [row for row in export_rows(db, user, "memory_sources") if row["item_id"] == key]
    assert {row["source_id"] for row in sources if row["source_kind"] == "memory"} == set(members)
    assert edges(db, user, key) == {(r, m) for r in ("elaborates", "supersedes") for m in members}
    columns = "tier, trust, confidence, validated_at is not null"
    assert memory_row(db, key, columns) == memory_row(db, members[0], columns)
    assert recalled(db, user, "hiking Brigida Zermatt") == [whole] and consolidate(db) == 0
    assert set(call(db, "undo_consolidation", user, key)["restored"]) == set(members)
    assert active(db, user) == sorted([*HIKES, "Plays chess"]) and edges(db, user, key) == set()
    assert call(db, "undo_consolidation", user, key)["restored"] == []
    # They stay apart.
    assert consolidate(db) == 0 and len(active(db, user)) == 4


@pytest.mark.parametrize(
    ("texts", "parts"),
    [
        # Share nothing but their matter: the whole would not be shorter.
        (("The allotment has a shed", "Grows leeks behind it", "Waters on Tuesdays"), ()),
        (
            (
                "My uncle Sten repairs church clocks in Visby",
                "My uncle Sten keeps 14 goats",
                "My uncle Sten is deaf in one ear",
            ),
            ("repairs church clocks in Visby", "keeps 14 goats", "is deaf in one ear"),
        ),
        # Every word of the last one is in the first two, and none of them says it.
        (
            (
                "My aunt Liv always drinks black tea with lemon at home",
                "My aunt Liv always drinks oat milk coffee with Per at work",
                "My aunt Liv always drinks black coffee with Per",
            ),
            ("black tea with lemon", "oat milk coffee", "black coffee with Per"),
        ),
    ],
    ids=["matter", "uncle", "aunt"],
)
def test_only_what_gets_shorter_is_put_together(db: Db, user: str, texts, parts: tuple[str, ...]) -> None:
    for n, text in enumerate(texts):
        remember(db, user, text, embedding=(1, 0.1 * n, 0, 0))
    assert consolidate(db) == bool(parts)
    if not parts:
        assert active(db, user) == sorted(texts)
        return
    (whole,) = active(db, user)
    assert all(part in whole for part in parts), whole
    assert call(db, "estimate_tokens", whole) < sum(call(db, "estimate_tokens", text) for text in texts)


def test_what_differs_stays_apart(db: Db, user: str) -> None:
    more = ({"project": "kiln"}, {"type": "plan"}, {"sensitivity": "private"}, {"actor": "agent"}, {"slot": "hike"})
    for apart in (*more, {"valid_to": "2099-01-01"}):
        who = f"{user} {apart}"
        for n, (text, vector) in enumerate(HIKES.items()):
            remember(db, who, text, embedding=vector, **(apart if n == 2 else {}))
        assert consolidate(db) == 0 and len(active(db, who)) == 3, apart


def test_forgetting_a_whole_takes_its_parts(db: Db, user: str) -> None:
    """test_corrections_hold.py has what a forgotten part leaves."""
    hikes(db, user)
    consolidate(db)
    (whole,) = active(db, user)
    call(db, "forget", user, key_of(db, user, whole))
    assert active(db, user) == []
    assert {remember(db, user, text)["outcome"] for text in HIKES} == {"refused_tombstone"}
