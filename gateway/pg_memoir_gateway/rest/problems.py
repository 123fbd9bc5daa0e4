"""Errors as application/problem+json (RFC 9457)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import psycopg
from pg_memoir import MemoirError, errors
from psycopg_pool import PoolTimeout
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from ..bounded import CONNECTIONS, LOCK_MS, STATEMENT_MS, WAIT_SECONDS
from ..gateway import log

PREFIX = "/memoir/v1"
MEDIA_TYPE = "application/problem+json"
STATUSES: dict[type[MemoirError], int] = {
    errors.NotAuthorizedError: 403,
    errors.UnknownUserError: 404,
    errors.UnknownSessionError: 404,
    errors.UnknownMemoryError: 404,
    errors.SessionClosedError: 409,
    errors.ChangedElsewhereError: 409,
    errors.NothingToContinueError: 409,
    errors.CostBudgetExceededError: 409,
    errors.TombstoneError: 409,
    errors.TextTooLargeError: 413,
    errors.ReplicaBehindError: 503,
    errors.KernelMissingError: 503,
    errors.MaintenanceUnavailableError: 503,
}
"""Statuses of what the database refuses. All else of it has 422: the request is well formed, but cannot be done."""

UNANSWERED: dict[type[Exception], str] = {
    PoolTimeout: f"None of the {CONNECTIONS} connections for REST came free within {WAIT_SECONDS:.0f} s.",
    psycopg.errors.QueryCanceled: f"The call took over {STATEMENT_MS // 1000} s, so it was ended and changed nothing.",
    psycopg.errors.LockNotAvailable: f"Another call held what this one needs for over {LOCK_MS // 1000} s.",
}
"""Why no answer came, where it is not that the database is away."""
MOST_MISTAKES = 1000  # more are only counted, because each costs time


class Mistake(BaseModel):
    """One mistake in a request: a JSON pointer into the body, or the name of a parameter."""

    detail: str
    pointer: str = ""
    parameter: str = ""


class Problem(BaseModel):
    """An error (RFC 9457). `detail` names the value. `code` and `error` are those of the page of errors, where the
    database refused the request; `hint` says what to do."""

    model_config = ConfigDict(extra="allow")

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    code: str = ""
    error: str = ""
    hint: str = ""
    errors: list[Mistake] = Field(default_factory=list)


class Refused(Exception):
    """Ends a request with a problem."""

    def __init__(
        self, status: int, detail: str, headers: Mapping[str, str] | None = None, mistakes: Sequence[Mistake] = ()
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers, self.mistakes = status, detail, headers, list(mistakes)


def problem_response(status: int, detail: str, headers: Mapping[str, str] | None = None, **more: Any) -> Response:
    """Returns a problem; its title is the status's name unless `more` has another."""
    problem = Problem(**{"title": HTTPStatus(status).phrase} | more, status=status, detail=detail)
    body = problem.model_dump_json(exclude_unset=True)
    return Response(body, status, {"cache-control": "no-store"} | dict(headers or {}), MEDIA_TYPE)


def explain(error: Exception) -> Response:
    """Returns the problem that an error is to a client. Errors of the database's own go to the log, not to the
    client."""
    if isinstance(error, Refused):
        more = {"errors": error.mistakes} if error.mistakes else {}
        return problem_response(error.status, error.detail, error.headers, **more)
    if isinstance(error, HTTPException):
        return problem_response(error.status_code, error.detail, error.headers)
    if isinstance(error, MemoirError):
        return _explain_refusal(error)
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return problem_response(403, "The gateway's login in the database may not do this.")
    if isinstance(error, (psycopg.OperationalError, TimeoutError, OSError)):
        log.warning("no answer over REST: %s: %s", type(error).__name__, error)
        reason = UNANSWERED.get(type(error), "The database does not answer.")
        return problem_response(503, f"{reason} Try again in a moment.", {"retry-after": "1"})
    log.error("an error over REST", exc_info=error)
    return problem_response(500, "The gateway failed. Its log says why.")


def _explain_refusal(error: MemoirError) -> Response:
    kind = type(error)
    status = STATUSES.get(kind, 422)
    more: dict[str, Any] = {"type": f"urn:pg-memoir:error:{error.code}", "code": error.code, "error": kind.__name__}
    title = (kind.__doc__ or "").partition(".")[0]
    more |= {"hint": error.hint} if error.hint else {}
    more |= {"sizes": error.detail} if isinstance(error.detail, dict) else {}
    return problem_response(status, error.message, {"retry-after": "1"} if status == 503 else None, title=title, **more)


def find_mistakes(error: ValidationError, in_body: bool) -> Refused:
    """Returns what is wrong with a request's body or parameters: each place with its value."""
    if error.error_count() > MOST_MISTAKES:
        part = "body" if in_body else "query string"
        return Refused(400, f"The {part} has {error.error_count()} mistakes. /openapi.json says what it may hold.")
    found = []
    for entry in error.errors(include_url=False):
        place, said = [str(part) for part in entry["loc"]], entry["msg"]
        if entry["type"] not in ("missing", "json_invalid"):
            said = f"{said}, not {_shorten(entry['input'])}"
        pointer = "#" + "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in place)
        where = {"pointer": pointer} if in_body else {"parameter": place[0]}
        found.append(Mistake(detail=f"{'.'.join(place) or 'The body'}: {said}", **where))
    return Refused(400, found[0].detail, mistakes=found[:20])


def _shorten(value: Any) -> str:
    shown = json.dumps(value, ensure_ascii=False, default=str)
    return shown if len(shown) <= 80 else shown[:79] + "…"
