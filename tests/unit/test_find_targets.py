"""Requests to forget, by the package alone: what they name, and what they mean among earlier texts and memories."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pg_memoir_language.forgetting import Remembered, Targets, find_forgotten
from pg_memoir_language.requests import find_requests
from pg_memoir_language.text import read_clauses


class Meaning:
    """A judge to which the statements with a word are meant."""

    def __init__(self, *words: str):
        self._words = words

    def targets(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        return [0.9 if any(word in said for word in self._words) else 0.1 for said, _ in pairs]


def named(text: str, language: str = "english") -> list[str]:
    return [request.names for request in find_requests(read_clauses(text, language), language)]


def meant(
    request: str, *earlier: str, judge: Meaning | None = None, memories: Sequence[Remembered] = ()
) -> tuple[Targets, list[str]]:
    (found,) = find_requests(read_clauses(request, "english"), "english")
    said = [(text, True) for text in earlier]
    targets = find_forgotten(found.names, found.said, found.is_all, "english", request, said, memories, judge)
    return targets, [earlier[of][start - 1 : start - 1 + length] for of, start, length in targets.spans]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("please forget my locker code", ["my locker code"]),
        ("Forget my shoe size... no, hang on, keep it.", []),
        ("the salary I mentioned, please forget that", ["salary"]),
        ("don't forget the milk", []),
        ("oh forget it, it works again", []),
    ],
)
def test_what_a_request_names(text: str, names: list[str]) -> None:
    assert [name.removeprefix("the ") for name in named(text)] == names


def test_words_find_the_target() -> None:
    targets, spans = meant("please forget my locker code", "my locker code is 3382", "my swim course is on Wednesdays")
    assert (targets.outcome, spans, targets.values) == ("clear", ["my locker code is 3382"], ("3382",))


def test_values_are_found_where_they_are_repeated() -> None:
    said = ["my locker code is 33821", "remember 33821 for tomorrow. I like tea."]
    targets, spans = meant("please forget my locker code", *said)
    assert spans == ["my locker code is 33821", "remember 33821 for tomorrow."]


def test_two_things_that_fit_are_left_alone() -> None:
    said = "Meeting with Ines is on the 9th, meeting with Raul is on the 11th"
    for judge in (None, Meaning("Ines")):
        assert meant("forget the meeting", said, judge=judge)[0].outcome == "unclear"
    two = ("my locker code is 3382", "my gym locker code is 7714")
    assert meant("please forget my locker code", *two)[0].outcome == "unclear"
    assert meant("please forget my locker code", *two, judge=Meaning("locker"))[0].outcome == "unclear"


def test_the_judge_finds_what_words_do_not() -> None:
    said = ("I see Dr. Amsel on Fridays", "I play handball on Mondays")
    assert meant("please forget my appointment with the therapist", *said)[0].outcome == "nothing"
    targets, spans = meant("please forget my appointment with the therapist", *said, judge=Meaning("Amsel"))
    assert (targets.outcome, spans) == ("clear", ["I see Dr. Amsel on Fridays"])


def test_a_slot_and_a_memory_are_found() -> None:
    pay = Remembered("User takes home 3,850 a month.", "income", "3,850 a month")
    targets, spans = meant("please forget my salary", "I take home 3,850 a month", memories=[pay])
    assert (targets.outcome, spans, targets.memories) == ("clear", ["I take home 3,850 a month"], (0,))
    kept = Remembered("The cellar key hangs behind the freezer.")
    assert meant("please forget the cellar key", memories=[kept])[0].memories == (0,)
    assert (
        meant("please forget the cellar key", memories=[kept, Remembered("The cellar key is blue.")])[0].outcome
        == "unclear"
    )


def test_all_of_a_person_goes() -> None:
    said = ("my ex Dominik still has my drill", "I play handball", "Dominik snores")
    targets, spans = meant("Can you forget everything I told you about Dominik?", *said)
    assert (targets.outcome, set(spans)) == ("clear", {said[0], said[2]})
