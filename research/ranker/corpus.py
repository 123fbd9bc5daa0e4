"""Conversations as the database indexes them: items, words, vectors, token counts, read back for a study without it.

python -m research.ranker.corpus --data locomo.json --data realmem/ --data beam/ --out .local/cache/ranker.pickle
"""

from __future__ import annotations

import argparse
import pickle
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import psycopg
from pg_memoir import Memoir

from bench.common import CACHE, CachedEmbedder, CannotRun, fresh_database, progress
from bench.datasets import Asked, Corpus, Remembered
from research.conversations import batches, read

# Messages that ask for nothing: whatever is recalled for them is noise.
SMALL_TALK = """hi|hello there|hey, how are you?|good morning|good evening!|thanks|thank you so much!|thanks a lot, that helps|ok|okay, great|sure
yes|yes please|no|no, that's all|sounds good|perfect|awesome, thanks!|got it|I see|cool|nice|bye|goodbye, talk to you tomorrow|see you later|have a nice day
good night|lol|haha|never mind|please continue|go on|one moment please|sorry|no problem|you're welcome|great job|how is it going?|what's up?|that's fine""".replace(
    "\n", "|"
).split("|")


@dataclass
class Item:
    """A search item: a chunk of a turn or of a memory."""

    unit: int  # which turn or memory of the corpus, counted in order
    session: str
    chunk: int
    last: bool
    tokens: int
    kind: str
    role: str
    speaker: str
    is_question: bool
    after_question: bool
    at: datetime
    body: str
    words: dict[str, list[int]]  # lexeme → positions
    cost: int  # exact tokens of its line in a recall


@dataclass
class Query:
    """A question: words, vector, how many items existed when it was asked, the units that answer it."""

    text: str
    category: str
    session: str
    words: dict[str, list[int]]
    vector: np.ndarray
    items: int
    gold: list[int]


@dataclass
class Indexed:
    """One corpus, indexed."""

    kind: str
    name: str
    items: list[Item]
    vectors: np.ndarray
    unit_tokens: np.ndarray
    queries: list[Query]


def load(memoir: Memoir, corpus: Corpus, user: str) -> None:
    """Imports all but the questions."""
    for batch in batches(corpus.items()):
        if isinstance(batch, Remembered):
            memoir.remember(user, batch.content, created_at=batch.at)
        else:
            memoir.persist_turn(user, batch[0].session, [event.message for event in batch])


ITEMS = """
  select i.item_no, i.ref_id::text, coalesce(i.session_id::text, ''), i.chunk, i.last_chunk, i.token_count, i.kind::text, coalesce(i.role::text, ''),
    coalesce(i.speaker, ''), i.is_question, i.after_question, i.created_at, t.body,
    (select jsonb_object_agg(w.lexeme, coalesce(w.positions, '{1}')) from unnest(_memoir.words('english', coalesce(i.speaker || ': ', '') || t.body)) w)
  from _memoir.search_items i join _memoir.item_texts(%(user)s, %(items)s) t using (item_no)
  where i.user_id = %(user)s order by i.item_no"""


