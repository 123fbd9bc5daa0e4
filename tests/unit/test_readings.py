"""What the package reads in a text alone: whose words a turn has, statements, names, relations, questions and quotations.

Most texts are in tests/cases. statements.jsonl has which sentences become which memories, standing.jsonl what a person says that
holds from then on, aliases.jsonl names, questions.jsonl the facts about a question. In quotations.jsonl `before` was said in an
earlier session, `now` is the user's message in this one. `call` are the arguments of memory_update, `id_of` is a pattern of the
memory or turn that its id names, and `authority` says whose word the call has: the user's for what the quoted clause says.
"""

import json
import re
from dataclasses import asdict
from datetime import date
from typing import Any

import pytest
from cases import extract, read_cases, turn
from growth import check_growth
from pg_memoir_language.aliases import given_aliases, read_aliases
from pg_memoir_language.extraction import read_turns
from pg_memoir_language.foreign import own_words
from pg_memoir_language.languages import languages, script, spoken_language, text_language
from pg_memoir_language.memories import Extracted
from pg_memoir_language.questions import read_question
from pg_memoir_language.relations import Relation, read_relation
from pg_memoir_language.text import read_clauses
from pg_memoir_server.reading import Learnt, quoted


def test_tools_and_several_statements_of_a_turn() -> None:
    (found,) = extract("We have your order id: A-4711", role="tool", tool="shop")
    assert found.content == "Tool shop returned order id A-4711"
    found = extract("Please remember that I live in Ulm and have two sons.")
    assert [one.content for one in found] == ["User lives in Ulm.", "User has two sons."]
    said = "Don't assume I'm a beginner. I work as a nurse in Bergen and I'm allergic to latex."
    known = " ".join(one.content for one in extract(said))
    assert "nurse in Bergen" in known and "latex" in known
    denied = [one for text in ("No vivo en Madrid", "No como carne") for one in extract(text)]
    assert not any(one.slot or one.content.lower().startswith(("user: vivo", "user: como")) for one in denied)


def test_requests_to_forget_are_no_memories() -> None:
    reading = read_turns([turn("Please forget that I live in Ulm.")])
    (request,) = reading.requests
    assert reading.found == [] and (request.names, request.span_start, request.span_length) == ("I live in Ulm", 1, 33)


def test_pasted_text_is_not_the_users() -> None:
    for text in (
        "```\nI live in Ulm\n```",
        "<div>I live in Ulm</div>",
        "> I live in Ulm",
        '"I live in Ulm and I work in Bern and I like it there," she said',
        "Can you reply to this email?\n\nHello Rosa,\nI live in Ulm and I am a dentist.\nBest,\nPia",
        "[12/03/2026, 18:04] Tom: I have a cat\n[12/03/2026, 18:05] Mia: I live in Ulm now\nSummarise this chat",
        "My landlord's message: I live in Ulm and I have a cat.",
        "Anna: I am vegan and I live in Ulm.",
        "Patient record:\nI am diabetic. I live in Ulm.",
        "Interviewer: Where do you live?\nCandidate: I live in Ulm.\nIs that a good answer?",
        "I live in Ulm and I love this litter.\nCan you shorten this testimonial?",
        "I found these words in a songbook, which key are they in?\n\nI live in Ulm,\nI sold my mare,",
        "Dear Rosa,\nI live in Ulm now.\nKind regards\nPia",
        "Kannst du diese Nachricht zusammenfassen?\nHallo Pia, I live in Ulm.",
    ):
        assert "live in Ulm" not in own_words(text) and len(own_words(text)) == len(text), text
    for text in (
        "Hi!\nI live in Ulm and I am a nurse.\nThanks",
        "About me:\nI live in Ulm",
        "Remember: I live in Ulm",
        "I live in Ulm. Can you translate this sentence?",
        "I live in Ulm.\n\nPlease write a reply to the restaurant.",
        "I read your message and I am happy.\nI live in Ulm now.",
        "Thank you for these words.\n\nI live in Ulm now.",
    ):
        assert "live in Ulm" in own_words(text), text


