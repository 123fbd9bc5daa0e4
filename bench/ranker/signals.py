"""Signals of each candidate for a question, as the database would compute them, from what `corpus` read back.

All are free of scale: shares of the best of the question, cosines, shares of the question's words, logarithms of lengths.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

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
    unit_of_session: np.ndarray = field(default_factory=lambda: np.zeros(0))


def columns(data: Indexed) -> Columns:
    items = data.items
    sessions: dict[str, int] = {}
    # A memory stands by itself; those of a day belong together.
    session = np.array([sessions.setdefault(i.session if i.kind == "t" else i.at.isoformat()[:10], len(sessions)) for i in items])
    n = len(items)
    before = np.full(n, -1)
    after = np.full(n, -1)
    for place in range(1, n):
        if session[place] == session[place - 1]:
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


def grouped_top(values: np.ndarray, groups: np.ndarray, k: int) -> np.ndarray:
    """Per element the mean of the k largest values of its group (missing ones are 0)."""
    order = np.lexsort((-values, groups))
    place = np.arange(len(values)) - np.searchsorted(groups[order], groups[order])
    total = np.zeros(groups.max() + 1)
    top = order[place < k]
    np.add.at(total, groups[top], np.maximum(values[top], 0))
    return total[groups] / k


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


def by_group(frequency: np.ndarray, length: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    count = groups.max() + 1
    out = np.zeros((frequency.shape[0], count))
    for row in range(frequency.shape[0]):
        out[row] = np.bincount(groups, frequency[row], count)
    return out, np.bincount(groups, length, count)


def dates_named(text: str) -> list[tuple[int | None, int | None, int | None]]:
    """(year, month, day) named in a text, as far as named."""
    found = []
    low = text.lower()
    for m in re.finditer(r"\b(?:(\d{1,2})(?:st|nd|rd|th)?(?: of)? )?(" + "|".join(MONTHS) + r")\b(?: (\d{1,2})(?:st|nd|rd|th)?\b)?,?(?: (20\d\d))?", low):
        if m[2] == "may" and not (m[1] or m[3] or m[4] or re.search(r"\b(?:in|of|during|since|by|until|last|this) may\b", low)):
            continue
        day = m[1] or m[3]
        found.append((int(m[4]) if m[4] else None, MONTHS.index(m[2]) + 1, int(day) if day else None))
    if not found:
        found = [(int(y), None, None) for y in re.findall(r"\b(20\d\d)\b", low)]
    return found


def date_match(named: list[tuple[int | None, int | None, int | None]], at) -> float:
    """How well a date fits one that was named: 1 the month (or within ten days after the day), 0 else."""
    best = 0.0
    for year, month, day in named:
        if year and year != at.year:
            continue
        if month is None:
            best = max(best, 0.3)
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


NAMES: list[str] = []


def signals(c: Columns, q: Query, asked_session_hidden: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """(places of the candidates, candidates × signals). Names in NAMES."""
    n = q.items
    items = c.data.items
    unit, session, length, tokens = c.unit[:n], c.session[:n], c.length[:n], c.tokens[:n]
    before, after = c.before[:n], np.where(c.after[:n] < n, c.after[:n], -1)
    words = [w for w in q.words]
    frequency = np.zeros((max(1, len(words)), n))
    for row, word in enumerate(words):
        if word in c.postings:
            at, count = c.postings[word]
            keep = at < n
            frequency[row, at[keep]] = count[keep]
    idf = idf_of(frequency)
    w = bm25(frequency, length, idf)
    uf, ul = by_group(frequency, length, unit)
    wu = bm25(uf, ul, idf_of(uf))[unit]
    sf, sl = by_group(frequency, length, session)
    ws = bm25(sf, sl, idf_of(sf), 0.75)[session]
    f_before = np.where(before >= 0, frequency[:, np.maximum(before, 0)], 0)
    f_after = np.where(after >= 0, frequency[:, np.maximum(after, 0)], 0)
    wp = bm25(frequency + f_before, length + shifted(length, before), idf)
    wpn = bm25(frequency + f_before + f_after, length + shifted(length, before) + shifted(length, after), idf)
    present = frequency > 0
    total = idf.sum() or 1
    cover = (idf[:, None] * present).sum(axis=0) / total
    cover_window = (idf[:, None] * (present | (f_before > 0) | (f_after > 0))).sum(axis=0) / total
    cover_session = (idf[:, None] * (sf > 0)).sum(axis=0)[session] / total
    rare = (idf[:, None] * present).max(axis=0) / (idf.max() or 1)
    # Pairs of words that stand together in the question and in the item.
    order = sorted((p, row) for row, word in enumerate(words) for p in q.words[word])
    pairs = {(words[a], words[b]): idf[a] + idf[b] for (p, a), (r, b) in zip(order, order[1:]) if r - p <= 2}
    pair = np.zeros(n)
    for (first, second), weight in pairs.items():
        if first in c.postings and second in c.postings:
            both = np.intersect1d(c.postings[first][0], c.postings[second][0])
            for place in both[both < n]:
                one, two = items[place].words[first], items[place].words[second]
                if any(0 < b - a <= 3 for a in one for b in two):
                    pair[place] += weight
    pair = pair / (sum(pairs.values()) or 1)

    v = c.vectors[:n] @ q.vector / np.linalg.norm(q.vector)
    vu = grouped_max(v, unit)
    fused = 0.45 * share(w) + 0.55 * share(np.maximum(v, 0))
    session_best = grouped_max(fused, session)
    session_top = grouped_top(fused, session, 3)
    v_session = grouped_top(v, session, 3)

    low = q.text.lower()
    speaker = np.array([bool(i.speaker) and i.speaker.lower().replace("_", " ") in low for i in items[:n]], float)
    named = np.array([bool(i.speaker) for i in items[:n]], float)
    person = np.array([i.role == "user" and not i.speaker for i in items[:n]], float)
    assistant = np.array([i.role == "assistant" and not i.speaker for i in items[:n]], float)
    question = np.array([i.is_question for i in items[:n]], float)
    answer = np.array([i.after_question for i in items[:n]], float)
    memory = np.array([i.kind == "m" for i in items[:n]], float)
    lean = np.minimum(1, 60 / np.maximum(tokens, 1))
    dates = dates_named(q.text)
    when = np.array([date_match(dates, i.at) for i in items[:n]]) if dates else np.zeros(n)
    unit_length = np.bincount(unit, tokens)[unit]
    newest = max(c.day[:n].max() - c.day[:n].min(), 1)
    age = (c.day[:n].max() - c.day[:n]) / newest
    chunk = np.array([i.chunk for i in items[:n]], float)
    days = c.day[:n].max() - c.day[:n]

    top = np.argsort(-(fused + 0.3 * session_best), kind="stable")[:3]
    feedback = c.vectors[:n] @ c.vectors[top].mean(axis=0)
    feedback[top] = 0.6 * feedback[top]

    sw, sv = share(w), share(np.maximum(v, 0))
    rank_w = np.argsort(np.argsort(-w, kind="stable"))
    rank_v = np.argsort(np.argsort(-v, kind="stable"))
    columns_ = {
        "words": sw,
        "vector": sv,
        "before_words": shifted(sw, before) * (chunk == 0),
        "after_vector": shifted(sv, after),
        "before_vector": shifted(sv, before),
        "after_words": shifted(sw, after),
        "session_best": session_best,
        "question": question - answer,
        "speaker": speaker,
        "person": person,
        # beyond the present ones
        "unit_words": share(wu),
        "pair_words": share(wp),
        "window_words": share(wpn),
        "session_words": share(ws),
        "cover": cover,
        "cover_window": cover_window,
        "cover_session": cover_session,
        "rare": rare,
        "pairs": pair,
        "cosine": v,
        "unit_vector": share(np.maximum(vu, 0)),
        "session_top": session_top,
        "session_vector": share(v_session),
        "is_question": question,
        "after_question": answer,
        "assistant": assistant,
        "length": np.log(np.maximum(tokens, 4) / 30),
        "unit_length": np.log(np.maximum(unit_length, 4) / 30),
        "when": when,
        "age": age,
        "fresh": np.exp(-days / 7),
        "chunk0": (chunk == 0).astype(float),
        "rank_words": 1 / (1 + rank_w / 5),
        "rank_vector": 1 / (1 + rank_v / 5),
        "feedback": feedback,
        "lean_before_words": lean * shifted(sw, before) * (chunk == 0),
        "lean_after_vector": lean * shifted(sv, after),
        "lean_question": lean * (question - answer),
        "wv": sw * sv,
        "memory": memory,
        "named": named,
    }
    if not NAMES:
        NAMES.extend(columns_)
    hidden = np.zeros(n, bool)
    if asked_session_hidden and q.session:
        hidden = np.array([i.session == q.session for i in items[:n]])
    # Candidates: best by words, by meaning, with their neighbours.
    k = 240
    best_w = np.argsort(-w, kind="stable")[:k]
    best_v = np.argsort(-v, kind="stable")[:k]
    wanted = np.zeros(n, bool)
    wanted[best_w[w[best_w] > 0]] = True
    wanted[best_v] = True
    near = after[best_w[: k // 4]]
    wanted[near[near >= 0]] = True
    near = before[best_v[: k // 4]]
    wanted[near[near >= 0]] = True
    wanted &= ~hidden
    places = np.nonzero(wanted)[0]
    matrix = np.stack([col[places] for col in columns_.values()], axis=1).astype(np.float32)
    return places, matrix
