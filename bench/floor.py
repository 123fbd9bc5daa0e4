"""What the floor of relevance costs and saves: evidence against tokens, with and without it, and what is recalled for nothing.

    python -m bench.floor --data locomo.json --data realmem/ --data beam/ [--questions 40] [--budgets 500,1000,2000,4000]

Everything is stored first, as in bench.evidence; then each message is compiled with default settings and once more with the floor off
(no share of the best score, no small talk, no weak recalls). Asked are: questions that something answers; BEAM's questions that
nothing in the chat answers; questions about other conversations of the same kind, which nothing here answers; and small talk, in
words that no setting was made with. Evidence: share of it in the recall. Tokens: those of the recall.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import psycopg
from pg_memoir import Memoir
from psycopg.types.json import Jsonb

from .common import CachedEmbedder, CannotRun, fresh_database, progress, report, run_alone, table
from .datasets import Asked, Corpus, read
from .evidence import add_arguments, store

BUDGETS = (500, 1000, 2000, 4000)
OFF = {"relevance_floor": 0, "relevance_share": 0, "weak_below": 0, "small_talk_words": 0}
SMALL_TALK = """Hello again!|hi, good to see you|good afternoon|morning!|hey hey|thank you, you've been very helpful|many thanks|cheers, appreciate it|great, thank you!|ok thanks
yes, exactly|yep, sounds great|no thank you|no, not really|of course|alright then|that makes sense|perfect, that's great|wonderful!|oh nice|haha good one|wow amazing|bye for now|see you soon
talk to you later|take care!|have a good weekend|sleep well|go ahead please|carry on|just a second|wait a moment|no worries at all|sorry about that|my bad|well done!|how are things?|how are you doing today?
what's new?|are you there?""".replace("\n", "|").split("|")


@dataclass
class Row:
    """What was recalled for one message at one budget: [with the floor, without]."""

    evidence: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    weak: bool = False


Asking = tuple[str, str, frozenset[str]]  # what kind of message, its text, the ids that answer it


def compiled(
    connection: psycopg.Connection, user: str, text: str, vector: list[float], budget: int
) -> tuple[set[str], int, bool]:
    context = connection.execute(
        "select memoir.context(p_user => %s, p_session => 'a session of its own', p_query => %s, p_memory_budget => %s, p_query_embedding => %s::real[])",
        (user, text, budget, vector),
    ).fetchone()[0]
    return set(context["items"]), context["recall_tokens"], context["weak"]


def measure(
    memoir: Memoir,
    connection: psycopg.Connection,
    embed: CachedEmbedder,
    corpus: Corpus,
    asking: Sequence[Asking],
    budgets: Sequence[int],
    found: dict[tuple[str, int], list[Row]],
) -> None:
    user = f"{corpus.kind}: {corpus.name}"
    stored = store(memoir, user, corpus.items())
    memoir.embed_backlog(embed)
    connection.execute("call memoir.merge_search()")
    connection.execute("analyze _memoir.search_items, _memoir.embeddings, _memoir.search_postings")
    vectors = embed([text for _, text, _ in asking])
    rows: list[dict[int, Row]] = [{budget: Row() for budget in budgets} for _ in asking]
    for off in (False, True):
        connection.execute(
            "select memoir.set_user_settings(%s, %s)",
            (user, Jsonb({key: value if off else None for key, value in OFF.items()})),
        )
        for number, ((_, text, keys), vector) in enumerate(zip(asking, vectors, strict=True)):
            progress(f"{user}: {'without' if off else 'with'} the floor, message {number + 1} of {len(asking)}")
            gold = {stored[key].id for key in keys}
            for budget in budgets:
                shown, tokens, weak = compiled(connection, user, text, vector, budget)
                row = rows[number][budget]
                row.tokens.append(tokens)
                row.evidence.append(len(gold & shown) / len(gold) if gold else 0.0)
                row.weak = row.weak or weak
    for (what, _, _), by_budget in zip(asking, rows, strict=True):
        for budget, row in by_budget.items():
            found.setdefault((what, budget), []).append(row)


