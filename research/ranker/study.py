"""Fits and judges rankings on what `corpus` read back. train.py, floor.py and fits.py use it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from .corpus import Indexed, Query
from .signals import NAMES, Columns, columns, signals

BUDGETS = (1000, 2000)
KINDS = ("LoCoMo", "RealMem memories", "RealMem turns", "BEAM")


@dataclass
class Case:
    """One question's candidates."""

    kind: str
    group: str  # corpus
    category: str
    X: np.ndarray
    unit: np.ndarray
    cost: np.ndarray
    header: np.ndarray
    gold: list[int]
    facts: np.ndarray
    places: np.ndarray
    level: np.ndarray  # how good the question's best matches are: cosine, BM25


def case_of(c: Columns, q: Query) -> Case | None:
    """A question's candidates; None where there is nothing yet."""
    if q.items == 0:
        return None
    places, X, level = signals(c, q)
    if not len(places):
        return None
    indexed = c.data
    named = np.mean([bool(i.speaker) for i in indexed.items[: q.items]])
    memory = float(indexed.items[0].kind == "m")
    facts = np.array([1.0, memory, float(named < 0.5 and not memory), np.log(max(len(q.words), 1) / 6)], np.float32)
    cost = np.array([indexed.items[p].cost for p in places], float)
    return Case(
        indexed.kind, indexed.name, q.category, X, c.unit[places], cost, c.session[places], q.gold, facts, places, level
    )


def cases(data: Sequence[Indexed]) -> list[Case]:
    out = []
    for indexed in data:
        c = columns(indexed)
        out += [case for q in indexed.queries if (case := case_of(c, q)) is not None]
    return out


def pack(case: Case, order: np.ndarray, budget: int) -> set[int]:
    used, chosen, opened = 30.0, [], set()
    for i in order:
        head = case.header[i] if case.kind != "RealMem memories" else 0
        cost = case.cost[i] + (0 if head in opened else 10)
        if used + cost <= budget:
            used += cost
            chosen.append(i)
            opened.add(head)
        elif used > budget - 20:
            break
    return {int(case.unit[i]) for i in chosen}


DEMOTED = 1.5  # by how much each further chunk of the same text goes down


def spread(unit: np.ndarray, score: np.ndarray, by: float) -> np.ndarray:
    """Scores with each further chunk of a text a step down, up to three."""
    order = np.lexsort((-score, unit))
    place = np.arange(len(unit)) - np.searchsorted(unit[order], unit[order])
    out = score.copy()
    out[order] -= by * np.minimum(place, 3)
    return out


def judge(case: Case, score: np.ndarray) -> list[float]:
    order = np.argsort(-score, kind="stable")
    ranked = list(dict.fromkeys(case.unit[order].tolist()))[:10]
    if DEMOTED:
        order = np.argsort(-spread(case.unit, score, DEMOTED), kind="stable")
    row = [np.mean([g in ranked for g in case.gold])]
    for budget in BUDGETS:
        shown = pack(case, order, budget)
        row.append(np.mean([g in shown for g in case.gold]))
    return row


def summary(found: Sequence[Case], score: Callable[[Case], np.ndarray], title: str = "") -> dict[str, np.ndarray]:
    rows = {}
    for kind in KINDS:
        mine = [case for case in found if case.kind == kind and case.gold]
        if mine:
            rows[kind] = 100 * np.mean([judge(case, score(case)) for case in mine], axis=0)
    multi = [case for case in found if case.category == "multi-hop"]
    if multi:
        rows["multi-hop"] = 100 * np.mean([judge(case, score(case)) for case in multi], axis=0)
    if title:
        print(
            f"{title:34s}",
            "  ".join(f"{k[:4] + k[-5:]} " + "/".join(f"{x:.1f}" for x in v) for k, v in rows.items()),
            flush=True,
        )
    return rows


BY_HAND = {
    "words": 1,
    "vector": 1.2,
    "words_before": 0.4,
    "vector_after": 0.4,
    "question": -0.2,
    "after_question": 0.2,
    "session": 1.2,
    "speaker": 0.4,
    "user": 0.2,
}


def by_weights(weights: dict[str, float]) -> Callable[[Case], np.ndarray]:
    vector = np.zeros(len(NAMES), np.float32)
    for name, weight in weights.items():
        vector[NAMES.index(name)] = weight
    return lambda case: case.X @ vector


