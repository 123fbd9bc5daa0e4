"""Work on several connections at the same moment, and waiting for the work of others."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Barrier
from time import monotonic, sleep
from typing import Any, TypeVar

import psycopg
from servers import connect

T = TypeVar("T")
Job = Callable[[psycopg.Connection], Any]
# A hang is a failure, too.
PATIENCE = "-c statement_timeout=60s -c deadlock_timeout=100ms -c synchronous_commit=off"


def in_parallel(dsn: str, *jobs: Job, look: Callable[[], object] = lambda: sleep(0.01)) -> list[Any]:
    """Returns the results of jobs in their order. All begin at once, each on a connection of its own, and look() runs over
    and over meanwhile. Any error (a deadlock, say) is raised."""
    gate = Barrier(len(jobs) + 1)

    def run(job: Job) -> Any:
        with connect(dsn, options=PATIENCE) as db:
            gate.wait(30)
            return job(db)

    with ThreadPoolExecutor(len(jobs)) as pool:
        pending = [pool.submit(run, job) for job in jobs]
        gate.wait(30)
        while not all(future.done() for future in pending):
            look()
        return [future.result() for future in pending]


def beside(work: Callable[[], T]) -> Future[T]:
    """Begins work in a thread of its own."""
    pool = ThreadPoolExecutor(1)
    begun = pool.submit(work)
    pool.shutdown(wait=False)
    return begun


def until(condition: Callable[[], T], seconds: float = 30, pause: float = 0.02) -> T:
    """Waits for what another thread or process does. Returns what the condition came to."""
    end = monotonic() + seconds
    while not (found := condition()):
        assert monotonic() < end, "waited in vain"
        sleep(pause)
    return found
