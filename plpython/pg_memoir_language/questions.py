"""Read a question: is it small talk, how broad is it, is it about the asker's own, what times does it name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from regex import Match

from . import data
from .languages import WITH_RULES, spoken_language, text_language, written_language
from .patterns import compile_pattern
from .secrets import redact

LANGUAGES = ("english", "german", "spanish", "french", "portuguese", "italian")
SHORT_BREADTH, SHORT_SEVERAL = 400, 200
SHORTEST_REMARK, LONGEST_REMARK = 4, 600  # words, characters
SHORTEST_TOLD = 8  # words before a question


@dataclass(frozen=True)
class Times:
    """The times that a question names, for the caller to place.

    `dates`: (year, month, day), year and day None where they are not named; `years`: years alone, which count where
    nothing closer is named; `ago`: (count, unit); `periods`: ("last" or "this", unit); `days`: days before today;
    `weekdays`: (weeks, weekday from Monday as 0), -1 for the one before today, 1 for "Friday week"; `within`: (count,
    unit) up to now.
    """

    dates: list[tuple[int | None, int, int | None]] = field(default_factory=list)
    years: list[int] = field(default_factory=list)
    ago: list[tuple[int, str]] = field(default_factory=list)
    periods: list[tuple[str, str]] = field(default_factory=list)
    days: list[int] = field(default_factory=list)
    weekdays: list[tuple[int, int]] = field(default_factory=list)
    within: list[tuple[int, str]] = field(default_factory=list)


@dataclass(frozen=True)
class QuestionFacts:
    """What a question says of what it is after.

    `redacted`: its text without secrets; `asks`: it is a question, marked or not; `remark`: it tells something of the
    speaker and asks for nothing; `shape`: "order", "summary", "several" for answers that lie in many places;
    `of_speaker`: it asks for what the speaker said; `own`: it is after something of the asker's own; `back`: it goes on
    with what was begun together; `only_time`: it names a time and nothing else, as in "what happened last week?";
    `language`: what it is written in, "simple" where it says too little.
    """

    redacted: str
    asks: bool
    small_talk: bool
    remark: bool
    shape: str | None
    of_speaker: bool
    own: bool
    back: bool
    times: Times
    only_time: bool
    language: str


def read_question(text: str) -> dict[str, Any]:
    """Return the QuestionFacts of a text as a dict."""
    shape, of_speaker = _breadth(text)
    times, rest = find_times(text)
    return asdict(
        QuestionFacts(
            redact(text), asks(text), is_phatic(text), is_remark(text), shape, of_speaker, asks_of_own(text),
            refers_back(text), times, rest is not None and _says_nothing(rest), written_language(text),
        )
    )  # fmt: skip


def is_question(text: str) -> bool:
    """Return whether a text ends with a question mark."""
    return text.rstrip().endswith(("?", "？", "؟"))


def asks(text: str) -> bool:
    """Return whether an English text is a question, by its mark or its first words: "whats my locker code"."""
    openings = data.choices("english", "opens_question")
    begun = compile_pattern(rf"^((and|so|but|hey|hi|ok|okay|well),? )*({openings})\M")
    return is_question(text) or begun.search(text[:200].lower().replace("’", "'")) is not None


def is_phatic(text: str) -> bool:
    """Return whether a text is greetings, thanks, assent and leave-taking alone. English."""
    if len(text) > 120:
        return False
    plain = compile_pattern("[^[:alnum:]?]+").sub(" ", text.lower().replace("'", "").replace("’", ""))
    asked = data.choices("english", "small_talk_questions")
    questions = compile_pattern(rf" (so |and )?({asked})( doing)?( today| this morning| lately)? ?\?? ", longest=True)
    plain = questions.sub(" ", f" {plain.strip()} ")
    return "?" not in plain and set(plain.split()) <= data.entry_set("english", "small_talk")


def is_remark(text: str) -> bool:
    """Return whether a message tells something of the speaker and asks for nothing, or for an opinion on it at most: "I
    ended up saying yes again.", "I bought curtains instead of a phone. Who am I?". English."""
    told = _telling_part(text) if len(text) <= LONGEST_REMARK else None
    if told is None:
        return False
    language = spoken_language(text)
    plain = told.lower().replace("’", "'")
    words = len(compile_pattern(r"[[:alpha:]']+").findall(plain))
    if words < (SHORTEST_REMARK if told == text else SHORTEST_TOLD):
        return False
    matters, asked = data.choices(language, "own_matters"), data.choices(language, "asks_for")
    if asked is None or matters is None or not compile_pattern(rf"\m({matters})\M").search(plain):
        return False
    # "Okay, that works": an answer, about what was said just now.
    if compile_pattern(rf"^\W*({data.choices(language, 'answer_openings')})\M").search(plain):
        return False
    opening = data.choices(language, "cue_request")
    if opening and compile_pattern(rf"(^|[.!;:\n]) *({opening})\M").search(plain):
        return False
    return not compile_pattern(rf"\m({asked})\M").search(plain)


