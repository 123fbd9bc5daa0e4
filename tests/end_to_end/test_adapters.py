"""Every adapter: four processes that write for one user at once lose nothing, tear nothing and keep the order of each, and
texts that PostgreSQL can't hold come back."""

import json
import subprocess
import sys
from typing import Any

import pytest
from commands import output_of
from frameworks import FRAMEWORKS, ROOT, python_of, surroundings

pytestmark = pytest.mark.extended

ADAPTER = str(ROOT / "tests" / "support" / "adapter.py")
NAMES, TIMES = "abcd", 12


def command_of(kind: str, dsn: str, user: str) -> list[str]:
    python = sys.executable if kind == "documents" else python_of(kind)
    return [python, "-P", "-W", "ignore", ADAPTER, kind, dsn, user]


@pytest.fixture
def written(request, memoir_dsn, user):
    """What four writers of a kind were answered, and what is there afterwards."""
    command = command_of(request.param, memoir_dsn, user)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    writers = [subprocess.Popen([*command, name], env=surroundings(), **pipes) for name in NAMES]
    try:
        for writer in writers:
            assert writer.stdout.readline() == "ready\n", writer.stderr.read()
        for writer in writers:
            writer.stdin.write("go\n")
            writer.stdin.flush()
        answers = []
        for writer in writers:
            out, error = writer.communicate(timeout=240)
            assert writer.returncode == 0, error
            answers.append(json.loads(out))
    finally:
        for writer in writers:
            writer.kill()
    return answers, json.loads(output_of([*command, "read"], env=surroundings()))


def in_order(found: list[str]) -> bool:
    """Whether each writer's things are all there once, in its order."""
    kept = [[x for x in found if x[0] == name] for name in NAMES]
    return kept == [[f"{name}-{i}" for i in range(TIMES)] for name in NAMES] and len(found) == sum(map(len, kept))


def of(kind: str) -> Any:
    marks = [] if kind == "documents" else [pytest.mark.acceptance]
    return pytest.mark.parametrize("written", [pytest.param(kind, marks=marks)], indirect=True)


@of("documents")
def test_writers_of_documents(written):
    answers, found = written
    assert in_order(found["queue"]) and sorted(found["all"]["of"]) == sorted(found["queue"])
    assert found["counter"] == len(NAMES) * TIMES and sum(answers) >= found["counter"]


@of("llama_index_memory")
def test_writers_of_a_llama_index_store(written):
    taken, there = written
    archived = [text for answer in taken for text in answer[:3]]
    deleted = [text for answer in taken for text in answer[3:]]
    assert len(set(archived + deleted)) == len(NAMES) * 6, "no message is taken twice"
    assert sorted(there + deleted) == sorted(f"{name}-{i}" for name in NAMES for i in range(TIMES))
    assert all([x for x in there if x[0] == n] == sorted((x for x in there if x[0] == n), key=number) for n in NAMES)


def number(text: str) -> int:
    return int(text.split("-")[1])


@of("google_adk")
def test_writers_of_an_adk_session(written):
    created, found = written
    assert sum(created) == 1, "one process creates the session, the others are told that it exists"
    assert in_order(found["events"])
    assert found["state"] == sorted(prefix + key for key in found["events"] for prefix in ("", "user:", "app:"))
    assert found["told"] == [f"told {i}" for i in range(TIMES)], "each event becomes memory once"


@of("langgraph_store")
def test_writers_of_a_langgraph_store(written):
    _, found = written
    assert [key for key, _ in found[1:]] == [f"{name}-{i:02}" for name in NAMES for i in range(TIMES)]
    assert found[0][0] == "0" and found[0][1]["first"] == found[0][1]["second"]


def check_rounds(found: dict[str, Any]) -> None:
    """Checks a session of questions with answers, and of calls that are told with both results."""
    items, turns = found["items"], found["turns"]
    asked = [n for n, item in enumerate(items) if str(item.get("content")).startswith("q ")]
    assert in_order([items[n]["content"].removeprefix("q ") for n in asked])
    assert all(items[n + 1]["content"] == "a " + items[n]["content"].removeprefix("q ") for n in asked)
    assert in_order([turn["content"].removeprefix("q ") for turn in turns if turn["role"] == "user"])
    results = [n for n, turn in enumerate(turns) if turn["role"] == "tool" and turn["content"].endswith(".1")]
    assert in_order([turns[n]["content"][2:-2] for n in results]), "each call is told by turns, with both results"
    assert all(turns[n + 1]["content"] == turns[n]["content"][:-1] + "2" for n in results)


@of("langchain_memory")
def test_writers_of_a_langchain_history(written):
    _, found = written
    check_rounds(found)


@of("agent_framework_memory")
def test_writers_of_an_agent_framework_history(written):
    _, found = written
    check_rounds(found)


@of("crewai_memory")
def test_writers_of_a_crewai_storage(written):
    _, found = written
    records = found["records"]
    assert [key for key, _, _ in records[1:]] == [f"{name}-{i:02}" for name in NAMES for i in range(TIMES)]
    assert records[0][2] == {"by": records[0][1]} and found["near"] == "0"


@of("openai_agents")
def test_writers_of_an_agents_session(written):
    _, found = written
    check_rounds(found)
    assert in_order([i["output"][2:-2] for i in found["items"] if i.get("output", "").endswith(".2")])


@of("anthropic_memory")
def test_writers_of_a_memory_file(written):
    answers, files = written
    assert [sum(each) for each in zip(*answers, strict=True)] == [1, 1], "one process creates, one renames"
    assert len(files) == 1 + len(NAMES) and files["final.md"][0] not in files
    lines = files["log.md"]
    assert in_order([line for line in reversed(lines) if line[1:2] == "-"])
    assert sorted(line for line in lines if line.startswith("count")) == [f"count {n}: {TIMES};" for n in NAMES]
    assert lines[-1] == "log"


@of("pydantic_ai_memory")
def test_writers_of_a_pydantic_ai_session(written):
    _, turns = written
    assert in_order([text[2:] for role, text, _ in turns if role == "user"])
    assert in_order([text[2:] for role, text, _ in turns if role == "assistant" and text[0] == "a"])
    calls = [n for n, (role, text, _) in enumerate(turns) if role == "assistant" and text[0] == "c"]
    assert in_order([turns[n][1][2:] for n in calls])
    assert all(turns[n + 1] == ["tool", "r " + turns[n][1][2:], turns[n][1]] for n in calls)


@pytest.mark.parametrize(
    "kind", ["documents", *(pytest.param(framework, marks=pytest.mark.acceptance) for framework in FRAMEWORKS)]
)
def test_adapter_texts_come_back(kind, memoir_dsn, user):
    output_of([*command_of(kind, memoir_dsn, user), "texts"], env=surroundings())
