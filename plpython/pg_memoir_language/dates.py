"""Dates that depend on the day of speaking, made absolute. English."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache

from dateutil.relativedelta import relativedelta

from . import data
from .data import choices, entry_set
from .patterns import Pattern, compile_pattern

MONTH_NAMES = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
SEASON_MONTHS = {"spring": 3, "summer": 6, "winter": 12}
LONGEST = 600


@dataclass
class Span:
    """What a text says of a time instead, and the days that it means, `until` excluded. `said` None: "on" the day."""

    said: str | None = None
    start: date | None = None
    until: date | None = None


@dataclass(frozen=True)
class Resolved:
    """A sentence with absolute dates, the first time that it names, and the end that it gives ("until Friday")."""

    text: str
    event_from: date | None = None
    event_to: date | None = None
    valid_until: date | None = None


def day_in_words(day: date) -> str:
    return f"{day.day} {MONTH_NAMES[day.month - 1]} {day.year:04}"


def _month_in_words(day: date) -> str:
    return f"{MONTH_NAMES[day.month - 1]} {day.year:04}"


@cache
def _pattern() -> Pattern[str]:
    days, month = choices("english", "weekdays"), choices("english", "months")
    season = choices("english", "seasons")
    number = r"\d{1,3}|an?|" + (choices("english", "counted") or "")
    return compile_pattern(
        r"\m(the day (?:before yesterday|after tomorrow)|yesterday|today|tonight|tomorrow"
        r"|this (?:morning|afternoon|evening)|last night"
        rf"|(?:{number}) (?:days?|weeks?|fortnights?|months?|years?) (?:ago|from now)"
        r"|a (?:few|couple of|couple) (?:days|weeks|months|years) (?:ago|back)"
        rf"|in (?:{number}) (?:days?|weeks?|months?|years?)"
        rf"|(?:on )?(?:last|next|this|this past|this coming) (?:week(?:end)?|month|year|{days}|{month}|{season})"
        rf"|(?:on )?(?:{days}) week|a week on (?:{days})"
        # "On Sunday mornings" is every one.
        rf"|(?:on|until|till|by|since) (?:{days})(?! (?:mornings|afternoons|evenings|nights)\M)"
        rf"|(?:on |until |till |by |since )?(?:{month}) \d{{1,2}}(?:st|nd|rd|th)?(?!\d)(?:,? \d{{4}})?"
        rf"|(?:on |until |till |by |since )?(?:the )?\d{{1,2}}(?:st|nd|rd|th)?(?: of)? (?:{month})(?:,? \d{{4}})?"
        r"|since (?:19|20)\d\d)\M(?!'s)",
        True,
        longest=True,
    )


def _number(word: str) -> int | None:
    if word.isdigit() and len(word) <= 4:
        return int(word)
    if word in ("a", "an"):
        return 1
    numbers = data.entries("english", "counted")
    return numbers.index(word) + 1 if word in numbers else None


def _monday(day: date) -> date:
    return day - timedelta(days=day.weekday())


def _days_away(words: list[str], said_on: date) -> Span:
    """Resolve "three weeks ago", "in a month", "a few days back"."""
    if words[0] == "in":
        count, unit = _number(words[1]), words[2].rstrip("s")
    else:
        count, unit = _number(words[0]), words[1].rstrip("s")
        if count is not None and words[-1] != "now":
            count = -count
    if words[1] in ("few", "couple"):
        day = day_in_words(said_on) if "days" in words else _month_in_words(said_on)
        return Span(f"{' '.join(words[:-1])} before {day}")
    if count is None:
        return Span()
    if unit == "day":
        return Span(None, said_on + timedelta(days=count))
    if unit in ("week", "fortnight"):
        start = said_on + timedelta(days=(7 if unit == "week" else 14) * count)
        return Span(f"around {day_in_words(start)}", start)
    if unit == "month":
        start = (said_on + relativedelta(months=count)).replace(day=1)
        return Span(f"around {_month_in_words(start)}", start, start + relativedelta(months=1))
    if unit == "year":
        start = (said_on + relativedelta(years=count)).replace(month=1, day=1)
        return Span(f"around {start.year:04}", start, start + relativedelta(years=1))
    return Span()


def _month_of(words: list[str]) -> int | None:
    months = data.entries("english", "months")
    return next((months.index(word) + 1 for word in words if word in months), None)


def _weekday_of(word: str) -> int | None:
    starts = data.entries("english", "weekday_starts")
    return starts.index(word[:3]) + 1 if word[:3] in starts else None


def _resolve_span(words: list[str], said_on: date) -> Span:
    """Resolve "last week", "next May", "this past Friday"."""
    last, monday = words[-1], _monday(said_on)
    n = -1 if words[0] == "last" or words[1] == "past" else 1 if words[0] == "next" else 0
    month, weekday = _month_of(words), _weekday_of(last)
    if last == "week":
        start = monday + timedelta(days=7 * n)
        return Span(f"in the week of {day_in_words(start)}", start, start + timedelta(days=7))
    if last == "weekend":
        start = monday + timedelta(days=5 + 7 * n)
        return Span(f"on the weekend of {day_in_words(start)}", start, start + timedelta(days=2))
    if last == "month":
        start = said_on.replace(day=1) + relativedelta(months=n)
        return Span(f"in {_month_in_words(start)}", start, start + relativedelta(months=1))
    if last == "year":
        start = date(said_on.year + n, 1, 1)
        return Span(f"in {start.year:04}", start, start + relativedelta(years=1))
    if month is not None:
        start = date(said_on.year, month, 1)
        if n < 0 and start >= said_on.replace(day=1):
            start -= relativedelta(years=1)
        elif n > 0 and start <= said_on:
            start += relativedelta(years=1)
        return Span(f"in {_month_in_words(start)}", start, start + relativedelta(months=1))
    if last in entry_set("english", "seasons"):
        # Seasons differ between hemispheres: only the year is said.
        season = SEASON_MONTHS.get(last, 9)
        years = -1 if n < 0 and season + 2 >= said_on.month else 1 if n > 0 and season <= said_on.month else 0
        return Span(f"in {last} {said_on.year + years}")
    if weekday is not None:
        if n < 0:
            return Span(None, _before(said_on, weekday))
        if n > 0:
            return Span(None, monday + timedelta(days=6 + weekday))
        return Span(None, _after(said_on, weekday))
    return Span()


def _before(day: date, weekday: int) -> date:
    return day - timedelta(days=1 + (day.isoweekday() - 1 - weekday + 7) % 7)


def _after(day: date, weekday: int) -> date:
    return day + timedelta(days=(weekday - day.isoweekday() + 7) % 7)


def _calendar_day(words: list[str], month: int, said_on: date, is_past: bool) -> date | None:
    """Resolve "3 May", "May 3rd, 2021": without a year, behind what is told and ahead of what is planned."""
    number = compile_pattern(r"\m(\d{1,2})(?:st|nd|rd|th)?\M", longest=True).search(" ".join(words))
    day = int(number[1]) if number else 0
    year = int(words[-1]) if words[-1].isdigit() and len(words[-1]) == 4 else None
    try:
        found = date(year or said_on.year, month, day)
    except ValueError:
        return None
    if year is None and is_past and found > said_on + timedelta(days=31):
        found -= relativedelta(years=1)
    elif year is None and not is_past and found < said_on - timedelta(days=90):
        found += relativedelta(years=1)
    return found


def _resolve(hit: str, rest: str, said_on: date, is_past: bool) -> tuple[Span, str]:
    """Resolve one match of the pattern; `rest` is the sentence from there on. Returns its first word, too."""
    words = hit.lower().replace(",", "").split(" ")
    last, first = words[-1], words[0]
    # "by Friday", "until Friday": the preposition stays, and the day is the one ahead.
    until = first in ("until", "till", "by")
    if first in ("on", "since") or until:
        words = words[1:]
    if words[0] == "the":
        words = words[1:]
    weekday, month = _weekday_of(last), _month_of(words)
    # "Thursday week" and "a week on Thursday" are the Thursday after the next.
    week_on = _weekday_of(words[0]) if last == "week" else weekday if words[-3:-1] == ["week", "on"] else None
    if week_on is not None:
        return Span(None, _after(said_on, week_on) + timedelta(days=7)), first
    if words == ["day", "before", "yesterday"]:
        return Span(None, said_on - timedelta(days=2)), first
    if words == ["day", "after", "tomorrow"]:
        return Span(None, said_on + timedelta(days=2)), first
    if last in ("yesterday", "today", "tomorrow"):
        return Span(None, said_on + timedelta(days={"yesterday": -1, "today": 0, "tomorrow": 1}[last])), first
    if last in ("tonight", "night"):
        start = said_on - timedelta(days=int(last == "night"))
        part = "night" if last == "night" else "evening"
        return Span(f"on the {part} of {day_in_words(start)}", start), first
    if last in ("morning", "afternoon", "evening"):
        return Span(f"on the {last} of {day_in_words(said_on)}", said_on), first
    if first == "in" and is_past:
        return Span(), first  # "we built it in two weeks" is how long it took
    if last in ("ago", "back", "now") or first == "in":
        return _days_away(words, said_on), first
    if words[0] in ("last", "next", "this"):
        return _resolve_span(words, said_on), first
    if month is not None:
        if month == 5 and first == "may" and not compile_pattern(r"\mMay \d").search(rest):
            return Span(), first
        return Span(None, _calendar_day(words, month, said_on, is_past)), first
    if first == "since" and last.isdigit() and len(last) == 4:
        start = date(int(last), 1, 1)
        return Span(f"since {last}", start, start + relativedelta(years=1)), first
    if weekday is not None and first in ("on", "until", "till", "by", "since"):
        behind = first == "since" or (is_past and not until)
        return Span(None, _before(said_on, weekday) if behind else _after(said_on, weekday)), first
    return Span(), first


def resolve_dates(sentence: str, said_on: date, is_past: bool) -> Resolved:
    """Make relative dates of a sentence absolute.

    A bare weekday lies behind what is told and ahead of what is planned.
    """
    resolved, rest = "", sentence
    event_from = event_to = valid_until = None
    while len(sentence) <= LONGEST and (match := _pattern().search(rest)):
        hit, after = match[0], rest[match.end() :]
        span, first = Span(), ""
        # "The last week of August" is none of the days around.
        of_another = compile_pattern("^(?:the )?(?:last|next) ", True).search(hit) and after.lower().startswith(" of ")
        if not of_another:
            try:
                span, first = _resolve(hit, rest[match.start() :], said_on, is_past)
            except (OverflowError, ValueError):
                span = Span()  # beyond the calendar
        if span.start is not None:
            until = span.until or span.start + timedelta(days=1)
            if span.said is None:
                before = first if first in ("until", "till", "by", "since") else "on"
                span.said = f"{before} {day_in_words(span.start)}"
            if first in ("until", "till"):
                valid_until = valid_until or until
            elif event_from is None and first != "by":
                event_from, event_to = span.start, until
        resolved += rest[: match.start()]
        said = span.said
        # "the day before on 3 May" and "on 3 May was" are no English.
        ends = r"\m(for|from|before|after|of|to|than|by|around|about|between|through|until|till|since|during|like) $"
        if said is not None and (
            compile_pattern(ends, True).search(resolved)
            or (not resolved.strip() and compile_pattern("^ (was|is|were|has been|had) ", True).search(after))
        ):
            said = compile_pattern("^(on|in|around) ").sub("", said, count=1)
        resolved += said if said is not None else hit
        rest = after
    return Resolved(resolved + rest, event_from, event_to, valid_until)
