"""Memories and sessions are listed page by page, and a short hit leads to its surroundings, to the whole text and its relations."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from calls import Db, call, persist, remember, remembered, set_clock, table
from loops import step
from routines import world_of

UNKNOWN = "00000000-0000-0000-0000-000000000001"


def list_contents(db: Db, user: str, **named: Any) -> list[str]:
    return [content for (content,) in table(db, "list_memories", user, columns="content", **named)]


def read_timeline(db: Db, user: str, item: Any, before: int, after: int, columns: str) -> list[tuple[Any, ...]]:
    return table(db, "memory_timeline", user, item, lines_before=before, lines_after=after, columns=columns)


def test_memories_are_listed_newest_first(db: Db, user: str) -> None:
    for number in range(7):
        remember(db, user, f"Keeps bee hive number {number}", tags=["bees", f"n{number}"], category="hobby")
    remember(db, user, "Prefers short answers", type="preference")
    pages, last = [], None
    while page := table(db, "list_memories", user, columns="memory_id, content", limit=3, after_memory=last):
        pages.append([content for _, content in page])
        last = page[-1][0]
    hives = [f"Keeps bee hive number {n}" for n in reversed(range(7))]
    assert [len(page) for page in pages] == [3, 3, 2] and sum(pages, []) == ["Prefers short answers", *hives]
    assert list_contents(db, user, tags=["n4", "n5"]) == ["Keeps bee hive number 5", "Keeps bee hive number 4"]
    assert list_contents(db, user, types=["preference"]) == ["Prefers short answers"]
    assert len(list_contents(db, user, category="hobby")) == 7 and list_contents(db, user, project="elsewhere") == []


def test_other_states_are_listed_when_asked_for(db: Db, user: str) -> None:
    old = remembered(db, user, "The home town is Ulm", slot="home", slot_value="Ulm")
    remember(db, user, "The home town is Bonn", slot="home", slot_value="Bonn")
    gone = remembered(db, user, "Owns a parrot")
    call(db, "forget", user, gone)
    assert list_contents(db, user) == ["The home town is Bonn"]
    rows = table(db, "list_memories", user, states=[], columns="memory_id::text, content, state")
    assert set(rows) >= {(old, "The home town is Ulm", "superseded"), (gone, None, "forgotten")}
    assert "parrot" not in str(table(db, "memory_get", user, [gone]))
    assert table(db, "memory_get", user, [UNKNOWN]) == []


def test_sessions_are_listed_newest_first(db: Db, user: str) -> None:
    for day in range(1, 6):
        set_clock(db, f"2026-03-0{day}T10:00:00Z")
        call(db, "open_session", user, f"day {day}", project="odd" if day % 2 else "even")
        persist(db, user, f"day {day}", "Morning!", "Good morning.")
    set_clock(db, None)
    call(db, "close_session", user, "day 2")

    def names(**named: Any) -> list[str]:
        return [name[-1] for (name,) in table(db, "list_sessions", user, columns="session", **named)]

    first = table(db, "list_sessions", user, columns="session, turns, tokens > 0, status", limit=3)
    assert first == [(f"day {n}", 2, True, "active") for n in (5, 4, 3)]
    assert (names(limit=3, after_session="day 3"), names(project="even")) == (["2", "1"], ["4", "2"])
    assert names(status="closed") == ["2"]


def test_lists_have_titles_and_dates_of_saying(db: Db, user: str) -> None:
    for day, said in (
        (1, "Where do the\n\ngeese sleep?"),
        (2, "My locker code is 4711."),
        (3, "My bank code is 0815."),
    ):
        at = f"2026-03-0{day}T10:00:00Z"
        greeting = {"role": "assistant", "content": "Good morning.", "created_at": at}
        persist(db, user, f"day {day}", greeting, {"role": "user", "content": said, "created_at": at})
        remember(db, user, f"Of day {day}", created_at=at)
    call(db, "forget_about", user, "my locker code")
    for given, days in [
        ({"after": "2026-03-02T10:00:00Z"}, [3, 2]),
        ({"before": "2026-03-02T10:00:00Z"}, [1]),
        ({"after": "2026-03-02T00:00:00Z", "before": "2026-03-03T00:00:00Z"}, [2]),
        ({"after": "2026-03-03T00:00:00Z", "before": "2026-03-02T00:00:00Z"}, []),
    ]:
        assert list_contents(db, user, **given) == [f"Of day {day}" for day in days], given
        found = table(db, "list_sessions", user, columns="session, said_at::date::text", **given)
        assert found == [(f"day {day}", f"2026-03-0{day}") for day in days], given
    call(db, "mark_turn", user, "day 3", 1)
    titles = dict(table(db, "list_sessions", user, columns="session, title"))
    assert (titles["day 1"], titles["day 3"]) == ("Where do the geese sleep?", None) and "4711" not in str(titles)


def test_filters_find_whatever_the_rank(db: Db, user: str) -> None:
    for number in range(200):
        remember(db, user, f"The harbour log of day {number} names {number + 3} ships")
    key, party = "The spare key hangs behind the shed", "Never mention the surprise party"
    remember(db, user, key, tags=["keys"], category="house", project="home")
    remember(db, user, party, type="instruction")

    def find(**named: Any) -> list[tuple[str, list[str]]]:
        return table(db, "recall", user, "Which ships were in the harbour?", columns="content, matched_by", **named)

    assert find(tags=["keys"]) == find(category="house") == [(key, ["filter"])]
    assert find(types=["instruction"]) == [(party, ["filter"])] and find(tags=["nothing"]) == []
    assert key in [content for content, _ in find(project="home", limit=400)]  # which comes with what is global
    ranked = table(db, "recall", user, "spare key shed", columns="content, matched_by && '{words}'", tags=["keys"])
    assert ranked == [(key, True)]


def test_a_hit_leads_to_its_surroundings_and_whole(db: Db, user: str) -> None:
    for n in range(15):
        said = f"Stop {n} of the trip is a village called Place{n}. " + "It rains. " * 20
        persist(db, user, "trip", said, "Ok.")
    memory = remembered(db, user, "Liked Place7 best", session="trip", source_turns=[14])
    assert table(db, "list_memories", user, columns="session, scope", session="trip") == [("trip", "local")]
    hits = table(db, "memory_index", user, "Which village was Place7?", columns="kind, id, line, turn_index")
    assert all(len(line) <= 120 and "\n" not in line for _, _, line, _ in hits)
    (turn,) = [row for row in hits if row[0] == "turn" and row[3] == 14]
    assert turn[2].startswith("user: Stop 7 of the trip") and turn[2].endswith("…")
    beside = [("turn", 12), ("turn", 13), ("turn", 14), ("memory", 14), ("turn", 15)]
    assert read_timeline(db, user, turn[1], 2, 1, "kind, turn_index") == beside
    anchors = [(13, False), (14, False), (14, True), (15, False)]
    assert read_timeline(db, user, memory, 1, 1, "turn_index, is_anchor") == anchors
    whole, made = (row[0] for row in table(db, "memory_get", user, [str(turn[1]), memory]))
    assert (whole["kind"], whole["session"], whole["content"].count("It rains.")) == ("turn", "trip", 20)
    assert (made["kind"], made["content"]) == ("memory", "Liked Place7 best")
    assert [source["id"] for source in made["sources"]] == [str(turn[1])]
    assert [state["state"] for state in made["states"]] == ["active"]


def test_a_memory_of_no_session_has_neighbours_in_time(db: Db, user: str) -> None:
    ids = [remembered(db, user, f"Note number {number} is about topic {number * 7}") for number in range(6)]
    lines = read_timeline(db, user, ids[3], 2, 1, "id::text, is_anchor")
    assert lines == [(ids[1], False), (ids[2], False), (ids[3], True), (ids[4], False)]


def test_a_summary_has_its_turns_around_it(db: Db, user: str) -> None:
    for number in range(12):
        said = f"Ledger line {number}: " + "a cart of coal and a sack of rye. " * 30
        persist(db, user, "long", said, "Written down.")
    assert call(db, "compact_session", user, "long", 600)["rows"] > 0
    (hit, *_) = table(db, "memory_index", user, "ledger coal rye", kinds=["summary"], columns="id")
    beside = read_timeline(db, user, hit[0], 1, 1, "kind, is_anchor")
    assert len(beside) == 3 and ("turn", True) in beside
    whole = call(db, "memory_get", user, [hit[0]])
    assert whole["kind"] == "summary" and whole["content"] and whole["to_turn"] >= 0


def test_a_forgotten_span_is_not_shown_around_a_hit(db: Db, user: str) -> None:
    persist(db, user, "s", "My locker is 4711. The pool opens at nine.", "Good to know.", "And my towel is red.", "Ok.")
    said: dict[str, Any] = {"session": "s", "source_turns": [0], "actor": "person", "provenance": "user_stated"}
    memory = remembered(db, user, "My locker is 4711.", **said)
    turn = table(db, "recall", user, "pool opens", kinds=["turn"], columns="id")[0][0]
    call(db, "forget", user, memory)
    assert "4711" not in str(table(db, "memory_timeline", user, turn)) + str(table(db, "memory_get", user, [turn]))


def test_calls_without_a_text_are_named(db: Db, user: str) -> None:
    persist(db, user, "s", "What does part 88 cost?", *step(1, "look_up", {}, "Part 88 costs 12 crowns."))
    turn = table(db, "recall", user, "part 88 cost", kinds=["turn"], columns="id")[0][0]
    assert ("calls look_up",) in table(db, "memory_timeline", user, turn, columns="line")


def test_relations_are_followed_step_by_step(db: Db, user: str) -> None:
    roof, wall, floor, door = (remembered(db, user, f"Fact about the {w}") for w in ("roof", "wall", "floor", "door"))
    links = ((1, roof, "depends_on", wall), (2, floor, "elaborates", wall), (3, floor, "references", door))
    edges = [*links, (3, door, "relates_to", floor)]
    for _, source, relation, target in edges:
        call(db, "relate", user, source, relation, target)

    def graph(**named: Any) -> list[tuple[Any, ...]]:
        columns = "hop, source_id::text, relation, target_id::text"
        return table(db, "memory_graph", user, roof, columns=columns, **named)

    assert (graph(hops=1), graph(), graph(hops=5), graph(hops=5, limit=2)) == (edges[:1], edges[:2], edges, edges[:2])
    lines = table(db, "memory_graph", user, roof, columns="source_line, target_line")
    assert lines[0] == ("Fact about the roof", "Fact about the wall")


@pytest.fixture
def bound_login(db: Db, memoir_dsn: str, user: str) -> Iterator[tuple[Db, dict[str, str]]]:
    """A connection bound to project red and clearance normal, and the ids of two things it may not see, and one it may."""
    for project in ("red", "blue"):
        call(db, "open_session", user, project, project=project)
        persist(db, user, project, f"The {project} kite flies high", "Yes.")
    ids = {
        "red": remembered(db, user, "Red kites are fine", project="red"),
        "blue": remembered(db, user, "Blue kites are broken", project="blue"),
        "hidden": remembered(db, user, "The kite safe is behind the plum", project="red", sensitivity="private"),
    }
    for other in ("blue", "hidden"):
        call(db, "relate", user, ids["red"], "relates_to", ids[other])
    ids["blue turn"] = table(db, "recall", user, "blue kite flies", kinds=["turn"], columns="id::text")[0][0]
    with world_of(memoir_dsn, login={"role": "app", "projects": ["red"], "clearance": "normal"}) as world:
        yield world.connection("login"), ids


def test_projects_and_clearance_bound_every_look(db: Db, bound_login: tuple[Db, dict[str, str]], user: str) -> None:
    login, ids = bound_login
    fine = "Red kites are fine"
    assert list_contents(login, user, states=[]) == [fine]
    assert table(login, "list_sessions", user, columns="session, title") == [("red", "The red kite flies high")]
    call(db, "mark_turn", user, "red", 0, "private")
    assert table(login, "list_sessions", user, columns="title") == [(None,)]
    call(db, "mark_turn", user, "red", 0, "normal")
    lines = {line for (line,) in table(login, "memory_index", user, "kite", columns="line")}
    assert lines <= {fine, "user: The red kite flies high", "assistant: Yes."}
    (whole,) = [row[0] for row in table(login, "memory_get", user, list(ids.values()))]
    assert (whole["content"], whole["relations"], table(login, "memory_graph", user, ids["red"])) == (fine, [], [])
    assert table(login, "memory_timeline", user, ids["red"], columns="line") == [(fine,)]
    for other in ("blue", "hidden", "blue turn"):
        with pytest.raises(psycopg.Error, match=ids[other]):
            table(login, "memory_timeline", user, ids[other])
    with pytest.raises(psycopg.Error, match="blue"):
        table(login, "list_memories", user, session="blue")
