"""A scripted model and a gateway before it, whose mode is the module's MODE."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture
def model() -> Iterator[Any]:
    from upstream import text, upstream

    with upstream(lambda body: [text("Noted.")]) as running:
        yield running


@pytest.fixture
def running(request: pytest.FixtureRequest, memoir_dsn: str, model: Any, user: str) -> Iterator[Any]:
    from gateways import gateway

    with gateway(memoir_dsn, model, user, mode=request.module.MODE) as running:
        yield running
