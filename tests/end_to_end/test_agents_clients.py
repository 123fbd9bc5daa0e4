"""The real Claude Code, Codex and opencode with the hooks of pg-memoir: each gets a fact that another was told in a repository."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from commands import output_of
from confined import confined, unshare
from node import MODULES
from parallel import until
from pg_memoir import Memoir
from upstream import Upstream

pytestmark = [pytest.mark.acceptance, pytest.mark.extended]
FACT = "Our deploys go out on Tuesdays, and the staging host is called heron-7."
OTHER = "The canary host of this service is called magpie-3."
USER = "ann:git.example/acme/app"
THIRD = "The build cache of this service is kept on osprey-5."
PROGRAMS = {
    "claude-code": "@anthropic-ai/claude-code-*/claude",
    "codex": "@openai/codex-*/vendor/*/bin/codex",
    "opencode": "opencode-linux-*/bin/opencode",
}
Tell = Callable[[str, Path, str], str]


def find_program(agent: str) -> str:
    found = sorted(MODULES.glob(PROGRAMS[agent]))
    if not found:
        pytest.skip(f"{agent} is not installed: scripts/setup.sh --acceptance installs it")
    if unshare() is None:
        pytest.skip("a program can't be run in a network namespace of its own here")
    return str(found[0])


@pytest.fixture
def environment(memoir_dsn: str, model: Upstream, tmp_path: Path) -> dict[str, str]:
    home = tmp_path / "home"
    (home / ".codex").mkdir(parents=True)
    (home / ".codex/config.toml").write_text(
        'model = "gpt-5.1" # mine\nmodel_provider = "stub"\ncheck_for_update_on_startup = false\n'
        f'[model_providers.stub]\nname = "stub"\nbase_url = "{model.url}/v1"\n'
        'env_key = "OPENAI_API_KEY"\nwire_api = "responses"\n[analytics]\nenabled = false\n'
    )
    (home / ".config/opencode").mkdir(parents=True)
    provider = {"anthropic": {"options": {"baseURL": f"{model.url}/v1", "apiKey": "sk-ant-none"}}}
    given = {
        "$schema": "https://opencode.ai/config.json",
        "autoupdate": False,
        "share": "disabled",
        "permission": "allow",
        "provider": provider,
    }
    (home / ".config/opencode/opencode.json").write_text(json.dumps(given, indent=4))
    (home / ".npmrc").write_text("fetch-retries=0")  # no registry can be reached
    (home / ".claude").mkdir()
    (home / ".claude/settings.json").write_text('{"theme": "dark"}')
    quiet = "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC DISABLE_TELEMETRY DISABLE_ERROR_REPORTING DISABLE_AUTOUPDATER "
    quiet += "OPENCODE_DISABLE_MODELS_FETCH"
    return dict.fromkeys(quiet.split(), "1") | {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "CODEX_HOME": str(home / ".codex"),
        "XDG_STATE_HOME": str(home / "state"),
        "PG_MEMOIR_DSN": memoir_dsn,
        "ANTHROPIC_BASE_URL": model.url,
        "ANTHROPIC_API_KEY": "sk-ant-none",
        "OPENAI_API_KEY": "sk-none",
        "IS_SANDBOX": "1",
        "CI": "1",
    }


def run(command: list[str], environment: dict[str, str], folder: Path) -> None:
    output_of(command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, timeout=180)


@pytest.fixture
def tell(model: Upstream, environment: dict[str, str], tmp_path: Path) -> Iterator[Tell]:
    """Tells an agent something in a new session in a folder; returns the requests to the model that it led to."""
    programs = {agent: find_program(agent) for agent in PROGRAMS}
    arguments = {
        "claude-code": ["--dangerously-skip-permissions", "--model", "claude-sonnet-4-5", "-p"],
        "codex": "exec --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox "
        "--dangerously-bypass-hook-trust".split(),
        "opencode": ["run", "--model", "anthropic/claude-sonnet-4-5"],
    }
    with ExitStack() as stack:
        door = stack.enter_context(confined(int(model.url.rpartition(":")[2]), tmp_path))

        def telling(agent: str, folder: Path, prompt: str) -> str:
            before = len(model.asked)
            words = prompt.split() if agent == "opencode" else [prompt]  # it puts an argument with spaces into quotes
            run([*door, programs[agent], *arguments[agent], *words], environment, folder)
            return "\n".join(json.dumps(asked.body) for asked in model.asked[before:] if asked.raw)

        yield telling


def told(memoir: Memoir, user: str = USER) -> list[Any]:
    """All that is kept of a repository's sessions."""
    sessions = [memoir.history(user, session.session) for session in memoir.list_sessions(user)]
    return [turn["content"] for turns in sessions for turn in turns]


