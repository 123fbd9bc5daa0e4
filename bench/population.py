"""A made-up population to measure speed on: a few users of full size among a thousand, words with a natural distribution."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

import psycopg
from psycopg.types.json import Jsonb

from .common import progress

DIMENSION = 384
TURNS_PER_SESSION = 50


@dataclass(frozen=True)
class Size:
    """How many users, and what the measured (`full`) and the other (`small`) ones have."""

    users: int = 1000
    full: int = 4
    full_turns: int = 5000
    full_memories: int = 1000
    small_turns: int = 20
    small_memories: int = 5

    def describe(self) -> str:
        return (
            f"{self.full} measured users with {self.full_turns} turns in {self.full_turns // TURNS_PER_SESSION} sessions and "
            f"{self.full_memories} memories each, among {self.users} (the others: {self.small_turns} turns, {self.small_memories} memories)"
        )


STOP_WORDS = "the a of and to in is was it that for on with as at by this i you we not be are have do what when".split()
# Rank offset (Zipf-Mandelbrot): the most frequent word that is no stop word makes up half a percent of a text, as in English.
OFFSET = 30


class Words:
    """Sentences of made-up words, nearly half of them English stop words, the others as frequent as 1 / (rank + OFFSET)."""

    def __init__(self, rng: random.Random, count: int = 20000) -> None:
        self._rng = rng
        syllables = [a + b for a in "bcdfghklmnprstvw" for b in ("a", "e", "i", "o", "u", "an", "er", "ol")]
        words: dict[str, None] = {}
        while len(words) < count:
            words["".join(rng.choice(syllables) for _ in range(rng.randint(2, 4)))] = None
        self._words = list(words)
        self._cumulative = list(accumulate(1 / (rank + OFFSET) for rank in range(1, count + 1)))

    def sentence(self, low: int, high: int) -> str:
        """From `low` to `high` words."""
        count = self._rng.randint(low, high)
        rare = iter(self._rng.choices(self._words, cum_weights=self._cumulative, k=count))
        words = [self._rng.choice(STOP_WORDS) if self._rng.random() < 0.45 else next(rare) for _ in range(count)]
        return " ".join(words).capitalize() + "."


def full_user(number: int) -> str:
    return f"full-{number}"


def last_session(size: Size) -> str:
    return f"session-{size.full_turns // TURNS_PER_SESSION - 1}"


def populate(connection: psycopg.Connection, size: Size, words: Words, rng: random.Random) -> None:
    """Fills a database through the API, gives everything a vector, merges and analyzes as the maintenance jobs would."""
    for number in range(size.users):
        progress(f"user {number + 1} of {size.users}")
        if number < size.full:
            fill(connection, full_user(number), size.full_turns, size.full_memories, words)
        else:
            fill(connection, f"small-{number}", size.small_turns, size.small_memories, words)
    embed(connection, rng)
    progress("merging search structures")
    connection.execute("call memoir.run_job('merge')")
    connection.execute("vacuum analyze")
    progress("")


def fill(connection: psycopg.Connection, user: str, turns: int, memories: int, words: Words) -> None:
    """Stores a user's sessions of 50 turns each, and memories."""
    for session in range(0, turns, TURNS_PER_SESSION):
        messages = list(made_messages(words, min(TURNS_PER_SESSION, turns - session)))
        name = f"session-{session // TURNS_PER_SESSION}"
        connection.execute("select memoir.persist_turn(%s, %s, %s)", (user, name, Jsonb(messages)))
    for _ in range(memories):
        connection.execute("select memoir.remember(%s, %s)", (user, words.sentence(6, 25)))


def made_messages(words: Words, count: int) -> Iterator[dict[str, str]]:
    for place in range(count):
        yield {"role": "assistant" if place % 2 else "user", "content": words.sentence(8, 60)}


def embed(connection: psycopg.Connection, rng: random.Random) -> None:
    """Random vectors for all that waits, through the worker's calls."""
    done = 0
    while claimed := connection.execute("select user_id, item_no, model from memoir.claim_embeddings(1000)").fetchall():
        vectors = [vector(rng) for _ in claimed]
        connection.execute(
            "select memoir.store_embeddings(%s::uuid[], %s::int[], %s::real[][], %s)",
            ([row[0] for row in claimed], [row[1] for row in claimed], vectors, claimed[0][2]),
        )
        done += len(claimed)
        progress(f"{done} vectors")


def vector(rng: random.Random) -> list[float]:
    return [round(rng.gauss(0, 1), 3) for _ in range(DIMENSION)]
