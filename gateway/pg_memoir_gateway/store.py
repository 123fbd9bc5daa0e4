"""What passed is kept, in the background: turns, usage, the call itself. A list that comes again is appended to."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
import zlib
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import psycopg
from pg_memoir.errors import (
    InvalidArgumentError,
    InvalidTextError,
    MemoirError,
    TextTooLargeError,
    UnknownSessionError,
)
from psycopg.errors import ReadOnlySqlTransaction

from .additions import as_known, withdrawn
from .captures import Bases
from .config import Mode
from .costs import cost_of, without
from .dialect import Answer, Item, Message, chain, storable, text_of
from .exchange import Exchange, Headers, harmless
from .gateway import Gateway, log
from .journal import Entry, Journal
from .material import Whose
from .spans import NotPlain
from .sse import Splitter, events_of
from .talk import Talk

REMEMBERED = 20_000
"""So many messages are known without asking the database."""

PENDING_BYTES = 64 << 20
"""What may wait in memory to be stored. Beyond it exchanges wait in the journal. Without one they are dropped: their turns
come again with the next request."""

WAITING_SECONDS = 15.0
"""Between looks at what waits in the journal."""

TRIED_AGAIN = (0.5, 1, 2, 4, 8, 15, 30, 60, 60, 60, 60)
"""Seconds before each further try to store while the database is away: a failover or a restart loses nothing."""

AWAY = (psycopg.OperationalError, psycopg.InterfaceError, ReadOnlySqlTransaction, TimeoutError, OSError)

BEHIND = 2
"""Exchanges of a conversation that need not be stored when its next request goes out."""

STORING = 4
"""So many are stored at once: of the connections some stay free for those who wait for an answer."""

OPENINGS = 500
"""Sessions of which it is kept in mind how their system prompt reads, this many lines of it at most."""
LINES = 100

ONCE: tuple[float, ...] = ()
"""No wait: what comes from the journal is tried at the next look again."""

LARGE_BYTES = 64 << 10
"""Larger texts are read and compressed in a thread, beside the other requests."""

BATCH = 50
"""So many messages and notes are recorded with one statement."""

Then = Callable[[Talk, str, Exchange], Awaitable[None]]
Read = Callable[[Exchange, tuple[str, Mode]], Talk]
T = TypeVar("T")


async def in_thread(size: int, work: Callable[[], T]) -> T:
    """Does work over so many bytes: in a thread where that would keep other requests waiting."""
    return await asyncio.to_thread(work) if size > LARGE_BYTES else work()


@dataclass
class Known:
    """A message that is stored: in which session, as which of its turns."""

    session: str
    turns: int


class Store:
    """Of one process; any number of them may store the same conversation."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.memoir = gateway.memoir
        self._known: OrderedDict[tuple[str, str, str], Known] = OrderedDict()
        self._added: OrderedDict[tuple[str, str, str], dict[str, Any]] = OrderedDict()
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self._turn = asyncio.Semaphore(STORING)
        self._bases = Bases()
        self._openings: OrderedDict[tuple[str, str], set[int]] = OrderedDict()
        self._behind: Counter[tuple[str, str]] = Counter()
        self.journal = Journal(gateway.config)
        self._waiting: deque[Entry] = deque()

    # What is known -------------------------------------------------------------------------------------------------

    def recalled(self, talk: Talk, at: int) -> Known | None:
        """What this process knows of a message, without asking anybody."""
        return self._known.get((talk.user, talk.session, talk.chain[at]))

    def remember(self, talk: Talk, link: str, known: Known) -> None:
        """Keeps it in mind, and lets the oldest go."""
        _keep(self._known, (talk.user, talk.session, link), known)

    def add(self, talk: Talk, link: str, added: dict[str, Any]) -> None:
        """Keeps what is sent with a message, for all later calls."""
        _keep(self._added, (talk.user, talk.session, link), added)

    def added(self, talk: Talk, at: int) -> dict[str, Any] | None:
        """What is sent with a message; None where nothing was decided."""
        return self._added.get((talk.user, talk.session, talk.chain[at]))

    def additions(self, talk: Talk) -> list[dict[str, Any] | None]:
        """What is sent with each message of a list."""
        links = ["", *talk.chain]
        return [self.added(talk, at) if links[at] != links[at + 1] else None for at in range(len(talk.chain))]

    async def look_up(self, talk: Talk, whole: bool = False) -> int:
        """How many messages of the list are known, asking the database where this process has not seen enough. `whole`:
        also about messages behind the last answer, which as a rule are new."""
        through = self._through(talk)
        answered = any(item.get("role") == "assistant" for item in talk.items[through:])
        unknown = set(talk.chain[through:]) if answered or whole else set()
        added = {link for at, link in enumerate(talk.chain) if self.added(talk, at)}  # it may be withdrawn by now
        if unknown | added:
            rows = await self.memoir.known_messages(talk.user, sorted(unknown | added))
            for row in sorted(rows, key=lambda r: r["session"].split("~")[0] == talk.session):
                own = row["session"].split("~")[0] == talk.session
                if row["chain"] in unknown and (own or not self._known.get((talk.user, talk.session, row["chain"]))):
                    self.remember(talk, row["chain"], Known(row["session"], row["turn_count"]))
                if row["added"]:
                    old = self._added.get((talk.user, talk.session, row["chain"]))
                    self.add(talk, row["chain"], as_known(old, row["added"]) if old else row["added"])
            through = self._through(talk)
        return through

    async def withdrawn(self, talk: Talk) -> list[tuple[str, str]]:
        """What was sent with the list and is withdrawn since, as the texts in its JSON and what takes their place."""
        before = [one for one in self.additions(talk) if one]
        await self.look_up(talk)
        after = [one for one in self.additions(talk) if one]
        return [pair for old, new in zip(before, after) for pair in withdrawn(old, new)]

    def _through(self, talk: Talk) -> int:
        """The items of another session count only with an answer among them: many lists begin alike."""
        answered = next((i for i, item in enumerate(talk.items) if item.get("role") == "assistant"), None)
        for at in range(len(talk.chain) - 1, -1, -1):
            known = self.recalled(talk, at)
            if known and (known.session.split("~")[0] == talk.session or answered is not None and at >= answered):
                return at + 1
        return 0

    # After an answer -----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def running(self, read: Read, then: Then) -> AsyncIterator[None]:
        """While requests are answered: stores what waits in the journal, from ended processes too."""
        self._waiting.extend(await asyncio.to_thread(self.journal.open))
        task = asyncio.create_task(self._store_waiting(read, then))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})
            await asyncio.to_thread(self.journal.close)

    async def _store_waiting(self, read: Read, then: Then) -> None:
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
                await self._kept(exchange, lambda: read(exchange, (user, mode)), then, entry, ONCE)
            await asyncio.sleep(WAITING_SECONDS)

    def keep(self, exchange: Exchange, read: Callable[[], Talk], then: Then, entry: Entry | None = None) -> None:
        """Stores an exchange in the background, if there is room for it to wait; `then` gets the session. It is taken apart
        (`read`) when its turn comes, since it waits in less memory as it came. `entry`: its place in the journal."""
        if self.gateway.pending_bytes + exchange.size > PENDING_BYTES:
            self.gateway.counts.add("stores_postponed" if entry else "stores_dropped")
            if entry:
                self._waiting.append(entry)
            return
        self.gateway.pending_bytes += exchange.size
        if exchange.conversation:
            self._behind[exchange.conversation] += 1
        self.gateway.in_background(self._kept(exchange, read, then, entry))

    async def _kept(
        self,
        exchange: Exchange,
        read: Callable[[], Talk],
        then: Then,
        entry: Entry | None,
        waits: tuple[float, ...] = TRIED_AGAIN,
    ) -> None:
        """Stores an exchange, and tries again while the database is away. What could not be stored by then stays in the
        journal."""
        size, done = exchange.size, False
        try:
            for wait in (*waits, None):
                try:
                    async with self._turn:
                        await self._stored(exchange, await in_thread(len(exchange.body), read), then)
                    done = True
                    return
                except AWAY as error:
                    self._settled(exchange)
                    self.gateway.counts.add("stores_postponed")
                    log.info("not stored yet: %s: %s", type(error).__name__, error)
                    if wait is None:
                        raise
                await asyncio.sleep(wait)
        except NotPlain:
            done = True
        except AWAY as error:
            if entry is None:
                self.gateway.counts.add("stores_failed")
                log.warning("not stored: %s: %s", type(error).__name__, error)
        except MemoirError as error:
            done = True
            self.gateway.counts.add("stores_refused")
            log.warning("not stored: %s", error)
        except Exception as error:  # whatever it is: only this exchange is lost
            done = True
            self.gateway.counts.add("stores_failed")
            log.warning("not stored: %s: %s", type(error).__name__, error)
        finally:
            self._settled(exchange)
            self.gateway.pending_bytes -= size
            if entry and done:
                await asyncio.to_thread(entry.remove)
            elif entry:
                self._waiting.append(entry)

    def _settled(self, exchange: Exchange) -> None:
        """Nobody need wait for it any more."""
        key, exchange.conversation = exchange.conversation, None
        if key:
            self._behind[key] -= 1
            self._behind += Counter()  # keeps what is above 0

    async def caught_up(self, talk: Talk, until: float) -> None:
        """Waits until then at most while storing lags behind a conversation: what the database does not know yet it cannot
        lower."""
        while self._behind[talk.user, talk.session] > BEHIND and time.monotonic() < until:
            await asyncio.sleep(0.01)

    async def _stored(self, exchange: Exchange, talk: Talk, then: Then) -> None:
        if talk.previous:
            talk = await self._linked(talk)
        if talk.kind in ("main", "agent"):
            async with self._lock(talk):
                session = await self._aligned(exchange, talk)
            await then(talk, session, exchange)
        self._settled(exchange)
        if self.gateway.config.capture:
            for call in (*exchange.earlier, exchange):
                await self._captured(call, talk)

    async def _linked(self, talk: Talk) -> Talk:
        """A request that goes on from an answer which the provider keeps, as if that stood in its list. Where it is not known,
        an aside."""
        for wait in (0, 0.1, 0.5, 2):  # that may be under way, here or in another process
            await asyncio.sleep(wait)
            if rows := await self.memoir.known_messages(talk.user, [f"answer {talk.previous}"]):
                break
        else:
            return replace(talk, kind="aside")
        link, session = rows[0]["added"]["link"], rows[0]["session"]
        items: list[Item] = [{"role": "assistant", "content": ""}, *talk.items]
        hashes = [link, *chain(talk.dialect, talk.items, link)]
        talk = replace(talk, session=session.split("~")[0], items=items, chain=hashes)
        self.remember(talk, link, Known(session, rows[0]["turn_count"]))
        return talk

    async def catch_up(self, talk: Talk) -> str:
        """Stores a request's list now; returns its session."""
        async with self._lock(talk):
            return (await self._listed(talk))[0]

    def _lock(self, talk: Talk) -> asyncio.Lock:
        return self._locks.setdefault((talk.user, talk.session), asyncio.Lock())

    async def _listed(self, talk: Talk) -> tuple[str, int]:
        """Appends what is new of the list; returns its session and its turns."""
        session, turns, through = await self._place(talk, await self.look_up(talk))
        delegated = self._is_delegated(talk) and not through
        items, links = talk.items[through:], talk.chain[through:]
        return session, await self._append(talk, session, turns, items, links, None, delegated)

    def _is_delegated(self, talk: Talk) -> bool:
        """Is that a list beside the session's first, under another system prompt? Then a model began it, not a person, also
        where no header says so."""
        lines = talk.dialect.opening(talk.body).splitlines()[:LINES]
        told = {hash(line) for line in lines if line.strip()}
        first = self._openings.setdefault((talk.user, talk.session), told)
        while len(self._openings) > OPENINGS:
            self._openings.popitem(last=False)
        return 2 * len(told & first) < len(told)

    async def _aligned(self, exchange: Exchange, talk: Talk) -> str:
        """Appends what is new of the list, and the answer; returns the session."""
        session, turns = await self._listed(talk)
        latency = int((exchange.chunks[-1][0] - exchange.began) * 1000) if exchange.chunks else 0
        if exchange.earlier and (added := self.added(talk, -1)):  # it has got more since it was noted
            notes = [{"chain": talk.chain[-1], "turns": turns, "added": added, "items": added.get("items")}]
            await self.memoir.note_messages(talk.user, session, notes)
        answer = exchange.told or answered(exchange, talk)
        if answer and answer.items:
            links = chain(talk.dialect, answer.items, talk.chain[-1])
            turns = await self._append(talk, session, turns, answer.items, links, answer.counts(latency))
            if talk.kept and answer.id:
                note = {"chain": f"answer {answer.id}", "turns": turns, "added": {"link": links[-1]}}
                await self.memoir.note_messages(talk.user, session, [note])
        return session

    async def _place(self, talk: Talk, through: int) -> tuple[str, int, int]:
        """The session that goes on with what is known of the list, its turns, and how much of the list these are. A list
        that goes another way than before becomes a session of its own, which shares the turns up to there."""
        known = self.recalled(talk, through - 1) if through else None
        if known is None:
            await self._open(talk, talk.session)
            known = Known(talk.session, 0)
        elif known.session.split("~")[0] != talk.session:
            return await self._branched(talk, talk.session, known, through)
        if through == len(talk.items):
            return known.session, known.turns, through
        # Turns beyond what is known: another way, or ours that were stored and not noted.
        there = await self.memoir.history(talk.user, known.session, from_turn=known.turns)
        if not there:
            return known.session, known.turns, through
        if (found := await self.look_up(talk, whole=True)) > through:
            return await self._place(talk, found)
        new = talk.items[through:]
        coming = await in_thread(
            len(talk.body.text), lambda: [told for m in talk.dialect.messages(new) for _, told, _ in _runs(m, talk)]
        )
        if all(_same(old, new) for old, new in zip(there, coming)) and len(there) <= len(coming):
            return known.session, known.turns, through
        return await self._branched(talk, f"{talk.session}~{_parting(talk, through)[:8]}", known, through)

    async def _open(self, talk: Talk, name: str, parent: str | None = None) -> None:
        model, project = talk.body.get("model"), talk.project or None
        await self.memoir.open_session(talk.user, name, model=model, project=project, parent=parent)

    async def _branched(self, talk: Talk, name: str, known: Known, through: int) -> tuple[str, int, int]:
        """A session of this name from what is known on; where calls would be cut from their results, from the start."""
        self.gateway.counts.add("branches")
        try:
            if known.turns:
                await self.memoir.branch_session(talk.user, known.session, name, at_turn=known.turns)
            else:
                await self._open(talk, name, known.session)
            return name, known.turns, through
        except MemoirError as error:  # another process was first, or it can't be divided there
            log.info("no branch %s: %s", name, error)
        try:
            return name, int((await self.memoir.session_info(talk.user, name))["turns"]), through
        except UnknownSessionError:
            await self._open(talk, name, known.session)
            return name, 0, 0

    async def _append(
        self,
        talk: Talk,
        session: str,
        turns: int,
        items: list[Item],
        links: list[str],
        usage: dict[str, Any] | None,
        delegated: bool = False,
    ) -> int:
        """Appends items; returns the session's turns after them. Each message has an idempotency key of its own, so that
        two processes that store the same do it once. `delegated`: up to the first answer they are a model's words."""
        size = len(talk.body.text)
        entries = await in_thread(size, lambda: self._entries(talk, session, items, links, usage, delegated))
        for batch in _batches(entries):
            turns = await self._recorded(talk, session, turns, batch)
        return turns

    async def _recorded(self, talk: Talk, session: str, turns: int, batch: list[dict[str, Any]]) -> int:
        """Records a batch of entries; returns the session's turns after them."""
        try:
            done = await self.memoir.record_exchange(talk.user, session, batch, turns=turns)
        except (InvalidArgumentError, InvalidTextError, TextTooLargeError) as error:
            if len(batch) > 1:  # one of them can't be sent
                for entry in batch:
                    turns = await self._recorded(talk, session, turns, [entry])
                return turns
            done = {"turns": [turns], "refused": [{"error": str(error)}]}
        for refused in done["refused"]:
            self.gateway.counts.add("messages_refused")
            log.info("a message was not stored: %s", refused["error"])
        for entry, count in zip(batch, done["turns"]):
            for note in entry["notes"]:
                self.remember(talk, note["chain"], Known(session, count))
        return int(done["turns"][-1])

    def _entries(
        self,
        talk: Talk,
        session: str,
        items: list[Item],
        links: list[str],
        usage: dict[str, Any] | None,
        delegated: bool,
    ) -> list[dict[str, Any]]:
        """Items as record_exchange takes them."""
        messages = talk.dialect.messages(items)
        entries: list[dict[str, Any]] = []
        done = 0
        for at, message in enumerate(messages):
            delegated = delegated and message.message["role"] in ("user", "system", "developer")
            for part, told, actor in _runs(message, talk, delegated):
                named = f"{session}\n{links[message.through - 1]}\n{part}\n{told.get('tool_call_id')}"
                key = "gateway " + hashlib.blake2b(named.encode(), digest_size=20).hexdigest()
                entry = {"message": storable(told), "key": key, "actor": actor, "usage": usage, "notes": []}
                entries.append(entry)
            if at + 1 == len(messages) or messages[at + 1].through > message.through:
                entries.append({"notes": self._notes(talk, links[done : message.through])})
                done = message.through
        entries.append({"notes": self._notes(talk, links[done:])})
        return [entry for entry in entries if "message" in entry or entry["notes"]]

    def _notes(self, talk: Talk, links: list[str]) -> list[dict[str, Any]]:
        notes = []
        for link in filter(None, links):
            added = self._added.get((talk.user, talk.session, link))
            notes.append({"chain": link} | ({"added": added, "items": added.get("items")} if added else {}))
        return notes

    async def _captured(self, exchange: Exchange, talk: Talk) -> None:
        """The call as it went over the wire."""
        pieces = exchange.answer()
        events: list[bytes] = []
        times: list[datetime] = []
        if exchange.streams:
            splitter = Splitter()
            for at, piece in pieces:
                found = [event.raw for event in splitter.feed(piece)]
                events += found
                times += [datetime.fromtimestamp(at, UTC)] * len(found)
            if rest := splitter.rest():
                events.append(rest)
                times.append(datetime.fromtimestamp(pieces[-1][0], UTC))
        model = talk.body.get("model")
        reply = answered(exchange, talk)
        cost = cost_of(reply.usage) if reply else 0.0
        left_out = sum(end - start - length for start, end, length in exchange.changes)
        self.gateway.counts.add("input_cost_tokens", cost, list="sent")
        self.gateway.counts.add("input_cost_tokens", without(cost, left_out, exchange.rewritten), list="client")
        usage = {name: count for name, count in (reply.usage if reply else {}).items() if isinstance(count, int)}
        for name, count in usage.items():
            self.gateway.counts.add("tokens", count, kind=name)
        sent = exchange.sent or exchange.body
        key = (talk.user, talk.session, exchange.path + talk.kind)
        request, base = await in_thread(len(sent), lambda: self._bases.shortened(key, sent))
        call = await self.memoir.capture_call(
            talk.user,
            talk.session,
            request,
            response=None if exchange.streams else b"".join(piece for _, piece in pieces),
            provider=talk.dialect.name,
            model=model if isinstance(model, str) else None,
            status=exchange.status,
            latency_ms=int((exchange.chunks[-1][0] - exchange.began) * 1000) if exchange.chunks else None,
            started_at=datetime.fromtimestamp(exchange.began, UTC),
            request_headers=_shown(exchange.headers),
            response_headers=_shown(exchange.answer_headers),
            events=events,
            event_times=times,
            metadata={
                "kind": talk.kind,
                "client": talk.client,
                "path": exchange.path,
                "usage": usage,
                "changes": exchange.changes,
            }
            | base,
        )
        self._bases.keep(key, str(call), await in_thread(len(sent), lambda: zlib.compress(sent, 1)))


