"""Ranking: the signals of each candidate, weighed. The weights (rank_weights of the ranking profile) were learnt by
research/ranker from conversations between people, of people with assistants, and from memories. All signals are
shares, cosines or logarithms of lengths, so that they mean the same in a store of any size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any

import numpy as np

from .arrays import distinct, mask
from .items import AFTER_QUESTION, HAS_SPEAKER, IS_QUESTION, LAST_CHUNK, NO_SESSION, ROLES, Items
from .matches import F32, Match, cosines, look_up, places
from .sounds import sounds_like
from .times import find_ranges, is_within
from .words import Scores

# Named as weights name them (memoir.signals), in the order of their sum.
SIGNALS = (
    "constant words vector words_before vector_after session both words_rank vector_rank cover user speaker question"
    " after_question date length age fresh further match_back last"
).split()
# A ranked item carries these, since nothing else in the ledger tells them: in thousandths.
LEDGER_SIGNALS = ("words_before", "vector_after", "cover", "speaker", "date", "match_back", "last")
USER = ROLES.index("user")
ENGLISH = 1  # languages are numbered; 0: a configuration of no language
DAY = 86400 * 1000000


@dataclass
class Ranked:
    """Ranked items, best first: what each is, its score from 0 to 1, and what it consists of. `cosine`: NaN without
    vector. `facts`: n × 7, as LEDGER_SIGNALS.
    """

    items: Items
    score: np.ndarray
    words: np.ndarray
    cosine: np.ndarray
    around: np.ndarray
    session: np.ndarray
    facts: np.ndarray
    telling: np.ndarray


def as_ranked(items: Items, score: Sequence[float], telling: float) -> Ranked:
    """Return items that the question did not find as ranked ones."""
    n = len(items)
    zeros = np.zeros(n, F32)
    return Ranked(
        items, np.asarray(score, F32), zeros, np.full(n, np.nan, F32), zeros, zeros,
        np.zeros((n, len(LEDGER_SIGNALS)), np.int64), np.full(n, telling, F32),
    )  # fmt: skip


def join(ranked: Ranked, other: Ranked) -> Ranked:
    """Return ranked items and others behind them."""
    if not len(other.items):
        return ranked
    both = (
        np.concatenate([getattr(ranked, name), getattr(other, name)])
        for name in ("score", "words", "cosine", "around", "session", "facts", "telling")
    )
    return Ranked(ranked.items.join(other.items), *both)


def wanted_items(words: Scores | None, vectors: Scores | None, limit: int) -> np.ndarray:
    """Return the best by words and vectors, half and half, what follows a match in words (an answer), and what
    precedes a match in meaning: the signals of all would be weighed for nothing. Half again as many as are asked for,
    since sessions and dates move them far.
    """
    beside = limit // 4
    by_words = words.items[:limit] if words else np.zeros(0, np.int64)
    if vectors is None:
        return distinct(np.concatenate([by_words, by_words[:beside] + 1]))
    items = distinct(np.concatenate([by_words, vectors.items]))
    sums = np.zeros(len(items), F32)
    if words and len(by_words):
        sums[np.searchsorted(items, by_words)] += words.scores[:limit] / words.best
    sums[np.searchsorted(items, vectors.items)] += np.maximum(vectors.scores, F32(0)) / max(vectors.best, F32(1e-6))
    best = items[np.lexsort((items, -sums))][: limit * 3 // 2]
    return distinct(np.concatenate([best, by_words[:beside] + 1, vectors.items[:beside] - 1]))


def classes_of(question: Mapping[str, Any]) -> list[str]:
    """Return the classes of a question by language: `unread`, the embedding model does not read it; `other`: it, or
    what is searched, is not English, so that words are compared with fewer forms and no list of common ones.
    """
    if question["unread"]:
        return ["unread"]
    if english_of(question):
        return []
    written = question["facts"].get("language", "simple")
    return ["other"] if question["language"] > ENGLISH or written not in ("english", "simple") else []


def english_of(question: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the English for the words of a question in another language that is asked of English texts: {"words",
    "terms", "names"} as pg_memoir_server.translation makes it.
    """
    found: Mapping[str, Any] | None = question["facts"].get("english")
    return found if question["language"] == ENGLISH else None


