"""The asynchronous client: the same calls as client.py, awaited."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

import psycopg
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from . import admin_calls, backlog, calls
from .backlog import Leases, Plan, Vectors, embed_backlog_plan
from .calls import Call
from .client import CONNECT, described, log
from .errors import MemoirError, from_database
from .importing import Imported, import_plan
from .transfer import Restored, restore_plan
from .types import AsyncEmbed
from .values import finite_vectors

P = ParamSpec("P")
T = TypeVar("T")


def _method(build: Callable[P, Call[T]]) -> Callable[Concatenate[AsyncMemoir, P], Coroutine[Any, Any, T]]:
    async def run(self: AsyncMemoir, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.run(build(*args, **kwargs))

    described(run, build)
    return run


def _session_method(
    build: Callable[Concatenate[str, str, P], Call[T]],
) -> Callable[Concatenate[AsyncSession, P], Coroutine[Any, Any, T]]:
    async def run(self: AsyncSession, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(build(self.user, self.name, *args, **kwargs))

    described(run, build, bound=2)
    return run


async def _embedded(embed: AsyncEmbed, texts: list[str]) -> list[list[float]]:
    """A plain function runs in a thread, so that a model does not stop the event loop."""
    if inspect.iscoroutinefunction(embed) or inspect.iscoroutinefunction(type(embed).__call__):
        answer = embed(texts)
    else:
        answer = await asyncio.to_thread(embed, texts)
    vectors = await answer if isinstance(answer, Awaitable) else answer
    return finite_vectors(vectors, len(texts))


class AsyncMemoir:
    """Memoir for asyncio: same arguments, same methods, awaited. The pool opens with the first call, or `async with`.

        async with AsyncMemoir("host=/run/pgm dbname=memoir") as memoir:
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
        self._dsn = dsn if isinstance(dsn, str) else None
        self._connect = CONNECT | connect
        # A pool belongs to a running event loop, which there may not be yet.
        self._opened = self._dsn is None
        self._lock = asyncio.Lock()
        self._pool: AsyncConnectionPool[Any] = (
            AsyncConnectionPool(dsn, min_size=min_size, max_size=max_size, timeout=timeout, open=False, kwargs=self._connect)
            if isinstance(dsn, str)
            else dsn
        )

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
                await self._pool.open()
                self._opened = True

    async def close(self) -> None:
        """Closes the pool, unless it was given."""
        if self._dsn is not None:
            await self._pool.close()

    async def run(self, call: Call[T]) -> T:
        """Runs one call of pg_memoir.calls in a transaction of its own."""
        await self.open()
        params = call.params
        if call.embed is not None and self.embed is not None:
            params = params | {"query_embedding": await self._query_vector(call.embed)}
        try:
            async with self._pool.connection() as connection, connection.cursor(row_factory=dict_row) as cursor:
                await cursor.execute(call.sql.encode(), params)
                return call.decode(await cursor.fetchall() if cursor.description else [])
        except PoolTimeout:
            if self._dsn and self._pool.get_stats().get("connections_errors"):
                direct = await psycopg.AsyncConnection.connect(self._dsn, connect_timeout=5, **self._connect)
                await direct.close()  # connecting says what the pool does not: why
            raise
        except psycopg.Error as error:
            refusal = from_database(error)
            if refusal is None:
                raise
            raise refusal from error

    async def _query_vector(self, text: str) -> list[float] | None:
        assert self.embed is not None
        try:
            return (await _embedded(self.embed, [text]))[0]
        except Exception:  # the promise: without a vector the word arms carry on
            log.warning("the query could not be embedded; going on without its vector", exc_info=True)
            return None

    async def run_plan(self, plan: Plan[T], embed: AsyncEmbed | None = None) -> T:
        """Runs a generator of calls to its end; each call is a transaction of its own, none is open while `embed` runs."""
        step, answer = plan.send, None  # type: Callable[[Any], Call[Any] | Vectors], Any
        try:
            while True:
                wanted = step(answer)
                try:
                    if isinstance(wanted, Vectors):
                        if embed is None:
                            raise TypeError("no embedder: give `embed`")
                        async with self.keeping(wanted.leases):
                            answer = await _embedded(embed, wanted.texts)
                    else:
                        answer = await self.run(wanted)
                    step = plan.send
                except Exception as error:  # the plan knows what it means where it stands
                    step, answer = plan.throw, error
        except StopIteration as end:
            result: T = end.value
            return result

    @asynccontextmanager
    async def keeping(self, leases: Leases) -> AsyncIterator[None]:
        """Keeps leases alive from another task while the block works. A lease that is lost all the same is somebody else's."""

        done = asyncio.Event()

        async def beat() -> None:
            while not done.is_set():
                try:
                    await asyncio.wait_for(done.wait(), backlog.HEARTBEAT)
                    return
                except TimeoutError:
                    pass
                for job, lease in leases:
                    try:
                        await self.run(admin_calls.heartbeat(job, lease))
                    except (MemoirError, psycopg.Error, OSError) as error:  # the next one may get through
                        log.warning("heartbeat: %s", error)

        task = asyncio.create_task(beat())
        try:
            yield
        finally:
            done.set()
            await task

    def session(
        self,
        user: str,
        session: str,
        *,
        model: str | None = None,
        system_prompt: str | None = None,
        project: str | None = None,
        task: str | None = None,
        parent: str | None = None,
        settings: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> AsyncSession:
        """A user's session, by the application's own names; see Memoir.session. Not awaited: it calls nothing yet."""
        opening = calls.opening(
            user,
            session,
            model=model,
            system_prompt=system_prompt,
            project=project,
            task=task,
            parent=parent,
            settings=settings,
            metadata=metadata,
        )
        return AsyncSession(self, user, session, opening)

    async def embed_backlog(
        self, embed: AsyncEmbed | None = None, *, limit: int = 64, model: str | None = None, max_items: int | None = None
    ) -> int:
        """Embeds what waits for a vector; returns how many were stored. See Memoir.embed_backlog."""
        return await self.run_plan(embed_backlog_plan(limit, model, max_items), embed or self.embed)

    async def import_conversations(
        self,
        path: str | Path,
        *,
        user: str | None = None,
        user_prefix: str | None = None,
        model: str | None = None,
        skip_bad: bool = False,
        progress: bool | None = None,
    ) -> Imported:
        """Imports a file of conversations; see pg_memoir.import_conversations."""
        return await self.run_plan(import_plan(path, user, user_prefix, model, skip_bad, progress))

    async def export_lines(self, user: str, *, embeddings: bool = False) -> AsyncIterator[str]:
        """The lines of export_user as they come. See Memoir.export_lines."""
        await self.open()
        call = calls.export_user(user, embeddings=embeddings)
        try:
            async with (
                self._pool.connection() as connection,
                connection.transaction(),
                connection.cursor("memoir_export", row_factory=dict_row) as cursor,
            ):
                await cursor.execute(call.sql.encode(), call.params)
                async for row in cursor:
                    yield row["result"]
        except psycopg.Error as error:
            refusal = from_database(error)
            if refusal is None:
                raise
            raise refusal from error

    async def import_lines(self, lines: Iterable[str], *, user: str | None = None) -> Restored:
        """Imports the lines of an export, in batches. See Memoir.import_lines."""
        return await self.run_plan(restore_plan(lines, user))

    open_session = _method(calls.open_session)
    persist_turn = _method(calls.persist_turn)
    append = _method(calls.append)
    close_session = _method(calls.close_session)
    branch_session = _method(calls.branch_session)
    session_info = _method(calls.session_info)
    history = _method(calls.history)
    summarize_session = _method(calls.summarize_session)
    compact_session = _method(calls.compact_session)
    undo_compaction = _method(calls.undo_compaction)
    list_compactions = _method(calls.list_compactions)
    profile = _method(calls.profile)
    undo_consolidation = _method(calls.undo_consolidation)
    compile_context = _method(calls.compile_context)
    compile_anthropic = _method(calls.compile_anthropic)
    context = _method(calls.context)
    explain = _method(calls.explain)
    report_context = _method(calls.report_context)
    remember = _method(calls.remember)
    recall = _method(calls.recall)
    match_memories = _method(calls.match_memories)
    set_working_memory = _method(calls.set_working_memory)
    forget = _method(calls.forget)
    correct = _method(calls.correct)
    retract = _method(calls.retract)
    lift_tombstone = _method(calls.lift_tombstone)
    validate = _method(calls.validate)
    relate = _method(calls.relate)
    pin = _method(calls.pin)
    unpin = _method(calls.unpin)
    pin_turns = _method(calls.pin_turns)
    unpin_turns = _method(calls.unpin_turns)
    memory_history = _method(calls.memory_history)
    list_tombstones = _method(calls.list_tombstones)
    list_aliases = _method(calls.list_aliases)
    credit_recall = _method(calls.credit_recall)
    learn_weights = _method(calls.learn_weights)
    list_judgements = _method(calls.list_judgements)
    mark_turn = _method(calls.mark_turn)
    erase_turn = _method(calls.erase_turn)
    erase_session = _method(calls.erase_session)
    erase_user = _method(calls.erase_user)
    export_user = _method(calls.export_user)
    import_user = _method(admin_calls.import_user)
    extract_session = _method(calls.extract_session)
    capture_call = _method(calls.capture_call)
    read_call = _method(calls.read_call)
    bind_login = _method(admin_calls.bind_login)
    unbind_login = _method(admin_calls.unbind_login)
    count_tokens = _method(admin_calls.count_tokens)
    set_setting = _method(admin_calls.set_setting)
    reset_setting = _method(admin_calls.reset_setting)
    set_user_settings = _method(admin_calls.set_user_settings)
    list_settings = _method(admin_calls.list_settings)
    register_model = _method(admin_calls.register_model)
    register_embedding_model = _method(admin_calls.register_embedding_model)
    switch_embedding_model = _method(admin_calls.switch_embedding_model)
    embedding_progress = _method(admin_calls.embedding_progress)
    queue_backfill = _method(admin_calls.queue_backfill)
    drop_retired_embeddings = _method(admin_calls.drop_retired_embeddings)
    claim_judgements = _method(admin_calls.claim_judgements)
    store_judgements = _method(admin_calls.store_judgements)
    fail_judgements = _method(admin_calls.fail_judgements)
    claim_embeddings = _method(admin_calls.claim_embeddings)
    store_embeddings = _method(admin_calls.store_embeddings)
    merge_search = _method(admin_calls.merge_search)
    ensure_partitions = _method(admin_calls.ensure_partitions)
    flush_statistics = _method(admin_calls.flush_statistics)
    run_job = _method(admin_calls.run_job)
    list_jobs = _method(admin_calls.list_jobs)
    retry_job = _method(admin_calls.retry_job)
    bare_statements = _method(admin_calls.bare_statements)
    claim_model_calls = _method(admin_calls.claim_model_calls)
    store_model_result = _method(admin_calls.store_model_result)
    fail_model_call = _method(admin_calls.fail_model_call)
    release_job = _method(admin_calls.release_job)
    heartbeat = _method(admin_calls.heartbeat)
    archive_plan = _method(admin_calls.archive_plan)
    export_month = _method(admin_calls.export_month)
    confirm_export = _method(admin_calls.confirm_export)
    export_memories = _method(admin_calls.export_memories)
    confirm_memories = _method(admin_calls.confirm_memories)


class AsyncSession:
    """One session of one user; made by AsyncMemoir.session. Holds no connection.

    `mark`: the turn mark of the last turn persisted through this object, for `after_turn` on a replica; else None.
    """

    def __init__(self, memoir: AsyncMemoir, user: str, name: str, opening: Call[Any] | None) -> None:
        self.user = user
        self.name = name
        self.mark: str | None = None
        self._memoir = memoir
        self._opening = opening

    async def _run(self, call: Call[T]) -> T:
        if self._opening is not None:
            await self._memoir.run(self._opening)  # idempotent, so two tasks may both do it
            self._opening = None
        result = await self._memoir.run(call)
        if call.function in calls.APPENDING:
            self.mark = result["mark"]  # type: ignore[index]
        return result

    compile_context = _session_method(calls.compile_context)
    compile_anthropic = _session_method(calls.compile_anthropic)
    context = _session_method(calls.context)
    explain = _session_method(calls.explain)
    persist_turn = _session_method(calls.persist_turn)
    append = _session_method(calls.append)
    branch = _session_method(calls.branch_session)
    info = _session_method(calls.session_info)
    history = _session_method(calls.history)
    summarize = _session_method(calls.summarize_session)
    compact = _session_method(calls.compact_session)
    undo_compaction = _session_method(calls.undo_compaction)
    list_compactions = _session_method(calls.list_compactions)
    set_working_memory = _session_method(calls.set_working_memory)
    pin = _session_method(calls.pin)
    unpin = _session_method(calls.unpin)
    pin_turns = _session_method(calls.pin_turns)
    unpin_turns = _session_method(calls.unpin_turns)
    capture_call = _session_method(calls.capture_call)
    close = _session_method(calls.close_session)
