"""Wishes and requests to forget that only the judge knows, each with a form beside it: a judge that always agrees shows what
the form holds back."""

import json
from collections.abc import Sequence

from cases import turn
from pg_memoir_language.extraction import read_turns
from pg_memoir_language.free_requests import Asked, Parted, find_meant
from pg_memoir_server import reading


class Agreeing:
    """Says yes to all sentences with a word, but is not quite sure of it, so that forms decide."""

    def __init__(self, asking: str = "", whole: float = 0.65):
        self.asking = asking
        self.whole = whole  # the chance that a whole message asks

    def wishes(self, texts: Sequence[str]) -> list[float]:
        return [0.65] * len(texts)

    def asks(self, texts: Sequence[str]) -> list[float]:
        return [0.85 if self.asking in text else 0.0 for text in texts]

    def requests(self, texts: Sequence[str]) -> list[float]:
        return [self.whole] * len(texts)


class Sure(Agreeing):
    """Knows requests without a word of forgetting, and no wishes."""

    def __init__(self, whole: float = 0.9):
        super().__init__(whole=whole)

    def asks(self, texts: Sequence[str]) -> list[float]:
        return [0.95] * len(texts)

    def wishes(self, texts: Sequence[str]) -> list[float]:
        return [0.0] * len(texts)


def learns_wish(text: str, judge: Agreeing) -> bool:
    return any(one.rule == "learnt wish" for one in read_turns([turn(text)], judge).found)


def test_wish_needs_a_scope_and_the_judge() -> None:
    for text in (
        "If I ask for a recipe, make it for three people",
        "Until I tell you otherwise, write everything in British English.",
        "For the Falcon project, all commit messages are to be in French",
    ):
        found = read_turns([turn(text)], Agreeing()).found
        assert [(one.type, one.standing) for one in found] == [("instruction", True)], text
        assert not learns_wish(text, Sure()), "needs the judge"
    for text in (
        "Make the soup for three people",
        "Answer everything in one line this time",
        "Should I always answer in French?",
        '"Always answer in French, whenever you write to me, my dear," she said',
    ):
        assert not learns_wish(text, Agreeing()), text


def test_wishes_of_every_text_of_a_batch_are_read() -> None:
    texts = [f"If I ask for a recipe, make it for {n} people" for n in range(40)]
    reading = read_turns([turn(text) for text in texts], Agreeing())
    assert [one.text_no for one in reading.found if one.rule == "learnt wish"] == list(range(1, 41))


def test_request_in_free_words() -> None:
    for text in (
        "That business with my foot, I'd rather you didn't keep it in your head.",
        "get her out of your head pls, name and all",
        "Kindly strike it from whatever you retain about me.",
    ):
        (request,) = read_turns([turn(text)], Agreeing()).requests
        assert request.is_free and text.startswith(request.names.rstrip("."))
        assert read_turns([turn(text)]).requests == [], "no rule knows it"


def test_request_without_a_word_of_forgetting() -> None:
    text = "The vice I took up again, overboard with the lot."
    (request,) = read_turns([turn(text)], Sure()).requests
    assert request.is_free
    assert read_turns([turn(text)], Agreeing()).requests == [], "needs a judge that is sure"
    for help_wanted in (
        "How do I get rid of moths? I want them gone, eggs and all.",
        "how do i wipe my phone before i sell it. want everything gone, pics, pins, the wallet app",
        "Could you leave out the bit about my job in the bio?",
    ):
        assert read_turns([turn(help_wanted)], Sure()).requests == []


def test_tasks_of_an_agent_are_no_requests() -> None:
    """Where an agent runs commands, "lint the code" is a task, however sure the judge is."""
    for text, is_at_work, count in (
        ("lint the python code", False, 1),
        ("lint the python code", True, 0),
        ("Kindly strike it from whatever you retain about me.", True, 1),
    ):
        assert len(read_turns([turn(text)], Sure(), is_at_work).requests) == count
    steps = [
        {"turn": 1, "role": "assistant", "calls": [{"id": "1", "name": "Bash", "arguments": '{"command": "make"}'}]},
        {"turn": 2, "role": "tool", "call": "1", "text": "ok"},
    ]
    said = {"text": "lint the python code", "role": "user", "said_at": "2026-03-01T10:00:00+00:00"}
    for done, count in ([], 1), (steps, 0):
        given = json.dumps({"turns": [said], "steps": done, "since": 0})
        assert len(reading.read_turns(given)["requests"]) == count


