"""Extractive summaries: which sentences of a stretch of conversation say most of it, in their own words.

turns → prose → sentences → what each is about (tf-idf centroid) × what kind of thing it says (salience) → greedy
choice of what is not said yet (maximal marginal relevance, Carbonell and Goldstein 1998)
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache

from .compare import split_sentences
from .data import choices, entries
from .dates import resolve_dates
from .patterns import compile_pattern
from .text import search
from .values import stems_of

MOST_SENTENCES, LONGEST_SENTENCE = 200, 300
MOST_RANKED = 150
LEAST_SALIENCE = 0.6
NOVELTY = 0.8  # how much of its worth a sentence loses that another says as well
CODE_WORDS = (
    "import|from|def|class|function|return|const|let|var|pip|npm|git|docker|SELECT|INSERT|UPDATE|DELETE|CREATE"
    r"|FROM|WHERE|AND|OR|JOIN|SET|VALUES|\$|@[[:alpha:]]"
)
# Tables, headings and quoted mail; then code, by how a line begins or ends; marks of lists are taken off.
NO_PROSE = (
    r"(^|\n)[ \t]*(?:[|#>]|-{3}|[*=_]{3})[^\n]*",
    r"(^|\n)[^\n]*(?:[;{}]|=>|\(\)|\):|==|&&|\|\|)[ \t]*(?=\n|$)",
    rf"(^|\n)[ \t]*(?:{CODE_WORDS})[ .(][^\n.!?]*[^\n.!? ]?(?=\n|$)",
    r"(^|\n)[ \t]*(?:[[:alpha:]_][[:alnum:]_.]* ?(?:=|:=|\+=) ?|[[:alpha:]_][[:alnum:]_.]*\()[^\n]*",
    r"(^|\n)[ \t]*(?:(?:\d{1,3}|[[:alpha:]])[.)]|[-*•+])[ \t]+",
)
NAMED = r"[[:alnum:],;:] +[[:upper:]][[:alpha:]]+|[[:alnum:]]+[_./@][[:alnum:]]+|[[:lower:]][[:upper:]]"
DATED = r"\m(?:yesterday|tomorrow|last|next|ago|from now|(?:on|until|till|by|since) [[:alpha:]]+day)\M"
# What a sentence says lies ahead.
AHEAD = r"\m(?:will|going to|gonna|plan\w*|starting|am|are|is|should|must|need|next|let'?s)\M|'(?:ll|re|m)\M"


@dataclass(frozen=True)
class Line:
    """A sentence that may stand in a summary: its line, what it says, by whom ("user", "assistant", "tool").
    `is_last`: of the last turn, which may be an open question."""

    text: str
    sentence: str
    role: str
    is_last: bool = False


def read_prose(text: str) -> str:
    """Return what of a turn is prose: without code, tables, headings and the marks of lists and emphasis."""
    if "```" in text:
        text = compile_pattern(r"```(?:[^`]|`[^`]|``[^`])*(?:```|$)").sub("\n", text)
    if "\n" in text or compile_pattern(r"^[ \t]*[|#*•>-]").search(text):
        for pattern in NO_PROSE:
            text = compile_pattern(pattern).sub(r"\1", text)
    prose: str = compile_pattern(r"\*{2,3}|__").sub("", text)
    return prose


def lines_of_turn(label: str, role: str, text: str, said_on: date, is_last: bool, is_dated: bool) -> list[Line]:
    """Return a turn's sentences as lines, each with who said it; `is_dated`: "yesterday" and the like made absolute."""
    lines = []
    for sentence in split_sentences(read_prose(text))[:MOST_SENTENCES]:
        if len(sentence) > LONGEST_SENTENCE:
            sentence = sentence[: LONGEST_SENTENCE - 3] + "…"
        said = with_dates(sentence, said_on) if is_dated else sentence
        lines.append(Line(f"- {label}: {said}", sentence, role, is_last))
    return lines


def with_dates(sentence: str, said_on: date) -> str:
    """Return an English sentence that can stand away from its day: relative dates made absolute."""
    if not search(DATED, sentence):
        return sentence
    return resolve_dates(sentence, said_on, not search(AHEAD, sentence)).text


def line_of_summary(text: str) -> Line:
    """Return a line of a former summary, which carries its speaker."""
    head, _, sentence = text.removeprefix("- ").partition(": ")
    label = head.partition(" ")[0]
    return Line(text, sentence or head, label if label in ("assistant", "tool") else "user")


@cache
def _cue(use: str, is_first: bool = False) -> str:
    return (
        ("^\\W*" if is_first else r"\m") + f"(?:{choices('english', use)})" + ("" if use == "cue_pleasantry" else r"\M")
    )


