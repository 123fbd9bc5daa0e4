"""Shared spaces: who may do what, whose a line is, speakers apart, members who leave, persons who are erased."""

import re
from typing import Any

import pytest
from calls import (
    CALL,
    Db,
    active,
    call,
    history,
    messages,
    persist,
    raises,
    recalled,
    remember,
    remembered,
    store,
    table,
)
from pg_memoir import in_space
from servers import connect, roles, unique

from bench.spaces import simulate

BEES = "Who is allergic to bees?"


@pytest.fixture
def space(db: Db, user: str) -> str:
    """A space that the user owns, with a reader and a writer: user-reader, user-writer."""
    space = unique("space")
    assert call(db, "create_space", user, space) == in_space(user, space)
    for role in ("reader", "writer"):
        call(db, "grant_space", user, space, f"{user}-{role}", role)
    return space


def block(db: Db, user: str, asked: str, session: str = "mine", **named: Any) -> str:
    return str(call(db, "compile_context", user, session, asked, **named)[-1]["content"])


WHO = ("user", "-writer", "-reader", "-stranger")
DOORS: dict[str, tuple[int, Any]] = {  # how many of WHO may
    "recall": (3, lambda db, who, it: recalled(db, who, "office")),
    "compile": (3, lambda db, who, it: block(db, who, "Where is the office?")),
    "list": (3, lambda db, who, it: table(db, "list_memories", who)),
    "export": (3, lambda db, who, it: table(db, "export_user", who)),
    "tool": (3, lambda db, who, it: call(db, "call_memory_tool", who, None, "memory_search", {"query": "office"})),
    "persist": (2, lambda db, who, it: persist(db, who, "chat", "Hello.", "Hi.")),
    "remember": (2, lambda db, who, it: remember(db, who, "The printer is on floor two.")),
    "correct": (2, lambda db, who, it: call(db, "correct", who, it, "The office is in Bergen.", actor="person")),
    "forget": (2, lambda db, who, it: call(db, "forget", who, it)),
    "erase a turn": (1, lambda db, who, it: call(db, "erase_turn", who, "first", 0)),
    "erase": (1, lambda db, who, it: call(db, "erase_user", who)),
}


@pytest.mark.parametrize("door", DOORS)
def test_space_roles(db: Db, user: str, space: str, door: str) -> None:
    """The least powerful come first, because those who may can change what there is."""
    office = remembered(db, in_space(user, space), "The office is in Oslo.")
    persist(db, in_space(user, space), "first", "Hello.", "Hi.")
    may, enter = DOORS[door]
    for place, who in reversed(list(enumerate(WHO))):
        address = in_space(user if who == "user" else user + who, space)
        if place < may:
            enter(db, address, office)
            office = remembered(db, in_space(user, space), f"The office is in Oslo {who}.") if door != "erase" else ""
        else:
            with raises("PM001", "in space"):
                enter(db, address, office)


def test_a_space_that_answers_comes_before_own_texts(db: Db, user: str, space: str) -> None:
    """Of a place that holds a word or two of a question, the best text is not as good as one that holds all."""
    reader, rooms = f"{user}-reader", "hall attic office garage shed porch".split()
    for number, room in enumerate(rooms):
        remember(db, reader, f"The handle of the oven in the {room} has the number 50{number}.")
        remember(db, in_space(user, space), f"The handle of the kettle in the {room} has the number 60{number}.")
    kept = remembered(db, in_space(user, space), "The handle of the kettle in the pantry has the number 711.")
    asked = "What number has the handle of the kettle in the pantry?"
    hits = table(db, "recall", reader, asked, columns="id::text, space")
    assert hits[0] == (kept, space) and [of for _, of in hits].index(None) > 5, hits


def test_space_lines_say_whose(db: Db, user: str, space: str) -> None:
    reader, stranger = f"{user}-reader", f"{user}-stranger"
    kept = remembered(db, in_space(user, space), "The router is in the cellar.")
    persist(db, in_space(user, space), "house", "The spare key hangs behind the router.", "Noted.")
    remember(db, reader, "My own router is blue.")
    text = block(db, reader, "Where is the router?")
    assert re.search(rf"- The router is in the cellar\. \([^)]*, space {space}\)", text)
    assert f"house, space {space}:\n{user}: The spare key hangs behind the router." in text
    assert "- My own router is blue." in text and text.count(f"space {space}") == 2
    assert "router" not in block(db, stranger, "Where is it?")
    hits = table(db, "recall", reader, "router", columns="content, space")
    assert ("The router is in the cellar.", space) in hits and ("My own router is blue.", None) in hits
    rows = table(db, "explain_context", reader, "mine", "Where is the router?", columns="id::text, parts ->> 'space'")
    assert (kept, space) in rows
    # A member's own memory is not in the space.
    assert "blue" not in block(db, in_space(user, space), "Where is the router?")
    with raises("PM004"):
        call(db, "forget", f"{user}-writer", kept)


