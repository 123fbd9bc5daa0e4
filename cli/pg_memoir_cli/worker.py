"""Embeds the backlog from outside the database, and runs its jobs where pg_cron is missing.

For installs without PL/Python or pg_cron (managed PostgreSQL) or with the models on another machine. Any number may run
at once; each batch is claimed, worked on with no transaction open, and stored. SIGTERM and SIGINT stop it after the
batch at hand; a job that runs is cancelled, which loses no more than its batch.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from pg_memoir import Memoir
from pg_memoir.extras.plans import leases_of
from pg_memoir.types import Embed, PairClaim
from pg_memoir_server.llm.loop import run_batch
from pg_memoir_server.nli import NliJudge

from .embedder import DEFAULT_MODEL, load_embedder
from .jobs import run_jobs
from .repeat import Step, log, repeat


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

    `limit`: texts a batch; `interval`: seconds between looks at an empty backlog.
    """

    def step() -> Step:
        stored = memoir.embed_backlog(embed, limit=limit, model=model, max_items=limit)
        if stored:
            log.info("embedded %d", stored)
        return Step(stored, more=stored > 0)

    return repeat("embedding", step, interval=interval, once=once, stop=stop)


def run_models(
    memoir: Memoir, *, interval: float = 5.0, once: bool = False, stop: threading.Event | None = None
) -> int:
    """Asks the language model (settings llm_*) what is queued for it, until `stop` is set, or until nothing is left
    with `once`; returns how many calls were made. Needs the provider's key in the environment."""
    stop = stop or threading.Event()

    class Stopped(Exception):
        pass

    def interrupt() -> None:
        if stop.is_set():
            raise Stopped

    def database(function: str, *arguments: Any) -> list[dict[str, Any]]:
        answer = getattr(memoir, function)(*arguments)
        if function == "claim_model_calls":
            return [asdict(work) for work in answer]
        return [{function: answer}]

    def step() -> Step:
        try:
            counts = run_batch(database, 4, interrupt, sys.executable)
        except Stopped:
            return Step(0, more=False)
        if counts.get("error"):
            log.warning("model: %s", counts["error"])
        return Step(counts["calls"], more=counts["calls"] > 0, failed=counts["failed"] > 0 and not counts["stored"])

    return repeat("model", step, interval=interval, once=once, stop=stop)


def run_reader(
    memoir: Memoir,
    *,
    limit: int = 256,
    interval: float = 5.0,
    once: bool = False,
    stop: threading.Event | None = None,
) -> int:
    """Reads turns where the server has no PL/Python, until `stop` is set, or until none is left with `once`; returns
    how many were looked through for secrets. Until then they are not embedded and not sent to a model. Then memories,
    changes and requests to forget are found in them."""
    from pg_memoir_language.secrets import secret_kinds

    def step() -> Step:
        claims = memoir.claim_unread(limit=limit)
        for lease in leases_of(claims):
            mine = [claim for claim in claims if (claim.work_id, claim.lease_id) == lease]
            kinds = [", ".join(secret_kinds(claim.text)) for claim in mine]
            marked = memoir.store_secrets(*lease, [claim.item_no for claim in mine], kinds)
            if marked:
                log.info("marked %d turns secret", marked)
        return Step(len(claims), more=bool(claims) or _read_turns(memoir))

    return repeat("reading", step, interval=interval, once=once, stop=stop)


def _read_turns(memoir: Memoir) -> bool:
    """Reads the next turns of one session; whether there were any."""
    from pg_memoir_server.reading import read_context, read_turns

    for claim in memoir.claim_turns():
        reading = read_turns(json.dumps(claim.turns))
        results = None
        if reading["stating"] or reading["requests"]:
            context = memoir.turns_context(claim.work_id, claim.lease_id, reading)
            results = context and read_context(json.dumps(context))
        counts = memoir.store_turns(claim.work_id, claim.lease_id, reading, results)
        log.info("read turns: %s", counts)
        return True
    return False


class Judge(Protocol):
    """What pg_memoir_server.nli.NliJudge is: pairs of texts → how surely they contradict each other, 0 to 1."""

    name: str

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> list[float]: ...


