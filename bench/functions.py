"""Where the time of compile_context goes: the functions that compute and touch no table beside those that read.

    python -m bench.functions [--queries 60] [--each]

The users and questions of bench.life. Times are those of the server's own account of functions (track_functions), each without what it
calls: elapsed ones, of which only the shares mean anything on a busy machine. Beneath: what a kernel in PL/Python would pay in the same
run before it computes anything, handing its arrays over and taking them back.
"""

from __future__ import annotations

import argparse
import random
import sys
import time

import psycopg

from .common import fresh_database, report, run_alone, table
from .life import SIZES, asked, fill, make, vector
from .population import Words

# What would be a kernel over arrays: functions that are given all they weigh.
COMPUTING = {
    "words and vectors": "shared_key joined_forms joined_kindred bm25 wanted",
    "score": "signal_names rank_weights surroundings score",
    "judge": "fit_floor fits value_candidates worth strength spread message_ids",
    "lines": "within_reach reduced_turns reduced_memories recall_lines day one_line speaker_label",
    "pack": "choose left_out",
    "render": "render_recall indented neutralise fence fence_note weak_note",
    "count": "tokens_of sum_tokens estimate_tokens token_estimate py_count_tokens message_tokens",
}


def profile(dsn: str, questions: list[tuple[str, str, str, list[float]]], each: bool) -> tuple[dict[str, float], float]:
    """Milliseconds a compile of a warm connection spends in each function itself, and its recall's mean tokens."""
    compiled = "select (memoir.context(%s, %s, %s, p_query_embedding => %s::real[]) ->> 'recall_tokens')::integer"
    with psycopg.connect(dsn, autocommit=True) as connection:
        for given in questions[:12]:
            connection.execute(compiled, given)
        connection.execute("set track_functions = 'all'")
        tokens = [connection.execute(compiled, given).fetchone()[0] for given in questions]
    time.sleep(1)  # a session's account is handed over when it ends
    with psycopg.connect(dsn, autocommit=True) as connection:
        spent = connection.execute("select funcname, sum(self_time) from pg_stat_user_functions group by 1").fetchall()
        connection.execute("select pg_stat_reset()")
    own = {name: ms / len(questions) for name, ms in spent}
    if each:
        for name, milliseconds in sorted(own.items(), key=lambda pair: -pair[1])[:50]:
            print(f"  {name:28} {milliseconds:7.3f} ms", file=sys.stderr)
    return own, sum(tokens) / len(tokens)


HAND_OVER = """
create function pg_temp.handed(a int[], b int[], c int[], d int[], e int[], f uuid[], g uuid[], h timestamptz[], i timestamptz[], j text[],
  k text[], l text[], m real[], n real[], o real[], p boolean[], q boolean[], out r int[], out s real[], out t real[], out u real[],
  out v real[], out w real[], out x smallint[], out y text[], out z float8[])
language plpython3u as $$
number = [0.5] * 240
return list(range(240)), number, number, number, number, number, [1] * 240, ["no room"] * 240, number
$$;
create function pg_temp.loaded() returns real language plpython3u as $$
import time
begun = time.process_time()
import numpy
return (time.process_time() - begun) * 1000
$$"""


def hand_over(dsn: str, calls: int = 100) -> tuple[float, float] | None:
    """What a kernel would pay before it computes: ms of its arrays to PL/Python and back, and of loading numpy; None without PL/Python."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        if not connection.execute("select 1 from pg_extension where extname = 'plpython3u'").fetchone():
            return None
        connection.execute(HAND_OVER)
        loading = connection.execute("select pg_temp.loaded()").fetchone()[0]
        number, key = "array_fill({}, '{{400}}')", "gen_random_uuid()"
        kinds = ["1"] * 5 + [key] * 2 + ["now()"] * 2 + ["'text'::text"] * 3 + ["0.5::real"] * 3 + ["true"] * 2
        arrays = ", ".join(number.format(kind) for kind in kinds)
        times = []
        for count in (1, calls) * 5:
            begun = time.perf_counter()
            connection.execute(
                f"select count(x) from generate_series(1, %s) i, lateral (select pg_temp.handed({arrays}) x, i) y",
                (count,),
            )
            times.append((time.perf_counter() - begun) * 1000)
    return (min(times[1::2]) - min(times[::2])) / (calls - 1), loading


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("--queries", type=int, default=60, help="questions of each kind (%(default)s)")
    parser.add_argument("--each", action="store_true", help="every function too, on stderr")


def run(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Measures in a database of its own. `options`: of add_arguments, and `keep`."""
    words = Words(random.Random(7))
    columns: dict[str, tuple[dict[str, float], float]] = {}
    with fresh_database("functions", getattr(options, "keep", False)) as dsn:
        for size in SIZES:
            said, rng = make(size, words), random.Random(size)
            with psycopg.connect(dsn, autocommit=True) as connection:
                fill(connection, said)
                connection.execute("vacuum analyze")
            for kind in ("strong", "weak"):
                texts = [asked(said, words, rng)[f"{kind} question"] for _ in range(options.queries)]
                questions = [(said.user, said.last, text, vector(text)) for text in texts]
                columns[f"{size}, {kind}"] = profile(dsn, questions, options.each)
        handing = hand_over(dsn)
    shown = []
    for group, names in COMPUTING.items():
        shares = [100 * sum(own.get(n, 0) for n in names.split()) / sum(own.values()) for own, _ in columns.values()]
        shown.append([group, *(f"{share:.1f}" for share in shares)])
    names = " ".join(COMPUTING.values()).split()
    computing = [sum(own.get(n, 0) for n in names) for own, _ in columns.values()]
    whole = [sum(own.values()) for own, _ in columns.values()]
    shown.append(["all that computes", *(f"{100 * a / b:.1f}" for a, b in zip(computing, whole, strict=True))])
    shown.append(["ms of a compile that compute", *(f"{ms:.2f}" for ms in computing)])
    shown.append(["ms of a compile", *(f"{ms:.2f}" for ms in whole)])
    note = ""
    if handing:
        best = [(b - a + 2 * handing[0]) / b for a, b in zip(computing, whole, strict=True)]
        shown.append(["times today, if only handing over cost", *(f"{share:.2f}" for share in best)])
        note = (
            f"\n\nHanding 400 items in 17 arrays to PL/Python and 240 back in 9: {handing[0]:.2f} ms, twice a compile; "
            f"loading numpy, once a connection: {handing[1]:.0f} ms."
        )
    shown.append(["tokens of the recall", *(f"{tokens:.0f}" for _, tokens in columns.values())])
    return [report("functions", table(["share of the time, %", *columns], shown) + note)]


if __name__ == "__main__":
    sys.exit(run_alone("bench.functions", __doc__, add_arguments, run, keep=True))
