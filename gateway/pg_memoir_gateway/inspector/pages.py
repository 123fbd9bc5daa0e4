"""The pages. Each reads what the database says and shows it; forget, correct and pin ask before they do anything."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode
from uuid import UUID

import jinja2
import psycopg
import psycopg_pool
from pg_memoir import MemoirError
from pg_memoir.errors import NotAuthorizedError, UnknownMemoryError, UnknownSessionError
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from ..gateway import Gateway
from . import login
from .chart import chart_of
from .login import Viewer

HERE = Path(__file__).parent
COMPILES, TURNS, PAGE = 60, 60, 100
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
        """Whose pages these are. Raises Refused where the viewer may not see them."""
        user = self.query.get("user") or self.viewer.user or self.gateway.config.user
        if not self.viewer.may_see(user):
            raise Refused(403, "Not yours to see", f"You are logged in as {self.viewer.user}.")
        return user

    def asked(self, name: str) -> str:
        """An argument of the address that must be there."""
        if not (value := self.query.get(name, "").strip()):
            raise Refused(400, f"The address lacks {name}")
        return value

    def id(self, name: str = "id") -> UUID:
        """The same, an id."""
        try:
            return UUID(self.asked(name))
        except ValueError:
            raise Refused(400, "That is no id", self.asked(name)) from None

    async def form(self) -> dict[str, str]:
        """What the form says. Raises Refused where it is not ours."""
        body = await self.request.body()
        form = dict(parse_qsl(body[:100_000].decode("utf-8", "replace"), keep_blank_values=True))
        if not login.is_meant(self.request, self.viewer, form):
            raise Refused(
                403, "Not done", "That form did not come from this inspector, or is too old. Go back and try again."
            )
        return form

    def show(self, template: str, title: str, status: int = 200, **values: Any) -> Response:
        """A page."""
        text = TEMPLATES.get_template(template).render(
            title=title, viewer=self.viewer, path=self.request.url.path, query=self.query, **values
        )
        return HTMLResponse(text, status)


def link(path: str, **values: Any) -> str:
    """An address within the inspector."""
    given = {name: value for name, value in values.items() if value not in (None, "")}
    return f"/inspect{path}" + (f"?{urlencode(given)}" if given else "")


def moment(at: Any) -> str:
    """A time as people read it, in UTC."""
    if isinstance(at, str):
        at = datetime.fromisoformat(at)
    return f"{at:%-d %b %Y, %H:%M}" if at else "–"


def number(value: Any) -> str:
    return "–" if value is None else f"{value:,.0f}".replace(",", " ")


def share(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(HERE / "templates"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.globals |= {"link": link}
TEMPLATES.filters |= {"moment": moment, "number": number, "share": share}


# Pages --------------------------------------------------------------------------------------------------------------


async def home(look: Look) -> Response:
    """Users, for the operator; one's own page, for a user."""
    if look.viewer.user is not None or look.query.get("user"):
        return RedirectResponse(link("/user", user=look.user), 303)
    users = await look.memoir.list_users(after_user=look.query.get("after") or None, limit=PAGE)
    return look.show("users.html", "Users", users=users, more=len(users) == PAGE)


async def user(look: Look) -> Response:
    name = look.user
    profile, stats, sessions, changes = await asyncio.gather(
        look.memoir.profile(name),
        look.memoir.memory_stats(name),
        look.memoir.list_sessions(name, limit=8),
        look.memoir.list_changes(name),
    )
    known = [line for line in profile["content"].splitlines() if line.strip()]
    return look.show(
        "user.html", name, user=name, known=known, profile=profile, stats=stats, sessions=sessions, changes=changes[:8]
    )


async def sessions(look: Look) -> Response:
    found = await look.memoir.list_sessions(look.user, after_session=look.query.get("after") or None, limit=PAGE)
    return look.show("sessions.html", "Sessions", user=look.user, sessions=found, more=len(found) == PAGE)


FAULTS = {
    "micro_fault": "asked about, and answered",
    "full_restore": "asked for whole",
    "page_fault": "fetched again by the model itself",
    "entropy_triggered": "raised, since the model was unsure",
}
"""How a model got what it was not shown."""


async def session(look: Look) -> Response:
    name, wanted = look.user, look.asked("session")
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
    return look.show(
        "session.html",
        wanted,
        user=name,
        session=wanted,
        info=info,
        chart=chart_of(compiles),
        compactions=compactions,
        calls=calls,
        pressure=pressure,
        faults=[(FAULTS.get(kind, kind), count) for kind, count in sorted(pressure["faults"].items())],
        turns=turns,
        begin=begin,
    )


