"""How facts that change are kept: FactConsolidation (MemoryAgentBench), numbered facts of which the newest of two that conflict is right.

    python -m research.consolidation --data 6k.json

Each fact is given with remember, in order. Two conflict where they begin the same and end in other values. Printed: how many
contradicted facts are superseded, how many others are, and for how many of the newest ones a question that is the beginning of the
fact brings them, and brings none that they contradict.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

from pg_memoir import Memoir

from bench.common import CachedEmbedder, CannotRun, fresh_database, report, run_alone, table

# Where the value of a fact begins, by the sentences of the data.
VALUE = re.compile(
    r"^(.*?(?: is (?:a citizen of|married to|located in the (?:city|continent) of|affiliated with the religion of|famous for"
    r"|associated with the sport of|employed by) | (?:died|was born|was founded) in the city of | was (?:founded|performed|created|developed)"
    r" by | was created in the country of | was written in the language of | speaks the language of | work(?:s|ed) in the (?:field|city) of "
    r"| plays the position of | is ))(.*)$"
)


def read_facts(path: Path) -> list[tuple[str, str, str]]:
    """The facts of a file in their order: (fact, its beginning, its value)."""
    context = json.loads(path.read_text())[0]["context"]
    facts = [line.split(". ", 1)[1] for line in context.splitlines() if re.match(r"\d+\. ", line)]
    return [(fact, *match.groups()) for fact in facts if (match := VALUE.match(fact))]


def measure(memoir: Memoir, facts: list[tuple[str, str, str]], embed: CachedEmbedder) -> list[list[str | int]]:
    """Rows of the table: what, how many, of how many."""
    user, ids, contradicted, newest = "facts", {}, {}, {}
    for fact, beginning, value in facts:
        found = memoir.remember(user, fact)
        ids[fact] = str(found["memory_id"])
        if beginning in newest and newest[beginning][1] != value:
            contradicted.setdefault(beginning, []).append(newest[beginning][0])
        newest[beginning] = fact, value
    memoir.embed_backlog(embed)
    old = {fact for several in contradicted.values() for fact in several}
    ended = {str(m.memory_id) for m in memoir.list_memories(user, states=["superseded"], limit=1000)}
    right, clean = 0, 0
    for beginning, stale in contradicted.items():
        vector = embed([beginning])[0]
        text = str(memoir.compile_context(user, "asks", f"{beginning.strip()}?", query_embedding=vector))
        right += newest[beginning][0] in text
        clean += not any(fact in text for fact in stale)
    return [
        ["contradicted facts superseded", sum(ids[fact] in ended for fact in old), len(old)],
        ["other facts superseded", sum(ids[fact] in ended for fact in ids if fact not in old), len(ids) - len(old)],
        ["newest fact recalled", right, len(contradicted)],
        ["no contradicted one beside it", clean, len(contradicted)],
    ]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, required=True, help="a file of FactConsolidation lists")


def run(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Measures in a database of its own."""
    embed = CachedEmbedder()
    with fresh_database("consolidation", options.keep) as dsn, Memoir(dsn) as memoir:
        rows = measure(memoir, read_facts(options.data), embed)
    return [report("consolidation", table(["facts given with remember", "count", "of"], rows))]


if __name__ == "__main__":
    sys.exit(
        run_alone("research.consolidation", __doc__, add_arguments, run, keep=True, expected=(CannotRun, ValueError))
    )
