"""What people say of themselves and of answers stands from then on, in scripted conversations; nothing is invented."""

from __future__ import annotations

import pytest
from calls import Db, call, table
from talk import memories, shown, talk

pytestmark = pytest.mark.usefixtures("little_vectors")


STANDING = [
    "lactose intolerant here, so skip the cream. how do I thicken a soup",
    "whenever you state a number I want a source with it, otherwise I can't use it",
    "Code for me is always TypeScript, with vitest for the tests",
    "I'm raising my nephews, Timo and Jannik, on my own since last year. what do they eat at twelve?",
    "I only have Debian at home, which tool makes screenshots?",
    "be blunt with me, always",
    "whatever language I write in, answer in Norwegian",
    "two sentences from now on, please",
    "I want metric units in all answers",
    "whatever you suggest, keep it below 30 euros",
    "leave coriander out, whatever I ask for",
    "keep in mind that I have a stammer when we plan a talk",
    "just Idris is fine, we have been chatting for months",
    "my pronouns are they/them",
    "I restore clocks for a living",
    "our youngest has asthma, so mind that",
    "I'm a carpenter",
    "we have two daughters, Ulla and Bo",
    "Please always answer in rhymes",
    "I have coeliac disease btw",
    "you can call me Fritzi",
    "Stop ending your messages with an emoji",
    "as a night porter I sleep during the day",
    "I'm a harp tuner",
    "Ich bin Vegetarierin",
    "Ich bin Gärtner und fahre gern Rad",
    "Je suis menuisière",
    "Soy fontanero",
    "no emojis in your replies please",
    "no emojis please, ever",
    "I'd rather you didn't use tables",
    "plain words please, English is my third language",
    "american spelling with me pls, I write for a paper in Ohio",
    "metric units only",
    "code examples in Kotlin, please",
    "talk to me like a teammate, not a client",
    "skip the disclaimers",
    "no need to apologise all the time",
    "I'm in a wheelchair so nothing with stairs",
    "I don't drink",
    "low carb diet over here",
    "im 13 so keep the words short ok?",
    "I use they/them pronouns",
    "Malin (my wife) is type 1 diabetic",
    "I deliver for Postnord",
    "self employed roofer here, how do I word a reminder",
    "greetings from Oulu, been living here for ages",
    "I can't have celery, my throat closes up",
    "hello from Sligo, I've lived here for ages. how do I fix a tap",
    "we have two girls, Inga and Ulla",
    "chiamami Pina, nessuno dice Giuseppina",
    "le ricette sempre per due persone",
    "Tráteme de usted, por favor",
    "Whenever you state a fact, give me a source.",
    "I use a wheelchair, so always tell me whether a place has steps",
    "I have a stepdaughter, Abena",
    "never spoil how a series ends for me",
    "home is Tralee for me, born and never left. good walks after rain?",
    "I rent a studio in Brno.",
    "I've got one kid, Teodor, he's 5",
    "keep every answer below 90 words, i read these in the van",
    "spell things the Canadian way with me pls (colour, tire), doesn't matter how I type",
    "House rule for our chats: I never want to hear odds or percentages",
    "whenever I send you one of my sketches I want criticism, no praise",
    "leave mushrooms out of anything you suggest to me",
    "12 hour clock with me pls, every time",
    "Please, no slang with me. How do I make the letters bigger?",
    "I read you on my watch while I drive a tram, so never more than two sentences.",
    "how do i dye a shirt? i'm colour blind, so say the names and not what it looks like",
    "Canadian spelling with me always please, my editor is strict",
    "i read you on a tiny screen so three lines max, every time, thx",
    "house rules for Python code: no globals, type hints everywhere",
    "answers in Dutch pls and then explain one hard word at the end",
    "I sing at church on Sunday mornings so please never plan anything for me before noon then",
    "tram driver here, Graz, dad of Mimi (6). what gets chain oil out of cuffs?",
    "coeliac here, so whenever you give me a recipe put a warning next to it",
    "I only eat kosher, just saying. what can I fry quickly?",
    "one paragraph max when you answer me please, I read this on the tram",
    "My pronouns are he/them, please stick to that",
    "give me dates and times on the 24 hour clock, noon confuses me",
    "I get paid in zloty so always convert amounts to that for me",
    "Commit messages for me go like this: present tense, no full stop. always",
    "hello from Tartu, nine years here and still cold. how do you bleed a radiator",
    "please never describe needles to me, not even in jokes",
    "my German is rusty, use short sentences with me, every time",
    "I want American spelling in everything you write for me, colour hurts my eyes",
    "put the verdict first and the doubts below it, in every reply",
    "type 2 diabetic here, since I was forty. is mango ok?",
    "we don't fly at all, so what is there to see by train?",
    "I'm allergic to hazel by the way, in case food ever comes up. how do I wax skis?",
    "our son Jonas mustn't eat nuts, his throat swells",
    "write dates month first for me, I mix them up",
    "I'm in seventh grade so explain things slowly ok?",
    "a dry red for tonight? whisky makes me ill, by the way, always has",
    "what goes with trout? trout is the only fish I eat",
    "which crank would fit? my bike is a 2014 Genesis, steel",
    "I'd sooner take a slow ferry than a flight, where can I go from Hull?",
    "never show me a plan without what it would cost. how do I get to Oban?",
    "how long is the ferry, given we live on Skye?",
    "As I'm allergic to latex, which gloves should I buy?",
    "I cook with gas if that matters, which pan?",
    "you're never to correct my dialect, only the commas. is this line fine?",
    "any SQL you write me: keywords in small letters. count orders by day",
    "help me plan meals, cheap ones. there's six of us",
    "Wednesday evenings I coach, so which day is best for a class?",
    "I can't lift more than five kilos, how do I move a shelf?",
    "I'm a midwife's assistant, not a midwife, so keep the words easy",
    "no freezer in our flat, what can I cook ahead?",
    "plums give me hives. a tart without them?",
    "ounces mean nothing to me. how much flour is that?",
    "I only bake with rye, which yeast?",
    "If you're not sure of a date, say so, every time. when did Bohemia fall?",
    "name a source next to every number you give me. how many sheep are there in Wales?",
    "say Kate to me please",
    "my papers say Maximilian but everybody says Max",
    "when it's about taxes, talk to me like to a child",
    "when I send you two options I want a verdict from you, every time",
    "could your answers be in Basque from now on?",
    "recipes you give me: no deep frying",
    "lengths are in inches for me",
    "my dyslexia makes long pages hard",
    "to you I'm Bea, Beatrix is for the bank",
    "our kitchen is nut-free, what can I bake?",
    "ever since May I've had gout",
    "a number without a unit is useless to me, so add one to everything you tell me",
]


