"""How much of the evidence compile_context finds, on several kinds of conversations, with default settings.

    python -m research.evidence --data locomo.json --data realmem/ --data beam/ [--questions 50] [--budgets 1000,2000]

Everything is imported through persist_turn and remember; only what precedes a question exists when it is asked. R@10: share of
the evidence among the ten best turns or memories of the fused ranking. Within n tokens: share of it in the recall of the
compiled list with that memory budget; a long turn counts as found if a part of it is there, and under "its text" by the share of
its characters that is. All are means over questions, in percent; a question without evidence only counts for its tokens.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from pg_memoir import Memoir

from bench.common import CachedEmbedder, CannotRun, fresh_database, progress, report, run_alone, table
from bench.datasets import Asked, Corpus, Remembered, Said
from research.conversations import batches, read

BUDGETS = (1000, 2000)


@dataclass
class Found:
    """Per question of one kind: shares of its evidence."""

    ranked: list[float] = field(default_factory=list)
    listed: dict[int, list[float]] = field(default_factory=dict)
    text: dict[int, list[float]] = field(default_factory=dict)
    tokens: dict[int, list[int]] = field(default_factory=dict)
    nothing: dict[int, list[int]] = field(default_factory=dict)  # tokens of questions without evidence
    categories: list[str] = field(default_factory=list)

    def add(self, other: Found) -> None:
        """What was found in another corpus of the kind."""
        self.ranked += other.ranked
        self.categories += other.categories
        for mine, others in zip(
            (self.listed, self.text, self.tokens, self.nothing),
            (other.listed, other.text, other.tokens, other.nothing),
            strict=True,
        ):
            for budget, values in others.items():
                mine.setdefault(budget, []).extend(values)  # type: ignore[arg-type]

    def line(self) -> str:
        """The shares in one line."""
        if not self.ranked:
            return "no question with evidence"
        within = "".join(f", within {budget:,} {_percent(values)}" for budget, values in self.listed.items())
        return f"{len(self.ranked)} questions, R@10 {_percent(self.ranked)}{within}"


@dataclass
class Stored:
    """What an event became: its id and its length in characters."""

    id: str
    length: int


def store(memoir: Memoir, user: str, events: Sequence[Said | Remembered]) -> dict[str, Stored]:
    """Imports events as any user would."""
    stored = {}
    for batch in batches(events):
        if isinstance(batch, Remembered):
            stored[batch.key] = Stored(
                str(memoir.remember(user, batch.content, created_at=batch.at)["memory_id"]), len(batch.content)
            )
        else:
            done = memoir.persist_turn(user, batch[0].session, [event.message for event in batch])
            for event, number in zip(batch, done["message_ids"], strict=True):
                stored[event.key] = Stored(str(number), len(event.message["content"]))
    return stored


COMPILED = """
  select v.recall_tokens, c.ref_id, c.position, coalesce(length(regexp_replace(c.shown, '^… | …$', '', 'g')), c.span_length)
  from _memoir.compile(jsonb_populate_record(null::_memoir.compile_state, '{"explained": true}'), %(user)s, %(session)s, %(query)s,
    null, %(budget)s, null, null, %(vector)s::real[], null, null, null, 'openai', null) v
  left join lateral jsonb_array_elements(v.rows) with ordinality r on r.value ->> 'reason' is null or r.value ->> 'reason' <> all (%(unable)s)
  left join lateral jsonb_to_record(r.value) c(ref_id text, "position" integer, shown text, span_length integer) on true
  order by r.ordinality"""
UNABLE = [
    "not active",
    "not valid at that time",
    "evicted from the session",
    "stands in the profile",
    "stands in the list",
]


def ask(
    connection: psycopg.Connection, user: str, question: Asked, vector: list[float], budget: int
) -> tuple[list[str], dict[str, int], int]:
    """(turns and memories as ranked, characters of each that the recall shows, tokens of the recall)."""
    session = question.session or "a session of its own"
    arguments: dict[str, Any] = {
        "unable": UNABLE,
        "user": user,
        "session": session,
        "query": question.text,
        "budget": budget,
        "vector": vector,
    }
    rows = connection.execute(COMPILED, arguments).fetchall()
    shown: dict[str, int] = {}
    for _, ref, position, length in rows:
        if position is not None:
            shown[ref] = shown.get(ref, 0) + length
    return list(dict.fromkeys(row[1] for row in rows if row[1])), shown, rows[0][0]


def measure(
    memoir: Memoir,
    connection: psycopg.Connection,
    embed: CachedEmbedder,
    corpus: Corpus,
    asked: set[int],
    budgets: Sequence[int],
    found: Found,
    extract: bool = False,
) -> None:
    """Replays a corpus: stores what is said, compiles what is asked."""
    user = f"{corpus.kind}: {corpus.name}"
    questions = corpus.questions()
    vectors = dict(
        zip((id(question) for question in questions), embed([question.text for question in questions]), strict=True)
    )
    stored: dict[str, Stored] = {}
    waiting: list[Said | Remembered] = []
    number, analysed = -1, 0
    for event in corpus.events:
        if not isinstance(event, Asked):
            waiting.append(event)
            continue
        number += 1
        if number not in asked:
            continue
        progress(f"{user}: question {number + 1} of {len(questions)}")
        if waiting:
            stored |= store(memoir, user, waiting)
            waiting = []
            memoir.embed_backlog(embed)
            if extract:
                connection.execute("call memoir.run_job('extract', 3600)")
                memoir.embed_backlog(embed)
            connection.execute("call memoir.run_job('merge')")  # as the job does
            if len(stored) > analysed * 1.2:
                connection.execute("analyze _memoir.search_items, _memoir.embeddings, _memoir.search_postings")
                analysed = len(stored)
        gold = {stored[key].id: stored[key].length for key in event.evidence if key in stored}
        for budget in budgets:
            ranked, shown, tokens = ask(connection, user, event, vectors[id(event)], budget)
            if not gold:
                found.nothing.setdefault(budget, []).append(tokens)
                continue
            found.listed.setdefault(budget, []).append(float(np.mean([ref in shown for ref in gold])))
            found.text.setdefault(budget, []).append(
                float(np.mean([min(1, shown.get(ref, 0) / length) for ref, length in gold.items()]))
            )
            found.tokens.setdefault(budget, []).append(tokens)
        if gold:
            found.ranked.append(float(np.mean([ref in ranked[:10] for ref in gold])))
            found.categories.append(event.category)


def tables(found: dict[str, Found], budgets: Sequence[int]) -> list[tuple[str, str]]:
    head = [
        "data",
        "questions",
        "R@10",
        *(f"within {budget:,}" for budget in budgets),
        *(f"its text, {budget:,}" for budget in budgets),
        "tokens",
        "tokens where nothing answers",
    ]
    rows, detail = [], []
    for kind, f in found.items():
        largest = max(budgets)
        nothing = f"{np.mean(f.nothing[largest]):.0f}" if largest in f.nothing else "–"
        rows.append(
            [
                kind,
                len(f.ranked),
                _percent(f.ranked),
                *(_percent(f.listed[b]) for b in budgets),
                *(_percent(f.text[b]) for b in budgets),
                f"{np.mean(f.tokens[largest]):.0f}",
                nothing,
            ]
        )
        for category in sorted(set(f.categories)):
            of = [place for place, name in enumerate(f.categories) if name == category]
            detail.append(
                [
                    f"{kind}: {category}",
                    len(of),
                    _percent([f.ranked[i] for i in of]),
                    *(_percent([f.listed[b][i] for i in of]) for b in budgets),
                ]
            )
    return [
        report("evidence", table(head, rows)),
        report("evidence-by-category", table(head[: 3 + len(budgets)], detail)),
    ]


def _percent(values: Sequence[float]) -> str:
    return f"{100 * np.mean(values):.1f}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options, but for --keep."""
    what = "a LoCoMo file, a folder of RealMem dialogues or of BEAM chats; may be given several times"
    parser.add_argument("--data", type=Path, action="append", metavar="PATH", help=what)
    parser.add_argument(
        "--corpora", default="", help="only corpora whose 'kind: name' contains one of these, with commas"
    )
    parser.add_argument("--set", action="append", default=[], help="a setting to try, key=value")
    parser.add_argument(
        "--extract",
        action="store_true",
        help="with the memories that the job extract makes; evidence is still the turns",
    )
    parser.add_argument(
        "--questions", type=int, default=0, help="a sample of so many questions of each corpus (default: all)"
    )
    parser.add_argument("--budgets", default=",".join(map(str, BUDGETS)), help="memory budgets in tokens (%(default)s)")


