"""Bytes of a file → text and JSON: encodings, gzip, databases of SQLite, and documents that were cut off."""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
import zlib
from pathlib import Path
from typing import Any

from .conversations import ConversationError, Where

_CLOSING = {"[": "]", "{": "}"}
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[][{},]', re.DOTALL)


def decode(data: bytes, where: Where) -> str:
    """Returns the text of a file: UTF-8, UTF-16 or UTF-32, with or without a mark, also as gzip. Raises
    ConversationError."""
    if data.startswith(b"\x1f\x8b"):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise where.fail(None, f"the gzip is damaged: {error}") from None
    encoding = json.detect_encoding(data)
    try:
        return data.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        name = encoding.removesuffix("-sig").upper()
        raise where.fail(None, f"not {name} at byte {error.start}: {error.reason}") from None


def parse(text: str, where: Where) -> tuple[Any, ConversationError | None]:
    """Returns a document of JSON and, where its end is missing, an error beside what is whole of it. Raises
    ConversationError if nothing of it can be read."""
    try:
        return json.loads(text), None
    except RecursionError:
        raise where.fail(None, "not JSON: nested too deep") from None
    except json.JSONDecodeError as error:
        place = Where(where.file, line=error.lineno)
        problem = f"{error.msg} (column {error.colno})"
        for whole in _cut_at_elements(text):
            try:
                return json.loads(whole), place.fail(None, f"the file is cut off, so its end was not read: {problem}")
            except ValueError:
                continue
        raise place.fail(None, f"not JSON: {problem}") from None


def _cut_at_elements(text: str) -> list[str]:
    """Returns what is left of a document that was cut off: up to the last whole element of its outermost list, else of
    the next inner one. Empty if it is not cut off, but wrong."""
    opened: list[tuple[str, int | None]] = []  # each open bracket, with the last comma in it
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in _CLOSING:
            opened.append((token, None))
        elif token in ("]", "}"):
            if not opened or _CLOSING[opened.pop()[0]] != token:
                return []
        elif token == "," and opened:
            opened[-1] = (opened[-1][0], match.start())
    cuts = []
    for depth, (bracket, comma) in enumerate(opened, 1):
        if bracket == "[" and comma is not None:
            closing = "".join(_CLOSING[letter] for letter, _ in reversed(opened[:depth]))
            cuts.append(text[:comma] + closing)
    return cuts


def is_database(path: Path) -> bool:
    """Whether a file is a database of SQLite."""
    with path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"


def read_database(path: Path, tables: frozenset[str]) -> dict[str, list[dict[str, Any]]]:
    """Returns the rows of some tables of a database of SQLite, without binary values. Raises ConversationError."""
    found: dict[str, list[dict[str, Any]]] = {}
    try:
        database = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        try:
            database.row_factory = sqlite3.Row
            database.text_factory = lambda data: data.decode("utf-8", "replace")
            for (name,) in database.execute("select name from sqlite_master where type = 'table'").fetchall():
                if name in tables:
                    rows = database.execute(f'select * from "{name}" order by rowid').fetchall()
                    found[name] = [{k: r[k] for k in r.keys() if not isinstance(r[k], bytes)} for r in rows]
        finally:
            database.close()
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise Where(path.name).fail(None, f"the database can't be read: {error}") from None
    return found
