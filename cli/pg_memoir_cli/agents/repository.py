"""Which memory a folder belongs to: one for each repository of a person, whatever agent works in it."""

from __future__ import annotations

import getpass
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_LONGEST = 400  # characters of a repository's name: users of the database have at most 500
_SECTION = re.compile(r'\s*\[\s*(?P<kind>[-.\w]+)(?:\s+"(?P<name>(?:[^"\\]|\\.)*)")?\s*\]')
_URL = re.compile(r"\s*url\s*=\s*(?P<value>.*)", re.I)
_PART = re.compile(r'"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<escaped>\\.)|(?P<comment>[#;])|(?P<plain>[^"\\#;]+)')
_ADDRESS = re.compile(
    r"(?P<scheme>[a-z][\w+.-]*)://(?:[^/]*@)?(?P<host>\[[^/\]]*\]|[^/:]*)(?::(?P<port>\d*))?(?P<path>/.*)?", re.I
)
_PORTS = {"http": "80", "https": "443", "ssh": "22", "git+ssh": "22", "ssh+git": "22", "git": "9418"}
_SCP = re.compile(r"^(?:[\w.+-]+@)?(?P<host>[\w.-]+|\[[0-9a-fA-F:]+\]):(?!//)(?P<path>.+)$")


def person_name(given: str = "") -> str:
    """Whose memory it is: the name that was given at the install, else the login of this machine."""
    return given or os.environ.get("PG_MEMOIR_USER") or getpass.getuser()


def recorded_person(installs: Sequence[Mapping[str, Any]], folder: str | Path) -> str:
    """The name that was given at an install in a folder's repository, "" without one. It stands in the records of this
    machine, because the files of a repository are shared."""
    named = [one for one in reversed(installs) if one.get("root") and one.get("user")]
    here = find_repository(folder) if named else ""
    return next((str(one["user"]) for one in named if find_repository(one["root"]) == here), "")


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
        lines = config.read_text("utf-8", "replace").replace("\\\n", "").splitlines()
    except OSError:
        return ""
    remotes: dict[str, str] = {}
    name = None
    for line in lines:
        if section := _SECTION.match(line):
            kind, _, rest = section["kind"].partition(".")
            name = (rest or section["name"]) if kind.lower() == "remote" else None
            line = line[section.end() :]
        if name is not None and (found := _URL.match(line)):
            remotes.setdefault(name, _read_value(found["value"]))
    return remotes.get("origin") or next(iter(remotes.values()), "")


def _read_value(text: str) -> str:
    """A value as git reads it: quotes, escapes, comments, and blanks that count only inside."""
    value, end = "", 0
    for part in _PART.finditer(text):
        if part["comment"]:
            break
        value += re.sub(r"\\(.)", r"\1", part["plain"] or part["escaped"] or part["quoted"])
        end = len(value.rstrip()) if part["plain"] else len(value)
    return value[:end]


def normalise_remote(remote: str, common: Path | None = None) -> str:
    """A remote without scheme, login, suffix and the port of its scheme: all ways to one repository have one name."""
    host = path = ""
    if address := _ADDRESS.fullmatch(remote):
        host, path = address["host"].lower(), address["path"] or ""
        if host and address["port"] and address["port"] != _PORTS.get(address["scheme"].lower()):
            host += f":{address['port']}"
    elif "://" in remote:  # git can't read it either: a name of its own, without a login
        path = re.sub(r"^[^/]*@", "", remote.partition("://")[2])
    elif scp := _SCP.match(remote):
        host, path = scp["host"].lower(), scp["path"]
    else:
        path = os.path.realpath(common.parent / remote if common else remote)
    path = path.rstrip("/").removesuffix(".git").rstrip("/")
    return f"{host}/{path.lstrip('/')}" if host else path
