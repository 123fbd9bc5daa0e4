"""All benchmarks, as `make bench` runs them: the machine, the settings, then tables in Markdown.

    python -m bench [--data locomo.json] [--evidence path ...] [--precision path] [--only recall,evidence,latency,writes,...] [--write docs/benchmarks.md]

Not among the usual parts, since they take long: sizes (of users, in a store of millions of items), vectors (of one user, exact or not),
partitions, throughput (through PgBouncer), query-embedding, cron, gateway. Other memory stores: python -m research.peers. With --write each table also replaces the one of its name in that file, between its two marks.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from . import (
    cron,
    evidence,
    gateway,
    latency,
    partitions,
    precision,
    query_embedding,
    recall,
    sizes,
    throughput,
    vectors,
    wal,
    writes,
)
from .common import CannotRun, machine, report, server_dsn

PARTS = {
    "recall": recall,
    "evidence": evidence,
    "precision": precision,
    "latency": latency,
    "writes": writes,
    "wal": wal,
    "sizes": sizes,
    "vectors": vectors,
    "partitions": partitions,
    "throughput": throughput,
    "query-embedding": query_embedding,
    "cron": cron,
    "gateway": gateway,
}
USUAL = "recall,evidence,precision,latency,writes,wal"


def replace_section(text: str, name: str, section: str) -> str:
    """The text of a file with the section between `<!-- name -->` and `<!-- /name -->` replaced. Raises CannotRun without them."""
    marks = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- /{re.escape(name)} -->)", re.DOTALL)
    if not marks.search(text):
        raise CannotRun(f"no marks for {name}")
    return marks.sub(lambda found: f"{found[1]}\n{section}\n\n{found[2]}", text)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for part in PARTS.values():
        part.add_arguments(parser)
    parser.add_argument("--only", default=USUAL, help=f"parts to run, with commas, of {', '.join(PARTS)} (%(default)s)")
    parser.add_argument("--write", type=Path, help="a file whose marked tables are replaced")
    options = parser.parse_args()
    wanted = options.only.split(",")
    if unknown := set(wanted) - set(PARTS):
        parser.error(f"unknown part {', '.join(sorted(unknown))}: {', '.join(PARTS)}")
    try:
        sections = [report("machine", "\n".join(machine(server_dsn())))]
        for name in wanted:
            if name == "recall" and options.data is None:
                print("recall is left out: make bench DATA=locomo.json\n", flush=True)
                continue
            if name == "evidence" and not options.evidence:
                print(
                    "evidence is left out: make bench ARGS='--evidence locomo.json --evidence realmem/ --evidence beam/'\n",
                    flush=True,
                )
                continue
            if name == "precision" and options.precision is None:
                print("precision is left out: make bench ARGS='--precision precisionmembench/'\n", flush=True)
                continue
            sections += PARTS[name].run(options)
        if options.write:
            text = options.write.read_text()
            for name, section in sections:
                text = replace_section(text, name, section)
            options.write.write_text(text)
    except CannotRun as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
