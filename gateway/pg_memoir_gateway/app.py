"""The ASGI application: what the gateway answers itself, and the proxy for everything else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.routing import BaseRoute, Mount

from . import parts
from .config import Config
from .gateway import Gateway
from .proxy import Proxy


def create_app(config: Config, routes: Sequence[BaseRoute] = ()) -> Starlette:
    """The application; `app.state.gateway` is what its routes share. `routes`: further ones, ahead of the proxy."""
    gateway = Gateway(config)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with gateway.running(), parts.running(gateway):
            yield

    app = Starlette(routes=[*parts.routes(gateway), *routes, Mount("/", app=Proxy(gateway))], lifespan=lifespan)
    app.state.gateway = gateway
    return app
