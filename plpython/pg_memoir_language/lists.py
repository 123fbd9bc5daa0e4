"""What remains of a statement of which an item ends: "allergic to nuts and cats" without the cats."""

from __future__ import annotations

from dataclasses import dataclass

from .data import choices
from .patterns import compile_pattern
from .values import read_content

# Two items or more: "A and B", "A, B and C". An item is up to four words.
ITEM = r"[^\s,;:.!?()]+(?: (?!and\M|or\M|und\M|y\M|et\M|e\M)[^\s,;:.!?()]+){0,4}?"
COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@dataclass(frozen=True)
class Remainder:
    """The item that ends (1-based span within the statement) and the statement without it."""

    start: int
    length: int
    text: str


@dataclass(frozen=True)
class _Item:
    start: int  # 0-based
    end: int
    text: str


def find_items(said: str, language: str) -> list[_Item]:
    """Return the items of the list that a statement ends with or holds; none where it holds no list.

    The first item may have words before it that belong to all ("allergic to nuts"): its last word is the item.
    """
    joint = choices(language, "list_joints") or "and"
    pattern = compile_pattern(rf"([^\s,;:.!?()]+)((?:, {ITEM})*),? (?:{joint}) ({ITEM})(?=[\s]*(?:[,;:.!?()]|$))", True)
    found = None
    for match in pattern.finditer(said):
        found = match
    if not found:
        return []
    items = [_Item(found.start(1), found.end(1), found[1])]
    for part in compile_pattern(rf", ({ITEM})(?=,|$)", True).finditer(found[2]):
        start = found.start(2) + part.start(1)
        items.append(_Item(start, start + len(part[1]), part[1]))
    items.append(_Item(found.start(3), found.end(3), found[3]))
    # "Two cats, Miso and Tofu": what is counted is none of them.
    counted = compile_pattern(r"([[:alnum:]]+) $").search(said[: found.start()])
    if (
        counted
        and len(items) > 2
        and counted[1].lower() in (COUNTS[len(items) - 1 : len(items)] + (str(len(items) - 1),))
    ):
        items = items[1:]
    return items


def find_remainder(said: str, message: str, language: str) -> Remainder | None:
    """Return what remains where a message names one item of the statement's list, and not all."""
    items = find_items(said, language)
    if len(items) < 2:
        return None
    stems = read_content(message, language).stems
    named = [item for item in items if read_content(item.text, language).stems & stems]
    if len(named) != 1:
        return None
    ended = named[0]
    kept = [item for item in items if item is not ended]
    joint = compile_pattern(rf"\m(?:{choices(language, 'list_joints') or 'and'})\M", True)
    joined = joint.search(said, items[-2].end)
    word = joined[0] if joined else "and"
    head, tail = said[: items[0].start], said[items[-1].end :]
    listed = ", ".join(item.text for item in kept[:-1])
    text = f"{head}{listed}{f' {word} ' if listed else ''}{kept[-1].text}{tail}"
    return Remainder(ended.start + 1, ended.end - ended.start, _recount(text, len(items), len(kept)))


def _recount(text: str, before: int, after: int) -> str:
    """Return "two cats, Miso" as "one cat, Miso"."""
    if before >= len(COUNTS):
        return text
    pattern = compile_pattern(rf"\m({COUNTS[before]}|{before}) ([[:alpha:]]+)s(?=[,:]? )", True)
    match = pattern.search(text)
    if not match:
        return text
    count = COUNTS[after] if match[1].isalpha() else str(after)
    thing = match[2] if after == 1 else match[2] + "s"
    changed: str = text[: match.start()] + f"{count} {thing}" + text[match.end() :]
    return changed
