"""Signals of each candidate for a question, as the database would compute them, from what `corpus` read back.

All are free of scale: shares of the best of the question, cosines, shares of the question's words, logarithms of lengths.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .corpus import Indexed, Query

K1, B = 1.2, 0.5
MONTHS = "january february march april may june july august september october november december".split()


@dataclass
class Columns:
    """A corpus as arrays over its items."""

    data: Indexed
    unit: np.ndarray
    session: np.ndarray
    day: np.ndarray
    length: np.ndarray
    tokens: np.ndarray
    before: np.ndarray  # item before it in its session, or -1
    after: np.ndarray
    postings: dict[str, tuple[np.ndarray, np.ndarray]]
    vectors: np.ndarray


def columns(data: Indexed) -> Columns:
    items = data.items
    sessions: dict[str, int] = {}
    # A memory stands by itself; those of a day belong together.
    session = np.array(
        [sessions.setdefault(i.session if i.kind == "t" else i.at.isoformat()[:10], len(sessions)) for i in items]
    )
    n = len(items)
    before = np.full(n, -1)
    after = np.full(n, -1)
    for place in range(1, n):
        # Items of memories have no neighbours but the chunks of the same one.
        if items[place].unit == items[place - 1].unit or (
            items[place].kind == "t" and session[place] == session[place - 1]
        ):
            before[place] = place - 1
            after[place - 1] = place
    postings: dict[str, tuple[list[int], list[int]]] = {}
    for place, item in enumerate(items):
        for word, positions in item.words.items():
            at, count = postings.setdefault(word, ([], []))
            at.append(place)
            count.append(len(positions))
    return Columns(
        data,
        np.array([i.unit for i in items]),
        session,
        np.array([i.at.toordinal() for i in items]),
        np.array([sum(len(p) for p in i.words.values()) for i in items], float),
        np.array([i.tokens for i in items], float),
        before,
        after,
        {word: (np.array(at), np.array(count, float)) for word, (at, count) in postings.items()},
        data.vectors / np.linalg.norm(data.vectors, axis=1, keepdims=True),
    )


def grouped_max(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Per element the largest value of its group."""
    best = np.full(groups.max() + 1, -np.inf)
    np.maximum.at(best, groups, values)
    return best[groups]


def shifted(values: np.ndarray, places: np.ndarray) -> np.ndarray:
    return np.where(places >= 0, values[np.maximum(places, 0)], 0)


def share(values: np.ndarray) -> np.ndarray:
    top = values.max() if len(values) else 0
    return values / top if top > 1e-9 else np.zeros_like(values)


def bm25(frequency: np.ndarray, length: np.ndarray, idf: np.ndarray, b: float = B) -> np.ndarray:
    """terms × documents → score per document."""
    norm = K1 * (1 - b + b * length / max(length.mean(), 1))
    return (idf[:, None] * frequency * (K1 + 1) / (frequency + norm[None, :])).sum(axis=0)


def idf_of(frequency: np.ndarray) -> np.ndarray:
    n, df = frequency.shape[1], (frequency > 0).sum(axis=1)
    return np.log(1 + (n - df + 0.5) / (df + 0.5))


def dates_named(text: str) -> list[tuple[int | None, int | None, int | None]]:
    """(year, month, day) named in a text, as far as named."""
    found: list[tuple[int | None, int | None, int | None]] = []
    low = text.lower()
    for m in re.finditer(
        rf"\b(?:(\d{{1,2}})(?:st|nd|rd|th)?(?: of)? )?({'|'.join(MONTHS)})\b(?: (\d{{1,2}})(?:st|nd|rd|th)?\b)?,?(?: (\d{{4}})\b)?",
        low,
    ):
        # These two are other words as well.
        if m[2] in ("may", "march") and not (
            m[1]
            or m[3]
            or m[4]
            or re.search(rf"\b(in|of|during|since|by|until|last|this|early|mid|late) {m[2]}\b", low)
        ):
            continue
        found.append((int(m[4]) if m[4] else None, MONTHS.index(m[2]) + 1, int(m[1] or m[3]) if m[1] or m[3] else None))
    for m in re.finditer(r"\b(\d{4})-(\d\d)(?:-(\d\d))?\b", low):
        if 1 <= int(m[2]) <= 12:
            found.append((int(m[1]), int(m[2]), int(m[3]) if m[3] else None))
    return found or [(int(year), None, None) for year in re.findall(r"\b((?:19|20)\d\d)\b", low)]


def date_match(named: list[tuple[int | None, int | None, int | None]], at) -> float:
    """How well a date fits one that was named: 1 the month (or within ten days after the day), 0 else."""
    best = 0.0
    for year, month, day in named:
        if year and year != at.year:
            continue
        if month is None:
            best = 1.0
            continue
        if day:
            try:
                gap = (at.date() - at.date().replace(month=month, day=day)).days
            except ValueError:
                continue
            best = max(best, 1.0 if -1 <= gap <= 10 else 0.0)
        elif month == at.month:
            best = max(best, 1.0)
    return best


