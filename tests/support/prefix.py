"""Sessions of hundreds of turns, compiled before every turn, to see how often the list's prefix survives."""

import json
import random
import uuid
from dataclasses import dataclass, field
from typing import Any

from calls import Db, call, messages, table
from generators import WORDS
from loops import append, step

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
    unexplained: list[str] = field(default_factory=list)
    wrong_hashes: list[str] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)  # of each turn


def simulate(db: Db, seed: int, turns: int, budget: int, tools: float) -> Simulation:
    """Runs a session of `turns` exchanges; with `tools`, some of them call tools and are compiled within the loop."""
    rng, user, seen = random.Random(seed), f"p-{uuid.uuid4().hex[:16]}", Simulation()
    call(db, "open_session", user, "s", system_prompt="You are a careful assistant.")
    before: dict[str, Any] | None = None
    for turn in range(turns):
        query = _sentence(rng, 4, 30)
        before = _compile(db, seen, user, before, budget, query)
        said: list[Message] = messages(query)
        while rng.random() < tools:
            _append(db, seen, user, [*said, *step(len(seen.tokens), "look", {"at": turn}, _sentence(rng, 5, 60))])
            said = []
            before = _compile(db, seen, user, before, budget, None)
        _append(db, seen, user, [*said, {"role": "assistant", "content": _sentence(rng, 10, 60)}])
    return seen


def _sentence(rng: random.Random, least: int, most: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(least, most))) + "."


def _append(db: Db, seen: Simulation, user: str, said: list[Message]) -> None:
    first = append(db, user, said)["from_turn"]
    seen.tokens += [turn["tokens"] + 4 for (turn,) in table(db, "history", user, "s", first)]


def _compile(
    db: Db, seen: Simulation, user: str, before: dict[str, Any] | None, budget: int, query: str | None
) -> dict[str, Any]:
    now: dict[str, Any] = call(db, "context", user, "s", query, budget)
    now["first"] = min(now["turns"], default=0)
    seen.compiles += 1
    if before is None:
        return now
    # What a cache can reuse: everything up to the newest message of the former list that does not change with the query.
    prefix = json.dumps(before["messages"][: before["prefix_messages"]])
    same = json.dumps(now["messages"][: before["prefix_messages"]]) == prefix
    # A plain sliding suffix of as many tokens as this window holds: where it begins now, where it began before.
    now["shown"] = max(sum(seen.tokens[now["first"] :]), before.get("shown", 0))
    now["sliding"] = _find_suffix(seen.tokens, now["shown"])
    if now["first"] > 0:
        seen.full += 1
        seen.kept += same
        seen.kept_sliding += now["sliding"] == before.get("sliding")
    where = f"compile {seen.compiles}"
    if not same and now["first"] <= before["first"]:
        seen.unexplained.append(f"{where}: the prefix changed, the first shown turn stayed {now['first']}")
    own = json.dumps(now["messages"][: now["prefix_messages"]])
    if (own == prefix) != (now["prefix_hash"] == before["prefix_hash"]):
        seen.wrong_hashes.append(f"{where}: prefix {'same' if own == prefix else 'changed'}, the hash not")
    return now


def _find_suffix(tokens: list[int], room: int) -> int:
    """The first turn of the longest suffix of at most `room` tokens."""
    first = len(tokens)
    while first and (room := room - tokens[first - 1]) >= 0:
        first -= 1
    return first
