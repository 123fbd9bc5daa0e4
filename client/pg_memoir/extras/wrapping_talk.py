"""What one call of a wrapped client does, from its request to its answer, as a generator for sync and async alike.

It yields calls of the database, `Ask` for the model, `Next` for the next piece of a stream and `Out` for what the
application gets.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import psycopg
from psycopg_pool import PoolTimeout

from ..call import Call
from ..errors import MemoirError
from ..functions import calls
from ..texts import replace_unstorable
from ..types import Message
from .providers import Reply, ToolCall, tool_result
from .shapes import text_of
from .wrapping_apis import Api, Asked, Responses, tools_of, without_marks

log = logging.getLogger("pg_memoir")

_RECENT = 200  # stored turns among which an application's list is looked for
_ROUNDS = 8  # calls of the model that one call of the application may become by its use of memory's tools
_DATABASE = (MemoirError, psycopg.Error, PoolTimeout, OSError)
END = object()


@dataclass(frozen=True)
class Ask:
    """The model is asked."""

    request: dict[str, Any]


@dataclass(frozen=True)
class Next:
    """The next piece of a stream, or END."""

    stream: Any


@dataclass(frozen=True)
class Out:
    """What the application gets: an answer, a stream as it opens, or a piece of it."""

    value: Any


class Left(Exception):
    """The application closed a stream before its end."""


Work = Generator[Call[Any] | Ask | Next | Out, Any, Any]


def _name(tool: Mapping[str, Any]) -> str:
    return str(tool.get("name") or tool["function"]["name"])


def _marks(message: Message) -> set[Any]:
    """What a stored answer or result is known by, in whatever shape it comes back; people may say the same twice."""
    if message["role"] == "tool":
        return {("result", message["tool_call_id"])}
    if message["role"] != "assistant":
        return set()
    asked = {("call", call["id"]) for call in message.get("tool_calls") or []}
    return asked or {("text", " ".join(text_of(message.get("content")).split()))}


@dataclass
class Talk:
    """The session that a wrapped client speaks in."""

    user: str
    session: str
    opening: dict[str, Any]
    memory_tools: bool
    strict: bool
    _opened: tuple[Any, Any] | None = None
    _seen: set[Any] | None = None  # marks of what is stored
    _is_new: bool = False
    _turns: int = 0  # those before are known
    _tools: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def answer_call(self, api: Api, request: dict[str, Any]) -> Work:
        """One call of the application, from its request to its answer."""
        request = dict(request)
        try:
            asked = api.read(request)
            new = yield from self._prepare(api, asked, request)
        except _DATABASE as error:
            if self.strict:
                raise
            log.warning("nothing was recalled or stored, the request goes out as it came: %s", error)
            new = None
        if new is None:
            yield from self._pass_on(without_marks(request))
            return
        own = {_name(tool) for tool in self._tools.get(api.tools_format, [])} if self._offers(api, request) else set()
        shown = rounds = 0
        while True:
            filled = yield from self._compile_list(api, request, new)
            answer = yield Ask(filled)
            if request.get("stream"):
                if rounds == 0:
                    yield Out(answer)
                reply, held, count = yield from self._stream_on(api, answer, new, own, shown if rounds else None)
                if reply is None:
                    return
                shown += count
            else:
                reply, held = api.reply(answer), []
            rounds += 1
            mine = [call for call in reply.tool_calls if call.name in own]
            yield from self._store_exchange(new, reply, mine)
            ids = {call.id for call in mine}
            if not mine or len(mine) < len(reply.tool_calls) or rounds == _ROUNDS:
                if request.get("stream"):
                    for piece in api.rest(held, ids) if ids else held:
                        yield Out(piece)
                else:
                    if ids:
                        api.keep(answer, ids)
                    yield Out(answer)
                return
            new = []

    def _pass_on(self, request: dict[str, Any]) -> Work:
        answer = yield Ask(request)
        yield Out(answer)
        while request.get("stream"):
            piece = yield Next(answer)
            if piece is END:
                return
            yield Out(piece)

    def _offers(self, api: Api, request: dict[str, Any]) -> bool:
        return self.memory_tools and not (isinstance(api, Responses) and request.get("stream"))

    def _prepare(self, api: Api, asked: Asked, request: dict[str, Any]) -> Work:
        """Opens the session, finds what is new, appends what is not the question itself; None: not to be managed."""
        asked.messages = replace_unstorable(asked.messages)  # as they are stored, so that they are known again
        opening = (asked.system, request.get("model"))
        if not asked.messages or asked.messages[-1]["role"] == "assistant":
            return None
        if self._opened != opening:
            given: dict[str, Any] = {"system_prompt": asked.system, "model": request.get("model")} | self.opening
            yield calls.open_session(self.user, self.session, **given)
            self._opened = opening
        if self._seen is None:
            info = yield calls.session_info(self.user, self.session)
            self._turns, self._is_new, self._seen = max(0, info["turns"] - _RECENT), not info["turns"], set()
        # Another process may have stored what this one has not seen.
        stored = yield calls.history(self.user, self.session, from_turn=self._turns)
        if stored:
            self._turns, self._is_new = stored[-1]["turn_index"] + 1, False
            self._seen = self._seen.union(*map(_marks, stored))
        new = self._new(asked.messages)
        question = new[-1:] if new and new[-1]["role"] == "user" else []
        yield from self._append_messages(new[: len(new) - len(question)])
        if self._offers(api, request):
            if api.tools_format not in self._tools:
                self._tools[api.tools_format] = yield calls.memory_tools(cast(Any, api.tools_format))
            request["tools"] = asked.tools + self._tools[api.tools_format]
        return question

    def _new(self, messages: list[Message]) -> list[Message]:
        """What follows the last answer or tool result that is stored; where none is, all there is to a new session, and
        to a known one the newest question with what follows it."""
        seen = self._seen or set()
        known = [place for place, message in enumerate(messages) if _marks(message) & seen]
        if known:
            return messages[known[-1] + 1 :]
        if self._is_new:
            return messages
        asked = [place for place, message in enumerate(messages) if message["role"] == "user"]
        return messages[asked[-1] :] if asked else []

    def _compile_list(self, api: Api, request: dict[str, Any], new: list[Message]) -> Work:
        try:
            content = new[0]["content"] if new else None
            said: dict[str, Any] = {"query_parts" if isinstance(content, list) else "query": content}
            compiled = yield api.compile(self.user, self.session, tools=tools_of(request) or None, **said)
            return api.fill(without_marks(request), compiled)
        except _DATABASE as error:
            if self.strict:
                raise
            log.warning("nothing was recalled, the request goes out as it came: %s", error)
            return without_marks(request)

    def _stream_on(self, api: Api, stream: Any, new: list[Message], own: set[str], after: int | None) -> Work:
        """Hands a stream on, holding back what follows the first call where calls may be memory's own. What the
        application left is stored as far as it came."""
        pieces: list[Any] = []
        held: list[Any] = []
        blocks = 0
        try:
            while (piece := (yield Next(stream))) is not END:
                pieces.append(piece)
                piece = piece if after is None else api.follows(piece, after)
                if piece is None:
                    continue
                if held or own and api.is_call(piece):
                    held.append(piece)
                else:
                    blocks += getattr(piece, "type", "") == "content_block_start"
                    yield Out(piece)
        except Left:
            try:
                reply = api.reply(pieces)
            except (ValueError, KeyError):  # not even begun
                return None, [], 0
            if not reply.tool_calls:
                yield from self._store_exchange(new, reply, [])
            return None, [], 0
        return api.reply(pieces), held, blocks

    def _store_exchange(self, new: list[Message], reply: Reply, mine: list[ToolCall]) -> Work:
        """Stores the question with its answer, and what memory's own tools say to the calls of them."""
        try:
            yield from self._append_messages([*new, reply.message], reply.usage)
            results = []
            for call in mine:
                said = yield calls.call_memory_tool(self.user, self.session, call.name, call.arguments)
                results.append(tool_result(call, said))
            yield from self._append_messages(results)
        except _DATABASE as error:
            if self.strict or mine:  # without their results the model can't go on
                raise
            log.warning("the answer was not stored: %s", error)

    def _append_messages(self, messages: list[Message], usage: Any = None) -> Work:
        if messages:
            messages = replace_unstorable(messages)
            done = yield calls.append(self.user, self.session, messages, usage=usage)
            self._seen = (self._seen or set()).union(*map(_marks, messages))
            self._is_new = False
            if done["from_turn"] == self._turns:
                self._turns = done["turn_count"]
