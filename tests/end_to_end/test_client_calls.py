"""What is sent: named arguments with casts, nothing that was not given, nothing the database would choke on."""

import inspect
import json
import re
from datetime import datetime, timezone
from pathlib import Path

import pg_memoir
import pytest
from pg_memoir import AsyncMemoir, AsyncSession, Memoir, Session, admin_calls, calls, errors

ROOT = Path(__file__).resolve().parents[2]
BUILDERS = [
    function
    for module in (calls, admin_calls)
    for name, function in vars(module).items()
    if inspect.isfunction(function) and function.__module__ == module.__name__ and not name.startswith("_") and name != "opening"
]


def test_sql_is_a_call_with_named_arguments():
    call = calls.compile_context("ann", "s1", "Why?", budget=1000, query_parts=[{"type": "text", "text": "x"}])
    assert call.sql == (
        "select memoir.compile_context(p_user => %(user)s::text, p_session => %(session)s::text, p_query => %(query)s::text, "
        "p_budget => %(budget)s::int, p_query_embedding => %(query_embedding)s::real[], p_query_parts => %(query_parts)s::jsonb, "
        "p_format => %(format)s::text) as result"
    )
    assert call.embed == "Why?" and call.params["query_embedding"] is None
    assert calls.compile_context("ann", "s1", "Why?", query_embedding=[1.0]).embed is None
    assert calls.forget("ann", "m").sql == "select memoir.forget(p_user => %(user)s::text, p_memory => %(memory)s::uuid) as result"
    assert calls.remember("ann", "x", confidence=1).sql.count("=>") == 3
    assert admin_calls.merge_search().sql == "call memoir.merge_search()"


def test_no_sql_but_calls():
    for path in (ROOT / "client" / "pg_memoir").glob("*.py"):
        for statement in re.findall(r"""["'](?:select|insert|update|delete|with|call|set|begin)\b[^"']*""", path.read_text(), re.I):
            assert re.match(r'.(select (\* from )?|call )memoir\.\{function\}|.call$|.select memoir\.history', statement), (path, statement)


def test_both_clients_have_every_call():
    for build in BUILDERS:
        for client in (Memoir, AsyncMemoir):
            method = getattr(client, build.__name__)
            assert method.__doc__ == build.__doc__ and build.__doc__
            names = [n for n in inspect.signature(method).parameters if n != "self"]
            assert names == list(inspect.signature(build).parameters)
    for one, other in ((Memoir, AsyncMemoir), (Session, AsyncSession)):
        public = [{n for n in dir(c) if not n.startswith("_")} for c in (one, other)]
        assert public[1] - public[0] <= {"open"} and public[0] <= public[1]
        for name in public[0]:
            pair = [getattr(c, name) for c in (one, other)]
            if name not in ("embed_backlog", "session", "run_plan"):
                assert [*inspect.signature(pair[0]).parameters] == [*inspect.signature(pair[1]).parameters], name
    assert list(inspect.signature(Session.compile_context).parameters)[:2] == ["self", "query"]


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: calls.persist_turn("a", "s", [{"role": "user", "content": "a\0b"}]), errors.InvalidTextError, r"messages\[0\].content holds a NUL character at position 1"),
        (lambda: calls.persist_turn("a", "s", [{"content": [{"text": "\ud800"}]}]), errors.InvalidTextError, r"messages\[0\].content\[0\].text holds a lone surrogate \(U\+D800\)"),
        (lambda: calls.persist_turn("a", "s", [{"x\0": 1}]), errors.InvalidTextError, r"a key of messages\[0\]"),
        (lambda: calls.persist_turn("a", "s", [{"x": float("nan")}]), errors.InvalidMessageError, r"messages\[0\].x is nan"),
        (lambda: calls.persist_turn("a", "s", [{1: 1}]), errors.InvalidMessageError, "key that is not text"),
        (lambda: calls.persist_turn("a", "s", [{"x": object()}]), errors.InvalidMessageError, "is a object"),
        (lambda: calls.recall("a", "q\0"), errors.InvalidTextError, "query holds"),
        (lambda: calls.recall("a", "q", tags=["x", "\udfff"]), errors.InvalidTextError, r"tags\[1\]"),
        (lambda: calls.recall("a", "q", tags="xy"), errors.InvalidArgumentError, "tags is a str"),
        (lambda: calls.recall(7, "q"), errors.InvalidArgumentError, "user is a int"),
        (lambda: calls.recall("a", "q", after=datetime(2024, 1, 1)), errors.InvalidArgumentError, "after is a datetime without a time zone"),
        (lambda: calls.match_memories("a", [1.0, float("inf")]), errors.InvalidArgumentError, r"embedding\[1\] is inf"),
    ],
)  # fmt: skip
def test_bad_values_are_named(build, error, message):
    with pytest.raises(error, match=message) as caught:
        build()
    assert caught.value.code == error.sqlstate


def test_messages_may_be_objects_and_datetimes():
    class Message:
        def model_dump(self, **options):
            return {"role": "assistant", "content": "Hi"}

    at = datetime(2024, 1, 1, tzinfo=timezone.utc)
    call = calls.append("a", "s", [{"role": "user", "content": "Hä?", "created_at": at}, Message()])
    assert call.function == "append_messages"
    assert call.params["messages"].obj == [
        {"role": "user", "content": "Hä?", "created_at": "2024-01-01T00:00:00+00:00"},
        {"role": "assistant", "content": "Hi"},
    ]


def test_one_exception_per_sqlstate():
    """The contract is the header of sql/errors.sql."""
    contract = set(re.findall(r"\bPM\d{3}\b", (ROOT / "sql" / "errors.sql").read_text().split("create or replace")[0]))
    assert contract == set(errors.BY_SQLSTATE)
    assert len({kind.__name__ for kind in errors.BY_SQLSTATE.values()}) == len(contract)


def test_version_is_written_once():
    assert re.fullmatch(r"\d+\.\d+\.\d+", pg_memoir.__version__)
    assert pg_memoir.__version__ not in (ROOT / "client" / "pyproject.toml").read_text()


def test_budget_error_has_sizes():
    error = errors.BudgetTooSmallError("too small", detail=json.loads('{"needed": 90, "budget": 50, "system": 20, "message": 70}'))
    assert (error.needed, error.budget, error.system_tokens, error.message_tokens) == (90, 50, 20, 70)
    assert errors.BudgetTooSmallError("too small").needed is None
