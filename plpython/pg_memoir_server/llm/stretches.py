"""What a model says of a stretch of conversation, held against the turns: where each quote stands, and whose it is."""

from __future__ import annotations

import re
from datetime import date
from typing import Any

from pg_memoir_language.pasted import without_pasted

Json = dict[str, Any]

# Typographic forms of the same character, one for one, so that places stay.
PLAIN = str.maketrans("’‘‛“”„«»–—‑\u00a0\u202f", '\'\'\'"""""---  ')
# Of a statement's words so many must be the conversation's for it to count as the person's own.
BACKED = 0.34
_WORD = re.compile(r"\w+")
_WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\u0e00-\u0e7f]")


def locate(given: Json, answer: Json) -> Json:
    """Return a model's answer with `start` and `length` of each quote in its turn, from 1, and `is_own`: the words are
    the person's, and the conversation bears out what the model makes of them. An item whose quote does not stand there
    is left out; a day that is none is null."""
    turns = {turn["turn"]: turn for turn in given["turns"]}
    said = " ".join([turn["text"] for turn in given["turns"]] + [turn["text"] for turn in given.get("before") or []])
    known = {memory["id"]: memory["text"] for memory in given.get("memories") or []}
    out: Json = {}
    for kind in ("new", "changed", "forget"):
        out[kind] = []
        for item in answer.get(kind) or []:
            turn = turns.get(item["turn"])
            ids = item.get("ids") or [item.get("id")]
            if turn is None or (kind != "new" and not set(ids) <= set(known)):
                continue
            is_persons = turn["role"] == "user"
            own = without_pasted(turn["text"]) if is_persons else ""
            place = find_quote(own, item["quote"])
            is_own = place is not None
            place = place or find_quote(turn["text"], item["quote"])
            # Others' words change nothing and ask for nothing.
            if place is None or (kind != "new" and not is_own):
                continue
            content = item.get("content") or ""
            before = " ".join(known[number] for number in ids if number in known)
            out[kind].append(
                item
                | {
                    "start": place[0] + 1,
                    "length": place[1],
                    "is_own": is_own and (not content or is_backed(content, f"{said} {before}")),
                    "valid_from": _day(item.get("valid_from")),
                    "valid_until": _day(item.get("valid_until")),
                    "remains": item.get("remains") if _is_part(item.get("remains") or "", before) else None,
                }
            )
    return out


def find_quote(text: str, quote: str) -> tuple[int, int] | None:
    """Return where a quote stands in a text, from 0, and its length there: up to case, blanks and typography."""
    words = quote.translate(PLAIN).strip(" .…\"'").split()
    if not words:
        return None
    found = re.search(r"\s+".join(map(re.escape, words)), text.translate(PLAIN), re.IGNORECASE)
    return (found.start(), found.end() - found.start()) if found else None


def is_backed(content: str, said: str) -> bool:
    """Return whether enough of a statement's words stand in a conversation, by their first four letters or, where words
    are not apart, by pairs of characters; and every number but a day's or a year's."""
    numbers = {n for n in re.findall(r"\d+", content) if not re.fullmatch(r"(?:19|20)\d\d|[012]?\d|3[01]", n)}
    if numbers - set(re.findall(r"\d+", said)):
        return False
    wanted, there = _keys(content), _keys(said)
    return not wanted or len(wanted & there) >= BACKED * len(wanted)


def _keys(text: str) -> set[str]:
    keys = set()
    for word in _WORD.findall(text.lower()):
        if _WIDE.search(word):
            keys |= {word[at : at + 2] for at in range(len(word) - 1)}
        elif len(word) > 3 and word != "user":
            keys.add(word[:4])
    return keys


def _is_part(rest: str, before: str) -> bool:
    """Return whether a text is a part of what was remembered: it says nothing new."""
    return rest.strip() not in ("", before.strip()) and _keys(rest) <= _keys(before)


def _day(value: Any) -> str | None:
    try:
        return date.fromisoformat(value).isoformat()
    except (TypeError, ValueError):
        return None
