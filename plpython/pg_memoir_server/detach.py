"""Going to the background, and the lock that keeps a second embedder from one socket. Stdlib only."""

from __future__ import annotations

import fcntl
import os
import signal
import time

_LOG_LIMIT = 4 << 20  # bytes; a longer log is moved aside at the next start


def detach(log_path: str) -> None:
    """Becomes a process of its own session, a child of nobody: whatever ends the backend that started it doesn't
    reach it.

    Returns in the background process only. Inherited descriptors are closed, so that no lock, pipe or socket of the
    starter is kept open; output goes to `log_path`.
    """
    _fork_and_leave()
    os.setsid()
    _fork_and_leave()
    os.chdir("/")
    for number in range(1, signal.NSIG):
        try:
            signal.signal(number, signal.SIG_DFL)
        except (OSError, ValueError):
            pass  # SIGKILL, SIGSTOP and the C library's own
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    try:
        if os.stat(log_path).st_size > _LOG_LIMIT:
            os.replace(log_path, log_path + ".1")
    except FileNotFoundError:
        pass
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.closerange(3, os.sysconf("SC_OPEN_MAX") if os.sysconf("SC_OPEN_MAX") < 1 << 20 else 1 << 20)


def _fork_and_leave() -> None:
    child = os.fork()
    if child:
        os._exit(0)


def lock_path(socket_path: str) -> str:
    """The lock file that belongs to a socket."""
    return socket_path + ".lock"


def take_lock(socket_path: str) -> int | None:
    """Takes the socket's lock for the life of the process and writes the process id there; None if another has it."""
    descriptor = os.open(lock_path(socket_path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    for _ in range(10):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            time.sleep(0.02)  # lock_holder() elsewhere takes it for an instant
    else:
        os.close(descriptor)
        return None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def lock_holder(socket_path: str) -> int | None:
    """Process id of the embedder that holds the socket's lock; None if nobody does."""
    try:
        descriptor = os.open(lock_path(socket_path), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        content = os.pread(descriptor, 32, 0).strip()
        return int(content) if content.isdigit() else None
    finally:
        os.close(descriptor)
