"""What the three APIs have in common, as far as the gateway needs it: a list of items, and an answer that adds to
it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pg_memoir.extras.providers import cache_counts
from pg_memoir.texts import replace_unstorable

from .spans import Body
from .sse import Event

if TYPE_CHECKING:
    from .rounds import Rounds

Item = dict[str, Any]
Added = dict[str, Any]
"""Additions to a message of the client: see additions.py."""

Sort = Literal["anthropic", "openai", "responses"]
"""Of definitions of tools."""


@dataclass
class Answer:
    """What came back: items to follow those of the request, and what it cost."""

    items: list[Item] = field(default_factory=list)
    model: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    finish: str | None = None
    id: str | None = None

    def counts(self, latency_ms: int) -> dict[str, Any]:
        """As persist_turn takes its usage."""
        read = [self.usage.get(name) for name in PROMPT]
        prompt = sum(count for count in read if isinstance(count, int))
        completion = self.usage.get("output_tokens", self.usage.get("completion_tokens"))
        values = cache_counts(self.usage) | {
            "model": self.model,
            "prompt_tokens": prompt or None,
            "completion_tokens": completion if isinstance(completion, int) else None,
            "finish_reason": self.finish,
            "latency_ms": latency_ms,
        }
        return {name: value for name, value in values.items() if value is not None}


PROMPT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "prompt_tokens")


LONG = 65_536  # longer texts within a value are hashed by themselves


class Dialect(Protocol):
    """One of the APIs."""

    name: str
    key: str  # of the list of items
    sort: Sort

    def items(self, body: Body) -> list[Item]:
        """The items of a request."""

    def loose(self, item: Item) -> Any:
        """An item as far as clients send it back unchanged, None for one that they may leave out."""

    def rounds(self, tools: set[str], limit: int) -> Rounds[Any]:
        """Reads answers in which our tools may be called."""

    def answer(self, events: list[Event]) -> Answer | None:
        """What a stream says, None if it is not whole."""

    def whole(self, answer: Any) -> Answer | None:
        """What an answer in one piece says."""

    def opening(self, body: Body) -> str:
        """The system prompt."""

    def messages(self, items: list[Item]) -> list[Message]:
        """Items as messages to store."""


@dataclass
class Message:
    """A message in OpenAI's shape; how many of the items given it takes the list up to."""

    message: dict[str, Any]
    through: int


def hash_items(dialect: Dialect, items: list[Item], before: str = "") -> list[str]:
    """A hash for each item over it and all before it."""
    hashes = []
    for item in items:
        loose = dialect.loose(item)
        if loose is not None:
            told = json.dumps(loose, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
            before = hashlib.blake2b((before + told).encode(), digest_size=16).hexdigest()
        hashes.append(before)
    return hashes


def remove_marks(value: Any) -> Any:
    """Returns a value without cache marks, which clients move about."""
    if isinstance(value, dict):
        return {key: remove_marks(inner) for key, inner in value.items() if key != "cache_control"}
    return [remove_marks(inner) for inner in value] if isinstance(value, list) else value


def make_comparable(value: Any) -> Any:
    """Returns a value as it is compared: without cache marks, and with a hash for the bytes of an image or another
    long text."""
    if isinstance(value, str) and len(value) > LONG:
        return hashlib.blake2b(value.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    if isinstance(value, dict):
        return {key: make_comparable(inner) for key, inner in value.items() if key != "cache_control"}
    return [make_comparable(inner) for inner in value] if isinstance(value, list) else value


def make_storable(value: Any) -> Any:
    """A value as a database takes it: U+FFFD stands for NUL and lone surrogates in its texts."""
    return replace_unstorable(value)


def join_texts(content: Any) -> str:
    """The texts of a content, joined."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str))


def read_tool_name(tool: Any) -> str:
    """Returns a tool's name in any API."""
    inner = tool.get("function") if isinstance(tool.get("function"), dict) else tool
    return str(inner.get("name"))
