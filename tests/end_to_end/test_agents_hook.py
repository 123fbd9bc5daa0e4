"""The hooks of coding agents, called as the agents call them: with events and transcripts that they recorded.

Those of Claude Code 2.1.330, Codex 0.169.0 and opencode 1.18.33 are their own, shortened. Cursor's are written by its
documentation.
"""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from calls import Db, call
from pg_memoir import Memoir
from pg_memoir_cli.agents.clients import AGENTS
from pg_memoir_cli.app import main
from servers import complete, database

CASES = Path(__file__).resolve().parents[1] / "cases" / "agents"
FACT = "Our deploys go out on Tuesdays, and the staging host is called heron-7."
QUESTION = "Which host is staging?"
STEPS = ["user", "assistant", "tool", "assistant", "tool", "assistant"]
Hook = Callable[..., str]


@pytest.fixture
def hook(memoir_dsn: str, tmp_path: Path) -> Hook:
    """Runs a hook of a person called ann; returns what the agent would read."""

    def run(agent: str, event: str, payload: Any, **environment: str) -> str:
        own = {"PG_MEMOIR_DSN": memoir_dsn, "XDG_STATE_HOME": str(tmp_path / "state"), "PG_MEMOIR_USER": "ann"}
        command = [sys.executable, "-m", "pg_memoir_cli", "agents", "hook", event, "--agent", agent]
        (tmp_path / "state/pg_memoir/agents").mkdir(parents=True, exist_ok=True)
        given = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        done = subprocess.run(command, input=given, env=os.environ | own | environment, capture_output=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, b"")
        return done.stdout.decode()

    return run


def notes(folder: Path) -> list[str]:
    log = folder / "state" / "pg_memoir" / "agents" / "log.jsonl"
    return [json.loads(line)["note"] for line in log.read_text().splitlines()]


def repository(folder: Path, remote: str = "") -> Path:
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "HEAD").touch()
    if remote:
        (folder / ".git" / "config").write_text(f'[remote "origin"]\n\turl = {remote}\n')
    return folder


def recorded(agent: str, folder: Path, transcript: Path, lines: int | None = None) -> dict[str, dict[str, Any]]:
    """The events of a session in `folder`, whose transcript is written to a file; `lines`: only its first ones."""
    told = (CASES / f"{agent}.jsonl").read_text("utf-8").replace("/FOLDER", str(folder)).splitlines(keepends=True)
    transcript.write_text("".join(told[:lines]), "utf-8")
    events = json.loads((CASES / f"{agent}.json").read_text("utf-8"))
    for event in events.values():
        where = {"cwd": str(folder), "workspace_roots": [str(folder)], "transcript_path": str(transcript)}
        event.update({key: value for key, value in where.items() if key in event})
        if "messages" in event:
            event["messages"] = [json.loads(line) for line in told[:lines]]
    return events


def given(answer: str) -> str:
    """The text for the model in an answer of a hook, "" if there is none."""
    told = json.loads(answer or "{}")
    return (
        told.get("additional_context")
        or told.get("context")
        or (told.get("hookSpecificOutput", {}).get("additionalContext", ""))
    )


@pytest.mark.parametrize("agent", AGENTS)
def test_stop_stores_each_message_once(hook: Hook, memoir_dsn: str, tmp_path: Path, agent: str) -> None:
    folder = repository(tmp_path / "app", f"git@h:acme/{agent}.git")
    begun = recorded(agent, folder, tmp_path / "log", lines=-1)["Stop"] | {"last_assistant_message": ""}
    assert hook(agent, "stop", begun) == ""
    whole = recorded(agent, folder, tmp_path / "log")["Stop"]
    for _ in range(2):
        assert hook(agent, "stop", whole) == ""
    assert notes(tmp_path)[2:] == ["nothing new"]
    user = f"ann:h/acme/{agent}"
    with Memoir(memoir_dsn) as memoir:
        (session,) = memoir.list_sessions(user)
        turns = memoir.history(user, session.session)
        assert session.session.startswith(f"{agent} ")
    steps = [step for step in STEPS if step != "tool" or agent != "cursor"]
    assert [turn["role"] for turn in turns] == steps
    assert turns[0]["content"].strip('"') == FACT and turns[-1]["content"] == "Finished s2: 2 steps are done."
    if agent != "cursor":
        assert "module f00" in turns[2]["content"] and turns[1]["tool_calls"][0]["id"] == turns[2]["tool_call_id"]


