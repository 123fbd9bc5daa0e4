"""Memory pages over the database: what stands on them, what edits do, and that these hold."""

from datetime import UTC, datetime, timedelta

import pytest
from calls import Db, call, embed_waiting, persist, remember, remembered, run_job, set_clock, table, use_vectors
from internals import read_again
from pg_memoir import Memoir
from pg_memoir.errors import InvalidArgumentError
from pg_memoir.types import PagePush
from talk import talk

SAID = [
    "I live in Bergen.",
    "I'm allergic to peanuts, and I take metformin.",
    "My dog is called Rollo.",
    "I prefer rooibos to coffee.",
    "I work as a nurse.",
]
AGAIN = [
    "I live in Bergen.",
    "I have an allergy to peanuts, so watch out.",
    "I prefer rooibos to coffee and cake.",
    "My dog's name is Rollo.",
]
LATER = datetime.now(UTC) + timedelta(days=400)


def texts(memoir: Memoir, user: str, **named: str) -> list[str]:
    return sorted(one.text for one in memoir.memory_page(user, **named).sentences)  # type: ignore[arg-type]


def edit(memoir: Memoir, user: str, *changes: tuple[str, str]) -> tuple[str, PagePush]:
    """The page as a person edits it, and what pushing it did. "" deletes a line."""
    lines = memoir.memory_page(user).markdown.split("\n")
    for old, new in changes:
        (place,) = [n for n, line in enumerate(lines) if line.startswith("- ") and old in line]
        lines[place] = lines[place].replace(old, new) if new else ""
    text = "\n".join(lines)
    return text, memoir.push_page(user, text)


def told(push: PagePush) -> list[tuple[str, str, str | None, str | None]]:
    return [(one.action, one.outcome, one.old, one.new) for one in push.edits]


def test_a_page_has_what_holds_and_no_more(db: Db, user: str, memoir: Memoir) -> None:
    key = "AKIA" + "IOSFODNN7EXAMPLQ"
    remember(db, user, "The kiln is hot.", tags=["pottery"])
    remember(db, user, f"The key is {key}.")
    remember(db, user, "The shop is closed.", valid_to="2026-01-01T00:00:00Z", valid_from="2025-01-01T00:00:00Z")
    remember(db, user, "The pass is valid.", valid_to=LATER)
    remember(db, user, "The agent guesses.", actor="agent")
    remember(db, user, "The red build is slow.", project="red")
    call(db, "forget", user, remembered(db, user, "The gate code is blue."))
    call(db, "correct", user, remembered(db, user, "The roof is green."), "The roof is grey.")
    one, other = remembered(db, user, "Meat is eaten daily."), remembered(db, user, "Meat is never eaten.")
    call(db, "relate", user, one, "contradicts", other)
    page = memoir.memory_page(user)
    holds = ["The kiln is hot.", "The pass is valid.", "The red build is slow.", "The roof is grey."]
    assert [text for text in texts(memoir, user) if not text.startswith("Meat")] == holds
    assert all(gone not in page.markdown for gone in (key, "closed", "guesses", "gate code", "green"))
    doubted = {one.text: one.doubts for one in page.sentences if one.doubts}
    assert doubted == {
        "Meat is eaten daily.": [f"contradicts {other[:8]}"],
        "Meat is never eaten.": [f"contradicts {one[:8]}"],
    }
    assert page.markdown.index("## In doubt") > page.markdown.index("## Project red")
    assert texts(memoir, user, project="red") == ["The red build is slow."]
    assert texts(memoir, user, topic="Pottery") == ["The kiln is hot."] == texts(memoir, user, topic="kiln")
    assert memoir.memory_page(user, limit=2).left_out == 4
    with pytest.raises(InvalidArgumentError, match="limit is 0"):
        memoir.memory_page(user, limit=0)
    with pytest.raises(InvalidArgumentError, match='of ".*", not of "bob"'):
        memoir.push_page("bob", page.markdown)


def test_edits_hold_against_what_is_said_later(db: Db, user: str, memoir: Memoir) -> None:
    talk(db, user, SAID[:3], SAID[3:])
    page = memoir.memory_page(user)
    assert len(page.sentences) == 6 and all(one.sources for one in page.sentences), page.markdown
    assert told(memoir.push_page(user, page.markdown)) == [] and memoir.memory_page(user) == page
    text, push = edit(
        memoir, user, ("Bergen", "Porto"), ("peanuts", ""), ("rooibos", "mint"), ("Rollo", ""), ("metformin", "ramipril")
    )  # fmt: skip
    assert [one.outcome for one in push.edits] == ["done"] * 5
    expected = [
        "User lives in Porto.",
        "User prefers mint to coffee.",
        "User takes ramipril.",
        "User works as a nurse.",
    ]
    assert texts(memoir, user) == expected
    for number, said in enumerate([SAID, AGAIN]):
        for line in said:
            persist(db, user, f"later-{number}", line, "I see.")
        call(db, "extract_session", user, f"later-{number}")
        assert texts(memoir, user) == expected, number
    read_again(db, user)
    for (session,) in table(db, "list_sessions", user, columns="session"):
        call(db, "extract_session", user, session)
    assert texts(memoir, user) == expected
    assert [one.outcome for one in memoir.push_page(user, text).edits] == ["unchanged"] * 3
    persist(db, user, "moved", "I live in Oslo now.", "I see.")  # something new, which the person settles
    call(db, "extract_session", user, "moved")
    doubted = sorted(one.text for one in memoir.memory_page(user).sentences if one.doubts)
    assert doubted == ["User lives in Oslo now.", "User lives in Porto."]


