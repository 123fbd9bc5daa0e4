"""What fits a question at all: learns fit and memory_fit of the ranking profile (sql/data/ranking.csv).

    python -m research.ranker.corpus --data locomo.json --data realmem/ --data beam/
    python -m research.ranker.fits

A logistic regression over the candidates of questions put to stores of all sizes: each conversation as it is, and parts of it of ten
items and more. A candidate that answers fits; what does not answer does not, nor does anything for questions of other conversations.
Both sides of a question weigh the same. Signals: log odds of the score, the cosine, how rare the rarest word hit is that is not common
(the list common_stems of english.toml), the length of the question, and that by the words hit.

Two numbers are set by hand: `size`, by how much less is enough in a large store (LENIENT), and what a memory of another project loses.
Printed are the weights, those without each kind of data, and what the floor keeps and leaves out by size of the store.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from pg_memoir_language.data import load
from scipy.optimize import minimize

from bench.common import CACHE

from .corpus import Indexed, Query, read_indexed
from .floor import shipped_weights
from .signals import Columns, columns, idf_of
from .study import Case, case_of, pack, spread
from .train import scores

SIZES = (10, 20, 35, 50, 100, 300)
FULL = 0  # the whole conversation
SIGNALS = ("constant", "score", "cosine", "telling", "long", "telling_long", "memory.score", "memory.constant")
LENIENT = 1.1
BEST = 60  # candidates that a recall may have room for
LEAST = 0.5  # setting relevance_fit
COMMON = frozenset(load("english").lists["common_stems"])


@dataclass
class Asked:
    """A question put to a store: its candidates, their signals, their odds by score alone, the items of the store."""

    kind: str
    size: int
    category: str  # answered, of others, far
    case: Case
    X: np.ndarray
    score: np.ndarray
    items: int

    def gold(self) -> np.ndarray:
        return np.isin(self.case.unit, self.case.gold)


def asked(c: Columns, query: Query, size: int, category: str, weights: dict[str, float]) -> Asked | None:
    case = case_of(c, query)
    if case is None:
        return None
    n = query.items
    cosine = c.vectors[:n][case.places] @ query.vector / np.linalg.norm(query.vector)
    words = list(query.words)
    frequency = np.zeros((max(1, len(words)), n))
    for row, word in enumerate(words):
        at, count = c.postings.get(word, (np.zeros(0, int), np.zeros(0)))
        frequency[row, at[at < n]] = count[at < n]
    tells = np.array([word not in COMMON for word in words] or [False])
    hits = (frequency[:, case.places] > 0) * (idf_of(frequency) * tells)[:, None]
    telling = np.minimum(1, hits.max(axis=0) / np.log(1 + (n - 0.5) / 1.5))
    score = scores(weights, case)
    odds = spread(case.unit, np.log(score / (1 - score)), -weights.get("further", 0))
    ones, long, memory = np.ones(len(odds)), case.facts[3], case.facts[1]
    X = np.stack([ones, odds, cosine, telling, ones * long, telling * long, odds * memory, ones * memory], axis=1)
    return Asked(c.data.kind, size, category, case, X, odds, n)


def part(indexed: Indexed, units: set[int]) -> tuple[Indexed, dict[int, int]]:
    """A conversation of some of its turns or memories; their new numbers."""
    keep = [place for place, item in enumerate(indexed.items) if item.unit in units]
    order = {unit: number for number, unit in enumerate(sorted(units))}
    items = [replace(indexed.items[place], unit=order[indexed.items[place].unit]) for place in keep]
    return Indexed(indexed.kind, indexed.name, items, indexed.vectors[keep], indexed.unit_tokens, []), order


def messages(data: Sequence[Indexed], weights: dict[str, float]) -> Iterator[Asked | None]:
    """Questions put to whole conversations and to parts of them, with what answers and a rest of neighbours."""
    rng = np.random.default_rng(1)
    for indexed in data:
        answered = [q for q in indexed.queries if q.gold]
        others = [
            ("of others", [q for o in data if o.kind == indexed.kind and o.name != indexed.name for q in o.queries]),
            ("far", [q for o in data if o.kind.split()[0] != indexed.kind.split()[0] for q in o.queries]),
        ]
        others = [(category, [q for q in queries if q.gold]) for category, queries in others]

        def foreign(c: Columns, size: int, number: int, others=others) -> Iterator[Asked | None]:
            for category, queries in others:
                for k in rng.permutation(len(queries))[:number]:
                    query = replace(queries[k], gold=[], session="", items=len(c.data.items))
                    yield asked(c, query, size, category, weights)

        whole = columns(indexed)
        for k in rng.permutation(len(answered))[:100]:
            yield asked(whole, answered[k], FULL, "answered", weights)
        yield from foreign(whole, FULL, 30)
        units = np.array(sorted({item.unit for item in indexed.items}))
        run = 1 if indexed.kind == "RealMem memories" else 3
        for size in (size for size in SIZES if size < len(units)):
            for _ in range(10 if size <= 50 else 5):
                chosen, kept = [], set()
                for k in rng.permutation(len(answered))[: 8 if size <= 20 else 14]:
                    if len(kept | set(answered[k].gold)) <= size * 0.6:
                        kept |= set(answered[k].gold)
                        chosen.append(answered[k])
                while len(kept) < size:
                    start = rng.integers(len(units))
                    kept |= set(units[start : start + run].tolist())
                smaller, order = part(indexed, kept)
                c = columns(smaller)
                for query in chosen:
                    gold = [order[unit] for unit in query.gold if unit in order]
                    yield asked(
                        c, replace(query, gold=gold, session="", items=len(smaller.items)), size, "answered", weights
                    )
                yield from foreign(c, size, 5)


def fit(found: Sequence[Asked]) -> np.ndarray:
    X, y, weight = [], [], []
    for each in found:
        best = np.argsort(-each.score)[:BEST]
        fits = each.gold()[best]
        X.append(each.X[best])
        y.append(fits)
        weight.append(np.where(fits, 1 / max(1, fits.sum()), 1 / max(1, (~fits).sum())))
    A, b, w = np.concatenate(X), np.concatenate(y).astype(float), np.concatenate(weight)
    w /= w.sum()
    spread_of = np.maximum(A.std(axis=0), 1e-6)
    spread_of[0] = 1
    A = A / spread_of

    def loss(v: np.ndarray) -> tuple[float, np.ndarray]:
        z = A @ v
        slope = A.T @ (w * (1 / (1 + np.exp(-z)) - b)) + 2e-3 * np.r_[0, v[1:]]
        return float((w * (np.logaddexp(0, z) - b * z)).sum() + 1e-3 * (v[1:] ** 2).sum()), slope

    return minimize(loss, np.zeros(A.shape[1]), jac=True, method="L-BFGS-B").x / spread_of


def kept(each: Asked, weights: np.ndarray) -> np.ndarray:
    lenient = LENIENT * np.log(min(400, max(35, each.items)) / 35)
    return each.X @ weights + lenient >= np.log(LEAST / (1 - LEAST))


def within(each: Asked, fits: np.ndarray, budget: int = 2000) -> float:
    order = np.argsort(-each.score, kind="stable")
    shown = pack(each.case, order[fits[order]], budget)
    return float(np.mean([unit in shown for unit in each.case.gold]))


def table(found: Sequence[Asked], weights: np.ndarray) -> str:
    lines = [
        "evidence within 2,000 tokens kept by the floor, %; recall and precision of what fits; questions of others left empty, of the"
        " same kind of data / of another"
    ]
    for kind, size in sorted({(each.kind, each.size) for each in found}):
        of = [each for each in found if (each.kind, each.size) == (kind, size)]
        answered = [each for each in of if each.category == "answered"]
        if not answered:
            continue
        every = np.mean([within(each, np.ones(len(each.score), bool)) for each in answered])
        share = np.mean([within(each, kept(each, weights)) for each in answered]) / every
        hits = [(kept(each, weights), each.gold()) for each in answered]
        recall = np.mean([(k & g).sum() / max(1, g.sum()) for k, g in hits])
        precision = np.mean([(k & g).sum() / max(1, k.sum()) for k, g in hits])
        empty = []
        for category in ("of others", "far"):
            some = [not kept(each, weights).any() for each in of if each.category == category]
            empty.append(f"{100 * np.mean(some):.0f}" if some else "–")
        lines.append(f"{kind}, {size or 'all'}: {100 * share:.1f}; {recall:.2f}, {precision:.2f}; {' / '.join(empty)}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m research.ranker.fits", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=CACHE / "ranker.pickle")
    options = parser.parse_args()
    found = [each for each in messages(read_indexed(options.data), shipped_weights()) if each]
    for family in sorted({each.kind.split()[0] for each in found}):
        weights = fit([each for each in found if not each.kind.startswith(family)])
        print(f"learnt without {family}: {weights.round(2).tolist()}; on it:")
        print(table([each for each in found if each.kind.startswith(family)], weights))
    weights = fit(found)
    print(table(found, weights))
    for name, weight in zip(SIGNALS, weights, strict=True):
        print(f"{'memory_fit' if name.startswith('memory.') else 'fit'},{name.removeprefix('memory.')},{weight:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
