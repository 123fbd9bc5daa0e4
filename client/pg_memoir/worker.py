"""Embeds the backlog from outside the database, and runs its jobs where pg_cron is missing: `python -m pg_memoir.worker`.

For installs without PL/Python or pg_cron (managed PostgreSQL) or with the models on another machine. Any number may run at
once; each batch is claimed, worked on with no transaction open, and stored. SIGTERM and SIGINT stop it after the batch at
hand; a job that runs is cancelled, which loses no more than its batch.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import psycopg

from . import admin_calls
from .backlog import leases_of
from .calls import Call
from .client import CONNECT, Memoir
from .embedders import DEFAULT_MODEL, EmbedderUnavailable, load_embedder
from .errors import JobFailedError, MemoirError
from .types import Embed, PairClaim

log = logging.getLogger("pg_memoir.worker")

_LONGEST_WAIT = 60.0  # seconds between tries after failures


def run(
    memoir: Memoir,
    embed: Embed,
    *,
    limit: int = 64,
    model: str | None = None,
    interval: float = 5.0,
    once: bool = False,
    stop: threading.Event | None = None,
) -> int:
    """Keeps the backlog empty until `stop` is set, or until it is empty with `once`; returns how many were embedded.

    `limit`: texts a batch; `interval`: seconds between looks at an empty backlog. With `once` an error passes through;
    otherwise it is logged and tried again, at intervals doubling up to a minute.
    """
    stop = stop or threading.Event()
    total, failures = 0, 0
    while not stop.is_set():
        try:
            stored = memoir.embed_backlog(embed, limit=limit, model=model, max_items=limit)
        except (MemoirError, psycopg.Error, EmbedderUnavailable, OSError) as error:
            if once:
                raise
            failures += 1
            wait = min(_LONGEST_WAIT, interval * 2 ** min(failures, 10))
            log.warning("%s; next try in %.0f s", error, wait)
            stop.wait(wait)
            continue
        failures = 0
        total += stored
        if stored:
            log.info("embedded %d, %d in all", stored, total)
        elif once:
            break
        else:
            stop.wait(interval)
    return total


class _Held:
    """A pool of one connection that can be cancelled from another thread."""

    def __init__(self, dsn: str) -> None:
        self.held = psycopg.connect(dsn, **CONNECT | {"options": "-c statement_timeout=0"})

    @contextmanager
    def connection(self) -> Iterator[psycopg.Connection[Any]]:
        yield self.held


def run_jobs(dsn: str, *, interval: float = 5.0, once: bool = False, stop: threading.Event | None = None, seconds: int | None = None) -> int:
    """Runs every job when its schedule (setting schedule_<job>) says so, until `stop` is set, or those due now with `once`;
    returns how many were run. For databases without pg_cron; any number of these, and pg_cron beside them, do no harm.

    The login needs memoir_jobs. Failed jobs are logged, and kept in job_runs. `seconds`: at most so long a run.
    """
    stop = stop or threading.Event()
    total, failures, looked = 0, 0, 0.0
    while not stop.is_set():
        try:
            held = _Held(dsn)
            with held.held, Memoir(held) as memoir:  # type: ignore[arg-type]
                with _cancelled_by(stop, held.held):
                    while not stop.is_set():
                        for job in memoir.list_jobs():
                            if stop.is_set() or job.due is None or job.last_started is not None and job.last_started >= job.due:
                                continue
                            _run_job(memoir, job.job, seconds)
                            total += 1
                            if job.job == "archive" and _send_bare(memoir):  # what it asked for is done: it goes on
                                _run_job(memoir, job.job, seconds)
                        if time.monotonic() - looked > 3600 or not looked:
                            looked = time.monotonic()
                            _send_bare(memoir)
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
            wait = min(_LONGEST_WAIT, interval * 2 ** min(failures, 10))
            log.warning("jobs: %s; next try in %.0f s", error, wait)
            stop.wait(wait)
    return total


def _run_job(memoir: Memoir, job: str, seconds: int | None) -> None:
    try:
        memoir.run_job(job, seconds=seconds)
        log.debug("job %s has run", job)
    except JobFailedError as error:
        log.warning("%s", error)


def _send_bare(memoir: Memoir) -> int:
    """Sends what no function may run, one statement after another; returns how many could be sent."""
    sent = 0
    for row in memoir.bare_statements():
        try:
            memoir.run(Call("bare_statements", row["statement"], {}, lambda rows: None))
            sent += 1
            log.info("%s: %s", row["statement"], row["reason"])
        except psycopg.errors.InsufficientPrivilege as error:
            log.warning("%s, which is wanted since %s, needs another login: %s", row["statement"], row["reason"], error.diag.message_primary)
    return sent


@contextmanager
def _cancelled_by(stop: threading.Event, connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Cancels what runs on the connection when `stop` is set."""
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            if stop.wait(0.2):
                connection.cancel()
                done.wait(5.0)  # one that came between two statements is sent again; sooner, it would keep the job from noting the first

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def run_models(memoir: Memoir, *, interval: float = 5.0, once: bool = False, stop: threading.Event | None = None) -> int:
    """Asks the language model (settings llm_*) what is queued for it, until `stop` is set, or until nothing is left with `once`;
    returns how many calls were made. Needs the package pg_memoir_server and the provider's key in the environment."""
    from pg_memoir_server.llm.loop import ModelUnavailable, run_batch

    stop = stop or threading.Event()

    class Stopped(Exception):
        pass

    def interrupt() -> None:
        if stop.is_set():
            raise Stopped

    def database(function: str, *arguments: Any) -> list[dict[str, Any]]:
        result = memoir.run(getattr(admin_calls, function)(*arguments))
        if function == "claim_model_calls":
            return [{"job_id": row.job_id, "lease_id": row.lease_id, "kind": row.kind, "input": row.input} for row in result]
        return [{function: result}]

    total, failures = 0, 0
    while not stop.is_set():
        try:
            counts = run_batch(database, 4, interrupt, sys.executable)
            total += counts["calls"]
            failures = failures + 1 if counts["failed"] and not counts["stored"] else 0
            if counts.get("error"):
                log.warning("model: %s", counts["error"])
            if not counts["calls"]:
                if once:
                    break
                stop.wait(interval)
        except Stopped:
            break
        except (MemoirError, psycopg.Error, ModelUnavailable, OSError) as error:
            if once:
                raise
            failures += 1
            log.warning("model: %s", error)
        if failures:
            stop.wait(min(_LONGEST_WAIT, interval * 2 ** min(failures, 10)))
    return total


