"""Arguments of calls: which SQL type each becomes, and what is wrong with a value before anything is sent.

An annotation says both. `str`, `int`, `float`, `bool`, `bytes` and `UUID` stand for text, int, real, boolean, bytea and
uuid; `Sequence[...]` for an array of them; whatever differs has a name below. A wrong value raises InvalidArgumentError
(in messages InvalidMessageError, for a name that can't be stored InvalidTextError) with the argument's name as Python
knows it. Names and keys must be what they are. `Text` and all JSON come from models and tools, so texts.py makes
storable what PostgreSQL can't hold.
"""

from __future__ import annotations

import json
import math
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from numbers import Integral, Real
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from uuid import UUID

from psycopg.types.json import Jsonb

from .errors import InvalidArgumentError, InvalidMessageError, InvalidTextError, MemoirError
from .texts import escape, escape_number, replace_unstorable

_LARGEST_REAL = 3.4028235e38
_SMALLEST_REAL = 1.4e-45  # what is nearer to 0 is 0, as PostgreSQL refuses to round it


@dataclass(frozen=True)
class Sql:
    """An argument's SQL type, and what makes of a value what psycopg sends. `check(value, path)`: `path` names it in
    errors."""

    type: str
    check: Callable[[Any, str], Any]


def wrong(value: Any, path: str, needed: str) -> InvalidArgumentError:
    """The error for an argument of a wrong type."""
    name = type(value).__name__
    given = "None" if value is None else f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
    return InvalidArgumentError(f"{path} is {given}, {needed} is needed")


def content(value: Any, path: str) -> str:
    """Checks a text that is read or searched; what can't be stored in it is replaced."""
    if not isinstance(value, str):
        raise wrong(value, path, "a str")
    return str(replace_unstorable(value))


def label(value: Any, path: str) -> str:
    """Checks a name in a framework's store, which comes back equal whatever stands in it."""
    if not isinstance(value, str):
        raise wrong(value, path, "a str")
    return str(escape(value))


def text(value: Any, path: str) -> str:
    """Checks a name. Replacing a part of it could make it somebody else's, so what can't be stored raises:
    PostgreSQL's own error would not say where it stands."""
    if not isinstance(value, str):
        raise wrong(value, path, "a str")
    nul = value.find("\0")
    if nul >= 0:
        raise InvalidTextError(f"{path} holds a NUL character at position {nul}", hint="remove it")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidTextError(
            f"{path} holds a lone surrogate (U+{ord(value[error.start]):04X}) at position {error.start}",
            hint="decode the text with errors='replace'",
        ) from None
    return str.__str__(value)  # psycopg would send an Enum's name


def whole(bits: int) -> Callable[[Any, str], int]:
    """Checks an integer of so many bits."""

    def check(value: Any, path: str) -> int:
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise wrong(value, path, "an int")
        given = int(value)
        if not -(1 << bits - 1) <= given < 1 << bits - 1:
            raise InvalidArgumentError(f"{path} is out of range: more than {bits} bits")
        return given

    return check


def number(value: Any, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (Real, Decimal)):
        raise wrong(value, path, "a float")
    try:
        given = float(value)
    except OverflowError:
        given = math.inf
    if not abs(given) <= _LARGEST_REAL:
        raise InvalidArgumentError(f"{path} is {given}, a finite number is needed")
    return 0.0 if abs(given) < _SMALLEST_REAL else given


