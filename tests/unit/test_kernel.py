"""The kernel of a compile, by the package alone: items, words, times, and a recall from end to end."""

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pg_memoir_kernel.arrays import distinct, group, is_among
from pg_memoir_kernel.candidates import BELOW
from pg_memoir_kernel.items import ROLES, read_items, to_bytes, to_text
from pg_memoir_kernel.recall import recall
from pg_memoir_kernel.rendering import FENCE as MARKS
from pg_memoir_kernel.searching import words_of
from pg_memoir_kernel.times import day_name, find_ranges, is_within, read_time, read_zone, to_microseconds
from pg_memoir_kernel.vectors import vector_scores
from pg_memoir_kernel.words import K1, B, Scores, Words, word_scores

from kernel import CONFIG, FakeStore, ref

Postings = Mapping[str, Mapping[int, tuple[int, int]]]  # term: item: times, length


# Items ----------------------------------------------------------------------------------------------------------------

INT4, INT8 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
SMALL, ID = st.integers(0, 2**15 - 1), st.binary(min_size=16, max_size=16)
# One item as {facts} of queries.sql puts it together, in its order.
LAYOUT = [
    *((name, ">i4", INT4) for name in ("item", "turn", "previous", "start", "length", "tokens")),
    *((name, ">i2", SMALL) for name in ("chunk", "words")),
    ("role", ">i2", st.integers(0, len(ROLES) - 1)), ("flags", ">i2", st.integers(0, 15)),
    ("kind", "S1", st.sampled_from([b"t", b"m", b"s"])), ("created", ">i8", INT8), ("recorded", ">i8", INT8),
    ("ref", "V16", ID), ("session", "V16", ID),
]  # fmt: skip


@given(st.lists(st.tuples(*(values for *_, values in LAYOUT)), max_size=5, unique_by=lambda row: row[0]), st.booleans())
def test_items_are_read_as_they_are_written(rows: list[tuple[Any, ...]], is_named: bool) -> None:
    sent = b"".join(
        np.array(np.void(value) if kind == "V16" else value, kind).tobytes()
        for row in rows
        for value, (_, kind, _) in zip(row, LAYOUT)
    )
    named = [f"name {row[0]}" for row in rows] if is_named else None
    items = read_items({"facts": sent or None, "projects": named, "speakers": named})
    rows.sort()
    for place, (name, *_) in enumerate(LAYOUT):
        assert list(getattr(items, name)) == [row[place] for row in rows], name
    assert items.project == [f"name {row[0]}" if is_named else "global" for row in rows]
    assert items.speaker == [f"name {row[0]}" if is_named else None for row in rows]
    assert [to_bytes(to_text(ref)) for ref in items.ref] == items.ref


NUMBERS = st.lists(st.integers(-5, 20), max_size=12).map(lambda its: np.array(its, np.int64))


@given(NUMBERS, NUMBERS)
def test_arrays_agree_with_numpy(numbers: np.ndarray, others: np.ndarray) -> None:
    once, place = np.unique(numbers, return_inverse=True)
    for made, expected in (
        ((distinct(numbers),), (once,)), (group(numbers), (once, place)),
        ((is_among(numbers, others),), (np.isin(numbers, others),)),
    ):  # fmt: skip
        assert [its.tolist() for its in made] == [its.tolist() for its in expected]


# Words ----------------------------------------------------------------------------------------------------------------

DOCUMENTS = {
    1: "the red kayak", 2: "a kayak and a kayak paddle", 3: "paddle slowly on the wide lake", 4: "bread",
    6: "red bread with red jam", 7: "secret kayak",
}  # fmt: skip


