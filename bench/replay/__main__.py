"""Sessions of coding agents, replayed call by call through four strategies, with what each sends and costs.

    python -m bench.replay [--steps 50,200,1000] [--windows 32k,128k,200k,1M] [--seeds 1] [--recorded folder] [--set key=json]

Sessions are generated (files, searches, edits, tests, errors, parallel calls; facts planted in single tool results) or recorded
transcripts of Claude Code. Strategies: as the client sends it (whatever the window), oldest results dropped, summarised at the
limit, and pg_memoir: appended and compiled through the client, and beside the client's own list, as the gateway does it. Cost: of a model of prompt caching (bench/replay/caching.py) at
list prices, answers included; the last columns as a share of what the client's own list costs. Kept: tokens of the list before
with which a list begins. A fault: the next message uses an entity of an earlier result or call that the list does not show;
faults are given as share of moves (a result made shorter, once a moment) with a 95 % interval, and by kind. Numbers that it
uses are counted by kind alone, since round ones and those of lines are met by chance. Asked: planted facts
whose result is no longer shown whole are asked of memory_query; found: the fact is in its answer. Added: milliseconds to append
and compile.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

import psycopg
from pg_memoir import Memoir

from ..common import CannotRun, fresh_database, percentile, progress, run_alone, table
from .plot import draw
from .run import Outcome, replay
from .sessions import Session, generated, recorded
from .strategies import AsIs, Beside, Dropped, Ours, Strategy, Summarised

WINDOWS = {"32k": 32_000, "128k": 128_000, "200k": 200_000, "1M": 1_000_000}
START = 1_790_000_000


def interval(hits: int, trials: int) -> str:
    """A share in percent with its 95 % interval (Wilson)."""
    if not trials:
        return "–"
    z, p = 1.96, hits / trials
    centre = (p + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z * math.sqrt(p * (1 - p) / trials + z * z / (4 * trials * trials)) / (1 + z * z / trials)
    return f"{100 * p:.2f} % ({100 * max(0, centre - half):.2f}–{100 * min(1, centre + half):.2f})"


def outcomes(session: Session, window: int, dsn: str, own: bool) -> list[Outcome]:
    """Of all strategies, or of ours and the client's own list."""
    made: list[Strategy] = [AsIs(window)] if own else [AsIs(window), Dropped(window), Summarised(window)]
    out = [replay(session, strategy, window) for strategy in made]
    with Memoir(dsn) as memoir, psycopg.connect(dsn, autocommit=True) as admin:

        def clock(seconds: float) -> None:
            admin.execute("select memoir.set_setting('clock', to_jsonb(to_timestamp(%s)))", (START + seconds,))

        for strategy in (Ours, Beside):
            user = f"{strategy.__name__}/{session.name}/{window}"
            out.append(replay(session, strategy(memoir, user, window, "default"), window, clock))
    return out


def row(outcome: Outcome, plain: Outcome) -> list[str]:
    faults = sum(count for kind, count in outcome.faults.items() if kind != "number")
    moves = max(outcome.moves, 0)
    ratios = [f"{outcome.costs[name] / plain.costs[name]:.2f}" for name in outcome.costs]
    return [
        outcome.strategy,
        f"{outcome.tokens / 1e6:.2f} M",
        f"{100 * outcome.results / max(1, plain.results) - 100:+.0f} %",
        f"{100 * outcome.kept / max(1, outcome.could):.1f} %",
        f"{moves}",
        f"{faults}" + (f" = {interval(min(faults, moves), moves)}" if moves else ""),
        f"{outcome.answered} of {outcome.asked}" if outcome.asked else "–",
        f"{1000 * percentile(outcome.seconds, 0.5):.0f} / {1000 * percentile(outcome.seconds, 0.95):.0f} / "
        f"{1000 * max(outcome.seconds):.0f}",
        *ratios,
    ]


