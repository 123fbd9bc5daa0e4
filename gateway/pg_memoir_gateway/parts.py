"""What the gateway answers itself, beside the proxy.

A part is a module with `routes(gateway)`, a list of Starlette routes, and, where it has something to start and end,
`running(gateway)`, an asynchronous context manager around the life of the process. PARTS names them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from types import ModuleType

from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from . import health, inspector, mcp_http
from .gateway import Gateway

PARTS: tuple[ModuleType, ...] = (health, mcp_http, inspector)


class Refused:
    """What is asked of a path of ours by a method that it has not: nothing of it goes upstream."""

    def __init__(self, methods: set[str]) -> None:
        self.allowed = ", ".join(sorted(methods))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = JSONResponse({"error": f"{scope['path']} has {self.allowed}"}, 405, {"allow": self.allowed})
        await answer(scope, receive, send)


def routes(gateway: Gateway) -> list[BaseRoute]:
    """The routes of all parts, in order; behind them the other methods of their paths."""
    found: list[BaseRoute] = [route for part in PARTS for route in part.routes(gateway)]
    others = [Route(r.path, Refused(r.methods)) for r in found if isinstance(r, Route) and r.methods]
    return [*found, *others]


@asynccontextmanager
async def running(gateway: Gateway) -> AsyncIterator[None]:
    """All parts at work."""
    async with AsyncExitStack() as stack:
        for part in PARTS:
            if hasattr(part, "running"):
                await stack.enter_async_context(part.running(gateway))
        yield
