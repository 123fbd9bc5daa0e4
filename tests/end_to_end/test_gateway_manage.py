"""The gateway in mode manage: old tool results give way to their forms inside the client's own list, which keeps its prefix."""

import json
import re
from typing import Any

from answers import call, text
from gateways import Messages, gateway, script
from pg_memoir_gateway.dialect import make_comparable
from upstream import Upstream

STEPS = 14


def result(step: int) -> str:
    """A source file of some 2,500 tokens, each of its own."""
    return "\n".join(f"def part_{step}_{line}(value: int) -> int:\n    return value + {line}" for line in range(110))


def results(messages: list[dict[str, Any]]) -> list[Any]:
    """The tool results of a list as the model gets them, with their texts in one."""
    blocks = [b for m in messages if isinstance(m["content"], list) for b in m["content"] if b["type"] == "tool_result"]
    contents = [b["content"] for b in blocks]
    texts = [c if isinstance(c, str) else "".join(p["text"] for p in c) for c in contents]
    return [block | {"content": told} for block, told in zip(blocks, texts)]


def test_old_results_give_way_and_the_prefix_holds(model: Upstream, memoir_dsn: str, user: str) -> None:
    with gateway(memoir_dsn, model, user, mode="manage", window=32_000) as running:
        client = Messages(running, "work")
        script(model, *([call("read", f"toolu_{n}", path=f"src/part_{n}.py")] for n in range(STEPS)), [text("Done.")])
        client.say("Read the fourteen files and report.")
        for step in range(STEPS):
            running.settle()
            client.result(f"toolu_{step}", result(step))
        counts = running.counts
    asked = [request.body for request in model.asked]
    # Steps whose results are no longer in the list are lines in it, each with its call.
    gone = STEPS - len(results(asked[-1]["messages"]))
    lines = re.findall(r"- turn \d+: read src/part_(\d+).py", json.dumps(asked[-1]["messages"]))
    assert [int(step) for step in lines] == list(range(gone)) and gone < STEPS // 2
    last = [block["content"] for block in results(asked[-1]["messages"])]
    assert last[-1] == result(STEPS - 1)
    reduced = [told for step, told in enumerate(last, gone) if told != result(step)]
    # A reduced result is named, and says how to get it back; the client's own list stays whole.
    assert gone + len(reduced) >= 4 and reduced and all("memory_" in told or "object" in told for told in reduced)
    assert [block["content"] for block in results(client.list)] == [result(step) for step in range(STEPS)]
    assert len(json.dumps(asked[-1])) < 0.8 * len(json.dumps(client.list))
    assert counts.of("moves") >= len(reduced)
    assert counts.of("input_cost_tokens", list="client") != counts.of("input_cost_tokens", list="sent") > 0
    # Between moments a request begins with the bytes of the one before.
    pairs = [(before["messages"], after["messages"]) for before, after in zip(asked, asked[1:])]
    kept = sum(make_comparable(after[: len(before)]) == make_comparable(before) for before, after in pairs)
    assert kept >= STEPS // 2
    # A cache mark like the client's own stands where the changed part ended a request before.
    marked = [step for step, block in enumerate(results(asked[-1]["messages"]), gone) if "cache_control" in block]
    before = [block["content"] for block in results(asked[-2]["messages"])]
    steps = range(STEPS - 1 - len(before), STEPS - 1)
    assert marked == [max(step for step, told in zip(steps, before) if told != result(step)), STEPS - 1]