def ask(
    terms: list[str], hidden: tuple[int, ...] = (), store: FakeStore | None = None, **more: Any
) -> dict[int, tuple[float, float, float]]:
    """Returns score, cover and telling of each item that is found; best first."""
    store = store or FakeStore(DOCUMENTS)
    given = {"common": [], "forms": [], "form_of": [], "kindred": [], "kindred_of": []} | more
    seen = [words for item, words in store.words.items() if item not in hidden]
    counters = {"letter_rows": 1, "tail_items": sum(n >= store.tail for n in store.texts), "next_item": 9}
    words = Words(terms, config="english", query=" ".join(terms), **given)
    found = word_scores(store, words, counters, len(seen), sum(map(len, seen)), np.array(hidden, np.int64))
    assert isinstance(found, Scores) and found.best == max(found.scores, default=0)
    return {
        item: tuple(numbers)
        for item, *numbers in zip(*(column.tolist() for column in (found.items, found.scores, found.covers, found.tellings)))
    }  # fmt: skip


def bm25_by_hand(postings: Postings, items: int, total_words: int, missing: int = 0) -> dict[int, list[float]]:
    """Returns score, cover and telling by the formulas. `missing`: words of the question that no item has."""
    found: dict[int, list[float]] = {}
    idfs = {term: math.log(1 + (items - len(its) + 0.5) / (len(its) + 0.5)) for term, its in postings.items()}
    whole = sum(idfs.values()) + missing * math.log(1 + (items + 0.5) / 0.5)
    for term, its in postings.items():
        for item, (times, length) in its.items():
            score = found.setdefault(item, [0.0, 0.0, 0.0])
            score[0] += idfs[term] * (K1 + 1) * times / (times + K1 * (1 - B + B * length / (total_words / items)))
            score[1] += idfs[term] / whole
            score[2] = max(score[2], min(1, idfs[term] / math.log(1 + (items - 0.5) / 1.5)))
    return found


def assert_alike(found: Mapping[int, tuple[float, ...]], expected: Mapping[int, list[float]]) -> None:
    assert set(found) == set(expected)
    for item, numbers in expected.items():
        assert found[item] == pytest.approx(numbers, abs=1e-4), item
    assert list(found) == sorted(expected, key=lambda item: (-round(expected[item][0], 4), item))


@pytest.mark.parametrize("tail", [1 << 20, 3, 0])
def test_words_are_scored_by_bm25(tail: int) -> None:
    """Rare words and short texts count more; the same from merged lists and from the tail."""
    red, kayak = {1: (1, 3), 6: (2, 5)}, {1: (1, 3), 2: (2, 6), 7: (1, 2)}
    found = ask(["red", "kayak"], store=FakeStore(DOCUMENTS, tail))
    assert_alike(found, bm25_by_hand({"red": red, "kayak": kayak}, 6, 23))
    assert found[7][0] > found[2][0] * 0.5 and found[1][1] == pytest.approx(1)


def test_hidden_items_count_for_nothing() -> None:
    """They are not found, and the document frequency of their words is that of the others."""
    expected = bm25_by_hand({"kayak": {1: (1, 3), 2: (2, 6)}}, 5, 21)
    assert_alike(ask(["kayak"], hidden=(7,)), expected)
    assert ask(["secret"], hidden=(7,)) == {}
    without = {item: text for item, text in DOCUMENTS.items() if item != 7}
    assert ask(["red", "kayak"], hidden=(7,)) == ask(["red", "kayak"], store=FakeStore(without))


def test_common_words_tell_nothing() -> None:
    found = ask(["red", "kayak"], common=["red"])
    assert found[6][2] == 0 and found[1][2] > 0
    assert [found[6][0], found[1][0]] == [ask(["red", "kayak"])[item][0] for item in (6, 1)]


def test_english_takes_the_place_of_another_language() -> None:
    english = {"words": ["buch", "welches"], "terms": [["book", "novel", "june"], ["june"]]}
    asked = {"terms_widened": ["buch", "melani", "welches"], "facts": {"english": english}, "language": 1}
    words = words_of({**QUESTION, **asked})
    assert words.terms == ["melani", "book", "june"] and (words.forms, words.form_of) == (["novel"], ["book"])
    words = words_of({**QUESTION, **asked, "language": 2})  # texts in that language are there
    assert words.terms == ["buch", "melani", "welches"] and words.forms == []


def test_unknown_words_lower_the_cover() -> None:
    expected = bm25_by_hand({"jam": {6: (1, 5)}}, 6, 23, missing=1)
    assert_alike(ask(["jam", "ukulele"]), expected)
    assert ask(["ukulele"]) == {}


