"""Which memory a folder belongs to: one for each repository of a person, whatever agent works in it."""

from __future__ import annotations

import getpass
import hashlib
import os
import re
from pathlib import Path
from urllib.parse import urlsplit

_LONGEST = 400  # characters of a repository's name: users of the database have at most 500
_REMOTE = re.compile(r'^\s*\[\s*remote\s+"(?P<name>[^"]*)"\s*\]', re.I)
_SECTION = re.compile(r"^\s*\[")
_URL = re.compile(r"^\s*url\s*=\s*\"?(?P<url>[^\"\s#;]+)", re.I)
_SCP = re.compile(r"^(?:[\w.+-]+@)?(?P<host>[\w.-]+|\[[0-9a-fA-F:]+\]):(?!//)(?P<path>.+)$")


def person_name(given: str = "") -> str:
    """Whose memory it is: the name that was given at the install, else the login of this machine."""
    return given or os.environ.get("PG_MEMOIR_USER") or getpass.getuser()


def memory_user(person: str, folder: str | Path) -> str:
    """The user of the database that has the memory of a folder's repository."""
    name = find_repository(folder)
    if len(name) > _LONGEST:
        name = name[: _LONGEST - 17] + "#" + hashlib.sha256(name.encode()).hexdigest()[:16]
    return f"{person}:{name}"


def find_repository(folder: str | Path) -> str:
    """The repository that a folder lies in: its remote without the way there ("github.com/acme/app"), else the path of
    its main working tree, else the folder itself. Clones and working trees of one repository are one."""
    folder = Path(os.path.realpath(folder))
    for place in (folder, *folder.parents):
        if common := _common_folder(place / ".git"):
            if remote := _read_remote(common / "config"):
                return normalise_remote(remote, common)
            return str(common.parent if common.name == ".git" else common)
    return str(folder)


def _common_folder(git: Path) -> Path | None:
    """The folder that all working trees of a repository share. In one beside the main one, .git is a file."""
    try:
        if git.is_dir():
            return git if (git / "HEAD").exists() else None
        told = git.read_text("utf-8").strip()
        if not told.startswith("gitdir:"):
            return None
        own = Path(os.path.realpath(git.parent / told.removeprefix("gitdir:").strip()))
        shared = own / "commondir"
        return Path(os.path.realpath(own / shared.read_text("utf-8").strip())) if shared.exists() else own
    except (OSError, UnicodeDecodeError):
        return None


def _read_remote(config: Path) -> str:
    """The address of the remote origin, else of the first remote, "" without one."""
    try:
        lines = config.read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    remotes: dict[str, str] = {}
    name = None
    for line in lines:
        if _SECTION.match(line):
            section = _REMOTE.match(line)
            name = section["name"] if section else None
        elif name is not None and (found := _URL.match(line)):
            remotes.setdefault(name, found["url"])
    return remotes.get("origin") or next(iter(remotes.values()), "")


def normalise_remote(remote: str, common: Path | None = None) -> str:
    """A remote without scheme, login, port and suffix: all ways to one repository have one name."""
    host = path = ""
    if "://" in remote:
        parts = urlsplit(remote)
        host, path = (parts.hostname or "").lower(), parts.path
    elif scp := _SCP.match(remote):
        host, path = scp["host"].lower(), scp["path"]
    else:
        path = os.path.realpath(common.parent / remote if common else remote)
    path = path.rstrip("/").removesuffix(".git").rstrip("/")
    return f"{host}/{path.lstrip('/')}" if host else path
