"""From turns to memories through a language model, end to end: queue, prompts, provider, checks, store; inside the server and in a worker."""

import json
from typing import Any

import pytest
from calls import Db, call, export_rows, history, persist, recalled, remember, run_job, table
from internals import make_work_due, work
from pipeline import BOAT, COST, GOOD, KEPT, PRICE, TOKENS, WAYS, Way, candidate, read_request, says
from stubs import Answer

pytestmark = pytest.mark.extended

outside = pytest.mark.parametrize("way", [WAYS[1]], indirect=True, ids="-".join)


@pytest.mark.parametrize("way", WAYS, indirect=True, ids="-".join)
def test_candidates_become_memories(db: Db, user: str, way: Way) -> None:
    persist(db, user, "before", "I live in Bergen.")
    run_job(db, "extract")
    call(db, "forget", user, way.active_rows(user, "memory_id")[0][0])
    found = says(
        new=[
            candidate(0, BOAT, KEPT, valid_from="2020-05-01"),
            candidate(2, "in the drawer with Tom", "Tom has the key to the drawer."),  # a private turn
            candidate(9, "We keep the boat", "The user keeps a boat elsewhere."),  # no such turn
            candidate(0, "I own three yachts", "The user owns three yachts."),  # no such words
            candidate(1, "You want a bigger boat", "The user wants a bigger boat.", importance=1),  # the assistant's
            candidate(0, "I live in Bergen", "User lives in Bergen."),  # forgotten for good
        ]
    )
    with way.asks(found) as stub:
        said = "The spare key is in the drawer with Tom."
        persist(db, user, "s", f"{BOAT}. I live in Bergen.", "You want a bigger boat.", said, "Noted.")
        call(db, "mark_turn", user, "s", 2, "private")
        run_job(db, "extract")
        assert [row[0] for row in work(db, "extract")] == ["ready"] and stub.requests == []
        way.run()
    [request] = stub.requests
    assert request["model"] == "priced" and "Harstad" in json.dumps(request) and "drawer" not in json.dumps(request)
    assert work(db, "extract") == []
    columns = "content, provenance::text, scope::text, tier, valid_from::date::text"
    made = way.active_rows(user, f"{columns}, metadata ->> 'extracted_by'")
    # What rules made of turns that the model has read is gone; the private one it has not.
    assert all("drawer" in row[0] for row in made if row[5] == "rules 1")
    (boat, wish) = [row[:5] for row in made if row[5] == "priced extract.v2"]
    assert boat == (KEPT, "user_stated", "global", 3, "2020-05-01")
    assert wish[:4] == ("The user wants a bigger boat.", "system_inferred", "local", 1)
    by_model = {key for key, rule in way.active_rows(user, "memory_id::text, metadata ->> 'rule'") if rule == "model"}
    said = [turn["content"] for turn in history(db, user, "s")]
    sources = [row for row in export_rows(db, user, "memory_sources") if row["item_id"] in by_model]
    spans = [(row["turn_index"], row["span_start"] - 1, row["span_length"]) for row in sources]
    quoted = {turn: said[turn][start : start + length] for turn, start, length in spans}
    assert quoted == {0: BOAT, 1: "You want a bigger boat"}
    assert way.costs(user) == [(TOKENS, COST, COST), (TOKENS, COST, COST), (0, 0, 0)]
    assert KEPT in recalled(db, user, "Where is the boat Brisa?")


def test_provider_that_is_down_takes_nothing_with_it(db: Db, user: str, way: Way) -> None:
    with way.asks() as stub:
        gone = stub.url
    way.use(gone, retries=0)
    way.extract(user, f"{BOAT}. I am allergic to peanuts.", "Noted.")
    way.run()
    [(state, attempts, error)] = work(db, "extract")
    assert (state, attempts) == ("ready", 1) and "no answer" in error and way.costs(user) == [(0, 0, 0)] * 2
    assert "User is allergic to peanuts." in way.contents(user)
    call(db, "compile_context", user, "fresh", "What am I allergic to?")
    with way.asks(GOOD):
        make_work_due(db)
        way.run()
    assert work(db, "extract") == [] and way.contents(user) == {KEPT}


