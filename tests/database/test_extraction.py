"""Extraction of what is stored: sources, slots, authority and dates; again, after a forget, in the compiled list."""

from collections.abc import Callable
from datetime import date

from calls import CALL, Db, call, export_rows, table
from extracted import NOTHING, extract, extract_again, memories, say


def test_statements_become_sourced_memories(db: Db, user: str) -> None:
    answer = {"role": "assistant", "content": "Noted. I live in the cloud."}
    said = "Hi! I live in Ulm. Please don't use emojis."
    done = say(db, user, said, answer)
    assert extract(db, user) == NOTHING | {"turns": 2, "stored": 2}
    columns = ("content", "provenance::text", "tier", "scope::text", "metadata ->> 'extracted_by'")
    emojis = ("User asks: Please don't use emojis.", "instruction", 4, "global", "rules 1")
    assert memories(db, user, *columns) == [emojis, ("User lives in Ulm.", "user_stated", 3, "global", "rules 1")]
    spans = set()
    for source in export_rows(db, user, "memory_sources"):
        assert (source["source_id"], source["turn_index"]) == (done["message_ids"][0], 0)
        start = source["span_start"] - 1
        spans.add(said[start : start + source["span_length"]])
    assert spans == {"I live in Ulm.", "Please don't use emojis."} and extract(db, user) == NOTHING


def test_words_of_agents_and_tools_stay_in_their_session(db: Db, user: str) -> None:
    result = '{"order_id": "A-1742", "total": "39.90 EUR", "note": "I live in Ulm"}'
    said = "I've booked the courier for 9 May. I love couriers. Your tracking number is ZX-881."
    asked = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    told = {"role": "tool", "tool_call_id": CALL["id"], "content": result}
    agents = [{"content": said}, {"name": "Mel", "content": "I moved to Bonn in April."}]
    say(db, user, "Where is it?", asked, told, *({"role": "assistant", **agent} for agent in agents))
    say(db, user, "I live in Kiel and always pay on Monday.", session="relay", actor="agent")
    assert extract(db, user)["stored"] == 5 and extract(db, user, "relay")["stored"] == 0
    got = sorted(memories(db, user, "content", "provenance::text", "tier", "scope::text", "source_tool"))
    of_agents, of_tool = ("system_inferred", 1, "local", None), ("tool_output", 1, "local", "track")
    assert [row[1:] for row in got] == [of_agents] * 3 + [of_tool] * 2
    assert [row[0].split(" on ")[0].split(" for ")[0] for row in got] == [
        "Assistant has booked the courier",
        "Assistant: Your tracking number is ZX-881.",
        "Mel moved to Bonn in April.",
        "Tool track returned order_id A-1742",
        "Tool track returned total 39.90",
    ]


def test_extracting_again_adds_nothing(db: Db, user: str) -> None:
    say(db, user, "I live in Ulm. I love Bach.", "I love Bach.")
    assert extract(db, user)["stored"] == 2
    kinds = ("memory_store", "memory_stats")
    before = [export_rows(db, user, kind) for kind in kinds]
    assert sorted(row["restatements"] for row in before[1]) == [0, 1], "said twice, in two turns"
    for _ in range(2):
        assert extract_again(db, user)["stored"] == 0 and [export_rows(db, user, kind) for kind in kinds] == before


def test_batches_go_on_where_the_last_one_ended(db: Db, user: str) -> None:
    say(db, user, *(f"I visited {city} yesterday." for city in ("Ulm", "Bonn", "Kiel", "Jena", "Gera")))
    call(db, "branch_session", user, "s", "b", 1)
    assert extract(db, user, "b")["turns"] == 0, "a branch has its own turns only"
    say(db, user, "I hate rain.", session="b")
    assert extract(db, user, "b")["turns"] == 1 and memories(db, user) == ["User hates rain."]
    assert [extract(db, user, limit=2)["left"] for _ in range(3)] == [3, 1, 0] and len(memories(db, user)) == 6


def test_move_supersedes_and_an_older_statement_does_not(db: Db, user: str) -> None:
    for session, year, city in (("one", 2024, "Ulm"), ("two", 2025, "Kiel"), ("zero", 2023, "Bonn")):
        at = {"created_at": f"{year}-01-01T00:00:00Z"}
        say(db, user, {"role": "user", "content": f"I live in {city}."} | at, session=session)
    for session in ("one", "two", "zero"):
        extract(db, user, session)
    home = ("content", "state::text")
    homes = [("User lives in Ulm.", "superseded"), ("User lives in Kiel.", "active")]
    assert memories(db, user, *home, where="slot = 'home city'") == homes
    for said, state in (("I no longer live in Rome.", "active"), ("I don't live in Kiel anymore.", "superseded")):
        say(db, user, said, session=said)
        extract(db, user, said)
        assert memories(db, user, *home, where="slot = 'home city'")[1] == ("User lives in Kiel.", state)


