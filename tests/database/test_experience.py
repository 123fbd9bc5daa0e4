"""Experience: ways with their outcomes, ranked by record, shown before a task, and treated like every memory."""

import json
from typing import Any

import pytest
from calls import (
    Db,
    call,
    embed_waiting,
    export_rows,
    persist,
    raises,
    recalled,
    remember,
    set_clock,
    set_settings,
    table,
)

Ways = list[tuple[str, str]]


def learn(db: Db, user: str, trigger: str, way: str, **named: Any) -> str:
    return str(call(db, "learn_experience", user, trigger, way, **named)["memory_id"])


def ways(db: Db, user: str, task: str | None = None, **named: Any) -> Ways:
    """Way and verdict, in their order."""
    return table(db, "recall_experience", user, task, columns="way, verdict", **named)


def block(db: Db, user: str, asked: str, **named: Any) -> str:
    return str(call(db, "context", user, "asks", asked, **named)["messages"][-1]["content"])


TASK = "run the importer tests"


@pytest.mark.parametrize(
    ("outcomes", "order"),
    [
        ({"a": "", "b": "+"}, ["b worked", "a untried"]),
        ({"a": "-", "b": "+"}, ["b worked", "a failed"]),
        ({"a": "+", "b": "+++"}, ["b worked", "a worked"]),
        ({"a": "+++-", "b": "-"}, ["a worked", "b failed"]),
        ({"a": "-", "b": "-"}, ["a failed", "b failed"]),  # an older failure weighs less
        ({"a": "+--", "b": ""}, ["b untried", "a failed"]),
    ],
)
def test_experience_order(db: Db, user: str, outcomes: dict[str, str], order: list[str]) -> None:
    for nth, (way, signs) in enumerate(outcomes.items()):
        memory = learn(db, user, TASK, f"way {way}", actor="agent")
        for sign in signs:
            set_clock(db, f"2026-05-0{nth + 1}T12:00Z")
            call(db, "report_outcome", user, memory, sign == "+", actor="agent")
    found = [f"{way[4:]} {verdict}" for way, verdict in ways(db, user, TASK)]
    set_clock(db, None)
    assert found == order


def test_experience_age(db: Db, user: str) -> None:
    """What worked long ago gives way to what works now, and a failure is forgiven in time."""
    for at, way in (("2025-01-01T12:00Z", "old"), ("2026-06-01T12:00Z", "new")):
        set_clock(db, at)
        learn(db, user, TASK, f"way {way}", actor="agent", success=True)
    assert ways(db, user, TASK) == [("way new", "worked"), ("way old", "worked")]
    set_clock(db, None)


def test_experience_failed_as_warning(db: Db, user: str) -> None:
    """A failed way is shown where it is the nearest, and not in a list of all ways."""
    learn(db, user, "deploy the api", "kubectl apply", success=False, note="needs a login", actor="agent")
    learn(db, user, "deploy the handbook", "make handbook", success=True, actor="agent")
    assert ways(db, user, "deploy the handbook") == [("make handbook", "worked")]
    assert ways(db, user, "deploy the api") == [("kubectl apply", "failed")]
    learn(db, user, "deploy the api", "make ship", success=True, actor="agent")
    assert ways(db, user, "deploy the api") == [("make ship", "worked"), ("kubectl apply", "failed")]
    assert sorted(ways(db, user)) == [("make handbook", "worked"), ("make ship", "worked")]
    shown = block(db, user, "deploy the api")
    assert "- Failed: deploy the api => kubectl apply (failed 1 of 1, " in shown and ": needs a login; id " in shown


def test_experience_block(db: Db, user: str) -> None:
    """A compile shows ways beside its message, within its budget, and no recall shows them as facts."""
    for n in range(5):
        learn(db, user, f"{TASK} of part {n}", f"make check PART={n} " + "and wait for it " * 12, success=True)
    shown = block(db, user, f"please {TASK}")
    assert shown.startswith("<memoir-experience>") and shown.endswith(f"please {TASK}") and shown.count("\n- ") == 3
    assert block(db, user, "is it raining in Oslo?") == "is it raining in Oslo?"
    assert call(db, "context", user, "asks", TASK)["arms"]["experience"]
    assert recalled(db, user, TASK) == [] and len(recalled(db, user, TASK, types=["procedure"])) == 5
    text = call(db, "recall_beside", user, "beside", TASK)["text"]
    assert "make check PART=" in text
    # A list that says it already does not get it twice, and what an application sends back is no word of the user's.
    assert call(db, "recall_beside", user, "beside", TASK, said=text)["text"].count("PART=") < 3
    persist(db, user, "back", shown)
    assert table(db, "history", user, "back", columns="history ->> 'content'") == [(f"please {TASK}",)]
    for setting, lines in (
        ({"experience_tokens": 60}, 1),
        ({"experience_tokens": 300, "experience_ways": 2}, 2),
        (
            {"experience_tokens": 0},
            0,
        ),
    ):
        call(db, "set_user_settings", user, setting)
        assert block(db, user, TASK).count("PART=") == lines, setting


