"""What is said has effect: corrections and requests to forget, in scripted conversations."""

from __future__ import annotations

import psycopg
import pytest
from calls import Db, call, persist, set_clock, table
from talk import changes, memories, shown, spans, talk

pytestmark = pytest.mark.usefixtures("little_vectors")


CORRECTIONS = [
    ("We fly on the 12th, two bags", "it's the 14th that we fly, not the 12th", "14th", "the 12th, two"),
    ("My hearing is on 12 March", "they've put the hearing back to 2 April", "2 April", "12 March"),
    ("My parrot is called Gizmo", "typo, my parrot's name isn't Gizmo but Gizma", "Gizma", "Gizmo."),
    ("I'm vegan", "I'm not vegan anymore, I eat cheese again", "not vegan", "is vegan"),
    ("My number is 0171 22 33 445", "new phone: my number is 0160 99 88 776", "0160 99 88 776", "0171"),
    ("I use Trello for my lists", "switched from Trello to Todoist, so much calmer", "Todoist", "uses Trello"),
    (
        "We're going to foster a donkey from the sanctuary",
        "the donkey thing is off, the vet said no",
        "is off",
        "going to foster",
    ),
    ("I can't stand olives", "I actually love olives now", "love", "can't stand"),
    ("We own a barge near Gouda", "we sold the barge in May", "sold", "own a barge"),
    ("we booked a caravan for the first week of June", "so the caravan company went bust", "bust", "booked a caravan"),
    ("Ich wohne in Jena", "Nein, ich wohne jetzt in Gera", "Gera", "Jena"),
    ("Vivo en Teruel", "Ya no vivo en Teruel, ahora vivo en Soria", "Soria", "Teruel"),
]


@pytest.mark.parametrize(("before", "after", "new", "old"), CORRECTIONS)
def test_a_correction_takes_effect(db: Db, user: str, before: str, after: str, new: str, old: str) -> None:
    talk(db, user, before, after)
    active = memories(db, user)
    assert any(new in m for m in active), active
    assert not any(old in m for m in active if new not in m), active
    assert spans(db, user, "changed") >= 1, "the older turn is not marked"


TRAPS = [
    ("My rabbit is called Flip", "My hamster is called Flop"),
    ("I live in Vejle", "my cousin moved to Odense"),
    ("I live in Vejle", "When I was a student I lived in Aalborg"),
    ("I drive a Lada Niva", "I was wrong about the film, it starts at nine"),
    ("I'm allergic to nuts", "I'm not allergic to cats"),
    ("My sailing course is on 3 May", "Ole's sailing course is on 10 May"),
]


@pytest.mark.parametrize(("before", "after"), TRAPS)
def test_another_thing_changes_nothing(db: Db, user: str, before: str, after: str) -> None:
    talk(db, user, before, after)
    assert changes(db, user) == []
    assert memories(db, user), "the first statement is gone"


def answer(db: Db, user: str, before: str, asked: str, given: str) -> None:
    """A statement; then, in another session, an answer to what the assistant asked."""
    talk(db, user, before)
    persist(db, user, "later", "I need new ones before winter", asked)
    persist(db, user, "later", given, "Noted.")
    call(db, "extract_session", user, "later")


@pytest.mark.parametrize(
    ("before", "asked", "given", "new"),
    [
        ("my son Jory takes size 29 in shoes", "Lined ones are best. Which shoe size is he?", "32 by now lol", "32"),
        ("I start at 5am at the bakery", "Sure. What time do you start at the bakery?", "7.15 since May", "7.15"),
    ],
)
def test_an_answer_is_about_what_was_asked(db: Db, user: str, before: str, asked: str, given: str, new: str) -> None:
    answer(db, user, before, asked, given)
    assert spans(db, user, "changed") == 1
    active = memories(db, user)
    assert any(new in m and "?" in m for m in active), active


@pytest.mark.parametrize(
    ("before", "asked", "given"),
    [
        ("I take size 44 in shoes", "Which shoe size is she?", "32"),
        ("my son Jory takes size 29 in shoes", "How many do you need?", "3"),
        ("I start at 5am at the bakery", "What time does the train leave?", "7.15"),
    ],
)
def test_an_answer_about_something_else_changes_nothing(db: Db, user: str, before: str, asked: str, given: str) -> None:
    answer(db, user, before, asked, given)
    assert changes(db, user) == []


