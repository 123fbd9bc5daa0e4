"""A story: what happens to one user's memory through the public API, and what is asked of it.

Told again it has the same answers. Its clock is set by hand and ticks with every write, vectors come from the words of a
text, and ids get names.
"""

import re
from datetime import UTC, datetime, timedelta
from functools import cache
from hashlib import shake_256
from typing import Any

import psycopg
from calls import embed_waiting
from psycopg.types.json import Jsonb

Message = dict[str, Any]
# In the future, so that jobs are due by the story's clock alone.
START = datetime(2031, 5, 5, 9, tzinfo=UTC)
MODEL, DIMENSION = "recorded", 128
ID = re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b")
SMALL = set("the a is was did we my your on in at with for and or not never how when where why what who".split())
SIGNATURES = """select proname, proretset, proargnames[1:pronargs],
    array(select format_type(t, null) from unnest(proargtypes) with ordinality x (t, o) order by o)
  from pg_proc where pronamespace = 'memoir'::regnamespace"""


@cache
def _direction(word: str) -> tuple[int, ...]:
    weight = 1 if word in SMALL else 4
    bits = int.from_bytes(shake_256(word[:5].encode()).digest(DIMENSION // 8), "big")
    return tuple(weight if bits >> place & 1 else -weight for place in range(DIMENSION))


@cache
def vector(text: str) -> list[int]:
    """Adds up a direction for each word, in whole numbers: texts with words in common are near each other."""
    words = dict.fromkeys(re.findall(r"[a-z0-9]+|[^\x00-\x7f]", text.lower())) or {"": None}
    return [sum(column) for column in zip(*map(_direction, words), strict=True)]


def said(*texts: str) -> list[Message]:
    """Texts of user and assistant in turn."""
    return [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(texts)]


class Story:
    """One user's story. Arguments of functions are named without p_."""

    def __init__(self, db: psycopg.Connection, name: str) -> None:
        self.db, self.name, self.user, self.now = db, name, name, START
        self.answers: dict[str, Any] = {}
        self._names: dict[str, str] = {}  # of ids
        self._sessions: set[str] = set()  # written to
        found = db.execute(SIGNATURES).fetchall()
        self._functions = {name: (is_set, dict(zip(names or [], types))) for name, is_set, names, types in found}
        self.db.execute("select memoir.set_clock(%s)", [self.now])
        self.db.execute("call memoir.ensure_partitions(0)")

    # Time and jobs

    def tick(self, **period: float) -> None:
        """Moves the clock on, by a minute if no period is given."""
        self.now += timedelta(**period or {"minutes": 1})
        self.db.execute("select memoir.set_clock(%s)", [self.now])

    def job(self, *names: str) -> None:
        """Runs jobs. They work for all users, so a story must not care when another's are run."""
        self.tick()
        for name in names:
            self.db.execute("call memoir.run_job(%s)", [name])

    def embed(self) -> None:
        """Stores vectors for all that waits for one, former stories' too."""
        while embed_waiting(self.db, vector, MODEL, 10000):
            pass

    # Writing

    def write(self, function: str, **given: Any) -> Any:
        """Calls a function a minute later than the last. Returns its reply, or {"error": …}."""
        self.tick()
        reply = self.call(function, **given)
        self._sessions |= {given[key] for key in ("session", "new_session") if given.get(key)}
        for key, value in reply.items() if isinstance(reply, dict) else ():
            if isinstance(value, str) and ID.fullmatch(value) and value not in self._names:
                kind = key.removesuffix("_id")
                self._names[value] = f"{kind} {sum(name.startswith(f'{kind} ') for name in self._names.values()) + 1}"
        return reply

    def persist(self, session: str, *messages: Message) -> None:
        self.write("persist_turn", session=session, messages=list(messages))

    def remember(self, content: str, **given: Any) -> str:
        """Remembers a text with its vector. Returns the memory's id."""
        return str(self.write("remember", content=content, **{"embedding": vector(content)} | given)["memory_id"])

    def move(self, user: str) -> None:
        """Exports the user and goes on as another, into whom all of it was imported."""
        lines = [Jsonb(line) for line in self.call("export_user", embeddings=True)]
        self.user = user
        self.call("import_user", lines=lines)

    # Asking

    def ask(self, case: str, function: str = "context", *, by_words: bool = False, **given: Any) -> None:
        """Records a function's answer under the case's name. The query's vector goes with it, unless by_words."""
        for session in sorted(self._sessions):
            turns = self.call("history", session=session)
            for message in turns if isinstance(turns, list) else []:
                self._names.setdefault(message["message_id"], f"turn {session}:{message['turn_index']}")
        self._sessions.clear()
        if given.get("query") and not by_words:
            given.setdefault("query_embedding", vector(given["query"]))
        assert case not in self.answers, f"{self.name} has two cases {case}"
        self.answers[case] = self._rename(self.call(function, **given))

    def call(self, function: str, **given: Any) -> Any:
        """A function's answer as it is: rows of those that return sets, {"error": …} where it fails."""
        returns_set, types = self._functions[function]
        listed = "".join(f", p_{key} => %s::{types[f'p_{key}']}" for key in given)
        values = [Jsonb(value) if types[f"p_{key}"] == "jsonb" else value for key, value in given.items()]
        try:
            cursor = self.db.execute(f"select * from memoir.{function}(p_user => %s{listed})", [self.user, *values])
        except psycopg.Error as error:
            # Of PostgreSQL's own errors only the code: their words change with its version.
            own = (error.sqlstate or "").startswith("PM")
            texts = [error.diag.message_primary, error.diag.message_detail] if own else []
            return {"error": " | ".join(filter(None, [error.sqlstate, *texts]))}
        columns = [column.name for column in cursor.description or ()]
        rows = [row[0] if len(columns) == 1 else dict(zip(columns, row, strict=True)) for row in cursor]
        return rows if returns_set else rows[0]

    def _rename(self, value: Any) -> Any:
        """An answer with ids by their names and numbers to four places."""
        if isinstance(value, dict):
            return {key: self._rename(inner) for key, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._rename(inner) for inner in value]
        if isinstance(value, float):
            return round(value, 4) + 0.0
        if isinstance(value, datetime):
            return value.astimezone(UTC).isoformat()
        if value is None or isinstance(value, (bool, int)):
            return value
        return ID.sub(lambda found: self._names.get(found.group(), "id"), str(value))
