"""Experience in the steps of an agent, read by the package alone."""

import json
from typing import Any

import pytest
from pg_memoir_language.experience import find_corrections, find_experience

MISSING = "Exit code 1\nModuleNotFoundError: No module named 'psycopg'"
BROKEN = "Exit code 1\n1 failed, 30 passed\nFAILED tests/a.py::test_b - assert 1 == 2"
UNKNOWN = "Exit code 127\nbash: gradle: command not found"


def turns(*told: str | tuple[str, str, str]) -> list[dict[str, Any]]:
    """Turns of steps: texts are the person's, triples a command, what it is for, and what it printed."""
    turns: list[dict[str, Any]] = []
    for one in told:
        if isinstance(one, str):
            turns.append({"turn": len(turns), "role": "user", "is_person": True, "text": one})
            continue
        command, about, printed = one
        name = command.split(" ")[0]
        is_file = name in ("Edit", "Read")
        given = {"file_path": command.split(" ")[1]} if is_file else {"command": command, "description": about}
        call = {"id": str(len(turns)), "name": name if is_file else "Bash", "arguments": json.dumps(given)}
        turns.append({"turn": len(turns), "role": "assistant", "calls": [call]})
        turns.append({"turn": len(turns), "role": "tool", "call": call["id"], "text": printed})
    return turns


def read(*told: str | tuple[str, str, str]) -> list[dict[str, Any]]:
    """What steps teach, beside how a way went that may be known."""
    return [row for row in find_experience(turns(*told), 0) if not row["is_known"]]


