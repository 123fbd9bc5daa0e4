"""The asynchronous client: the same calls as client.py, awaited."""

from __future__ import annotations

import asyncio
import inspect
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Literal, TypeVar
from weakref import WeakSet, finalize

import psycopg
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from .arguments import finite_vectors, wrong
from .call import AsyncClient, Call, opens_with
from .client import CONNECT, log
from .errors import InvalidArgumentError, KernelMissingError, MemoirError, from_database, raise_refusals
from .extras import plans, recalls
from .extras.pages.plans import push_page, read_page
from .extras.plans import Leases, Plan, Restored, Wanted
from .extras.providers import ToolCall, tool_result
from .extras.tracing import span_of_call
from .extras.waiting import AWAY, PAUSE_SECONDS, AsyncWaiter
from .extras.wrapping import new_session, wrap_client
from .extras.wrapping_talk import Talk
from .functions import AllCalls, calls
from .sessions import SessionCalls
from .types import AsyncEmbed, Event, EventType, MarkdownPage, Message, PagePush, PoolLoad

T = TypeVar("T")
C = TypeVar("C")


async def _embed_texts(embed: AsyncEmbed, texts: list[str]) -> list[list[float]]:
    """A plain function runs in a thread, so that a model does not stop the event loop."""
    if inspect.iscoroutinefunction(embed) or inspect.iscoroutinefunction(type(embed).__call__):
        answer = embed(texts)
    else:
        answer = await asyncio.to_thread(embed, texts)
    vectors = await answer if isinstance(answer, Awaitable) else answer
    return finite_vectors(vectors, len(texts))


_KEEPERS: set[asyncio.Task[None]] = set()


async def _keeper(
    pool: AsyncConnectionPool[Any], connections: WeakSet[psycopg.AsyncConnection[Any]], over: asyncio.Event
) -> None:
    """Closes a pool when its client is over (closed, or forgotten), or the event loop is."""
    try:
        await over.wait()
        await pool.close()
    except asyncio.CancelledError:  # as all tasks of the loop: the pool's too, for which its close would wait
        for connection in list(connections):
            await connection.close()
        raise


def _noting(
    connections: WeakSet[psycopg.AsyncConnection[Any]],
) -> Callable[[psycopg.AsyncConnection[Any]], Awaitable[None]]:
    """What the pool calls with each new connection."""

    async def note(connection: psycopg.AsyncConnection[Any]) -> None:
        connections.add(connection)

    return note


def _forgotten(loop: asyncio.AbstractEventLoop, over: asyncio.Event) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(over.set)


