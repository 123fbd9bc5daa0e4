"""Which lasting wishes a message takes back, and what is played in scenes: a judge that always agrees shows what forms hold
back."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from cases import extract, turn
from pg_memoir_language.changes import Change, Earlier, Message
from pg_memoir_language.scenes import MOST_MESSAGES, REST, without_scenes
from pg_memoir_language.untrue import blank_untrue, without_untrue
from pg_memoir_language.wish_changes import Wish, as_change, find_wish_changes, with_wishes


class Agreeing:
    """Takes every wish that holds a word for over, and every text with "always" or "each" for a wish, "now" for half of
    one."""

    def __init__(self, *over: str, chance: float = 0.9):
        self._over, self._chance = over, chance

    def wishes(self, texts: Sequence[str]) -> list[float]:
        return [0.9 if "always" in text or "each" in text else 0.4 if "now" in text else 0.1 for text in texts]

    def over(self, wishes: Sequence[str], message: str) -> list[float]:
        return [self._chance if any(word in wish for word in self._over) else 0.0 for wish in wishes]


def read(message: str, wishes: Sequence[str], judge: Agreeing) -> list[tuple[str, bool, str]]:
    given = [Wish(number, 1, said) for number, said in enumerate(wishes)]
    changes = find_wish_changes(message, "english", given, judge)
    return [(wishes[c.of][c.start - 1 : c.start - 1 + c.length], c.is_certain, c.rest) for c in changes]


def test_wish_needs_a_form_to_be_over() -> None:
    poems = "Finish each answer with a haiku"
    for message in ("ok you can quit the little poems", "No more verse for me, please.", "always in prose now"):
        assert read(message, [poems], Agreeing("haiku")) == [(poems, True, "")], message
    assert read("My boss reads haiku on the train.", [poems], Agreeing("haiku")) == [(poems, False, "")]
    assert read("ok you can quit the little poems", [poems], Agreeing("haiku", chance=0.4)) == []
    for chance, is_certain in ((0.9, True), (0.8, False)):
        assert read("So we are at prose now", [poems], Agreeing("haiku", chance=chance)) == [(poems, is_certain, "")]


def test_wish_that_stays_is_not_over() -> None:
    wishes = ["Finish each answer with a haiku", "always give sizes in centimetres"]
    message = "you can quit the poems, the sizes thing stays"
    assert [said for said, _, _ in read(message, wishes, Agreeing("haiku", "sizes"))] == [wishes[0]]
    rule = "rules for poems: always finish each answer with a haiku"
    assert read("drop the haiku, the other rule is still a rule", [rule], Agreeing("haiku")) == [(rule, True, "")]


def test_what_ends_a_wish_is_one_itself() -> None:
    said = turn("").said_at
    message = Message("So you can leave my mistakes alone.", said, "english")
    (found,) = find_wish_changes(message.text, "english", [Wish(0, 1, "Mend my mistakes")], Agreeing("Mend"))
    assert as_change(found, said, message).content == "User asks: You can leave User's mistakes alone."


def test_statement_beside_a_wish_changes() -> None:
    text, said = "My free day is Tuesday, so always plan my week", turn("").said_at
    wishes, earlier = [Wish(0, 1, text)], [Earlier(text, "english", said)]
    message = Message("My free day is Thursday.", said, "english")
    for start, length, grade, is_kept in (
        (1, 22, "certain", True),
        (25, 23, "certain", False),
        (1, 22, "likely", False),
    ):
        change = Change(0, start, length, 1, 24, grade, "ended", 0.9)
        assert with_wishes([change], [], wishes, message, earlier, Agreeing()) == [change] * is_kept


def test_part_of_a_wish_ends() -> None:
    said = "always max 50 words per answer, and each price in euros"
    parts = "always max 50 words per answer", "each price in euros"
    assert read("you can drop the word limit", [said], Agreeing("words")) == [(parts[0], True, parts[1])]


class Stage:
    """Is as sure that a text opens a scene, or ends it, as the words in it say."""

    def __init__(self, opens: float = 0.2, **ends: float):
        self._opens, self._ends = opens, ends

    def scenes(self, texts: Sequence[str]) -> list[float]:
        return [self._opens] * len(texts)

    def scene_ends(self, texts: Sequence[str]) -> list[float]:
        return [max((chance for word, chance in self._ends.items() if word in text), default=0.0) for text in texts]


def played(*texts: str, before: Sequence[str] = (), judge: Stage | None = None) -> list[str]:
    read = without_scenes([turn(t) for t in texts], judge or Stage(), [turn(t) for t in before])
    return [one.text.strip("\n") for one in read]


OPENING = "Let us rehearse, you be the officer and I will be Kojo."


def test_scene_goes_on_until_it_ends() -> None:
    for end, left in (
        ("Okay cut! I moved to Ulm.", " I moved to Ulm."),
        ("real me loves tacos", " loves tacos"),
        ("Book closed. I moved to Ulm.", " I moved to Ulm."),
    ):
        said = played(OPENING, "I am from Accra.", end, "I have a dog.", judge=Stage(closed=0.9))
        assert said == ["", "", left, "I have a dog."]
    assert played("I am from Accra.", before=[OPENING]) == [""], "it may have begun in an earlier batch"
    assert played(*["I am from Accra."] * (MOST_MESSAGES + 1), before=[OPENING])[-1] != ""
    later = turn("").said_at + REST + timedelta(minutes=1)
    rested = [replace(turn("I am from Accra."), said_at=later)]
    assert without_scenes(rested, Stage(), [turn(OPENING)]) == rested


def test_scene_needs_a_judge() -> None:
    ours = "I am a baker in Leeds."
    for text, chance, is_scene in (
        (f"{ours} {OPENING}", 0.2, True),
        (f"{ours} {OPENING}", 0.0, True),
        (f"{ours} lets rp now, im a knight of the moon n ur the king", 0.0, True),
        ("You be the officer now, I will be Kojo.", 0.2, True),
        ("You be the officer now, I will be Kojo.", 0.1, False),
        (f"{ours} My friends rehearse with me, they are officers.", 0.1, False),
        ("In this one you are my therapist and I say nothing true.", 0.6, True),
        ("In this one you are my therapist and I say nothing true.", 0.4, False),
        ("The weather is fine today.", 0.9, False),
    ):
        said = played(text, "I have a dog.", judge=Stage(chance))
        assert (said[1] == "") == is_scene, text
        assert said[0].startswith(ours) or ours not in text


class Joking:
    """Takes sentences with "lol" for not meant."""

    def untrue(self, sentences: Sequence[str], message: str) -> list[float]:
        return [0.9 if "lol" in sentence else 0.5 for sentence in sentences]


def test_what_is_not_meant_tells_nothing() -> None:
    text = "I am 104 today lol. I live in Lyon. Please always answer in French lol."
    found = without_untrue(extract(text), [turn(text)], Joking())
    assert {one.content for one in extract(text)} >= {one.content for one in found}
    said = " ".join(one.content for one in found)
    assert "Lyon" in said and "French" in said and "104" not in said
    left = blank_untrue(text, "english", Joking())
    assert len(left) == len(text) and "104" not in left and left.index("I live") == text.index("I live")
    assert blank_untrue(text, "german", Joking()) == text
