"""Sentences that are not meant: jokes, games, lines of a story, data for a form. They tell nothing of who says them.

A learnt model reads each sentence with its message. English.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .memories import Extracted, Turn
from .text import own_sentences

# The chance from which on a sentence is not meant.
UNTRUE = 0.8
LONGEST, MOST_SENTENCES = 2000, 12


class Judge(Protocol):
    def untrue(self, sentences: Sequence[str], message: str) -> Sequence[float]:
        """Return the chance that a sentence of a message is not meant, for each."""


def find_untrue(text: str, language: str, judge: Judge) -> list[tuple[int, int]]:
    """Return the spans of the sentences of a message that are not meant, from 1 on."""
    if language != "english" or len(text) > LONGEST:
        return []
    sentences = own_sentences(text)[:MOST_SENTENCES]
    chances = judge.untrue([s.said for s in sentences], text)
    return [(s.start, s.length) for s, chance in zip(sentences, chances, strict=True) if chance >= UNTRUE]


def blank_untrue(text: str, language: str, judge: Judge) -> str:
    """Return a message with what is not meant blanked out, so that positions stay."""
    for start, length in find_untrue(text, language, judge):
        text = text[: start - 1] + "\n" * length + text[start - 1 + length :]
    return text


def without_untrue(found: Sequence[Extracted], turns: Sequence[Turn], judge: Judge) -> list[Extracted]:
    """Return memories of turns, which count from 1, without those of sentences that a user does not mean. Wishes have a
    judge of their own."""
    facts = {one.text_no for one in found if one.type != "instruction" and turns[one.text_no - 1].role == "user"}
    spans = {number: find_untrue(turns[number - 1].text, turns[number - 1].language, judge) for number in facts}
    return [
        one
        for one in found
        if one.type == "instruction"
        or not any(
            start < one.span_start + one.span_length and one.span_start < start + length
            for start, length in spans.get(one.text_no, ())
        )
    ]
