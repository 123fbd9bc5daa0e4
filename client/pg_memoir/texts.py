"""Texts that PostgreSQL can't hold: NUL and lone surrogates.

Models and tools write both, so text is never refused for them. What is searched and read gets U+FFFD in their place
(`replace_unstorable`). Documents and items of frameworks must come back equal, so they are written as escapes that
JSON holds (`escape`, `unescape`): U+FDD0 and four hex digits, and U+FDD0 with NaN, Infinity or -Infinity for numbers
JSON does not have.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

REPLACEMENT = "\ufffd"
ESCAPE = "\ufdd0"  # a noncharacter, which no text should hold; one that does is escaped too
_ESCAPED = re.compile(f"[\0\ud800-\udfff{ESCAPE}]")
_WRITTEN = re.compile(f"{ESCAPE}([0-9A-F]{{4}})")
_NUMBERS = {f"{ESCAPE}{name}": float(name) for name in ("NaN", "Infinity", "-Infinity")}


def replace_unstorable(value: Any) -> Any:
    """Returns a text, or a value with all texts in it, with U+FFFD for NUL and lone surrogates. Two halves of a
    character that stand beside each other become that character, since streams may have cut it."""
    if isinstance(value, str):
        plain = str.__str__(value)  # psycopg would send an Enum's name
        if not plain.isascii():
            plain = plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return plain.replace("\0", REPLACEMENT)
    if isinstance(value, Mapping):
        return {replace_unstorable(key): replace_unstorable(inner) for key, inner in value.items()}
    return [replace_unstorable(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def escape(value: Any) -> Any:
    """Returns a text, or a value with all texts in it, that PostgreSQL can hold; `unescape` makes it equal again."""
    if isinstance(value, str):
        return _ESCAPED.sub(lambda found: f"{ESCAPE}{ord(found[0]):04X}", str.__str__(value))
    if isinstance(value, Mapping):
        return {escape(key): escape(inner) for key, inner in value.items()}
    return [escape(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def escape_number(value: float) -> str | float:
    """Returns a number as JSON can hold it."""
    if math.isfinite(value):
        return value
    name = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return ESCAPE + name


def unescape(value: Any) -> Any:
    """Returns a value of JSON as it was before its texts and numbers were escaped."""
    if isinstance(value, str):
        if ESCAPE not in value:
            return value
        number = _NUMBERS.get(value)
        return _WRITTEN.sub(lambda found: chr(int(found[1], 16)), value) if number is None else number
    if isinstance(value, dict):
        return {unescape(key): unescape(inner) for key, inner in value.items()}
    return [unescape(inner) for inner in value] if isinstance(value, list) else value
