"""Installs the hooks and the MCP server of an agent, keeps a record of what was written, and takes it back."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import asdict, dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..places import agents_folder
from . import codex_trust
from .clients import AGENTS, Place
from .files import (
    Change,
    ConfigFile,
    Draft,
    add,
    is_present,
    list_missing_folders,
    remove_folders,
    take_back,
    write_file,
)


@dataclass
class Install:
    """One agent in one place; `root` is the repository, "" for the whole machine."""

    agent: str
    root: str = ""
    command: str = ""
    options: list[str] = field(default_factory=list)
    has_server: bool = True
    changes: list[Change] = field(default_factory=list)

    @property
    def place(self) -> Place:
        return Place(Path(self.root) if self.root else None, self.command, tuple(self.options), self.has_server)


class Records:
    """The installs on this machine, and the database they use: one file that only its owner reads."""

    def __init__(self) -> None:
        self.path = agents_folder() / "installs.json"
        try:
            told: dict[str, Any] = json.loads(self.path.read_text("utf-8"))
        except (OSError, ValueError):
            told = {}
        self.dsn = str(told.get("dsn") or "")
        self.folders = told.get("folders") or list_missing_folders(self.path)
        self.installs = [_read_install(one) for one in told.get("installs", [])]

    def find(self, agent: str, root: str) -> Install | None:
        return next((one for one in self.installs if (one.agent, one.root) == (agent, root)), None)

    def save(self) -> None:
        """Writes the file; after the last uninstall the folder is deleted."""
        if not self.installs:
            shutil.rmtree(self.path.parent, ignore_errors=True)
            remove_folders(self.folders[1:])
            return
        told = {"dsn": self.dsn, "folders": self.folders, "installs": [asdict(one) for one in self.installs]}
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_file(self.path, json.dumps(told, indent=2) + "\n")


def _read_install(told: dict[str, Any]) -> Install:
    return Install(**told | {"changes": [Change(**change) for change in told.get("changes", [])]})


def find_command(is_shared: bool) -> str:
    """How agents call pg-memoir: by its path, because they may run without the environment that has it; in files of a
    repository, which others read too, by its name."""
    if is_shared:
        return "pg-memoir"
    beside = Path(sys.executable).parent / "pg-memoir"
    return str(beside) if beside.exists() else shutil.which("pg-memoir") or "pg-memoir"


def install(agent: str, root: Path | None, *, user: str = "", dsn: str = "") -> list[Path]:
    """Installs an agent's hooks, or installs them anew; returns its files. Raises FileError and OSError, after which the
    files are as before."""
    records = Records()
    draft = Draft()
    before = _take_record(agent, root, records)
    _plan_removal(before, draft)
    has_server = find_spec("pg_memoir_gateway") is not None
    made = Install(agent, str(root or ""), find_command(root is not None), ["--user", user] if user else [], has_server)
    files = AGENTS[agent](made.place)
    made.changes = [add(file, draft) for file in files]
    for change in made.changes:  # folders that the install before made are there already
        parents = Path(os.path.realpath(change.path)).parents
        change.folders += [folder for folder in _list_folders(before) if Path(folder) in parents]
    draft.write()
    for change in made.changes:
        if root and change.is_new:  # others read it too
            Path(change.path).chmod(0o644)
    remove_folders(_list_folders(before))
    records.installs.append(made)
    records.dsn = dsn or records.dsn
    records.save()
    return [file.path for file in files]


def uninstall(agent: str, root: Path | None) -> list[Path]:
    """Takes an install back; returns the files that had something. Raises FileError and OSError, after which the files
    are as before."""
    records = Records()
    draft = Draft()
    before = _take_record(agent, root, records)
    found = _plan_removal(before, draft)
    if agent == "codex":
        hooks = before[0][0].path
        config = hooks.with_name("config.toml")
        draft.put(config, codex_trust.forget(draft.read(config), codex_trust.list_keys(hooks)))
    draft.write()
    remove_folders(_list_folders(before))
    records.save()
    return found


Before = list[tuple[ConfigFile, Change | None]]


def _take_record(agent: str, root: Path | None, records: Records) -> Before:
    """Removes the record of an install; returns its files, each with what was changed. Without a record, where such
    files would be."""
    record = records.find(agent, str(root or ""))
    if not record:
        return [(file, None) for file in AGENTS[agent](Place(root, find_command(root is not None)))]
    records.installs.remove(record)
    files = AGENTS[agent](record.place)
    return [(replace(file, path=Path(change.path)), change) for file, change in zip(files, record.changes)]


def _plan_removal(before: Before, draft: Draft) -> list[Path]:
    return [file.path for file, change in before if take_back(file, change, draft)]


def _list_folders(before: Before) -> list[str]:
    """The folders that were made for the files of an install."""
    return list(dict.fromkeys(folder for _, change in before if change for folder in change.folders))


def list_missing(record: Install) -> list[Path]:
    """The files of an install that lack something of it."""
    return [file.path for file in AGENTS[record.agent](record.place) if not is_present(file)]