# The scorer's own list, but for the constant and the step of further chunks, which are no columns.
LIST = re.search(
    r"create type _memoir\.signals as \((.*?)\);",
    (Path(__file__).resolve().parents[2] / "migrations/0005_composites.sql").read_text(),
    re.DOTALL,
)
assert LIST
NAMES = tuple(name for name in re.findall(r'"?(\w+)"? real\b', LIST[1]) if name not in ("constant", "further"))
LIMIT = 240


def signals(c: Columns, q: Query) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(places of the candidates, candidates × NAMES, level of the best matches), as score() in pg_memoir_kernel/ranking.py computes them."""
    n, items = q.items, c.data.items
    before, after = c.before[:n], np.where(c.after[:n] < n, c.after[:n], -1)
    frequency = np.zeros((max(1, len(q.words)), n))
    for row, word in enumerate(q.words):
        if word in c.postings:
            at, count = c.postings[word]
            frequency[row, at[at < n]] = count[at < n]
    idf = idf_of(frequency)
    bm = bm25(frequency, c.length[:n], idf)
    cosine = c.vectors[:n] @ q.vector / np.linalg.norm(q.vector)
    by_words, by_vector = np.argsort(-bm, kind="stable"), np.argsort(-cosine, kind="stable")
    words, vector = share(bm), share(np.maximum(cosine, 0))
    best_words = by_words[:LIMIT][bm[by_words[:LIMIT]] > 0]
    # Candidates: the best by words and vectors, what follows a match in words (an answer), and what precedes a match in meaning.
    matched = np.zeros(n, bool)
    matched[best_words] = matched[by_vector[:LIMIT]] = True
    halves = np.where(matched, vector, -1)
    halves[best_words] += words[best_words]
    wanted = np.zeros(n, bool)
    wanted[np.argsort(-halves, kind="stable")[: LIMIT * 3 // 2]] = True
    wanted &= matched
    for near in (after[best_words[: LIMIT // 4]], before[by_vector[: LIMIT // 4]]):
        wanted[near[near >= 0]] = True
    if q.session:  # what was said in the session it is asked in stands in the window
        wanted &= np.array([item.session != q.session for item in items[:n]])
    places = np.nonzero(wanted)[0]
    close = np.where(matched, vector, 0)  # cosines are known of these; words stand in for the others'
    vector = np.where(matched, vector, words)
    fused = 0.45 * words[places] + 0.55 * vector[places]
    rank_words, rank_vector = np.argsort(by_words), np.argsort(by_vector)
    mine = [items[p] for p in places]
    chunk0 = np.array([item.chunk == 0 for item in mine])
    last = np.array([item.last for item in mine])
    low = q.text.lower()
    dates = dates_named(q.text)
    days = c.day[places].max() - c.day[places]
    words_before, vector_after = shifted(words, before)[places] * chunk0, shifted(close, after)[places] * last
    if mine and mine[0].kind == "m":  # memories of a day, in the order in which they came
        same = np.diff(c.session[places]) == 0
        words_before = np.concatenate([[0], words[places][:-1] * same])
        vector_after = np.concatenate([vector[places][1:] * same, [0]])
    session = c.session[places]
    # How many sessions (or days of memories) among the candidates are newer; their newest item tells, then the later one.
    newest = grouped_max(np.array([item.at.timestamp() for item in mine]), session)
    groups = sorted(
        {
            (-at, -place, number)
            for at, place, number in zip(newest, grouped_max(places.astype(float), session), session, strict=True)
        }
    )
    back = {number: place for place, (_, _, number) in enumerate(groups)}
    later = np.zeros(len(places))  # how many candidates of the same session or day came later
    left: dict[int, int] = {}
    for place in range(len(places) - 1, -1, -1):
        later[place] = left.get(session[place], 0)
        left[session[place]] = left.get(session[place], 0) + 1
    columns_ = {
        "words": words[places],
        "vector": vector[places],
        "words_before": words_before,
        "vector_after": vector_after,
        "session": grouped_max(fused, session),
        "both": words[places] * vector[places],
        "words_rank": (bm[places] > 0) / (1 + rank_words[places] / 5),
        "vector_rank": 1 / (1 + rank_vector[places] / 5),
        "cover": (idf[:, None] * (frequency[:, places] > 0)).sum(axis=0) / (idf.sum() or 1),
        "user": [item.role == "user" and not item.speaker for item in mine],
        "speaker": [bool(item.speaker) and item.speaker.lower().replace("_", " ") in low for item in mine],
        "question": [item.is_question for item in mine],
        "after_question": [item.after_question for item in mine],
        "date": [date_match(dates, item.at) for item in mine] if dates else np.zeros(len(mine)),
        "length": np.log(np.maximum(c.tokens[places], 4) / 30),
        "age": days / max(days.max(), 1),
        "fresh": np.exp(-days / 7),
        "match_back": np.log1p([back[number] for number in session]) * fused,
        "last": 1 / (1 + later),
    }
    level = np.array([max(cosine.max(), 0), np.log1p(bm.max())])
    return places, np.stack([np.asarray(columns_[name], np.float32) for name in NAMES], axis=1), level
