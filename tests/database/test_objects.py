"""Results of tools, files and errors of a session are objects: memories whose text stays in the turns."""

from __future__ import annotations

import json
from typing import Any

import pytest
from agents import Agent
from calls import Db, call, one, run_job, set_clock, table, use_vectors

TYPES = ["file_context", "tool_result", "error_context", "code_context", "plan", "external_reference"]
CODE = "\n".join(f"def total_{n}(a: int) -> int:\n    return a + {n}" for n in range(120))
PROSE = " ".join(f"It was the year {n} and the harbour was quiet, as everybody knows." for n in range(60))
LOG = "\n".join(f"tests/test_{n}.py::test_it PASSED" for n in range(120))


def objects(db: Db, user: str, *states: str) -> list[dict[str, Any]]:
    """Oldest first; active ones unless states are named."""
    columns = "memory_id, type, state, content, superseded_by, tokens, scope, tier"
    rows = table(db, "list_memories", user, states=list(states or ["active"]), types=TYPES, columns=columns)
    return [dict(zip(columns.split(", "), row, strict=True)) for row in reversed(rows)]


@pytest.mark.parametrize(
    ("tool", "arguments", "kind", "what"),
    [
        ("Read", {"file_path": "/w/src/a.py"}, "file_context", "/w/src/a.py, 240 lines"),
        ("Read", {"file_path": "/w/a.py", "offset": 11, "limit": 240}, "file_context", "/w/a.py, lines 11–250"),
        ("mcp__filesystem__read_text_file", {"path": "./a.py"}, "file_context", "a.py, 240 lines"),
        (
            "str_replace_based_edit_tool",
            {"command": "view", "path": "a.py", "view_range": [1, 50]},
            "file_context",
            "a.py, l",
        ),
        (
            "shell",
            {"command": ["bash", "-lc", "sed -n '1,240p' a.py"], "workdir": "/w"},
            "file_context",
            "/w/a.py, lines 1–240",
        ),
        ("Bash", {"command": "cd /w && cat src/a.py"}, "file_context", "/w/src/a.py"),
        ("exec_command", {"cmd": "nl -ba a.py | sed -n '5,9p'"}, "file_context", "a.py, lines 5–9"),
        ("run_terminal_cmd", {"command": "make build"}, "tool_result", "make build"),
        ("grep_search", {"query": "total_"}, "tool_result", "total_"),
        ("WebFetch", {"url": "https://example.org/a", "prompt": "?"}, "external_reference", "https://example.org/a"),
        ("Bash", {"command": "curl -s https://example.org/b | head"}, "external_reference", "https://example.org/b"),
        ("whatever_else", {"id": 7}, "tool_result", "7, 240 lines"),
        ("Read", {}, "file_context", "240 lines"),
    ],
)
def test_what_a_tool_returns_is_an_object(
    db: Db, user: str, tool: str, arguments: dict[str, Any], kind: str, what: str
) -> None:
    Agent(db, user).calls(tool, arguments, CODE)
    [found] = objects(db, user)
    assert found["type"] == kind and f" · {what}" in found["content"], found
    assert (found["scope"], found["tier"]) == ("local", 1) and CODE[:40] not in found["content"]


def test_a_setting_describes_further_tools(db: Db, user: str) -> None:
    call(db, "set_user_settings", user, {"object_tools": {"peek": {"does": "read", "key": "thing"}}})
    Agent(db, user).calls("peek", {"thing": "x/y.txt"}, CODE)
    assert [o["type"] for o in objects(db, user)] == ["file_context"]
    with pytest.raises(Exception, match="setting object_tools can't be"):
        call(db, "set_user_settings", user, {"object_tools": {"peek": {"does": "sing"}}})


