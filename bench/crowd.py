"""A large population, fast: one user of each size through the API, the others copied from them, set by set.

What is copied is everything that the tables hold of a user, with the copy's own ids of user and sessions, so every structure is as the
jobs leave it: words in posting lists with a short unmerged tail, a vector for each item, counters, statistics. Rows of the users copied
together are written by turns, some of one user, then some of the next, as users who talk at the same time write them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import psycopg
from psycopg.types.json import Jsonb

from .common import progress
from .population import DIMENSION, TURNS_PER_SESSION, Words

# Items of a user (a third memories, the rest turns), and which share of all items users of that size have together.
SIZES = {300: 1 / 2, 2_000: 1 / 6, 10_000: 1 / 6, 100_000: 1 / 6}
FULL = 3_000_000
SMALL = (100, 200, 300, 400, 500)  # what users of 300 items really have
MERGED = 1_000  # items between two merges of the words
TAIL = 150  # items not merged
TOPICS = 1_000
TURNS = {
    "search_items": "item_no",
    "search_tail": "item_no",
    "embeddings": "item_no",
    "conversation_history": "turn_index",
}
ORDER = {table: f"t.{column} / 10, c.o, t.{column}" for table, column in TURNS.items()} | {
    "memory_store": "t.recorded_at, c.o",
    "memory_states": "t.recorded_at, c.o",
    "memory_stats": "t.memory_id, c.o",
}
SESSION_COLUMNS = ("session_id", "local_to", "parent_session_id", "last_session")


@dataclass(frozen=True)
class Crowd:
    """How many items there are, of users of which sizes."""

    items: int = FULL

    def users(self, size: int) -> int:
        return max(1, round(self.items * SIZES[size] / size))

    def describe(self) -> str:
        total = sum(self.users(size) * size for size in SIZES)
        users = ", ".join(f"{self.users(size):,} of {size:,}" for size in SIZES)
        return f"about {total // 3:,} memories and {total - total // 3:,} turns, of users with so many items: {users} (the smallest: 100 to 500)"


def name_of(size: int) -> str:
    return f"measured-{size}"


def last_session(size: int) -> str:
    return f"session-{(size - size // 3 - 1) // TURNS_PER_SESSION}"


class Topics:
    """Vectors that lie together in bunches, as those of texts do: the sum of two topics and some noise."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._base = [[rng.gauss(0, 1) for _ in range(DIMENSION)] for _ in range(TOPICS)]

    def put(self, connection: psycopg.Connection) -> None:
        """A temporary table of them, which make_user reads; pgvector's operators are found from here on."""
        connection.execute("set search_path = pg_catalog, memoir_extensions, pg_temp")
        connection.execute("create temp table topics (n integer primary key, v memoir_extensions.halfvec not null)")
        with connection.cursor().copy("copy topics from stdin") as copy:
            for n, base in enumerate(self._base):
                copy.write_row((n, "[" + ",".join(f"{x:.3f}" for x in base) + "]"))
        connection.execute("analyze topics")

    def reseed(self, seed: int) -> None:
        self._rng = random.Random(seed)

    def query(self) -> list[float]:
        one, other = self._rng.choice(self._base), self._rng.choice(self._base)
        return [round(a + b / 2 + self._rng.gauss(0, 0.5), 3) for a, b in zip(one, other, strict=True)]


