"""What a list says already is not recalled again: memories of the profile, and what stands in its messages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from .block import read_texts
from .candidates import Candidate
from .items import to_bytes
from .store import Store

SAYS_MORE = 3  # words beside what the profile says, from which on a turn is shown too


def leave_out_known(store: Store, candidates: Sequence[Candidate], asked: Mapping[str, Any]) -> None:
    """Leave out what the list says already: memories of the profile and turns that say little else, and what stands
    in `said` in the same words. Standing statements that the profile has no room for lead the recall.
    """
    profile, standing = {to_bytes(one) for one in asked["profile"]}, {to_bytes(one) for one in asked["standing"]}
    in_profile: set[int] = set()
    if profile:
        spans: dict[bytes, list[tuple[int, int]]] = {}
        for row in store.rows("sources", list(asked["profile"])):
            start = row["span_start"]
            spans.setdefault(to_bytes(row["source_id"]), []).append((start, start + row["span_length"]))
        known = [c for c in candidates if c.reason is None and not c.is_pinned and _is_in_profile(c, profile, spans)]
        bodies = read_texts(store, [c for c in known if c.is_turn])
        in_profile = {
            c.item for c in known if c.item not in bodies or not _says_more(bodies[c.item].body, c.start, spans[c.ref])
        }
    in_list: set[int] = set()
    if asked["said"] is not None:
        said = _plain(asked["said"])
        open_ones = [c for c in candidates if c.reason is None and c.item not in in_profile][:100]
        texts = read_texts(store, open_ones)
        in_list = {item for item, text in texts.items() if _plain(text.body).strip(" .!?…") in said}
    for c in candidates:
        if c.item in in_list:
            c.reason = "stands in the list"
        elif c.item in in_profile:
            c.reason = "stands in the profile"
        if c.ref in standing:
            c.is_pinned, c.is_standing = False, True


def _is_in_profile(c: Candidate, profile: set[bytes], spans: Mapping[bytes, Sequence[tuple[int, int]]]) -> bool:
    if c.kind == b"m":
        return c.ref in profile
    if not c.is_turn or c.ref not in spans:
        return False
    end = c.start + c.length
    shared = [min(last, end) - max(first, c.start) for first, last in spans[c.ref] if first < end and last > c.start]
    return bool(shared) and 0.6 * c.length <= sum(shared)


def _says_more(text: str, start: int, spans: Sequence[tuple[int, int]]) -> bool:
    """Return whether a text says something beside the spans of its turn: three words that are no question."""
    rest = list(text)
    for first, last in spans:
        for at in range(max(first - start, 0), min(last - start, len(rest))):
            rest[at] = "."
    said = re.findall(r"([^.!?\n]+)([.!?\n]|$)", "".join(rest))
    return any(mark != "?" and len(words.split()) >= SAYS_MORE for words, mark in said)


def _plain(text: str) -> str:
    return " ".join(text.split()).lower() if text.strip() else ""
