"""What the kernel reads, and how: the statements of queries.sql, answered by whoever holds a connection."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from .items import FACTS_SQL

# Of every statement, before its own parameters.
SHARED = {"user": "uuid", "clearance": "_memoir.sensitivity", "projects": "text[]"}


class Store(Protocol):
    """One user's stored arrays, in one snapshot, as far as a caller may see them."""

    def rows(self, name: str, *given: Any) -> Sequence[Mapping[str, Any]]:
        """Return the rows of a statement of queries.sql, `given` its own parameters."""

    def count_tokens(self, text: str) -> int:
        """Return the tokens of a text by the session's tokenizer."""


@dataclass(frozen=True)
class Statement:
    """A statement with the types of its parameters by name, the shared ones first."""

    types: Mapping[str, str]
    text: str

    def on(self, part: int) -> str:
        """Return the text over the leaves of a part of the users, with numbered parameters."""
        numbers = {name: f"${n}" for n, name in enumerate(self.types, 1)}
        text = re.sub(r"\{(\w+)\}", rf"_memoir.\1_p{part}", self.text.replace("{facts}", FACTS_SQL))
        return re.sub(r"(?<![:\[]):([a-z_]+)", lambda m: numbers[m[1]], text)


@cache
def statements() -> Mapping[str, Statement]:
    """Return the statements of queries.sql by name."""
    text = Path(__file__).with_name("queries.sql").read_text("utf-8")
    found = re.split(r"^-- (\w+)\((.*)\)\n", text, flags=re.M)[1:]
    return {
        name: Statement(
            SHARED | dict(part.split(" ", 1) for part in parameters.split(", ") if part), body.strip()
        )
        for name, parameters, body in zip(found[::3], found[1::3], found[2::3], strict=True)
    }
