"""Questions about a time: what was said then is shown, by the days of the user's time zone."""

from collections.abc import Callable
from typing import Any

import pytest
from calls import Db, call, raises, store, table

NOW = "2026-06-17 15:30:00+00"  # a Wednesday
MATTERS = "roof tyre choir dentist garden piano cheese ferry tent oven kite lamp atlas drill".split()


def say(db: Db, user: str, at: str, *said: str) -> None:
    sent = [{"role": ("user", "assistant")[n % 2], "content": text, "created_at": at} for n, text in enumerate(said)]
    store(db, user, at, sent)


def block(db: Db, user: str, asked: str) -> str:
    return str(call(db, "context", user, "asking", asked)["messages"][-1]["content"])


@pytest.fixture
def weeks(db: Db, user: str, clock: Callable[[str], None]) -> str:
    """A user who spoke of one matter each day of June, and asks on the 17th."""
    clock(NOW)
    for day, matter in enumerate(MATTERS, 1):
        said = (f"The {matter} took me all morning.", f"Good that the {matter} is done.")
        say(db, user, f"2026-06-{day:02}T09:00:00+00:00", *said)
    return user


def matters(text: str) -> list[str]:
    return [matter for matter in MATTERS if f"The {matter} took" in text]


def test_all_of_a_time_is_shown(db: Db, weeks: str) -> None:
    for asked, first, last in (
        ("What happened last week?", 8, 14),
        ("What did we talk about a week ago?", 7, 12),
        ("What did I do last weekend?", 13, 14),
        ("what did I do on Friday", 12, 12),
        ("What happened on 3 June?", 3, 3),
    ):
        shown = block(db, weeks, asked)
        assert matters(shown) == MATTERS[first - 1 : last], asked
        assert all(f"Good that the {matter}" in shown for matter in MATTERS[first - 1 : last])
        assert "Weak matches" not in shown, asked
    assert matters(block(db, weeks, "What did I say about the piano last week?")) == ["piano"], "asked by the matter"
    made = call(db, "context", weeks, "asking", "What happened last week?", memory_budget=120)
    assert 60 < made["recall_tokens"] <= 120 and 0 < len(matters(str(made["messages"]))) < 7


def test_days_are_those_of_the_time_zone(db: Db, user: str, clock: Callable[[str], None]) -> None:
    clock(NOW)
    say(db, user, "2026-06-15T20:00:00+00:00", "The roof leaks.")  # the 16th in Tokyo
    say(db, user, "2026-06-16T20:00:00+00:00", "The tyre is flat.")  # the 17th in Tokyo, where the 18th has begun
    assert "tyre" in (shown := block(db, user, "What happened yesterday?")) and "roof" not in shown
    assert "16 Jun 2026" in shown
    call(db, "set_user_settings", user, {"time_zone": "Asia/Tokyo"})
    assert "tyre" in (shown := block(db, user, "What happened yesterday?")) and "17 Jun 2026" in shown
    assert "roof" in (shown := block(db, user, "What happened the day before yesterday?")) and "tyre" not in shown


def test_offset_of_the_newest_message_counts(db: Db, user: str, clock: Callable[[str], None]) -> None:
    clock(NOW)
    say(db, user, "2026-06-15T10:00:00-10:00", "The roof leaks.")
    say(db, user, "2026-06-16T23:00:00-10:00", "The tyre is flat.")  # the 17th in UTC
    assert "tyre" in (shown := block(db, user, "What happened yesterday?")) and "roof" not in shown
    call(db, "set_user_settings", user, {"time_zone": "UTC"})
    assert "tyre" not in block(db, user, "What happened yesterday?")


def test_memories_have_the_days_of_the_time_zone(db: Db, user: str) -> None:
    call(db, "set_user_settings", user, {"time_zone": "Asia/Tokyo"})
    say(db, user, "2026-06-16T20:00:00+00:00", "I quit smoking yesterday.")
    say(db, user, "2026-06-16T21:00:00+02:00", "I sold the piano yesterday.")
    call(db, "extract_session", user, "2026-06-16T20:00:00+00:00")
    call(db, "extract_session", user, "2026-06-16T21:00:00+02:00")
    found = str(table(db, "list_memories", user, columns="content"))
    assert "smoking on 16 June 2026" in found and "piano on 15 June 2026" in found


@pytest.mark.parametrize("zone", ["Mars/Base", "CEST", "+02:00", "../etc/passwd", 2])
def test_time_zone_has_a_name(db: Db, user: str, zone: Any) -> None:
    with raises("PM015"):
        call(db, "set_user_settings", user, {"time_zone": zone})