def weights_of(given: Mapping[str, float], words: int, classes: Sequence[str]) -> np.ndarray:
    """Return the weights of the classes of items, 3 × 21: named speakers, others, memories and summaries. Each is
    that of all, plus that of the class, plus that of long questions by the logarithm of the question's `words` over
    six, plus those of the classes that the question belongs to.
    """
    long = math.log(max(words, 1) / 6)

    def weight(name: str) -> float:
        return given.get(name) or 0.0

    shared = [weight(n) + weight(f"long.{n}") * long + sum(weight(f"{kind}.{n}") for kind in classes) for n in SIGNALS]
    return np.array(
        [
            [F32(w + weight(f"{kind}.{n}")) for n, w in zip(SIGNALS, shared, strict=True)]
            for kind in ("named", "unnamed", "memory")
        ],
        F32,
    )


def score(
    match: Match, config: Mapping[str, Any], question: Mapping[str, Any], project: str | None, now: datetime,
    limit: int, zone: tzinfo = UTC, is_remark: bool = False,
) -> Ranked:  # fmt: skip
    """Return the best `limit` items by the weighed sum of their signals; ties fall to the item number. Items without
    words or vectors in common with the question are there for their neighbours."""
    items = match.items
    n = len(items)
    item, created = items.item, items.created
    oldest, newest = int(created.min()), int(created.max())
    sessions = items.session
    is_turn = items.is_of(b"t")
    is_named = (items.flags & HAS_SPEAKER) > 0
    cover, word_rank, cosine, cosine_rank = match.cover, match.word_rank, match.cosine, match.cosine_rank
    w_bm25, w_cosine = match.best_bm25, match.best_cosine
    has_words = word_rank > 0
    has_cosine = cosine_rank > 0
    words_share = np.minimum(match.bm25 / w_bm25, F32(1))
    vector = np.minimum(np.maximum(cosine, F32(0)) / w_cosine, F32(1))
    words_rank = np.where(has_words, 5.0 / (4 + word_rank), 0.0)
    # Without a vector, of the question or of the item, the rank by words stands in.
    any_rank = np.where(has_cosine, cosine_rank, word_rank)
    vector_rank = np.where(any_rank > 0, 5.0 / (4 + any_rank), 0.0)
    before = np.minimum(np.where(items.chunk == 0, look_up(match.words, items.previous)[0], F32(0)) / w_bm25, F32(1))
    # A number apart from the last is another conversation.
    after_of = item + 1
    following = np.lexsort((-item, items.previous))  # the first follower of each comes last
    place, known = places(item, items.previous[following])
    after_of[place[known]] = item[following][known]
    after = (
        np.where(items.flags & LAST_CHUNK > 0, np.maximum(cosines(match.vectors, after_of)[0], F32(0)), F32(0))
        / w_cosine
    ).clip(max=F32(1))

    # The turns of a session belong together, and so do memories of a day, in the order in which they came.
    numbers: dict[bytes, int] = {}
    session = np.array([numbers.setdefault(one, len(numbers)) for one in sessions], np.int64)
    days = np.rint((created / 1000000 + 946684800) / 86400).astype(np.int64)
    days[mask(one != NO_SESSION for one in sessions)] = days.min()
    group = (
        (np.frombuffer(b"".join(items.kind), np.uint8).astype(np.int64) * len(numbers) + session) * 10000000
        + days
        - days.min()
    )
    matches = 0.45 * words_share.astype(np.float64) + 0.55 * vector.astype(np.float64)
    order = np.lexsort((item, group))
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    sizes = np.diff(starts, append=n)
    session_best = np.empty(n)
    session_best[order] = np.repeat(np.maximum.reduceat(matches[order], starts), sizes)
    later = np.empty(n, np.int64)
    later[order] = np.repeat(starts + sizes, sizes) - np.arange(n) - 1
    words_before, vector_after = _beside(order, starts, words_share, vector)
    words_before = np.where(is_turn, before, words_before)
    vector_after = np.where(is_turn, after, vector_after)

    back = _sessions_back(items, session, is_turn & ~is_named)
    query = question["query"].lower()
    other = (english_of(question) or {}).get("names", ())
    spoken = {
        s
        for s in set(items.speaker)
        if s is not None and (s.replace("_", " ").lower() in query or any(sounds_like(s, word) for word in other))
    }
    by_speaker = mask(s in spoken for s in items.speaker) if spoken else np.zeros(n, bool)
    ranges = find_ranges(question["facts"].get("times"), oldest, newest, now, zone)
    in_time = np.array(is_within(created.tolist(), ranges)) if ranges else np.zeros(n, bool)
    age = (newest - created) / 1000000 / 86400
    span = max(1.0, (newest - oldest) / 1000000 / 86400)
    classes = np.where(is_turn, np.where(is_named, 0, 1), 2)
    asked = [*classes_of(question), *(["remark"] if is_remark else [])]
    w = weights_of(config["rank_weights"], len(question["terms"]), asked)[classes].T
    weight = dict(zip(SIGNALS, w, strict=True))
    around = weight["words_before"] * words_before + weight["vector_after"] * vector_after
    is_user = (items.role == USER) & ~is_named
    total = (
        weight["constant"] + weight["words"] * words_share + weight["vector"] * vector
        + weight["words_before"] * words_before + weight["vector_after"] * vector_after
    ).astype(np.float64)  # fmt: skip
    total = total + weight["session"] * session_best + weight["both"] * words_share * vector
    total = total + weight["words_rank"] * words_rank + weight["vector_rank"] * vector_rank + weight["cover"] * cover
    total = total + weight["user"] * is_user.astype(F32) + weight["speaker"] * by_speaker.astype(F32)
    total = total + weight["question"] * (items.flags & IS_QUESTION > 0).astype(F32)
    total = total + weight["after_question"] * (items.flags & AFTER_QUESTION > 0).astype(F32)
    total = total + weight["date"] * in_time.astype(F32)
    total = total + weight["length"] * np.log(np.maximum(items.tokens, 4) / 30)
    total = total + weight["age"] * age / span + weight["fresh"] * np.exp(-np.minimum(50, age / 7))
    # The further back a session, the less a match says where people go on with what they left; what came last of a day
    # tells how it ended.
    total = total + weight["match_back"] * back * matches + weight["last"] / (1 + later).astype(F32)
    # Each further chunk of a text goes down a step, so that one long answer does not fill the block.
    total = total + weight["further"] * _further(items, total).astype(F32)
    factor = _project_factors(items.project, project, config)
    points = np.rint(100000 / (1 + np.exp(-np.clip(total, -50, 50))) * factor).astype(np.int64)

    best = np.lexsort((item, -points))[:limit]
    facts = np.stack(
        [
            np.rint(words_before * F32(1000)), np.rint(vector_after * F32(1000)), np.rint(cover * F32(1000)),
            by_speaker * 1000, in_time * 1000, np.rint(back * matches * 1000), 1000 // (1 + later),
        ],
        axis=1,
    ).astype(np.int64)  # fmt: skip
    return Ranked(
        items.take(best), (points[best] / 100000).astype(F32), words_share[best],
        np.where(has_cosine, cosine, F32(np.nan))[best], around[best].astype(F32), session_best[best].astype(F32),
        facts[best], match.telling[best],
    )  # fmt: skip


