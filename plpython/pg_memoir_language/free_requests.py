"""Requests to forget in free words: "That business with my foot, I'd rather you didn't keep it. The rest is fine."

The judge tells the request by its sentences, with a word of forgetting as second witness, or alone where it is sure.
A head over it reads the whole message: it tells requests beside a little of that, and denies what only sounds like one.
Heads also tell which parts of which messages are meant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Protocol

from . import data
from .data import choices
from .patterns import compile_pattern
from .requests import LONGEST_NAME, LONGEST_SENTENCE, Request
from .text import Clause, Sentence, own_sentences, search
from .values import read_content


class Judge(Protocol):
    """A learnt model that reads sentences."""

    def asks(self, texts: Sequence[str]) -> Sequence[float]:
        """Return the chance that a sentence asks to forget something, for each."""


class RequestJudge(Judge, Protocol):
    """A learnt model that reads sentences and messages."""

    def requests(self, texts: Sequence[str]) -> Sequence[float] | None:
        """Return the chance that a message asks to forget something that was said before, for each, or None where the
        judge alone decides."""


# The likeness of a text to others, cosines.
Likeness = Callable[[str, Sequence[str]], Sequence[float]]
# The chance from which on a sentence with a word of forgetting is a request, and any other; and where a message
# says what may stay.
ASKS, ASKS_ALONE, ASKS_BESIDE_KEPT = 0.8, 0.9, 0.5
# The chance of the whole message from which on it is a request, if the judge gives a sentence of it A_LITTLE.
ASKS_IN_ALL, A_LITTLE = 0.85, 0.1
# The chance of the whole message below which a sentence with a word of forgetting is no request, and any other.
MAY_ASK, MAY_ASK_ALONE = 0.6, 0.85
# The same in a message too long to be read whole: of the sentence with so many on each side.
ASKS_AMONG, NEIGHBOURS = 0.8, 2
LEAST_WORDS = 3  # of a sentence that is a request by its whole message alone
# The chance of the whole message from which on a short sentence, an idiom ("forget it") or a question without "can you"
# asks, if the judge gives it the second.
ASKS_SURELY, LIKELY_ASKS = 0.95, 0.6
# A question with which one asks for something to be done.
ASKED_OF_YOU = r"\m(?:can|could|would|will|any (?:way|chance)) (?:you|u)\M"
# Sentences of a text that are read.
MOST_SENTENCES_READ = 12
# Earlier messages of the user that are compared, and the nearest of them that the heads read.
MOST_MESSAGES, MOST_JUDGED = 200, 10
LONGEST_MESSAGE = 300  # characters
# The chance from which on a part is meant, the one of parts beside it in its message where nothing is said to stay, and
# the one of what might be meant.
MEANT, BESIDE, UNCLEAR = 0.4, 0.27, 0.28
# A part whose log odds are lower by GAP than those of its message's best part stays, and a message whose best part is
# lower by LEAD than the best of all.
GAP, LEAD = 0.8, 0.7
IN_TIME = 4.0  # log odds that a message from the time that the request names gains
# Verbs among those of requests that let something stay.
KEEPING = frozenset("keep remember store save mention".split())


@dataclass(frozen=True)
class Meant:
    """The spans that a request means, (text, start, length), or none; `is_unclear`: something might be meant."""

    spans: tuple[tuple[int, int, int], ...] = ()
    is_unclear: bool = False


def find_free_requests(
    clauses: Sequence[Clause], found: Sequence[Request], language: str, judge: RequestJudge, is_at_work: bool = False
) -> list[Request]:
    """Return the requests among sentences of texts in one language in which no rule found any.

    `is_at_work`: an agent runs commands for the speaker, whose tasks sound like requests ("lint the code"), so that a
    sentence needs a word of forgetting.
    """
    taken = {request.text_no for request in found}
    cancelled, keeps = choices(language, "forget_cancelled"), choices(language, "kept_things")
    sparing = {row.text_no for row in clauses if keeps and search(keeps, row.said.lower())}
    for number, group in groupby(sorted(clauses, key=lambda c: c.text_no), key=lambda c: c.text_no):
        if search(cancelled, " ".join(row.said for row in group if row.clause_no == 0)):
            taken.add(number)
    whole = sorted((row for row in clauses if row.clause_no == 0), key=lambda row: row.text_no)
    read: list[_Asking] = []
    for number, group in groupby(whole, key=lambda row: row.text_no):
        said = list(islice(group, MOST_SENTENCES_READ))
        open_to = [row for row in said if number not in taken and len(row.said) <= LONGEST_SENTENCE]
        open_to = [row for row in open_to if not is_at_work or _has_form(row.said, language)]
        may_ask = [row for row in open_to if _may_ask(row.said, row.plain, language)]
        might = [
            row
            for row in open_to
            if row not in may_ask and (not row.said.rstrip().endswith("?") or _has_form(row.said, language))
        ]
        if may_ask or might:
            read.append(_Asking(said, may_ask, might))
    asking = _find_asking(read, sparing, judge, language)
    # "How do I get rid of moths? I want them gone." asks for help.
    seeking = {row.text_no for row in clauses if search(r"^how (?:do|can|could|would|should|to)\M", row.said.lower())}
    asking = [row for row in asking if row.text_no not in seeking]
    requests = []
    for number, group in groupby(sorted(asking, key=lambda c: c.text_no), key=lambda c: c.text_no):
        first = next(group)
        requests.append(
            Request(
                number, first.sentence_start, len(first.sentence), first.said[:LONGEST_NAME], False, language,
                first.plain, is_free=True,
            )
        )  # fmt: skip
    return requests


@dataclass(frozen=True)
class _Asking:
    """The sentences of a message, those of them that may ask, and those that might where it is quite sure."""

    said: list[Clause]
    may_ask: list[Clause]
    might: list[Clause]


@dataclass(frozen=True)
class _Judged:
    """Of a message: the sentences that ask, with the least chance that each must have; that which asks where the whole
    is likely to, that where it is sure to; what is read as the whole, and whether this is a part of it."""

    told: list[tuple[Clause, float]]
    likeliest: list[Clause]
    surest: list[Clause]
    around: str
    is_part: bool


def _find_asking(
    read: Sequence[_Asking], sparing: Container[int], judge: RequestJudge, language: str
) -> list[Clause]:  # fmt: skip
    """Return the sentences that ask."""
    chances = iter(judge.asks([row.said for one in read for row in (*one.may_ask, *one.might)]) if read else [])
    messages = [
        _read_message(one, list(islice(chances, len(one.may_ask) + len(one.might))), sparing, language) for one in read
    ]
    messages = [one for one in messages if one.told or one.likeliest or one.surest]
    wholes = judge.requests([one.around for one in messages])
    if wholes is None:
        return [row for one in messages for row, _ in one.told]
    asking: list[Clause] = []
    for one, whole in zip(messages, wholes, strict=True):
        found = [row for row, least in one.told if whole >= _least_of_all(least, one.is_part)]
        if not found and whole >= ASKS_IN_ALL:
            found = one.likeliest
        asking += found or (one.surest if whole >= ASKS_SURELY else [])
    return asking


def _read_message(one: _Asking, chances: Sequence[float], sparing: Container[int], language: str) -> _Judged:
    judged = list(zip((*one.may_ask, *one.might), chances, strict=True))
    asking, (likeliest, chance) = judged[: len(one.may_ask)], max(judged, key=lambda of: of[1])
    least = [_least(row, row.text_no in sparing, language) for row, _ in asking]
    told = [(row, least) for (row, chance), least in zip(asking, least, strict=True) if chance >= least]
    surest = [likeliest] if chance >= LIKELY_ASKS else []
    sentences, at = [row.said for row in one.said], one.said.index(told[0][0] if told else likeliest)
    around = " ".join(sentences)
    is_long = len(around) > LONGEST_MESSAGE
    if is_long:
        around = " ".join(sentences[max(0, at - NEIGHBOURS) : at + NEIGHBOURS + 1])
    is_short = len(likeliest.said.split()) < LEAST_WORDS
    idioms = choices(language, "forget_idioms")
    # "… oh forget it, my phone is dying" gives up, whatever else it says.
    gives_up = any(search(idioms, row.plain) for row in one.said)
    weak = likeliest in one.might or is_long or is_short or gives_up or chance < A_LITTLE
    return _Judged(told, [] if weak else [likeliest], surest, around, is_long)


def _least(row: Clause, is_sparing: bool, language: str) -> float:
    """Return the chance from which on a sentence asks."""
    if is_sparing and _divide([row.said], language)[0]:
        return ASKS_BESIDE_KEPT
    return ASKS if _has_form(row.said, language) else ASKS_ALONE


def _least_of_all(least: float, is_long: bool) -> float:
    """Return the chance that the whole message must have. `least`: what its sentence must have to ask."""
    if is_long:
        return ASKS_AMONG
    return MAY_ASK if least < ASKS_ALONE else MAY_ASK_ALONE


def _may_ask(said: str, plain: str, language: str) -> bool:
    if search(choices(language, "forget_idioms"), plain):
        return False
    # "Can you unteach that?" asks for something else to be done.
    return not said.rstrip().endswith("?") or (search(ASKED_OF_YOU, said.lower()) and _has_form(said, language))


def _has_form(said: str, language: str) -> bool:
    """Return whether a sentence has a word of forgetting about what may not stay."""
    forms = choices(language, "forget_freely")
    asked, _ = _divide([said], language)
    return forms is not None and search(forms, asked.lower(), False)


@dataclass(frozen=True)
class Asked:
    """A request to forget: all of its message, what asks, that with what leads to it, and what may stay (or "")."""

    whole: str
    asked: str
    led: str
    kept: str


# An earlier message, and its parts with where they start, from 1 on.
Parted = tuple[str, Sequence[tuple[int, str]]]


class Reader(Protocol):
    """A learnt model that reads a request beside all that it may mean."""

    def meant(self, asked: Asked, messages: Sequence[Parted]) -> Sequence[Sequence[float]]:
        """Return the chance that a request means each part of each message."""


@dataclass(frozen=True)
class _Message:
    """An earlier message: its sentences, and their parts with where they start."""

    number: int
    whole: str
    sentences: tuple[Sentence, ...]
    parts: tuple[tuple[int, str], ...]


def read_asked(text: str, judge: Judge, language: str) -> Asked | None:
    """Return what a message asks to forget: the sentences that the judge takes for a request, or the likeliest one."""
    sentences = [s.said for s in own_sentences(text)]
    if not sentences:
        return None
    chances = judge.asks(sentences)
    keeps = choices(language, "kept_things")
    least = ASKS_BESIDE_KEPT if keeps and search(keeps, text.lower()) else ASKS
    likeliest = max(range(len(chances)), key=lambda n: chances[n])
    asking = [n for n, chance in enumerate(chances) if chance >= least] or [likeliest]
    asked, kept = _divide([sentences[n] for n in asking], language)
    asked = asked or " ".join(sentences[n] for n in asking)
    # Sentences before the request tell its matter, those behind it most often name things that may stay.
    led = " ".join([*sentences[: asking[0]], asked])
    kept = " ".join(filter(None, (kept, *sentences[asking[-1] + 1 :])))
    return Asked(" ".join(sentences), asked, led, kept)


def find_meant(
    text: str, earlier: Sequence[tuple[str, bool]], judge: Judge, reader: Reader, likeness: Likeness, language: str,
    in_time: Sequence[bool] = (),
) -> Meant:  # fmt: skip
    """Return what a message that asks to forget means of earlier texts (with whether the user said them). `in_time`: of
    each whether it was said at a time that the message names."""
    asked = read_asked(text, judge, language)
    if asked is None:
        return Meant()
    repeated = {s.said for s in own_sentences(text)}
    messages: list[_Message] = []
    for number, (said, is_own) in enumerate(earlier):
        told = tuple(s for s in own_sentences(said)[:MOST_SENTENCES_READ] if s.said not in repeated) if is_own else ()
        if told and len(messages) < MOST_MESSAGES:
            messages.append(_Message(number, said, told, tuple(parts_of(told, language))))
    # "The interview on the 19th": what names a value means what holds it.
    named = {value.key for value in read_content(asked.asked, language).values}
    with_value = [
        m
        for m in messages
        if named and named <= {v.key for s in m.sentences for v in read_content(s.said, language).values}
    ]
    messages = _nearest(with_value or messages, asked, likeness)
    if not messages:
        return Meant()
    chances = reader.meant(asked, [(m.whole, m.parts) for m in messages])
    if in_time:
        chances = [
            [moved(c, IN_TIME) if in_time[m.number] else c for c in of] for m, of in zip(messages, chances, strict=True)
        ]
    best = max(map(max, chances))
    if best < MEANT:
        return Meant(is_unclear=best >= UNCLEAR)
    limits = max(MEANT, moved(best, -LEAD)), MEANT if asked.kept else BESIDE
    spans = [span for m, of in zip(messages, chances, strict=True) for span in _spans(m, of, *limits)]
    return Meant(tuple(spans))


def _nearest(messages: Sequence[_Message], asked: Asked, likeness: Likeness) -> list[_Message]:
    """Return the messages with the parts that come nearest to what is asked, in their order."""
    texts = list(dict.fromkeys(part for m in messages for _, part in m.parts))
    near = dict(zip(texts, map(max, likeness(asked.asked, texts), likeness(asked.led, texts)), strict=True))
    ranked = sorted(messages, key=lambda m: -max(near[part] for _, part in m.parts))
    return sorted(ranked[:MOST_JUDGED], key=lambda m: m.number)


def moved(chance: float, odds: float) -> float:
    """Return a chance with other log odds."""
    return chance * math.exp(odds) / (1 - chance + chance * math.exp(odds))


def _spans(
    message: _Message, chances: Sequence[float], of_best: float, beside: float
) -> list[tuple[int, int, int]]:  # fmt: skip
    """Return what goes of a message: the sentences of which all parts are meant, and parts of the others. The chances
    of its best part, and of those beside it, must be as high as `of_best` and `beside`."""
    best = max(chances)
    if best < of_best:
        return []
    least = max(beside, moved(best, -GAP))
    spans = []
    for sentence in message.sentences:
        end = sentence.start + sentence.length
        mine = [
            (at, part, c >= least)
            for (at, part), c in zip(message.parts, chances, strict=True)
            if sentence.start <= at < end
        ]
        if all(goes for *_, goes in mine):
            spans.append((message.number, sentence.start, sentence.length))
        else:
            spans += [(message.number, at, len(part)) for at, part, goes in mine if goes]
    return spans


def parts_of(sentences: Sequence[Sentence], language: str) -> list[tuple[int, str]]:
    """Return the parts of a message's sentences, and where they start."""
    return [(s.start + start, part) for s in sentences for start, part in _divide_parts(s.said, language)]