def _batches(entries: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Entries as so many statements: none holds the session for long."""
    batch, size = list[dict[str, Any]](), 0
    for entry in entries:
        length = _length(entry.get("message"))
        if batch and (len(batch) == BATCH or size + length > LARGE_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(entry)
        size += length
    if batch:
        yield batch


def _length(value: Any) -> int:
    """Characters of all texts of a value."""
    if isinstance(value, str):
        return len(value)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return sum(map(_length, inner))


def _keep(kept: OrderedDict[tuple[str, str, str], Any], key: tuple[str, str, str], value: Any) -> None:
    """Sets it, and lets the oldest go."""
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > REMEMBERED:
        kept.popitem(last=False)


def answered(exchange: Exchange, talk: Talk) -> Answer | None:
    """Returns the answer, None where it is not whole or can't be read."""
    if not exchange.succeeded or not exchange.complete:
        return None
    try:
        pieces = [piece for _, piece in exchange.answer()]
        if exchange.streams:
            return talk.dialect.answer(events_of(pieces))
        return talk.dialect.whole(json.loads(b"".join(pieces)))
    except Exception as error:  # a server may send anything; what was asked is stored all the same
        log.info("an answer can't be read: %s: %s", type(error).__name__, error)
        return None


def _parting(talk: Talk, through: int) -> str:
    """The link of the first message behind the known ones. A system message of a chat has none of its own."""
    before = talk.chain[through - 1] if through else ""
    return next((link for link in talk.chain[through:] if link != before), before)


def _same(stored: Any, told: dict[str, Any]) -> bool:
    """Is that turn this message?"""
    ids = [[call.get("id") for call in one.get("tool_calls") or []] for one in (stored, told)]
    if stored["role"] != told["role"] or ids[0] != ids[1] or stored.get("tool_call_id") != told.get("tool_call_id"):
        return False
    return bool(ids[0]) or told["role"] == "tool" or text_of(stored.get("content")) == text_of(told.get("content"))


def _runs(message: Message, talk: Talk, delegated: bool = False) -> list[tuple[int, dict[str, Any], str | None]]:
    """A message as those to store: what is the person's apart from what a client wrapped around it."""
    told = message.message
    if told["role"] == "system":
        return []
    if told["role"] != "user":
        return [(0, told, None)]
    runs: list[tuple[list[Any], str | None]] = []
    content = told.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    given = [str(part["text"]) for part in parts if _is_text(part)]
    read = talk.pieces(given, told.get("name"))
    found = [piece.whose for pieces in read for piece in pieces]
    other: Whose = "output" if found and "person" not in found else "person"
    texts = iter(read)
    for part in parts:
        whose: list[tuple[Whose, Any]] = [(other, part)]
        if _is_text(part):
            whose = [(piece.whose, {"type": "text", "text": piece.text.strip("\n")}) for piece in next(texts)]
        for who, piece in whose:
            if who == "context":
                continue
            actor = None if who == "person" and talk.kind == "main" and not delegated else "tool"
            if runs and runs[-1][1] == actor:
                runs[-1][0].append(piece)
            else:
                runs.append(([piece], actor))
    return [(at, told | {"content": _simple(parts)}, actor) for at, (parts, actor) in enumerate(runs)]


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)


def _simple(parts: list[Any]) -> Any:
    return parts[0]["text"] if len(parts) == 1 and parts[0].get("type") == "text" else parts


def _shown(headers: Headers) -> dict[str, str]:
    return {key.decode("latin-1").lower(): value.decode("latin-1") for key, value in harmless(headers)}
