"""Starts the calling process, reads its results as they come, ends it at the deadline or when the caller is
cancelled."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

from ..supervise import interpreter

_START = 30.0  # seconds to load the provider's package


class ModelUnavailable(RuntimeError):
    """No call was possible at all: no key, no package, no such provider. The work goes back as it was."""


def run_requests(config: dict[str, Any], requests: list[dict[str, Any]], interrupt: Callable[[], object] = lambda: None,
                 python: str | None = None) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Yields one result a request (see child.py), in order. `config`: provider, model, endpoint, timeout (seconds of
    one call), retries. `interrupt` is called ten times a second and ends everything by raising."""
    # Two answers a request, each with its retries and the waits between them.
    seconds = float(config["timeout"]) * 2 * (int(config["retries"]) + 1) + 20.0 * 2 * int(config["retries"])
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    path = os.pathsep.join(dict.fromkeys([package, *(part for part in sys.path if part)]))
    done = 0
    with tempfile.TemporaryFile() as given:
        given.write(json.dumps({"config": config, "requests": requests}).encode())
        given.seek(0)
        child = subprocess.Popen(
            [python or interpreter(), "-m", "pg_memoir_server.llm.child"],
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
            cwd="/",
            start_new_session=True,
        )
    try:
        end = time.monotonic() + _START + seconds
        for line in _lines(child, lambda: end, interrupt):
            result = json.loads(line)
            if "unavailable" in result:
                raise ModelUnavailable(result["unavailable"])
            done += 1
            end = time.monotonic() + seconds
            yield result
        if done < len(requests):
            problem = (
                "the call took longer than all its retries may"
                if time.monotonic() >= end
                else "the calling process ended"
            )
            for request in requests[done:]:
                # Only the one that was out is to blame; the others were never sent.
                yield {
                    "id": request["id"],
                    "error": problem,
                    "final": False,
                    "usage": {},
                    "unsent": request is not requests[done],
                }
    finally:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        child.wait()
        if child.stdout:
            child.stdout.close()


def _lines(
    child: subprocess.Popen[bytes], end: Callable[[], float], interrupt: Callable[[], object]
) -> Iterator[bytes]:
    assert child.stdout
    buffer, number = b"", child.stdout.fileno()
    while time.monotonic() < end():
        interrupt()
        if select.select([number], [], [], 0.1)[0]:
            part = os.read(number, 1 << 16)
            if not part:
                return
            buffer += part
            while b"\n" in buffer:
                line, _, buffer = buffer.partition(b"\n")
                yield line
