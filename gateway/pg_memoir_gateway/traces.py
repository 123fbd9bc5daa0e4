"""Spans of the gateway: a request, and the calls of the provider that it leads to, by the semantic conventions for
generative AI. The trace goes on in `traceparent`."""

from __future__ import annotations

import time
from typing import Any

from pg_memoir.extras.tracing import find_tracer, set_failure, span_of
from starlette.datastructures import Headers as RequestHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .captures import read_answer
from .exchange import Exchange, Headers
from .talk import Talk, is_conversation_path

PASSED_ON = ("traceparent", "tracestate")


class Traced:
    """ASGI middleware: a span for each request. What the client sent in traceparent is its parent."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or find_tracer() is None:
            return await self.app(scope, receive, send)
        from opentelemetry.propagate import extract

        attributes = {"http.request.method": scope["method"], "url.scheme": scope.get("scheme", "http")}
        context = extract({name: RequestHeaders(scope=scope).get(name, "") for name in PASSED_ON})
        route = f" {scope['path']}" if is_conversation_path(scope["path"]) else ""  # others may name a user
        with span_of(scope["method"] + route, attributes, "SERVER", context) as span:

            async def note_status(message: Message) -> None:
                if message["type"] == "http.response.start":
                    span.set_attribute("http.response.status_code", message["status"])
                    if message["status"] >= 500:
                        set_failure(span, str(message["status"]))
                await send(message)

            await self.app(scope, receive, note_status)


def begin_call(exchange: Exchange, headers: Headers, host: str) -> Headers:
    """Begins the span of a call of the provider, and returns its headers with the trace."""
    end_call(exchange)  # one that the provider refused
    tracer = find_tracer()
    if tracer is None:
        return headers
    from opentelemetry import trace
    from opentelemetry.propagate import inject

    attributes = {"gen_ai.operation.name": "chat", "server.address": host, "http.request.method": exchange.method}
    span = tracer.start_span("chat", kind=trace.SpanKind.CLIENT, attributes=attributes)
    if not span.is_recording():
        return headers
    exchange.span = span
    carrier: dict[str, str] = {}
    inject(carrier, trace.set_span_in_context(span))
    kept = [(k, v) for k, v in headers if k.lower().decode("latin-1") not in carrier]
    return kept + [(name.encode(), value.encode()) for name, value in carrier.items()]


def end_calls(exchange: Exchange, talk: Talk | None = None) -> None:
    """Ends the spans of an exchange, those of the calls before it too."""
    for call in (*exchange.earlier, exchange):
        end_call(call, talk)


def end_call(exchange: Exchange, talk: Talk | None = None) -> None:
    """Ends the span of a call, with what the answer says where that was read."""
    span, exchange.span = exchange.span, None
    if span is None:
        return
    span.set_attribute("http.response.status_code", exchange.status)
    if not exchange.is_success:
        set_failure(span, str(exchange.status) if exchange.status else "connection")
    for name, value in _describe_answer(exchange, talk).items() if talk else ():
        span.set_attribute(name, value)
    if talk and isinstance(model := talk.body.get("model"), str):
        span.update_name(f"chat {model}")
    span.end(int((exchange.chunks[-1][0] if exchange.chunks else time.time()) * 1e9))


def _describe_answer(exchange: Exchange, talk: Talk) -> dict[str, Any]:
    """Returns attributes of the conventions: names, ids and counts, no text."""
    answer = read_answer(exchange, talk)
    counts = answer.counts(0) if answer else {}
    told = {
        "gen_ai.provider.name": talk.dialect.name,
        "gen_ai.request.model": talk.body.get("model"),
        "gen_ai.request.stream": exchange.streams,
        "gen_ai.conversation.id": talk.session,
        "gen_ai.response.id": answer.id if answer else None,
        "gen_ai.response.model": counts.get("model"),
        "gen_ai.response.finish_reasons": [counts["finish_reason"]] if "finish_reason" in counts else None,
        "gen_ai.usage.input_tokens": counts.get("prompt_tokens"),
        "gen_ai.usage.output_tokens": counts.get("completion_tokens"),
        "gen_ai.usage.cache_read.input_tokens": counts.get("cache_read_tokens"),
        "gen_ai.usage.cache_creation.input_tokens": counts.get("cache_write_tokens"),
    }
    return {name: value for name, value in told.items() if value is not None}
