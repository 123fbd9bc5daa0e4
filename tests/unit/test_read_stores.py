"""Exports of other memory stores: told apart by their content and read whole, and damaged files give what is whole."""

import gzip
import json
import sqlite3
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pg_memoir_cli.conversations import Conversation, ConversationError, Fact
from pg_memoir_cli.formats import read_conversations

EXPORTS = Path(__file__).resolve().parents[1] / "cases" / "exports"
KILN = "The fuse of Ada's kiln blew"


def load(name):
    return json.loads((EXPORTS / name).read_text())


def read(path, **options):
    return list(read_conversations(path, **options).items)


def write(tmp_path, content, name="export.json"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def zipped(tmp_path, files):
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content if isinstance(content, bytes) else json.dumps(content))
    return path


def database(tmp_path, **tables):
    """A database of SQLite with these rows."""
    path = tmp_path / "store.db"
    with sqlite3.connect(path) as db:
        for name, rows in tables.items():
            db.execute(f"create table {name} ({', '.join(rows[0])})")
            db.executemany(
                f"insert into {name} values ({', '.join('?' * len(rows[0]))})", [[*r.values()] for r in rows]
            )
    return path


def facts(items):
    """User, text and whether it is true still, of each fact."""
    return {(i.user, i.content, not i.has_ended) for i in items if isinstance(i, Fact)}


def refused(items):
    return [str(item) for item in items if isinstance(item, ConversationError)]


ADA = {("ada", "Lives in Bergen with two dogs", True), ("ada", "Prefers cold brew to tea", True)}
ALL = {*ADA, ("bo", "The boat is moored at pier 4", False), ("barista", "Answers in short sentences", True)}


def test_mem0(tmp_path):
    everything = load("mem0.json")["results"]
    lines = "\n".join(json.dumps(item) for item in everything).encode()
    for path, expected in (
        (EXPORTS / "mem0.json", ALL),
        (write(tmp_path, everything), ALL),
        (write(tmp_path, lines, "export.jsonl"), ALL),
        (EXPORTS / "mem0_qdrant.json", ADA),
    ):
        items = read(path)
        assert facts(items) == expected and not refused(items), path
    home = next(i for i in read(EXPORTS / "mem0.json") if "Bergen" in i.content)
    assert (home.category, home.metadata["run_id"], home.metadata["imported_from"]) == ("home", "run-7", "mem0")
    assert home.id == home.metadata["imported_id"] == everything[0]["id"] and home.said_at.year == 2025
    edges = {
        "results": everything[:1],
        "relations": [{"source": "ada", "relationship": "lives_in", "target": "bergen"}],
    }
    assert ("ada", "ada lives in bergen", True) in facts(read(write(tmp_path, edges)))


def test_mem0_history(tmp_path):
    rows = load("mem0_history.json")
    message = {"id": "m", "session_scope": "run_id=r-1&user_id=ada", "role": "user", "content": "Hello", "name": None}
    store = database(tmp_path, history=rows, messages=[message | {"created_at": "2025-03-01T10:18:10+00:00"}])
    for path in (store, EXPORTS / "mem0_history.json"):
        items = read(path, users={path.stem: "me"})
        assert facts(items) == {
            ("me", "Lives in Bergen with two dogs", True),
            ("me", "Prefers tea to coffee", False),
            ("me", "Prefers cold brew to tea", True),
            ("me", "Works as a welder", False),
        }
        assert len({i.id for i in items if isinstance(i, Fact)}) == 4
    [conversation] = [i for i in read(store) if isinstance(i, Conversation)]
    assert (conversation.user, conversation.newest, conversation.messages[0]["content"]) == ("ada", True, "Hello")


