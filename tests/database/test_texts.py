"""Texts of all scripts and sizes: stored whole, cut without loss, found by a part of a sentence, in time that grows with their size."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import psycopg
import pytest
from calls import ANSWER, CALL, USER, call, history, store
from psycopg.types.json import Jsonb

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
    "decomposed": ("Das Cafe\u0301 Mu\u0308ller hat geo\u0308ffnet", "Café Müller"),
    "full width": ("ＰＯＳＴＧＲＥＳ の設定を変えました", "postgres"),
    "astral": ("𠀀𠀁𠀂𠀃𠀄𠀅", "𠀂𠀃"),
    "one character": ("我们昨天喝了很多茶然后去旅行。", "茶"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_part_of_a_sentence_finds_it(db: psycopg.Connection, user: str, name: str) -> None:
    text, part = TEXTS[name]
    others = [words for other, (words, _) in TEXTS.items() if other != name]
    store(db, user, "s", [{"role": "user", "content": t} for t in (*others, text)])
    call(db, "remember", p_user=user, p_content=text)
    found = db.execute("select kind, content from memoir.recall(%s, %s, p_limit => 2)", [user, part]).fetchall()
    assert sorted(found) == [("memory", text), ("turn", text)]
    assert [m["content"] for m in history(db, user, "s")] == [*others, text]


def random_text(rng: random.Random, length: int) -> str:
    """Stretches of all kinds: prose, no spaces at all, only spaces, scripts, long runs of one character."""
    alphabets = [
        "abcdefghij  .",
        "ab.\n",
        " ",
        "x",
        "我们今天讨论。了预算",
        "กขคงจฉชซ",
        "😀👍🏽",
        "е\u0301ё\u0308",
        "0123456789abcdef",
        "\u0000"[:0] + "\t\r\n ",
        "word word. Word? ",
        '{"a": [1, 2]}',
    ]
    out = ""
    while len(out) < length:
        alphabet = rng.choice(alphabets)
        size = rng.choice([1, 5, 50, 400, 3000, 20000])
        out += "".join(rng.choices(alphabet, k=size)) if rng.random() < 0.7 else alphabet * (size // len(alphabet) + 1)
    return out[:length]


def test_the_end_of_a_long_text_is_what_right_has(db: psycopg.Connection) -> None:
    rng = random.Random(4)
    for number in range(60):
        text, count = random_text(rng, rng.choice([0, 5, 300, 9000])), rng.choice([1, 7, 200, 1000])
        blank = rng.choice(["", "? ", "？" + " \n" * 1500, " " * 3000, "?x"])
        same, question = db.execute(
            "select _memoir.tail(t, n) = right(t, n), _memoir.is_question(t) = (t ~ '[?？؟]\\s*$') from (values (%s, %s)) v(t, n)",
            [text + blank, count],
        ).fetchone()
        assert same and question, (number, len(text), count, blank[:3])


def test_chunks_cover_a_text_without_gap_or_overlap(db: psycopg.Connection) -> None:
    rng = random.Random(11)
    many = 0
    for number in range(120):
        text = random_text(
            rng,
            rng.choice(
                [0, 1, 63, 64, 65, 500, 2000, 5000, 16383, 16385, 40000, 70000, 140000 if number % 6 == 0 else 900]
            ),
        )
        size = rng.choice([32, 120, 200, 2000])
        spans = db.execute(
            "select span_start, span_length, piece, tokens from _memoir.chunks(%s, %s)", [text, size]
        ).fetchall()
        many += len(spans) > 1
        assert "".join(piece for _, _, piece, _ in spans) == text
        end = 1
        for start, length, piece, tokens in spans:
            assert start == end and length == len(piece) and tokens >= 0 and (length > 0 or text == "")
            end = start + length
    assert many > 40


@pytest.mark.parametrize("size", [32, 120, 500])
def test_chunks_have_about_the_wanted_size(db: psycopg.Connection, size: int) -> None:
    """In every script, and where a text goes from a cheap one to a dear one; not less than 64 characters, though."""
    prose, chinese = "The kiln was hot. It cooled at night, " * 300, "我们昨天在会议上讨论了明年的预算，" * 300
    for text in (
        prose,
        chinese,
        " " * 9000,
        "😀👍🏽" * 900,
        "Rf2LYYQcrIevuP6n/i6R" * 500,
        prose + chinese,
        chinese + prose,
    ):
        pieces = [piece for (piece,) in db.execute("select piece from _memoir.chunks(%s, %s)", [text, size])]
        costs = [db.execute("select memoir.estimate_tokens(%s)", [piece]).fetchone()[0] for piece in pieces]
        # Only in the block where they meet is the dear script cut by the measure of the cheap one.
        assert len([1 for piece, cost in zip(pieces, costs) if len(piece) > 64 and cost > 1.5 * size]) <= (
            12 if "h" in text and "我" in text else 0
        ), (text[:20], costs)
        assert sum(costs) / len(costs) > size / 3


def test_chunks_end_with_sentences(db: psycopg.Connection) -> None:
    for text, ends in (
        ("The kiln was hot. It cooled at night! Was it? ", (". ", "! ", "? ")),
        ("茶が好きです。本も好きです！", ("。", "！")),
        ("key: value\n", ("\n",)),
    ):
        pieces = [piece for (piece,) in db.execute("select piece from _memoir.chunks(%s, 100)", [text * 200])]
        assert len(pieces) > 5 and all(piece.endswith(ends) for piece in pieces)


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("prose", "The kiln was hot on day 17 and cooled at night. "),
        pytest.param("japanese", "来週の会議は横浜で行われる予定です。", marks=pytest.mark.acceptance),
        pytest.param("base64", "Rf2LYYQcrIevuP6n/i6R6ycicuI7Rr+cbCE1PnLBzg", marks=pytest.mark.acceptance),
    ],
)
def test_megabytes_are_stored_and_found(db: psycopg.Connection, user: str, name: str, unit: str) -> None:
    needle = "Der Schlüssel liegt unter dem blauen Blumentopf."
    text = unit * (600_000 // len(unit.encode()))
    text = text[: len(text) * 2 // 3] + " " + needle + " " + text[len(text) * 2 // 3 :]
    store(
        db,
        user,
        "s",
        [
            USER,
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call_1", "content": text},
            ANSWER,
        ],
    )
    assert history(db, user, "s")[2]["content"] == text
    call(db, "remember", p_user=user, p_content=text, p_type="document_chunk")
    db.execute("call memoir.run_job('scan')")  # the middle of a large output
    # The best part of each is the one that says it; what lies beside it in the same text comes after.
    found = db.execute("select kind, content from memoir.recall(%s, 'Blumentopf', p_limit => 10)", [user]).fetchall()
    for kind in ("memory", "turn"):
        content = next(content for its, content in found if its == kind)
        assert "Blumentopf" in content and len(content) < 3000, kind


@pytest.mark.acceptance
def test_work_of_a_write_grows_with_its_size_not_faster(db: psycopg.Connection, user: str) -> None:
    """Four times the text may take eight times the processor; were it quadratic, sixteen."""
    backend = Path(f"/proc/{db.info.backend_pid}/stat")

    def seconds(session: str, messages: list[dict[str, Any]]) -> float:
        def used() -> float:
            return sum(map(int, backend.read_text().rpartition(")")[2].split()[11:13])) / os.sysconf("SC_CLK_TCK")

        start = used()
        store(db, user, session, messages)
        return used() - start

    text = "The kiln was hot on day 17; 茶が好きです。 It cooled at night. " * 1500
    assert seconds("large", [USER | {"content": text * 4}]) < 8 * seconds("small", [USER | {"content": text}]) + 0.5
    many = [USER | {"content": text[:1500]}]
    assert seconds("many", many * 240) < 8 * seconds("few", many * 60) + 0.5


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("Error E-2047 came up when I started the dryer.", "E2047"),
        ("Error E2047 came up when I started the dryer.", "E-2047"),
        ("Ticket HRN-7731 is about the lift.", "7731"),
        ("Ring the plumber on 555-0142.", "0142"),
    ],
)
def test_codes_by_their_parts(db: psycopg.Connection, user: str, said: str, asked: str) -> None:
    for text in ("The kitchen tap drips again.", said, "On 2026-05-04 the choir sings from 9-11."):
        db.execute("select memoir.persist_turn(%s, 's', %s)", [user, Jsonb([{"role": "user", "content": text}])])
    [found] = db.execute("select content from memoir.recall(%s, %s, p_limit => 1)", [user, asked]).fetchone()
    assert found == said
    assert db.execute("select _memoir.code_words('on 2026-05-04 from 9-11', true)").fetchone() == ([],)
