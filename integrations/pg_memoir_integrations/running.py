"""A client of either kind, from code of either kind."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from pg_memoir import AsyncMemoir, Memoir
from pg_memoir.call import Call

T = TypeVar("T")
AnyMemoir = Memoir | AsyncMemoir


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


def plain(value: Any) -> Any:
    """A framework's object as JSON has it."""
    return value.model_dump(mode="json", exclude_none=True) if hasattr(value, "model_dump") else value
