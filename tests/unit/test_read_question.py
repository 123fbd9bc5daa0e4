"""Questions, by the package alone: cases/questions.jsonl has what each of them is after, or is not."""

from cases import read_cases
from pg_memoir_language.languages import script, text_language
from pg_memoir_language.questions import read_question


def test_cases() -> None:
    """Each case names the facts that it is about."""
    wrong = []
    for case in read_cases("questions"):
        facts = read_question(case["text"])
        wrong += [(case, facts[key]) for key in case.keys() - {"text"} if facts[key] != case[key]]
    assert len(read_cases("questions")) > 50 and wrong == []


def test_times() -> None:
    for text, expected in (
        ("What did we do in May 2026?", {"dates": [(2026, 5, None)], "years": [2026]}),
        ("Where were we on 3rd of June?", {"dates": [(None, 6, 3)]}),
        ("And on June 3, 2025?", {"dates": [(2025, 6, 3)], "years": [2025]}),
        ("What happened on 2026-03-04?", {"dates": [(2026, 3, 4)], "years": [2026]}),
        ("May I ask you something?", {}),
        ("What did I say in March?", {"dates": [(None, 3, None)]}),
        ("Who came yesterday?", {"days": [1]}),
        ("What was on last week, and this month?", {"periods": [("last", "week"), ("this", "month")]}),
        ("We met 3 weeks ago", {"ago": [(3, "week")]}),
        ("And a fortnight ago? Or two months ago?", {"ago": [(2, "week"), (2, "month")]}),
        ("A couple of days ago", {"ago": [(2, "day")]}),
        ("Who rang the day before yesterday?", {"days": [2]}),
        ("What was on last night?", {"days": [1]}),
        ("Who came on Friday, and last Monday?", {"weekdays": [(-1, 4), (-1, 0)]}),
        ("What is on Thursday week?", {"weekdays": [(1, 3)]}),
        ("And a week on Monday?", {"weekdays": [(1, 0)]}),
        ("Who swims on Sunday mornings?", {}),
        ("What did I read in the last three days, or the past week?", {"within": [(3, "day"), (1, "week")]}),
        ("What did we do last weekend?", {"periods": [("last", "weekend")]}),
        ("The best films of 1999", {"years": [1999]}),
    ):
        times = read_question(text)["times"]
        assert {key: value for key, value in times.items() if value} == expected


def test_question_is_redacted() -> None:
    assert read_question("Is my password hunter2x safe?")["redacted"] == "Is my password (withheld) safe?"


def test_script() -> None:
    assert [script(text) for text in ("abc", "éà", "Где", "我的", "これ", "한국", "ελ", "مرحبا")] == [
        "latin", "latin", "cyrillic", "han", "kana", "hangul", "greek", "arabic",
    ]  # fmt: skip
    assert text_language("42") == 0
