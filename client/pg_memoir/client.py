"""The synchronous client."""

from __future__ import annotations

import atexit
import json
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Literal, TypeVar
from weakref import WeakKeyDictionary

import psycopg
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool, PoolTimeout

from .arguments import finite_vectors, wrong
from .call import Call, Client, opens_with
from .errors import InvalidArgumentError, KernelMissingError, MemoirError, from_database, raise_refusals
from .extras import plans, recalls
from .extras.pages.plans import push_page, read_page
from .extras.plans import Leases, Plan, Restored, Wanted
from .extras.providers import ToolCall, tool_result
from .extras.tracing import span_of_call
from .extras.waiting import AWAY, PAUSE_SECONDS, Waiter
from .extras.wrapping import new_session, wrap_client
from .extras.wrapping_talk import Talk
from .functions import AllCalls, calls
from .sessions import SessionCalls
from .types import Embed, Event, EventType, MarkdownPage, Message, PagePush, PoolLoad

T = TypeVar("T")
C = TypeVar("C")

log = logging.getLogger("pg_memoir")

# Autocommit: every call is one statement and one transaction. No prepared statements: PgBouncer in transaction mode
# may send the next statement to another server connection. UTF-8 whatever the environment says.
CONNECT: dict[str, Any] = {
    "autocommit": True,
    "prepare_threshold": None,
    "row_factory": dict_row,
    "client_encoding": "utf8",
    "application_name": "pg_memoir",
}

_OPEN: WeakKeyDictionary[ConnectionPool[Any], int] = WeakKeyDictionary()
"""Pools of ours, with the process that opened them."""


@atexit.register
def _close_pools() -> None:
    """A pool that nobody closed would wait for each of its threads at exit, five seconds on Python 3.13.0. A fork must
    not close the connections of its parent."""
    for pool, process in list(_OPEN.items()):
        if process == os.getpid():
            pool.close()


