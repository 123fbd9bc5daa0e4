"""The written texts (texts/<writer>.jsonl) as examples to learn from. Each line is one object, of five kinds:

{"statement": an earlier statement of the user, "kind": "f" a fact | "p" a preference | "i" an instruction | "t" about others,
 "later": [later messages, each read beside it, behind a mark and a blank]}. The marks: `!` something else holds since, `-` it
 holds no longer, `~` a part of it (named after `||`) holds no longer, `+` adds to it, `=` says it again, `.` leaves it be, `x` asks
 to forget it, `X` asks to forget something near it. After `||` of `!` and `-` stand the words that say so.
 "message": the whole message that the statement stands in, where it is a part of one}.
{"class": one of CLASSES, "texts": [sentences of that class]}.
{"topic": a word, "said": [messages of friends]}: of two of one topic neither makes the other untrue.
{"earlier": [earlier messages], "message": a later one, "over": [indexes of what is untrue since]}.
{"earlier": [what one person said at different times], "later": [[mark, [indexes], a later message], …]}: `!` these hold no longer,
 `x` asks to forget these, `.` neither.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TEXTS = Path(__file__).parent / "texts"
# Fact, preference, instruction, one-off, about others, request to forget, question, hypothetical, nothing.
CLASSES = "fpiotxqhn"
RELATIONS = ("unrelated", "adds", "same", "replaced", "ended", "partly ended")
MARKS = {".": 0, "+": 1, "=": 2, "!": 3, "-": 4, "~": 5}
FIRST_OVER = 3  # relations from here on make the earlier statement untrue
TASKS = ("sentence", "pair", "target")
# The label of a sentence of any class but a request to forget.
NO_REQUEST = -1
SHORT_MESSAGE = 240
SENTENCE_END = r"(?<=[.!?…])\s+|\n+"


@dataclass(frozen=True)
class Example:
    """One row to learn: a sentence with its class, a pair with its relation, a request with whether it means `old`."""

    task: str
    old: str
    new: str
    label: int
    writer: str
    weight: float = 1.0
    is_near: bool = False  # beside what is meant: never left out


@dataclass
class Block:
    """`later`: the mark, the text as it is read beside the statement."""

    writer: str
    kind: str
    old: str
    later: list[tuple[str, str]] = field(default_factory=list)
    message: str = ""


@dataclass(frozen=True)
class Person:
    """What one person said, and later messages: the mark, which of `earlier` it is about, the text."""

    writer: str
    earlier: tuple[str, ...]
    later: tuple[tuple[str, frozenset[int], str], ...]


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text("utf-8").splitlines():
        yield json.loads(line)


def read_blocks(path: Path) -> Iterator[Block]:
    for row in read_rows(path):
        if "statement" in row:
            later = [(text[0], as_read(*(part.strip() for part in text[2:].split("||")))) for text in row["later"]]
            yield Block(path.stem, row["kind"], row["statement"], later, row.get("message", ""))


def as_read(text: str, words: str = "") -> str:
    """Return a message as changes.py reads it: a short one whole, of a long one the sentence that has the words (else
    the last one) with the one before."""
    if len(text) <= SHORT_MESSAGE:
        return text
    sentences = re.split(SENTENCE_END, text)
    at = next((n for n, sentence in enumerate(sentences) if words and words in sentence), len(sentences) - 1)
    return " ".join(sentences[max(0, at - 1) : at + 1])


@dataclass
class Material:
    """All that writers wrote, by writer."""

    blocks: list[Block]
    sentences: list[Example]
    pairs: list[Example]
    chat: list[tuple[str, list[str]]] = field(default_factory=list)
    people: list[Person] = field(default_factory=list)

    def of(self, writers: set[str]) -> Material:
        return Material(
            [b for b in self.blocks if b.writer in writers],
            [s for s in self.sentences if s.writer in writers],
            [p for p in self.pairs if p.writer in writers],
            [c for c in self.chat if c[0] in writers],
            [p for p in self.people if p.writer in writers],
        )

    @property
    def writers(self) -> list[str]:
        return sorted({x.writer for x in [*self.blocks, *self.sentences, *self.pairs, *self.people]})

    @property
    def texts(self) -> int:
        said = {b.old for b in self.blocks} | {text for b in self.blocks for _, text in b.later}
        said |= {text for p in self.people for text in (*p.earlier, *(text for *_, text in p.later))}
        return len(said | {s.new for s in self.sentences} | {t for p in self.pairs for t in (p.old, p.new)})


def load(folder: Path = TEXTS) -> Material:
    material = Material([], [], [])
    for path in sorted(folder.glob("*.jsonl")):
        writer = path.stem
        material.blocks += read_blocks(path)
        for row in read_rows(path):
            if "class" in row:
                label = CLASSES.index(row["class"])
                material.sentences += [Example("sentence", "", text, label, writer) for text in row["texts"]]
            elif "topic" in row:
                material.chat.append((writer, row["said"]))
            elif "later" in row and "earlier" in row:
                later = tuple((mark, frozenset(about), text) for mark, about, text in row["later"])
                material.people.append(Person(writer, tuple(row["earlier"]), later))
            elif "earlier" in row:
                for number, old in enumerate(row["earlier"]):
                    over = number in row["over"]
                    material.pairs.append(Example("pair", old, row["message"], 3 if over else 0, writer, 0.7))
    return material


def examples(material: Material, chance: random.Random) -> list[Example]:
    """Return the rows of an epoch: what was written, and pairs of what does not belong together."""
    rows = [*material.sentences, *material.pairs]
    blocks = material.blocks
    beside: dict[str, list[Block]] = {}
    for block in blocks:
        if block.message:
            beside.setdefault(block.message, []).append(block)
    questions = [s.new for s in material.sentences if CLASSES[s.label] in "qno"]
    for block in blocks:
        writer = block.writer
        rows.append(Example("sentence", "", block.old, CLASSES.index(block.kind), writer))
        said_again = [text for mark, text in block.later if mark == "="]
        calm = [text for mark, text in block.later if mark in "+.=" and not text.endswith("?")]
        asks = any(mark in "xX" for mark, _ in block.later)
        for mark, text in block.later:
            if mark in MARKS:
                rows.append(Example("pair", block.old, text, MARKS[mark], writer))
                if block.message and len(block.message) <= SHORT_MESSAGE and chance.random() < 0.4:
                    rows.append(Example("pair", block.message, text, MARKS[mark], writer, 0.5))
                # What it leaves be of the same message.
                for other in beside.get(block.message, []):
                    if other is not block and text not in {t for _, t in other.later}:
                        rows.append(Example("pair", other.old, text, 0, writer, 0.7))
                if said_again and mark != "=" and chance.random() < 0.5:
                    rows.append(Example("pair", chance.choice(said_again), text, MARKS[mark], writer, 0.5))
                # What a message leaves be beside it.
                others = [c for c in calm if c != text]
                if others and mark in "!-~" and chance.random() < 0.5:
                    rows.append(Example("pair", chance.choice(others), text, 0, writer, 0.4))
                elif others and chance.random() < 0.3:
                    rows.append(Example("pair", chance.choice(others), text, 0, writer, 0.6))
            if mark in "xX":
                rows.append(Example("target", block.old, text, int(mark == "x"), writer))
                rows.append(Example("sentence", "", text, CLASSES.index("x"), writer))
                for other in chance.sample(blocks, 2):
                    if other is not block:
                        rows.append(Example("target", other.old, text, 0, writer))
            else:
                if asks and mark == "." and chance.random() < 0.7:
                    rows.append(Example("sentence", "", text, NO_REQUEST, writer))
                    rows.append(Example("target", block.old, text, 0, writer))
                if mark in "!-~":
                    other = chance.choice(blocks)
                    if other is not block:
                        rows.append(Example("pair", other.old, text, 0, writer, 0.7))
                    if questions and chance.random() < 0.3:
                        rows.append(Example("pair", chance.choice(questions), text, 0, writer, 0.7))
                if chance.random() < 0.3:
                    rows.append(Example("target", block.old, text, 0, writer))
            if mark == "." and text.endswith("?") and len(text) < 120:
                rows.append(Example("sentence", "", text, CLASSES.index("q"), writer, 0.4))
    for sentence in material.sentences:
        if CLASSES[sentence.label] != "x" and blocks and chance.random() < 0.5:
            rows.append(Example("pair", chance.choice(blocks).old, sentence.new, 0, sentence.writer, 0.7))
            rows.append(Example("target", chance.choice(blocks).old, sentence.new, 0, sentence.writer, 0.5))
    for person in material.people:
        rows += _of_person(person, chance)
    return rows


def _of_person(person: Person, chance: random.Random) -> Iterator[Example]:
    """Yield what a person's later messages say of each of the earlier statements."""
    writer = person.writer
    for mark, about, text in person.later:
        asks = mark == "x"
        yield Example("sentence", "", text, CLASSES.index("x") if asks else NO_REQUEST, writer)
        for number, old in enumerate(person.earlier):
            is_meant = number in about
            if asks:
                # Told apart from what lies near it: these count as much as what is meant.
                yield Example("target", old, text, int(is_meant), writer, is_near=True)
            elif mark == "!":
                yield Example("pair", old, text, FIRST_OVER if is_meant else 0, writer, 1.0 if is_meant else 0.7, True)
                if chance.random() < 0.15:
                    yield Example("target", old, text, 0, writer, 0.5)
            elif chance.random() < 0.6:
                yield Example("pair", old, text, 0, writer, 0.7)
                if chance.random() < 0.25:
                    yield Example("target", old, text, 0, writer, 0.5)