def test_space_budget_holds_over_all(db: Db, user: str) -> None:
    for nth in range(3):
        space = unique("space")
        call(db, "create_space", user, space)
        for n in range(12):
            remember(db, in_space(user, space), f"Kiln {nth} has firing {n} at cone {n} with glaze number {n * 7}.")
    for budget in (120, 250, 500):
        found = call(db, "context", user, "s", "Which firing of a kiln has which glaze?", memory_budget=budget)
        assert 0 < found["recall_tokens"] <= budget and found["tokens"] <= found["budget"]


def test_space_setting_narrows(db: Db, user: str, space: str) -> None:
    remember(db, in_space(user, space), "The boat is called Runa.")
    for spaces, is_found in (("*", True), (f"other, {space}", True), ("other", False), ("", False)):
        session = unique("s")
        call(db, "open_session", user, session, settings={"spaces": spaces})
        assert ("Runa" in block(db, user, "What is the boat called?", session)) is is_found
        assert any("Runa" in text for text in recalled(db, user, "boat", spaces=spaces)) is is_found


def test_removed_member_finds_nothing(db: Db, user: str, space: str) -> None:
    """Not by a new call, nor in an exchange that goes on, nor in a list that a client keeps."""
    reader = f"{user}-reader"
    remember(db, in_space(user, space), "The safe opens with the word heron.")
    asked = "Which word opens the safe?"
    found = call(db, "context", reader, "open", asked)
    assert "heron" in found["messages"][-1]["content"]
    step = [{"role": "user", "content": asked}, {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "No such parcel."}]  # fmt: skip
    store(db, reader, "open", step, "append_messages")
    assert "heron" in str(call(db, "compile_context", reader, "open"))
    beside = call(db, "recall_beside", reader, "open", asked)
    note = {"chain": "c", "turns": 1, "added": {"tail": beside["text"]}, "items": beside["items"]}
    call(db, "note_messages", reader, "open", [note])
    assert "heron" in str(table(db, "known_messages", reader, ["c"]))
    call(db, "revoke_space", user, space, reader)
    assert "heron" not in str(call(db, "compile_context", reader, "open"))
    assert "heron" not in block(db, reader, asked, "new") + str(recalled(db, reader, "safe"))
    assert "heron" not in str(table(db, "known_messages", reader, ["c"]))
    with raises("PM001"):
        recalled(db, in_space(reader, space), "safe")
    call(db, "grant_space", user, space, reader)
    assert "heron" in block(db, reader, asked, "new")


def test_forgotten_in_space_is_forgotten_by_all(db: Db, user: str, space: str) -> None:
    reader, told = f"{user}-reader", "The safe opens with the word heron."
    kept = remembered(db, in_space(user, space), told)
    beside = call(db, "recall_beside", reader, "open", "Which word opens the safe?")
    persist(db, reader, "open", "Which word opens the safe?", "I'll look.")
    note = {"chain": "c", "turns": 1, "added": {"tail": beside["text"]}, "items": beside["items"]}
    call(db, "note_messages", reader, "open", [note])
    call(db, "forget", in_space(f"{user}-writer", space), kept)
    assert "heron" not in str(table(db, "known_messages", reader, ["c"]))
    assert "heron" not in block(db, reader, "Which word opens the safe?")


SAID = [
    ([{"role": "user", "content": "[Tunde]: i'm allergic to bees"}], {"Tunde is allergic to bees."}),
    ([{"role": "user", "name": "Tunde", "content": "i'm allergic to bees"}], {"Tunde is allergic to bees."}),
    (
        [{"role": "user", "content": "[Tunde]: i'm allergic to bees\n[Mia]: I live in Bonn.\n[Tunde]: I live in Ulm."}],
        {"Tunde is allergic to bees.", "Mia lives in Bonn.", "Tunde lives in Ulm."},
    ),
    ([{"role": "user", "content": "[ERROR]: disk full\nI live in Oslo."}], {"Ada lives in Oslo."}),
]


@pytest.mark.parametrize(("said", "facts"), SAID)
def test_speakers_are_kept_apart(db: Db, user: str, space: str, said: list[dict[str, Any]], facts: set[str]) -> None:
    call(db, "grant_space", user, space, f"{user}-writer", "writer", ["Ada"])
    store(db, in_space(f"{user}-writer", space), "group", [*said, {"role": "assistant", "content": "I see."}])
    call(db, "extract_session", in_space(user, space), "group")
    assert set(active(db, in_space(user, space))) == facts


def test_speakers_stay_apart_in_the_list(db: Db, user: str, space: str) -> None:
    """Messages of several people that nobody answered, in a format that has names and in one that has none."""
    address = in_space(user, space)
    store(db, address, "group", messages("Hello.", "Hi."))
    for name, text in (("Tunde", "I bring rice."), ("Mia", "I bring salad.")):
        store(db, address, "group", [{"role": "user", "name": name, "content": text}], "append_messages")
    for shape in ("openai", "anthropic"):
        text = str(call(db, "compile_context", address, "group", "And I bring nothing.", format=shape))
        assert "[Tunde]: I bring rice." in text and "[Mia]: I bring salad." in text


