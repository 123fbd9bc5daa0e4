"""The calls that make a page, and that carry out what a person changed on it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from ...arguments import text, whole
from ...call import Call
from ...errors import InvalidArgumentError, MemoirError, NotAuthorizedError, TombstoneError, UnknownMemoryError
from ...functions import calls
from ...types import Change, MarkdownPage, Memory, PageEdit, PagePhase, PagePush, PageSentence
from .comparing import Item, compare, find_current, find_dropped, find_slot_value
from .markdown import Page, Piece, Written, read, render
from .text import digest

T = TypeVar("T")
Steps = Generator[Call[Any], Any, T]

MOST = 500
"""Sentences of a page unless another number is asked for."""

REASON = "by a person, on a page"
NEAR = 0.35  # cosine from which on a memory is about a topic that it does not name
FOUND = 200  # memories that a topic finds
PHASES = 50
ROWS, IDS = 1000, 100  # of one call
PHASE_TYPES = ["conversation_phase", "debugging_session"]
NOW: Call[datetime] = Call("now", "select memoir.now() as result", {}, lambda rows: rows[0]["result"])


def read_page(
    user: str, project: str | None, topic: str | None, limit: int | None, edited: str | None
) -> Steps[MarkdownPage]:
    """Makes a page of what holds now: global in scope, neither secret nor ended. `edited`: a page as a person left it,
    whose edits are carried over."""
    most = MOST if limit is None else whole(32)(limit, "limit")
    if most < 1:
        raise InvalidArgumentError(f"limit is {limit}, at least 1 is needed")
    carried = yield from _find_edits(user, edited) if edited is not None else _no_edits()
    now = yield NOW
    found = yield from _list_all(user, project)
    named = (yield from _find_topic(user, project, topic, found)) if topic is not None else None
    rows = [one for one in found if _holds(one, now)]
    rows.sort(key=lambda one: (one.tier >= 3, one.said_at, one.memory_id.hex), reverse=True)
    about = [one for one in rows if named is None or one.memory_id in named]
    first = about[:most] + [one for one in rows if one.memory_id in carried.shown]
    chosen = list({one.memory_id: one for one in first}.values())
    items = yield from _get(user, [one.memory_id for one in chosen])
    items = {memory: item for memory, item in items.items() if item["state"] == "active"}
    doubts = yield from _find_doubts(user, items)
    sentences = [
        _make_sentence(one, items[one.memory_id], doubts.get(one.memory_id, []))
        for one in chosen
        if one.memory_id in items
    ]
    phases = yield from _find_phases(user, project, sentences, topic is None)
    page = Page(user, project, topic, sentences, phases, max(0, len(about) - most), limit)
    known = {digest(one.text) for one in sentences}
    added = [piece for piece in carried.added if digest(piece.text) not in known]
    markdown = render(page, carried.shown, added)
    return MarkdownPage(user, project, topic, markdown, sentences, phases, page.left_out, carried.conflicts)


@dataclass(slots=True)
class Carried:
    """Edits of a person that a new page goes on with: texts in the place of memories' (None: deleted), new lines, and
    those that memory changed under."""

    shown: dict[UUID, str | None] = field(default_factory=dict)
    added: list[Piece] = field(default_factory=list)
    conflicts: list[PageEdit] = field(default_factory=list)


def _no_edits() -> Steps[Carried]:
    return Carried()
    yield


def _find_edits(user: str, edited: str) -> Steps[Carried]:
    """Finds what a person changed, by the memories of today. A sentence that memory changed meanwhile keeps the words
    of the person; one that the person deleted stands again as memory has it now."""
    written = _read_own(user, edited)
    items = yield from _get_with_successors(user, [*written.base, *written.phases])
    carried = Carried()
    for edit in compare(written, items).edits:
        if edit.outcome in ("conflict", "refused"):
            carried.conflicts.append(edit)
        current = find_current(items, edit.memory_id) if edit.memory_id else None
        if edit.action == "remember" or edit.outcome == "conflict" and edit.new and not current:
            carried.added.append(Piece(edit.new or "", None, edit.type, edit.project))
        elif current and edit.outcome == "planned" or current and edit.outcome == "conflict" and edit.new:
            carried.shown[UUID(current["id"])] = edit.new
    return carried


def _holds(row: Memory, now: datetime) -> bool:
    """Does a memory hold everywhere, today or later, and may it be shown?"""
    is_over = any(end is not None and end <= now for end in (row.valid_to, row.expires_at))
    return row.state == "active" and row.scope == "global" and row.sensitivity != "secret" and not is_over


def _list_all(user: str, project: str | None, **filters: Any) -> Steps[list[Memory]]:
    rows: list[Memory] = []
    after: UUID | None = None
    while True:
        page = yield calls.list_memories(user, project=project, after_memory=after, limit=ROWS, **filters)
        rows += page
        if len(page) < ROWS:
            return rows
        after = page[-1].memory_id


def _find_topic(user: str, project: str | None, topic: str, rows: list[Memory]) -> Steps[set[UUID]]:
    """Finds what has the topic as a tag or category, and what a search finds by its words or near to it."""
    hits = yield calls.recall(user, topic, kinds=["memory"], project=project, limit=FOUND)
    near = {hit.id for hit in hits if "words" in hit.matched_by or (hit.vector_score or 0) >= NEAR}
    name = topic.strip().lower()
    labelled = (one for one in rows if name == (one.category or "").lower() or name in map(str.lower, one.tags))
    return near | {one.memory_id for one in labelled}


def _get(user: str, ids: list[UUID]) -> Steps[dict[UUID, Item]]:
    items: dict[UUID, Item] = {}
    for start in range(0, len(ids), IDS):
        found = yield calls.memory_get(user, ids[start : start + IDS])
        items |= {UUID(item["id"]): item for item in found if item["kind"] == "memory"}
    return items


def _make_sentence(row: Memory, item: Item, doubts: list[str]) -> PageSentence:
    sources = dict.fromkeys(
        f"{source['session']}:{source['turn_index']}" for source in item["sources"] if "session" in source
    )
    return PageSentence(
        row.memory_id,
        item["content"],
        row.type,
        row.category,
        row.project,
        row.provenance,
        row.actor,
        row.said_at,
        row.valid_from,
        row.valid_to,
        list(sources),
        doubts,
    )


# Doubts and phases ----------------------------------------------------------------------------------------------------


def _find_doubts(user: str, items: dict[UUID, Item]) -> Steps[dict[UUID, list[str]]]:
    """Returns what speaks against memories: others that contradict them, and turns that likely changed them."""
    doubts: dict[UUID, list[str]] = {}
    ends = {(one, _find_other(relation, one)) for one, item in items.items() for relation in _contradictions(item)}
    others = yield from _get(user, sorted({other for _, other in ends if other not in items}, key=str))
    for one, other in sorted(ends, key=str):
        if (items.get(other) or others.get(other) or {}).get("state") == "active":
            doubts.setdefault(one, []).append(f"contradicts {other.hex[:8]}")
    changes: list[Change] = []
    page: list[Change] = []
    while not changes or len(page) == ROWS:
        page = yield calls.list_changes(user, after_change=page[-1].change_id if page else None, limit=ROWS)
        changes += page
        if not page:
            break
    for change in (one for one in changes if one.kind == "likely" and one.undone_at is None):
        for one, item in items.items():
            if any(_overlap(source, turn) for source in item["sources"] for turn in change.turns):
                doubts.setdefault(one, []).append(f"perhaps changed in {change.by_session}:{change.by_turn}")
    return doubts


def _contradictions(item: Item) -> Iterable[dict[str, Any]]:
    return (one for one in item["relations"] if one["relation"] == "contradicts")


def _find_other(relation: dict[str, Any], memory: UUID) -> UUID:
    source, target = UUID(relation["from"]), UUID(relation["to"])
    return target if source == memory else source


def _overlap(source: dict[str, Any], turn: dict[str, Any]) -> bool:
    """Does a memory come from a stretch of a turn? Without a span all of the turn is meant."""
    if (source.get("session"), source.get("turn_index")) != (turn["session"], turn["turn"]):
        return False
    first, other = source.get("from"), turn.get("from")
    if first is None or other is None:
        return True
    return bool(first < other + turn["length"] and other < first + source["length"])


def _find_phases(
    user: str, project: str | None, sentences: list[PageSentence], is_whole: bool
) -> Steps[list[PagePhase]]:
    """Lists the newest phases, oldest first: all of them, or with a topic those that a sentence comes from."""
    rows = yield calls.list_memories(user, types=PHASE_TYPES, project=project, limit=ROWS)
    rows = [one for one in rows if one.session and one.sensitivity == "normal"]
    items = yield from _get(user, [one.memory_id for one in rows])
    phases: list[PagePhase] = []
    for row in rows:
        span = items.get(row.memory_id, {}).get("metadata", {})
        if "from" not in span or "to" not in span:
            continue
        turns = {f"{row.session}:{number}" for number in range(span["from"], span["to"] + 1)}
        count = sum(not turns.isdisjoint(one.sources) for one in sentences)
        if is_whole or count:
            phases.append(PagePhase(row.memory_id, str(row.session), span["from"], span["to"], row.said_at, count))
    return sorted(phases[:PHASES], key=lambda one: (one.said_at, one.session, one.from_turn))


# Edits ----------------------------------------------------------------------------------------------------------------


def push_page(user: str, markdown: str, preview: bool, lift: bool) -> Steps[PagePush]:
    """Carries out what a person changed on a page, each edit in a transaction of its own; doing it again is harmless.
    With `preview` nothing is written."""
    written = _read_own(user, markdown)
    items = yield from _get_with_successors(user, [*written.base, *written.phases])
    compared = compare(written, items)
    edits: list[PageEdit] = []
    for edit in compared.edits:
        is_done = preview or edit.outcome != "planned"
        edits.append(edit if is_done else (yield from _apply_safely(user, edit, items, written.topic, lift)))
    return PagePush(user, preview, compared.untouched, edits)


def _read_own(user: str, markdown: str) -> Written:
    written = read(text(markdown, "markdown"))
    if written.user != text(user, "user"):
        raise InvalidArgumentError(f'the page is of "{written.user}", not of "{user}"')
    return written


def _get_with_successors(user: str, ids: list[UUID]) -> Steps[dict[UUID, Item]]:
    items: dict[UUID, Item] = {}
    while ids:
        found = yield from _get(user, ids)
        items |= found
        ids = [UUID(item["superseded_by"]) for item in found.values() if item.get("superseded_by")]
        ids = [one for one in dict.fromkeys(ids) if one not in items]
    return items


def _apply_safely(user: str, edit: PageEdit, items: dict[UUID, Item], topic: str | None, lift: bool) -> Steps[PageEdit]:
    """Carries out an edit. What the database refuses is the edit's outcome, so that the others go on."""
    try:
        return (yield from _apply(user, edit, items, topic))
    except TombstoneError as error:
        if not lift or edit.new is None:
            return replace(edit, outcome="refused", reason=f"{error.message}. {error.hint or ''}".strip())
        yield calls.lift_tombstone(user, content=edit.new, reason=REASON)
        try:
            return (yield from _apply(user, edit, items, topic))
        except MemoirError as again:
            return replace(edit, outcome="refused", reason=again.message)
    except UnknownMemoryError as error:
        return replace(edit, outcome="conflict", reason=error.message)
    except MemoirError as error:
        return replace(edit, outcome="refused", reason=error.message)