def make_user(connection: psycopg.Connection, user: str, items: int, words: Words, months: int = 0) -> None:
    """A user with items // 3 memories and turns for the rest, through the API; their words merged and vectors made on the way.

    `months`: the sessions are spread over so many of the last months, the newest in this one.
    """
    memories, turns = items // 3, items - items // 3
    told = 0
    for session in range(0, turns, TURNS_PER_SESSION):
        count = min(TURNS_PER_SESSION, turns - session)
        if months:
            connection.execute(
                "select memoir.set_clock(date_trunc('month', clock_timestamp()) - make_interval(months => %s) + interval '1 minute' * %s)",
                (months - 1 - months * session // turns, session // TURNS_PER_SESSION),
            )
        connection.execute(
            "select memoir.persist_turn(%s, %s, %s)",
            (user, f"session-{session // TURNS_PER_SESSION}", Jsonb(list(_messages(words, count)))),
        )
        until = memories * min(turns, session + count) // turns
        texts = [words.sentence(6, 25) for _ in range(until - told)]
        connection.execute("select count(memoir.remember(%s, t)) from unnest(%s::text[]) t", (user, texts))
        told = until
        done = session + count + told
        if done // MERGED != (session + told - len(texts)) // MERGED and done < items - TAIL:
            connection.execute("select _memoir.merge_tail(_memoir.user_id('default', %s))", (user,))
            progress(f"{user}: {done:,} items")
    if months:
        connection.execute("select memoir.set_clock(null)")
    connection.execute("select _memoir.ensure_month(_memoir.user_id('default', %s), memoir.now())", (user,))
    connection.execute(
        """with put as (
             insert into _memoir.embeddings (user_id, item_no, model_id, embedding)
             select i.user_id, i.item_no, m.model_id, a.v + b.v + c.v
             from _memoir.search_items i join _memoir.embedding_models m on m.status = 'active'
             join topics a on a.n = abs(hashint4(i.item_no)) %% %(topics)s join topics b on b.n = abs(hashint4(-i.item_no)) %% %(topics)s
             join topics c on c.n = (i.item_no * 7) %% %(topics)s
             where i.user_id = _memoir.user_id('default', %(user)s) order by i.item_no
             returning user_id, model_id, item_no)
           insert into _memoir.embedding_cursors (user_id, model_id, through_item) select user_id, model_id, max(item_no) from put group by 1, 2
           on conflict (user_id, model_id) do update set through_item = excluded.through_item""",
        {"user": user, "topics": TOPICS},
    )
    connection.execute(
        """update _memoir.memory_stats set access_count = 1 + abs(hashtext(memory_id::text)) %% 20, last_accessed_at = memoir.now()
           where user_id = _memoir.user_id('default', %s) and abs(hashtext(memory_id::text)) %% 10 = 0""",
        (user,),
    )
    connection.execute("delete from _memoir.work_items where user_id = _memoir.user_id('default', %s)", (user,))


def _messages(words: Words, count: int) -> Iterator[dict[str, str]]:
    for place in range(count):
        yield {"role": "assistant" if place % 2 else "user", "content": words.sentence(8, 60)}


def copy_user(connection: psycopg.Connection, user: str, names: Sequence[str], at_once: int = 50) -> None:
    """Everything of a user once more under each of the names."""
    tables = connection.execute(
        """select table_name::text, array_agg(attname::text order by attnum)
           from _memoir.partitioned_tables
           join pg_attribute on attrelid = ('_memoir.' || table_name)::regclass and attnum > 0 and not attisdropped and attgenerated = ''
           where not unlogged group by 1 order by 1"""
    ).fetchall()
    (template,) = connection.execute("select _memoir.user_id('default', %s)", (user,)).fetchone()
    for at in range(0, len(names), at_once):
        progress(f"copies of {user}: {at:,} of {len(names):,}")
        with connection.transaction():
            connection.execute(
                """create temp table copies on commit drop as select _memoir.user_id('default', n) as id, n as name, o
                   from unnest(%s::text[]) with ordinality u(n, o)""",
                (list(names[at : at + at_once]),),
            )
            connection.execute(
                """create temp table moved on commit drop as select c.id, s.session_id as was, _memoir.session_id(c.id, s.external_id) as now
                   from copies c, _memoir.sessions s where s.user_id = %s""",
                (template,),
            )
            connection.execute("analyze copies, moved")
            for table, columns in tables:
                moved = [column for column in columns if column in SESSION_COLUMNS]
                values = [
                    "c.id"
                    if column == "user_id"
                    else f"coalesce(m{moved.index(column)}.now, t.{column})"
                    if column in moved
                    else "c.name"
                    if (table, column) == ("users", "external_id")
                    else f"t.{column}"
                    for column in columns
                ]
                joins = " ".join(
                    f"left join moved m{n} on m{n}.id = c.id and m{n}.was = t.{column}"
                    for n, column in enumerate(moved)
                )
                connection.execute(
                    f"insert into _memoir.{table} ({', '.join(columns)}) select {', '.join(values)} "
                    f"from copies c cross join _memoir.{table} t {joins} where t.user_id = '{template}' order by {ORDER.get(table, 'c.o')}"
                )


def make_measured(connection: psycopg.Connection, sizes: Sequence[int], words: Words) -> None:
    for size in sizes:
        make_user(connection, name_of(size), size, words)
    connection.execute("vacuum analyze")
    progress("")


def make_crowd(connection: psycopg.Connection, crowd: Crowd, words: Words) -> None:
    """The rest: the measured users exist already."""
    for size in SIZES:
        others = [f"other-{size}-{n}" for n in range(crowd.users(size) - 1)]
        if size == min(SIZES):
            for place, items in enumerate(SMALL):
                mine = others[place :: len(SMALL)]
                if mine:
                    make_user(connection, mine[0], items, words)
                    copy_user(connection, mine[0], mine[1:])
        else:
            copy_user(connection, name_of(size), others, max(1, 20_000 // size))
    progress("merging, analysing")
    connection.execute("vacuum analyze")
    progress("")
