"""Looking at what is known: lists, the way from a short hit to the whole row, what a memory is tied to; who may look."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from calls import call, persist, remember, remembered, set_clock, store, table
from servers import connect, roles, user_of

NOBODY = "00000000-0000-0000-0000-000000000001"


def listed(db: psycopg.Connection, user: str, **named: Any) -> list[str]:
    return [content for (content,) in table(db, "list_memories", user, columns="content", **named)]


def test_memories_are_listed_page_by_page_newest_first(db: psycopg.Connection, user: str) -> None:
    for number in range(7):
        remember(db, user, f"Keeps bee hive number {number}", tags=["bees", f"n{number}"], category="hobby")
    remember(db, user, "Prefers short answers", type="preference")
    pages, last = [], None
    while page := table(db, "list_memories", user, columns="memory_id, content", limit=3, after_memory=last):
        pages.append([content for _, content in page])
        last = page[-1][0]
    assert [len(page) for page in pages] == [3, 3, 2]
    assert pages[0][0] == "Prefers short answers" and pages[2][-1] == "Keeps bee hive number 0"
    assert len({content for page in pages for content in page}) == 8
    assert listed(db, user, tags=["n4", "n5"]) == ["Keeps bee hive number 5", "Keeps bee hive number 4"]
    assert listed(db, user, types=["preference"]) == ["Prefers short answers"]
    assert len(listed(db, user, category="hobby")) == 7 and listed(db, user, project="elsewhere") == []


def test_states_are_asked_for_and_a_forgotten_text_is_not_shown(db: psycopg.Connection, user: str) -> None:
    old = remembered(db, user, "The home town is Ulm", slot="home", slot_value="Ulm")
    remember(db, user, "The home town is Bonn", slot="home", slot_value="Bonn")
    gone = remembered(db, user, "Owns a parrot")
    call(db, "forget", user, gone)
    assert listed(db, user) == ["The home town is Bonn"]
    rows = table(db, "list_memories", user, states=[], columns="memory_id::text, content, state, superseded_by::text")
    assert {row[:3] for row in rows} >= {(old, "The home town is Ulm", "superseded"), (gone, None, "forgotten")}
    assert all("parrot" not in str(item) for item in table(db, "memory_get", user, [gone]))


def test_a_memory_says_where_it_was_said(db: psycopg.Connection, user: str) -> None:
    persist(db, user, "tea", "I drink tea only", "Noted.")
    remember(db, user, "Drinks tea only", session="tea", source_turns=[0])
    assert table(db, "list_memories", user, columns="session, scope, state, type") == [
        ("tea", "local", "active", "fact")
    ]
    assert listed(db, user, session="tea") == ["Drinks tea only"]


def test_sessions_are_listed_page_by_page_newest_first(db: psycopg.Connection, user: str) -> None:
    try:
        for day in range(1, 6):
            set_clock(db, f"2026-03-0{day}T10:00:00Z")
            call(db, "open_session", user, f"day {day}", project="odd" if day % 2 else "even")
            persist(db, user, f"day {day}", "Morning!", "Good morning.")
    finally:
        set_clock(db, None)
    call(db, "close_session", user, "day 2")
    first = table(db, "list_sessions", user, columns="session, turns, tokens > 0, status", limit=3)
    assert first == [(f"day {n}", 2, True, "active") for n in (5, 4, 3)]
    assert table(db, "list_sessions", user, columns="session", limit=3, after_session="day 3") == [
        ("day 2",),
        ("day 1",),
    ]
    assert table(db, "list_sessions", user, columns="session", project="even") == [("day 4",), ("day 2",)]
    closed = table(db, "list_sessions", user, columns="session, closed_at is not null", status="closed")
    assert closed == [("day 2", True)]


def test_what_the_filters_name_is_found_whatever_its_rank(db: psycopg.Connection, user: str) -> None:
    for number in range(200):
        remember(db, user, f"The harbour log of day {number} names {number + 3} ships")
    remember(db, user, "The spare key hangs behind the shed", tags=["keys"], category="house", project="home")
    remember(db, user, "Never mention the surprise party", type="instruction")
    query = "Which ships were in the harbour?"
    for named in (
        {"tags": ["keys"]},
        {"category": "house"},
        {"types": ["instruction"]},
        {"project": "home", "limit": 400},
    ):
        found = table(db, "recall", user, query, columns="content, matched_by", **named)
        wanted = "Never mention the surprise party" if "types" in named else "The spare key hangs behind the shed"
        assert wanted in [content for content, _ in found], named
        if "project" not in named:  # which comes with what is global
            assert found == [(wanted, ["filter"])], named
    assert table(db, "recall", user, query, tags=["nothing"]) == []
    ranked = table(db, "recall", user, "spare key shed", columns="content, matched_by && '{words}'", tags=["keys"])
    assert ranked == [("The spare key hangs behind the shed", True)]


def test_from_a_hit_to_what_stands_around_it_to_the_whole(db: psycopg.Connection, user: str) -> None:
    for number in range(15):
        persist(
            db,
            user,
            "trip",
            f"Stop {number} of the trip is a village called Place{number}. " + "It rains. " * 20,
            "Ok.",
        )
    remember(db, user, "Liked Place7 best", session="trip", source_turns=[14])
    hits = table(db, "memory_index", user, "Which village was Place7?", columns="kind, id, line, turn_index")
    assert all(len(line) <= 120 and "\n" not in line for _, _, line, _ in hits)
    (turn,) = [row for row in hits if row[0] == "turn" and row[3] == 14]
    assert turn[2].startswith("user: Stop 7 of the trip") and turn[2].endswith("…")
    around = table(
        db, "memory_timeline", user, turn[1], lines_before=2, lines_after=1, columns="kind, turn_index, line, is_anchor"
    )
    assert [(row[0], row[1], row[3]) for row in around] == [
        ("turn", 12, False), ("turn", 13, False), ("turn", 14, True), ("memory", 14, False), ("turn", 15, False)
    ]  # fmt: skip
    memory = next(row[0] for row in table(db, "list_memories", user, columns="memory_id"))
    whole, made = (row[0] for row in table(db, "memory_get", user, [turn[1], memory]))
    assert whole["kind"] == "turn" and whole["content"].count("It rains.") == 20 and whole["session"] == "trip"
    assert made["kind"] == "memory" and made["content"] == "Liked Place7 best"
    assert [source["id"] for source in made["sources"]] == [str(turn[1])]
    assert [state["state"] for state in made["states"]] == ["active"]
    beside = table(db, "memory_timeline", user, memory, lines_before=1, lines_after=1, columns="turn_index, is_anchor")
    assert beside == [(13, False), (14, False), (14, True), (15, False)]


def test_a_memory_of_no_session_stands_among_those_of_its_time(db: psycopg.Connection, user: str) -> None:
    ids = [remembered(db, user, f"Note number {number} is about topic {number * 7}") for number in range(6)]
    lines = table(db, "memory_timeline", user, ids[3], lines_before=2, lines_after=1, columns="id::text, is_anchor")
    assert lines == [(ids[1], False), (ids[2], False), (ids[3], True), (ids[4], False)]


def test_a_summary_has_its_turns_around_it(db: psycopg.Connection, user: str) -> None:
    for number in range(12):
        persist(
            db, user, "long", f"Ledger line {number}: " + "a cart of coal and a sack of rye. " * 30, "Written down."
        )
    assert call(db, "compact_session", user, "long", 600)["rows"] > 0
    hits = table(db, "memory_index", user, "ledger coal rye", kinds=["summary"], columns="id, line")
    assert hits
    around = table(db, "memory_timeline", user, hits[0][0], lines_before=1, lines_after=1, columns="kind, is_anchor")
    assert len(around) == 3 and ("turn", True) in around
    ((whole,),) = table(db, "memory_get", user, [hits[0][0]])
    assert whole["kind"] == "summary" and whole["content"] and whole["to_turn"] >= 0


def test_what_is_forgotten_in_a_turn_is_not_shown_around_a_hit(db: psycopg.Connection, user: str) -> None:
    persist(db, user, "s", "My locker is 4711. The pool opens at nine.", "Good to know.", "And my towel is red.", "Ok.")
    memory = remembered(
        db, user, "My locker is 4711.", session="s", source_turns=[0], actor="person", provenance="user_stated"
    )
    turn = table(db, "recall", user, "pool opens", kinds=["turn"], columns="id")[0][0]
    call(db, "forget", user, memory)
    shown = str(table(db, "memory_timeline", user, turn)) + str(table(db, "memory_get", user, [turn]))
    assert "4711" not in shown


def test_calls_without_a_text_are_named(db: psycopg.Connection, user: str) -> None:
    tool = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
    store(db, user, "s", [
        {"role": "user", "content": "What does part 88 cost?"}, {"role": "assistant", "content": None, "tool_calls": [tool]},
        {"role": "tool", "tool_call_id": "c1", "content": "Part 88 costs 12 crowns."}, {"role": "assistant", "content": "12."},
    ])  # fmt: skip
    turn = table(db, "recall", user, "part 88 cost", kinds=["turn"], columns="id")[0][0]
    assert "calls look_up" in [line for (line,) in table(db, "memory_timeline", user, turn, columns="line")]


def test_relations_are_followed_step_by_step(db: psycopg.Connection, user: str) -> None:
    one, two, three, four = (
        remembered(db, user, f"Fact about the {what}") for what in ("roof", "wall", "floor", "door")
    )
    call(db, "relate", user, one, "depends_on", two)
    call(db, "relate", user, three, "elaborates", two)
    call(db, "relate", user, three, "references", four)
    call(db, "relate", user, four, "relates_to", three)
    columns = "hop, source_id::text, relation, target_id::text"
    near = [(1, one, "depends_on", two)]
    second = [(2, three, "elaborates", two)]
    third = [(3, three, "references", four), (3, four, "relates_to", three)]
    assert table(db, "memory_graph", user, one, hops=1, columns=columns) == near
    assert table(db, "memory_graph", user, one, columns=columns) == near + second
    assert table(db, "memory_graph", user, one, hops=5, columns=columns) == near + second + third
    assert table(db, "memory_graph", user, one, hops=5, limit=2, columns=columns) == near + second
    assert table(db, "memory_graph", user, one, columns="source_line, target_line")[0] == (
        "Fact about the roof",
        "Fact about the wall",
    )


@pytest.mark.parametrize(
    ("function", "named", "code", "says"),
    [
        ("list_memories", {"limit": 0}, "PM014", "limit must be from 1 to 1000, not 0"),
        ("list_memories", {"states": ["asleep"]}, "PM014", 'not "asleep"'),
        ("list_memories", {"after_memory": NOBODY}, "PM004", NOBODY),
        ("list_sessions", {"status": "asleep"}, "PM014", 'not "asleep"'),
        ("list_sessions", {"after_session": "nowhere"}, "PM003", "nowhere"),
        ("memory_timeline", {"id": NOBODY}, "PM004", NOBODY),
        ("memory_timeline", {"id": NOBODY, "lines_before": 101}, "PM014", "not 101 and 10"),
        ("memory_get", {"ids": []}, "PM014", "ids must be 1 to 100 ids"),
        ("memory_graph", {"memory": NOBODY, "hops": 6}, "PM014", "hops must be from 1 to 5, not 6"),
        ("memory_graph", {"memory": NOBODY}, "PM004", NOBODY),
        ("memory_index", {"query": " "}, "PM014", "query must not be empty"),
    ],
)
def test_wrong_arguments_are_named(
    db: psycopg.Connection, user: str, function: str, named: dict[str, Any], code: str, says: str
) -> None:
    remember(db, user, "A fact")
    with pytest.raises(psycopg.Error, match=says) as caught:
        table(db, function, user, **named)
    assert caught.value.sqlstate == code


def test_an_unknown_id_gives_no_row(db: psycopg.Connection, user: str) -> None:
    remember(db, user, "A fact")
    assert table(db, "memory_get", user, [NOBODY]) == []


@pytest.fixture
def watched(db: psycopg.Connection, memoir_dsn: str, server_dsn: str, user: str) -> Any:
    """A connection bound to project red and clearance normal, the ids of what it may not see, and of what it may."""
    call(db, "open_session", user, "red", project="red")
    call(db, "open_session", user, "blue", project="blue")
    persist(db, user, "red", "The red kite flies high", "Yes.")
    persist(db, user, "blue", "The blue kite fell down", "Oh.")
    ids = {
        "red": remembered(db, user, "Red kites are fine", project="red"),
        "blue": remembered(db, user, "Blue kites are broken", project="blue"),
        "hidden": remembered(db, user, "The kite safe is behind the plum", project="red", sensitivity="private"),
    }
    call(db, "relate", user, ids["red"], "relates_to", ids["blue"])
    call(db, "relate", user, ids["red"], "relates_to", ids["hidden"])
    turn = "select i.ref_id::text from _memoir.search_items i join _memoir.users u using (user_id) where u.external_id = %s and i.kind = 't' and i.project = 'blue' limit 1"
    ids["blue turn"] = db.execute(turn, [user]).fetchone()[0]
    with roles(server_dsn, login="login in role memoir_app") as names:
        db.execute("select memoir.bind_login(%s, p_projects => '{red}', p_clearance => 'normal')", [names["login"]])
        with connect(user_of(memoir_dsn, names["login"])) as connection:
            yield connection, ids
        db.execute("select memoir.unbind_login(%s)", [names["login"]])


def test_projects_and_clearance_bound_every_look(watched: tuple[psycopg.Connection, dict[str, str]], user: str) -> None:
    login, ids = watched
    assert listed(login, user, states=[]) == ["Red kites are fine"]
    assert table(login, "list_sessions", user, columns="session") == [("red",)]
    assert {line for (line,) in table(login, "memory_index", user, "kite", columns="line")} <= {
        "Red kites are fine", "user: The red kite flies high", "assistant: Yes."
    }  # fmt: skip
    assert [row[0]["content"] for row in table(login, "memory_get", user, list(ids.values()))] == ["Red kites are fine"]
    assert table(login, "memory_get", user, [ids["red"]])[0][0]["relations"] == []
    assert table(login, "memory_graph", user, ids["red"]) == []
    for other in ("blue", "hidden", "blue turn"):
        with pytest.raises(psycopg.Error, match=ids[other]):
            table(login, "memory_timeline", user, ids[other])
    assert table(login, "memory_timeline", user, ids["red"], columns="line") == [("Red kites are fine",)]
    with pytest.raises(psycopg.Error, match="blue"):
        table(login, "list_memories", user, session="blue")