@outside
def test_model_reads_in_the_place_of_rules(db: Db, user: str, way: Way) -> None:
    """It sees the memories, changes and forgets them by number, and what rules made of the turn goes. undo_change takes it back."""
    nuts, bank = "User is allergic to nuts and cats.", "User banks with Sparnord."
    dentist = "User's dentist is Dr Moser."
    for content in (nuts, dentist, bank):
        remember(db, user, content)
    persist(db, user, "old", "I live in Bergen.", "Noted.")
    with way.asks(says(new=[candidate(0, "i live in  Bergen", "User lives in Bergen.", standing=True)])) as stub:
        run_job(db, "extract")
        way.run()
        assert {memory["text"] for memory in read_request(stub.requests[0])["memories"]} == {nuts, bank, dentist}
    said = "The cat thing was wrong, no allergy. I’m in Oslo now. Where my money is should not be on file. My red hat is at Ida's."

    def answer(body: dict[str, Any]) -> Answer:
        ids = {memory["text"]: memory["id"] for memory in read_request(body)["memories"]}
        oslo = {"turn": 0, "quote": "I'm in Oslo now", "content": "User lives in Oslo."}
        cats = {"turn": 0, "quote": "the cat thing was wrong", "content": None, "remains": "User is allergic to nuts."}
        return says(
            new=[candidate(0, "I'm in Oslo now", "User lives in Oslo."), {"turn": 0, "quote": "no content"}],
            changed=[cats | {"id": ids[nuts]}, oslo | {"id": ids["User lives in Bergen."]}, oslo | {"id": 99}],
            forget=[{"ids": [ids[bank]], "turn": 0, "quote": "where my money is should not be on file"}],
        )

    with way.asks(answer) as stub:
        way.extract(user, said, "Noted.")
        assert "User lives in Bergen." in way.contents(user)  # rules alone end nothing here
        way.run()
        assert len(stub.requests) == 1 and work(db, "extract") == []
    assert way.contents(user) == {"User is allergic to nuts.", "User lives in Oslo.", dentist}
    changes = table(db, "list_changes", user, columns="change_id, kind")
    assert {kind for _, kind in changes} == {"changed", "forgotten"}
    for change, _ in changes:
        call(db, "undo_change", user, change)
    assert {"User lives in Bergen.", bank} <= way.contents(user)


@outside
def test_quoted_words_are_whose_they_are(db: Db, user: str, way: Way) -> None:
    """In any language the person's own words count as theirs; pasted words change nothing, and what nobody said is inferred."""
    own = {
        "Ich bin gegen Haselnüsse allergisch.": "User ist gegen Haselnüsse allergisch.",
        "我对花生过敏。": "用户对花生过敏。",
        "मुझे मूंगफली से एलर्जी है।": "User को मूंगफली से एलर्जी है।",
        "У меня аллергия на орехи.": "У User аллергия на орехи.",
    }
    pasted = "Can you polish this letter?\n\nDear Sir or Madam,\nI live in Trondheim and I am a welder.\nKind regards\nSolveig Aune"
    found = [candidate(2 * n, said, content, standing=True) for n, (said, content) in enumerate(own.items())]
    found.append(candidate(8, "I live in Trondheim", "User lives in Trondheim.", standing=True))
    found.append(candidate(0, "allergisch", "User owns 4711 yachts in Monaco."))
    with way.asks(says(new=found)):
        way.extract(user, *[text for said in [*own, pasted] for text in (said, "Noted.")])
        way.run()
    made = dict(way.active_rows(user, "content, provenance::text || ' ' || scope::text || ' ' || tier"))
    assert {made.get(content) for content in own.values()} == {"user_stated global 3"}
    others = ("User lives in Trondheim.", "User owns 4711 yachts in Monaco.")
    assert {made.get(content) for content in others} == {"system_inferred local 1"}


@outside
def test_stretch_that_is_too_long_for_an_answer(db: Db, user: str, way: Way) -> None:
    """A cut answer is asked for again in two halves; a day that is none costs nothing but itself."""
    cut = Answer(text='{"new": [{"turn"', stop={"openai": "length", "anthropic": "max_tokens"}[way.provider], **PRICE)
    boat = candidate(0, "the boat Brisa in Harstad", KEPT, valid_from="2026-02-30")
    hat = candidate(2, "My hat is at Ida's", "User's hat is at Ida's.")
    with way.asks(cut, cut, says(new=[boat]), says(new=[hat])) as stub:
        way.extract(user, f"{BOAT}.", "Noted.", "My hat is at Ida's.", "Noted.")
        for _ in range(3):
            way.run()
        shown = [read_request(request)["turns"] for request in stub.requests[2:]]
        assert [[turn["turn"] for turn in turns] for turns in shown] == [[0, 1], [2, 3]]
    assert work(db, "extract") == [] and way.contents(user) == {KEPT, "User's hat is at Ida's."}
