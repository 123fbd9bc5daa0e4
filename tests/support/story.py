"""A story: what happens to one user's memory through the public API, and what is asked of it.

Told again it has the same answers: its clock is set by hand and ticks with every write, so that nothing depends on when
it is told or on which of two random ids is the smaller; vectors come from the words of a text; ids get names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from hashlib import sha256, shake_256
from typing import Any

import psycopg
from generators import SMALL, Message
from properties import CASTS
from psycopg.types.json import Jsonb

# In the future, so that jobs are due by the story's clock alone; after all times of generated worlds but 2100.
START = datetime(2031, 5, 5, 9, tzinfo=UTC)
MODEL, DIMENSION = "recorded", 128
LONGEST = 20_000
ID = re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b")
SETS = {
    "explain_context",
    "export_user",
    "history",
    "list_aliases",
    "list_compactions",
    "list_tombstones",
    "match_memories",
    "memory_history",
    "recall",
}
TYPES = {
    "embedding": "real[]",
    "query_embedding": "real[]",
    "confidence": "real",
    "threshold": "real",
    "used": "uuid[]",
    "source_turns": "integer[]",
    "tags": "text[]",
    "types": "text[]",
    "kinds": "text[]",
    "aliases": "text[]",
}


@cache
def _direction(word: str) -> tuple[int, ...]:
    weight = 1 if word in SMALL else 4
    bits = int.from_bytes(shake_256(word[:5].encode()).digest(DIMENSION // 8), "big")
    return tuple(weight if bits >> place & 1 else -weight for place in range(DIMENSION))


@cache
def vector(text: str) -> list[int]:
    """A direction for each word, added up, in whole numbers: texts with words in common are near each other."""
    words = dict.fromkeys(re.findall(r"[a-z0-9]+|[^\x00-\x7f]", text.lower())) or {"": None}
    return [sum(column) for column in zip(*map(_direction, words), strict=True)]


def said(*texts: str) -> list[Message]:
    """Texts of user and assistant in turn."""
    return [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(texts)]


def calls(**named: str) -> Message:
    """An assistant's calls of tools: id=name."""
    made = [
        {"id": key, "type": "function", "function": {"name": name, "arguments": json.dumps({"of": key})}}
        for key, name in named.items()
    ]
    return {"role": "assistant", "content": None, "tool_calls": made}


def result(call: str, text: str) -> Message:
    """What a tool answered to a call."""
    return {"role": "tool", "tool_call_id": call, "content": text}


