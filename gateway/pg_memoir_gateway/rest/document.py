"""The OpenAPI 3.1 document, made of the operations."""

from __future__ import annotations

import functools
import re
from http import HTTPStatus
from typing import Any

from pg_memoir import __version__
from pydantic import TypeAdapter, create_model

from .operations import OPERATIONS, Operation
from .problems import MEDIA_TYPE, PREFIX, Problem
from .shapes import Schema
from .streams import LAST
from .streams import MEDIA_TYPE as EVENTS

NDJSON = "application/x-ndjson"
ABOUT = (
    "Memory for AI agents that lives in PostgreSQL. A user's key reaches that user alone, a service's key every user "
    "whom the path names. Errors are problems (RFC 9457): 400 where a request is not as this document says, 422 where "
    "it is and can't be done. `Idempotency-Key` makes a POST answer a repetition with its first result, in "
    f"{', '.join(f'`{one.name}`' for one in OPERATIONS if one.has_key)}. Other POSTs refuse it. Repeating a PUT or "
    "DELETE changes nothing more."
)
KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "The same key and body return the first result.",
    "schema": {"type": "string", "pattern": "^[!-~]{1,200}$"},
}
LAST_EVENT = {
    "name": LAST,
    "in": "header",
    "description": "The id of the last event, to go on behind it.",
    "schema": {"type": "string"},
}

LINKS = {
    "open_session": ("session", "$request.path.session"),
    "remember": ("memory", "$response.body#/memory_id"),
    "context": ("compile", "$response.body#/compile_id"),
    "list_changes": ("change", "$response.body#/items/0/change_id"),
}
"""Operations whose answer has the parameter of a path, and where."""


@functools.cache
def make_document() -> dict[str, Any]:
    """Returns the document."""
    wanted: dict[tuple[str, str], Any] = {("", "problem"): Problem}
    for operation in OPERATIONS:
        wanted |= {(operation.name, f"?{p.name}"): p.shape for p in operation.parameters}
        if operation.takes_body:
            wanted[operation.name, "body"] = operation.body
        if (answer := _answer(operation)) is not None:
            wanted[operation.name, "answer"] = answer
    adapters = [
        (key, "serialization" if key[1] in ("answer", "problem") else "validation", TypeAdapter(shape))
        for key, shape in wanted.items()
    ]
    made, shared = TypeAdapter.json_schemas(
        adapters,  # type: ignore[arg-type]
        ref_template="#/components/schemas/{model}",
        schema_generator=Schema,
    )
    schemas = {key: schema for (key, _), schema in made.items()}
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(PREFIX + operation.path, {})[operation.verb.lower()] = _describe(operation, schemas)
    problem = {"description": "A problem", "content": {MEDIA_TYPE: {"schema": schemas["", "problem"]}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "pg_memoir", "version": __version__, "description": ABOUT},
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}, {"key": []}],
        "paths": paths,
        "components": {
            "schemas": shared["$defs"],
            "responses": {"Problem": problem},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }


def _answer(operation: Operation) -> Any:
    """Returns the type of the object that answers, None for no object."""
    if operation.item is not None:
        of = operation.title if operation.item == dict[str, Any] else operation.item.__name__
        members: Any = {"items": (list[operation.item], ...)}  # type: ignore[name-defined]
        members |= {"next": (str | None, ...)} if operation.is_paged else {}
        return create_model(f"{of}{'Page' if operation.is_paged else 'List'}", **members)
    if operation.member:
        members = {operation.member: (operation.answer, ...)}
        return create_model(f"{operation.title}Answer", **members)
    return None if operation.is_stream or operation.has_events else operation.answer


def _describe(operation: Operation, schemas: dict[tuple[str, str], Any]) -> dict[str, Any]:
    """Returns an operation object."""
    summary = re.split(r"[.:;](?: |$)", operation.about)[0]
    parameters = [
        {"name": p.name, "in": p.place, "required": p.is_required, "schema": schemas[operation.name, f"?{p.name}"]}
        for p in operation.parameters
    ]
    made: dict[str, Any] = {
        "operationId": operation.name,
        "summary": summary,
        "description": operation.about,
        "parameters": parameters + [KEY] * operation.has_key + [LAST_EVENT] * operation.has_events,
    }
    if operation.takes_body:
        content = {"application/json": {"schema": schemas[operation.name, "body"]}}
        made["requestBody"] = {"required": operation.needs_body, "content": content}
    problem = {"$ref": "#/components/responses/Problem"}
    made["responses"] = {**_success(operation, schemas), "4XX": problem, "5XX": problem}
    return made


def _success(operation: Operation, schemas: dict[tuple[str, str], Any]) -> dict[str, Any]:
    if operation.is_stream or operation.has_events:
        said, media_type = ("Lines of JSON", NDJSON) if operation.is_stream else ("Events without an end", EVENTS)
        return {"200": {"description": said, "content": {media_type: {"schema": {"type": "string"}}}}}
    if (schema := schemas.get((operation.name, "answer"))) is None:
        return {"204": {"description": HTTPStatus(204).phrase}}
    success = {"description": "The answer", "content": {"application/json": {"schema": schema}}}
    return {"200": success | ({"links": _find_links(operation)} if operation.name in LINKS else {})}


def _find_links(operation: Operation) -> dict[str, Any]:
    """Returns the operations that go on with an answer."""
    parameter, value = LINKS[operation.name]
    given = {"user": "$request.path.user", parameter: value}
    found = [other for other in OPERATIONS if f"{{{parameter}}}" in other.path and other is not operation]
    return {other.name: {"operationId": other.name, "parameters": given} for other in found}
