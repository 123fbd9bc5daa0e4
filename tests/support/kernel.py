"""Parts of the kernel, made up, and a store that asks its statements over a connection."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import psycopg
from internals import merged_settings, sql_name
from pg_memoir_kernel.candidates import USER, Candidate
from pg_memoir_kernel.items import FACTS, NO_SESSION, to_text
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


CONFIG = {"weight_access": 0.0, "weight_authority": 0.0, "fidelity_worth": {"rest": 0.5}}


def ref(item: int) -> bytes:
    return item.to_bytes(16, "big")


def facts_of(*rows: dict[str, Any]) -> dict[str, Any]:
    """Returns a row with the facts of turns of SESSION, or what else the rows say."""
    made = {"turn": -1, "previous": -1, "length": 40, "tokens": 10, "words": 8, "kind": b"t", "session": SESSION}
    facts = np.zeros(len(rows), FACTS)
    for n, row in enumerate(rows):
        for name, value in (made | {"ref": row["item"].to_bytes(16, "big")} | row).items():
            facts[name][n] = np.void(value) if name in ("ref", "session") else value
    return {"facts": facts.tobytes(), "projects": None, "speakers": None}


class FakeStore:
    """The user's turns of one session, {item: text}, in posting lists, and in the tail from an item on. `similar`: what
    stands in for words that occur nowhere."""

    def __init__(self, texts: dict[int, str], tail: int = 1 << 20, similar: tuple[str, ...] = ()) -> None:
        self.texts, self.tail, self.similar = texts, tail, similar
        self.words = {item: text.lower().strip(".?").split() for item, text in texts.items()}

    def rows(self, name: str, *given: Any) -> list[dict[str, Any]]:
        answers: dict[str, Any] = {
            "postings": lambda terms, letter_rows: self.lists(terms, 0, False),
            "tail_postings": lambda terms, next_item: self.lists(terms, next_item, True),
            "names_in": lambda config, query: [{"words": None}],
            "rescued": lambda terms, unknown, hidden: [{"words": list(self.similar)}],
            "items": lambda wanted, *scope: [self.facts(wanted)],
            "items_between": lambda first, last, *scope: [self.facts(range(first, last + 1))],
            "followers": lambda items: [{"items": None}],
            "turn_texts": lambda items, *rest: [{"item_no": n, "body": self.texts[n], "label": None} for n in items],
            "session_names": lambda sessions: [{"session_id": to_text(SESSION), "name": "sailing"}],
        }
        return list(answers[name](*given))

    def facts(self, numbers: Iterable[int]) -> dict[str, Any]:
        return facts_of(*(self.item(n) for n in numbers if n in self.texts))

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def lists(self, terms: list[str], first: int, is_tail: bool) -> list[dict[str, Any]]:
        def sent(values: list[int], kind: str) -> bytes:  # as array_send writes it
            pairs = [(np.dtype(kind).itemsize, value) for value in values]
            return bytes(20) + np.array(pairs, [("size", ">i4"), ("value", kind)]).tobytes()

        here = {n: words for n, words in self.words.items() if (n >= self.tail) == is_tail}
        held = {term: {n: words for n, words in here.items() if term in words} for term in terms}
        return [
            {"term": term, "first": first, "lengths": sent([len(words) for words in its.values()], ">i2"),
             "postings": sent([(n - first << 8) + words.count(term) for n, words in its.items()], ">i4")}
            for term, its in held.items() if its
        ]  # fmt: skip

    def item(self, n: int) -> dict[str, Any]:
        return {"item": n, "turn": n, "previous": n - 1, "role": USER, "created": n * DAY, "tokens": len(self.words[n])}


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
