"""Private directories: made by us with mode 0700, refused when others could have tampered with them. Stdlib only."""

from __future__ import annotations

import os
import stat


class NotPrivate(PermissionError):
    """A directory that another user owns or can write to."""


def private_dir(path: str | os.PathLike[str], create: bool = True) -> None:
    """Makes sure `path` is a directory of ours that nobody else can write to; creates it with mode 0700.

    Raises NotPrivate for one that is a link, someone else's, or writable by group or others.
    """
    path = os.fspath(path)
    if create:
        os.makedirs(os.path.dirname(path) or ".", mode=0o755, exist_ok=True)
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            pass
    info = os.lstat(path)
    if not stat.S_ISDIR(info.st_mode):
        raise NotPrivate(f"{path} is not a directory")
    if info.st_uid != os.geteuid():
        raise NotPrivate(f"{path} belongs to uid {info.st_uid}, not to {os.geteuid()}")
    if info.st_mode & 0o022:
        raise NotPrivate(f"{path} can be written by others (mode {stat.S_IMODE(info.st_mode):04o})")
