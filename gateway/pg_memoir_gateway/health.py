"""What others ask of the gateway itself: a memory by its id (citation), whether it is well, and its counts."""

from __future__ import annotations

import re
from uuid import UUID

import psycopg
from pg_memoir import MemoirError
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from .access import find_user
from .gateway import BOUNDS, Gateway, log

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def routes(gateway: Gateway) -> list[BaseRoute]:
    """/observation/{id}, /healthz, /metrics."""

    async def observation(request: Request) -> Response:
        return await _show_observation(gateway, request)

    async def healthz(request: Request) -> Response:
        problem = await find_problem(gateway)
        status = {"status": "degraded" if problem else "ok", "database": problem or "answers"}
        return JSONResponse(status, headers={"cache-control": "no-store"})

    async def metrics(request: Request) -> Response:
        text = write_metrics(gateway, up=await find_problem(gateway) is None)
        return PlainTextResponse(text, media_type=OPENMETRICS)

    return [
        Route("/observation/{id}", observation, methods=["GET"]),
        Route("/healthz", healthz, methods=["GET"]),
        Route("/metrics", metrics, methods=["GET"]),
    ]


async def find_problem(gateway: Gateway) -> str | None:
    """Why the database does not answer; None where it does."""
    try:
        await gateway.within(1.5, gateway.memoir.count_tokens("well?"))
    except Exception as error:  # whatever it is: this is what is asked
        return f"{type(error).__name__}: {error}".strip(": \n")
    return None


async def _show_observation(gateway: Gateway, request: Request) -> Response:
    whose = find_user(gateway.config, request.headers)
    if whose is None:
        return JSONResponse({"error": "unauthorized"}, 401, {"WWW-Authenticate": 'Bearer realm="pg_memoir"'})
    try:
        wanted = UUID(request.path_params["id"])
    except ValueError:
        return JSONResponse({"error": f"not an id: {request.path_params['id']}"}, 400)
    if request.headers.get("accept", "").startswith("text/html"):  # a person follows a citation
        return RedirectResponse(f"/inspect/memory?id={wanted}", 303)
    try:
        found = await gateway.within(10, gateway.memoir.memory_get(whose[0], [wanted]))
    except MemoirError as error:
        return JSONResponse({"error": error.message}, 403)
    except (psycopg.Error, TimeoutError, OSError) as error:
        log.info("no answer to a citation: %s: %s", type(error).__name__, error)
        return JSONResponse({"error": "the database does not answer. Try again in a moment."}, 503)
    return JSONResponse(found[0]) if found else JSONResponse({"error": f"no such id: {wanted}"}, 404)


def write_metrics(gateway: Gateway, up: bool) -> str:
    """The counts of this process in the OpenMetrics text format."""
    lines = ["# TYPE pg_memoir_database_up gauge", f"pg_memoir_database_up {int(up)}"]
    pool = gateway.memoir.pool_load()
    gauges = {
        "open_requests": gateway.open_requests,
        "pending_bytes": gateway.pending_bytes,
        "pool_connections": pool.size,
        "pool_idle": pool.idle,
        "pool_connections_max": pool.max_size,
        "pool_waiting": pool.waiting,
    }
    for name, now in gauges.items():
        lines += [f"# TYPE pg_memoir_gateway_{name} gauge", f"pg_memoir_gateway_{name} {now}"]
    named = ""
    for name, labels, value in gateway.counts.items():
        full = f"pg_memoir_gateway_{_clean_name(name)}"
        if full != named:
            lines.append(f"# TYPE {full} counter")
            named = full
        shown = ",".join(f'{_clean_name(key)}="{_escape_label(text)}"' for key, text in labels.items())
        lines.append(f"{full}_total{'{' + shown + '}' if shown else ''} {value:.15g}")
    for name, counted in gateway.counts.times():
        full, so_far = f"pg_memoir_gateway_{_clean_name(name)}", 0.0
        lines.append(f"# TYPE {full} histogram")
        for bound, count in zip([*map(str, BOUNDS), "+Inf"], counted):
            so_far += count
            lines.append(f'{full}_bucket{{le="{bound}"}} {so_far:.15g}')
        lines += [f"{full}_count {so_far:.15g}", f"{full}_sum {counted[-1]:.15g}"]
    return "\n".join([*lines, "# EOF", ""])


def _clean_name(name: str) -> str:
    return re.sub(r"\W", "_", name)


def _escape_label(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