UNITS = [
    '<p class="x">', "<div>", '"so it is ', "``` ", "x = f();\n", "> quoted\n", "| x |\n", "a.b ", "a", "I like tea. ",
    "No, ", "my ", "it's ", "1. ", "(", ", and I live in Ulm", "He said: ", "2024-01-01 00:00 ", "select a from b\n", "\n",
]  # fmt: skip


@pytest.mark.parametrize("unit", UNITS)
def test_time_grows_with_length_alone(unit: str) -> None:
    check_growth(lambda text: (read_clauses(text, "english"), read_turns([turn(text)])), unit, "I love Ulm.\n")


def wrong_field(case: dict[str, Any], got: Extracted) -> str | None:
    """The first field of a case that the memory does not have."""
    row = {key: str(value)[:10] if isinstance(value, date) else value for key, value in asdict(got).items()}
    row |= {"memory": got.content, "event": [row["event_from"], row["event_to"]]}
    wanted = {"valid_to": None} | {key: value for key, value in case.items() if key not in ("text", "name")}
    return next((f"{key}: {row[key]}" for key, value in wanted.items() if row[key] != value), None)


def test_statements_become_memories() -> None:
    """A case without a memory (questions, suppositions, other people's words, code, small talk) yields none."""
    cases, wrong = read_cases("statements"), []
    for case in cases:
        found = extract(case["text"], name=case.get("name"))
        if case["memory"] is None:
            wrong += [(case["text"], one.content) for one in found]
        else:
            wrong += [(case["text"], field) for one in found[:1] if (field := wrong_field(case, one))]
            wrong += [(case["text"], "nothing is found")] * (not found)
    assert len(cases) > 110 and wrong == []


def test_standing_statements_are_told_from_others() -> None:
    cases, judge = read_cases("standing"), Learnt()
    stands = {case["text"]: any(one.standing or one.slot for one in extract(case["text"], judge)) for case in cases}
    assert len(cases) > 75 and [case for case in cases if stands[case["text"]] != case["standing"]] == []


@pytest.mark.parametrize("case", read_cases("spans"))
def test_spans_are_the_sentences_as_written(case: dict[str, Any]) -> None:
    """But for the full stop, without which statements are read."""
    text, found = case["text"], sorted(extract(case["text"]), key=lambda one: one.span_start)
    spans = [text[one.span_start - 1 : one.span_start - 1 + one.span_length].rstrip(".!") for one in found]
    assert spans == [span.rstrip(".!") for span in case["spans"]]


def test_named_speaker_has_slots_of_their_own() -> None:
    (found,) = extract("I live in Ulm.", name="Mel")
    assert (found.content, found.slot) == ("Mel lives in Ulm.", "mel: home city")
    for role in ("user", "assistant"):
        first = extract("I love Bach, and my wife loves him too.", name="Mel", role=role)[0]
        assert first.content.startswith("Mel loves")


WITH_RULES = {"english", "german", "spanish", "french", "portuguese", "italian"}


@pytest.mark.parametrize("case", read_cases("aliases"), ids=lambda case: case["text"][:20])
def test_names_of_a_text(case: dict) -> None:
    given = case.get("given")
    found = read_aliases(case["text"]) if given is None else given_aliases(case["text"], given, case.get("value"))
    pairs = {tuple(sorted((one.name, one.other))) for one in found if one.stated}
    assert pairs - {("beth", "lizzy")} == set(map(tuple, case["names"]))


def test_language_of_a_text() -> None:
    names = {language.number: language.name for language in languages()}
    for case in read_cases("languages"):
        name, text = case["language"], case["text"]
        assert names[text_language(text)] == names[text_language(text + " `parseInvoiceHeader`")] == name
        assert spoken_language(text) == (name if name in WITH_RULES else "simple")
    assert [text_language(text) for text in ("Rocky!", "", "12:30", "42")] == [0] * 4