@pytest.mark.parametrize("agent", ["claude-code", "codex"])
@pytest.mark.parametrize("is_first", [False, True], ids=["at a later stop", "at the first stop"])
def test_session_keeps_its_memory(hook: Hook, memoir_dsn: str, tmp_path: Path, agent: str, is_first: bool) -> None:
    """The agent has gone into a folder that is another repository, and later a remote is set."""
    app = repository(tmp_path / f"{agent}-{is_first}")
    inner = repository(app / "lib", "https://h/others/lib.git")
    event = recorded(agent, app, tmp_path / "log")["Stop"]
    own = {"CLAUDE_PROJECT_DIR": str(app)} if agent == "claude-code" else {}
    if not is_first:
        hook(agent, "stop", event)
        own = {}
    hook(agent, "stop", event | {"cwd": str(inner)}, **own)
    (app / ".git/config").write_text('[remote "origin"]\n\turl = https://h/acme/late.git\n')
    hook(agent, "stop", event | {"cwd": str(inner)}, **own)
    with Memoir(memoir_dsn) as memoir:
        assert [one.turns for one in memoir.list_sessions(f"ann:{app}")] == [len(STEPS)]
        assert not memoir.list_sessions("ann:h/others/lib") and not memoir.list_sessions("ann:h/acme/late")


@pytest.mark.parametrize("agent", ["claude-code", "codex"])
def test_session_goes_on_from_one_without_memory(hook: Hook, memoir_dsn: str, tmp_path: Path, agent: str) -> None:
    """Messages of a session with hooks switched off are never stored, also from a copy of it."""
    folder = repository(tmp_path / "app")
    begun = recorded(agent, folder, tmp_path / "log", lines=11 if agent == "codex" else 12)
    hook(agent, "stop", begun["Stop"] | {"last_assistant_message": ""}, PG_MEMOIR_AGENTS="off")
    whole = recorded(agent, folder, tmp_path / "log")
    for session in ({}, {"session_id": "copy"}):
        hook(agent, "stop", whole["Stop"] | session)
    with Memoir(memoir_dsn) as memoir:
        (session,) = memoir.list_sessions(f"ann:{folder}")
        told = [turn["content"] for turn in memoir.history(f"ann:{folder}", session.session)]
    assert told[-1] == "Finished s2: 2 steps are done." and len(told) < 4 and FACT not in told


def test_two_hooks_at_once_store_once(hook: Hook, memoir_dsn: str, tmp_path: Path) -> None:
    event = recorded("codex", repository(tmp_path / "twice"), tmp_path / "log")["Stop"]
    with ThreadPoolExecutor(3) as pool:
        assert set(pool.map(lambda _: hook("codex", "stop", event), range(3))) == {""}
    with Memoir(memoir_dsn) as memoir:
        (session,) = memoir.list_sessions(f"ann:{tmp_path}/twice")
    assert session.turns == len(STEPS)


def test_words_of_programs_are_not_the_persons(hook: Hook, db: Db, tmp_path: Path) -> None:
    """What an agent adds to a message of the user is left out; the output of a command has a tool's authority."""
    folder = repository(tmp_path / "wrapped")
    lines = [
        {"type": "user", "uuid": "1", "message": {"content": "<bash-stdout>I always deploy on Fridays.</bash-stdout>"}},
        {"type": "user", "uuid": "2", "message": {"content": "<command-name>/init</command-name>\nI never use tabs."}},
        {"type": "user", "uuid": "3", "isMeta": True, "message": {"content": "I always write in French."}},
        {"type": "user", "uuid": "4", "isSidechain": True, "message": {"content": "I always write in German."}},
    ]
    told = "".join(json.dumps({"parentUuid": None, "sessionId": "s"} | line) + "\n" for line in lines)
    (tmp_path / "log").write_text(told + '{"parentUuid": "half')
    hook("claude-code", "stop", {"session_id": "s", "cwd": str(folder), "transcript_path": str(tmp_path / "log")})
    user = f"ann:{folder}"
    with Memoir(db.info.dsn) as memoir:
        assert [turn["content"] for turn in memoir.history(user, "claude-code s")] == [
            "<bash-stdout>I always deploy on Fridays.</bash-stdout>",
            "I never use tabs.",
        ]
        memoir.extract_session(user, "claude-code s")
        assert [memory.content for memory in memoir.list_memories(user)] == ["User never uses tabs."]


