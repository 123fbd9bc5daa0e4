"""A page as Markdown: written of its sentences, and read again as a person left it.

Each sentence ends with a footnote, whose label begins its memory's id and whose text names its sources. The last
comment lists the sentences as they were written, each by its memory and a hash, so the text alone tells what was
changed and deleted, wherever it was kept meanwhile.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from ...errors import InvalidArgumentError
from ...types import PagePhase, PageSentence
from .text import clean, digest, from_markdown, to_markdown

HEADINGS = {
    "instruction": "Instructions",
    "preference": "Preferences",
    "profile": "About",
    "fact": "Facts",
    "decision": "Decisions",
    "plan": "Plans",
    "event": "Events",
    "procedure": "Ways",
    "lesson": "Ways",
    "skill": "Ways",
}
NOTES, DOUBTS, TALKS = "Notes", "In doubt", "Conversations"
TYPES = {heading: kind for kind, heading in reversed(HEADINGS.items())}
NAMED_SOURCES = 12

HOW_TO = """<!--
Memory wrote this page. Change a sentence to correct it, delete it to have it forgotten, add a line to have it
remembered. Leave the marks like [^1a2b3c4d] behind the sentences, and the last comment.
-->"""
_HEAD = re.compile(r"\A\ufeff?\s*---[ \t]*\n(.*?)\n---[ \t]*\n", re.DOTALL)
_BASE = re.compile(r"<!--\s*pg_memoir\s+base\b(.*?)-->", re.DOTALL)
_BASE_ENTRY = re.compile(r"\b(phase:)?([0-9a-f]{32}):([0-9a-f]{16})\b")
_COMMENT = re.compile(r"(?<!\\)<!--.*?-->", re.DOTALL)
_HEADING = re.compile(r"\s{0,3}(#{1,6})\s+(.*?)\s*#*\s*$")
_ITEM = re.compile(r"\s*(?:[-*+]|(\d{1,9})[.)])\s+(?:\[[ xX]\]\s+)?")
_RULE = re.compile(r"\s*(?:(?:-\s*){3,}|(?:\*\s*){3,}|(?:_\s*){3,})")
_UNDERLINE = re.compile(r"\s{0,3}(?:=+|-+)\s*")
_DEFINITION = re.compile(r"\s{0,3}\[\^([^\]\s]+)\]:")
_REFERENCE = re.compile(r"(?<!\\)((?:\\\\)*)\[\^([^\]\s]+)\]")
_MEMORY = re.compile(r"\bmemory\s+([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")
_WORD = re.compile(r"\w")
_PROJECT = re.compile(r"Project (.+)")


@dataclass(frozen=True, slots=True)
class Piece:
    """A sentence as it was found. `memory`: what its footnote names; `type`, `project`: what its headings say."""

    text: str
    memory: UUID | None
    type: str | None
    project: str | None


@dataclass(slots=True)
class Written:
    """A page as a person left it. `base`: the hashes of the sentences that it was written with."""

    user: str
    project: str | None
    topic: str | None
    limit: int | None = None
    base: dict[UUID, str] = field(default_factory=dict)
    phases: dict[UUID, str] = field(default_factory=dict)
    pieces: list[Piece] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Page:
    """What a page is written of."""

    user: str
    project: str | None
    topic: str | None
    sentences: list[PageSentence]
    phases: list[PagePhase]
    left_out: int
    limit: int | None = None


# Writing --------------------------------------------------------------------------------------------------------------


def render(page: Page, shown: Mapping[UUID, str | None] | None = None, added: Iterable[Piece] = ()) -> str:
    """Returns the Markdown of a page. The same sentences give the same text. `shown`: texts in the place of sentences,
    None for one that was deleted, and `added`: lines of a person's, which memory does not have yet."""
    shown = shown or {}
    page = replace(page, sentences=sorted(page.sentences, key=_find_place))
    named = {"user": page.user, "project": page.project, "topic": page.topic, "limit": page.limit}
    head = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in named.items() if value is not None]
    about = f": project {page.project}" if page.project else f": {page.topic}" if page.topic else ""
    labels = _make_labels([one.memory_id for one in page.sentences] + [one.memory_id for one in page.phases])
    parts = ["\n".join(["---", "pg_memoir: page", *head, "---"]), HOW_TO, f"# {to_markdown(page.user + about)}"]
    parts += _render_lines(page, labels, shown, added)
    if page.phases:
        talks = (f"- {_tell_phase(one)}[^{labels[one.memory_id]}]" for one in page.phases)
        parts += [f"## {TALKS}", "\n".join(talks)]
    if not page.sentences:
        parts.append("<!-- Nothing is known yet. -->")
    if page.left_out:
        parts.append(f"<!-- {page.left_out} further sentences are not here. Ask for a topic, or one project. -->")
    notes = [f"[^{labels[one.memory_id]}]: {_tell_sources(one)}" for one in page.sentences]
    notes += [f"[^{labels[one.memory_id]}]: memory {one.memory_id}, {_day(one.said_at)}" for one in page.phases]
    base = [f"{one.memory_id.hex}:{digest(one.text)}" for one in page.sentences]
    base += [f"phase:{one.memory_id.hex}:{digest(from_markdown(_tell_phase(one)))}" for one in page.phases]
    parts += ["\n".join(notes)] if notes else []
    return "\n\n".join([*parts, "\n".join(["<!-- pg_memoir base", *base, "-->"])]) + "\n"


