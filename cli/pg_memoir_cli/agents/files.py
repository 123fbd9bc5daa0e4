"""Adds to the files of an agent, and takes that back. Every byte that somebody else wrote stays."""

from __future__ import annotations

import json
import os
import tempfile
import tomllib
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import json_text
from .entries import find_last, find_value

Keys = tuple[str, ...]


class FileError(ValueError):
    """A file can't be edited; the message names it."""


@dataclass(frozen=True)
class ConfigFile:
    """A file of an agent. `additions`: what is put into it, by keys; a path that ends with "-" adds to a list.
    `content`: instead, the whole text of a file of ours. `base`: what a new file begins with."""

    path: Path
    additions: tuple[tuple[Keys, Any], ...] = ()
    content: str = ""
    base: str = "{}\n"

    @property
    def is_toml(self) -> bool:
        return self.path.suffix == ".toml"


@dataclass
class Change:
    """A change that was made to a file, kept to take it back. `pieces`: texts that were put in, in that order. `made`:
    objects and lists that were missing. `folders`: those that were made for the file. `blank`: what the file held if
    that was white space alone."""

    path: str
    is_new: bool = False
    pieces: list[str] = field(default_factory=list)
    made: list[list[str]] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    blank: str | None = None


class Draft:
    """Edits of files, planned on their texts and then written together: all of them, or none."""

    def __init__(self) -> None:
        self._before: dict[Path, str | None] = {}
        self._texts: dict[Path, str | None] = {}

    def read(self, path: Path) -> str | None:
        """Returns the text as it is planned, None where there is no file."""
        if path not in self._texts:
            self._before[path] = self._texts[path] = read_text(path)
        return self._texts[path]

    def put(self, path: Path, text: str | None) -> bool:
        """Plans a text, None to delete the file. Returns whether that changes anything."""
        before = self.read(path)
        self._texts[path] = text
        return text != before

    def write(self) -> None:
        """Writes what has changed. Where one file can't be written, those before it get their texts back."""
        changed = [path for path, text in self._texts.items() if text != self._before[path]]
        folders = [folder for path in changed for folder in list_missing_folders(path)]
        done = []
        try:
            for path in sorted(changed, key=lambda path: self._texts[path] is None):
                done.append(path)
                _replace(path, self._texts[path])
        except OSError:
            for path in done:
                with suppress(OSError):
                    _replace(path, self._before[path])
            remove_folders(folders)
            raise


def is_present(file: ConfigFile) -> bool:
    """Does the file hold all that is added to it?"""
    try:
        text = read_text(file.path)
        data = None if text is None or file.content else _load(file, text)
    except FileError:
        return False
    if data is None:
        return text == file.content
    return all(find_last(data, keys, value) for keys, value in file.additions)


def add(file: ConfigFile, draft: Draft) -> Change:
    """Plans the additions. Raises FileError where the file can't be read, or has a server of that name already."""
    text = draft.read(file.path)
    change = Change(str(file.path), text is None, folders=list_missing_folders(file.path))
    if file.content:
        if text is not None:
            raise FileError(f"{file.path} exists, and pg-memoir did not write it. Move it away.")
        change.pieces = [file.content]
        draft.put(file.path, file.content)
        return change
    if text is None or (not text.strip() and not file.is_toml):
        change.blank = text
        text = "" if file.is_toml else file.base
    for keys, value in file.additions:
        data = _load(file, text)
        if keys[-1] != "-" and find_value(data, keys) is not None and not find_last(data, keys, value):
            raise FileError(f"{file.path} has {'.'.join(keys)} already, and pg-memoir did not write it. Rename it.")
        change.made += [list(made) for made in _list_missing(data, keys) if list(made) not in change.made]
        try:
            text, piece = _append_table(text, keys, value) if file.is_toml else json_text.insert(text, keys, value)
        except json_text.JsonError as error:
            raise FileError(f"{file.path}: {error}") from None
        change.pieces.append(piece)
        made = [*map(tuple, change.made)]
        if _without(_load(file, text), file, made) != _without(data, file, made):
            raise FileError(f"{file.path}: {'.'.join(keys)} can't be added without a change to the rest")
    draft.put(file.path, text)
    return change


def take_back(file: ConfigFile, change: Change | None, draft: Draft) -> bool:
    """Plans to remove the additions; without a record of them, whatever looks like ours. A file that the install made
    is deleted once nothing of others is in it. Returns whether there was anything."""
    text = draft.read(file.path)
    if text is None:
        return False
    if file.content:
        return _take_whole_back(file, change, draft, text)
    made = [list(keys[:length]) for keys, _ in file.additions for length in range(1, len(keys))]
    known = change or Change(str(file.path), is_new=True, made=made)
    data = _load(file, text)
    if _without(data, file, []) == data:
        return False
    wanted = _without(data, file, [*map(tuple, known.made)])
    left = _cut_pieces(text, known.pieces)
    if left is None or _try_load(file, left) != wanted:
        left = _cut_toml(text, file, known) if file.is_toml else _cut_json(text, file, known)
    is_as_made = not left.strip() if file.is_toml else wanted == json.loads(file.base)
    if known.is_new and is_as_made:
        return draft.put(file.path, None)
    return draft.put(file.path, left if known.blank is None or not is_as_made else known.blank)


