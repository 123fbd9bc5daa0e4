"""A user of any size, fast: through the API, with vectors that the database makes of topics."""

from __future__ import annotations

import random

import psycopg
from psycopg.types.json import Jsonb

from .common import progress
from .population import DIMENSION, TURNS_PER_SESSION, Words, made_messages

MERGED = 1_000  # items between two merges of the words
TAIL = 150  # items not merged
TOPICS = 1_000


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

    def query(self) -> list[float]:
        one, other = self._rng.choice(self._base), self._rng.choice(self._base)
        return [round(a + b / 2 + self._rng.gauss(0, 0.5), 3) for a, b in zip(one, other, strict=True)]


def make_user(connection: psycopg.Connection, user: str, items: int, words: Words) -> None:
    """A user with items // 3 memories and turns for the rest, through the API; their words merged and vectors made on the way."""
    memories, turns = items // 3, items - items // 3
    told = 0
    for session in range(0, turns, TURNS_PER_SESSION):
        count = min(TURNS_PER_SESSION, turns - session)
        connection.execute(
            "select memoir.persist_turn(%s, %s, %s)",
            (user, f"session-{session // TURNS_PER_SESSION}", Jsonb(list(made_messages(words, count)))),
        )
        until = memories * min(turns, session + count) // turns
        texts = [words.sentence(6, 25) for _ in range(until - told)]
        connection.execute("select count(memoir.remember(%s, t)) from unnest(%s::text[]) t", (user, texts))
        told = until
        done = session + count + told
        if done // MERGED != (session + told - len(texts)) // MERGED and done < items - TAIL:
            connection.execute("select _memoir.merge_tail(_memoir.user_id('default', %s))", (user,))
            progress(f"{user}: {done:,} items")
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
