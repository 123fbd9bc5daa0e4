"""The client's calls, and values for their arguments by SQL type."""

import re
import uuid
from datetime import UTC, date, datetime

from pg_memoir.call import Method
from pg_memoir.functions import AllCalls, calls

METHODS = {name: method for name in dir(AllCalls) if isinstance(method := getattr(AllCalls, name), Method)}

AT = datetime(2024, 5, 1, 12, tzinfo=UTC)
GOOD = {
    "text": "x", "name": "x", "int": 1, "bigint": 1, "real": 0.5, "numeric": 1.5, "boolean": True, "uuid": uuid.UUID(int=7),
    "timestamptz": AT, "date": date(2024, 5, 1), "bytea": b"x", "text[]": ["x"], "int[]": [1], "uuid[]": [uuid.UUID(int=7)],
    "real[]": [0.5], "real[][]": [[0.5]], "bytea[]": [b"x"], "timestamptz[]": [AT], "text[]::jsonb[]": ['{"kind": "x"}'],
}  # fmt: skip


def parameters(method):
    """Its parameters by name, without self."""
    return {name: parameter for name, parameter in method.__signature__.parameters.items() if name != "self"}


def types_sent(call):
    """SQL type by argument."""
    return dict(re.findall(r"p_(\w+) => %\(\w+\)[sb]::([^,)]+)", call.sql))


def arguments(name, values=GOOD, only_required=False):
    """A value for each argument of a call. `values`: by SQL type; jsonb is a dict or a list, as the signature says."""
    chosen = {}
    for argument, parameter in parameters(METHODS[name]).items():
        if only_required and parameter.default is not parameter.empty:
            continue
        kind = sql_type(name, argument)
        if kind == "jsonb":
            is_object = "Mapping" in str(parameter.annotation)
            chosen[argument] = {"x": 1} if is_object else [{"role": "user", "content": "x"}]
        else:
            chosen[argument] = values[kind]
    return chosen


def sql_type(name, argument):
    """As the definition's annotation says."""
    wanted, _ = METHODS[name].arguments[argument]
    return wanted.type


__all__ = ["AT", "GOOD", "METHODS", "arguments", "calls", "parameters", "sql_type", "types_sent"]
