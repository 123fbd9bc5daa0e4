"""What the readers of the three APIs share. Within one message of the client the upstream may give several answers,
the rounds: calls of our tools are held back and answered, and the model is asked again."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar
from uuid import uuid4

from .additions import Added, name_of
from .dialect import Item
from .spans import Body, Edit, apply_edits, body_of, quoted
from .sse import Event

NO_ANSWER = "[No answer: the model only called its memory tools.]"
"""The text of a message that would reach the client empty. Clients and APIs refuse an empty one."""


class Call(Protocol):
    """A call of one of our tools."""

    id: str

    @property
    def name(self) -> str:
        """The tool's name."""

    @property
    def input(self) -> Any:
        """Its arguments, None where they are no JSON."""


C = TypeVar("C", bound=Call)


@dataclass
class Round(Generic[C]):
    """One answer of the upstream: the calls of our tools, the events of its end, what it cost."""

    calls: list[C] = field(default_factory=list)
    closing: list[Event] = field(default_factory=list)
    usage: Item = field(default_factory=dict)


R = TypeVar("R", bound=Round[Any])


class BaseRounds(ABC, Generic[R]):
    """Reads the answers of one message and says what the client gets of them."""

    counts: tuple[str, ...]
    """Names of the counts in a usage."""

    def __init__(self, tools: set[str]) -> None:
        self.tools = tools
        self.rounds: list[R] = []
        self.usage: dict[str, int] = {}
        self.streamed = True
        self._limit = 0
        self._abandoned = False
        self._withheld: list[bytes] = []
        self._ids: set[str] = set()

    # Reading --------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begins with a new answer of the upstream."""
        self._withheld = []
        self.rounds.append(self._new_round())

    def feed(self, event: Event) -> bytes:
        """Takes an event and returns what the client gets at once. Where that raises, the event counts as not taken:
        `release` gives what came before it."""
        held, mark = self._withheld, len(self._withheld)
        try:
            return self._read(event)
        except Exception:
            self._withheld = held[:mark]
            raise

    def release(self) -> bytes:
        """Returns what is held back of the answer at hand, in its order, and holds it no longer. The proxy sends it
        where reading failed, and everything after it as it comes."""
        held, self._withheld = self._withheld, []
        return b"".join(held)

    @property
    def _now(self) -> R:
        return self.rounds[-1]

    @property
    def is_touched(self) -> bool:
        """Does the client get anything else than the bytes of the upstream?"""
        return len(self.rounds) > 1 or bool(self._now.calls)

    @abstractmethod
    def _new_round(self) -> R: ...

    @abstractmethod
    def _read(self, event: Event) -> bytes: ...

    @property
    @abstractmethod
    def done(self) -> bool:
        """Has the answer come to its end?"""

    @abstractmethod
    def events_of_whole(self, raw: bytes) -> list[Event]:
        """Returns an answer in one piece as the events that would have told it."""

    # Calls of our tools ---------------------------------------------------------------------------------------------

    def find_calls(self) -> list[tuple[str, str, Any]]:
        """Returns the calls of our tools in this answer: id, name, arguments. Arguments that are no JSON are None; the
        model is told so and can try again."""
        return [(call.id, call.name, call.input) for call in self._now.calls]

    @abstractmethod
    def arguments(self) -> list[str]:
        """Returns their arguments as the JSON in which they are sent back."""

    def again(self, limit: int) -> bool:
        """Is the model to be asked again? It is if it called our tools and nothing else, at most `limit` times."""
        self._limit = limit
        return bool(self._now.calls) and not self._abandoned and self._can_go_on() and len(self.rounds) <= limit

    @abstractmethod
    def _can_go_on(self) -> bool:
        """Can what the answer said be sent back without a result that only the client has?"""

    def next(self, sent: bytes, results: list[str]) -> bytes:
        """Returns the request that goes on with what our tools answered. The last one is made without our tools, so
        that the model answers."""
        body = body_of(sent)
        edits = self._continue(body, results)
        if self._limit and len(self.rounds) >= self._limit:
            edits += remove_tools(body, self.tools)
        return apply_edits(body.text, edits).encode()

    @abstractmethod
    def _continue(self, body: Body, results: list[str]) -> list[Edit]: ...

    def abandon(self) -> None:
        """Drops the calls made so far, because the upstream refuses to go on with them. The next answer is one to the
        client's own request, and follows what the client has already."""
        self._abandoned = True

    def _unique(self, ident: Any) -> str:
        """Returns the id of a call of ours, or a new one where that is empty or taken. Mistral takes nine letters and
        digits, and nothing else."""
        told = ident if isinstance(ident, str) and ident and ident not in self._ids else uuid4().hex[:9]
        self._ids.add(told)
        return told

    # What the client gets -------------------------------------------------------------------------------------------

    @abstractmethod
    def finish(self) -> bytes:
        """Returns the end of the message as the client gets it, with the usage of all rounds."""

    @abstractmethod
    def items(self) -> list[Item]:
        """Returns the message as the client knows it."""

    @abstractmethod
    def whole(self, answer: Item) -> Item:
        """Returns the last answer, in one piece, as the client gets it."""

    @abstractmethod
    def error(self, body: bytes) -> bytes:
        """Returns an error in the midst of a stream."""

    def added(self, results: list[list[str]]) -> Added:
        """Returns what the client does not know of the message, to be put back later: see additions.py."""
        return {} if self._abandoned else self._collect_additions(results)

    @abstractmethod
    def _collect_additions(self, results: list[list[str]]) -> Added: ...

    # Usage ----------------------------------------------------------------------------------------------------------

    def spent(self) -> None:
        """Adds the cost of a round whose end the client does not see."""
        for name, count in self._cost().items():
            self.usage[name] = self.usage.get(name, 0) + count

    def total(self) -> dict[str, int]:
        """Returns the cost of all rounds."""
        return {name: count + self.usage.get(name, 0) for name, count in self._cost().items()}

    def _cost(self) -> dict[str, int]:
        told = self._now.usage
        return {name: told[name] for name in self.counts if isinstance(told.get(name), int)}


def parse(text: str) -> Any:
    """Returns what a call's arguments say, None where they are no JSON. No text is no arguments."""
    try:
        return json.loads(text) if text.strip() else {}
    except ValueError:
        return None


def quote(value: Any) -> str:
    """Returns a value as JSON for a request. A character whose halves came in two pieces is whole again; a lone half,
    which no API takes, is replaced."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def mend(value: Any) -> Any:
    """Returns a value with its characters whole, as `quote` writes them."""
    return json.loads(quote(value))


def encode(value: Any) -> bytes:
    """Returns a value as JSON for the client. Half a character stays the escape that it came as."""
    return quoted(value).encode()


def remove_tools(body: Body, names: set[str]) -> list[Edit]:
    """Returns the edits that take tools out of a request. They stand behind the client's own."""
    tools = body.lists.get("tools", [])
    return [
        Edit(a.end, b.end, "")
        for a, b in zip(tools, tools[1:])
        if isinstance(b.value, dict) and name_of(b.value) in names
    ]
