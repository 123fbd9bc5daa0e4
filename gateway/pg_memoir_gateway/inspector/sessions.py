"""Pages about sessions: all of them, one with its window, a list as it would be sent, and the log."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, cast

import psycopg
from pg_memoir.types import IndexHit, SessionStatus
from starlette.responses import Response

from .chart import BILLED, count_parts, count_sent, draw_chart, draw_strip, find_billed
from .look import PAGE, Look, Refused, keep_near
from .words import read_text

COMPILES, TURNS, EVENTS, FOUND = 60, 60, 100, 50
MOST_SHOWN = 20_000  # characters of a message on the page of its session
READ_FIRST = 5  # turns in which the first words of the person are

# What happened to an object: how a model got text that it was not shown, or why the list shows it otherwise.
FAULTS = {
    "micro_fault": "asked about, and answered",
    "full_restore": "asked for whole",
    "page_fault": "fetched again by the model itself",
    "entropy_triggered": "raised, since the model was unsure",
}
EVENTS_TOLD = FAULTS | {
    "pressure": "shown shorter, to make room",
    "access": "shown longer, since it was used",
    "fault": "shown longer, since it was asked for",
    "cooperative": "shown shorter, since the model released it",
    "goal_change": "changed, since the user turned to something else",
}
KINDS = {"fault": "Faults", "move": "Moves", "admission": "Admissions"}


async def show_sessions(look: Look) -> Response:
    """Shows sessions by project and state, or those in which a search finds something."""
    words, status, project = look.get("q") or "", look.get("status"), look.get("project")
    if words:
        hits = await look.memoir.memory_index(look.user, words, limit=FOUND, kinds=["turn", "summary"])
        by_session: dict[str, list[IndexHit]] = {}
        for hit in keep_near(hits):
            by_session.setdefault(hit.session or "", []).append(hit)
        return look.show("sessions.html", "Sessions", words=words, found=by_session, sessions=[], more=False)
    state = cast("SessionStatus | None", status)
    rows = await look.memoir.list_sessions(
        look.user, project=project, status=state, after_session=look.get("after"), limit=PAGE + 1
    )
    shown = {"wanted": status, "project": project, "sessions": rows[:PAGE], "more": len(rows) > PAGE}
    return look.show("sessions.html", "Sessions", words="", found={}, **shown)


async def show_session(look: Look) -> Response:
    """Shows a session: its window over time, and its turns."""
    name, wanted = look.user, look.read_argument("session")
    info, compiles, compactions, calls, pressure, first = await asyncio.gather(
        look.memoir.session_info(name, wanted),
        look.memoir.list_compiles(name, wanted, limit=COMPILES),
        look.memoir.list_compactions(name, wanted),
        look.memoir.list_calls(name, wanted, limit=COMPILES),
        look.memoir.session_pressure(name, wanted),
        look.memoir.history(name, wanted, from_turn=0, to_turn=READ_FIRST),
    )
    last = max(0, (info["turns"] or 0) - 1)
    try:
        until = min(last, int(look.query.get("until", last)))
    except ValueError:
        raise Refused(400, "until is the number of a turn", look.query["until"]) from None
    begin = max(0, until - TURNS + 1)
    turns, outline = await asyncio.gather(
        look.memoir.history(name, wanted, from_turn=begin, to_turn=until),
        look.memoir.session_outline(name, wanted),
    )
    made = [(row, count_parts(row)) for row in reversed(compiles)]
    # A list that its client keeps: a compile knows only what it set beside.
    is_beside = bool(made) and not any(sum(parts.values()) - parts["recall"] for _, parts in made)
    given: dict[str, Any] = {
        "info": info,
        "compactions": compactions,
        "calls": calls,
        "pressure": pressure,
        "outline": outline if len(outline) > 1 else [],
        "turns": [turn | {"text": read_text(turn)} for turn in turns],
        "chart": draw_chart(made),
        "billed": draw_chart(find_billed(calls, turns), BILLED),
        "is_beside": is_beside,
        "moves": sum(row.moved for row in compiles),
        "faults": [(FAULTS.get(kind, kind), count) for kind, count in sorted(pressure["faults"].items())],
        "begin": begin,
        "until": until,
        "last": last,
        "page": TURNS,
        "most": MOST_SHOWN,
    }
    title = next((read_text(turn) for turn in first if turn["role"] == "user"), "").strip()
    heading = " ".join(title[:200].split())
    heading = f"{heading[:89]}…" if len(heading) > 90 else heading
    return look.show("session.html", heading or wanted, session=wanted, **given)


async def show_events(look: Look) -> Response:
    """Shows what happened to objects, of a session or of all: faults, moves or admissions."""
    kind = look.get("kind") or "fault"
    if kind not in KINDS:
        raise Refused(400, "That is no kind of event", kind)
    rows = await look.memoir.list_events(look.user, look.get("session"), kinds=[kind], limit=EVENTS)
    rows = [row | {"event": EVENTS_TOLD.get(row["event"], row["event"])} for row in rows]
    counts = sorted(Counter(row["event"] for row in rows).items())
    avoided = sum(row["details"].get("avoided_tokens", 0) for row in rows)
    given = {"session": look.get("session"), "counts": counts, "avoided": avoided, "more": len(rows) == EVENTS}
    return look.show("events.html", KINDS[kind], events=rows, kind=kind, kinds=KINDS, **given)


async def show_compile(look: Look) -> Response:
    """Shows what a compile considered."""
    rows = await look.memoir.explain_compile(look.user, look.read_id())
    return look.show("compile.html", "One compile, taken apart", rows=rows, session=look.get("session"))


async def show_ask(look: Look) -> Response:
    """Shows the list that would be sent for a question, and what is considered for it. It writes nothing."""
    question, session = look.get("q") or "", look.get("session")
    if not question:
        return look.show("ask.html", "Try a question", asked="", session=session, sent=None)
    context, found = await asyncio.gather(
        look.gateway.reading_memoir.context(look.user, session or "inspector", question),
        look.memoir.explain(look.user, session or "inspector", question),
    )
    parts = count_sent(context)
    messages = [message | {"text": read_text(message)} for message in context["messages"]]
    given: dict[str, Any] = {
        "rows": [row for row in found if row.arms != ["recent"]],
        "session": session,
        "asked": question,
    }
    shown = [row for row in found if row.arms == ["recent"]]
    given |= {"sent": context, "messages": messages, "parts": parts, "strip": draw_strip(parts), "shown": shown}
    return look.show("ask.html", "Try a question", **given)


DAYS = """select namespace, day, calls, prompt_tokens, completion_tokens, cost_microcents, latency_ms_p50,
latency_ms_p95 from memoir.model_calls where user_name = %(user)s and session_name is null
order by day desc nulls first"""


async def show_costs(look: Look) -> Response:
    """Shows what calls cost, by day and by session."""
    stats, rows, days = await asyncio.gather(
        look.memoir.memory_stats(look.user),
        look.memoir.list_sessions(look.user, after_session=look.get("after"), limit=PAGE + 1),
        read_days(look),
    )
    given = {"stats": stats, "sessions": rows[:PAGE], "more": len(rows) > PAGE, "days": days}
    return look.show("costs.html", "Costs", **given)


async def read_days(look: Look) -> list[dict[str, Any]] | None:
    """Returns the calls of the last 31 days and of each day. Returns None where the gateway's login may not read them,
    or where several namespaces have a user of this name."""
    try:
        found = await look.memoir.read_view(DAYS, user=look.user)
    except psycopg.errors.InsufficientPrivilege:
        return None
    return found if len({row["namespace"] for row in found}) < 2 else None
