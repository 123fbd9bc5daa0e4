"""What requests cost beside the client's own lists."""

from __future__ import annotations

from typing import Any

import pytest
from pg_memoir_gateway.costs import count_cost, estimate_client_cost
from pg_memoir_gateway.dialect import Answer


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        ({"input_tokens": 10, "cache_creation_input_tokens": 100, "cache_read_input_tokens": 1000}, 235),
        (
            {
                "input_tokens": 10,
                "cache_creation_input_tokens": 100,
                "cache_read_input_tokens": 0,
                "cache_creation": {"ephemeral_5m_input_tokens": 60, "ephemeral_1h_input_tokens": 40},
            },
            165,
        ),
        ({"prompt_tokens": 1000, "prompt_tokens_details": {"cached_tokens": 900}}, 190),
        ({"input_tokens": 1000, "input_tokens_details": {"cached_tokens": 900}, "output_tokens": 7}, 190),
        ({"input_tokens": 10, "cache_creation_input_tokens": None}, 10),
        ({}, 0),
    ],
)
def test_usage_in_any_words(usage: dict[str, Any], cost: float) -> None:
    assert count_cost(usage) == pytest.approx(cost)


def test_cost_of_what_was_left_out() -> None:
    assert estimate_client_cost(100, 4_000, 0) == pytest.approx(200)
    assert estimate_client_cost(1_300, 0, 4_000) == pytest.approx(150)
    assert estimate_client_cost(100, -4_000, 0) == 0


def test_stored_usage_names_cached_tokens() -> None:
    usage = {
        "input_tokens": 10,
        "cache_creation_input_tokens": 100,
        "cache_read_input_tokens": 1000,
        "output_tokens": 7,
    }
    assert Answer(usage=usage | {"cache_creation": {"ephemeral_1h_input_tokens": 40}}).counts(5) == {
        "prompt_tokens": 1110,
        "completion_tokens": 7,
        "cache_read_tokens": 1000,
        "cache_write_tokens": 60,
        "cache_write_1h_tokens": 40,
        "latency_ms": 5,
    }
