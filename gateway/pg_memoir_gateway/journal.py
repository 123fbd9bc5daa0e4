"""Exchanges that are not stored yet, in files of this machine: a gateway that is killed loses none that it answered.

Each process has a folder of its own, locked while it lives. One that starts takes over what folders of ended
processes hold. An exchange is two files: NAME.request is written while the provider answers, NAME.answer before the
client gets the end of the answer. Both are removed once the exchange is stored. They hold no credentials.

A file is a line of JSON (its members, and `parts`: lengths in bytes) and then the parts.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import json
import os
import re
import shutil
import time
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from .config import Config, Mode
from .dialect import Answer
from .exchange import Exchange, Headers, select_harmless
from .gateway import log

MOST_BYTES = 1 << 30  # what the files of a process may take. Beyond it exchanges are kept in memory alone.
LOCK = "lock"


class Journal:
    """Of one process. All its methods but `add_entry` wait for the disk: call them in a thread."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.size = 0
        self._folder: Path | None = None
        self._lock: IO[bytes] | None = None
        self._numbers = itertools.count(1)

    def open(self) -> list[Entry]:
        """Makes this process's folder. Returns the entries of ended processes, the oldest first. Where no folder can
        be made, nothing is kept, and the log says so."""
        if self.config.journal == "off":
            return []
        try:
            root = _find_root(self.config)
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder = root / uuid4().hex
            folder.mkdir(mode=0o700)
            self._lock = _lock_folder(folder)
            self._folder = folder
            return self._take_over(root)
        except OSError as error:
            log.warning("no journal, exchanges that are not stored yet are lost if this process is killed: %s", error)
            return []

    def _take_over(self, root: Path) -> list[Entry]:
        """Moves the files of ended processes here."""
        assert self._folder
        names = []
        for other in sorted(root.iterdir(), key=lambda path: path.stat().st_mtime):
            if other == self._folder or not (lock := _lock_folder(other)):
                continue
            for file in sorted(other.iterdir()):
                if file.suffix in (".request", ".answer"):
                    file.rename(self._folder / file.name)
                    self.size += (self._folder / file.name).stat().st_size
                    names.append(file.stem)
            shutil.rmtree(other, ignore_errors=True)
            lock.close()
        return [Entry(self, self._folder / name) for name in sorted(set(names))]

    def add_entry(self) -> Entry | None:
        """Returns a new entry, None where there is no room."""
        if self._folder is None or self.size > MOST_BYTES:
            return None
        return Entry(self, self._folder / f"{time.time_ns():020d}-{next(self._numbers)}")

    def close(self) -> None:
        """Lets the folder go; what it holds is for the next process."""
        if self._folder and self._lock:
            if not any(file.name != LOCK for file in self._folder.iterdir()):
                shutil.rmtree(self._folder, ignore_errors=True)
            self._lock.close()
            self._folder = None


MEMBERS = ("method", "path", "began", "status", "changes", "rewritten")
ROUND = ("began", "status", "complete")


class Entry:
    """One exchange."""

    def __init__(self, journal: Journal, path: Path) -> None:
        self._journal = journal
        self._path = path
        self._size = 0

    def write_request(self, exchange: Exchange, user: str, mode: Mode) -> None:
        """Writes what was asked, and by whom."""
        session = self._journal.config.session_header.lower().encode()
        own = [(k, v) for k, v in exchange.headers if session and k.lower() == session]
        headers = _decode([*select_harmless(exchange.headers), *own])
        told = {"user": user, "mode": mode, "headers": headers} | {name: getattr(exchange, name) for name in MEMBERS}
        parts = [exchange.body] if exchange.sent == exchange.body else [exchange.body, exchange.sent]
        self._write(".request", told, parts)

    def write_answer(self, exchange: Exchange) -> None:
        """Writes what was answered, and waits until the disk has both files."""
        calls = (*exchange.earlier, exchange)
        rounds = [
            {name: getattr(one, name) for name in ROUND}
            | {"headers": _decode(select_harmless(one.answer_headers)), "times": [at for at, _ in one.chunks]}
            for one in calls
        ]
        told = {"rounds": rounds, "told": asdict(exchange.told) if exchange.told else None}
        self._write(".answer", told, [part for one in calls for part in (one.sent, *(c for _, c in one.chunks))])
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def read(self) -> tuple[Exchange, str, Mode]:
        """Returns the exchange, its user and mode. Raises OSError and ValueError."""
        told, parts = _read(self._path.with_suffix(".request"))
        given = {name: told[name] for name in MEMBERS} | {"headers": _encode(told["headers"])}
        exchange = Exchange(target=told["path"].encode(), body=parts[0], sent=parts[-1], **given)
        try:
            answer, parts = _read(self._path.with_suffix(".answer"))
        except FileNotFoundError:  # the process ended before the answer did
            return exchange, told["user"], told["mode"]
        for number, one in enumerate(answer["rounds"], 1):
            is_last = number == len(answer["rounds"])
            now = exchange if is_last else replace(exchange, earlier=[], _events=[])
            now.began, now.status, now.complete = (one[name] for name in ROUND)
            now.answer_headers = _encode(one["headers"])
            now.sent, chunks, parts = parts[0], parts[1 : 1 + len(one["times"])], parts[1 + len(one["times"]) :]
            now.chunks = list(zip(one["times"], chunks))
            exchange.earlier += [] if is_last else [now]
        exchange.told = Answer(**answer["told"]) if answer["told"] else None
        return exchange, told["user"], told["mode"]

    def remove(self) -> None:
        """Removes an exchange that is stored, or that is not wanted."""
        for suffix in (".request", ".answer"):
            self._path.with_suffix(suffix).unlink(missing_ok=True)
        self._journal.size -= self._size
        self._size = 0

    def _write(self, suffix: str, told: dict[str, Any], parts: list[bytes]) -> None:
        """Writes a file whole or not at all."""
        whole = [json.dumps(told | {"parts": [len(part) for part in parts]}).encode() + b"\n", *parts]
        new = self._path.with_suffix(suffix + ".new")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.writelines(whole)
            file.flush()
            os.fsync(file.fileno())
        new.rename(self._path.with_suffix(suffix))
        self._size += sum(map(len, whole))
        self._journal.size += sum(map(len, whole))


def _find_root(config: Config) -> Path:
    """The folder of all processes that store in this database."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    base = Path(config.journal) if config.journal else Path(state) / "pg_memoir" / "gateway"
    shown = re.sub(r"(password=)\S+|(://[^:/@\s]*:)[^@\s]+(?=@)", r"\1\2", config.dsn)
    return base / hashlib.sha256(shown.encode()).hexdigest()[:16]


def _lock_folder(folder: Path) -> IO[bytes] | None:
    """The lock of a folder, None while another process has it."""
    try:
        file = (folder / LOCK).open("ab")
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return file
    except OSError:
        file.close()
        return None


def _read(file: Path) -> tuple[dict[str, Any], list[bytes]]:
    raw = file.read_bytes()
    end = raw.index(b"\n") + 1
    told = json.loads(raw[:end])
    parts, at = [], end
    for length in told["parts"]:
        parts.append(raw[at : at + length])
        at += length
    return told, parts


def _decode(headers: Headers) -> list[list[str]]:
    return [[key.decode("latin-1"), value.decode("latin-1")] for key, value in headers]


def _encode(headers: Iterable[list[str]]) -> Headers:
    return [(key.encode("latin-1"), value.encode("latin-1")) for key, value in headers]