def run(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Measures in a database of its own. `options`: of add_arguments, and keep."""
    if not options.data:
        raise CannotRun(
            "no data: give files or folders of conversations with gold evidence (they are not part of the project)"
        )
    rng = random.Random(0)
    budgets = [int(budget) for budget in options.budgets.split(",")]
    only = [part for part in options.corpora.split(",") if part]
    embed = CachedEmbedder()
    found: dict[str, Found] = {}
    with (
        fresh_database("evidence", options.keep) as dsn,
        Memoir(dsn) as memoir,
        psycopg.connect(dsn, autocommit=True) as connection,
    ):
        # What is asked goes to a function that only others call, which pin this themselves.
        connection.execute("set search_path = pg_catalog, memoir_extensions, pg_temp")
        for setting in options.set:
            key, _, value = setting.partition("=")
            connection.execute("select memoir.set_setting(%s, %s::jsonb)", (key, value))
        for corpus in (corpus for path in options.data for corpus in read(path)):
            if only and not any(part in f"{corpus.kind}: {corpus.name}" for part in only):
                continue
            count = len(corpus.questions())
            asked = set(rng.sample(range(count), min(options.questions, count)) if options.questions else range(count))
            started, here = time.process_time(), Found()
            measure(memoir, connection, embed, corpus, asked, budgets, here, options.extract)
            found.setdefault(corpus.kind, Found()).add(here)
            progress("")
            spent = time.process_time() - started
            print(f"{corpus.kind}: {corpus.name}: {here.line()}; {spent:.0f} s of the client's CPU", flush=True)
    return tables(found, budgets)


if __name__ == "__main__":
    sys.exit(run_alone("research.evidence", __doc__, add_arguments, run, keep=True, expected=(CannotRun, ValueError)))
