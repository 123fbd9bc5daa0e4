"""The promises, property-tested: each list of thousands of generated compiles is checked by the validator, and the prefix
stays stable over simulated sessions. Another run: PG_MEMOIR_SEED=7 make test ARGS="tests/property/test_properties.py"."""

import os
import uuid
from typing import Any

import psycopg
import pytest
from calls import history, persist
from generators import SESSION, exchanges
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from prefix import Simulation, simulate
from properties import check_worlds
from servers import connect

SEED = int(os.environ.get("PG_MEMOIR_SEED", "1"))
SHARES = 12  # the first is a quick test
WORLDS, CASES = 14, 8
SOAK = int(os.environ.get("PG_MEMOIR_SOAK_CASES", "10000"))


@pytest.mark.parametrize("share", [pytest.param(n, marks=pytest.mark.acceptance if n else ()) for n in range(SHARES)])
def test_no_generated_case_breaks_a_promise(memoir_dsn: str, share: int) -> None:
    seen = check_worlds(memoir_dsn, 1000 * SEED + share, WORLDS, CASES)
    assert seen["lists"] > 0.4 * seen["cases"], seen  # many budgets are tiny


@pytest.mark.extended
@pytest.mark.acceptance
def test_soak(memoir_dsn: str) -> None:
    """Other worlds than those above; `make soak` has very many."""
    for start in range(max(1, SOAK // 2000)):
        check_worlds(memoir_dsn, 1_000_000 + 1000 * SEED + start, 2000 // CASES, CASES)


def find_sent_fields(message: dict[str, Any]) -> dict[str, Any]:
    """What must come back of a message as it was sent; a developer's role is kept beside."""
    names = ("content", "name", "tool_calls", "tool_call_id")
    return {name: message[name] for name in names if message.get(name) is not None}


def test_history_comes_back_as_it_was_sent(memoir_dsn: str) -> None:
    with connect(memoir_dsn) as db:

        @seed(SEED)
        @settings(max_examples=25, deadline=None, database=None)
        @given(st.lists(exchanges(has_tools=True), min_size=1, max_size=3))
        def check(turns: list[list[dict[str, Any]]]) -> None:
            user = uuid.uuid4().hex
            for messages in turns:
                persist(db, user, SESSION, *messages)
            for before, after in zip(sum(turns, []), history(db, user, SESSION), strict=True):
                if "<memoir-recall>" not in str(before):
                    assert find_sent_fields(after) == find_sent_fields(before)

        check()


@pytest.mark.acceptance
@pytest.mark.parametrize("turns, budget, tools", [(260, 4000, 0.0), (120, 6000, 0.4)], ids=["chat", "tools"])
def test_lists_share_their_prefix(memoir_dsn: str, turns: int, budget: int, tools: float) -> None:
    with psycopg.connect(memoir_dsn, autocommit=True) as connection:
        seen: Simulation = simulate(connection, SEED, turns, budget, tools)
    assert seen.unexplained == [] and seen.wrong_hashes == []
    assert seen.full >= 60, f"only {seen.full} compiles with a full window"
    assert seen.kept >= 0.84 * seen.full and seen.kept > 2 * seen.kept_sliding, seen
