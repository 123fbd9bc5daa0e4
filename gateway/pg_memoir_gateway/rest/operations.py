"""The operations of the REST API, one a line: a verb, a path, and the function of the client that it calls.

Arguments that the path does not name come from the query string (GET, DELETE) or the body (POST, PUT). `key` is the
header Idempotency-Key. A list that goes on behind a given row has `cursor` and `limit`, and answers with `next`.
"""

import inspect
import json
import re
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, get_args, get_origin
from uuid import UUID

from pg_memoir import AsyncMemoir
from pg_memoir.call import Method
from pg_memoir.errors import UnknownMemoryError, UnknownUserError
from pg_memoir.functions import AllCalls
from pg_memoir.types import EventPage, EventType, MarkdownPage, PagePush
from pydantic import BaseModel, Field

from .shapes import Limit, Name, answer_shape, is_flat, is_list, is_text, object_shape, shape_of, without_null

CURSORS = {
    "after_user": "user_name",
    "after_session": "session",
    "after_memory": "memory_id",
    "after_change": "change_id",
}
"""Arguments that name the last row of the page before, and the member of a row that holds the name."""

PAGE_SIZE = 100
LITERAL = re.compile(r"true|false|-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?")


@dataclass(frozen=True)
class Page:
    """Some rows of a list. `next`: the cursor of the rows behind them, None at the end."""

    items: list[Any]
    next: str | None


# Beside the client's functions ----------------------------------------------------------------------------------------


async def read_user(memoir: AsyncMemoir, user: str) -> dict[str, Any]:
    """A user in numbers: sessions, turns, tokens, costs (microcents), memories by state, tier, type and project. Raises
    UnknownUserError for a user who has neither sessions nor memories."""
    stats = await memoir.memory_stats(user)
    if not (stats["sessions"] or stats["states"]):
        raise UnknownUserError(f"unknown user {json.dumps(user, ensure_ascii=False)}")
    return stats


async def read_memory(memoir: AsyncMemoir, user: str, memory: UUID) -> dict[str, Any]:
    """A memory, turn or summary whole, with `id` and `kind`. Raises UnknownMemoryError."""
    found = await memoir.memory_get(user, [memory])
    if not found:
        raise UnknownMemoryError(f"unknown memory {memory}")
    return found[0]


async def read_page(
    memoir: AsyncMemoir,
    user: str,
    *,
    project: Name | None = None,
    topic: Name | None = None,
    limit: Limit | None = None,
) -> MarkdownPage:
    """A page of what is known about a user, as Markdown: of a project, a topic, or all. It is made anew with each
    request, so what was forgotten, has ended or is secret is not on it, and what is in doubt is marked. `limit`:
    sentences at most (500). Raises InvalidArgumentError."""
    return await memoir.memory_page(user, project=project, topic=topic, limit=limit)


async def push_page(
    memoir: AsyncMemoir, user: str, *, markdown: str, preview: bool = False, lift: bool = False
) -> PagePush:
    """Carries out what a person changed on a page. Changed sentences are corrected, deleted ones forgotten, new ones
    remembered, with the word of a person. A sentence that memory changed meanwhile is a conflict, and stays as it is.
    `preview` only tells; `lift` lets back what was rejected before. Raises InvalidArgumentError."""
    return await memoir.push_page(user, markdown, preview=preview, lift=lift)


async def list_turns(
    memoir: AsyncMemoir,
    user: str,
    session: str,
    *,
    cursor: Annotated[str, Field(pattern=r"^[0-9]{1,9}$")] = "0",
    limit: Limit = PAGE_SIZE,
) -> Page:
    """The messages of a session as they were sent, each with its `turn_index`, oldest first. A page may hold fewer than
    `limit`, because erased turns leave gaps. Raises UnknownSessionError."""
    first = int(cursor)
    behind = first + limit
    turns = (await memoir.session_info(user, session))["turns"]
    found = await memoir.history(user, session, from_turn=first, to_turn=behind - 1)
    return Page(found, str(behind) if behind < turns else None)


async def export_user(memoir: AsyncMemoir, user: str) -> AsyncGenerator[str, None]:
    """All that is kept of a user, one JSON object a line; one export of a user at a time. The gateway's login must be
    an admin's, or a service's with clearance secret. Raises UnknownUserError, NotAuthorizedError."""
    async for line in memoir.export_lines(user):
        yield line + "\n"


async def stream_events(
    memoir: AsyncMemoir, *, after: Name | None = None, types: list[EventType] | None = None
) -> AsyncGenerator[EventPage, None]:
    """Events of all users as they come, as text/event-stream. The id of an event is its cursor. A client that comes
    back with it in `Last-Event-ID`, or in `after`, gets what came behind. Without one, all that are kept come first,
    with `now` none. The data is the event as JSON. The stream has no end. Raises InvalidArgumentError while setting
    outbox_days is 0."""
    async for page in _read_pages(memoir, None, after, types):
        yield page


