"""What is sent: named arguments with casts, nothing that was not given, nothing the database would choke on."""

import json
import math
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from types import SimpleNamespace

import pytest
from client_calls import METHODS, arguments, calls, parameters, sql_type
from pg_memoir import AsyncMemoir, Memoir, MemoirError, errors
from pg_memoir.testing import Memoir as StandIn
from pg_memoir.texts import unescape

ROOT = Path(__file__).resolve().parents[2]
ARGUMENTS = [(name, argument) for name in METHODS for argument in parameters(METHODS[name])]
NAIVE = datetime(2024, 1, 1)
WRONG = {
    "text": [5, b"x", ["x"]],
    "name": [5, "a\0b"],
    "int": ["1", 1.5, True, 1 << 31, -(1 << 31) - 1],
    "bigint": ["1", 1.5, True, 1 << 63],
    "real": ["0.5", True, math.nan, math.inf, 1e39, 10**400],
    "numeric": ["0.5", True, math.nan],
    "boolean": [1, "true"],
    "uuid": [5, "x", "", b"x", "00000000-0000-0000-0000-00000000000g", "x\0"],
    "timestamptz": [5, "yesterday", "", "2024-13-01T00:00:00Z", NAIVE, "2024-01-01", "2024-01-01T00:00:00", date(2024, 1, 1), "x\0"],
    "date": ["2024-01-01", 5, NAIVE],
    "bytea": ["x", 5, [1]],
    "text[]": ["x", 5, {"x": 1}, [5], ["x", None]],
    "int[]": [5, "1", ["1"], [None], [True], [1 << 31]],
    "uuid[]": ["x", ["x"], [None], [5]],
    "real[]": [0.5, "0.5", ["0.5"], [None], [math.nan], [1e39], b"xx"],
    "real[][]": [[0.5], [[None]], [[0.5], [0.5, 0.5]], "x", [[math.inf]]],
    "bytea[]": [b"x", ["x"], [None]],
    "timestamptz[]": ["2024-01-01T00:00:00Z", ["x"], [NAIVE], [None]],
    "text[]::jsonb[]": ["{}", [5], [None]],
    "jsonb": [object(), {1: 1}, {"x": math.nan}, {"x": object()}, {"x": 10**5000}],
}  # fmt: skip


def wrong_values(name, argument):
    yield object()
    yield from [value for value in WRONG[sql_type(name, argument)] if argument != "filter" or value != {"x": math.nan}]
    annotation = str(parameters(METHODS[name])[argument].annotation)
    if sql_type(name, argument) == "jsonb" and "Mapping" in annotation:
        yield from (5, "x", [1])
    elif sql_type(name, argument) == "jsonb" and annotation != "typing.Any":
        yield from (5, "x", b"x", [object()])


@pytest.mark.parametrize(("name", "argument"), ARGUMENTS)
def test_a_wrong_argument_is_named(name, argument):
    """Every argument of every call: None, wrong types, what its SQL type can't hold."""
    good = arguments(name)
    getattr(calls, name)(**good)
    parameter = parameters(METHODS[name])[argument]
    if METHODS[name].arguments[argument][1] or parameter.default is not parameter.empty:
        sent = getattr(calls, name)(**good | {argument: None}).params.get(argument)
        assert sent is None
    else:
        with pytest.raises(MemoirError, match=rf"^{argument} is None, \w+"):
            getattr(calls, name)(**good | {argument: None})
    for wrong in wrong_values(name, argument):
        with pytest.raises(MemoirError, match=rf"^(a key of )?{argument}\b") as caught:
            getattr(calls, name)(**good | {argument: wrong})
        assert caught.value.code == type(caught.value).sqlstate in errors.BY_SQLSTATE, wrong


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: calls.history("a\0b", "s"), errors.InvalidTextError, r"user holds a NUL character at position 1"),
        (lambda: calls.history("a", "\ud800"), errors.InvalidTextError, r"session holds a lone surrogate \(U\+D800\)"),
        (lambda: calls.persist_turn("a", "s", [{"x": float("nan")}]), errors.InvalidMessageError, r"messages\[0\].x is nan"),
        (lambda: calls.persist_turn("a", "s", [{1: 1}]), errors.InvalidMessageError, "key that is not text"),
        (lambda: calls.persist_turn("a", "s", [{"x": object()}]), errors.InvalidMessageError, "is a object"),
        (lambda: calls.persist_turn("a", "s", [nested(5000)]), errors.InvalidMessageError, "messages is nested too deeply"),
        (lambda: calls.open_session("a", "s", metadata={"x": object()}), errors.InvalidArgumentError, r"metadata.x is a object"),
        (lambda: calls.known_messages("a", ["x", "\udfff"]), errors.InvalidTextError, r"chains\[1\]"),
        (lambda: calls.recall("a", "q", tags="xy"), errors.InvalidArgumentError, "tags is a str, a list is needed"),
        (lambda: calls.recall(7, "q"), errors.InvalidArgumentError, "user is an int, a str is needed"),
        (lambda: calls.recall("a", "q", limit="7"), errors.InvalidArgumentError, "limit is a str, an int is needed"),
        (lambda: calls.recall("a", "q", after=NAIVE), errors.InvalidArgumentError, "after has no time zone"),
        (lambda: calls.recall("a", "q", after="yesterday"), errors.InvalidArgumentError, "after is 'yesterday', which is no date and time"),
        (lambda: calls.forget("a", "m1"), errors.InvalidArgumentError, "memory is 'm1', which is no UUID"),
        (lambda: calls.match_memories("a", [1.0, float("inf")]), errors.InvalidArgumentError, r"embedding\[1\] is inf"),
    ],
)  # fmt: skip
def test_what_is_said_of_bad_values(build, error, message):
    with pytest.raises(error, match=message):
        build()


