"""Learns the weights of the ranking and judges them on conversations they were not learnt from.

    python -m research.ranker.corpus --data locomo.json --data realmem/ --data beam/
    python -m research.ranker.train

The model is linear: signals (research/ranker/signals.py), and the same signals again for memories, for turns of people and
assistants without names, and for long questions. It is fitted so that each piece of evidence stands before everything else among a
question's candidates, all kinds of data weighing the same, and near the weights set by hand; then scaled so that a score means the same
chance of being evidence everywhere. Prints tables and the weights of the ranking profile (sql/data/ranking.csv).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

from bench.common import CACHE

from .corpus import read_indexed
from .signals import NAMES
from .study import BY_HAND, DEMOTED, KINDS, Case, Linear, by_weights, cases, crossed, summary

CLASSES = ("", "memory.", "unnamed.", "long.")
# A match far back counts less where people go on with what they left, with an assistant; friends ask of any time. What was remembered
# last of a day tells how it ended.
ONLY = {"match_back": (2,), "last": (1,)}
TERMS = [(name, fact) for fact in range(len(CLASSES)) for name in NAMES if fact in ONLY.get(name, range(len(CLASSES)))]
# What is known of one kind says little of the next: weights stay near those set by hand, and those of a class near those of all.
NEAR = {name: 3.0 * weight for name, weight in BY_HAND.items()}
L2 = (0.02, 0.02, 0.02, 0.1)
WARY = {"match_back": 0.1}  # does harm where people ask of any time
SOFT = 3.0  # scores are chances of being evidence at this temperature: they spread over 0 to 1


def calibrated(model: Linear, found: Sequence[Case]) -> tuple[float, np.ndarray]:
    """(factor, constants by class) of the logistic regression of being evidence on the model's sum.

    Only questions that something answers count; small talk is told by other means.
    """
    score, label, facts, weight = [], [], [], []
    found = [case for case in found if case.gold]
    kinds = [case.kind for case in found]
    for case, kind in zip(found, kinds, strict=True):
        s = model(case).astype(float)
        gold = np.isin(case.unit, case.gold)
        best = np.zeros(len(s), bool)  # of a long text the best chunk counts
        for g in set(case.gold):
            mine = np.nonzero(case.unit == g)[0]
            if len(mine):
                best[mine[np.argmax(s[mine])]] = True
        keep = best | ~gold
        score.append(s[keep])
        label.append(best[keep])
        facts.append(np.tile(case.facts, (keep.sum(), 1)))
        weight.append(np.full(keep.sum(), 1 / kinds.count(kind)))
    s, y, f, w = (
        np.concatenate(score),
        np.concatenate(label).astype(float),
        np.concatenate(facts),
        np.concatenate(weight),
    )

    def loss(p: np.ndarray) -> tuple[float, np.ndarray]:
        z = p[0] * s + f @ p[1:]
        slope = w * (1 / (1 + np.exp(-z)) - y)
        return float((w * (np.logaddexp(0, z) - y * z)).sum()), np.concatenate([[slope @ s], f.T @ slope])

    done = minimize(loss, np.concatenate([[1.0], np.zeros(f.shape[1])]), jac=True, method="L-BFGS-B").x
    return float(done[0]), done[1:]


def setting(model: Linear, found: Sequence[Case]) -> dict[str, float]:
    """The model as weights of the ranking profile."""
    factor, constants = calibrated(model, found)
    weights = {}
    for place, prefix in enumerate(CLASSES):
        weights[f"{prefix}constant"] = constants[place] / SOFT
        weights |= {
            f"{prefix}{name}": w * factor / SOFT
            for (name, fact), w in zip(model.terms, model.w, strict=True)
            if fact == place
        }
    weights["further"] = -DEMOTED * factor / SOFT
    return {name: round(float(w), 3) for name, w in weights.items() if abs(w) >= 0.0005}


def scores(weights: dict[str, float], case: Case) -> np.ndarray:
    """As score() in pg_memoir_kernel/ranking.py: from 0 to 1, without the steps of further chunks."""
    z = np.zeros(len(case.unit))
    for place, prefix in enumerate(CLASSES):
        z += case.facts[place] * (
            weights.get(f"{prefix}constant", 0) + case.X @ np.array([weights.get(prefix + name, 0) for name in NAMES])
        )
    return 1 / (1 + np.exp(-z))


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m research.ranker.train",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, default=CACHE / "ranker.pickle")
    parser.add_argument(
        "--judge", action="store_true", help="cross-validate, too: leaving out conversations, then whole kinds of data"
    )
    options = parser.parse_args()
    found = cases(read_indexed(options.data))
    print(
        "per cent: R@10 / evidence within 1,000 / within 2,000 tokens, mean over questions, packed outside of the database"
    )
    summary(found, by_weights(BY_HAND), "by hand")

    def make() -> Linear:
        return Linear(TERMS, [WARY.get(name, L2[fact]) for name, fact in TERMS], NEAR)

    if options.judge:
        crossed(found, make, "learnt, leaving out conversations")
        crossed(found, make, "learnt, leaving out kinds", by="family")
        crossed(
            found,
            lambda: Linear(
                [term for term in TERMS if term[1] == 0], [L2[0]] * sum(fact == 0 for _, fact in TERMS), NEAR
            ),
            "one set of weights, leaving out conversations",
        )
    model = make().fit(found)
    summary(found, model, "learnt, on what it learnt from")
    for kind in KINDS:
        held = [
            np.mean([(case.unit == g).any() for g in case.gold]) for case in found if case.kind == kind and case.gold
        ]
        print(f"{kind}: {100 * np.mean(held):.1f} % of the evidence is among the candidates")
    weights = setting(model, found)
    for name, weight in weights.items():
        part, _, signal = name.rpartition(".")
        print(f"{part or 'all'},{signal},{weight}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
