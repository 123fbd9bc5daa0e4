"""Nearest vectors of large users: chosen by their signs, out of the key's index, they are nearly those that comparing all would find."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from calls import one, persist
from internals import nearest_items, user_id

WANTED = 100
ABOUT = " + ".join(f"t{n}.v" for n in range(6))
JOINS = " ".join(f"join topics t{n} on t{n}.n = abs(hashint4(i.item * 6 + {n})) % 64" for n in range(6))
ITEMS = {"small": 1000, "middle": 4000, "large": 8000}


@pytest.fixture(scope="module")
def filled(memoir_dsn: str) -> Iterator[psycopg.Connection]:
    """Users with vectors that share what they are about, as those of texts do: sums of six of 64 topics."""
    with psycopg.connect(memoir_dsn, autocommit=True) as db:
        db.execute("set search_path = memoir, _memoir, memoir_extensions, public")
        db.execute("select setseed(0.5)")
        db.execute("""create temp table topics as select n, array(select random() + random() + random() - 1.5 + 0 * n
            from generate_series(1, 384))::real[]::halfvec as v from generate_series(0, 63) n""")
        for user, items in ITEMS.items():
            persist(db, user, "s", "Hello")
            db.execute(
                f"""insert into embeddings (user_id, item_no, model_id, embedding)
                    select %s, i.item, m.model_id, {ABOUT} from generate_series(1, %s) i(item)
                    join embedding_models m on m.status = 'active' {JOINS.replace("%", "%%")} order by i.item""",
                [user_id(db, user), items],
            )
            db.execute("update user_counters set items = %s where user_id = %s", [items, user_id(db, user)])
        for _ in range(20):  # again if somebody's snapshot held it up
            db.execute("vacuum analyze embeddings")
            seen = "from pg_class where relname like 'embeddings\\_p%%' and relkind = 'r'"
            if one(db, f"select sum(relallvisible) = sum(relpages) {seen}"):
                break
        yield db


def nearest(
    db: psycopg.Connection, user: str, vector: str, exact: int, items: list[int] | None = None, hidden: Any = ()
) -> list[int]:
    return nearest_items(db, user, vector, exact, items, list(hidden), WANTED)


def queries(db: psycopg.Connection, count: int) -> list[str]:
    others = f"generate_series(1000001, 1000000 + {count}) i(item) {JOINS} order by i.item"
    return [vector for (vector,) in db.execute(f"select ({ABOUT})::text from {others}")]


@pytest.mark.parametrize("user", ITEMS)
def test_signs_find_what_comparing_all_finds(filled: psycopg.Connection, user: str) -> None:
    recalls = []
    for vector in queries(filled, 40):
        exact, by_signs = nearest(filled, user, vector, 1_000_000), nearest(filled, user, vector, 0)
        assert len(by_signs) == len(exact) == WANTED
        assert [i for i in exact if i in set(by_signs)] == [i for i in by_signs if i in set(exact)]  # in the same order
        recalls.append(len(set(exact[:50]) & set(by_signs)) / 50)
    assert sum(recalls) / len(recalls) >= 0.98, recalls


def test_what_matched_by_words_is_compared_whatever_its_signs(filled: psycopg.Connection) -> None:
    [vector] = queries(filled, 1)
    farthest = "select array_agg(item_no order by embedding <=> %s::halfvec desc) from embeddings where user_id = %s"
    far = sorted(one(filled, farthest, vector, user_id(filled, "large"))[:5])
    for exact in (0, 1_000_000):
        found = nearest(filled, "large", vector, exact, far)
        assert set(far) <= set(found) and len(found) == WANTED + len(far)


def test_what_is_hidden_is_not_found(filled: psycopg.Connection) -> None:
    [vector] = queries(filled, 1)
    best = nearest(filled, "large", vector, 0)
    again = nearest(filled, "large", vector, 0, hidden=best[:50])
    assert not set(best[:50]) & set(again) and set(best[50:]) <= set(again)
