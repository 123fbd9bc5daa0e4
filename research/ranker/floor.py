"""Where recall ends, and when it is weak: learns the settings relevance_share and weak_below, and strength of the ranking profile (sql/data/ranking.csv).

    python -m research.ranker.corpus --data locomo.json --data realmem/ --data beam/
    python -m research.ranker.floor

relevance_share: candidates below this share of the second best score are left out; what is closer to the question than relevance_repeats
is no measure, since a question that was asked before would leave no answer standing: "again" puts each question where it was. strength_weights: the log odds that the store answers a
question at all, of its best score and its closest vector; learnt from questions that are answered and the same questions put to other
conversations of their kind, which answer nothing, and judged on conversations that were left out. weak_below: the chance under which a
recall is weak, and has as much less of its budget, down to weak_recall_tokens. All with the rank_weights of the release.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

from bench.common import CACHE, ROOT

from .corpus import Indexed, Query, read_indexed
from .study import KINDS, Case, case_of, spread
from .train import scores

BUDGETS = (1000, 2000, 4000)
WEAK_TOKENS = 300
REPEATS = 0.8
STRENGTH = ("constant", "score", "cosine")


@dataclass
class Asked:
    """A message and its candidates in the order of their scores: score, tokens so far, where the evidence stands."""

    kind: str
    name: str
    category: str  # answered, again, of others, abstention, small talk
    score: np.ndarray
    total: np.ndarray
    gold: np.ndarray
    closest: float
    measure: float  # the second best score of what does not repeat the question

    def facts(self) -> np.ndarray:
        return np.array([1.0, self.score[0], self.closest])


def shipped_weights() -> dict[str, float]:
    lines = [
        line for line in (ROOT / "sql" / "data" / "ranking.csv").read_text().splitlines() if not line.startswith("#")
    ]
    rows = [row for row in csv.DictReader(lines) if row["part"] not in ("strength", "fit", "memory_fit", "bonus")]
    return {
        row["signal"] if row["part"] == "all" else f"{row['part']}.{row['signal']}": float(row["weight"])
        for row in rows
    }


def asked(case: Case, cosines: np.ndarray, name: str, category: str, weights: dict[str, float]) -> Asked:
    score = scores(weights, case)
    z = spread(case.unit, np.log(score / (1 - score)), -weights.get("further", 0))
    order = np.argsort(-z, kind="stable")
    z, unit, header = z[order], case.unit[order], case.header[order]
    opens = np.zeros(len(z))
    if case.kind != "RealMem memories":  # each session has a line of its own
        opens[np.unique(header, return_index=True)[1]] = 10
    first = {int(u): int(place) for u, place in zip(*np.unique(unit, return_index=True), strict=True)}
    gold = np.array([first.get(g, len(z)) for g in dict.fromkeys(case.gold)])
    others = np.sort(score[cosines < REPEATS])[::-1]
    measure = float(others[min(1, len(others) - 1)]) if len(others) else 0.0
    return Asked(
        case.kind,
        name,
        category,
        1 / (1 + np.exp(-z)),
        30 + np.cumsum(case.cost[order] + opens),
        gold,
        float(case.level[0]),
        measure,
    )


def messages(data: Sequence[Indexed], weights: dict[str, float], others: int) -> list[Asked]:
    """All messages of the data, and of each corpus `others` questions of other corpora of its kind."""
    from .signals import columns

    chance = np.random.default_rng(0)
    found = []
    for indexed in data:
        c = columns(indexed)
        foreign = [
            q
            for each in data
            if each.kind == indexed.kind and each.name != indexed.name
            for q in each.queries
            if q.gold
        ]
        queries: list[tuple[str, Query]] = [
            ("answered" if q.gold else q.category, q)
            for q in indexed.queries
            if q.gold or q.category in ("abstention", "small talk")
        ]
        queries += [
            ("again", replace(q, session="", items=len(indexed.items))) for q in indexed.queries if q.gold and q.session
        ]
        queries += [
            ("of others", replace(foreign[i], gold=[], session="", items=len(indexed.items)))
            for i in chance.permutation(len(foreign))[:others]
        ]
        for category, query in queries:
            case = case_of(c, query)
            if case is not None:
                cosines = c.vectors[case.places] @ query.vector / np.linalg.norm(query.vector)
                found.append(asked(case, cosines, indexed.name, category, weights))
    return found


def fit(found: Sequence[Asked]) -> np.ndarray:
    """Logistic regression of being answered; both sides of each kind of data weigh the same."""
    found = [each for each in found if each.category in ("answered", "of others")]
    X = np.array([each.facts() for each in found])
    y = np.array([each.category == "answered" for each in found], float)
    groups = [(each.kind, each.category) for each in found]
    weight = np.array([1 / groups.count(group) for group in groups])
    weight /= weight.sum()

    def loss(w: np.ndarray) -> float:
        z = X @ w
        return float((weight * (np.logaddexp(0, z) - y * z)).sum() + 1e-4 * (w[1:] ** 2).sum())

    return minimize(loss, np.zeros(X.shape[1])).x


def shown(each: Asked, budget: int, share: float, part: float = 1) -> int:
    """How many candidates a recall has. part: strength as a part of what is weak."""
    n = int(np.searchsorted(each.total, min(budget, max(WEAK_TOKENS, budget * part)) if part < 1 else budget, "right"))
    return min(n, int((each.score >= share * each.measure).sum()))


def kept(found: Sequence[Asked], share: float, part: Callable[[Asked], float]) -> str:
    """Per kind, of the evidence of the full budget the share that is left, at each budget; then tokens by category at 2,000."""
    parts = []
    for kind, category in ((kind, category) for category in ("answered", "again") for kind in KINDS):
        mine = [each for each in found if each.kind == kind and each.category == category]
        if mine:
            ratio = [
                sum((e.gold < shown(e, b, share, part(e))).mean() for e in mine)
                / max(1e-9, sum((e.gold < shown(e, b, 0)).mean() for e in mine))
                for b in BUDGETS
            ]
            parts.append(
                f"{kind}{' again' if category == 'again' else ''} " + "/".join(f"{100 * r:.1f}" for r in ratio)
            )
    sizes = []
    for category in ("answered", "of others", "abstention", "small talk"):
        mine = [each for each in found if each.category == category]
        if mine:
            used = [each.total[n - 1] if (n := shown(each, 2000, share, part(each))) else 0 for each in mine]
            sizes.append(f"{category} {np.mean(used):.0f}")
    return ", ".join(parts) + "; " + ", ".join(sizes)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m research.ranker.floor",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, default=CACHE / "ranker.pickle")
    parser.add_argument(
        "--others", type=int, default=60, help="questions of other conversations put to each (%(default)s)"
    )
    options = parser.parse_args()
    found = messages(read_indexed(options.data), shipped_weights(), options.others)
    print("share of the second best: evidence kept by kind at 1,000/2,000/4,000 tokens, %; tokens at 2,000")
    for share in (0, 0.2, 0.25, 0.3, 0.35, 0.4):
        print(f"{share:.2f}: {kept(found, share, lambda _: 1.0)}")
    # Each conversation is judged by weights that did not see it.
    strength: dict[int, float] = {}
    for name in sorted({each.name for each in found}):
        weights = fit([each for each in found if each.name != name])
        strength |= {id(each): float(1 / (1 + np.exp(-each.facts() @ weights))) for each in found if each.name == name}
    print("weak below: messages called weak, %; then as above, with a share of 0.3")
    for below in (0.05, 0.08, 0.1, 0.12, 0.15, 0.2, 0.3):
        called = []
        for kind, category in sorted({(each.kind, each.category) for each in found}):
            mine = [strength[id(each)] < below for each in found if (each.kind, each.category) == (kind, category)]
            called.append(f"{kind} {category} {100 * np.mean(mine):.1f}")
        print(
            f"{below:.2f}: {', '.join(called)}; {kept(found, 0.3, lambda each, below=below: strength[id(each)] / below)}"
        )
    print(json.dumps({name: round(float(w), 2) for name, w in zip(STRENGTH, fit(found), strict=True)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