def test_zep(tmp_path):
    document = load("zep.json")
    items = read(EXPORTS / "zep.json")
    assert [(c.user, c.session, len(c.messages)) for c in items if isinstance(c, Conversation)] == [("ada", "t-1", 2)]
    lives, lived, porto = (i for i in items if isinstance(i, Fact))
    assert (lives.content, lives.has_ended, lives.relations) == ("Ada lives in Porto", False, (("references", "n1"),))
    assert (lived.valid_from.year, lived.valid_to.isoformat()) == (2024, "2025-02-01T09:00:00+00:00")
    assert porto.id == "n1" and porto.content == "Porto: Porto is where Ada lives." and "City" in porto.tags
    page = {"items": document["threads"][0]["messages"], "total_size": 2}
    [thread] = read(write(tmp_path, page), user="me")
    assert (thread.user, [m["role"] for m in thread.messages]) == ("me", ["user", "assistant"])
    assert thread.messages[0]["name"] == "Ada_Lind" and thread.messages[0]["created_at"].startswith("2025-02-01T09:00")
    episodes = [m | {"source": "message", "role_name": m.pop("name", None)} for m in reversed(page["items"])]
    [again] = read(write(tmp_path, {"episodes": episodes}), user="me")
    assert (again.session, again.messages) == (thread.session, thread.messages)
    assert len(read(write(tmp_path, document | {"episodes": episodes}))) == 4  # they stand in the thread, too
    session, fact = read(EXPORTS / "zep_community.json")
    assert (session.user, session.session, session.messages[0]["role"]) == ("ada", "ce-1", "user")
    assert (fact.user, fact.content, fact.id) == ("ada", "Ada's kayak is green", "f1")


def test_letta(tmp_path):
    document = load("letta.af")
    conversation, human, persona = read(EXPORTS / "letta.af", users={"plant-helper": "ines"})
    assert (conversation.user, conversation.system_prompt) == ("ines", "You help with plants.")
    said = [(m["role"], m["content"] or m["tool_calls"][0]["function"]["name"]) for m in conversation.messages]
    assert said == [
        ("user", "My terrarium leaks at the north corner."),
        ("assistant", "archival_memory_search"),
        ("tool", "No results"),
        ("assistant", "Seal it with silicone."),
        ("user", "Thanks, I will buy silicone."),
        ("assistant", "Good luck."),
    ]
    assert (human.content, human.category) == ("Name: Ines. Has a terrarium with ferns.", "human")
    assert persona.type == "external_reference"
    everything = repr((conversation, human, persona))
    assert "stays-out" not in everything and "secret thought" not in everything
    [agent] = document["agents"]
    blocks = [{"label": b["label"], "value": b["value"], "updated_at": "2025-05-01"} for b in document["blocks"]]
    old = {"name": "plant-helper", "system": agent["system"], "messages": agent["messages"], "core_memory": blocks}
    passage = {
        "id": "passage-1",
        "text": "Ines bought it in 2023.",
        "tags": ["fern"],
        "created_at": "2025-05-01T09:00:03Z",
    }
    again = read(write(tmp_path, old | {"archival_memory": [passage]}))
    assert again[0].messages == conversation.messages and again[1].said_at.year == 2025
    assert (again[3].id, again[3].content, again[3].tags) == ("passage-1", passage["text"], ("fern",))
    assert facts(read(write(tmp_path, [passage]), user="me")) == {("me", passage["text"], True)}


def test_hindsight(tmp_path):
    items = read(zipped(tmp_path, load("hindsight.json")))
    known = {item.content: item for item in items}
    assert {user for user, _, _ in facts(items)} == {"ada"} and not refused(items)
    assert [text for text, fact in known.items() if fact.has_ended] == ["Always rhyme"]
    assert known["Ada's kiln broke"].relations == (("caused_by", known[KILN].id),)
    assert known["Ada fires pottery herself"].relations == (("references", known["Ada's kiln broke"].id),)
    assert known[KILN].tags == ("Ada", "kiln") and known["Answer in two sentences at most"].type == "instruction"
    units = read(EXPORTS / "hindsight_units.json", user="me")
    assert facts(units) == {
        ("me", "Ada glazes with celadon", True),
        ("me", "Ada's studio is in Vigo", False),
        ("me", "Ada works with clay", True),
    }


def test_openmemory(tmp_path):
    backup = load("openmemory.json")
    expected = {
        ("ada", "Cooks lentil soup on Mondays", True),
        ("ada", "Rides a steel tandem", False),
        ("ada", "Keeps bees on the roof", False),
        ("ada", "Plays the viola", False),
    }
    items = read(zipped(tmp_path, {"memories.json": backup, "memories.jsonl.gz": b"not read"}))
    assert facts(items) == expected and items[0].tags == ("food",) and items[0].metadata["app"] == "cursor"
    line = {"id": "1", "content": "Sails", "state": "active", "app": "cursor", "categories": ["sport"], "metadata": {}}
    assert facts(read(write(tmp_path, gzip.compress(json.dumps(line).encode()), "ada.gz"))) == {("ada", "Sails", True)}


