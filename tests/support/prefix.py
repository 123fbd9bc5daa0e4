"""Sessions of hundreds of turns, compiled before every turn, to see how often the list's prefix survives."""

from __future__ import annotations

import json
import random
import uuid
from dataclasses import dataclass, field
from typing import Any

import psycopg
from generators import sentence, tool_step
from psycopg.types.json import Jsonb

Message = dict[str, Any]


@dataclass
class Simulation:
    """What a session's compiles had in common, each with the one before it.

    `full`: compiles since the window no longer held all turns; `kept`, of those, kept the prefix whole; `kept_sliding`: so
    would a plain suffix of the same tokens that moves by as little as it must. `unexplained`: breaks other than a step of the
    first shown turn; `wrong_hashes`: prefix hashes that changed without the prefix, or the reverse.
    """

    compiles: int = 0
    full: int = 0
    kept: int = 0
    kept_sliding: int = 0
    steps: list[int] = field(default_factory=list)
    unexplained: list[str] = field(default_factory=list)
    wrong_hashes: list[str] = field(default_factory=list)

    def summary(self) -> str:
        return (
            f"{self.compiles} compiles, {self.full} with a full window: prefix kept in {self.kept} ({self.kept / max(1, self.full):.0%}), "
            f"by a sliding suffix in {self.kept_sliding} ({self.kept_sliding / max(1, self.full):.0%}), steps at {self.steps}"
        )


def simulate(connection: psycopg.Connection, seed: str, turns: int, budget: int, tools: float) -> Simulation:
    """Runs a session of `turns` exchanges; with `tools`, some of them call tools and are compiled within the loop."""
    rng = random.Random(seed)
    user = f"p-{uuid.uuid4().hex[:16]}"
    out = Simulation()
    connection.execute(
        "select memoir.open_session(%s, 's', p_system_prompt => %s)", (user, "You are a careful assistant.")
    )
    previous: dict[str, Any] | None = None
    tokens: list[int] = []
    for turn in range(turns):
        query = sentence(rng, rng.randint(4, 30))
        previous = _compile(connection, out, user, turn, previous, tokens, budget, query)
        messages: list[Message] = [{"role": "user", "content": query}]
        while rng.random() < tools:
            messages += tool_step(rng, 8, False)
            tokens += _append(connection, user, messages)
            messages = []
            previous = _compile(connection, out, user, turn, previous, tokens, budget, None)
        messages.append(
            {
                "role": "assistant",
                "content": " ".join(sentence(rng, rng.randint(5, 25)) for _ in range(rng.randint(1, 4))),
            }
        )
        tokens += _append(connection, user, messages)
    return out


def _append(connection: psycopg.Connection, user: str, messages: list[Message]) -> list[int]:
    """Persists messages; returns the tokens of each, as the history has them."""
    done = connection.execute("select memoir.append_messages(%s, 's', %s)", (user, Jsonb(messages))).fetchone()[0]
    rows = connection.execute("select memoir.history(%s, 's', %s)", (user, done["from_turn"])).fetchall()
    return [row[0]["tokens"] + 4 for row in rows]


def _compile(
    connection: psycopg.Connection,
    out: Simulation,
    user: str,
    turn: int,
    before: dict[str, Any] | None,
    tokens: list[int],
    budget: int,
    query: str | None,
) -> dict[str, Any]:
    now = connection.execute("select memoir.context(%s, 's', %s, %s)", (user, query, budget)).fetchone()[0]
    now["first"] = min(now["turns"], default=0)
    out.compiles += 1
    if before is None:
        return now
    # What a cache can reuse: everything up to the newest message of the former list that does not change with the query.
    prefix = _bytes(before["messages"][: before["prefix_messages"]])
    same = _bytes(now["messages"][: before["prefix_messages"]]) == prefix
    # A plain sliding suffix of as many tokens as this window holds: where it begins now, where it began before.
    shown = sum(tokens[now["first"] :])
    now["sliding"] = _suffix(tokens, max(shown, before.get("shown", 0)))
    now["shown"] = max(shown, before.get("shown", 0))
    if now["first"] > 0:
        out.full += 1
        out.kept += same
        out.kept_sliding += now["sliding"] == before.get("sliding")
    if not same:
        if now["first"] > before["first"]:
            out.steps.append(turn)
        else:
            out.unexplained.append(
                f"turn {turn}: the prefix of {before['prefix_messages']} messages changed, the first shown turn stayed {now['first']}"
            )
    own = _bytes(now["messages"][: now["prefix_messages"]])
    if (own == prefix) != (now["prefix_hash"] == before["prefix_hash"]):
        out.wrong_hashes.append(
            f"turn {turn}: prefix {'same' if own == prefix else 'changed'}, hash {before['prefix_hash'][:8]} then {now['prefix_hash'][:8]}"
        )
    return now


def _bytes(messages: list[Message]) -> str:
    return json.dumps(messages, ensure_ascii=False)


def _suffix(tokens: list[int], room: int) -> int:
    """The first turn of the longest suffix of at most `room` tokens."""
    first = len(tokens)
    while first and (room := room - tokens[first - 1]) >= 0:
        first -= 1
    return first
