"""What every part of the worker does: one step after another, waiting where there is nothing to do, longer after
errors."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import psycopg
from pg_memoir import MemoirError
from pg_memoir.extras.tracing import note_batch
from pg_memoir_server.llm.loop import ModelUnavailable

from .embedder import EmbedderUnavailable

log = logging.getLogger("pg_memoir.worker")

_LONGEST_WAIT = 60.0  # seconds between tries after failures
PASSING = (MemoirError, psycopg.Error, EmbedderUnavailable, ModelUnavailable, OSError)
"""Errors that the next try may not meet."""


@dataclass(frozen=True)
class Step:
    """What a step did: `count`, whether there may be `more` to do, whether it `failed` altogether."""

    count: int
    more: bool
    failed: bool = False


def repeat(name: str, step: Callable[[], Step], *, interval: float, once: bool, stop: threading.Event | None) -> int:
    """Repeats a step until `stop` is set, or until nothing is left with `once`; returns the sum of its counts. With
    `once` an error passes through; otherwise it is logged and tried again, at intervals doubling up to a minute."""
    stop = stop or threading.Event()
    total, failures = 0, 0
    while not stop.is_set():
        began = time.time()
        try:
            done = step()
        except PASSING as error:
            if once:
                raise
            failures += 1
            wait = wait_after(failures, interval)
            log.warning("%s: %s; next try in %.0f s", name, error, wait)
            stop.wait(wait)
            continue
        total += done.count
        if done.count or done.failed:
            note_batch(f"worker {name}", began, done.count, done.failed)
        failures = failures + 1 if done.failed else 0
        if done.failed and not once:
            stop.wait(wait_after(failures, interval))
        elif not done.more:
            if once:
                break
            stop.wait(interval)
    return total


def wait_after(failures: int, interval: float) -> float:
    """Seconds before the next try."""
    return min(_LONGEST_WAIT, interval * 2.0 ** min(failures, 10))
