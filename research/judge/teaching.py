"""What teaching the heads over the judges has in common: users of texts, what the shipped models know, and the regression."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from .texts import Material

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "plpython"))
PARTS = ("weight", "bias")
WISHES = Path(__file__).with_name("wishes")
# Strengths of the regressions (inverse of their L2 penalty), by a search over writers in turn.
STRENGTHS = {
    "scene": 0.01,
    "wish": 0.001,
    "wishes.changes": 0.003,
    "wishes.over": 0.01,
    "statements.changes": 0.001,
    "statements.over": 0.003,
    "request": 0.003,
    "requests": 0.001,
    "untrue": 0.003,
}
# Writers of persons whom no judge has read.
UNREAD = frozenset({"t1", "t2", "t3", "t4", "t5", "t6"})


@dataclass(frozen=True)
class Later:
    """A later message; `does`: what it does to what was said before, by number."""

    text: str
    does: dict[int, str]


@dataclass(frozen=True)
class User:
    """`earlier`: wishes, or statements."""

    writer: str
    earlier: list[str]
    later: list[Later]


@dataclass(frozen=True)
class Asking:
    """A later message beside parts of what its user said: what the models know of it, and which parts go."""

    writer: str
    text: str
    asks: bool
    given: Any
    goes: np.ndarray


def read_users(folder: Path = WISHES) -> Iterator[User]:
    for file in sorted(folder.glob("*.jsonl")):
        for line in file.read_text("utf-8").splitlines():
            row = json.loads(line)
            later = [Later(one["text"], {number: what for what, number in one["does"]}) for one in row["later"]]
            yield User(file.stem, row["wishes"], later)


def read_persons(material: Material) -> Iterator[User]:
    """Yield persons with what they said and the later messages that change it or leave it; no requests to forget."""
    for writer in sorted(UNREAD):
        for person in material.of({writer}).people:
            later = [
                Later(text, dict.fromkeys(about if mark == "!" else (), "ended"))
                for mark, about, text in person.later
                if mark != "x"
            ]
            yield User(writer, [one.rstrip(". ") for one in person.earlier], later)


def fit(given: np.ndarray, truth: np.ndarray, strength: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights and the bias of a logistic regression over features as they are."""
    scaler = StandardScaler().fit(given)
    found = LogisticRegression(C=strength, max_iter=500).fit(scaler.transform(given), truth)
    weight = found.coef_[0] / scaler.scale_
    return weight.astype(np.float32), np.array([found.intercept_[0] - weight @ scaler.mean_], np.float32)


class Teacher:
    """What the shipped models know of all texts."""

    def __init__(self) -> None:
        from pg_memoir_server import judge_heads, reading
        from pg_memoir_server.judge import Judge

        self.judge, self.embed, self.of = Judge(), reading.encoder().embed, judge_heads

    def texts(self, texts: list[str]) -> np.ndarray:
        return self.of.text_features(self.judge, texts)

    def asking(
        self, writer: str, text: str, asks: bool, messages: list[str], spans: dict[int, list[tuple[int, int]]]
    ) -> Asking:
        """`spans`: by message what of it goes."""
        from pg_memoir_language.free_requests import Asked, parts_of, read_asked
        from pg_memoir_language.text import own_sentences

        parts = [parts_of(own_sentences(message), "english") for message in messages]
        asked = read_asked(text, self.judge, "english") or Asked(text, text, text, "")
        given = self.of.Request(
            self.judge, self.embed, asked, [(m, [p for _, p in of]) for m, of in zip(messages, parts, strict=True)]
        )
        goes = [
            sum(max(0, min(end, at - 1 + len(part)) - max(start, at - 1)) for start, end in spans.get(number, ()))
            >= len(part) / 2
            for number, of in enumerate(parts)
            for at, part in of
        ]
        return Asking(writer, text, asks, given, np.array(goes))

    def pairs(self, user: User, text: str) -> np.ndarray:
        return self.of.pair_features(self.judge, self.embed, user.earlier, text)