def test_what_it_is_not_is_over_at_once(db: Db, user: str) -> None:
    persist(db, user, "s", "we'll paint the hall beige. how much do I need?", "Six litres.")
    persist(db, user, "s", "wait, not beige, sand! I always mix them up", "Sand it is.")
    call(db, "extract_session", user, "s")
    assert spans(db, user, "changed") == 1


def test_a_day_ahead_is_in_the_year_to_come(db: Db, user: str) -> None:
    set_clock(db, "2026-11-20T12:00:00Z")
    try:
        talk(db, user, "my thesis is due on 15 January")
    finally:
        set_clock(db, None)
    assert any("15 January 2027" in m for m in memories(db, user)), memories(db, user)


def test_what_changed_a_change_is_shown_beside_it(db: Db, user: str) -> None:
    talk(
        db,
        user,
        "the handover of the flat is set for 12 November",
        "solicitor says the handover will be 26 November",
        "great news! solicitor rang: handover 19 November, and I bought a sofa in the sale",
        *[f"how do I prune a {plant}?" for plant in ("rose", "quince", "medlar", "plum", "fig", "vine", "pear", "box")],
    )
    db.execute("call memoir.run_job('embed')")
    text = shown(db, user, "When is the handover of the flat?")
    assert "19 November" in text
    assert "26 November (later changed)" in text


def test_the_older_statement_is_shown_with_a_mark(db: Db, user: str) -> None:
    talk(db, user, "I live in Malaga, and my bakery opens at six", "I don't live in Malaga any more, I moved to Cadiz")
    text = shown(db, user, "In which city do I live, Malaga?")
    line = next(x for x in text.split("\n") if x.startswith("user: I live in Malaga"))
    assert "(later changed)" in line
    assert "bakery" in line


def test_a_list_keeps_its_rest_until_it_is_undone(db: Db, user: str) -> None:
    talk(db, user, "I am allergic to nuts and cats.", "It turned out I am not allergic to cats.")
    assert "User is allergic to nuts." in memories(db, user)
    db.execute("call memoir.run_job('profiles')")
    profile = call(db, "profile", user)["content"]
    assert "User is allergic to nuts." in profile and "nuts and cats" not in profile
    (change,) = changes(db, user)
    call(db, "undo_change", user, change)
    active = memories(db, user)
    assert "User is allergic to nuts and cats." in active and "User is allergic to nuts." not in active


def test_a_change_can_be_undone(db: Db, user: str) -> None:
    talk(db, user, "We have two goats", "We have four goats now")
    made = table(db, "list_changes", user, columns="change_id")
    for (change,) in made:
        call(db, "undo_change", user, change)
    assert changes(db, user) == []
    with pytest.raises(psycopg.Error, match="unknown change"):
        call(db, "undo_change", user, made[0][0])


