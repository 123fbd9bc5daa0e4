"""Processor time of calls as life has them: strong and weak questions, words that the store lacks, small talk, an exchange stored.

    python -m bench.life [--queries 40] [--beside BUILD]

Vectors belong to their texts: each word has one, a text's is their sum. A strong question has seven words of something that was
said, a weak one any words; an unknown word is a known one with a letter changed. Each is asked of a user of 300 items and of one of
6,000, beside the bare scans of bench.latency. BUILD: a folder of scripts/build_sql.sh, another version's: both answer the same
questions in turn.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import sys
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import psycopg
from psycopg.types.json import Jsonb

from .common import CannotRun, fresh_database, percentile, progress, report, run_alone, table
from .latency import COMPILE, FLOOR, Query, processor_time
from .population import DIMENSION, STOP_WORDS, Words

WARM_UP = 8
SIZES = {300: (250, 50), 6000: (5000, 1000)}  # items: turns, memories
SESSION = 50
RECALL = "select jsonb_agg(to_jsonb(r)) from memoir.recall(%s, %s, p_query_embedding => %s::real[]) r"
PERSIST = "select memoir.persist_turn(%s, %s, %s)"


@dataclass
class Said:
    """What a user of this size has: texts by session, and memories."""

    size: int
    sessions: list[list[str]]
    memories: list[str]

    @property
    def user(self) -> str:
        return f"life-{self.size}"

    @property
    def last(self) -> str:
        return f"session-{len(self.sessions) - 1}"


@dataclass
class Side:
    """A version, and the milliseconds that each kind of call took there."""

    name: str
    connection: psycopg.Connection
    times: dict[str, list[float]] = field(default_factory=dict)

    def ran(self, query: str, values: object) -> float:
        """Milliseconds that the backend ran for it."""
        pid = self.connection.info.backend_pid
        before = processor_time(pid)
        self.connection.execute(query, values).fetchone()
        time.sleep(0.0008)  # a process's account is settled when it goes to sleep
        after = processor_time(pid)
        if before is None or after is None:
            raise CannotRun("the kernel does not say how long the backend ran")
        return after - before


def vector(text: str) -> list[float]:
    """The sum of the vectors of its words, of length 1."""
    words = [word for word in text.lower().strip(".?!").split() if word not in STOP_WORDS] or ["nothing"]
    total = sum(np.random.default_rng(zlib.crc32(word.encode())).standard_normal(DIMENSION) for word in words)
    return [round(float(x), 4) for x in total / np.linalg.norm(total)]


def make(size: int, words: Words) -> Said:
    turns, memories = SIZES[size]
    sessions = [[words.sentence(8, 60) for _ in range(SESSION)] for _ in range(turns // SESSION)]
    return Said(size, sessions, [words.sentence(6, 25) for _ in range(memories)])


def exchange(texts: list[str]) -> Jsonb:
    return Jsonb([{"role": "assistant" if n % 2 else "user", "content": text} for n, text in enumerate(texts)])


def fill(connection: psycopg.Connection, said: Said) -> None:
    progress(f"{said.user}: texts")
    for number, texts in enumerate(said.sessions):
        connection.execute(PERSIST, (said.user, f"session-{number}", exchange(texts)))
    for text in said.memories:
        connection.execute("select memoir.remember(%s, %s)", (said.user, text))
    while rows := connection.execute(
        "select item_no, user_id, model, text from memoir.claim_embeddings(500)"
    ).fetchall():
        connection.execute(
            "select memoir.store_embeddings(%s::uuid[], %s::int[], %s::real[][], %s)",
            ([row[1] for row in rows], [row[0] for row in rows], [vector(row[3]) for row in rows], rows[0][2]),
        )
    connection.execute("call memoir.run_job('merge')")
    progress("")


def asked(said: Said, words: Words, rng: random.Random) -> dict[str, str]:
    """A question of each kind."""
    telling = [w for w in rng.choice(rng.choice(said.sessions)).lower().strip(".").split() if w not in STOP_WORDS]
    strong = " ".join(rng.sample(telling, min(7, len(telling))))
    known = [w for w in words.sentence(40, 40).lower().strip(".").split() if len(w) > 6][:4]
    unknown = [w[:3] + "x" + w[4:] for w in known]
    return {
        "strong question": f"What about {strong}?",
        "weak question": words.sentence(5, 12)[:-1] + "?",
        "strong, one unknown word": f"What about {strong} {' '.join(unknown[:1])}?",
        "strong, four unknown words": f"What about {strong} {' '.join(unknown)}?",
        "strong, four unknown names": f"What about {strong} {' '.join(w.capitalize() for w in unknown)}?",
        "small talk": "Thanks!",
        "recall, strong": strong,
        "recall, four unknown words": f"{strong} {' '.join(unknown)}",
        "persist_turn, two short messages": words.sentence(6, 14),
    }


def measure(sides: list[Side], said: Said, words: Words, count: int) -> str:
    """The table of one size."""
    rng = random.Random(said.size)
    scans: list[float] = []
    for side in sides:
        side.times = {}
    for number in range(count + WARM_UP):
        for kind, text in asked(said, words, rng).items():
            given = vector(text)
            if kind.startswith("recall"):
                query, values = RECALL, (said.user, text, given)
            elif kind.startswith("persist"):
                query, values = PERSIST, (said.user, "new", exchange([text, "Noted: " + text]))
            else:
                query, values = COMPILE, (said.user, said.last, text, given)
            for side in sides if number % 2 else sides[::-1]:
                spent = side.ran(query, values)
                if number >= WARM_UP:
                    side.times.setdefault(kind, []).append(spent)
            if kind == "strong question":
                floor = Query(sides[-1].connection, said.user, said.last, text, given).floor
                scans += [sides[-1].ran(FLOOR, floor)][: number >= WARM_UP]
    bare = percentile(scans, 0.5)
    rows = [["bare scans", *["" for _ in sides[1:]], f"{bare:.2f}", "1.00", *["" for _ in sides[1:]]]]
    for kind in sides[0].times:
        spent = [percentile(side.times[kind], 0.5) for side in sides]
        share = [f"{spent[-1] / spent[0]:.2f}"] if len(sides) > 1 else []
        rows.append([kind, *(f"{ms:.2f}" for ms in spent), f"{spent[-1] / bare:.2f}", *share])
    head = [f"ms of processor time, {said.size} items", *(side.name for side in sides), "to the scans"]
    return table([*head, "to the other"] if len(sides) > 1 else head, rows)


@contextlib.contextmanager
def installed(name: str, build: str | None) -> Iterator[Side]:
    before = os.environ.get("PG_MEMOIR_BUILD")
    if build:
        os.environ["PG_MEMOIR_BUILD"] = build
    with contextlib.ExitStack() as stack:
        dsn = stack.enter_context(fresh_database("life"))
        if build:
            os.environ.pop("PG_MEMOIR_BUILD")
            os.environ.update({"PG_MEMOIR_BUILD": before} if before else {})
        yield Side(name, stack.enter_context(psycopg.connect(dsn, autocommit=True, prepare_threshold=None)))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that `python -m bench` shares."""
    parser.add_argument("--queries", type=int, default=40, help="calls measured of each kind (%(default)s)")
    parser.add_argument("--beside", metavar="BUILD", help="another version's build, measured in turn with this one")


def run(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Measures in databases of its own."""
    words = Words(random.Random(7))
    worlds = [make(size, words) for size in SIZES]
    with contextlib.ExitStack() as stack:
        sides = [stack.enter_context(installed("the other", options.beside))] if options.beside else []
        sides.append(stack.enter_context(installed("this", None)))
        for side in sides:
            for said in worlds:
                fill(side.connection, said)
            side.connection.execute("vacuum analyze")
        return [report("life", "\n\n".join(measure(sides, said, words, options.queries) for said in worlds))]


if __name__ == "__main__":
    sys.exit(run_alone("bench.life", __doc__, add_arguments, run))