def test_experience_tokens(db: Db, user: str) -> None:
    for n in range(6):
        learn(db, user, f"{TASK} {n} " + "word " * 60, "step\n" * 200, success=True)
    text = block(db, user, TASK)
    assert 50 < call(db, "count_tokens", text[: text.index("</memoir-experience>")]) <= 300


def test_experience_scope(db: Db, user: str) -> None:
    """Ways hold in their project or in all, and outside the session in which an agent learnt them; never for others."""
    for session, project in (("first", "shop"), ("second", "shop"), ("third", "bank")):
        call(db, "open_session", user, session, project=project)
    learn(db, user, TASK, "in the shop", session="first")
    learn(db, user, TASK, "everywhere", project="global", session="first")
    learn(db, user, TASK, "from a tool", session="first", actor="tool")
    for session, expected in (("second", {"in the shop", "everywhere"}), ("third", {"everywhere"})):
        assert {way for way, _ in ways(db, user, TASK, session=session)} == expected
    assert "from a tool" in {way for way, _ in ways(db, user, TASK, session="first")}
    assert ways(db, f"{user} too", TASK) == []
    learn(db, user, TASK, "log in with password: hunter2-Tr0ub4dor", project="shop")
    assert not any("hunter2" in way for way, _ in ways(db, user, TASK, session="second", limit=50))


def test_experience_is_a_memory(db: Db, user: str) -> None:
    """Corrected, retracted, forgotten and let back like every other; a duplicate stays one; ways stand side by side."""
    first = learn(db, user, TASK, "pytest importer")
    assert learn(db, user, TASK, "pytest importer") == first
    learn(db, user, TASK, "pytest -x importer")
    embed_waiting(db, [1.0] + 383 * [0.0])
    assert len(ways(db, user, TASK)) == 2
    made = call(db, "correct", user, first, f"{TASK}\nmake check")
    assert {way for way, _ in ways(db, user, TASK)} == {"make check", "pytest -x importer"}
    # The old id stands for its successor.
    assert call(db, "report_outcome", user, first, True)["memory_id"] == made["memory_id"]
    call(db, "forget", user, made["memory_id"])
    assert {way for way, _ in ways(db, user, TASK)} == {"pytest -x importer"}
    assert call(db, "learn_experience", user, TASK, "make check")["outcome"] == "refused_tombstone"
    call(db, "lift_tombstone", user, made["memory_id"])
    assert ("make check", "worked") in ways(db, user, TASK)
    assert remember(db, user, "Never push on Fridays.", type="lesson")["outcome"] == "stored"
    assert ways(db, user, "push it on Fridays") == [("Never push on Fridays.", "untried")]
    assert call(db, "profile", user)["content"] == ""


def test_experience_forget_in_words(db: Db, user: str) -> None:
    learn(db, user, "deploy to Heron", "ship heron-7")
    done = call(db, "forget_about", user, "ship heron-7")
    assert done["outcome"] == "forgotten" and ways(db, user, "deploy to Heron") == []
    call(db, "lift_tombstone", user, done["memories"][0]["memory_id"])
    assert ways(db, user, "deploy to Heron") == [("ship heron-7", "untried")]


def steps(*told: tuple[str, str]) -> list[dict[str, Any]]:
    """Calls of a shell with their results."""
    sent: list[dict[str, Any]] = []
    for n, (command, result) in enumerate(told):
        function = {"name": "Bash", "arguments": json.dumps({"command": command, "description": "Run importer tests"})}
        sent.append(
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"c{n}", "type": "function", "function": function}],
            }
        )
        sent.append({"role": "tool", "tool_call_id": f"c{n}", "content": result})
    return [*sent, {"role": "assistant", "content": "Done."}]


WRONG = ("pytest importer", "Exit code 1\nModuleNotFoundError: No module named 'psycopg'")
RIGHT = ("make check MODULE=importer", "31 passed")


