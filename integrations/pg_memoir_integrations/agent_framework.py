"""Microsoft Agent Framework: a history that comes back as it came, and a context made of what matters now.

agent = Agent(client, context_providers=[MemoirContextProvider(memoir, "alice")])
session = agent.create_session(session_id="support-42")
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from agent_framework import AgentSession, Content, HistoryProvider, Message, SessionContext
from agent_framework._sessions import filter_new_messages
from pg_memoir import Message as ChatMessage
from pg_memoir.functions import calls
from pg_memoir.texts import replace_unstorable

from .pairing import pair_messages, waits_for_calls
from .running import AnyMemoir, arun, retry_change

_FENCES, _END = "<memoir-", "</memoir-recall>"


class MemoirHistoryProvider(HistoryProvider):
    """A session's messages, whole and as they came: calls, results, images, reasoning. The session's turns say the
    same, so it is compiled, recalled in other sessions and learnt from.

    `user`: whose, or what tells it from a session's id. `flags`: as the framework's own history providers. An input
    that repeats the conversation adds only what is new.
    """

    DEFAULT_SOURCE_ID = "pg_memoir_history"

    def __init__(
        self,
        memoir: AnyMemoir,
        user: str | Callable[[str | None], str],
        source_id: str | None = None,
        **flags: Any,
    ) -> None:
        super().__init__(source_id or self.DEFAULT_SOURCE_ID, **flags)
        self.memoir = memoir
        self.user = user if callable(user) else lambda session_id: user

    async def get_messages(
        self, session_id: str | None, *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[Message]:
        items = await arun(self.memoir, calls.list_items(*self._place(session_id)))
        return [Message.from_dict(each.item) for each in items]

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[Message],
        *,
        state: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        user, session = self._place(session_id)

        async def change() -> None:
            items = await arun(self.memoir, calls.list_items(user, session))
            stored = [Message.from_dict(each.item) for each in items]
            new = [(message.to_dict(), from_message(message)) for message in filter_new_messages(stored, messages)]
            waiting = [
                (each.item, from_message(message))
                for each, message in zip(items, stored, strict=True)
                if each.turn_index is None and each.part_of
            ]
            last = items[-1].item_no if items else -1
            if new:
                call = calls.append_items(
                    user, session, pair_messages(new, waiting), after_item=last if waits_for_calls(new) else None
                )
                await arun(self.memoir, call)

        if messages:
            await retry_change(change)

    def _place(self, session_id: str | None) -> tuple[str, str]:
        return self.user(session_id), session_id or "default"


class MemoirContextProvider(MemoirHistoryProvider):
    """Stores as MemoirHistoryProvider does. The model gets the session's compiled list instead of the whole history:
    its window, a summary of what was before, and what any session holds about the question.

    `budget`: tokens of the list, by default those of the session's model. `window`: False gives the profile and what
    is recalled alone, for an agent whose messages another provider or the service keeps.
    """

    DEFAULT_SOURCE_ID = "pg_memoir"

    def __init__(
        self,
        memoir: AnyMemoir,
        user: str | Callable[[str | None], str],
        source_id: str | None = None,
        *,
        budget: int | None = None,
        window: bool = True,
        **flags: Any,
    ) -> None:
        super().__init__(memoir, user, source_id, **flags)
        self.budget, self.window = budget, window

    async def before_run(self, *, agent: Any, session: AgentSession, context: SessionContext, state: Any) -> None:
        user, name = self._place(context.session_id)
        asked = next((m.text for m in reversed(context.input_messages) if m.role == "user" and m.text.strip()), None)
        if asked is None and self.window:  # a decision, or results: the model needs the calls that they answer
            await super().before_run(agent=agent, session=session, context=context, state=state)
        elif asked is not None:
            compiled = await arun(self.memoir, calls.compile_context(user, name, asked, budget=self.budget))
            recalled = _recalled(str(compiled[-1]["content"]), replace_unstorable(asked))
            shown = [m for m in compiled[:-1] if self.window or str(m.get("content")).startswith(_FENCES)]
            told = [{"role": "user", "content": recalled}] if recalled else []
            context.extend_messages(self, to_messages([*shown, *told]))


def _recalled(content: str, asked: str) -> str:
    """Returns what a compile set before the question. The framework itself adds the question."""
    if content.endswith(asked):
        return content.removesuffix(asked).rstrip()
    head, fence, _ = content.rpartition(_END)
    return head + fence


def from_message(message: Message) -> list[ChatMessage]:
    """Returns what a message says as chat messages. Reasoning, approvals and usage are kept with the item alone."""
    asked: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    results: list[ChatMessage] = []
    for content in message.contents:
        if content.type == "function_call" and not content.informational_only and content.call_id:
            function = {"name": content.name or "", "arguments": _json(content.arguments or {})}
            asked.append({"id": content.call_id, "type": "function", "function": function})
        elif content.type == "function_result" and content.call_id:
            results.append({"role": "tool", "tool_call_id": content.call_id, "content": _json(content.result)})
        elif content.type == "text":
            parts.append({"type": "text", "text": content.text})
        elif content.type in ("uri", "data") and (content.media_type or "").startswith("image/"):
            parts.append({"type": "image_url", "image_url": {"url": content.uri}})
        elif content.type in ("uri", "data", "hosted_file"):
            parts.append({"type": content.media_type or content.type})
    if message.role not in ("system", "user", "assistant") or not parts and not asked:
        return results
    told: ChatMessage = {"role": message.role, "content": parts}
    return [told | ({"tool_calls": asked} if asked else {}), *results]


def to_messages(compiled: Iterable[ChatMessage]) -> list[Message]:
    """Returns a compiled list as the framework has it."""
    found = []
    for message in compiled:
        content = message.get("content")
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
        contents = [_content(part) for part in parts if message["role"] != "tool"]
        for call in message.get("tool_calls", []):
            function = call["function"]
            contents.append(Content.from_function_call(call["id"], function["name"], arguments=function["arguments"]))
        if message["role"] == "tool":
            contents.append(Content.from_function_result(message["tool_call_id"], result=content))
        found.append(Message(message["role"], contents))
    return found


def _content(part: Mapping[str, Any]) -> Content:
    if part["type"] == "image_url":
        return Content.from_uri(part["image_url"]["url"], media_type="image/*")
    return Content.from_text(part["text"] if part["type"] == "text" else json.dumps(part, ensure_ascii=False))


def _json(value: Any) -> str:
    """Returns a text as it is, any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
