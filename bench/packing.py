"""How close packing comes to the best choice there is, on the candidates of real questions.

    python -m bench.packing --data locomo.json --data realmem/ --data beam/ [--questions 25] [--budgets 500,1000,2000,4000]

What `compile_context` packed is compared with the exact optimum over the same candidates above the relevance floor, each shown at one
of its fidelities or not at all (a multiple-choice knapsack, by dynamic programming over every budget), and with the fractional
optimum (η), which may cut a line anywhere. Value is what the packing maximises: about the chance that a line is evidence (`worth` in
`explain_context`), for less than the whole text a share of it (setting `fidelity_worth`). Costs are exact tokens of each line as shown
and of each date header (paid once per group of lines); the fence, and what the block's text costs otherwise than the sum of its lines,
is taken off the budget of both. Evidence: share of it that is in the recall, as packed, and as the optimum would have it. Fill: tokens
of the recall over the budget, where candidates were left out for want of room. Excerpts: share of the lines that are shown so. Time is
that of the choice alone and of all of the recall block: reading texts, choosing, rendering and counting it. The second table: evidence
in the same tokens if whole candidates were taken in other orders, mean over kinds of data.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psycopg
from pg_memoir import Memoir

from .common import CachedEmbedder, CannotRun, fresh_database, percentile, progress, report, run_alone, table
from .datasets import Asked, Corpus, Remembered, Said, read
from .evidence import Stored, store

BUDGETS = (500, 1000, 2000, 4000)
REPEATS = 3  # the least of so many times counts


@dataclass(frozen=True)
class Line:
    """A candidate as it would be shown at one fidelity."""

    ref: str
    place: int  # of the candidate: one line of each at most
    fidelity: str
    score: float
    value: float
    cost: int
    group: int
    opening: int  # tokens of its group's header
    packed: bool


@dataclass
class Compile:
    """One compile: its candidates, what it packed, and against what."""

    kind: str
    budget: int
    tokens: int
    lines: list[Line]
    gold: set[str]
    choosing: float  # microseconds
    block: float

    def candidates(self) -> int:
        return len({line.place for line in self.lines})

    def room(self) -> int:
        """Tokens for lines and headers: the budget without what the packed block cost beyond their sum."""
        return self.budget - self.tokens + spent([line for line in self.lines if line.packed])


CAPTURE = """
create function pg_temp.packed(p_user text, p_session text, p_query text, p_budget integer, p_vector real[], p_repeats integer)
returns table (ref text, place integer, fidelity text, score real, value float8, cost integer, header integer, opening integer, packed boolean,
  budget integer, tokens integer, choosing float8, block float8)
language plpgsql as $$
declare
  v _memoir.compile_state; v_lines _memoir.recall_line[]; v_reduced _memoir.reduced_text[]; v_texts _memoir.item_text[]; v_names _memoir.session_name[];
  v_terms text[]; v_hidden uuid[]; v_started timestamptz; v_choosing float8; v_block float8; v_clean _memoir.candidate[]; i integer;
