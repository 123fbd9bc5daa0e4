"""Turns, by the package alone: whose words they are, what rules make of them, and how time grows with their length."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "plpython"))

from pg_memoir_language.extraction import find_memories
from pg_memoir_language.memories import Turn
from pg_memoir_language.text import own_words, read_clauses

MONDAY = datetime(2023, 5, 8, 9, 0, tzinfo=UTC)


def turn(text: str, role: str = "user", name: str | None = None, tool: str | None = None) -> Turn:
    return Turn(text, role, name, MONDAY, "english", tool)


@pytest.mark.parametrize(
    ("text", "contents"),
    [
        ("Hey! I moved to Ulm last month.", ["User moved to Ulm in April 2023."]),
        ("I'm flying to Rome next Tuesday.", ["User is flying to Rome on 16 May 2023."]),
        ("Please don't use emojis.", ["User asks: Please don't use emojis."]),
        ("If I lived in Rome, would I need a car?", []),
        ("Thanks a lot!", []),
    ],
)
def test_what_is_said_becomes_memories(text: str, contents: list[str]) -> None:
    assert [one.content for one in find_memories([turn(text)], [])] == contents


def test_named_speakers_and_tools() -> None:
    found = find_memories(
        [turn("I moved to Ulm last month.", name="Ida"), turn("order id: A-4711", "tool", tool="shop")], []
    )
    assert [one.content for one in found] == ["Ida moved to Ulm in April 2023.", "Tool shop returned order id A-4711"]


def test_requests_to_forget_are_no_memories() -> None:
    text = "Please forget that I live in Ulm."
    assert find_memories([turn(text)], [(1, 1, len(text))]) == []


@pytest.mark.parametrize(
    "text",
    [
        "```\nI live in Ulm\n```",
        "<div>I live in Ulm</div>",
        "> I live in Ulm",
        "Translate this: I live in Ulm",
        '"I live in Ulm and I work in Bern and I like it there," she said',
    ],
)
def test_words_of_others_are_blanked(text: str) -> None:
    assert "live in Ulm" not in own_words(text) and len(own_words(text)) == len(text)


UNITS = [
    '<p class="x">', "<div>", '"so it is ', "``` ", "x = f();\n", "> quoted\n", "| x |\n", "a.b ", "a", "I like tea. ",
    "No, ", "my ", "it's ", "1. ", "(", ", and I live in Ulm", "He said: ", "2024-01-01 00:00 ", "select a from b\n", "\n",
]  # fmt: skip


@pytest.mark.parametrize("unit", UNITS)
def test_time_grows_with_length_alone(unit: str) -> None:
    """A text five times as long takes at most ten times as long, or less than half a second."""

    def seconds(size: int) -> float:
        text = "I love Ulm.\n" + unit * (size // len(unit))
        start = time.process_time()
        read_clauses(text, "english")
        find_memories([turn(text)], [])
        return time.process_time() - start

    seconds(1000)
    short, long = seconds(20_000), seconds(100_000)
    assert long < max(0.5, 10 * short), (short, long)