def _telling_part(text: str) -> str | None:
    """Return a text without the question at its end, which asks for an opinion; None if it asks anything else."""
    marks = compile_pattern("[?？؟]")
    if not marks.search(text):
        return text
    told = compile_pattern(r"^(.*[.!;…—–])([^.!;…—–?]*)[?？؟]\s*$").match(text)
    if not told or marks.search(told[1]):
        return None
    opinions = data.choices("english", "asks_opinion")
    asked = told[2].lower().replace("’", "'")
    return told[1] if compile_pattern(rf"^\W*((and|so|but|or|i mean),? )*({opinions})").match(asked) else None


def _breadth(text: str) -> tuple[str | None, bool]:
    if len(text) > SHORT_BREADTH:
        return None, False
    query = text.lower()
    words = set(compile_pattern("[?!.,;:¿¡’'() ]").split(query))
    for language in LANGUAGES:
        if not words & data.entry_set(language, "asks_words"):
            continue
        shape = None
        if compile_pattern(rf"\m({data.choices(language, 'asks_order')})").search(query):
            shape = "order"
        elif compile_pattern(rf"\m({data.choices(language, 'asks_summary')})").search(query):
            shape = "summary"
        elif len(text) <= SHORT_SEVERAL and compile_pattern(rf"\m({data.choices(language, 'asks_several')})\M").search(
            query
        ):
            shape = "several"
        if shape:
            own = compile_pattern(rf"\m({data.choices(language, 'asks_own')})\M")
            return shape, own.search(query) is not None
    return None, False


def asks_of_own(text: str) -> bool:
    """Return whether a question is after something of the asker's own: "which laptop do I have?", and not "how do I
    rename a column?"."""
    if len(text) > 300:
        return False
    language = spoken_language(text)
    plain = text.lower().replace("’", "'")
    words = set(compile_pattern("[^[:alpha:]]+").split(plain))
    if not is_question(text) and not words & data.entry_set(language, "asks_words"):
        return False
    anyhow = data.choices(language, "asks_anyhow")
    if anyhow:
        plain = compile_pattern(rf"\m({anyhow})\M", longest=True).sub(" ", plain)
    # A language without rules is asked with those of all.
    matters = data.choices(None if text_language(text) > WITH_RULES else language, "own_matters")
    return compile_pattern(rf"\m({matters})\M").search(plain) is not None


def refers_back(text: str) -> bool:
    """Return whether a message goes on with what was begun together: "what's the next step?"."""
    going_on = data.choices(spoken_language(text), "refers_back")
    if len(text) > 1000 or going_on is None:
        return False
    return compile_pattern(rf"\m({going_on})\M").search(text.lower().replace("’", "'")) is not None


