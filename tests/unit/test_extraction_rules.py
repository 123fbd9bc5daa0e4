"""Extraction by rules: which sentences become which memories, and which must not; spans, names, dates."""

from __future__ import annotations

from dataclasses import asdict
from datetime import date, datetime
from typing import Any

import pytest
from pg_memoir_language.extraction import extract_sentences
from pg_memoir_language.memories import Turn

SAID = "2023-05-08T09:00:00+00:00"  # a Monday

# What somebody without a name says on that Monday → content, type, provenance, more fields.
STORED: list[tuple[str, str, str, str, dict[str, Any]]] = [
    # preferences
    ("I love hiking in the Alps.", "User loves hiking in the Alps.", "preference", "preference", {}),
    (
        "I really don't like cilantro in my food.",
        "User really doesn't like cilantro in User's food.",
        "preference",
        "preference",
        {},
    ),
    ("My favorite composer is Bach.", "User's favorite composer is Bach.", "preference", "preference", {}),
    ("I prefer tea over coffee.", "User prefers tea over coffee.", "preference", "preference", {}),
    (
        "Oh well, I’m a big fan of Studio Ghibli films!",
        "User is a big fan of Studio Ghibli films!",
        "preference",
        "preference",
        {},
    ),
    # facts about oneself
    (
        "My name is Ada Lovelace.",
        "User's name is Ada Lovelace.",
        "fact",
        "user_stated",
        {"slot": "name", "slot_value": "Ada Lovelace", "importance": "important"},
    ),
    (
        "I live in Berlin with two cats.",
        "User lives in Berlin with two cats.",
        "fact",
        "user_stated",
        {"slot": "home city", "slot_value": "Berlin"},
    ),
    (
        "I work at Siemens as an engineer.",
        "User works at Siemens as an engineer.",
        "fact",
        "user_stated",
        {"slot": "employer", "slot_value": "Siemens"},
    ),
    (
        "My birthday is on 3 March.",
        "User's birthday is on 3 March.",
        "fact",
        "user_stated",
        {"slot": "birthday", "slot_value": "3 March"},
    ),
    ("I'm allergic to peanuts.", "User is allergic to peanuts.", "fact", "user_stated", {"importance": "important"}),
    ("My daughter Mia plays the cello.", "User's daughter Mia plays the cello.", "fact", "user_stated", {"slot": None}),
    ("I used to live in Hamburg.", "User used to live in Hamburg.", "fact", "user_stated", {"slot": None}),
    ("I have been painting for seven years.", "User has been painting for seven years.", "fact", "user_stated", {}),
    (
        "I usually run 5 miles before breakfast.",
        "User usually runs 5 miles before breakfast.",
        "fact",
        "user_stated",
        {},
    ),
    ("I'm studying law in Leiden.", "User is studying law in Leiden.", "fact", "user_stated", {"slot": None}),
    # what happened
    (
        "I went to a support group yesterday.",
        "User went to a support group on 7 May 2023.",
        "event",
        "user_stated",
        {"event": ("2023-05-07", "2023-05-08"), "valid_from": "2023-05-07"},
    ),
    (
        "Last week we bought a house in Ulm.",
        "User: In the week of 1 May 2023 we bought a house in Ulm.",
        "event",
        "user_stated",
        {"event": ("2023-05-01", "2023-05-08")},
    ),
    (
        "I started my new job at Siemens last month.",
        "User started User's new job at Siemens in April 2023.",
        "event",
        "user_stated",
        {"event": ("2023-04-01", "2023-05-01")},
    ),
    (
        "I ran a marathon two years ago.",
        "User ran a marathon around 2021.",
        "event",
        "user_stated",
        {"event": ("2021-01-01", "2022-01-01")},
    ),
    (
        "On Friday I met Tom's parents.",
        "On 5 May 2023 User met Tom's parents.",
        "event",
        "user_stated",
        {"event": ("2023-05-05", "2023-05-06")},
    ),
    ("I got a tattoo a few years ago.", "User got a tattoo a few years before May 2023.", "event", "user_stated", {}),
    # plans
    (
        "I'm flying to Rome next Tuesday.",
        "User is flying to Rome on 16 May 2023.",
        "plan",
        "user_stated",
        {"event": ("2023-05-16", "2023-05-17"), "valid_from": "2023-05-08"},
    ),
    (
        "We're planning to visit Japan in two weeks.",
        "User: We're planning to visit Japan around 22 May 2023.",
        "plan",
        "user_stated",
        {"event": ("2023-05-22", "2023-05-23")},
    ),
    (
        "I have a dentist appointment tomorrow at 9.",
        "User has a dentist appointment on 9 May 2023 at 9.",
        "plan",
        "user_stated",
        {"event": ("2023-05-09", "2023-05-10")},
    ),
    (
        "I moved my talk from last week to 3 June.",
        "User moved User's talk from the week of 1 May 2023 to 3 June 2023.",
        "event",
        "user_stated",
        {},
    ),
    (
        "I'm going to be in Lisbon until Friday.",
        "User is going to be in Lisbon until 12 May 2023.",
        "plan",
        "user_stated",
        {"valid_to": "2023-05-13"},
    ),
    (
        "My visa interview is on Thursday.",
        "User's visa interview is on 11 May 2023.",
        "plan",
        "user_stated",
        {"event": ("2023-05-11", "2023-05-12")},
    ),
    (
        "I want to learn Portuguese before the trip next year.",
        "User wants to learn Portuguese before the trip in 2024.",
        "plan",
        "user_stated",
        {"event": ("2024-01-01", "2025-01-01")},
    ),
    # corrections
    ("No, I meant the March invoice.", "User meant the March invoice.", "fact", "correction", {}),
    ("It's not Anna, it's Hanna.", "User corrects: It's not Anna, it's Hanna.", "fact", "correction", {}),
    (
        "The deadline is Friday, not Thursday.",
        "User corrects: The deadline is Friday, not Thursday.",
        "fact",
        "correction",
        {},
    ),
    ("I no longer eat meat.", "User no longer eats meat.", "fact", "correction", {}),
    ("I don't drink coffee anymore.", "User doesn't drink coffee anymore.", "fact", "correction", {}),
    # instructions
    (
        "Always answer in German.",
        "User asks: Always answer in German.",
        "instruction",
        "instruction",
        {"importance": "important"},
    ),
    ("Please don't use emojis.", "User asks: Please don't use emojis.", "instruction", "instruction", {}),
    (
        "From now on, call the staging server first.",
        "User asks: From now on, call the staging server first.",
        "instruction",
        "instruction",
        {},
    ),
    (
        "Never commit to main without asking me.",
        "User asks: Never commit to main without asking User.",
        "instruction",
        "instruction",
        {},
    ),
    ("I want you to keep answers short.", "User wants you to keep answers short.", "instruction", "instruction", {}),
    # decisions
    (
        "Let's go with Postgres for the queue.",
        "User: Let's go with Postgres for the queue.",
        "decision",
        "user_stated",
        {},
    ),
    (
        "We decided to drop support for Python 3.8.",
        "User: We decided to drop support for Python 3.8.",
        "decision",
        "user_stated",
        {},
    ),
    ("I've decided on the blue tiles.", "User has decided on the blue tiles.", "decision", "user_stated", {}),
]

