"""Reads everyday/: conversations with the values that must be known, marked as over or forgotten afterwards, as
sentences that are wishes or none. Wishes are said there in passing, beside tasks and facts."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EVERYDAY = Path(__file__).with_name("everyday")
TYPOGRAPHY = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"', "–": "-", "—": "-"})
LONGEST_MESSAGE, LONGEST_SENTENCE, MOST_SENTENCES = 1500, 300, 12
# The judges' chances of a wish from which on a sentence without a value is left out: beside wishes, and elsewhere.
UNCLEAR_BESIDE, UNCLEAR = 0.3, 0.9


@dataclass(frozen=True)
class Said:
    """A sentence of a user; `is_standing`: its case is about wishes; `has_value`: it has a value of its case."""

    writer: str
    text: str
    is_standing: bool
    has_value: bool


def read_sentences(folder: Path = EVERYDAY) -> Iterator[Said]:
    """Yield the sentences of users, in English."""
    from pg_memoir_language.text import own_sentences

    for file in sorted(folder.glob("*.jsonl")):
        for case in map(json.loads, file.read_text("utf-8").splitlines()):
            if case.get("language", "en") != "en":
                continue
            values = [value for name in ("must", "keep", "marked", "must_not") for value in case.get(name, ())]
            for text in _messages(case):
                for sentence in own_sentences(text)[:MOST_SENTENCES]:
                    if len(sentence.said) <= LONGEST_SENTENCE:
                        yield Said(
                            f"everyday/{file.stem}", sentence.said, case["kind"] == "standing",
                            any(has_value(sentence.said, value) for value in values),
                        )  # fmt: skip


def read_wishes(judge: Callable[[Sequence[str]], Sequence[float]]) -> Iterator[tuple[str, str, bool]]:
    """Yield the writer, a sentence and whether it is a wish, without those of which a case does not tell. `judge`: the
    chance that a text is a wish, for each."""
    said = list(read_sentences())
    for one, chance in zip(said, judge([one.text for one in said]), strict=True):
        is_wish = one.is_standing and one.has_value
        if is_wish or chance < (UNCLEAR_BESIDE if one.is_standing else UNCLEAR):
            yield one.writer, one.text, is_wish


def _messages(case: Any) -> Iterator[str]:
    for session in case["sessions"]:
        for turn in session.get("turns", ()):
            if isinstance(turn, list) and turn[0] == "user" and len(turn[1]) <= LONGEST_MESSAGE:
                yield turn[1]


def has_value(text: str, value: str) -> bool:
    """Return whether a text has a value, by whole words, or as /a regular expression/ has it."""
    text = re.sub(r"[^\S\n]+", " ", unicodedata.normalize("NFKC", text).casefold().translate(TYPOGRAPHY))
    if len(value) > 2 and value[0] == value[-1] == "/":
        return re.search(value[1:-1], text, re.I) is not None
    value = value.casefold().translate(TYPOGRAPHY).strip()
    before, after = (r"(?<!\w)" if value[0].isalnum() else ""), (r"(?!\w)" if value[-1].isalnum() else "")
    return re.search(before + re.escape(value) + after, text) is not None