FORGETS = [
    (
        "I have a hearing at the labour court against Brightline Ltd",
        "Erase everything I've said about Brightline.",
        "Brightline",
    ),
    ("I see Dr. Amsel every Friday, she's a therapist", "please erase what I told you about my therapist", "Amsel"),
    (
        "Levin goes to the Birkenhof school",
        "you don't need that, so don't remember which school Levin goes to",
        "Birkenhof",
    ),
    ("I live at 8 Harbour Row, top bell", "please forget my address", "Harbour"),
    ("I've been seeing Jasper since June", "It's over with Jasper. Forget everything I said about him.", "Jasper"),
    ("my savings account ends in 7741, it's at the corner bank", "forget my savings account", "corner bank"),
    ("my wifi key is plumtree77", "can u take my wifi key out of your memory", "plumtree77"),
    ("I weigh 97 kilos at the moment", "I want you to forget my weight", "97"),
    ("our caretaker is called Bruno", "our caretaker should not sit in your memory", "Bruno"),
    (
        "I take cholesterol pills and I wear contact lenses",
        "forget about the cholesterol pills, the doctor mixed up the tests",
        "cholesterol",
    ),
    ("my bike lock opens with 5512", "please forget my bike lock", "5512"),
    ("I'm allergic to kiwis and I take zinc tablets", "forget that I'm allergic to kiwis", "kiwis"),
    ("my cousin Ottmar owes me money", "Can you forget everything I told you about Ottmar?", "Ottmar"),
    ("My address is 7 Rope Walk", "Delete my address from your memory please.", "Rope Walk"),
    ("I weigh 93 kilos", "please don't remember my weight", "93"),
    ("my rent deposit is 1,310", "hm can you forget my rent deposit please", "1,310"),
    ("I'm going to propose to Ylva in the sauna", "delete that I'm going to propose to Ylva", "propose"),
    ("my dad has gout", "remove from memory that my dad has gout", "gout"),
    ("my lawsuit is in room 414", "I'd rather you erased everything about my lawsuit", "414"),
    ("I earn 2,870 net a month", "I'd rather you didn't keep that. forget what I earn", "2,870"),
    ("I make 3,310 a month", "would you please erase what I said about how much I make", "3,310"),
    ("my pension is 1,904 a month", "the pension I mentioned, please forget that", "1,904"),
    ("I had a row with a neighbour", "the thing about me and that neighbour, please wipe it", "row with"),
    ("my niece is expecting", "I shouldn't have told you that my niece is expecting, please delete that", "expecting"),
    ("I smoke a pipe at night", "pretend I never told you about the pipe", "smoke a pipe"),
    ("my plate is GX-771-K", "no need to keep my plate, delete it", "GX-771-K"),
    ("I take home 2,640 a month", "please erase what I told you about my pay", "2,640"),
    ("the combo of my locker is 8815", "wipe the locker combination from whatever you keep about me", "8815"),
    ("my Amex ends in 3302", "scrub the Amex digits from your memory, it got cut up", "3302"),
    ("gran's door code is 4410#", "could you erase gran's door code, we mustn't keep it", "4410"),
    ("Ruben from choir writes me at night", "let's act like I never brought up Ruben", "Ruben"),
    ("my adress is Tannenweg 3", "pls froget my adress", "Tannenweg"),
    ("my work email is u.ek@example.org", "Erase my email address from your memory please.", "u.ek@"),
    ("I make 3,720 a month before tax", "I'd feel better if you didn't have my salary. Please delete it.", "3,720"),
    ("my bib number is 5528", "You still have my bib number right? get rid of that please", "5528"),
    ("I weigh 97 kilos", "Not comfortable with you knowing my weight. drop it from your notes", "97"),
    ("my valve code is 6617", "Actually about my valve code: can you forget that?", "6617"),
    ("i make 51k before tax at the moment", "that salary figure I told you, wipe it please", "51k"),
    ("I'm 9 weeks pregnant", "please remove from your memory what I said about the pregnancy", "pregnant"),
    (
        "Bela, my daughter, was born 7 feb 2018",
        "I don't want you keeping my daughter's date of birth. delete it",
        "2018",
    ),
    ("Matteo went into hospital on Sunday", "I feel bad for having told you about Matteo. Remove that", "hospital"),
    (
        "they want me at Pellman Logistics on the 17th",
        "you can forget the whole Pellman business, scrub all of it",
        "Pellman",
    ),
    ("I weigh 99 kilos", "I don't want you to keep my weight anywhere. get rid of it", "99"),
    ("the boathouse code is 2291", "delete the boathouse code please", "2291"),
    ("the side gate at my allotment opens with 3380", "erase the side gate code of my allotment, please", "3380"),
    (
        "I'm thinking of leaving Ilse",
        "Ilse uses this laptop too, so delete what I told you about leaving her",
        "leaving Ilse",
    ),
    ("theres this girl in payroll, Odile, i keep blushing", "omg delete all that about odile pls", "Odile"),
    (
        "my cousin Ruben was in the Ostwald Clinic",
        "um that stuff I said about Ruben please delete it he'd hate it",
        "Ostwald",
    ),
    ("im on 30 mg bisoprolol", "hey the bisoprolol stuff, strike that from what you know about me", "30 mg"),
    ("my nickname at school was Pudding", "take my nickname off your records", "Pudding"),
    ("Mein Tresorcode ist 7714", "Vergiss bitte meinen Tresorcode", "7714"),
    ("Minha senha do cofre é 7714", "Por favor, esquece a minha senha do cofre", "7714"),
    ("my ex is called Leopold", "stop remembering my ex's name", "Leopold"),
    ("my old address was 4 Kiln Yard", "scrap my old address, it's wrong anyway", "Kiln Yard"),
    ("Ich habe Streit mit Onkel Jürgen", "Vergiss bitte, was ich über Onkel Jürgen gesagt habe", "Jürgen"),
    ("Le code de la cave est 5516", "Oublie le code de la cave s'il te plaît", "5516"),
    ("Mi cuñada se llama Itziar", "¿Puedes borrar lo que te dije de mi cuñada?", "Itziar"),
    ("Il codice della cantina è 5517", "Dimentica il codice della cantina, per favore", "5517"),
]