@pytest.mark.parametrize(
    ("steps", "worked", "failed"),
    [
        ([("pytest a", "Run tests", MISSING), ("make check", "Test it", "31 passed")], "make check", ["pytest a"]),
        # By its folder a way is the same, and by what its output is cut to.
        (
            [("cd /r && pytest a 2>&1 | tail -5", "", MISSING), ("cd /r && make test", "", "ok")],
            "make test",
            ["pytest a"],
        ),
        # The steps in between belong to the way. The same command is no other way.
        (
            [
                ("pytest a", "", MISSING),
                ("pip install psycopg pytest", "", "done"),
                ("ls", "", "a"),
                ("pytest a", "", "1 passed"),
            ],
            "pip install psycopg pytest\npytest a",
            [],
        ),
        (
            [("gradle test", "Test", UNKNOWN), ("./gradlew test", "Test", "BUILD SUCCESS")],
            "./gradlew test",
            ["gradle test"],
        ),
        # What agents do next may be called otherwise.
        (
            [("kubectl apply -f x", "Deploy", "error: Unauthorized"), ("./ship.sh x", "Ship", "ok")],
            "./ship.sh x",
            ["kubectl apply -f x"],
        ),
        (
            [
                ("Edit a.py", "", "<tool_use_error>String to replace not found"),
                ("Read a.py", "", "x"),
                ("Edit a.py", "", "done"),
            ],
            "Read a.py\nEdit a.py",
            [],
        ),
        # A step that helps is no way where the goal is reached after it.
        (
            [
                ("pg_restore x", "Load", "Error: connection refused"),
                ("podman play restore.yml", "Up", "up"),
                ("pg_restore x", "Load", "ok"),
            ],
            "podman play restore.yml\npg_restore x",
            [],
        ),
        # The one that runs the same program is the way, and what prepares it belongs to it.
        (
            [
                ("cmake -S radar", "Build radar", "Exit code 1\nCMake Error: no package configuration file for fmt"),
                ("conan install radar", "Get libraries of radar", "done"),
                ("cmake --preset conan radar", "Build", "ok"),
            ],
            "conan install radar\ncmake --preset conan radar",
            ["cmake -S radar"],
        ),
        # Other options, or a setting before it, are another way of the same command.
        (
            [("sbatch x.sh", "Train", "sbatch: error: Invalid account"), ("sbatch -A nlp x.sh", "Train", "ok")],
            "sbatch -A nlp x.sh",
            ["sbatch x.sh"],
        ),
        (
            [("./gradlew test", "", BROKEN), ("JAVA_HOME=/opt/17 ./gradlew test", "", "BUILD SUCCESS")],
            "JAVA_HOME=/opt/17 ./gradlew test",
            ["./gradlew test"],
        ),
        # So are other arguments, and short code on the command line that works on a file of the project.
        (
            [
                ("shipctl restart box-2 -q", "", "Exit code 1\nbox-2 is elsewhere"),
                ("shipctl --site b bounce box-2 -q", "", "ok"),
            ],
            "shipctl --site b bounce box-2 -q",
            ["shipctl restart box-2 -q"],
        ),
        (
            [
                ("Rscript r.R", "Render report", "Error: there is no package 'x'. Execution halted, not found"),
                ("Rscript -e 'render(\"doc/report.qmd\")'", "Render report", "ok"),
            ],
            "Rscript -e 'render(\"doc/report.qmd\")'",
            ["Rscript r.R"],
        ),
        # A file that an interpreter runs is the program.
        (
            [("python3 tools/usb.py labels", "", "Exit code 1\nNo backend"), ("python3 tools/zpl.py labels", "", "ok")],
            "python3 tools/zpl.py labels",
            ["python3 tools/usb.py labels"],
        ),
        # A test run that tells of no test was no way either, if all that the request took came next.
        (
            [("ztest web", "Run checks of importer", "Exit code 3"), ("ztest web -p ui", "Run checks", "ok")],
            "ztest web -p ui",
            ["ztest web"],
        ),
        (
            [("pytest a", "Run checks of importer", "Exit code 1\nno luck"), ("pytest b", "Run checks", "ok")],
            "pytest b",
            ["pytest a"],
        ),
        # Code that was wrong says nothing of the command; nor does another goal, a look, a script, an open failure.
        ([("pytest a", "", BROKEN), ("Edit a.py", "", "done"), ("pytest a -x", "", "31 passed")], None, []),
        ([("pytest a", "", BROKEN), ("pytest a/b.py", "", "1 passed")], None, []),
        ([("pytest a", "Test", MISSING), ("mkdocs build", "Build docs", "ok")], None, []),
        ([("pytest a", "Test", MISSING), ("git commit -m x", "Save", "ok")], None, []),
        ([("cat x", "Read", "cat: x: No such file or directory"), ("cat y", "Read", "text")], None, []),
        ([("python -c 'import x'", "Try", MISSING), ("python -c 'import y'", "Try", "ok")], None, []),
        ([("pytest a", "Test", MISSING)], None, []),
    ],
)
def test_steps_to_ways(steps: list[Any], worked: str | None, failed: list[str]) -> None:
    found = read("Ship x: run the checks of the importer.", *steps)
    assert [row["way"] for row in found if row["succeeded"]] == ([worked] if worked else [])
    assert [row["way"] for row in found if row["succeeded"] is False] == failed


def test_steps_row() -> None:
    long = (
        "You are a careful author. Never guess. Please run the tests of the importer. " + "Then write a summary. " * 20
    )
    worked, failed = read(
        long, ("pytest a.py", "Run importer tests", MISSING), ("make check", "Run importer tests", "ok")
    )
    assert worked["trigger"] == failed["trigger"] == "Please run the tests of the importer; Run importer tests"
    assert failed["note"] == "ModuleNotFoundError: No module named 'psycopg'" and worked["note"] is None
    assert (worked["turn"], worked["sources"], failed["sources"]) == (4, [0, 3, 4], [0, 1, 2])
    told = {"extracted_by": "steps 1", "commands": ["pytest a.py"], "files": ["a.py"]}
    assert failed["memory"]["metadata"] == told and failed["memory"]["content"].endswith(
        "Run importer tests\npytest a.py"
    )