def _render_lines(
    page: Page, labels: dict[UUID, str], shown: Mapping[UUID, str | None], added: Iterable[Piece]
) -> Iterator[str]:
    """Returns headings and their lines: those of all projects, then project by project, last what is in doubt."""
    order = [*dict.fromkeys(HEADINGS.values()), NOTES, DOUBTS]
    groups: dict[tuple[str, int], list[str]] = {}

    def add(project: str | None, heading: str, line: str) -> None:
        is_apart = project is not None and project != "global" and not page.project and heading != DOUBTS
        groups.setdefault((project if is_apart and project else "", order.index(heading)), []).append(line)

    for one in page.sentences:
        text = shown.get(one.memory_id, one.text)
        if text is not None:
            add(one.project, find_heading(one), f"- {to_markdown(text)}[^{labels[one.memory_id]}]")
    for piece in added:
        add(piece.project, HEADINGS.get(piece.type or "fact", NOTES), f"- {to_markdown(piece.text)}")
    doubted = groups.pop(("", order.index(DOUBTS)), None)
    before = ""
    for (project, number), lines in sorted(groups.items()):
        if project != before:
            yield f"## Project {to_markdown(project)}"
            before = project
        yield f"##{'#' if project else ''} {order[number]}"
        yield "\n".join(lines)
    if doubted:
        yield f"## {DOUBTS}"
        yield "\n".join(doubted)


def find_heading(one: PageSentence) -> str:
    """Returns the heading under which a sentence stands."""
    return DOUBTS if one.doubts else HEADINGS.get(one.type, NOTES)


def _find_place(one: PageSentence) -> tuple[str, int, str, datetime, str]:
    """Returns where a sentence stands among others."""
    project = "" if one.project == "global" else one.project
    return (
        project,
        [*HEADINGS.values(), NOTES, DOUBTS].index(find_heading(one)),
        one.category or "~",
        one.said_at,
        one.text,
    )


def _make_labels(ids: list[UUID]) -> dict[UUID, str]:
    """Returns the beginnings of ids, each as long as it takes to tell all apart."""
    length = 8
    while len({one.hex[:length] for one in ids}) < len(set(ids)):
        length += 2
    return {one: one.hex[:length] for one in ids}


def _day(moment: datetime) -> str:
    return f"{moment.day} {moment:%b %Y}"


def _tell_phase(phase: PagePhase) -> str:
    """Returns the line of a phase."""
    count = f", {phase.sentences} of these sentences" if phase.sentences else ""
    return f"{_day(phase.said_at)}: turns {phase.from_turn}–{phase.to_turn} of {to_markdown(phase.session)}{count}"


def _tell_sources(one: PageSentence) -> str:
    """Returns the text of a sentence's footnote: its sources, how long it holds, what speaks against it."""
    named = ", ".join(to_markdown(source) for source in one.sources[:NAMED_SOURCES])
    if len(one.sources) > NAMED_SOURCES:
        named += f" and {len(one.sources) - NAMED_SOURCES} more turns"
    verb = "corrected" if one.provenance == "correction" else "stated"
    told = [f"said {_day(one.said_at)} in {named}" if named else f"{verb} {_day(one.said_at)} by a {one.actor}"]
    if one.valid_from and one.valid_from > one.said_at:
        told.append(f"from {_day(one.valid_from)}")
    if one.valid_to:
        told.append(f"until {_day(one.valid_to)}")
    return f"memory {one.memory_id}, " + "; ".join([*told, *map(to_markdown, one.doubts)])


# Reading --------------------------------------------------------------------------------------------------------------


def is_page(text: str) -> bool:
    """Does a text begin as a page does?"""
    head = _HEAD.match(text.replace("\r\n", "\n"))
    return bool(head and re.search(r"^pg_memoir:\s*[\"']?page", head[1], re.MULTILINE))


