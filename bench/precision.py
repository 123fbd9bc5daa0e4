"""Precision of recall on PrecisionMemBench: is what should be recalled there, and nothing else?

    python -m bench.precision --precision FOLDER

FOLDER holds beliefs.seed.json, retrieval.cases.json and session-retrieval.cases.json, or part of the cases. Every belief is remembered
with its aliases, its scope as project; what supersedes another as a newer value of the same slot, a question that was resolved as
true until then. Each query is compiled with default settings in a session that holds nothing else; what counts is which memories the
recall shows. As in the benchmark: beliefs pinned in the query's scope are apart, since they are there whatever is asked, and fill the
case's limit first. Precision: share of what is recalled that is expected; where nothing is expected, 0 if anything is recalled,
else the case doesn't count. Noise: queries for which nothing is expected. Superseded: beliefs that have a successor.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from pg_memoir import Memoir

from .common import CachedEmbedder, CannotRun, fresh_database, progress, report, run_alone, table

USER = "test-user"
LIMIT = 20
Belief = dict[str, Any]


@dataclass
class Query:
    """What is asked, in which scopes, with how many beliefs at most, and which are expected."""

    name: str
    text: str
    scope: list[str]
    expected: set[str]
    limit: int = LIMIT
    # what happens after it: a belief made, aliases added to one
    made: Belief | None = None
    added: tuple[str, list[str]] | None = None


@dataclass
class Answers:
    """Per query of one kind: which beliefs were recalled beside the pinned ones, and what was expected."""

    recalled: list[list[str]] = field(default_factory=list)
    shown: list[set[str]] = field(default_factory=list)  # with the pinned ones
    expected: list[set[str]] = field(default_factory=list)

    def precision(self) -> float:
        values = [
            len(expected & set(recalled)) / len(recalled) if recalled else 0.0
            for recalled, expected in zip(self.recalled, self.expected, strict=True)
            if recalled or expected
        ]
        return float(np.mean(values))

    def recall(self) -> float:
        pairs = zip(self.recalled, self.expected, strict=True)
        return float(
            np.mean([len(expected & set(recalled)) / len(expected) for recalled, expected in pairs if expected])
        )


def project(scopes: Sequence[str]) -> str:
    return "global" if scopes[0] == "user:universal" else scopes[0]


def roots(beliefs: Sequence[Belief]) -> dict[str, str]:
    """Beliefs that supersede one another → the last of them."""
    after = {b["_id"]: b["superseded_by"] for b in beliefs if b.get("superseded_by")}
    found = {}
    for name in {*after, *after.values()}:
        last = name
        while last in after:
            last = after[last]
        found[name] = last
    return found


def in_order(beliefs: Sequence[Belief]) -> list[Belief]:
    """What is superseded comes before what supersedes it."""
    after = {b["_id"]: b.get("superseded_by") for b in beliefs}

    def steps(name: str | None) -> int:
        return 1 + steps(after.get(name)) if name else 0

    return sorted(beliefs, key=lambda b: -steps(b["_id"]))


def store(memoir: Memoir, beliefs: Sequence[Belief]) -> dict[str, str]:
    """Remembers beliefs; memory → belief."""
    slots, stored = roots(beliefs), {}
    for belief in in_order(beliefs):
        memory = memoir.remember(
            belief["user_id"],
            belief["content"],
            aliases=belief["aliases"],
            project=project(belief["scope"]),
            type=belief["type"] if belief["type"] in ("preference", "decision") else "fact",
            slot=slots.get(belief["_id"]),
            valid_to=belief.get("resolved_at"),
        )
        stored[str(memory["memory_id"])] = belief["_id"]
    return stored


def pinned(beliefs: Sequence[Belief], scope: Sequence[str]) -> set[str]:
    return {
        b["_id"]
        for b in beliefs
        if b["user_id"] == USER
        and b["pinned"]
        and b["type"] != "open_question"
        and not (b.get("superseded_by") or b.get("resolved_at"))
        and set(b["scope"]) & set(scope)
    }


def expected_of(expect: dict[str, Any]) -> set[str]:
    beliefs = expect.get("relevantBeliefs") or {}
    return set(beliefs.get("shouldOnlyInclude", beliefs.get("mustInclude", [])))


def cases(folder: Path) -> dict[str, list[Query]]:
    """Queries by kind. Raises OSError where a file lacks."""
    single = [
        Query(
            case["caseId"],
            case["query"],
            case["scope"],
            expected_of(case["expect"]),
            case.get("budget", {}).get("maxBeliefs", LIMIT),
        )
        for case in json.loads((folder / "retrieval.cases.json").read_text())
        if case.get("userId", USER) == USER
    ]
    turns = []
    for session in json.loads((folder / "session-retrieval.cases.json").read_text()):
        for turn in session["turns"]:
            query = Query(
                f"{session['caseId']}: {turn['turnIndex']}",
                turn["userMessage"],
                turn["scope"],
                expected_of(turn["expect"]),
            )
            query.made = turn.get("createBeliefAtTurn")
            if update := turn.get("updateBeliefAtTurn"):
                query.added = (update["beliefId"], update.get("addAliases", []))
            turns.append(query)
    return {"single queries": single, "turns of a session": turns}


def ask(connection: psycopg.Connection, embed: CachedEmbedder, query: Query, number: int) -> list[str]:
    """Memories in the recall, as they stand there."""
    if not query.text.strip():
        return []
    session = f"asking {number}"
    connection.execute("select memoir.open_session(%s, %s, p_project => %s)", (USER, session, project(query.scope)))
    context = connection.execute(
        "select memoir.context(%s, %s, %s, p_query_embedding => %s::real[])",
        (USER, session, query.text, embed([query.text])[0]),
    ).fetchone()[0]
    return list(context["items"])


def measure(
    memoir: Memoir, connection: psycopg.Connection, folder: Path, verbose: bool
) -> tuple[dict[str, Answers], set[str]]:
    beliefs: list[Belief] = json.loads((folder / "beliefs.seed.json").read_text())
    embed, found, number = CachedEmbedder(), {}, 0
    stored = store(memoir, beliefs)
    memoir.embed_backlog(embed)
    for kind, queries in cases(folder).items():
        answers = found.setdefault(kind, Answers())
        for query in queries:
            number += 1
            progress(query.name)
            shown = [stored[item] for item in ask(connection, embed, query, number)]
            apart = pinned(beliefs, query.scope)
            recalled = [name for name in shown if name not in apart][: max(0, query.limit - len(apart))]
            answers.recalled.append(recalled)
            answers.shown.append(set(shown))
            answers.expected.append(query.expected)
            if verbose:
                print(
                    f"{query.name}: {query.text[:90]!r}\n    recalled {recalled}\n    lacks {sorted(query.expected - set(recalled))}",
                    file=sys.stderr,
                )
            if query.made:
                beliefs.append(query.made)
                stored |= store(memoir, [query.made])
            if query.added:  # restated with further aliases
                belief = next(b for b in beliefs if b["_id"] == query.added[0])
                stored |= store(memoir, [belief | {"aliases": [*belief["aliases"], *query.added[1]]}])
            memoir.embed_backlog(embed)
    progress("")
    return found, {b["_id"] for b in beliefs if b.get("superseded_by")}


def tables(found: dict[str, Answers], superseded: set[str]) -> list[tuple[str, str]]:
    head = [
        "queries",
        "number",
        "must include, found",
        "precision",
        "recall",
        "noise queries empty",
        "superseded shown",
        "recalled, mean",
    ]
    rows = []
    for kind, answers in found.items():
        pairs = list(zip(answers.recalled, answers.expected, strict=True))
        noise = [recalled for recalled, expected in pairs if not expected]
        hits = sum(len(expected & set(recalled)) for recalled, expected in pairs)
        rows.append(
            [
                kind,
                len(pairs),
                f"{hits} of {sum(len(expected) for _, expected in pairs)}",
                f"{answers.precision():.3f}",
                f"{answers.recall():.3f}",
                f"{sum(not recalled for recalled in noise)} of {len(noise)}",
                sum(len(shown & superseded) for shown in answers.shown),
                f"{np.mean([len(recalled) for recalled, _ in pairs]):.1f}",
            ]
        )
    return [report("precision", table(head, rows))]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--precision", type=Path, metavar="FOLDER", help="a folder with the files of PrecisionMemBench")


def run(options: argparse.Namespace) -> list[tuple[str, str]]:
    if options.precision is None:
        raise CannotRun("no data: give the folder of PrecisionMemBench's fixtures (they are not part of the project)")
    with (
        fresh_database("precision") as dsn,
        Memoir(dsn) as memoir,
        psycopg.connect(dsn, autocommit=True) as connection,
    ):
        return tables(*measure(memoir, connection, options.precision, getattr(options, "verbose", False)))


def _options(parser: argparse.ArgumentParser) -> None:
    add_arguments(parser)
    parser.add_argument("--verbose", action="store_true", help="print each query and what was recalled for it")


if __name__ == "__main__":
    sys.exit(run_alone("bench.precision", __doc__, _options, run, expected=(CannotRun, OSError)))
