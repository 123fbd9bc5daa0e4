"""Pages about memories: all of them, one with its reasons, relations, and what is in doubt."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, cast
from uuid import UUID

from pg_memoir.types import Edge, Judgement, State, Way
from starlette.responses import Response

from .arcs import Picture, Tie, draw_arcs
from .look import PAGE, Look, Refused, keep_near
from .words import read_changes, read_text

FOUND = 50  # memories that a search finds
GRAPH = 100  # memories whose relations are drawn
WORDS = 20  # sources of a memory whose words are shown
JUDGED = 500  # decisions that are looked through for contradictions
PAIRS = 20
WAYS = 50  # what recall_experience gives at most
EXPERIENCE = ["procedure", "lesson", "skill"]


async def show_memories(look: Look) -> Response:
    """Shows memories by type, project, date and state, or those that a search finds."""
    words, state = look.get("q") or "", look.get("state") or "active"
    kind, project, days = look.get("type"), look.get("project"), look.read_days()
    given: dict[str, Any] = {"types": [kind] if kind else None, "project": project, **days}
    if words:
        stats, hits = await asyncio.gather(
            look.memoir.memory_stats(look.user),
            look.memoir.memory_index(look.user, words, limit=FOUND, kinds=["memory"], **given),
        )
        near = [hit.id for hit in keep_near(hits)]
        found = await look.memoir.memory_get(look.user, near) if near else []
    else:
        states = cast("list[State]", [] if state == "all" else [state])
        given |= {"states": states, "after_memory": look.get("after"), "limit": PAGE + 1}
        stats, rows = await asyncio.gather(
            look.memoir.memory_stats(look.user), look.memoir.list_memories(look.user, **given)
        )
        found = [row.to_dict() for row in rows]
    more = len(found) > PAGE and not words
    asked = {"type": kind, "project": project, "state": state, "from": look.get("from"), "to": look.get("to")}
    is_narrowed = bool(words or any(value for name, value in asked.items() if name != "state") or state != "active")
    shown = {"words": words, "memories": found[:PAGE], "more": more, "asked": asked, "is_narrowed": is_narrowed}
    return look.show("memories.html", "Memories", stats=stats, **shown)


async def show_memory(look: Look) -> Response:
    """Shows one memory: its words, why it is known, and what to do. A turn or a summary has a page of its own."""
    name, wanted = look.user, look.read_id()
    found = await look.memoir.memory_get(name, [wanted])
    if not found:
        raise Refused(404, "Nothing has this id", str(wanted))
    around = await look.memoir.memory_timeline(name, wanted, lines_before=4, lines_after=4)
    item = found[0]
    if item["kind"] != "memory":
        return look.show("turn.html", item["kind"].title(), item=item, text=read_text(item), around=around)
    named = [UUID(source["id"]) for source in item["sources"] if source.get("id")][:WORDS]
    states, way, edges, judged, origins = await asyncio.gather(
        look.memoir.memory_history(name, wanted),
        find_way(look, item),
        look.memoir.memory_graph(name, wanted),
        look.memoir.list_judgements(name, wanted),
        look.memoir.memory_get(name, named) if named else _nothing(),
    )
    lines = {edge.source_id: edge.source_line for edge in edges} | {edge.target_id: edge.target_line for edge in edges}
    texts = {origin["id"]: read_text(origin) for origin in origins}
    given = {"around": around, "states": states, "edges": edges, "judged": judged, "texts": texts, "lines": lines}
    return look.show("memory.html", "Memory", item=item, way=way, **given)


async def _nothing() -> list[Any]:
    return []


async def find_way(look: Look, item: dict[str, Any]) -> Way | None:
    """Returns how a current procedure, lesson or skill went so far."""
    if item["type"] not in EXPERIENCE or item["state"] != "active":
        return None
    trigger = item["content"].split("\n")[0]
    found = await look.memoir.recall_experience(look.user, trigger, project=item["project"], limit=WAYS)
    return next((way for way in found if str(way.memory_id) == item["id"]), None)


async def show_ways(look: Look) -> Response:
    """Shows how things are done and how that went, best first: for a task, or all that did not fail. Below are those
    that failed and those of other projects."""
    task, project = look.get("q"), look.get("project")
    stats, found, rows = await asyncio.gather(
        look.memoir.memory_stats(look.user),
        look.memoir.recall_experience(look.user, task, project=project, limit=WAYS),
        look.memoir.list_memories(
            look.user, types=EXPERIENCE, project=project, after_memory=look.get("after"), limit=PAGE + 1
        ),
    )
    ranked = {way.memory_id for way in found}
    others = [row.to_dict() for row in rows[:PAGE] if row.id not in ranked]
    more = rows[PAGE - 1].id if len(rows) > PAGE else None
    given = {"task": task or "", "project": project, "others": others, "more": more}
    return look.show("ways.html", "Ways", stats=stats, ways=found, **given)


async def show_graph(look: Look) -> Response:
    """Shows the relations of a memory, or those of the newest memories."""
    if look.get("id"):
        edges = await look.memoir.memory_graph(look.user, look.read_id(), hops=3)
        return look.show("graph.html", "Relations", more=None, **draw_edges(edges))
    rows = await look.memoir.list_memories(look.user, states=[], after_memory=look.get("after"), limit=GRAPH)
    whole = await look.memoir.memory_get(look.user, [row.id for row in rows]) if rows else []
    ties = {
        Tie(UUID(one["from"]), one["relation"], UUID(one["to"])): None for item in whole for one in item["relations"]
    }
    known = {row.id: (row.content, row.state) for row in rows}
    far = [end for tie in ties for end in (tie.source, tie.target) if end not in known]
    for item in await look.memoir.memory_get(look.user, list(dict.fromkeys(far))[:100]) if far else []:
        known[UUID(item["id"])] = (item.get("content"), item["state"])
    picture = draw_arcs([tie for tie in ties if tie.source in known and tie.target in known], known)
    more = rows[-1].id if len(rows) == GRAPH else None
    return look.show("graph.html", "Relations", picture=picture, known=known, more=more)


def draw_edges(edges: list[Edge]) -> dict[str, Any]:
    """Returns the picture of some relations, and the line and state of each memory."""
    known: dict[UUID, tuple[str | None, str | None]] = {}
    for edge in edges:
        known.setdefault(edge.source_id, (edge.source_line, None))
        known.setdefault(edge.target_id, (edge.target_line, None))
    ties = [Tie(edge.source_id, edge.relation, edge.target_id) for edge in edges]
    picture: Picture = draw_arcs(ties, known)
    return {"picture": picture, "known": known}


@dataclass(frozen=True)
class Pair:
    """Two memories that contradict each other, and both are current."""

    judgement: Judgement
    one: dict[str, Any]
    other: dict[str, Any]


async def show_doubts(look: Look) -> Response:
    """Shows contradictions that nobody settled, and what a turn likely changed."""
    judged, changes, stats = await asyncio.gather(
        look.memoir.list_judgements(look.user, limit=JUDGED),
        look.memoir.list_changes(look.user),
        look.memoir.memory_stats(look.user),
    )
    pairs = await find_pairs(look, judged)
    likely = [change for change in changes if change.kind == "likely"]
    shown = await read_changes(look.memoir, look.user, likely[:PAIRS])
    given = {"pairs": pairs, "changes": shown, "open": stats["contradictions"], "more": len(likely) > PAIRS}
    return look.show("doubts.html", "To settle", **given)


async def find_pairs(look: Look, judged: list[Judgement]) -> list[Pair]:
    """Returns pairs that still contradict each other, newest first."""
    newest: dict[frozenset[UUID], Judgement] = {}
    for judgement in judged:
        newest.setdefault(frozenset((judgement.memory_id, judgement.other_id)), judgement)
    doubted = [one for one in newest.values() if one.decision == "contradicts"]
    ids = dict.fromkeys(end for one in doubted for end in (one.memory_id, one.other_id))
    found = await look.memoir.memory_get(look.user, list(ids)[:100]) if ids else []
    current = {UUID(item["id"]): item for item in found if item["state"] == "active"}
    both = [one for one in doubted if one.memory_id in current and one.other_id in current]
    return [Pair(one, current[one.memory_id], current[one.other_id]) for one in both[:PAIRS]]