def test_experience_from_steps(db: Db, user: str) -> None:
    """A failed command and the one that worked become ways, once; the next sessions add outcomes."""
    persist(db, user, "one", "Please run the importer tests.", *steps(WRONG, ("ls", "src"), RIGHT))
    call(db, "extract_session", user, "one")
    expected = [(RIGHT[0], "worked"), (WRONG[0], "failed")]
    assert ways(db, user, TASK) == expected
    persist(db, user, "one", "Thanks! Once more, please.", *steps(RIGHT))
    persist(db, user, "two", "Is the importer fine?", *steps(("cd /repo && " + RIGHT[0], "31 passed")))
    for session in ("one", "two"):
        call(db, "extract_session", user, session)
    assert ways(db, user, TASK) == expected
    assert table(db, "recall_experience", user, TASK, columns="tried, succeeded") == [(3, 3), (1, 0)]
    # "Once more" says nothing of when. The last request, which took nothing else, is one more trigger of the way.
    worked = [row["memory_id"] for row in export_rows(db, user, "experience_outcomes") if row["succeeded"]]
    assert sorted(map(worked.count, {*worked})) == [1, 3]
    assert (
        "Is the importer fine" in table(db, "recall_experience", user, "Is the importer fine?", columns="trigger")[0][0]
    )


def test_a_replaced_way_fails_under_all_its_triggers(db: Db, user: str) -> None:
    old, new = ("yarn workspace web build", "ok"), ("pnpm --filter web build", "ok")
    stopped = (old[0], "Exit code 1\nerror This project defines another package manager")
    told = [
        ("Build the frontend.", [("npm run importer", WRONG[1]), old]),
        ("Does the site compile?", [old]),
        ("Make a bundle of the web app.", [stopped, new]),
    ]
    for session, (asked, sent) in enumerate(told):
        persist(db, user, str(session), asked, *steps(*sent))
        call(db, "extract_session", user, str(session))
    for asked, _ in told:
        assert ways(db, user, asked, limit=9).count((old[0], "worked")) == 0
    assert ways(db, user, told[-1][0])[0] == (new[0], "worked")


def test_what_took_over_is_found_by_all_triggers_of_the_failed_way(db: Db, user: str) -> None:
    for trigger in ("ship the service", "deploy the api"):
        learn(db, user, trigger, "./old", success=False, actor="agent")
    learn(db, user, "deploy the api", "./new", success=True)
    assert ways(db, user, "ship the service") == [("./new", "worked"), ("./old", "failed")]


def test_later_words_end_no_way(db: Db, user: str) -> None:
    """A fact of another matter in the request goes when it changes. The ways learnt with it stay."""
    asked = "I live in Bergen. Run the tests of the importer, please."
    persist(db, user, "1", asked, *steps(WRONG, ("make check", "31 passed")))
    call(db, "extract_session", user, "1")
    before = ways(db, user, "run the tests of the importer")
    assert ("make check", "worked") in before
    persist(db, user, "2", "I live in Rome now, not in Bergen any more.")
    call(db, "extract_session", user, "2")
    assert "Rome" in str(table(db, "list_memories", user, columns="content"))
    assert ways(db, user, "run the tests of the importer") == before


def test_a_command_that_a_lesson_names_is_credited_to_it(db: Db, user: str) -> None:
    said = "no, don't run pytest here, use `make check --fast` or `make check PART=1` instead"
    persist(db, user, "1", "Test the importer.", *steps(("pytest -n 8", "812 passed in 640 s")), said)
    call(db, "extract_session", user, "1")
    for number, (sent, verdict) in enumerate((("make check", "untried"), ("make check PART=1", "worked")), 2):
        persist(db, user, str(number), "Is it still green?", *steps((sent, "31 passed")))
        call(db, "extract_session", user, str(number))
        lesson = next(found for found in ways(db, user, limit=9) if found[0].startswith(("no,", "don't")))
        assert lesson[1] == verdict, sent


def test_experience_from_a_correction(db: Db, user: str) -> None:
    told = steps(("pytest -n 8", "812 passed in 640 s"))
    persist(
        db,
        user,
        "s",
        "Run the importer tests.",
        *told,
        "Don't run pytest on everything, use make check.",
        *steps(RIGHT),
    )
    call(db, "extract_session", user, "s")
    found = table(db, "recall_experience", user, TASK, limit=9, columns="type, way, verdict")
    assert ("lesson", "Don't run pytest on everything, use make check", "untried") in found
    assert found[-1] == ("procedure", "pytest -n 8", "failed")


