"""Extraction by rules: cases/statements.jsonl has which sentences become which memories, and which must not;
cases/standing.jsonl what a person says that holds from then on, for the profile. Spans, names and languages are here."""

from dataclasses import asdict
from datetime import date
from typing import Any

import pytest
from cases import extract, read_cases
from pg_memoir_language.memories import Extracted
from pg_memoir_server.reading import judge as shipped_judge


def wrong_field(case: dict[str, Any], got: Extracted) -> str | None:
    """The first field of a case that the memory does not have."""
    row = {key: str(value)[:10] if isinstance(value, date) else value for key, value in asdict(got).items()}
    row |= {"memory": got.content, "event": [row["event_from"], row["event_to"]]}
    wanted = {"valid_to": None} | {key: value for key, value in case.items() if key not in ("text", "name")}
    return next((f"{key}: {row[key]}" for key, value in wanted.items() if row[key] != value), None)


def test_statements_become_memories() -> None:
    """A case without a memory (questions, suppositions, other people's words, code, small talk) yields none."""
    cases, wrong = read_cases("statements"), []
    for case in cases:
        found = extract(case["text"], name=case.get("name"))
        if case["memory"] is None:
            wrong += [(case["text"], one.content) for one in found]
        else:
            wrong += [(case["text"], field) for one in found[:1] if (field := wrong_field(case, one))]
            wrong += [(case["text"], "nothing is found")] * (not found)
    assert len(cases) > 110 and wrong == []


def test_standing_statements_are_told_from_others() -> None:
    cases, judge = read_cases("standing"), shipped_judge("english")
    stands = {case["text"]: any(one.standing or one.slot for one in extract(case["text"], judge)) for case in cases}
    assert len(cases) > 75 and [case for case in cases if stands[case["text"]] != case["standing"]] == []


@pytest.mark.parametrize("case", read_cases("spans"))
def test_spans_are_the_sentences_as_written(case: dict[str, Any]) -> None:
    """But for the full stop, without which statements are read."""
    text, found = case["text"], sorted(extract(case["text"]), key=lambda one: one.span_start)
    spans = [text[one.span_start - 1 : one.span_start - 1 + one.span_length].rstrip(".!") for one in found]
    assert spans == [span.rstrip(".!") for span in case["spans"]]


def test_named_speaker_has_slots_of_their_own() -> None:
    (found,) = extract("I live in Ulm.", name="Mel")
    assert (found.content, found.slot) == ("Mel lives in Ulm.", "mel: home city")
    for role in ("user", "assistant"):
        first = extract("I love Bach, and my wife loves him too.", name="Mel", role=role)[0]
        assert first.content.startswith("Mel loves")