def salience(line: Line) -> float:
    """Return the weight of a sentence that must survive: decisions, numbers, names, instructions, corrections,
    errors and statements about oneself. Small talk, openings, fragments and answers that need their question weigh
    nothing.
    """
    said, role = line.sentence, line.role
    is_latin = len(said.encode()) < 2 * len(said)
    if search(r":\W*$", said) or is_latin and not search(r"[[:alnum:]]+\W+[[:alnum:]]+\W+[[:alnum:]]", said):
        return 0
    has_digit, is_asking = search(r"\d", said), search(r"[?？؟]\W*$", said)
    weight = 1 + 0.6 * search(_cue("cue_decided"), said) + 0.4 * search(_cue("cue_duty"), said)
    weight += 0.5 if has_digit else 0.3 * search(_cue("cue_time"), said)
    unaddressed = compile_pattern(r", [[:upper:]][[:alpha:]]+\W*$").sub("", said)
    weight += 0.3 * search(NAMED, unaddressed, False) + 0.3 * search(_cue("cue_corrected"), said)
    weight += 0.4 * search(_cue("cue_error"), said) + 0.4 * (role == "user" and search(_cue("cue_self"), said))
    if is_asking:
        weight += 0.6 if line.is_last else -0.2 if role == "user" else -0.5
    if role == "user" and not line.is_last and search(_cue("cue_request", True), said):
        weight -= 0.9
    is_courteous = len(said) < 80 and search(_cue("cue_courtesy", True), said)
    if is_courteous or len(said) < 100 and not has_digit and search(_cue("cue_pleasantry"), said):
        weight -= 0.9
    if role == "assistant" and len(said) < 60 and search(_cue("cue_elliptical", True), said):
        weight -= 0.5
    if len(said) < 16 and not has_digit:
        weight -= 0.5
    return max(0.05, weight) * {"user": 1.2, "tool": 0.6}.get(role, 1)


def _cost(text: str) -> float:
    """Return about how many tokens a line takes: four letters each, fewer beyond ASCII."""
    plain = sum(character.isascii() for character in text)
    return plain / 4 + (len(text) - plain) / 1.5 + 4


def _stems(text: str, language: str) -> set[str]:
    skipped = set(entries(language, "function_words"))
    words = compile_pattern("[[:alnum:]]+").findall(text.lower())
    return {stem for word in words if word not in skipped for stem in stems_of(word, language)}


def _weigh_stems(sentences: Sequence[str], language: str) -> list[dict[str, float]]:
    """Return the tf-idf vectors of sentences, of length 1."""
    stems = [_stems(sentence, language) for sentence in sentences]
    frequency = Counter(stem for found in stems for stem in found)
    vectors = []
    for found in stems:
        weights = {stem: math.log(1 + len(sentences) / frequency[stem]) for stem in found}
        length = math.sqrt(sum(weight * weight for weight in weights.values()))
        vectors.append({stem: weight / length for stem, weight in weights.items()})
    return vectors


def rank_lines(lines: Sequence[Line], language: str) -> list[int]:
    """Return which lines (from 0) a summary should have, the one that adds most first: what is worth most of what
    it costs and is not said by those before. Of two as good the earlier is first.
    """
    worth = [salience(line) for line in lines]
    first: dict[str, int] = {}
    for number, line in enumerate(lines):
        first.setdefault(line.sentence.lower(), number)
    able = [number for number in first.values() if worth[number] >= LEAST_SALIENCE]
    vectors = dict(zip(able, _weigh_stems([lines[number].sentence for number in able], language), strict=True))
    able = [number for number in able if vectors[number]]
    centroid: Counter[str] = Counter()
    for number in able:
        centroid.update(vectors[number])
    central = {number: sum(x * centroid[stem] for stem, x in vectors[number].items()) for number in able}
    most = max(central.values(), default=1)
    score = {
        number: round(
            10000
            * (worth[number] - 0.5) ** 2
            * (0.6 + 0.4 * central[number] / most)
            / _cost(lines[number].sentence) ** 0.35
        )
        for number in able
    }
    left = sorted(sorted(able, key=lambda number: (-score[number], number))[:MOST_RANKED])
    near = dict.fromkeys(left, 0.0)
    ranked: list[int] = []
    while left:
        best = max(left, key=lambda number: (score[number] * (1 - NOVELTY * near[number]), -number))
        left.remove(best)
        ranked.append(best)
        for number in left:
            alike = sum(x * vectors[number].get(stem, 0.0) for stem, x in vectors[best].items())
            near[number] = max(near[number], min(1.0, alike))
    return ranked