JUNK = [
    # greetings, thanks, goodbyes
    "Hi there!",
    "Good morning, how are you today?",
    "Hey, long time no see!",
    "Thanks a lot, that helped me.",
    "Thank you so much for your help!",
    "You're welcome.",
    "See you tomorrow!",
    "Bye, talk to you soon.",
    "Have a great weekend!",
    "Nice to meet you.",
    "Good night!",
    "Cheers, mate.",
    # questions
    "What's the weather in Rome?",
    "Can you help me with my invoice?",
    "Do I need a visa for Japan?",
    "Did I tell you about my dog?",
    "Where did I leave my keys yesterday?",
    "Could you please always answer in French?",
    "How do I reset my password",
    "I love Rome, don't you?",
    "Should I move to Berlin next year?",
    "why is my build failing",
    # filler and reactions
    "Okay.",
    "Sure, sounds good.",
    "I see.",
    "I know what you mean.",
    "I think so too.",
    "I can't wait!",
    "I'm so happy for you!",
    "I'm fine, thanks.",
    "I agree with that completely.",
    "Wow, I love it!",
    "I love your new website.",
    "I love that idea!",
    "I hope it works out for you.",
    "I guess that makes sense.",
    "I appreciate the effort.",
    "I'm here for you, always.",
    "I'll let you know.",
    "I'll try my best!",
    "I'm not sure about that.",
    "I don't know.",
    "Got it, makes sense to me.",
    "I had no idea!",
    "Let's keep going, we got this!",
    "Never mind.",
    "Don't worry about it.",
    "Don't give up, you can do it!",
    "Always happy to help.",
    "It was great.",
    "That's awesome!",
    "We got this!",
    "I mean, kind of.",
    "I feel you.",
    # hypotheticals
    "If I lived in Berlin I would take the train.",
    "I might move to Canada next year.",
    "Maybe I'll buy a car.",
    "I wish I had a dog.",
    "Imagine I worked at Google.",
    "Suppose I have two apples and give you one.",
    "I would have gone to Rome last year.",
    "What if I quit my job tomorrow?",
    "Perhaps I should learn Spanish.",
    # somebody else's words
    'She said "I live in Paris and work at Google".',
    "My boss said I live in a bubble.",
    "> I live in Madrid and love tapas.",
    "Tom told me I have to move to Oslo in June.",
    "Translate this: I live in Rome and I love pasta.",
    "Here is the email:\nHi, I am moving to Berlin next week. I love the city.",
    "Summarize the following text: I was born in 1950 in Kyoto.",
    "From: bob@example.org\nSubject: moving\nI live in Vienna now and I love it here.",
    '"I have always preferred tea over coffee and I never drink milk"',
    "Please proofread my draft:\nI worked at Siemens for ten years. I love engineering.",
    # code and logs
    "```python\n# I live in Berlin\nname = 'I love tea'\n```",
    "I = 5; my_var = I + 1;",
    "2023-05-08 10:00 I started the worker on node 7",
    "$ I bought --all 7",
    "```\nI live in Berlin and I love Bach.",
    "<div>I</div>",
    "SELECT my FROM i WHERE i.live = 'Berlin';",
    # no rule of this language
    "Ich wohne in Berlin und liebe Bach.",
    "J'habite à Paris et j'adore le thé.",
    "Vivo en Madrid desde 2010.",
    "我住在北京。",
    "أعيش في القاهرة",
    # what leans on what was said before
    "Never saw this coming.",
    "Stop asking.",
    "I also like holding them.",
    "I'd love to try making it sometime!",
    "I'm definitely going to check it out!",
    "After that, we celebrated at a restaurant in Ulm.",
    "I'm trying to debug this",
    "I like what we've worked out for the past sections.",
    "Check out this picture of my favorite session!",
    "I loved meeting your turtles.",
    "I've written a function that does so on 3 May, but it's",
    # what is asked for now
    "Stop asking and just list the plan now.",
    "Don't ask, show it to me immediately.",
    "I'll activate the protocol right now and get my notes populated.",
    "Once I do, execute the compression of my 3 files.",
    "Provide the request in my last message.",
    "I want to make sure my user registration is secure and robust.",
    "Looks solid, exactly what I was looking for on Monday.",
    "I just wanted to fill you in on my business.",
    "I saw it yesterday.",
    "I bought one last week.",
    "I did that already.",
    "It is on Monday.",
    "He lives in Paris.",
    "They moved to Rome last year.",
]


