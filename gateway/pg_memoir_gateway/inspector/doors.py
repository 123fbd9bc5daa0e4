"""The way in: addresses, logins, and errors as pages."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import psycopg
import psycopg_pool
from pg_memoir import MemoirError
from pg_memoir.errors import NotAuthorizedError, UnknownMemoryError, UnknownSessionError, UnknownUserError
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from ..gateway import Gateway
from ..rest.exports import Exports
from ..rest.problems import Refused as RestRefused
from . import login, memories, pages, sessions, written
from .actions import act
from .look import Look, Page, Refused, parse_form
from .render import HERE, link, render

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
ERRORS = (Refused, RestRefused, MemoirError, psycopg.Error, psycopg_pool.PoolTimeout, OSError)
log = logging.getLogger("pg_memoir_gateway.inspector")

PAGES: dict[str, Page] = {
    "": pages.show_home,
    "/user": pages.show_user,
    "/timeline": pages.show_timeline,
    "/memories": memories.show_memories,
    "/memory": memories.show_memory,
    "/ways": memories.show_ways,
    "/page": written.show_page,
    "/doubts": memories.show_doubts,
    "/graph": memories.show_graph,
    "/changes": pages.show_changes,
    "/sessions": sessions.show_sessions,
    "/session": sessions.show_session,
    "/ask": sessions.show_ask,
    "/compile": sessions.show_compile,
    "/costs": sessions.show_costs,
    "/events": sessions.show_events,
    "/data": pages.show_data,
    "/health": pages.show_health,
}


def routes(gateway: Gateway) -> list[BaseRoute]:
    """Returns /inspect and all below it."""
    exports = Exports(gateway, lambda error: _show_error(None, error))
    export = pages.export_page(exports, HEADERS)
    return [
        *(Route(f"/inspect{path}", protect(gateway, page), methods=["GET"]) for path, page in PAGES.items()),
        Route("/inspect/export", protect(gateway, export), methods=["GET"]),
        Route("/inspect/change/{what}", protect(gateway, act), methods=["GET", "POST"]),
        Route("/inspect/login", protect(gateway, None), methods=["GET", "POST"]),
        Route("/inspect/logout", protect(gateway, leave), methods=["POST"]),
        Mount("/inspect/static", StaticFiles(directory=HERE / "static")),
        # Everything below /inspect is the gateway's: neither the address nor the cookie goes upstream.
        Route("/inspect{rest:path}", protect(gateway, pages.show_nowhere), methods=ALL),
    ]


def protect(gateway: Gateway, page: Page | None) -> Callable[[Request], Awaitable[Response]]:
    """Returns a page for viewers that are logged in and on this machine, None: the page to log in on. Errors are pages
    as well."""

    async def answer(request: Request, viewer: login.Viewer | None) -> Response:
        if not login.is_near(request):
            advice = "Reach the inspector on the gateway's own machine, by http://127.0.0.1 or through an SSH tunnel."
            raise Refused(403, "Only on this machine", advice)
        if page is None and request.method == "GET":
            return _show_login(request)
        token = request.query_params.get("token")
        if page is None or token:
            form = await parse_form(request) if page is None else {"token": token or ""}
            return _log_in(gateway, request, form.get("token", ""), form.get("to", ""))
        if token is not None or viewer is None:
            here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            return RedirectResponse(link("/login", to=here), 303)
        return await page(Look(gateway, request, viewer))

    async def guard(request: Request) -> Response:
        viewer = login.find_viewer(gateway.config, request) if login.is_near(request) else None
        try:
            response = await answer(request, viewer)
        except ERRORS as error:
            response = _show_error(request, error, viewer)
        response.headers.update(HEADERS)
        return response

    return guard


def _show_error(request: Request | None, error: Exception, viewer: login.Viewer | None = None) -> Response:
    """Returns the page of an error. Without a request it is the answer to a download, and has its own headers."""
    found = _explain(error)
    response = render(request, "error.html", found.title, viewer, found.status, text=found.text)
    response.headers.update(HEADERS)
    return response


def _explain(error: Exception) -> Refused:
    if isinstance(error, Refused):
        return error
    if isinstance(error, RestRefused):
        return Refused(error.status, "Not now", error.detail)
    if isinstance(error, (UnknownMemoryError, UnknownSessionError, UnknownUserError)):
        return Refused(404, "Not found", error.message)
    if isinstance(error, MemoirError):
        is_denied = isinstance(error, NotAuthorizedError)
        told = (403, "The gateway's login may not do that") if is_denied else (400, "That can't be")
        return Refused(*told, ". ".join(filter(None, (error.message, error.hint))))
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return Refused(403, "The gateway's login may not do that", f"PostgreSQL says: {error.diag.message_primary}.")
    if isinstance(error, psycopg.errors.QueryCanceled):
        return Refused(503, "That took too long", "It was ended, and changed nothing. Ask for less, or try again.")
    if isinstance(error, psycopg.Error) and not isinstance(error, psycopg.OperationalError):
        log.error("an error of the database", exc_info=error)
        return Refused(500, "The database refused that", "The gateway's log says why.")
    log.warning("the database does not answer", exc_info=error)
    return Refused(503, "The database does not answer", "Agents go on without it; try again soon.")


async def leave(look: Look) -> Response:
    """Logs out."""
    await look.read_form()
    response = RedirectResponse(link("/login"), 303)
    response.delete_cookie(login.COOKIE, path="/inspect")
    return response


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
