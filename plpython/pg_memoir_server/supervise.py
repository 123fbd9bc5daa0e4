"""Keeps one shared embedder running: what a scheduler calls every few seconds. Stdlib only, returns within about 2 s.

Attempts and their time are kept in a small file beside the socket, for the back-off; nothing in the database.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

from . import embed_client
from .detach import lock_holder
from .private import private_dir

_FIRST_WAIT, _LONGEST_WAIT = 5.0, 600.0  # seconds between attempts, doubled each time
_HUNG_AFTER = 60.0  # seconds without an answer though the process lives
_LOADING_AT_MOST = 600.0  # seconds
_PING_MS = 1000


def ensure_running(
    socket_path: str,
    models: list[str],
    *,
    runtime: str = "auto",
    threads: int = 1,
    while_exists: str | None = None,
    endpoint: str | None = None,
    api_key_env: str | None = None,
    api_key_file: str | None = None,
    python: str | None = None,
) -> str:
    """Starts the embedder unless it answers. `models`: NAME or NAME=SOURCE, the first is loaded at once.

    Returns 'running', 'started', 'starting' (not ready yet), 'restarted' (it served other models, ran other code, or
    hung) or 'backing off'. Raises private.NotPrivate when the socket's folder isn't ours, OSError when nothing can be
    started at all.
    """
    folder = os.path.dirname(socket_path)
    private_dir(folder)
    state_path = socket_path + ".state"
    state, now = _read(state_path), time.time()
    command = _command(socket_path, models, runtime, threads, while_exists, endpoint, api_key_env, api_key_file, python)
    wanted = [*command[3:], _code()]
    verb = "started"
    patience: float | None = _HUNG_AFTER
    try:
        models_now = embed_client.ping(socket_path, _PING_MS)["models"]
        if state.get("command", wanted) != wanted:
            stop(socket_path)
            state, verb, patience = {}, "restarted", None
        elif models_now[0]["state"] == "ready":
            if state != {"command": wanted}:
                _write(state_path, {"command": wanted})
            return "running"
        else:
            patience = _LOADING_AT_MOST
    except embed_client.EmbedderError:
        pass
    holder = lock_holder(socket_path)
    if patience is not None and holder is not None:
        if now - state.setdefault("silent_since", now) < patience:
            _write(state_path, state)
            return "starting"
        _kill(socket_path, holder)
        verb = "restarted"
    attempts = int(state.get("attempts", 0))
    wait = min(_LONGEST_WAIT, _FIRST_WAIT * 2 ** (attempts - 1)) if attempts else 0.0
    if state.get("command", wanted) == wanted and 0 <= now - state.get("last", 0) < wait:
        return "backing off" if attempts > 1 else "starting"
    _write(state_path, {"attempts": attempts + 1, "last": now, "command": wanted})
    _start(command)
    return verb


def _code() -> str:
    """Return what tells this code from another version of it: an embedder outlives an upgrade of its files."""
    from importlib.util import find_spec

    folders = [os.path.dirname(__file__)]
    language = find_spec("pg_memoir_language")
    folders += language.submodule_search_locations or [] if language else []
    files = [
        os.path.join(under, name)
        for folder in folders
        for under, _, names in os.walk(folder)
        for name in names
        if not name.endswith(".pyc")
    ]
    told = sorted((path, os.stat(path).st_size, os.stat(path).st_mtime_ns) for path in files)
    return hashlib.sha256(repr(told).encode()).hexdigest()[:16]


def stop(socket_path: str, timeout_s: float = 12.0) -> str:
    """Ends the embedder of this socket: asks, then kills. Returns 'stopped', 'killed' or 'not running'."""
    holder = lock_holder(socket_path)
    if holder is None:
        return "not running"
    _signal(holder, signal.SIGTERM)
    end = time.monotonic() + timeout_s
    while lock_holder(socket_path) == holder:
        if time.monotonic() > end:
            _kill(socket_path, holder)
            return "killed"
        time.sleep(0.02)
    return "stopped"


def _kill(socket_path: str, holder: int) -> None:
    _signal(holder, signal.SIGKILL)
    end = time.monotonic() + 2
    while lock_holder(socket_path) == holder and time.monotonic() < end:
        time.sleep(0.02)


def _signal(process: int, number: int) -> None:
    """Signals the process if it still is an embedder: a process id from a file may have passed to another."""
    try:
        with open(f"/proc/{process}/cmdline", "rb") as file:
            line = file.read()
            if b"pg_memoir_server.embedder" in line or b"pg-memoir-embedder" in line:
                os.kill(process, number)
    except OSError:
        pass


def _command(
    socket_path: str,
    models: Any,
    runtime: Any,
    threads: Any,
    while_exists: Any,
    endpoint: Any,
    api_key_env: Any,
    api_key_file: Any,
    python: Any,
) -> list[str]:
    command = [python or interpreter(), "-m", "pg_memoir_server.embedder", "--detach", "--socket", socket_path]
    for model in models:
        command += ["--model", model]
    command += ["--runtime", runtime, "--threads", str(int(threads))]
    options = {
        "--while-exists": while_exists,
        "--endpoint": endpoint,
        "--api-key-env": api_key_env,
        "--api-key-file": api_key_file,
    }
    for option, value in options.items():
        command += [option, value] if value else []
    return command


def interpreter() -> str:
    """The Python to run the embedder with; inside PostgreSQL sys.executable may be anything."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for candidate in (
        os.environ.get("PG_MEMOIR_PYTHON"),
        sys.executable,
        os.path.join(sys.base_exec_prefix, "bin", name),
    ):
        if candidate and os.path.basename(candidate).startswith("python") and os.access(candidate, os.X_OK):
            return candidate
    raise FileNotFoundError(f"no Python interpreter found: set PG_MEMOIR_PYTHON in the server's environment ({name})")


def _start(command: list[str]) -> None:
    # The new process must find this very package, also where it isn't installed into that interpreter.
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    path = os.pathsep.join(dict.fromkeys([package, *(part for part in sys.path if part)]))
    environment = {**os.environ, "PYTHONPATH": path}
    subprocess.run(
        command,
        env=environment,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        close_fds=True,
        timeout=30,
    )


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            state = json.load(file)
        return state if isinstance(state, dict) else {}
    except (OSError, ValueError):
        return {}


def _write(path: str, state: dict[str, Any]) -> None:
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(state, file)
    os.replace(temporary, path)