begin
  v := _memoir.compile(p_user, p_session, p_query, null, p_budget, null, null, p_vector, null, null, null, 'openai', null);
  v_clean := v.candidates;
  for i in 1 .. cardinality(v_clean) loop
    if (v_clean[i]).reason = 'a copy of another candidate' then v_clean[i].reason := null; end if;
  end loop;
  v_hidden := array(select s.message_id from unnest(v.shown) s);
  v_terms := _memoir.query_terms((v.config ->> 'text_search_config')::regconfig, p_query);
  select array_agg((t.item_no, t.name, t.body)::_memoir.item_text) into v_texts
  from _memoir.texts_at(v.user_id, array(select (c.item_no, c.kind, c.ref_id, c.session_id, c.turn_index, c.recorded_at, c.span_start, c.span_length)::_memoir.item_locator
    from unnest(v_clean) c where c.reason is null and c.ref_id <> all (v_hidden)), v.clearance) t;
  select array_agg((s.session_id, s.external_id)::_memoir.session_name) into v_names from _memoir.sessions s where s.user_id = v.user_id;
  v_reduced := _memoir.reduced_turns(array(select c from unnest(v_clean) c where c.kind = 't' and c.tokens >= 60), v_texts,
    (v.config -> 'fidelity_worth' ->> 'excerpt')::float8, v_terms, null);
  for i in 1 .. p_repeats loop
    select l.lines into v_lines from _memoir.lines_of(v, v_clean, v_terms, null) l;
    v_started := clock_timestamp();
    perform _memoir.choose(v_lines, v.recall_budget);
    v_choosing := least(v_choosing, date_part('epoch', clock_timestamp() - v_started) * 1e6);
    v_started := clock_timestamp();
    perform _memoir.recall_block(v, v_clean, '{}', v_terms, false, null);
    v_block := least(v_block, date_part('epoch', clock_timestamp() - v_started) * 1e6);
  end loop;
  -- Every candidate that may be shown at every fidelity, also those that packing leaves out at once.
  select l.lines into v_lines from _memoir.recall_lines(v_clean, v_texts, v_names, null) l;
  return query
  select l.ref_id::text, l.candidate_no, f.fidelity, c.score, l.worth * f.share,
    _memoir.tokens_of(case when l.is_turn then l.label || ': ' || case when f.fidelity = 'full' and l.chunk > 0 then '… ' else '' end || btrim(f.body, E' \\n\\t')
                           else '- ' || btrim(f.body, E' \\n\\t') || ' (' || _memoir.day(l.said_at) || ')' end || E'\\n', v.tokenizer),
    l.group_no, _memoir.tokens_of(l.header || E':\\n', v.tokenizer), c.position is not null and c.fidelity = f.fidelity,
    v.recall_budget, v.recall_tokens, v_choosing, v_block
  from unnest(v_lines) l
  join unnest(v.candidates) with ordinality c on c.ordinality = l.candidate_no,
    lateral (select 'full' as fidelity, l.body, 1::float8 as share
             union all select r.fidelity, r.body, r.share from unnest(v_reduced) r where r.item_no = c.item_no) f;
end $$"""


# --- What could have been packed -----------------------------------------------------------------------------------------


def spent(lines: Sequence[Line]) -> int:
    """Tokens of lines and of the headers they need."""
    return sum(line.cost for line in lines) + sum({line.group: line.opening for line in lines}.values())


def by_group(lines: Sequence[Line]) -> list[list[list[int]]]:
    """Places of the lines, by group and candidate."""
    groups: dict[int, dict[int, list[int]]] = {}
    for at, line in enumerate(lines):
        groups.setdefault(line.group, {}).setdefault(line.place, []).append(at)
    return [list(group.values()) for group in groups.values()]


def exact(lines: Sequence[Line], room: int) -> tuple[float, set[int]]:
    """(value, lines) of the best choice: a multiple-choice knapsack over every budget, group by group, since a group's header is paid once."""
    best = np.zeros(room + 1)
    history: list[tuple[list[list[int]], np.ndarray, list[np.ndarray]]] = []
    for items in by_group(lines):
        opening = lines[items[0][0]].opening
        opened = np.full(room + 1, -np.inf)
        if opening <= room:
            opened[opening:] = best[: room + 1 - opening]
        taken = []
        for options in items:
            with_it, which = opened.copy(), np.full(room + 1, -1)
            for option in options:
                cost = lines[option].cost
                if cost <= room:
                    better = opened[: room + 1 - cost] + lines[option].value > with_it[cost:]
                    with_it[cost:][better] = opened[: room + 1 - cost][better] + lines[option].value
                    which[cost:][better] = option
            taken.append(which)
            opened = with_it
        history.append((items, opened > best, taken))
        best = np.maximum(best, opened)
    chosen, left = set(), room
    for items, used, taken in reversed(history):
        if used[left]:
            for which in reversed(taken):
                if (option := int(which[left])) >= 0:
                    chosen.add(option)
                    left -= lines[option].cost
            left -= lines[items[0][0]].opening
    return float(best[room]), chosen


def steps(options: Sequence[Line]) -> list[tuple[float, int]]:
    """(value, cost) that each fidelity adds to the one before it, those left out that a mixture of others beats: the upper hull."""
    hull: list[tuple[float, int]] = [(0.0, 0)]
    for line in sorted(options, key=lambda line: (line.cost, -line.value)):
        if line.value <= hull[-1][0]:
            continue
        while len(hull) > 1 and (line.value - hull[-1][0]) * (hull[-1][1] - hull[-2][1]) >= (
            hull[-1][0] - hull[-2][0]
        ) * (line.cost - hull[-1][1]):
            hull.pop()
        hull.append((line.value, line.cost))
    return [(high[0] - low[0], high[1] - low[1]) for low, high in zip(hull, hull[1:], strict=False)]


