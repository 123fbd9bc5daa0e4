"""Messages that ask nothing are ranked more by meaning, and questions as they were."""

import numpy as np
from pg_memoir_kernel.ranking import SIGNALS, weights_of

GIVEN = {
    "vector": 0.8,
    "words": 0.7,
    "memory.words": 0.1,
    "unread.vector": -0.2,
    "remark.vector": 1.0,
    "remark.words": 0.2,
}


def weight(signal: str, unread: bool, is_remark: bool) -> list[float]:
    weights = weights_of(GIVEN, 6, unread, is_remark)
    return [round(float(w), 3) for w in weights[:, SIGNALS.index(signal)]]


def test_remarks_have_weights_of_their_own() -> None:
    assert weight("vector", False, True) == [1.8] * 3 and weight("words", False, True) == [0.9, 0.9, 1.0]
    assert weight("vector", True, True) == [1.6] * 3


def test_questions_are_ranked_as_without_them() -> None:
    without = {name: w for name, w in GIVEN.items() if not name.startswith("remark.")}
    for unread in (False, True):
        assert np.array_equal(weights_of(GIVEN, 9, unread, False), weights_of(without, 9, unread, False))
