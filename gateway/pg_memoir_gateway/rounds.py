"""The rounds of one message: calls of our tools are held back and answered, and the model is asked again, so that the
upstream may give several answers within one message of the client.

`Rounds` is the state machine. The modules of the three APIs say how an answer is read, sent back and told.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from uuid import uuid4

from .dialect import Added, Item
from .spans import Body, Edit, write_json
from .sse import Event

# The text of a message that would reach the client empty. Clients and APIs refuse an empty one.
NO_ANSWER = "[No answer: the model only called its memory tools.]"


@dataclass(eq=False)
class Call:
    """A call. `parts`: the text of its arguments as it came, `default` where none came. `at`: how many blocks or items
    the client has seen before it. `extra`: members that must come back with it, as Gemini's signatures."""

    name: str = ""
    id: str = ""
    parts: list[str] = field(default_factory=list)
    default: str = ""
    at: int = 0
    extra: Item = field(default_factory=dict)
    is_settled: bool = False

    @property
    def text(self) -> str:
        """The arguments as they came."""
        return "".join(self.parts) or self.default

    @property
    def input(self) -> Any:
        """The arguments, None where they are no JSON."""
        return mend(parse(self.text))

    @property
    def arguments(self) -> str:
        """The arguments as they are sent back. Some servers refuse what is no object."""
        return (self.text.strip() or "{}") if isinstance(self.input, dict) else "{}"


@dataclass
class Round:
    """One answer of the upstream: the calls of our tools, the events of its end, its cost. `first`: how many blocks or
    items the client had before it."""

    first: int = 0
    calls: list[Call] = field(default_factory=list)
    closing: list[Event] = field(default_factory=list)
    usage: Item = field(default_factory=dict)


R = TypeVar("R", bound=Round)