def test_memory_is_shared_by_agents_of_a_repository(hook: Hook, tmp_path: Path) -> None:
    here = repository(tmp_path / "one", "https://h/acme/shared.git")
    there = repository(tmp_path / "two", "git@h:acme/shared.git")
    other = repository(tmp_path / "other", "git@h:acme/other.git")
    hook("claude-code", "stop", recorded("claude-code", here, tmp_path / "first")["Stop"])
    ask = {"session_id": "new", "hook_event_name": "UserPromptSubmit", "prompt": QUESTION, "transcript_path": None}
    for agent, folder in (("claude-code", here), ("codex", there), ("opencode", there / "src")):
        folder.mkdir(exist_ok=True)
        answer = hook(agent, "prompt", ask | {"cwd": str(folder)})
        assert FACT in given(answer) and "<memoir-recall>" in given(answer)
    assert json.loads(answer).keys() == {"context"}
    for missed in (
        {"cwd": str(other), "session_id": "o"},
        {"prompt": "Please rename this variable."},
        {"session_id": ""},
        {"prompt": ""},
    ):
        assert hook("codex", "prompt", ask | {"cwd": str(here)} | missed) == ""
    # What a session was given before stands in its list.
    line = {"type": "response_item", "payload": {"type": "message", "role": "developer", "content": given(answer)}}
    (tmp_path / "second").write_text(json.dumps(line) + "\n")
    again = ask | {"cwd": str(here), "transcript_path": str(tmp_path / "second")}
    assert hook("codex", "prompt", again) == ""
    assert hook("opencode", "prompt", ask | {"cwd": str(here), "said": given(answer)}) == ""


def test_hooks_give_experience(hook: Hook, memoir_dsn: str, tmp_path: Path) -> None:
    """Ways of the repository and of the person, at the start of a session and beside a prompt for such a task."""
    folder = repository(tmp_path / "app", "https://h/acme/ways.git")
    with Memoir(memoir_dsn) as memoir:
        memoir.learn_experience("ann:h/acme/ways", "run the importer tests", "make check", success=True)
        memoir.learn_experience("ann", "write a commit message", "name the area first", success=True)
    event = {"session_id": "w", "cwd": str(folder), "transcript_path": None}
    begun = given(
        hook("claude-code", "session-start", event | {"hook_event_name": "SessionStart", "source": "startup"})
    )
    assert "=> make check (worked 1 of 1" in begun and "=> name the area first" in begun
    ask = event | {"hook_event_name": "UserPromptSubmit"}
    for prompt, expected in (("run the importer tests", "make check"), ("write a commit message", "area first")):
        assert expected in given(hook("claude-code", "prompt", ask | {"prompt": prompt}))
    assert hook("claude-code", "prompt", ask | {"prompt": "bake some bread"}) == ""


def test_hooks_without_plpython_in_the_server(hook: Hook, server_dsn: str, tmp_path: Path) -> None:
    folder = repository(tmp_path / "app")
    events = recorded("claude-code", folder, tmp_path / "log")
    with database(server_dsn) as dsn:
        complete(dsn)
        hook("claude-code", "stop", events["Stop"], PG_MEMOIR_DSN=dsn)
        with Memoir(dsn) as memoir:
            memoir.remember(f"ann:{folder}", "Module m1 parses dates.")
        asked = events["UserPromptSubmit"] | {"prompt": QUESTION, "session_id": "new", "transcript_path": None}
        assert FACT in given(hook("claude-code", "prompt", asked, PG_MEMOIR_DSN=dsn))
        assert "Module m1" in given(hook("claude-code", "session-start", events["SessionStart"], PG_MEMOIR_DSN=dsn))
    assert [note[:4] for note in notes(tmp_path)] == ["stor", "gave", "gave"]


