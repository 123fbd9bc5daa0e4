"""Answers requests below /memoir/v1: whose they are, what they ask, what comes back."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qsl, unquote

from pydantic import ValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Match, Route, Router
from starlette.types import Receive, Scope, Send

from ..access import find_service, find_user, may_act_for
from ..gateway import Gateway, in_thread
from ..spans import MOST_BYTES, MOST_VALUES
from .document import make_document
from .exports import Exports
from .operations import OPERATIONS, Operation
from .problems import PREFIX, Refused, explain, find_mistakes
from .streams import LAST, Streams

BODY_SECONDS = 60.0  # a request whose body takes longer is given up
CALL_SECONDS = 40.0  # a request waits so long for its call, which the database ends before (bounded.py)
KEY = re.compile(r"[!-~]{1,200}")
KEYED = ", ".join(one.path for one in OPERATIONS if one.has_key)
HEADERS = {"cache-control": "no-store"}


def routes(gateway: Gateway) -> list[BaseRoute]:
    """Returns /openapi.json, and the operations below /memoir/v1."""

    async def document(request: Request) -> Response:
        return JSONResponse(make_document())

    return [Route("/openapi.json", document, methods=["GET"]), Rest(gateway)]


class Rest(BaseRoute):
    """All paths below PREFIX, as they were sent: a name may hold an encoded slash or a line break."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.exports = Exports(gateway, self.explain)
        self.streams = Streams(gateway)
        by_path: dict[str, dict[str, Operation]] = defaultdict(dict)
        for operation in OPERATIONS:
            by_path[operation.path][operation.verb] = operation
        found = [Route(PREFIX + path, self._endpoint(verbs), methods=[*verbs]) for path, verbs in by_path.items()]
        self._router = Router(found, redirect_slashes=False, default=_not_found)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        is_ours = scope["type"] == "http" and scope["raw_path"].startswith(PREFIX.encode() + b"/")
        return Match.FULL if is_ours else Match.NONE, {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        inner = {**scope, "path": scope["raw_path"].decode("ascii", "replace")}
        try:
            await self._router(inner, receive, send)
        except HTTPException as error:
            if error.status_code == 405:
                allowed = ", ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))
                error.detail = f"The method {scope['method']} is not allowed here, only {allowed}."
            await explain(error)(scope, receive, send)

    def _endpoint(self, verbs: dict[str, Operation]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            operation = verbs["GET" if request.method == "HEAD" else request.method]
            self.gateway.counts.add("rest_requests", operation=operation.name)
            try:
                return await self._answer(operation, request)
            except ClientDisconnect:
                return Response(status_code=400)
            except Exception as error:
                return self.explain(error)

        return endpoint

    async def _answer(self, operation: Operation, request: Request) -> Response:
        path = _read_path(request)
        self._authorise(operation, request, path.get("user"))
        key = _read_key(operation, request)
        try:
            arguments = operation.read_outside(path, _read_query(request))
        except ValidationError as error:
            raise find_mistakes(error, False) from None
        if operation.body:
            body = await _read_body(request)
            arguments |= await in_thread(len(body), lambda: _read_arguments(operation, body))
        memoir = self.gateway.rest_memoir
        if operation.is_stream:
            return self.exports.make(arguments["user"], operation.call(memoir, **arguments), HEADERS)
        if operation.has_events:
            arguments |= {"after": last} if (last := request.headers.get(LAST)) else {}
            return await self.streams.make(operation.call(memoir, **arguments), HEADERS)
        answer = await self.gateway.within(CALL_SECONDS, operation.run(memoir, arguments | key))
        if operation.answer is None:
            return Response(status_code=204, headers=HEADERS)
        return Response(to_json(answer), 200, HEADERS, "application/json")

    def _authorise(self, operation: Operation, request: Request, user: str | None) -> None:
        """Raises Refused unless the key is a service's, or that of the user whom the path names."""
        config = self.gateway.config
        if find_service(config, request.headers):
            return
        whose = find_user(config, request.headers)
        if whose is None:
            told = "No listed key came with the request. Send it as a bearer token or as x-api-key."
            raise Refused(401, told, {"WWW-Authenticate": 'Bearer realm="pg_memoir"'})
        if operation.for_services:
            raise Refused(403, f"{operation.path} is about all users. Use a service's key.")
        if not may_act_for(whose[0], user):
            raise Refused(403, f"The request is of user {whose[0]!r}, the path names {user!r}.")

    def explain(self, error: Exception) -> Response:
        """Returns the problem of an error, and counts it."""
        response = explain(error)
        self.gateway.counts.add("rest_problems", status=str(response.status_code))
        return response


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    raise HTTPException(404, f"{scope['path']} is no path of the API. /openapi.json lists all.")


def _read_path(request: Request) -> dict[str, str]:
    try:
        return {name: unquote(text, errors="strict") for name, text in request.path_params.items()}
    except UnicodeDecodeError:
        raise Refused(400, f"The path {request.url.path!r} is no UTF-8.") from None


def _read_query(request: Request) -> list[tuple[str, str]]:
    try:
        query = request.scope["query_string"].decode("ascii")
        return parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=1000)
    except ValueError:
        raise Refused(400, f"The query string {request.scope['query_string'][:80]!r} can't be read.") from None


def _read_key(operation: Operation, request: Request) -> dict[str, str]:
    """Returns the idempotency key as an argument; quotes around it, as of a structured field, do not count."""
    key = request.headers.get("idempotency-key")
    if key is None:
        return {}
    if operation.has_key:
        if len(key) > 2 and key[0] == key[-1] == '"':
            key = key[1:-1]
        if KEY.fullmatch(key):
            return {"key": key}
        told = "not 1 to 200 printable ASCII characters without spaces"
        raise Refused(400, f"Idempotency-Key is {key[:80]!r}, {told}.")
    if operation.verb == "POST":
        raise Refused(400, f"POST {operation.path} takes no Idempotency-Key, it is {key[:80]!r}. {KEYED} take one.")
    return {}


async def _read_body(request: Request) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MOST_BYTES:
                    raise Refused(413, f"The body has over {MOST_BYTES} bytes.")
    except TimeoutError:
        raise Refused(408, f"The body did not come within {BODY_SECONDS:.0f} s.") from None
    return bytes(body)


def _read_arguments(operation: Operation, body: bytes) -> dict[str, Any]:
    """Returns the arguments in a body. Raises Refused."""
    _check_values(body)
    try:
        return operation.read_body(body)
    except ValidationError as error:
        raise find_mistakes(error, True) from None


def _check_values(body: bytes) -> None:
    """Raises Refused for a body of too many values. Reading one takes a hundred times its bytes of memory."""
    plain = body.replace(rb"\\", b"").replace(rb"\"", b"")
    if plain.count(b'"') <= 4 * MOST_VALUES:  # a text and its name have two each
        outside = b"".join(plain.split(b'"')[::2])
        if sum(map(outside.count, (b",", b"[", b"{"))) <= MOST_VALUES:
            return
    raise Refused(413, f"The body has over {MOST_VALUES} values.")