def fractional(lines: Sequence[Line], room: int) -> float:
    """Value of the best choice if lines and headers could be cut: each group begins with the lines that repay its header best."""
    pieces: list[tuple[float, int]] = []  # (value, cost)
    for items in by_group(lines):
        mine = sorted(
            (step for options in items for step in steps([lines[option] for option in options])),
            key=lambda step: -step[0] / step[1],
        )
        values, costs = (
            np.cumsum([value for value, _ in mine]),
            lines[items[0][0]].opening + np.cumsum([cost for _, cost in mine]),
        )
        first = int(np.argmax(values / costs))
        pieces.append((float(values[first]), int(costs[first])))
        pieces += mine[first + 1 :]
    total = 0.0
    for value, cost in sorted(pieces, key=lambda piece: -piece[0] / piece[1]):
        if cost >= room:
            return total + value * room / cost
        total += value
        room -= cost
    return total


# --- Measuring -----------------------------------------------------------------------------------------------------------


def capture(
    memoir: Memoir,
    connection: psycopg.Connection,
    embed: CachedEmbedder,
    corpus: Corpus,
    asked: set[int],
    budgets: Sequence[int],
) -> list[Compile]:
    """Stores what was said before each question asked and compiles it with each budget."""
    user = f"{corpus.kind}: {corpus.name}"
    found: list[Compile] = []
    stored: dict[str, Stored] = {}
    waiting: list[Said | Remembered] = []
    number = -1
    for event in corpus.events:
        if not isinstance(event, Asked):
            waiting.append(event)
            continue
        number += 1
        if number not in asked:
            continue
        progress(f"{user}: question {number + 1}")
        if waiting:
            stored |= store(memoir, user, waiting)
            waiting = []
            memoir.embed_backlog(embed)
            connection.execute("call memoir.merge_search()")  # as the job does
            connection.execute("analyze _memoir.search_items, _memoir.embeddings, _memoir.search_postings")
        (vector,) = embed([event.text])
        for budget in budgets:
            rows = connection.execute(
                "select * from pg_temp.packed(%s, %s, %s, %s, %s::real[], %s)",
                (user, event.session or "a session of its own", event.text, budget, vector, REPEATS),
            ).fetchall()
            if rows:
                lines = [Line(*row[:9]) for row in rows]
                found.append(
                    Compile(
                        corpus.kind,
                        rows[0][9],
                        rows[0][10],
                        lines,
                        {stored[key].id for key in event.evidence},
                        rows[0][11],
                        rows[0][12],
                    )
                )
    return found


def judged(found: Sequence[Compile]) -> list[str]:
    """The cells of one row."""
    of_exact, of_fractional, fill, packed_evidence, exact_evidence, excerpts = [], [], [], [], [], []
    for compiled in found:
        packed = [line for line in compiled.lines if line.packed]
        value, room = sum(line.value for line in packed), compiled.room()
        best, chosen = exact(compiled.lines, room)
        if best:
            of_exact.append(value / best)
            of_fractional.append(value / fractional(compiled.lines, room))
        excerpts.append(np.mean([line.fidelity == "excerpt" for line in packed]) if packed else 0)
        if len(packed) < compiled.candidates():
            fill.append(compiled.tokens / compiled.budget)
        if compiled.gold:
            packed_evidence.append(len(compiled.gold & {line.ref for line in packed}) / len(compiled.gold))
            exact_evidence.append(
                len(compiled.gold & {compiled.lines[place].ref for place in chosen}) / len(compiled.gold)
            )
    return [
        str(len(found)),
        f"{percentile([float(c.candidates()) for c in found], 0.5):.0f}",
        f"{100 * np.mean(excerpts):.1f}",
        *(
            f"{100 * x:.1f}"
            for x in (percentile(of_exact, 0.5), min(of_exact), percentile(of_fractional, 0.5), min(of_fractional))
        ),
        f"{100 * np.mean(fill):.1f}" if fill else "–",
        f"{100 * np.mean(packed_evidence):.1f}",
        f"{100 * np.mean(exact_evidence):.1f}",
        f"{percentile([c.choosing / c.candidates() for c in found], 0.5):.1f}",
        f"{percentile([c.block / c.candidates() for c in found], 0.5):.0f}",
    ]


