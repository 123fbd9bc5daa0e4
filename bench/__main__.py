"""All benchmarks, as `make bench` runs them: the machine, the settings, then tables in Markdown.

    python -m bench [--data locomo.json] [--only recall,latency,writes,gateway] [--write docs/benchmarks.md …]

`python -m bench.PART` runs these and others alone: experience, extraction, pages, replay, scale, spaces, tokens. Other
memory stores: `python -m research.peers`. Other conversations: `python -m research.evidence`. With --write each table
also replaces the one of its name in the page that has it, between its two marks.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from . import gateway, latency, recall, writes
from .common import CannotRun, machine, report, server_dsn

PARTS = {"recall": recall, "latency": latency, "writes": writes, "gateway": gateway}
USUAL = "recall,latency,writes"


def replace_sections(pages: list[Path], sections: list[tuple[str, str]]) -> None:
    """Replaces each section between its marks `<!-- name -->` and `<!-- /name -->`, in the page that has them. Raises
    CannotRun if no page does."""
    texts = {page: page.read_text() for page in pages}
    for name, section in sections:
        marks = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- /{re.escape(name)} -->)", re.DOTALL)
        page = next((page for page, text in texts.items() if marks.search(text)), None)
        if page is None:
            raise CannotRun(f"no page has marks for {name}")
        texts[page] = marks.sub(lambda found: f"{found[1]}\n{section}\n\n{found[2]}", texts[page])
    for page, text in texts.items():
        page.write_text(text)


def main() -> int:
    as_it_is = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__, formatter_class=as_it_is)
    for part in PARTS.values():
        part.add_arguments(parser)
    parser.add_argument("--only", default=USUAL, help=f"parts to run, with commas, of {', '.join(PARTS)} (%(default)s)")
    about = "files whose marked tables are replaced, each in the one that has it"
    parser.add_argument("--write", type=Path, nargs="+", default=[], help=about)
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
            sections += PARTS[name].run(options)
        if options.write:
            replace_sections(options.write, sections)
    except CannotRun as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
