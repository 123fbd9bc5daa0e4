"""A gateway that listens, in a thread of the test's own process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from pg_memoir_gateway import Config, create_app
from pg_memoir_gateway.gateway import Gateway


@contextmanager
def served(dsn: str, app_of: Any = create_app, **settings: Any) -> Iterator[tuple[str, Gateway]]:
    """Its address, and what its routes share. `app_of`: makes the application of a Config."""
    app = app_of(Config(dsn=dsn, **settings))
    server = uvicorn.Server(
        uvicorn.Config(app, port=0, log_level="warning", lifespan="on", timeout_graceful_shutdown=3)
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + 30
        while not server.started:
            assert thread.is_alive() and time.monotonic() < deadline, "the gateway did not start"
            time.sleep(0.02)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}", app.state.gateway
    finally:
        server.should_exit = True
        thread.join(30)
