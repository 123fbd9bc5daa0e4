"""What reads a text costs what its length costs, whatever it holds."""

from __future__ import annotations

from itertools import pairwise

import psycopg
import pytest
from calls import call, persist, remember, table
from fuzz_text import SHAPES, readers, seconds, text_of


@pytest.mark.parametrize("shape", ["<", '"', "你"])
def test_three_megabytes_of_one_shape_are_stored_and_extracted(db: psycopg.Connection, user: str, shape: str) -> None:
    text = text_of(shape, 3_000_000 // len(shape.encode()))
    with db.transaction():
        db.execute("set local statement_timeout = '60s'")
        persist(db, user, "s", text)
        assert call(db, "extract_session", user, "s")["left"] == 0
        table(db, "recall", user, text)


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
