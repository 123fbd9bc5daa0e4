"""What the kernel reads, and how: the statements of queries.sql, answered by whoever holds a connection.

No more than the standard library: the statements for servers without PL/Python are built from this module, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

# Of every statement, before its own parameters.
SHARED = {"user": "uuid", "clearance": "_memoir.sensitivity", "projects": "text[]", "unseen": "integer[]"}


class Store(Protocol):
    """One user's stored arrays in one snapshot, without items that the caller may not see."""

    def rows(self, name: str, *given: Any) -> Sequence[Mapping[str, Any]]:
        """Return the rows of a statement of queries.sql, `given` its own parameters."""

    def of(self, asked: Mapping[str, Any]) -> Store:
        """Return the store of a space that is asked beside the user's own."""

    def count_tokens(self, text: str) -> int:
        """Return the tokens of a text by the session's tokenizer."""


@dataclass(frozen=True)
class Statement:
    """A statement with the types of its own parameters by name."""

    types: Mapping[str, str]
    text: str

    def on(self, part: int) -> str:
        """Return the text over the leaves of a part of the users, with numbered parameters: the shared ones first."""
        numbers = {name: f"${n}" for n, name in enumerate((*SHARED, *self.types), 1)}
        return self.written("true", numbers, rf"_memoir.\1_p{part}")

    def written(self, seen: str, parameters: Mapping[str, str], table: str = r"_memoir.\1") -> str:
        """Return the text with what stands for {seen}, for each parameter, and for a table."""
        text = re.sub(r"\{(\w+)\}", table, self.text.replace("{seen}", seen))
        return re.sub(r"(?<![:\[]):([a-z_]+)", lambda m: parameters[m[1]], text)


@cache
def read_statements() -> tuple[Mapping[str, Statement], str]:
    """Return the statements of queries.sql by name, and what {seen} means."""
    text = Path(__file__).with_name("queries.sql").read_text("utf-8")
    parts = re.split(r"^-- (?:(\w+)\(([^)]*)\)|\{(\w+)\}.*)\n", text, flags=re.M)[1:]
    pieces = {macro: body.strip() for macro, body in zip(parts[2::4], parts[3::4], strict=True) if macro}
    found = {
        name: Statement(
            dict(part.split(" ", 1) for part in re.split(r",\s+(?:-- +)?", parameters) if part),
            re.sub(r"\{(facts|findable)\}", lambda m: pieces[m[1]], re.sub(r"\A(--.*\n)+", "", body.strip())),
        )
        for name, parameters, body in zip(parts[::4], parts[1::4], parts[3::4], strict=True)
        if name
    }
    return found, pieces["seen"]


def statements() -> Mapping[str, Statement]:
    """Return the statements of queries.sql by name."""
    return read_statements()[0]
