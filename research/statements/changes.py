"""The trees that tell whether a message makes something untrue that was said earlier (sql/data/change_trees.csv), and those that know
besides how alike the two are, which tell what is in doubt (doubt_trees.csv; _memoir.likeness, the cosine of their vectors).

    .local/venv/bin/python -m research.statements.changes [FILE…] [--calm locomo.json] [--write]

Files are JSON lines, those of this folder by default: {"old": [what was said earlier], "new": a later message, "over": [indexes of
what is untrue since], "same": whether both are of one conversation}. The signals are computed by the server (_memoir.change_signals),
so what is learnt is what runs. Trees are oblivious (one question a level, the same for all of it), boosted by Newton steps on the
logistic loss (Friedman 2001; Prokhorenkova et al. 2018). Of several clauses of a message that is over the one counts that is likeliest.
--calm: conversations (LoCoMo's format) in which next to nothing becomes untrue: each message beside what its speaker said before that
is most like it; every fourth conversation is left out and says how many messages of a thousand would be taken for a change.
Prints, for each and for the mean of both, what is right where each tenth of the cases, and each file, is left out: of cases in which something is over those where exactly
that is told, and of the others those where nothing is.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import psycopg

from bench.common import CachedEmbedder, fresh_database, table

HERE = Path(__file__).parent
TREES, DOUBTS = Path("sql/data/change_trees.csv"), Path("sql/data/doubt_trees.csv")
THRESHOLDS = (0.15, 0.2, 0.3, 0.42, 0.5)
DISTRACTORS = 3  # earlier messages of others beside a case's own
CALM_WEIGHT = 0.5
SIGNALS = """
with message as (select array(select c from unnest(_memoir.said_clauses(array[%(new)s], array['english'])) c where c.clause_no > 0) as clauses),
said as (
  select o.nth, o.same, s.said as sentence, c.said, o.body, s.said ~ '[?？]["”'')]*$'
      and lead(c.span_start) over (partition by o.nth, s.span_start order by c.span_start) is null as asks
  from unnest(%(old)s::text[], %(same)s::boolean[]) with ordinality o(body, same, nth)
  cross join lateral (select * from _memoir.own_sentences(o.body) s where s.span_length <= 600 limit 20) s
  cross join lateral _memoir.clauses(s.said, 'english') c),
units as (select array_agg((null, null, null, null, null, 'user', 1, 1, said, left(body, 1000), asks)::_memoir.said_unit order by nth, said) as units,
    array_agg(same order by nth, said) as same, array_agg(nth - 1 order by nth, said) as nth from said)
select units.nth[g.unit_no], g.signals, (units.units[g.unit_no]).said from message, units,
  lateral _memoir.change_signals(%(new)s, message.clauses, units.units, units.same, 'english') g