def calm_pairs(topics: list[tuple[str, list[str]]], count: int, chance: random.Random) -> list[Example]:
    """Return pairs of messages of conversations in which little changes: one sentence of one beside another, whole."""
    rows = []
    for _ in range(count if topics else 0):
        writer, one = chance.choice(topics)
        other = one if chance.random() < 0.8 else chance.choice(topics)[1]
        if len(one) < 2:
            continue
        old, new = chance.choice(one), chance.choice(other)
        sentences = [s for s in re.split(r"(?<=[.!?])\s+", old) if 12 <= len(s) <= 300 and not s.endswith("?")]
        if old != new and sentences:
            rows.append(Example("pair", chance.choice(sentences), new[:500], 0, writer, 0.8))
    return rows


def conversations(path: Path) -> list[tuple[str, list[str]]]:
    """Return what users say in conversations on disk (RealMem, ProactiveMemBench), by stretches of forty messages that
    follow each other."""
    texts = []
    for file in sorted(path.rglob("*.json")):
        said: list[str] = []
        _collect(json.loads(file.read_text("utf-8")), said)
        texts += [(path.name, said[at : at + 40]) for at in range(0, len(said), 40)]
    return texts


def _collect(value: object, said: list[str]) -> None:
    if isinstance(value, dict):
        role = str(value.get("role") or value.get("speaker") or "").lower()
        if role == "user" and isinstance(value.get("content"), str):
            said.append(" ".join(value["content"].split()))
        for part in value.values():
            _collect(part, said)
    elif isinstance(value, list):
        for part in value:
            _collect(part, said)