def truth(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise wrong(value, path, "a bool")
    return value


def octets(value: Any, path: str) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise wrong(value, path, "a bytes object")
    return bytes(value)


def identifier(value: Any, path: str) -> UUID:
    if isinstance(value, UUID):
        return value
    if not isinstance(value, str):
        raise wrong(value, path, "a UUID")
    try:
        return UUID(value)
    except ValueError:
        raise InvalidArgumentError(f"{path} is {_quote(value)}, which is no UUID") from None


def moment(value: Any, path: str) -> datetime:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise InvalidArgumentError(
                f"{path} is {_quote(value)}, which is no date and time of ISO 8601",
                hint="such as 2024-05-01T12:00:00Z",
            ) from None
    if not isinstance(value, datetime):
        raise wrong(value, path, "a datetime")
    if value.utcoffset() is None:
        raise InvalidArgumentError(
            f"{path} has no time zone: {value.isoformat()}",
            hint="use datetime(..., tzinfo=timezone.utc), or an offset such as Z",
        )
    return value


def day(value: Any, path: str) -> date:
    if not isinstance(value, date) or isinstance(value, datetime):
        raise wrong(value, path, "a date")
    return value


def items(value: Any, path: str, needed: str = "a list") -> list[Any]:
    """Any iterable but those whose items nobody means."""
    if isinstance(value, (str, bytes, bytearray, Mapping)) or not isinstance(value, Iterable):
        raise wrong(value, path, needed)
    return list(value)


def list_of(check: Callable[[Any, str], Any]) -> Callable[[Any, str], list[Any]]:
    return lambda value, path: [check(item, f"{path}[{place}]") for place, item in enumerate(items(value, path))]


def vector(value: Any, path: str) -> list[float]:
    return [number(item, f"{path}[{place}]") for place, item in enumerate(items(value, path, "a list of floats"))]


def vectors(value: Any, path: str) -> list[list[float]]:
    rows: list[list[float]] = list_of(vector)(value, path)
    lengths = sorted({len(row) for row in rows})
    if len(lengths) > 1:
        raise InvalidArgumentError(f"{path} holds vectors of lengths {lengths}, one length is needed")
    return rows


def mapping(value: Any, path: str, write: Callable[[Any, str], Jsonb] | None = None) -> Jsonb:
    if not isinstance(value, Mapping):
        raise wrong(value, path, "a dict")
    return (write or any_json)(value, path)


def json_list(value: Any, path: str) -> Jsonb:
    return any_json(items(value, path), path)


def messages(value: Any, path: str) -> Jsonb:
    """One message need not stand in a list."""
    one = isinstance(value, Mapping) or hasattr(value, "model_dump")
    return any_json([value] if one else items(value, path, "a list of messages"), path, InvalidMessageError)


def documents(value: Any, path: str) -> Jsonb:
    """Entries of put_documents: all but what is searched comes back equal."""
    return _entries(value, path, ("namespace", "key", "value", "merge", "at", "was", "where"))


def session_items(value: Any, path: str) -> Jsonb:
    """Entries of append_items: an item comes back equal, its messages are read."""
    return _entries(value, path, ("item", "part_of"))


def _entries(value: Any, path: str, exact: Sequence[str]) -> Jsonb:
    def entry(given: Any, where: str) -> Any:
        if not isinstance(given, Mapping):
            return _plain(given, where, InvalidArgumentError)
        read = {name: part for name, part in given.items() if name not in exact}
        return _plain(read, where, InvalidArgumentError) | {
            name: _plain(part, f"{where}.{name}", InvalidArgumentError, True)
            for name, part in given.items()
            if name in exact
        }

    return _json(lambda: list_of(entry)(value, path), path, InvalidArgumentError)


def exact_json(value: Any, path: str) -> Jsonb:
    """A JSON value that is compared with documents."""
    return _json(lambda: _plain(value, path, InvalidArgumentError, True), path, InvalidArgumentError)


def any_json(value: Any, path: str, error: type[MemoirError] = InvalidArgumentError) -> Jsonb:
    if value is None:
        raise wrong(value, path, "a value that JSON has")
    return _json(lambda: _plain(value, path, error), path, error)


def _json(make: Callable[[], Any], path: str, error: type[MemoirError]) -> Jsonb:
    try:
        plain = make()
    except RecursionError:
        raise error(f"{path} is nested too deeply") from None
    return Jsonb(plain, dumps=lambda item: json.dumps(item, ensure_ascii=False))


def _plain(value: Any, path: str, error: type[MemoirError], exact: bool = False) -> Any:
    """A copy that json can write; datetimes become ISO 8601. `exact`: one that unescape makes equal again."""
    if isinstance(value, str):
        return escape(value) if exact else replace_unstorable(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if value.bit_length() > 14_000:  # Python writes no more than 4,300 digits
            raise error(f"{path} is a number of too many digits")
        return int(value)
    if isinstance(value, float):
        if exact:
            return escape_number(value)
        if not math.isfinite(value):
            raise error(f"{path} is {value}, which JSON has not")
        return value
    if isinstance(value, datetime):
        return moment(value, path).isoformat()
    if isinstance(value, Mapping):
        copy = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise error(f"{path} has a key that is not text: {key!r}")
            copy[escape(key) if exact else replace_unstorable(key)] = _plain(item, f"{path}.{key}", error, exact)
        return copy
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{path}[{place}]", error, exact) for place, item in enumerate(value)]
    if hasattr(value, "model_dump"):  # a pydantic object of an SDK
        return _plain(value.model_dump(mode="json", exclude_none=True), path, error, exact)
    raise error(f"{path} is a {type(value).__name__}, which JSON has not")


def _quote(value: str) -> str:
    return repr(value if len(value) <= 60 else value[:57] + "…")


Id = Annotated[UUID | str, Sql("uuid", identifier)]
"""A UUID, or its text."""

When = Annotated[datetime | str, Sql("timestamptz", moment)]
"""An aware datetime, or its text in ISO 8601, with its offset."""

Day = Annotated[date, Sql("date", day)]
BigInt = Annotated[int, Sql("bigint", whole(64))]
Numeric = Annotated[float, Sql("numeric", number)]
Name = Annotated[str, Sql("name", text)]

Text = Annotated[str, Sql("text", content)]
"""A text that a model or a tool may have written: U+FFFD stands for NUL and lone surrogates in it."""

Label = Annotated[str, Sql("text", label)]
"""A name in a framework's store."""

Vector = Annotated[Sequence[float], Sql("real[]", vector)]
"""One embedding; its length is the model's dimension."""

Vectors = Annotated[Sequence[Sequence[float]], Sql("real[][]", vectors)]
"""Embeddings of one length."""

Messages = Annotated[Iterable[Any], Sql("jsonb", messages)]
"""Messages as the OpenAI chat API has them (dicts, or the SDK's objects), or one of them."""

Object = Annotated[Mapping[str, Any], Sql("jsonb", mapping)]
List = Annotated[Sequence[Any], Sql("jsonb", json_list)]
Json = Annotated[Any, Sql("jsonb", any_json)]
Entries = Annotated[Sequence[Any], Sql("jsonb", documents)]
Items = Annotated[Sequence[Any], Sql("jsonb", session_items)]
Filter = Annotated[Mapping[str, Any], Sql("jsonb", lambda value, path: mapping(value, path, exact_json))]
Conditions = Annotated[Sequence[Any], Sql("jsonb", lambda value, path: exact_json(items(value, path), path))]
Lines = Annotated[Sequence[str], Sql("text[]::jsonb[]", list_of(text))]
"""JSON texts, one a line."""

_PLAIN: dict[Any, Sql] = {
    str: Sql("text", text),
    int: Sql("int", whole(32)),
    float: Sql("real", number),
    bool: Sql("boolean", truth),
    bytes: Sql("bytea", octets),
    UUID: Sql("uuid", identifier),
}


def sql_of(annotation: Any) -> tuple[Sql, bool]:
    """What an annotation says: type and check, and whether None may be given."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        [one] = [part for part in parts if part is not types.NoneType]
        return sql_of(one)[0], True
    if origin is Annotated:
        return next(part for part in parts if isinstance(part, Sql)), False
    if origin is Literal:
        return _PLAIN[str], False
    if origin is Sequence:
        item, _ = sql_of(parts[0])
        return Sql(item.type + "[]", list_of(item.check)), False
    return _PLAIN[annotation], False


def finite_vectors(answer: Any, count: int) -> list[list[float]]:
    """What an embedder answered, checked: `count` vectors of one length, all finite. Raises InvalidArgumentError."""
    rows: list[list[float]] = list_of(vector)(answer, "embedding")
    lengths = sorted({len(row) for row in rows})
    if len(rows) != count or len(lengths) > 1 or lengths == [0]:
        raise InvalidArgumentError(f"the embedder answered {len(rows)} vectors of lengths {lengths} for {count} texts")
    return rows
