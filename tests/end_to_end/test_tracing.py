"""Traces: one request through the gateway, a job of the worker; and nothing where no SDK is set up."""

import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest
from answers import text
from calls import remembered
from gateways import CLAUDE, TOOL, gateway
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind
from pg_memoir.extras import tracing
from pg_memoir_cli.jobs import run_jobs
from psycopg import Connection
from upstream import upstream

SAID, PARENT = "My gate code is 4711.", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """Where spans of this test end up."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_tracer", provider.get_tracer("pg_memoir"))
    yield exporter


def find(exporter: InMemorySpanExporter, kind: SpanKind, name: str) -> ReadableSpan:
    [found] = [span for span in exporter.get_finished_spans() if span.kind == kind and span.name == name]
    return found


@pytest.mark.parametrize("mode", ["observe", "recall"])
def test_trace_of_a_request(db: Connection, memoir_dsn: str, user: str, spans: InMemorySpanExporter, mode: str) -> None:
    remembered(db, user, "Parks a green van.")
    said = [{"role": "user", "content": SAID}]
    body = {"model": "claude-x", "max_tokens": 99, "tools": [TOOL], "messages": said}
    with upstream(lambda _: [text("Noted.")]) as model, gateway(memoir_dsn, model, user, mode=mode) as running:
        spans.clear()
        headers = CLAUDE | {"traceparent": PARENT, "x-api-key": "k", "x-claude-code-session-id": "s1"}
        answer = httpx.post(f"{running.url}/v1/messages", json=body, headers=headers, timeout=60)
        assert answer.status_code == 200
        running.settle()
        sent = model.asked[-1].headers["traceparent"]
    request = find(spans, SpanKind.SERVER, "POST /v1/messages")
    chat = find(spans, SpanKind.CLIENT, "chat claude-x")
    trace, parent = PARENT.split("-")[1:3]
    assert request.context and request.parent and chat.context and chat.parent and chat.attributes
    assert f"{request.context.trace_id:032x}" == trace and f"{request.parent.span_id:016x}" == parent
    assert chat.parent.span_id == request.context.span_id
    assert sent == f"00-{trace}-{chat.context.span_id:016x}-01"  # the provider's spans go below ours
    told = {name.removeprefix("gen_ai."): value for name, value in chat.attributes.items()}
    usage = answer.json()["usage"]
    assert (told["operation.name"], told["request.model"], told["provider.name"]) == ("chat", "claude-x", "anthropic")
    # As the conventions have it, with what was read from the prompt cache and written there.
    read = sum(usage[name] for name in usage if name.endswith("input_tokens"))
    assert (told["usage.input_tokens"], told["usage.output_tokens"]) == (read, usage["output_tokens"])
    assert told["response.id"] == answer.json()["id"] and told["response.finish_reasons"] == ("end_turn",)
    if mode == "recall":
        recall = find(spans, SpanKind.CLIENT, "retrieval recall_beside")
        assert recall.context and recall.context.trace_id == request.context.trace_id
    everything = str([(span.name, dict(span.attributes or {}), span.events) for span in spans.get_finished_spans()])
    assert not any(word in everything for word in ("4711", "Noted", "green van", user))


def test_trace_of_a_refused_request(memoir_dsn: str, user: str, spans: InMemorySpanExporter) -> None:
    with upstream(lambda _: []) as model:
        model.url = "http://127.0.0.1:9"
        with gateway(memoir_dsn, model, user, mode="observe") as running:
            spans.clear()
            assert running.post("/v1/messages", b'{"model": "m", "messages": []}').status_code == 502
    assert (find(spans, SpanKind.CLIENT, "chat").attributes or {})["error.type"] == "connection"
    assert (find(spans, SpanKind.SERVER, "POST /v1/messages").attributes or {})["http.response.status_code"] == 502


def test_trace_of_a_job(memoir_dsn: str, spans: InMemorySpanExporter) -> None:
    run_jobs(memoir_dsn, once=True)
    names = {span.name for span in spans.get_finished_spans()}
    assert {"job flush", "job sweep"} & names


def test_tracing_imports_nothing() -> None:
    """Neither the client nor the command line loads OpenTelemetry by itself."""
    said = "import sys, pg_memoir, pg_memoir_cli.worker; from pg_memoir.extras.tracing import find_tracer, span_of\n"
    said += "with span_of('x', {}) as span: assert span is None\n"
    said += "assert find_tracer() is None and not [name for name in sys.modules if name.startswith('opentelemetry')]"
    subprocess.run([sys.executable, "-c", said], check=True)