def _take_whole_back(file: ConfigFile, change: Change | None, draft: Draft, text: str) -> bool:
    if text in (change.pieces if change else []) or _cut_command(text) == _cut_command(file.content):
        return draft.put(file.path, None)
    if change:
        raise FileError(f"{file.path} was changed since pg-memoir wrote it. Move it away.")
    return False


def _cut_command(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("const command = ")]


def _cut_pieces(text: str, pieces: list[str]) -> str | None:
    """The text without the pieces, None where one of them is not there exactly once."""
    for piece in reversed(pieces):
        if text.count(piece) != 1:
            return None
        text = text.replace(piece, "")
    return text if pieces else None


def _cut_json(text: str, file: ConfigFile, change: Change) -> str:
    for keys, value in file.additions:
        while path := find_last(json_text.parse(text).value, keys, value):
            text = json_text.remove(text, path)
    for made in sorted(change.made, key=len, reverse=True):
        node = json_text.parse(text).find(tuple(made))
        if node is not None and not node.value and isinstance(node.value, (dict, list)):
            text = json_text.remove(text, tuple(made))
    return text


def _cut_toml(text: str, file: ConfigFile, change: Change) -> str:
    import tomlkit

    document = tomlkit.parse(text)
    for keys, value in file.additions:
        if find_last(document, keys, value):
            del find_value(document, keys[:-1])[keys[-1]]
    for made in sorted(change.made, key=len, reverse=True):
        *before, last = made
        holder: Any = document
        for key in before:
            holder = holder.get(key, {})
        if last in holder and not holder[last]:
            del holder[last]
    return tomlkit.dumps(document)


def _append_table(text: str, keys: Keys, value: dict[str, Any]) -> tuple[str, str]:
    """A table at the end of a TOML file."""
    import tomlkit

    line = "\r\n" if "\r\n" in text else "\n"
    table = tomlkit.table()
    for key, one in value.items():
        inner = tomlkit.inline_table()
        table.add(key, inner.update(one) or inner if isinstance(one, dict) else one)
    body = tomlkit.dumps(table).replace("\n", line)
    before = line if text and not text.endswith("\n") else ""
    piece = f"{before}{line if text else ''}[{'.'.join(keys)}]{line}{body}"
    return text + piece, piece


def _without(data: Any, file: ConfigFile, made: list[Keys]) -> Any:
    """The data without what is ours, and without those containers that were made for it and are empty."""
    data = deepcopy(data)
    for keys, value in file.additions:
        while path := find_last(data, keys, value):
            del find_value(data, path[:-1])[path[-1]]
    for keys in sorted(made, key=len, reverse=True):
        holder = find_value(data, keys[:-1])
        if isinstance(holder, dict) and keys[-1] in holder and not holder[keys[-1]]:
            del holder[keys[-1]]
    return data


def _list_missing(data: Any, keys: Keys) -> list[Keys]:
    """The containers on the way to an addition that are not there yet."""
    ways = [keys[:length] for length in range(1, len(keys))]
    return [way for way in ways if find_value(data, way) is None]


def _load(file: ConfigFile, text: str) -> Any:
    try:
        return tomllib.loads(text) if file.is_toml else json_text.parse(text).value if text.strip() else {}
    except ValueError as error:
        raise FileError(f"{file.path}: {error}") from None


def _try_load(file: ConfigFile, text: str) -> Any:
    try:
        return _load(file, text)
    except FileError:
        return None


def read_text(path: Path) -> str | None:
    """Returns the text of a file, None where there is none. Raises FileError where it is not UTF-8."""
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise FileError(f"{path} is not UTF-8") from None


def _replace(path: Path, text: str | None) -> None:
    if text is None:
        Path(os.path.realpath(path)).unlink(missing_ok=True)  # a link to it stays
    else:
        write_file(path, text)


def write_file(path: Path, text: str) -> None:
    """Replaces a file in one step. A link stays a link, and the file keeps its mode."""
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(number, "wb") as file:
            file.write(text.encode("utf-8"))
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def list_missing_folders(path: Path) -> list[str]:
    """The folders to make before a file can be written, innermost first."""
    return [str(folder) for folder in Path(os.path.realpath(path)).parents if not folder.exists()]


def remove_folders(folders: list[str]) -> None:
    """Removes those of the folders that are empty, innermost first."""
    for folder in sorted(folders, key=len, reverse=True):
        with suppress(OSError):
            Path(folder).rmdir()
