"""The work of the shared embedder: each model has a lane for queries and a slower one for backlog.

A lane embeds what has queued up, together, in small batches. Runtimes that threads may share get two lanes, one for
queries with a thread for each processor, up to four, and one for backlog with a single thread at low priority; others
get one lane of one thread that takes queries first, so that a query waits for one small batch at most.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import runtimes
from .protocol import Refused

log = logging.getLogger("pg_memoir.embedder")

BATCH_BYTES = 1024  # of text in one batch: about one full-length text of MiniLM, 60 ms on one thread
BATCH_TEXTS = 32
_BACKLOG_NICE = 10


@dataclass(eq=False)
class Request:
    """A request on its way: `groups` are the batches of it not yet begun."""

    texts: list[str]
    groups: deque[Any]
    deadline: float
    gone: Callable[[], bool]
    done: asyncio.Future[np.ndarray]
    rows: list[Any] = field(default_factory=list)
    left: int = 0

    def dead(self) -> bool:
        return self.done.done() or self.gone()


class Lane:
    """Threads and their queues, in order of precedence."""

    def __init__(self, model: Model, kinds: tuple[str, ...], nice: int = 0, threads: int = 1):
        self.queues: dict[str, deque[Request]] = {kind: deque() for kind in kinds}
        self._model, self._wake = model, asyncio.Event()
        self._executor = ThreadPoolExecutor(threads, f"lane-{kinds[0]}", initializer=_lower_priority, initargs=(nice,))
        self._tasks = [asyncio.create_task(self._run()) for _ in range(threads)]

    def put(self, kind: str, request: Request) -> None:
        self.queues[kind].append(request)
        self._wake.set()

    async def _run(self) -> None:
        while True:
            batch = self._take()
            if not batch:
                self._wake.clear()
                await self._wake.wait()
                continue
            try:
                await self._embed(batch)
            except Exception as error:
                if len(batch) == 1:
                    _fail(batch[0][0], error)
                    continue
                for part in batch:  # find out whose text it was
                    try:
                        await self._embed([part])
                    except Exception as single:
                        _fail(part[0], single)

    def _take(self) -> list[tuple[Request, list[int]]]:
        """The next batch: (request, indices of its texts), from the first queue that has any."""
        for queue in self.queues.values():
            batch: list[tuple[Request, list[int]]] = []
            size = count = 0
            for _ in range(len(queue)):
                request = queue.popleft()
                if request.dead() or time.monotonic() > request.deadline:
                    _fail(request, TimeoutError())
                    self._model.dropped += 1
                    continue
                cost = sum(self._model.cost(request.texts[i]) for i in request.groups[0])
                if batch and (size + cost > BATCH_BYTES or count + len(request.groups[0]) > BATCH_TEXTS):
                    queue.appendleft(request)
                    break
                group = request.groups.popleft()
                batch.append((request, group))
                size, count = size + cost, count + len(group)
                if request.groups:
                    queue.append(request)  # behind the others: each gets its turn
            if batch:
                return batch
        return []

    async def _embed(self, batch: list[tuple[Request, list[int]]]) -> None:
        texts = [request.texts[index] for request, group in batch for index in group]
        loop = asyncio.get_running_loop()
        begun = time.monotonic()
        vectors = await loop.run_in_executor(self._executor, self._model.loaded().embed, texts)
        self._model.busy += time.monotonic() - begun
        self._model.batches += 1
        self._model.embedded += len(texts)
        row = 0
        for request, group in batch:
            for index in group:
                request.rows[index] = vectors[row]
                row += 1
            request.left -= len(group)
            if not request.left and not request.done.done():
                request.done.set_result(np.stack(request.rows))


def _lower_priority(nice: int) -> None:
    if nice:
        try:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice)  # on Linux: of this thread alone
        except OSError:
            pass


def _fail(request: Request, error: BaseException) -> None:
    request.groups.clear()
    if not request.done.done():
        request.done.set_exception(error)


class Model:
    """A model that the embedder serves, loaded when first needed."""

    def __init__(self, name: str, source: str, options: Any):
        self.name, self._source, self._options = name, source, options
        self.runtime: runtimes.Runtime | None = None
        self.dimension: int | None = None
        self._loading: asyncio.Task[None] | None = None
        self._problem: BaseException | None = None
        self._query: Lane | None = None
        self._backlog: Lane | None = None
        self.queries = self.texts = self.embedded = self.batches = self.dropped = 0
        self.busy = 0.0

    def load(self) -> asyncio.Task[None]:
        """Starts loading, once; a failed try may be repeated by a later request."""
        if self._loading is None or (self._loading.done() and self.runtime is None):
            self._loading = asyncio.create_task(self._load())
        return self._loading

    async def _load(self) -> None:
        begun = time.monotonic()
        try:
            runtime, dimension = await asyncio.to_thread(self._load_now)
        except BaseException as error:
            self._problem = error
            raise
        self.runtime, self.dimension = runtime, dimension
        if runtime.concurrent:
            self._query, self._backlog = (
                Lane(self, ("query",), threads=min(4, os.cpu_count() or 1)),
                Lane(self, ("backlog",), _BACKLOG_NICE),
            )
        else:
            self._query = self._backlog = Lane(self, ("query", "backlog"))
        log.info(
            "loaded %s with %s in %.1f s, dimension %d", self.name, runtime.name, time.monotonic() - begun, dimension
        )

    def _load_now(self) -> tuple[runtimes.Runtime, int]:
        o = self._options
        http = (
            {"endpoint": o.endpoint, "api_key_env": o.api_key_env, "api_key_file": o.api_key_file}
            if o.runtime == "openai"
            else {}
        )
        runtime = runtimes.load(self._source, o.runtime, o.cache, o.threads, **http)
        return runtime, runtime.embed(["warm up"]).shape[1]

    def loaded(self) -> runtimes.Runtime:
        """The runtime; only to be asked for once it is loaded."""
        assert self.runtime is not None
        return self.runtime

    def cost(self, text: str) -> int:
        """Bytes of the text that count: what is beyond the model's length is not read."""
        return min(len(text) * 4 if not text.isascii() else len(text), 4 * (self.loaded().max_length or 1024))

    async def embed(self, texts: list[str], query: bool, deadline: float, gone: Callable[[], bool]) -> np.ndarray:
        """n texts → (n, dimension); raises Refused. `gone` says that nobody waits any more."""
        if self.runtime is None:
            loading = self.load()
            if query:
                raise Refused(
                    "loading", f"{self.name} is being loaded" + (f" (before: {self._problem})" if self._problem else "")
                )
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    await asyncio.shield(loading)
            except TimeoutError:
                raise Refused("loading", f"{self.name} is still being loaded") from None
            except Exception as error:
                raise Refused("loading", f"can't load {self.name}: {error}") from None
        groups = runtimes.batches([self.cost(text) for text in texts], BATCH_BYTES, BATCH_TEXTS)
        request = Request(
            texts,
            deque(groups),
            deadline,
            gone,
            asyncio.get_running_loop().create_future(),
            [None] * len(texts),
            len(texts),
        )
        kind, lane = ("query", self._query) if query else ("backlog", self._backlog)
        assert lane is not None
        self.queries += query
        self.texts += len(texts)
        lane.put(kind, request)
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                return await request.done
        except TimeoutError:
            raise Refused("timeout", "the embedder didn't get to it in time") from None
        except runtimes.RuntimeUnavailable as error:
            raise Refused("internal", str(error)) from None

    def about(self) -> dict[str, Any]:
        state = (
            "ready"
            if self.runtime
            else "loading"
            if self._loading and not self._loading.done()
            else "failed"
            if self._problem
            else "idle"
        )
        known = (
            {"runtime": self.runtime.name, "dimension": self.dimension, "max_length": self.runtime.max_length}
            if self.runtime
            else {}
        )
        return {"name": self.name, "source": self._source, "state": state, **known}

    def figures(self) -> dict[str, Any]:
        lanes = {lane for lane in (self._query, self._backlog) if lane}
        waiting = {kind: len(queue) for lane in lanes for kind, queue in lane.queues.items()}
        counts = {key: getattr(self, key) for key in ("queries", "texts", "embedded", "batches", "dropped")}
        return {**counts, "busy_s": round(self.busy, 3), "waiting": waiting}
