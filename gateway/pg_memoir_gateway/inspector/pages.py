"""The pages of a user as a whole, of all users and of the install."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from pg_memoir.errors import NotAuthorizedError
from pg_memoir.types import Memory
from psycopg.errors import InsufficientPrivilege
from starlette.responses import RedirectResponse, Response

from ..rest.exports import Exports
from .look import Look, Refused
from .render import link, render
from .words import read_changes

USERS, CHANGES, MONTH, PROFILE = 100, 10, 400, 100
NEWEST = 6  # memories and sessions on a user's first page


async def show_home(look: Look) -> Response:
    """Shows users to the operator, and a user their own page."""
    if look.viewer.user is not None or look.get("user"):
        return RedirectResponse(link("/user", user=look.user), 303)
    users = await look.memoir.list_users(after_user=look.get("after"), limit=USERS)
    return render(look.request, "users.html", "Users", look.viewer, users=users, more=len(users) == USERS)


async def show_user(look: Look) -> Response:
    """Shows what is known about a user, and what is new."""
    name = look.user
    profile, stats, sessions, newest, changes = await asyncio.gather(
        look.memoir.profile(name),
        look.memoir.memory_stats(name),
        look.memoir.list_sessions(name, limit=NEWEST),
        look.memoir.list_memories(name, limit=NEWEST),
        look.memoir.list_changes(name, limit=4),
    )
    ids = profile.get("memory_ids") or []
    told = await look.memoir.memory_get(name, ids[:PROFILE]) if ids else []
    by_content = {item.get("content"): item["id"] for item in told}
    known = [
        (line, by_content.get(line.removeprefix("- "))) for line in profile["content"].splitlines() if line.strip()
    ]
    given = {"profile": profile, "stats": stats, "sessions": sessions, "newest": newest}
    shown = await read_changes(look.memoir, name, changes[:3])
    return look.show("user.html", name, known=known, changes=shown, more=len(changes) > 3, **given)


async def show_changes(look: Look) -> Response:
    """Shows what was changed or forgotten by what was said, beside the words."""
    after = look.get("after") or None
    changes = await look.memoir.list_changes(look.user, undone=True, after_change=after, limit=CHANGES + 1)
    shown = await read_changes(look.memoir, look.user, changes[:CHANGES])
    return look.show("changes.html", "Changes", changes=shown, more=len(changes) > CHANGES)


# A timeline ---------------------------------------------------------------------------------------------------------


def read_month(text: str | None, newest: datetime) -> datetime:
    """Returns the beginning of a month. Raises Refused."""
    if not text:
        return datetime(newest.year, newest.month, 1, tzinfo=UTC)
    try:
        return datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC)
    except ValueError:
        raise Refused(400, "month is not a month such as 2026-01", text) from None


def add_months(month: datetime, count: int) -> datetime:
    """Returns the beginning of another month, of the last that there is at most."""
    number = max(12, min(month.year * 12 + month.month - 1 + count, 9999 * 12 + 11))
    return month.replace(year=number // 12, month=number % 12 + 1)


async def show_timeline(look: Look) -> Response:
    """Shows a month of a user, day by day: sessions that began, and what was learnt."""
    name, wanted = look.user, look.get("month")
    newest = await find_newest(look, before=None)
    month = read_month(wanted, newest or datetime.now(UTC))
    end = add_months(month, 1)
    memories, sessions, earlier = await asyncio.gather(
        look.memoir.list_memories(name, states=[], after=month, before=end, limit=MONTH),
        look.memoir.list_sessions(name, after=month, before=end, limit=MONTH),
        find_newest(look, before=month),
    )
    days: dict[Any, dict[str, list[Any]]] = {}
    for row in sorted([*memories, *sessions], key=lambda row: row.said_at, reverse=True):
        day = days.setdefault(row.said_at.astimezone(UTC).date(), {"memories": [], "sessions": []})
        day["memories" if isinstance(row, Memory) else "sessions"].append(row)
    given = {
        "days": sorted(days.items(), reverse=True),
        "month": month,
        "is_cut": MONTH in (len(memories), len(sessions)),
    }
    given |= {"earlier": earlier, "later": end if newest and end <= newest else None}
    return look.show("timeline.html", f"{month:%B %Y}", **given)


async def find_newest(look: Look, before: datetime | None) -> datetime | None:
    """Returns when something was said last, before a time, to the day. Lists begin with what was recorded last, and an
    import may record the oldest words last, so of long lists the end is searched for."""
    times, is_cut = await read_times(look, None, before)
    newest, beyond = max(times, default=None), before or datetime.now(UTC)
    while newest and is_cut and beyond - newest > timedelta(days=1):
        middle = newest + (beyond - newest) / 2
        times, is_cut = await read_times(look, middle, before)
        newest, beyond = (max(times), beyond) if times else (newest, middle)
        is_cut = is_cut or not times
    return newest


async def read_times(look: Look, after: datetime | None, before: datetime | None) -> tuple[list[datetime], bool]:
    """Returns when memories and sessions of a stretch were said, and whether there are more."""
    memories, sessions = await asyncio.gather(
        look.memoir.list_memories(look.user, states=[], after=after, before=before, limit=MONTH),
        look.memoir.list_sessions(look.user, after=after, before=before, limit=MONTH),
    )
    return [row.said_at for row in (*memories, *sessions)], MONTH in (len(memories), len(sessions))


# The user's data, and the install -----------------------------------------------------------------------------------


async def show_data(look: Look) -> Response:
    """Shows how to take the user's data along, and how to erase it."""
    return look.show("data.html", "Data", stats=await look.memoir.memory_stats(look.user))


def export_page(exports: Exports, headers: Mapping[str, str]) -> Any:
    """Returns the page that is a file: all that is kept of a user."""

    async def export(look: Look) -> Response:
        named = f"attachment; filename*=UTF-8''{quote(look.user, safe='')}.jsonl"
        lines = (line + "\n" async for line in look.memoir.export_lines(look.user))
        return exports.make(look.user, lines, {**headers, "content-disposition": named})

    return export


async def show_health(look: Look) -> Response:
    """Shows the operator how the install does."""
    if look.viewer.user is not None:
        raise Refused(403, "For the operator", "Jobs and health are of the whole install.")
    problems, jobs = None, None
    try:
        problems, jobs = await look.memoir.health_problems(), await look.memoir.list_jobs()
    except (NotAuthorizedError, InsufficientPrivilege):
        pass  # the page says so
    given: dict[str, Any] = {"problems": problems, "jobs": jobs, "counts": look.gateway.counts.items()}
    return render(look.request, "health.html", "Health", look.viewer, **given)


async def show_nowhere(look: Look) -> Response:
    """Refuses."""
    raise Refused(404, "There is no such page", look.request.url.path)
