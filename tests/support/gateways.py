"""A gateway before a scripted upstream, for tests, and clients of the three APIs that keep their lists."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import anthropic
import httpx
import openai
from answers import text
from pg_memoir_gateway import create_app, load
from upstream import Upstream, serving

CLAUDE = {"user-agent": "claude-cli/2.1 (external, cli)"}
SCHEMA = {"type": "object", "properties": {"path": {}}}
TOOL = {"name": "read", "description": "Reads a file", "input_schema": SCHEMA}
CHAT_TOOL = {"type": "function", "function": {"name": "read", "description": "Reads", "parameters": SCHEMA}}
MARK = {"cache_control": {"type": "ephemeral"}}
Told = tuple[str, list[str]]
"""The text of an answer, and the names of the tools that it calls."""


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
        given = {"session-id": session}
        return openai.OpenAI(base_url=self.url + "/v1", api_key="k", max_retries=0, default_headers=given)

    def post(self, path: str, raw: bytes, **headers: str) -> httpx.Response:
        given = {"content-type": "application/json", "x-api-key": "k"} | headers
        return httpx.post(self.url + path, content=raw, headers=given, timeout=30)


@contextmanager
def gateway(dsn: str, before: Upstream, user: str, **settings: Any) -> Iterator[Running]:
    """A running gateway of its own."""
    upstreams = {"upstream_anthropic": before.url, "upstream_openai": before.url, "database_ms": 20_000}
    app = create_app(load({}, given={"dsn": dsn, "user": user} | upstreams | settings))
    with serving(app) as url:
        yield Running(url, app, before)


def script(model: Upstream, *answers: Any) -> None:
    """The answers to come, in order."""
    left = iter(answers)
    model.answer = lambda body: next(left)


class Messages:
    """Claude Code: it marks the newest message for the cache."""

    def __init__(self, running: Running, session: str = "s", **headers: str) -> None:
        self.client = running.anthropic(session, **CLAUDE | headers)
        self.list: list[Any] = []

    def say(self, *said: str, stream: bool = True) -> Told:
        return self._add([text(one) for one in said], stream)

    def result(self, ident: str, told: str, stream: bool = True) -> Told:
        return self._add([{"type": "tool_result", "tool_use_id": ident, "content": told}], stream)

    def _add(self, blocks: list[Any], stream: bool) -> Told:
        for block in (b for m in self.list if isinstance(m["content"], list) for b in m["content"]):
            block.pop("cache_control", None)
        self.list.append({"role": "user", "content": [*blocks[:-1], blocks[-1] | MARK]})
        return self.go_on(stream)

    def go_on(self, stream: bool = True, **more: Any) -> Told:
        given: Any = {"model": "m", "max_tokens": 99, "tools": [TOOL], "messages": self.list} | more
        if stream:
            with self.client.messages.stream(**given) as events:
                self.told = events.get_final_message()
        else:
            self.told = self.client.messages.create(**given)
        content = [block.model_dump(mode="json", exclude_none=True) for block in self.told.content]
        for block in content:
            block.pop("parsed_output", None)
        self.list.append({"role": "assistant", "content": content})
        self.idents = {self.told.id}
        calls = [block["name"] for block in content if block["type"] == "tool_use"]
        return "".join(block.get("text", "") for block in content), calls


class Chat:
    """A client of chat completions."""

    def __init__(self, running: Running, session: str = "s") -> None:
        self.client = running.openai(session)
        self.list: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}]

    def say(self, said: str, stream: bool = True) -> Told:
        self.list.append({"role": "user", "content": said})
        return self.go_on(stream)

    def result(self, ident: str, told: str, stream: bool = True) -> Told:
        self.list.append({"role": "tool", "tool_call_id": ident, "content": told})
        return self.go_on(stream)

    def go_on(self, stream: bool = True, **more: Any) -> Told:
        given: Any = {"model": "m", "messages": self.list, "tools": [CHAT_TOOL]} | more
        if stream:
            with self.client.chat.completions.stream(**given, stream_options={"include_usage": True}) as events:
                self.idents = {event.chunk.id for event in events if event.type == "chunk"}
                told = events.get_final_completion()
        else:
            told = self.client.chat.completions.create(**given)
            self.idents = {told.id}
        message = told.choices[0].message
        calls = [c.model_dump(include={"id", "type", "function"}) for c in message.tool_calls or []]
        for one in calls:
            one["function"].pop("parsed_arguments", None)
        made = {"role": "assistant", "content": message.content} | ({"tool_calls": calls} if calls else {})
        self.list.append(made)
        assert told.usage and told.usage.completion_tokens % 7 == 0
        return message.content or "", [one["function"]["name"] for one in calls]


class Responses:
    """A client of Responses."""

    def __init__(self, running: Running, session: str = "s") -> None:
        self.client = running.openai(session)
        self.list: list[Any] = []
        self.tools: Any = [{"type": "function", "name": "read", "parameters": SCHEMA, "strict": False}]

    def say(self, said: str, stream: bool = True) -> Told:
        self.list.append({"role": "user", "content": said})
        return self.go_on(stream)

    def result(self, ident: str, told: str, stream: bool = True) -> Told:
        self.list.append({"type": "function_call_output", "call_id": ident, "output": told})
        return self.go_on(stream)

    def go_on(self, stream: bool = True) -> Told:
        given: Any = {"model": "m", "input": self.list, "tools": self.tools, "store": False}
        if stream:
            with self.client.responses.stream(**given) as events:
                numbers = [event.sequence_number for event in events]
                told = events.get_final_response()
            assert numbers == list(range(len(numbers)))
        else:
            told = self.client.responses.create(**given)
        self.idents = {told.id}
        for item in told.output:
            kept = item.model_dump(mode="json", exclude_none=True)
            kept.pop("parsed_arguments", None)
            for part in kept.get("content") or []:
                part.pop("parsed", None)
            self.list.append(kept)
        return told.output_text, [item.name for item in told.output if item.type == "function_call"]


APIS: tuple[Any, ...] = (Messages, Chat, Responses)