def indexed(connection: psycopg.Connection, embed: CachedEmbedder, corpus: Corpus, user: str) -> Indexed:
    """Reads a corpus back as the database indexed it."""
    user_id = connection.execute("select user_id from _memoir.users where external_id = %s", (user,)).fetchone()[0]
    numbers = [
        row[0]
        for row in connection.execute(
            "select item_no from _memoir.search_items where user_id = %s order by item_no", (user_id,)
        )
    ]
    rows, texts = [], {}
    for at in range(0, len(numbers), 64):
        some = {"user": user_id, "items": numbers[at : at + 64]}
        rows += connection.execute(ITEMS, some).fetchall()
        texts |= dict(connection.execute("select * from _memoir.embedding_texts(%(user)s, %(items)s)", some).fetchall())
    rows = [row for row in rows if row[0] in texts]  # what looks like a secret is not embedded
    vectors = np.array(embed([texts[row[0]] for row in rows]), np.float32)
    # Units in the order of events: memories by their content, turns by session and place.
    order: dict[str, int] = {}
    for row in rows:
        order.setdefault(row[1], len(order))
    keys: dict[str, int] = {}
    unit_rows = connection.execute(
        """select h.message_id::text, s.external_id || ':' || h.turn_index, h.token_count from _memoir.conversation_history h
           join _memoir.sessions s using (user_id, session_id) where h.user_id = %(user)s
           union all select memory_id::text, content, token_count from _memoir.memory_store where user_id = %(user)s""",
        {"user": user_id},
    ).fetchall()
    places = {key: (ref, tokens) for ref, key, tokens in unit_rows}
    unit_tokens = np.zeros(len(order), int)
    turn_of: dict[str, int] = {}
    for event in corpus.items():
        if isinstance(event, Remembered):
            key = event.content
        else:
            place = turn_of.get(event.session, 0)
            turn_of[event.session] = place + 1
            key = f"{event.session}:{place}"
        if key in places and places[key][0] in order:
            keys[event.key] = order[places[key][0]]
            unit_tokens[order[places[key][0]]] = places[key][1]
    tokenizer = connection.execute(
        "select _memoir.tokenizer_used(tokenizer) from _memoir.models where model = 'default'"
    ).fetchone()[0]
    lines = [_line(kind=r[6], who=r[8] or r[7], chunk=r[3], body=r[12]) for r in rows]
    costs = connection.execute("select _memoir.count_tokens(%s::text[], %s)", (lines, tokenizer)).fetchone()[0]
    items = [Item(order[r[1]], *r[2:13], r[13] or {}, cost) for r, cost in zip(rows, costs, strict=True)]
    first_item = {}
    for place, item in enumerate(items):
        first_item.setdefault(item.unit, place)
    sessions = dict(
        connection.execute(
            "select external_id, session_id::text from _memoir.sessions where user_id = %s", (user_id,)
        ).fetchall()
    )
    queries = []
    events = [*corpus.events, *(Asked(text, (), "small talk") for text in SMALL_TALK)]
    vectors_asked = embed([event.text for event in events if isinstance(event, Asked)])
    seen = 0
    number = 0
    for event in events:
        if not isinstance(event, Asked):
            if event.key in keys:
                seen = max(seen, keys[event.key] + 1)
            continue
        words = connection.execute(
            "select jsonb_object_agg(lexeme, coalesce(positions, '{1}')) from unnest(_memoir.words('english', left(%s, 20000)))",
            (event.text,),
        ).fetchone()[0]
        queries.append(
            Query(
                event.text,
                event.category,
                sessions.get(event.session or "", ""),
                words or {},
                np.array(vectors_asked[number], np.float32),
                first_item.get(seen, len(items)),
                [keys[key] for key in event.evidence if key in keys],
            )
        )
        number += 1
    return Indexed(corpus.kind, corpus.name, items, vectors, unit_tokens, queries)


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        return globals()[name] if module == "__main__" else super().find_class(module, name)


def read_indexed(path: Path) -> list[Indexed]:
    """What a run of this module wrote."""
    with path.open("rb") as file:
        return _Reader(file).load()


def _line(kind: str, who: str, chunk: int, body: str) -> str:
    return f"- {body.strip()} (8 May 2023)\n" if kind == "m" else f"{who}: {'… ' if chunk else ''}{body.strip()}\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m research.ranker.corpus",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, action="append", required=True)
    parser.add_argument("--out", type=Path, default=CACHE / "ranker.pickle")
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    embed = CachedEmbedder()
    found: list[Indexed] = read_indexed(options.out) if options.out.exists() else []  # goes on where a run ended
    done = {(each.kind, each.name) for each in found}
    try:
        with (
            fresh_database("ranker", options.keep) as dsn,
            Memoir(dsn) as memoir,
            psycopg.connect(dsn, autocommit=True) as connection,
        ):
            for corpus in (corpus for path in options.data for corpus in read(path)):
                if (corpus.kind, corpus.name) in done:
                    continue
                user = f"{corpus.kind}:{corpus.name}"
                progress(f"{user}")
                load(memoir, corpus, user)
                found.append(indexed(connection, embed, corpus, user))
                print(
                    f"{user}: {len(found[-1].items)} items of {len(found[-1].unit_tokens)}, {len(found[-1].queries)} questions",
                    flush=True,
                )
                options.out.write_bytes(pickle.dumps(found))
    except CannotRun as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
