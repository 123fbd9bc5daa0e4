"""The ASGI application: what the gateway answers itself, and the proxy for everything else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Mount

from . import parts
from .config import Config
from .gateway import Gateway
from .guard import Guard
from .proxy import Proxy


def create_app(config: Config, routes: Sequence[BaseRoute] = ()) -> Starlette:
    """The application; `app.state.gateway` is what its routes share. `routes`: further ones, ahead of the proxy."""
    gateway = Gateway(config)
    proxy = Proxy(gateway)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with gateway.running(), proxy.running(), parts.running(gateway):
            yield

    found = [*parts.routes(gateway), *routes, Mount("/", app=proxy)]
    app = Starlette(routes=found, lifespan=lifespan, middleware=[Middleware(Guard, gateway=gateway)])
    app.state.gateway = gateway
    return app
