"""Evidence recall on a LoCoMo-format file: of the turns that answer a question, how many are in the compiled list?

    python -m bench.recall --data locomo.json [--conversations conv-26] [--questions 200] [--budgets 500,1000,2000,4000]

METHODS.md says what is measured and how.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psycopg
from pg_memoir import Memoir
from pg_memoir_cli import import_conversations

from .common import CachedEmbedder, CannotRun, fresh_database, percentile, progress, report, run_alone, table
from .datasets import LOCOMO, Asked, Said, locomo

BUDGETS = (500, 1000, 2000, 4000)
RRF_K = 60


@dataclass
class Conversation:
    """Two people's turns as imported (`lines` as the baselines show them, `texts` as said) and the questions about them."""

    user: str
    lines: list[str]
    named: list[str]
    texts: list[str]
    questions: list[Asked]
    places: dict[str, int]  # of the turns, by the keys of evidence


@dataclass
class Score:
    """Per question: how many gold turns it has and how many were found, tokens used."""

    gold: list[int] = field(default_factory=list)
    found: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)

    def turns(self) -> float:
        """Share of the gold turns that were found, in percent."""
        return 100 * sum(self.found) / sum(self.gold)

    def cell(self) -> str:
        complete = sum(found == gold for found, gold in zip(self.found, self.gold, strict=True))
        return f"{self.turns():.1f} / {100 * complete / len(self.gold):.1f}"


def load(path: Path, users: Sequence[str]) -> list[Conversation]:
    """The conversations as they are imported, so that the baselines see what compile sees."""
    loaded = []
    for corpus in locomo(path):
        if f"locomo:{corpus.name}" not in users:
            continue
        said = [event for event in corpus.events if isinstance(event, Said)]
        named = [f"{event.message['name']}: {event.message['content']}" for event in said]
        lines = [f"{event.message['created_at'][:10]} {line}" for event, line in zip(said, named, strict=True)]
        places = {event.key: place for place, event in enumerate(said)}
        texts = [event.message["content"].partition("\n[image")[0] for event in said]  # without a picture's caption
        loaded.append(Conversation(f"locomo:{corpus.name}", lines, named, texts, corpus.questions(), places))
    return loaded


def plain(text: str) -> str:
    """Text with its white space made single, to look for a turn's words in a list."""
    return " ".join(text.split())


# --- Baselines ---------------------------------------------------------------------------------------------------------


def lexemes(connection: psycopg.Connection, texts: Sequence[str]) -> list[list[str]]:
    """Stemmed words without stop words, as often as they occur, by PostgreSQL: bm25s then has the stemmer compile has."""
    rows = connection.execute(
        """select array(select w.lexeme from unnest(to_tsvector('english', t)) w, generate_series(1, coalesce(cardinality(w.positions), 1)))
           from unnest(%s::text[]) with ordinality u(t, n) order by n""",
        (list(texts),),
    ).fetchall()
    return [row[0] for row in rows]


def baseline_scores(
    connection: psycopg.Connection, embed: CachedEmbedder, conversation: Conversation
) -> dict[str, np.ndarray]:
    """Per method a matrix questions × turns; the higher, the sooner a turn is taken."""
    import bm25s

    asked = [question.text for question in conversation.questions]
    retriever = bm25s.BM25()
    retriever.index(lexemes(connection, conversation.named), show_progress=False)
    known = set(retriever.vocab_dict)
    words = np.array(
        [
            retriever.get_scores([w for w in query if w in known])
            if known & set(query)
            else np.zeros(len(conversation.named))
            for query in lexemes(connection, asked)
        ]
    )
    vectors = np.array(embed(asked)) @ np.array(embed(conversation.named)).T
    return {
        "last turns": np.tile(np.arange(len(conversation.named), dtype=float), (len(asked), 1)),
        "BM25 (bm25s)": words,
        "dense (MiniLM)": vectors,
        "RRF of both": 1 / (RRF_K + 1 + _ranks(words)) + 1 / (RRF_K + 1 + _ranks(vectors)),
    }


def _ranks(scores: np.ndarray) -> np.ndarray:
    return np.argsort(np.argsort(-scores, axis=1, kind="stable"), axis=1, kind="stable")


def fill(order: np.ndarray, costs: Sequence[int], budget: int) -> set[int]:
    """Turns taken in order until nothing more fits."""
    taken, left, least = set(), budget, min(costs)
    for place in order:
        if costs[place] <= left:
            taken.add(int(place))
            left -= costs[place]
        elif left < least:
            break
    return taken


# --- The measurement ---------------------------------------------------------------------------------------------------


def compiled(
    connection: psycopg.Connection, user: str, question: str, vector: list[float], budget: int
) -> tuple[str, int]:
    """(the list's text, tokens of its recall) for a question asked in a session that doesn't exist yet."""
    context = connection.execute(
        "select memoir.context(p_user => %s, p_session => 'a fresh session', p_query => %s, p_memory_budget => %s, p_query_embedding => %s::real[])",
        (user, question, budget, vector),
    ).fetchone()[0]
    return "\n".join(message["content"] for message in context["messages"]), context["recall_tokens"]