class AsyncMemoir(AllCalls, AsyncClient):
    """Memoir for asyncio: same arguments, same methods, awaited. The pool opens with the first call, or `async with`;
    what is not closed closes with the event loop.

        memoir = AsyncMemoir("host=/run/pgm dbname=memoir")
        session = memoir.session("alice", "support-42", model="gpt-4o")
        messages = await session.compile_context("Why was my March invoice wrong?")

    `embed` may be a function (called in a thread) or a coroutine function.
    """

    def __init__(
        self,
        dsn: str | AsyncConnectionPool[Any],
        *,
        embed: AsyncEmbed | None = None,
        min_size: int = 1,
        max_size: int = 10,
        timeout: float = 10.0,
        **connect: Any,
    ) -> None:
        self.embed = embed
        self._recalling: set[str] = set()  # functions that need the client's kernel here
        self._dsn = dsn if isinstance(dsn, str) else None
        self._connect = CONNECT | connect
        # A pool belongs to a running event loop, which there may not be yet.
        self._opened = self._dsn is None
        self._lock = asyncio.Lock()
        self._over = asyncio.Event()
        self._connections: WeakSet[psycopg.AsyncConnection[Any]] = WeakSet()
        if isinstance(dsn, str):
            self._pool: AsyncConnectionPool[Any] = AsyncConnectionPool(
                dsn,
                min_size=min_size,
                max_size=max_size,
                timeout=timeout,
                open=False,
                configure=_noting(self._connections),
                kwargs=self._connect,
            )
        elif hasattr(dsn, "connection"):
            self._pool = dsn
        else:
            raise wrong(dsn, "dsn", "a connection string or an AsyncConnectionPool")

    async def __aenter__(self) -> AsyncMemoir:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Opens the pool, if it is not."""
        if not self._opened:
            async with self._lock:  # whoever comes second must find it open
                if not self._opened:
                    await self._pool.open()
                    self._keep()
                    self._opened = True

    def _keep(self) -> None:
        """Has the pool closed by whatever ends first."""
        keeper = asyncio.create_task(_keeper(self._pool, self._connections, self._over))
        _KEEPERS.add(keeper)
        keeper.add_done_callback(_KEEPERS.discard)
        finalize(self, _forgotten, asyncio.get_running_loop(), self._over).atexit = False

    async def close(self) -> None:
        """Closes the pool, unless it was given."""
        if self._dsn is not None:
            await self._pool.close()
            self._over.set()

    def pool_load(self) -> PoolLoad:
        """How full the pool is: when callers wait, raise max_size, or put PgBouncer in front of the server."""
        return PoolLoad.of(self._pool.get_stats())

    async def run(self, call: Call[T]) -> T:
        """Runs a call of pg_memoir.functions in a transaction of its own."""
        await self.open()
        params = call.params
        if call.embed is not None and self.embed is not None:
            params = params | {"query_embedding": await self._query_vector(call.embed)}
        try:
            with span_of_call(call.function, params), raise_refusals():
                async with self._pool.connection() as connection, connection.cursor(row_factory=dict_row) as cursor:
                    if call.function not in self._recalling:
                        try:
                            return await self._fetch(cursor, call, params)
                        except psycopg.Error as error:
                            if error.sqlstate != KernelMissingError.sqlstate:
                                raise
                            self._recalling.add(call.function)
                    for pause in recalls.PAUSES:
                        with suppress(psycopg.errors.SerializationFailure):
                            return await self._run_recalling(cursor, call, params)
                        await asyncio.sleep(pause * random.random())
                    return await self._run_recalling(cursor, call, params)
        except PoolTimeout:
            if self._dsn and self._pool.get_stats().get("connections_errors"):
                # Says what the pool does not: why.
                direct = await psycopg.AsyncConnection.connect(self._dsn, **{"connect_timeout": 5} | self._connect)
                await direct.close()
            raise

    async def _fetch(self, cursor: psycopg.AsyncCursor[Any], call: Call[T], params: Mapping[str, Any]) -> T:
        await cursor.execute(call.sql.encode(), params)
        return call.read(await cursor.fetchall() if cursor.description else [])

    async def _run_recalling(self, cursor: psycopg.AsyncCursor[Any], call: Call[T], params: Mapping[str, Any]) -> T:
        """Runs a call whose recalls are made here (extras/recalls.py), in one snapshot; the kernel in a thread."""
        loop = asyncio.get_running_loop()

        async def read(sql: str, given: Mapping[str, Any]) -> list[dict[str, Any]]:
            await cursor.execute(sql.encode(), given)
            return await cursor.fetchall()

        def read_from_thread(sql: str, given: Mapping[str, Any]) -> list[dict[str, Any]]:
            return asyncio.run_coroutine_threadsafe(read(sql, given), loop).result()

        made: dict[str, Any] = {}
        async with cursor.connection.transaction():
            await cursor.execute(recalls.ISOLATION.encode())
            while True:
                await read(recalls.GIVE, {"recalls": json.dumps(made)})
                try:
                    async with cursor.connection.transaction():  # what it asks for is no end of the transaction
                        return await self._fetch(cursor, call, params)
                except psycopg.Error as error:
                    missing = from_database(error)
                    if not isinstance(missing, KernelMissingError) or len(made) >= recalls.MOST:
                        raise
                key, recall = await asyncio.to_thread(recalls.make, missing, params["user"], read_from_thread)
                made[key] = recall

    async def _query_vector(self, text: str) -> list[float] | None:
        assert self.embed is not None
        try:
            return (await _embed_texts(self.embed, [text]))[0]
        except Exception:  # the promise: without a vector the word arms carry on
            log.warning("the query could not be embedded; going on without its vector", exc_info=True)
            return None

    async def _run_plan(self, plan: Plan[T], embed: AsyncEmbed | None = None) -> T:
        """Runs a plan to its end; each call is a transaction of its own, none is open while `embed` runs."""
        step: Callable[[Any], Call[Any] | Wanted] = plan.send
        answer: Any = None
        try:
            while True:
                wanted = step(answer)
                try:
                    if isinstance(wanted, Call):
                        answer = await self.run(wanted)
                    elif embed is None:
                        raise InvalidArgumentError("embed is None, and the client has no embedder of its own")
                    else:
                        async with self.keeping(wanted.leases):
                            answer = await _embed_texts(embed, wanted.texts)
                    step = plan.send
                except Exception as error:  # the plan knows what it means where it stands
                    step, answer = plan.throw, error
        except StopIteration as end:
            result: T = end.value
            return result

    @asynccontextmanager
    async def keeping(self, leases: Leases) -> AsyncIterator[None]:
        """Keeps leases alive from another task while the block works. One that is lost all the same is somebody
        else's."""
        done = asyncio.Event()

        async def beat() -> None:
            while not done.is_set():
                try:
                    await asyncio.wait_for(done.wait(), plans.HEARTBEAT)
                    return
                except TimeoutError:
                    pass
                for work, lease in leases:
                    try:
                        await self.heartbeat(work, lease)
                    except (MemoirError, psycopg.Error, OSError) as error:  # the next one may get through
                        log.warning("heartbeat: %s", error)

        task = asyncio.create_task(beat())
        try:
            yield
        finally:
            done.set()
            await task

    @opens_with(AllCalls.open_session)
    def session(self, user: str, session: str, opening: Call[Any] | None) -> AsyncSession:
        """A user's session, by the application's own names; see Memoir.session. Not awaited: it calls nothing yet."""
        return AsyncSession(self, user, session, opening)

    def wrap(
        self,
        client: C,
        *,
        user: str,
        session: str | None = None,
        memory_tools: bool = False,
        strict: bool = False,
        **opening: Any,
    ) -> C:
        """A copy of an async client of an SDK that remembers; see Memoir.wrap. Not awaited: it calls nothing yet."""
        copy: C = wrap_client(self, True, client, Talk(user, session or new_session(), opening, memory_tools, strict))
        return copy

    async def embed_backlog(
        self,
        embed: AsyncEmbed | None = None,
        *,
        limit: int = 64,
        model: str | None = None,
        max_items: int | None = None,
    ) -> int:
        """Embeds what waits for a vector; returns how many were stored. See Memoir.embed_backlog."""
        return await self._run_plan(plans.embed_backlog(limit, model, max_items), embed or self.embed)

    async def export_lines(self, user: str, *, embeddings: bool = False) -> AsyncIterator[str]:
        """The lines of export_user as they come. See Memoir.export_lines."""
        await self.open()
        call = calls.export_user(user, embeddings=embeddings)
        with raise_refusals():
            async with self._pool.connection() as connection, connection.transaction():
                async with connection.cursor("memoir_export", row_factory=dict_row) as cursor:
                    await cursor.execute(call.sql.encode(), call.params)
                    async for row in cursor:
                        yield row["result"]

    async def stream_events(
        self,
        user: str | None = None,
        *,
        after: str | None = None,
        types: Sequence[EventType] | None = None,
        follow: bool = True,
    ) -> AsyncIterator[Event]:
        """The events of read_events as they come. See Memoir.stream_events."""
        waiter = AsyncWaiter(self._dsn, self._connect)
        try:
            while True:
                try:
                    if follow:
                        await waiter.listen()
                    page = await self.read_events(user, after=after, types=types)
                    for event in page["events"]:
                        yield event
                    after = page["cursor"]
                    if not page["more"]:
                        if not follow:
                            return
                        await waiter.wait()
                except AWAY as error:
                    if not follow:
                        raise
                    log.warning("events: %s", error)
                    await asyncio.sleep(PAUSE_SECONDS * 20)
        finally:
            await waiter.close()

    async def import_lines(self, lines: Iterable[str], *, user: str | None = None) -> Restored:
        """Imports the lines of an export, in batches. See Memoir.import_lines."""
        return await self._run_plan(plans.import_lines(lines, user))

    async def memory_page(
        self,
        user: str,
        *,
        project: str | None = None,
        topic: str | None = None,
        limit: int | None = None,
        edited: str | None = None,
    ) -> MarkdownPage:
        """Writes a page of what is known about a user. See Memoir.memory_page."""
        return await self._run_plan(read_page(user, project, topic, limit, edited))

    async def push_page(self, user: str, markdown: str, *, preview: bool = False, lift: bool = False) -> PagePush:
        """Carries out what a person changed on a page. See Memoir.push_page."""
        return await self._run_plan(push_page(user, markdown, preview, lift))