def found(
    text: str, name: str | None = None, role: str = "user", said: str = SAID, language: str = "english"
) -> list[dict[str, Any]]:
    turn = Turn(text, role, name, datetime.fromisoformat(said), language)
    rows = [asdict(one) for one in extract_sentences(text, turn, 1)]
    return [
        {key: value.isoformat() if isinstance(value, date) else value for key, value in row.items()} for row in rows
    ]


@pytest.mark.parametrize(("text", "content", "type_", "provenance", "more"), STORED, ids=[case[0] for case in STORED])
def test_what_is_worth_remembering(text: str, content: str, type_: str, provenance: str, more: dict[str, Any]) -> None:
    (got,) = found(text)
    assert (got["content"], got["type"], got["provenance"]) == (content, type_, provenance)
    assert (got["span_start"], got["span_length"]) == (1, len(text))
    for key, value in more.items():
        if key == "event":
            assert (got["event_from"], got["event_to"]) == value
        elif key in ("valid_from", "valid_to"):
            assert got[key][:10] == value
        else:
            assert got[key] == value
    if "valid_to" not in more:
        assert got["valid_to"] is None


@pytest.mark.parametrize("text", JUNK)
def test_what_is_not(text: str) -> None:
    assert [(row["rule"], row["content"]) for row in found(text)] == []


