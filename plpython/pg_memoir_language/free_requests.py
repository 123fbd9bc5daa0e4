"""Requests to forget in free words: "That business with my foot, I'd rather you didn't keep it. The rest is fine."

The judge tells the request, with a word of forgetting as second witness, or alone where it is sure. The likeness of
meaning and the judge together tell which message of the user is meant, with a clear lead over all others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
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

    def tells(self, texts: Sequence[str]) -> Sequence[float]:
        """Return the chance that a sentence tells something and asks for nothing, for each."""

    def means(self, pairs: Sequence[tuple[str, str]]) -> Sequence[float]:
        """Return the chance that a request to forget (second) means a statement (first), for each."""


Asks = Callable[[Sequence[str]], Sequence[float]]
# The likeness of a text to others, cosines.
Likeness = Callable[[str, Sequence[str]], Sequence[float]]
# The chance from which on a sentence, or a whole message, with a word of forgetting is a request, and any other; and
# where a message says what may stay.
ASKS, ASKS_ALONE, ASKS_BESIDE_KEPT = 0.8, 0.9, 0.5
# A question with which one asks for something to be done.
ASKED_OF_YOU = r"\m(?:can|could|would|will|any (?:way|chance)) (?:you|u)\M"
# Sentences of a text that are read.
MOST_SENTENCES_READ = 12
# Earlier messages of the user that are compared, and the nearest of them that the judge reads.
MOST_MESSAGES, MOST_JUDGED = 200, 12
MOST_READ = 5  # texts of a message that the judge reads, the nearest
LONGEST_MESSAGE = 300  # characters
# A text is meant by its likeness plus the judge's log odds, read beside all of the request, beside what asks, and beside
# that with what leads to it; a message from MEANT on, with a LEAD over all others.
ODDS, MEANT, LEAD = (0.05, 0.05, 0.1), 0.12, 0.1
IN_TIME = 0.3  # what a message from the time that the request names gains
LEAST_CHANCE = 1e-3  # added to both sides of the odds
# A text loses by as much as it is nearer to what may stay.
KEPT_MARGIN, KEPT_LOSS = 0.05, 2.0
# Of what two parts of a message hold alike, such as two codes, the part that is meant less stays.
RIVAL_LEAD = 0.1
# Verbs among those of requests that let something stay.
KEEPING = frozenset("keep remember store save mention".split())
# The chance from which on a sentence tells something.
TELLS = 0.3
# Of a longer message only the sentence that is meant goes, with those beside it.
MOST_SENTENCES = 5


@dataclass(frozen=True)
class Meant:
    """The sentences that are meant, (text, start, length), or none; `is_unclear`: several messages fit as well."""

    spans: tuple[tuple[int, int, int], ...] = ()
    is_unclear: bool = False


def find_free_requests(clauses: Sequence[Clause], found: Sequence[Request], language: str, asks: Asks) -> list[Request]:
    """Return the requests among sentences of texts in one language in which no rule found any."""
    taken = {request.text_no for request in found}
    cancelled, keeps = choices(language, "forget_cancelled"), choices(language, "kept_things")
    sparing = {row.text_no for row in clauses if keeps and search(keeps, row.said.lower())}
    for number, group in groupby(sorted(clauses, key=lambda c: c.text_no), key=lambda c: c.text_no):
        if search(cancelled, " ".join(row.said for row in group if row.clause_no == 0)):
            taken.add(number)
    whole = sorted((row for row in clauses if row.clause_no == 0), key=lambda row: row.text_no)
    rows, wholes = [], {}
    for number, group in groupby(whole, key=lambda row: row.text_no):
        said = list(islice(group, MOST_SENTENCES_READ))
        if number not in taken:
            rows += [row for row in said if _may_ask(row.said, row.plain, language)]
            # "… oh forget it, my phone is dying" gives up, whatever else it says.
            gives_up = any(search(choices(language, "forget_idioms"), row.plain) for row in said)
            wholes[number] = "" if gives_up else " ".join(row.said for row in said)
    read = [number for number in {row.text_no: None for row in rows} if 0 < len(wholes[number]) <= LONGEST_MESSAGE]
    chances = asks([*(row.said for row in rows), *(wholes[number] for number in read)]) if rows else []
    formed = [_has_form(row.said, language) for row in rows]
    asking = [
        row
        for row, chance, has_form in zip(rows, chances, formed, strict=False)
        if chance >= (ASKS if has_form else ASKS_ALONE)
        or (chance >= ASKS_BESIDE_KEPT and row.text_no in sparing and _divide([row.said], language)[0])
    ]
    found_in = {row.text_no for row in asking}
    for number, chance in zip(read, chances[len(rows) :], strict=True):
        mine = [n for n, row in enumerate(rows) if row.text_no == number]
        if number not in found_in and chance >= (ASKS if any(formed[n] for n in mine) else ASKS_ALONE):
            asking.append(rows[max(mine, key=lambda n: chances[n])])
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


def _may_ask(said: str, plain: str, language: str) -> bool:
    if len(said) > LONGEST_SENTENCE or search(choices(language, "forget_idioms"), plain):
        return False
    return not said.rstrip().endswith("?") or search(ASKED_OF_YOU, said.lower())


def _has_form(said: str, language: str) -> bool:
    """Return whether a sentence has a word of forgetting about what may not stay."""
    forms = choices(language, "forget_freely")
    asked, _ = _divide([said], language)
    return forms is not None and search(forms, asked.lower(), False)


@dataclass(frozen=True)
class _Message:
    """An earlier message with its sentences that tell something."""

    number: int
    sentences: tuple[Sentence, ...]
    whole: str

    @property
    def texts(self) -> list[str]:
        return [*(s.said for s in self.sentences), self.whole]


def find_meant(
    text: str, earlier: Sequence[tuple[str, bool]], judge: Judge, likeness: Likeness, language: str,
    in_time: Sequence[bool] = (),
) -> Meant:  # fmt: skip
    """Return what a message that asks to forget means of earlier texts (with whether the user said them). `in_time`: of
    each whether it was said at a time that the message names."""
    sentences = [s.said for s in own_sentences(text)]
    chances = judge.asks(sentences) if sentences else []
    keeps = choices(language, "kept_things")
    least = ASKS_BESIDE_KEPT if keeps and search(keeps, text.lower()) else ASKS
    asking = [n for n, chance in enumerate(chances) if chance >= least]
    if not asking and chances and len(text) <= LONGEST_MESSAGE and judge.asks([" ".join(sentences)])[0] >= ASKS:
        asking = [max(range(len(chances)), key=lambda n: chances[n])]
    if not asking:
        return Meant()
    asked, kept = _divide([sentences[n] for n in asking], language)
    if not asked:
        return Meant()
    # Sentences before the request tell its matter, those behind it most often name things that may stay.
    led = " ".join([*sentences[: asking[0]], asked])
    kept = " ".join(filter(None, (kept, *sentences[asking[-1] + 1 :])))
    messages: list[_Message] = []
    for number, (said, is_own) in enumerate(earlier):
        told = tuple(s for s in own_sentences(said)[:20] if s.said not in sentences) if is_own else ()
        if told and len(messages) < MOST_MESSAGES:
            messages.append(_Message(number, told, said[:LONGEST_MESSAGE]))
    # "The interview on the 19th": what names a value means what holds it.
    named = {value.key for value in read_content(asked, language).values}
    with_value = [m for m in messages if named and named <= {v.key for v in read_content(m.whole, language).values}]
    messages = with_value or messages
    request = _Asked((" ".join(sentences), asked, led), kept, judge, likeness)
    request.read(text for message in messages for text in message.texts)
    ranked = []
    for message in sorted(messages, key=lambda message: -request.near(message.texts))[:MOST_JUDGED]:
        if max(judge.tells([s.said for s in message.sentences])) >= TELLS:
            then = IN_TIME if in_time and in_time[message.number] else 0.0
            ranked.append((request.score(message.texts) + then, message))
    ranked.sort(key=lambda row: -row[0])
    if not ranked or ranked[0][0] < MEANT:
        return Meant()
    if len(ranked) > 1 and ranked[1][0] > ranked[0][0] - LEAD:
        return Meant(is_unclear=True)
    return Meant(_spans(ranked[0][1], request, language))


@dataclass(frozen=True)
class _Asked:
    """A request: all of it, what asks, and that with what leads to it; what may stay."""

    texts: tuple[str, str, str]
    kept: str
    judge: Judge
    likeness: Likeness

    known: dict[str, tuple[float, float]] = field(default_factory=dict)

    def read(self, texts: Iterable[str]) -> None:
        """Learn how near texts come to what asks, and to what may stay, all at once: an encoder reads them together."""
        new = list(dict.fromkeys(text for text in texts if text not in self.known))
        if new:
            near = [self.likeness(one, new) for one in dict.fromkeys(self.texts[1:])]
            stays = self.likeness(self.kept, new) if self.kept else [-1.0] * len(new)
            # One row alone is no argument for max.
            self.known.update(zip(new, zip(map(max, *near, near[0]), stays, strict=True), strict=True))

    def near(self, texts: Sequence[str]) -> float:
        """Return how near the nearest of some texts comes to what asks."""
        self.read(texts)
        return max(self.known[text][0] for text in texts)

    def score(self, texts: Sequence[str]) -> float:
        """Return how much some texts are meant together: by the nearest of them, and the one that the judge is surest
        of, among the nearest."""
        near = self.near(texts)
        judged = sorted(dict.fromkeys(texts), key=lambda text: -self.known[text][0])[:MOST_READ]
        odds = [max(_log_odds(c) for c in self.judge.means([(one, asked) for one in judged])) for asked in self.texts]
        lost = max(0.0, max(self.known[text][1] for text in texts) - near + KEPT_MARGIN)
        return near + sum(weight * one for weight, one in zip(ODDS, odds, strict=True)) - KEPT_LOSS * lost


def _log_odds(chance: float) -> float:
    return math.log((chance + LEAST_CHANCE) / (1 - chance + LEAST_CHANCE))


def _spans(message: _Message, request: _Asked, language: str) -> tuple[tuple[int, int, int], ...]:
    """Return what goes of a message: of a long one the sentence that is meant with those beside it, without the parts
    that hold something of the same kind and are meant less."""
    sentences = message.sentences
    if len(sentences) > MOST_SENTENCES:
        best = max(range(len(sentences)), key=lambda n: request.near([sentences[n].said]))
        first = max(0, best - 1)
        sentences = sentences[first : best + 2]
    parts = [(s, start, said) for s in sentences for start, said in _divide_parts(s.said, language)]
    kinds = [_kinds(said, language) for _, _, said in parts]
    stays = [False] * len(parts)
    if sum(map(bool, kinds)) > 1:
        request.read(said for *_, said in parts)
        worths = [request.score([said]) for *_, said in parts]
        best = max((n for n, kind in enumerate(kinds) if kind), key=lambda n: worths[n])
        stays = [bool(k & kinds[best]) and w < worths[best] - RIVAL_LEAD for k, w in zip(kinds, worths, strict=True)]
    # Sentences of which all goes, and parts of the others.
    parted = {s.start for (s, _, _), stay in zip(parts, stays, strict=True) if stay}
    spans = [(s.start, s.length) for s in sentences if s.start not in parted]
    spans += [
        (s.start + start, len(said))
        for (s, start, said), stay in zip(parts, stays, strict=True)
        if s.start in parted and not stay
    ]
    return tuple((message.number, *span) for span in sorted(spans))


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


def _kinds(said: str, language: str) -> set[str]:
    """Return the kinds of values that a part holds, or "name"."""
    content = read_content(said, language)
    return {"name"} if content.names and not content.values else {value.kind for value in content.values}


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
