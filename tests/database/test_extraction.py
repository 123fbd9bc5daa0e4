"""Extraction: which sentences become which memories, and which must not; spans, dates, slots, authority; again, beside writers, after a forget."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import date
from typing import Any

import psycopg
import pytest
from calls import last_run, set_settings
from psycopg.types.json import Jsonb
from servers import connect

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
        "User's birthday is on 3 March 2023.",
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
    db: psycopg.Connection,
    text: str,
    name: str | None = None,
    role: str = "user",
    said: str = SAID,
    language: str = "english",
) -> list[dict[str, Any]]:
    rows = db.execute(
        "select to_jsonb(e) from _memoir.extract_texts(%s, %s, %s, %s, %s) e",
        [[text], [name], [role], [said], language],
    ).fetchall()
    return sorted((row[0] for row in rows), key=lambda row: row["span_start"])


@pytest.mark.parametrize(("text", "content", "type_", "provenance", "more"), STORED, ids=[case[0] for case in STORED])
def test_what_is_worth_remembering(
    db: psycopg.Connection, text: str, content: str, type_: str, provenance: str, more: dict[str, Any]
) -> None:
    (got,) = found(db, text)
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
def test_what_is_not(db: psycopg.Connection, text: str) -> None:
    assert [(row["rule"], row["content"]) for row in found(db, text)] == []


def test_a_language_without_rules_yields_nothing(db: psycopg.Connection) -> None:
    assert found(db, "I live in Berlin.", language="german") == [] and len(found(db, "I live in Berlin.")) == 1


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
def test_spans_are_the_sentences_as_they_were_written(db: psycopg.Connection, text: str, spans: list[str]) -> None:
    assert [
        text[row["span_start"] - 1 : row["span_start"] - 1 + row["span_length"]] for row in found(db, text)
    ] == spans


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
def test_a_speaker_with_a_name_is_named(db: psycopg.Connection, text: str, content: str) -> None:
    for role in ("user", "assistant"):
        assert [row["content"] for row in found(db, text, name="Mel", role=role)][0] == content
    assert found(db, "I live in Ulm.", name="Mel")[0]["slot"] == "mel: home city"


# In the database --------------------------------------------------------------------------------------------------------------


def say(
    db: psycopg.Connection, user: str, *messages: Any, session: str = "s", actor: str | None = None
) -> dict[str, Any]:
    listed = [{"role": "user", "content": message} if isinstance(message, str) else message for message in messages]
    return db.execute(
        "select memoir.persist_turn(%s, %s, %s, p_actor => %s)", [user, session, Jsonb(listed), actor]
    ).fetchone()[0]


def extract(db: psycopg.Connection, user: str, session: str = "s", limit: int = 1000) -> dict[str, Any]:
    return db.execute("select memoir.extract_session(%s, %s, %s)", [user, session, limit]).fetchone()[0]


def memories(db: psycopg.Connection, user: str, *columns: str, where: str = "true") -> list[Any]:
    rows = db.execute(
        f"select {', '.join(columns or ('m.content',))} from _memoir.memory_store m join _memoir.users using (user_id) "
        f"where external_id = %s and {where} order by m.recorded_at, m.content",
        [user],
    ).fetchall()
    return rows if len(columns) > 1 else [row[0] for row in rows]


def again(db: psycopg.Connection, user: str) -> None:
    """The cursors go back: as if the same turns were new."""
    db.execute(
        "update _memoir.session_counters c set extracted_through = 0 from _memoir.users u where u.user_id = c.user_id and external_id = %s",
        [user],
    )


def test_what_the_user_says_becomes_global_memories_with_their_source(db: psycopg.Connection, user: str) -> None:
    done = say(
        db,
        user,
        "Hi! I live in Ulm. Please don't use emojis.",
        {"role": "assistant", "content": "Noted. I live in the cloud."},
    )
    assert extract(db, user) == {
        "turns": 2,
        "left": 0,
        "stored": 2,
        "duplicate": 0,
        "refused_tombstone": 0,
        "not_admitted": 0,
    }
    assert memories(
        db, user, "m.content", "provenance::text", "tier", "scope::text", "actor::text", "m.metadata ->> 'extracted_by'"
    ) == [
        ("User asks: Please don't use emojis.", "instruction", 4, "global", "agent", "rules 1"),
        ("User lives in Ulm.", "user_stated", 3, "global", "agent", "rules 1"),
    ]
    sources = db.execute(
        "select s.source_id::text, s.turn_index, substr(h.content, s.span_start, s.span_length) from _memoir.memory_sources s "
        "join _memoir.conversation_history h on h.message_id = s.source_id join _memoir.users u on u.user_id = s.user_id where external_id = %s order by span_start",
        [user],
    ).fetchall()
    assert sources == [
        (done["message_ids"][0], 0, "I live in Ulm."),
        (done["message_ids"][0], 0, "Please don't use emojis."),
    ]


def test_what_an_agent_or_a_tool_says_stays_in_its_session(db: psycopg.Connection, user: str) -> None:
    call = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "find_order", "arguments": "{}"}}],
    }
    say(
        db,
        user,
        "Where is it?",
        call,
        {
            "role": "tool",
            "tool_call_id": "c1",
            "content": '{"order_id": "A-1742", "total": "39.90 EUR", "note": "I live in Ulm"}',
        },
        {
            "role": "assistant",
            "content": "I've booked the courier for 9 May. I love couriers. Your tracking number is ZX-881.",
        },
        {"role": "assistant", "name": "Mel", "content": "I moved to Bonn in April."},
    )
    say(db, user, "I live in Kiel and always pay on Monday.", session="relay", actor="agent")
    assert extract(db, user)["stored"] == 5 and extract(db, user, "relay")["stored"] == 0
    got = memories(db, user, "m.content", "provenance::text", "tier", "scope::text", "source_tool")
    assert [row[1:] for row in sorted(got)] == [("system_inferred", 1, "local", None)] * 3 + [
        ("tool_output", 1, "local", "find_order")
    ] * 2
    assert [row[0].split(" on ")[0].split(" for ")[0] for row in sorted(got)] == [
        "Assistant has booked the courier",
        "Assistant: Your tracking number is ZX-881.",
        "Mel moved to Bonn in April.",
        "Tool find_order returned order_id A-1742",
        "Tool find_order returned total 39.90",
    ]


def test_extracting_again_adds_nothing(db: psycopg.Connection, user: str) -> None:
    say(db, user, "I live in Ulm. I love Bach.", "I love Bach.")
    assert extract(db, user)["stored"] == 2
    before = memories(db, user, "m.memory_id", "m.content", "m.state", "m.recorded_at")
    stats = "select restatements from _memoir.memory_stats s join _memoir.users using (user_id) where external_id = %s order by 1"
    assert db.execute(stats, [user]).fetchall() == [(0,), (1,)]  # said twice, in two turns
    for _ in range(2):
        again(db, user)
        assert extract(db, user)["stored"] == 0
        assert memories(db, user, "m.memory_id", "m.content", "m.state", "m.recorded_at") == before
        assert db.execute(stats, [user]).fetchall() == [(0,), (1,)]
    assert extract(db, user) == {
        "turns": 0,
        "left": 0,
        "stored": 0,
        "duplicate": 0,
        "refused_tombstone": 0,
        "not_admitted": 0,
    }


def test_batches_take_up_where_the_last_one_ended(db: psycopg.Connection, user: str) -> None:
    cities = ["Ulm", "Bonn", "Kiel", "Jena", "Gera"]
    say(db, user, *(f"I visited {city} yesterday." for city in cities))
    assert [extract(db, user, limit=2)["left"] for _ in range(3)] == [3, 1, 0]
    assert len(memories(db, user)) == 5


def test_a_move_supersedes_and_an_older_statement_does_not(db: psycopg.Connection, user: str) -> None:
    def home() -> list[Any]:
        return memories(db, user, "m.content", "m.state::text", where="slot = 'home city'")

    say(db, user, {"role": "user", "content": "I live in Ulm.", "created_at": "2024-01-01T00:00:00Z"}, session="one")
    say(db, user, {"role": "user", "content": "I live in Kiel.", "created_at": "2025-01-01T00:00:00Z"}, session="two")
    say(db, user, {"role": "user", "content": "I live in Bonn.", "created_at": "2023-01-01T00:00:00Z"}, session="zero")
    for session in ("one", "two", "zero"):
        extract(db, user, session)
    assert home() == [("User lives in Ulm.", "superseded"), ("User lives in Kiel.", "active")]
    say(db, user, "I no longer live in Rome.", session="three")
    extract(db, user, "three")
    assert home()[1] == ("User lives in Kiel.", "active")
    say(db, user, "I don't live in Kiel anymore.", session="four")
    extract(db, user, "four")
    assert [state for _, state in home()] == ["superseded", "superseded", "active"]


def test_what_was_forgotten_excluded_or_is_secret_is_not_extracted(db: psycopg.Connection, user: str) -> None:
    say(db, user, "I live in Ulm. I love Bach.")
    extract(db, user)
    (memory,) = memories(db, user, "m.memory_id", where="m.content like '%%Ulm%%'")
    db.execute("select memoir.forget(%s, %s)", [user, memory])
    # The same words again, by anybody; the same turn again; another turn with the value in its slot.
    say(db, user, "I live in Ulm.", "Yes, we live in Ulm with our cat.")
    again(db, user)
    assert extract(db, user)["refused_tombstone"] == 2
    assert memories(db, user, where="m.state = 'active'") == ["User loves Bach."]
    # A turn, and a span of one, that is out of recall; lifted, they count again.
    done = say(
        db, user, "I bought a boat in Kiel yesterday.", "I met Tom in Jena yesterday. I met Ann in Gera yesterday."
    )
    first = done["from_turn"]
    exclude = (
        "insert into _memoir.recall_exclusions (user_id, session_id, turn_index, exclusion_id, span_start, span_length, reason, recorded_at) "
        "select user_id, %s, %s, gen_random_uuid(), %s, %s, 'test', now() from _memoir.users where external_id = %s"
    )
    db.execute(exclude, [done["session_id"], first, None, None, user])
    db.execute(exclude, [done["session_id"], first + 1, 5, 3, user])
    assert extract(db, user)["stored"] == 1
    assert [text for text in memories(db, user, where="m.type = 'event'") if "Ann" in text] and len(
        memories(db, user, where="m.type = 'event'")
    ) == 1
    db.execute(
        "update _memoir.recall_exclusions x set lifted_at = now() from _memoir.users u where u.user_id = x.user_id and external_id = %s",
        [user],
    )
    again(db, user)
    extract(db, user)
    assert len(memories(db, user, where="m.type = 'event'")) == 3


def test_private_turns_make_private_memories_and_secret_ones_none(db: psycopg.Connection, user: str) -> None:
    say(db, user, "I live in Ulm.", "I love Bach.")
    db.execute("set session_replication_role = replica")  # sensitivity is set on write; here the guard is passed over
    db.execute(
        "update _memoir.conversation_history h set sensitivity = case turn_index when 0 then 'private' else 'secret' end::_memoir.sensitivity "
        "from _memoir.users u where u.user_id = h.user_id and external_id = %s",
        [user],
    )
    db.execute("reset session_replication_role")
    extract(db, user)
    assert memories(db, user, "m.content", "m.sensitivity::text") == [("User lives in Ulm.", "private")]


def test_extraction_can_be_switched_off_for_a_user(db: psycopg.Connection, user: str) -> None:
    say(db, user, "I live in Ulm.")
    db.execute("select memoir.set_user_settings(%s, %s)", [user, Jsonb({"extraction": False})])
    assert extract(db, user) == {
        "turns": 1,
        "left": 0,
        "stored": 0,
        "duplicate": 0,
        "refused_tombstone": 0,
        "not_admitted": 0,
    }
    db.execute(
        "select memoir.set_user_settings(%s, %s)", [user, Jsonb({"extraction": None, "text_search_config": "german"})]
    )
    # The rules are those of each text's own language, whatever the setting.
    say(db, user, "I love Bach.", "Ik ben gek op Bach, altijd al.", "I hate rain.")
    assert extract(db, user)["stored"] == 2 and memories(db, user) == ["User hates rain.", "User loves Bach."]


def test_a_branch_extracts_only_its_own_turns(db: psycopg.Connection, user: str) -> None:
    say(db, user, "I live in Ulm.", "I love Bach.")
    db.execute("select memoir.branch_session(%s, 's', 'b', 1)", [user])
    assert extract(db, user, "b")["turns"] == 0
    say(db, user, "I hate rain.", session="b")
    assert extract(db, user, "b")["turns"] == 1 and memories(db, user) == ["User hates rain."]


# Admission ----------------------------------------------------------------------------------------------------------------------


def scores(db: psycopg.Connection, user: str) -> list[Any]:
    return db.execute(
        "select a.admitted, a.memory_id is not null, score_total, score_type, score_novelty, score_utility, score_recency, threshold "
        "from _memoir.admission_scores a join _memoir.users using (user_id) where external_id = %s order by a.recorded_at, score_total",
        [user],
    ).fetchall()


def test_every_candidate_is_scored_and_people_are_never_rejected(db: psycopg.Connection, user: str) -> None:
    db.execute("select memoir.set_user_settings(%s, %s)", [user, Jsonb({"admission_threshold": 1.0})])
    say(db, user, "I live in Ulm.", {"role": "assistant", "content": "I've booked the table for 9 May."})
    done = extract(db, user)
    assert (done["stored"], done["not_admitted"]) == (1, 1) and memories(db, user) == ["User lives in Ulm."]
    (rejected, kept) = sorted(scores(db, user))
    assert rejected[:2] == (False, False) and kept[:2] == (True, True)
    weights = (0.35, 0.25, 0.25, 0.15)
    for total, *parts, threshold in (rejected[2:], kept[2:]):
        assert total == pytest.approx(sum(weight * part for weight, part in zip(weights, parts, strict=True)), abs=1e-4)
        assert threshold == 1.0 and 0 <= total <= 1
    # What was not admitted is not stored when it is seen again, and nothing was left to exclude it by.
    again(db, user)
    assert extract(db, user)["not_admitted"] == 1


def test_novelty_is_judged_again_when_the_vector_comes(db: psycopg.Connection, user: str) -> None:
    db.execute("select memoir.register_embedding_model('four', 'none', 4)")
    db.execute("select memoir.switch_embedding_model('four')")
    db.execute("select memoir.remember(%s, 'The courier comes on Tuesday.', p_embedding => '{1,0,0,0}')", [user])
    # Scores on entry about 0.35 * 0.6 + 0.25 * 1 + 0.25 * 0.75 + 0.15 = 0.8; once its vector says it is nothing new, 0.55.
    db.execute("select memoir.set_user_settings(%s, %s)", [user, Jsonb({"admission_threshold": 0.7})])
    say(db, user, "I live in Ulm.", {"role": "assistant", "content": "I've booked the courier for 9 May at noon."})
    assert extract(db, user)["stored"] == 2
    claims = db.execute("select user_id, item_no, text from memoir.claim_embeddings(1000, 'four')").fetchall()
    vectors = [[1.0, 0.01, 0.0, 0.0] for _ in claims]
    db.execute(
        "select memoir.store_embeddings(%s, %s, %s::real[], 'four')",
        [[c[0] for c in claims], [c[1] for c in claims], vectors],
    )
    assert sorted(memories(db, user, "m.content", "m.state::text", "m.state_reason", where="m.session_id is not null"))[
        1
    ] == ("User lives in Ulm.", "active", None)
    assert sorted(memories(db, user, "m.state::text", "m.state_reason", where="m.session_id is not null"))[1] == (
        "invalidated",
        "not admitted",
    )
    assert [(row[0], row[1]) for row in scores(db, user)].count((False, True)) == 1


# The job ------------------------------------------------------------------------------------------------------------------------


def waiting(db: psycopg.Connection, user: str) -> int:
    return db.execute(
        "select count(*) from _memoir.work_items j join _memoir.users using (user_id) where external_id = %s and kind = 'turns'",
        [user],
    ).fetchone()[0]


def test_a_session_waits_once_and_the_job_empties_the_queue(db: psycopg.Connection, user: str) -> None:
    for place in range(3):
        say(db, user, f"I visited Ulm on {place + 1} May.", "How are you?")
    assert waiting(db, user) == 1
    db.execute("call memoir.run_job('extract')")
    assert waiting(db, user) == 0 and len(memories(db, user)) == 3
    (counts, outcome) = db.execute(
        "select counts, outcome from _memoir.job_runs where job = 'extract' order by run_id desc limit 1"
    ).fetchone()
    assert outcome == "done" and counts["turns"] >= 6 and counts["stored"] >= 3
    say(db, user, "I love Bach.")
    assert waiting(db, user) == 1


def test_one_session_that_fails_holds_nobody_up(db: psycopg.Connection, user: str) -> None:
    say(db, user, "I love Bach.", session="bad")
    say(db, user, "I love Ulm.", session="good")
    db.execute(
        "update _memoir.work_items j set dedup_key = 'no uuid' from _memoir.sessions s join _memoir.users u using (user_id) "
        "where u.external_id = %s and s.external_id = 'bad' and j.user_id = s.user_id and j.dedup_key = s.session_id::text",
        [user],
    )
    db.execute("call memoir.run_job('extract')")
    assert memories(db, user) == ["User loves Ulm."]
    assert db.execute(
        "select state, attempts, last_error like '%%no uuid%%' from _memoir.work_items where dedup_key = 'no uuid'"
    ).fetchone() == ("ready", 1, True)
    assert db.execute(
        "select outcome from _memoir.job_runs where job = 'extract' order by run_id desc limit 1"
    ).fetchone() == ("errors",)
    db.execute("delete from _memoir.work_items where dedup_key = 'no uuid'")


def test_a_session_that_hangs_ends_as_a_dead_letter_and_the_others_are_extracted(
    db: psycopg.Connection, memoir_dsn: str, user: str, clock: Any
) -> None:
    old = db.execute("select pg_get_functiondef('_memoir.bare(text)'::regprocedure)").fetchone()[0]
    for session in ("a", "hangs", "z"):
        say(db, user, "I love Hang Drums." if session == "hangs" else f"I love town {session}1.", session=session)
    set_settings(db, job_unit_seconds=5, work_attempts_max=2)
    try:
        db.execute(old.replace("begin", "begin if p_sentence like '%Hang%' then perform pg_sleep(3600); end if;", 1))
        for attempt in (1, 2):
            clock(f"2120-01-0{attempt}T00:00:00Z")  # waited long enough
            with connect(memoir_dsn) as other:
                run = threading.Thread(target=other.execute, args=["call memoir.run_job('extract')"])
                run.start()
                while run.is_alive():
                    db.execute("call memoir.run_job('flush')")  # as any job that begins meanwhile
                    run.join(0.2)
            assert sorted(memories(db, user)) == ["User loves town a1.", "User loves town z1."]
            assert last_run(db, "extract")[0] == "errors"
        work = db.execute(
            "select j.state, j.attempts, j.last_error from _memoir.work_items j join _memoir.users using (user_id) where external_id = %s and kind = 'turns'",
            [user],
        )
        assert work.fetchall() == [("dead", 2, "it took longer than job_unit_seconds")]
    finally:
        db.execute(old)
        db.execute("select memoir.reset_setting('job_unit_seconds'), memoir.reset_setting('work_attempts_max')")


def test_an_attempt_whose_process_died_counts(db: psycopg.Connection, memoir_dsn: str, user: str) -> None:
    say(db, user, "I love Bach.")
    with connect(memoir_dsn) as other:
        run = other.execute("select _memoir.job_begin('extract', 60)").fetchone()[0]
        assert other.execute("select _memoir.job_step(%s)", [run]).fetchone() == (True,)  # leased, and no more
        process = other.info.backend_pid
    while db.execute("select 1 from pg_stat_activity where pid = %s", [process]).fetchone():
        pass
    db.execute("call memoir.run_job('extract')")
    work = db.execute(
        "select j.state, j.attempts, j.last_error from _memoir.work_items j join _memoir.users using (user_id) where external_id = %s and kind = 'turns'",
        [user],
    )
    assert (
        work.fetchall() == [("ready", 1, "the run that extracted it ended before it did")] and memories(db, user) == []
    )


PASTED = ['<p class="x">', '"so it is ', "``` ", "x = f();\n", "> quoted\n"]


@pytest.mark.parametrize("unit", PASTED)
def test_a_pasted_page_costs_little_and_says_nothing_of_who_pasted_it(
    db: psycopg.Connection, user: str, unit: str
) -> None:
    page = "I love Ulm.\n" + unit * (1_000_000 // len(unit))
    with db.transaction():
        db.execute("set local statement_timeout = '20s'")
        say(db, user, page)
        assert extract(db, user)["left"] == 0
    assert memories(db, user) == ["User loves Ulm."]


def test_writers_and_extractors_together_lose_and_double_nothing(
    memoir_dsn: str, db: psycopg.Connection, user: str
) -> None:
    sessions, each = 4, 12
    errors: list[BaseException] = []
    writing = threading.Event()
    writing.set()

    def guarded(work: Any) -> threading.Thread:
        def run() -> None:
            try:
                with connect(memoir_dsn) as connection:
                    work(connection)
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def writer(number: int) -> Any:
        def work(connection: psycopg.Connection) -> None:
            for turn in range(each):
                say(connection, user, f"I visited town {number * each + turn + 1} yesterday.", session=f"w{number}")

        return work

    def stepper(connection: psycopg.Connection) -> None:
        while writing.is_set():
            connection.execute("select _memoir.step_extract(3)")
            for number in range(sessions):
                if connection.execute(
                    "select exists (select from _memoir.sessions join _memoir.users u using (user_id) where u.external_id = %s and sessions.external_id = %s)",
                    [user, f"w{number}"],
                ).fetchone()[0]:
                    extract(connection, user, f"w{number}", 2)

    say(db, user, "Hello.", session="w0")
    writers = [guarded(writer(number)) for number in range(sessions)]
    steppers = [guarded(stepper) for _ in range(2)]
    for thread in writers:
        thread.join()
    writing.clear()
    for thread in steppers:
        thread.join()
    assert errors == []
    for number in range(sessions):
        extract(db, user, f"w{number}")
    got = memories(db, user)
    assert len(got) == len(set(got)) == sessions * each
    assert waiting(db, user) == 0
    assert db.execute(
        "select bool_and(extracted_through = turn_count) from _memoir.session_counters join _memoir.users using (user_id) where external_id = %s",
        [user],
    ).fetchone() == (True,)


def test_dates_are_those_of_the_turn_not_of_the_run(db: psycopg.Connection, user: str, clock: Any) -> None:
    clock("2026-03-04T12:00:00Z")
    say(
        db,
        user,
        {"role": "user", "content": "I flew to Rome yesterday.", "created_at": "2020-02-29T10:00:00Z"},
        "I flew to Oslo yesterday.",
    )
    clock("2026-04-04T12:00:00Z")
    extract(db, user)
    assert sorted(memories(db, user, "m.content", "m.valid_from::date", "m.metadata ->> 'event_from'")) == [
        ("User flew to Oslo on 3 March 2026.", date(2026, 3, 3), "2026-03-03"),
        ("User flew to Rome on 28 February 2020.", date(2020, 2, 28), "2020-02-28"),
    ]


# A model's candidates --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def model(db: psycopg.Connection) -> Iterator[None]:
    for key, value in (("llm_provider", "openai"), ("llm_model", "default")):
        db.execute("select memoir.set_setting(%s, %s)", [key, Jsonb(value)])
    yield
    for key in ("llm_provider", "llm_model"):
        db.execute("select memoir.reset_setting(%s)", [key])


def candidate(turn: int, quote: str, content: str, **more: Any) -> dict[str, Any]:
    return {
        "turn": turn,
        "quote": quote,
        "content": content,
        "type": "fact",
        "provenance": "user_stated",
        "importance": 0.8,
    } | more


def answered(db: psycopg.Connection, *found: dict[str, Any]) -> dict[str, Any]:
    """The input that the model got, after its answer was stored."""
    ((job, lease, kind, given),) = db.execute("select * from memoir.claim_model_calls(10)").fetchall()
    assert kind == "extract"
    done = db.execute(
        "select memoir.store_model_result(%s, %s, %s, 'm extract.v1')", [job, lease, Jsonb({"memories": list(found)})]
    ).fetchone()[0]
    assert "failed" not in done, done
    return given | {"stored": done["stored"]}


def test_a_model_says_better_what_rules_found(db: psycopg.Connection, user: str, model: None) -> None:
    say(
        db,
        user,
        "I live in Ulm, just by the minster. The weather is bad.",
        {"role": "assistant", "content": "Noted. Shall I look for a flat?"},
    )
    extract(db, user)
    assert memories(db, user) == ["User lives in Ulm, just by the minster."]
    given = answered(
        db,
        candidate(
            0,
            "I live in Ulm, just by the minster",
            "The user lives in Ulm by the minster.",
            valid_from="2020-01-01",
            valid_until="2099-12-31",
        ),
    )
    assert [(turn["turn"], turn["role"]) for turn in given["turns"]] == [(0, "user"), (1, "assistant")] and given[
        "stored"
    ] == 1
    assert memories(
        db, user, "m.content", "m.state::text", "tier", "provenance::text", "m.metadata ->> 'extracted_by'"
    ) == [
        ("User lives in Ulm, just by the minster.", "superseded", 3, "user_stated", "rules 1"),
        ("The user lives in Ulm by the minster.", "active", 3, "user_stated", "m extract.v1"),
    ]
    assert memories(db, user, "valid_from::date", "valid_to::date", where="m.state = 'active'") == [
        (date(2020, 1, 1), date(2100, 1, 1))
    ]
    # The same turns once more, by rules or by a model: nothing new.
    again(db, user)
    assert extract(db, user)["stored"] == 0
    assert (
        answered(db, candidate(0, "I live in Ulm, just by the minster", "The user is at home in Ulm."))["stored"] == 0
    )


def test_a_model_claims_no_more_than_its_turns_allow(db: psycopg.Connection, user: str, model: None) -> None:
    say(
        db,
        user,
        "We pay the rent of 900 euros on Mondays, and Tom keeps the keys.",
        {"role": "assistant", "content": "You surely own a yacht in Monaco."},
        session="s",
    )
    extract(db, user)
    done = answered(
        db,
        candidate(0, "the rent of 900 euros", "The user pays a rent of 900 euros on Mondays."),
        candidate(0, "Tom keeps the keys", "The user's PIN is 4711 and Tom keeps the keys."),  # a number nobody said
        candidate(0, "Tom keeps the keys", "The user secretly hates everybody in Paris."),  # not what the turn says
        candidate(
            1, "own a yacht in Monaco", "The user owns a yacht in Monaco.", provenance="correction"
        ),  # the assistant's word
        candidate(0, "I never said this", "The user likes gold."),
        candidate(7, "rent", "The user pays rent elsewhere."),
    )
    assert done["stored"] == 4
    got = {
        row[0]: row[1:]
        for row in memories(
            db, user, "m.content", "provenance::text", "scope::text", "tier", where="m.metadata ->> 'rule' = 'model'"
        )
    }
    assert got.pop("The user pays a rent of 900 euros on Mondays.") == ("user_stated", "global", 2)
    assert len(got) == 3 and set(got.values()) == {("system_inferred", "local", 1)}


def test_a_model_gets_nothing_private_and_nothing_forgotten_meanwhile(
    db: psycopg.Connection, user: str, model: None
) -> None:
    say(db, user, "Tom waters my three plants.", "My cat Ivy hides in the cupboard.", "Ann feeds the fish.")
    db.execute("select memoir.mark_turn(%s, 's', 1, 'private')", [user])
    extract(db, user)
    ((job, lease, _, given),) = db.execute("select * from memoir.claim_model_calls(10)").fetchall()
    assert [turn["turn"] for turn in given["turns"]] == [0, 2]
    db.execute(
        "insert into _memoir.recall_exclusions (user_id, session_id, turn_index, exclusion_id, reason, recorded_at) "
        "select user_id, session_id, 0, gen_random_uuid(), 'test', now() from _memoir.sessions join _memoir.users u using (user_id) where u.external_id = %s",
        [user],
    )
    found = [
        candidate(0, "Tom waters my three plants", "Tom waters the user's three plants."),
        candidate(1, "My cat Ivy", "The user's cat is called Ivy."),
        candidate(2, "Ann feeds the fish", "Ann feeds the fish."),
    ]
    assert (
        db.execute(
            "select memoir.store_model_result(%s, %s, %s, 'm extract.v1')", [job, lease, Jsonb({"memories": found})]
        ).fetchone()[0]["stored"]
        == 1
    )
    assert memories(db, user, where="m.metadata ->> 'rule' = 'model'") == ["Ann feeds the fish."]


# In the compiled list --------------------------------------------------------------------------------------------------------------


def recalled_for(db: psycopg.Connection, user: str, query: str) -> tuple[str, dict[str, str]]:
    """(the recall of a compile in a fresh session, what became of each considered memory or turn)."""
    listed = db.execute("select memoir.compile_context(%s, 'fresh', %s)", [user, query]).fetchone()[0][-1]["content"]
    rows = db.execute("select id::text, reason from memoir.explain_context(%s, 'fresh', %s)", [user, query]).fetchall()
    return listed.removesuffix(query), dict(rows)


def test_a_turn_stands_for_what_was_extracted_from_it(db: psycopg.Connection, user: str) -> None:
    say(
        db,
        user,
        "We live in Ulm, by the minster. I bought a lighthouse in Kiel last month.",
        {"role": "assistant", "content": "Noted."},
    )
    before = recalled_for(db, user, "Where is the minster that we live by?")
    extract(db, user)
    (home,) = memories(db, user, "m.memory_id::text", where="m.content like '%%minster%%'")
    (house,) = memories(db, user, "m.memory_id::text", where="m.content like '%%lighthouse%%'")
    # Extracting changes nothing about which turns are found; recall finds the memory where memories are asked for.
    assert recalled_for(db, user, "Where is the minster that we live by?") == before and home not in before[1]
    assert [
        str(row[0]) for row in db.execute("select id from memoir.recall(%s, 'minster', p_kinds => '{memory}')", [user])
    ] == [home]
    # What is shown counts as use of what it says.
    db.execute("call memoir.flush_statistics()")
    assert db.execute("select access_count > 0 from _memoir.memory_stats where memory_id = %s", [home]).fetchone() == (
        True,
    )
    # When the turn may not be found any more, what else it said is still known.
    db.execute("select memoir.forget(%s, %s)", [user, home])
    listed, reasons = recalled_for(db, user, "Who bought a lighthouse in Kiel?")
    assert "lighthouse" in listed and reasons[house] is None and "minster" not in listed