"""


@dataclass
class Case:
    """A message and what was said before: signals of each earlier clause, and of which earlier message it is."""

    group: str
    over: frozenset[int]
    signals: np.ndarray
    of: np.ndarray


@dataclass
class Trees:
    """Of each tree the questions (signal, more than) of its levels and the values of its leaves; `base`: the log odds before."""

    base: float
    questions: list[list[tuple[int, float]]] = field(default_factory=list)
    leaves: list[np.ndarray] = field(default_factory=list)

    def scores(self, x: np.ndarray) -> np.ndarray:
        """Chances, one a row."""
        total = np.full(len(x), self.base)
        for asked, values in zip(self.questions, self.leaves, strict=True):
            total += values[placed(x, asked)]
        return 1 / (1 + np.exp(-total))


def placed(x: np.ndarray, asked: list[tuple[int, float]]) -> np.ndarray:
    """The leaf of each row."""
    leaf = np.zeros(len(x), dtype=int)
    for level, (signal, limit) in enumerate(asked):
        leaf += (x[:, signal] > limit).astype(int) << level
    return leaf


def fitted(x: np.ndarray, y: np.ndarray, weight: np.ndarray, trees: int, depth: int, rate: float, decay: float) -> Trees:
    """Trees boosted on rows `x` with truths `y`."""
    share = float((y * weight).sum() / weight.sum())
    out = Trees(float(np.log(share / (1 - share))))
    total = np.full(len(y), out.base)
    limits = []
    for signal in range(x.shape[1]):
        values = np.unique(x[:, signal])
        if len(values) > 16:
            values = np.unique(np.quantile(x[:, signal], np.linspace(0.03, 0.97, 16)))
        limits += [(signal, float(v)) for v in (values[:-1] + values[1:]) / 2]
    bits = np.array([x[:, signal] > limit for signal, limit in limits], dtype=np.float32)
    for _ in range(trees):
        chance = 1 / (1 + np.exp(-total))
        slope, bend = weight * (y - chance), weight * chance * (1 - chance)
        leaf, asked = np.zeros(len(y), dtype=int), []
        for level in range(depth):
            at = np.zeros((len(y), 2 << level), dtype=np.float32)
            at[np.arange(len(y)), 2 * leaf] = slope
            at[np.arange(len(y)), 2 * leaf + 1] = bend
            yes = bits @ at
            no = at.sum(axis=0) - yes
            gain = sum((side[:, ::2] ** 2 / (side[:, 1::2] + decay)).sum(axis=1) for side in (yes, no))
            best = int(np.argmax(gain))
            asked.append(limits[best])
            leaf += (bits[best] > 0).astype(int) << level
        count = 1 << depth
        values = rate * np.bincount(leaf, slope, count) / (np.bincount(leaf, bend, count) + decay)
        total += values[leaf]
        out.questions.append(asked)
        out.leaves.append(values)
    return out


def signals_of(found: list[Any], new: str, embed: CachedEmbedder) -> np.ndarray:
    """A row for each earlier clause: its signals and, last, the cosine to the message."""
    vectors = np.array(embed([new[:1000], *(clause for _, _, clause in found)]), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.column_stack([np.array([f[1] for f in found], dtype=np.float32), vectors[1:] @ vectors[0]])


def read(paths: list[Path], db: psycopg.Connection, embed: CachedEmbedder) -> list[Case]:
    """Cases with their signals; each gets some earlier messages of others, which are never over."""
    rows = [(path.stem, json.loads(line)) for path in paths for line in path.read_text().splitlines() if line.strip()]
    chance, cases = random.Random(3), []
    for group, row in rows:
        strange = [chance.choice(chance.choice(rows)[1]["old"]) for _ in range(DISTRACTORS)]
        olds = [*row["old"], *(text for text in strange if text not in row["old"])]
        same = [bool(row.get("same"))] * len(row["old"]) + [False] * (len(olds) - len(row["old"]))
        found = db.execute(SIGNALS, {"new": row["new"], "old": olds, "same": same}).fetchall()
        if found:
            of = np.array([f[0] for f in found])
            cases.append(Case(group, frozenset(row["over"]), signals_of(found, row["new"], embed), of))
    return cases


def calm(path: Path, db: psycopg.Connection, embed: CachedEmbedder, every: int) -> list[Case]:
    """Every so manyeth message of each conversation, with the earlier ones of its speaker that share most words, and the last two."""
    cases = []
    for number, item in enumerate(json.loads(path.read_text())):
        talk = item.get("conversation", item)
        said: dict[str, list[str]] = {}
        count = 0
        for key in sorted((k for k in talk if isinstance(talk[k], list)), key=lambda k: int(k.split("_")[1])):
            for turn in talk[key]:
                text, before = turn.get("text") or "", said.setdefault(turn["speaker"], [])
                count += 1
                if before and text and count % every == 0:
                    words = {w for w in re.findall(r"[a-z]{4,}", text.lower())}
                    alike = sorted(before[:-2], key=lambda old: -len(words & set(re.findall(r"[a-z]{4,}", old.lower()))))[:6]
                    olds = [*alike, *before[-2:]]
                    same = [False] * len(alike) + [True] * len(before[-2:])
                    found = db.execute(SIGNALS, {"new": text, "old": olds, "same": same}).fetchall()
                    if found:
                        of = np.array([f[0] for f in found])
                        cases.append(Case(f"calm {number}", frozenset(), signals_of(found, text, embed), of))
                before.append(text)
    return cases


def learnt(cases: list[Case], trees: int, depth: int, rate: float, decay: float) -> Trees:
    """Fitted twice: of a message that is over the likeliest clause counts, at first the one most alike."""
    model = None
    for _ in range(2):
        x, y, w = [], [], []
        for case in cases:
            if case.group.startswith("calm"):
                x.append(case.signals)
                y += [0.0] * len(case.signals)
                w += [CALM_WEIGHT] * len(case.signals)
                continue
            scores = model.scores(case.signals) if model else case.signals[:, 15] + case.signals[:, 16] + case.signals[:, 20]
            for message in set(case.of):
                at = np.flatnonzero(case.of == message)
                if message in case.over:
                    at = at[[int(np.argmax(scores[at]))]]
                x.append(case.signals[at])
                y += [float(message in case.over)] * len(at)
                w += [1.0] * len(at)
        model = fitted(np.concatenate(x), np.array(y), np.array(w), trees, depth, rate, decay)
    return model


@dataclass
class Both:
    """Trees without and with likeness: the mean of their log odds, as _memoir.learnt_changes takes it."""

    plain: Trees
    alike: Trees

    def scores(self, x: np.ndarray) -> np.ndarray:
        odds = [np.log(s / (1 - s)) for s in (self.plain.scores(x[:, :-1]), self.alike.scores(x))]
        return 1 / (1 + np.exp(-np.mean(odds, axis=0)))


def right(case: Case, scores: np.ndarray, threshold: float) -> bool:
    told = set(case.of[scores >= threshold])
    return told == set(case.over)


def judged(name: str, cases: list[Case], scores: list[np.ndarray]) -> list[str]:
    row = [name]
    for threshold in THRESHOLDS:
        hits = [right(c, s, threshold) for c, s in zip(cases, scores, strict=True) if c.over]
        calm = [right(c, s, threshold) for c, s in zip(cases, scores, strict=True) if not c.over]
        row.append(f"{100 * np.mean(hits):.0f} / {100 * np.mean(calm):.0f}" if hits and calm else "–")
    return row


def written(model: Trees) -> str:
    """The table that the build makes a function of: the questions of each tree, and its leaves."""
    lines = ["# Trees for changes, by research/statements/changes.py: a, b, c are signals of change_signals, from 1; x, y, z what each is more than.",
             "# leaves: log odds, by which of these hold: none, a, b, a and b, c and the same.",
             "a,x,b,y,c,z,leaves"]
    for n, (asked, leaves) in enumerate(zip(model.questions, model.leaves, strict=True)):
        cells = [f"{signal + 1},{limit:.4g}" for signal, limit in asked]
        values = leaves + (model.base if n == 0 else 0)
        lines.append(",".join(cells) + "," + " ".join(f"{v:.4f}" for v in values))
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--calm", type=Path, help="conversations in which next to nothing becomes untrue")
    parser.add_argument("--trees", type=int, default=150)
    parser.add_argument("--rate", type=float, default=0.1)
    parser.add_argument("--decay", type=float, default=5.0)
    parser.add_argument("--write", action="store_true", help=f"write {TREES} and {DOUBTS}")
    given = parser.parse_args()
    paths = given.files or sorted(HERE.glob("*.jsonl"))
    if not paths:
        sys.exit("no files")
    embed = CachedEmbedder()
    with fresh_database("changes") as dsn, psycopg.connect(dsn, autocommit=True) as db:
        cases = read(paths, db, embed)
        talks = calm(given.calm, db, embed, 4) if given.calm else []
    settings = (given.trees, 3, given.rate, given.decay)
    # What only its meaning tells (meaning-*.jsonl) would make trees that do not know it guess.
    told = [without_likeness(c) for c in cases if not c.group.startswith("meaning")]
    for path, mine, calmly in ((TREES, told, [without_likeness(c) for c in talks]), (DOUBTS, cases, talks)):
        print(f"\n{path}\n")
        report(mine, calmly, lambda some: learnt(some, *settings))
        if given.write:
            path.write_text(written(learnt(mine + calmly, *settings)))


    print("\nThe mean of the log odds of both\n")
    report(cases, talks, lambda some: Both(
        learnt([without_likeness(c) for c in some if not c.group.startswith("meaning")], *settings), learnt(some, *settings)))


def without_likeness(case: Case) -> Case:
    return replace(case, signals=case.signals[:, :-1])


def report(cases: list[Case], talks: list[Case], learn: Callable[[list[Case]], Trees | Both]) -> None:
    """Prints what is right of what is left out."""
    order = list(range(len(cases)))
    random.Random(5).shuffle(order)
    scores: list[np.ndarray] = [np.zeros(0)] * len(cases)
    for fold in range(10):
        left = set(order[fold::10])
        model = learn([c for n, c in enumerate(cases) if n not in left] + talks)
        for n in left:
            scores[n] = model.scores(cases[n].signals)
    rows = [judged(f"a tenth left out ({len(cases)})", cases, scores)]
    for group in sorted({c.group for c in cases}):
        mine = [c for c in cases if c.group == group]
        model = learn([c for c in cases if c.group != group] + talks)
        rows.append(judged(f"{group} left out ({len(mine)})", mine, [model.scores(c.signals) for c in mine]))
    print(table(["told / calm, %, at", *map(str, THRESHOLDS)], rows))
    if talks:
        left = sorted({c.group for c in talks})[::4]
        model = learn(cases + [c for c in talks if c.group not in left])
        most = [float(model.scores(c.signals).max()) for c in talks if c.group in left]
        taken = [f"{1000 * np.mean([m >= threshold for m in most]):.0f}" for threshold in THRESHOLDS]
        print(table([f"of 1,000 messages of friends ({len(most)} left out)", *map(str, THRESHOLDS)], [["taken for a change", *taken]]))


if __name__ == "__main__":
    main()
