"""What requests cost, and what the client's own lists would have: in tokens at the price of plain input.

What was left out of a list would have been read from the prompt cache with every request, what was added was. Where more is
left out than a request before, all behind it was written to the cache anew, and would have been read.
"""

from __future__ import annotations

from typing import Any

READ, WRITE = 0.1, 1.25
"""Prices of a token read from the prompt cache and of one written to it, to that of plain input."""

CHARACTERS = 4
"""Of a token, about."""


def cost_of(usage: dict[str, Any]) -> float:
    """Of an answer's usage, in the words of any API."""
    written, read = usage.get("cache_creation_input_tokens") or 0, usage.get("cache_read_input_tokens") or 0
    plain = usage.get("input_tokens") or usage.get("prompt_tokens") or 0
    details = usage.get("input_tokens_details") or usage.get("prompt_tokens_details") or {}
    cached = details.get("cached_tokens") or 0  # counted among the others
    return float(plain - cached + READ * (read + cached) + WRITE * written)


def without(cost: float, left_out: int, rewritten: int) -> float:
    """The same with the client's own list: `left_out` characters more, of which none were written anew."""
    return max(0.0, cost + (READ * left_out - (WRITE - READ) * rewritten) / CHARACTERS)