class Rounds(ABC, Generic[R]):
    """Reads the answers of one message, says what the client gets of them, and how the request goes on. At most `limit`
    times the model is asked again."""

    counts: tuple[str, ...]
    """Names of the counts in a usage."""

    def __init__(self, tools: set[str], limit: int = 0) -> None:
        self.tools = tools
        self.limit = limit
        self.rounds: list[R] = []
        self.is_noted = False
        self._is_abandoned = False
        self._spent: dict[str, int] = {}
        self._withheld: list[bytes] = []
        self._ids: set[str] = set()
        self._sent_back: list[str] = []

    @property
    def now(self) -> R:
        """The answer at hand."""
        return self.rounds[-1]

    @property
    def is_touched(self) -> bool:
        """Does the client get anything else than the bytes of the upstream?"""
        return len(self.rounds) > 1 or bool(self.now.calls)

    @property
    def is_last(self) -> bool:
        """Is the next request the last one? It is made without our tools, so that the model answers."""
        return len(self.rounds) >= self.limit

    # Reading --------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begins with a new answer of the upstream."""
        self._withheld = []
        self.rounds.append(self.new_round())

    def feed(self, event: Event) -> bytes:
        """Takes an event and returns the bytes that the client gets at once. If that raises, the event counts as not
        taken, and `release` gives those before it."""
        held, mark = self._withheld, len(self._withheld)
        try:
            return self.read(event)
        except Exception:
            self._withheld = held[:mark]
            raise

    def feed_whole(self, raw: bytes) -> None:
        """Takes an answer in one piece."""
        for data in self.split_whole(json.loads(raw)):
            self.feed(Event(b"", write_json(data)))

    def hold(self, event: Event, is_end: bool = False) -> bytes:
        """Holds an event back, also as one of the answer's end."""
        self._withheld.append(event.raw)
        if is_end:
            self.now.closing.append(event)
        return b""

    def release(self) -> bytes:
        """Returns what is held back of the answer at hand, in its order, and holds it no longer. It is sent if reading
        failed, and everything after it as it comes."""
        held, self._withheld = self._withheld, []
        return b"".join(held)

    # Calls of our tools ---------------------------------------------------------------------------------------------

    def find_calls(self) -> list[tuple[str, str, Any]]:
        """Returns the calls of our tools in this answer: id, name, arguments. Arguments that are no JSON are None; the
        model is told so and can try again."""
        for call in self.now.calls:
            if not call.is_settled:  # not before: the id may come in the last piece
                call.id, call.is_settled = self._make_unique(call.id), True
        return [(call.id, call.name, call.input) for call in self.now.calls]

    def _make_unique(self, ident: Any) -> str:
        """Returns the id of a call of ours, or a new one where that is empty or taken. Mistral takes nine letters and
        digits, and nothing else."""
        told = ident if isinstance(ident, str) and ident and ident not in self._ids else uuid4().hex[:9]
        self._ids.add(told)
        return told

    def arguments(self) -> list[str]:
        """Returns the arguments of our calls as the JSON in which they are sent back."""
        return [quote(call.arguments) for call in self.now.calls]

    def goes_on(self) -> bool:
        """Is the model asked again? It is if it called our tools and nothing else."""
        is_ours = bool(self.now.calls) and not self._is_abandoned and self.can_go_on()
        return is_ours and len(self.rounds) <= self.limit

    def go_on(self, body: Body, results: list[str]) -> list[Edit]:
        """Returns the edits by which a request goes on with what our tools answered, in this round and before."""
        self._sent_back.append(self.render_round(self.now, results))
        return self.append(body, ",".join(self._sent_back))

    def append(self, body: Body, more: str) -> list[Edit]:
        """Returns the edits that put messages behind those of a request."""
        end = body.lists["messages"][-1].end
        return [Edit(end, end, "," + more)]

    def abandon(self) -> None:
        """Drops the calls made so far, because the upstream refuses to go on with them. The next answer is one to the
        client's own request, and follows what the client has already."""
        self._is_abandoned = True

    def added(self, results: list[list[str]]) -> Added:
        """Returns what the client does not know of the message, to be put back later: see additions.py."""
        return {} if self._is_abandoned else self.collect_additions(results)

    # What the client gets -------------------------------------------------------------------------------------------

    def finish(self) -> bytes:
        """Returns the end of the message as the client gets it, with the usage of all rounds."""
        if not self.is_touched:
            return b"".join(event.raw for event in self.now.closing)
        self.fill()
        return self.write_end()

    def fill(self) -> None:
        """Gives a message that would be empty a text that says so."""
        if self.is_touched and self.is_done and not self.is_noted and not self.is_shown():
            self.is_noted = True
            self.add_note()

    def count_usage(self) -> dict[str, int]:
        """Returns the cost of all rounds."""
        told = self.now.usage
        cost = {name: told[name] for name in self.counts if isinstance(told.get(name), int)}
        return {name: count + self._spent.get(name, 0) for name, count in cost.items()}

    def end_round(self) -> None:
        """Keeps the cost of a round whose end the client does not see."""
        self._spent |= self.count_usage()

    # Of each API ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def new_round(self) -> R: ...

    @abstractmethod
    def read(self, event: Event) -> bytes:
        """Takes an event and returns the bytes that the client gets at once."""

    @abstractmethod
    def split_whole(self, answer: Item) -> list[Item]:
        """Returns an answer in one piece as the events that would have told it."""

    @property
    def is_done(self) -> bool:
        """Has the answer come to its end?"""
        return bool(self.now.closing)

    @abstractmethod
    def can_go_on(self) -> bool:
        """Can what the answer said be sent back without a result that only the client has?"""

    @abstractmethod
    def render_round(self, now: R, results: list[str]) -> str:
        """Returns a round as JSON of messages or items: what was said and called, what that answered."""

    @abstractmethod
    def collect_additions(self, results: list[list[str]]) -> Added: ...

    @abstractmethod
    def is_shown(self) -> bool:
        """Does the client get something of the message that says or asks anything?"""

    @abstractmethod
    def add_note(self) -> None:
        """Adds NO_ANSWER to the message."""

    @abstractmethod
    def items(self) -> list[Item]:
        """Returns the message as the client knows it."""

    @abstractmethod
    def whole(self, answer: Item) -> Item:
        """Returns the last answer, in one piece, as the client gets it."""

    @abstractmethod
    def write_end(self) -> bytes: ...

    @abstractmethod
    def error(self, body: bytes) -> bytes:
        """Returns an error in the midst of a stream."""


def parse(text: str) -> Any:
    """Returns the value of a call's arguments, None where they are no JSON. No text is no arguments."""
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


def write_event(data: Item) -> bytes:
    """Returns a named event for the client. Half a character stays the escape that it came as."""
    return f"event: {data['type']}\ndata: {write_json(data)}\n\n".encode()


def renumber(event: Event, data: Item, numbers: dict[str, int]) -> bytes:
    """Returns an event with other numbers, everything else as it came."""
    raw = event.raw
    for name, new in numbers.items():
        if isinstance(old := data.get(name), int) and old != new:
            raw, count = re.subn(rb'("%s"\s*:\s*)%d(?=\s*[,}])' % (name.encode(), old), rb"\g<1>%d" % new, raw)
            if count != 1:
                return write_event(data | {name: new for name, new in numbers.items() if name in data})
    return raw