def test_similar_word_stands_in_for_a_misspelt_one() -> None:
    store = FakeStore(DOCUMENTS, similar=("kayak",))
    found = ask(["kajak"], store=store)
    assert {item: numbers[0] for item, numbers in found.items()} == {
        item: numbers[0] for item, numbers in ask(["kayak"]).items()
    }
    # Of short words something similar is always there: it tells nothing.
    assert [numbers[2] for numbers in found.values()] == [0, 0, 0]
    # Beside words that are found, only names may be misspelt.
    assert set(ask(["bread", "kajak"], store=store)) == {4, 6}


def test_forms_of_a_word_are_one_word() -> None:
    """An item that holds several forms holds the word as often as the most frequent of them."""
    store = FakeStore({1: "mouse here", 2: "mice there too", 3: "mice mice mouse", 4: "cat"})
    expected = bm25_by_hand({"mouse": {1: (1, 2), 2: (1, 3), 3: (2, 3)}}, 4, 9)
    assert_alike(ask(["mouse"], store=store, forms=["mice"], form_of=["mouse"]), expected)


def test_kindred_words_count_as_once_in_a_longer_text() -> None:
    """Of several lexemes an item must hold all."""
    store = FakeStore({1: "my boat", 2: "a kayak kayak", 3: "boat kayak", 4: "paddle", 5: "board paddle", 6: "tea"})
    kindred = {"kindred": ["kayak", "paddle board"], "kindred_of": ["boat", "boat"]}
    # The text counts as twice its length and three words; where the word itself is there, as it is.
    expected = bm25_by_hand({"boat": {1: (1, 2), 2: (1, 9), 3: (1, 2), 5: (1, 7)}}, 6, 11)
    found = ask(["boat"], store=store, **kindred)
    assert_alike(found, expected)
    assert found[1][0] > found[2][0] and 4 not in found


# Times ----------------------------------------------------------------------------------------------------------------

NOW = datetime(2026, 6, 17, 15, 30, tzinfo=UTC)  # a Wednesday
NO_TIMES: dict[str, Any] = {"dates": [], "days": [], "periods": [], "ago": [], "years": []}


def at(year: int, month: int, day: int) -> int:
    return to_microseconds(datetime(year, month, day, tzinfo=UTC))


@pytest.mark.parametrize(
    ("named", "ranges"),
    [
        ({"dates": [(2025, 12, None)]}, [((2025, 12, 1), (2026, 1, 1))]),
        # A month without year is that of every year of the items.
        ({"dates": [(None, 3, None)]}, [((y, 3, 1), (y, 4, 1)) for y in (2024, 2025, 2026)]),
        # A day reaches ten days on: people tell later what they did.
        ({"dates": [(2026, 6, 3)]}, [((2026, 6, 2), (2026, 6, 14))]),
        ({"dates": [(2026, 3, 1)]}, [((2026, 2, 28), (2026, 3, 12))]),
        ({"dates": [(2026, 13, None), (2026, 2, 32)]}, []),
        ({"days": [1]}, [((2026, 6, 16), (2026, 6, 17))]),
        ({"days": [0]}, [((2026, 6, 17), (2026, 6, 18))]),
        ({"periods": [("last", "week")]}, [((2026, 6, 8), (2026, 6, 15))]),
        ({"periods": [("this", "week")]}, [((2026, 6, 15), (2026, 6, 22))]),
        ({"periods": [("last", "month"), ("last", "year")]}, [((2026, 5, 1), (2026, 6, 1)), ((2025, 1, 1), (2026, 1, 1))]),
        ({"ago": [(4, "day")]}, [((2026, 6, 11), (2026, 6, 15))]),
        ({"ago": [(4, "week")]}, [((2026, 5, 12), (2026, 5, 28))]),
        ({"ago": [(4, "month")]}, [((2026, 1, 16), (2026, 3, 18))]),
        ({"ago": [(2, "month")]}, [((2026, 4, 1), (2026, 5, 3))]),
        ({"ago": [(4, "year")]}, [((2021, 6, 16), (2023, 6, 18))]),
        # On Friday: the last one. Friday week: a week after the next one.
        ({"weekdays": [(-1, 4)]}, [((2026, 6, 12), (2026, 6, 13))]),
        ({"weekdays": [(-1, 2), (1, 3)]}, [((2026, 6, 10), (2026, 6, 11)), ((2026, 6, 25), (2026, 6, 26))]),
        ({"within": [(3, "day")]}, [((2026, 6, 14), (2026, 6, 18))]),
        ({"periods": [("last", "weekend"), ("this", "weekend")]}, [((2026, 6, 13), (2026, 6, 15)), ((2026, 6, 20), (2026, 6, 22))]),
        # Years only count where nothing closer is named.
        ({"years": [2025]}, [((2025, 1, 1), (2026, 1, 1))]),
        ({"years": [2026], "days": [1]}, [((2026, 6, 16), (2026, 6, 17))]),
        ({"years": [0, 9999]}, []),
    ],
)  # fmt: skip
def test_times_are_ranges(named: dict[str, Any], ranges: list[Any]) -> None:
    found = find_ranges(NO_TIMES | named, at(2024, 5, 1), at(2026, 6, 1), NOW)
    assert found == [(at(*start), at(*end)) for start, end in ranges]
    inside = [start for start, _ in found] + [end - 1 for _, end in found]
    assert all(is_within(inside, found))
    assert not any(is_within([bound for start, end in found for bound in (start - 1, end)], found))


