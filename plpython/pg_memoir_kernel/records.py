"""Rows of candidates for people who look, and arrays of them for the ledger."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .candidates import Candidate
from .items import NO_SESSION, ROLES, to_text
from .times import to_datetime

Json = dict[str, Any]
KINDS = {b"t": "turn", b"m": "memory", b"s": "summary"}


def make_trace(candidates: Sequence[Candidate], budget: int, hidden: frozenset[bytes]) -> Json:
    """Return what the ledger keeps of candidates, side by side: shares in hundred thousandths, since whole numbers
    are written sooner.
    """
    reasons = [None if c.position is not None else left_out(c, budget, hidden) for c in candidates]
    names = sorted({reason for reason in reasons if reason is not None})
    places = {name: place for place, name in enumerate(names)}
    numbers = np.array([(c.score, c.words, c.around, c.session_score) for c in candidates]).reshape(-1, 4)
    scores, words, around, sessions = np.rint(numbers * 100000).astype(np.int64).T.tolist()
    return {
        "scores": scores, "words": words, "around": around, "session_scores": sessions,
        "vectors": [None if c.cosine is None else round(c.cosine * 100000) for c in candidates],
        "item_tokens": [c.tokens for c in candidates],
        "positions": [c.position for c in candidates],
        "forms": [c.fidelity for c in candidates],
        "reasons": [None if reason is None else places[reason] for reason in reasons],
        "reason_names": names,
        "facts": [c.facts for c in candidates],
    }  # fmt: skip


def make_rows(
    candidates: Sequence[Candidate], budget: int, hidden: frozenset[bytes], spaces: Sequence[str | None] = (None,)
) -> list[Json]:
    """Return candidates as explain_context and recall show them."""
    by_words, by_vector = _ranks([c.words or None for c in candidates]), _ranks([c.cosine for c in candidates])
    return [
        _row(c, None if c.position is not None else left_out(c, budget, hidden), spaces[c.source])
        | {"words_rank": words_rank, "vector_rank": vector_rank}
        for c, words_rank, vector_rank in zip(candidates, by_words, by_vector, strict=True)
    ]


def _ranks(numbers: Sequence[float | None]) -> list[int | None]:
    """Return the rank of each number, 1 for the greatest."""
    ordered = sorted(number for number in numbers if number is not None)
    return [None if number is None else 1 + len(ordered) - bisect_right(ordered, number) for number in numbers]


def _row(c: Candidate, reason: str | None, space: str | None) -> Json:
    words, vector, around = _as_real(c.words), _as_real(c.cosine), _as_real(c.around)
    session_score = _as_real(c.session_score)
    return {
        "item_no": c.item, "kind": KINDS[c.kind], "ref_id": to_text(c.ref),
        "session_id": None if c.session == NO_SESSION else to_text(c.session),
        "turn_index": c.turn if c.turn >= 0 else None, "chunk": c.chunk, "span_start": c.start, "span_length": c.length,
        "tokens": c.tokens, "role": ROLES[c.role] or None, "said_at": to_datetime(c.said).isoformat(),
        "project": c.project, "arms": list(_arms(c)), "score": c.score, "words": words, "vector": vector,
        "type": c.memory.type if c.memory else None,
        "parts": _memory_parts(c)
        | {"words": words, "vector": vector, "around": around, "session": session_score, "worth": c.worth}
        | ({"space": space} if space else {}),
        "position": c.position, "fidelity": c.fidelity, "shown": c.shown, "reason": reason,
    }  # fmt: skip


def _as_real(number: float | None) -> float | None:
    """Return a number of single precision as it is written."""
    return None if number is None else float(str(np.float32(number)))


def _arms(c: Candidate) -> Iterator[str]:
    """Yield how a candidate came in."""
    if c.words > 0:
        yield "words"
    if c.cosine is not None:
        yield "vector"
    if c.is_pinned:
        yield "pinned"
    elif c.is_standing:
        yield "standing"
    elif c.is_frequent:
        yield "frequent"
    elif c.is_related:
        yield "related"
    elif c.words == 0 and c.cosine is None:
        yield "change" if c.is_turn and c.score == 0 and c.around == 0 else "neighbour"


def left_out(candidate: Candidate, budget: int, hidden: frozenset[bytes]) -> str:
    """Return why a candidate is not shown that could be."""
    if candidate.reason is not None:
        return candidate.reason
    if candidate.is_turn and candidate.ref in hidden:
        return "shown in the window"
    if candidate.tokens > budget:
        return "longer than the block"
    return "no room" if candidate.ceiling is None else "no room at the fidelity its session allows"


def _memory_parts(candidate: Candidate) -> dict[str, Any]:
    """Return how the score of a memory came about, for people who look."""
    parts: dict[str, Any] = {}
    m = candidate.memory
    if m:
        parts = {"match": candidate.match, "weight": m.weight, "freshness": m.freshness, "authority": m.authority,
            "access": m.access}  # fmt: skip
    for name, on in (
        ("pinned", candidate.is_pinned), ("related", candidate.is_related), ("standing", candidate.is_standing),
    ):  # fmt: skip
        if on:
            parts[name] = True
    if candidate.ceiling is not None:
        parts["ceiling"] = candidate.ceiling
    return parts