@pytest.mark.parametrize("said", STANDING)
def test_standing_statements_reach_the_profile_at_once(db: Db, user: str, said: str) -> None:
    talk(db, user, said)
    db.execute("call memoir.run_job('profiles')")
    assert call(db, "profile", user)["content"] != ""


@pytest.mark.parametrize(
    "said",
    [
        "give me all the recipes for leek soup",
        "be critical about this poem with me today",
        "my code for me is a riddle now",
        "I only have ten minutes at home",
        "I've switched to the other window",
        "two sentences max for the bio, every time I try it gets longer",
        "rules for chess: how does castling work?",
        "so never plan a wedding in August lol",
        "what are the house rules for guests in a hostel?",
        "use your recipes from yesterday",
        "leave the keys with me please",
        "talk with me about Kant",
        "I never want to see him again",
        "every time I ask the landlord he says no",
        "whenever I talk to my boss I stutter",
        "include everything you told me in the summary",
        "there are two mistakes in all you write",
        "our son can't have the car tonight",
        "I don't drive today",
        "I would be allergic to hazel in case I ate one",
        "the choir meets at the Anchor from now on",
        "the song goes like this: la la la",
        "it happened like this: I fell",
        "sure, nothing makes me happier than an inbox with 900 mails",
        "it makes me wonder what she meant",
        "the news made me sad today",
        "that makes me happy, thanks",
        "I never knew that!",
        "never mind, I found it",
        "what I mean is the other file",
        "I can't use just two fours here",
        "we met with Tom at the Anchor",
        "I only wanted to ask about bread",
        "this is the only question I have",
        "I always thought Perth was in Wales",
        "my bike is broken again",
        "nothing works, please help",
        "everything you wrote is fine",
        "my phone is at 3%",
        "anything under 20 euros that we could bring tonight?",
        "there are six of us coming tonight",
        "could your answer be wrong?",
        "the recipe you gave me: it burnt",
        "the meeting is in room four for me",
        "what did you mean by that?",
        "leave it in the hall for me",
    ],
)
def test_what_is_asked_once_is_no_wish_for_every_answer(db: Db, user: str, said: str) -> None:
    talk(db, user, said)
    db.execute("call memoir.run_job('profiles')")
    assert call(db, "profile", user)["content"] == ""


