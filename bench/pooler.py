"""A PgBouncer of the benchmark's own: the installed one, else the distribution's package unpacked beside the checkout, installed nowhere."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from .common import CACHE, CannotRun

UNPACKED = CACHE.parent / "pgbouncer"
PACKAGES = ("pgbouncer", "libevent-2.1-7", "libc-ares2")


def binary() -> tuple[Path, dict[str, str]]:
    """(program, environment it needs). Raises CannotRun where neither is to be had."""
    found = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
    if found:
        return Path(found), {}
    program = UNPACKED / "usr" / "sbin" / "pgbouncer"
    if not program.exists():
        UNPACKED.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o777)  # apt downloads as a user of its own
            for package in PACKAGES:
                done = (
                    subprocess.run(
                        ["apt-get", "download", package], cwd=folder, capture_output=True, text=True, check=False
                    )
                    if shutil.which("apt-get")
                    else None
                )
                if package == "pgbouncer" and (done is None or done.returncode):
                    raise CannotRun(
                        f"no PgBouncer: {done.stderr.strip()[-300:] if done else 'no apt-get to fetch it with'}"
                    )
            for archive in Path(folder).glob("*.deb"):
                subprocess.run(["dpkg-deb", "-x", str(archive), str(UNPACKED)], check=True)
    libraries = ":".join(sorted({str(path.parent) for path in UNPACKED.rglob("*.so*")}))
    return program, {"LD_LIBRARY_PATH": libraries} if libraries else {}


@contextlib.contextmanager
def pooler(dsn: str, pool: int) -> Iterator[str]:
    """A DSN that goes through PgBouncer in transaction mode, with so many connections to the server."""
    program, needed = binary()
    server = conninfo_to_dict(dsn)
    # It refuses root, and the server's socket is for the server's user only.
    who = os.environ.get("PG_MEMOIR_SERVER_USER", "postgres") if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="pgm-b-") as folder:
        copy = Path(folder, "pgbouncer")
        shutil.copy(program, copy)  # the checkout may lie where that user can't go
        for library in UNPACKED.rglob("*.so*") if needed else ():
            shutil.copy(library, folder)
        needed = {"LD_LIBRARY_PATH": folder} if needed else {}
        if who:
            os.chown(folder, pwd.getpwnam(who).pw_uid, -1)
        Path(folder, "pgbouncer.ini").write_text(
            f"[databases]\n* = host={server['host']} port={server.get('port', 5432)} user={server.get('user', 'postgres')}\n"
            f"[pgbouncer]\nlisten_port = 6432\nlisten_addr =\nunix_socket_dir = {folder}\nauth_type = any\npool_mode = transaction\n"
            f"default_pool_size = {pool}\nmax_client_conn = 200\nlogfile = {folder}/log\npidfile = {folder}/pid\n"
        )
        process = subprocess.Popen(
            [str(copy), "-q", f"{folder}/pgbouncer.ini"], user=who, env=os.environ | needed, stderr=subprocess.DEVNULL
        )
        try:
            through = make_conninfo(
                host=folder, port=6432, dbname=server["dbname"], user=server.get("user", "postgres")
            )
            for attempt in range(100):
                try:
                    psycopg.connect(through, prepare_threshold=None).close()
                    break
                except psycopg.OperationalError as error:
                    if process.poll() is not None or attempt == 99:
                        raise CannotRun(f"PgBouncer does not answer: {error}") from error
                    time.sleep(0.05)
            yield through
        finally:
            process.terminate()
            process.wait(10)
