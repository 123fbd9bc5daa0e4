"""Which session goes on with a list of messages, and from which message on."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import replace
from typing import Any

from pg_memoir.errors import MemoirError, UnknownSessionError

from .dialect import Item, hash_items, join_texts
from .gateway import Gateway, in_thread, keep_newest, log
from .known import Known, KnownMessages
from .talk import Talk

OPENINGS = 500  # sessions of which it is kept in mind how their system prompt reads, this many lines of it at most
LINES = 100


class Aligner:
    """Of one process."""

    def __init__(self, gateway: Gateway, known: KnownMessages) -> None:
        self.gateway = gateway
        self.memoir = gateway.memoir
        self.known = known
        self._openings: OrderedDict[tuple[str, str], set[int]] = OrderedDict()

    async def link_answer(self, talk: Talk) -> Talk:
        """Returns a request that goes on from an answer which the provider keeps, as if that stood in its list. Where
        the answer is not known, the request is an aside."""
        for wait in (0, 0.1, 0.5, 2):  # that may be under way, here or in another process
            await asyncio.sleep(wait)
            if rows := await self.memoir.known_messages(talk.user, [f"answer {talk.previous}"]):
                break
        else:
            return replace(talk, kind="aside")
        link, session = rows[0]["added"]["link"], rows[0]["session"]
        items: list[Item] = [{"role": "assistant", "content": ""}, *talk.items]
        hashes = [link, *hash_items(talk.dialect, talk.items, link)]
        talk = replace(talk, session=session.split("~")[0], items=items, chain=hashes)
        self.known.keep(talk, link, Known(session, rows[0]["turn_count"]))
        return talk

    async def place(self, talk: Talk, through: int) -> tuple[str, int, int]:
        """Returns the session that goes on with what is known of the list, its turns, and how many messages of the list
        these are. A list that goes another way than before becomes a session of its own, which shares the turns up to
        there."""
        known = self.known.find(talk, through - 1) if through else None
        if known is None:
            await self._open(talk, talk.session)
            known = Known(talk.session, 0)
        elif known.session.split("~")[0] != talk.session:
            return await self._branch(talk, talk.session, known, through)
        if through == len(talk.items):
            return known.session, known.turns, through
        # Turns beyond what is known: another way, or ours that were stored and not noted.
        there = await self.memoir.history(talk.user, known.session, from_turn=known.turns)
        if not there:
            return known.session, known.turns, through
        if (found := await self.known.look_up(talk, whole=True)) > through:
            return await self.place(talk, found)
        new = talk.items[through:]
        coming = await in_thread(
            len(talk.body.text), lambda: [told for m in talk.dialect.messages(new) for _, told, _ in talk.split(m)]
        )
        if all(_is_same(old, new) for old, new in zip(there, coming)) and len(there) <= len(coming):
            return known.session, known.turns, through
        return await self._branch(talk, f"{talk.session}~{_find_parting(talk, through)[:8]}", known, through)

    async def _open(self, talk: Talk, name: str, parent: str | None = None) -> None:
        model, project = talk.body.get("model"), talk.project or None
        await self.memoir.open_session(talk.user, name, model=model, project=project, parent=parent)

    async def _branch(self, talk: Talk, name: str, known: Known, through: int) -> tuple[str, int, int]:
        """Makes a session of this name from what is known on. Where calls would be cut from their results, it begins
        at the start."""
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

    def is_delegated(self, talk: Talk) -> bool:
        """Is that a list beside the session's first, under another system prompt? Then a model began it, not a
        person, also where no header says so."""
        lines = talk.dialect.opening(talk.body).splitlines()[:LINES]
        told = {hash(line) for line in lines if line.strip()}
        first = self._openings.get(talk.key, told)
        keep_newest(self._openings, talk.key, first, OPENINGS)
        return 2 * len(told & first) < len(told)


def _find_parting(talk: Talk, through: int) -> str:
    """The link of the first message behind the known ones. A system message of a chat has none of its own."""
    before = talk.chain[through - 1] if through else ""
    return next((link for link in talk.chain[through:] if link != before), before)


def _is_same(stored: Any, told: dict[str, Any]) -> bool:
    """Is that turn this message?"""
    ids = [[call.get("id") for call in one.get("tool_calls") or []] for one in (stored, told)]
    if stored["role"] != told["role"] or ids[0] != ids[1] or stored.get("tool_call_id") != told.get("tool_call_id"):
        return False
    return (
        bool(ids[0]) or told["role"] == "tool" or join_texts(stored.get("content")) == join_texts(told.get("content"))
    )
