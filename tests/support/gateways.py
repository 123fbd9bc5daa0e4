"""A gateway before a scripted upstream, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import anthropic
import httpx
import openai
from pg_memoir_gateway import create_app, load
from upstream import Upstream, serving

CLAUDE = {"user-agent": "claude-cli/2.1 (external, cli)"}
TOOL = {"name": "read", "description": "Reads a file", "input_schema": {"type": "object", "properties": {"path": {}}}}


@dataclass
class Running:
    """`url` of the gateway, and its parts."""

    url: str
    app: Any
    upstream: Upstream

    @property
    def counts(self) -> Any:
        return self.app.state.gateway.counts

    def settle(self) -> None:
        """Waits until all that passed is stored."""
        gateway = self.app.state.gateway
        asyncio.run_coroutine_threadsafe(gateway.idle(), gateway.loop).result(60)

    def anthropic(self, session: str = "s1", **headers: str) -> anthropic.Anthropic:
        given = {"x-claude-code-session-id": session} | headers
        return anthropic.Anthropic(base_url=self.url, api_key="k", max_retries=0, default_headers=given)

    def openai(self, session: str = "s1") -> openai.OpenAI:
        return openai.OpenAI(
            base_url=self.url + "/v1", api_key="k", max_retries=0, default_headers={"session-id": session}
        )

    def post(self, path: str, raw: bytes, **headers: str) -> httpx.Response:
        given = {"content-type": "application/json", "x-api-key": "k"} | headers
        return httpx.post(self.url + path, content=raw, headers=given, timeout=30)


@contextmanager
def gateway(dsn: str, before: Upstream, user: str, **settings: Any) -> Iterator[Running]:
    """A running gateway of its own."""
    upstreams = {"upstream_anthropic": before.url, "upstream_openai": before.url}
    app = create_app(load({}, given={"dsn": dsn, "user": user} | upstreams | settings))
    with serving(app) as url:
        yield Running(url, app, before)
