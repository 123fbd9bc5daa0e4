"""Relations with one value, by the package alone."""

from pg_memoir_language.relations import Relation, read_relation


def test_relations() -> None:
    for text, slot, value in (
        ("The chairperson of Fatah is Mahmoud Abbas.", "chairperson of fatah", "Mahmoud Abbas"),
        ("Amy Winehouse died in the city of Camden Town.", "amy winehouse died in the city of", "Camden Town"),
        ("The author of Sketches by Boz is T. S. Eliot.", "author of sketches by boz", "T. S. Eliot"),
        ("The type of music that John McVie plays is rock music.", "type of music that john mcvie plays", "rock music"),
        ("Anna's birthday is 4 May.", "anna's birthday", "4 May"),
        ("Apple was founded in 1976.", "apple was founded in (time)", "1976"),
        ("The retro takes place every Friday", "the retro takes place every", "Friday"),
    ):
        assert read_relation(text) == Relation(slot, value), text
    for text in (
        "Walter's child is Otto.",
        "The members of the band are Anna and Ben.",
        "The capital of Italy is beautiful.",
        "The capital of Italy is a city of many hills.",
        "Anna is not married to Ben.",
        "Anna is probably based in Ulm.",
        "He lives in Ulm.",
        "The former head of the club is Ada.",
        "The head of the club is Ada. She lives in Ulm.",
        "Is the head of the club Ada?",
        "I like the food in Rome.",
        "The head of the club is " + "Ada " * 60,
    ):
        assert read_relation(text) is None, text
