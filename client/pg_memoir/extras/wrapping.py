"""A client of OpenAI's or Anthropic's SDK that remembers: Memoir.wrap.

Each call's newest messages are stored with their answer, and the list that goes out is the session's compiled one. The
work of a call (wrapping_talk.py) says what it needs next, and is run here: sync or async, as a whole or as a stream.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from typing import Any
from uuid import uuid4

from ..arguments import wrong
from ..call import Call
from ..errors import InvalidArgumentError
from .wrapping_apis import Api, Messages, Responses
from .wrapping_talk import END, Ask, Left, Next, Talk, Work


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
