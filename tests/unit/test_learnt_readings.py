"""Wishes and requests to forget that only the judge knows, each with a form beside it: a judge that always agrees shows what
the form holds back."""

from collections.abc import Sequence

from cases import turn
from pg_memoir_language.extraction import read_turns
from pg_memoir_language.free_requests import find_meant


class Agreeing:
    """Says yes to all, but is not quite sure of it, so that forms decide; `telling`: sentences that tell something, for
    the rest it says no."""

    def __init__(self, asking: str = "", telling: str | None = None):
        self.asking, self.telling = asking, telling

    def wishes(self, texts: Sequence[str]) -> list[float]:
        return [0.8] * len(texts)

    def asks(self, texts: Sequence[str]) -> list[float]:
        return [0.85 if self.asking in text else 0.0 for text in texts]

    def tells(self, texts: Sequence[str]) -> list[float]:
        return [1.0 if self.telling is None or self.telling in text else 0.0 for text in texts]

    def means(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        return [0.5] * len(pairs)


class Sure(Agreeing):
    """Knows requests without a word of forgetting, and no wishes."""

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


def meant(text: str, likenesses: dict[str, float], kept: str | None = None) -> list[str] | None:
    """Return the sentences that are meant, None where it is unclear; `kept`: a word of what may stay."""
    earlier = [(said, True) for said in likenesses] + [("Your dentist is Dr Roe.", False)]

    def like(query: str, texts: Sequence[str]) -> list[float]:
        if kept and kept in query:
            return [0.9 if kept in one else 0.0 for one in texts]
        return [likenesses[one] for one in texts]

    found = find_meant(text, earlier, Agreeing(asking="erase"), like, "english")
    if found.is_unclear:
        return None
    return [earlier[of][0][start - 1 : start - 1 + length] for of, start, length in found.spans]


def test_what_a_free_request_means() -> None:
    ask = "Please erase that from your memory."
    gate, boat = "The gate opens with 7390.", "My boat is called Wren."
    assert meant(ask, {gate: 0.5, boat: 0.2}) == [gate]
    assert meant(ask, {gate: 0.1, boat: -0.1}) == [], "too far"
    assert meant(ask, {gate: 0.5, boat: 0.48}) is None, "both are as near"
    assert meant("Where is the boat?", {gate: 0.5, boat: 0.2}) == [], "asks for nothing of the kind"
    assert meant(f"{ask} The boat you can keep.", {gate: 0.4, boat: 0.5}, kept="boat") == [gate]


def test_a_message_goes_as_a_whole() -> None:
    said = "The scan is back. Grade 2, says the club doctor."
    like = {"The scan is back.": 0.6, "Grade 2, says the club doctor.": 0.1, said: 0.5}
    earlier, judge = [(said, True)], Agreeing("erase")
    found = find_meant("Please erase the scan.", earlier, judge, lambda _, t: [like[x] for x in t], "english")
    assert [said[start - 1 : start - 1 + length] for _, start, length in found.spans] == list(like)[:2]


def test_what_may_stay_of_a_message_stays() -> None:
    said = "The gate opens with 7390. My locker is number 12."

    def like(query: str, texts: Sequence[str]) -> list[float]:
        return [0.9 if ("locker" in query) == ("locker" in one) else 0.3 for one in texts]

    asked = "Please erase the gate. The locker you can keep."
    found = find_meant(asked, [(said, True)], Agreeing("erase"), like, "english")
    assert [said[start - 1 : start - 1 + length] for _, start, length in found.spans] == ["The gate opens with 7390."]


def test_of_two_codes_in_a_sentence_one_goes() -> None:
    said = "The hall alarm is 7731, and the one in the museum is 4408. Never mix them up."

    def like(query: str, texts: Sequence[str]) -> list[float]:
        return [0.6 if ("other" in query) != ("museum" in one) else 0.3 for one in texts]

    asked = "Please erase the one of the museum. The other you can keep."
    found = find_meant(asked, [(said, True)], Agreeing("erase"), like, "english")
    gone = [said[start - 1 : start - 1 + length] for _, start, length in found.spans]
    assert gone == ["the one in the museum is 4408.", "Never mix them up."]


def test_what_is_kept_may_be_several_things() -> None:
    codes = {"The alarm code is 7788.": 0.6, "My old street was Rua Nova.": 0.5}
    ask = "Please erase my old street, but keep the wifi password and the alarm code."
    assert meant(ask, codes, kept="alarm code") == ["My old street was Rua Nova."]


def test_what_names_a_value_means_what_holds_it() -> None:
    assert meant("Please erase what is on 19 May.", {"Oslo is on 12 May.": 0.7, "Riga is on 19 May.": 0.5}) == [
        "Riga is on 19 May."
    ]


def test_a_message_that_tells_nothing_is_never_meant() -> None:
    judge = Agreeing("erase", telling="7390")
    earlier = [("How do I open a gate?", True), ("Mine opens with 7390.", True)]
    like = {"How do I open a gate?": 0.9, "Mine opens with 7390.": 0.5}
    (span,) = find_meant("Please erase that.", earlier, judge, lambda _, t: [like[x] for x in t], "english").spans
    assert span[0] == 1


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
