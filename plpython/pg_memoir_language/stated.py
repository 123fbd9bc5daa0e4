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

LONGEST_SENTENCE, LONGEST_BEFORE, MOST_SENTENCES = 400, 160, 12


@dataclass(frozen=True)
class Statement:
    """A clause that states something, as rules read it: of an earlier text, or of a message. `asked`: the question that
    a short message answers; `before`: the sentence before, where the clause begins with a pronoun."""

    start: int
    length: int
    said: str
    language: str
    sentence: str
    asked: str = ""
    before: str = ""

    @cached_property
    def plain(self) -> str:
        return without_reasons(plain(self.said, self.language), self.language)

    @cached_property
    def content(self) -> Content:
        content = read_content(self.said, self.language)
        stems = content.stems
        for text in (self.asked, self.before):
            if text:
                stems |= read_content(text, self.language).stems
        return replace(content, stems=stems)

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
    found: list[Statement] = []
    before = ""
    for sentence in own_sentences(text)[:most]:
        # "[image: a photo of a dog]" is nobody's word.
        if sentence.length > LONGEST_SENTENCE or sentence.said.startswith("["):
            continue
        said, leads = sentence.said, before
        before = said if len(said) <= LONGEST_BEFORE else ""
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
        found += _clauses(Sentence(sentence.start, len(said), said), language, is_earlier, leads)
    return found


def _clauses(sentence: Sentence, language: str, is_earlier: bool, before: str) -> list[Statement]:
    found = []
    pronouns = choices(language, "leading_pronouns")
    for start, length, said, inherits in split_clauses(sentence.said, language):
        form = f"I {said}" if inherits and language == "english" else said
        supposed = (
            choices(language, "conditions") if is_earlier else choices(language, "supposed", "sarcasm", "conditions")
        )
        if search("[[:alpha:]]{2}", said) and not search(supposed, without_month_of_may(plain(said, language))):
            leads = before if pronouns and search(rf"^(?:{pronouns})\M", said.lower()) else ""
            found.append(Statement(sentence.start + start - 1, length, form, language, sentence.said, before=leads))
            before = said
    return found
