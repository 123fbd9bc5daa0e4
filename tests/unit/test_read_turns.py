"""Turns, by the package alone: whose words they are, what rules make of them, and how time grows with their length."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "plpython"))

from pg_memoir_language.extraction import read_turns
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
    assert [one.content for one in read_turns([turn(text)]).found] == contents


def test_named_speakers_and_tools() -> None:
    found = read_turns(
        [turn("I moved to Ulm last month.", name="Ida"), turn("order id: A-4711", "tool", tool="shop")]
    ).found
    assert [one.content for one in found] == ["Ida moved to Ulm in April 2023.", "Tool shop returned order id A-4711"]


def test_requests_to_forget_are_no_memories() -> None:
    text = "Please forget that I live in Ulm."
    reading = read_turns([turn(text)])
    assert reading.found == [] and [(r.names, r.span_start, r.span_length) for r in reading.requests] == [
        ("I live in Ulm", 1, 33)
    ]


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


@pytest.mark.parametrize(
    "text",
    [
        "Can you reply to this email?\n\nHello Rosa,\nI live in Ulm and I am a dentist.\nBest,\nPia",
        "[12/03/2026, 18:04] Tom: I have a cat\n[12/03/2026, 18:05] Mia: I live in Ulm now\nSummarise this chat",
        "My landlord's message: I live in Ulm and I have a cat.",
        "Anna: I am vegan and I live in Ulm.",
        "Patient record:\nI am diabetic. I live in Ulm.",
        "Interviewer: Where do you live?\nCandidate: I live in Ulm.\nIs that a good answer?",
        "My friend texted me: I live in Ulm now.",
        "Can you shorten this testimonial?\nI live in Ulm and I love this litter.",
        "I live in Ulm and I love this litter.\nCan you shorten this testimonial?",
        "Dear Rosa,\nI live in Ulm now.\nKind regards\nPia",
        "Kannst du diese Nachricht zusammenfassen?\nHallo Pia, I live in Ulm.",
    ],
)
def test_pasted_texts_are_told_by_structure(text: str) -> None:
    assert "live in Ulm" not in own_words(text) and len(own_words(text)) == len(text)


@pytest.mark.parametrize(
    "text",
    [
        "Hi!\nI live in Ulm and I am a nurse.\nThanks",
        "About me:\nI live in Ulm",
        "Remember: I live in Ulm",
        "Update: I live in Ulm now",
        "I live in Ulm. Can you translate this sentence?",
        "I live in Ulm.\n\nPlease write a reply to the restaurant.",
        "I read your message and I am happy.\nI live in Ulm now.",
    ],
)
def test_what_is_not_pasted_stays(text: str) -> None:
    assert "live in Ulm" in own_words(text)


@pytest.mark.parametrize(
    ("text", "contents"),
    [
        ("Remember that I'm allergic to bees.", ["User is allergic to bees."]),
        ("Remember: the gate code is 4455.", ["User: The gate code is 4455."]),
        ("Please remember that I live in Ulm and have two sons.", ["User lives in Ulm.", "User has two sons."]),
        ("Change my address to Elm Road 4.", ["User's address is Elm Road 4."]),
        ("Update that I'm not a fan of musicals to I am a fan of musicals.", ["User is a fan of musicals."]),
        ("Remember when we went to Rome?", []),
        ("can you remember my name?", []),
    ],
)
def test_the_frame_of_a_request_goes(text: str, contents: list[str]) -> None:
    assert [one.content for one in read_turns([turn(text)]).found] == contents


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
        read_turns([turn(text)])
        return time.process_time() - start

    seconds(1000)
    short, long = seconds(20_000), seconds(100_000)
    assert long < max(0.5, 10 * short), (short, long)
