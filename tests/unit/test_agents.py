"""pg-memoir agents: what an install writes, and that an uninstall leaves no byte of it and every byte of others."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from commands import output_of
from pg_memoir_cli.agents import codex_trust, installing, repository
from pg_memoir_cli.agents.clients import AGENTS, Place
from pg_memoir_cli.agents.files import FileError
from pg_memoir_cli.agents.status import describe, read_log

FILES = {
    "claude-code": (".claude/settings.json", ".claude.json"),
    "codex": (".codex/hooks.json", ".codex/config.toml"),
    "opencode": (".config/opencode/plugins/pg_memoir.js", ".config/opencode/opencode.json"),
    "cursor": (".cursor/hooks.json", ".cursor/mcp.json"),
}
"""The files of a person, beside those of --project."""
PROJECT = {
    "claude-code": (".claude/settings.json", ".mcp.json"),
    "codex": FILES["codex"],
    "opencode": (".opencode/plugins/pg_memoir.js", "opencode.json"),
    "cursor": FILES["cursor"],
}
# Events of each agent, in its own words.
EVENTS = {
    "claude-code": ("SessionStart", "UserPromptSubmit", "Stop", "SessionEnd"),
    "codex": ("SessionStart", "UserPromptSubmit", "Stop"),
    "cursor": ("sessionStart", "stop"),
}
JSON = {
    "empty": "{}",
    "blank": "\n",
    "spaces": "{ \n}\n",
    "one line": '{"theme":"dark"}',
    "no newline": '{\n  "theme": "dark"\n}',
    "four": '{\n    "theme": "dark",\n    "hooks": {}\n}\n',
    "tabs and returns": '{\r\n\t"theme": "dark"\r\n}\r\n',
    "comments": '// mine\n{\n  // of all\n  "theme": "dark", // at night\n  /* the end */\n}\n',
    "hooks of others": '{"hooks": {"Stop": [{"command": "say done"}], "stop": [ {"command": "say done"} ]}}',
    "servers of others": '{\n  "mcpServers": {"a": {"command": "a"}},\n  "mcp": {"a": {"b": ["ä\\u00e9"]}}\n}\n',
}
TOML = {
    "empty": "",
    "no newline": 'model = "gpt-5.1" # mine',
    "comments": '# mine\nmodel = "gpt-5.1"\n\n[features]  # few\nplugins = false\n\n# the end\n',
    "returns": "[features]\r\nplugins = false\r\n",
    "servers of others": '[mcp_servers.a]\ncommand = "a"\n\n[projects."/x"]\ntrust_level = "trusted"\n',
    "inline": 'mcp_servers = { a = { command = "a" } }\n',
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def read(path: Path) -> Any:
    return tomllib.loads(path.read_text()) if path.suffix == ".toml" else json.loads(path.read_text())


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("is_project", [False, True], ids=["person", "project"])
def test_install_in_no_files_and_uninstall(home: Path, tmp_path: Path, agent: str, is_project: bool) -> None:
    root = tmp_path / "repository" if is_project else None
    (root or home).mkdir(exist_ok=True)
    before = contents(tmp_path)
    installed = installing.install(agent, root, user="ann", dsn="dbname=x")
    first, second = ((root or home) / name for name in (PROJECT if is_project else FILES)[agent])
    assert installed == [first, second]
    once = contents(tmp_path)
    assert installing.install(agent, root, user="ann") == installed and contents(tmp_path) == once
    for event in EVENTS.get(agent, ()):
        assert len(read(first)["hooks"][event]) == 1
    assert " agents hook " in first.read_text() and "pg_memoir" in second.read_text()
    assert ("--project" in first.read_text()) is is_project
    shared = first.read_text() + second.read_text()
    assert ("ann" in shared) is not is_project and installing.Records().installs[0].user == ("ann" if root else "")
    assert installing.Records().dsn == "dbname=x" and installing.Records().path.stat().st_mode & 0o777 == 0o600
    assert installing.uninstall(agent, root) == installed
    assert contents(tmp_path) == before
    assert installing.uninstall(agent, root) == []


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("case", JSON)
def test_uninstall_keeps_every_byte_of_others(home: Path, agent: str, case: str) -> None:
    """Also where somebody has changed another part of a file since."""
    texts = {}
    for name in FILES[agent]:
        path = home / name
        if path.suffix in (".json", ".toml"):
            path.parent.mkdir(parents=True, exist_ok=True)
            texts[path] = JSON[case] if path.suffix == ".json" else TOML[list(TOML)[list(JSON).index(case) % 5]]
            path.write_bytes(texts[path].encode())
            path.chmod(0o640)
    installing.install(agent, None)
    for path, text in texts.items():
        assert path.read_bytes() != text.encode() and path.stat().st_mode & 0o777 == 0o640
    installing.uninstall(agent, None)
    assert {path: path.read_bytes().decode() for path in texts} == texts

    installing.install(agent, None)
    changed = {}
    for path, text in texts.items():
        for old, new in (("dark", "light"), ("gpt-5.1", "gpt-6"), ("/x", "/y"), ('"a"', '"b"')):
            path.write_bytes(path.read_bytes().replace(old.encode(), new.encode()))
            text = text.replace(old, new)
        changed[path] = text
    installing.uninstall(agent, None)
    assert {path: path.read_bytes().decode() for path in changed} == changed


@pytest.mark.parametrize("agent", AGENTS)
def test_uninstall_after_a_file_was_written_anew(home: Path, agent: str) -> None:
    """The agent has written the whole file in another form, or the record of the install is lost."""
    for has_record in (True, False):
        before = {}
        for name in FILES[agent][1:]:
            path = home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text('theme = "dark"\n' if path.suffix == ".toml" else '{"theme": "dark", "last": 1}')
            before[path] = read(path)
        installing.install(agent, None)
        for path in before:
            if path.suffix == ".json":
                told = read(path)
                path.write_text(json.dumps({"new": [1]} | dict(reversed(told.items())), indent=1))
                before[path] = {"new": [1]} | before[path]
            else:
                path.write_text(path.read_text().replace("command =", "command  =") + "\n[projects.a]\nb = 1\n")
                before[path] = before[path] | {"projects": {"a": {"b": 1}}}
        if not has_record:
            installing.Records().path.unlink()
        installing.uninstall(agent, None)
        assert {path: read(path) for path in before} == before
        assert not (home / FILES[agent][0]).exists()


@pytest.mark.parametrize("has_record", [True, False], ids=["record", "no record"])
@pytest.mark.parametrize(("agent", "event"), [("claude-code", "Stop"), ("codex", "Stop"), ("cursor", "stop")])
def test_hooks_of_others_beside_ours_stay(home: Path, agent: str, event: str, has_record: bool) -> None:
    """In a group with ours too, and where they call pg-memoir on their own terms."""
    path = home / FILES[agent][0]
    installing.install(agent, None, user="ann")
    ours = f"pg-memoir agents hook stop --agent {agent}"
    others = [{"command": text} for text in ("say done", f"nice {ours}", f"{ours} > log", f"echo ; {ours}")]
    told = read(path)
    if agent == "cursor":
        told["hooks"][event] += others
        left: Any = {"version": 1, "hooks": {event: others}}
    else:
        told["hooks"][event][0]["hooks"][1:] = others
        told["hooks"]["Own"] = [{"hooks": []}]
        left = {"hooks": {event: [{"hooks": others}], "Own": [{"hooks": []}]}}
    path.write_text(json.dumps(told, indent=2))
    installing.install(agent, None)
    ours_now = [group.get("hooks", [group]) for group in read(path)["hooks"][event]]
    assert sum(entry not in others for group in ours_now for entry in group) == 1
    if not has_record:
        installing.Records().path.unlink()
    installing.uninstall(agent, None)
    assert read(path) == left


def test_plugin_that_was_changed_stays(home: Path) -> None:
    path = home / FILES["opencode"][0]
    installing.install("opencode", None)
    path.write_text(path.read_text() + "// mine\n")
    for run in (installing.install, installing.uninstall):
        with pytest.raises(FileError, match="was changed since"):
            run("opencode", None)
    assert path.read_text().endswith("// mine\n")
    path.unlink()
    installing.uninstall("opencode", None)


@pytest.mark.parametrize("agent", AGENTS)
def test_link_to_no_file_stays(home: Path, agent: str) -> None:
    for name in FILES[agent]:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).symlink_to(home / "dotfiles" / Path(name).name)
    installing.install(agent, None)
    assert installing.install(agent, None) and len(list((home / "dotfiles").iterdir())) == 2
    installing.uninstall(agent, None)
    assert not (home / "dotfiles").exists() and all((home / name).is_symlink() for name in FILES[agent])


@pytest.mark.parametrize("run", [installing.install, installing.uninstall])
@pytest.mark.parametrize("agent", AGENTS)
def test_failure_leaves_the_install_as_it_is(home: Path, agent: str, run: Any) -> None:
    installing.install(agent, None, user="ann")
    for damage in (b"{", b"[", b"\xff"):
        (home / FILES[agent][1]).write_bytes(damage)
        before = contents(home)
        with pytest.raises(FileError):
            run(agent, None)
        assert contents(home) == before
    # The second file can't be written: the first one gets its text back.
    path = home / FILES[agent][1]
    path.unlink()
    path.symlink_to("/proc/none/file")
    before = contents(home)
    if run is installing.install:
        with pytest.raises(OSError):
            run(agent, None, user="bob")
        assert contents(home) == before


@pytest.mark.parametrize(
    ("agent", "name", "text", "says"),
    [
        ("claude-code", ".claude/settings.json", '{"hooks": [', "line 1 is no JSON"),
        ("claude-code", ".claude/settings.json", '{"hooks": []}', "hooks is no object"),
        ("claude-code", ".claude.json", '{"mcpServers": {"pg_memoir": {"command": "x"}}}', "did not write it"),
        ("claude-code", ".claude/settings.json", '{"a": 1, "a": 2}', "repeats the key"),
        ("codex", ".codex/config.toml", "[mcp_servers.pg_memoir]\ncommand = 'x'\n", "did not write it"),
        ("codex", ".codex/config.toml", "a = ", "Invalid value"),
        ("codex", ".codex/config.toml", TOML["inline"], "config.toml"),
        ("opencode", ".config/opencode/plugins/pg_memoir.js", "mine()", "did not write it"),
        ("cursor", ".cursor/mcp.json", '{"mcpServers": 1}', "mcpServers is no object"),
    ],
)
def test_install_refuses_and_changes_nothing(home: Path, agent: str, name: str, text: str, says: str) -> None:
    (home / name).parent.mkdir(parents=True, exist_ok=True)
    (home / name).write_text(text)
    before = contents(home)
    with pytest.raises(FileError, match=says):
        installing.install(agent, None)
    assert contents(home) == before


def test_uninstall_takes_codex_trust_back(home: Path) -> None:
    config, hooks = home / ".codex/config.toml", home / ".codex/hooks.json"
    config.parent.mkdir()
    config.write_text('model = "gpt-5.1"\n')
    hooks.write_text('{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "say done"}]}]}}')
    before = contents(home / ".codex")
    installing.install("codex", None)
    keys = codex_trust.list_keys(hooks)
    assert keys == [f"{hooks}:{place}:0" for place in ("stop:1", "session_start:0", "user_prompt_submit:0")]
    trusted = "".join(f'\n[hooks.state."{key}"]\ntrusted_hash = "sha256:0"\n' for key in keys)
    config.write_text(f"{config.read_text()}\n[hooks.state]\n{trusted}")
    installing.uninstall("codex", None)
    assert contents(home / ".codex") == before


def test_installs_at_once_are_all_recorded(home: Path, tmp_path: Path) -> None:
    roots = [tmp_path / f"root{number}" for number in range(4)]
    code = "import sys, pathlib; from pg_memoir_cli.agents.installing import *; "
    for run, count in (("install", 4), ("uninstall", 0)):
        command = [sys.executable, "-c", f"{code}{run}('codex', pathlib.Path(sys.argv[1]))"]
        running = [subprocess.Popen([*command, root]) for root in roots]
        assert [process.wait() for process in running] == [0] * 4
        assert len(installing.Records().installs) == count
    assert not installing.Records().path.parent.exists()


@pytest.mark.parametrize("damage", ["{", "[]", '{"installs": {}}', '{"installs": [{"agent": "emacs"}]}'])
def test_damaged_records_are_refused(home: Path, damage: str) -> None:
    installing.install("codex", None)
    path = installing.Records().path
    told = read(path)
    told["installs"][0] |= {"colour": "red"}
    told["installs"][0]["changes"][0] |= {"colour": "red"}
    path.write_text(json.dumps(told | {"colour": "red"}))
    assert len(installing.Records().installs) == 1
    path.write_text(damage)
    before = contents(home)
    for run in (installing.install, installing.uninstall):
        with pytest.raises(FileError, match="installs.json is damaged"):
            run("codex", None)
    assert contents(home) == before | {".local/state/pg_memoir/agents/lock": b""}


@pytest.mark.parametrize("agent", AGENTS)
def test_repository_that_was_moved_is_uninstalled(home: Path, tmp_path: Path, agent: str) -> None:
    for name in ("there", "here", "deleted"):
        (tmp_path / name / "src").mkdir(parents=True)
    before = contents(tmp_path / "there")
    installing.install(agent, tmp_path / "deleted")
    installing.install(agent, tmp_path / "there")
    (tmp_path / "deleted").rename(tmp_path / "x")
    (tmp_path / "here" / "src").rmdir()
    (tmp_path / "there").rename(tmp_path / "here")
    (record,) = [one for one in installing.Records().installs if one.root.endswith("there")]
    assert describe(record, []).state == "gone"
    assert len(installing.uninstall(agent, tmp_path / "here")) == 2
    assert contents(tmp_path / "here") == before and not installing.Records().installs


def test_opencode_uses_the_file_with_comments(home: Path) -> None:
    path = home / ".config/opencode/opencode.jsonc"
    path.parent.mkdir(parents=True)
    path.write_text("{\n  // mine\n}\n")
    assert installing.install("opencode", None)[1] == path
    installing.uninstall("opencode", None)
    assert path.read_text() == "{\n  // mine\n}\n" and not path.with_suffix(".json").exists()


def test_status_reads_the_log_of_hooks(home: Path) -> None:
    installing.install("codex", None)
    record = installing.Records().installs[0]
    assert describe(record, read_log()).state == "unused"
    log = installing.Records().path.with_name("log.jsonl")
    line = {"at": "2027-01-01T00:00:00+0000", "agent": "codex", "event": "prompt", "ms": 300, "note": "nothing fits"}
    log.write_text(json.dumps(line) + "\nno JSON\n")
    told = describe(record, read_log())
    assert (told.state, told.median_ms, told.note) == ("ok", 300, "")
    log.write_text(json.dumps(line | {"note": "failed: OperationalError: refused"}))
    assert describe(record, read_log()).note == "prompt: OperationalError: refused"
    (home / ".codex/hooks.json").unlink()
    told = describe(record, read_log())
    assert told.state == "broken" and "hooks.json" in told.note


@pytest.mark.parametrize(
    ("remote", "name"),
    [
        ("git@github.com:Acme/App.git", "github.com/Acme/App"),
        ("https://ann:token@GitHub.com/Acme/App/", "github.com/Acme/App"),
        ("ssh://git@github.com:22/Acme/App.git", "github.com/Acme/App"),
        ("git@[::1]:app.git", "[::1]/app"),
        ("/srv/git/app.git", "/srv/git/app"),
        ("file:///srv/git/app.git", "/srv/git/app"),
        ("http://localhost:3000/me/app", "localhost:3000/me/app"),
        ("http://localhost:80/me/app", "localhost/me/app"),
        ("https://git:8443/my#app;1.git", "git:8443/my#app;1"),
        ("ssh://git@[::1]:2222/app.git", "[::1]:2222/app"),
        ("https://[bad/x", "[bad/x"),
        ("https://me:s3cret@h:none/x", "h:none/x"),
    ],
)
def test_normalise_remote(remote: str, name: str) -> None:
    assert repository.normalise_remote(remote) == name


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ('[remote "origin"]\n\turl = "/srv/my repos/a.git"', "/srv/my repos/a"),
        ('[remote "origin"]\n\turl = /srv/my repos/a.git  # mine', "/srv/my repos/a"),
        ('[remote "origin"]\n\turl = "/srv/a;b#c.git" ; mine', "/srv/a;b#c"),
        ('[remote "origin"]\n\turl = /srv/a\\"b\\\\c\\\nd', '/srv/a"b\\cd'),
        ('[remote "a\\"b"] url = h:x.git', "h/x"),
        ("[remote.origin]\r\n\tURL = h:x.git\r\n", "h/x"),
    ],
)
def test_remote_is_read_as_git_reads_it(tmp_path: Path, config: str, name: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/HEAD").touch()
    (tmp_path / ".git/config").write_text(config, newline="")
    assert repository.find_repository(tmp_path) == name
    told = output_of(["git", "config", "--file", tmp_path / ".git/config", "--get-regexp", r"remote\..*\.url"])
    assert repository.normalise_remote(told.partition(" ")[2].removesuffix("\n")) == name


def test_find_repository(tmp_path: Path) -> None:
    """The remote of its name "origin", else the main working tree, else the folder; working trees are one."""
    git = tmp_path / "app" / ".git"
    (git / "worktrees" / "fix").mkdir(parents=True)
    (git / "HEAD").touch()
    (tmp_path / "app" / "src").mkdir()
    (git / "worktrees" / "fix" / "commondir").write_text("../..\n")
    (tmp_path / "fix").mkdir()
    (tmp_path / "fix" / ".git").write_text(f"gitdir: {git}/worktrees/fix\n")
    for folder in ("app", "app/src", "fix"):
        assert repository.find_repository(tmp_path / folder) == str(tmp_path / "app")
    (git / "config").write_text(
        '[core]\n\turl = no\n[remote "fork"]\n\turl = git@h:b/a.git\n[remote "origin"]\n\turl = https://h/a/a # x\n'
    )
    assert repository.find_repository(tmp_path / "fix") == "h/a/a"
    assert repository.find_repository(tmp_path) == str(tmp_path)
    long = tmp_path / ("x" * 200) / ("y" * 250)
    long.mkdir(parents=True)
    assert len(repository.memory_user("ann", long)) <= 405 and repository.memory_user("ann", long) != (
        repository.memory_user("ann", long.parent)
    )


def test_place_quotes_the_command() -> None:
    place = Place(None, "/opt/my tools/pg-memoir", ("--user", "ann o'neill"))
    assert place.shell("stop", "codex").startswith("'/opt/my tools/pg-memoir' agents hook stop --agent codex --user ")
