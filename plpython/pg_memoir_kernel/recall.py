"""The recall of a compile: one user's items ranked, valued, chosen within a budget and rendered.

    question → words and vectors → ranked items → candidates → the floor → lines → the block

All of it reads one snapshot through a Store. What is asked comes as JSON, with the settings in force.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from . import candidates as valuing
from . import ranking
from .answers import bring_answers
from .block import make_block, read_all
from .breadth import breadth, is_even, spread
from .candidates import Candidate, MemoryFacts, Told
from .gathering import (
    Scope,
    read_said_within,
    read_waiting,
    with_changing,
    with_joining,
    with_linked,
    with_waiting,
)
from .items import to_bytes, to_text
from .known import leave_out_known
from .own_words import own_and_echoes, own_words_first
from .records import make_rows, make_trace
from .searching import rank
from .sources import Source, by_source, merge, sources_of
from .store import Store
from .times import read_time

Json = dict[str, Any]
IMPORTANCE = {"critical": 1.3, "important": 1.15, "minor": 0.85}
BESIDE = 60  # tokens beside a passage: the fence, two headers, a short line
FADE, REMARK_FADE = 3.0, 0.5  # powers that make a weak recall smaller; a remark shares few words with its subject
ELSEWHEN = 0.2  # share of the worth of a memory of another time


@dataclass(frozen=True)
class Found:
    """What a search found: candidates, best first; how many turns wait for their vectors; whether the question is only
    about a time, of which it has turns; whether it was weighed as a remark.
    """

    candidates: list[Candidate]
    waiting: int
    has_time: bool
    is_remark: bool


@dataclass(frozen=True)
class Recall:
    """`result`: {"text", "tokens", "budget", "waiting", "strength", "is_weak", "breadth", "candidates": how many,
    "shown": ids in the order of choice, then of the spaces that they are of}; `items`: numbers of the candidates;
    `trace`: what the ledger keeps of them; `rows`: the same for people who look, where that is asked for.
    """

    result: Json
    items: list[int]
    trace: Json
    rows: list[Json] | None


@lru_cache(maxsize=8)
def _settings(text: str) -> Json:
    settings: Json = json.loads(text)
    return settings


def search(source: Source, config: Json, ranked: ranking.Ranked, is_remark: bool) -> Found:
    """Return candidates of all arms for a question among the items of one source, ranked by rank(), with the reason
    why one can't be shown.

    `asked`: question, counters, scope, limit, frequent, project, now, pins (None: no compile, so that nothing joins
    whatever the question) and is_waiting: whether turns without a vector join.
    """
    store, asked, scope = source.store, source.asked, source.scope
    question, counters = asked["question"], asked["counters"]
    pins, now = asked.get("pins"), read_time(asked["now"])
    floor, share, fit = config["relevance_floor"], config["relevance_share"], None
    if pins is None:
        share = 0.0
    elif _is_small_talk(config, question, ranked):
        floor = 10
    elif is_remark:
        floor = share = 0.0
    elif not question["goes_on"]:
        fit = valuing.fit_floor(config, counters["items"], len(question["terms"]), asked["project"])
    pinned = [to_bytes(one) for one in pins["pinned"]] if pins else []
    memories = [ref for kind, ref in zip(ranked.items.kind, ranked.items.ref, strict=True) if kind == b"m"]
    most, frequent = 0, []
    if counters["memories"] > 0:
        row = store.rows("usage", [to_text(ref) for ref in memories], asked["frequent"])[0]
        most, frequent = row["most"] or 0, [to_bytes(one) for one in row["memories"] or ()]
    ranked = with_joining(store, ranked, frequent, pinned, scope)
    waiting = read_waiting(store, counters, question, scope) if asked.get("is_waiting") and source.vector else None
    if waiting is not None and len(waiting):
        ranked = with_waiting(ranked, waiting)
    in_time: frozenset[int] = frozenset()
    if question["facts"].get("only_time"):
        said = read_said_within(store, asked, config, scope, now)
        ranked = with_waiting(ranked, said)
        in_time = frozenset(said.item.tolist())
    memories += frequent + pinned
    has_changes = "changes" in counters["features"]
    if pins is not None and has_changes:
        ranked = with_changing(store, ranked, scope)
    related: dict[bytes, float] = {}
    if counters["related"] and memories:
        ranked, related = with_linked(store, ranked, config["related_hops"], scope)
        memories += related
    facts = _memory_facts(store, memories, most, config, scope, asked["now"]) if memories else {}
    told = Told(
        facts, frozenset(frequent), frozenset(pinned), frozenset(related),
        {to_bytes(one): ceiling for one, ceiling in (pins["ceilings"] or {}).items()} if pins else {},
        floor, share, config["own_question_turns"] if question["facts"].get("own") else 0, fit,
        read_time(scope.valid_at or scope.as_of or asked["now"]).timestamp(), in_time,
    )  # fmt: skip
    found = valuing.value(ranked, told, config)
    if in_time:
        for c in found:
            if c.item not in in_time and not c.is_pinned:
                # A memory may tell of the time, whenever it was made.
                c.reason = c.reason or (valuing.BELOW if c.is_turn else None)
                c.worth *= ELSEWHEN
    if fit is not None and has_changes:
        rows = store.rows("changes", scope.as_of)
        if rows:
            valuing.with_changes(
                found,
                [
                    (
                        (to_bytes(r["session_id"]), r["turn_index"]),
                        (to_bytes(r["by_session"]), r["by_turn"]),
                        r["is_doubt"],
                    )
                    for r in rows
                    if r["by_session"] is not None
                ],
            )
    return Found(found, len(waiting) if waiting is not None else 0, bool(in_time), is_remark)


def answer(store: Store, asked: Json, settings: str, vector: str | None) -> Json:
    """Return what is asked for: {"recalled", "items", "trace", "rows"}. Without a budget nothing is packed: then rows
    are all there is.
    """
    if "budget" not in asked:
        return {"recalled": None, "items": [], "trace": None, "rows": search_rows(store, asked, settings, vector)}
    found = recall(store, asked, settings, vector)
    return {"recalled": found.result, "items": found.items, "trace": found.trace, "rows": found.rows}


def search_rows(store: Store, asked: Json, settings: str, vector: str | None) -> list[Json]:
    """Return the candidates that search() finds as people look at them, the user's own and then those of each space;
    those that can't be shown have a reason."""
    sources, config, rows = sources_of(store, asked, vector), _settings(settings), []
    ranked, is_remark = rank(sources, config)
    for source, its in zip(sources, ranked, strict=True):
        found = search(source, config, its, is_remark).candidates
        made = make_rows(found, 0, frozenset())
        rows += [row | {"reason": c.reason, "space": source.space} for c, row in zip(found, made, strict=True)]
    return rows


