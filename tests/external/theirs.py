"""Test suites that others wrote, run with our class in the place of theirs.

A file beside this one is a suite: it names modules of a checkout (the folder in SUITE), swaps names in them and adopts
their tests, all but those that look into the insides of the class they were written for.

    SUITE=~/src/langgraph PG_MEMOIR_DSN=... python -m pytest -c /dev/null --noconftest tests/external/langgraph_store.py
"""

import inspect
import os
import re
import sys
import uuid
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from pg_memoir import Memoir

DSN = os.environ["PG_MEMOIR_DSN"]
SUITE = Path(os.environ["SUITE"]).expanduser()
LEFT_OUT: list[str] = []
_MEMOIR: list[Memoir] = []


def memoir() -> Memoir:
    """A client for all tests of a run."""
    if not _MEMOIR:
        _MEMOIR.append(Memoir(DSN, max_size=20))
    return _MEMOIR[0]


def somebody() -> str:
    """A user nobody else has."""
    return f"suite-{uuid.uuid4()}"


def module(name: str, folder: str = "") -> ModuleType:
    """A module of the checkout."""
    path = str(SUITE / folder)
    if path not in sys.path:
        sys.path.insert(0, path)
    return import_module(name)


def adopt(theirs: ModuleType, into: dict[str, Any], insides: str = r"(?!)", prefix: str = "", **swapped: Any) -> None:
    """Their tests and fixtures as ours, with names swapped. `insides`: a pattern for the source of what is left out."""
    for name, value in swapped.items():
        setattr(theirs, name, value)
    for name, value in list(vars(theirs).items()):
        if name in swapped:
            into[name] = value
        elif type(value).__name__ == "FixtureFunctionDefinition" or hasattr(value, "_fixture_function_marker"):
            into.setdefault(name, value)
        elif name.startswith("test_") and inspect.isfunction(value):
            if re.search(insides, name + "\n" + inspect.getsource(value)):
                LEFT_OUT.append(name)
            else:
                into[f"test_{prefix}{name[5:]}"] = value
        elif name.startswith("Test") and inspect.isclass(value):
            for each, method in list(vars(value).items()):
                if each.startswith("test_") and re.search(insides, each + "\n" + inspect.getsource(method)):
                    LEFT_OUT.append(f"{name}.{each}")
                    delattr(value, each)
            into[name] = value
    marks = getattr(theirs, "pytestmark", None)
    if marks is not None:
        into["pytestmark"] = marks


def test_what_is_left_out() -> None:
    """Not a test: the names, for whoever reads along."""
    print("\nleft out:", *LEFT_OUT, sep="\n  ")
    print(len(LEFT_OUT), "left out")
