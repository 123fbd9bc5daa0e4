"""The token estimate beside exact counts, per kind of text.

    python -m bench.tokens [FILE...]

Without files it takes the texts of tests/cases/token_samples.jsonl; a file is cut into pieces of 200 and of 2,000 characters. Columns: mean
and smallest of estimate / exact, where exact is the larger of o200k_base and cl100k_base; mean of estimate / o200k_base; the
share of texts that are under-estimated; mean estimate per character. Needs the package bpe-openai.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from statistics import mean

import psycopg
from pg_memoir_server import tokens

from .common import ROOT, report, run_alone, server_dsn, table


def samples() -> list[tuple[str, str]]:
    """Texts of many kinds, written for this."""
    lines = (ROOT / "tests" / "cases" / "token_samples.jsonl").read_text("utf-8").splitlines()
    return [(case["kind"], case["text"]) for case in map(json.loads, lines)]


def pieces(path: Path) -> list[tuple[str, str]]:
    """A file's text in pieces, all of one kind: its name."""
    text = path.read_text("utf-8", "replace").replace("\0", "")
    cut = (text[at : at + size] for size in (200, 2000) for at in range(0, len(text), size))
    return [(path.name, piece) for piece in cut if piece.strip()]


def rows(db: psycopg.Connection, texts: list[tuple[str, str]]) -> list[list[str]]:
    """Per kind a row of the table."""
    ask = "select memoir.estimate_tokens(t) from unnest(%s::text[]) with ordinality x(t, n) order by n"
    estimates = db.execute(ask, [[text for _, text in texts]]).fetchall()
    o200k, cl100k = (tokens.count([text for _, text in texts], name) for name in tokens.ENCODINGS)
    kinds: dict[str, list[tuple[float, float, float]]] = {}
    for (kind, text), (estimate,), new, old in zip(texts, estimates, o200k, cl100k):
        kinds.setdefault(kind, []).append((estimate / max(new, old), estimate / new, estimate / len(text)))
    found = []
    for kind, values in kinds.items():
        ratios, news, characters = zip(*values)
        means = [f"{value:.2f}" for value in (mean(ratios), min(ratios), mean(news))]
        under = f"{mean(ratio < 1 for ratio in ratios):.1%}"
        found.append([kind, str(len(values)), *means, under, f"{mean(characters):.2f}"])
    return found


def seconds(db: psycopg.Connection, text: str, times: int) -> float:
    """Mean time of one estimate in seconds, measured inside the server."""
    db.execute("create temp table s as select %s || n as t from generate_series(1, %s) n", [text, times])
    begun = time.perf_counter()
    db.execute("select sum(memoir.estimate_tokens(t)) from s; drop table s")
    return (time.perf_counter() - begun) / times


def run(options: argparse.Namespace) -> None:
    """Prints the table, and for the samples how long an estimate takes."""
    texts = [piece for path in options.files for piece in pieces(path)] if options.files else samples()
    with psycopg.connect(server_dsn(), autocommit=True) as db:
        report("tokens", table(["text", "texts", "mean", "min", "/o200k", "under", "/char"], rows(db, texts)))
        if not options.files:
            prose = texts[0][1]
            short, long = 1e6 * seconds(db, prose, 500), 1e3 * seconds(db, prose * 300, 3)
            print(f"One estimate of {len(prose)} characters: {short:.0f} µs; of {len(prose) * 300:,}: {long:.0f} ms")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="*", type=Path)


if __name__ == "__main__":
    sys.exit(run_alone("bench.tokens", __doc__, add_arguments, run))