def test_whole_message_denies_and_tells_a_request() -> None:
    lookalike = "The neighbour's parrot learned my doorbell sound. Can you unteach that?"
    sure = Agreeing(asking="unteach", whole=0.95)
    assert read_turns([turn(lookalike)], sure).requests == [], "a question without a word of forgetting"
    assert len(read_turns([turn("Can you erase that from your memory?")], Sure()).requests) == 1
    assert read_turns([turn("That goes out with the rest.")], Sure(whole=0.4)).requests == []
    assert read_turns([turn("Kindly strike it from whatever you retain.")], Agreeing(whole=0.2)).requests == []
    for asks, count in ((0.0, 0), (0.2, 1)):
        judge = Agreeing(whole=0.87)
        judge.asks = lambda texts, asks=asks: [asks] * len(texts)  # type: ignore[method-assign, misc]
        assert len(read_turns([turn("About the vase: better nobody hears.")], judge).requests) == count
    record = "Patient record:\nI am diabetic and I take metformin. I live alone."
    read = read_turns([turn(record)], Sure(whole=0.87))
    assert read.found == [], "whose words they are is told before the heading is taken for anything"
    assert read_turns([turn("Patient record")], Agreeing(whole=0.87)).requests == [], "two words tell too little"
    long = "I wrote about the trains for years. " * 12
    for whole, count in ((0.6, 0), (0.8, 1)):
        assert len(read_turns([turn(f"{long}Now wipe what I told you.")], Sure(whole=whole)).requests) == count


def test_a_message_that_surely_asks() -> None:
    """An idiom and a question without "can you" ask in a message that is sure to."""
    for text in (
        "The court matter of theirs, forget it completely.",
        "That secret about the stage, get rid of it ok?",
    ):
        for whole, count in ((0.94, 0), (0.96, 1)):
            assert len(read_turns([turn(text)], Agreeing(whole=whole)).requests) == count, (text, whole)
    assert read_turns([turn("Can you unteach that?")], Agreeing(whole=0.99)).requests == []


def test_lookalike_of_a_request() -> None:
    for text in (
        "Delete the second paragraph and make the rest shorter",
        "The pollen stuff you can keep.",
        "I always lose everything I write down",
        "Are you sure you don't have it in your records?",
        "Don't forget anything I told you about Monday",
        "the data you have stored may have been erased by it",
    ):
        assert not any(request.is_free for request in read_turns([turn(text)], Agreeing()).requests), text


class Reader:
    """Means the parts that have one of some words, with the chance that is given for it."""

    def __init__(self, **chances: float):
        self.chances = chances
        self.asked: list[Asked] = []

    def meant(self, asked: Asked, messages: Sequence[Parted]) -> list[list[float]]:
        self.asked.append(asked)
        return [
            [max([0.0, *(c for word, c in self.chances.items() if word in part)]) for _, part in of]
            for _, of in messages
        ]


def meant(text: str, *earlier: str, in_time: Sequence[bool] = (), **chances: float) -> list[str] | None:
    """Return what is meant, None where it is unclear. The assistant said the last one."""
    said = [(one, number < len(earlier) - 1) for number, one in enumerate(earlier)]
    reader, judge = Reader(**chances), Agreeing(asking="erase")
    found = find_meant(text, said, judge, reader, lambda _, texts: [0.5] * len(texts), "english", in_time)
    if found.is_unclear:
        return None
    return [earlier[of][start - 1 : start - 1 + length] for of, start, length in found.spans]


ROE = "Your dentist is Dr Roe."