class Story:
    """One user's story. Arguments of functions are named without p_."""

    def __init__(self, db: psycopg.Connection, name: str) -> None:
        self.db, self.name, self.user, self.now = db, name, name, START
        self._login = db.info.user
        self._answers: dict[str, Any] = {}
        self._names: dict[str, str] = {}  # of ids
        self._unnamed: set[str] = set()  # sessions written to since their turns have names

    def cases(self) -> Iterator[tuple[str, Any]]:
        """Name and answer of everything asked."""
        yield from self._answers.items()

    # Time and jobs

    def tick(self, **period: float) -> None:
        """Moves the clock on, by a minute if nothing is said."""
        self.now += timedelta(**period or {"minutes": 1})
        self.db.execute("select memoir.set_clock(%s)", [self.now])

    def later(self, **period: float) -> None:
        """Moves the clock on, maybe into a month that has no partitions yet."""
        self.tick(**period)
        self.db.execute("call memoir.ensure_partitions(0)")

    def job(self, *names: str) -> None:
        """Runs jobs. They work for all users, so a story must not care when another's are run."""
        self.tick()
        for name in names:
            self.db.execute("call memoir.run_job(%s)", [name])

    def embed(self) -> None:
        """Stores vectors for all that waits for one, former stories' too."""
        claim = "select user_id, item_no, text from memoir.claim_embeddings(10000, %s)"
        while claimed := self.db.execute(claim, [MODEL]).fetchall():
            users, items, texts = zip(*claimed, strict=True)
            numbers = [number for text in texts for number in vector(text)]
            self.db.execute(
                "select memoir.store_embeddings(%s::uuid[], %s::int[], %s::real[], %s)",
                [list(users), list(items), numbers, MODEL],
            )

    # Writing

    def write(self, function: str, **given: Any) -> Any:
        """Calls a function a minute later than the last; its reply, or {"error": …}."""
        self.tick()
        reply = self.call(function, **given)
        self._unnamed |= {given[key] for key in ("session", "new_session") if given.get(key)}
        if isinstance(reply, dict):
            for key, value in reply.items():
                if isinstance(value, str) and ID.fullmatch(value):
                    self._name(value, key.removesuffix("_id"))
        return reply

    def persist(self, session: str, *messages: Message) -> None:
        self.write("persist_turn", session=session, messages=list(messages))

    def append(self, session: str, *messages: Message) -> None:
        self.write("append_messages", session=session, messages=list(messages))

    def remember(self, content: str, **given: Any) -> str:
        """The memory's id; it comes with its vector."""
        return str(self.write("remember", content=content, **{"embedding": vector(content)} | given)["memory_id"])

    def move(self, user: str) -> None:
        """Exports the user and goes on as another, into whom all of it was imported."""
        lines = [Jsonb(line) for line in self.call("export_user", embeddings=True)]
        self.user = user
        self.call("import_user", lines=lines)

    # Asking

    def ask(self, case: str, function: str = "context", *, by_words: bool = False, **given: Any) -> None:
        """Records what a function answers, under the case's name; the query's vector goes with it, unless by_words."""
        for session in sorted(self._unnamed):
            self._name_turns(session)
        self._unnamed.clear()
        if given.get("query") and not by_words:
            given.setdefault("query_embedding", vector(given["query"]))
        assert case not in self._answers, f"{self.name} has two cases {case}"
        self._answers[case] = self._settled(self.call(function, **given), {})

    def call(self, function: str, **given: Any) -> Any:
        """A function's answer as it is: rows of those that return sets, {"error": …} where it fails."""
        listed = "".join(f", p_{key} => %s{_cast(key)}" for key in given)
        try:
            cursor = self.db.execute(
                f"select * from memoir.{function}(p_user => %s{listed})", [self.user, *map(_adapted, given.values())]
            )
        except psycopg.Error as error:
            return {"error": self._shown(error)}
        columns = [column.name for column in cursor.description or ()]
        rows = [row[0] if len(columns) == 1 else dict(zip(columns, row, strict=True)) for row in cursor]
        return rows if function in SETS else rows[0]

    # What does not differ from run to run

    def _shown(self, error: psycopg.Error) -> list[str | None]:
        """Of what PostgreSQL itself says only the code: its words change with its version."""
        if not (error.sqlstate or "").startswith("PM"):
            return [error.sqlstate]
        texts = error.diag.message_primary, error.diag.message_detail
        return [error.sqlstate, *((text or "").replace(f"login {self._login} ", "login LOGIN ") for text in texts)]

    def _name(self, key: str, kind: str) -> None:
        if key not in self._names:
            self._names[key] = f"{kind} {sum(name.startswith(f'{kind} ') for name in self._names.values()) + 1}"

    def _name_turns(self, session: str) -> None:
        turns = self.call("history", session=session)
        for message in turns if isinstance(turns, list) else []:
            self._names.setdefault(message["message_id"], f"turn {session}:{message['turn_index']}")

    def _settled(self, value: Any, new: dict[str, str]) -> Any:
        """An answer with ids by name, or by order of appearance in it (`new`), and numbers to four places."""
        if isinstance(value, dict):
            return {key: self._settled(value[key], new) for key in sorted(value)}
        if isinstance(value, (list, tuple)):
            return [self._settled(inner, new) for inner in value]
        if isinstance(value, float):
            return round(value, 4) + 0.0
        if isinstance(value, datetime):
            return value.astimezone(UTC).isoformat()
        if value is None or isinstance(value, (bool, int)):
            return value
        text = ID.sub(lambda found: self._called(found.group(), new), str(value))
        if text == self._login:
            return "LOGIN"
        if len(text) <= LONGEST:
            return text
        middle = f"[{len(text)} characters, {sha256(text.encode()).hexdigest()[:16]}]"
        return text[: LONGEST // 2] + middle + text[-LONGEST // 4 :]

    def _called(self, key: str, new: dict[str, str]) -> str:
        if key in self._names:
            return self._names[key]
        return new.setdefault(key, f"id {len(new) + 1}")


def _cast(key: str) -> str:
    return f"::{TYPES[key]}" if key in TYPES else CASTS.get(f"p_{key}", "")


def _adapted(value: Any) -> Any:
    if isinstance(value, dict) or (isinstance(value, list) and value and isinstance(value[0], dict)):
        return Jsonb(value)
    return value
