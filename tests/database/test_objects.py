"""Results of tools, files, errors, plans and decisions of a session are objects, whose text is in the turns."""

from typing import Any

import psycopg
import pytest
from agents import Agent
from calls import Db, call, embed_waiting, persist, raises, run_job, set_clock, table, use_vectors
from psycopg.types.json import Jsonb

TYPES = [
    "file_context", "tool_result", "error_context", "code_context", "plan", "external_reference", "design_decision",
]  # fmt: skip
CODE = "\n".join(f"def total_{n}(a: int) -> int:\n    return a + {n}" for n in range(120))
PROSE = " ".join(f"It was the year {n} and the harbour was quiet, as everybody knows." for n in range(60))
LOG = "\n".join(f"tests/test_{n}.py::test_it PASSED" for n in range(120))
READ = {"file_path": "/w/src/a.py"}


@pytest.fixture
def agent(db: Db, user: str) -> Agent:
    return Agent(db, user)


def objects(db: Db, user: str, *states: str) -> list[dict[str, Any]]:
    """Oldest first; active ones unless states are named."""
    columns = "memory_id, type, state, content, superseded_by, scope, tier"
    rows = table(db, "list_memories", user, states=list(states or ["active"]), types=TYPES, columns=columns)
    return [dict(zip(columns.split(", "), row, strict=True)) for row in reversed(rows)]


def types(db: Db, user: str) -> list[str]:
    return [found["type"] for found in objects(db, user)]


def relations(db: Db, user: str, memory: str) -> set[str]:
    return {relation for (relation,) in table(db, "memory_graph", user, memory, columns="relation")}


VIEW = {"command": "view", "path": "a.py", "view_range": [1, 50]}


