"""Long texts of one shape each, and the functions that read a text: what costs more than its length is found by doubling it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg

# What a long text repeats: each character class, what opens and never closes, what nearly matches.
SHAPES = (
    '<¦"¦`¦`` ¦``` ¦ ¦a¦1¦\n¦\t¦<div>¦<p class="x">y</p>\n¦“a ¦a b ¦. ¦? ¦x;\n¦> x\n¦| x |\n¦here\'s ¦'
    "translate ¦from: x\nto: y\n¦hey there, ¦not x ¦a.b ¦a@¦://¦你¦你好。¦😀¦2020-01-01 ¦yesterday ¦The Cat ¦key=¦"
    'password ¦total: a ¦I ¦k8s (kubernetes) ¦"a": ¦[¦(¦\\¦-¦_ ¦ab12 ¦n’t ¦DE12 3456 ¦1234 ¦I like my dog. '
).split("¦")
_TEXTS = ("p_text", "p_content", "p_query", "p_sentence", "p_body", "p_one", "p_said", "p_bare")
_VALUES = {
    "regconfig": "'english'",
    "integer": "100",
    "boolean": "false",
    "date": "'2024-01-01'",
    "timestamp with time zone": "now()",
    "jsonb": "'{}'",
}


def text_of(shape: str, length: int) -> str:
    return (shape * (length // len(shape) + 1))[:length]


def readers(db: psycopg.Connection) -> Iterator[tuple[str, str]]:
    """(name, select over %(text)s) of every internal function that only reads a text, as the catalogue has them."""
    for name, names, types in db.execute(
        """
            select p.oid::regprocedure::text, p.proargnames[1:p.pronargs], array(select format_type(t, null) from unnest(p.proargtypes) with ordinality x(t, o) order by o)
            from pg_proc p join pg_language l on l.oid = p.prolang
            where p.pronamespace = '_memoir'::regnamespace and p.prokind = 'f' and p.provolatile <> 'v' and l.lanname in ('sql', 'plpgsql', 'plpython3u')
              and p.proargnames[1:p.pronargs] && %s order by 1""",
        [list(_TEXTS)],
    ):
        arguments = []
        for argument, kind in zip(names, types):
            if kind == "text" and argument in _TEXTS:
                arguments.append("%(text)s")
            elif kind == "text":
                arguments.append(
                    {"p_pattern": "'a'", "p_language": "'english'", "p_tokenizer": "'o200k_base'"}.get(argument, "'x'")
                )
            else:
                arguments.append(_VALUES.get(kind))
        if None not in arguments:
            yield (
                name,
                f"select count(*) from (select _memoir.{name.split('(')[0].removeprefix('_memoir.')}({', '.join(arguments)})) x where x is not null",
            )


def seconds(db: psycopg.Connection, query: str, text: str, tries: int = 3) -> float:
    """Processor time of the server's process, the least of several tries; what the function refuses costs nothing."""
    least = float("inf")
    for _ in range(tries):
        before = processor_time(db)
        try:
            db.execute(query, {"text": text})
        except psycopg.errors.QueryCanceled:
            raise
        except psycopg.Error:
            return 0.0
        least = min(least, processor_time(db) - before)
    return least


def processor_time(db: psycopg.Connection) -> float:
    """Seconds that the connection's process has had a processor: on a busy machine the clock on the wall says little."""
    return int(Path(f"/proc/{db.info.backend_pid}/schedstat").read_text().split()[0]) / 1e9
