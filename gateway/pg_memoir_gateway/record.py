"""Stores exchanges in the background: turns, usage, the call itself. A list that comes again is appended to."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any
from weakref import WeakValueDictionary

import psycopg
from pg_memoir.errors import InvalidArgumentError, InvalidTextError, MemoirError, TextTooLargeError
from psycopg.errors import ReadOnlySqlTransaction

from .align import Aligner
from .captures import Captures, read_answer
from .config import Mode
from .dialect import Item, hash_items, make_storable
from .exchange import Exchange
from .gateway import LARGE_BYTES, Gateway, in_thread, log
from .journal import Entry, Journal
from .known import Known, KnownMessages
from .spans import NotPlain
from .talk import Talk, read_talk
from .traces import end_calls

# Bytes that may wait in memory to be stored. Beyond it exchanges wait in the journal. Without a journal they are
# dropped, and their turns come again with the next request.
PENDING_BYTES = 64 << 20
PARSED_BYTES = 8 << 20  # beyond it requests wait as bytes alone, which takes less memory than their values
WAITING_SECONDS = 15.0  # between looks at what waits in the journal
# Seconds before each further try to store while the database is away: a failover or a restart loses nothing.
TRIED_AGAIN = (0.5, 1, 2, 4, 8, 15, 30, 60, 60, 60, 60)
AWAY = (psycopg.OperationalError, psycopg.InterfaceError, ReadOnlySqlTransaction, TimeoutError, OSError)
BEHIND = 2  # exchanges of a conversation that need not be stored when its next request goes out
STORING = 4  # exchanges stored at once: some connections stay free for those who wait for an answer
BATCH = 50  # messages and notes that are recorded with one statement

Then = Callable[[Talk, str, Exchange], Awaitable[None]]
Entries = list[dict[str, Any]]


class Recorder:
    """Stores for one process. Any number of processes may store the same conversation."""

    def __init__(self, gateway: Gateway, known: KnownMessages) -> None:
        self.gateway = gateway
        self.memoir = gateway.memoir
        self.known = known
        self.aligner = Aligner(gateway, known)
        self.captures = Captures(gateway)
        self.journal = Journal(gateway.config)
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self._turn = asyncio.Semaphore(STORING)
        self._behind: Counter[tuple[str, str]] = Counter()
        self._waiting: deque[Entry] = deque()

    @asynccontextmanager
    async def running(self, then: Then) -> AsyncIterator[None]:
        """While requests are answered: stores exchanges that wait in the journal, from ended processes too."""
        self._waiting.extend(await asyncio.to_thread(self.journal.open))
        task = asyncio.create_task(self._replay_journal(then))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})
            await asyncio.to_thread(self.journal.close)

    async def _replay_journal(self, then: Then) -> None:
        while True:
            for _ in range(len(self._waiting)):
                if self.gateway.pending_bytes > PENDING_BYTES // 2:
                    break
                entry = self._waiting.popleft()
                try:
                    exchange, user, mode = await asyncio.to_thread(entry.read)
                except (OSError, ValueError, KeyError, TypeError) as error:
                    self.gateway.counts.add("journal_errors")
                    log.warning("an entry of the journal can't be read: %s: %s", type(error).__name__, error)
                    continue
                self.gateway.counts.add("journal_replayed")
                self.gateway.pending_bytes += exchange.size
                # Tried once: the next look at the journal tries again.
                await self._store_in_background(exchange, user, mode, then, entry, waits=())
            await asyncio.sleep(WAITING_SECONDS)

    def queue(self, exchange: Exchange, user: str, mode: Mode, then: Then, entry: Entry | None = None) -> None:
        """Stores an exchange in the background, if there is room for it to wait; `then` gets the session. `entry`: its
        place in the journal."""
        if self.gateway.pending_bytes + exchange.size > PENDING_BYTES:
            self.gateway.counts.add("stores_postponed" if entry else "stores_dropped")
            if entry:
                self._waiting.append(entry)
            return end_calls(exchange)
        self.gateway.pending_bytes += exchange.size
        if exchange.conversation:
            self._behind[exchange.conversation] += 1
        if self.gateway.pending_bytes > PARSED_BYTES:
            exchange.talk = None
        self.gateway.in_background(self._store_in_background(exchange, user, mode, then, entry))

    async def _store_in_background(
        self,
        exchange: Exchange,
        user: str,
        mode: Mode,
        then: Then,
        entry: Entry | None,
        waits: tuple[float, ...] = TRIED_AGAIN,
    ) -> None:
        """Stores an exchange, and tries again while the database is away. An exchange that could not be stored by then
        stays in the journal."""
        size, is_done = exchange.size, True
        try:
            for wait in (*waits, None):
                try:
                    async with self._turn:
                        await self._store(exchange, user, mode, then)
                    return
                except AWAY as error:
                    exchange.talk = None
                    self._settle(exchange)
                    self.gateway.counts.add("stores_postponed")
                    log.info("not stored yet: %s: %s", type(error).__name__, error)
                    if wait is None:
                        raise
                await asyncio.sleep(wait)
        except NotPlain:
            pass
        except asyncio.CancelledError:
            is_done = False
            raise
        except Exception as error:  # whatever it is: only this exchange is lost
            is_done = not isinstance(error, AWAY)
            if is_done or entry is None:
                is_refused = isinstance(error, MemoirError) and is_done
                self.gateway.counts.add("stores_refused" if is_refused else "stores_failed")
                log.warning("not stored: %s: %s", type(error).__name__, error)
        finally:
            self._settle(exchange)
            end_calls(exchange)
            self.gateway.pending_bytes -= size
            if entry and is_done:
                await asyncio.to_thread(entry.remove)
            elif entry:
                self._waiting.append(entry)

    def _settle(self, exchange: Exchange) -> None:
        """Marks the exchange as stored."""
        key, exchange.conversation = exchange.conversation, None
        if key:
            self._behind[key] -= 1
            self._behind += Counter()  # keeps what is above 0

    async def wait_for(self, talk: Talk, until: float) -> None:
        """Waits until then at most while storing lags behind a conversation: the database can't lower turns that it
        does not know yet."""
        while self._behind[talk.key] > BEHIND and time.monotonic() < until:
            await asyncio.sleep(0.01)

    async def _store(self, exchange: Exchange, user: str, mode: Mode, then: Then) -> None:
        config = self.gateway.config
        talk = await in_thread(len(exchange.body), lambda: read_talk(exchange, user, mode, config))
        if talk.previous:
            talk = await self.aligner.link_answer(talk)
        if talk.kind in ("main", "agent"):
            async with self._lock(talk):
                session = await self._store_list(talk, exchange)
            await then(talk, session, exchange)
        self._settle(exchange)
        end_calls(exchange, talk)
        if config.capture:
            for call in (*exchange.earlier, exchange):
                await self.captures.capture(call, talk)

    async def catch_up(self, talk: Talk) -> str:
        """Stores a request's list now; returns its session."""
        async with self._lock(talk):
            return await self._store_list(talk)

    def _lock(self, talk: Talk) -> asyncio.Lock:
        return self._locks.setdefault(talk.key, asyncio.Lock())

    async def _store_list(self, talk: Talk, exchange: Exchange | None = None) -> str:
        """Appends what is new of a list and the answer of an exchange; returns the session."""
        session, turns, through = await self.aligner.place(talk, await self.known.look_up(talk))
        is_delegated = self.aligner.is_delegated(talk) and not through

        def make_entries() -> Entries:
            items, links = talk.items[through:], talk.chain[through:]
            found = self._make_entries(talk, session, items, links, is_delegated=is_delegated)
            if exchange and exchange.earlier and self.known.added(talk, -1) and not links:
                # It has got more since it was noted.
                found.append({"notes": self.known.make_notes(talk, talk.chain[-1:])})
            return found + (self._make_answer_entries(exchange, talk, session) if exchange else [])

        for batch in _divide_entries(await in_thread(len(talk.body.text), make_entries)):
            turns = await self._record(talk, session, turns, batch)
        return session

    def _make_answer_entries(self, exchange: Exchange, talk: Talk, session: str) -> Entries:
        """Returns the answer of an exchange as record_exchange takes it."""
        answer = exchange.told or read_answer(exchange, talk)
        if not answer or not answer.items:
            return []
        latency = int((exchange.chunks[-1][0] - exchange.began) * 1000) if exchange.chunks else 0
        links = hash_items(talk.dialect, answer.items, talk.chain[-1])
        entries = self._make_entries(talk, session, answer.items, links, answer.counts(latency))
        if talk.kept and answer.id:
            entries.append({"notes": [{"chain": f"answer {answer.id}", "added": {"link": links[-1]}}]})
        return entries

    async def _record(self, talk: Talk, session: str, turns: int, batch: Entries) -> int:
        """Records a batch of entries; returns the session's turns after them."""
        try:
            done = await self.memoir.record_exchange(talk.user, session, batch, turns=turns)
        except (InvalidArgumentError, InvalidTextError, TextTooLargeError) as error:
            if len(batch) > 1:  # one of them can't be sent
                for entry in batch:
                    turns = await self._record(talk, session, turns, [entry])
                return turns
            done = {"turns": [turns], "refused": [{"error": str(error)}]}
        for refused in done["refused"]:
            self.gateway.counts.add("messages_refused")
            log.info("a message was not stored: %s", refused["error"])
        for entry, count in zip(batch, done["turns"]):
            for note in entry["notes"]:
                self.known.keep(talk, note["chain"], Known(session, count))
        return int(done["turns"][-1])

    def _make_entries(
        self,
        talk: Talk,
        session: str,
        items: list[Item],
        links: list[str],
        usage: dict[str, Any] | None = None,
        is_delegated: bool = False,
    ) -> Entries:
        """Returns items as record_exchange takes them. Each message has an idempotency key of its own, so that two
        processes that store the same do it once. `is_delegated`: up to the first answer they are a model's words."""
        messages = talk.dialect.messages(items)
        entries: Entries = []
        done = 0
        for at, message in enumerate(messages):
            is_delegated = is_delegated and message.message["role"] in ("user", "system", "developer")
            for part, told, actor in talk.split(message, is_delegated):
                named = f"{session}\n{links[message.through - 1]}\n{part}\n{told.get('tool_call_id')}"
                key = "gateway " + hashlib.blake2b(named.encode(), digest_size=20).hexdigest()
                entry = {"message": make_storable(told), "key": key, "actor": actor, "usage": usage, "notes": []}
                entries.append(entry)
            if at + 1 == len(messages) or messages[at + 1].through > message.through:
                entries.append({"notes": self.known.make_notes(talk, links[done : message.through])})
                done = message.through
        entries.append({"notes": self.known.make_notes(talk, links[done:])})
        return [entry for entry in entries if "message" in entry or entry["notes"]]


def _divide_entries(entries: Entries) -> Iterator[Entries]:
    """Divides entries into statements, none of which holds the session for long."""
    batch, size = Entries(), 0
    for entry in entries:
        length = _count_characters(entry.get("message"))
        if batch and (len(batch) == BATCH or size + length > LARGE_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(entry)
        size += length
    if batch:
        yield batch


def _count_characters(value: Any) -> int:
    """Returns the characters of all texts of a value."""
    if isinstance(value, str):
        return len(value)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return sum(map(_count_characters, inner))
