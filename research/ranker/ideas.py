"""What else might find more: judged on top of the release's ranking, so that it is kept or dropped for a reason.

    python -m research.ranker.corpus --data locomo.json --data realmem/ --data beam/
    python -m research.ranker.ideas

two steps: names in the first hits (their capitalised words that the question lacks) are looked up too, and what holds them gains;
two steps, words / vector: the same with the rarest words of the first hits, or with their mean vector. copies: what is nearly the same
as something better (cosine) comes last (maximal marginal relevance). no dates: without the signal of times that a question names.
Each with the strength that does best on these very questions: an upper bound of what it could gain. Per cent: R@10 / evidence
within 1,000 / within 2,000 tokens, means over questions.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from bench.common import CACHE

from .corpus import Query, read_indexed
from .floor import shipped_weights
from .signals import Columns, columns
from .study import Case, case_of, summary
from .train import scores

FIRST = 5  # hits that seed the second look-up
Asked = tuple[Columns, Query, Case, np.ndarray]  # with the log odds of the scores


def first_hits(case: Case, z: np.ndarray) -> np.ndarray:
    return np.argsort(-z, kind="stable")[:FIRST]


def held(c: Columns, case: Case, words: Sequence[str]) -> np.ndarray:
    """The share of words that each candidate holds, each weighing as it is rare."""
    n = len(c.unit)
    total, found = 0.0, np.zeros(n)
    for word in words:
        at = c.postings.get(word, (np.array([], int), None))[0]
        idf = float(np.log(1 + (n - len(at) + 0.5) / (len(at) + 0.5)))
        total += idf
        found[at] += idf
    return found[case.places] / total if total else np.zeros(len(case.places))


def names(asked: Asked) -> np.ndarray:
    """By names in the first hits."""
    c, q, case, z = asked
    said = " ".join(c.data.items[case.places[i]].body for i in first_hits(case, z))
    found = {w.lower() for w in re.findall(r"(?<![.!?] )(?<!^)\b[A-Z][a-z]{2,}\b", said)}
    seeds = {w for i in first_hits(case, z) for w in c.data.items[case.places[i]].words}
    return held(
        c,
        case,
        sorted(
            {w for w in seeds if w in found or any(f.startswith(w) and len(f) - len(w) <= 2 for f in found)}
            - set(q.words)
        ),
    )


def rare_words(asked: Asked) -> np.ndarray:
    """By the ten rarest words of the first hits that two of them hold, or one of them twice."""
    c, q, case, z = asked
    count: dict[str, int] = {}
    for i in first_hits(case, z):
        for word, positions in c.data.items[case.places[i]].words.items():
            count[word] = count.get(word, 0) + len(positions)
    known = [w for w, n in count.items() if n > 1 and w not in q.words]
    return held(c, case, sorted(known, key=lambda w: (len(c.postings[w][0]), w))[:10])


def mean_vector(asked: Asked) -> np.ndarray:
    c, _, case, z = asked
    mean = c.vectors[case.places[first_hits(case, z)]].mean(axis=0)
    cosine = c.vectors[case.places] @ mean / max(1e-9, float(np.linalg.norm(mean)))
    return np.maximum(cosine, 0) / max(1e-9, float(cosine.max()))


def without_copies(asked: Asked, above: float) -> np.ndarray:
    """Log odds, what is nearly the same as something better moved to the end."""
    c, _, case, z = asked
    order = np.argsort(-z, kind="stable")[:120]
    vectors = c.vectors[case.places[order]]
    near = np.triu(vectors @ vectors.T > above, 1).any(axis=0)
    out = z.copy()
    out[order[near]] -= 10
    return out


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m research.ranker.ideas",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, default=CACHE / "ranker.pickle")
    options = parser.parse_args()
    weights = shipped_weights()
    found: list[Asked] = []
    for indexed in read_indexed(options.data):
        c = columns(indexed)
        for q in indexed.queries:
            if q.gold and (case := case_of(c, q)) is not None:
                score = scores(weights, case)
                found.append((c, q, case, np.log(score / (1 - score))))
    all_cases = [case for _, _, case, _ in found]

    def show(title: str, of: Callable[[Asked], np.ndarray]) -> float:
        made = {id(asked[2]): of(asked) for asked in found}
        # As the packing has it: further chunks of a text go down a step.
        rows = summary(all_cases, lambda case: made[id(case)], title)
        return float(np.mean([row.mean() for kind, row in rows.items() if kind != "multi-hop"]))

    show("as released", lambda asked: asked[3])
    for title, signal in (
        ("two steps, names", names),
        ("two steps, words", rare_words),
        ("two steps, vector", mean_vector),
    ):
        signals = {id(asked[2]): signal(asked) for asked in found}
        for strength in (0.15, 0.3, 0.6, 1.2):
            show(
                f"{title}, {strength}",
                lambda asked, signals=signals, strength=strength: asked[3] + strength * signals[id(asked[2])],
            )
    for above in (0.98, 0.95, 0.9, 0.85):
        show(f"copies above {above}", lambda asked, above=above: without_copies(asked, above))
    dateless = {name: weight for name, weight in weights.items() if not name.endswith("date")}
    show("no dates", lambda asked: np.log((s := scores(dateless, asked[2])) / (1 - s)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
