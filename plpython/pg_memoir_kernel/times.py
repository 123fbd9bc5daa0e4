"""The times that a question names, as ranges of microseconds since 2000, by days of a time zone."""

from __future__ import annotations

import calendar
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
Range = tuple[int, int]
_FIRST = (datetime(1, 1, 2, tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
_LAST = (datetime(9999, 12, 30, tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)


def to_microseconds(at: datetime) -> int:
    """Return a time as microseconds since 2000."""
    return (at - EPOCH) // timedelta(microseconds=1)


def to_datetime(microseconds: int) -> datetime:
    """Return the time of microseconds since 2000, or the first or last one that Python knows."""
    return EPOCH + timedelta(microseconds=max(_FIRST, min(_LAST, microseconds)))


def read_time(written: str) -> datetime:
    """Return a time as PostgreSQL writes it in JSON; one beyond Python's years is the first or last that it knows."""
    if written.endswith(" BC") or written == "-infinity":
        return to_datetime(_FIRST)
    if written == "infinity" or written.index("-") > len("9999"):
        return to_datetime(_LAST)
    return to_datetime(to_microseconds(datetime.fromisoformat(written)))


@lru_cache(maxsize=64)
def read_zone(name: str | None) -> tzinfo:
    """Return the zone of an IANA name or an offset such as +09:00; UTC for none, and for one that is not known here."""
    try:
        if name and name[0] in "+-":
            return datetime.strptime(name, "%z").tzinfo or UTC
        return ZoneInfo(name) if name else UTC
    except (ValueError, KeyError, OSError):
        return UTC


@lru_cache(maxsize=2048)  # turns of a store come again in most compiles
def day_name(microseconds: int, zone: tzinfo = UTC) -> str:
    """Return a time's day as lines show it: 3 Mar 2026."""
    at = to_datetime(microseconds).astimezone(zone)
    return f"{at.day} {calendar.month_abbr[at.month]} {at.year}"


def find_ranges(
    times: Mapping[str, Any] | None, oldest: int, newest: int, now: datetime, zone: tzinfo = UTC, is_exact: bool = False
) -> list[Range]:
    """Return the ranges that times mean (Times in pg_memoir_language/questions.py) among items from `oldest` to
    `newest`.

    A month without year is that of every year of the items. A day reaches ten days on, unless `is_exact`: people tell
    later what they did. Years only count where nothing closer is named.
    """
    if not times:
        return []
    spans: list[tuple[datetime, datetime]] = []
    for year, month, day in times["dates"]:
        first, last = (year, year) if year else (to_datetime(oldest).year, to_datetime(newest).year)
        for one in range(max(1, first), min(9998, last) + 1):
            if not 1 <= month <= 12 or not 1 <= (day or 1) <= 31:
                continue
            start = datetime(one, month, 1, tzinfo=zone)
            if day is None:
                spans.append((start, _months_on(start, 1)))
            elif is_exact:
                spans.append((start + (day - 1) * DAY, start + day * DAY))
            else:
                spans.append((start + (day - 2) * DAY, start + (day + 10) * DAY))
    # Steps from there stay within what Python knows.
    now = max(datetime(1900, 1, 1, tzinfo=UTC), min(datetime(9000, 1, 1, tzinfo=UTC), now))
    today = now.astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0)
    spans += [(today - n * DAY, today - (n - 1) * DAY) for n in times["days"]]
    for weeks, weekday in times.get("weekdays", ()):
        # The last one before today, or the next one and so many weeks on.
        away = -((today.weekday() - weekday - 1) % 7 + 1) if weeks < 0 else (weekday - today.weekday()) % 7 + 7 * weeks
        spans.append((today + away * DAY, today + (away + 1) * DAY))
    spans += [(_ago(today, count, unit), today + DAY) for count, unit in times.get("within", ())]
    for which, unit in times["periods"]:
        start = _start_of(unit, today)
        if unit == "weekend":
            start -= 7 * DAY if which == "last" else 0 * DAY
            spans.append((start, start + 2 * DAY))
        else:
            spans.append((_on(start, unit, -1), start) if which == "last" else (start, _on(start, unit, 1)))
    for count, unit in times["ago"]:
        if is_exact and unit == "day":
            spans.append((today - count * DAY, today - (count - 1) * DAY))
        else:
            spans.append((_ago(today, count * 1.25, unit) - DAY, _ago(today, count * 0.75, unit) + DAY))
    if not spans:
        spans = [
            (datetime(y, 1, 1, tzinfo=zone), datetime(y + 1, 1, 1, tzinfo=zone))
            for y in times["years"]
            if 1 <= y <= 9998
        ]
    return [(to_microseconds(start), to_microseconds(end)) for start, end in spans]


def _months_on(at: datetime, months: int) -> datetime:
    month = at.year * 12 + at.month - 1 + months
    year, month = divmod(month, 12)
    return at.replace(year=year, month=month + 1, day=min(at.day, calendar.monthrange(year, month + 1)[1]))


def _start_of(unit: str, today: datetime) -> datetime:
    if unit in ("week", "weekend"):
        return today + ((5 if unit == "weekend" else 0) - today.weekday()) * DAY
    return today.replace(day=1) if unit == "month" else today.replace(month=1, day=1)


def _on(at: datetime, unit: str, count: int) -> datetime:
    if unit == "week":
        return at + 7 * count * DAY
    return _months_on(at, count * (1 if unit == "month" else 12))


def _ago(today: datetime, count: float, unit: str) -> datetime:
    if unit in ("day", "week"):
        return today - timedelta(days=count * (7 if unit == "week" else 1))
    months = count * (12 if unit == "year" else 1)
    # A part of a month counts as so much of thirty days.
    return _months_on(today, -int(months)) - timedelta(days=(months - int(months)) * 30)


def is_within(created: Sequence[int], ranges: Sequence[Range]) -> list[bool]:
    """Return whether each time lies in one of the ranges."""
    return [any(start <= at < end for start, end in ranges) for at in created]