@pytest.mark.parametrize(
    "value",
    ["a\0b", "\ud83d", "\ud83d\ude00", "\ufdd00000", "\ufdd0NaN", "\ufdd0", {"\0": ["\udfff", {"\ufdd0": 1}]}, [math.inf, -math.inf], 2**70, 1e22, ""],
)  # fmt: skip
def test_text_escaped_comes_back_equal(value):
    sent = json.loads(json.dumps(calls.append_items("a", "s", [{"item": {"x": value}}]).params["items"].obj))
    assert not re.search("[\0\ud800-\udfff]|Infinity,", json.dumps(sent, ensure_ascii=False))
    assert unescape(sent[0]["item"]) == {"x": value}
    assert math.isnan(unescape(calls.put_documents("a", [{"value": math.nan}]).params["documents"].obj[0]["value"]))


def nested(depth):
    message = {}
    for _ in range(depth):
        message = {"x": message}
    return message


def test_other_arguments_than_those_of_calls():
    for make in (Memoir, AsyncMemoir):
        needed = "dsn is None, a connection string or an? (Async)?ConnectionPool is needed"
        with pytest.raises(errors.InvalidArgumentError, match=needed):
            make(None)
    memoir = Memoir(SimpleNamespace(connection=lambda: pytest.fail("something was sent")))
    for run, message in (
        (lambda: memoir.session(None, "s"), "user is None"),
        (lambda: memoir.session("a", 5), "session is an int"),
        (lambda: memoir.session("a", "s", settings=[]), "settings is a list"),
        (lambda: memoir.session("a", "s").pin("x"), "memory is 'x'"),
        (lambda: memoir.embed_backlog(limit="x"), "limit is a str"),
        (lambda: memoir.embed_backlog(max_items=1.5), "max_items is a float"),
        (lambda: memoir.import_lines(None), "lines is None"),
        (lambda: memoir.import_lines([5]), r"lines\[0\] is an int"),
        (lambda: list(memoir.export_lines(None)), "user is None"),
    ):
        with pytest.raises(MemoirError, match="^" + message):
            run()


def test_values_of_other_libraries():
    class Kind(str, Enum):  # noqa: UP042  (as applications have them)
        FACT = "fact"

    class Message:
        def model_dump(self, **options):
            return {"role": "assistant", "content": "Hi"}

    at = datetime(2024, 1, 1, tzinfo=UTC)
    call = calls.append("a", "s", [{"role": "user", "content": "Hä?", "created_at": at}, Message()])
    assert call.function == "append_messages"
    said = {"role": "user", "content": "Hä?", "created_at": "2024-01-01T00:00:00+00:00"}
    assert call.params["messages"].obj == [said, Message().model_dump()]
    assert calls.append("a", "s", Message()).params["messages"].obj == [Message().model_dump()]
    given = {"type": Kind.FACT, "confidence": Decimal("0.5"), "created_at": "2024-01-01T00:00:00Z"}
    sent = calls.remember("a", "x", embedding=iter([1, 1e-60]), **given).params
    assert type(sent["type"]) is str
    assert [sent[key] for key in ("type", "confidence", "created_at", "embedding")] == ["fact", 0.5, at, [1.0, 0.0]]


def test_one_exception_per_sqlstate():
    """The contract is the header of sql/base/errors.sql."""
    header = (ROOT / "sql" / "base" / "errors.sql").read_text().split("create or replace")[0]
    contract = set(re.findall(r"\bPM\d{3}\b", header))
    assert contract == set(errors.BY_SQLSTATE)
    assert len({kind.__name__ for kind in errors.BY_SQLSTATE.values()}) == len(contract)


def test_record_is_a_dict_that_json_takes() -> None:
    memoir = StandIn()
    made = memoir.remember("ann", "Reads the paper edition only.", tags=["news"])
    (memory,) = memoir.list_memories("ann")
    told = json.loads(json.dumps(memory.to_dict()))
    assert str(memory.id) == told["id"] == told["memory_id"] == made["memory_id"]
    assert (told["tags"], told["valid_to"], told["said_at"]) == (["news"], None, memory.said_at.isoformat())
