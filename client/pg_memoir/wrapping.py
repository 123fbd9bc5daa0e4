"""A client of OpenAI's or Anthropic's SDK that remembers: Memoir.wrap.

Each call's newest messages are stored with their answer, and the list that goes out is the session's compiled one. The
work is a generator (`answered`) for sync and async alike: it yields calls of the database, `Ask` for the model, `Next`
for the next piece of a stream and `Out` for what the application gets. No SDK is imported: `Api` says how a request
and an answer of each stand for chat messages.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from typing import Any, cast
from uuid import uuid4

import psycopg
from psycopg_pool import PoolTimeout

from .arguments import wrong
from .call import Call
from .calls import calls
from .errors import InvalidArgumentError, MemoirError
from .providers import Reply, ToolCall, from_anthropic, from_openai, from_responses, plain, tool_result
from .shapes import from_anthropic_messages, from_input_items, text_of, to_input_items
from .texts import replace_unstorable
from .types import Message

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


@dataclass
class Asked:
    """What a request says, in chat messages."""

    system: str | None
    messages: list[Message]
    tools: list[Any]


class Api:
    """OpenAI's chat completions, and what the others say otherwise."""

    tools_format = "openai"
    compile = staticmethod(calls.compile_context)
    reply = staticmethod(from_openai)

    def read(self, request: dict[str, Any]) -> Asked:
        messages = [dict(_plain(message)) for message in request.get("messages") or []]
        first = next((i for i, m in enumerate(messages) if m.get("role") not in ("system", "developer")), len(messages))
        system = "\n\n".join(text_of(message.get("content")) for message in messages[:first]) or None
        return Asked(system, messages[first:], _tools(request))

    def fill(self, request: dict[str, Any], compiled: Any) -> dict[str, Any]:
        return request | {"messages": compiled}

    def keep(self, answer: Any, mine: set[str]) -> None:
        """Takes memory's own calls out of an answer that has others as well."""
        message = answer.choices[0].message
        message.tool_calls = [call for call in message.tool_calls if call.id not in mine]

    def is_call(self, piece: Any) -> bool:
        """Whether calls of tools begin with this piece of a stream."""
        return any(choice.delta and choice.delta.tool_calls for choice in piece.choices)

    def rest(self, held: list[Any], mine: set[str]) -> list[Any]:
        """The pieces from the first call on, without memory's own."""
        places: dict[int, int | None] = {}
        for piece in held:
            for choice in piece.choices:
                for call in (choice.delta and choice.delta.tool_calls) or []:
                    if call.index not in places:
                        shown = sum(place is not None for place in places.values())
                        places[call.index] = None if call.id in mine else shown
                if choice.delta and choice.delta.tool_calls:
                    kept = [call for call in choice.delta.tool_calls if places[call.index] is not None]
                    for call in kept:
                        call.index = places[call.index]
                    choice.delta.tool_calls = kept or None
        return held

    def follows(self, piece: Any, shown: int) -> Any | None:
        """A piece of a later round's stream as the application sees it; `shown`: blocks it has seen."""
        return piece


class Messages(Api):
    """Anthropic's messages."""

    tools_format = "anthropic"
    compile = staticmethod(calls.compile_anthropic)  # type: ignore[assignment]
    reply = staticmethod(from_anthropic)

    def read(self, request: dict[str, Any]) -> Asked:
        system = text_of(request.get("system") or None)
        return Asked(system or None, from_anthropic_messages(request.get("messages") or []), _tools(request))

    def fill(self, request: dict[str, Any], compiled: Any) -> dict[str, Any]:
        return {name: value for name, value in request.items() if name != "system"} | dict(compiled)

    def keep(self, answer: Any, mine: set[str]) -> None:
        answer.content = [block for block in answer.content if getattr(block, "id", None) not in mine]

    def is_call(self, piece: Any) -> bool:
        return bool(piece.type == "content_block_start" and piece.content_block.type == "tool_use")

    def rest(self, held: list[Any], mine: set[str]) -> list[Any]:
        gone = {p.index for p in held if p.type == "content_block_start" and getattr(p.content_block, "id", "") in mine}
        kept = [piece for piece in held if getattr(piece, "index", None) not in gone]
        for piece in kept:
            if hasattr(piece, "index"):
                piece.index -= sum(index < piece.index for index in gone)
        return kept

    def follows(self, piece: Any, shown: int) -> Any | None:
        if piece.type == "message_start":
            return None
        if hasattr(piece, "index"):
            piece.index += shown
        return piece


