"""What a process of the gateway has: settings, the database's client, the connections upstream, counts."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar, get_args

import httpx
import psycopg
from pg_memoir import AsyncMemoir
from pg_memoir.errors import MemoirError
from pg_memoir.types import AsyncEmbed

from .bounded import BoundedMemoir, ReadOnlyMemoir
from .config import Config
from .dialect import Sort

K = TypeVar("K")
T = TypeVar("T")
log = logging.getLogger("pg_memoir_gateway")

WARM = 2  # connections that are opened at the start
AWAY_SECONDS = 1.0  # so long nobody waits for a database that did not answer
LEFT_SECONDS = 30.0  # a call of the database that a request no longer waits for is cancelled after this time
LARGE_BYTES = 64 << 10  # larger texts are read and compressed in a thread, beside the other requests
BOUNDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)  # upper ends of the classes of times, in seconds


async def in_thread(size: int, work: Callable[[], T]) -> T:
    """Does work over so many bytes, in a thread where it would keep other requests waiting."""
    return await asyncio.to_thread(work) if size > LARGE_BYTES else work()


def keep_newest(kept: OrderedDict[K, T], key: K, value: T, most: int) -> None:
    """Sets a value as the newest, and lets the oldest go."""
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > most:
        kept.popitem(last=False)


class Counts:
    """Counters of this process by name and labels, and times by class. Read by /metrics."""

    def __init__(self) -> None:
        self._times: dict[str, list[float]] = defaultdict(list)
        self._values: dict[tuple[str, tuple[tuple[str, str], ...]], float] = defaultdict(float)
        self._lock = threading.Lock()

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Adds to a counter."""
        with self._lock:
            self._values[name, tuple(sorted(labels.items()))] += amount

    def add_time(self, name: str, seconds: float) -> None:
        """Counts a time in its class."""
        with self._lock:
            counted = self._times[name] or [0.0] * (len(BOUNDS) + 2)
            counted[sum(seconds > bound for bound in BOUNDS)] += 1
            counted[-1] += seconds
            self._times[name] = counted

    def times(self) -> list[tuple[str, list[float]]]:
        """By name: how many in each class of BOUNDS and beyond, and the sum of seconds."""
        with self._lock:
            return [(name, list(counted)) for name, counted in sorted(self._times.items())]

    def items(self) -> list[tuple[str, dict[str, str], float]]:
        """Name, labels and value of each."""
        with self._lock:
            return [(name, dict(labels), value) for (name, labels), value in sorted(self._values.items())]

    def of(self, name: str, **labels: str) -> float:
        """The value of one, 0 where nothing was counted."""
        return self._values.get((name, tuple(sorted(labels.items()))), 0)


class Gateway:
    """Shared by all routes. Parts of the gateway get it as their argument."""

    def __init__(self, config: Config, embed: AsyncEmbed | None = None) -> None:
        self.config = config
        self.counts = Counts()
        self.open_requests = 0
        self.pending_bytes = 0
        self.tools: dict[str, list[dict[str, Any]]] = {}
        self._warming: asyncio.Task[None] | None = None
        self._away_until = 0.0
        self.memoir = AsyncMemoir(config.dsn, embed=embed, min_size=WARM, max_size=8, timeout=2.0, connect_timeout=3)
        self.rest_memoir = BoundedMemoir(config.dsn, embed)
        self.reading_memoir = ReadOnlyMemoir(config.dsn, embed)
        self.http = httpx.AsyncClient(
            timeout=httpx.Timeout(config.hang_seconds, connect=config.connect_seconds),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=30),
            follow_redirects=False,
        )
        self._tasks: set[asyncio.Task[Any]] = set()
        self._left: set[asyncio.Task[Any]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """From the first request to the last: ends background work and connections."""
        self.loop = asyncio.get_running_loop()
        await self._warm()
        try:
            yield
        finally:
            if self._warming:
                self._warming.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=10)
            for task in (*self._tasks, *self._left):
                task.cancel()
            await self.http.aclose()
            await self.memoir.close()
            await self.rest_memoir.close()
            await self.reading_memoir.close()

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs it beside the requests; what it raises is logged."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self.counts.add("background_errors")
            log.warning("in the background: %s: %s", type(error).__name__, error)

    async def idle(self) -> None:
        """Waits until nobody is answered and nothing runs in the background."""
        while self.open_requests or self._tasks:
            await asyncio.sleep(0.01)

    async def in_time(self, call: Coroutine[Any, Any, T], until: float | None = None) -> T:
        """Waits for a call of the database on behalf of a request, until `until` (time.monotonic()) or for
        database_ms. Raises TimeoutError after that. Where most of database_ms was left, it raises that for the next
        second at once: a database that is away keeps one request waiting, not all."""
        now = time.monotonic()
        patience = self.config.database_ms / 1000
        wait = patience if until is None else max(0.0, until - now)
        if now < self._away_until or not wait:
            call.close()
            raise TimeoutError(
                "the database did not answer a moment ago" if wait else "no time is left for the database"
            )
        try:
            return await self.within(wait, call)
        except (TimeoutError, psycopg.OperationalError) as error:
            if wait > patience / 2 or not isinstance(error, TimeoutError):
                self._away_until = time.monotonic() + AWAY_SECONDS
            raise

    async def within(self, seconds: float, call: Coroutine[Any, Any, T]) -> T:
        """Waits so long for a call, then raises TimeoutError and leaves the call behind. Cancelling it would wait as
        well: psycopg first asks the server to stop, and a server that hangs does not answer that either."""
        task = asyncio.create_task(call)
        try:
            await asyncio.wait({task}, timeout=seconds)
        finally:
            if not task.done():
                self._leave(task)
        if not task.done():
            raise TimeoutError(f"no answer within {seconds:.1f} s")
        return task.result()

    def _leave(self, task: asyncio.Task[Any]) -> None:
        """Lets a call end by itself, and cancels it in the background if it does not."""
        cancel = asyncio.get_running_loop().call_later(LEFT_SECONDS, task.cancel)
        self._left.add(task)

        def finish(task: asyncio.Task[Any]) -> None:
            cancel.cancel()
            self._left.discard(task)
            if not task.cancelled():
                task.exception()

        task.add_done_callback(finish)

    async def _warm(self, wait: float = 0) -> None:
        """Makes the first calls of each connection, which plan and load: no request should wait for that."""
        await asyncio.sleep(wait)

        async def call() -> None:
            for sort in get_args(Sort):
                self.tools[sort] = await self.memoir.memory_tools(sort, names=list(self.config.tools)) or []
            for _ in range(2):
                calls = (self.memoir.recall_beside(self.config.user, "warm", "Where was it?") for _ in range(WARM))
                await asyncio.gather(*calls)

        try:
            await self.within(10, call())
        except (TimeoutError, psycopg.Error, MemoirError, OSError) as error:
            log.warning("the database does not answer yet: %s: %s", type(error).__name__, error)
            self._warming = asyncio.create_task(self._warm(5))
