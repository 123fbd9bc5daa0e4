"""A linear head over sentence vectors for the kind of a message, beside the rules, on scripted conversations.

    .local/venv/bin/python -m research.statements.head FILE FILE…

Each file holds cases: {"cases": [{"kind", "sessions": [{"turns": [[role, text], …]}, …], …}], "filler": {LANGUAGE: [[user,
assistant], …]}}. The last thing the user says is a correction, a request to forget or a standing statement, as the kind says;
fillers, traps and what invents nothing are none. Each file in turn is left out, so that its wordings and speakers are unseen.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import psycopg

from bench.common import CachedEmbedder, fresh_database, table

KINDS = ("none", "correction", "forget", "standing")
RULES = """select case
  when exists (select from _memoir.forget_requests(t)) then 'forget'
  when exists (select from _memoir.statements(_memoir.said_clauses(array[t], array['english']), array['english'],
    array[now()]) s where s.standing) then 'standing'
  when exists (select from unnest(_memoir.change_candidates(array[t], _memoir.said_clauses(array[t], array['english']),
    array['english'])) c where c.cue) then 'correction' else 'none' end
from unnest(%s::text[]) with ordinality x(t, o) order by o"""


def messages(path: Path) -> list[tuple[str, str]]:
    """What users say in a file: (text, kind)."""
    data = json.loads(path.read_text())
    found = {user: "none" for user, _ in data["filler"]["en"][:60]}
    for case in data["cases"]:
        kind = case["kind"]
        said = [t[1] for s in case["sessions"] for t in s.get("turns", []) if isinstance(t, list) and t[0] == "user"]
        if case.get("language", "en") != "en" or not said:
            continue
        if (
            kind == "correction"
            and case.get("marked")
            or kind == "forget"
            and case.get("must_not")
            or kind == "standing"
        ):
            found[said[-1]] = kind
        elif kind in ("correction", "forget", "nothing_invented") and not case.get("control"):
            found[said[-1]] = "none"
    return sorted(found.items())


def fitted(x: np.ndarray, y: np.ndarray, steps: int = 400, rate: float = 1.0, decay: float = 1e-3) -> np.ndarray:
    """Weights of a softmax regression; classes weigh the same."""
    weights = np.zeros((x.shape[1], len(KINDS)))
    share = 1 / np.bincount(y, minlength=len(KINDS))[y]
    share /= share.sum()
    for _ in range(steps):
        p = chances(x, weights)
        p[np.arange(len(y)), y] -= 1
        weights -= rate * 20 * (x.T @ (p * share[:, None]) + decay * weights)
    return weights


def chances(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    scores = np.exp((z := x @ weights) - z.max(axis=1, keepdims=True))
    return scores / scores.sum(axis=1, keepdims=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--sure", type=float, default=0.6, help="what the head must be sure of to say more than none")
    given = parser.parse_args()
    files = [messages(path) for path in given.files]
    embed = CachedEmbedder()
    vectors = [np.c_[np.array(embed([t for t, _ in f])), np.ones(len(f))] for f in files]
    truths = [np.array([KINDS.index(k) for _, k in f]) for f in files]
    truth, head, rules = [], [], []
    with fresh_database("head") as dsn, psycopg.connect(dsn, autocommit=True) as db:
        for i, f in enumerate(files):
            rest = [j for j in range(len(files)) if j != i]
            p = chances(
                vectors[i], fitted(np.vstack([vectors[j] for j in rest]), np.concatenate([truths[j] for j in rest]))
            )
            head += list(np.where(p.max(axis=1) >= given.sure, p.argmax(axis=1), 0))
            rules += [KINDS.index(k) for (k,) in db.execute(RULES, [[t for t, _ in f]]).fetchall()]
            truth += list(truths[i])
    t, rows = np.array(truth), []
    for n, kind in enumerate(KINDS):
        row = [kind, int((t == n).sum())]
        for said in (np.array(head), np.array(rules)):
            hits = int(((said == n) & (t == n)).sum())
            row += [f"{100 * hits / max(1, (said == n).sum()):.0f}", f"{100 * hits / max(1, (t == n).sum()):.0f}"]
        rows.append(row)
    print(table(["kind", "messages", "head: precision", "recall", "rules: precision", "recall"], rows))


if __name__ == "__main__":
    main()
