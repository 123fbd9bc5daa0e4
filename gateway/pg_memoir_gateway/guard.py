"""Stands in front of every route and turns away what a web page can make a browser send.

A gateway on a person's machine is reachable for each page in their browser: by a request to 127.0.0.1, or by a name
of the page's own that is made to point there (DNS rebinding). A browser tells who asks, in Host, Origin and
Sec-Fetch-*. https://www.w3.org/TR/fetch-metadata/ · https://modelcontextprotocol.io/specification (transports,
security warning)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .access import has_listed_key
from .config import Config, is_loopback
from .gateway import Gateway, log
from .rest.problems import PREFIX, problem_response
from .talk import is_conversation_path

# Content types that a page can send anywhere without asking (https://fetch.spec.whatwg.org/#cors-safelisted-request-
# header).
FORMS = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data")
WARNED = 20  # so many refusals of each reason are logged. The counter goes on.
NO_WEBSOCKET = "The gateway does not speak WebSocket. Use HTTP."
ADVICE = "Add it to allowed_hosts in the gateway's settings if you trust it."


class Refusal(NamedTuple):
    """Why a request is turned away: a status, a word for the counter, a sentence for the client."""

    status: int
    reason: str
    message: str


class Guard:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        self.app = app
        self.gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            return await _refuse_websocket(scope, receive, send)
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        headers = Headers(scope=scope)
        answer: Response | None = None
        if refusal := find_refusal(self.gateway.config, scope, headers):
            self.gateway.counts.add("requests_refused", reason=refusal.reason)
            if self.gateway.counts.of("requests_refused", reason=refusal.reason) <= WARNED:
                log.warning("refused a request to %s: %s", scope["path"], refusal.message)
            answer = _answer_refusal(scope["path"], refusal)
        elif scope["method"] == "OPTIONS":
            answer = Response(status_code=204)
        elif headers.get("upgrade", "").lower() == "websocket":
            answer = error_response(426, "upgrade_required", NO_WEBSOCKET)
        origin = headers.get("origin")
        if origin and not (answer and answer.status_code >= 400):
            send = _add_cors(send, origin, headers)
        await (answer or self.app)(scope, receive, send)


def error_response(status: int, kind: str, message: str) -> JSONResponse:
    """Returns an error in the shape that the SDKs of Anthropic and OpenAI both show."""
    return JSONResponse({"type": "error", "error": {"type": kind, "message": message}}, status)


def _answer_refusal(path: str, refusal: Refusal) -> Response:
    if path.startswith(PREFIX + "/"):
        return problem_response(refusal.status, refusal.message)
    return error_response(refusal.status, "forbidden", refusal.message)


def find_refusal(config: Config, scope: Scope, headers: Headers) -> Refusal | None:
    """Returns why a request is turned away, None if it may pass."""
    # A page can't know a listed key, so a request that has one may come under any name: through a reverse proxy, say.
    has_key = has_listed_key(config, headers)
    server = (scope.get("server") or ("",))[0]
    for host in headers.getlist("host"):
        name = _strip_port(host)
        if not (has_key or name == server or is_loopback(name) or _is_listed(config.allowed_hosts, host, name)):
            return Refusal(403, "host", f"The host {host!r} is not allowed. {ADVICE}")
    origins = headers.getlist("origin")
    listed = [o for o in origins if _is_listed_origin(config.allowed_hosts, o)]
    # Without keys these paths are open to all who may pass, so not to pages of any other server on this machine.
    is_open = _shows_memory(scope["path"]) and not config.has_keys
    for origin in origins:
        is_own = origin.lower().partition("://")[2] == headers.get("host", "").lower()
        if origin not in listed and not (is_loopback(_read_origin(origin)) and (is_own or not is_open)):
            return Refusal(403, "origin", f"Pages of the origin {origin!r} may not call the gateway. {ADVICE}")
    if "cross-site" in headers.getlist("sec-fetch-site") and not listed and not _is_navigation(scope, headers):
        return Refusal(403, "cross-site", "A page of another site may not call the gateway.")
    kind = headers.get("content-type", "").split(";")[0].strip().lower()
    if scope["method"] in ("POST", "PUT", "PATCH") and not _may_hold(scope["path"], kind, bool(origins)):
        return Refusal(415, "content-type", f"The content type is {kind!r}. Send application/json.")
    return None


def _strip_port(host: str) -> str:
    """Returns a host without its port."""
    end = host.rfind("]")
    name = host[: end + 1] if end >= 0 else host.partition(":")[0]
    return name.strip("[]").rstrip(".").lower()


def _read_origin(origin: str) -> str:
    try:
        return (urlsplit(origin).hostname or "").rstrip(".").lower()
    except ValueError:
        return ""


def _is_listed(allowed: Iterable[str], host: str, name: str) -> bool:
    """Is that a listed host? An entry without a port stands for all ports, `*.` for names below, `*` for all."""
    for entry in map(str.lower, allowed):
        if entry in ("*", name, host.lower()) or entry.startswith("*.") and name.endswith(entry[1:]):
            return True
    return False


def _is_listed_origin(allowed: Iterable[str], origin: str) -> bool:
    """Is that a listed origin, or one of a listed host? `*` lists no origin: any page has one."""
    entries = [entry for entry in allowed if entry != "*"]
    if origin.lower() in map(str.lower, entries):
        return True
    return bool(name := _read_origin(origin)) and _is_listed(entries, origin.partition("://")[2], name)


def _shows_memory(path: str) -> bool:
    """Does the gateway answer this path itself, from the memory? Ports are one site to a browser, so that
    Sec-Fetch-Site does not tell their pages apart."""
    return path == "/mcp" or path.startswith((f"{PREFIX}/", "/observation/", "/inspect"))


def _is_navigation(scope: Scope, headers: Headers) -> bool:
    """Does a person follow a link, such as that of a citation? The page with the link sees nothing of the answer."""
    told = headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")
    return scope["method"] == "GET" and told == ("navigate", "document")


def _may_hold(path: str, kind: str, from_page: bool) -> bool:
    """May a body of this content type be sent to this path? The inspector's forms carry a secret of their own, and
    uploads to the providers are no JSON."""
    if path.startswith("/inspect"):
        return True
    if path == "/mcp" or path.startswith(PREFIX + "/") or is_conversation_path(path):
        return kind == "application/json" or kind.endswith("+json") or not kind and not from_page
    return kind not in FORMS or kind == "multipart/form-data" and not from_page


def _add_cors(send: Send, origin: str, asked: Headers) -> Send:
    """Sends an answer that pages of this origin may read, and no others: a provider's own headers allow every
    origin."""
    own = [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", b"*"),
        (b"vary", b"Origin"),
    ]
    if wanted := asked.get("access-control-request-headers"):
        own.append((b"access-control-allow-headers", wanted.encode("latin-1")))
    if wanted := asked.get("access-control-request-method"):
        own.append((b"access-control-allow-methods", wanted.encode("latin-1")))
        own.append((b"access-control-max-age", b"600"))
    if asked.get("access-control-request-private-network"):
        own.append((b"access-control-allow-private-network", b"true"))

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            theirs = [(k, v) for k, v in message.get("headers", []) if not k.lower().startswith(b"access-control-")]
            message = {**message, "headers": [*theirs, *own]}
        await send(message)

    return sending


async def _refuse_websocket(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers 426 where the server can, else closes."""
    await receive()
    if "websocket.http.response" not in scope.get("extensions", {}):
        return await send({"type": "websocket.close", "code": 1002})
    answer = error_response(426, "upgrade_required", NO_WEBSOCKET)
    await send({"type": "websocket.http.response.start", "status": 426, "headers": answer.raw_headers})
    await send({"type": "websocket.http.response.body", "body": answer.body})
