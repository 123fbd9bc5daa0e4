"""The words of turns that other rows only name."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pg_memoir import AsyncMemoir
from pg_memoir.errors import UnknownSessionError
from pg_memoir.types import Change, Message

NEAR = 50  # turns of a session that lie so near are read together
MOST_READS = 24
Place = tuple[str, int]


@dataclass(frozen=True)
class Span:
    """Some words of a turn, with those before and behind."""

    session: str
    turn: int
    before: str
    words: str
    behind: str


@dataclass(frozen=True)
class ChangeWords:
    """A change, with the words that caused it, None where they are not here, and the words that it concerns."""

    change: Change
    said: str | None
    spans: list[Span]


def read_text(message: Message | None) -> str:
    """Returns what a message says, parts that are no text by their kind."""
    content = (message or {}).get("content")
    if isinstance(content, list):
        return "\n".join(part.get("text") or f"[{part.get('type', 'part')}]" for part in content)
    return content or ""


async def read_turns(memoir: AsyncMemoir, user: str, places: Iterable[Place]) -> dict[Place, Message]:
    """Returns messages by session and turn. Reads at most so many stretches; turns beyond are not there."""
    wanted: dict[str, list[int]] = defaultdict(list)
    for session, turn in sorted(set(places)):
        wanted[session].append(turn)
    stretches: list[tuple[str, int, int]] = []
    for session, turns in wanted.items():
        for turn in turns:
            if stretches and stretches[-1][0] == session and turn - stretches[-1][2] <= NEAR:
                stretches[-1] = (session, stretches[-1][1], turn)
            else:
                stretches.append((session, turn, turn))

    async def read(session: str, first: int, last: int) -> dict[Place, Message]:
        try:
            found = await memoir.history(user, session, from_turn=first, to_turn=last)
        except UnknownSessionError:
            return {}
        return {(session, message["turn_index"]): message for message in found}

    answers = await asyncio.gather(*(read(*stretch) for stretch in stretches[:MOST_READS]))
    return {place: message for answer in answers for place, message in answer.items()}


async def read_changes(memoir: AsyncMemoir, user: str, changes: list[Change]) -> list[ChangeWords]:
    """Returns changes with their words."""
    places = [(turn["session"], turn["turn"]) for change in changes for turn in change.turns]
    places += [(change.by_session, change.by_turn or 0) for change in changes if change.by_session]
    found = await read_turns(memoir, user, places)

    def tell(change: Change) -> ChangeWords:
        said = read_text(found.get((change.by_session or "", change.by_turn or 0))) or None
        # A request to forget is forgotten itself: it is told above the others.
        spans = [
            _cut(found, turn)
            for turn in change.turns
            if (turn["session"], turn["turn"]) != (change.by_session, change.by_turn)
        ]
        return ChangeWords(change, said, spans)

    return [tell(change) for change in changes]


def _cut(found: dict[Place, Message], turn: dict[str, Any]) -> Span:
    text, first = read_text(found.get((turn["session"], turn["turn"]))), turn.get("from")
    if first is None:
        return Span(turn["session"], turn["turn"], "", text, "")
    end = first - 1 + (turn.get("length") or 0)
    return Span(turn["session"], turn["turn"], text[: first - 1][-120:], text[first - 1 : end], text[end:][:120])
