"""The ways by which queued work reaches a language model; a scripted model with a gateway before it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from calls import Db, call, use_vectors
from internals import clear_work, has_python
from pg_memoir import Memoir
from pg_memoir_cli import worker
from pipeline import WAYS, Way
from servers import connect

SETTINGS = ("llm_provider", "llm_model", "llm_endpoint", "llm_timeout", "llm_retries", "judge")


@pytest.fixture(scope="module")
def priced_model(memoir_dsn: str) -> None:
    """A model with prices, and vectors of four dimensions."""
    prices = {"prompt_microcents_per_1k": 100000, "completion_microcents_per_1k": 500000}
    with connect(memoir_dsn) as db:
        use_vectors(db)
        call(db, "register_model", "priced", "openai", 128000, 4096, **prices)


@pytest.fixture(params=WAYS[:1], ids="-".join)
def way(request: pytest.FixtureRequest, db: Db, memoir_dsn: str, priced_model: None, monkeypatch) -> Iterator[Way]:
    """Job `model` in the server, whose environment has no key, or the worker's loop."""
    provider, place = request.param
    if place == "inside" and not has_python(db):
        pytest.skip("no PL/Python")
    monkeypatch.setenv("PG_MEMOIR_LLM_API_KEY", "sk-x")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Memoir(memoir_dsn) as memoir:
        ways: dict[str, Callable[[], Any]] = {
            "inside": lambda: db.execute("call memoir.run_job('model')"),
            "outside": lambda: worker.run_models(memoir, once=True, interval=0),
        }
        yield Way(db, memoir_dsn, provider, ways[place])
    for key in SETTINGS:
        call(db, "reset_setting", key)
    clear_work(db)


@pytest.fixture
def model() -> Iterator[Any]:
    from answers import text
    from upstream import upstream

    with upstream(lambda body: [text("Noted.")]) as running:
        yield running


@pytest.fixture
def running(request: pytest.FixtureRequest, memoir_dsn: str, model: Any, user: str) -> Iterator[Any]:
    from gateways import gateway

    with gateway(memoir_dsn, model, user, mode=request.module.MODE) as running:
        yield running
