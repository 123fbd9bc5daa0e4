"""Runs a program in a network namespace of its own, in which nothing can be reached but one port of 127.0.0.1."""

import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1


def unshare() -> list[str] | None:
    """The command that makes a namespace, None where that is not allowed."""
    command = ["unshare", *([] if os.geteuid() == 0 else ["-r"]), "-n"]
    if shutil.which("unshare") and not subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        return command
    return None


def _carry(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def _forward(server: socket.socket, connect: object) -> None:
    """Carries each connection to what `connect` opens."""
    while True:
        try:
            client, _ = server.accept()
        except OSError:
            return
        with suppress(OSError):
            far = connect()  # type: ignore[operator]
            for one, other in ((client, far), (far, client)):
                threading.Thread(target=_carry, args=(one, other), daemon=True).start()


@contextmanager
def confined(port: int, folder: Path) -> Iterator[list[str]]:
    """Gives the beginning of a command whose program reaches 127.0.0.1:`port` and nothing else."""
    path = str(folder / "door")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(64)
        outside = threading.Thread(
            target=_forward, args=(server, lambda: socket.create_connection(("127.0.0.1", port))), daemon=True
        )
        outside.start()
        yield [*(unshare() or []), sys.executable, __file__, path, str(port)]
        server.shutdown(socket.SHUT_RDWR)


def _connect(path: str) -> socket.socket:
    far = socket.socket(socket.AF_UNIX)
    far.connect(path)
    return far


def _inside(path: str, port: int, command: list[str]) -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:  # the loopback device is down in a new namespace
        request = struct.pack("16sh", b"lo", 0)
        (flags,) = struct.unpack("16xh", fcntl.ioctl(control, _SIOCGIFFLAGS, request)[:18])
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh", b"lo", flags | _IFF_UP))
    server = socket.create_server(("127.0.0.1", port), backlog=64)
    threading.Thread(target=_forward, args=(server, lambda: _connect(path)), daemon=True).start()
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(_inside(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
