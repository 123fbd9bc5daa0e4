"""Filters on metadata, and timelines by query and by a window of time."""

from collections.abc import Callable
from typing import Any

import pytest
from calls import Db, call, persist, raises, remember, remembered, store, table

PAGES = {
    "The oven guide is on page one.": {"source": "jira", "year": 2023, "tags": ["a"]},
    "The oven guide is on page two.": {"source": "wiki", "year": 2025},
    "The oven guide is on page three.": {"source": "wiki", "year": "2025", "draft": True},
    "The oven guide is on page four.": {},
}


def test_metadata_filters_memories(db: Db, user: str) -> None:
    for content, metadata in PAGES.items():
        remember(db, user, content, metadata=metadata)
    for where, pages in (
        ({"source": "wiki"}, "two three"),
        ({"source": {"eq": "jira"}}, "one"),
        ({"source": {"in": ["jira", "mail"]}}, "one"),
        ({"source": {"in": []}}, ""),
        ({"year": {"gt": 2023}}, "two"),
        ({"year": {"gt": 2022, "lt": 2024}}, "one"),
        ({"year": {"lt": "2026"}}, "three"),
        ({"draft": {"exists": True}}, "three"),
        ({"source": {"exists": False}}, "four"),
        ({"source": "wiki", "draft": True}, "three"),
        ({"tags": ["a"]}, "one"),
        ({"nothing": 1}, ""),
        ({}, "one two three four"),
        (None, "one two three four"),
    ):
        wanted = {f"The oven guide is on page {page}." for page in pages.split()}
        for function, *given in (("recall", "oven guide"), ("list_memories",)):
            found = table(db, function, user, *given, where=where, columns="content")
            assert {row[0] for row in found} == wanted, (function, where)
        lines = table(db, "memory_index", user, "oven guide", where=where, columns="line")
        assert {row[0] for row in lines} == wanted, where
        # What a filter names comes whatever the query, unless it names nothing.
        found = table(db, "recall", user, "qqqq", where=where, columns="content")
        assert {row[0] for row in found} == (wanted if where is not None else set()), where


def test_metadata_filters_turns(db: Db, user: str) -> None:
    for page, source in (("one", "jira"), ("two", "wiki")):
        guide = {"role": "user", "content": f"The oven guide is on page {page}."}
        store(db, user, page, [guide], metadata={"source": source})
    found = table(db, "recall", user, "oven guide", where={"source": "wiki"}, columns="content")
    assert found == [("The oven guide is on page two.",)]
    by_jira = {"query": "oven guide", "where": {"source": "jira"}}
    by_tool = call(db, "call_memory_tool", user, "one", "memory_index", by_jira)
    assert "page one" in by_tool and "page two" not in by_tool


@pytest.fixture
def days(db: Db, user: str, clock: Callable[[str], None]) -> str:
    for day in range(1, 31):
        said = [{"role": "user", "content": f"Log of day {day}.", "created_at": f"2026-06-{day:02}T12:00:00Z"}]
        store(db, user, f"s{day}", said)
    clock("2026-07-01 12:00:00+00")
    return user


def test_timeline_by_query_within_a_window(db: Db, days: str) -> None:
    for window, days_shown in (("1h", [14]), ("24h", [13, 14, 15]), ("7d", list(range(7, 22)))):
        asked: dict[str, Any] = {"query": "day 14", "window": window}
        shown = table(db, "memory_timeline", days, **asked, columns="line, is_anchor")
        assert shown == [(f"Log of day {day}.", day == 14) for day in days_shown]
        less = table(db, "memory_timeline", days, **asked, lines_before=0, lines_after=1, columns="line")
        assert less == [(f"Log of day {day}.",) for day in days_shown if day in (14, 15)]
    for given in ({}, {"query": "x", "window": "2h"}):
        with raises("PM014"):
            table(db, "memory_timeline", days, **given)
    assert table(db, "memory_timeline", days, query="zzzz") == []
    persist(db, days, "late", "I hide the key in the shed. I like tea.")
    call(db, "forget_about", days, "the key in the shed")
    shown = str(table(db, "memory_timeline", days, query="tea", window="1h", columns="line"))
    assert "tea" in shown and "shed" not in shown


def test_timeline_by_id_within_a_window(db: Db, days: str) -> None:
    memory = remembered(db, days, "The log was lost.", created_at="2026-06-20T13:00:00Z")
    remember(db, days, "The log is of another project.", created_at="2026-06-20T13:00:00Z", project="other")
    shown = table(db, "memory_timeline", days, memory, window="24h", columns="kind, line, is_anchor")
    logs = [("turn", f"Log of day {day}.", False) for day in (20, 21)]
    assert shown == [logs[0], ("memory", "The log was lost.", True), logs[1]]
    by_tool = call(db, "call_memory_tool", days, "s20", "memory_timeline", {"query": "day 20", "window": "1h"})
    assert "> " in by_tool and "day 20" in by_tool and "lost" in by_tool and "day 21" not in by_tool
