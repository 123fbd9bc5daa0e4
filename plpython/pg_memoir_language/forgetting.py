"""What a request to forget means: which of the user's earlier statements, and what repeats their values.

Words find the target, and where they find none or several the judge, which reads each statement beside the request.
Where two things fit equally, nothing is forgotten and the request is unclear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from . import data
from .data import choices
from .free_requests import Judge, Likeness, Reader, find_meant
from .languages import spoken_language
from .patterns import compile_pattern
from .requests import find_requests
from .statements import read_own_statement
from .text import (
    asks,
    has_words,
    own_sentences,
    plain,
    read_clauses,
    replace_all,
    replace_first,
    search,
    split_clauses,
)
from .values import Content, read_content, stem, stems_of

LONGEST_TEXT, MOST_SENTENCES = 4000, 20
# The chance from which on the judge says that a statement is meant, and the lead that one must have over the next.
MEANT, MEANT_WITHOUT_WORDS, LEAD = 0.6, 0.85, 0.25
# Stems that tell a change or a kind of value, and no matter.
KINDS_OF_VALUE = frozenset("much mani number code date day time".split())
# Kinds of values that are looked for elsewhere when what said them is forgotten.
REPEATED = ("email", "code")
REPEATED_LONG = ("number", "date", "time")


class TargetJudge(Protocol):
    """A learnt model that reads a request beside statements."""

    def means(self, pairs: Sequence[tuple[str, str]]) -> Sequence[float]:
        """Return the chance that a request (second) means a statement (first), for each."""


@dataclass(frozen=True)
class Unit:
    """A clause of an earlier text."""

    of: int
    start: int
    length: int
    said: str
    is_question: bool
    language: str

    @cached_property
    def content(self) -> Content:
        return read_content(self.said, self.language)


@dataclass(frozen=True)
class Remembered:
    """A memory, with its slot and value where it has one."""

    content: str
    slot: str | None = None
    slot_value: str | None = None


@dataclass(frozen=True)
class Targets:
    """The spans that are meant, (text, start, length); the memories, by number; values that are looked for elsewhere.

    `outcome`: `clear`, `unclear` or `nothing`; `is_whole`: the whole turn that asks says it, too.
    """

    outcome: str
    spans: tuple[tuple[int, int, int], ...] = ()
    memories: tuple[int, ...] = ()
    values: tuple[str, ...] = ()
    is_whole: bool = False


def read_units(text: str, of: int, language: str) -> list[Unit]:
    """Return the clauses of an earlier text, questions among them."""
    units = []
    for sentence in own_sentences(text)[:MOST_SENTENCES]:
        question = asks(sentence.said, language)
        parts = split_clauses(sentence.said, language)
        for number, (start, length, said, _) in enumerate(parts, 1):
            units.append(
                Unit(of, sentence.start + start - 1, length, said, question and number == len(parts), language)
            )
    return units


def find_forgotten(
    names: str, said: str, is_all: bool, language: str, text: str, earlier: Sequence[tuple[str, bool]],
    memories: Sequence[Remembered], judge: TargetJudge | None,
) -> Targets:  # fmt: skip
    """Return what a request in a text (`said`, in plain form) that names something means: among earlier texts (with
    whether the user said them) and memories."""
    targets = find_targets(names, said, is_all, language, earlier, memories, judge)
    if targets.outcome != "nothing" or is_all:
        return targets
    # "My pay", who takes home 3,850: what has its slot.
    noise = "|".join(data.entries("english", "forget_words"))
    matter = replace_all(rf"\m(?:{noise})\M", "", replace_first("^(?:my|our|the|that|this|those) ", "", names))
    rule = read_own_statement(f"My {matter.strip()} is 1000")
    if rule and rule["slot"]:
        held = {m.slot_value for m in memories if m.slot == rule["slot"] and m.slot_value and len(m.slot_value) >= 2}
        if len(held) == 1:
            return find_targets(held.pop(), said, False, language, earlier, memories, None)
    # "… what I said about my pay, I mean the 3,900": by its value.
    values = [v.raw for v in read_content(text, language).values if v.kind in REPEATED or search(r"\d.*\d.*\d", v.raw)]
    if len(values) == 1:
        targets = find_targets(values[0], said, False, language, earlier, memories, None)
        # The turn says the value itself.
        return replace(targets, is_whole=True)
    return targets


def find_by_meaning(
    text: str, earlier: Sequence[tuple[str, bool]], language: str, judge: Judge, reader: Reader, likeness: Likeness,
    in_time: Sequence[bool] = (),
) -> Targets:  # fmt: skip
    """Return what a message that asks in free words means among earlier texts (with whether the user said them).
    `in_time`: of each whether it was said at a time that the message names."""
    meant = find_meant(text, earlier, judge, reader, likeness, language, in_time)
    if not meant.spans:
        return Targets("unclear" if meant.is_unclear else "nothing")
    said = [read_content(earlier[of][0][start - 1 : start - 1 + length], language) for of, start, length in meant.spans]
    values = [raw for content in said for raw in _repetitions(content)]
    # "Wipe him, name and all."
    if search(choices(language, "whole_persons"), text.lower()):
        values += [name for content in said for name in sorted(content.names)]
    # Of the message itself it is known what goes.
    read = {of for of, _, _ in meant.spans}
    others = find_mentions(values, frozenset(), [text for text, _ in earlier], language)
    spans = [*meant.spans, *(span for span in others if span[0] not in read)]
    return Targets("clear", tuple(dict.fromkeys(spans)), values=tuple(dict.fromkeys(values)))


def find_targets(
    names: str, said: str, is_all: bool, language: str, earlier: Sequence[tuple[str, bool]],
    memories: Sequence[Remembered], judge: TargetJudge | None,
) -> Targets:  # fmt: skip
    """Return what a request that names something means, found once."""
    topics = _topics(names, language)
    named_values = {value.key for value in read_content(plain(names, language), language).values}
    units = [
        unit
        for number, (text, is_own) in enumerate(earlier)
        if is_own and len(text) <= LONGEST_TEXT
        for unit in read_units(text, number, spoken_language(text))
    ]
    units = [unit for unit in units if not _asks_to_forget(unit, unit.language)]
    matched = [unit for unit in units if _speaks_of(unit.content, unit.said, topics, named_values, language)]
    meant, is_clear = _by_words(matched, units, names, said, is_all, topics, language)
    # Where one clause names two of them, nobody can tell.
    several = any(_holds_several(unit, names, topics, language) for unit in meant)
    if judge and not is_clear and not is_all and not several:
        chosen = _by_judge(matched or units, said, judge, MEANT if matched else MEANT_WITHOUT_WORDS)
        if chosen:
            meant, is_clear = chosen, True
    told = [n for n, memory in enumerate(memories) if topics and topics <= _all_stems(memory.content, language)]
    if not is_clear:
        # It was only ever remembered, in one memory.
        is_clear = not meant and len(told) == 1
        if not is_clear:
            return Targets("unclear" if meant or told else "nothing")
    values = tuple(dict.fromkeys(raw for unit in meant for raw in _repetitions(unit.content)))
    if not is_all and len(told) != 1:
        told = [n for n in told if any(has_words(memories[n].content, value) for value in values)]
    spans = [(unit.of, unit.start, unit.length) for unit in meant]
    if values or is_all:
        spans += find_mentions(values, topics if is_all else frozenset(), [text for text, _ in earlier], language)
    return Targets("clear", tuple(dict.fromkeys(spans)), tuple(told), values)


def find_mentions(
    values: Sequence[str], topics: frozenset[str], texts: Sequence[str], language: str
) -> list[tuple[int, int, int]]:
    """Return the clauses that hold one of some values, or speak of all of some topics: (text, start, length)."""
    return [
        (number, unit.start, unit.length)
        for number, text in enumerate(texts)
        for unit in read_units(text[: 5 * LONGEST_TEXT], number, language)
        if any(has_words(unit.said, value) for value in values) or (topics and topics <= unit.content.stems)
    ]


def speaks_of_name(names: str, text: str, language: str) -> bool:
    """Return whether a text speaks of what a request to forget names."""
    values = {value.key for value in read_content(plain(names, language), language).values}
    return _speaks_of(read_content(text, language), text, _topics(names, language), values, language)


def _topics(names: str, language: str) -> frozenset[str]:
    noise = {stem(word, language) for word in data.entries("english", "forget_words")} | set(
        data.entries("english", "forget_words")
    )
    topics = read_content(plain(names, language), language).stems - noise
    # "How much I make": what it is about else only tells a change.
    if topics <= KINDS_OF_VALUE:
        topics = _all_stems(names, language) - noise
    return frozenset(topics)


def _all_stems(text: str, language: str) -> frozenset[str]:
    """Return the stems of all words but function words."""
    words = compile_pattern("[[:alnum:]]+(?:['-][[:alnum:]]+)*").findall(text[:2000].lower())
    little = data.entry_set(language, "function_words")
    return read_content(text[:2000], language).stems | {
        found for word in words if word not in little for found in stems_of(word, language)
    }


def _speaks_of(content: Content, said: str, topics: frozenset[str], values: set[str], language: str) -> bool:
    if not topics and not values:
        return False
    if not values <= {value.key for value in content.values}:
        return False
    known = content.stems | _all_stems(said, language) | _by_speaker(content)
    share = len(topics & known) / len(topics) if topics else 1.0
    return share >= (0.66 if len(topics) >= 3 else 1.0)


def _by_speaker(content: Content) -> set[str]:
    """Return what values tell without its name being said: "my ex is called Dorian" tells a name."""
    kinds = {value.kind for value in content.values}
    told = {"name"} if content.names else set()
    if kinds & {"number", "code"}:
        told |= {"number", "code", "much", "mani", "digit", "combin"}
    if "email" in kinds:
        told |= {"email", "mail", "address"}
    if kinds & {"date", "time", "weekday"}:
        told |= {"date", "day", "time"}
    return told


def _asks_to_forget(unit: Unit, language: str) -> bool:
    return bool(find_requests(read_clauses(unit.said, language), language))


OWN = r"\m(?:i|i'm|i've|my|our|we|mein\w*|ich|mi|mis|mon|ma|je|j'\w+|meu|minha|mio|mia)\M"


def _rank(unit: Unit) -> int:
    if unit.is_question:
        return 0
    if search(OWN, unit.said):
        return 3
    return 2 if unit.content.values else 1


def _by_words(
    matched: Sequence[Unit], units: Sequence[Unit], names: str, said: str, is_all: bool, topics: frozenset[str],
    language: str,
) -> tuple[list[Unit], bool]:  # fmt: skip
    """Return the units that a request names, and whether it is clear which: of a question and a statement the
    statement, of several things none, unless all is asked for."""
    if not matched:
        return [], False
    best = max(_rank(unit) for unit in matched)
    meant = [unit for unit in matched if is_all or _rank(unit) == best]
    # "Forget the bread" may be no more than "leave it": it means what holds a value, or is named by two words.
    loose = search("^(?:just |now )*forget (?:about )?the ", said)
    things = {
        tuple(sorted(v.key for v in unit.content.values)) or unit.said.lower()
        for unit in matched
        if _rank(unit) == best
        and (unit.content.values or unit.content.names or (best == 3 and len(topics) >= 2) or not loose)
    }
    meant += _by_day(meant, units)
    several = any(_holds_several(unit, names, topics, language) for unit in meant)
    return meant, best > 0 and (is_all or (len(things) == 1 and not several))


def _holds_several(unit: Unit, names: str, topics: frozenset[str], language: str) -> bool:
    """ "Meeting with Ines on the 9th, with Raul on the 11th": two in one; "two driving lessons", of which one."""
    if language != "english" or not topics:
        return False
    shortest = min(topics, key=len)
    if len(compile_pattern(rf"\m{compile_pattern('[^[:alnum:]]').sub('.', shortest)}").findall(unit.said.lower())) > 1:
        return True
    return any(
        topic.isalnum()
        and not search(rf"{topic}[[:alpha:]]*s\M", names)
        and search(
            rf"\m(?:two|three|four|five|both|several) (?:[[:alpha:]-]+ ){{0,2}}{topic}[[:alpha:]]*s\M", unit.said
        )
        for topic in topics
    )


WHO = (
    r"^(?:[Ii]|[Ww]e)(?:'m|'re| am| are|'ve| have)? [[:lower:]]+(?: [[:lower:]]+)?(?: Dr\.?| Mr\.?| Mrs\.?| Ms\.?)?"
    r" [[:upper:]][[:alpha:]'-]+(?: [[:upper:]][[:alpha:]'-]+)?$"
)


def _by_day(meant: Sequence[Unit], units: Sequence[Unit]) -> list[Unit]:
    """Return what clauses of a sentence tell of the same: "…, it's at the corner bank", "I see Dr. Amsel, she's a
    therapist".
    """
    goes_on = rf"^(?:and |but )?(?:(?:{choices('english', 'pronouns')})(?:'s|'re)?|her|his|its|their)\M"
    found: list[Unit] = []
    open_ends = list(meant)
    while open_ends:
        unit = open_ends.pop()
        for other in units:
            if other.of != unit.of or other in meant or other in found:
                continue
            gap = other.start - unit.start - unit.length
            back = unit.start - other.start - other.length
            if (0 <= gap <= 6 and not search("[.!?…]$", unit.said) and search(goes_on, other.said)) or (
                0 <= back <= 6
                and search(WHO, other.said, False)
                and search(r"^(?:he|she|it|they)(?:'s|'re| is| are) (?:an?|the|my|our)\M", unit.said)
            ):
                found.append(other)
                open_ends.append(other)
    return found


def _by_judge(units: Sequence[Unit], said: str, judge: TargetJudge, least: float) -> list[Unit] | None:
    """Return the one thing that the judge says is meant, None where it is sure of none or of several. `least`: the
    chance from which on it is."""
    stating = [unit for unit in units if not unit.is_question][:40]
    chances = judge.means([(unit.said, said) for unit in stating])
    ranked = sorted(zip(chances, stating, strict=True), key=lambda row: -row[0])
    if not ranked or ranked[0][0] < least:
        return None
    best = ranked[0][1]
    chosen = [best]
    for chance, unit in ranked[1:]:
        if chance < least - LEAD:
            break
        # The same sentence, or the same words again.
        if (unit.of == best.of and abs(unit.start - best.start) < 200) or unit.content.stems == best.content.stems:
            chosen.append(unit)
        elif chance > ranked[0][0] - LEAD:
            return None
    return chosen


def _repetitions(content: Content) -> list[str]:
    """Return the values of a forgotten statement that are looked for elsewhere."""
    return [
        value.raw
        for value in content.values
        if value.kind in REPEATED or (value.kind in REPEATED_LONG and search(r"\d\d", value.raw))
    ]
