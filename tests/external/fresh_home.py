"""A person's first hour: an ordinary user with an empty home installs pg_memoir, and has a memory.

Needs Python 3.11 or later with venv, and nothing of a checkout but a folder of packages. test_packages.py runs it here.
It changes nothing outside of the home, and leaves there what a person would keep: the virtual environment.

    HOME=/home/ann PIP_FIND_LINKS=.local/dist python3 tests/external/fresh_home.py
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

HOME = Path.home()
BIN = HOME / "venv" / "bin"
STATE = HOME / ".local" / "share" / "pg_memoir"
BEGUN = time.monotonic()
SAID = "I saw a red kite over Porto, where I live."
MEANT = "Which bird of prey was spotted?"  # shares no word with what was said
FACT = "Our staging host is called heron-7."
AGENTS = ("claude-code", "codex", "opencode", "cursor")
# What a person may have there before, with comments and spaces of their own. Our files beside these are new.
OWN = {
    ".claude/settings.json": '{"theme":   "dark",\n\t"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "true"}]}]}}',
    ".claude.json": '{\n  "numStartups": 3\n}\n',
    ".codex/config.toml": 'model = "gpt-5.1"   # mine\n\n[mcp_servers.other]\ncommand = "true"\n',
    ".config/opencode/opencode.json": '{\n    "$schema": "https://opencode.ai/config.json"\n}',
    ".cursor/mcp.json": '{ "mcpServers": { "other": { "command": "true" } } }\r\n',
}
# As Claude Code writes it.
TRANSCRIPT = [
    {
        "parentUuid": before,
        "isSidechain": False,
        "type": role,
        "message": {"role": role, "content": content},
        "uuid": name,
        "timestamp": "2026-11-27T13:05:05.146Z",
        "sessionId": "s1",
    }
    for before, name, role, content in ((None, "m1", "user", FACT), ("m1", "m2", "assistant", "Understood."))
]
REMEMBER = """
import sys
from pg_memoir import Memoir
with Memoir(sys.argv[1]) as memoir:
    print(memoir.remember("me", sys.argv[2]))