def test_what_is_read_again_supersedes_or_is_the_same(db: Db, user: str) -> None:
    agent = Agent(db, user)
    agent.calls("Read", {"file_path": "/w/a.py"}, CODE)
    agent.calls("Read", {"file_path": "/w/a.py"}, CODE)
    [first] = objects(db, user)
    agent.calls("Read", {"file_path": "/w/b.py", "offset": 1, "limit": 120}, CODE)
    agent.calls("Read", {"file_path": "/w/b.py", "offset": 121, "limit": 120}, CODE + "\n# other lines")
    assert len(objects(db, user)) == 3
    agent.calls("Read", {"file_path": "/w/a.py"}, CODE + "\n# new")
    [old] = objects(db, user, "superseded")
    assert old["memory_id"] == first["memory_id"]
    [new] = [o for o in objects(db, user) if o["memory_id"] == old["superseded_by"]]
    assert "241 lines" in new["content"]
    edges = table(db, "memory_graph", user, old["memory_id"], columns="relation")
    assert ("supersedes",) in edges


def forms(db: Db, user: str, fidelity: int) -> list[str]:
    """What stands for each object at a fidelity, oldest first."""
    query = """select array(select f.content from _memoir.memory_store m,
        _memoir.object_forms(m.user_id, array[m.memory_id], array[%s::smallint]) f
        where m.user_id = u.user_id and m.is_object order by m.recorded_at) from _memoir.users u where external_id = %s"""
    return list(one(db, query, fidelity, user))


def test_an_edit_makes_what_was_read_before_stale(db: Db, user: str) -> None:
    agent = Agent(db, user)
    agent.calls("Read", {"file_path": "/w/src/a.py"}, CODE)
    agent.calls("Edit", {"file_path": "/w/src/a.py", "old_string": "a", "new_string": CODE}, "Error: no such string")
    assert "edited since" not in forms(db, user, 3)[0]
    agent.calls(
        "apply_patch", {"input": "*** Begin Patch\n*** Update File: src/a.py\n@@\n-a\n+b\n*** End Patch"}, "Done!"
    )
    assert "edited since" in forms(db, user, 3)[0]
    # The text that the edit put in is an object of its own, which depends on the file.
    assert [o["type"] for o in objects(db, user)] == ["file_context", "code_context"]
    edges = table(db, "memory_graph", user, objects(db, user)[1]["memory_id"], columns="relation")
    assert ("depends_on",) in edges


def test_an_error_names_its_causes(db: Db, user: str) -> None:
    agent = Agent(db, user)
    agent.calls("Read", {"file_path": "/w/src/a.py"}, CODE)
    agent.calls(
        "Bash", {"command": "pytest"}, LOG + '\nTraceback (most recent call last):\n File "/w/src/a.py", line 3'
    )
    error = objects(db, user)[1]
    assert error["type"] == "error_context"
    assert ("caused_by",) in table(db, "memory_graph", user, error["memory_id"], columns="relation")


def test_small_outputs_count_together(db: Db, user: str) -> None:
    agent = Agent(db, user)
    agent.calls("Bash", {"command": "git status"}, LOG[:3000])
    agent.calls("Edit", {"file_path": "a"}, "ok")
    agent.calls("Grep", {"pattern": "one"}, LOG[:600])
    agent.calls("LS", {"path": "/w"}, LOG[:3000])
    assert objects(db, user) == []
    for word in ("two", "three", "four", "five"):
        agent.calls("Grep", {"pattern": word}, LOG[:600])
    [found] = objects(db, user)
    assert "results" in found["content"] and "one" in found["content"]


def test_a_written_file_stands_in_the_arguments(db: Db, user: str) -> None:
    agent = Agent(db, user)
    agent.calls("Read", {"file_path": "/w/a.py"}, CODE)
    agent.calls("Write", {"file_path": "/w/a.py", "content": CODE + "\n# written"}, "ok")
    assert [o["state"] for o in objects(db, user, "active", "superseded")] == ["superseded", "active"]
    assert "def total_0(a: int) -> int:" in forms(db, user, 1)[1]


def test_objects_are_not_searched_twice_nor_promoted(db: Db, user: str) -> None:
    Agent(db, user).calls("Read", {"file_path": "/w/a.py"}, CODE)
    assert table(db, "list_memories", user) == []
    assert all(kind == "turn" for (kind,) in table(db, "recall", user, "total_17 a.py", session="s", columns="kind"))