class Memoir(AllCalls, Client):
    """pg_memoir over a pool of connections. Thread-safe; as a context manager it closes at the end, else when Python
    exits.

        memoir = Memoir("host=/run/pgm dbname=memoir")
        session = memoir.session("alice", "support-42", model="gpt-4o")
        messages = session.compile_context("Why was my March invoice wrong?")

    `dsn`: a libpq connection string or URL, or a ConnectionPool of your own (autocommit; it stays yours to close).
    `embed`: n texts → n vectors, for installs whose database can't embed queries itself; queries are then embedded
    here. `min_size`, `max_size`: connections; `timeout`: seconds to wait for one. Further options go to
    psycopg.connect. Refusals of the database and wrong arguments raise pg_memoir.MemoirError, anything else
    psycopg.Error.
    """

    def __init__(
        self,
        dsn: str | ConnectionPool[Any],
        *,
        embed: Embed | None = None,
        min_size: int = 1,
        max_size: int = 10,
        timeout: float = 10.0,
        **connect: Any,
    ) -> None:
        self.embed = embed
        self._recalling: set[str] = set()  # functions that need the client's kernel here
        self._dsn = dsn if isinstance(dsn, str) else None
        self._connect = CONNECT | connect
        if isinstance(dsn, str):
            self._pool: ConnectionPool[Any] = ConnectionPool(
                dsn, min_size=min_size, max_size=max_size, timeout=timeout, open=True, kwargs=self._connect
            )
            _OPEN[self._pool] = os.getpid()
        elif hasattr(dsn, "connection"):
            self._pool = dsn
        else:
            raise wrong(dsn, "dsn", "a connection string or a ConnectionPool")

    def __enter__(self) -> Memoir:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the pool, unless it was given."""
        if self._dsn is not None:
            self._pool.close()

    def pool_load(self) -> PoolLoad:
        """How full the pool is: when callers wait, raise max_size, or put PgBouncer in front of the server."""
        return PoolLoad.of(self._pool.get_stats())

    def run(self, call: Call[T]) -> T:
        """Runs a call of pg_memoir.functions in a transaction of its own."""
        params = call.params
        if call.embed is not None and self.embed is not None:
            params = params | {"query_embedding": self._query_vector(call.embed)}
        try:
            with (
                span_of_call(call.function, params),
                raise_refusals(),
                self._pool.connection() as connection,
                connection.cursor(row_factory=dict_row) as cursor,
            ):
                if call.function not in self._recalling:
                    try:
                        return self._fetch(cursor, call, params)
                    except psycopg.Error as error:
                        if error.sqlstate != KernelMissingError.sqlstate:
                            raise
                        self._recalling.add(call.function)
                for pause in recalls.PAUSES:
                    with suppress(psycopg.errors.SerializationFailure):
                        return self._run_recalling(cursor, call, params)
                    time.sleep(pause * random.random())
                return self._run_recalling(cursor, call, params)
        except PoolTimeout:
            if self._dsn and self._pool.get_stats().get("connections_errors"):
                # Says what the pool does not: why.
                psycopg.connect(self._dsn, **{"connect_timeout": 5} | self._connect).close()
            raise

    def _fetch(self, cursor: psycopg.Cursor[Any], call: Call[T], params: Mapping[str, Any]) -> T:
        cursor.execute(call.sql.encode(), params)
        return call.read(cursor.fetchall() if cursor.description else [])

    def _run_recalling(self, cursor: psycopg.Cursor[Any], call: Call[T], params: Mapping[str, Any]) -> T:
        """Runs a call whose recalls are made here (extras/recalls.py), in one snapshot."""

        def read(sql: str, given: Mapping[str, Any]) -> list[dict[str, Any]]:
            cursor.execute(sql.encode(), given)
            return cursor.fetchall()

        made: dict[str, Any] = {}
        with cursor.connection.transaction():
            cursor.execute(recalls.ISOLATION.encode())
            while True:
                read(recalls.GIVE, {"recalls": json.dumps(made)})
                try:
                    with cursor.connection.transaction():  # what it asks for is no end of the transaction
                        return self._fetch(cursor, call, params)
                except psycopg.Error as error:
                    missing = from_database(error)
                    if not isinstance(missing, KernelMissingError) or len(made) >= recalls.MOST:
                        raise
                key, recall = recalls.make(missing, params["user"], read)
                made[key] = recall

    def _query_vector(self, text: str) -> list[float] | None:
        assert self.embed is not None
        try:
            return finite_vectors(self.embed([text]), 1)[0]
        except Exception:  # the promise: without a vector the word arms carry on
            log.warning("the query could not be embedded; going on without its vector", exc_info=True)
            return None

    def _run_plan(self, plan: Plan[T], embed: Embed | None = None) -> T:
        """Runs a plan to its end; each call is a transaction of its own, none is open while `embed` runs."""
        step: Callable[[Any], Call[Any] | Wanted] = plan.send
        answer: Any = None
        try:
            while True:
                wanted = step(answer)
                try:
                    if isinstance(wanted, Call):
                        answer = self.run(wanted)
                    elif embed is None:
                        raise InvalidArgumentError("embed is None, and the client has no embedder of its own")
                    else:
                        with self.keeping(wanted.leases):
                            vectors = embed(wanted.texts)
                        answer = finite_vectors(vectors, len(wanted.texts))
                    step = plan.send
                except Exception as error:  # the plan knows what it means where it stands
                    step, answer = plan.throw, error
        except StopIteration as end:
            result: T = end.value
            return result

    @contextmanager
    def keeping(self, leases: Leases) -> Iterator[None]:
        """Keeps leases alive from another thread while the block works. One that is lost all the same is somebody
        else's.
        """
        done = threading.Event()

        def beat() -> None:
            while not done.wait(plans.HEARTBEAT):
                for work, lease in leases:
                    try:
                        self.heartbeat(work, lease)
                    except (MemoirError, psycopg.Error, OSError) as error:  # the next one may get through
                        log.warning("heartbeat: %s", error)

        thread = threading.Thread(target=beat, daemon=True)
        if leases:
            thread.start()
        try:
            yield
        finally:
            done.set()
            if leases:
                thread.join()

    @opens_with(AllCalls.open_session)
    def session(self, user: str, session: str, opening: Call[Any] | None) -> Session:
        """A user's session, by the application's own names; arguments as open_session.

        With any of them given, the session is opened (or updated) by its first call. Without, it is opened with the
        defaults when the first turn is persisted, and compiling writes nothing.
        """
        return Session(self, user, session, opening)

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
        """A copy of an SDK's client (openai or anthropic) that remembers: its chat completions, responses or messages
        are stored with what was asked, and the list that goes out is the session's compiled one.

            client = memoir.wrap(openai.OpenAI(), user="alice", session="support-42")

        The application goes on sending its messages, all or the new ones alone; streams, tools and async clients work
        as before. `session`: one of its own per wrap unless named. `memory_tools`: the model gets memory's tools as
        well, and their calls are answered here, unseen by the application. Where memory fails the request goes out as
        it came, with a warning in the log; `strict` raises instead. Further options as open_session. Wrapping costs no
        connection: do it per request where there are many users. Raises InvalidArgumentError.
        """
        copy: C = wrap_client(self, False, client, Talk(user, session or new_session(), opening, memory_tools, strict))
        return copy

    def embed_backlog(
        self, embed: Embed | None = None, *, limit: int = 64, model: str | None = None, max_items: int | None = None
    ) -> int:
        """Embeds what waits for a vector; returns how many were stored. The command `pg-memoir worker` keeps at it.

        `embed`: by default the client's own. `limit`: texts a batch. `model`: the embedding model, by default all that
        are active. Returns once the backlog is empty or `max_items` are done. An error of `embed` passes through; what
        was claimed then comes back when its lease ends.
        """
        return self._run_plan(plans.embed_backlog(limit, model, max_items), embed or self.embed)

    def export_lines(self, user: str, *, embeddings: bool = False) -> Iterator[str]:
        """The lines of export_user as they come: read them to the end, or close the iterator. Raises UnknownUserError,
        NotAuthorizedError."""
        call = calls.export_user(user, embeddings=embeddings)
        with raise_refusals(), self._pool.connection() as connection, connection.transaction():
            with connection.cursor("memoir_export", row_factory=dict_row) as cursor:
                cursor.execute(call.sql.encode(), call.params)
                for row in cursor:
                    yield row["result"]

    def stream_events(
        self,
        user: str | None = None,
        *,
        after: str | None = None,
        types: Sequence[EventType] | None = None,
        follow: bool = True,
    ) -> Iterator[Event]:
        """The events of read_events as they come, to the end with `follow` off. Keep the `cursor` of the last one that
        you have worked off: after a crash of yours go on with `after=cursor`. A server that is away is waited for, and
        takes nothing with it. Holds a connection of its own, which waits in LISTEN. Raises as read_events."""
        waiter = Waiter(self._dsn, self._connect)
        try:
            while True:
                try:
                    if follow:
                        waiter.listen()
                    page = self.read_events(user, after=after, types=types)
                    yield from page["events"]
                    after = page["cursor"]
                    if not page["more"]:
                        if not follow:
                            return
                        waiter.wait()
                except AWAY as error:
                    if not follow:
                        raise
                    log.warning("events: %s", error)
                    time.sleep(PAUSE_SECONDS * 20)
        finally:
            waiter.close()

    def import_lines(self, lines: Iterable[str], *, user: str | None = None) -> Restored:
        """Imports the lines of an export, in batches; repeating it is harmless. `user`: under another name. Admin only.
        Raises InvalidArgumentError, NotAuthorizedError."""
        return self._run_plan(plans.import_lines(lines, user))

    def memory_page(
        self,
        user: str,
        *,
        project: str | None = None,
        topic: str | None = None,
        limit: int | None = None,
        edited: str | None = None,
    ) -> MarkdownPage:
        """Writes a page of what is known about a user, as Markdown: of a project, a topic, or all. It is made anew with
        each call, so what was forgotten, has ended or is secret is not on it, and what is in doubt is marked. `limit`:
        sentences at most (500). `edited`: a page as a person left it; what was changed on it is carried over. Raises
        InvalidArgumentError."""
        return self._run_plan(read_page(user, project, topic, limit, edited))

    def push_page(self, user: str, markdown: str, *, preview: bool = False, lift: bool = False) -> PagePush:
        """Carries out what a person changed on a page: changed sentences are corrected, deleted ones forgotten, new
        ones remembered, with the word of a person. A sentence that memory changed meanwhile is a conflict, and stays
        as it is. Pushing a page again changes nothing more. `preview` only tells; `lift` lets back what was rejected
        before. Raises InvalidArgumentError."""
        return self._run_plan(push_page(user, markdown, preview, lift))


class Session(SessionCalls, Client):
    """One session of one user; made by Memoir.session. Holds no connection.

    `mark`: the turn mark of the last turn persisted through this object, for `after_turn` on a replica; else None.
    """

    def __init__(self, memoir: Memoir, user: str, name: str, opening: Call[Any] | None) -> None:
        super().__init__(user, name, opening)
        self._memoir = memoir

    def run(self, call: Call[T]) -> T:
        """Runs a call, after the one that opens the session if that has not run."""
        if self._opening is not None:
            self._memoir.run(self._opening)  # idempotent, so two threads may both do it
            self._opening = None
        answer = self._memoir.run(call)
        self._note_answer(call, answer)
        return answer

    def tools(self, format: Literal["openai", "responses", "anthropic", "mcp"] | None = None) -> list[dict[str, Any]]:
        """Memoir.memory_tools: definitions to send with a request, besides the application's own."""
        return self._memoir.memory_tools(format)

    def run_tool(self, call: ToolCall) -> Message:
        """Runs a model's call of one of `tools` and returns the message that answers it. The user's message must be
        appended before: what the model quotes of it carries the user's word."""
        return tool_result(call, self.call_memory_tool(call.name, call.arguments))