@pytest.mark.parametrize(
    ("text", "said", "wrong"),
    [
        ("don't run the whole suite, use make check", None, "run the whole suite"),
        (
            "Never edit schema.sql by hand. Run make schema instead.",
            "Never edit schema.sql by hand. Run make schema instead",
            "edit schema.sql by hand",
        ),
        ("Use uv instead of pip.", "Use uv instead of pip", "pip"),
        (
            "That's wrong: instead of kubectl apply, use ./ship.sh.",
            "instead of kubectl apply, use ./ship.sh",
            "kubectl apply",
        ),
        ("npm install doesn't work here, use pnpm install", None, "npm install"),
        ("always run make gen before you build the docs", None, "you build the docs"),
        ("Don't worry, just go on.", None, None),
        ("No need to be sorry, do the next one.", None, None),
        ("Can you add a test for the parser?", None, None),
    ],
)
def test_corrections_of_ways(text: str, said: str | None, wrong: str | None) -> None:
    assert find_corrections(text) == ([(said or text, wrong)] if wrong else [])


def test_a_request_that_took_one_command_is_its_trigger() -> None:
    known = find_experience(turns("Ship it to test.", ("ls", "", "a"), ("./ship test", "Ship", "ok")), 0)
    assert [(row["is_known"], row["trigger"], row["sources"]) for row in known] == [
        (True, "Ship it to test; Ship", [0, 3, 4])
    ]
    for said, more in (("Once more, please.", []), ("Ship it.", [("./build", "", "ok")])):
        told = find_experience(turns(said, *more, ("./ship test", "Ship", "ok")), 0)
        assert told and not any(row["trigger"] for row in told)


def test_corrections_that_name_a_command() -> None:
    """Whatever their words: something is refused, and another command stands there."""
    said = "No, those are the names of customers!! We have made-up data: make seed SET=small"
    rows = read("Fill my database.", ("pg_restore prod.dump", "Fill database with names", "done"), said)
    assert [(row["type"], row["way"], row["succeeded"]) for row in rows] == [
        ("lesson", said, None), ("procedure", "pg_restore prod.dump", False)
    ]  # fmt: skip
    for calm in ("No, that is not what I meant.", "Thanks, push it with `git push` and call it a day."):
        assert read("Fill my database.", ("pg_restore prod.dump", "Fill database", "done"), calm) == []


def test_corrections_shown_by_what_comes_next() -> None:
    """Words that refuse, and a next command with parts that they name, are a correction, however it is worded."""
    ran, said = ("./bin/hull_tests", "Run hull tests", "12 passed"), "that binary proves nothing, let scons do it"
    for since, told in ((0, [said, "scons -C hull check"]), (4, [said, "scons -C hull check"]), (6, [])):
        rows = find_experience(turns("Do the hull tests pass?", ran, said, ("scons -C hull check", "", "ok")), since)
        assert [row["way"] for row in rows if not row["is_known"]] == told
    for calm, then in ((said, "ls scons"), (said, "make docs"), ("Fine. Now let scons do it.", "scons check")):
        assert read("Do the hull tests pass?", ran, calm, (then, "", "ok")) == []


def test_corrections_that_speak_of_both() -> None:
    ran = ("docker run cms phpstan analyse src", "Lint PHP", "[OK] No errors")
    said = "phpstan on its own skips the code style, so the pipeline fails. composer qa is what CI does"
    for told, kinds in (
        (said, ["lesson", "procedure"]),
        ("phpstan looks good, composer qa as well", []),
        ("Now composer qa, phpstan was fast", []),
        ("composer qa", []),
    ):
        found = read("Lint the PHP.", ran, told, ("composer qa", "Check", "ok"))
        assert [row["type"] for row in found] == kinds, told


def test_corrections_need_work() -> None:
    said = "Don't run the whole suite, use make check."
    assert read(said) == []
    lesson, failed = read("Fix the parser.", ("pytest suite", "Run suite", "812 passed"), said)
    assert (lesson["type"], lesson["way"], lesson["succeeded"]) == ("lesson", said[:-1], None)
    assert (failed["way"], failed["succeeded"], failed["note"]) == ("pytest suite", False, said[:-1])
