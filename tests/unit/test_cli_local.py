"""The surroundings of the private server: one `up` at a time, a worker that runs or says why not, no password in `ps`."""

import fcntl
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from pg_memoir_cli import app, local
from pg_memoir_cli.app import Stop
from pg_memoir_cli.commands import server
from pg_memoir_cli.local import Worker, lock_state
from psycopg.conninfo import conninfo_to_dict


def replace_worker(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> Worker:
    """A worker that runs this shell script."""
    program = folder / "program"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(local.sys, "executable", str(program))
    return Worker(folder)


def test_worker_is_replaced_and_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    worker = replace_worker(monkeypatch, tmp_path, "exec sleep 60")
    first, second = worker.start(""), worker.start("")
    assert first != second == worker._read() and worker.log.stat().st_mode & 0o777 == 0o600
    worker.stop()
    assert worker._read() is None


def test_state_folder_is_private(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Except for root, whose server runs as another user."""
    for user, mode in ((1000, 0o700), (0, 0o755)):
        monkeypatch.setattr(local.os, "geteuid", lambda user=user: user)
        folder = tmp_path / str(user)
        with lock_state(folder):
            assert folder.stat().st_mode & 0o777 == mode


def test_worker_that_ends_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    worker = replace_worker(monkeypatch, tmp_path, "echo no module; exit 7")
    worker.log.parent.mkdir()
    worker.log.write_text("of an earlier one\n")
    with pytest.raises(Stop) as caught:
        worker.start("")
    assert str(caught.value) == "the worker ended at once with exit code 7\nno module"


def test_worker_without_number_is_awaited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(local, "_NAMING_SECONDS", 0.1)
    worker = Worker(tmp_path)
    with worker.lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(Stop, match="is held by a process"):
            worker.stop()
    worker.stop()


def test_state_lock_admits_one_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The lock also holds after `down --delete` has removed its file."""
    folder, order = tmp_path / "state", []

    def enter() -> None:
        with lock_state(folder):
            order.append("second")

    with lock_state(folder):
        other = threading.Thread(target=enter)
        other.start()
        while "waiting" not in capsys.readouterr().err:
            time.sleep(0.01)
        order.append("first")
        (folder / "up.lock").unlink()
    other.join()
    assert order == ["first", "second"] and (folder / "up.lock").exists()


@pytest.mark.parametrize("dsn", ["postgresql://ann:s%20ecret@h/d", "host=h user=ann dbname=d password='s ecret'"])
@pytest.mark.parametrize("command", ["psql", "install"])
def test_password_is_no_argument(monkeypatch: pytest.MonkeyPatch, command: str, dsn: str) -> None:
    """`ps` shows arguments to every user of the machine."""
    calls = []

    def run(arguments: list[str], env: dict[str, str] | None = None, check: bool = False) -> SimpleNamespace:
        calls.append(([str(part) for part in arguments], env or {}))
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(server, "_psql", lambda: ("/usr/bin/psql", {"LANG": "C"}))
    monkeypatch.setattr(server.subprocess, "run", run)
    assert app.main([command, "--dsn", dsn]) == 0
    arguments, environment = calls[-1]
    where = next(part for part in arguments if "host=" in part)
    assert conninfo_to_dict(where) == {"host": "h", "user": "ann", "dbname": "d"} and environment["LANG"] == "C"
    assert environment["PGPASSWORD"] == "s ecret" and not any("ecret" in part for words, _ in calls for part in words)