def test_session_start_gives_profile_and_newest(hook: Hook, db: Db, tmp_path: Path) -> None:
    folder = repository(tmp_path / "start")
    with Memoir(db.info.dsn) as memoir:
        memoir.persist_turn("ann", "s", [{"role": "user", "content": "I always want short answers."}])
        memoir.persist_turn(f"ann:{folder}", "s", [{"role": "user", "content": "I never use tabs."}])
        for user in ("ann", f"ann:{folder}"):
            memoir.extract_session(user, "s")
        db.execute("call memoir.run_job('profiles')")
        for number in range(40):
            memoir.remember(f"ann:{folder}", f"Module m{number} </memoir-recall> parses the format f{number}.")
    for agent in ("claude-code", "cursor"):
        event = recorded(agent, folder, tmp_path / "log")["SessionStart"]
        text = given(hook(agent, "session-start", event))
        assert "User always wants short answers." in text and "User never uses tabs." in text
        assert "Module m39" in text and "Module m0 " not in text
        assert text.count("</memoir-recall>") == 1 and text.endswith("</memoir-recall>")
        newest = text[text.index("Newest in this repository") :]
        assert "tabs" not in newest and call(db, "count_tokens", newest) < 600
    assert hook("claude-code", "session-start", event | {"session_id": "s", "source": "resume"}) == ""
    # The profile is given once in a session.
    ask = {"session_id": "n", "cwd": str(folder), "prompt": "What does module m7 parse?"}
    assert "tabs" in given(hook("codex", "prompt", ask))
    told = given(hook("opencode", "prompt", ask | {"said": text}))
    assert "format f7" in told and "tabs" not in told


def test_session_start_leaves_out_what_a_recall_would(hook: Hook, memoir_dsn: str, tmp_path: Path) -> None:
    folder = repository(tmp_path / "now")
    user, at = f"ann:{folder}", datetime(2024, 3, 1, tzinfo=UTC)
    event = recorded("codex", folder, tmp_path / "log")["SessionStart"]
    with Memoir(memoir_dsn) as memoir:
        for name in ("other", own := f"codex {event['session_id']}"):
            memoir.open_session(user, name)
        memoir.remember(user, "Module kept parses dates.", created_at=at)
        memoir.remember(user, "Module ended parses dates.", created_at=at, valid_to=at + timedelta(days=9))
        memoir.remember(user, "Module later parses dates.", valid_from=datetime.now(UTC) + timedelta(days=9))
        memoir.remember(user, "Module fetched parses dates.", actor="tool")
        memoir.remember(user, "Module hidden parses dates.", sensitivity="secret")
        memoir.remember(user, "Module elsewhere parses dates.", session="other", actor="agent")
        memoir.remember(user, "Module here parses dates.", session=own, actor="agent")
        assert {row.scope for row in memoir.list_memories(user)} == {"global", "local"}
    text = given(hook("codex", "session-start", event))
    assert re.findall(r"Module (\w+)", text) == ["here", "kept"] and "dates. (1 Mar 2024)" in text


@pytest.mark.parametrize(
    ("agent", "event", "payload", "environment", "note"),
    [
        ("codex", "prompt", b"\xff{", {}, "failed: JSONDecodeError"),
        ("codex", "prompt", b"[]", {}, "no event"),
        ("codex", "no-event", {}, {}, "failed: ArgumentError"),
        ("nobody", "stop", {"session_id": "s"}, {}, "failed: KeyError"),
        ("codex", "stop", {"session_id": "s", "transcript_path": "/nowhere"}, {}, "nothing said"),
        ("claude-code", "stop", {"conversation_id": "s", "cursor_version": "3.7"}, {}, "Cursor runs"),
        ("codex", "prompt", {"session_id": "s", "prompt": "x"}, {"PG_MEMOIR_DSN": "host=/nowhere"}, "failed: Operat"),
        ("codex", "prompt", {"session_id": "s", "prompt": "x"}, {"PG_MEMOIR_DSN": "="}, "failed: "),
        ("codex", "stop", {"session_id": "s"}, {"PG_MEMOIR_AGENTS": "off"}, "switched off"),
        ("codex", "stop", {"session_id": "s"}, {"PG_MEMOIR_DSN": "", "PG_MEMOIR_STATE": "/nowhere"}, "failed: no data"),
    ],
)
def test_hook_never_fails(
    hook: Hook, tmp_path: Path, agent: str, event: str, payload: Any, environment: dict[str, str], note: str
) -> None:
    assert hook(agent, event, payload, **environment) == ""
    (told,) = notes(tmp_path)
    assert told.startswith(note)