def test_forgotten_is_not_extracted_again(db: Db, user: str) -> None:
    say(db, user, "I live in Ulm. I love Bach.")
    extract(db, user)
    (memory,) = memories(db, user, "memory_id", where="content like '%%Ulm%%'")
    call(db, "forget", user, memory)
    # The same words again; the same turn again; another turn with the value in its slot.
    say(db, user, "I live in Ulm.", "Yes, we live in Ulm with our cat.")
    assert extract_again(db, user)["refused_tombstone"] == 2
    assert memories(db, user, where="state = 'active'") == ["User loves Bach."]


def test_sensitivity_is_kept(db: Db, user: str) -> None:
    for text, level in (("I live in Ulm.", "private"), ("I love Bach.", "secret")):
        say(db, user, {"role": "user", "content": text, "sensitivity": level})
    extract(db, user)
    assert memories(db, user, "content", "sensitivity::text") == [("User lives in Ulm.", "private")]


def test_extraction_can_be_switched_off_for_a_user(db: Db, user: str) -> None:
    say(db, user, "I live in Ulm.")
    call(db, "set_user_settings", user, {"extraction": False})
    assert extract(db, user) == NOTHING | {"turns": 1}
    call(db, "set_user_settings", user, {"extraction": None, "text_search_config": "german"})
    # The rules are those of each text's own language, whatever the setting.
    say(db, user, "I love Bach.", "I hate rain.")
    assert extract(db, user)["stored"] == 2


def test_dates_are_those_of_the_turn(db: Db, user: str, clock: Callable[[str], None]) -> None:
    """Not of the run; and by the sender's clock: at half past midnight in Tokyo it is still the day before in UTC."""
    clock("2026-03-04T12:00:00Z")
    say(db, user, "I flew to Oslo yesterday.")
    clock("2026-04-04T12:00:00Z")
    extract(db, user)
    assert memories(db, user, "content", "valid_from::date", "metadata ->> 'event_from'") == [
        ("User flew to Oslo on 3 March 2026.", date(2026, 3, 3), "2026-03-03")
    ]
    moments = ("2026-03-20T00:30:00+09:00", "2026-03-20 00:30+0530", "2026-03-20T23:30:00-08", "2026-03-20T00:30:00Z")
    for moment, offset in zip(moments, ("+09:00", "+05:30", "-08:00", None)):
        say(db, user, {"role": "user", "content": "I flew home yesterday.", "created_at": moment}, session=moment)
        assert table(db, "history", user, moment)[0][0].get("utc_offset") == offset, moment
        extract(db, user, moment)
    assert memories(db, user, where="content like '%%home%%'") == ["User flew home on 19 March 2026."]


def test_named_speakers_change_their_own_statements(db: Db, user: str) -> None:
    for name in ("Mia", "Ida"):
        say(db, user, {"role": "user", "name": name, "content": "I live in Kassel."}, session=name)
        extract(db, user, session=name)
    say(db, user, {"role": "user", "name": "Mia", "content": "I don't live in Kassel any more, I moved to Bonn."})
    extract(db, user)
    active = memories(db, user, where="state = 'active'")
    assert "Ida lives in Kassel." in active and "Mia lives in Kassel." not in active


def recall_for(db: Db, user: str, query: str) -> tuple[str, dict[str, str]]:
    """The recall of a compile in a fresh session, and why each candidate was left out."""
    content = call(db, "compile_context", user, "fresh", query)[-1]["content"]
    reasons = table(db, "explain_context", user, "fresh", query, columns="id::text, reason")
    return content.removesuffix(query), dict(reasons)


def test_turn_stands_for_what_was_extracted_from_it(db: Db, user: str) -> None:
    noted = {"role": "assistant", "content": "Noted."}
    say(db, user, "We live in Ulm, by the minster. I bought a lighthouse in Kiel last month.", noted)
    before = recall_for(db, user, "Where is the minster that we live by?")
    extract(db, user)
    of = "content like '%%{}%%'"
    home, house = (memories(db, user, "memory_id::text", where=of.format(word))[0] for word in ("minster", "house"))
    # Extracting changes nothing about which turns are found; recall finds the memory where memories are asked for.
    assert recall_for(db, user, "Where is the minster that we live by?") == before and home not in before[1]
    assert table(db, "recall", user, "minster", kinds=["memory"], columns="id::text") == [(home,)]
    # When the turn may not be found any more, what else it said is still known.
    call(db, "forget", user, home)
    listed, reasons = recall_for(db, user, "Who bought a lighthouse in Kiel?")
    assert "lighthouse" in listed and reasons[house] is None and "minster" not in listed
