"""An agent works for hundreds of steps on a small window, and still answers from its third: a scripted model that has only
what the list shows it, and memory's tools."""

import json
import random
import re
from typing import Any

import pytest
from loops import code, step, text_of
from pg_memoir import Memoir, ToolCall
from request_rules import unpaired
from servers import unique

pytestmark = pytest.mark.extended

QUESTION = "What is the breaker of the kiln room rated?"
FACT = "the breaker of the kiln room is rated 63 amperes (label KX-4481)"


class Model:
    """Reads files until it is asked something; then it answers from the list or asks memory_query, as it was told it may."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.step = 0

    def answer(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        shown = "\n".join(map(text_of, messages))
        newest = messages[-1]
        asked = QUESTION in text_of(newest)
        found = re.search(r"breaker of the kiln room is rated (\d+ amperes)", shown)
        if found and (asked or newest["role"] == "tool" and "memory" in newest["tool_call_id"]):
            return {"role": "assistant", "content": f"It is rated {found[1]}."}
        self.step += 1
        name, arguments = "Read", {"file_path": f"src/part_{self.step}.py"}
        if asked:
            name, arguments = "memory_query", {"question": QUESTION}
        return step(f"{name}_{self.step}", name, arguments, "")[0]


def run(dsn: str, steps: int) -> tuple[str, list[str]]:
    """What it answers at last, and what was wrong with any list on the way."""
    model, wrong = Model(1), []
    with Memoir(dsn) as memoir:
        session = memoir.session(unique("agent"), "s", context_window=32_000, response_tokens=2_000)
        session.append([{"role": "user", "content": "Find out why the import is slow."}])
        while model.step < steps:
            if model.step % 5 == 0 or steps - model.step < 5:
                made = session.context(None)
                wrong += unpaired(made["messages"]) + ["over the budget"] * (made["tokens"] > made["budget"])
                messages = made["messages"]
            answer = model.answer([*messages[:1], {"role": "tool", "tool_call_id": "none", "content": "go on"}])
            text = code(model.step, 1_500)
            if model.step == 3:
                text += f"\n# note: {FACT}\n" + code(9_999, 600)
            call = answer["tool_calls"][0]
            session.append([answer, {"role": "tool", "tool_call_id": call["id"], "content": text}])
        session.append([{"role": "assistant", "content": "It is the parser."}, {"role": "user", "content": QUESTION}])
        for _ in range(3):
            answer = model.answer(session.context(None)["messages"])
            if not answer.get("tool_calls"):
                return answer["content"], wrong
            call = answer["tool_calls"][0]
            arguments = json.loads(call["function"]["arguments"])
            session.append([answer, session.run_tool(ToolCall(call["id"], call["function"]["name"], arguments))])
    return "", wrong


@pytest.mark.parametrize("steps", [60, pytest.param(1000, marks=pytest.mark.acceptance)])
def test_an_agent_answers_from_its_third_step(memoir_dsn: str, steps: int) -> None:
    answer, wrong = run(memoir_dsn, steps)
    assert not wrong and answer == "It is rated 63 amperes."