def find_times(text: str) -> tuple[Times, str | None]:
    """Return the times that a question names: months with or without year, days of them, ISO dates, and "today", "last
    week", "three months ago", "on Friday", "in the last few days"; and its text without them, None without any."""
    query = rest = text[:20000].lower()
    months, weekdays = data.entries("english", "months"), data.entries("english", "full_weekdays")
    found = Times()

    def hits(pattern: str) -> Iterator[Match[str]]:
        nonlocal rest
        compiled = compile_pattern(rf"\m(?:{pattern})\M", longest=True)
        rest = compiled.sub(" ", rest)
        return iter(list(compiled.finditer(query)))

    named = compile_pattern(
        rf"\m(?:(\d{{1,2}})(?:st|nd|rd|th)?(?: of)? )?({data.choices('english', 'months')})\M(?: (\d{{1,2}})(?:st|nd|rd"
        rf"|th)?\M)?,?(?: (\d{{4}})\M)?",
        longest=True,
    )
    for match in named.finditer(query):
        month, year, day = match[2], match[4], match[1] or match[3]
        # These two are other words as well.
        if month in ("may", "march") and not day and not year:
            if not compile_pattern(rf"\m(in|of|during|since|by|until|last|this|early|mid|late) {month}\M").search(
                query
            ):
                continue
        found.dates.append((int(year) if year else None, months.index(month) + 1, int(day) if day else None))
        rest = rest.replace(match[0], " ", 1)
    for match in hits(r"(\d{4})-(\d\d)(?:-(\d\d))?"):
        found.dates.append((int(match[1]), int(match[2]), int(match[3]) if match[3] else None))
    found.days.extend(2 for _ in hits("(?:the )?day before yesterday"))
    query = query.replace("day before yesterday", " ")
    number = rf"\d{{1,3}}|an?|few|couple(?: of)?|{data.choices('english', 'counted')}"
    for match in hits(rf"(?:a )?({number}) (day|week|fortnight|month|year)s? ago"):
        found.ago.append(_counted(match[1], match[2]))
    for match in hits(
        rf"(?:last|past) ({number}) (day|week|fortnight|month|year)s?|past (day|week|fortnight|month|year)"
    ):
        found.within.append(_counted(match[1] or "a", match[2] or match[3]))
    found.days.extend(0 for _ in hits("today|tonight|this (?:morning|afternoon|evening)"))
    found.days.extend(1 for _ in hits("yesterday|last night"))
    found.periods.extend((m[1], m[2]) for m in hits("(last|this) (week|weekend|month|year)"))
    day = "|".join(weekdays)
    for match in hits(rf"({day}) week|a week on ({day})"):
        found.weekdays.append((1, weekdays.index(match[1] or match[2])))
    query = compile_pattern(rf"\m(?:(?:{day}) week|a week on (?:{day}))\M").sub(" ", query)
    for match in hits(rf"(?:on|last|this past) ({day})(?! (?:mornings|afternoons|evenings|nights)\M)"):
        found.weekdays.append((-1, weekdays.index(match[1])))
    found.years.extend(int(m[1]) for m in hits(r"((?:19|20)\d\d)"))
    return found, rest if any(asdict(found).values()) else None


def _counted(number: str, unit: str) -> tuple[int, str]:
    """Return a count and its unit: "a", "three", "couple of"; a fortnight is two weeks."""
    words = data.entries("english", "counted")
    some = {"a": 1, "an": 1, "few": 3, "couple": 2, "couple of": 2}
    count = int(number) if number.isdigit() else some.get(number) or words.index(number) + 1
    return (2 * count, "week") if unit == "fortnight" else (count, unit)


def _says_nothing(rest: str) -> bool:
    """Return whether what a question says beside its times is only that it asks for what was."""
    words = compile_pattern("[^[:alpha:]]+").split(rest.replace("’", "'").replace("'", ""))
    return not set(words) - {""} - data.entry_set("english", "asks_of_time")
