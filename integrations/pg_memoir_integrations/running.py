"""A client of either kind, from code of either kind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

from pg_memoir import AsyncMemoir, Memoir, MemoirError
from pg_memoir.call import Call
from pg_memoir.errors import ChangedElsewhereError
from pg_memoir.texts import escape, unescape

T = TypeVar("T")
AnyMemoir = Memoir | AsyncMemoir
ATTEMPTS = 100
"""Of a change that builds on what was read. Each failure means that another writer got on."""


async def arun(memoir: AnyMemoir, call: Call[T]) -> T:
    """Runs a call; a sync client in a thread, so that the event loop goes on."""
    if isinstance(memoir, AsyncMemoir):
        return await memoir.run(call)
    return await asyncio.to_thread(memoir.run, call)


def run(memoir: AnyMemoir, call: Call[T]) -> T:
    """Runs a call from code that can't wait for an async client."""
    if isinstance(memoir, AsyncMemoir):
        raise TypeError("this is called without await: it needs a Memoir, not an AsyncMemoir")
    return memoir.run(call)


def dump_json(value: Any, **how: Any) -> Any:
    """A pydantic object as JSON has it. pydantic itself writes lone surrogates wrongly or not at all."""
    held = value.model_dump(**how)
    if (escaped := escape(held)) == held:
        return value.model_dump(mode="json", **how)
    return unescape(type(value).model_validate(escaped).model_dump(mode="json", **how))


def dump_exact(value: Any) -> Any:
    """Returns a pydantic object of plain fields as JSON has it, with NaN, infinities and lone surrogates."""
    from pydantic_core import to_jsonable_python  # which a framework with such objects brings

    held = escape(value.model_dump())
    return unescape(to_jsonable_python(held, inf_nan_mode="constants", bytes_mode="base64"))


def plain(value: Any) -> Any:
    """A framework's object as JSON has it."""
    return dump_json(value, exclude_none=True) if hasattr(value, "model_dump") else value


async def retry_change(change: Callable[[], Awaitable[T]]) -> T:
    """Reads and changes again while other writers are faster."""
    for _ in range(ATTEMPTS - 1):
        try:
            return await change()
        except ChangedElsewhereError:
            continue
    return await change()


def run_steps(memoir: AnyMemoir, steps: Generator[Call[Any], Any, T]) -> T:
    """Runs the calls that a generator yields. It gets each answer, or the error that a call raised."""
    step: Callable[[Any], Call[Any]] = steps.send
    answer: Any = None
    try:
        while True:
            call = step(answer)
            try:
                step, answer = steps.send, run(memoir, call)
            except MemoirError as error:  # the generator knows what it means where it stands
                step, answer = steps.throw, error
    except StopIteration as end:
        result: T = end.value
        return result


async def arun_steps(memoir: AnyMemoir, steps: Generator[Call[Any], Any, T]) -> T:
    """Runs the calls that a generator yields, awaited."""
    step: Callable[[Any], Call[Any]] = steps.send
    answer: Any = None
    try:
        while True:
            call = step(answer)
            try:
                step, answer = steps.send, await arun(memoir, call)
            except MemoirError as error:
                step, answer = steps.throw, error
    except StopIteration as end:
        result: T = end.value
        return result