class Linear:
    """Listwise logistic ranking: each piece of evidence against all that is none; any chunk of it will do.

    terms: signal and fact (column of Case.facts) by which it counts. l2: what keeps each one's weight near `near` (0 where it has none),
    in units of the signal's spread.
    """

    def __init__(self, terms: Sequence[tuple[str, int]], l2: Sequence[float], near: dict[str, float] | None = None):
        self.terms, self.near = list(terms), near or {}
        self.columns, self.facts = [NAMES.index(name) for name, _ in terms], [fact for _, fact in terms]
        self.l2 = np.array(l2)

    def design(self, case: Case) -> np.ndarray:
        return case.X[:, self.columns] * case.facts[self.facts]

    def fit(self, found: Sequence[Case]) -> Linear:
        kinds = {kind: sum(case.kind == kind and bool(case.gold) for case in found) for kind in KINDS}
        mats, plain, gold_rows, gold_group, group_case, group_weight, case_of = [], [], [], [], [], [], []
        at = 0
        for case in found:
            gold = [g for g in dict.fromkeys(case.gold) if (case.unit == g).any()]
            if not gold:
                continue
            mats.append(self.design(case))
            plain.append(case.X)
            number = len(case_of)
            for g in gold:
                rows = np.nonzero(case.unit == g)[0] + at
                gold_rows.append(rows)
                gold_group.append(np.full(len(rows), len(group_case)))
                group_case.append(number)
                group_weight.append(1 / kinds[case.kind] / len(gold))
            case_of.append(len(case.unit))
            at += len(case.unit)
        X = np.concatenate(mats).astype(np.float32)
        case_row = np.repeat(np.arange(len(case_of)), case_of)
        starts = np.concatenate([[0], np.cumsum(case_of)[:-1]])
        rows, group = np.concatenate(gold_rows), np.concatenate(gold_group)
        owner, weight = np.array(group_case), np.array(group_weight)
        weight /= weight.sum()
        others = np.ones(len(X))
        others[rows] = 0
        scale = np.concatenate(plain).std(axis=0)[self.columns] + 1e-6
        X /= scale
        near = np.array([self.near.get(name, 0) if fact == 0 else 0 for name, fact in self.terms]) * scale

        def loss(w: np.ndarray) -> tuple[float, np.ndarray]:
            s = (X @ w.astype(np.float32)).astype(float)
            e = np.exp(s - np.maximum.reduceat(s, starts)[case_row])
            bad = np.bincount(case_row, e * others, len(case_of))
            good = np.maximum(np.bincount(group, e[rows], len(owner)), 1e-30)
            z = good + bad[owner]
            slope = e * others * np.bincount(owner, weight / z, len(case_of))[case_row]
            slope[rows] += weight[group] * e[rows] * (1 / z - 1 / good)[group]
            off = w - near
            return float((weight * np.log(z / good)).sum() + self.l2 @ off**2), X.T @ slope.astype(
                np.float32
            ) + 2 * self.l2 * off

        done = minimize(loss, near, jac=True, method="L-BFGS-B", options={"maxiter": 100})
        self.w = done.x / scale
        return self

    def __call__(self, case: Case) -> np.ndarray:
        return self.design(case) @ self.w.astype(np.float32)


def crossed(found: Sequence[Case], make: Callable[[], Linear], title: str, by: str = "group") -> dict[int, np.ndarray]:
    """Scores of each case by a model that didn't see its conversation (or kind)."""
    scores: dict[int, np.ndarray] = {}
    if by == "group":
        # folds of conversations: the k-th conversation of each kind together; personas of RealMem go in both of their forms
        order: dict[str, list[str]] = {}
        for case in found:
            seen = order.setdefault(case.kind, [])
            if case.group not in seen:
                seen.append(case.group)
        fold = [
            order[c.kind].index(c.group) % 3 if c.kind.startswith("RealMem") else order[c.kind].index(c.group)
            for c in found
        ]
        folds = sorted(set(fold))
    else:
        fold = [c.kind.split()[0] if by == "family" else c.kind for c in found]
        folds = sorted(set(fold))
    for f in folds:
        model = make().fit([c for c, x in zip(found, fold) if x != f])
        for c, x in zip(found, fold):
            if x == f:
                scores[id(c)] = model(c)
    summary(found, lambda c: scores[id(c)], title)
    return scores
