"""Candidates of all arms on one footing: memories, frequent and pinned ones, old turns; what each is worth, and which
are below the floor of relevance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .arrays import is_among, mask, pick
from .items import ROLES
from .matches import F32
from .ranking import Ranked

BELOW = "below the relevance floor"
ASSISTANT, USER = ROLES.index("assistant"), ROLES.index("user")


@dataclass(frozen=True)
class MemoryFacts:
    """What a memory brings to its match: weight of its type and importance, freshness, authority, use; `valid_from`
    and `valid_to`: seconds since 1970.
    """

    type: str
    is_active: bool
    valid_from: float | None
    valid_to: float | None
    weight: float
    freshness: float
    authority: float
    access: float


@dataclass(slots=True)
class Candidate:
    """A ranked item with what memories add, what showing it is worth, and what becomes of it.

    `turn`, `chunk`, `start`, `length`: where its text stands; `said`: when, in microseconds since 2000; `cosine`:
    None without a vector; `ceiling`: the fidelity that its session lets it have at most; `reason`: why it can't be
    shown; `position`: in the order of choice, where it is shown as `fidelity`; `shown`: what stands for it then,
    where that is not all of it; `source`: of which source, 0 for the user's own.
    """

    item: int
    kind: bytes
    ref: bytes
    session: bytes
    turn: int
    chunk: int
    start: int
    length: int
    tokens: int
    role: int
    flags: int
    word_count: int
    said: int
    recorded: int
    project: str
    score: float
    match: float
    words: float
    cosine: float | None
    around: float
    session_score: float
    telling: float
    facts: list[int]
    worth: float
    reason: str | None
    is_pinned: bool = False
    is_standing: bool = False
    is_related: bool = False
    is_frequent: bool = False
    ceiling: int | None = None
    memory: MemoryFacts | None = None
    position: int | None = None
    fidelity: str | None = None
    shown: str | None = None
    source: int = 0

    @property
    def is_turn(self) -> bool:
        return self.kind == b"t"


@dataclass(frozen=True)
class Floor:
    """Below which fit a candidate is left out: weights of constant, score, cosine and telling, of turns and summaries
    and of memories; what one of another project than `project` loses.
    """

    turns: Sequence[float]
    memories: Sequence[float]
    project: str | None
    elsewhere: float


@dataclass(frozen=True)
class Told:
    """Facts about candidates beside their rank. `floor`, `share`: the least score, alone and of the second best;
    `own`: how many short turns of the user pass it anyway; `fit`: None: everything fits; `valid`: the time that is
    asked about, in seconds since 1970; `in_time`: items said in the time that a question is only about.
    """

    memories: Mapping[bytes, MemoryFacts]
    frequent: frozenset[bytes]
    pinned: frozenset[bytes]
    related: frozenset[bytes]
    ceilings: Mapping[bytes, int]
    floor: float
    share: float
    own: int
    fit: Floor | None
    valid: float
    in_time: frozenset[int] = frozenset()


def fit_floor(config: Mapping[str, Any], items: int, words: int, project: str | None) -> Floor | None:
    """Return the odds below which a candidate does not fit the question at all: by its score, its cosine and how
    telling the words are that it has of the question. In a long question more words hit by chance. In a small store
    the floor ends what the budget does not, in a large one answers lie scattered and the budget ends it. None:
    everything fits, as among fewer than ten items. research/ranker/floor.py learns the numbers.
    """
    least, given = config["relevance_fit"], config["fit_weights"]
    if least <= 0 or least >= 1 or given is None or items < 10:
        return None
    long = math.log(max(words, 1) / 6)
    size = math.log(min(400, max(35, items)) / 35)

    def weight(name: str) -> float:
        return given.get(name) or 0.0

    turns = [weight(name) for name in ("constant", "score", "cosine", "telling")]
    memories = [
        turn + weight(f"memory.{name}")
        for turn, name in zip(turns, ("constant", "score", "cosine", "telling"), strict=True)
    ]
    for weights in (turns, memories):
        weights[0] += weight("long") * long + weight("size") * size - math.log(least / (1 - least))
        weights[3] += weight("telling_long") * long
    return Floor(turns, memories, project, weight("elsewhere"))


def worth(score: np.ndarray | float) -> Any:
    """Return what showing a line is worth: about the chance that it is evidence, whose odds are those of its score to
    the fourth power. (Scores are chances spread over 0 to 1, SOFT in research/ranker/train.py. With a smaller power
    many short lines of little relevance push the evidence out.) memoir.context_utilisation has the same formula.
    """
    return 1 / (1 + (1 / np.clip(np.asarray(score, np.float64), 0.0001, 0.9999) - 1) ** 4)


def value(ranked: Ranked, told: Told, config: Mapping[str, Any]) -> list[Candidate]:
    """Return ranked items as candidates, best first: what memories add, the floor, what each is worth. The rest of a
    turn of which another part is worth more gains from it, the less the longer the turn: half of a question or a list
    is seldom enough.
    """
    items = ranked.items
    memories = [
        told.memories.get(ref) if kind == b"m" else None for kind, ref in zip(items.kind, items.ref, strict=True)
    ]
    seen = [n for n, (kind, m) in enumerate(zip(items.kind, memories, strict=True)) if kind != b"m" or m]
    if len(seen) < len(items):
        order = np.array(seen, np.int64)
        names = ("score", "words", "cosine", "around", "session", "facts", "telling")
        ranked = Ranked(items.take(order), *(getattr(ranked, name)[order] for name in names))
        items, memories = ranked.items, [memories[n] for n in seen]
    if not len(items):
        return []
    refs, kinds = items.ref, items.kind
    none = [False] * len(refs)
    pinned, frequent = ([ref in some for ref in refs] if some else none for some in (told.pinned, told.frequent))
    related = none
    if told.related:
        related = [kind == b"m" and ref in told.related for kind, ref in zip(kinds, refs, strict=True)]
    reasons = [None if m is None else _unfit(m, told, ref) for m, ref in zip(memories, refs, strict=True)]
    total = _totals(ranked, memories, pinned, config)
    is_below = _below(ranked, total, pinned, frequent, related, reasons, told)
    final = (np.rint((total * F32(100000)).astype(np.float64)) / 100000).astype(F32)
    own = np.where(is_below, 0.0, worth(final))
    own[[n for n, reason in enumerate(reasons) if reason]] = 0.0
    worths = _with_parts(ranked, own, (config["fidelity_worth"] or {}).get("rest") or 0.0)
    points = np.rint(total * F32(100000)).astype(np.int64)
    order = np.lexsort((items.item, -points))
    reasons = [reason or (BELOW if below else None) for reason, below in zip(reasons, is_below.tolist(), strict=True)]
    ceilings = [told.ceilings.get(ref) if m else None for m, ref in zip(memories, refs, strict=True)]
    cosines = ranked.cosine.tolist()
    columns = (
        items.item, kinds, refs, items.session, items.turn, items.chunk, items.start, items.length, items.tokens,
        items.role, items.flags, items.words, items.created, items.recorded, items.project, final, ranked.score,
        ranked.words, [None if cosine != cosine else cosine for cosine in cosines], ranked.around, ranked.session,
        ranked.telling, ranked.facts, worths, reasons, pinned, none, related, frequent, ceilings,
        memories,
    )  # fmt: skip
    # As Candidate names its fields. A call for each row that was taken apart before would take twice as long.
    return list(map(Candidate, *pick(columns, order)))


def _unfit(memory: MemoryFacts, told: Told, ref: bytes) -> str | None:
    if not memory.is_active:
        return "not active"
    if told.ceilings.get(ref) == 4:
        return "evicted from the session"
    starts, ends = memory.valid_from, memory.valid_to
    if starts is not None and starts > told.valid or ends is not None and ends <= told.valid:
        return "not valid at that time"
    return None


def _totals(
    ranked: Ranked, memories: Sequence[MemoryFacts | None], pinned: Sequence[bool], config: Mapping[str, Any]
) -> np.ndarray:
    total = ranked.score.copy()
    w_access, w_authority = float(F32(config["weight_access"])), float(F32(config["weight_authority"]))
    for n, memory in enumerate(memories):
        if memory:
            total[n] = (
                float(total[n]) * memory.weight * (0.5 + 0.5 * max(0.0, min(1.0, memory.freshness)))
                + w_access * memory.access
                + w_authority * memory.authority
            )
    total[mask(pinned)] = 1
    return total


def _below(
    ranked: Ranked, total: np.ndarray, pinned: Sequence[bool], frequent: Sequence[bool], related: Sequence[bool],
    reasons: Sequence[str | None], told: Told,
) -> np.ndarray:  # fmt: skip
    """Return which candidates are below the floor. Much-used memories are there whatever the query."""
    items, cosine = ranked.items, ranked.cosine
    repeats = F32(0.8)  # what is closer to the query repeats it, and is no measure for the others
    with_vector = ~np.isnan(cosine)
    exempt = mask(frequent) | mask(related)
    if told.in_time:
        exempt |= is_among(items.item, np.array(list(told.in_time), np.int64))
    # The second best, but for pinned ones and repetitions of the query: beside a question that was asked before, no
    # answer scores much. Without vectors that can't be told.
    measure = None
    if with_vector.any():
        counted = ~mask(pinned) & mask(r is None for r in reasons)
        counted &= np.where(with_vector, cosine, F32(0)) < repeats
        best = np.sort(total[counted])[::-1]
        measure = best[min(1, len(best) - 1)] if len(best) else None
    below = total < F32(told.floor)
    if measure is not None:
        below |= ~exempt & (total < F32(told.share) * measure)
        if told.fit is not None:
            below |= ~exempt & ~_fits(ranked, told.fit)
    # "Which laptop do I have?", "I have a ThinkPad": a few of these share no more than a topic.
    kept = mask(pinned).copy()
    is_said = items.is_of(b"t") & (items.role == USER) & (items.tokens <= 100)
    own = np.flatnonzero(is_said & (ranked.score.astype(np.float64) >= 0.09))
    kept[own[np.lexsort((items.item[own], -ranked.score[own]))][: told.own]] = True
    result: np.ndarray = below & ~kept
    return result


def _fits(ranked: Ranked, fit: Floor) -> np.ndarray:
    """Return which candidates fit the question. An item without a vector is judged as if it lay at a middling
    distance.
    """
    items = ranked.items
    is_memory = items.is_of(b"m")
    weights = np.where(is_memory[:, None], np.array(fit.memories), np.array(fit.turns)).T
    share = np.clip(ranked.score.astype(np.float64), 0.0001, 0.9999)
    cosine = np.where(np.isnan(ranked.cosine), 0.25, ranked.cosine.astype(np.float64))
    # With no project of its own a session has none elsewhere.
    elsewhere: np.ndarray | float = 0.0
    if fit.project is not None:
        elsewhere = np.array([0.0 if p in ("global", fit.project) else fit.elsewhere for p in items.project])
    odds = weights[0] + weights[1] * np.log(share / (1 - share)) + weights[2] * cosine
    fits: np.ndarray = odds + weights[3] * ranked.telling.astype(np.float64) + elsewhere >= 0
    return fits


def _with_parts(ranked: Ranked, own: np.ndarray, rest: float) -> np.ndarray:
    items = ranked.items
    if not items.chunk.any():
        return own
    parted = {
        ref
        for kind, ref, chunk in zip(items.kind, items.ref, items.chunk.tolist(), strict=True)
        if kind == b"t" and chunk
    }
    if not parted:
        return own
    places: dict[bytes, list[int]] = {}
    for n, ref in enumerate(items.ref):
        if ref in parted and items.kind[n] == b"t":
            places.setdefault(ref, []).append(n)
    worths = own.copy()
    for its in places.values():
        length = max(int(items.start[n] + items.length[n]) for n in its)
        gained = rest * max(own[n] for n in its) * min(1.0, 1000.0 / length) ** 2
        for n in its:
            worths[n] = max(own[n], gained)
    return worths


def strength(config: Mapping[str, Any], candidates: Sequence[Candidate]) -> float | None:
    """Return how likely it is that anything in the store answers the question, by the best score and the closest
    vector; None where one is not known. Below setting weak_below a recall is weak: small, and marked.
    """
    counted = [c for c in candidates if c.reason is None or c.reason == BELOW]
    cosines = [c.cosine for c in counted if c.cosine is not None]
    if not cosines:
        return None
    return chance(config, max(c.match if c.memory else c.score for c in counted), max(cosines))


def chance(config: Mapping[str, Any], score: float, cosine: float) -> float:
    """Return how likely it is that something with the best score and the closest vector answers."""
    weights = config["strength_weights"] or {}
    odds = (weights.get("constant") or 0) + (weights.get("score") or 0) * score + (weights.get("cosine") or 0) * cosine
    return round(1 / (1 + math.exp(-max(-50.0, min(50.0, odds)))), 4)


def with_changes(
    candidates: Sequence[Candidate], changes: Sequence[tuple[tuple[bytes, int], tuple[bytes, int], bool]]
) -> None:
    """Let what a later turn changed and what changes another pass the floor where nothing fits twice as well; and
    what changes a line that is shown come along with it. `changes`: session and turn, of what changed it, and whether
    that is in doubt.
    """
    best = max((c.score for c in candidates if c.reason is None or c.reason == BELOW), default=0.0)
    places: dict[tuple[bytes, int], list[int | None]] = {}
    for place, c in enumerate(candidates):
        if c.is_turn:
            places.setdefault((c.session, c.turn), []).append(place)
    none: list[int | None] = [None]
    pairs = [
        (old, new, is_doubt)
        for changed, by, is_doubt in changes
        for old in places.get(changed, none)
        for new in places.get(by, none)
        if old is not None or new is not None
    ]

    def order(pair: tuple[int | None, int | None, bool]) -> tuple[float, float, float]:
        old, new, _ = pair
        said = math.inf if old is None else candidates[old].said
        return said, math.inf if old is None else old, math.inf if new is None else new

    # A turn that changed a change comes after it.
    for old, new, is_doubt in sorted(pairs, key=order):
        for n in (old, new):
            is_new = n is not None and n == new
            # A turn in doubt brings the newer one along, where it is shown itself.
            if n is None or is_doubt and (n != new or old is None or candidates[old].reason is not None):
                continue
            one = candidates[n]
            comes_along = is_new and old is not None and candidates[old].reason is None
            if one.reason != BELOW or one.score < max(float(F32(0.2)), 0.5 * best) and not comes_along:
                continue
            one.reason = None
            one.worth = float(worth(one.score))
            if is_new and old is not None:
                one.worth = max(one.worth, candidates[old].worth)