def test_erased_person_leaves_every_space(db: Db, user: str, space: str) -> None:
    """Also one who has left the space by then. What others said stays, in their words."""
    tunde, address = f"{user}-tunde", in_space(user, space)
    call(db, "grant_space", user, space, tunde, "writer", ["Tunde"])
    store(db, in_space(tunde, space), "own", messages("I play chess in Ulm.", "Noted."))
    persist(db, address, "group", "[Tunde]: i'm allergic to bees\n[Mia]: Bees are fine with me, I live in Bonn.", "Ok.")
    remember(db, in_space(tunde, space), "The drill belongs to my uncle.")
    remember(db, address, "The ladder is in the shed.")
    call(db, "extract_session", address, "group")
    call(db, "forget", in_space(tunde, space), remembered(db, address, "The attic is locked."))
    call(db, "pin_turns", in_space(tunde, space), "group", 1, 1)
    assert "allergic" in block(db, user, BEES)
    assert f" for {tunde}" in str(table(db, "export_user", address))
    call(db, "revoke_space", user, space, tunde)
    call(db, "erase_user", tunde)
    left = str([history(db, address, "own"), history(db, address, "group"), table(db, "list_memories", address)])
    for gone in ("chess", "allergic", "drill"):
        assert gone not in left + block(db, user, "What does Tunde say?") + str(recalled(db, user, gone))
    assert "Bees are fine" in left and "ladder" in left and "Mia lives in Bonn" in left.replace("Mia, I", "Mia")
    assert tunde not in str([table(db, "list_space_members", user, space), table(db, "export_user", address)])


@pytest.mark.parametrize(
    ("function", "given", "state", "match"),
    [
        ("create_space", ("{user}", "a,b"), "PM014", 'the name "a,b"'),
        ("create_space", ("{user}", "{space}"), "PM014", 'space "{space}" exists'),
        ("create_space", ("{user}@space:{space}", "inner"), "PM014", "can't be a member of a space"),
        ("grant_space", ("{user}", "{space}", "x", "king"), "PM014", '"king"'),
        ("grant_space", ("{user}", "{space}", "x@space:y"), "PM014", "can't be a member"),
        ("grant_space", ("{user}", "{space}", "x", "reader", ["X", "{user}-Reader"]), "PM014", "another member's"),
        ("grant_space", ("{user}-writer", "{space}", "x"), "PM001", "may not share in space"),
        ("grant_space", (None, "nowhere", "x"), "PM002", 'unknown space "nowhere"'),
        ("revoke_space", ("{user}", "{space}", "nobody"), "PM014", '"nobody" is no member'),
        ("revoke_space", ("{user}", "{space}", "{user}"), "PM014", "would have no owner"),
        ("list_space_members", ("{user}-stranger", "{space}"), "PM001", "may not read in space"),
        ("remember", ("@space:nowhere", "x"), None, ""),
    ],
)
def test_space_errors(
    db: Db, user: str, space: str, function: str, given: tuple[Any, ...], state: str | None, match: str
) -> None:
    values = [[o.format(user=user) for o in one] if isinstance(one, list) else one and one.format(user=user, space=space)
        for one in given]  # fmt: skip
    if state is None:
        assert call(db, function, *values)["outcome"] == "stored"
        return
    with raises(state, match.format(space=space)):
        call(db, function, *values)


def test_space_logins(db: Db, memoir_dsn: str, user: str, space: str) -> None:
    """A tenant reaches the spaces of its users alone, an agent shares nothing, and no service goes round a member."""
    kinds = {"person": "person", "agent": "agent"}
    remember(db, in_space(user, space), "The boat is called Runa.")
    with roles(memoir_dsn, **dict.fromkeys((*kinds, "app"), "login in role memoir_tenant")) as names:
        db.execute(f"grant memoir_app to {names['app']}")
        for kind in kinds:
            call(db, "bind_login", names[kind], [user], kind)
        with connect(memoir_dsn) as other:
            for kind in (*kinds, "app"):
                other.execute(f"set role {names[kind]}")
                assert "Runa" in str(recalled(other, in_space(user, space), "boat"))
                for address in (in_space(f"{user}-stranger", space), f"@space:{space}"):
                    with raises("PM001"):
                        recalled(other, address, "boat")
                if kind == "agent":
                    with raises("PM001", "may not share"):
                        call(other, "grant_space", user, space, "friend")
                else:
                    call(other, "grant_space", user, space, "friend")
                other.execute("reset role")
        for kind in kinds:
            call(db, "unbind_login", names[kind])


@pytest.mark.acceptance
def test_spaces_simulation(memoir_dsn: str) -> None:
    """bench.spaces, shorter: nothing leaks, and those who may know find what they ask for."""
    found = simulate(memoir_dsn, 2500, people=20, spaces=8)
    assert found.leaks == [] and found.errors == [] and found.refused > 200
    assert found.removed >= 15 and found.asked > 100 and found.found >= 0.95 * found.asked, found.missed
