"""The coding agents: which files of theirs get what, and how their hooks are answered."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .files import ConfigFile

Event = str
SESSION_START, PROMPT, STOP = "session-start", "prompt", "stop"
EVENTS: dict[Event, int] = {SESSION_START: 10, PROMPT: 10, STOP: 30}
"""The events of a session, and the seconds that an agent waits for a hook."""
FOLDERS = ("XDG_STATE_HOME", "XDG_DATA_HOME", "PG_MEMOIR_STATE")
SERVER = "pg_memoir"
"""The name of the MCP server."""


@dataclass(frozen=True)
class Place:
    """Where an install goes: `root` is a repository, or None for the whole machine. `command`: how pg-memoir is called;
    `options`: what the hooks and the server get beside the agent; `has_server`: is pg-memoir's MCP server there?"""

    root: Path | None
    command: str
    options: tuple[str, ...] = ()
    has_server: bool = True

    def hook(self, event: Event, agent: str) -> list[str]:
        shared = ["--project"] if self.root else []
        return [self.command, "agents", "hook", event, "--agent", agent, *shared, *self.options]

    def server(self, *more: str) -> list[str]:
        return [self.command, "agents", "mcp", *self.options, *more]

    def shell(self, event: Event, agent: str) -> str:
        return shlex.join(self.hook(event, agent))


def _folder(variable: str, default: str) -> Path:
    return Path(os.environ.get(variable) or Path.home() / default)


def _claude_code(place: Place) -> list[ConfigFile]:
    own = _folder("CLAUDE_CONFIG_DIR", ".claude")
    settings = place.root / ".claude" / "settings.json" if place.root else own / "settings.json"
    servers = place.root / ".mcp.json" if place.root else own / ".claude.json"
    if not place.root and not os.environ.get("CLAUDE_CONFIG_DIR"):
        servers = Path.home() / ".claude.json"
    events = {"SessionStart": SESSION_START, "UserPromptSubmit": PROMPT, "Stop": STOP, "SessionEnd": STOP}
    command, *arguments = place.server()
    server = {"type": "stdio", "command": command, "args": arguments}
    return [_hooks_of_claude(settings, place, "claude-code", events), *_servers(servers, place, "mcpServers", server)]


def _codex(place: Place) -> list[ConfigFile]:
    own = place.root / ".codex" if place.root else _folder("CODEX_HOME", ".codex")
    events = {"SessionStart": SESSION_START, "UserPromptSubmit": PROMPT, "Stop": STOP}
    command, *arguments = place.server()
    # Codex gives its servers few variables: these say where the records of installs and the private server are.
    folders = {name: os.environ[name] for name in FOLDERS if os.environ.get(name)}
    server = {"command": command, "args": arguments} | ({"env": folders} if folders else {})
    hooks = _hooks_of_claude(own / "hooks.json", place, "codex", events)
    return [hooks, *_servers(own / "config.toml", place, "mcp_servers", server)]


def _opencode(place: Place) -> list[ConfigFile]:
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "opencode"
    own = place.root / ".opencode" if place.root else config
    source = (Path(__file__).parent / "opencode.js").read_text("utf-8")
    command, *options = place.hook("EVENT", "opencode")
    content = source.replace("COMMAND", json.dumps([command, *options]), 1)
    plugin = ConfigFile(own / "plugins" / "pg_memoir.js", content=content)
    names = [(place.root or config) / name for name in ("opencode.jsonc", "opencode.json")]
    servers = next((name for name in names if name.exists()), names[1])
    server = {"type": "local", "command": place.server(), "enabled": True}
    return [plugin, *_servers(servers, place, "mcp", server)]


def _cursor(place: Place) -> list[ConfigFile]:
    own = (place.root or Path.home()) / ".cursor"
    events = {"sessionStart": SESSION_START, "stop": STOP}
    additions = tuple(
        (("hooks", name, "-"), {"command": place.shell(event, "cursor"), "timeout": EVENTS[event]})
        for name, event in events.items()
    )
    command, *arguments = place.server("--folder", "${workspaceFolder}")
    server = {"command": command, "args": arguments}
    hooks = ConfigFile(own / "hooks.json", additions, base='{\n  "version": 1\n}\n')
    return [hooks, *_servers(own / "mcp.json", place, "mcpServers", server)]


def _hooks_of_claude(path: Path, place: Place, agent: str, events: dict[str, Event]) -> ConfigFile:
    """Hooks as Claude Code and Codex have them."""
    additions = []
    for name, event in events.items():
        hook = {"type": "command", "command": place.shell(event, agent), "timeout": EVENTS[event]}
        additions.append((("hooks", name, "-"), {"hooks": [hook]}))
    return ConfigFile(path, tuple(additions))


def _servers(path: Path, place: Place, key: str, server: dict[str, Any]) -> list[ConfigFile]:
    return [ConfigFile(path, (((key, SERVER), server),))] if place.has_server else []


AGENTS: dict[str, Callable[[Place], list[ConfigFile]]] = {
    "claude-code": _claude_code,
    "codex": _codex,
    "opencode": _opencode,
    "cursor": _cursor,
}
"""The files of each agent."""
AFTER_INSTALL = {
    "codex": "Codex runs a new hook once you trust it: start codex, and accept the three hooks under /hooks.",
    "cursor": "Cursor takes no text at a prompt, so there a session gets memory at its start and by the MCP tools.",
}