def test_what_a_free_request_means() -> None:
    ask = "Please erase that from your memory."
    gate, boat = "The gate opens with 7390.", "My boat is called Wren."
    assert meant(ask, gate, boat, ROE, gate=0.6, boat=0.1, Roe=0.9) == [gate]
    assert meant(ask, gate, boat, ROE, gate=0.6, boat=0.6) == [gate, boat]
    assert meant(ask, gate, boat, ROE, gate=0.9, boat=0.5) == [gate], "another message, which is meant much less"
    assert meant(ask, gate, boat, ROE, gate=0.1) == []
    assert meant(ask, gate, boat, ROE, gate=0.3) is None


def test_parts_of_a_message_go() -> None:
    said = "The hall alarm is 7731, and the one in the museum is 4408. Never mix them up. How long is its cable?"
    ask = "Please erase the one of the museum."
    assert meant(ask, said, ROE, museum=0.7) == ["the one in the museum is 4408."]
    both = ["The hall alarm is 7731, and the one in the museum is 4408.", "Never mix them up."]
    assert meant(ask, said, ROE, museum=0.5, hall=0.32, Never=0.32) == both, "what lies beside it goes more easily"
    assert meant(f"{ask} The hall you can keep.", said, ROE, museum=0.7, hall=0.25) == [
        "the one in the museum is 4408."
    ]
    assert meant(ask, said, ROE, museum=0.99, hall=0.5) == ["the one in the museum is 4408."], "is meant much less"
    assert meant(ask, said, ROE, hall=0.2, Never=0.2) == []


def test_a_request_is_divided_into_what_goes_and_what_stays() -> None:
    reader = Reader(street=0.9)
    ask = "I moved. Please erase my old street, but keep the wifi password and the alarm code. What a day."
    find_meant(
        ask, [("My old street was Rua Nova.", True)], Agreeing("erase"), reader, lambda _, t: [0.5] * len(t), "english"
    )
    (asked,) = reader.asked
    assert (asked.asked, asked.led) == ("Please erase my old street", "I moved. Please erase my old street")
    assert "alarm code" in asked.kept and "What a day." in asked.kept


def test_a_time_that_a_request_names_counts() -> None:
    gate, boat = "The gate opens with 7390.", "My boat is called Wren."
    ask = "Please erase what I told you in June."
    assert meant(ask, gate, boat, ROE, in_time=(False, True, True), gate=0.3, boat=0.3) == [boat]


def test_what_names_a_value_means_what_holds_it() -> None:
    assert meant("Please erase what is on 19 May.", "Oslo is on 12 May.", "Riga is on 19 May.", ROE, May=0.9) == [
        "Riga is on 19 May."
    ]


def test_a_request_by_all_of_its_message() -> None:
    class Whole(Agreeing):
        def asks(self, texts: Sequence[str]) -> list[float]:
            return [0.4] * len(texts)

        def requests(self, texts: Sequence[str]) -> list[float]:
            return [0.9 if "liked anyone" in text else 0.0 for text in texts]

    text = "I am so over him. Pretend I never liked anyone."
    assert len(read_turns([turn(text)], Whole()).requests) == 1
    assert read_turns([turn("I am so over him. Pretend it is Monday.")], Whole()).requests == []


def test_a_wish_says_what_it_excepts() -> None:
    for text, content in (
        ("Use metric units. Only in recipes I want cups.", "asks: Use metric units. Only in recipes User wants cups."),
        ("Always answer in bullet points. The soup was good. Except today.", "asks: Always answer in bullet points."),
        ("Never mention my ex. Except, my name is Ida and I live in Porto.", "asks: Never mention User's ex."),
        ("Always answer in French. Otherwise I'm allergic to peanuts.", "asks: Always answer in French."),
        ("Antworte immer auf Deutsch. Nur bei Ida nicht.", "Antworte immer auf Deutsch. Nur bei Ida nicht."),
    ):  # fmt: skip
        found = [one for one in read_turns([turn(text)], None).found if one.type == "instruction"]
        assert [one.content.removeprefix("User").lstrip(": ") for one in found] == [content]
