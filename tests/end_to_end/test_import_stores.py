"""Memories of other stores in a database: with their dates and ids, harmless to import again, and brought up to date."""

import json
from pathlib import Path

import pytest
from calls import run_job, set_clock
from pg_memoir_cli import ConversationError, import_conversations
from pg_memoir_cli.__main__ import main

EXPORTS = Path(__file__).resolve().parents[1] / "cases" / "exports"


def write(tmp_path, content):
    path = tmp_path / "export.json"
    path.write_text(json.dumps(content))
    return path


def item(number, memory, **more):
    return {"id": f"id-{number}", "memory": memory, "user_id": "x", "created_at": "2025-03-01T10:00:00Z", **more}


def recalled(memoir, user, query):
    return [hit.content for hit in memoir.recall(user, query)]


def test_facts_keep_what_they_say(memoir, user):
    done = import_conversations(memoir, EXPORTS / "zep.json", user=user)
    assert (done.conversations, done.memories, done.ended, done.relations) == (1, 3, 1, 1)
    kept = {m.content: m for m in memoir.list_memories(user, where={"imported_from": "zep"})}
    lives, lived = kept["Ada lives in Porto"], kept["Ada lives in Vigo"]
    assert lives.valid_from.isoformat() == "2025-02-01T09:00:00+00:00" and lives.said_at.hour == 9
    assert lived.valid_to.isoformat() == "2025-02-01T09:00:00+00:00" and lives.provenance == "fact"
    assert "Ada lives in Porto" in recalled(memoir, user, "Ada lives in")
    assert "Ada lives in Vigo" not in recalled(memoir, user, "Ada lives in Vigo")
    then = memoir.recall(user, "Ada lives in Vigo", valid_at="2024-06-01T00:00:00Z")
    assert "Ada lives in Vigo" in [hit.content for hit in then]
    [edge] = memoir.memory_graph(user, lives.memory_id)
    assert edge.relation == "references"


def test_an_import_again_adds_nothing(memoir, db, user):
    """Also when the receipts of the first one are gone."""
    paths = [EXPORTS / name for name in ("mem0.json", "zep.json", "letta.af", "openmemory.json")]
    first = [import_conversations(memoir, path, user=user) for path in paths]
    before = memoir.memory_stats(user)
    set_clock(db, "2040-01-01 00:00+00")
    run_job(db, "sweep")
    again = [import_conversations(memoir, path, user=user) for path in paths]
    set_clock(db, None)
    assert [done.present for done in again] == [done.memories for done in first] == [4, 3, 2, 4]
    assert not any(done.memories or done.changed or done.relations or done.refused for done in again)
    after = memoir.memory_stats(user)
    assert (after["turns"], after["memories"]) == (before["turns"], before["memories"])


def test_a_newer_export_brings_memories_up_to_date(memoir, user, tmp_path):
    memories = [
        item(1, "Owns a green kayak"),
        item(2, "Works at the mill"),
        item(3, "Plays chess"),
        item(4, "Has a cat"),
    ]
    import_conversations(memoir, write(tmp_path, memories), user=user)
    mine = {m.content: m.memory_id for m in memoir.list_memories(user)}
    memoir.correct(user, mine["Plays chess"], "Plays go")
    memoir.forget(user, mine["Has a cat"])
    memories[0]["memory"] = "Owns a blue kayak"
    memories[1]["expiration_date"] = "2025-06-30"
    done = import_conversations(memoir, write(tmp_path, [*memories, item(5, "Bakes bread")]), user=user)
    assert (done.memories, done.changed, done.present, done.refused) == (1, 2, 2, [])
    assert {m.content for m in memoir.list_memories(user) if m.valid_to is None} == {
        "Owns a blue kayak",
        "Plays go",
        "Bakes bread",
    }
    [mill] = [m for m in memoir.list_memories(user) if m.content == "Works at the mill"]
    assert mill.valid_to.isoformat() == "2025-07-01T00:00:00+00:00"
    again = import_conversations(memoir, write(tmp_path, memories), user=user)
    assert (again.memories, again.changed, again.present) == (0, 0, 4)


def test_a_store_with_the_newest_messages_alone(memoir, user, tmp_path):
    document = json.loads((EXPORTS / "letta.af").read_text())
    import_conversations(memoir, write(tmp_path, document), user=user)
    [agent] = document["agents"]
    new = {"role": "user", "content": "It holds.", "id": "message-9", "created_at": "2025-05-02T09:00:00Z"}
    agent["messages"] = [*agent["messages"][-2:], new]
    done = import_conversations(memoir, write(tmp_path, document), user=user)
    said = [turn["content"] for turn in memoir.history(user, "letta plant-helper")]
    assert (
        not done.refused and said[-3:] == ["Thanks, I will buy silicone.", "Good luck.", "It holds."] and len(said) == 7
    )


