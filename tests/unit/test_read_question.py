"""Questions, by the package alone: tests/cases/questions.jsonl has what each of them is after, or is not."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "plpython"))

from pg_memoir_language.languages import script, spoken_language, text_language  # noqa: E402
from pg_memoir_language.questions import read_question  # noqa: E402

CASES = [json.loads(line) for line in (ROOT / "tests" / "cases" / "questions.jsonl").read_text("utf-8").splitlines()]


def test_cases() -> None:
    """Each case names the facts that it is about."""
    wrong = []
    for case in CASES:
        facts = read_question(case["text"])
        wrong += [(case, facts[key]) for key in case.keys() - {"text"} if facts[key] != case[key]]
    assert len(CASES) > 100 and wrong == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What did we do in May 2026?", {"dates": [(2026, 5, None)], "years": [2026]}),
        ("Where were we on 3rd of June?", {"dates": [(None, 6, 3)]}),
        ("And on June 3, 2025?", {"dates": [(2025, 6, 3)], "years": [2025]}),
        ("What happened on 2026-03-04?", {"dates": [(2026, 3, 4)], "years": [2026]}),
        ("May I ask you something?", {}),
        ("What did I say in March?", {"dates": [(None, 3, None)]}),
        ("Who came yesterday?", {"days": [1]}),
        ("What was on last week, and this month?", {"periods": [("last", "week"), ("this", "month")]}),
        ("We met 3 weeks ago", {"ago": [(3, "week")]}),
        ("The best films of 1999", {"years": [1999]}),
    ],
)
def test_times(text: str, expected: dict[str, Any]) -> None:
    times = read_question(text)["times"]
    assert {key: value for key, value in times.items() if value} == expected


def test_question_is_redacted() -> None:
    assert read_question("Is my password hunter2x safe?")["redacted"] == "Is my password (withheld) safe?"


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("I would like to know where the station is", "english"),
        ("Ich möchte wissen, wo der Bahnhof ist", "german"),
        ("¿Dónde está la estación de tren?", "spanish"),
        ("Je voudrais savoir où se trouve la gare", "french"),
        ("Onde fica a estação de comboios?", "portuguese"),
        ("Dove si trova la stazione?", "italian"),
        ("ok", "english"),
    ],
)
def test_spoken_language(text: str, language: str) -> None:
    assert spoken_language(text) == language


def test_script() -> None:
    assert [script(text) for text in ("abc", "éà", "Где", "我的", "これ", "한국", "ελ", "مرحبا")] == [
        "latin", "latin", "cyrillic", "han", "kana", "hangul", "greek", "arabic",
    ]  # fmt: skip
    assert text_language("42") == 0