class Responses(Api):
    """OpenAI's responses. What the server keeps itself (`previous_response_id`, `conversation`) is left to it."""

    tools_format = "responses"
    reply = staticmethod(from_responses)

    def read(self, request: dict[str, Any]) -> Asked:
        if request.get("previous_response_id") or request.get("conversation"):
            return Asked(None, [], [])
        messages = from_input_items(request.get("input") or [])
        first = next((i for i, m in enumerate(messages) if m["role"] != "system"), len(messages))
        said = [request.get("instructions") or "", *(text_of(m["content"]) for m in messages[:first])]
        return Asked("\n\n".join(filter(None, said)) or None, messages[first:], _tools(request))

    def fill(self, request: dict[str, Any], compiled: Any) -> dict[str, Any]:
        return {name: v for name, v in request.items() if name != "instructions"} | {"input": to_input_items(compiled)}

    def keep(self, answer: Any, mine: set[str]) -> None:
        answer.output = [item for item in answer.output if getattr(item, "call_id", None) not in mine]


def _plain(message: Any) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], plain(message))


def _given(request: dict[str, Any]) -> dict[str, Any]:
    """Without the SDKs' marks for what was not given."""
    return {name: value for name, value in request.items() if type(value).__name__ not in ("NotGiven", "Omit")}


def _tools(request: dict[str, Any]) -> list[Any]:
    return list(_given(request).get("tools") or [])


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
            yield from self._pass_on(_given(request))
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
            compiled = yield api.compile(self.user, self.session, tools=_tools(request) or None, **said)
            return api.fill(_given(request), compiled)
        except _DATABASE as error:
            if self.strict:
                raise
            log.warning("nothing was recalled, the request goes out as it came: %s", error)
            return _given(request)

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


def new_session() -> str:
    """A name that no other session has."""
    return f"{datetime.now(UTC):%Y-%m-%d}-{uuid4()}"


def wrap_client(memoir: Any, is_async: bool, client: Any, talk: Talk) -> Any:
    """A copy of the client whose calls go by the talk; those of `with_options` and `copy` too."""
    if any(kind.__name__.startswith("Async") for kind in type(client).__mro__) != is_async:
        raise wrong(client, "client", "an async client" if is_async else "a sync client")
    if not hasattr(client, "with_options") or not (hasattr(client, "chat") or hasattr(client, "messages")):
        raise wrong(client, "client", "a client of the openai or anthropic package")
    copy = client.with_options()

    def again(*args: Any, **options: Any) -> Any:
        return wrap_client(memoir, is_async, client.with_options(*args, **options), talk)

    copy.with_options = copy.copy = again
    places: list[tuple[Any, Api, list[str]]] = []
    if hasattr(copy, "chat"):
        places = [
            (copy.chat.completions, Api(), ["create", "parse"]),
            (copy.responses, Responses(), ["create", "parse"]),
        ]
    else:
        places = [
            (copy.messages, Messages(), ["create", "parse"]),
            (copy.beta.messages, Messages(), ["create", "parse"]),
        ]
        for resource in (copy.messages, copy.beta.messages):  # OpenAI's helper goes by `create` of itself
            resource.stream = partial(_Manager, resource)
    answer = _answer_async if is_async else _answer
    for resource, api, names in places:
        for name in filter(partial(hasattr, resource), names):
            setattr(resource, name, answer(memoir, talk, api, getattr(resource, name)))
    return copy


def _answer(memoir: Any, talk: Talk, api: Api, create: Callable[..., Any]) -> Callable[..., Any]:
    def call(**request: Any) -> Any:
        outputs = _outputs(memoir, talk.answer_call(api, request), create)
        first = next(outputs)
        return _Stream(first, outputs) if request.get("stream") else first

    return call