def test_a_language_without_rules_yields_nothing() -> None:
    assert found("I live in Berlin.", language="german") == [] and len(found("I live in Berlin.")) == 1


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        (
            "Hi! I live in Ulm. How are you? I love Bach. 🎉 I’m allergic to nuts.",
            ["I live in Ulm.", "I love Bach.", "I’m allergic to nuts."],
        ),
        (
            "Ünïcödé first 😀. My name is Zoë.\n\n- I love tea.\n- I hate rain!",
            ["My name is Zoë.", "I love tea.", "I hate rain!"],
        ),
        ("Dr. No is out. I met Dr. Who on 3 May. Ok", ["I met Dr. Who on 3 May."]),
        ("```\nI live in Rome\n``` I live in Ulm.", ["I live in Ulm."]),
        ("  \t I live in Ulm.  ", ["I live in Ulm."]),
    ],
)
def test_spans_are_the_sentences_as_they_were_written(text: str, spans: list[str]) -> None:
    assert [text[row["span_start"] - 1 : row["span_start"] - 1 + row["span_length"]] for row in found(text)] == spans


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("I love Bach, and my wife loves him too.", "Mel loves Bach, and Mel's wife loves him too."),
        ("Lost my job as a banker yesterday.", "Mel lost Mel's job as a banker on 7 May 2023."),
        ("Been working on a novel since last month.", "Mel has been working on a novel since April 2023."),
        ("My kids and I went camping last weekend.", "Mel's kids and Mel went camping on the weekend of 6 May 2023."),
        (
            "Last week was wild and I lost my keys in Ulm.",
            "The week of 1 May 2023 was wild and Mel lost Mel's keys in Ulm.",
        ),
        (
            "I'm a guard for the team and our season opener is next week.",
            "Mel is a guard for the team and their season opener is in the week of 15 May 2023.",
        ),
        ("Just wanted to let you know I joined a travel club in Ulm!", "Mel joined a travel club in Ulm!"),
        (
            "On another note, I finished my novel in two weeks in March.",
            "Mel finished Mel's novel in two weeks in March.",
        ),
        ("I've reached *level nine* of Act I and part II.", "Mel has reached level nine of Act I and part II."),
        (
            "I have a talk about this week's results on Thursday.",
            "Mel has a talk about this week's results on 11 May 2023.",
        ),
        ("I've been using Flask 2.3.1, and I want to make sure it is safe.", "Mel has been using Flask 2.3.1."),
        ("And in my free time, I enjoy a good book.", "In Mel's free time, Mel enjoys a good book."),
        ("But my wife bought a boat in Ulm.", "Mel's wife bought a boat in Ulm."),
        ("So yesterday, I bought a boat.", "On 7 May 2023, Mel bought a boat."),
        ("Hey Jon! I moved to Ulm.", "Mel moved to Ulm."),
        (
            "I got lots of help from the group I attended and the book I read in Ulm.",
            "Mel got lots of help from the group Mel attended and the book Mel read in Ulm.",
        ),
        ("Kit**: Yes, I have a set of 3 dumbbells at home.", "Kit: Yes, Mel has a set of 3 dumbbells at home."),
        ("I love dogs and have owned them for years.", "Mel loves dogs and have owned them for years."),
    ],
)
def test_a_speaker_with_a_name_is_named(text: str, content: str) -> None:
    for role in ("user", "assistant"):
        assert [row["content"] for row in found(text, name="Mel", role=role)][0] == content
    assert found("I live in Ulm.", name="Mel")[0]["slot"] == "mel: home city"
