"""Parts of the kernel, made up, and a store that asks its statements over a connection."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import psycopg
from internals import merged_settings, sql_name
from pg_memoir_kernel.candidates import USER, Candidate
from pg_memoir_kernel.items import NO_SESSION
from pg_memoir_kernel.packing import Line
from pg_memoir_kernel.store import SHARED, statements
from pg_memoir_kernel.vectors import vector_scores
from psycopg.rows import dict_row

SESSION = bytes([7]) * 16
DAY = 86400 * 1_000_000


def make_candidate(item: int, **columns: Any) -> Candidate:
    """Returns a turn of the user in SESSION, said on 1 Jan 2000, or what else the columns say."""
    is_turn = columns.get("kind", b"t") == b"t"
    made = {
        "kind": b"t", "ref": item.to_bytes(16, "big"), "session": SESSION if is_turn else NO_SESSION,
        "turn": item if is_turn else -1, "chunk": 0, "start": 0, "length": 40, "tokens": 10,
        "role": USER if is_turn else 0, "flags": 0, "word_count": 8, "said": 0, "recorded": 0, "project": "global",
        "score": 0.5, "match": 0.5, "words": 0.5, "cosine": None, "around": 0.0, "session_score": 0.0, "telling": 0.0, "facts": [0] * 7,
        "worth": 0.5, "reason": None,
    }  # fmt: skip
    return Candidate(item, **(made | columns))


def make_line(number: int, **columns: Any) -> Line:
    """Returns a whole line of a candidate, of ten tokens."""
    made = {"step": 1, "cost": 10, "worth": 0.5, "own": 0.05, "fidelity": "full", "header": "Day", "label": "user"}
    return Line(number, **({"body": f"line {number}"} | made | columns))


class SqlStore:
    """One user's arrays, read from the tables themselves, by a caller who may see all of them. `asked`: what was read."""

    def __init__(self, db: psycopg.Connection[Any], user_id: Any) -> None:
        self.db, self.shared = db, (user_id, "secret", None, [])
        self.asked: list[tuple[Any, ...]] = []

    def rows(self, name: str, *given: Any) -> Sequence[Mapping[str, Any]]:
        self.asked.append((name, *given))
        types = SHARED | statements()[name].types
        parameters = {one: f"%({one})s::{type_}" for one, type_ in types.items()}
        text = statements()[name].written("true", parameters, sql_name(r"\1"))
        with self.db.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(text, dict(zip(types, (*self.shared, *given), strict=True))).fetchall()

    def count_tokens(self, text: str) -> int:
        return len(text) // 4


def nearest_items(
    store: SqlStore, vector: str, exact: int, items: Sequence[int], hidden: Sequence[int], wanted: int
) -> list[int]:
    """Returns items by vector, compared one by one where the user has at most `exact`, else chosen by their signs."""
    tables = f"{sql_name('embedding_models')}, {sql_name('user_counters')}"
    asked = f"select model_id, next_item - 1 from {tables} where status = 'active' and user_id = %s"
    ((model, last),) = store.db.execute(asked, [store.shared[0]]).fetchall()
    config = merged_settings(store.db) | {"exact_vectors_max": exact}
    found = vector_scores(
        store, np.array(vector[1:-1].split(","), np.float32), vector, model, config, last, np.array(items, np.int64),
        np.array(hidden, np.int64), wanted,
    )  # fmt: skip
    return found.items.tolist() if found else []
