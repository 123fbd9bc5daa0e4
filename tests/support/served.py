"""A gateway that listens, in a thread of the test's own process."""

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
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


@contextmanager
def looking(gateway: str, who: str) -> Iterator[httpx.Client]:
    """A browser that is logged in to the inspector."""
    with httpx.Client(base_url=gateway + "/inspect", follow_redirects=True, timeout=30) as client:
        assert client.post("/login", data={"token": KEYS.get(who, who)}).status_code == 200
        assert "pg_memoir_inspect" in client.cookies
        yield client


def read_fields(page: str) -> dict[str, str]:
    """The hidden fields of a page's forms."""
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page.split("<main", 1)[1]))