@pytest.mark.parametrize(
    "dsn",
    [
        "host=127.0.0.1 port=1 password=s3 s3cret",
        "host=127.0.0.1 port=1 password='s3cret",
        "postgresql://ann:pa/s3cret@127.0.0.1/x",
        "postgresql://ann:pa@s3cret@127.0.0.1/x",
        "postgresql://ann:%s3cret@127.0.0.1/x",
        "postgresql://ann:s3cret@[127.0.0.1/x",
        "postgresql://ann:x@127.0.0.1/x?s3cret",
    ],
)
def test_log_has_no_password(hook: Hook, tmp_path: Path, dsn: str) -> None:
    hook("codex", "stop", {"session_id": "s"}, PG_MEMOIR_DSN=dsn)
    (told,) = notes(tmp_path)
    assert re.match(r"failed: \w+Error: ", told) and "s3cret" not in told


def test_hook_ends_when_the_server_is_silent(hook: Hook, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        dsn = f"host=127.0.0.1 port={server.getsockname()[1]} dbname=x"
        assert hook("codex", "prompt", {"session_id": "s", "prompt": "x"}, PG_MEMOIR_DSN=dsn) == ""
    assert notes(tmp_path)[0].startswith("failed: ")


def test_person_of_a_repository(hook: Hook, memoir_dsn: str, tmp_path: Path) -> None:
    """Named on this machine, not in the files that a team shares. It holds for all working trees."""
    app, clone = (repository(tmp_path / name, "https://h/acme/team") for name in ("app", "clone"))
    records = tmp_path / "state/pg_memoir/agents/installs.json"
    records.parent.mkdir(parents=True)
    records.write_text(json.dumps({"installs": [{"agent": "codex", "root": str(app), "user": "bob"}]}))
    hook("codex", "stop", recorded("codex", clone, tmp_path / "log")["Stop"])
    with Memoir(memoir_dsn) as memoir:
        assert len(memoir.list_sessions("bob:h/acme/team")) == 1
    records.write_text("{")
    hook("codex", "stop", {"session_id": "s"})
    assert notes(tmp_path)[-1] == f"failed: {records} is damaged"


def test_hooks_of_a_repository_leave_it_to_those_of_the_machine(hook: Hook, tmp_path: Path) -> None:
    folder = tmp_path / "state" / "pg_memoir" / "agents"
    folder.mkdir(parents=True)
    (folder / "installs.json").write_text('{"installs": [{"agent": "codex", "root": ""}]}')
    command = [sys.executable, "-m", "pg_memoir_cli", "agents", "hook", "stop", "--agent", "codex", "--project"]
    own = {"XDG_STATE_HOME": str(tmp_path / "state")}
    subprocess.run(command, input=b'{"session_id": "s"}', env=os.environ | own, check=True)
    assert notes(tmp_path) == ["installed for the machine too, whose hooks do it"]


def test_commands_install_tell_and_uninstall(
    memoir_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    monkeypatch.chdir(tmp_path)

    def pg_memoir(*arguments: str) -> tuple[int, str]:
        code = main(["agents", *arguments])
        told = capsys.readouterr()
        return code, told.out + told.err

    assert pg_memoir("install", "emacs", "--dsn", memoir_dsn)[0] == 2
    code, told = pg_memoir("install", "codex", "--project", "--dsn", memoir_dsn)
    assert code == 2 and "in no repository" in told
    code, told = pg_memoir("install", "codex", "cursor", "--user", "ann", "--dsn", memoir_dsn)
    assert code == 0 and f"user 'ann:{tmp_path}'" in told and "/hooks" in told
    assert "codex" in pg_memoir("status")[1]
    (tmp_path / "codex" / "hooks.json").unlink()
    assert pg_memoir("status")[0] == 3
    assert pg_memoir("uninstall", "codex", "cursor")[0] == 0
    assert pg_memoir("uninstall", "codex") == (3, "codex: nothing was installed\n")


def test_mcp_serves_the_memory_of_the_repository(memoir_dsn: str, tmp_path: Path) -> None:
    folder = repository(tmp_path / "app", "https://h/acme/served")
    with Memoir(memoir_dsn) as memoir:
        memoir.remember("ann:h/acme/served", FACT)
    begin = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    ask = {"name": "memory_recall", "arguments": {"query": QUESTION}}
    lines: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": begin},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": ask},
    ]
    command = [sys.executable, "-m", "pg_memoir_cli", "agents", "mcp", "--user", "ann", "--dsn", memoir_dsn]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder) as server:
        assert server.stdin and server.stdout
        server.stdin.write("".join(json.dumps({"jsonrpc": "2.0"} | line) + "\n" for line in lines))
        server.stdin.flush()
        answers = [server.stdout.readline() for _ in range(2)]
        server.stdin.close()
    assert FACT in answers[1]