class AsyncSession(SessionCalls, AsyncClient):
    """One session of one user; made by AsyncMemoir.session. Holds no connection.

    `mark`: the turn mark of the last turn persisted through this object, for `after_turn` on a replica; else None.
    """

    def __init__(self, memoir: AsyncMemoir, user: str, name: str, opening: Call[Any] | None) -> None:
        super().__init__(user, name, opening)
        self._memoir = memoir

    async def run(self, call: Call[T]) -> T:
        """Runs a call, after the one that opens the session if that has not run."""
        if self._opening is not None:
            await self._memoir.run(self._opening)  # idempotent, so two tasks may both do it
            self._opening = None
        answer = await self._memoir.run(call)
        self._note_answer(call, answer)
        return answer

    async def tools(
        self, format: Literal["openai", "responses", "anthropic", "mcp"] | None = None
    ) -> list[dict[str, Any]]:
        """AsyncMemoir.memory_tools: definitions to send with a request, besides the application's own."""
        return await self._memoir.memory_tools(format)

    async def run_tool(self, call: ToolCall) -> Message:
        """Runs a model's call of one of `tools` and returns the message that answers it. The user's message must be
        appended before: what the model quotes of it carries the user's word."""
        return tool_result(call, await self.call_memory_tool(call.name, call.arguments))
