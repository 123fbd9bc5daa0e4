"""The database's jobs on their schedules, for servers without pg_cron."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from pg_memoir import Memoir, MemoirError
from pg_memoir.call import Call
from pg_memoir.client import CONNECT
from pg_memoir.errors import JobFailedError
from pg_memoir.extras.tracing import span_of
from pg_memoir.types import Job

from .repeat import log, wait_after

_BARE_SECONDS = 3600  # between looks for what no function may run
_OVERDUE_SECONDS = 10  # between looks for work that takes too long


class _Held:
    """A pool of one connection that can be cancelled from another thread."""

    def __init__(self, dsn: str) -> None:
        self.held = psycopg.connect(dsn, **CONNECT)
        # Not as a startup option: that would replace those of the DSN, and PgBouncer refuses it.
        if self.held.execute("select 1 where current_setting('statement_timeout') <> '0'").fetchone():
            self.held.execute("set statement_timeout = 0")

    @contextmanager
    def connection(self) -> Iterator[psycopg.Connection[Any]]:
        yield self.held


def run_jobs(
    dsn: str,
    *,
    interval: float = 5.0,
    once: bool = False,
    stop: threading.Event | None = None,
    seconds: int | None = None,
) -> int:
    """Runs every job when its schedule (set_schedule) says so, until `stop` is set, or those due now with
    `once`; returns how many were run. For databases without pg_cron; any number of these, and pg_cron beside them, do
    no harm.

    The login needs memoir_jobs. Failed jobs are logged, and kept in job_runs. `seconds`: at most so long a run.
    """
    stop = stop or threading.Event()
    total, failures, looked = 0, 0, 0.0
    while not stop.is_set():
        try:
            pool: Any = _Held(dsn)
            with pool.held, Memoir(pool) as memoir, _cancel_when_set(stop, pool.held), _cancel_overdue(dsn):
                while not stop.is_set():
                    for job in memoir.list_jobs():
                        if not stop.is_set() and _is_due(job):
                            _run(memoir, job.job, seconds)
                            total += 1
                    if time.monotonic() - looked > _BARE_SECONDS or not looked:
                        looked = time.monotonic()
                        send_bare(memoir)
                    failures = 0
                    if once:
                        return total
                    stop.wait(interval)
        except (MemoirError, psycopg.Error, OSError) as error:
            if stop.is_set():
                break
            if once:
                raise
            failures += 1
            wait = wait_after(failures, interval)
            log.warning("jobs: %s; next try in %.0f s", error, wait)
            stop.wait(wait)
    return total


def _is_due(job: Job) -> bool:
    return job.due is not None and (job.last_started is None or job.last_started < job.due)


def _run(memoir: Memoir, job: str, seconds: int | None) -> None:
    try:
        with span_of(f"job {job}", {"pg_memoir.job": job}):
            memoir.run_job(job, seconds=seconds, wait=0)
        if job == "archive" and send_bare(memoir):  # what it asked for is done: it goes on
            memoir.run_job(job, seconds=seconds, wait=0)
        log.debug("job %s has run", job)
    except JobFailedError as error:
        log.warning("%s", error)


def send_bare(memoir: Memoir) -> int:
    """Sends what no function may run, one statement after another; returns how many could be sent."""
    sent = 0
    for row in memoir.bare_statements():
        statement, reason = row["statement"], row["reason"]
        try:
            memoir.run(Call("bare_statements", statement, {}, lambda rows: None))
            sent += 1
            log.info("%s: %s", statement, reason)
        except psycopg.errors.InsufficientPrivilege as error:
            said = error.diag.message_primary
            log.warning("%s, which is wanted since %s, needs another login: %s", statement, reason, said)
    return sent


@contextmanager
def _cancel_overdue(dsn: str) -> Iterator[None]:
    """Cancels what a job is at for too long: here one job waits for the other, so none that begins would."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(_OVERDUE_SECONDS):
            try:
                held = _Held(dsn)
                with held.held, Memoir(held) as memoir:  # type: ignore[arg-type]
                    while not done.wait(_OVERDUE_SECONDS):
                        if memoir.cancel_overdue():
                            log.warning("cancelled what a job was at for too long")
            except (MemoirError, psycopg.Error, OSError) as error:
                log.warning("jobs: %s", error)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


@contextmanager
def _cancel_when_set(stop: threading.Event, connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Cancels what runs on the connection when `stop` is set."""
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            if stop.wait(0.2):
                connection.cancel()
                # One that came between two statements is sent again; sooner, it would keep the job from noting
                # the first.
                done.wait(5.0)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
