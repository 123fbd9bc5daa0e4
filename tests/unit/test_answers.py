"""A recalled question brings its answer."""

import pytest
from pg_memoir_kernel.answers import bring_answers
from pg_memoir_kernel.candidates import ASSISTANT, BELOW, USER
from pg_memoir_kernel.items import HAS_SPEAKER, IS_QUESTION

from kernel import make_candidate


def test_answer_comes_along() -> None:
    asks = make_candidate(4, turn=4, flags=IS_QUESTION, worth=0.9)
    answer = make_candidate(5, turn=5, role=ASSISTANT, worth=0.1)
    bring_answers([asks, answer])
    assert (answer.worth, answer.reason, asks.worth) == (pytest.approx(0.72), None, 0.9)


@pytest.mark.parametrize(("flags", "comes"), [(0, False), (HAS_SPEAKER, True)])
def test_named_speakers_answer_in_one_role(flags: int, comes: bool) -> None:
    asks = make_candidate(4, turn=4, flags=IS_QUESTION | flags, worth=0.9)
    answer = make_candidate(5, turn=5, role=USER, flags=flags, worth=0.1)
    bring_answers([asks, answer])
    assert (answer.worth > 0.1) is comes


def test_nothing_else_comes_along() -> None:
    """Not after a statement, nor after a question that can't be shown, nor what can't be shown itself."""
    said = make_candidate(1, turn=1, worth=0.9)
    shut = make_candidate(3, turn=3, flags=IS_QUESTION, worth=0.9, reason="stands in the list")
    asks = make_candidate(5, turn=5, flags=IS_QUESTION, worth=0.9)
    others = [make_candidate(n, turn=n, role=ASSISTANT, worth=0.1) for n in (2, 4)]
    below = make_candidate(6, turn=6, role=ASSISTANT, worth=0.1, reason=BELOW)
    bring_answers([said, shut, asks, *others, below])
    assert [c.worth for c in others] == [0.1, 0.1] and (below.worth, below.reason) == (0.1, BELOW)
