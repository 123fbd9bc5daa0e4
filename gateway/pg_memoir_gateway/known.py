"""Which messages of a conversation are stored, and what was set in beside them."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from pg_memoir import AsyncMemoir

from .additions import refresh_additions
from .gateway import keep_newest
from .talk import Talk

REMEMBERED = 20_000  # so many messages are known without asking the database


@dataclass
class Known:
    """A message that is stored: in which session, as which of its turns."""

    session: str
    turns: int


class KnownMessages:
    """Of one process; what it has not seen it asks the database about."""

    def __init__(self, memoir: AsyncMemoir) -> None:
        self.memoir = memoir
        self._known: OrderedDict[tuple[str, str, str], Known] = OrderedDict()
        self._added: OrderedDict[tuple[str, str, str], dict[str, Any]] = OrderedDict()

    def find(self, talk: Talk, at: int) -> Known | None:
        """Returns what this process knows of a message, without asking the database."""
        return self._known.get((talk.user, talk.session, talk.chain[at]))

    def keep(self, talk: Talk, link: str, known: Known) -> None:
        """Remembers a message, and lets the oldest go."""
        keep_newest(self._known, (talk.user, talk.session, link), known, REMEMBERED)

    def add(self, talk: Talk, link: str, added: dict[str, Any]) -> None:
        """Remembers what is sent with a message, for all later calls."""
        keep_newest(self._added, (talk.user, talk.session, link), added, REMEMBERED)

    def added(self, talk: Talk, at: int) -> dict[str, Any] | None:
        """Returns what is sent with a message, None where nothing was decided."""
        return self._added.get((talk.user, talk.session, talk.chain[at]))

    def additions(self, talk: Talk) -> list[dict[str, Any] | None]:
        """Returns what is sent with each message of a list."""
        links = ["", *talk.chain]
        return [self.added(talk, at) if links[at] != links[at + 1] else None for at in range(len(talk.chain))]

    async def look_up(self, talk: Talk, whole: bool = False) -> int:
        """Returns how many messages of the list are known. Asks the database where this process has not seen enough,
        with `whole` also about messages behind the last answer, which as a rule are new."""
        through = self._count(talk)
        answered = any(item.get("role") == "assistant" for item in talk.items[through:])
        unknown = set(talk.chain[through:]) if answered or whole else set()
        added = {link for at, link in enumerate(talk.chain) if self.added(talk, at)}  # it may be withdrawn by now
        if unknown | added:
            rows = await self.memoir.known_messages(talk.user, sorted(unknown | added))
            for row in sorted(rows, key=lambda r: r["session"].split("~")[0] == talk.session):
                own = row["session"].split("~")[0] == talk.session
                if row["chain"] in unknown and (own or not self._known.get((talk.user, talk.session, row["chain"]))):
                    self.keep(talk, row["chain"], Known(row["session"], row["turn_count"]))
                if row["added"]:
                    old = self._added.get((talk.user, talk.session, row["chain"]))
                    self.add(talk, row["chain"], refresh_additions(old, row["added"]) if old else row["added"])
            through = self._count(talk)
        return through

    def _count(self, talk: Talk) -> int:
        """The items of another session count only with an answer among them: many lists begin alike."""
        answered = next((i for i, item in enumerate(talk.items) if item.get("role") == "assistant"), None)
        for at in range(len(talk.chain) - 1, -1, -1):
            known = self.find(talk, at)
            if known and (known.session.split("~")[0] == talk.session or answered is not None and at >= answered):
                return at + 1
        return 0

    def make_notes(self, talk: Talk, links: list[str]) -> list[dict[str, Any]]:
        """Returns messages as note_messages takes them, each with what is sent with it."""
        notes = []
        for link in filter(None, links):
            added = self._added.get((talk.user, talk.session, link))
            notes.append({"chain": link} | ({"added": added, "items": added.get("items")} if added else {}))
        return notes