async def faults(look: Look) -> Response:
    """What models needed and were not shown, of a session or of all."""
    rows = await look.memoir.list_faults(look.user, look.query.get("session") or None, limit=PAGE)
    counts = Counter(FAULTS.get(row["fault"], row["fault"]) for row in rows)
    return look.show(
        "faults.html",
        "Faults",
        user=look.user,
        session=look.query.get("session"),
        faults=[row | {"fault": FAULTS.get(row["fault"], row["fault"])} for row in rows],
        counts=sorted(counts.items()),
        avoided=sum(row["avoided_tokens"] or 0 for row in rows),
        more=len(rows) == PAGE,
    )


async def compiled(look: Look) -> Response:
    rows = await look.memoir.explain_compile(look.user, look.id())
    return look.show(
        "compile.html",
        "One compile, taken apart",
        user=look.user,
        rows=rows,
        session=look.query.get("session"),
        asked=None,
    )


async def ask(look: Look) -> Response:
    """What a compile would consider for a question; nothing is written."""
    name, wanted, question = look.user, look.query.get("session") or "inspector", look.query.get("q", "").strip()
    rows = await look.memoir.explain(name, wanted, question) if question else []
    return look.show(
        "ask.html",
        "Try a question",
        user=name,
        session=look.query.get("session"),
        asked=question,
        rows=[row for row in rows if row.arms != ["recent"]],
        shown=[row for row in rows if row.arms == ["recent"]],
    )


async def memories(look: Look) -> Response:
    """All that is known, or what a search finds."""
    name, words = look.user, look.query.get("q", "").strip()
    state = look.query.get("state") or "active"
    if words:
        hits = await look.memoir.memory_index(name, words, limit=50)
        return look.show(
            "memories.html", "Memories", user=name, words=words, hits=hits, memories=[], state=state, more=False
        )
    found = await look.memoir.list_memories(
        name, states=[] if state == "all" else [state], after_memory=look.query.get("after") or None, limit=PAGE
    )
    return look.show(
        "memories.html", "Memories", user=name, words="", hits=[], memories=found, state=state, more=len(found) == PAGE
    )


async def memory(look: Look) -> Response:
    """A memory, a turn or a summary, by its id."""
    name, wanted = look.user, look.id()
    found = await look.memoir.memory_get(name, [wanted])
    if not found:
        raise Refused(404, "Nothing has this id", str(wanted))
    around = await look.memoir.memory_timeline(name, wanted, lines_before=4, lines_after=4)
    if found[0]["kind"] != "memory":
        return look.show("turn.html", found[0]["kind"].title(), user=name, item=found[0], around=around)
    states, edges, judged = await asyncio.gather(
        look.memoir.memory_history(name, wanted),
        look.memoir.memory_graph(name, wanted),
        look.memoir.list_judgements(name, wanted),
    )
    return look.show(
        "memory.html", "Memory", user=name, item=found[0], around=around, states=states, edges=edges, judged=judged
    )


async def health(look: Look) -> Response:
    """How the install does: for the operator."""
    if look.viewer.user is not None:
        raise Refused(403, "For the operator", "Jobs and health are of the whole install.")
    problems, jobs = None, None
    try:
        problems, jobs = await look.memoir.health_problems(), await look.memoir.list_jobs()
    except NotAuthorizedError:
        log.info("the gateway's login is no admin: the page of health says so")
    return look.show("health.html", "Health", problems=problems, jobs=jobs, counts=look.gateway.counts.items())


# What changes something ---------------------------------------------------------------------------------------------


async def change(look: Look) -> Response:
    """Asks, and on the answer does it: forget, correct or pin a memory."""
    name, wanted, what = look.user, look.id(), look.request.path_params["what"]
    found = await look.memoir.memory_get(name, [wanted])
    if what not in ("forget", "correct", "pin") or not found or found[0]["kind"] != "memory":
        raise Refused(404, "There is nothing to change here")
    if look.request.method == "POST":
        form = await look.form()
        to = await _apply_change(look, what, name, wanted, form)
        return RedirectResponse(link("/memory", user=name, id=to, done=what), 303)
    sessions = await look.memoir.list_sessions(name, status="active", limit=50) if what == "pin" else []
    return look.show("change.html", f"{what.title()}?", user=name, item=found[0], what=what, sessions=sessions)


async def _apply_change(look: Look, what: str, user: str, memory: UUID, form: dict[str, str]) -> Any:
    """Does it; returns the memory to look at then."""
    if what == "forget":
        await look.memoir.forget(user, memory, reason="by a person, in the inspector")
        return memory
    if what == "pin":
        await look.memoir.pin(user, form.get("session", ""), memory, reason="by a person, in the inspector")
        return memory
    content = form.get("content", "").strip()
    if not content:
        raise Refused(400, "Nothing was written", "A correction says what is right.")
    try:
        done = await look.memoir.correct(user, memory, content, reason="in the inspector", actor="person")
    except NotAuthorizedError:  # the login's own class is what it is
        done = await look.memoir.correct(user, memory, content, reason="in the inspector")
    return done["memory_id"]