def run_judge(
    memoir: Memoir,
    judge: Judge,
    *,
    limit: int = 16,
    interval: float = 5.0,
    once: bool = False,
    stop: threading.Event | None = None,
) -> int:
    """Judges the pairs of memories that wait for one (setting judge: nli), until `stop` is set, or until nothing is
    left with `once`; returns how many verdicts were stored. No transaction is open while the model is at it.

    `limit`: pairs a batch. What the model fails on goes back to the queue, one memory at a time, and holds up nothing
    else.
    """

    def step() -> Step:
        claims = memoir.claim_judgements(limit=limit)
        stored, failed = _judge_claims(memoir, judge, claims)
        return Step(stored, more=bool(claims), failed=failed > 0 and not stored)

    return repeat("judge", step, interval=interval, once=once, stop=stop)


def _judge_claims(memoir: Memoir, judge: Judge, claims: list[PairClaim]) -> tuple[int, int]:
    """(verdicts stored, memories given back after an error)."""
    if not claims:
        return 0, 0
    users, memories = [claim.user_id for claim in claims], [claim.memory_id for claim in claims]
    try:
        with memoir.keeping(leases_of(claims)):
            scores = judge([(claim.other_content, claim.content) for claim in claims])
        return memoir.store_judgements(users, memories, [claim.other_id for claim in claims], scores, judge.name), 0
    except Exception as error:  # whatever the model's library raises
        one_each = list(dict.fromkeys(zip(users, memories)))
        if len(one_each) == 1:
            log.warning("judge: %s", error)
            memoir.fail_work(claims[0].work_id, claims[0].lease_id, f"{type(error).__name__}: {error}")
            return 0, 1
    parts = [
        _judge_claims(memoir, judge, [claim for claim in claims if (claim.user_id, claim.memory_id) == memory])
        for memory in one_each
    ]
    return sum(stored for stored, _ in parts), sum(failed for _, failed in parts)


@dataclass(frozen=True)
class Options:
    """What a worker does; see the command."""

    provider: str = "auto"
    model: str = DEFAULT_MODEL
    registered_as: str | None = None
    endpoint: str | None = None
    api_key_env: str | None = None
    limit: int = 64
    interval: float = 5.0
    threads: int = 1
    jobs: bool = False
    llm: bool = False
    nli: str | None = None
    embed: bool = True
    once: bool = False
    webhooks: bool = False
    allow_local: bool = False


def work(dsn: str, options: Options) -> None:
    """Runs until a signal, or with `once` until nothing is left. Raises what does not pass."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs addresses, and those of webhooks hold secrets
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    again: dict[str, Any] = {"interval": options.interval, "once": options.once, "stop": stop}
    kinds: list[Callable[[], int]] = []
    with Memoir(dsn, max_size=2) as memoir:
        if options.jobs:
            kinds.append(lambda: run_jobs(dsn, **again))
        if options.embed or options.llm:
            kinds.append(lambda: run_reader(memoir, **again))
        if options.embed:
            embed = load_embedder(
                options.provider,
                options.model,
                endpoint=options.endpoint,
                api_key_env=options.api_key_env,
                threads=options.threads,
            )
            # Never vectors of this model for another that is being backfilled too.
            name = options.registered_as or os.path.basename(options.model.rstrip("/"))
            kinds.append(lambda: run(memoir, embed, limit=options.limit, model=name, **again))
        if options.llm:
            kinds.append(lambda: run_models(memoir, **again))
        if options.webhooks:
            from .webhooks import Sender, run_webhooks

            sender = Sender(options.allow_local)
            kinds.append(lambda: run_webhooks(memoir, sender, **again))
        if options.nli:
            judge = NliJudge(options.nli)
            judge.load()  # before anything is claimed, so that a wrong folder is no fault of the work
            kinds.append(lambda: run_judge(memoir, judge, **again))
        total = sum(kind() for kind in kinds) if options.once else _side_by_side(kinds, stop)
    log.info("stopped after %d", total)


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
