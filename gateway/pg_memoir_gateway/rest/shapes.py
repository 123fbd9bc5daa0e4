"""Types of the client's functions → types that JSON is checked against, and that its schema is made of (pydantic)."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict
from uuid import UUID

from pg_memoir.arguments import Sql, content, identifier, messages, moment
from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, create_model
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

STRICT = ConfigDict(extra="forbid", strict=True)
Name = Annotated[str, Field(pattern=r"^[^\x00]*$")]


def _drop_fraction(value: Any) -> Any:
    """12.0 is an integer to JSON Schema, and to JavaScript."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _check_time(value: Any) -> Any:
    """Pydantic takes numbers, also in quotes, for seconds since 1970, which the schema does not allow."""
    try:
        float(value)
    except (TypeError, ValueError):
        return value
    raise ValueError("Input should be a time such as 2026-03-01T10:00:00Z")


Whole = Annotated[int, Field(ge=-(1 << 31), lt=1 << 31), BeforeValidator(_drop_fraction)]
Real = Annotated[float, Field(ge=-3.4e38, le=3.4e38)]
Limit = Annotated[int, Field(ge=1, le=500), BeforeValidator(_drop_fraction)]
Member = tuple[Any, Any]
"""A type and a default, as pydantic's create_model takes them."""


class ChatMessage(BaseModel):
    """A message as the OpenAI chat API has it. Members that are not named here are kept."""

    model_config = ConfigDict(extra="allow", strict=True)

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    created_at: AwareDatetime | None = None


CHECKED: dict[Callable[[Any, str], Any], Any] = {
    identifier: UUID,
    moment: Annotated[AwareDatetime, Field(strict=False), BeforeValidator(_check_time)],
    messages: Annotated[list[ChatMessage], Field(min_length=1)],
}
"""Shapes of arguments that the client takes in several forms, by the client's check of them."""


def shape_of(annotation: Any) -> Any:
    """Returns the type of a JSON value that may be given for an argument."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return Union[tuple(part if part is types.NoneType else shape_of(part) for part in parts)]  # noqa: UP007
    if origin is Annotated:
        check = next((part.check for part in parts if isinstance(part, Sql)), None)
        if check in CHECKED:
            return CHECKED[check]
        # Any text will do where the client replaces what PostgreSQL can't store.
        return str if check is content else shape_of(parts[0])
    if origin is Sequence:
        return list[shape_of(parts[0])]  # type: ignore[misc]
    if origin is Mapping:
        return dict[str, Any]
    return {str: Name, int: Whole, float: Real}.get(annotation, annotation)


def without_null(shape: Any) -> Any:
    """Returns the shape of a value in a path or a query string, where there is no null."""
    parts = tuple(part for part in get_args(shape) if part is not types.NoneType)
    return Union[parts] if get_origin(shape) in (Union, types.UnionType) else shape  # noqa: UP007


def is_text(shape: Any) -> bool:
    """Is a value of this shape written without quotes in a query string? Numbers and booleans are JSON there."""
    origin, parts = get_origin(shape), get_args(shape)
    return is_text(parts[0]) if origin in (list, Annotated) else shape not in (int, float, bool)


def is_list(shape: Any) -> bool:
    """Does a parameter of this shape come several times?"""
    return get_origin(shape) is list


def is_flat(shape: Any) -> bool:
    """Has a query string a form for values of this shape?"""
    inner = get_args(shape)[0] if is_list(shape) else shape
    return inner is not Any and get_origin(inner) not in (dict, list)


def object_shape(name: str, members: Mapping[str, Member]) -> type[BaseModel]:
    """Returns the model of an object that has these members and no others."""
    return create_model(name, __config__=STRICT, **members)  # type: ignore[call-overload, no-any-return]


def answer_shape(answer: Any) -> Any:
    """Returns the type of an answer. A TypedDict of Python 3.11 is none to pydantic."""
    if not is_typeddict(answer):
        return answer
    members: Any = {name: (hint, None) for name, hint in get_type_hints(answer).items()}
    members |= {"__config__": ConfigDict(extra="allow"), "__doc__": answer.__doc__}
    return create_model(answer.__name__, **members)


class Schema(GenerateJsonSchema):
    """Schemas without titles made of names, and without defaults: generators of clients would ask for such members."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        made = super().default_schema(schema)
        made.pop("default", None)
        return made