@pytest.mark.parametrize("what", ["user", "session", "turn"])
def test_experience_erased(db: Db, user: str, what: str) -> None:
    persist(db, user, "one", "Please run the importer tests.", *steps(WRONG, RIGHT))
    call(db, "extract_session", user, "one")
    kept = learn(db, user, "deploy", "make deploy", success=True)
    call(db, "report_outcome", user, kept, False, session="one")
    if what == "turn":
        call(db, "erase_turn", user, "one", 4)
        assert ways(db, user, TASK) == [(WRONG[0], "failed")]
    else:
        call(db, f"erase_{what}", user, *(["one"] if what == "session" else []))
        assert ways(db, user, TASK) == []
    outcomes = [row["succeeded"] for row in export_rows(db, user, "experience_outcomes")] if what != "user" else []
    assert sorted(outcomes) == {"user": [], "session": [True], "turn": [False, False, True]}[what]


def test_experience_moves(db: Db, user: str) -> None:
    """An export brings ways and outcomes to another user; what was forgotten stays behind."""
    learn(db, user, TASK, "make check", success=True)
    call(db, "forget", user, learn(db, user, TASK, "pytest", success=False, note="slow"))
    lines = [json.dumps(line) for (line,) in table(db, "export_user", user)]
    db.execute("select memoir.import_user(%s, %s::jsonb[])", [f"{user} moved", lines])
    assert ways(db, f"{user} moved", TASK) == [("make check", "worked")]
    assert call(db, "learn_experience", f"{user} moved", TASK, "pytest")["outcome"] == "refused_tombstone"


def test_experience_tools(db: Db, user: str) -> None:
    def use(tool: str, **arguments: Any) -> str:
        return str(call(db, "call_memory_tool", user, None, tool, arguments))

    made = use("memory_learn", when="deploy the api", how="./ship.sh api", worked=True)
    name = made.removeprefix("Kept as ")[:8]
    assert use("memory_outcome", id=name, worked=False, note="no VPN") == "Noted: worked 1 of 2."
    assert "Failed: deploy the api => ./ship.sh api (failed 1 of 2, last" in use(
        "memory_experience", task="deploy the api"
    )
    assert use("memory_experience", task="bake bread") == "Nothing found."
    got = call(db, "memory_get", user, [table(db, "list_memories", user, columns="memory_id")[0][0]])
    assert [(one["succeeded"], one.get("note")) for one in got["outcomes"]] == [(True, None), (False, "no VPN")]
    assert use("memory_learn", when="x", how="y", type="fact").startswith("Error: type ")
    assert use("memory_outcome", id=name, worked=None).startswith("Error: memory_outcome needs the argument worked")


def test_experience_errors(db: Db, user: str) -> None:
    fact = remember(db, user, "Lives in Ulm.")["memory_id"]
    way = learn(db, user, TASK, "make check")
    for function, arguments, code, match in (
        ("learn_experience", ("", "x"), "PM014", "trigger must not be empty"),
        ("learn_experience", ("x", " "), "PM014", "way must not be empty"),
        ("learn_experience", ("x", "y", "fact"), "PM014", "fact"),
        ("report_outcome", (fact, True), "PM014", f"memory {fact} is a fact in state active"),
        ("report_outcome", (way, None), "PM014", "success must be true or false"),
        ("report_outcome", (way, True, "x" * 2001), "PM014", "note must be"),
        ("report_outcome", ("00000000-0000-0000-0000-000000000001", True), "PM004", "unknown memory"),
        ("recall_experience", (TASK, None, None, 51), "PM014", "limit"),
    ):
        with raises(code, match):
            call(db, function, user, *arguments)
    assert not call(db, "report_outcome", user, way, False, "password: hunter2-Tr0ub4dor")["note_kept"]
    # The same request is counted once, and another one with its key is refused, also of another way.
    first = call(db, "report_outcome", user, way, True, key="k")
    learnt = call(db, "learn_experience", user, TASK, "make all", success=True, key="l")
    call(db, "report_outcome", user, way, True)
    assert call(db, "report_outcome", user, way, True, key="k") == first and first["tried"] == 2
    assert call(db, "learn_experience", user, TASK, "make all", success=True, key="l") == learnt
    for function, arguments in (
        ("report_outcome", {"memory": way, "success": False, "key": "k"}),
        ("report_outcome", {"memory": learnt["memory_id"], "success": True, "key": "k"}),
        ("learn_experience", {"trigger": TASK, "way": "make all", "success": False, "key": "l"}),
        ("learn_experience", {"trigger": TASK, "way": "make all", "key": "l"}),
    ):
        with raises("PM006", "was used with another request"):
            call(db, function, user, **arguments)


def test_experience_settings(db: Db, user: str) -> None:
    learn(db, user, TASK, "make check")
    set_settings(db, experience_floor=1)
    assert ways(db, user, "tests of something else") == []
    set_settings(db, experience_floor=0.25)