def recall(store: Store, asked: Json, settings: str, vector: str | None) -> Recall:
    """Return the recall of a compile. `asked`: as search() has it, with budget (tokens), profile, standing, said,
    hidden (messages that the list shows), working, is_explained, spaces (what is asked of each beside the user's own).
    """
    config, question = _settings(settings), asked["question"]
    sources = sources_of(store, asked, vector)
    ranked, is_remark = rank(sources, config)
    searched = [search(source, config, its, is_remark) for source, its in zip(sources, ranked, strict=True)]
    found = searched[0]
    brought = [_bring(source, config, its) for source, its in zip(sources, searched, strict=True)]
    strengths = [strength for _, strength in brought]
    strength = max((s for s in strengths if s is not None), default=None)
    candidates = merge([its for its, _ in brought], strengths, config, bool(vector))
    budget = asked["budget"]
    shape = breadth(question["facts"].get("shape"), bool(question["facts"].get("of_speaker")))
    if shape is not None:
        candidates = spread(candidates, shape)
    elif is_even(candidates):
        shape = breadth("even", False)
    below = config["weak_below"]
    is_weak = strength is not None and strength < below and not found.has_time
    hidden = frozenset(to_bytes(one) for one in asked["hidden"])
    leading: list[Candidate] = []
    if is_weak and strength is not None and not question["goes_on"]:
        # The weaker, the less: a few lines where nothing fits. The best passage, and one that has a word as no other
        # has, lead and find room.
        able = [c for c in candidates if c.reason is None and c.ref not in hidden]
        leading = [c for c in able if c.telling >= 0.95][:1] + sorted(able, key=lambda c: -c.worth)[:1]
        least = config["weak_recall_tokens"]
        least = max(least, min(sum({c.item: c.tokens for c in leading}.values()) + BESIDE, 2 * least))
        fade = REMARK_FADE if found.is_remark else FADE
        budget = min(budget, max(least, round(budget * (strength / below) ** fade)))
    block = make_block(
        sources, candidates, asked, config, sources[0].scope.as_of, shape, budget, hidden, is_weak, leading
    )
    shown = sorted((c for c in candidates if c.position is not None), key=lambda c: c.position or 0)
    if asked["is_explained"]:
        for item, text in read_all(sources, [c for c in candidates if c.source and c.shown is None]).items():
            next(c for c in candidates if c.item == item).shown = text.body
    own = [c for c in candidates if not c.source]
    return Recall(
        {
            "text": block.text, "tokens": block.tokens, "budget": budget, "waiting": found.waiting,
            "strength": strength, "is_weak": is_weak, "breadth": shape.shape if shape else None,
            "candidates": len(candidates), "shown": [to_text(c.ref) for c in shown]
            + [source.asked["user"] for source, _ in by_source(sources, shown) if source.space],
        },
        [c.item for c in own], make_trace(own, budget, hidden),
        make_rows(candidates, budget, hidden, [s.space for s in sources]) if asked["is_explained"] else None,
    )  # fmt: skip


