"""The token estimate beside exact counts, per kind of text: python -m bench.tokens [FILE...]

Without files it takes the texts of tests/cases/token_samples.jsonl; a file is cut into pieces of 200 and of 2,000 characters. Columns: mean
and smallest of estimate / exact, where exact is the larger of o200k_base and cl100k_base; mean of estimate / o200k_base; the
share of texts that are under-estimated; mean estimate per character. Needs PG_MEMOIR_DSN and the package bpe-openai.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

import psycopg
from pg_memoir_server import tokens

from .common import ROOT


def samples() -> list[tuple[str, str]]:
    """Texts of many kinds, written for this."""
    lines = (ROOT / "tests" / "cases" / "token_samples.jsonl").read_text("utf-8").splitlines()
    return [(case["kind"], case["text"]) for case in map(json.loads, lines)]


def pieces(path: Path) -> list[tuple[str, str]]:
    """A file's text in pieces, all of one kind: its name."""
    text = path.read_text("utf-8", "replace").replace("\0", "")
    return [
        (path.name, text[at : at + size])
        for size in (200, 2000)
        for at in range(0, len(text), size)
        if text[at : at + size].strip()
    ]


def table(dsn: str, texts: list[tuple[str, str]]) -> list[tuple[str, int, float, float, float, float, float]]:
    """Per kind: (kind, texts, mean and smallest estimate / exact, mean estimate / o200k_base, share under, estimate a character)."""
    with psycopg.connect(dsn) as connection:
        estimates = connection.execute(
            "select memoir.estimate_tokens(t) from unnest(%s::text[]) with ordinality x(t, n) order by n",
            [[t for _, t in texts]],
        ).fetchall()
    o200k, cl100k = (tokens.count([t for _, t in texts], name) for name in tokens.ENCODINGS)
    kinds: dict[str, list[tuple[float, float, float]]] = {}
    for (kind, text), (estimate,), new, old in zip(texts, estimates, o200k, cl100k):
        kinds.setdefault(kind, []).append((estimate / max(new, old), estimate / new, estimate / len(text)))
    rows = []
    for kind, values in kinds.items():
        ratios, news, characters = zip(*values)
        n = len(values)
        rows.append(
            (kind, n, sum(ratios) / n, min(ratios), sum(news) / n, sum(r < 1 for r in ratios) / n, sum(characters) / n)
        )
    return rows


def seconds(dsn: str, text: str, times: int) -> float:
    """Mean time of one estimate in seconds, measured inside the server."""
    with psycopg.connect(dsn) as connection:
        connection.execute("create temp table s as select %s || n as t from generate_series(1, %s) n", [text, times])
        begun = time.perf_counter()
        connection.execute("select sum(memoir.estimate_tokens(t)) from s")
        return (time.perf_counter() - begun) / times


def main() -> int:
    """Prints the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.tokens", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path)
    files = parser.parse_args().files
    dsn = os.environ.get("PG_MEMOIR_DSN")
    if not dsn:
        print("PG_MEMOIR_DSN is not set: take it from `make -s dsn`", file=sys.stderr)
        return 2
    rows = table(dsn, [piece for path in files for piece in pieces(path)] if files else samples())
    print(f"{'text':24}{'n':>6}{'mean':>8}{'min':>8}{'/o200k':>8}{'under':>8}{'/char':>8}")
    for kind, n, mean, least, new, under, character in rows:
        print(f"{kind[:23]:24}{n:>6}{mean:>8.2f}{least:>8.2f}{new:>8.2f}{under:>8.1%}{character:>8.2f}")
    if not files:
        prose = samples()[0][1]
        print(
            f"\none estimate of {len(prose)} characters: {seconds(dsn, prose, 500) * 1e6:.0f} µs; of {len(prose) * 300:,} characters: {seconds(dsn, prose * 300, 3) * 1e3:.0f} ms"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
