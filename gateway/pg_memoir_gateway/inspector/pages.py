"""The pages. Each reads what the database says and shows it; forget, correct and pin ask before they do anything."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, cast
from urllib.parse import parse_qsl
from uuid import UUID

import psycopg
import psycopg_pool
from pg_memoir import MemoirError
from pg_memoir.errors import NotAuthorizedError, UnknownMemoryError, UnknownSessionError
from pg_memoir.types import State
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from ..gateway import Gateway
from . import login
from .chart import draw_chart
from .login import Viewer
from .render import HERE, link, render

COMPILES, TURNS, PAGE = 60, 60, 100
ALL = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
}
log = logging.getLogger("pg_memoir_gateway.inspector")


class Refused(Exception):
    """Shown as a page: status, what it is, and what to do."""

    def __init__(self, status: int, title: str, text: str = "") -> None:
        super().__init__(title)
        self.status, self.title, self.text = status, title, text


Page = Callable[["Look"], Awaitable[Response]]


class Look:
    """One request for a page: who looks, at whom, and what is asked."""

    def __init__(self, gateway: Gateway, request: Request, viewer: Viewer) -> None:
        self.gateway, self.request, self.viewer = gateway, request, viewer
        self.memoir = gateway.memoir
        self.query = request.query_params

    @property
    def user(self) -> str:
        """The user whose pages these are. Raises Refused where the viewer may not see them."""
        user = self.query.get("user") or self.viewer.user or self.gateway.config.user
        if self.viewer.user not in (None, user):
            raise Refused(403, "Not yours to see", f"You are logged in as {self.viewer.user}.")
        return user

    def get(self, name: str) -> str | None:
        """Returns an argument of the address, None where it is empty."""
        return self.query.get(name, "").strip() or None

    def read_argument(self, name: str) -> str:
        """Returns an argument that must be there."""
        if not (value := self.get(name)):
            raise Refused(400, f"The address lacks {name}")
        return value

    def read_id(self) -> UUID:
        """Returns the argument `id`."""
        try:
            return UUID(self.read_argument("id"))
        except ValueError:
            raise Refused(400, "That is no id", self.read_argument("id")) from None

    async def read_form(self) -> dict[str, str]:
        """Returns the form. Raises Refused where it is not ours."""
        form = await _parse_form(self.request)
        if not login.is_meant(self.request, self.viewer, form):
            text = "That form did not come from this inspector, or is too old. Go back and try again."
            raise Refused(403, "Not done", text)
        return form

    def show(self, template: str, title: str, **values: Any) -> Response:
        """Returns a page about the user."""
        return render(self.request, template, title, self.viewer, user=self.user, **values)


# Pages --------------------------------------------------------------------------------------------------------------


async def show_home(look: Look) -> Response:
    """Shows users to the operator, and a user their own page."""
    if look.viewer.user is not None or look.get("user"):
        return RedirectResponse(link("/user", user=look.user), 303)
    users = await look.memoir.list_users(after_user=look.get("after"), limit=PAGE)
    return render(look.request, "users.html", "Users", look.viewer, users=users, more=len(users) == PAGE)


async def show_user(look: Look) -> Response:
    name = look.user
    profile, stats, sessions, changes = await asyncio.gather(
        look.memoir.profile(name),
        look.memoir.memory_stats(name),
        look.memoir.list_sessions(name, limit=8),
        look.memoir.list_changes(name),
    )
    known = [line for line in profile["content"].splitlines() if line.strip()]
    given = {"profile": profile, "stats": stats, "sessions": sessions, "changes": changes[:8]}
    return look.show("user.html", name, known=known, **given)


async def show_sessions(look: Look) -> Response:
    found = await look.memoir.list_sessions(look.user, after_session=look.get("after"), limit=PAGE)
    return look.show("sessions.html", "Sessions", sessions=found, more=len(found) == PAGE)


# What happened to an object: how a model got text that it was not shown, or why the list shows it otherwise.
FAULTS = {
    "micro_fault": "asked about, and answered",
    "full_restore": "asked for whole",
    "page_fault": "fetched again by the model itself",
    "entropy_triggered": "raised, since the model was unsure",
}
EVENTS = FAULTS | {
    "pressure": "shown shorter, to make room",
    "access": "shown longer, since it was used",
    "fault": "shown longer, since it was asked for",
    "cooperative": "shown shorter, since the model released it",
    "goal_change": "changed, since the user turned to something else",
}
KINDS = {"fault": "Faults", "move": "Moves", "admission": "Admissions"}


async def show_session(look: Look) -> Response:
    name, wanted = look.user, look.read_argument("session")
    info, compiles, compactions, calls, pressure = await asyncio.gather(
        look.memoir.session_info(name, wanted),
        look.memoir.list_compiles(name, wanted, limit=COMPILES),
        look.memoir.list_compactions(name, wanted),
        look.memoir.list_calls(name, wanted, limit=COMPILES),
        look.memoir.session_pressure(name, wanted),
    )
    last = max(0, (info["turns"] or 0) - 1)
    try:
        until = min(last, int(look.query.get("until", last)))
    except ValueError:
        raise Refused(400, "until is the number of a turn", look.query["until"]) from None
    begin = max(0, until - TURNS + 1)
    turns = await look.memoir.history(name, wanted, from_turn=begin, to_turn=until)
    faults = [(FAULTS.get(kind, kind), count) for kind, count in sorted(pressure["faults"].items())]
    given: dict[str, Any] = {
        "info": info,
        "compactions": compactions,
        "calls": calls,
        "pressure": pressure,
        "turns": turns,
    }
    given |= {"chart": draw_chart(compiles), "faults": faults, "begin": begin}
    return look.show("session.html", wanted, session=wanted, **given)


async def show_events(look: Look) -> Response:
    """Shows what happened to objects, of a session or of all: faults, moves or admissions."""
    kind = look.get("kind") or "fault"
    if kind not in KINDS:
        raise Refused(400, "That is no kind of event", kind)
    rows = await look.memoir.list_events(look.user, look.get("session"), kinds=[kind], limit=PAGE)
    rows = [row | {"event": EVENTS.get(row["event"], row["event"])} for row in rows]
    counts = sorted(Counter(row["event"] for row in rows).items())
    avoided = sum(row["details"].get("avoided_tokens", 0) for row in rows)
    given = {"session": look.get("session"), "counts": counts, "avoided": avoided, "more": len(rows) == PAGE}
    return look.show("events.html", KINDS[kind], events=rows, kind=kind, kinds=KINDS, **given)


async def show_compile(look: Look) -> Response:
    rows = await look.memoir.explain_compile(look.user, look.read_id())
    return look.show("compile.html", "One compile, taken apart", rows=rows, session=look.get("session"))


async def show_ask(look: Look) -> Response:
    """Shows what a compile would consider for a question; nothing is written."""
    question, session = look.get("q") or "", look.get("session")
    found = await look.memoir.explain(look.user, session or "inspector", question) if question else []
    given = {"rows": [row for row in found if row.arms != ["recent"]], "session": session, "asked": question}
    return look.show("ask.html", "Try a question", shown=[row for row in found if row.arms == ["recent"]], **given)


async def show_memories(look: Look) -> Response:
    """Shows all memories, or those that a search finds."""
    words, state = look.get("q") or "", look.get("state") or "active"
    hits, found = [], []
    if words:
        hits = await look.memoir.memory_index(look.user, words, limit=50)
    else:
        states, after = cast("list[State]", [] if state == "all" else [state]), look.get("after")
        found = await look.memoir.list_memories(look.user, states=states, after_memory=after, limit=PAGE)
    given = {"words": words, "hits": hits, "memories": found, "state": state, "more": len(found) == PAGE}
    return look.show("memories.html", "Memories", **given)


async def show_memory(look: Look) -> Response:
    """Shows a memory, a turn or a summary, by its id."""
    name, wanted = look.user, look.read_id()
    found = await look.memoir.memory_get(name, [wanted])
    if not found:
        raise Refused(404, "Nothing has this id", str(wanted))
    around = await look.memoir.memory_timeline(name, wanted, lines_before=4, lines_after=4)
    if found[0]["kind"] != "memory":
        return look.show("turn.html", found[0]["kind"].title(), item=found[0], around=around)
    states, edges, judged = await asyncio.gather(
        look.memoir.memory_history(name, wanted),
        look.memoir.memory_graph(name, wanted),
        look.memoir.list_judgements(name, wanted),
    )
    given = {"around": around, "states": states, "edges": edges, "judged": judged}
    return look.show("memory.html", "Memory", item=found[0], **given)


async def show_health(look: Look) -> Response:
    """Shows the operator how the install does."""
    if look.viewer.user is not None:
        raise Refused(403, "For the operator", "Jobs and health are of the whole install.")
    problems, jobs = None, None
    try:
        problems, jobs = await look.memoir.health_problems(), await look.memoir.list_jobs()
    except NotAuthorizedError:
        log.info("the gateway's login is no admin: the page of health says so")
    given: dict[str, Any] = {"problems": problems, "jobs": jobs, "counts": look.gateway.counts.items()}
    return render(look.request, "health.html", "Health", look.viewer, **given)


async def show_nowhere(look: Look) -> Response:
    raise Refused(404, "There is no such page", look.request.url.path)


# What changes something ---------------------------------------------------------------------------------------------


async def change(look: Look) -> Response:
    """Asks, and on the answer does it: forget, correct or pin a memory."""
    name, wanted, what = look.user, look.read_id(), look.request.path_params["what"]
    found = await look.memoir.memory_get(name, [wanted])
    if what not in ("forget", "correct", "pin") or not found or found[0]["kind"] != "memory":
        raise Refused(404, "There is nothing to change here")
    if look.request.method == "POST":
        to = await _apply_change(look, what, name, wanted, await look.read_form())
        return RedirectResponse(link("/memory", user=name, id=to, done=what), 303)
    sessions = await look.memoir.list_sessions(name, status="active", limit=50) if what == "pin" else []
    return look.show("change.html", f"{what.title()}?", item=found[0], what=what, sessions=sessions)


async def _apply_change(look: Look, what: str, user: str, memory: UUID, form: dict[str, str]) -> Any:
    """Returns the memory to look at then."""
    if what == "forget":
        await look.memoir.forget(user, memory, reason="by a person, in the inspector")
    elif what == "pin":
        await look.memoir.pin(user, form.get("session", ""), memory, reason="by a person, in the inspector")
    if what != "correct":
        return memory
    content = form.get("content", "").strip()
    if not content:
        raise Refused(400, "Nothing was written", "A correction says what is right.")
    try:
        done = await look.memoir.correct(user, memory, content, reason="in the inspector", actor="person")
    except NotAuthorizedError:  # the login's own class is what it is
        done = await look.memoir.correct(user, memory, content, reason="in the inspector")
    return done["memory_id"]


# The way in ---------------------------------------------------------------------------------------------------------


def protect(gateway: Gateway, page: Page | None) -> Callable[[Request], Awaitable[Response]]:
    """Returns a page for viewers that are logged in and on this machine, None: the page to log in on. Errors are pages
    as well."""

    async def answer(request: Request, viewer: Viewer | None) -> Response:
        if not login.is_near(request):
            advice = "Reach the inspector on the gateway's own machine, by http://127.0.0.1 or through an SSH tunnel."
            raise Refused(403, "Only on this machine", advice)
        if page is None and request.method == "GET":
            return _show_login(request)
        token = request.query_params.get("token")
        if page is None or token:
            form = await _parse_form(request) if page is None else {"token": token or ""}
            return _log_in(gateway, request, form.get("token", ""), form.get("to", ""))
        if token is not None or viewer is None:
            here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            return RedirectResponse(link("/login", to=here), 303)
        return await page(Look(gateway, request, viewer))

    async def guard(request: Request) -> Response:
        viewer = login.find_viewer(gateway.config, request) if login.is_near(request) else None
        try:
            response = await answer(request, viewer)
        except (Refused, MemoirError, psycopg.OperationalError, psycopg_pool.PoolTimeout, OSError) as error:
            found = _explain(error)
            response = render(request, "error.html", found.title, viewer, found.status, text=found.text)
        response.headers.update(HEADERS)
        return response

    return guard


def _explain(error: Exception) -> Refused:
    if isinstance(error, Refused):
        return error
    if isinstance(error, (UnknownMemoryError, UnknownSessionError)):
        return Refused(404, "Not found", error.message)
    if isinstance(error, MemoirError):
        is_denied = isinstance(error, NotAuthorizedError)
        told = (403, "The gateway's login may not do that") if is_denied else (400, "That can't be")
        return Refused(*told, error.message)
    log.warning("the database does not answer", exc_info=error)
    return Refused(503, "The database does not answer", "Agents go on without it; try again soon.")


async def leave(look: Look) -> Response:
    await look.read_form()
    response = RedirectResponse(link("/login"), 303)
    response.delete_cookie(login.COOKIE, path="/inspect")
    return response


async def _parse_form(request: Request) -> dict[str, str]:
    body = (await request.body())[:100_000].decode("utf-8", "replace")
    return dict(parse_qsl(body, keep_blank_values=True))


def _log_in(gateway: Gateway, request: Request, token: str, to: str) -> Response:
    known, user = login.admit(gateway.config, token.strip())
    if not known:
        gateway.counts.add("inspect_refused")
        return _show_login(request, 403, "That is neither the inspector's token nor a user's key.")
    response = RedirectResponse(to if to.startswith("/inspect") else link(""), 303)
    login.let_in(gateway.config, response, user)
    return response


def _show_login(request: Request, status: int = 200, problem: str = "") -> Response:
    to = request.query_params.get("to", "")
    return render(request, "login.html", "Log in", status=status, problem=problem, to=to)


PAGES: dict[str, Page] = {
    "": show_home,
    "/user": show_user,
    "/sessions": show_sessions,
    "/session": show_session,
    "/events": show_events,
    "/compile": show_compile,
    "/ask": show_ask,
    "/memories": show_memories,
    "/memory": show_memory,
    "/health": show_health,
}


def routes(gateway: Gateway) -> list[BaseRoute]:
    """Returns /inspect and all below it."""
    return [
        *(Route(f"/inspect{path}", protect(gateway, page), methods=["GET"]) for path, page in PAGES.items()),
        Route("/inspect/change/{what}", protect(gateway, change), methods=["GET", "POST"]),
        Route("/inspect/login", protect(gateway, None), methods=["GET", "POST"]),
        Route("/inspect/logout", protect(gateway, leave), methods=["POST"]),
        Mount("/inspect/static", StaticFiles(directory=HERE / "static")),
        # Everything below /inspect is the gateway's: neither the address nor the cookie goes upstream.
        Route("/inspect{rest:path}", protect(gateway, show_nowhere), methods=ALL),
    ]
