"""Classes of questions have ranking weights of their own: messages that ask nothing, other languages than English."""

import numpy as np
from pg_memoir_kernel.ranking import SIGNALS, classes_of, weights_of
from pg_memoir_kernel.sounds import sounds_like

GIVEN = {
    "vector": 0.8,
    "words": 0.7,
    "memory.words": 0.1,
    "unread.vector": -0.2,
    "remark.vector": 1.0,
    "remark.words": 0.2,
}


def weight(signal: str, *classes: str) -> list[float]:
    weights = weights_of(GIVEN, 6, classes)
    return [round(float(w), 3) for w in weights[:, SIGNALS.index(signal)]]


def test_remarks_have_weights_of_their_own() -> None:
    assert weight("vector", "remark") == [1.8] * 3 and weight("words", "remark") == [0.9, 0.9, 1.0]
    assert weight("vector", "unread", "remark") == [1.6] * 3


def test_questions_are_ranked_as_without_them() -> None:
    without = {name: w for name, w in GIVEN.items() if not name.startswith("remark.")}
    for classes in ([], ["unread"]):
        assert np.array_equal(weights_of(GIVEN, 9, classes), weights_of(without, 9, classes))


def test_other_languages_are_ranked_more_by_meaning() -> None:
    """A question in English among German texts as well, which are in the user's only language."""

    def asked(language: int, written: str, unread: bool = False) -> list[str]:
        return classes_of({"unread": unread, "language": language, "facts": {"language": written}})

    assert asked(2, "german") == asked(2, "english") == asked(1, "german") == ["other"]
    assert asked(1, "english") == asked(1, "simple") == asked(0, "english") == []
    assert asked(26, "hindi", unread=True) == ["unread"]


def test_names_of_other_scripts_sound_like_speakers() -> None:
    for name, words in (
        ("Caroline", ("kyarorain", "Kerolayn", "kaerollainieun", "karwlyn")),
        ("Jon", ("jiyon", "Dzhon", "jon")),
        ("Gina", ("ji-na", "Dzhiny")),
        ("Calvin", ("karubin", "Kelvin")),
    ):
        assert all(sounds_like(name, word) for word in words), name
    for name, word in (("Jon", "ji-na"), ("Gina", "Dzhon"), ("Caroline", "karin"), ("Maria", "merani-"), ("Al", "al")):
        assert not sounds_like(name, word), (name, word)
