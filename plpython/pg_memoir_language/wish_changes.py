"""Which lasting wishes a message takes back or replaces: "you can quit the little poems".

A wish shares few words with what ends it, so all wishes of the user are read beside the message. *Certain* needs two
witnesses here, too: the judge, and a message whose form says that it is about how the assistant behaves, since it holds
a wish itself or says that something may stop. A wish that the message lets go on ("the sizes stay") is never over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from .change_forms import NAMING
from .changes import Change, Earlier, Message, word
from .data import choices
from .patterns import compile_pattern
from .text import own_sentences, search
from .values import read_content

# Chances from which on a wish is over for certain, or likely.
CERTAIN, LIKELY = 0.6, 0.5
# Where a wish is over by this chance, a message needs to speak of behaviour by a lower one.
SURE, SPEAKS = 0.85, 0.3
# The chance from which on a part of a wish, or a message, is a wish by itself.
WISH = 0.7
OTHERS = r"\m(?:others?|rest)\M"
LONGEST_MESSAGE, LONGEST_WINDOW, MOST_SENTENCES = 2000, 300, 8


class WishJudge(Protocol):
    def wishes(self, texts: Sequence[str]) -> Sequence[float]:
        """Return the chance that a text is a lasting wish, for each."""

    def over(self, wishes: Sequence[str], message: str) -> Sequence[float]:
        """Return the chance that each of a user's wishes holds no longer after a message."""


@dataclass(frozen=True)
class Wish:
    """A lasting wish: the number of the text that says it, and its span there, from 1 on."""

    of: int
    start: int
    said: str


@dataclass(frozen=True)
class WishChange:
    """A wish, or a part of it, that a span of a message makes untrue; `rest`: the parts that go on; `behaves`: what of
    the span says how the assistant behaves from then on."""

    of: int
    start: int
    length: int
    by_start: int
    by_length: int
    said: str
    is_certain: bool
    chance: float
    rest: str
    behaves: str = ""


def find_wish_changes(text: str, language: str, wishes: Sequence[Wish], judge: WishJudge) -> list[WishChange]:
    """Return what a message changes of its speaker's lasting wishes, each wish once."""
    if not wishes or len(text) > LONGEST_MESSAGE:
        return []
    whole = [(wish, parts_of_wish(wish.said, judge)) for wish in wishes]
    units = [(wish, parts, n) for wish, parts in whole for n in range(len(parts))]
    best: dict[Wish, WishChange] = {}
    kept = _kept_matters(text, language)
    spoken: float | None = None
    for start, said in _windows(text):
        chances = judge.over([parts[n][1].rstrip(". ") for _, parts, n in units], said)
        if max(chances) >= CERTAIN and spoken is None:
            spoken = _chance_of_wish(text, judge)
        speaks = 1.0 if _lets_end(said, language) else spoken or 0.0
        for (wish, parts, n), chance in zip(units, chances, strict=True):
            at, part = parts[n]
            if chance < LIKELY or _goes_on(part, kept, language):
                continue
            if wish in best and best[wish].chance >= chance:
                continue
            rest = " ".join(other for number, (_, other) in enumerate(parts) if number != n)
            is_certain = chance >= CERTAIN and speaks >= (SPEAKS if chance >= SURE else WISH)
            best[wish] = WishChange(
                wish.of, wish.start + at, len(part), start, len(said), said, is_certain, chance, rest
            )
    return [replace(one, behaves=_behaviour_in(one.said, language, judge)) for one in best.values()]


def parts_of_wish(said: str, judge: WishJudge) -> list[tuple[int, str]]:
    """Return the parts of a text that are wishes by themselves, with where each begins: "answers short, and money in
    euros". The whole where it is one wish."""
    for joint in compile_pattern(r",? and |; |[.!] +", True).finditer(said):
        halves = [(0, said[: joint.start()]), (joint.end(), said[joint.end() :])]
        if all(len(half.split()) >= 3 for _, half in halves) and min(judge.wishes([h for _, h in halves])) >= WISH:
            return halves
    return [(0, said)]