def test_secret_results_have_no_forms(db: Db, user: str) -> None:
    agent = Agent(db, user)
    agent.calls("Read", {"file_path": "/w/a.py"}, CODE)
    call(db, "mark_turn", user, "s", 2, "secret")
    assert forms(db, user, 1) == [] and forms(db, user, 3) == []


def test_erasing_a_turn_or_session_erases_its_objects(db: Db, user: str) -> None:
    agent = Agent(db, user)
    agent.calls("Read", {"file_path": "/w/a.py"}, CODE)
    agent.calls("Read", {"file_path": "/w/b.py"}, CODE)
    done = call(db, "erase_turn", user, "s", 2)
    assert done["rows"]["object_places"] == 1 and done["rows"]["session_objects"] == 1
    assert [o["content"].split(" · ")[2] for o in objects(db, user)] == ["/w/b.py, 240 lines"]
    done = call(db, "erase_session", user, "s")
    assert done["rows"]["object_places"] == 1 and objects(db, user) == []


def test_export_and_import_bring_objects(db: Db, user: str) -> None:
    Agent(db, user).calls("Read", {"file_path": "/w/a.py"}, CODE)
    lines = [json.dumps(line) for (line,) in table(db, "export_user", user)]
    other = user + "-other"
    one(db, "select memoir.import_user(%s, %s::jsonb[])", other, lines)
    assert [o["content"] for o in objects(db, other)] == [o["content"] for o in objects(db, user)]
    assert forms(db, other, 1) == forms(db, user, 1) != []


def test_plans_and_decisions_are_objects_too(db: Db, user: str) -> None:
    agent = Agent(db, user)
    agent.append({"role": "assistant", "content": "We decided to use JWT instead of sessions.\n" + PROSE})
    agent.append(
        {"role": "user", "content": "Good."}, {"role": "assistant", "content": "# Implementation plan\n" + PROSE}
    )
    agent.append({"role": "user", "content": "Good."}, {"role": "assistant", "content": PROSE})
    types = [*TYPES, "design_decision"]
    rows = table(db, "list_memories", user, types=types, columns="type, memory_id")
    assert [kind for kind, _ in rows] == ["plan", "design_decision"]
    assert ("depends_on",) in table(db, "memory_graph", user, rows[0][1], columns="relation")


def test_phases_end_where_the_user_turns_to_something_else(db: Db, user: str) -> None:
    use_vectors(db)
    said = [("boat", [1, 0, 0, 0])] * 5 + [("taxes", [0, 1, 0, 0])] * 5 + [("bees", [0, 0, 1, 0])] * 2
    agent = Agent(db, user, question="Hello.")
    agent.calls("Read", {"file_path": "/w/boat.py"}, CODE)
    agent.append({"role": "assistant", "content": "Hello."})
    for n, (about, _) in enumerate(said):
        agent.append(
            {"role": "user", "content": f"Question {n} about the {about}."}, {"role": "assistant", "content": PROSE}
        )
    vectors = {f"the {about}": vector for about, vector in said}
    for who, item, text in db.execute(
        "select user_id, item_no, text from memoir.claim_embeddings(1000, 'little')"
    ).fetchall():
        near = next(
            ([float(x) for x in vector] for about, vector in vectors.items() if about in text.splitlines()[-1]),
            [0.9, 0.1, 0.0, 0.0],
        )
        db.execute("select memoir.store_embeddings(%s::uuid[], %s::integer[], %s::real[])", [[who], [item], near])
    set_clock(db, "2099-01-01T00:00:00Z")
    run_job(db, "phases")
    set_clock(db, None)
    rows = table(db, "list_memories", user, types=["conversation_phase"], columns="content, memory_id")
    assert [text.split(" · ")[2] for text, _ in sorted(rows)] == ["turns 0–13", "turns 14–23"], rows
    assert ("parent_of",) in table(db, "memory_graph", user, sorted(rows)[0][1], columns="relation")