def test_openmemory_of_cavira(tmp_path):
    memory = {
        "id": "m1",
        "content": "Met Bo in Graz",
        "tags": '["trip"]',
        "meta": '{"n": 1}',
        "primary_sector": "episodic",
    }
    memories = [memory | {"user_id": "ada", "created_at": 1740823200000}]
    memories += [memories[0] | {"id": "m2", "content": "Bo sings"}]
    ways = [{"src_id": "m1", "dst_id": "m2", "user_id": "ada", "weight": 0.8}]
    triple = {"id": "f1", "user_id": "ada", "subject": "ada", "predicate": "works_at", "object": "the mill"}
    triples = [triple | {"valid_from": 1700000000000, "valid_to": 1710000000000, "confidence": 0.7, "metadata": None}]
    for path in (
        database(tmp_path, memories=memories, waypoints=ways, temporal_facts=triples),
        write(tmp_path, {"items": memories, "waypoints": ways, "facts": triples}),
    ):
        met, sings, mill = read(path)
        assert (met.user, met.type, met.tags, met.relations) == ("ada", "event", ("trip",), (("relates_to", "m2"),))
        assert met.said_at == datetime(2025, 3, 1, 10, tzinfo=UTC) and met.metadata["n"] == 1
        assert (mill.content, mill.has_ended, mill.confidence) == ("ada works at the mill", True, 0.7)
        assert sings.content == "Bo sings"


def test_times_of_many_forms(tmp_path):
    instant = datetime(2025, 3, 1, 10, tzinfo=UTC)
    for given in ("2025-03-01T10:00:00Z", "2025-03-01 10:00", 1740823200, 1740823200000, "1740823200000"):
        [fact] = read(write(tmp_path, [{"id": "1", "memory": "x", "created_at": given}]))
        assert fact.said_at == instant, given
    [fact] = read(write(tmp_path, [{"id": "1", "memory": "x", "created_at": "0001-01-01T00:00:00Z"}]))
    assert fact.said_at is None  # how Go writes that there is none


def test_encodings(tmp_path):
    text = json.dumps([{"id": "1", "memory": "猫が好き · любит чай"}], ensure_ascii=False)
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"):
        for data in (text.encode(encoding), gzip.compress(text.encode(encoding))):
            assert facts(read(write(tmp_path, data))) == {("export", "猫が好き · любит чай", True)}, encoding
    with pytest.raises(ConversationError, match="export.json: not UTF-8 at byte"):
        read(write(tmp_path, text.encode("koi8-r", "replace")))


def test_what_is_whole_of_a_damaged_file_is_read(tmp_path):
    whole = json.dumps(load("mem0.json")["results"])
    half = read(write(tmp_path, whole[: whole.index("77def21e")].encode()))
    assert facts(half) == ADA and "the file is cut off" in refused(half)[0]
    agent = (EXPORTS / "letta.af").read_text()
    conversation, error = read(write(tmp_path, agent[: agent.index("Good luck")].encode()))
    assert conversation.messages[-1]["content"] == "Thanks, I will buy silicone." and "cut off" in str(error)
    wrong = [5, {"id": "1"}, {"id": "1", "memory": 7}, {"id": "2", "memory": "x", "created_at": "May"}]
    items = read(write(tmp_path, {"results": [*load("mem0.json")["results"], *wrong]}))
    assert facts(items) == ALL and len(refused(items)) == 4
    for problem in (
        "results[4]: is a int",
        "results[5].memory: is missing",
        "results[6].memory: 7",
        "results[7].created_at: 'May'",
    ):
        assert any(problem in error for error in refused(items)), (problem, refused(items))
    for damaged, problem in (
        (b"[" * 100_000, "nested too deep|not JSON"),
        (b'{"results": [{"id": 1}}', "not JSON"),
        (b"\x1f\x8b\x08broken", "the gzip is damaged"),
        (b"SQLite format 3\0" + b"\0" * 100, "the database can't be read"),
    ):
        with pytest.raises(ConversationError, match=problem):
            read(write(tmp_path, damaged))


def test_a_format_that_is_named(tmp_path):
    both = write(tmp_path, [{"id": "1", "memory": "x", "content": "y", "primary_sector": "semantic"}])
    assert [fact.source for name in ("mem0", "openmemory") for fact in read(both, format=name)] == [
        "mem0",
        "openmemory",
    ]
    [error] = read(both, format="zep")
    assert "is no record of the format zep, has content, id, memory, primary_sector" in str(error)
