"""The snippets of the written pages, run as they stand: python, sql and sh fences with the plain fence of their output right
after; toml and json are read. A comment before a fence says why it is not run, or which test runs it."""

import contextlib
import io
import json
import os
import re
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from pg_memoir_gateway.config import load
from psycopg.conninfo import conninfo_to_dict, make_conninfo

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests/support/programs"
PGBIN = os.environ.get("PG_MEMOIR_PGBIN", "/usr/lib/postgresql/15/bin")
FENCED = re.compile(
    r"(?:^<!-- (not run|tested): ([^\n]+) -->\n)?^```(python|sql|sh|toml|json)\n(.*?)^```\n(?:\n?^```\n(.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
# What differs from run to run: ids, dates and times, and the width that they give a column.
OWN = [
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "ID"),
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?(?:\+\d\d(?::?\d\d)?)?", "TIME"),
    (r"(?<!\d)\d{1,2} [A-Z][a-z]{2} \d{4}\b", "DATE"),
    (r"[0-9a-f]{8}(?=:\d)", "MARK"),
    (r"(?<=\[\^)[0-9a-f]{8,}(?=\])", "LABEL"),
    (r"[ \t]+$", ""),
]


@dataclass(frozen=True)
class Example:
    """`mark`: "not run" or "tested", if it is not to be run here, and `reason`: why, or by what."""

    kind: str
    code: str
    output: str | None
    mark: str = ""
    reason: str = ""


def examples(page: str) -> Iterator[Example]:
    for mark, reason, kind, code, output in FENCED.findall((ROOT / page).read_text()):
        yield Example(kind, code, output or None, mark, reason)


def settled(text: str) -> str:
    for pattern, name in OWN:
        text = re.sub(pattern, name, text, flags=re.MULTILINE)
    return re.sub(r" +", " ", re.sub(r"-{3,}", "---", text)).strip()


def outputs(
    page: str, dsn: str, scope: dict[str, Any], variables: Mapping[str, str] | None = None, folder: Path | None = None
) -> Iterator[tuple[Example, str]]:
    """Runs a page from top to bottom, its python in one scope, its sql with these variables of psql, its sh in a folder
    that looks like the checkout. Each example with what it printed."""
    for example in examples(page):
        if example.mark:
            continue
        if example.kind == "python":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(example.code, page, "exec"), scope)
                for name in [name for name in scope if name.startswith("test_")]:
                    scope.pop(name)()
            yield example, printed.getvalue()
        elif example.kind in ("sql", "sh"):
            given = [argument for pair in (variables or {}).items() for argument in ("-v", "=".join(pair))]
            psql = ["psql", "-X", "-v", "ON_ERROR_STOP=1", *given, "-f", "-", dsn]
            command = psql if example.kind == "sql" else ["bash", "-euo", "pipefail", "-c", example.code]
            entered = example.code if example.kind == "sql" else ""
            env = surroundings(dsn, folder) if folder else os.environ | {"PATH": f"{PGBIN}:{os.environ['PATH']}"}
            done = subprocess.run(
                command, input=entered, capture_output=True, text=True, cwd=folder, env=env, timeout=300
            )
            assert done.returncode == 0, f"{page}:\n{example.code}\n{done.stdout}\n{done.stderr}"
            yield example, done.stdout
        else:
            read(example)
            yield example, ""


def surroundings(dsn: str, folder: Path) -> dict[str, str]:
    """The environment of a reader who has installed everything. `folder` is home, and holds what a checkout holds."""
    for file in ROOT.iterdir():
        if not (folder / file.name).exists():
            (folder / file.name).symlink_to(file)
    at = conninfo_to_dict(dsn)
    path = f"{PROGRAMS}:{ROOT}/.local/venv/bin:{PGBIN}:{os.environ['PATH']}"
    place = {f"PG{name.upper()}": str(at[name]) for name in ("host", "port", "user")}
    own = {"PG_MEMOIR_CHECKOUT": str(ROOT), "PG_MEMOIR_DSN": dsn, "DSN": dsn, "PGDATABASE": str(at["dbname"])}
    own["NEW"] = make_conninfo(dsn, dbname="mynewdb")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("CLAUDE", "CODEX", "XDG", "PG"))}
    return kept | place | own | {"PATH": path, "HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")}


def read(example: Example) -> None:
    """Reads a configuration. Settings of the gateway are checked by the gateway, with a hash in the place of "…"."""
    if example.kind == "json":
        json.loads(example.code)
        return
    values = tomllib.loads(example.code)
    if "project" not in values:
        hashes = (sha256(str(number).encode()).hexdigest() for number in range(99))
        values = tomllib.loads(re.sub("…", lambda found: next(hashes), example.code))
        load({}, given={"dsn": "dbname=memoir"} | values)


def write_output(page: str, example: Example, printed: str) -> None:
    """Puts what an example printed into its page, for whoever changes what is printed."""
    shown = printed.rpartition("Output format is unaligned.\n")[2]
    shown = re.sub(r"[ \t]+$", "", shown, flags=re.MULTILINE).strip("\n")
    before = f"```{example.kind}\n{example.code}```\n```\n"
    text = (ROOT / page).read_text()
    (ROOT / page).write_text(text.replace(f"{before}{example.output}```\n", f"{before}{shown}\n```\n"))