@pytest.mark.parametrize(("said", "request_", "secret"), FORGETS)
def test_what_is_to_be_forgotten_is(db: Db, user: str, said: str, request_: str, secret: str) -> None:
    talk(db, user, [said, "On Mondays I play squash"], request_)
    assert not any(secret in m or "orget" in m for m in memories(db, user)), memories(db, user)
    assert any("squash" in m for m in memories(db, user)), "another statement went with it"
    assert secret not in shown(db, user, "What did I say of it?")


def test_the_rest_of_the_turn_stays_findable(db: Db, user: str) -> None:
    talk(db, user, "I'm allergic to kiwis and I take zinc tablets", "forget that I'm allergic to kiwis")
    found = table(db, "recall", user, "zinc tablets", columns="content", kinds=["turn"])
    assert any("zinc" in text and "kiwis" not in text for (text,) in found), found


KEPT = [
    ("my insulin pen is in the glovebox", "the car gets hot, so don't keep the insulin pen there, right?"),
    ("Two driving lessons: Monday at 8 and Friday at 9", "forget the driving lesson"),
    ("Nele goes to the Birkenhof school, she collects stamps", "don't forget which school Nele goes to"),
    ("My bar exam is in May", "about the bar exam: forgetting that much is normal, right?"),
    ("My tent peg bag is under the bed", "how do I fix a zip? oh forget it, it works"),
    ("Dinner with Kaja is on the 4th, dinner with Urs is on the 6th", "forget the dinner"),
    ("my shopping list has milk on it", "I wrote eggs on my shopping list too. Remove it please"),
    ("My boss is called Ottilie", "My boss said we should drop it"),
    ("I eat 1,900 calories a day", "forget calories for tonight, it's my birthday"),
    ("my hat size is 58", "forget my hat size... no hang on, keep it, I need it for the shop"),
    ("my locker is number 31", "Delete my locker number. Wait, actually leave it, I still go there"),
    ("my intro is about moths", "the intro could you please delete that"),
    ("my flat has a green door", "My neighbour keeps storing his bike at my flat. I want it removed."),
    ("my essay is on moths", "you have my essay above, the second paragraph is weak. remove it"),
    ("My tent peg bag is under the bed", "Don't forget that the parcel comes at noon"),
    ("My tent peg bag is under the bed", "the printer jammed again, just delete it from the queue"),
    ("Mein Pass liegt in der roten Kiste", "Vergiss nicht, dass mein Pass in der roten Kiste liegt"),
    ("Mi tren sale a las 9", "No olvides que mi tren sale a las 9"),
    ("Mon parapluie est vert", "j'ai oublié mon parapluie dans le bus"),
]


@pytest.mark.parametrize(("said", "request_"), KEPT)
def test_what_is_no_clear_request_loses_nothing(db: Db, user: str, said: str, request_: str) -> None:
    talk(db, user, said, request_)
    assert changes(db, user) == []


def test_who_is_forgotten_takes_nothing_else_along(db: Db, user: str) -> None:
    talk(db, user, "I work at Siemens with Karl, he's my brother", "please forget what I said about my brother")
    assert any("Siemens" in m for m in memories(db, user)), memories(db, user)


def test_what_is_scratched_is_over(db: Db, user: str) -> None:
    talk(
        db,
        user,
        "in October we're off to Madeira for ten days!",
        "scratch Madeira, flights were insane. we're doing Slovenia in October",
    )
    assert spans(db, user, "changed") == 1
    assert "Madeira for ten days (later changed)" in shown(db, user, "Where are we going in October?")


def test_forgetting_can_be_undone(db: Db, user: str) -> None:
    talk(db, user, "I'm allergic to kiwis and I take zinc tablets", "forget that I'm allergic to kiwis")
    (change,) = {c for (c,) in table(db, "list_changes", user, columns="change_id")}
    done = call(db, "undo_change", user, change)
    assert len(done["restored"]) == 1, done
    assert any("kiwis" in m for m in memories(db, user))
    found = table(db, "recall", user, "kiwis zinc", columns="content", kinds=["turn"])
    assert [text for (text,) in found].count("I'm allergic to kiwis and I take zinc tablets") == 1, found


def test_forget_about_says_what_it_would_forget(db: Db, user: str) -> None:
    talk(db, user, "my bike lock opens with 5512")
    seen = call(db, "forget_about", user, "my bike lock", preview=True)
    assert seen["outcome"] == "preview"
    assert [t["text"] for t in seen["turns"]] == ["my bike lock opens with 5512"]
    assert changes(db, user) == []
    assert call(db, "forget_about", user, "my bike lock")["outcome"] == "forgotten"
    assert call(db, "forget_about", user, "my unicycle")["outcome"] == "nothing"
