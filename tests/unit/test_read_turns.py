"""Turns, by the package alone: whose words they are, what requests and tools leave, and how time grows with length."""

import time

import pytest
from cases import extract, turn
from pg_memoir_language.extraction import read_turns
from pg_memoir_language.foreign import own_words
from pg_memoir_language.text import read_clauses


def test_tools_and_several_statements_of_a_turn() -> None:
    (found,) = extract("We have your order id: A-4711", role="tool", tool="shop")
    assert found.content == "Tool shop returned order id A-4711"
    found = extract("Please remember that I live in Ulm and have two sons.")
    assert [one.content for one in found] == ["User lives in Ulm.", "User has two sons."]
    said = "Don't assume I'm a beginner. I work as a nurse in Bergen and I'm allergic to latex."
    known = " ".join(one.content for one in extract(said))
    assert "nurse in Bergen" in known and "latex" in known
    denied = [one for text in ("No vivo en Madrid", "No como carne") for one in extract(text)]
    assert not any(one.slot or one.content.lower().startswith(("user: vivo", "user: como")) for one in denied)


def test_requests_to_forget_are_no_memories() -> None:
    reading = read_turns([turn("Please forget that I live in Ulm.")])
    (request,) = reading.requests
    assert reading.found == [] and (request.names, request.span_start, request.span_length) == ("I live in Ulm", 1, 33)


def test_pasted_text_is_not_the_users() -> None:
    for text in (
        "```\nI live in Ulm\n```",
        "<div>I live in Ulm</div>",
        "> I live in Ulm",
        '"I live in Ulm and I work in Bern and I like it there," she said',
        "Can you reply to this email?\n\nHello Rosa,\nI live in Ulm and I am a dentist.\nBest,\nPia",
        "[12/03/2026, 18:04] Tom: I have a cat\n[12/03/2026, 18:05] Mia: I live in Ulm now\nSummarise this chat",
        "My landlord's message: I live in Ulm and I have a cat.",
        "Anna: I am vegan and I live in Ulm.",
        "Patient record:\nI am diabetic. I live in Ulm.",
        "Interviewer: Where do you live?\nCandidate: I live in Ulm.\nIs that a good answer?",
        "I live in Ulm and I love this litter.\nCan you shorten this testimonial?",
        "Dear Rosa,\nI live in Ulm now.\nKind regards\nPia",
        "Kannst du diese Nachricht zusammenfassen?\nHallo Pia, I live in Ulm.",
    ):
        assert "live in Ulm" not in own_words(text) and len(own_words(text)) == len(text), text
    for text in (
        "Hi!\nI live in Ulm and I am a nurse.\nThanks",
        "About me:\nI live in Ulm",
        "Remember: I live in Ulm",
        "I live in Ulm. Can you translate this sentence?",
        "I live in Ulm.\n\nPlease write a reply to the restaurant.",
        "I read your message and I am happy.\nI live in Ulm now.",
    ):
        assert "live in Ulm" in own_words(text), text


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
