"""Two statements beside each other: when they contradict each other or say the same, and what may stand for several."""

from pg_memoir_language.compare import compare, find_condensable, find_contradiction, find_merge_problem, join_texts
from pg_memoir_language.values import _stemmer, stem


def test_contradictions() -> None:
    for one, other, kind in (
        ("Is allergic to peanuts.", "Is not allergic to peanuts.", "polarity"),
        ("Likes tea.", "The user no longer likes tea", "polarity"),
        ("Eats meat.", "Never eats meat.", "polarity"),
        ("I can swim", "I can’t swim", "polarity"),
        ("Isst Fleisch.", "Isst kein Fleisch.", "polarity"),
        ("Je mange de la viande.", "Je ne mange pas de viande.", "polarity"),
        ("No come carne.", "Come carne.", "polarity"),
        ("Он не ест мясо.", "Он ест мясо.", "polarity"),
        ("我不喜欢喝茶。", "我喜欢喝茶。", "polarity"),
        ("Loves dogs.", "Hates dogs.", "polarity"),
        ("Her birthday is on 3 March.", "Her birthday is on 4 March.", "value"),
        ("Lives in Oslo.", "Lives in Bergen.", "value"),
        ("Works at Siemens.", "Works at Bosch.", "value"),
        ("The rent is 1,200 a month", "The rent is 1,300 a month", "value"),
        ("Has two cats.", "Has three cats.", "value"),
        ("Is 41 years old", "Is 42 years old", "value"),
        ("Is born in Ulm.", "Is born in 1988.", None),
        ("Works at Siemens.", "Works for Siemens.", None),
        ("Visited Rome in 2019.", "Visited Rome in 2021.", None),
        ("My sister is called Anna.", "My sister is called Berta.", None),
        ("Likes tea.", "Likes coffee.", None),
        ("Bought 2 lamps.", "Bought 3 lamps.", None),
        ("Is not only a baker.", "Is a baker.", None),
        ("Does Tom like tea?", "Tom does not like tea.", None),
        ("Eats meat if tired.", "Does not eat meat.", None),
        ("He likes tea.", "She does not like tea.", None),
        ("Works without a lamp.", "Works with a lamp.", None),
        ("Is not allergic to nuts.", "Is not allergic to eggs.", None),
        ("Ran 5 km on Monday.", "Ran 5 km on Tuesday.", None),
        ("Lives in Oslo.", "Lived in Bergen.", None),
        ("Lived in Oslo.", "Does not live in Oslo.", None),
        ("Tom likes Ann, not Bob.", "Tom likes Bob, not Ann.", None),
        ("Another meeting is on Monday.", "Another meeting is on Friday.", None),
        ("Doesn't always eat meat.", "Always eats meat.", None),
    ):
        assert find_contradiction(one, other) == find_contradiction(other, one) == kind


def test_same_statements() -> None:
    for one, other, is_same in (
        ("Has a dog.", "Has a dog named Rex.", False),
        ("Likes hiking.", "Likes hiking with friends.", True),
        ("Likes hiking.", "Rarely likes hiking.", False),
        ("Tea over coffee.", "Coffee over tea.", False),
        ("x = a - b", "x = a b", False),
        ("Eats at noon", "He eats at noon.", False),
        ("Has the dogs", "Has a dog", True),
    ):
        assert compare(one, other).is_same is compare(other, one).is_same is is_same


def test_joined_texts() -> None:
    texts = ["Goes hiking in May.", "Goes hiking in May with Ida.", "Goes hiking in Norway.", "Plays chess."]
    assert join_texts(texts) == "Goes hiking in May with Ida; Norway. Plays chess."
    assert find_condensable(texts) == [0, 1, 2]


HIKES = ["Hikes in the Alps each summer", "Hikes with Brigida.", "Hiked 40 km around Zermatt"]
MERGED = "Hikes in the Alps each summer with Brigida, once 40 km around Zermatt."


def test_merged_texts() -> None:
    for text, covers, problem in (
        (MERGED, [0, 1, 2], None),
        ("Hikes in the Alps each summer; Brigida comes along.", [0, 1], None),
        ("Hikes in the Alps each summer with Brigida.", [0, 1, 2], '"40"'),
        ("Hikes in the Alps each summer with Brigida and Tom.", [0, 1], '"tom"'),
        ("Hikes in the Alps each summer with Brigida for 7 days.", [0, 1], '"7"'),
        ("Never hikes in the Alps each summer with Brigida.", [0, 1], '"not"'),
        (
            "Hikes in the Alps each summer with Brigida because mountains make people calm, happy, strong, kind and wise.",
            [0, 1],
            "says more",
        ),
    ):
        found = find_merge_problem(text, [HIKES[number] for number in covers], HIKES)
        assert found is None if problem is None else found and problem in found


def test_stems_never_come_from_the_library_that_postgresql_has() -> None:
    assert stem("conversations", "english") == "convers" and stem("Häuser", "german") != "Häuser"
    assert type(_stemmer("english")).__module__ == "snowballstemmer.english_stemmer", "PyStemmer breaks backends"
    assert stem("words", "simple") == "words"