def _bring(source: Source, config: Json, found: Found) -> tuple[list[Candidate], float | None]:
    """Return what a source brings to a recall, and how likely it is that anything of it answers."""
    candidates = found.candidates
    strength = valuing.strength(config, candidates)
    _own_words_first(source.store, candidates, source.asked["question"])
    bring_answers(candidates)
    leave_out_known(source.store, candidates, source.asked)
    return candidates, strength


def _is_small_talk(config: Json, question: Json, ranked: ranking.Ranked) -> bool:
    if question["is_small_talk"]:
        return True
    # It is small talk as well: few words, no question, and nothing close in the store.
    if config["small_talk_words"] < max(1, len(question["terms"])) or len(question["query"]) > 200:
        return False
    is_question = question["is_question"] or question["facts"].get("asks")
    if is_question or not len(ranked.items) or np.isnan(ranked.cosine).all():
        return False
    return bool(np.nanmax(ranked.cosine) < np.float32(config["small_talk_cosine"]) and ranked.telling.max() < 0.5)


def _memory_facts(
    store: Store, memories: Sequence[bytes], most: int, config: Json, scope: Scope, now: str
) -> dict[bytes, MemoryFacts]:
    """Memories carry more than a match: half-life and weight of their type, importance, use, and authority ([PG] 6.2,
    [MS]). Tiers 3 and 4 do not fade; confidence does, until it is reinforced. `most`: how often the most used one
    was.
    """
    weights, half_lives = config["type_weights"], config["half_life_days"]
    facts = {}
    for r in store.rows("memory_facts", [to_text(ref) for ref in dict.fromkeys(memories)], now, scope.as_of):
        half_life = half_lives.get(r["type"]) or 365
        facts[to_bytes(r["memory_id"])] = MemoryFacts(
            r["type"], r["is_active"], r["valid_from"], r["valid_to"],
            (weights.get(r["type"]) or 1) * IMPORTANCE.get(r["importance"], 1),
            1.0 if r["tier"] >= 3 else 2 ** -(r["age"] / half_life),
            r["trust"] * 2 ** -(r["unconfirmed"] / half_life),
            math.log(1 + (r["access_count"] or 0)) / math.log(1 + most) if most > 0 else 0.0,
        )  # fmt: skip
    return facts


def _own_words_first(store: Store, candidates: list[Candidate], question: Json) -> None:
    vectors: dict[int, np.ndarray] = {}
    own, echoes = own_and_echoes(candidates)
    if question["model"] is not None and own and echoes:
        row = store.rows("vectors", question["model"], [c.item for c in own + echoes])[0]
        if row["items"]:
            found = np.frombuffer(row["vectors"], ">f2").reshape(len(row["items"]), -1).astype(np.float32)
            found /= np.linalg.norm(found, axis=1, keepdims=True)
            vectors = dict(zip(row["items"], found, strict=True))
    own_words_first(candidates, vectors)
