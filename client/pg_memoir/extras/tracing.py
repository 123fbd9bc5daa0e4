"""Spans of OpenTelemetry. They need its API only, and cost nothing where the process has no SDK: nothing here
imports one. No text that anybody said is an attribute, nor the name of a user."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

RETRIEVALS = frozenset(
    ("compile_context", "context", "explain_context", "recall", "recall_beside", "match_memories", "memory_query")
)
"""Functions that are spans: what an answer waits for."""

_tracer: Any = None


def find_tracer() -> Any:
    """Returns the tracer of this process, None where it has no SDK that traces."""
    global _tracer
    if _tracer is None and (api := sys.modules.get("opentelemetry.trace")):
        if not isinstance(api.get_tracer_provider(), api.ProxyTracerProvider):
            _tracer = api.get_tracer("pg_memoir")
    return _tracer


@contextmanager
def span_of(name: str, attributes: Mapping[str, Any], kind: str = "INTERNAL", context: Any = None) -> Iterator[Any]:
    """A span around the block, the current one there; None where nothing is traced. An error ends it as one, without
    its message, which may hold what somebody said."""
    tracer = find_tracer()
    if tracer is None:
        yield None
        return
    api = sys.modules["opentelemetry.trace"]
    with tracer.start_as_current_span(
        name, context, api.SpanKind[kind], attributes, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield span
        except BaseException as error:
            set_failure(span, type(error).__name__)
            raise


def set_failure(span: Any, kind: str) -> None:
    """Marks a span as failed, by the name of an error or a status."""
    span.set_attribute("error.type", kind)
    span.set_status(sys.modules["opentelemetry.trace"].StatusCode.ERROR)


@contextmanager
def span_of_call(function: str, params: Mapping[str, Any]) -> Iterator[None]:
    """A span around a call of the database that an answer waits for."""
    if function not in RETRIEVALS:
        yield
        return
    attributes = {"gen_ai.operation.name": "retrieval", "db.system.name": "postgresql", "db.operation.name": function}
    if isinstance(session := params.get("session"), str):
        attributes["gen_ai.conversation.id"] = session
    with span_of(f"retrieval {function}", attributes, "CLIENT"):
        yield


def note_batch(name: str, began: float, count: int, failed: bool) -> None:
    """Adds the span of a batch that is over, which took work since `began` (time.time())."""
    if tracer := find_tracer():
        span = tracer.start_span(name, start_time=int(began * 1e9), attributes={"pg_memoir.count": count})
        if failed:
            set_failure(span, "failed")
        span.end(int(time.time() * 1e9))
