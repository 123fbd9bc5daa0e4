"""What a person changed on a page, and whether memory still has it as it was on the page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Any
from uuid import UUID

from ...types import PageEdit
from .markdown import HEADINGS, Piece, Written
from .text import canonical, digest

Item = dict[str, Any]
"""A memory as memory_get has it."""

ALIKE = 0.6
"""Share of two sentences from which on a new one without a footnote stands for a deleted one."""

WAYS = HEADINGS["procedure"]
MOST_DROPPED = 20
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")

GONE = {
    "superseded": "it was replaced",
    "invalidated": "it was taken back",
    "expired": "it has ended",
    "forgotten": "it was forgotten",
    "erased": "it was erased",
}


@dataclass(slots=True)
class Compared:
    """The edits of a page, and how many sentences nobody touched."""

    untouched: int
    edits: list[PageEdit]


def find_current(items: Mapping[UUID, Item], memory: UUID) -> Item | None:
    """Returns a memory itself where it is active, else the active one that replaced it. Returns None if neither is."""
    seen: set[UUID] = set()
    item = items.get(memory)
    while item and item["state"] != "active":
        if memory in seen or not item.get("superseded_by"):
            return None
        seen.add(memory)
        memory = UUID(item["superseded_by"])
        item = items.get(memory)
    return item


def compare(written: Written, items: Mapping[UUID, Item]) -> Compared:
    """Returns what a person changed, each change planned, a conflict or refused. `items`: the page's memories as they
    are, with those that replaced them. Order, white space and wrapping do not count."""
    changed, deleted, added, untouched = _sort_pieces(written, items)
    edits = [_check_change(written, items, memory, piece) for memory, piece in changed.items()]
    edits += [edit for memory in deleted if (edit := _check_deletion(written, items, memory))]
    edits += [
        PageEdit("remember", "planned", None, None, piece.text, type=piece.type, project=piece.project)
        for piece in added
    ]
    return Compared(untouched, edits)


def _sort_pieces(
    written: Written, items: Mapping[UUID, Item]
) -> tuple[dict[UUID, Piece], list[UUID], list[Piece], int]:
    """Sorts sentences into changed, deleted and new ones, and counts the rest."""
    base = {**written.base, **written.phases}
    left = dict(base)
    changed: dict[UUID, Piece] = {}
    added: list[Piece] = []
    for piece in sorted(written.pieces, key=lambda one: one.memory is None or digest(one.text) != base[one.memory]):
        if piece.memory in left and piece.text:
            if left.pop(piece.memory) != digest(piece.text):
                changed[piece.memory] = piece
        elif piece.text and digest(piece.text) not in base.values():
            added.append(piece)
        elif piece.text:  # it lost its footnote, or stands here twice
            same = next((one for one, hashed in left.items() if hashed == digest(piece.text)), None)
            if same:
                del left[same]
    texts = {one: str((items.get(one) or {}).get("content") or "") for one in left if one in written.base}
    for piece in list(added):
        ratio, memory = max(
            ((_likeness(texts[one], piece.text), one) for one in texts if one in left), default=(0, None)
        )
        if memory and ratio >= ALIKE:
            changed[memory] = piece
            added.remove(piece)
            del left[memory]
    return changed, list(left), added, sum(one not in left and one not in changed for one in written.base)


def _likeness(one: str, other: str) -> float:
    first, second = canonical(one).lower().split(), canonical(other).lower().split()
    return SequenceMatcher(None, first, second, autojunk=False).ratio()


def _check_change(written: Written, items: Mapping[UUID, Item], memory: UUID, piece: Piece) -> PageEdit:
    item, current = items.get(memory), find_current(items, memory)
    edit = PageEdit("correct", "planned", memory, _text(item), piece.text)
    if memory in written.phases:
        return replace(edit, outcome="refused", old=None, reason="it tells of a conversation, which can't be edited")
    if current and digest(current["content"]) == digest(piece.text):
        return replace(edit, outcome="unchanged", memory_id=UUID(current["id"]), reason="memory says so already")
    if item and item["state"] == "active" and digest(item["content"]) == written.base[memory]:
        return edit
    return replace(edit, outcome="conflict", old=_text(current), reason=_tell_difference(item, current))


def _check_deletion(written: Written, items: Mapping[UUID, Item], memory: UUID) -> PageEdit | None:
    """Returns the edit of a deleted sentence, None where memory has it no more."""
    item, current = items.get(memory), find_current(items, memory)
    edit = PageEdit("forget", "planned", memory, _text(item), None)
    if memory in written.phases:
        reason = "it tells of a conversation. Retract or erase its turns to take it out"
        return replace(edit, outcome="refused", old=None, reason=reason)
    if current is None:
        return None
    if item and item["state"] == "active" and digest(item["content"]) == written.base[memory]:
        return edit
    return replace(edit, outcome="conflict", old=_text(current), reason=_tell_difference(item, current))


def _text(item: Item | None) -> str | None:
    return item.get("content") if item else None


def _tell_difference(item: Item | None, current: Item | None) -> str:
    if current:
        return "memory says something else since then"
    return f"memory does not have it any more: {GONE.get(item['state'], item['state']) if item else 'it was erased'}"


def find_slot_value(old: Item, new: str) -> str | None:
    """Returns the value of a memory's slot in a changed sentence ("Bern" in "User lives in Bern."): what stands where
    the old value stood. None where that is not plain."""
    value, content = str(old.get("slot_value") or ""), str(old["content"])
    place = content.lower().find(value)
    if not value or place < 0:
        return None
    before, behind = content[:place], content[place + len(value) :]
    if not new.startswith(before) or not new.endswith(behind) or len(new) <= len(before) + len(behind):
        return None
    return new[len(before) : len(new) - len(behind)]


def find_dropped(old: Item, new: str) -> list[str]:
    """Returns the sentences of a memory of several that a changed text does not have any more."""
    sentences = [one for one in _SENTENCE_END.split(old["content"]) if len(one.split()) > 1]
    if len(sentences) < 2 or HEADINGS.get(old.get("type", ""), WAYS) == WAYS:
        return []
    kept = {canonical(one) for one in _SENTENCE_END.split(new)}
    return [one for one in sentences if canonical(one) not in kept][:MOST_DROPPED]