async def nowhere(look: Look) -> Response:
    raise Refused(404, "There is no such page", look.request.url.path)


# The way in ---------------------------------------------------------------------------------------------------------


def guard(gateway: Gateway, page: Page) -> Callable[[Request], Awaitable[Response]]:
    """The page, for who is logged in and on this machine; errors as pages."""

    async def answer(request: Request) -> Response:
        if not login.is_near(request):
            return _error(
                request,
                Refused(
                    403,
                    "Only on this machine",
                    "Reach the inspector on the gateway's own machine, by http://127.0.0.1 or through an SSH tunnel.",
                ),
            )
        viewer = login.viewer_of(gateway.config, request)
        token = request.query_params.get("token")
        if token is not None or viewer is None:
            return (
                _log_in(gateway, request, token) if token else RedirectResponse(link("/login", to=_here(request)), 303)
            )
        try:
            return await page(Look(gateway, request, viewer))
        except Refused as refused:
            return _error(request, refused, viewer)
        except (UnknownMemoryError, UnknownSessionError) as error:
            return _error(request, Refused(404, "Not found", error.message), viewer)
        except NotAuthorizedError as error:
            return _error(request, Refused(403, "The gateway's login may not do that", error.message), viewer)
        except MemoirError as error:
            return _error(request, Refused(400, "That can't be", error.message), viewer)
        except (psycopg.OperationalError, psycopg_pool.PoolTimeout, OSError):
            log.warning("the database does not answer", exc_info=True)
            return _error(
                request,
                Refused(503, "The database does not answer", "Agents go on without it; try again soon."),
                viewer,
            )

    async def secure(request: Request) -> Response:
        response = await answer(request)
        response.headers.update(HEADERS)
        return response

    return secure


def entrance(gateway: Gateway) -> Callable[[Request], Awaitable[Response]]:
    """The page to log in on, and out."""

    async def answer(request: Request) -> Response:
        if not login.is_near(request):
            response: Response = _error(request, Refused(403, "Only on this machine"))
        elif request.method == "GET":
            response = _login_page(request)
        else:
            form = dict(parse_qsl((await request.body())[:10_000].decode("utf-8", "replace"), keep_blank_values=True))
            response = _log_in(gateway, request, form.get("token", ""), form.get("to", ""))
        response.headers.update(HEADERS)
        return response

    return answer


async def leave(look: Look) -> Response:
    await look.form()
    response = RedirectResponse(link("/login"), 303)
    response.delete_cookie(login.COOKIE, path="/inspect")
    return response


def _log_in(gateway: Gateway, request: Request, token: str, to: str = "") -> Response:
    known, user = login.admit(gateway.config, token.strip())
    if not known:
        gateway.counts.add("inspect_refused")
        return _login_page(request, 403, "That is neither the inspector's token nor a user's key.")
    response = RedirectResponse(to if to.startswith("/inspect") else link(""), 303)
    login.let_in(gateway.config, response, user)
    return response


def _login_page(request: Request, status: int = 200, problem: str = "") -> Response:
    to = request.query_params.get("to", "")
    text = TEMPLATES.get_template("login.html").render(
        title="Log in", viewer=None, path=request.url.path, query={}, problem=problem, to=to
    )
    return HTMLResponse(text, status)


def _error(request: Request, refused: Refused, viewer: Viewer | None = None) -> Response:
    text = TEMPLATES.get_template("error.html").render(
        title=refused.title, text=refused.text, viewer=viewer, path=request.url.path, query={}
    )
    return HTMLResponse(text, refused.status)


def _here(request: Request) -> str:
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


def routes(gateway: Gateway) -> list[BaseRoute]:
    """/inspect and all below it."""
    pages: dict[str, Page] = {
        "": home,
        "/user": user,
        "/sessions": sessions,
        "/session": session,
        "/faults": faults,
        "/compile": compiled,
        "/ask": ask,
        "/memories": memories,
        "/memory": memory,
        "/health": health,
    }
    return [
        *(Route(f"/inspect{path}", guard(gateway, page), methods=["GET"]) for path, page in pages.items()),
        Route("/inspect/change/{what}", guard(gateway, change), methods=["GET", "POST"]),
        Route("/inspect/login", entrance(gateway), methods=["GET", "POST"]),
        Route("/inspect/logout", guard(gateway, leave), methods=["POST"]),
        Mount("/inspect/static", StaticFiles(directory=HERE / "static")),
        # Nothing below /inspect is anybody else's: neither the address nor the cookie goes upstream.
        Route(
            "/inspect{rest:path}",
            guard(gateway, nowhere),
            methods=["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"],
        ),
    ]