def _divide_parts(sentence: str, language: str) -> list[tuple[int, str]]:
    """Return the parts of a sentence, of two words or with a number, and where they start."""
    parts: list[tuple[int, str]] = []
    start = 0
    joints = choices(language, "part_joints")
    between = rf"[,;:]\s+(?:(?:{joints})\s+)?|\s+[-–—]\s+|\s+(?:{joints})\s+" if joints else r"[,;:]\s+|\s+[-–—]\s+"
    for match in [*compile_pattern(between).finditer(sentence), None]:
        end = match.start() if match else len(sentence)
        part = sentence[start:end]
        if len(part.split()) > 1 or any(map(str.isdigit, part)):
            parts.append((start, part))
        elif parts:
            first, _ = parts.pop()
            parts.append((first, sentence[first:end]))
        else:
            continue
        start = match.end() if match else end
    return parts or [(0, sentence)]


def _divide(sentences: Sequence[str], language: str) -> tuple[str, str]:
    """Return what sentences ask for, and what they say may stay: behind "keep the phone number and the door code" both,
    until one asks again."""
    keeps = choices(language, "kept_things")
    kept: list[str] = []
    asked: list[str] = []
    for sentence in sentences:
        if not (keeps and search(keeps, sentence.lower())):
            asked.append(sentence)
            continue
        stays = False
        for _, part in _divide_parts(sentence, language):
            stays = bool(search(keeps, part.lower())) or (stays and not _opens_request(part, language))
            (kept if stays else asked).append(part)
    return " ".join(asked), " ".join(kept)


def _opens_request(part: str, language: str) -> bool:
    """Return whether a part of a sentence begins with a verb of forgetting: "wipe the bank stuff"."""
    words = [word for word in part.lower().split() if word not in ("and", "but", "please", "pls", "just", "then", "so")]
    return bool(words) and words[0] in data.entries(language, "forget_verbs") and words[0] not in KEEPING
