"""The clauses of a text that state something, as changes compare them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from .data import choices
from .patterns import compile_pattern
from .statements import match_statement, without_month_of_may, without_reasons
from .text import Sentence, asks, own_sentences, plain, search, split_clauses
from .values import Content, read_content

LONGEST_SENTENCE, MOST_SENTENCES = 400, 12


@dataclass(frozen=True)
class Statement:
    """A clause that states something, as rules read it: of an earlier text, or of a message. `asked`: the question that
    a short message answers."""

    start: int
    length: int
    said: str
    language: str
    sentence: str
    asked: str = ""

    @cached_property
    def plain(self) -> str:
        return without_reasons(plain(self.said, self.language), self.language)

    @cached_property
    def content(self) -> Content:
        content = read_content(self.said, self.language)
        if not self.asked:
            return content
        return replace(content, stems=content.stems | read_content(self.asked, self.language).stems)

    @cached_property
    def rule(self) -> dict[str, Any] | None:
        """The statement rule with a slot that fits it."""
        return match_statement(self.plain, False, self.language, True) or match_statement(
            self.plain, True, self.language, True
        )


def states(text: str, language: str, most: int = MOST_SENTENCES, is_earlier: bool = False) -> list[Statement]:
    """Return the clauses of a text that state something: no questions, nothing supposed or reported.

    `is_earlier`: what was said before may have stood behind "I think" or "wish me luck"; the judge reads it.
    """
    found = []
    for sentence in own_sentences(text)[:most]:
        # "[image: a photo of a dog]" is nobody's word.
        if sentence.length > LONGEST_SENTENCE or sentence.said.startswith("["):
            continue
        said = sentence.said
        if asks(said, language):
            # "We have two cats, how many boxes do we need?"
            asked = compile_pattern(rf",(?= (?:{choices(language, 'question_openings') or '(?!)'})\M)", True).search(
                said
            )
            clauses = split_clauses(said, language)
            if asked:
                said = said[: asked.start()]
            elif len(clauses) > 1:
                said = said[: clauses[-1][0] - 1]
            else:
                continue
        found += _clauses(Sentence(sentence.start, len(said), said), language, is_earlier)
    return found


def _clauses(sentence: Sentence, language: str, is_earlier: bool) -> list[Statement]:
    found = []
    for start, length, said, inherits in split_clauses(sentence.said, language):
        form = f"I {said}" if inherits and language == "english" else said
        supposed = (
            choices(language, "conditions") if is_earlier else choices(language, "supposed", "sarcasm", "conditions")
        )
        if search("[[:alpha:]]{2}", said) and not search(supposed, without_month_of_may(plain(said, language))):
            found.append(Statement(sentence.start + start - 1, length, form, language, sentence.said))
    return found
