"""What reads a text costs what its length costs, whatever it holds."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise

import psycopg
import pytest
from calls import call, persist, remember, table
from fuzz_text import SHAPES, readers, seconds, text_of
from routines import all_routines, code, values_for
from servers import unique

RUNS: dict[str, Callable[[int], object]] = {
    "text": lambda length: "x" * length,
    "text[]": lambda length: ["x" * length],
    "bytea": bytes,
    "bytea[]": lambda length: [bytes(length)],
}
"""A run of one character, by the type of an argument."""


@pytest.mark.parametrize("shape", ["<", '"', "你"])
def test_three_megabytes_of_one_shape_are_stored_and_extracted(db: psycopg.Connection, user: str, shape: str) -> None:
    text = text_of(shape, 3_000_000 // len(shape.encode()))
    with db.transaction():
        db.execute("set local statement_timeout = '60s'")
        persist(db, user, "s", text)
        assert call(db, "extract_session", user, "s")["left"] == 0
        table(db, "recall", user, text)


def test_arguments_of_any_length_are_linear(db: psycopg.Connection) -> None:
    """Every text of every function that applications call: eight times the length takes far less than 64 times as long, and
    what is refused is refused with an error of ours."""
    db.execute("set statement_timeout = '60s'; set client_min_messages = error")
    slow, odd, tried = [], [], 0
    for routine in all_routines(db).values():
        if (
            routine.schema != "memoir"
            or routine.kind != "f"
            or "app" not in routine.roles
            or routine.name == "erase_user"
        ):
            continue
        values = values_for(routine, db, unique("long"))
        for name, kind in routine.arguments.items():
            if kind not in RUNS:
                continue
            times = []
            for length in (100_000, 800_000):
                begun = time.monotonic()
                if (state := code(lambda: routine.call(db, values | {name: RUNS[kind](length)}))) and state[:2] != "PM":
                    odd.append((routine.name, name, length, state))
                times.append(time.monotonic() - begun)
            tried += 1
            if times[1] > 24 * max(times[0], 0.1):
                slow.append((routine.name, name, *times))
    assert (slow, odd) == ([], []) and tried > 200


@pytest.mark.soak
def test_no_function_that_reads_a_text_is_superlinear(db: psycopg.Connection) -> None:
    db.execute("set statement_timeout = '60s'")
    found = dict(readers(db))
    assert len(found) > 20
    slow = []
    for name, query in found.items():
        for shape in SHAPES:
            try:
                if seconds(db, query, text_of(shape, 200_000), 1) <= 0.3:
                    continue
                # Caches shared with others cost a single measurement a quarter: what grows too fast does so at every doubling.
                costs = [seconds(db, query, text_of(shape, length)) for length in (100_000, 200_000, 400_000)]
                if all(once * 2.5 < twice for once, twice in pairwise(costs)):
                    slow.append((name, shape, *(round(cost, 2) for cost in costs)))
            except psycopg.errors.QueryCanceled:
                slow.append((name, shape, 60.0))
    assert slow == []


@pytest.mark.extended
@pytest.mark.acceptance
@pytest.mark.parametrize("sentence", ["lorem ipsum ", "今日は大変良い天気です。"])
def test_text_of_fifteen_megabytes(db: psycopg.Connection, user: str, sentence: str) -> None:
    """Its chunks are numbered by a smallint."""
    text = sentence * (15_000_000 // len(sentence.encode())) + "The vault is called HRN-7731-QX."
    persist(db, user, "s", text)
    assert any("HRN-7731-QX" in str(row) for row in table(db, "recall", user, "Which vault, HRN-7731-QX?"))


@pytest.mark.acceptance
@pytest.mark.parametrize("shape", SHAPES)
def test_long_texts_of_every_shape_go_all_the_way(db: psycopg.Connection, user: str, shape: str) -> None:
    text = text_of(shape, 1_000_000)
    with db.transaction():
        db.execute("set local statement_timeout = '60s'")
        persist(db, user, "s", text, text)
        call(db, "extract_session", user, "s")
        if text.strip():
            table(db, "recall", user, text)
    try:
        remember(db, user, text)
    except psycopg.errors.Error as error:
        assert (error.sqlstate or "").startswith("PM"), error