def test_question_about_a_day_alone_means_that_day() -> None:
    times = NO_TIMES | {"dates": [(2026, 6, 3)], "ago": [(4, "day")]}
    assert find_ranges(times, 0, 0, NOW, UTC, True) == [
        (at(2026, 6, 3), at(2026, 6, 4)),
        (at(2026, 6, 13), at(2026, 6, 14)),
    ]


@pytest.mark.parametrize(
    ("zone", "start", "end"),
    [
        ("Asia/Tokyo", "2026-06-16T15:00:00+00:00", "2026-06-17T15:00:00+00:00"),  # there it is the 18th already
        ("America/New_York", "2026-06-16T04:00:00+00:00", "2026-06-17T04:00:00+00:00"),
        ("+09:00", "2026-06-16T15:00:00+00:00", "2026-06-17T15:00:00+00:00"),
        ("Nowhere/At_All", "2026-06-16T00:00:00+00:00", "2026-06-17T00:00:00+00:00"),
    ],
)
def test_yesterday_is_that_of_a_time_zone(zone: str, start: str, end: str) -> None:
    found = find_ranges(NO_TIMES | {"days": [1]}, 0, 0, NOW, read_zone(zone))
    assert found == [(to_microseconds(read_time(start)), to_microseconds(read_time(end)))]


def test_day_has_the_length_of_its_zone() -> None:
    """The clocks of Berlin go back on 25 October 2026."""
    after = datetime(2026, 10, 26, 9, tzinfo=UTC)
    ((start, end),) = find_ranges(NO_TIMES | {"days": [1]}, 0, 0, after, read_zone("Europe/Berlin"))
    assert end - start == 25 * 3600 * 1_000_000
    assert day_name(at(2026, 6, 17), read_zone("America/New_York")) == "16 Jun 2026"


def test_no_times_are_no_ranges() -> None:
    assert find_ranges(None, 0, 1, NOW) == find_ranges(NO_TIMES, 0, 1, NOW) == []


def test_user_of_many_items_without_vectors() -> None:
    """Before the job has made any, words find what there is."""

    class Bare(FakeStore):
        def rows(self, name: str, *given: Any) -> list[dict[str, Any]]:
            return {"packed_signs": [], "signs": [{"items": None, "signs": None}], "distances": [{"keys": None}]}[name]

    settings = {"exact_vectors_max": 10, "sign_candidates": 3}
    none = np.zeros(0, np.int64)
    assert vector_scores(Bare({}), np.ones(384, np.float32), "", 1, settings, 5000, none, none, 60) is None


# From end to end ------------------------------------------------------------------------------------------------------