def _answer_async(memoir: Any, talk: Talk, api: Api, create: Callable[..., Any]) -> Callable[..., Any]:
    async def call(**request: Any) -> Any:
        outputs = _outputs_async(memoir, talk.answer_call(api, request), create)
        first = await anext(outputs)
        if request.get("stream"):
            return _AsyncStream(first, outputs)
        await outputs.aclose()
        return first

    return call


def _outputs(memoir: Any, work: Work, create: Callable[..., Any]) -> Iterator[Any]:
    """Runs the work; what it has for the application comes out."""
    step: Callable[[Any], Any] = work.send
    answer: Any = None
    streams: dict[int, Iterator[Any]] = {}
    try:
        while True:
            wanted = step(answer)
            try:
                step, answer = work.send, None
                if isinstance(wanted, Call):
                    answer = memoir.run(wanted)
                elif isinstance(wanted, Ask):
                    answer = create(**wanted.request)
                elif isinstance(wanted, Next):
                    answer = next(streams.setdefault(id(wanted.stream), iter(wanted.stream)), END)
                else:
                    yield wanted.value
            except GeneratorExit:
                step, answer = work.throw, Left()
            except Exception as error:  # the work knows what it means where it stands
                step, answer = work.throw, error
    except (StopIteration, Left):
        return


async def _outputs_async(memoir: Any, work: Work, create: Callable[..., Any]) -> Any:
    """The same, awaited."""
    step: Callable[[Any], Any] = work.send
    answer: Any = None
    streams: dict[int, AsyncIterator[Any]] = {}
    try:
        while True:
            wanted = step(answer)
            try:
                step, answer = work.send, None
                if isinstance(wanted, Call):
                    answer = await memoir.run(wanted)
                elif isinstance(wanted, Ask):
                    answer = create(**wanted.request)
                    answer = await answer if isinstance(answer, Awaitable) else answer
                elif isinstance(wanted, Next):
                    answer = await anext(streams.setdefault(id(wanted.stream), aiter(wanted.stream)), END)
                else:
                    yield wanted.value
            except GeneratorExit:
                step, answer = work.throw, Left()
            except Exception as error:
                step, answer = work.throw, error
    except (StopIteration, Left):
        return


class _Stream:
    """A stream as the SDK's own: iterated, closed, a context manager; the rest is the stream's that opened it."""

    def __init__(self, opened: Any, outputs: Any) -> None:
        self._opened, self._outputs = opened, outputs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._opened, name)

    def __iter__(self) -> Any:
        return self._outputs

    def __next__(self) -> Any:
        return next(self._outputs)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def close(self) -> None:
        self._outputs.close()
        self._opened.close()


class _AsyncStream:
    """The same, awaited."""

    def __init__(self, opened: Any, outputs: Any) -> None:
        self._opened, self._outputs = opened, outputs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._opened, name)

    def __aiter__(self) -> Any:
        return self._outputs

    async def __anext__(self) -> Any:
        return await anext(self._outputs)

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *exception: Any) -> None:
        await self.close()

    async def close(self) -> None:
        await self._outputs.aclose()
        await self._opened.close()


class _Manager:
    """What `messages.stream` of Anthropic's SDK answers with: its stream over the pieces that come of `create`."""

    def __init__(self, resource: Any, **request: Any) -> None:
        if "output_format" in request:
            raise InvalidArgumentError("output_format can't be given to stream of a wrapped client", hint="use parse")
        self._create = partial(resource.create, stream=True, **request)
        self._prefix = "Beta" if "beta" in type(resource).__module__ else ""

    def _make_reply(self, name: str, raw: Any) -> Any:
        package = import_module("anthropic")  # whoever has its client has it
        self._stream = getattr(import_module("anthropic.lib.streaming"), name)(raw, output_format=package.NOT_GIVEN)
        return self._stream

    def __enter__(self) -> Any:
        return self._make_reply(f"{self._prefix}MessageStream", self._create())

    def __exit__(self, *exception: Any) -> None:
        self._stream.close()

    async def __aenter__(self) -> Any:
        return self._make_reply(f"{self._prefix}AsyncMessageStream", await self._create())

    async def __aexit__(self, *exception: Any) -> None:
        await self._stream.close()
