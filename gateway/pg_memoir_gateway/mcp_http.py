"""MCP over streamable HTTP at /mcp: a part of the gateway. Stateless, so that any process may answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from weakref import WeakKeyDictionary

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from .access import find_user
from .gateway import Gateway
from .mcp_server import Who, make_server

# The gateway's own guard judges hosts and origins for all routes (guard.py).
UNGUARDED = TransportSecuritySettings(enable_dns_rebinding_protection=False)
SESSION_HEADER = "x-pg-memoir-session"
_managers: WeakKeyDictionary[Gateway, StreamableHTTPSessionManager] = WeakKeyDictionary()


class Endpoint:
    """Lets in who is known, and tells the server who it is."""

    def __init__(self, gateway: Gateway, manager: StreamableHTTPSessionManager) -> None:
        self.gateway, self.manager = gateway, manager

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        whose = find_user(self.gateway.config, Headers(scope=scope))
        if whose is None:
            self.gateway.counts.add("mcp_refused")
            refusal = JSONResponse({"error": "unauthorized"}, 401, {"WWW-Authenticate": 'Bearer realm="pg_memoir"'})
            return await refusal(scope, receive, send)
        session = Headers(scope=scope).get(SESSION_HEADER) or None
        scope.setdefault("state", {})["who"] = Who(whose[0], session)
        self.gateway.counts.add("mcp_requests")
        await self.manager.asgi_app(scope, receive, send)


def routes(gateway: Gateway) -> list[BaseRoute]:
    """/mcp."""

    def who(context: Any) -> Who:
        found: Who = context.request.state.who
        return found

    _managers[gateway] = StreamableHTTPSessionManager(
        make_server(gateway.memoir, who), stateless=True, security_settings=UNGUARDED
    )
    return [Route("/mcp", Endpoint(gateway, _managers[gateway]))]


@asynccontextmanager
async def running(gateway: Gateway) -> AsyncIterator[None]:
    """While requests are answered."""
    async with _managers[gateway].run():
        yield
