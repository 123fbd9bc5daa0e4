"""What requests cost, and what the client's own lists would have: in tokens at the price of plain input.

What was left out of a list would have been read from the prompt cache with every request, what was added was. Where
more is left out than a request before, all behind it was written to the cache anew, and would have been read.
"""

from __future__ import annotations

from typing import Any

from pg_memoir.extras.providers import cache_counts

READ, WRITE, WRITE_LONG = 0.1, 1.25, 2.0
"""Prices of a token read from the prompt cache, and of one written to it for five minutes or an hour, to that of
plain input."""

CHARACTERS = 4  # of a token, about


def count_cost(usage: dict[str, Any]) -> float:
    """Of an answer's usage, in the words of any API."""
    cached = cache_counts(usage)
    read, written = cached.get("cache_read_tokens", 0), cached.get("cache_write_tokens", 0)
    long = cached.get("cache_write_1h_tokens", 0)
    plain = usage.get("input_tokens") or usage.get("prompt_tokens") or 0
    if "cache_read_input_tokens" not in usage:  # the others count it among the prompt's
        plain -= read
    return float(plain + READ * read + WRITE * written + WRITE_LONG * long)


def estimate_client_cost(cost: float, left_out: int, rewritten: int) -> float:
    """The same with the client's own list: `left_out` characters more, of which none were written anew."""
    return max(0.0, cost + (READ * left_out - (WRITE - READ) * rewritten) / CHARACTERS)