def _beside(
    order: np.ndarray, starts: np.ndarray, words: np.ndarray, vector: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the words of what comes before each in its group, and the vector of what comes after."""
    n = len(order)
    before, after = np.zeros(n, F32), np.zeros(n, F32)
    is_start = np.zeros(n + 1, bool)
    is_start[starts] = True
    is_start[n] = True
    before[order[1:]] = np.where(is_start[1:n], F32(0), words[order[:-1]])
    after[order[:-1]] = np.where(is_start[1:n], F32(0), vector[order[1:]])
    return before, after


def _sessions_back(items: Items, sessions: np.ndarray, is_counted: np.ndarray) -> np.ndarray:
    """Return how far back each item's session is, as a logarithm: 0 for the newest one of people and assistants
    without names. `sessions`: a number for each session; `is_counted`: turns without names.
    """
    count = int(sessions.max()) + 1
    newest = np.full(count, -(1 << 62), np.int64)
    last = np.zeros(count, np.int64)
    np.maximum.at(newest, sessions[is_counted], items.created[is_counted])
    np.maximum.at(last, sessions[is_counted], items.item[is_counted])
    known = np.flatnonzero(last)
    ordered = known[np.lexsort((-last[known], -newest[known]))]
    back = np.zeros(count)
    back[ordered] = np.log(np.arange(1, len(ordered) + 1))
    found: np.ndarray = back[sessions]
    return found


def _further(items: Items, total: np.ndarray) -> np.ndarray:
    """Return the how manieth part of its text each is, by its sum: 0 for the best, at most 3."""
    if len(set(items.ref)) == len(items):
        return np.zeros(len(items), np.int64)
    seen: dict[bytes, int] = {}
    further = np.zeros(len(items), np.int64)
    for n in np.lexsort((items.item, -total)).tolist():
        nth = seen.get(items.ref[n], 0)
        further[n] = min(3, nth)
        seen[items.ref[n]] = nth + 1
    return further


def _project_factors(projects: Sequence[str], project: str | None, config: Mapping[str, Any]) -> np.ndarray:
    every, same, other = (F32(config[name]) for name in ("project_global", "project_same", "project_other"))
    if project is None:
        return np.full(len(projects), every, F32)
    return np.array([every if p == "global" else same if p == project else other for p in projects], F32)
