"""Installs the hooks and the MCP server of an agent, keeps a record of what was written, and takes it back."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
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
    FileError,
    add,
    is_present,
    list_missing_folders,
    read_text,
    remove_folders,
    take_back,
    write_file,
)
from .locking import hold_lock


@dataclass
class Install:
    """One agent in one place; `root` is the repository, "" for the whole machine. `user`: whose memory it is, where the
    files are shared with others."""

    agent: str
    root: str = ""
    command: str = ""
    options: list[str] = field(default_factory=list)
    user: str = ""
    has_server: bool = True
    changes: list[Change] = field(default_factory=list)

    @property
    def place(self) -> Place:
        return Place(Path(self.root) if self.root else None, self.command, tuple(self.options), self.has_server)

    @property
    def is_gone(self) -> bool:
        """Was its repository moved or deleted?"""
        return bool(self.root) and not Path(self.root).is_dir()


class Records:
    """The installs on this machine, and the database they use: one file that only its owner reads. Raises FileError
    where it is damaged."""

    def __init__(self) -> None:
        self.path = agents_folder() / "installs.json"
        text = read_text(self.path)
        try:
            told: dict[str, Any] = json.loads(text or '{"installs": []}')
            if not isinstance(told["installs"], list):
                raise TypeError
            self.installs = [_read_install(one) for one in told["installs"]]
        except (ValueError, TypeError, KeyError, AttributeError):
            raise FileError(f"{self.path} is damaged. Delete it, and install or uninstall each agent again.") from None
        self.dsn = str(told.get("dsn") or "")
        self.folders = told.get("folders") or list_missing_folders(self.path)

    def find(self, agent: str, root: str) -> Install | None:
        """The install of an agent; that of a repository also after it was moved to `root`."""
        found = next((one for one in self.installs if (one.agent, one.root) == (agent, root)), None)
        moved = (_move(one, root) for one in self.installs if root and one.agent == agent and one.is_gone)
        return found or next((one for one in moved if not list_missing(one)), None)

    def remove(self, record: Install) -> None:
        """Removes an install; with one in a repository also those of its agent in repositories that are gone."""

        def is_over(one: Install) -> bool:
            return one.agent == record.agent and (one.root == record.root or bool(record.root) and one.is_gone)

        self.installs = [one for one in self.installs if not is_over(one)]

    def save(self) -> None:
        """Writes the file, and deletes it after the last uninstall."""
        if not self.installs:
            self.path.unlink(missing_ok=True)
            return
        told = {"dsn": self.dsn, "folders": self.folders, "installs": [asdict(one) for one in self.installs]}
        write_file(self.path, json.dumps(told, indent=2) + "\n")


@contextmanager
def change_records() -> Iterator[Records]:
    """Reads the records while no other install or hook changes them. After the last uninstall their folder is
    deleted."""
    folder = agents_folder()
    missing = list_missing_folders(folder / "installs.json")
    with hold_lock(folder / "lock"):
        try:
            records = Records()
            missing = records.folders = records.folders or missing
            yield records
        finally:
            if not (folder / "installs.json").exists():
                shutil.rmtree(folder, ignore_errors=True)
                remove_folders(missing[1:])


def _read_install(told: dict[str, Any]) -> Install:
    """Members that another version wrote are left out."""
    if told["agent"] not in AGENTS:
        raise ValueError
    changes = [Change(**_pick(Change, change)) for change in told.get("changes", [])]
    return Install(**_pick(Install, told) | {"changes": changes})


def _pick(kind: type, told: dict[str, Any]) -> dict[str, Any]:
    return {one.name: told[one.name] for one in fields(kind) if one.name in told}


def _move(record: Install, root: str) -> Install:
    """The install as it is after its repository was moved."""

    def move(path: str) -> str:
        return str(Path(root) / Path(path).relative_to(record.root)) if Path(path).is_relative_to(record.root) else path

    changes = [replace(one, path=move(one.path), folders=[*map(move, one.folders)]) for one in record.changes]
    return replace(record, root=root, changes=changes)


def find_command(is_shared: bool) -> str:
    """How agents call pg-memoir: by its path, because they may run without the environment that has it; in files of a
    repository, which others read too, by its name."""
    if is_shared:
        return "pg-memoir"
    beside = Path(sys.executable).parent / "pg-memoir"
    return str(beside) if beside.exists() else shutil.which("pg-memoir") or "pg-memoir"


def install(agent: str, root: Path | None, *, user: str = "", dsn: str = "") -> list[Path]:
    """Installs an agent's hooks, or installs them anew; returns its files. Raises FileError and OSError, after which
    the files are as before."""
    with change_records() as records:
        return _install(records, agent, root, user, dsn)


def _install(records: Records, agent: str, root: Path | None, user: str, dsn: str) -> list[Path]:
    draft = Draft()
    before = _take_record(agent, root, records)
    _plan_removal(before, draft)
    has_server = find_spec("pg_memoir_gateway") is not None
    made = Install(agent, str(root or ""), find_command(root is not None), has_server=has_server)
    if root:  # its files are shared with others
        made.user = user
    elif user:
        made.options = ["--user", user]
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
    with change_records() as records:
        return _uninstall(records, agent, root)


def _uninstall(records: Records, agent: str, root: Path | None) -> list[Path]:
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
    records.remove(record or Install(agent, str(root or "")))
    if not record:
        return [(file, None) for file in AGENTS[agent](Place(root, find_command(root is not None)))]
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