def tables(found: dict[tuple[str, int], list[Row]], budgets: Sequence[int]) -> list[tuple[str, str]]:
    head = [
        "messages",
        "number",
        "marked weak, %",
        *(f"{budget:,}: evidence without, with" for budget in budgets),
        "kept, %",
        *(f"{budget:,}: tokens without, with" for budget in budgets),
    ]
    rows = []
    for what in dict.fromkeys(what for what, _ in found):
        of = {budget: found[what, budget] for budget in budgets}
        some = of[budgets[-1]]
        answered = any(sum(row.evidence) for row in some)
        means = {budget: np.mean([row.evidence for row in of[budget]], axis=0) for budget in budgets}
        tokens = {budget: np.mean([row.tokens for row in of[budget]], axis=0) for budget in budgets}
        kept = " / ".join(f"{100 * means[b][0] / means[b][1]:.1f}" for b in budgets) if answered else "–"
        rows.append(
            [
                what,
                len(some),
                f"{100 * np.mean([row.weak for row in some]):.0f}",
                *(f"{100 * means[b][1]:.1f}, {100 * means[b][0]:.1f}" if answered else "–" for b in budgets),
                kept,
                *(f"{tokens[b][1]:.0f}, {tokens[b][0]:.0f}" for b in budgets),
            ]
        )
    return [report("floor", table(head, rows))]


def run(options: argparse.Namespace) -> list[tuple[str, str]]:
    if not options.evidence:
        raise CannotRun(
            "no data: give files or folders of conversations with gold evidence (they are not part of the project)"
        )
    rng = random.Random(0)
    budgets = [int(budget) for budget in options.budgets.split(",")]
    only = [part for part in options.corpora.split(",") if part]
    corpora = [corpus for path in options.evidence for corpus in read(path)]
    embed = CachedEmbedder()
    found: dict[tuple[str, int], list[Row]] = {}
    with (
        fresh_database("floor", options.keep) as dsn,
        Memoir(dsn) as memoir,
        psycopg.connect(dsn, autocommit=True) as connection,
    ):
        for setting in options.set:
            key, _, value = setting.partition("=")
            connection.execute("select memoir.set_setting(%s, %s::jsonb)", (key, value))
        for corpus in corpora:
            if only and not any(part in f"{corpus.kind}: {corpus.name}" for part in only):
                continue

            def some(questions: list[Asked], number: int) -> list[Asked]:
                return rng.sample(questions, min(number, len(questions))) if options.questions else questions

            number = options.questions
            asking: list[Asking] = [
                (f"{corpus.kind}: answered", q.text, frozenset(q.evidence))
                for q in some([q for q in corpus.questions() if q.evidence], number)
            ]
            asking += [
                (f"{corpus.kind}: unanswered", q.text, frozenset()) for q in corpus.questions() if not q.evidence
            ]
            others = [
                q
                for other in corpora
                if other.kind == corpus.kind and other.name != corpus.name
                for q in other.questions()
                if q.evidence
            ]
            asking += [
                (f"{corpus.kind}: of others", q.text, frozenset())
                for q in rng.sample(others, min(max(number // 2, 20), len(others)))
            ]
            asking += [(f"{corpus.kind}: small talk", text, frozenset()) for text in SMALL_TALK]
            measure(memoir, connection, embed, corpus, asking, budgets, found)
            progress("")
    return tables(found, budgets)


def _options(parser: argparse.ArgumentParser) -> None:
    add_arguments(parser, "--data")
    parser.add_argument(
        "--questions", type=int, default=0, help="a sample of so many questions of each corpus (default: all)"
    )
    parser.add_argument("--budgets", default=",".join(map(str, BUDGETS)), help="memory budgets in tokens (%(default)s)")


if __name__ == "__main__":
    sys.exit(run_alone("bench.floor", __doc__, _options, run, keep=True, expected=(CannotRun, ValueError)))
