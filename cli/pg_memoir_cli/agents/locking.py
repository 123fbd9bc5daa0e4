"""A lock between processes, for the files that installs and hooks keep on this machine."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Keeps others out who hold the lock at `path`. Makes its folder. Processes started inside do not inherit it."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            number = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError:  # the last uninstall deleted the folder just now
            continue
        with os.fdopen(number) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if _is_at(file.fileno(), path):
                yield
                return


def _is_at(number: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(number), path.stat())
    except FileNotFoundError:
        return False
