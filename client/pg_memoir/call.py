"""What a call is, and how its one definition becomes a method of every client.

A method of a group (conversations.py, memories.py, privacy.py, operations.py) has no body: its name is the function's
in schema memoir, its annotations say the arguments' types (arguments.py), its docstring documents it. Its decorator
says what comes back:

    @value      one value                    select memoir.f(...)
    @values     a list of values             select memoir.f(...), one a row
    @rows       a list of rows               select * from memoir.f(...)
    @procedure  nothing                      call memoir.f(...)

Below it may stand `@calls(...)`, where the function has another name or needs something fixed, and `@like(...)`, for
the arguments of another call. An optional argument left at None is not sent, so the default is the database's. Where
`query` is given without its `query_embedding`, a client that has an embedder fills that in.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, get_args, get_type_hints, overload

from .arguments import Sql, sql_of
from .texts import unescape

P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C")
S = TypeVar("S")
F = TypeVar("F", bound=Callable[..., Any])

_STATEMENTS = {
    "value": "select memoir.{function}({arguments}){cast} as result",
    "values": "select memoir.{function}({arguments}){cast} as result",
    "rows": "select * from memoir.{function}({arguments})",
    "procedure": "call memoir.{function}({arguments})",
}
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Call(Generic[T]):
    """One statement with its parameters. `embed`: the text whose vector may fill the parameter query_embedding."""

    function: str
    sql: str
    params: dict[str, Any]
    read: Callable[[Rows], T]
    embed: str | None = None


class Client:
    """Runs a call when a method is called: run(call) returns what it reads."""

    def run(self, call: Call[T]) -> T:
        raise NotImplementedError


class AsyncClient:
    """The same, awaited."""

    async def run(self, call: Call[T]) -> T:
        raise NotImplementedError


class Describer:
    """Runs nothing: its methods return the calls."""

    def run(self, call: Call[T]) -> Call[T]:
        return call


@dataclass(frozen=True)
class _Options:
    """What a definition says beside its signature; see `calls`."""

    function: str
    read: Callable[[Rows], Any] | None = None
    cast: str = ""
    exact: Sequence[str] = ()
    fixed: Mapping[str, str] = field(default_factory=dict)


class Method(Generic[P, T]):
    """A call's definition, as a method of the three kinds of clients."""

    def __init__(self, function: Callable[..., T], kind: str) -> None:
        self.__name__, self.__qualname__ = function.__name__, function.__qualname__
        self.__module__, self.__doc__ = function.__module__, function.__doc__
        options: _Options = getattr(function, "options", _Options(function.__name__))
        self.function = options.function
        self._options = options
        self._statement = _STATEMENTS[kind]
        self.definition = inspect.signature(function)
        self.arguments: dict[str, tuple[Sql, bool]] = {
            name: sql_of(parameter.annotation)
            for name, parameter in self.definition.parameters.items()
            if name != "self"
        }
        hints = get_type_hints(function)  # for help(): without what only we read
        read = options.read or _reader(kind, hints["return"])
        self._read = _unescaping(options.exact, read) if options.exact else read
        shown = [p.replace(annotation=hints.get(name, p.annotation)) for name, p in self.definition.parameters.items()]
        self.__signature__ = self.definition.replace(parameters=shown, return_annotation=hints["return"])

    @overload
    def __get__(self, client: None, owner: Any = None) -> Method[P, T]: ...
    @overload
    def __get__(self, client: Client, owner: Any = None) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: Any = None) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, client: Describer, owner: Any = None) -> Callable[P, Call[T]]: ...
    def __get__(self, client: Any, owner: Any = None) -> Any:
        return self if client is None else MethodType(self, client)

    def __call__(self, client: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        return client.run(self.build(*args, **kwargs))

    def build(self, *args: P.args, **kwargs: P.kwargs) -> Call[T]:
        """The call with these arguments. Raises InvalidArgumentError, InvalidMessageError, InvalidTextError, and
        TypeError as any function does for arguments that it lacks or does not know."""
        try:
            given = self.definition.bind(None, *args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{self.__name__}() {error}") from None
        sent: dict[str, tuple[str, Any]] = {}
        for name, (wanted, optional) in self.arguments.items():
            value = given.get(name)
            required = self.definition.parameters[name].default is inspect.Parameter.empty
            if value is not None or required and not optional:
                sent[name] = wanted.type, wanted.check(value, name)
            elif required or name == "query_embedding":  # the client may fill that in
                sent[name] = wanted.type, None
        sent |= {name: ("text", value) for name, value in self._options.fixed.items()}
        # The casts choose the function's types; without them psycopg would send float8 where real is declared.
        # Bytes go as they are: as a text they would take twice the room, and time.
        forms = {name: "b" if sql_type.startswith("bytea") else "s" for name, (sql_type, _) in sent.items()}
        named = ", ".join(f"p_{name} => %({name}){forms[name]}::{sql_type}" for name, (sql_type, _) in sent.items())
        params = {name: value for name, (_, value) in sent.items()}
        embed = params.get("query") if params.get("query_embedding", ...) is None else None
        sql = self._statement.format(function=self.function, arguments=named, cast=self._options.cast)
        return Call(self.function, sql, params, self._read, embed)


class SessionMethod(Method[P, T]):
    """A call of a session's object, which knows the first two arguments, user and session."""

    def __init__(self, method: Method[Any, T]) -> None:
        self._method = method
        self.__name__, self.__qualname__, self.__module__ = method.__name__, method.__qualname__, method.__module__
        self.__doc__ = method.__doc__
        this, _user, _session, *others = method.__signature__.parameters.values()
        self.__signature__ = method.__signature__.replace(parameters=[this, *others])

    def __call__(self, session: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        return session.run(self._method.build(session.user, session.name, *args, **kwargs))


def opens_with(
    method: Method[P, Any],
) -> Callable[[Callable[[C, str, str, Call[Any] | None], S]], Callable[Concatenate[C, P], S]]:
    """A method with the arguments of open_session, given as user, session and the call that opens it, if there is
    anything to open it with."""

    def decorate(make: Callable[[C, str, str, Call[Any] | None], S]) -> Callable[Concatenate[C, P], S]:
        def wrapper(client: C, /, *args: P.args, **kwargs: P.kwargs) -> S:
            call = method.build(*args, **kwargs)
            user, session = call.params["user"], call.params["session"]
            return make(client, user, session, call if len(call.params) > 2 else None)

        wrapper.__name__, wrapper.__qualname__, wrapper.__doc__ = make.__name__, make.__qualname__, make.__doc__
        answer = inspect.signature(make).return_annotation
        wrapper.__signature__ = method.__signature__.replace(return_annotation=answer)  # type: ignore[attr-defined]
        return wrapper

    return decorate


def in_session(method: Method[Concatenate[str, str, P], T]) -> SessionMethod[P, T]:
    """The same call for the objects of sessions."""
    return SessionMethod(method)


def value(function: Callable[Concatenate[Any, P], T]) -> Method[P, T]:
    """A call that answers with one value."""
    return Method(function, "value")


def values(function: Callable[Concatenate[Any, P], list[T]]) -> Method[P, list[T]]:
    """A call that answers with a list of values."""
    return Method(function, "values")


def rows(function: Callable[Concatenate[Any, P], list[T]]) -> Method[P, list[T]]:
    """A call that answers with a list of rows: dataclasses, or dicts."""
    return Method(function, "rows")


def procedure(function: Callable[Concatenate[Any, P], None]) -> Method[P, None]:
    """A call of a procedure."""
    return Method(function, "procedure")


def calls(
    function: str,
    *,
    read: Callable[[Rows], Any] | None = None,
    cast: str = "",
    exact: Sequence[str] = (),
    **fixed: str,
) -> Callable[[F], F]:
    """The function of schema memoir, where it has another name than the method. `read`: what makes the answer of its
    rows; `cast`: of its value; `exact`: columns that were escaped when they were sent; `fixed`: arguments that are
    always the same."""

    def note_options(definition: F) -> F:
        definition.options = _Options(function, read, cast, exact, fixed)  # type: ignore[attr-defined]
        return definition

    return note_options


def like(other: Method[P, Any]) -> Callable[[Callable[[Any], T]], Callable[Concatenate[Any, P], T]]:
    """The arguments of another call."""

    def sign(definition: Callable[[Any], T]) -> Callable[Concatenate[Any, P], T]:
        taken = {name: p.annotation for name, p in other.definition.parameters.items() if name != "self"}
        definition.__annotations__ = taken | definition.__annotations__
        definition.__signature__ = other.definition  # type: ignore[attr-defined]
        return definition  # type: ignore[return-value]

    return sign


def _unescaping(columns: Sequence[str], read: Callable[[Rows], Any]) -> Callable[[Rows], Any]:
    return lambda found: read([row | {name: unescape(row[name]) for name in columns} for row in found])


def _reader(kind: str, answer: Any) -> Callable[[Rows], Any]:
    """What makes the answer, a value of that type, of the rows."""
    if kind == "procedure" or answer is type(None):
        return lambda found: None
    if kind == "value":
        return lambda found: found[0]["result"]
    if kind == "values":
        return lambda found: [row["result"] for row in found]
    item: Callable[..., Any] = get_args(answer)[0]
    if item is dict or not is_dataclass(item):
        return lambda found: found
    make, names = item, [field.name for field in fields(item)]
    # A newer server may answer with more columns than this version knows.
    return lambda found: [make(**{name: row[name] for name in names}) for row in found]