"""


def say(step: str) -> None:
    print(f"{time.monotonic() - BEGUN:6.1f} s  {step}", flush=True)


def run(*command: str | Path, given: str = "", codes: tuple[int, ...] = (0,)) -> str:
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, cwd=HOME, timeout=1200)
    if done.returncode not in codes:
        raise SystemExit(f"{' '.join(map(str, command))} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def memoir(*arguments: str, codes: tuple[int, ...] = (0,)) -> str:
    return run(BIN / "pg-memoir", *arguments, codes=codes)


def read_home() -> dict[str, bytes]:
    """Every folder and file of the home but the virtual environment, pip's cache and the server's folder."""
    apart = (HOME / "venv", HOME / ".cache", STATE)
    found = [path for path in HOME.rglob("*") if not any(path.is_relative_to(folder) for folder in apart)]
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in found}


def pip_install(*arguments: str) -> None:
    constraints = os.environ.get("CONSTRAINTS")
    run(BIN / "pip", "install", "-q", *(["-c", constraints] if constraints else []), *arguments)


def install() -> None:
    run(sys.executable, "-m", "venv", BIN.parent)
    say("an environment")
    pip_install("pg-memoir[local]")
    say("pip install pg-memoir[local]")


def find_again() -> None:
    [hit, *_] = json.loads(memoir("search", "me", "which bird was it, a kite?", "--json"))
    assert "red kite" in hit["content"], hit
    assert FACT in memoir("search", "me", "staging host"), "what was remembered is not found"


def use() -> str:
    """Starts the server, remembers, recalls. Returns the DSN."""
    dsn = memoir("up").strip()
    say("pg-memoir up")
    chats = HOME / "chats.json"
    said = {"role": "user", "content": SAID}
    chats.write_text(json.dumps([{"user": "me", "session": "s", "messages": [said]}]))
    assert "1 conversations" in memoir("import", str(chats))
    run(BIN / "python", "-c", REMEMBER, dsn, FACT)
    find_again()
    say("a first recalled answer")
    memoir("doctor")
    asked = time.monotonic()
    while "red kite" not in memoir("list", "me", "memories"):  # by the worker
        assert time.monotonic() - asked < 600, "no memory was made of what was said"
        time.sleep(1)
    say("the worker has made a memory of what was said")
    return dsn


def restart(dsn: str) -> None:
    before = set(memoir("export", "me").splitlines())
    memoir("down")
    assert not (STATE / "pgdata" / "postmaster.pid").exists()
    assert memoir("up").strip() == dsn
    lost = before - set(memoir("export", "me").splitlines())
    assert not lost, f"lost by down and up: {lost}"
    find_again()
    say("down, up, and nothing is lost")


def upgrade() -> None:
    """Installs newer files of the server and the command, and starts them. The next question is found by its meaning."""
    asked = time.monotonic()
    while "red kite" not in memoir("search", "me", MEANT):
        assert time.monotonic() - asked < 180, "what was said is not found by its meaning"
        time.sleep(1)
    pip_install("--force-reinstall", "--no-deps", "pg-memoir-server", "pg-memoir-cli")
    memoir("up")
    # On a busy machine the embedder may miss the time of one question. One that is not there answers none of three.
    found = any("red kite" in memoir("search", "me", MEANT) for _ in range(3))
    assert found, "right after an upgrade nothing is found by its meaning"
    say("an upgrade, and what was said is found by its meaning")


def call_hook(settings: Path, event: str, **payload: str) -> str:
    """Runs the command that the settings of Claude Code name for an event, as it does."""
    hooks = [hook for entry in json.loads(settings.read_text())["hooks"][event] for hook in entry["hooks"]]
    [command] = [hook["command"] for hook in hooks if "agents hook" in hook["command"]]
    event_of = {"hook_event_name": event, "cwd": str(HOME / "app"), "session_id": "s1", **payload}
    return run("sh", "-c", command, given=json.dumps(event_of))


def try_agents(before_there: bool) -> None:
    """Installs the hooks of every agent, calls those of Claude Code, and uninstalls them byte for byte."""
    (HOME / "app" / ".git").mkdir(parents=True, exist_ok=True)
    for name, text in OWN.items() if before_there else ():
        (HOME / name).parent.mkdir(parents=True, exist_ok=True)
        (HOME / name).write_bytes(text.encode())
    home = read_home()
    memoir("agents", "install", *AGENTS, "--user", "ann")
    assert len(memoir("agents", "status").splitlines()) >= len(AGENTS)
    for name in OWN:
        assert "memoir" in (HOME / name).read_text() or name == ".codex/config.toml", name
    transcript = HOME / "app" / "transcript.jsonl"
    transcript.write_text("".join(f"{json.dumps(line)}\n" for line in TRANSCRIPT))
    settings = HOME / ".claude" / "settings.json"
    call_hook(settings, "SessionStart", source="startup")
    call_hook(settings, "Stop", transcript_path=str(transcript))
    told = ""
    for attempt in range(5):  # a hook gives up after four seconds, which a busy machine may need
        asked = {"prompt": "Which host is staging?", "session_id": f"s2-{attempt}"}
        told = told or call_hook(settings, "UserPromptSubmit", **asked)
    status = memoir("agents", "status", codes=(0, 3))
    transcript.unlink()
    memoir("agents", "uninstall", *AGENTS)
    after = read_home()
    changed = sorted(name for name in home.keys() | after.keys() if home.get(name) != after.get(name))
    assert not changed, f"uninstall left {changed}"
    assert "heron-7" in told, f"the prompt of a new session got {told!r}\n{status}"
    say(f"agents install and uninstall, {'beside files of mine' if before_there else 'without files of mine'}")


def main() -> None:
    if os.geteuid() == 0:
        raise SystemExit("run this as an ordinary user, not as root")
    if (HOME / "venv").exists() or STATE.exists():
        raise SystemExit(f"{HOME} is not empty. Give this an empty home.")
    install()
    try:
        dsn = use()
        restart(dsn)
        upgrade()
        try_agents(before_there=False)
        try_agents(before_there=True)
    finally:
        if (BIN / "pg-memoir").exists():
            memoir("down", "--delete", "--yes")
    assert not STATE.exists(), f"down --delete left {sorted(STATE.rglob('*'))[:5]}"
    say("down --delete leaves nothing")


if __name__ == "__main__":
    main()
