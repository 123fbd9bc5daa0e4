"""The kernel of a compile, by the package alone: words, times, the floor, breadth, rendering, and a recall from end to end."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pg_memoir_kernel import candidates as valuing
from pg_memoir_kernel.breadth import SHAPES, breadth, is_even, spread
from pg_memoir_kernel.candidates import ASSISTANT, BELOW, USER, Candidate, Floor, MemoryFacts, Told
from pg_memoir_kernel.items import FACTS, IS_QUESTION, NO_SESSION, ROLES, read_items, to_bytes, to_text
from pg_memoir_kernel.packing import FENCE, Line, Text, choose, reduce_turns
from pg_memoir_kernel.ranking import Ranked, as_ranked
from pg_memoir_kernel.recall import recall
from pg_memoir_kernel.rendering import FENCE as MARKS
from pg_memoir_kernel.rendering import WEAK, render
from pg_memoir_kernel.times import day_name, find_ranges, is_within, read_time, to_microseconds
from pg_memoir_kernel.words import K1, B, Scores, Words, word_scores

from kernel import DAY, SESSION, make_candidate, make_line

OTHER = bytes([9]) * 16
Postings = Mapping[str, Mapping[int, tuple[int, int]]]  # term: item: times, length


def facts_of(*rows: dict[str, Any]) -> dict[str, Any]:
    """Returns a row with the facts of turns of SESSION, or what else the rows say."""
    made = {"turn": -1, "previous": -1, "length": 40, "tokens": 10, "words": 8, "kind": b"t", "session": SESSION}
    facts = np.zeros(len(rows), FACTS)
    for n, row in enumerate(rows):
        for name, value in (made | {"ref": row["item"].to_bytes(16, "big")} | row).items():
            facts[name][n] = np.void(value) if name in ("ref", "session") else value
    return {"facts": facts.tobytes(), "projects": None, "speakers": None}


class FakeStore:
    """The user's turns of one session, {item: text}, in posting lists, and in the tail from an item on. `similar`: what
    stands in for words that occur nowhere."""

    def __init__(self, texts: dict[int, str], tail: int = 1 << 20, similar: tuple[str, ...] = ()) -> None:
        self.texts, self.tail, self.similar = texts, tail, similar
        self.words = {item: text.lower().strip(".?").split() for item, text in texts.items()}

    def rows(self, name: str, *given: Any) -> list[dict[str, Any]]:
        answers: dict[str, Any] = {
            "postings": lambda terms, letter_rows: self.lists(terms, 0, False),
            "tail_postings": lambda terms, next_item: self.lists(terms, next_item, True),
            "names_in": lambda config, query: [{"words": None}],
            "rescued": lambda terms, unknown, hidden: [{"words": list(self.similar)}],
            "items": lambda wanted, *scope: [self.facts(wanted)],
            "items_between": lambda first, last, *scope: [self.facts(range(first, last + 1))],
            "followers": lambda items: [{"items": None}],
            "turn_texts": lambda items, *rest: [{"item_no": n, "body": self.texts[n], "label": None} for n in items],
            "session_names": lambda sessions: [{"session_id": to_text(SESSION), "name": "sailing"}],
        }
        return list(answers[name](*given))

    def facts(self, numbers: Iterable[int]) -> dict[str, Any]:
        return facts_of(*(self.item(n) for n in numbers if n in self.texts))

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def lists(self, terms: list[str], first: int, is_tail: bool) -> list[dict[str, Any]]:
        def sent(values: list[int], kind: str) -> bytes:  # as array_send writes it
            pairs = [(np.dtype(kind).itemsize, value) for value in values]
            return bytes(20) + np.array(pairs, [("size", ">i4"), ("value", kind)]).tobytes()

        here = {n: words for n, words in self.words.items() if (n >= self.tail) == is_tail}
        held = {term: {n: words for n, words in here.items() if term in words} for term in terms}
        return [
            {"term": term, "first": first, "lengths": sent([len(words) for words in its.values()], ">i2"),
             "postings": sent([(n - first << 8) + words.count(term) for n, words in its.items()], ">i4")}
            for term, its in held.items() if its
        ]  # fmt: skip

    def item(self, n: int) -> dict[str, Any]:
        return {"item": n, "turn": n, "previous": n - 1, "role": USER, "created": n * DAY, "tokens": len(self.words[n])}


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
    assert isinstance(found, Scores)
    assert found.best == max(found.scores, default=0)
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


def test_no_times_are_no_ranges() -> None:
    assert find_ranges(None, 0, 1, NOW) == find_ranges(NO_TIMES, 0, 1, NOW) == []


# The floor ------------------------------------------------------------------------------------------------------------

CONFIG = {"weight_access": 0.0, "weight_authority": 0.0, "fidelity_worth": {"rest": 0.5}}
ALL = {"floor": 0.3, "share": 0.0, "own": 0, "fit": None, "valid": 0.0}
FACT = MemoryFacts("fact", True, None, None, 1.0, 1.0, 1.0, 0.0)


def rank(rows: list[dict[str, Any]], cosines: list[float] | None = None) -> Ranked:
    """Returns items by their rows; `score` is that of the ranking."""
    items = read_items(facts_of(*({k: v for k, v in row.items() if k != "score"} for row in rows)))
    ranked = as_ranked(items, [row["score"] for row in rows], 1)
    if cosines:
        ranked.cosine = np.array(cosines, np.float32)
    return ranked


def value(ranked: Ranked, **told: Any) -> list[Candidate]:
    sets: dict[str, Any] = {"frequent": frozenset(), "pinned": frozenset(), "related": frozenset(), "ceilings": {}}
    memories = {ref: FACT for kind, ref in zip(ranked.items.kind, ranked.items.ref) if kind == b"m"}
    return valuing.value(ranked, Told(**({"memories": memories} | sets | ALL | told)), CONFIG)


def shown(ranked: Ranked, **told: Any) -> dict[int, str | None]:
    """Returns {item: why it can't be shown}, best first."""
    return {c.item: c.reason for c in value(ranked, **told)}


def ref(item: int) -> bytes:
    return item.to_bytes(16, "big")


def test_floor_leaves_out_what_scores_less() -> None:
    rows = [{"item": n, "score": n / 10, "role": USER, "turn": n} for n in range(1, 6)]
    assert shown(rank(rows)) == {5: None, 4: None, 3: None, 2: BELOW, 1: BELOW}
    assert shown(rank(rows), pinned=frozenset([ref(1)])) == {1: None, 5: None, 4: None, 3: None, 2: BELOW}
    # Short turns of the user about what he asks of himself, the best of them.
    assert shown(rank(rows), floor=0.45, own=2) == {5: None, 4: None, 3: BELOW, 2: BELOW, 1: BELOW}
    assert shown(rank(rows), floor=0.9, own=2) == {5: None, 4: None, 3: BELOW, 2: BELOW, 1: BELOW}
    assert shown(rank([row | {"tokens": 101} for row in rows]), floor=0.9, own=2) == dict.fromkeys(
        (5, 4, 3, 2, 1), BELOW
    )


def test_share_is_that_of_the_second_best() -> None:
    """Items that repeat the question do not count. Without vectors that can't be told."""
    rows = [{"item": n, "score": score} for n, score in ((1, 0.9), (2, 0.8), (3, 0.5), (4, 0.35))]
    assert shown(rank(rows), share=0.6) == dict.fromkeys((1, 2, 3, 4))
    assert shown(rank(rows, [0.5] * 4), share=0.6) == {1: None, 2: None, 3: None, 4: BELOW}
    assert shown(rank(rows, [0.5] * 4), share=0.7) == {1: None, 2: None, 3: BELOW, 4: BELOW}
    frequent = frozenset([ref(3)])  # much used, so it is there whatever the question
    assert shown(rank(rows, [0.5] * 4), share=0.7, frequent=frequent) == {1: None, 2: None, 3: None, 4: BELOW}
    assert shown(rank(rows, [0.85, 0.5, 0.5, 0.5]), share=0.7) == {1: None, 2: None, 3: None, 4: None}


@pytest.mark.parametrize(("length", "share"), [(400, 0.5), (1000, 0.5), (2000, 0.125)])
def test_rest_of_a_turn_gains_from_its_best_part(length: int, share: float) -> None:
    """The less, the longer the turn is."""
    half = {"length": length // 2, "ref": ref(1)}
    rows = [{"item": 1, "score": 0.8} | half, {"item": 2, "score": 0.4, "chunk": 1, "start": length // 2} | half]
    best, rest = value(rank(rows), floor=0.5)
    assert best.worth == pytest.approx(valuing.worth(0.8)) and rest.reason == BELOW
    assert rest.worth == pytest.approx(best.worth * share)


def test_memories_are_left_out_for_what_they_are() -> None:
    rows = [{"item": n, "score": 0.8, "kind": b"m", "session": NO_SESSION} for n in range(1, 7)]
    states: list[dict[str, Any]] = [
        {},
        {"is_active": False},
        {"valid_from": 10.0},
        {"valid_to": 5.0},
        {"valid_to": 6.0},
    ]
    facts = [replace(FACT, **state) for state in states]
    told: dict[str, Any] = {"memories": {ref(n): fact for n, fact in enumerate(facts, 1)}, "valid": 5.0}
    # The sixth can't be seen at all.
    reasons = {1: None, 2: "not active", 3: "not valid at that time", 4: "not valid at that time", 5: None}
    assert shown(rank(rows), **told) == reasons
    assert shown(rank(rows), **told, ceilings={ref(5): 4}) == reasons | {5: "evicted from the session"}


def test_fit_judges_score_cosine_and_telling() -> None:
    rows = [{"item": 1, "score": 0.6}, {"item": 2, "score": 0.6}, {"item": 3, "score": 0.4}]
    ranked = rank(rows, [0.7, 0.2, 0.7])
    fit = Floor([-3.0, 1.0, 6.0, 0.0], [0.0] * 4, None, 0.0)
    assert shown(ranked, fit=fit) == {1: None, 2: BELOW, 3: None}
    assert shown(ranked, fit=fit, frequent=frozenset([ref(2)])) == {1: None, 2: None, 3: None}
    fit = Floor([-3.0, 1.0, 6.0, 1.5], [0.0] * 4, None, 0.0)
    assert shown(ranked, fit=fit)[2] is None
    ranked.telling[1] = 0
    assert shown(ranked, fit=fit)[2] == BELOW
    # Of another project less fits; what is global is of all.
    fit = Floor([-3.0, 1.0, 6.0, 0.0], [0.0] * 4, "blue", -9.0)
    ranked.items.project[:] = ["red", "global", "blue"]
    assert shown(ranked, fit=fit) == {1: BELOW, 2: BELOW, 3: None}


def test_fit_floor_is_of_questions_and_stores() -> None:
    weights = {
        "constant": 1.0,
        "score": 2.0,
        "cosine": 3.0,
        "telling": 4.0,
        "memory.score": 0.5,
        "long": -1.0,
        "size": 2.0,
    }
    config = {"relevance_fit": 0.5, "fit_weights": weights | {"telling_long": 1.0, "elsewhere": -2.0}}
    assert valuing.fit_floor(config, 9, 6, None) is None
    assert valuing.fit_floor(config | {"relevance_fit": 0}, 100, 6, None) is None
    assert valuing.fit_floor(config | {"fit_weights": None}, 100, 6, None) is None
    short = valuing.fit_floor(config, 35, 6, "blue")
    assert short == Floor([1.0, 2.0, 3.0, 4.0], [1.0, 2.5, 3.0, 4.0], "blue", -2.0)
    long = valuing.fit_floor(config, 5000, 12, None)
    assert long is not None and long.turns == pytest.approx(
        [1 - math.log(2) + 2 * math.log(400 / 35), 2, 3, 4 + math.log(2)]
    )
    strict = valuing.fit_floor(config | {"relevance_fit": 0.8}, 35, 6, None)
    assert strict is not None and strict.turns[0] == pytest.approx(1 - math.log(4))


# The user's own words -------------------------------------------------------------------------------------------------

LIKE, UNLIKE = np.array([1, 0], np.float32), np.array([0, 1], np.float32)


def test_own_words_come_before_their_echo() -> None:
    def candidates(**columns: Any) -> list[Candidate]:
        echo = make_candidate(2, role=ASSISTANT, said=2, worth=0.8, score=0.7)
        return [echo, make_candidate(1, **({"said": 1, "worth": 0.1, "score": 0.2, "reason": BELOW} | columns))]

    echo, own = said = candidates()
    valuing.own_words_first(said, {1: LIKE, 2: LIKE})
    assert (own.worth, own.score, own.reason) == (0.8, 0.7, None) and echo.worth == pytest.approx(0.16)
    for vectors, columns in (
        ({1: LIKE, 2: UNLIKE}, {}), ({2: LIKE}, {}), ({1: LIKE, 2: LIKE}, {"said": 3}),
        ({1: LIKE, 2: LIKE}, {"flags": IS_QUESTION}), ({1: LIKE, 2: LIKE}, {"reason": "not active"}),
    ):  # fmt: skip
        echo, own = said = candidates(**columns)
        valuing.own_words_first(said, vectors)
        assert (own.worth, echo.worth) == (0.1, 0.8), (vectors, columns)


def test_short_question_lends_its_worth_to_its_answer() -> None:
    asked = make_candidate(4, turn=4, flags=IS_QUESTION, word_count=6, worth=0.9)
    answer = make_candidate(5, turn=5, role=ASSISTANT, worth=0.1)
    valuing.own_words_first([asked, answer], {})
    assert (asked.worth, answer.worth) == (pytest.approx(0.27), 0.9)
    longer = make_candidate(4, turn=4, flags=IS_QUESTION, word_count=7, worth=0.9)
    valuing.own_words_first([longer], {})
    assert longer.worth == 0.9


# Breadth --------------------------------------------------------------------------------------------------------------


def turn(item: int, score: float, session: bytes = SESSION, **columns: Any) -> Candidate:
    worth = float(valuing.worth(score))
    return make_candidate(item, **({"turn": item, "session": session, "score": score, "worth": worth} | columns))


@pytest.mark.parametrize("name", SHAPES)
def test_spread_weighs_lines_by_shape(name: str) -> None:
    """First the best of each session; the answer to what matches; of a turn one part."""
    shape = SHAPES[name]
    ask, answer, further, other = turn(1, 0.7), turn(2, 0.1, role=ASSISTANT), turn(5, 0.6), turn(7, 0.6, OTHER)
    part = turn(8, 0.65, OTHER, ref=ref(7), chunk=1)
    before = {c.item: 1 / (1 + (1 / c.score - 1) ** shape.power) for c in (ask, answer, further, other, part)}
    found = spread([ask, part, further, other, answer], shape)
    assert [c.worth for c in found] == sorted((c.worth for c in found), reverse=True)
    answered = max(before[2], shape.answer * before[1])
    assert answered < before[5], "what matches more comes first in its session"
    assert ask.worth == pytest.approx(before[1])
    assert further.worth == pytest.approx(before[5] / (1 + shape.fall))
    assert answer.worth == pytest.approx(answered / (1 + 2 * shape.fall))
    assert part.worth == pytest.approx(before[8]), "the best part of its turn"
    assert other.worth == pytest.approx(before[7] * 0.1), "another part"


def test_spread_keeps_pinned_and_own_words() -> None:
    shape = breadth("order", True)
    assert shape is not None and shape.own and shape.answer == 0
    said, told = turn(1, 0.6), turn(2, 0.6, OTHER, role=ASSISTANT)
    pinned, none = turn(3, 0.1, is_pinned=True), turn(4, 0.9, worth=0.0)
    assert [c.item for c in spread([told, said, none, pinned], shape)] == [3, 1, 2, 4]
    assert told.worth == pytest.approx(said.worth * 0.2) and none.worth == 0
    assert breadth(None, True) is None and spread([], shape) == []


def test_even_worths_are_seen() -> None:
    assert is_even([turn(n, 0.5) for n in range(20)])
    assert not is_even([turn(n, 0.5) for n in range(19)])
    assert not is_even([turn(0, 0.99), *(turn(n, 0.1) for n in range(1, 40))]) and not is_even([])


# Rendering ------------------------------------------------------------------------------------------------------------


def test_recall_is_rendered() -> None:
    """Memories first, then turns by session under a header for each day; what is left out is marked."""
    new_year = 3 * 365 * DAY
    memory = make_candidate(9, kind=b"m", said=new_year)
    short = make_candidate(10, kind=b"m", chunk=1, said=new_year + DAY)
    later = [make_candidate(n, turn=n, session=OTHER, said=9 * DAY) for n in (20, 21)]
    long = [make_candidate(30 + n, turn=4, chunk=n, said=2 * DAY, ref=ref(4)) for n in range(4)]
    cut = make_candidate(40, turn=6, said=2 * DAY)
    candidates = [*later, memory, *long, short, cut]
    lines = [
        Line(n, 1, 9, 0.5, 0.1, fidelity, body, header, label)
        for n, fidelity, body, header, label in (
            (0, "full", "Hello", "10 Jan 2000, work", "user"), (1, "full", "Hi\n\nthere\r\n- x", "10 Jan 2000, work", "Ann"),
            (2, "full", "Likes tea", "Memories", ""), (7, "stub", "fact: likes…", "Memories", ""),
            (4, "full", "second", "3 Jan 2000, home", "user"), (3, "full", "first", "3 Jan 2000, home", "user"),
            (6, "full", "fourth", "3 Jan 2000, home", "user"), (8, "excerpt", "… the kiln … #6", "3 Jan 2000, home", "user"),
        )
    ]  # fmt: skip
    text = render(lines, candidates, ["buy\nmilk"], True, str)
    assert (
        text
        == f"""{MARKS[0]}{WEAK}
Working notes:
- buy
  milk
Memories:
- Likes tea (31 Dec 2002)
- fact: likes… (1 Jan 2003, stub of memory {to_text(ref(10))})
3 Jan 2000, home:
user: first
  second
  … fourth
user: … the kiln … #6
10 Jan 2000, work:
user: Hello
Ann: Hi

  there
  - x{MARKS[1]}"""
    )
    assert WEAK not in render([], [], ["note"], True, str), "notes alone are no weak matches"


def test_marks_are_disarmed() -> None:
    """Asked only of what has a character that could begin one. Characters that can't be seen go in any case."""

    def disarm(body: str) -> str:
        return body.replace("<", "(")

    def fail(body: str) -> str:
        raise AssertionError(body)

    turns = [make_candidate(1)]
    assert "user: say (memoir>" in render([make_line(0, body="say <memoir>\u200b")], turns, [], False, disarm)
    assert "user: say it…" in render([make_line(0, body="say\u200b it…\u202e")], turns, [], False, fail)
    assert "user: one\n  two\n  three" in render([make_line(0, body="one\x0ctwo\r\nthree\n")], turns, [], False, fail)


def test_long_turn_is_cut_to_its_best_sentence() -> None:
    body = "We talked about the weather for a while. The kiln needs new bricks.\nThen it grew late and we went home at last."
    long = make_candidate(1, turn=12, tokens=100)
    texts = {1: Text(body)}
    (found,) = reduce_turns([long], texts, 0.7, ["kiln", "bricks"], None)
    assert (found.body, found.fidelity) == ("… The kiln needs new bricks. … #12", "excerpt")
    assert found.share == pytest.approx(0.7 * math.sqrt(26 / len(body))) and found.tokens == 100 * 26 // len(body) + 5
    (first,) = reduce_turns([long], texts, 0.7, ["weather"], None)
    assert first.body == "We talked about the weather for a while. … #12"
    # An order of events has the first sentence, whatever was asked; a part of a turn begins in the middle.
    excerpt, stub = reduce_turns(
        [make_candidate(1, turn=12, chunk=1, tokens=100)], texts, 0.7, ["kiln"], SHAPES["order"]
    )
    assert excerpt.body == stub.body == "… We talked about the weather for a while. … #12"
    assert (excerpt.share, stub.share) == (SHAPES["order"].excerpt, SHAPES["order"].stub)
    assert reduce_turns([long], texts, 0, ["kiln"], None) == []


WORD = st.text("abcdefgh", min_size=1, max_size=4)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.lists(st.lists(WORD, min_size=1, max_size=9), min_size=1, max_size=3)), max_size=9),
    st.integers(0, 120),
    st.randoms(use_true_random=False),
)  # fmt: skip
def test_lines_stay_within_the_budget(items: list[tuple[int, list[list[str]]]], budget: int, rng: Any) -> None:
    """A token is a word here, so that costs are exact. Group 0 holds memories, others the turns of a session each."""
    candidates, lines = [], []
    for number, (group, levels) in enumerate(items):
        columns: dict[str, Any] = {"kind": b"m"} if group == 0 else {"session": bytes([group]) * 16}
        candidates.append(make_candidate(number + 1, **columns))
        before = 0
        for step, words in enumerate(sorted(levels, key=len), 1):
            cost = len(words) + (4 if group == 0 else 1)  # a dash and a date, or a label
            header = "Memories" if group == 0 else f"A day {group}"
            lines.append(
                make_line(
                    number, step=step, cost=cost - before, worth=rng.random(), body=" ".join(words), header=header,
                    group=group, opening=len(header.split()),
                )
            )  # fmt: skip
            before = cost
    places = rng.sample([line.number for line in lines], len(lines))  # in any order, but steps in theirs
    queues = {n: [line for line in lines if line.number == n] for n in places}
    ordered = [queues[n].pop(0) for n in places]
    chosen, used, is_all = choose(ordered, budget)
    assert len({ordered[n].number for n in chosen}) == len(chosen) and used <= max(budget, FENCE)
    assert not is_all or len(chosen) == len(items)
    if chosen:
        text = render([ordered[n] for n in chosen], candidates, [], False, str)
        assert len(text.split()) - len("".join(MARKS).split()) + FENCE <= used


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
    "is_small_talk": False, "is_question": True, "goes_on": False,
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


@pytest.mark.parametrize("written", ["infinity", "-infinity", "9999-12-31T23:59:59+00:00", "0001-01-01T00:00:00+00:00"])
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