SETTINGS = CONFIG | {
    "relevance_floor": 0.2, "relevance_share": 0, "relevance_fit": 0, "fit_weights": None, "own_question_turns": 0,
    "small_talk_words": 0, "small_talk_cosine": 0, "strength_weights": None, "weak_below": 0, "weak_recall_tokens": 60,
    "rank_weights": {"constant": -2.0, "words": 4.0}, "project_global": 1, "project_same": 1, "project_other": 1,
    "type_weights": {}, "half_life_days": {},
}  # fmt: skip
QUESTION: dict[str, Any] = {
    "query": "Where is the kayak?", "terms": ["kayak"], "terms_widened": ["kayak"], "common": [], "forms": [],
    "form_of": [], "kindred": [], "kindred_of": [], "config": "english", "model": None, "facts": {}, "unread": False,
    "language": 1, "is_small_talk": False, "is_question": True, "goes_on": False,
}  # fmt: skip
SCOPE = dict.fromkeys(("kinds", "projects", "as_of", "valid_at", "said_after", "said_before")) | {
    "hidden_sessions": [], "hidden_from": 0, "reduced": [], "local_sessions": [], "clearance": "secret",
}  # fmt: skip


def test_recall_from_end_to_end() -> None:
    texts = {
        1: "The kayak lies in the boathouse.",
        2: "the kayak lies in the boathouse!",
        3: "I bake bread.",
        5: "Kayak.",
    }
    counters = {"items": 4, "total_words": 16, "features": [], "next_item": 6, "letter_rows": 1, "tail_items": 0,
        "memories": 0, "related": False}  # fmt: skip
    asked = {
        "question": QUESTION, "counters": counters, "scope": SCOPE, "limit": 20, "frequent": 5, "project": None,
        "now": "2000-01-09T00:00:00+00:00", "pins": {"pinned": [], "ceilings": None}, "is_waiting": False, "budget": 200,
        "profile": [], "standing": [], "said": "... Kayak ...", "hidden": [], "working": ["look there"], "is_explained": True,
    }  # fmt: skip
    found = recall(FakeStore(texts), asked, json.dumps(SETTINGS), None)
    text = f"""{MARKS[0]}Working notes:
- look there
2 Jan 2000, sailing:
user: The kayak lies in the boathouse.{MARKS[1]}"""
    assert found.result["text"] == text and found.result["tokens"] == len(text.split())
    assert found.result["shown"] == [to_text(ref(1))] and found.result["candidates"] == len(found.items)
    assert found.rows is not None
    reasons = {row["item_no"]: row["reason"] for row in found.rows}
    # A neighbour joins a match, and is below the floor.
    assert reasons == {1: None, 2: "a copy of another candidate", 3: BELOW, 5: "stands in the list"}
    named = [None if n is None else found.trace["reason_names"][n] for n in found.trace["reasons"]]
    assert dict(zip(found.items, named)) == reasons
    assert [len(column) for name, column in found.trace.items() if name != "reason_names"] == [4] * 10
    # Without room there is no block; what is not explained has no rows.
    small = recall(FakeStore(texts), asked | {"budget": 5, "is_explained": False}, json.dumps(SETTINGS), None)
    assert small.result["text"] is None and small.result["shown"] == [] and small.rows is None


@pytest.mark.parametrize(
    "written",
    [
        "infinity",
        "-infinity",
        "9999-12-31T23:59:59+00:00",
        "9999-12-31T23:59:59-10:00",
        "12000-01-01T00:00:00+00:00",
        "0001-01-01T00:00:00+00:00",
        "0001-01-01T00:00:00+00:41",
        "0044-03-15T00:00:00+00:00 BC",
    ],
)
def test_times_beyond_all_calendars(written: str) -> None:
    times = {
        "dates": [(None, 2, 30)],
        "days": [1],
        "periods": [("last", "week"), ("this", "year")],
        "ago": [(999, "year")],
        "years": [9999],
    }
    ranges = find_ranges(times, 0, 0, read_time(written))
    assert len(ranges) == 5 and all(start < end for start, end in ranges)
    assert day_name(1 << 62).endswith("9999") and day_name(-(1 << 62)).endswith(" 1")
