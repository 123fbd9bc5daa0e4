"""Recognise the language of a text by its script, its frequent words, and letters that only one language has."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from . import data
from .patterns import compile_pattern

# Languages with rules come first, in this order; then those that Latin texts are told apart by.
WITH_RULES, LATIN = 6, 18
NO_WORDS = str.maketrans(dict.fromkeys(".,;:!?()[]\"''’“”„«»…¿¡-–—/\n\t،؟؛।", " "))


@dataclass(frozen=True)
class Language:
    """A row of languages.csv, with the language's frequent words."""

    number: int
    name: str
    script: str
    letters: frozenset[str]
    common: frozenset[str]


@cache
def languages() -> tuple[Language, ...]:
    """Return all languages, by number."""
    with (Path(__file__).parent / "languages.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    return tuple(
        Language(
            int(row["number"]),
            row["name"],
            row["script"],
            frozenset(row["letters"] or ""),
            frozenset(" ".join(data.entries(row["name"], "common_words")).lower().translate(NO_WORDS).split()),
        )
        for row in sorted(rows, key=lambda row: int(row["number"]))
    )


SCRIPTS = (
    ("kana", r"[\u3040-\u30ff]"), ("hangul", r"[\uac00-\ud7af]"), ("han", r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]"),
    ("cyrillic", r"[\u0400-\u052f]"), ("arabic", r"[\u0600-\u06ff\u0750-\u077f]"), ("devanagari", r"[\u0900-\u097f]"),
    ("thai", r"[\u0e00-\u0e7f]"), ("greek", r"[\u0370-\u03ff\u1f00-\u1fff]"), ("hebrew", r"[\u0590-\u05ff]"),
    ("tamil", r"[\u0b80-\u0bff]"), ("lao", r"[\u0e80-\u0eff]"), ("khmer", r"[\u1780-\u17ff]"),
    ("burmese", r"[\u1000-\u109f]"),
)  # fmt: skip


def script(text: str) -> str:
    """Return the script of a text.

    A third of the letters is enough for another script than Latin, which takes more of them to say the same.
    """
    if text.isascii():
        return "latin"
    shared = r"[\u0001-\u036f\u1e00-\u1eff\u2000-\u2bff\u3000-\u303f\ufe00-\ufe0f\uff00-\uff20\U0001f000-\U0001ffff]+"
    other = compile_pattern(shared).sub("", text)
    latin = compile_pattern(r"[^a-zA-Z\u00c0-\u024f\u1e00-\u1eff]+").sub("", text)
    if not other or len(other) * 3 < len(latin):
        return "latin"
    return next((name for name, letters in SCRIPTS if compile_pattern(letters).search(other)), "other")


def text_language(text: str) -> int:
    """Return the number of a text's language, 0 where it says too little. The beginning of a long text decides.

    Of two that are as likely the first counts. A single word is too little for a long text, and for a Latin one in a
    language without rules.
    """
    text = text[:500].lower()
    words = text.translate(NO_WORDS).split()
    known = languages()
    distinct = set(words)
    hits = len(known[0].common & distinct)
    if hits >= 5 and hits * 4 >= len(words):
        return 1
    accented = False
    if not text.isascii():
        written = script(text)
        if written != "latin":
            of_script = [language for language in known if language.script == written]
            best = max(
                of_script,
                key=lambda language: (len(language.common & distinct) + _letters(text, language), -language.number),
                default=None,
            )
            return best.number if best else 0
        accented = compile_pattern(r"[\u00c0-\u024f]").search(text) is not None
    # Of two that are as likely hardly the one without accents.
    found, most, beaten = 0, 0, int(accented)
    for language in known[:LATIN]:
        hits = len(language.common & distinct) + (0 if text.isascii() else _letters(text, language))
        needed = int(language.number > WITH_RULES or len(words) > 12)
        if hits > needed and (hits > most or (hits == most and found == beaten)):
            found, most = language.number, hits
    return found


def written_language(text: str) -> str:
    """Return the language of a text, with or without rules; `simple` where it says too little."""
    number = text_language(text)
    return languages()[number - 1].name if number else data.NO_LANGUAGE


def spoken_language(text: str) -> str:
    """Return the language that a text is read in: English where it says too little, `simple`, which has no rules,
    where it is in a language without any."""
    number = text_language(text)
    if number > WITH_RULES:
        return data.NO_LANGUAGE
    if number == 0:
        return "english" if script(text) == "latin" else data.NO_LANGUAGE
    return languages()[number - 1].name


def _letters(text: str, language: Language) -> int:
    return sum(character in language.letters for character in text)
