"""The floor of a recall, the user's own words and breadth, by the package alone."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pg_memoir_kernel import candidates as valuing
from pg_memoir_kernel.breadth import SHAPES, breadth, is_even, spread
from pg_memoir_kernel.candidates import ASSISTANT, BELOW, USER, Candidate, Floor, MemoryFacts, Told
from pg_memoir_kernel.items import IS_QUESTION, NO_SESSION, read_items
from pg_memoir_kernel.own_words import own_words_first
from pg_memoir_kernel.ranking import Ranked, as_ranked

from kernel import CONFIG, SESSION, facts_of, make_candidate, ref

OTHER = bytes([9]) * 16

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
    own_words_first(said, {1: LIKE, 2: LIKE})
    assert (own.worth, own.score, own.reason) == (0.8, 0.7, None) and echo.worth == pytest.approx(0.16)
    for vectors, columns in (
        ({1: LIKE, 2: UNLIKE}, {}), ({2: LIKE}, {}), ({1: LIKE, 2: LIKE}, {"said": 3}),
        ({1: LIKE, 2: LIKE}, {"flags": IS_QUESTION}), ({1: LIKE, 2: LIKE}, {"reason": "not active"}),
    ):  # fmt: skip
        echo, own = said = candidates(**columns)
        own_words_first(said, vectors)
        assert (own.worth, echo.worth) == (0.1, 0.8), (vectors, columns)


def test_short_question_lends_its_worth_to_its_answer() -> None:
    asked = make_candidate(4, turn=4, flags=IS_QUESTION, word_count=6, worth=0.9)
    answer = make_candidate(5, turn=5, role=ASSISTANT, worth=0.1)
    own_words_first([asked, answer], {})
    assert (asked.worth, answer.worth) == (pytest.approx(0.27), 0.9)
    longer = make_candidate(4, turn=4, flags=IS_QUESTION, word_count=7, worth=0.9)
    own_words_first([longer], {})
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
    assert is_even([turn(n, 0.5) for n in range(20)]) and not is_even([turn(n, 0.5) for n in range(19)])
    assert not is_even([turn(0, 0.99), *(turn(n, 0.1) for n in range(1, 40))]) and not is_even([])
