"""What a message changes of what its speaker said before, in two grades.

*Certain* needs two witnesses that differ in kind: a form (the same slot with another value, a value that is named as
over, another value of the same thing, an end, an update request), and the judge, a learnt model that reads the earlier
statement beside the message. It takes effect. *Likely* is what the judge alone is sure of: both stay, and are recalled
together. The rest is nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from .change_forms import Form, find_form
from .limits import (
    CHOSEN,
    CHOSEN_ALONE,
    ENDING,
    FREES_SLOT,
    LIMITS,
    LOOSE,
    MARGIN,
    NOT_DENIED,
    OTHER_LIMITS,
    STATES,
    STATES_CERTAIN,
    Limits,
)
from .lists import Remainder, find_remainder
from .memories import word_memory
from .stated import MOST_SENTENCES, Statement, states
from .statements import in_first_person
from .text import Sentence, bare, own_sentences, without_preamble

# Statements by text and language.
Memo = dict[tuple[str, str], list[Statement]]


class Judge(Protocol):
    """A learnt model that reads statements."""

    def over(self, pairs: Sequence[tuple[str, str]], least: Sequence[float] = ()) -> Sequence[float]:
        """Return the chance that an earlier statement (first) holds no longer after a message (second), for each.
        `least`: of each the chance below which it is of no use, however low.
        """

    def states(self, texts: Sequence[str]) -> Sequence[float]:
        """Return the chance that a sentence states something that could hold: no thanks, question or play."""


class Heads(Protocol):
    """A learnt model that reads all that may be over together."""

    def ended(self, statements: Sequence[str], message: str) -> Sequence[float]:
        """Return the chance that each of a user's statements holds no longer after a message."""


LONGEST_TEXT = 4000
SHORT_MESSAGE, SHORT_ANSWER = 240, 80
# Statements that the judge reads beside a window: all of them, and those that have a word in common alone.
MOST_UNITS, MOST_WEAK = 10, 4


@dataclass(frozen=True)
class Earlier:
    """A text that the user said before; `turns_before`: how many turns before in the same session."""

    text: str
    language: str
    said_at: datetime
    turns_before: int | None = None
    is_near: bool = False


@dataclass(frozen=True)
class Message:
    """A message to read. `asked`: the question that it answers, which says what a short answer is about; `name`: of who
    says it, where several speak."""

    text: str
    said_at: datetime
    language: str
    asked: str = ""
    name: str | None = None


@dataclass(frozen=True)
class Change:
    """A span of an earlier text that a span of a message makes untrue, with what remains of it.

    `olds`: the values that are over, as written; `form` and `chance`: the witnesses; `remainder`: a memory of what
    remains; `content`: of what the message says.
    """

    earlier: int
    start: int
    length: int
    by_start: int
    by_length: int
    grade: str
    form: str | None
    chance: float | None
    olds: tuple[str, ...] = ()
    remainder: str | None = None
    content: str = ""


@dataclass(frozen=True)
class Window:
    """A text that is judged at once: a short message, or a sentence of a long one with the one before."""

    text: str
    statements: tuple[Statement, ...]


@dataclass(frozen=True)
class Candidate:
    of: int
    unit: Statement
    statement: Statement
    form: Form | None
    chance: float | None
    near: float
    choice: float = 0.0

    @property
    def is_weak(self) -> bool:
        """Whether at most a word in common speaks for it."""
        return self.form is None or self.form.name == "matter"

    @property
    def _limits(self) -> Limits:
        return LIMITS if self.unit.language == "english" else OTHER_LIMITS

    def _least_chance(self, form: Form) -> float:
        unit, limits = self.unit, self._limits
        stems = self.statement.content.stems
        if form.name == "ended" and len(stems) > 1 and stems <= unit.content.stems:
            return limits.same
        if form.name in ("ended", "denied") and form.is_strong:
            if find_remainder(unit.said, self.statement.said, unit.language):
                return limits.item
        return limits.beside[form.name]

    @property
    def least(self) -> float:
        """The chance below which it has no grade."""
        form, limits = self.form, self._limits
        if form is None or form.is_barred:
            return limits.alone
        return min(limits.alone, self._least_chance(form))

    @property
    def grade(self) -> str | None:
        """`certain`, `likely` or None."""
        form, chance, limits = self.form, self.chance, self._limits
        if chance is None:
            return "likely" if form and form.is_strong else None
        choice = self.choice if chance >= NOT_DENIED else 0.0
        is_alone = chance >= limits.alone or choice >= CHOSEN_ALONE
        if form and form.name in LOOSE and find_remainder(self.unit.said, self.statement.said, self.unit.language):
            if chance >= limits.named_item and not form.is_barred:
                return "certain"
            return "likely" if is_alone else None
        if form and not form.is_barred and (chance >= self._least_chance(form) or choice >= CHOSEN):
            return "certain"
        return "likely" if is_alone and not (form and form.is_barred) else None


