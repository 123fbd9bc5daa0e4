"""What the readers of other memory stores share: a place in a document with its value, and the fact made of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from .conversations import UNEXPECTED, ConversationError, Fact, Item, Options, Where, read_time

# Names in a memory's metadata that mean something here.
_OWN = frozenset("said_at standing extracted_by consolidated stays_apart utility remainder_of undone_by lines".split())
_TAG = 200  # characters of a tag or a category at most


@dataclass(frozen=True, slots=True)
class Entry:
    """A value of a document, with its place."""

    value: Any
    where: Where
    path: str = ""

    def get(self, name: str) -> Any:
        """Returns a field of it, None if it has none of this name."""
        return self.value.get(name)

    def fail(self, field: str, problem: str) -> ConversationError:
        """Returns the error that something is wrong with a field, or with all of it."""
        return self.where.fail(".".join(filter(None, (self.path, field))) or None, problem)

    def text(self, *names: str) -> str:
        """Returns the first of these fields that holds a text. Raises ConversationError if none does."""
        found = self.find_text(*names)
        if found is None:
            raise self.fail(
                names[0], f"{self.get(names[0])!r} is not a text" if names[0] in self.value else "is missing"
            )
        return found

    def find_text(self, *names: str) -> str | None:
        """Returns the first of these fields that holds a text that is not empty."""
        return next((v for v in map(self.get, names) if isinstance(v, str) and v.strip()), None)

    def time(self, *names: str) -> datetime | None:
        """Returns the first of these fields that holds a time. Raises ConversationError for what is no time."""
        for name in names:
            if self.get(name) not in (None, ""):
                field = ".".join(filter(None, (self.path, name)))
                if (found := read_time(self.get(name), self.where, field)) is not None:
                    return found
        return None

    def children(self, name: str) -> list[Entry]:
        """Returns the elements of a list in it, none if it is no list."""
        listed = self.get(name)
        path = ".".join(filter(None, (self.path, name)))
        return [Entry(v, self.where, f"{path}[{n}]") for n, v in enumerate(listed)] if isinstance(listed, list) else []

    def texts(self, name: str) -> list[str]:
        """Returns the texts of a list, of JSON that holds one, or of a text with commas."""
        listed = _decoded(self.get(name))
        if isinstance(listed, str):
            listed = listed.split(",")
        return [str(v).strip() for v in listed or () if str(v).strip()] if isinstance(listed, list) else []

    def object(self, *names: str) -> dict[str, Any]:
        """Returns the first of these fields that holds an object, or JSON of one; else an empty one."""
        return next((v for v in map(_decoded, map(self.get, names)) if isinstance(v, dict)), {})


def _decoded(value: Any) -> Any:
    if isinstance(value, str) and value[:1] in ("[", "{"):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def read_each(entries: Iterable[Entry], read: Callable[..., Iterable[Item]], *more: Any) -> Iterator[Item]:
    """Reads entries one by one, `read` being called with each and `more`. One that can't be read comes as an error in
    its place."""
    for entry in entries:
        try:
            if not isinstance(entry.value, dict):
                raise entry.fail("", f"is a {type(entry.value).__name__}, an object is needed")
            yield from read(entry, *more)
        except ConversationError as error:
            yield error
        except UNEXPECTED as error:
            yield entry.fail("", f"can't be read: {error}")


def make_fact(
    entry: Entry,
    options: Options,
    source: str,
    *,
    id: str,
    content: str,
    user: Any = None,
    valid_to: datetime | None = None,
    metadata: dict[str, Any],
    tags: Iterable[str] = (),
    category: str | None = None,
    confidence: Any = None,
    **more: Any,
) -> Fact:
    """Returns a fact with what is the same for all stores: whose it is, what its metadata keep of the store, and a
    beginning that is before its end."""
    if not isinstance(user, (str, int, type(None))):
        raise entry.fail("user_id", f"is a {type(user).__name__}, a name is needed")
    kept = {f"{source}_{key}" if key in _OWN else key: value for key, value in metadata.items() if value is not None}
    kept |= {"imported_from": source, "imported_id": id}
    begun = more.get("valid_from") or more.get("said_at")
    if valid_to and begun and valid_to <= begun:
        more["valid_from"] = valid_to - timedelta(seconds=1)
    if isinstance(confidence, (int, float)) and not isinstance(confidence, bool):
        more["confidence"] = min(max(float(confidence), 0.0), 1.0)
    return Fact(
        options.name(user, options.stem),
        source,
        id,
        content.strip(),
        entry.where,
        category=category[:_TAG] if category else None,
        valid_to=valid_to,
        tags=tuple(dict.fromkeys(tag[:_TAG] for tag in tags)),
        metadata=kept,
        **more,
    )


def find_end(entry: Entry, *names: str) -> datetime:
    """Returns when something ended that is known to have ended: by these fields, else now."""
    now = datetime.now(UTC)
    return min(entry.time(*names) or now, now)