class Judge(Protocol):
    """What pg_memoir_server.nli.NliJudge is: pairs of texts → how surely they contradict each other, 0 to 1."""

    name: str

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> list[float]: ...


def run_judge(memoir: Memoir, judge: Judge, *, limit: int = 16, interval: float = 5.0, once: bool = False, stop: threading.Event | None = None) -> int:
    """Judges the pairs of memories that wait for one (setting judge: nli), until `stop` is set, or until nothing is left with
    `once`; returns how many verdicts were stored. No transaction is open while the model is at it.

    `limit`: pairs a batch. What the model fails on goes back to the queue, one memory at a time, and holds up nothing else.
    """
    stop = stop or threading.Event()
    total, failures = 0, 0
    while not stop.is_set():
        try:
            claims = memoir.claim_judgements(limit=limit)
            stored, failed = _judge_claims(memoir, judge, claims)
        except (MemoirError, psycopg.Error, OSError) as error:
            if once:
                raise
            failures += 1
            wait = min(_LONGEST_WAIT, interval * 2 ** min(failures, 10))
            log.warning("judge: %s; next try in %.0f s", error, wait)
            stop.wait(wait)
            continue
        failures = failures + 1 if failed and not stored else 0
        total += stored
        if failures and not once:
            stop.wait(min(_LONGEST_WAIT, interval * 2 ** min(failures, 10)))
        elif not claims:
            if once:
                break
            stop.wait(interval)
    return total


def _judge_claims(memoir: Memoir, judge: Judge, claims: list[PairClaim]) -> tuple[int, int]:
    """(verdicts stored, memories given back after an error)."""
    if not claims:
        return 0, 0
    try:
        with memoir.keeping(leases_of(claims)):
            scores = judge([(claim.other_content, claim.content) for claim in claims])
        return memoir.store_judgements(
            [c.user_id for c in claims], [c.memory_id for c in claims], [c.other_id for c in claims], scores, judge.name
        ), 0
    except Exception as error:  # whatever the model's library raises
        memories = list(dict.fromkeys((claim.user_id, claim.memory_id) for claim in claims))
        if len(memories) == 1:
            log.warning("judge: %s", error)
            memoir.fail_judgements([memories[0][0]], [memories[0][1]], f"{type(error).__name__}: {error}")
            return 0, 1
    parts = [_judge_claims(memoir, judge, [c for c in claims if (c.user_id, c.memory_id) == memory]) for memory in memories]
    return sum(stored for stored, _ in parts), sum(failed for _, failed in parts)