def may_change(text: str, language: str) -> bool:
    """Return whether a message states anything, so that earlier texts are worth a look."""
    return len(text) <= LONGEST_TEXT and bool(states(text, language))


def find_changes(
    message: Message,
    earlier: Sequence[Earlier],
    judge: Judge | None,
    memo: Memo | None = None,
    heads: Heads | None = None,
) -> list[Change]:
    """Return what a message changes of earlier texts of its speaker in its language, certain ones first.

    `judge`: None where there is none for the language; then nothing is certain. `memo`: statements of earlier texts,
    kept from message to message. `heads`: None where there are none for the language.
    """
    text, language = message.text, message.language
    if len(text) > LONGEST_TEXT:
        return []
    memo = {} if memo is None else memo
    units: list[tuple[int, Statement]] = []
    for number, one in enumerate(earlier):
        # Of a short text nobody knows the language.
        if len(one.text) <= LONGEST_TEXT and (one.language == language or len(one.text) <= SHORT_ANSWER):
            key = (one.text, language)
            if key not in memo:
                memo[key] = states(one.text, language, 20, is_earlier=True)
            units += [(number, unit) for unit in memo[key]]
    if not units:
        return []
    changes: list[Change] = []
    for window in _windows(text, language, message.asked if len(text) <= SHORT_ANSWER else ""):
        found = _judge_units(window, units, earlier, judge, heads)
        changes += _chosen(found, earlier, message, window)
    return _once(changes)


def find_over(text: str, memories: Sequence[str], judge: Judge | None) -> list[int]:
    """Return which memories that hold a slot with another value than a message says hold no longer."""
    if judge is None or not memories:
        return list(range(len(memories)))
    pairs = [(_as_statement(in_first_person(memory)), text[:LONGEST_TEXT]) for memory in memories]
    chances = judge.over(pairs, [FREES_SLOT] * len(pairs))
    return [number for number, chance in enumerate(chances) if chance >= FREES_SLOT]


def _windows(text: str, language: str, asked: str = "") -> list[Window]:
    sentences = own_sentences(text)[:MOST_SENTENCES]
    statements = states(text, language)
    if not statements:
        return []
    whole = " ".join(sentence.said for sentence in sentences)
    if asked:
        return [Window(f"{asked} {whole}", tuple(replace(s, asked=asked) for s in statements))]
    if len(whole) <= SHORT_MESSAGE:
        return [Window(whole, tuple(statements))]
    windows, before = [], ""
    for sentence in sentences:
        end = sentence.start + sentence.length
        inside = tuple(s for s in statements if sentence.start <= s.start < end)
        if inside:
            windows.append(Window(f"{before} {sentence.said}".strip(), inside))
        before = sentence.said if sentence.length <= SHORT_MESSAGE else ""
    return windows


def _judge_units(
    window: Window,
    units: Sequence[tuple[int, Statement]],
    earlier: Sequence[Earlier],
    judge: Judge | None,
    heads: Heads | None,
) -> list[Candidate]:
    """Return the units that have to do with a window, with what both witnesses say of them."""
    stems = frozenset[str]().union(*(s.content.stems for s in window.statements))
    # A word weighs as it is rare among the earlier statements: 1 where one alone has it.
    times = Counter(stem for _, unit in units for stem in unit.content.stems & stems)
    rarest = math.log(1 + len(units))
    weights = {stem: math.log(1 + len(units) / count) / rarest for stem, count in times.items()}
    candidates = []
    for of, unit in units:
        one = earlier[of]
        shared = sum(weights[stem] for stem in unit.content.stems & stems)
        recent = one.turns_before is not None and one.turns_before <= 6
        near = shared + (1.5 if one.is_near else 0) + (1.0 if recent else 0)
        if not near:
            continue
        formed = [
            Candidate(of, unit, statement, find_form(unit, statement, window.text, one.turns_before), None, near)
            for statement in window.statements
        ]
        candidates.append(max(formed, key=_strength))
    candidates.sort(key=lambda c: (-(c.form.strength if c.form else 0), -c.near))
    formed = [c for c in candidates if not c.is_weak][:MOST_UNITS]
    candidates = formed + [c for c in candidates if c.is_weak][: min(MOST_WEAK, MOST_UNITS - len(formed))]
    if judge and candidates:
        chances = judge.over(
            [(_as_statement(c.unit.said), window.text) for c in candidates], [c.least for c in candidates]
        )
        candidates = [replace(c, chance=chance) for c, chance in zip(candidates, chances, strict=True)]
        candidates = _with_context(candidates, earlier, window, judge)
    if heads and candidates:
        choices_of = heads.ended([_as_statement(c.unit.said) for c in candidates], window.text)
        candidates = [replace(c, choice=choice) for c, choice in zip(candidates, choices_of, strict=True)]
    found = [c for c in candidates if c.grade]
    if judge and found:
        stated = judge.states([c.unit.said for c in found])
        least = [STATES_CERTAIN if c.grade == "certain" else STATES for c in found]
        found = [c for c, chance, limit in zip(found, stated, least, strict=True) if chance >= limit]
    return found


