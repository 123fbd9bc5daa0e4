"""Sessions of coding agents, replayed call by call, with what is sent for each call and what that costs.

    python -m bench.replay [--steps 50,200,1000] [--windows 32k,1M] [--seeds 1] [--recorded folder] [--set key=json]

Sessions are generated (files, searches, edits, tests, errors, parallel calls; facts planted in single tool results) or
recorded transcripts of Claude Code. Compared are the list as the client sends it (whatever the window) and pg_memoir:
appended and compiled through the client, and beside the client's own list, as the gateway does it. Cost: as a share of
what the client's own list costs (bench/replay/caching.py), answers included. Kept: tokens of the list before with which
a list begins. A fault: the next message uses an entity of an earlier result or call that the list does not show; faults
are given as share of moves (a result made shorter, once a moment) with a 95 % interval, and by kind. Numbers are not
counted, since round ones and those of lines are met by chance. Asked: planted facts whose result is no longer shown
whole are asked of memory_query; found: the fact is in its answer. Added: milliseconds to append and compile.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

import psycopg
from pg_memoir import Memoir

from ..common import CannotRun, fresh_database, percentile, progress, report, run_alone, table
from .plot import draw
from .run import Outcome, replay
from .sessions import Session, generated, recorded
from .strategies import AsIs, Beside, Ours

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


def outcomes(session: Session, window: int, dsn: str) -> list[Outcome]:
    """Of the client's own list, then of ours."""
    out = [replay(session, AsIs(), window)]
    with Memoir(dsn) as memoir, psycopg.connect(dsn, autocommit=True) as admin:

        def clock(seconds: float) -> None:
            admin.execute("select memoir.set_setting('clock', to_jsonb(to_timestamp(%s)))", (START + seconds,))

        for strategy in (Ours, Beside):
            user = f"{strategy.__name__}/{session.name}/{window}"
            out.append(replay(session, strategy(memoir, user, window, "default"), window, clock))
    return out


KEY = ["session", "window", "strategy"]
HEAD = [*KEY, "calls", "cost", "in results", "kept", "last list", "moves", "faults", "by class"]
DETAILS = [*KEY, "tokens", "faults of moves", "asked: found", "added ms p50 / p95 / most"]


def rows(window: str, plain: Outcome, outcome: Outcome) -> tuple[list[str], list[str]]:
    """Of both tables: what a strategy of ours costs, sends, keeps and hides, and more of it."""
    names = [outcome.session, window, outcome.strategy.removeprefix("pg_memoir").strip() or "compiled"]
    kinds = {kind: count for kind, count in outcome.faults.items() if kind != "number"}
    faults = sum(kinds.values())
    of_window = [
        str(plain.calls),
        f"{outcome.spent[-1] / plain.spent[-1]:.2f}",
        f"{100 * outcome.results / max(1, plain.results) - 100:+.0f} %",
        f"{100 * outcome.kept / max(1, outcome.could):.1f} %",
        f"{outcome.last:,} of {plain.last:,}",
        str(outcome.moves),
        str(faults),
        ", ".join(f"{kind} {count}" for kind, count in kinds.items()) or "–",
    ]
    times = [*(percentile(outcome.seconds, share) for share in (0.5, 0.95)), max(outcome.seconds)]
    details = [
        f"{outcome.tokens / 1e6:.2f} M of {plain.tokens / 1e6:.2f} M",
        interval(min(faults, outcome.moves), outcome.moves),
        f"{outcome.answered} of {outcome.asked}" if outcome.asked else "–",
        " / ".join(f"{1000 * seconds:.0f}" for seconds in times),
    ]
    return names + of_window, names + details


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", default="50,200,1000", help="lengths of generated sessions (%(default)s)")
    parser.add_argument("--windows", default=",".join(WINDOWS), help="%(default)s")
    parser.add_argument("--seeds", type=int, default=1, help="generated sessions of each length (%(default)s)")
    parser.add_argument("--recorded", type=Path, help="a folder of transcripts of Claude Code")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=JSON", help="a setting of the database")
    parser.add_argument("--plots", type=Path, help="a folder for a plot (SVG) of each session and window")


def run(options: argparse.Namespace) -> list[tuple[str, str]]:
    windows = options.windows.split(",")
    if unknown := [window for window in windows if window not in WINDOWS]:
        raise CannotRun(f"unknown window {', '.join(unknown)}: {', '.join(WINDOWS)}")
    if wrong := [given for given in options.set if "=" not in given]:
        raise CannotRun(f"--set {wrong[0]}: give key=json, for example window_prefix_share=0")
    lengths = [int(steps) for steps in options.steps.split(",") if steps]
    sessions = [generated(steps, seed) for steps in lengths for seed in range(1, options.seeds + 1)]
    if options.recorded:
        sessions += recorded(options.recorded)
    if not sessions:
        raise CannotRun("no sessions: give lengths with --steps, or a folder with --recorded")
    made: list[tuple[list[str], list[str]]] = []
    with fresh_database("replay") as dsn:
        with psycopg.connect(dsn, autocommit=True) as admin:
            for given in options.set:
                admin.execute("select memoir.set_setting(%s, %s::jsonb)", given.split("=", 1))
        for session, window in [(session, window) for session in sessions for window in windows]:
            progress(f"{session.name}, {window}")
            plain, *ours = outcomes(session, WINDOWS[window], dsn)
            made += [rows(window, plain, outcome) for outcome in ours]
            print(*(" | ".join(row) for row, _ in made[-len(ours) :]), sep="\n", flush=True)
            if options.plots:
                name = f"{session.name}_{window}".replace(" ", "_").replace(",", "")
                options.plots.mkdir(parents=True, exist_ok=True)
                drawing = draw([plain, *ours], f"{session.name}, window {window}")
                (options.plots / f"{name}.svg").write_text(drawing, "utf-8")
    tables = table(HEAD, [row for row, _ in made]), table(DETAILS, [row for _, row in made])
    return [report("replay", "\n\n".join(tables))]


if __name__ == "__main__":
    sys.exit(run_alone("bench.replay", __doc__, add_arguments, run))