def test_relation_has_one_value() -> None:
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


def test_questions_have_their_facts() -> None:
    """Each case names the facts that it is about."""
    wrong = []
    for case in read_cases("questions"):
        facts = read_question(case["text"])
        wrong += [(case, facts[key]) for key in case.keys() - {"text"} if facts[key] != case[key]]
    assert len(read_cases("questions")) > 50 and wrong == []


def test_question_names_times() -> None:
    for text, expected in (
        ("What did we do in May 2026?", {"dates": [(2026, 5, None)], "years": [2026]}),
        ("Where were we on 3rd of June?", {"dates": [(None, 6, 3)]}),
        ("And on June 3, 2025?", {"dates": [(2025, 6, 3)], "years": [2025]}),
        ("What happened on 2026-03-04?", {"dates": [(2026, 3, 4)], "years": [2026]}),
        ("May I ask you something?", {}),
        ("What did I say in March?", {"dates": [(None, 3, None)]}),
        ("Who came yesterday?", {"days": [1]}),
        ("What was on last week, and this month?", {"periods": [("last", "week"), ("this", "month")]}),
        ("We met 3 weeks ago", {"ago": [(3, "week")]}),
        ("And a fortnight ago? Or two months ago?", {"ago": [(2, "week"), (2, "month")]}),
        ("A couple of days ago", {"ago": [(2, "day")]}),
        ("Who rang the day before yesterday?", {"days": [2]}),
        ("What was on last night?", {"days": [1]}),
        ("Who came on Friday, and last Monday?", {"weekdays": [(-1, 4), (-1, 0)]}),
        ("What is on Thursday week?", {"weekdays": [(1, 3)]}),
        ("And a week on Monday?", {"weekdays": [(1, 0)]}),
        ("Who swims on Sunday mornings?", {}),
        ("What did I read in the last three days, or the past week?", {"within": [(3, "day"), (1, "week")]}),
        ("What did we do last weekend?", {"periods": [("last", "weekend")]}),
        ("The best films of 1999", {"years": [1999]}),
    ):
        times = read_question(text)["times"]
        assert {key: value for key, value in times.items() if value} == expected


def test_question_is_redacted() -> None:
    assert read_question("Is my password hunter2x safe?")["redacted"] == "Is my password (withheld) safe?"


def test_text_has_a_script() -> None:
    assert [script(text) for text in ("abc", "éà", "Где", "我的", "これ", "한국", "ελ", "مرحبا")] == [
        "latin", "latin", "cyrillic", "han", "kana", "hangul", "greek", "arabic",
    ]  # fmt: skip
    assert text_language("42") == 0


def authority_of(case: dict[str, Any]) -> str:
    """Whose word the call of a case has, by what the tools ask the package for."""
    given, before = case["call"], case["before"] or "Hello there."
    is_statement = "content" in given
    asked = {
        "kind": "statement" if is_statement else "request",
        "said": given["said"],
        "content": given.get("content"),
        "turns": [{"index": 0, "text": case["now"]}],
        "texts": [""] if is_statement else [given.get("about", given["said"])],
        "whole": None,
        "slot": None,
    }
    if "id_of" in case:
        named = [one for one in extract(before) if re.search(case["id_of"], one.content, re.IGNORECASE)]
        asked |= {"texts": None, "whole": before}
        for one in named[:1]:
            source = before[one.span_start - 1 : one.span_start - 1 + one.span_length]
            asked |= {"texts": [f"{one.content} {source}"], "whole": None, "slot": one.slot}
    found = quoted(json.dumps(asked))
    return "agent" if found is None or "id_of" in case and found.get("is_narrower") else "user"


def test_quotation_lends_its_authority() -> None:
    cases = read_cases("quotations")
    assert len(cases) > 140 and [case for case in cases if authority_of(case) != case["authority"]] == []