def _as_statement(text: str) -> str:
    """Return a statement as a clause has it: the judge reads "I live in Ulm." otherwise than "I live in Ulm"."""
    return text.rstrip(". ")


def _with_context(
    candidates: Sequence[Candidate], earlier: Sequence[Earlier], window: Window, judge: Judge
) -> list[Candidate]:
    """Ask once more of what has a form alone, with all that a short message said: "Let's plan the garden. Our budget
    is 3,200".
    """
    open_ones = [
        (number, earlier[c.of].text)
        for number, c in enumerate(candidates)
        if not c.is_weak
        and c.form
        and not c.form.is_barred
        and not c.grade
        and c.unit.length < len(earlier[c.of].text) <= SHORT_MESSAGE
    ]
    found = list(candidates)
    least = [found[number].least for number, _ in open_ones]
    chances = judge.over([(text, window.text) for _, text in open_ones], least) if open_ones else []
    for (number, _), chance in zip(open_ones, chances, strict=True):
        found[number] = replace(found[number], chance=max(chance, found[number].chance or 0))
    return found


def _strength(candidate: Candidate) -> tuple[float, ...]:
    form = candidate.form
    shared = len(candidate.unit.content.stems & candidate.statement.content.stems)
    # A clause about somebody else says nothing against the one beside it.
    return (0.0 if form is None else 0.1 if form.is_barred else form.strength, shared)


def _chosen(found: Sequence[Candidate], earlier: Sequence[Earlier], message: Message, window: Window) -> list[Change]:
    """Return changes of one matter: what is certain of several that differ is likely only."""
    certain = [c for c in found if c.grade == "certain"]
    if not certain:
        return [_change(c, "likely", earlier, message, window) for c in found]
    best = max(certain, key=lambda c: (_strength(c), c.chance or 0))
    same = [c for c in certain if c is best or _is_one_matter(c, best)]
    others = [c for c in certain if c not in same]
    rivals = [c for c in others if _strength(c)[0] > _strength(best)[0] - MARGIN and c.of != best.of]
    # What names its old value is meant, whatever else is near.
    if rivals and not (best.form and best.form.name in ("slip", "corrected", "named", "update", "slot")):
        return [_change(c, "likely", earlier, message, window) for c in certain]
    return [_change(c, "certain", earlier, message, window) for c in same]


def _is_one_matter(one: Candidate, other: Candidate) -> bool:
    """Return whether two earlier statements say the same of the same matter, or name the same value that is over."""
    mine, theirs = one.unit.content, other.unit.content
    if one.form and other.form and set(one.form.olds) & set(other.form.olds):
        return True
    if one.unit.rule and other.unit.rule and one.unit.rule.get("slot") == other.unit.rule.get("slot"):
        return one.unit.rule.get("slot") is not None
    differing = mine.stems ^ theirs.stems
    return (
        bool(mine.stems & theirs.stems)
        and len(differing - mine.names - theirs.names) <= 1
        and mine.names == theirs.names
    )


def _change(candidate: Candidate, grade: str, earlier: Sequence[Earlier], message: Message, window: Window) -> Change:
    unit, form = candidate.unit, candidate.form
    rest: Remainder | None = None
    if form and grade == "certain" and form.name in ENDING | LOOSE:
        rest = find_remainder(unit.said, candidate.statement.said, unit.language)
    start, length = unit.start, unit.length
    # Beside what is likely over stands all that was judged.
    by = window.statements if grade == "likely" else (candidate.statement,)
    first, last = min(s.start for s in by), max(s.start + s.length for s in by)
    # The span stands in the text as written; what the clause inherits does not.
    if rest and unit.length == len(unit.said):
        start, length = unit.start + rest.start - 1, rest.length
    return Change(
        candidate.of, start, length, first, last - first, grade,
        form.name if form else None, candidate.chance, form.olds if form else (),
        word(rest.text, earlier[candidate.of].said_at, message.name) if rest else None,
        word(without_preamble(candidate.statement.said, unit.language), message.said_at, message.name,
            candidate.statement.asked),
    )  # fmt: skip


def word(text: str, said_at: datetime, name: str | None, asked: str = "", kind: str = "fact") -> str:
    """Return a statement or an instruction as a memory says it, of who has a name by it. An answer has its question."""
    if asked:
        text = f'{text} (asked "{asked}")'
    rule = {
        "name": "changed",
        "type": kind,
        "provenance": "user_stated",
        "category": kind,
        "importance": "normal",
        "utility": 0.9,
    }
    sentence = Sentence(1, len(text), text)
    return word_memory(sentence, 1, bare(text), 0, name or "User", name is not None, said_at, rule).content


def _once(changes: Sequence[Change]) -> list[Change]:
    """Return each span once, where it is certain as certain."""
    kept: dict[tuple[int, int], Change] = {}
    for change in sorted(changes, key=lambda c: c.grade != "certain"):
        kept.setdefault((change.earlier, change.start), change)
    return list(kept.values())
