"""The values that a text holds (numbers, days, times, addresses, codes, names) and the stems of what it speaks of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module
from typing import Any

from . import data
from .data import choices
from .foreign import APOSTROPHES
from .patterns import Pattern, compile_pattern

# In this order: what was taken for one kind is none of the next. The soft kinds are said in passing.
KINDS = ("email", "date", "time", "weekday", "often", "code", "number", "month")
SOFT_KINDS = frozenset({"often", "month"})
LONGEST = 1000


@dataclass(frozen=True)
class Value:
    """A value: its kind, a form in which equal ones are equal, and as it was written."""

    kind: str
    key: str
    raw: str


@dataclass(frozen=True)
class Content:
    """What a text says: its values, names in small letters, and the stems of its other words."""

    values: tuple[Value, ...]
    names: frozenset[str]
    stems: frozenset[str]


@cache
def _shapes(language: str) -> tuple[tuple[str, Pattern[str]], ...]:
    months, counted = choices(None, "months"), choices(language, "counted") or "(?!)"
    sure = choices("english", "sure_months")
    shapes = {
        "email": r"[[:alnum:]._%+-]{1,64}@[[:alnum:].-]{1,100}",
        "date": rf"\m(?:\d{{1,2}}(?:st|nd|rd|th|\.|º)?(?: of| de)? (?:{months})\M(?:,? (?:de )?\d{{4}})?"
        rf"|(?:{months}) \d{{1,2}}(?:st|nd|rd|th)?\M(?:,? \d{{4}})?|\d{{4}}-\d\d-\d\d\M"
        r"|\d{1,2}[./]\d{1,2}[./](?:\d{4}\M)?|\d{1,2}(?:st|nd|rd|th)\M)",
        "time": r"\m(?:\d{1,2}[:.h]\d\d(?: ?[ap]m)?\M|\d{1,2} ?(?:am|pm|uhr|h|heures?|horas?)\M|noon\M|midnight\M"
        rf"|(?:half|quarter) (?:past|to) [[:alnum:]]+|(?:\d+|{counted}) (?:sharp\M|o'clock))",
        "weekday": rf"\m(?:{choices(None, 'days_of_week')})\M",
        "often": rf"\m(?:every (?:other |second |third |\d+ |{counted} )?"
        r"(?:day|week|month|year|hour|night|morning|evening)s?\M|(?:dai|week|month|year|fortnight|biweek)ly\M"
        r"|(?:once|twice|\w+ times) (?:an?|per) (?:day|week|month|year)\M)",
        "code": r"\m(?:\d[\d ()/+-]{6,}\d|[[:alpha:]]{1,4}-?\d{1,6}[[:alpha:]]?|\d{1,6}[[:alpha:]]{1,2})\M",
        "number": rf"[$€£]? ?\d[\d.,]*\d|\d|\m(?:{counted})\M",
        "month": rf"\m(?:(?:in|of|early|mid|late|until|till|to|by|next|this|from) (?:march|may)|{sure})\M",
    }
    return tuple((kind, compile_pattern(shapes[kind], True)) for kind in KINDS)


def _key(raw: str, kind: str, language: str) -> str:
    """Return a value as it is compared, however it is written."""
    lower = raw.lower().strip()
    if kind == "date":
        if compile_pattern(r"^\d{4}-").match(lower):
            return lower
        month = compile_pattern(rf"\m({choices(None, 'months')})\M", True).search(lower)
        day = compile_pattern(r"\d{1,2}").search(lower)
        return (month[1][:3] if month else "") + (day[0].lstrip("0") if day else "")
    if kind == "number":
        counted = data.entries(language, "counted")
        if lower in counted:
            return str(counted.index(lower) + 1)
        return "".join(c for c in lower if c.isdigit())
    if kind == "time":
        return lower.replace(".", ":").replace("h", ":").replace(" ", "")
    if kind == "code":
        return "".join(c for c in lower if c.isalnum())
    if kind == "weekday":
        return lower[:3]
    return lower.rsplit(" ", 1)[-1][:3] if kind == "month" else lower


@cache
def _stemmer(language: str) -> Any:
    """Return the stemmer of a language, None where there is none.

    It is the one in Python: PyStemmer, which snowballstemmer.stemmer() prefers, brings a C library whose names are
    those of PostgreSQL's dict_snowball, so that in a backend the one may call the other and crash the server.
    """
    try:
        module = import_module(f"snowballstemmer.{language}_stemmer")
    except ModuleNotFoundError:
        return None
    return getattr(module, f"{language.capitalize()}Stemmer")()


@lru_cache(maxsize=100_000)
def stem(word: str, language: str) -> str:
    stemmer = _stemmer(language)
    found: str = stemmer.stemWord(word) if stemmer else word
    return found


UNSPACED = r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]"


def stems_of(word: str, language: str) -> list[str]:
    """Return the stem of a word; of a run of a script without spaces its pairs of characters."""
    if not word.isascii() and compile_pattern(UNSPACED).search(word) and len(word) > 2:
        return [word[at : at + 2] for at in range(len(word) - 1)]
    return [stem(word, language)]


@cache
def _skips(language: str) -> frozenset[str]:
    """Return words that say nothing of a matter: function words, and those that only tell that something changed."""
    return frozenset(data.entries(language, "change_words") + data.entries(language, "function_words"))


@cache
def _same_matter() -> dict[str, str]:
    return dict(pair.split(">", 1) for pair in data.entries("english", "same_matter"))


NAME = r"""(?:[[:alnum:],;:'"(#] +|["(])((?:[[:upper:]][[:alnum:]'-]+ ?)+)"""


def read_content(text: str, language: str) -> Content:
    """Return what a text says. Of a long text the beginning counts."""
    rest = text[:LONGEST].translate(APOSTROPHES)
    values: list[Value] = []
    for kind, shape in _shapes(language):
        for match in shape.finditer(rest):
            values.append(Value(kind, _key(match[0], kind, language), match[0].strip()))
        if values:
            rest = shape.sub(" # ", rest)
    starts = data.entry_set("english", "sentence_starts")
    names = set()
    for match in compile_pattern(NAME).finditer(rest):
        name = match[1].strip()
        if name.lower() not in starts and name != "I" and not name.startswith("I'"):
            names.add(name.lower())
    passed, same = _skips(language), _same_matter() if language == "english" else {}
    stems = set()
    for word in compile_pattern("[[:alnum:]]+(?:['-][[:alnum:]]+)*").findall(rest.lower()):
        word = word.removesuffix("'s")
        if word in passed or word.endswith("n't") or word.split("'", 1)[0] in passed:
            continue
        for found in stems_of(word, language):
            if len(found) > 1 and any(c.isalpha() for c in found):
                stems.add(same.get(found, found))
    return Content(tuple(values), frozenset(names), frozenset(stems))
