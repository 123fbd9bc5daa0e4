"""Requests to forget, by the package alone: what they name and what they mean among earlier texts and memories.
cases/forgetting.jsonl has what was said, the request, and what must go; without that nothing may."""

import json
from collections.abc import Sequence

import pytest
from cases import extract, read_cases
from pg_memoir_language.forgetting import Remembered, Targets, find_forgotten
from pg_memoir_language.languages import spoken_language
from pg_memoir_language.requests import find_requests
from pg_memoir_language.text import read_clauses
from pg_memoir_server.reading import judge as shipped_judge
from pg_memoir_server.reading import read_context


class Meaning:
    """A judge to which the statements with a word are meant."""

    def __init__(self, *words: str):
        self._words = words

    def means(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        return [0.9 if any(word in said for word in self._words) else 0.1 for said, _ in pairs]


def targets_of(request: str, said: list[str], memories: Sequence[Remembered], judge: Meaning | None) -> list[Targets]:
    language = spoken_language(request)
    earlier = [(text, True) for text in said]
    found = find_requests(read_clauses(request, language), language)
    of = (language, request, earlier, memories, judge)
    return [find_forgotten(one.names, one.said, one.is_all, *of) for one in found]


def spans_of(said: Sequence[str], targets: Targets) -> list[str]:
    return [said[of][start - 1 : start - 1 + length] for of, start, length in targets.spans]


def meant(
    request: str, *said: str, judge: Meaning | None = None, memories: Sequence[Remembered] = ()
) -> tuple[Targets, list[str]]:
    (targets,) = targets_of(request, list(said), memories, judge)
    return targets, spans_of(said, targets)


def test_cases() -> None:
    wrong = []
    for case in read_cases("forgetting"):
        said = [case["said"], "On Mondays I play squash"]
        known = [Remembered(one.content, one.slot, one.slot_value) for text in said for one in extract(text)]
        found = targets_of(case["request"], said, known, shipped_judge(spoken_language(case["request"])))
        gone = [text for one in found for text in spans_of(said, one)]
        gone += [known[number].content for one in found for number in one.memories]
        is_right = not gone if case["gone"] is None else any(case["gone"] in text for text in gone)
        if not is_right or any("squash" in text for text in gone):
            wrong.append((case, gone))
    assert len(read_cases("forgetting")) > 45 and wrong == []


def test_request_names_its_matter() -> None:
    for text, names in (
        ("please forget my locker code", ["my locker code"]),
        ("Forget my shoe size... no, hang on, keep it.", []),
        ("the salary I mentioned, please forget that", ["salary"]),
        ("don't forget the milk", []),
        ("Let's forget the Burren, it's too far, and look at Glendalough", []),
        ("forget squamish, its gonna rain. lets do bishop", []),
        ("Let's forget about my gym code", ["my gym code"]),
        ("Forget Mary's phone number. We can do it later.", ["Mary's phone number"]),
        ("oh forget it, it works again", []),
    ):
        found = find_requests(read_clauses(text, "english"), "english")
        assert [request.names.removeprefix("the ") for request in found] == names


def test_words_find_the_target_and_repeated_values() -> None:
    said = ("my locker code is 33821", "remember 33821 for tomorrow. I like tea.", "my swim course is on Wednesdays")
    targets, spans = meant("please forget my locker code", *said)
    assert (targets.outcome, targets.values) == ("clear", ("33821",))
    assert spans == ["my locker code is 33821", "remember 33821 for tomorrow."]


def test_two_that_fit_equally_are_left_alone() -> None:
    for request_, said, judge in (
        ("forget the meeting", ["Meeting with Ines is on the 9th, meeting with Raul is on the 11th"], None),
        ("forget the meeting", ["Meeting with Ines is on the 9th, meeting with Raul is on the 11th"], Meaning("Ines")),
        ("please forget my locker code", ["my locker code is 3382", "my gym locker code is 7714"], None),
        ("please forget my locker code", ["my locker code is 3382", "my gym locker code is 7714"], Meaning("locker")),
    ):
        assert meant(request_, *said, judge=judge)[0].outcome == "unclear"


def test_judge_finds_what_words_do_not() -> None:
    said = ("I see Dr. Amsel on Fridays", "I play handball on Mondays")
    assert meant("please forget my appointment with the therapist", *said)[0].outcome == "nothing"
    targets, spans = meant("please forget my appointment with the therapist", *said, judge=Meaning("Amsel"))
    assert (targets.outcome, spans) == ("clear", ["I see Dr. Amsel on Fridays"])


def test_slots_and_memories_are_found() -> None:
    pay = Remembered("User takes home 3,850 a month.", "income", "3,850 a month")
    targets, spans = meant("please forget my salary", "I take home 3,850 a month", memories=[pay])
    assert (targets.outcome, spans, targets.memories) == ("clear", ["I take home 3,850 a month"], (0,))
    keys = [Remembered("The cellar key hangs behind the freezer."), Remembered("The cellar key is blue.")]
    assert meant("please forget the cellar key", memories=keys[:1])[0].memories == (0,)
    assert meant("please forget the cellar key", memories=keys)[0].outcome == "unclear"


def test_all_of_a_person_goes() -> None:
    said = ("my ex Dominik still has my drill", "I play handball", "Dominik snores")
    targets, spans = meant("Can you forget everything I told you about Dominik?", *said)
    assert (targets.outcome, set(spans)) == ("clear", {said[0], said[2]})


@pytest.mark.parametrize(
    ("language", "names", "text", "said", "forgotten"),
    [
        ("english", "", "What I told you in June, don't hold on to it please, any of it.",
         {"2026-06-10": "I am seeing a therapist in Ghent.", "2026-03-02": "I am seeing a physio in Bruges."},
         ["I am seeing a therapist in Ghent."]),
        ("english", "tattoo", "my tattoo", {"2026-06-10": "I drive a blue Volvo."}, []),
        ("german", "mein tattoo", "Vergiss mein Tattoo.", {"2026-06-10": "Ich fahre einen blauen Volvo."}, []),
    ],
)  # fmt: skip
def test_what_the_shipped_judges_take_a_request_for(
    language: str, names: str, text: str, said: dict[str, str], forgotten: list[str]
) -> None:
    earlier = [
        {"text": one, "role": "user", "said_at": f"{day}T09:00:00+00:00", "unit": {"span_start": 1}}
        for day, one in said.items()
    ]
    request = {
        "no": 1, "names": names, "said": f"forget {names}", "is_all": False, "language": language, "text": text,
        "said_at": "2026-08-01T09:00:00+00:00", "earlier": earlier, "memories": [], "is_free": not names,
    }  # fmt: skip
    (read,) = read_context(json.dumps({"turns": [], "requests": [request]}))["requests"]
    assert [unit["said"] for unit in read["units"]] == forgotten
