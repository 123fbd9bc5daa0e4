"""Calls in chat completions. Servers stream them in many ways: whole or in pieces, with equal indexes or none, with ids
that are empty, with a name that is repeated or split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import rounds
from .dialect import Item
from .rounds import parse

READ = ("id", "index", "type", "function", "custom")  # members of a part of a call that are read


@dataclass(eq=False)
class Call(rounds.Call):
    """A call, of ours or the client's. `is_decided`: its name can't grow any more, so that it is clear whose it is.
    `place`: its index as the client sees it."""

    index: Any = None
    size: int = 0
    is_decided: bool = False
    place: int | None = None

    @property
    def is_whole(self) -> bool:
        """Do the arguments look complete?"""
        return bool(self.parts) and self.parts[-1].rstrip().endswith("}") and isinstance(parse(self.text), dict)

    def repeats(self, given: str) -> bool:
        """Is that the text that has come already? Some servers send the whole call again at the end."""
        return len(given) == self.size and given == self.text

    def is_followed_by(self, ident: str, name: str, given: str) -> bool:
        """Does a piece that has the same index or id begin another call?"""
        if not name:
            return False
        if ident and self.id and ident != self.id:
            return not self.parts or self.is_whole
        return not (name == self.name and (not given or self.repeats(given))) and self.is_whole

    def add(self, part: Item, ident: str, name: str, given: str) -> None:
        """Adds a piece. A name may come in pieces, or whole in each."""
        if name and name != self.name and not self.parts:
            self.name = name if name.startswith(self.name) else self.name + name
        if given and not (name and self.repeats(given) and self.is_whole):
            self.parts.append(given)
            self.size += len(given)
        self.id = self.id or ident
        self.extra |= {k: v for k, v in part.items() if k not in READ and v is not None}

    def as_item(self) -> Item:
        """Returns the call as a member of a message."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function} | self.extra