def test_an_agent_exported_during_a_call(memoir, user, tmp_path):
    def said(second, role, text, **more):
        return {"id": f"message-{second}", "role": role, "content": text, **more} | {
            "created_at": f"2025-05-01T09:00:{second:02}Z"
        }

    call = {"id": "call_1", "type": "function", "function": {"name": "search", "arguments": "{}"}}
    begun = [said(0, "user", "Look it up."), said(1, "assistant", None, tool_calls=[call])]
    ended = [said(2, "tool", "found", tool_call_id="call_1"), said(4, "assistant", "It is in the cellar.")]
    for messages in (begun, begun + ended):
        agent = {"id": "agent-0", "name": "helper", "system": "You help.", "messages": messages}
        import_conversations(memoir, write(tmp_path, {"agents": [agent]}), user=user)
    said_last = [turn["content"] for turn in memoir.history(user, "letta helper")][-1]
    assert said_last == "It is in the cellar."


def test_bad_memories_are_left_out(memoir, memoir_dsn, user, tmp_path, capsys):
    huge = "x" * 17_000_000
    given = [
        item(1, "The vault opens with sk-proj-A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8S9t0"),
        item(2, "One\0two \ud83d three"),
        *(item(3, text) for text in ("Twice", "Twice", "Twice with another text")),
        item(4, huge),
        item(5, "From the future", created_at="2099-01-01T00:00:00Z"),
        *({"id": f"n{number}", "memory": None} for number in range(8)),
    ]
    path = write(tmp_path, given)
    assert main(["import", str(path), "--dsn", memoir_dsn, "--user", user]) == 3
    told = capsys.readouterr()
    assert "3 memories, 1 memories there already" in told.out
    for line in (
        "the id 'id-3' stands twice in the file, here with another text",
        "left out: export.json: record 6: mem0 memory 'id-4': content",
        "left out: export.json: record 7: mem0 memory 'id-5': created_at must be a time from 1900",
        "left out: export.json: record 8: memory: None is not a text",
        "left out: 8 in all because None is not a text",
    ):
        assert line in told.err, (line, told.err)
    assert told.err.count(": None is not a text") == 5
    # The key makes its memory secret, so a caller without that clearance does not see it.
    assert {m.content for m in memoir.list_memories(user)} == {"One\ufffdtwo \ufffd three", "Twice"}
    assert not any("sk-proj" in text for text in recalled(memoir, user, "What opens the vault?"))
    assert main(["import", str(path), "--dsn", memoir_dsn, "--user", user]) == 3
    assert "messages, 4 memories there already" in capsys.readouterr().out


def test_odd_values_leave_one_record_out(memoir, user, tmp_path):
    """An object where an id belongs, or a NUL in a name, does not end the whole import."""
    said = {"role": "user", "content": "The kiln is hot."}
    odd = {"role": "tool", "tool_call_id": {"id": 1}, "content": "Rain"}
    ends = [{"uuid": name, "name": name, "summary": "A friend.", "user_id": f"{user}\0"} for name in ("n1", "n2")]
    edge = {"uuid": "e1", "fact": "Bo knows Ada.", "source_node_uuid": "n1", "target_node_uuid": "n2"}
    document = [{"session": "odd", "messages": [said, odd]}, *ends, edge | {"user_id": f"{user}\0"}]
    document.append({"session": "plain", "messages": [said]})
    path = write(tmp_path, document)
    done = import_conversations(memoir, path, user_prefix=user, skip_bad=True)
    assert len(done.refused) == 4 and done.conversations == 1
    with pytest.raises(ConversationError, match="record 1"):
        import_conversations(memoir, path, user_prefix=user)


def test_a_dry_run_stores_nothing(memoir, memoir_dsn, user, capsys):
    options = ["--map", f"ada={user}", "--user-prefix", "p:", "--dry-run"]
    assert main(["import", str(EXPORTS / "mem0.json"), *options]) == 0
    told = capsys.readouterr().out
    assert f"memory\t{user}\t2025-03-01" in told and "ended memory\tp:bo" in told
    assert "would import 0 conversations, 0 messages, 4 memories, 1 of them ended, 3 users" in told
    assert memoir.list_memories(user) == []
    assert main(["import", str(EXPORTS / "mem0.json"), "--dsn", memoir_dsn, *options[:-1]]) == 0
    assert len(memoir.list_memories(user)) == 2 and len(memoir.list_memories("p:barista")) == 1
    assert main(["import", "x", "--format", "memzero"]) == main(["import", "x", "--map", "ada"]) == 2
