"""The gateway in mode manage: old tool results give way to their forms inside the client's own list, which keeps its prefix."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from gateways import CLAUDE, Running, gateway
from pg_memoir_gateway.dialect import make_comparable
from test_gateway_recall import MARK, say, script, user_says
from upstream import Upstream, call, text, upstream

STEPS = 14


@pytest.fixture
def model() -> Iterator[Upstream]:
    with upstream(lambda body: [text("Noted.")]) as running:
        yield running


@pytest.fixture
def manager(memoir_dsn: str, model: Upstream, user: str) -> Iterator[Running]:
    with gateway(memoir_dsn, model, user, mode="manage", database_ms=20_000, window=32_000) as running:
        yield running


def result(step: int) -> str:
    """A source file of some 2,500 tokens, each of its own."""
    return "\n".join(f"def part_{step}_{line}(value: int) -> int:\n    return value + {line}" for line in range(110))


def results(messages: list[dict[str, Any]], whole: bool = False) -> list[Any]:
    """The tool results of a list as the model gets them: their texts, or whole blocks."""
    found = []
    for message in messages:
        for block in message["content"] if isinstance(message["content"], list) else []:
            if block["type"] == "tool_result":
                content = block["content"]
                text = content if isinstance(content, str) else "".join(part["text"] for part in content)
                found.append(block if whole else text)
    return found


def test_old_results_give_way_and_the_prefix_holds(manager: Running, model: Upstream) -> None:
    client, listed = manager.anthropic("work", **CLAUDE), [user_says("Read the fourteen files and report.")]
    script(model, *([call("read", f"toolu_{n}", path=f"src/part_{n}.py")] for n in range(STEPS)), [text("Done.")])
    say(client, listed)
    for step in range(STEPS):
        listed[-2]["content"][-1].pop("cache_control")
        block = {"type": "tool_result", "tool_use_id": f"toolu_{step}", "content": result(step)}
        listed.append({"role": "user", "content": [block | MARK]})
        manager.settle()
        say(client, listed)
    asked = [request.body for request in model.asked]
    last = results(asked[-1]["messages"])
    assert len(last) == STEPS and last[-1] == result(STEPS - 1)
    reduced = [told for step, told in enumerate(last) if told != result(step)]
    # What left is named, and says how to get it back; the client's own list stays whole.
    assert len(reduced) >= 4 and all("memory_" in told or "object" in told for told in reduced)
    assert results(listed) == [result(step) for step in range(STEPS)]
    assert len(json.dumps(asked[-1])) < 0.8 * len(json.dumps(listed))
    counts = manager.counts
    assert counts.of("moves") >= len(reduced)
    assert counts.of("input_cost_tokens", list="client") != counts.of("input_cost_tokens", list="sent") > 0
    # Between moments a request begins with the bytes of the one before.
    kept = sum(
        make_comparable(after["messages"][: len(before["messages"])]) == make_comparable(before["messages"])
        for before, after in zip(asked, asked[1:])
    )
    assert kept >= STEPS // 2
    # A cache mark like the client's own stands where the changed part ended a request before.
    marked = [step for step, block in enumerate(results(asked[-1]["messages"], whole=True)) if "cache_control" in block]
    before = results(asked[-2]["messages"])
    assert marked == [max(step for step, told in enumerate(before) if told != result(step)), STEPS - 1]