def test_a_change_on_both_sides_is_a_conflict(db: Db, user: str, memoir: Memoir) -> None:
    roof, gate, kiln = (
        remembered(db, user, text) for text in ("The roof is green.", "The gate is old.", "The kiln is hot.")
    )
    remember(db, user, "The well is deep.")
    text = memoir.memory_page(user).markdown
    text = text.replace("roof is green", "roof is red").replace("well is deep", "well is dry")
    text = "\n".join(line for line in text.split("\n") if not line.startswith("- The gate"))
    text = text.replace("kiln is hot", "kiln is warm").replace("## Facts\n", "## Facts\n\n- The barn is new.\n")
    call(db, "correct", user, roof, "The roof is grey.")
    call(db, "correct", user, gate, "The gate is new.")
    call(db, "forget", user, kiln)
    wanted = [
        ("correct", "conflict", "The roof is grey.", "The roof is red."),
        ("correct", "conflict", None, "The kiln is warm."),
        ("correct", "done", "The well is deep.", "The well is dry."),
        ("forget", "conflict", "The gate is new.", None),
        ("remember", "done", None, "The barn is new."),
    ]
    preview = [(*edit[:1], edit[1].replace("done", "planned"), *edit[2:]) for edit in wanted]
    before = memoir.memory_page(user)
    assert sorted(told(memoir.push_page(user, text, preview=True)), key=str) == sorted(preview, key=str)
    assert memoir.memory_page(user) == before
    assert sorted(told(memoir.push_page(user, text)), key=str) == sorted(wanted, key=str)
    assert texts(memoir, user) == ["The barn is new.", "The gate is new.", "The roof is grey.", "The well is dry."]
    # What a pull brings in keeps the person's words, and a push of that carries them out.
    pulled = memoir.memory_page(user, edited=text)
    assert [one.outcome for one in pulled.conflicts] == ["conflict"] * 3
    assert "- The roof is red.[^" in pulled.markdown and "- The kiln is warm.\n" in pulled.markdown
    assert "- The gate is new.[^" in pulled.markdown and pulled.markdown.count("The barn is new.") == 1
    done = memoir.push_page(user, pulled.markdown)
    assert sorted(told(done), key=str) == [
        ("correct", "done", "The roof is grey.", "The roof is red."),
        ("remember", "done", None, "The kiln is warm."),
    ]


def test_what_was_rejected_needs_lifting(db: Db, user: str, memoir: Memoir) -> None:
    remember(db, user, "The roof is green.")
    edit(memoir, user, ("green", "red"))
    text, push = edit(memoir, user, ("red", "green"))
    assert [(one.outcome, "rejected" in str(one.reason) or "tombstone" in str(one.reason)) for one in push.edits] == [
        ("refused", True)
    ]
    assert texts(memoir, user) == ["The roof is red."]
    assert [one.outcome for one in memoir.push_page(user, text, lift=True).edits] == ["done"]
    assert texts(memoir, user) == ["The roof is green."]


def test_one_sentence_of_several_stays_away(db: Db, user: str, memoir: Memoir) -> None:
    remember(db, user, "The roof is green. The gate is old. The kiln is hot.")
    edit(memoir, user, ("The gate is old. The kiln is hot.", "The kiln is warm."))
    for text in ("The gate is old.", "The kiln is hot."):
        assert remember(db, user, text)["outcome"] == "refused_tombstone", text
    assert texts(memoir, user) == ["The roof is green. The kiln is warm."]
    assert remember(db, user, "The roof is green.")["outcome"] == "stored"


def test_ends_stay_and_new_lines_take_their_place(db: Db, user: str, memoir: Memoir) -> None:
    remember(db, user, "The stall is rented.", valid_to=LATER, type="fact")
    remember(db, user, "The red build is slow.", project="red", type="decision")
    text = memoir.memory_page(user).markdown.replace("stall is rented", "stall is leased")
    text = text.replace("### Decisions\n", "### Decisions\n\n- The blue build is dead.\n")
    memoir.push_page(user, text)
    rows = {
        content: rest
        for content, *rest in table(db, "list_memories", user, columns="content, type, project, provenance, valid_to")
    }
    assert rows["The blue build is dead."] == ["decision", "red", "user_stated", None]
    assert rows["The stall is leased."][2:] == ["correction", LATER]
    topic = memoir.memory_page(user, topic="stall").markdown.replace("## Facts\n", "## Facts\n\n- It faces north.\n")
    memoir.push_page(user, topic)
    assert texts(memoir, user, topic="stall") == ["It faces north.", "The stall is leased."]


def test_phases_stand_below_the_sentences(db: Db, user: str, memoir: Memoir) -> None:
    use_vectors(db)
    for number in range(10):
        about = "boat" if number < 5 else "taxes"
        persist(
            db,
            user,
            "s",
            f"Question {number} about the {about}, which has me thinking.",
            "A long answer to that. " * 40,
        )
    embed_waiting(db, lambda text: [1, 0, 0, 0] if "boat" in text.splitlines()[-1] else [0, 1, 0, 0], "little")
    set_clock(db, "2099-01-01T00:00:00Z")
    run_job(db, "phases")
    set_clock(db, None)
    remember(db, user, "The boat leaks.", session="s", source_turns=[2], actor="person")
    page = memoir.memory_page(user)
    assert [(one.from_turn, one.to_turn, one.sentences) for one in page.phases] == [(0, 9, 1)], page.markdown
    assert "turns 0–9 of s, 1 of these sentences[^" in page.markdown
    assert told(memoir.push_page(user, page.markdown)) == []
    (refused,) = memoir.push_page(user, page.markdown.replace("turns 0–9", "turns 0–3")).edits
    assert refused.outcome == "refused" and "conversation" in str(refused.reason)
