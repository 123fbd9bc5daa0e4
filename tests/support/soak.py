"""The property tests with very many cases: python tests/support/soak.py [CASES] [SEED], with PG_MEMOIR_DSN of a database to fill.

`make soak` runs it on a fresh database. Prints progress; exits with 1 if a promise was broken.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed

from properties import Tally, run

CASES_PER_WORLD = 25
WORLDS_PER_TASK = 20


def soak(dsn: str, cases: int, seed: str = "soak", processes: int | None = None) -> int:
    """Checks about `cases` cases; returns how many broke a promise."""
    tasks = -(-cases // (CASES_PER_WORLD * WORLDS_PER_TASK))
    total, started = Tally(), time.monotonic()
    with ProcessPoolExecutor(processes or os.cpu_count() or 2, multiprocessing.get_context("spawn")) as pool:
        running = [
            pool.submit(run, dsn, seed, task * WORLDS_PER_TASK, WORLDS_PER_TASK, CASES_PER_WORLD)
            for task in range(tasks)
        ]
        for done in as_completed(running):
            share = done.result()
            total.add(share)
            _print(total, cases, started)
            for failure in share.failures:
                print(failure, flush=True)
    print(
        f"{total.cases} cases, {total.lists} lists, refused {dict(total.refused)}, {len(total.failures)} failures, {(time.monotonic() - started) / 60:.1f} minutes"
    )
    return len(total.failures)


def _print(total: Tally, cases: int, started: float) -> None:
    spent = time.monotonic() - started
    left = spent / max(1, total.cases) * max(0, cases - total.cases)
    print(
        f"{total.cases:>7} of {cases} cases, {len(total.failures)} failures, {spent / 60:.1f} min, about {left / 60:.0f} min left",
        flush=True,
    )


if __name__ == "__main__":
    given = sys.argv[1:]
    sys.exit(
        soak(os.environ["PG_MEMOIR_DSN"], int(given[0]) if given else 100_000, given[1] if len(given) > 1 else "soak")
        > 0
    )