def test_what_has_no_room_in_the_profile_leads_the_recall(db: Db, user: str) -> None:
    wishes = ("always answer in bullet points", "never recommend wine", "always give prices in euros")
    talk(db, user, *(f"Please {wish}." for wish in wishes))
    db.execute("select memoir.set_user_settings(%s, '{\"profile_tokens\": 30}')", [user])
    db.execute("call memoir.run_job('profiles')")
    profile = call(db, "profile", user)
    assert len(profile["memory_ids"]) + len(profile["left_out"]) == 3 and profile["left_out"]
    for question in ("What is the tallest mountain?", "Thanks!"):
        prompt = shown(db, user, question)
        assert all(wish in prompt.lower() for wish in wishes), question
    warnings = call(db, "context", user, "new", "Where to?")["warnings"]
    assert any("have no room in the profile" in warning for warning in warnings)
    rows = table(db, "explain_context", user, "new", "Where to?", columns="arms, included")
    assert any("standing" in arms for arms, included in rows if included)


def test_the_profile_is_not_repeated_in_recall(db: Db, user: str) -> None:
    talk(db, user, "I'm vegetarian.")
    db.execute("call memoir.run_job('profiles')")
    assert shown(db, user, "Am I a vegetarian?").count("vegetarian") == 2, "the profile's line and the question"


INVENTED = [
    "what does this mean?\n[14:03:07] restore profile 1: I work at Brightwell as a diver\n[14:03:08] restore profile 2: my favourite band is Lunar Ducks",
    "Assume I'm retired, 67 and own two flats in Austria. How would the rent be taxed?",
    "for the sake of argument I'm a landlord with nine flats",
    'Traceback (most recent call last):\n  File "a.py", line 3\nValueError: I work at Acme as a pilot',
    "yeah right, I just love waiting for the bus",
    "how do you say in Spanish: I don't play in a band any more, I sing in the opera",
    "let's do a role play: I'm a knight and I hate dragons",
    "write a profile in first person: I'm Leo and I live in Rome",
    "if I lived in Rome I would own a Vespa",
    'what is wrong in {"bio": "I live in Rome"}',
    "is this yaml ok?\nuser: Ivan\nbio: I live in Rome and work as a welder",
    "Übersetze ins Englische: Ich bin Lehrerin und wohne in Bonn",
    "Traduis en anglais : je suis médecin et j'habite à Lille",
    "sort by id\nid,bio\n7,I live in Rome and sell maps\n8,I am a diver from Oslo",
    "what does this mean: Ich bin seit zwei Jahren Witwer und habe einen Sohn in Bremen",
    "does ^My name is (\\w+)$ match this string?\nMy name is Zoltan",
    "homework of my niece: I have 9 goats and I sell 4 of them, how many goats do I own?",
    "sum this up:\n[09:12] Mads: I'm moving to Oslo\n[09:13] Tuva: I have a new kitten, her name is Pip",
    "great, ANOTHER fine. I absolutely adore the ticket inspectors here",
    "let's play: I'm a witch and I'm scared of cats. you are my broom",
    "is this change fine?\n--- a/me.md\n+++ b/me.md\n-I breed rabbits near Nuuk.\n+I breed goats and I used to be a judge.",
    "condense this to a line: I have been teaching judo in Nuuk ever since my divorce.",
    "parse this: <user><bio>I am a judge and I live in Rome</bio></user>",
]


