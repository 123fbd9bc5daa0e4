"""What many users need is reckoned from what one costs."""

import argparse

import pytest

from bench.scale import Cost, add_arguments, amount, need, servers

COST = Cost(disk=2000, log=4000, write=5, compile=20, connection=50e6)


def test_needs_grow_with_the_users() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    given = parser.parse_args([])
    one, ten = need(COST, 1e5, given), need(COST, 1e6, given)
    for name in ("messages", "cores", "disk", "log", "memory", "connections", "dead"):
        assert getattr(ten, name) == pytest.approx(10 * getattr(one, name))
    # 100,000 users, a fifth of them with 20 messages a day, three times as many at the peak
    assert one.messages == pytest.approx(1e5 * 0.2 * 20 / 86_400 * 3)
    assert one.disk == pytest.approx(1e5 * 0.2 * 20 * 365 * 1.1 * 2000)
    # Each need is divided by what a server gives.
    many = need(COST, 1e9, given)
    counts = servers(many, COST, given)
    assert counts["disk"] == pytest.approx(many.disk / 4e12)
    assert counts["processors"] == pytest.approx(many.cores / 16)
    assert max(counts, key=lambda name: counts[name]) == "disk"
    assert [amount(number, "B") for number in (12.34, 4_100, 2.5e12)] == ["12.3 B", "4.1 kB", "2.5 TB"]