# Variation --------------------------------------------------------------------------------------------------------

POOLS = (
    (
        "Leeds Bradford Cardiff Manchester Bristol London Lisbon Cologne Berlin Ghent Kiel Bergen Oslo Galway Rome Vienna Dublin Boston"
        " York Paris Melbourne Riga Turin Naples Valencia Lille Malmö Aarhus Turku Denver Austin Quito Lima Osaka Nairobi Perth Cork"
        " Exeter Dresden Mainz Basel Bern Portland Seattle Chicago Tampa Omaha Brisbane Sydney Glasgow Bath Hull Porto Madrid"
    ).split(),
    (
        "Mia Tom Sandra Oleg Priya Petra Hannah Leo Finn Marta Maria Sam Ben Mehmet Camila Yuki Kai Jana Nina Robert Piotr Grace Ana"
        " Tess Bea Jo Lena Karim Lucia Marco Theo Robin Jonas Luca Toby Tim Kate Ines Aoife Noor Tariq Sven Freya Ivo Nadia Pavel Zoe"
        " Hugo Diego Elif Farid Gwen Imani Kofi Lotte Malik Nora Otto Rosa Vera Daisy Walt Ruth Earl Dana Josh Kim"
    ).split(),
    "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split(),
    "January February March April June July August September October November December".split(),
)  # fmt: skip
NAMED = [
    re.compile(rf"\b({'|'.join(sorted(pool, key=len, reverse=True))})(?=(?:s|'s)?\b)", re.I if n > 1 else 0)
    for n, pool in enumerate(POOLS)
]
OPENERS = (
    "hey hi, ok|so btw, oh|and so, right, by|the|way: quick|one: well. just|fyi, um ah, news! hm, hello, good|morning, also|-"
).split()
CLOSERS = "thanks! lol 😂 cheers anyway. just|saying haha fyi pls ... x that's|all ok? thank|you".split()


def with_other_names(old: str, new: str, chance: random.Random) -> tuple[str, str]:
    """Return both texts with other names, towns, days, months and long numbers, the same in both."""
    for pool, pattern in zip(POOLS, NAMED, strict=True):
        found = sorted({m[1].lower() for text in (old, new) for m in pattern.finditer(text)})
        if found and len(found) < len(pool) and chance.random() < 0.5:
            others = dict(zip(found, chance.sample(pool, len(found)), strict=True))

            def other(match: re.Match[str], others: dict[str, str] = others) -> str:
                name = others[match[1].lower()]
                return name if match[1][0].isupper() else name.lower()

            old, new = pattern.sub(other, old), pattern.sub(other, new)
    if chance.random() < 0.5:
        numbers: dict[str, str] = {}

        def number(match: re.Match[str]) -> str:
            digits = str(chance.randint(1, 9)) + "".join(str(chance.randint(0, 9)) for _ in match[0][1:])
            return numbers.setdefault(match[0], digits)

        old, new = re.sub(r"\d{3,}", number, old), re.sub(r"\d{3,}", number, new)
    return old, new


def with_noise(text: str, chance: random.Random, questions: list[str]) -> str:
    """Return a text as it might be typed: with an opening, an end or a question, without capitals, with a slip."""
    if chance.random() < 0.12:
        text = f"{chance.choice(OPENERS).replace('|', ' ')} {text}"
    if chance.random() < 0.1:
        text = f"{text} {chance.choice(CLOSERS).replace('|', ' ')}"
    if questions and chance.random() < 0.2:
        question = chance.choice(questions)
        text = f"{text} {question}" if chance.random() < 0.8 else f"{question} {text}"
    if chance.random() < 0.2:
        text = text.lower()
    if chance.random() < 0.15:
        text = text.replace("'", "")
    if chance.random() < 0.2:
        text = text.rstrip(".!")
    if chance.random() < 0.08 and len(text) > 12:
        at = chance.randrange(1, len(text) - 2)
        text = text[:at] + text[at + 1] + text[at] + text[at + 2 :]
    return text
