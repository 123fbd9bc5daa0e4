"""A gateway that listens, in a thread of the test's own process."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pg_memoir_gateway import Config, create_app
from pg_memoir_gateway.config import User
from pg_memoir_gateway.gateway import Gateway
from upstream import serving

KEYS = {"ann": "sk-ann-0123456789", "bob": "sk-bob-0123456789"}
USERS = tuple(User(name, hashlib.sha256(key.encode()).hexdigest()) for name, key in KEYS.items())


@contextmanager
def served(dsn: str, app_of: Any = create_app, **settings: Any) -> Iterator[tuple[str, Gateway]]:
    """Its address, and what its routes share. `app_of`: makes the application of a Config."""
    app = app_of(Config(dsn=dsn, **settings))
    with serving(app) as url:
        yield url, app.state.gateway
