"""Pydantic AI: a capability that puts a session's compiled list before the model and stores what is said.

agent = Agent("openai:gpt-4o", capabilities=[MemoirMemory(memoir, "alice", "support-42")])
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from pg_memoir import Message
from pg_memoir.errors import NothingToContinueError
from pg_memoir.functions import calls
from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from .running import AnyMemoir, arun


class MemoirMemory(AbstractCapability[Any]):
    """Before each request of a model: what the run said anew is appended to the session, and the model gets the
    session's compiled list (window, recall, summary). The run's own history stays as it is, so `message_history` need
    not be kept.

    `opening`: as open_session. Instructions and tools stay the agent's.
    """

    def __init__(
        self, memoir: AnyMemoir, user: str, session: str, *, budget: int | None = None, **opening: Any
    ) -> None:
        self.memoir, self.user, self.session, self.budget = memoir, user, session, budget
        self._opening = opening
        self._stored: dict[str, int] = {}  # of each run, how many of its messages

    async def before_model_request(self, ctx: RunContext[Any], request_context: Any) -> Any:
        await self._store(ctx, request_context.messages)
        try:
            compiled = await arun(self.memoir, calls.compile_context(self.user, self.session, budget=self.budget))
        except NothingToContinueError:  # another process answered in this session meanwhile
            return request_context
        request_context.messages = to_model_messages(compiled)
        return request_context

    async def after_run(self, ctx: RunContext[Any], *, result: Any) -> Any:
        await self._store(ctx, result.all_messages())
        self._stored.pop(str(ctx.run_id), None)
        return result

    async def _store(self, ctx: RunContext[Any], messages: list[ModelMessage]) -> None:
        if self._opening:
            await arun(self.memoir, calls.open_session(self.user, self.session, **self._opening))
            self._opening = {}
        run = str(ctx.run_id)
        own = [message for message in messages if message.run_id == ctx.run_id]
        told = from_model_messages(own[self._stored.get(run, 0) :])
        if told:
            await arun(self.memoir, calls.append(self.user, self.session, told))
        self._stored[run] = len(own)


def from_model_messages(messages: Iterable[ModelMessage]) -> list[Message]:
    """Pydantic AI's messages as chat messages; system prompts and thoughts are not said in the conversation."""
    found: list[Message] = []
    for message in messages:
        if isinstance(message, ModelResponse):
            asked = [
                {
                    "id": part.tool_call_id,
                    "type": "function",
                    "function": {"name": part.tool_name, "arguments": part.args_as_json_str()},
                }
                for part in message.parts
                if isinstance(part, ToolCallPart)
            ]
            text = "".join(part.content for part in message.parts if isinstance(part, TextPart))
            if text or asked:
                found.append({"role": "assistant", "content": text or None} | ({"tool_calls": asked} if asked else {}))
            continue
        for part in message.parts:
            if isinstance(part, UserPromptPart):
                found.append({"role": "user", "content": _content(part.content)})
            elif isinstance(part, ToolReturnPart):
                result = part.model_response_str()
                found.append({"role": "tool", "tool_call_id": part.tool_call_id, "content": result})
            elif isinstance(part, RetryPromptPart):
                role = {"role": "tool", "tool_call_id": part.tool_call_id} if part.tool_name else {"role": "user"}
                found.append(role | {"content": part.model_response()})
    return found


def to_model_messages(messages: Iterable[Message]) -> list[ModelMessage]:
    """A compiled list as Pydantic AI has it."""
    found: list[ModelMessage] = []
    names: dict[str, str] = {}
    for message in messages:
        content = message.get("content")
        if message["role"] == "assistant":
            text = content if isinstance(content, str) else ""
            parts: list[Any] = [TextPart(text)] if text else []
            for call in message.get("tool_calls", []):
                names[call["id"]] = call["function"]["name"]
                parts.append(ToolCallPart(call["function"]["name"], call["function"]["arguments"], call["id"]))
            found.append(ModelResponse(parts=parts))
            continue
        if message["role"] == "tool":
            part: Any = ToolReturnPart(names[message["tool_call_id"]], content, message["tool_call_id"])
        elif message["role"] == "user":
            part = UserPromptPart(
                content if isinstance(content, str) else [_render_part(each) for each in content or []]
            )
        else:
            part = SystemPromptPart(str(content))
        if found and isinstance(found[-1], ModelRequest):
            found[-1].parts = [*found[-1].parts, part]
        else:
            found.append(ModelRequest(parts=[part]))
    return found


def _content(content: Any) -> Any:
    """A prompt as chat parts; what is no text and no image's address is named."""
    if isinstance(content, str):
        return content
    parts: list[dict[str, Any]] = []
    for each in content:
        if isinstance(each, str):
            parts.append({"type": "text", "text": each})
        elif isinstance(each, ImageUrl):
            parts.append({"type": "image_url", "image_url": {"url": each.url}})
        else:
            parts.append({"type": "text", "text": f"[{type(each).__name__}]"})
    return parts or ""


def _render_part(part: dict[str, Any]) -> Any:
    if part["type"] == "text":
        return part["text"]
    if part["type"] == "image_url":
        return ImageUrl(part["image_url"]["url"])
    return json.dumps(part, ensure_ascii=False)
