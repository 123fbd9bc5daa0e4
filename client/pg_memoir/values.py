"""Python values → arguments of SQL functions, checked where the json and text types themselves would choke."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from .errors import InvalidArgumentError, InvalidMessageError, InvalidTextError


def _check_text(value: str, path: str) -> str:
    """PostgreSQL stores neither NUL nor half a surrogate pair; its own error would not say where they stand."""
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
    return value


def _check_json(value: Any, path: str) -> Any:
    """A copy that json can write; datetimes become ISO 8601. Raises InvalidTextError, InvalidMessageError."""
    if isinstance(value, str):
        return _check_text(value, path)
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidMessageError(f"{path} is {value}, which JSON has not")
        return value
    if isinstance(value, datetime):
        return _aware(value, path).isoformat()
    if isinstance(value, Mapping):
        copy = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise InvalidMessageError(f"{path} has a key that is not text: {key!r}")
            copy[_check_text(key, f"a key of {path}")] = _check_json(item, f"{path}.{key}")
        return copy
    if isinstance(value, (list, tuple)):
        return [_check_json(item, f"{path}[{place}]") for place, item in enumerate(value)]
    if hasattr(value, "model_dump"):  # a pydantic object of an SDK
        return _check_json(value.model_dump(mode="json", exclude_none=True), path)
    raise InvalidMessageError(f"{path} is a {type(value).__name__}, which JSON has not")


def _aware(value: datetime, path: str) -> datetime:
    if value.tzinfo is None:
        raise InvalidArgumentError(
            f"{path} is a datetime without a time zone: {value.isoformat()}", hint="use datetime(..., tzinfo=timezone.utc)"
        )
    return value


def _vector(value: Iterable[Any], path: str) -> list[float]:
    vector = [float(number) for number in value]
    for place, number in enumerate(vector):
        if not math.isfinite(number):
            raise InvalidArgumentError(f"{path}[{place}] is {number}")
    return vector


def _list(value: Any, path: str) -> list[Any]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise InvalidArgumentError(f"{path} is a {type(value).__name__}, a list is needed")
    return list(value)


def to_sql(value: Any, sql_type: str, path: str) -> Any:
    """`value` as psycopg should send it for an argument of `sql_type`. `path` names it in errors."""
    if value is None:
        return None
    if sql_type == "text":
        if not isinstance(value, str):
            raise InvalidArgumentError(f"{path} is a {type(value).__name__}, a text is needed")
        return _check_text(value, path)
    if sql_type == "jsonb":
        return Jsonb(_check_json(value, path), dumps=lambda item: json.dumps(item, ensure_ascii=False))
    if sql_type == "timestamptz":
        return _aware(value, path) if isinstance(value, datetime) else _check_text(str(value), path)
    if sql_type == "real[]":
        return _vector(value, path)
    if sql_type == "real[][]":
        return [_vector(row, f"{path}[{place}]") for place, row in enumerate(_list(value, path))]
    if sql_type.endswith("[]"):
        return [to_sql(item, sql_type[:-2], f"{path}[{place}]") for place, item in enumerate(_list(value, path))]
    return value


def finite_vectors(vectors: Sequence[Any], count: int) -> list[list[float]]:
    """What an embedder answered, checked: `count` vectors of one length, all finite. Raises InvalidArgumentError."""
    checked = [_vector(vector, f"embedding[{place}]") for place, vector in enumerate(vectors)]
    if len(checked) != count or len({len(vector) for vector in checked}) > 1 or (checked and not checked[0]):
        raise InvalidArgumentError(
            f"the embedder answered {len(checked)} vectors of lengths {sorted({len(v) for v in checked})} for {count} texts"
        )
    return checked