def as_change(one: WishChange, said_at: datetime, message: Message) -> Change:
    """Return a change of a wish as changes are stored; `said_at`: when the wish was said."""
    grade = "certain" if one.is_certain else "likely"
    return Change(
        one.of, one.start, one.length, one.by_start, one.by_length, grade, "wish", one.chance,
        remainder=word(one.rest, said_at, message.name) if one.rest and one.is_certain else None,
        content=word(one.behaves or one.said, message.said_at, message.name, kind="instruction"),
    )  # fmt: skip


def with_wishes(
    found: Sequence[Change],
    of_wishes: Sequence[WishChange],
    wishes: Sequence[Wish],
    message: Message,
    earlier: Sequence[Earlier],
    judge: WishJudge,
) -> list[Change]:
    """Return changes, those of lasting wishes as their own judge has it, unless the message names what it changes, or
    that is a statement beside a wish: "My free day is Tuesday, so plan my week"."""
    kept = [
        change
        for change in found
        if change.form in NAMING
        or (change.grade == "certain" and _is_beside(change, earlier, judge))
        or not any(
            wish.of == change.earlier
            and change.start < wish.start + len(wish.said)
            and wish.start < change.start + change.length
            for wish in wishes
        )
    ]
    return kept + [
        as_change(one, earlier[one.of].said_at, message)
        for one in of_wishes
        if not any(
            change.earlier == one.of and change.start <= one.start < change.start + change.length for change in kept
        )
    ]


def _is_beside(change: Change, earlier: Sequence[Earlier], judge: WishJudge) -> bool:
    said = earlier[change.earlier].text[change.start - 1 : change.start - 1 + change.length]
    return max(judge.wishes([said])) < SPEAKS


def _windows(text: str) -> list[tuple[int, str]]:
    """Return a short message, and each of its sentences, and where they begin: "No more proverbs. Still Celsius"."""
    sentences = own_sentences(text)
    if not sentences:
        return []
    found = [(s.start, s.said) for s in sentences if len(s.said) <= LONGEST_WINDOW][:MOST_SENTENCES]
    end = sentences[-1].start + sentences[-1].length
    if len(sentences) > 1 and end - sentences[0].start <= LONGEST_WINDOW:
        found.append((sentences[0].start, text[sentences[0].start - 1 : end - 1]))
    return found


def _kept_matters(said: str, language: str) -> list[frozenset[str]]:
    """Return the stems of each clause in which a message says that something goes on: "the sizes stay"."""
    lasting = choices(language, "going_on")
    if not lasting:
        return []
    parts = compile_pattern(r"[.!?;,]+| (?:but|and|though) ", True).split(said)
    # "The other rule is still a rule" spares no rule that it names.
    kept = [part.lower() for part in parts if part and search(lasting, part.lower()) and not search(OTHERS, part)]
    return [read_content(part, language).stems - {"like"} for part in kept]


def _goes_on(wish: str, kept: Sequence[frozenset[str]], language: str) -> bool:
    """Return whether a message says of a wish that it goes on: it names the matter by half of its words at least."""
    stems = read_content(wish, language).stems if kept else frozenset()
    return any(2 * len(stems & matter) >= len(matter) > 0 for matter in kept)


def _chance_of_wish(text: str, judge: WishJudge) -> float:
    """Return the chance that a message or one of its sentences is a wish."""
    sentences = [sentence.said for sentence in own_sentences(text)[:MOST_SENTENCES]]
    return max([0.0, *judge.wishes([said for said in (text, *sentences) if len(said) <= LONGEST_WINDOW])])


def _lets_end(said: str, language: str) -> bool:
    ends = choices(language, "wish_ends")
    return ends is not None and search(ends, said.lower())


def _behaviour_in(said: str, language: str, judge: WishJudge) -> str:
    """Return the sentences of a message that say how the assistant behaves, else all."""
    sentences = [sentence.said for sentence in own_sentences(said)]
    chances = judge.wishes(sentences)
    told = [one for one, chance in zip(sentences, chances, strict=True) if chance >= SPEAKS or _lets_end(one, language)]
    return " ".join(told or sentences)