@pytest.mark.parametrize(
    ("tool", "arguments", "kind", "shown"),
    [
        ("Read", READ, "file_context", "/w/src/a.py, 240 lines"),
        ("Read", {"file_path": "/w/a.py", "offset": 11, "limit": 240}, "file_context", "/w/a.py, lines 11–250"),
        ("mcp__filesystem__read_text_file", {"path": "./a.py"}, "file_context", "a.py, 240 lines"),
        ("str_replace_based_edit_tool", VIEW, "file_context", "a.py, l"),
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
def test_a_tool_result_is_an_object(
    db: Db, user: str, agent: Agent, tool: str, arguments: dict[str, Any], kind: str, shown: str
) -> None:
    """Listed only when its type is asked for, and its text is recalled as the turn's."""
    agent.calls(tool, arguments, CODE)
    [found] = objects(db, user)
    assert found["type"] == kind and f" · {shown}" in found["content"], found
    assert (found["scope"], found["tier"]) == ("local", 1) and CODE[:40] not in found["content"]
    assert table(db, "list_memories", user) == []
    assert {kind for (kind,) in table(db, "recall", user, "total_17 a.py", session="s", columns="kind")} == {"turn"}


def test_a_setting_describes_further_tools(db: Db, user: str, agent: Agent) -> None:
    call(db, "set_user_settings", user, {"object_tools": {"peek": {"does": "read", "key": "thing"}}})
    agent.calls("peek", {"thing": "x/y.txt"}, CODE)
    assert types(db, user) == ["file_context"]
    with raises("PM015"):
        call(db, "set_user_settings", user, {"object_tools": {"peek": {"does": "sing"}}})


def test_a_file_read_again_supersedes_or_is_the_same(db: Db, user: str, agent: Agent) -> None:
    for _ in range(2):
        agent.calls("Read", READ, CODE)
    [first] = objects(db, user)
    for offset, more in ((1, ""), (121, "\n# other lines")):
        agent.calls("Read", {"file_path": "/w/b.py", "offset": offset, "limit": 120}, CODE + more)
    assert len(objects(db, user)) == 3
    agent.calls("Read", READ, CODE + "\n# new")
    [old] = objects(db, user, "superseded")
    assert old["memory_id"] == first["memory_id"]
    [new] = [o for o in objects(db, user) if o["memory_id"] == old["superseded_by"]]
    assert "241 lines" in new["content"] and "supersedes" in relations(db, user, old["memory_id"])
    agent.calls("Write", {"file_path": "/w/src/a.py", "content": CODE + "\n# written"}, "ok")
    assert [o["memory_id"] for o in objects(db, user, "superseded")] == [old["memory_id"], new["memory_id"]]


PATCH = "*** Begin Patch\n*** Update File: src/a.py\n@@\n-a\n+b\n*** End Patch"


@pytest.mark.parametrize(("result", "is_stale"), [("Done!", True), ("Error: no such string", False)])
def test_an_edit_makes_an_earlier_read_stale(db: Db, user: str, agent: Agent, result: str, is_stale: bool) -> None:
    """The text that the edit put in is an object of its own, which depends on the file."""
    agent.calls("Read", READ, CODE)
    agent.calls("Edit", READ | {"old_string": "a", "new_string": CODE}, result)
    agent.calls("apply_patch", {"input": PATCH}, result)
    assert ("edited since" in str(table(db, "window_forms", user, "s", 3_000, True))) == is_stale
    assert types(db, user) == ["file_context", "code_context"]
    assert "depends_on" in relations(db, user, objects(db, user)[1]["memory_id"])


def test_an_error_names_its_causes(db: Db, user: str, agent: Agent) -> None:
    agent.calls("Read", READ, CODE)
    trace = '\nTraceback (most recent call last):\n File "/w/src/a.py", line 3'
    agent.calls("Bash", {"command": "pytest"}, LOG + trace)
    assert types(db, user) == ["file_context", "error_context"]
    assert "caused_by" in relations(db, user, objects(db, user)[1]["memory_id"])


def test_small_outputs_count_together(db: Db, user: str, agent: Agent) -> None:
    agent.calls("Bash", {"command": "git status"}, LOG[:3000])
    agent.calls("Edit", {"file_path": "a"}, "ok")
    agent.calls("Grep", {"pattern": "one"}, LOG[:600])
    agent.calls("LS", {"path": "/w"}, LOG[:3000])
    assert objects(db, user) == []
    for word in ("two", "three", "four", "five"):
        agent.calls("Grep", {"pattern": word}, LOG[:600])
    [found] = objects(db, user)
    assert "results" in found["content"] and "one" in found["content"]


def test_objects_go_with_their_turn_or_session(db: Db, user: str, agent: Agent) -> None:
    for name in ("a", "b"):
        agent.calls("Read", {"file_path": f"/w/{name}.py"}, CODE)
    call(db, "import_user", user + "-2", [Jsonb(line) for (line,) in table(db, "export_user", user)])
    assert [o["content"] for o in objects(db, user + "-2")] == [o["content"] for o in objects(db, user)]
    done = call(db, "erase_turn", user, "s", 2)
    assert done["rows"]["object_places"] == done["rows"]["session_objects"] == 1
    assert [o["content"].split(" · ")[2] for o in objects(db, user)] == ["/w/b.py, 240 lines"]
    assert call(db, "erase_session", user, "s")["rows"]["object_places"] == 1 and objects(db, user) == []


def test_a_secret_result_is_not_restored(db: Db, user: str, agent: Agent) -> None:
    agent.calls("Read", READ, CODE)
    [(name,)] = table(db, "list_objects", user, "s", columns="object")
    assert call(db, "memory_restore", user, "s", name) == CODE
    call(db, "mark_turn", user, "s", 2, "secret")
    with pytest.raises(psycopg.Error, match=name):
        call(db, "memory_restore", user, "s", name)


def test_plans_and_decisions_are_objects_too(db: Db, user: str, agent: Agent) -> None:
    for text in ("We decided to use JWT instead of sessions.\n" + PROSE, "# Implementation plan\n" + PROSE, PROSE):
        agent.append({"role": "assistant", "content": text}, {"role": "user", "content": "Good."})
    assert types(db, user) == ["design_decision", "plan"]
    assert "depends_on" in relations(db, user, objects(db, user)[1]["memory_id"])


def test_phases_end_where_the_subject_changes(db: Db, user: str, agent: Agent) -> None:
    """Messages about one thing need not be alike: here the cosine of neighbours is 0.3 within a subject."""
    use_vectors(db)
    vectors = {"the boat": [1, 0, 0], "the taxes": [0, 1, 0], "the bees": [0, 0, 1]}
    agent.calls("Read", {"file_path": "/w/boat.py"}, CODE)
    agent.append({"role": "assistant", "content": "Hello."})
    for n, about in enumerate(["the boat"] * 5 + ["the taxes"] * 5 + ["the bees"] * 3):
        persist(db, user, "s", f"Question {n} about {about}.", PROSE)

    def near(text: str) -> list[float]:
        last = text.splitlines()[-1]
        found = [
            [*vector, 0.7 if int(last.split()[1]) % 2 else -0.7] for about, vector in vectors.items() if about in last
        ]
        return [*found, [0.9, 0.1, 0, 0]][0]

    embed_waiting(db, near, "little")
    set_clock(db, "2099-01-01T00:00:00Z")
    run_job(db, "phases")
    set_clock(db, None)
    rows = sorted(table(db, "list_memories", user, types=["conversation_phase"], columns="content, memory_id"))
    assert [text.split(" · ")[2] for text, _ in rows] == ["turns 0–13", "turns 14–23"], rows
    assert "parent_of" in relations(db, user, rows[0][1])


def test_outline_of_a_long_session(db: Db, user: str) -> None:
    use_vectors(db)
    places = {"boat": [1, 0, 0, 0], "taxes": [0, 1, 0, 0], "bees": [0, 0, 1, 0]}
    for n, about in enumerate(["boat"] * 9 + ["taxes"] * 8 + ["boat"] * 7 + ["bees"] * 6):
        persist(db, user, "s", f"Question {n} about the {about}.", "I see.")
    assert table(db, "session_outline", user, "s") == []

    def near(text: str) -> list[float]:
        place = next(place for about, place in places.items() if about in text) if "about" in text else [0, 0, 0, 1]
        return [x + 0.1 * ((len(text) * k) % 3) for k, x in enumerate(place, 1)]

    embed_waiting(db, near, "little", 200)
    rows = table(db, "session_outline", user, "s", columns="theme, episode, from_turn, to_turn, tokens > 0")
    assert rows == [(1, 1, 0, 17, True), (2, 2, 18, 33, True), (1, 3, 34, 47, True), (3, 4, 48, 59, True)]
    assert "boat" in table(db, "session_outline", user, "s", columns="title")[2][0]
    call(db, "create_space", user, f"{user}-team")
    persist(db, f"{user}@space:{user}-team", "s", "The lighthouse is closed.", "I see.")  # another session "s"
    assert table(db, "session_outline", user, "s", "the lighthouse") == []
    found = table(db, "session_outline", user, "s", "the taxes", columns="episode, score > 0")
    assert found[0] == (2, True)
    with raises("PM003"):
        table(db, "session_outline", user, "nobody")