def filled(lines: Sequence[Line], room: int, keys: Sequence[float]) -> list[Line]:
    """The lines that still fit, taken by their keys, highest first."""
    chosen: list[Line] = []
    left, opened = room, set()
    for _, _, line in sorted((-key, place, line) for place, (key, line) in enumerate(zip(keys, lines, strict=True))):
        cost = line.cost + (0 if line.group in opened else line.opening)
        if cost <= left:
            left -= cost
            opened.add(line.group)
            chosen.append(line)
    return chosen


def odds(line: Line, power: float) -> float:
    """The share whose odds are those of the score to a power."""
    score = min(0.9999, max(0.0001, line.score))
    return 1 / (1 + (1 / score - 1) ** power)


ORDERS: dict[str, Callable[[Line], float]] = {
    "score": lambda line: line.score,
    "score per token": lambda line: line.score / line.cost,
    **{f"odds^{power}, per token": lambda line, power=power: odds(line, power) / line.cost for power in (2, 3, 4, 5)},  # type: ignore[misc]
}


def orders(found: Sequence[Compile], budgets: Sequence[int]) -> list[list[str]]:
    """Evidence in the same room if lines were taken in other orders, mean over kinds of data."""
    rows = []
    for name, order in ORDERS.items():
        cells = []
        for budget in budgets:
            shares: dict[str, list[float]] = {}
            for compiled in (c for c in found if c.budget == budget and c.gold):
                whole = [line for line in compiled.lines if line.fidelity == "full"]
                refs = {line.ref for line in filled(whole, compiled.room(), [order(line) for line in whole])}
                shares.setdefault(compiled.kind, []).append(len(compiled.gold & refs) / len(compiled.gold))
            cells.append(f"{100 * np.mean([np.mean(of) for of in shares.values()]):.1f}")
        rows.append([name, *cells])
    return rows


HEAD = ["data, budget", "compiles", "candidates", "excerpts", "of the optimum, median", "worst", "η, median", "worst", "fill", "evidence packed",
        "evidence of the optimum", "µs per candidate: choice", "µs: block"]  # fmt: skip


def tables(found: Sequence[Compile], budgets: Sequence[int]) -> list[tuple[str, str]]:
    rows = []
    for kind in dict.fromkeys(compiled.kind for compiled in found):
        for budget in budgets:
            if mine := [compiled for compiled in found if compiled.kind == kind and compiled.budget == budget]:
                rows.append([f"{kind}, {budget:,}", *judged(mine)])
    rows.append(["all", *judged(found)])
    return [
        report("packing", table(HEAD, rows)),
        report(
            "packing-orders",
            table(["evidence by order", *(f"{budget:,}" for budget in budgets)], orders(found, budgets)),
        ),
    ]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data",
        type=Path,
        action="append",
        help="a LoCoMo file, a folder of RealMem dialogues or of BEAM chats; may be given several times",
    )
    parser.add_argument(
        "--corpora", default="", help="only corpora whose 'kind: name' contains one of these, with commas"
    )
    parser.add_argument(
        "--questions", type=int, default=25, help="a sample of so many questions of each corpus (%(default)s)"
    )
    parser.add_argument("--budgets", default=",".join(map(str, BUDGETS)), help="memory budgets in tokens (%(default)s)")


def run(options: argparse.Namespace) -> list[tuple[str, str]]:
    if not options.data:
        raise CannotRun(
            "no data: give files or folders of conversations with gold evidence by --data (they are not part of the project)"
        )
    rng = random.Random(0)
    budgets = [int(budget) for budget in options.budgets.split(",")]
    only = [part for part in options.corpora.split(",") if part]
    embed = CachedEmbedder()
    found: list[Compile] = []
    with fresh_database("packing") as dsn, Memoir(dsn) as memoir, psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(CAPTURE)
        for corpus in (corpus for path in options.data for corpus in read(path)):
            if only and not any(part in f"{corpus.kind}: {corpus.name}" for part in only):
                continue
            count = len(corpus.questions())
            asked = set(rng.sample(range(count), min(options.questions, count)))
            found += capture(memoir, connection, embed, corpus, asked, budgets)
            progress("")
    return tables(found, budgets)


if __name__ == "__main__":
    sys.exit(run_alone("bench.packing", __doc__, add_arguments, run, expected=(CannotRun, ValueError)))
