"""Learns the weights of the ranking and judges them on conversations they were not learnt from.

    python -m bench.ranker.corpus --data locomo.json --data realmem/ --data beam/
    python -m bench.ranker.train

The model is linear: signals (bench/ranker/signals.py), and the same signals again for memories, for turns of people and
assistants without names, and for long questions. It is fitted so that each piece of evidence stands before everything else among a
question's candidates, all kinds of data weighing the same; then scaled so that a score means the same chance of being evidence
everywhere. Prints tables and the setting rank_weights.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

from ..common import CACHE
from .corpus import read_indexed
from .signals import NAMES
from .study import BY_HAND, DEMOTED, KINDS, Case, Linear, by_weights, cases, crossed, summary

CLASSES = ("", "memory.", "unnamed.", "long.")
L2 = 0.003
SOFT = 3.0  # scores are chances of being evidence at this temperature: they spread over 0 to 1


def calibrated(model: Linear, found: Sequence[Case]) -> tuple[float, np.ndarray]:
    """(factor, constants by class) of the logistic regression of being evidence on the model's sum."""
    score, label, facts, weight = [], [], [], []
    for case in found:
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
        weight.append(np.full(keep.sum(), 1 / sum(c.kind == case.kind for c in found)))
    s, y, f, w = np.concatenate(score), np.concatenate(label).astype(float), np.concatenate(facts), np.concatenate(weight)

    def loss(p: np.ndarray) -> tuple[float, np.ndarray]:
        z = p[0] * s + f @ p[1:]
        slope = w * (1 / (1 + np.exp(-z)) - y)
        return float((w * (np.logaddexp(0, z) - y * z)).sum()), np.concatenate([[slope @ s], f.T @ slope])

    done = minimize(loss, np.concatenate([[1.0], np.zeros(f.shape[1])]), jac=True, method="L-BFGS-B").x
    return float(done[0]), done[1:]


def setting(model: Linear, found: Sequence[Case]) -> dict[str, float]:
    """The model as the setting rank_weights."""
    factor, constants = calibrated(model, found)
    weights = {}
    for place, prefix in enumerate(CLASSES):
        weights[f"{prefix}constant"] = constants[place] / SOFT
        for name, w in zip(NAMES, model.w[place * len(NAMES) : (place + 1) * len(NAMES)], strict=True):
            weights[f"{prefix}{name}"] = w * factor / SOFT
    weights["further"] = -DEMOTED * factor / SOFT
    return {name: round(float(w), 3) for name, w in weights.items() if abs(w) >= 0.0005}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.ranker.train", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=CACHE / "ranker.pickle")
    parser.add_argument("--judge", action="store_true", help="cross-validate, too: leaving out conversations, then whole kinds of data")
    options = parser.parse_args()
    found = cases(read_indexed(options.data))
    print("per cent: R@10 / evidence within 1,000 / within 2,000 tokens, mean over questions, packed outside of the database")
    summary(found, by_weights(BY_HAND), "by hand")

    def make() -> Linear:
        return Linear(NAMES, range(len(CLASSES)), L2)

    if options.judge:
        crossed(found, make, "learnt, leaving out conversations")
        crossed(found, make, "learnt, leaving out kinds", by="family")
        crossed(found, lambda: Linear(NAMES, (0,), L2), "one set of weights, leaving out conversations")
    model = make().fit(found)
    summary(found, model, "learnt, on what it learnt from")
    for kind in KINDS:
        held = [np.mean([(case.unit == g).any() for g in case.gold]) for case in found if case.kind == kind]
        print(f"{kind}: {100 * np.mean(held):.1f} % of the evidence is among the candidates")
    print(json.dumps(setting(model, found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
