"""Changes: what a form and the judge say together. cases/changes.jsonl is read with the shipped judge."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from cases import read_cases
from pg_memoir_language.changes import Change, Earlier, Message, find_changes
from pg_memoir_language.languages import spoken_language
from pg_memoir_language.lists import find_remainder

SAID = datetime(2026, 5, 4, 9, tzinfo=UTC)


class Saying:
    """A judge that says the same of every pair."""

    def __init__(self, over: float, states: float = 1.0):
        self._over, self._states = over, states

    def over(self, pairs: Sequence[tuple[str, str]], least: Sequence[float] = ()) -> list[float]:
        return [self._over] * len(pairs)

    def states(self, texts: Sequence[str]) -> list[float]:
        return [self._states] * len(texts)


def read(old: str, new: str, judge: Any, before: int | None = None) -> list[Change]:
    language = spoken_language(new)
    earlier = [Earlier(old, spoken_language(old), SAID, before, is_near=True)]
    return find_changes(Message(new, SAID, language), earlier, judge)


def test_form_and_judge_make_it_certain() -> None:
    for old, new in (
        ("I live in Bergen", "I live in Rome"),
        ("The standup is at 9:30.", "The standup is at 10:00."),
        ("I love olives", "I can't stand olives"),
        ("My address is Oak Road 9.", "Change my address to Elm Road 4."),
        ("I play golf.", "I no longer play golf."),
    ):
        (change,) = read(old, new, Saying(0.95))
        assert (change.grade, change.start) == ("certain", 1) and change.form, old
        assert read(old, new, Saying(0.03)) == [], "a form alone"
        assert {change.grade for change in read(old, new, None)} <= {"likely"}, "without a judge"


def test_judge_alone_makes_it_likely() -> None:
    old, new = "I keep goats on the hill", "The pasture stands empty since spring"
    (change,) = read(old, new, Saying(0.95), before=2)
    assert (change.grade, change.form) == ("likely", None) and read(old, new, Saying(0.6), before=2) == []


def test_another_thing_is_never_certain() -> None:
    for old, new in (
        ("My red bike has 21 gears.", "My blue bike has 8 gears."),
        ("My sister lives in Oslo.", "My ex lives in Rome now."),
        ("My left eye has -2.5 dioptres.", "My right eye has -3 dioptres."),
        ("My dentist in Vienna is Dr Moser.", "I moved to Vienna"),
    ):
        assert all(change.grade != "certain" for change in read(old, new, Saying(0.99))), old


def test_list_keeps_its_rest() -> None:
    tongues = "I speak French, Dutch and Frisian"
    for old, new, ended, rest in (
        ("I am allergic to nuts and cats.", "I am not allergic to cats.", "cats", "User is allergic to nuts."),
        ("I have two cats, Miso and Tofu.", "Miso died last night.", "Miso", "User has one cat, Tofu."),
        (tongues, "I no longer speak Dutch.", "Dutch", "User speaks French and Frisian."),
    ):
        (change,) = read(old, new, Saying(0.95))
        assert (old[change.start - 1 : change.start - 1 + change.length], change.remainder) == (ended, rest)
    for new in ("No ibuprofen and no metformin any more.", "I take nothing any more."):
        assert find_remainder("I take ibuprofen and metformin.", new, "english") is None, new


def test_questions_pastes_and_captions_state_nothing() -> None:
    for old in ("Do I live in Bergen?", "[image: I live in Bergen]", "Translate this: I live in Bergen"):
        assert read(old, "I moved to Rome", Saying(0.99), before=1) == [], old
    assert read("Long time no talk!", "Actually, long time no talk now.", Saying(0.99, states=0.05)) == []
    assert read("I live in Bergen", "I live in Rome", Saying(0.95, states=0.35))[0].grade == "certain"


def test_shipped_judge_on_all_cases(tmp_path: Any) -> None:
    """Of corrections most are certain; of messages that change nothing none is. docs/explain/extraction.md has the grades."""
    from pg_memoir_server.judge import Judge

    judge, certain, cases = Judge(tmp_path), {True: 0, False: 0}, read_cases("changes")
    for case in cases:
        found = read(case["old"], case["new"], judge)
        certain[case["changed"]] += any(change.grade == "certain" for change in found)
    of = sum(case["changed"] for case in cases)
    print(f"certain: {certain[True]} of {of} corrections, {certain[False]} of {len(cases) - of} others")
    assert certain[False] == 0 and certain[True] >= 0.5 * of