def measure(
    dsn: str, path: Path, budgets: Sequence[int], pick: Callable[[list[Asked]], list[Asked]], only: Sequence[str]
) -> list[tuple[str, str]]:
    """Imports the file, asks every question, prints and returns the tables."""
    embed = CachedEmbedder()
    with Memoir(dsn) as memoir:
        users = import_conversations(memoir, path).users
        users = [user for user in users if not only or user.removeprefix("locomo:") in only]
        if not users:
            raise CannotRun(f"no conversation of {path.name} is named {', '.join(only)}")
        memoir.embed_backlog(embed)
    scores: dict[tuple[str, str, int], Score] = {}
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("call memoir.run_job('merge')")  # as the job does in the background
        connection.execute("analyze")
        conversations = load(path, users)
        tokenizer = connection.execute(
            "select _memoir.tokenizer_used(tokenizer) from _memoir.models where model = 'default'"
        ).fetchone()[0]
        for conversation in conversations:
            conversation.questions = pick(conversation.questions)
            costs = connection.execute(
                "select _memoir.count_tokens(%s::text[], %s)", ([line + "\n" for line in conversation.lines], tokenizer)
            ).fetchone()[0]
            methods = baseline_scores(connection, embed, conversation)
            vectors = embed([question.text for question in conversation.questions])
            texts = [plain(text) for text in conversation.texts]
            for number, question in enumerate(conversation.questions):
                gold = [conversation.places[key] for key in question.evidence]
                progress(f"{conversation.user}: question {number + 1} of {len(conversation.questions)}")
                for budget in budgets:
                    listed, used = compiled(connection, conversation.user, question.text, vectors[number], budget)
                    lists = {"pg_memoir": (plain(listed), used)}
                    for name, matrix in methods.items():
                        taken = fill(np.argsort(-matrix[number], kind="stable"), costs, budget)
                        lists[name] = (
                            plain("\n".join(conversation.lines[place] for place in sorted(taken))),
                            sum(costs[place] for place in taken),
                        )
                    for name, (text, tokens) in lists.items():
                        for category in ("", question.category):
                            score = scores.setdefault((name, category, budget), Score())
                            score.gold.append(len(gold))
                            score.found.append(sum(texts[place] in text for place in gold))
                            score.tokens.append(tokens)
    progress("")
    intro = f"{path.name}: {len(conversations)} conversations, {sum(len(each.lines) for each in conversations)} turns, "
    intro += f"{sum(len(each.questions) for each in conversations)} questions; tokens counted by {tokenizer}.\n\n"
    return _tables(scores, budgets, intro)


def _tables(scores: dict[tuple[str, str, int], Score], budgets: Sequence[int], intro: str) -> list[tuple[str, str]]:
    """Scores are by method, category ("": all), budget."""
    names = list(dict.fromkeys(name for name, *_ in scores))
    head = ["share of gold turns / of questions with all, %", *(f"{budget} tokens" for budget in budgets)]
    rows = [[name, *(scores[name, "", budget].cell() for budget in budgets)] for name in names]
    used = [scores["pg_memoir", "", budget].tokens for budget in budgets]
    rows.append(["tokens of pg_memoir's recall", *(f"{np.mean(n):.0f} (p95 {percentile(n, 0.95)})" for n in used)])
    main = intro + table(head, rows)
    best = [max(names[1:], key=lambda name: scores[name, "", budget].turns()) for budget in budgets]
    detail = []
    known = {category for _, category, _ in scores}
    for category in [category for category in (*LOCOMO.values(), "other") if category in known]:
        for name in ("pg_memoir", *dict.fromkeys(best)):
            cells = [scores[name, category, budget].cell() for budget in budgets]
            count = len(scores[name, category, budgets[0]].gold)
            detail.append([f"{category} ({count}): {name}", *cells])
    return [report("recall", main), report("recall-by-category", table(["by category", *head[1:]], detail))]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that `python -m bench` shares."""
    parser.add_argument("--data", type=Path, help="a LoCoMo-format file")
    parser.add_argument("--conversations", default="", help="only these sample ids, with commas")
    parser.add_argument(
        "--questions", type=int, default=0, help="a sample of so many questions of each conversation (default: all)"
    )
    parser.add_argument("--budgets", default=",".join(map(str, BUDGETS)), help="memory budgets in tokens (%(default)s)")
    parser.add_argument("--keep", action="store_true", help="keep the databases made")


def run(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Measures in a database of its own. `options`: of add_arguments."""
    if options.data is None:
        raise CannotRun(
            "no data: make bench DATA=locomo.json (conversations with gold evidence are not part of the project)"
        )
    rng = random.Random(0)

    def pick(questions: list[Asked]) -> list[Asked]:
        return rng.sample(questions, min(options.questions, len(questions))) if options.questions else questions

    with fresh_database("recall", options.keep) as dsn:
        return measure(
            dsn,
            options.data,
            [int(b) for b in options.budgets.split(",")],
            pick,
            [c for c in options.conversations.split(",") if c],
        )


if __name__ == "__main__":
    sys.exit(run_alone("bench.recall", __doc__, add_arguments, run))