async def stream_user_events(
    memoir: AsyncMemoir, user: str, *, after: Name | None = None, types: list[EventType] | None = None
) -> AsyncGenerator[EventPage, None]:
    """Events of a user as they come, as text/event-stream. See the events of all users."""
    async for page in _read_pages(memoir, user, after, types):
        yield page


async def _read_pages(
    memoir: AsyncMemoir, user: str | None, after: str | None, types: list[EventType] | None
) -> AsyncGenerator[EventPage, None]:
    while True:
        page = await memoir.read_events(user, after=after, types=types)
        yield page
        after = page["cursor"]


# Operations -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parameter:
    """A value outside of the body. `argument`: the function's name of it."""

    name: str
    place: str
    argument: str
    shape: Any
    is_required: bool


@dataclass(eq=False)
class Operation:
    """`member`: the name under which an answer that is no object stands in one."""

    verb: str
    path: str
    call: Method[..., Any] | Callable[..., Any]
    member: str = ""
    parameters: list[Parameter] = field(init=False)

    def __post_init__(self) -> None:
        arguments, self.answer = _read_signature(self.call)
        self.name, self.about = self.call.__name__, " ".join((self.call.__doc__ or "").split())
        self.has_key, self.cursor = False, ""
        self.parameters, members = [], {}
        in_query = self.verb in ("GET", "DELETE")
        for given in arguments:
            name, is_required = given.name, given.default is inspect.Parameter.empty
            shape = Limit | None if name == "limit" else given.annotation
            if f"{{{name}}}" in self.path:
                self.parameters.append(Parameter(name, "path", name, without_null(shape), True))
            elif name == "key":
                self.has_key = True
            elif name in CURSORS:
                self.cursor, self.about = name, self.about.replace(f"`{name}`", "`cursor`")
                self.parameters.append(Parameter("cursor", "query", name, without_null(shape), False))
            elif not in_query:
                members[name] = (shape, ... if is_required else given.default)
            elif is_flat(without_null(shape)):
                self.parameters.append(Parameter(name, "query", name, without_null(shape), is_required))
        self.body = None if in_query else object_shape(f"{self.title}Body", members)
        self.takes_body, self.needs_body = bool(members), any(default is ... for _, default in members.values())
        outside = {p.name: (p.shape, ... if p.is_required else None) for p in self.parameters}
        self.outside = object_shape("Parameters", outside)
        self.has_events = self.answer == AsyncGenerator[EventPage, None]
        self.is_stream = get_origin(self.answer) is AsyncGenerator and not self.has_events
        self.is_paged = bool(self.cursor) or self.answer is Page
        self.item = (
            dict[str, Any] if self.answer is Page else get_args(self.answer)[0] if is_list(self.answer) else None
        )

    @property
    def title(self) -> str:
        """The name as a type has it."""
        return "".join(part.title() for part in self.name.split("_"))

    @property
    def for_services(self) -> bool:
        """Is it about all users?"""
        return "{user}" not in self.path

    def read_outside(self, path: dict[str, str], query: list[tuple[str, str]]) -> dict[str, Any]:
        """Returns the arguments in the path and the query string. Raises pydantic's ValidationError."""
        given: dict[str, Any] = {}
        for name, text in (*path.items(), *query):
            given.setdefault(name, []).append(text)
        for parameter in self.parameters:
            values = given.get(parameter.name)
            if values and not is_text(parameter.shape):
                values = [_read_literal(value) for value in values]
            if values:
                given[parameter.name] = values if is_list(parameter.shape) or len(values) > 1 else values[0]
        read = self.outside.model_validate_json(json.dumps(given))
        return {p.argument: getattr(read, p.name) for p in self.parameters if p.name in read.model_fields_set}

    def read_body(self, body: bytes) -> dict[str, Any]:
        """Returns the arguments in the body. Raises pydantic's ValidationError."""
        if self.body is None:
            return {}
        read: BaseModel = self.body.model_validate_json(body or b"{}")
        return read.model_dump(exclude_unset=True)

    async def run(self, memoir: AsyncMemoir, arguments: dict[str, Any]) -> Any:
        """Returns the answer as an object, None where there is nothing to say."""
        if not isinstance(self.call, Method):
            return await self.call(memoir, **arguments)
        if not self.cursor:
            answer = await memoir.run(self.call.build(**arguments))
            if self.item is not None:
                return {"items": answer}
            return {self.member: answer} if self.member else answer
        limit = arguments.get("limit") or PAGE_SIZE
        # One more than was asked for tells whether there are more.
        found = await memoir.run(self.call.build(**arguments | {"limit": limit + 1}))
        shown = found[:limit]
        return Page(shown, str(getattr(shown[-1], CURSORS[self.cursor])) if len(found) > limit else None)


