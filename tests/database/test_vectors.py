"""Nearest vectors of large users: chosen by their signs, packed or not, they are nearly those that comparing all would find.
Of a vector that changes or goes no sign stays."""

from collections.abc import Iterator, Sequence

import psycopg
import pytest
from calls import one, persist, read_turns
from internals import user_id

from kernel import SqlStore, nearest_items

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
            counted = "update user_counters set items = %(n)s, next_item = %(n)s + 1 where user_id = %(user)s"
            db.execute(counted, {"n": items, "user": user_id(db, user)})
        db.execute("analyze embeddings")
        yield db


def nearest(
    db: psycopg.Connection, user: str, vector: str, exact: int, items: Sequence[int] = (), hidden: Sequence[int] = ()
) -> list[int]:
    return nearest_items(SqlStore(db, user_id(db, user)), vector, exact, items, hidden, WANTED)


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
    for exact in (0, 1_000_000):
        best = nearest(filled, "large", vector, exact)
        again = nearest(filled, "large", vector, exact, hidden=best[:50])
        assert not set(best[:50]) & set(again) and set(best[50:]) <= set(again)


# Packed signs ---------------------------------------------------------------------------------------------------------

SIGNS = "substring(bit_send(binary_quantize(e.embedding)) from 5)"


def pack(db: psycopg.Connection, user: str, through: int) -> list[int]:
    """Packs the signs of the user's items up to a number; the segments there are then."""
    model = one(db, "select model_id from embedding_models where status = 'active'")
    given = [user_id(db, user), model, through]
    moved = "on conflict (user_id, model_id) do update set through_item = excluded.through_item"
    db.execute(f"insert into embedding_cursors (user_id, model_id, through_item) values (%s, %s, %s) {moved}", given)
    db.execute("select pack_signs(%s, %s::smallint)", given[:2])
    return segments(db, user)


def segments(db: psycopg.Connection, user: str) -> list[int]:
    found = "select segment from packed_signs where user_id = %s order by segment"
    return [segment for (segment,) in db.execute(found, [user_id(db, user)])]


def test_packed_signs_find_the_same(filled: psycopg.Connection) -> None:
    asked = queries(filled, 5)
    before = [nearest(filled, "large", vector, 0) for vector in asked]
    with filled.transaction(force_rollback=True):
        # Segments are packed once all their numbers have vectors; one may lack in between, too.
        assert pack(filled, "large", 5000) == list(range(19))
        filled.execute("delete from packed_signs where segment = 4")
        assert [nearest(filled, "large", vector, 0) for vector in asked] == before
        store = SqlStore(filled, user_id(filled, "large"))
        again = nearest_items(store, asked[0], 0, [], before[0][:50], WANTED)
        assert not set(before[0][:50]) & set(again) and set(before[0][50:]) <= set(again)
        unpacked = [(first, last) for name, _, *more in store.asked if name == "signs" for first, last in [more]]
        assert unpacked == [(1024, 1279), (19 * 256, 32 * 256 - 1)], "packed signs are not read row by row"


@pytest.mark.parametrize(
    "change",
    ["delete from embeddings e where {which}", "update embeddings e set embedding = (select v from topics limit 1) where {which}"],
)  # fmt: skip
def test_signs_go_with_their_vector(filled: psycopg.Connection, change: str) -> None:
    """In the same transaction; other segments stay."""
    which = "e.item_no = 700 and e.user_id = %s"
    with filled.transaction(force_rollback=True):
        assert pack(filled, "large", 8000) == list(range(31)) and pack(filled, "middle", 4000) == list(range(15))
        signs = one(filled, f"select {SIGNS} from embeddings e where {which}", user_id(filled, "large"))
        kept = "select count(*) from packed_signs where position(%s in signs) > 0"
        assert len(signs) == 48 and one(filled, kept, signs) == 2, "both users' items say the same here"
        filled.execute(change.format(which=which), [user_id(filled, "large")])
        assert segments(filled, "large") == [0, 1, *range(3, 31)] and segments(filled, "middle") == list(range(15))
        assert one(filled, kept, signs) == 1


def test_stored_vector_enters_its_segment(filled: psycopg.Connection) -> None:
    """A segment that was packed without it is packed anew, whole."""
    db, user, vector = filled, "stored", [0.1 if n % 2 else -0.1 for n in range(384)]
    persist(db, user, "s", *(f"This is turn {n} about the harbour." for n in range(260)))
    read_turns(db)
    vectors = """insert into embeddings (user_id, item_no, model_id, embedding)
        select i.user_id, i.item_no, m.model_id, (select v from topics limit 1) from search_items i, embedding_models m
        where m.status = 'active' and i.user_id = %s and i.item_no <> 100"""
    db.execute(vectors, [user_id(db, user)])
    assert pack(db, user, 260) == [0]
    held = """select position((select int4send(e.item_no) from embeddings e where e.user_id = %s and e.item_no = %s) in items) > 0
        and length(signs) = 12 * length(items) from packed_signs where user_id = %s and segment = 0"""
    own = user_id(db, user)
    assert one(db, held, own, 99, own) and not one(db, held, own, 100, own)
    assert one(db, "select memoir.store_embeddings(%s, '{100}', %s::real[])", [own], vector) == 1
    assert [one(db, held, own, item, own) for item in (99, 100, 101)] == [True] * 3