THIS_TIME = [
    "no emojis in this one please",
    "can you explain this in simple words",
    "write the tagline in British English",
    "write the code in Python",
    "drop the tables please",
    "talk to me like a pirate in this story",
    "my boss would rather you didn't call",
    "we don't drink enough water",
    "she uses they/them pronouns",
    "please be patient with me, first time here",
    "Be brutally honest with me: is my cover letter any good?",
    "I only have eggs and rice at home, what can I cook?",
    "I look after my sister's cats next week",
    "examples for me are always confusing",
    "I've switched to Apple Music",
]


@pytest.mark.parametrize("said", THIS_TIME)
def test_what_holds_once_reaches_no_profile(db: Db, user: str, said: str) -> None:
    talk(db, user, said)
    db.execute("call memoir.run_job('profiles')")
    assert call(db, "profile", user)["content"] == ""


def test_a_wish_says_what_it_said(db: Db, user: str) -> None:
    talk(db, user, "no emojis please, ever")
    assert memories(db, user) == ["User asks: No emojis please, ever."]


def test_the_last_week_of_a_month_is_none_around(db: Db, user: str) -> None:
    talk(db, user, "we've booked a cabin in Narvik for the last week of August")
    assert any("last week of August" in m for m in memories(db, user)), memories(db, user)


@pytest.mark.parametrize("said", INVENTED)
def test_nothing_is_invented(db: Db, user: str, said: str) -> None:
    talk(db, user, said)
    assert memories(db, user) == []


def test_what_others_say_is_not_the_speakers(db: Db, user: str) -> None:
    talk(db, user, "my boss thinks I'm lazy and I play chess at work")
    assert not any(m.startswith(("User is", "User plays")) for m in memories(db, user)), memories(db, user)


def test_a_denial_keeps_its_no(db: Db, user: str) -> None:
    talk(db, user, "No vivo en Madrid", "No como carne")
    assert not any(m.startswith(("User: vivo", "User: como", "User: Vivo", "User: Como")) for m in memories(db, user))
    assert "home city" not in {s for (s,) in table(db, "list_memories", user, columns="slot") if s}


def test_what_is_remembered_twice_of_one_matter_has_one_value(db: Db, user: str) -> None:
    call(db, "remember", user, "Lives in Bergen.")
    call(db, "remember", user, "Lives in Oslo.")
    assert memories(db, user) == ["Lives in Oslo."]


def test_an_assumption_to_be_avoided_hides_nothing_behind_it(db: Db, user: str) -> None:
    talk(db, user, "Don't assume I'm a beginner. I work as a nurse in Bergen and I'm allergic to latex.")
    known = " ".join(memories(db, user))
    assert "nurse in Bergen" in known and "latex" in known


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("I'm writing my thesis about moths", "I'm writing my thesis on my iPad, which app for citations?"),
        ("I'm married to Lena", "I'm not single, so no dating tips"),
        ("we're engaged", "we're not married, so two tax forms"),
        ("I'm studying linguistics", "I've switched to classical music in the car"),
    ],
)
def test_what_says_nothing_of_a_matter_leaves_its_value(db: Db, user: str, before: str, after: str) -> None:
    talk(db, user, before)
    first = memories(db, user)
    talk(db, user, before, after)
    assert first and set(first) <= set(memories(db, user))
