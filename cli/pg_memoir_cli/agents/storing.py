"""Stores the new messages of a session: each once, however often a hook runs, and a person's words as such only."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from typing import Any

from pg_memoir import Memoir
from pg_memoir.texts import replace_unstorable
from pg_memoir.types import Message

from .transcripts import Told, list_told, read_told

BATCH = 50
"""Messages of one statement."""
LOOKED_AT = 400
"""So many of the newest messages are looked up at first; if none of them is known, all are."""
_WAITS = (0.05, 0.1, 0.2, 0.4)
"""Seconds between looks at a transcript that does not have the last answer yet."""

Entry = dict[str, Any]


def store_told(memoir: Memoir, agent: str, user: str, session: str, payload: dict[str, Any], left_out: set[str]) -> str:
    """Stores what is new of a session's transcript, but for the chains `left_out`; returns a note for the log."""
    told = _read_complete(agent, payload)
    if not told:
        return "nothing said"
    chains = [_chain(agent, name) for name, _ in told]
    known = {row["chain"] for row in memoir.known_messages(user, chains[-LOOKED_AT:])}
    if not known and len(chains) > LOOKED_AT:
        known = {row["chain"] for row in memoir.known_messages(user, chains)}
    # All before the newest known message was stored, or was left out for a reason.
    first = max((at + 1 for at, chain in enumerate(chains) if chain in known), default=0)
    _complete_times(told)
    new = [(message, chain) for (_, message), chain in zip(told[first:], chains[first:]) if chain not in left_out]
    if not new:
        return "nothing new"
    memoir.open_session(user, session, metadata={"agent": agent})
    stored, refused, error = 0, 0, ""
    for at in range(0, len(new), BATCH):
        entries = [entry for message, chain in new[at : at + BATCH] for entry in _make_entries(agent, message, chain)]
        answer = memoir.record_exchange(user, session, entries)
        refused += len(answer["refused"])
        error = str(answer["refused"][0]["error"]) if answer["refused"] else error
        stored += sum("message" in entry for entry in entries)
    return f"stored {stored - refused} messages" + (f", {refused} refused: {error}" if refused else "")


def list_chains(agent: str, payload: dict[str, Any]) -> list[str]:
    """Returns the chains of all messages of a session so far."""
    return [_chain(agent, name) for name, _ in list_told(agent, payload)]


def _read_complete(agent: str, payload: dict[str, Any]) -> Told:
    """The transcript with the last answer in it. An agent may call its hooks before that is written."""
    last = str(payload.get("last_assistant_message") or "").strip()
    for wait in _WAITS:
        told = read_told(agent, payload)
        if not last or any(last in str(message.get("content")) for _, message in told[-3:]):
            return told
        time.sleep(wait)
    return read_told(agent, payload)


def _complete_times(told: Told) -> None:
    """Gives results of tools, which have no time of their own, that of the call."""
    at = None
    for _, message in told:
        at = message.get("created_at") or at
        if at:
            message["created_at"] = at


def _chain(agent: str, name: str) -> str:
    return "agents " + hashlib.blake2b(f"{agent}\n{name}".encode("utf-8", "replace"), digest_size=20).hexdigest()


def _make_entries(agent: str, message: Message, chain: str) -> Iterator[Entry]:
    """A message as record_exchange takes it: in parts where a person typed one, and an agent added the other."""
    for number, (actor, part) in enumerate(_divide(agent, message)):
        yield {"message": replace_unstorable(part), "key": f"{chain} {number}", "actor": actor, "notes": []}
    yield {"notes": [{"chain": chain}]}


def _divide(agent: str, message: Message) -> Iterator[tuple[str | None, Message]]:
    if message["role"] != "user":
        yield None, message
        return
    from pg_memoir_gateway import words

    for piece in (piece for found in words.divide_texts([str(message["content"])], agent) for piece in found):
        if piece.whose != "context":
            is_typed = piece.whose in ("person", "question")
            yield (None if is_typed else "tool"), message | {"content": piece.text.strip("\n")}