def section(session: Session, window: str, results: list[Outcome]) -> str:
    plain = results[0]
    head = ["strategy", "tokens", "in results", "kept", "moves", "faults", "asked: found", "added ms p50 / p95 / most"]
    title = f"{session.name}, window {window}: {plain.calls} calls, {plain.last:,} tokens at the end"
    kinds = "; ".join(
        f"{outcome.strategy}: " + ", ".join(f"{kind} {count}" for kind, count in outcome.faults.most_common())
        for outcome in results
        if outcome.faults
    )
    costs = ", ".join(f"{name} ${cost:.2f}" for name, cost in plain.costs.items())
    return (
        f"**{title}** (the client's own list: {costs})\n\n"
        + table(head + [f"cost, {name}" for name in plain.costs], [row(outcome, plain) for outcome in results])
        + (f"\n\nFaults by kind: {kinds}." if kinds else "")
    )


def summary(results: list[tuple[str, list[Outcome]]]) -> str:
    """Returns a row for each session, window and strategy of ours: what it costs, sends, keeps and hides."""
    head = [
        "session",
        "window",
        "strategy",
        "calls",
        "cost",
        "in results",
        "kept",
        "last list",
        "moves",
        "faults",
        "by class",
    ]
    rows = []
    for window, outcomes_of in results:
        plain = outcomes_of[0]
        name = next(iter(plain.costs))
        for outcome in (outcome for outcome in outcomes_of if outcome.strategy.startswith("pg_memoir")):
            faults = {kind: count for kind, count in outcome.faults.items() if kind != "number"}
            rows.append(
                [
                    outcome.session,
                    window,
                    outcome.strategy.removeprefix("pg_memoir").strip() or "compiled",
                    str(plain.calls),
                    f"{outcome.costs[name] / plain.costs[name]:.2f}",
                    f"{100 * outcome.results / max(1, plain.results) - 100:+.0f} %",
                    f"{100 * outcome.kept / max(1, outcome.could):.1f} %",
                    f"{outcome.last:,} of {plain.last:,}",
                    str(outcome.moves),
                    str(sum(faults.values())),
                    ", ".join(f"{kind} {count}" for kind, count in faults.items()) or "–",
                ]
            )
    return table(head, rows)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", default="50,200,1000", help="lengths of generated sessions (%(default)s)")
    parser.add_argument("--windows", default=",".join(WINDOWS), help="%(default)s")
    parser.add_argument("--seeds", type=int, default=1, help="generated sessions of each length (%(default)s)")
    parser.add_argument("--recorded", type=Path, help="a folder of transcripts of Claude Code")
    parser.add_argument("--own", action="store_true", help="only pg_memoir and the client's own list")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=JSON", help="a setting of the database")
    parser.add_argument("--plots", type=Path, help="a folder for a plot (SVG) of each session and window")


def run(options: argparse.Namespace) -> list[tuple[str, str]]:
    windows = options.windows.split(",")
    if unknown := [window for window in windows if window not in WINDOWS]:
        raise CannotRun(f"unknown window {', '.join(unknown)}: {', '.join(WINDOWS)}")
    if wrong := [given for given in options.set if "=" not in given]:
        raise CannotRun(f"--set {wrong[0]}: give key=json, for example window_prefix_share=0")
    sessions = [
        generated(int(steps), seed)
        for steps in options.steps.split(",")
        if steps
        for seed in range(1, options.seeds + 1)
    ]
    if options.recorded:
        sessions += recorded(options.recorded)
    sections: list[str] = []
    all_results: list[tuple[str, list[Outcome]]] = []
    with fresh_database("replay") as dsn:
        with psycopg.connect(dsn, autocommit=True) as admin:
            for key, value in (given.split("=", 1) for given in options.set):
                admin.execute("select memoir.set_setting(%s, %s::jsonb)", (key, value))
        for session in sessions:
            for window in windows:
                progress(f"{session.name}, {window}")
                results = outcomes(session, WINDOWS[window], dsn, options.own)
                sections.append(section(session, window, results))
                print(sections[-1], end="\n\n", flush=True)
                all_results.append((window, results))
                if options.plots:
                    name = f"{session.name}_{window}".replace(" ", "_").replace(",", "")
                    title = f"{session.name}, window {window}"
                    options.plots.mkdir(parents=True, exist_ok=True)
                    (options.plots / f"{name}.svg").write_text(draw(results, title), "utf-8")
    print(summary(all_results), flush=True)
    return [("replay", "\n\n".join([*sections, summary(all_results)]))]


if __name__ == "__main__":
    sys.exit(run_alone("bench.replay", __doc__, add_arguments, run))
