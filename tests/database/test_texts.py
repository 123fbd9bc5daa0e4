"""Texts of all scripts and sizes are stored whole, found by a part of a sentence, and cost what their length costs."""

import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from calls import ANSWER, CALL, USER, Db, call, history, persist, recalled, remember, run_job, store, table
from cases import read_cases
from fuzz_text import SHAPES, text_of
from routines import all_routines, code, values_for
from servers import unique

TEXTS = {
    "thai": ("ฉันชอบดื่มชาเขียวทุกเช้าและเดินเล่นในสวนสาธารณะใกล้บ้าน", "ชาเขียว"),
    "chinese": ("我们昨天在会议上讨论了明年的预算和新的旅行计划。", "旅行计划"),
    "japanese": ("来週の会議は横浜で行われる予定ですので、早めに出発します。", "横浜で行われる"),
    "korean": ("다음 주 회의는 부산에서 열릴 예정입니다.", "부산에서"),
    "khmer": ("ខ្ញុំចូលចិត្តផឹកតែបៃតងនៅពេលព្រឹក", "តែបៃតង"),
    "arabic": ("أحب شرب الشاي الأخضر كل صباح في الحديقة", "الشاي الأخضر"),
    "hebrew": ("אני אוהב לשתות תה ירוק כל בוקר", "תה ירוק"),
    "mixed directions": ("The \u202eterces\u202c word is \u2067شمس\u2069 for the gate", "شمس"),
    "emoji": ("Party 🎉🎂 with 👩‍👩‍👧‍👦 on the rooftop 🏳️‍🌈 tonight", "rooftop"),
    "one emoji": ("My desert 🌵 grows, and so does the rest.", "🌵"),
    "flag": ("We land in 🇮🇸 at noon, then 👍🏽.", "🇮🇸"),
    "skin tone": ("She said 👋🏿 to me.", "👋"),
    "decomposed": ("Das Cafe\u0301 Mu\u0308ller hat geo\u0308ffnet", "Café Müller"),
    "full width": ("ＰＯＳＴＧＲＥＳ の設定を変えました", "postgres"),
    "astral": ("𠀀𠀁𠀂𠀃𠀄𠀅", "𠀂𠀃"),
    "one character": ("我们昨天喝了很多茶然后去旅行。", "茶"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_part_of_a_sentence_finds_it(db: Db, user: str, name: str) -> None:
    text, part = TEXTS[name]
    said = [words for other, (words, _) in TEXTS.items() if other != name] + [text]
    store(db, user, "s", [{"role": "user", "content": words} for words in said])
    remember(db, user, text)
    found = table(db, "recall", user, part, limit=2, columns="kind, content")
    assert sorted(found) == [("memory", text), ("turn", text)]
    assert [m["content"] for m in history(db, user, "s")] == said


NUMBERS = [
    "On 2026-05-04 the choir sings from 9-11.", "I have 12 chairs and 3 tables.", "Gate B-12 is closed.", "Row F-12 has the good seats.",
    "I ran 5-12 km a day.", "The bus number 47 was late.", "In 2025-26 we moved twice.", "He paid 550 euros.", "Our bay is C-12-03.",
]  # fmt: skip


@pytest.mark.parametrize("case", read_cases("codes"), ids=lambda case: case["said"][:40])
def test_codes_are_found_however_written(db: Db, user: str, case: dict[str, Any]) -> None:
    persist(db, user, "s", *NUMBERS, case["said"])
    found = {asked: recalled(db, user, asked, limit=1) for asked in case["asked"]}
    assert found == dict.fromkeys(case["asked"], [case["said"]])


def test_small_numbers_find_no_codes(db: Db, user: str) -> None:
    persist(db, user, "s", *NUMBERS, *(case["said"] for case in read_cases("codes")))
    assert recalled(db, user, "12 chairs", limit=1) == [NUMBERS[1]]
    assert not {NUMBERS[2], NUMBERS[3], NUMBERS[8]} & set(recalled(db, user, "12", limit=2))
    assert recalled(db, user, "550 euros", limit=1) == [NUMBERS[7]]
    assert recalled(db, user, "bus 47", limit=1) == [NUMBERS[5]]


slow = pytest.mark.acceptance


@pytest.mark.parametrize(
    "unit",
    [
        "The kiln was hot on day 17 and cooled at night. ",
        pytest.param("来週の会議は横浜で行われる予定です。", marks=slow),
        pytest.param("Rf2LYYQcrIevuP6n/i6R6ycicuI7Rr+cbCE1PnLBzg", marks=slow),
    ],
)
def test_megabytes_are_stored_and_found(db: Db, user: str, unit: str) -> None:
    """The best part of each is the one that says it; what lies beside it in the same text comes after."""
    half = unit * (300_000 // len(unit.encode()))
    text = f"{half} Der Schlüssel liegt unter dem blauen Blumentopf. {half}"
    step = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    store(db, user, "s", [USER, step, {"role": "tool", "tool_call_id": "call_1", "content": text}, ANSWER])
    assert history(db, user, "s")[2]["content"] == text
    remember(db, user, text, type="document_chunk")
    run_job(db, "scan")  # the middle of a large output
    found = table(db, "recall", user, "Blumentopf", limit=10, columns="kind, content")
    for kind in ("memory", "turn"):
        content = next(content for its, content in found if its == kind)
        assert "Blumentopf" in content and len(content) < 3000, kind


@pytest.mark.parametrize("asked", ["Who is my mechanic?", "Who is Fiorella?", "Do I know a Zanetti?"])
def test_name_amid_a_long_message_is_shown(db: Db, user: str, asked: str) -> None:
    half = "".join(f"Line {n}: the pump ran at {n % 97} percent and nothing odd was seen.\n" for n in range(600))
    persist(db, user, "s", f"Here is my log.\n{half}My mechanic is called Fiorella Zanetti.\n{half}")
    for n, text in enumerate(NUMBERS):
        persist(db, user, f"s{n}", text)
    assert "Fiorella Zanetti" in str(call(db, "compile_context", user, "asking", asked))


@pytest.mark.parametrize("shape", ["<", '"', pytest.param("你", marks=slow)])
def test_megabytes_of_one_shape_are_read(db: Db, user: str, shape: str) -> None:
    text = text_of(shape, 3_000_000 // len(shape.encode()))
    db.execute("set statement_timeout = '60s'")
    persist(db, user, "s", text)
    assert call(db, "extract_session", user, "s")["left"] == 0
    recalled(db, user, text)


RUNS: dict[str, Callable[[int], object]] = {
    "text": lambda length: "x" * length,
    "text[]": lambda length: ["x" * length],
    "bytea": bytes,
    "bytea[]": lambda length: [bytes(length)],
}
"""A run of one character, by the type of an argument."""


def test_arguments_of_any_length_are_linear(db: Db) -> None:
    """Every text of every function for applications: eight times the length takes far less than 64 times as long."""
    db.execute("set statement_timeout = '60s'; set client_min_messages = error")
    odd, tried = [], 0
    for routine in all_routines(db).values():
        is_public = (routine.schema, routine.kind) == ("memoir", "f")
        if not is_public or "app" not in routine.roles or routine.name == "erase_user":
            continue
        values = values_for(routine, db, unique("long"))
        for name in [name for name, kind in routine.arguments.items() if kind in RUNS]:
            times = []
            for length in (100_000, 800_000):
                begun = time.monotonic()
                long = values | {name: RUNS[routine.arguments[name]](length)}
                if (state := code(lambda: routine.call(db, long))) and state[:2] != "PM":
                    odd.append((routine.name, name, length, state))
                times.append(time.monotonic() - begun)
            tried += 1
            if times[1] > 24 * max(times[0], 0.1):
                odd.append((routine.name, name, *times))
    assert odd == [] and tried > 200


@pytest.mark.extended
@slow
@pytest.mark.parametrize("sentence", ["lorem ipsum ", "今日は大変良い天気です。"])
def test_text_of_fifteen_megabytes_is_found(db: Db, user: str, sentence: str) -> None:
    """Its chunks are numbered by a smallint."""
    persist(db, user, "s", sentence * (15_000_000 // len(sentence.encode())) + "The vault is called HRN-7731-QX.")
    assert "HRN-7731-QX" in str(recalled(db, user, "Which vault, HRN-7731-QX?"))


@slow
@pytest.mark.parametrize("shape", SHAPES)
def test_long_texts_of_every_shape_are_read(db: Db, user: str, shape: str) -> None:
    text = text_of(shape, 1_000_000)
    db.execute("set statement_timeout = '60s'")
    persist(db, user, "s", text, text)
    call(db, "extract_session", user, "s")
    if text.strip():
        recalled(db, user, text)
    assert (code(lambda: remember(db, user, text)) or "PM").startswith("PM")


@pytest.mark.parametrize("given", ["functions.look:2-38-2", "é 3", "a/b#4", "月.1", "..::"])
def test_ids_cost_what_the_dearer_format_sends(db: Db, user: str, given: str) -> None:
    """Anthropic's format replaces characters of an id, which can cost more tokens than they did."""
    asked = {"role": "user", "content": "Look."}
    for session, spelt in (("given", given), ("sent", re.sub("[^a-zA-Z0-9_-]", "_", given))):
        asking = {"id": spelt, "type": "function", "function": {"name": "look", "arguments": "{}"}}
        calling = {"role": "assistant", "content": None, "tool_calls": [asking]}
        persist(db, user, session, asked, calling, {"role": "tool", "tool_call_id": spelt, "content": "A bell."})
    stored, sent = (call(db, "context", user, session)["tokens"] for session in ("given", "sent"))
    assert stored >= sent
    assert stored - sent <= 2 * 4 * len(given), "no more than its pieces"
