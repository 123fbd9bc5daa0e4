"""The items that a recall weighs: found by words and vectors, and those that come with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np

from . import ranking
from .arrays import is_among
from .items import Items, read_items, to_bytes, to_text
from .store import Store
from .times import find_ranges, read_zone, to_datetime, to_microseconds
from .words import Scores

Json = dict[str, Any]
NO_ITEMS: Json = {"facts": None, "projects": None, "speakers": None}
DENSE = 3  # numbers of a stretch for each one wanted
USER_SCORE, OTHER_SCORE = 0.4, 0.25  # of turns that wait for their vectors, or were said in the time that is asked for
YEAR = 366 * 86400 * 1000000


@dataclass(frozen=True)
class Scope:
    """Where a recall looks (memoir.search_scope): ids as texts; times as PostgreSQL writes them; None: no bound."""

    kinds: Sequence[str] | None
    hidden_sessions: Sequence[str]
    hidden_from: int
    reduced: Sequence[int]
    local_sessions: Sequence[str]
    projects: Sequence[str] | None
    clearance: str
    as_of: str | None
    valid_at: str | None
    said_after: str | None
    said_before: str | None


def find_items(
    store: Store, words: Scores | None, vectors: Scores | None, scope: Scope, hidden: np.ndarray, limit: int
) -> Items:
    def items(wanted: np.ndarray) -> Items:
        if len(hidden):
            wanted = wanted[~is_among(wanted, hidden)]
        if not len(wanted):
            return read_items(NO_ITEMS)
        # A stretch is read in one sweep where much of it is wanted, else item by item.
        first, last = int(wanted[0]), int(wanted[-1])
        is_dense = last - first < DENSE * len(wanted)
        where = ("items_between", first, last) if is_dense else ("items", wanted.tolist())
        found = read_items(
            store.rows(
                *where, scope.as_of, scope.kinds, scope.hidden_from, scope.hidden_sessions, scope.reduced,
                scope.said_after, scope.said_before, scope.local_sessions,
            )[0]
        )  # fmt: skip
        return found.take(np.flatnonzero(is_among(found.item, wanted))) if is_dense else found

    found = items(ranking.wanted_items(words, vectors, limit))
    known, precedes = set(found.item.tolist()), set(found.previous.tolist())
    by_words = set(words.items[: limit // 4].tolist() if words else ())
    by_vectors = set(vectors.items[: limit // 4].tolist() if vectors else ())
    # Neighbours that do not lie beside their items, since something else was indexed in between: those before a match
    # in meaning, and within 128 numbers those after a match in words.
    further, lasts = set(), []
    for item, previous, kind in zip(found.item.tolist(), found.previous.tolist(), found.kind, strict=True):
        if 0 <= previous < item - 1 and item in by_vectors:
            further.add(previous)
        if kind == b"t" and item in by_words and item not in precedes:
            lasts.append(item)
    if lasts:
        further |= set(store.rows("followers", lasts)[0]["items"] or ())
    further -= known
    return found.join(items(np.array(sorted(further), np.int64))) if further else found


def with_joining(
    store: Store, ranked: ranking.Ranked, frequent: Sequence[bytes], pinned: Sequence[bytes], scope: Scope
) -> ranking.Ranked:
    """Add the candidates that the query did not find: much-used memories and pinned items."""
    if not frequent and not pinned:
        return ranked
    found = read_items(
        store.rows(
            "joining", [to_text(ref) for ref in frequent], [to_text(ref) for ref in pinned], scope.local_sessions,
            scope.kinds,
        )[0]
    )  # fmt: skip
    # A pinned memory is one candidate, whichever of its parts was found; of a pinned turn all parts are.
    memories = {ref for kind, ref in zip(ranked.items.kind, ranked.items.ref, strict=True) if kind == b"m"}
    turns = set(ranked.items.item.tolist())
    wanted_too = set(frequent)
    new = [
        n
        for n, (kind, ref, item) in enumerate(zip(found.kind, found.ref, found.item.tolist(), strict=True))
        if not (kind == b"m" and ref in memories or kind == b"t" and item in turns) or ref in wanted_too
    ]
    found = found.take(np.array(new, np.int64))
    return ranking.join(ranked, ranking.as_ranked(found, [0.0] * len(found), 0))


def read_waiting(store: Store, counters: Json, question: Json, scope: Scope) -> Items | None:
    if scope.as_of is not None:
        return None
    return read_items(
        store.rows(
            "waiting", question["model"], counters["next_item"], scope.hidden_from, scope.hidden_sessions,
        )[0]
    )  # fmt: skip


def read_said_within(store: Store, asked: Json, config: Json, scope: Scope, now: datetime) -> Items:
    """Return the newest turns that were said in the times of a question, which is about nothing else."""
    at = to_microseconds(now)
    zone = read_zone(config.get("time_zone") or asked.get("zone"))
    ranges = find_ranges(asked["question"]["facts"]["times"], at - YEAR, at, now, zone, True)
    if not ranges:
        return read_items(NO_ITEMS)
    starts, ends = ([to_datetime(one).isoformat() for one in side] for side in zip(*ranges, strict=True))
    return read_items(
        store.rows(
            "said_within", starts, ends, asked["limit"], scope.as_of, scope.kinds, scope.hidden_from,
            scope.hidden_sessions, scope.reduced, scope.said_after, scope.said_before, scope.local_sessions,
        )[0]
    )  # fmt: skip


def with_waiting(ranked: ranking.Ranked, waiting: Items) -> ranking.Ranked:
    """Add turns that wait for their vectors, since a new session knows the last one, or that were said in a time. The
    user's words come before answers.
    """

    def least(role: int) -> float:
        return USER_SCORE if role == ranking.USER else OTHER_SCORE

    numbers = set(waiting.item.tolist())
    known = np.array([item in numbers for item in ranked.items.item.tolist()], bool)
    for n in np.flatnonzero(known).tolist():
        ranked.score[n] = max(ranked.score[n], np.float32(least(int(ranked.items.role[n]))))
    ranked.telling[known] = 1  # whether it fits, nobody can say yet
    seen = set(ranked.items.item.tolist())
    new = waiting.take(np.array([n for n, item in enumerate(waiting.item.tolist()) if item not in seen], np.int64))
    return ranking.join(ranked, ranking.as_ranked(new, [least(role) for role in new.role.tolist()], 1))


def with_changing(store: Store, ranked: ranking.Ranked, scope: Scope) -> ranking.Ranked:
    """Add the turns that change what the best forty turns and memories say, and what changes those."""
    items = ranked.items
    order = np.lexsort((items.item, -ranked.score)).tolist()
    turns = [n for n in order if items.kind[n] == b"t"][:40]
    memories = [n for n in order if items.kind[n] == b"m"][:40]
    found = read_items(
        store.rows(
            "changing", [to_text(items.session[n]) for n in turns], [int(items.turn[n]) for n in turns],
            [to_text(items.ref[n]) for n in memories], scope.as_of, scope.hidden_from, scope.hidden_sessions,
            scope.kinds, items.item.tolist(),
        )[0]
    )  # fmt: skip
    return ranking.join(ranked, ranking.as_ranked(found, [0.0] * len(found), 0))


def with_linked(
    store: Store, ranked: ranking.Ranked, hops: int, scope: Scope
) -> tuple[ranking.Ranked, dict[bytes, float]]:
    """Add what the best memories found depend on, refer to, come from, elaborate or are related to, by edges in
    either direction: a step away it is as relevant as six tenths of what led to it, times the weight of the edge.
    """
    items = ranked.items
    best: dict[bytes, float] = {}
    for n, kind in enumerate(items.kind):
        if kind == b"m" and ranked.score[n] > 0:
            best[items.ref[n]] = max(best.get(items.ref[n], 0.0), float(ranked.score[n]))
    step = sorted(best.items(), key=lambda pair: (-pair[1], pair[0]))[:8]
    related: dict[bytes, float] = {}
    for _ in range(hops):
        if not step:
            break
        row = store.rows("related", [to_text(ref) for ref, _ in step], [score for _, score in step], scope.as_of)[0]
        step = [(to_bytes(ref), score) for ref, score in zip(row["memories"] or (), row["scores"] or (), strict=True)]
        for ref, score in step:
            related[ref] = max(related.get(ref, 0.0), score)
    if not related:
        return ranked, {}
    # A memory found gains where its neighbours say more for it than the query does.
    found = set()
    for n, kind in enumerate(items.kind):
        gain = related.get(items.ref[n]) if kind == b"m" else None
        if gain is None:
            continue
        found.add(items.ref[n])
        if ranked.score[n] < gain:
            ranked.score[n] = gain
            ranked.telling[n] = 1
        else:
            related.pop(items.ref[n])
    missing = [ref for ref in related if ref not in found]
    if missing:
        new = read_items(
            store.rows(
                "memories_as_items", [to_text(ref) for ref in missing], scope.local_sessions, scope.kinds,
            )[0]
        )  # fmt: skip
        ranked = ranking.join(ranked, ranking.as_ranked(new, [related[ref] for ref in new.ref], 1))
    return ranked, related
