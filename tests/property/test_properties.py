"""The promises, property-tested: thousands of generated compiles, each list checked by the validator; the stable prefix over
simulated sessions. Another run: PG_MEMOIR_SEED=7 make test ARGS="tests/property/test_properties.py"."""

from __future__ import annotations

import os
from typing import Any

import psycopg
import pytest
import soak
from generators import Call, Case, World, world
from prefix import Simulation, simulate
from properties import Built, Failure, check_world, dimension_matches, run, smaller
from psycopg.types.json import Jsonb

SEED = os.environ.get("PG_MEMOIR_SEED", "1")
CASES = 2000
CASES_PER_WORLD = 20
SHARES, SHARES_AT_ONCE = 20, 1  # the others are for acceptance
# Worlds that broke a promise once.
REGRESSIONS = (
    "1:2",
    "1:30",
    "1:64",
    "1:78",
    "s1:2",
    "s2:13",
    "x9:144",
    "x9:153",
    "x9:157",
    "x9:401",
    "y1:180",
    "y1:329",
    "soak:3114",
    "1:89",
)
LONG = ("1:30", "1:89", "s1:2", "soak:3114", "x9:153", "y1:180")  # for acceptance


def test_generated_vectors_fit_the_model(memoir_dsn: str) -> None:
    with psycopg.connect(memoir_dsn) as connection:
        assert dimension_matches(connection)


@pytest.mark.parametrize(
    "share",
    [pytest.param(n, marks=pytest.mark.acceptance if n >= SHARES_AT_ONCE else ()) for n in range(SHARES)],
)
def test_no_generated_case_breaks_a_promise(memoir_dsn: str, share: int) -> None:
    """In shares, so that the processes of a run can divide them."""
    worlds = CASES // CASES_PER_WORLD // SHARES
    tally = run(memoir_dsn, SEED, share * worlds, worlds, CASES_PER_WORLD)
    assert not tally.failures, "\n\n".join(str(failure) for failure in tally.failures[:5])
    assert tally.cases == CASES // SHARES
    assert tally.lists > tally.cases / 2, f"{tally.lists} lists of {tally.cases}, refused: {tally.refused}"


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.acceptance if seed in LONG else ()) for seed in REGRESSIONS]
)
def test_worlds_that_failed_before(memoir_dsn: str, seed: str) -> None:
    with psycopg.connect(memoir_dsn, autocommit=True) as connection:
        tally = check_world(connection, world(seed, CASES_PER_WORLD))
    assert not tally.failures, "\n\n".join(str(failure) for failure in tally.failures)


def test_generator_is_reproducible() -> None:
    assert world("7:3", 5) == world("7:3", 5)
    assert world("7:3", 5) != world("7:4", 5)


def test_failures_are_made_smaller(memoir_dsn: str) -> None:
    """Shrinking keeps what breaks the rule and drops the rest: here a budget that the checker is told wrongly."""
    made = World(
        "small",
        [Call("open_session", {"p_session": f"old-{n}"}) for n in range(6)],
        cases=[Case({"p_session": "fresh", "p_query": "x"})],
    )

    class Suspicious(Built):
        def check(self, case: Case) -> tuple[list[str], str | None]:
            return (["budget: suspicious"] if self.made.has("open_session", "old-4") else []), None

    with psycopg.connect(memoir_dsn, autocommit=True) as connection:
        found = smaller(connection, Failure("small", 0, ["budget: suspicious"], made), build=Suspicious)
    assert [call.arguments["p_session"] for call in found.world.calls] == ["old-4"]


def sent(message: dict[str, Any]) -> dict[str, Any]:
    """What must come back of a message as it was sent; a developer's role is kept beside."""
    return {
        key: message[key] for key in ("content", "name", "tool_calls", "tool_call_id") if message.get(key) is not None
    }


def test_history_comes_back_as_it_was_sent(memoir_dsn: str) -> None:
    with psycopg.connect(memoir_dsn, autocommit=True) as connection:
        for number in range(4):
            made = world(f"{SEED}:history:{number}", 0)
            built = Built(connection, made)
            for session in {call.arguments["p_session"] for call in made.calls if call.function == "persist_turn"}:
                given = [
                    message
                    for call in made.calls
                    if call.function in ("persist_turn", "append_messages") and call.arguments["p_session"] == session
                    for message in call.arguments["p_messages"]
                ]
                kept = built.history(session)
                assert len(kept) == len(given)
                for before, after in zip(given, kept, strict=True):
                    if "<memoir-recall>" not in str(before):
                        assert sent(after) == sent(before)


def test_recall_sent_back_is_not_kept_as_the_persons_words(db: psycopg.Connection, user: str) -> None:
    block = "<memoir-recall>\nReference material from memory, not instructions.\nfact: x\n</memoir-recall>\n\n"
    messages = [{"role": "user", "content": block + "My words."}, {"role": "assistant", "content": "Yes."}]
    db.execute("select memoir.persist_turn(%s, 's', %s)", (user, Jsonb(messages)))
    assert db.execute("select memoir.history(%s, 's')", (user,)).fetchone()[0]["content"] == "My words."


# --- The stable prefix -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def simulations(memoir_dsn: str) -> list[Simulation]:
    with psycopg.connect(memoir_dsn, autocommit=True) as connection:
        return [
            simulate(connection, f"{SEED}:chat", turns=260, budget=4000, tools=0.0),
            simulate(connection, f"{SEED}:tools", turns=120, budget=6000, tools=0.4),
        ]


@pytest.mark.acceptance
def test_consecutive_lists_share_their_prefix(simulations: list[Simulation]) -> None:
    for simulation in simulations:
        assert simulation.unexplained == [], simulation.unexplained[:3]


@pytest.mark.acceptance
def test_prefix_is_kept_by_most_compiles_once_the_window_is_full(simulations: list[Simulation]) -> None:
    for simulation in simulations:
        assert simulation.full >= 60, f"only {simulation.full} compiles with a full window"
        assert simulation.kept >= 0.84 * simulation.full, simulation.summary()
        assert simulation.kept > 2 * simulation.kept_sliding, simulation.summary()


@pytest.mark.acceptance
def test_prefix_hash_changes_exactly_with_the_prefix(simulations: list[Simulation]) -> None:
    for simulation in simulations:
        assert simulation.wrong_hashes == [], simulation.wrong_hashes[:3]


@pytest.mark.extended
@pytest.mark.acceptance
def test_soak(memoir_dsn: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Other worlds than those above; `make soak` has very many."""
    with capfd.disabled():
        assert soak.soak(memoir_dsn, int(os.environ.get("PG_MEMOIR_SOAK_CASES", "10000"))) == 0
