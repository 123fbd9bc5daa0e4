"""The examples of the written pages, run as they stand: python, sql and sh fences, and the plain fence with their output right after."""

import contextlib
import io
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FENCED = re.compile(r"^```(python|sql|sh)\n(.*?)^```\n(?:\n?^```\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
# What differs from run to run: ids, dates and times, and the width that they give a column.
OWN = [
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "ID"),
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?(?:\+\d\d(?::?\d\d)?)?", "TIME"),
    (r"(?<!\d)\d{1,2} [A-Z][a-z]{2} \d{4}\b", "DATE"),
    (r"[0-9a-f]{8}(?=:\d)", "MARK"),
    (r"[ \t]+$", ""),
]


@dataclass(frozen=True)
class Example:
    kind: str
    code: str
    output: str | None


def examples(page: str) -> Iterator[Example]:
    for kind, code, output in FENCED.findall((ROOT / page).read_text()):
        yield Example(kind, code, output or None)


def settled(text: str) -> str:
    for pattern, name in OWN:
        text = re.sub(pattern, name, text, flags=re.MULTILINE)
    return re.sub(r" +", " ", re.sub(r"-{3,}", "---", text)).strip()


def outputs(page: str, dsn: str, scope: dict[str, Any]) -> Iterator[tuple[Example, str]]:
    """Runs a page from top to bottom, its python in one scope; each example with what it printed."""
    for example in examples(page):
        if example.kind != "python":
            psql = ["psql", "-X", "-v", "ON_ERROR_STOP=1", "-f", "-", dsn]
            command = psql if example.kind == "sql" else ["bash", "-euo", "pipefail"]
            done = subprocess.run(command, input=example.code, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            yield example, done.stdout
        else:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(example.code, page, "exec"), scope)
            yield example, printed.getvalue()


def write_output(page: str, example: Example, printed: str) -> None:
    """Puts what an example printed into its page, for whoever changes what is printed."""
    shown = printed.rpartition("Output format is unaligned.\n")[2]
    shown = re.sub(r"[ \t]+$", "", shown, flags=re.MULTILINE).strip("\n")
    before = f"```{example.kind}\n{example.code}```\n```\n"
    text = (ROOT / page).read_text()
    (ROOT / page).write_text(text.replace(f"{before}{example.output}```\n", f"{before}{shown}\n```\n"))
