"""Cases of language: sentences and what each must bring about, in tests/cases."""

import json
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from pg_memoir_language.extraction import read_turns
from pg_memoir_language.languages import spoken_language
from pg_memoir_language.memories import Extracted, Turn

MONDAY = datetime(2023, 5, 8, 9, tzinfo=UTC)


@cache
def read_cases(name: str) -> list[dict[str, Any]]:
    """The cases of tests/cases/<name>.jsonl. A line with `texts` has a case for each of them, of which all else holds."""
    path = Path(__file__).parents[1] / "cases" / f"{name}.jsonl"
    found = []
    for line in path.read_text("utf-8").rstrip("\n").split("\n"):
        case = json.loads(line)
        texts = case.pop("texts", None)
        found += [case] if texts is None else [case | {"text": text} for text in texts]
    return found


def turn(text: str, role: str = "user", name: str | None = None, tool: str | None = None) -> Turn:
    """A turn of that Monday, in the language that the text has."""
    return Turn(text, role, name, MONDAY, spoken_language(text), tool)


def extract(text: str, judge: Any = None, **named: Any) -> list[Extracted]:
    """The memories of one turn."""
    return read_turns([turn(text, **named)], judge).found