def _apply(user: str, edit: PageEdit, items: dict[UUID, Item], topic: str | None) -> Steps[PageEdit]:
    if edit.action == "forget":
        assert edit.memory_id is not None
        yield calls.forget(user, edit.memory_id, reason=REASON)
        return replace(edit, outcome="done")
    if edit.action == "remember":
        return (yield from _remember(user, edit, topic))
    assert edit.memory_id is not None and edit.new is not None
    item = items[edit.memory_id]
    memory, new, value, end = edit.memory_id, edit.new, find_slot_value(item, edit.new), item.get("valid_to")
    done = yield from _as_person(
        lambda actor=None: calls.correct(user, memory, new, reason=REASON, valid_to=end, slot_value=value, actor=actor)
    )
    made = UUID(done["memory_id"]) if done.get("memory_id") else None
    if done["outcome"] == "corrected":
        for sentence in find_dropped(item, new):
            yield from _reject(user, sentence, item["project"])
        return replace(edit, outcome="done", memory_id=made)
    return replace(edit, outcome="refused", reason="a person said the old sentence, and the login acts as an agent")


def _reject(user: str, sentence: str, project: str) -> Steps[None]:
    """Keeps away one sentence of a memory that had several: the tombstone of the whole would let it back alone. Where
    another memory says it, that stands on the page too."""
    done = yield from _as_person(lambda actor=None: calls.remember(user, sentence, project=project, actor=actor))
    if done["outcome"] == "stored":
        yield calls.forget(user, UUID(done["memory_id"]), reason=REASON)


def _remember(user: str, edit: PageEdit, topic: str | None) -> Steps[PageEdit]:
    new = edit.new or ""
    kind = "lesson" if edit.type == "procedure" and "\n" not in new else edit.type
    tags = [topic] if topic else None
    done = yield from _as_person(
        lambda actor=None: calls.remember(user, new, type=kind, project=edit.project, tags=tags, actor=actor)
    )
    if done["outcome"] == "refused_tombstone":
        raise TombstoneError(f"it was {done.get('hint', 'rejected')}")
    made = UUID(done["memory_id"]) if done.get("memory_id") else None
    outcomes: dict[str, tuple[Any, str | None]] = {
        "stored": ("done", None),
        "duplicate": ("unchanged", "memory says so already"),
        "outdated": ("refused", "something newer is known"),
    }
    outcome, reason = outcomes[done["outcome"]]
    return replace(edit, outcome=outcome, memory_id=made, reason=reason)


def _as_person(make: Callable[..., Any]) -> Steps[Any]:
    """Calls with the word of a person. A login that may not act as one calls with its own."""
    try:
        return (yield make(actor="person"))
    except NotAuthorizedError:
        return (yield make())