def test_agents_share_the_memory_of_a_repository(
    tell: Tell, environment: dict[str, str], memoir: Memoir, tmp_path: Path
) -> None:
    def folder(name: str, remote: str) -> Path:
        made = tmp_path / name
        made.mkdir()
        for command in (["init", "-q"], ["remote", "add", "origin", remote]):
            subprocess.run(["git", *command], cwd=made, check=True)
        return made

    here = folder("here", "https://git.example/acme/app.git")
    clone = folder("clone", "git@git.example:acme/app.git")
    elsewhere = folder("elsewhere", "https://git.example/acme/other.git")
    home = Path(environment["HOME"])
    files = (".claude/settings.json", ".codex/config.toml", ".config/opencode/opencode.json")
    settings = {home / name: (home / name).read_bytes() for name in files}
    agents = [sys.executable, "-m", "pg_memoir_cli", "agents"]
    run([*agents, "install", *PROGRAMS, "--user", "ann"], environment, here)

    sessions: list[str] = []

    def ask(agent: str, folder: Path, prompt: str, *facts: str) -> None:
        """Asks in new sessions until these texts are sent: where a machine is busy, a hook gives up after some seconds."""
        for _ in range(5):
            asked = tell(agent, folder, prompt)
            until(lambda: len(told(memoir)) == 2 * len(sessions) + 2)  # opencode does not wait for its last hook
            [new] = {one.session for one in memoir.list_sessions(USER)} - {*sessions}
            if all(fact in asked for fact in facts):
                sessions.append(new)
                return
            memoir.erase_session(USER, new)
        pytest.fail(f"{agent} was not sent {facts}, but {asked[-3000:]}")

    ask("claude-code", here, FACT, FACT)
    ask("claude-code", here, "Which host is staging?", "<memoir-recall>", FACT, "mcp__pg_memoir__memory_recall")
    ask("codex", clone, "What is the staging host called?", "<memoir-recall>", FACT)
    ask("codex", clone, OTHER)
    ask("claude-code", here, "What is the canary host called?", OTHER)
    ask("opencode", clone, THIRD)
    ask("opencode", here, "Where is the build cache kept?", "<memoir-recall>", THIRD, "memory_recall")
    ask("opencode", here, "When do our deploys go out?", FACT)
    ask("codex", here, "Which service is kept on osprey-5?", THIRD)
    assert [told(memoir).count(fact) for fact in (FACT, OTHER, THIRD)] == [1, 1, 1]
    for agent in PROGRAMS:
        asked = tell(agent, elsewhere, "Which host is staging, and which is the canary?")
        assert "heron-7" not in asked and "magpie-3" not in asked
    until(lambda: len(told(memoir, "ann:git.example/acme/other")) == 2 * len(PROGRAMS))

    run([*agents, "status"], environment, here)
    run([*agents, "uninstall", *PROGRAMS], environment, here)
    for path, before in settings.items():
        own = path.read_bytes()
        assert own == before or own.startswith(before) and b"memoir" not in own  # Codex may trust a folder
    assert b"memoir agents" not in (home / ".claude.json").read_bytes() and not (home / "state/pg_memoir").exists()
    assert "<memoir-recall>" not in tell("claude-code", here, "And which host is staging?")
