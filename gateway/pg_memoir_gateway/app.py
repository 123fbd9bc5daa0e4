"""The ASGI application: parts that the gateway answers itself, and the proxy for everything else.

A part is a module with `routes(gateway)`, a list of Starlette routes, and, if it has something to start and end,
`running(gateway)`, an asynchronous context manager around the life of the process. PARTS names them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from types import ModuleType

from pg_memoir.types import AsyncEmbed
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import Receive, Scope, Send

from . import health, inspector, mcp_http, rest
from .config import Config
from .gateway import Gateway
from .guard import Guard
from .proxy import Proxy
from .traces import Traced

PARTS: tuple[ModuleType, ...] = (health, mcp_http, rest, inspector)


class Refused:
    """Answers a method that a path of the gateway does not have, so that it does not go upstream."""

    def __init__(self, methods: set[str]) -> None:
        self.allowed = ", ".join(sorted(methods))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = JSONResponse({"error": f"{scope['path']} has {self.allowed}"}, 405, {"allow": self.allowed})
        await answer(scope, receive, send)


def create_app(config: Config, routes: Sequence[BaseRoute] = (), *, embed: AsyncEmbed | None = None) -> Starlette:
    """Returns the application; `app.state.gateway` is what its routes share. `routes`: further ones, ahead of the
    proxy. `embed`: makes the vectors of questions, for a database that can't."""
    gateway = Gateway(config, embed)
    proxy = Proxy(gateway)
    own: list[BaseRoute] = [route for part in PARTS for route in part.routes(gateway)]
    others = [Route(r.path, Refused(r.methods)) for r in own if isinstance(r, Route) and r.methods]

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            parts = [part.running(gateway) for part in PARTS if hasattr(part, "running")]
            for running in (gateway.running(), proxy.running(), *parts):
                await stack.enter_async_context(running)
            yield

    found = [*own, *others, *routes, Mount("/", app=proxy)]
    app = Starlette(
        routes=found, lifespan=lifespan, middleware=[Middleware(Traced), Middleware(Guard, gateway=gateway)]
    )
    app.state.gateway = gateway
    return app