def read(text: str) -> Written:
    """Returns a page as a person left it. Raises InvalidArgumentError where it is none, or was cut off."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    head, bases = _HEAD.match(text), list(_BASE.finditer(text))
    if not head or not is_page(text):
        raise InvalidArgumentError(
            'the text has no head of a page ("pg_memoir: page" between two lines ---)', hint="pull the page again"
        )
    if len(bases) != 1:
        told = "its last comment (pg_memoir base) is not there" if not bases else "it has more than one page in it"
        raise InvalidArgumentError(f"the page can't be read: {told}", hint="pull the page again, and edit that")
    written = _read_head(head[1])
    for phase, hexadecimal, hashed in _BASE_ENTRY.findall(bases[0][1]):
        (written.phases if phase else written.base)[UUID(hex=hexadecimal)] = hashed
    blocks = list(_read_blocks(_COMMENT.sub("", text[head.end() :])))
    labels = _read_labels(written, blocks)
    others = {block.label for block in blocks if block.kind == "note"} - labels.keys()
    kind: str | None = None
    project = written.project
    for block in blocks:
        if block.kind == "heading":
            named = from_markdown(block.text)
            of = _PROJECT.fullmatch(named) if block.level == 2 else None
            kind = TYPES.get(named)
            project = of[1] if of else written.project if block.level < 3 else project
        elif block.kind != "note" and not _MEMORY.match(block.text.lstrip(": ")):
            written.pieces += _read_pieces(block.text, labels, others, kind, project)
    return written


def _read_head(text: str) -> Written:
    given: dict[str, str] = {}
    for line in text.split("\n"):
        name, _, value = line.partition(":")
        value = value.strip()
        try:
            loaded = json.loads(value)
        except ValueError:
            loaded = value.strip("'")
        given[name.strip()] = loaded if isinstance(loaded, str) else value
    if not given.get("user"):
        raise InvalidArgumentError("the head of the page names no user", hint='add a line: user: "alice"')
    limit = given.get("limit", "")
    return Written(given["user"], given.get("project"), given.get("topic"), int(limit) if limit.isdecimal() else None)


@dataclass(slots=True)
class _Block:
    """Some lines that belong together. `kind`: heading, note (a footnote's text), item, number (an item of a numbered
    list) or words; `level`: of a heading; `label`: of a note."""

    kind: str
    text: str
    level: int = 0
    label: str = ""


def _read_blocks(text: str) -> Iterator[_Block]:
    """Returns headings, items, paragraphs and footnotes of Markdown, each on one line."""
    block: _Block | None = None
    for line in text.split("\n"):
        begun = _begin_block(line, block)
        if block and (begun or not line.strip() or block.kind == "heading"):
            yield block
            block = None
        if begun:
            block = begun
        elif block and block.kind == "words" and _UNDERLINE.fullmatch(line) and not _REFERENCE.search(block.text):
            block = _Block("heading", block.text, 1 if "=" in line else 2)
        elif block:
            block.text += " " + line.strip()
        elif line.strip() and not _RULE.fullmatch(line):
            block = _Block("words", line.strip().lstrip("> "))
    if block:
        yield block


def _begin_block(line: str, before: _Block | None) -> _Block | None:
    """Returns the block that a line begins, None where it goes on with the one before."""
    if heading := _HEADING.match(line):
        return _Block("heading", heading[2], len(heading[1]))
    if note := _DEFINITION.match(line):
        return _Block("note", line[note.end() :], label=note[1])
    item = _ITEM.match(line)
    if not item or _RULE.fullmatch(line):
        return None
    if item[1] is None:
        return _Block("item", line[item.end() :])
    # A wrapped line may begin with a number, as "3. Dezember" does.
    goes_on = before is not None and before.kind != "number" and item[1] != "1"
    return None if goes_on else _Block("number", line[item.end() :])


def _read_labels(written: Written, blocks: Iterable[_Block]) -> dict[str, UUID]:
    """Returns the memories that footnotes stand for: by the text of each, since an editor may number them anew."""
    known = {**written.base, **written.phases}
    labels: dict[str, UUID] = {}
    for block in blocks:
        named = _MEMORY.search(block.text) if block.kind == "note" else None
        if named and UUID(named[1]) in known:
            labels[block.label] = UUID(named[1])
    for one in known:
        for length in range(8, 34, 2):
            labels.setdefault(one.hex[:length], one)
    return labels


def _read_pieces(
    text: str, labels: dict[str, UUID], others: set[str], kind: str | None, project: str | None
) -> Iterator[Piece]:
    """Returns the sentences of a block: each ends with its footnote, and text behind the last one is new. `others`:
    footnotes that a person made."""
    pieces: list[tuple[str, UUID | None]] = []
    start = 0
    for reference in _REFERENCE.finditer(text):
        memory = labels.get(reference[2])
        if memory is None and reference[2] not in others:
            continue  # text that looks like one
        if memory is None:
            raise InvalidArgumentError(
                f"the footnote [^{reference[2]}] is none of this page's", hint="write its text as a line of its own"
            )
        pieces.append((text[start : reference.end(1)], memory))
        start = reference.end()
    rest = text[start:]
    if _WORD.search(rest):
        pieces.append((rest, None))
    elif pieces and rest.strip():  # a full stop behind the mark
        pieces[-1] = (pieces[-1][0].rstrip() + rest.strip(), pieces[-1][1])
    for words, memory in pieces:
        shown = clean(from_markdown(words))
        if memory or _WORD.search(shown):
            yield Piece(shown if _WORD.search(shown) else "", memory, kind, project)
