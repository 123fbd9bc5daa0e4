"""The demo on the shipped sample: the old answer is in the list, the explanation beside it, a second run adds nothing. And on files
of one's own, in every format it names, with a question of one's own."""

import json
import re
import sys
from pathlib import Path

import pytest
from commands import output_of
from pg_memoir import Memoir

pytestmark = pytest.mark.extended

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "docs" / "start" / "demo.py"
KEY = [{"role": "user", "content": "The spare key is under the blue pot."}, {"role": "assistant", "content": "Noted."}]
SAID = [{"from": "human", "value": KEY[0]["content"]}, {"from": "gpt", "value": "Noted."}]
SHAREGPT = {"id": "s1", "conversations": SAID}
LOCOMO = {
    "sample_id": "two-friends",
    "conversation": {
        "speaker_a": "Ida", "speaker_b": "Jon", "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [{"speaker": "Ida", "dia_id": "D1:1", "text": KEY[0]["content"]}, {"speaker": "Jon", "dia_id": "D1:2", "text": "Good."}],
    },
    "qa": [{"question": "What is under the blue pot?", "answer": "the spare key", "category": 4, "evidence": ["D1:1"]}],
}  # fmt: skip
FORMATS = {
    "openai.json": json.dumps({"messages": KEY}),
    "openai.jsonl": "\n".join(
        json.dumps({"messages": messages}) for messages in (KEY, [{"role": "user", "content": "Hm"}])
    ),
    "sharegpt.json": json.dumps([SHAREGPT]),
    "sharegpt.jsonl": json.dumps(SHAREGPT) + "\n" + json.dumps({**SHAREGPT, "id": "s2"}),
    "locomo.json": json.dumps([LOCOMO]),
}


def demo(dsn, *arguments):
    return output_of([sys.executable, DEMO, "--dsn", dsn, *arguments])


def strip_times(output):
    """Without what a run has of its own: times, and the first run's embedding."""
    lines = [re.sub(r"compiled in \d+ ms", "", line) for line in output.splitlines()]
    return [line for line in lines if not line.startswith(("stored", "embedded", "nothing", "no embedder"))]


def test_demo(memoir_dsn, tmp_path):
    first, second = demo(memoir_dsn), demo(memoir_dsn)
    assert strip_times(first) == strip_times(second)
    celadon, order = first.split("ines asks: ")[1:]
    said, why = celadon.split("Why these")
    assert "60 °C per hour from 1100 to 950 °C" in " ".join(said.split()) and "celadon-cracks" in why
    text = " ".join(order.split("Why these")[0].split())
    assert "60 sets of espresso cups, is due on 11 April" in text and "three fingers" in text
    assert "is due on 28 March." not in text  # superseded
    assert all(len(line) <= 110 for line in strip_times(first))
    with Memoir(memoir_dsn) as memoir:
        assert len(memoir.history("ines", "celadon-cracks")) == 10
        assert len(memoir.recall("ines", "Lindenhof order sets cups due", kinds=["memory"])) == 1
    own = tmp_path / "own.jsonl"
    texts = ("The spare key is under the blue pot.", "Hm")
    own.write_text("\n".join(json.dumps([{"role": "user", "content": text}]) for text in texts))
    assert "blue pot" in demo(memoir_dsn, str(own), "--ask", "Where is the spare key?").split("The list to send")[1]


QUICK = ("openai.jsonl", "locomo.json")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.acceptance) for name in FORMATS]
)
def test_every_format_with_and_without_a_question(memoir_dsn, tmp_path, name):
    own = tmp_path / name.replace(".", "-own.")
    own.write_text(FORMATS[name])
    printed = " ".join(demo(memoir_dsn, str(own)).split())
    asked = "What is under the blue pot?" if name == "locomo.json" else "The spare key is under the blue pot."
    assert f"asks: {asked}" in printed and "under the blue pot" in printed.split("The list to send")[1]
    assert ("the answer should be: the spare key" in printed) == (name == "locomo.json")
    printed = demo(memoir_dsn, str(own), "--ask", "Where do we keep the key?")
    assert "asks: Where do we keep the key?" in printed and "blue pot" in printed.split("The list to send")[1]


def test_the_sample_answers_a_question_of_ones_own(memoir_dsn):
    printed = demo(memoir_dsn, "--ask", "Which cooling fixed the celadon mugs?")
    assert printed.count("asks:") == 1 and "60 °C per hour" in " ".join(printed.split())
