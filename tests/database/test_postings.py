"""Words: whatever was merged, packed together and taken out, posting lists and tail hold each word of each item once."""

from __future__ import annotations

import random

import psycopg
from calls import persist, table
from psycopg.types.json import Jsonb

# What is stored, however it is packed, and what the texts say.
STORED = """select w.word, p.first_item + (x.posting >> 8), x.posting & 255, x.length::integer
    from _memoir.search_postings p, unnest(p.postings, p.lengths) with ordinality x(posting, length, n),
      unnest(coalesce(p.words, array[p.key]), coalesce(p.ends, array[cardinality(p.postings)])) with ordinality w(word, stop, place)
    where p.user_id = %(user)s and x.n > coalesce(p.ends[w.place - 1], 0) and x.n <= w.stop
  union all
    select l.lexeme, t.item_no + (p >> 8), p & 255, t.word_counts[(p >> 8) + 1]::integer
    from _memoir.search_tail t, unnest(t.words) l, unnest(l.positions) p where t.user_id = %(user)s"""
SAID = """select l.lexeme, t.item_no, coalesce(cardinality(l.positions), 1), i.word_count::integer
    from _memoir.search_items i join _memoir.item_texts(%(user)s, array(select item_no from _memoir.search_items where user_id = %(user)s)) t on t.item_no = i.item_no,
      unnest(_memoir.item_words(t.body, i.language, 'english')) l where i.user_id = %(user)s"""
FOUND = """select l.term, l.first_item + (x.posting >> 8), x.posting & 255, x.length::integer
    from _memoir.user_counters c, unnest(_memoir.posting_lists(%(user)s, c, %(words)s)) l, unnest(l.postings, l.lengths) x(posting, length)
    where c.user_id = %(user)s"""


def check(db: psycopg.Connection, user: str) -> None:
    said = sorted(db.execute(SAID, {"user": user}).fetchall())
    assert sorted(db.execute(STORED, {"user": user}).fetchall()) == said and len(set(said)) == len(said) > 0
    words = sorted({word for word, *_ in said})[::7] + ["plain", "nowhere"]
    assert sorted(db.execute(FOUND, {"user": user, "words": words}).fetchall()) == [
        row for row in said if row[0] in words
    ]
    assert db.execute(
        """select tail_items = (select count(n) from _memoir.search_tail t, unnest(t.word_counts) n where t.user_id = c.user_id),
          letter_rows = (select coalesce(bit_or(case when n < 8 then 1 when n < 64 then 8 else 64 end), 0)
                         from _memoir.search_postings p, lateral (select split_part(p.key, chr(1), 2)::integer as n) k where p.user_id = c.user_id and p.words is not null)
        from _memoir.user_counters c where user_id = %s""",
        [user],
    ).fetchone() == (True, True)


def test_lists_and_tail_hold_each_word_of_each_item_once(db: psycopg.Connection, user: str) -> None:
    db.execute("set search_path = pg_catalog, memoir, _memoir, memoir_extensions, public")
    rng = random.Random(5)
    # Most begin alike, so that their letter needs several rows; one is everywhere; some a tsvector must have quoted.
    words = [f"s{n}word" for n in range(400)] + [
        "apple",
        "bread",
        "c'est",
        "o'brien",
        "naïve",
        "漢字",
        "x/y/z.txt",
        "-5.3",
    ]

    def text() -> str:
        return " ".join(["plain"] + rng.choices(words, k=rng.randint(3, 260 if rng.random() < 0.1 else 40)))

    me, kinds = None, set()
    for step in range(24):
        messages = [
            {"role": ("user", "assistant")[n % 2], "content": text()}
            for n in range(90 if step == 3 else rng.choice((1, 2, 16)))
        ]
        db.execute("select memoir.persist_turn(%s, %s, %s)", [user, f"s{step % 3}", Jsonb(messages)])
        (me,) = db.execute("select _memoir.user_id('default', %s)", [user]).fetchone()
        if rng.random() < 0.3:
            items = [
                item for (item,) in db.execute("select item_no from _memoir.search_items where user_id = %s", [me])
            ]
            db.execute("select _memoir.drop_items(%s, %s)", [me, rng.sample(items, min(len(items) // 3, 9))])
        if step == 3 or rng.random() < 0.4:
            db.execute("select _memoir.merge_tail(%s)", [me])
        if step % 4 == 3:
            check(db, me)
            keys = [
                key.partition("\x01")[2]
                for (key,) in db.execute("select key from _memoir.search_postings where user_id = %s", [me])
            ]
            kinds |= {min(int(key or 0), 2) for key in keys}
    db.execute("select _memoir.merge_tail(%s)", [me])
    check(db, me)
    assert kinds == {0, 1, 2}  # a frequent word alone, a letter in one row, a letter in several
    items = [item for (item,) in db.execute("select item_no from _memoir.search_items where user_id = %s", [me])]
    db.execute("select _memoir.drop_items(%s, %s)", [me, items])
    assert db.execute(STORED, {"user": me}).fetchall() == []
    assert db.execute(
        "select (select count(*) from _memoir.search_postings where user_id = %(user)s) + (select count(*) from _memoir.search_tail where user_id = %(user)s)",
        {"user": me},
    ).fetchone() == (0,)


def test_misspelt_names_are_found(db: psycopg.Connection, user: str) -> None:
    cluster = "Our Kubernetes cluster moved to the new building."
    persist(db, user, "s", cluster, "Noted.", "The garden needs water.", "I see.")
    for merged in (False, True):
        if merged:
            db.execute("select _memoir.merge_tail(user_id) from _memoir.users where external_id = %s", [user])

        def by_words(query: str) -> list[str]:
            return [text for text, words in table(db, "recall", user, query, columns="content, words_score") if words]

        assert by_words("kubarnetes") == [cluster]
        assert cluster in by_words("garden Kubarnetes") and cluster not in by_words("garden kubarnetes")