def add_arguments(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """Describes the worker's options to `parser`; returns what runs it."""
    parser.add_argument("--dsn", default=os.environ.get("PG_MEMOIR_DSN", ""), help="connection string (default: $PG_MEMOIR_DSN)")
    parser.add_argument("--provider", default="auto", help="auto, onnx, sentence-transformers or openai")
    parser.add_argument("--model", default=DEFAULT_MODEL, help="the model's name for the provider, or a folder (%(default)s)")
    parser.add_argument("--registered-as", help="embedding model of the database to work for (default: --model's name)")
    parser.add_argument("--endpoint", help="base of an OpenAI-compatible API, such as http://localhost:11434/v1")
    parser.add_argument("--api-key-env", help="variable that holds the endpoint's key")
    parser.add_argument("--limit", type=int, default=64, help="texts a batch (%(default)s)")
    parser.add_argument("--interval", type=float, default=5.0, help="seconds between looks at an empty backlog (%(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of the model (%(default)s)")
    parser.add_argument("--jobs", action="store_true", help="also run the database's jobs on their schedules, where pg_cron is missing")
    parser.add_argument("--llm", action="store_true", help="also ask the language model (settings llm_*) what is queued for it")
    parser.add_argument("--nli", metavar="FOLDER", default=os.environ.get("PG_MEMOIR_NLI_MODEL"),
                        help="also judge contradictions (setting judge: nli) with the cross-encoder in FOLDER (default: $PG_MEMOIR_NLI_MODEL)")
    parser.add_argument("--no-embed", action="store_true", help="embed nothing")
    parser.add_argument("--once", action="store_true", help="stop when the backlog is empty")
    return _main


def _load_judge(folder: str) -> Judge:
    """Loaded before anything is claimed, so that a wrong folder is no fault of the work."""
    try:
        from pg_memoir_server.nli import NliJudge, NoSuchModel
    except ImportError as error:
        raise OSError(f"--nli needs the package pg_memoir_server: {error}") from None
    loaded = NliJudge(folder)
    try:
        loaded.load()
    except NoSuchModel as error:
        raise OSError(str(error)) from None
    judge: Judge = loaded
    return judge


def _side_by_side(kinds: list[Callable[[], int]], stop: threading.Event) -> int:
    """Each in a thread of its own, so that none waits for another; an unforeseen error ends all."""
    counts: list[int] = []
    errors: list[BaseException] = []

    def one(kind: Callable[[], int]) -> None:
        try:
            counts.append(kind())
        except BaseException as error:
            errors.append(error)
            stop.set()

    threads = [threading.Thread(target=one, args=[kind]) for kind in kinds]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.2)  # in short waits, or no signal would be handled
    if errors:
        raise errors[0]
    return sum(counts)


def _main(options: argparse.Namespace) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    stop = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stop.set())
    try:
        embed = None if options.no_embed else load_embedder(
            options.provider, options.model, endpoint=options.endpoint, api_key_env=options.api_key_env, threads=options.threads
        )
        judge = _load_judge(options.nli) if options.nli else None
        # Never vectors of this model for another that is being backfilled too.
        name = options.registered_as or os.path.basename(options.model.rstrip("/"))
        with Memoir(options.dsn, max_size=2) as memoir:
            kinds: list[Callable[[], int]] = []
            if options.jobs:
                kinds.append(lambda: run_jobs(options.dsn, interval=options.interval, once=options.once, stop=stop))
            if embed is not None:
                kinds.append(lambda: run(memoir, embed, limit=options.limit, model=name, interval=options.interval, once=options.once, stop=stop))
            if options.llm:
                kinds.append(lambda: run_models(memoir, interval=options.interval, once=options.once, stop=stop))
            if judge is not None:
                kinds.append(lambda: run_judge(memoir, judge, interval=options.interval, once=options.once, stop=stop))
            total = sum(kind() for kind in kinds) if options.once else _side_by_side(kinds, stop)
    except (MemoirError, psycopg.Error, EmbedderUnavailable, OSError) as error:
        print(f"pg_memoir.worker: {error}", file=sys.stderr)
        return 1
    log.info("stopped after %d", total)
    return 0


if __name__ == "__main__":
    _parser = argparse.ArgumentParser(prog="python -m pg_memoir.worker", description=(__doc__ or "").splitlines()[0])
    _run = add_arguments(_parser)
    sys.exit(_run(_parser.parse_args()))