def _read_signature(call: Method[..., Any] | Callable[..., Any]) -> tuple[list[inspect.Parameter], Any]:
    """Returns the arguments behind the first, with their shapes, and the type of the answer, None for no answer."""
    if isinstance(call, Method):
        given = [p.replace(annotation=shape_of(p.annotation)) for p in call.definition.parameters.values()]
        answer = call.__signature__.return_annotation
        return given[1:], None if answer is type(None) else answer_shape(answer)
    signature = inspect.signature(call)
    return list(signature.parameters.values())[1:], signature.return_annotation


def _read_literal(text: str) -> Any:
    """Returns a number or a boolean; a text that is neither stays as it is, for the error to name it."""
    return json.loads(text) if LITERAL.fullmatch(text) else text


USER = "/users/{user}"
SESSION = USER + "/sessions/{session}"
MEMORY = USER + "/memories/{memory}"

OPERATIONS = (
    Operation("GET", "/users", AllCalls.list_users),
    Operation("GET", USER, read_user),
    Operation("DELETE", USER, AllCalls.erase_user),
    Operation("GET", USER + "/profile", AllCalls.profile),
    Operation("GET", USER + "/page", read_page),
    Operation("PUT", USER + "/page", push_page),
    Operation("GET", USER + "/export", export_user),
    Operation("POST", USER + "/recall", AllCalls.recall),
    Operation("POST", USER + "/experience", AllCalls.learn_experience),
    Operation("POST", USER + "/experience/recall", AllCalls.recall_experience),
    Operation("GET", USER + "/spaces", AllCalls.list_spaces),
    Operation("POST", USER + "/spaces", AllCalls.create_space, "address"),
    Operation("GET", USER + "/spaces/{space}/members", AllCalls.list_space_members),
    Operation("PUT", USER + "/spaces/{space}/members/{member}", AllCalls.grant_space),
    Operation("DELETE", USER + "/spaces/{space}/members/{member}", AllCalls.revoke_space),
    Operation("POST", USER + "/forget", AllCalls.forget_about),
    Operation("GET", USER + "/changes", AllCalls.list_changes),
    Operation("POST", USER + "/changes/{change}/undo", AllCalls.undo_change),
    Operation("GET", USER + "/tombstones", AllCalls.list_tombstones),
    Operation("GET", USER + "/sessions", AllCalls.list_sessions),
    Operation("PUT", SESSION, AllCalls.open_session, "session_id"),
    Operation("GET", SESSION, AllCalls.session_info),
    Operation("DELETE", SESSION, AllCalls.erase_session),
    Operation("POST", SESSION + "/pause", AllCalls.pause_session),
    Operation("POST", SESSION + "/close", AllCalls.close_session),
    Operation("POST", SESSION + "/branches", AllCalls.branch_session, "session_id"),
    Operation("GET", SESSION + "/turns", list_turns),
    Operation("POST", SESSION + "/turns", AllCalls.persist_turn),
    Operation("DELETE", SESSION + "/turns/{turn}", AllCalls.erase_turn),
    Operation("POST", SESSION + "/steps", AllCalls.append),
    Operation("POST", SESSION + "/compile", AllCalls.context),
    Operation("POST", SESSION + "/explain", AllCalls.explain),
    Operation("POST", SESSION + "/tools", AllCalls.select_tools),
    Operation("GET", SESSION + "/outline", AllCalls.session_outline),
    Operation("GET", SESSION + "/compiles", AllCalls.list_compiles),
    Operation("GET", USER + "/compiles/{compile}", AllCalls.explain_compile),
    Operation("PUT", USER + "/compiles/{compile}/used", AllCalls.credit_recall, "credited"),
    Operation("GET", USER + "/memories", AllCalls.list_memories),
    Operation("POST", USER + "/memories", AllCalls.remember),
    Operation("GET", MEMORY, read_memory),
    Operation("GET", MEMORY + "/history", AllCalls.memory_history),
    Operation("GET", MEMORY + "/relations", AllCalls.memory_graph),
    Operation("POST", MEMORY + "/corrections", AllCalls.correct),
    Operation("POST", MEMORY + "/outcomes", AllCalls.report_outcome),
    Operation("POST", MEMORY + "/forget", AllCalls.forget),
    Operation("POST", MEMORY + "/retract", AllCalls.retract),
    Operation("POST", MEMORY + "/validate", AllCalls.validate),
    Operation("GET", USER + "/events", stream_user_events),
    Operation("GET", "/events", stream_events),
    Operation("GET", "/jobs", AllCalls.list_jobs),
    Operation("GET", "/problems", AllCalls.health_problems),
)
