"""Turn data into SQL, for scripts/build_sql.sh: a function for each table and for the lists of words and patterns.

    build_data.py tables            sql/data/*.csv but markers.csv, and plpython/pg_memoir_language/*.csv
    build_data.py lists             the lists of all languages that SQL reads

A table becomes `_memoir.data_<table>()` with text columns and a row number. A list of words becomes `_memoir.list_<use>()`
of all languages, `_memoir.lists_<use>()` by language, or `_memoir.pattern_<use>()` that matches any of them, as SQL asks.
Data in another form ends the build with the file and the line. The same data gives the same bytes.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "plpython"))

from pg_memoir_language import data  # noqa: E402

WORD, ANY, NUMBER, YES_NO = r"[a-z][a-z0-9_]*", r"(?s:.+)", r"-?[0-9]+[.]?[0-9]*", r"yes|no"
# The columns of each table and the pattern of their values; a leading "?" allows an empty one. The number counts the key.
SHAPES: dict[str, tuple[int, dict[str, str]]] = {
    "settings": (
        1,
        {
            "key": WORD,
            "kind": "number|integer|boolean|text|time|weights|tools",
            "default_value": "?" + ANY,
            "min_value": "?" + NUMBER,
            "max_value": "?" + NUMBER,
            "allowed": "?" + ANY,
            "overridable": YES_NO,
            "description": ANY,
        },
    ),
    "jobs": (
        1,
        {"job": WORD, "schedule": ANY, "batch_least": NUMBER, "batch": NUMBER, "in_python": YES_NO, "description": ANY},
    ),
    "grants": (1, {"function": r"(_memoir[.])?[a-z][a-z0-9_]*", "roles": "((reader|app|tenant|admin|jobs)( |$))+"}),
    "chat_models": (
        1,
        {
            "model": ANY,
            "provider": "openai|anthropic",
            "context_window": NUMBER,
            "max_output": NUMBER,
            "tokenizer": ANY,
            "message_overhead": NUMBER,
            "images": "(tiles|patches|area|flat):.*",
            "prompt_microcents_per_1k": NUMBER,
            "completion_microcents_per_1k": NUMBER,
            "cache_read_rate": NUMBER,
            "cache_write_rate": NUMBER,
            "cache_write_1h_rate": NUMBER,
        },
    ),
    "embedding_models": (
        1,
        {"name": ANY, "provider": "embedder|openai|in_process|none", "dimension": NUMBER, "languages": ANY},
    ),
    "languages": (
        1,
        {
            "number": NUMBER,
            "name": WORD,
            "iso": "[a-z][a-z]",
            "script": WORD,
            "config": "?" + WORD,
            "letters": "?" + ANY,
            "stem": "?" + ANY,
        },
    ),
    "look_alikes": (1, {"letter": "[0-9a-z]", "look_alikes": ANY}),
    "ranking": (
        2,
        {
            "part": "all|named|unnamed|memory|long|unread|strength|fit|memory_fit|bonus",
            "signal": WORD,
            "weight": NUMBER,
        },
    ),
    "tools": (
        2,
        {
            "tool": WORD,
            "condition": "?[a-zA-Z_]+=.+",
            "does": "read|write|edit|patch|run|search|list|fetch|plan",
            "key": "?" + ANY,
            "lines": "?" + ANY,
            "texts": "?" + ANY,
        },
    ),
    "commands": (
        1,
        {
            "pattern": ANY,
            "words": ANY,
            "does": "read|write|edit|patch|routine|search|fetch",
            "key": "?[1-9]",
            "first": "?[+]?[1-9]",
            "last": "?[+]?[0-9]+",
        },
    ),
    "token_shapes": (
        1,
        {"issuer": ANY, "kind": "access key|model key|private key|web token", "marks": "?" + ANY, "pattern": ANY},
    ),
}


def stop_at(where: str, problem: str) -> NoReturn:
    sys.exit(f"build_sql: {where}: {problem}")


def quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def check_setting(where: str, row: dict[str, str]) -> None:
    """Check that the default is of its kind, within its range and among what is allowed."""
    kind, value, low, high = row["kind"], row["default_value"], row["min_value"], row["max_value"]
    if (low == "") != (high == ""):
        stop_at(where, "a range has two ends")
    if low and float(low) > float(high):
        stop_at(where, "the range ends before it begins")
    if (kind in ("number", "integer", "weights")) == (low == ""):
        stop_at(where, f"kind {kind} and the range don't fit")
    form = {
        "number": NUMBER,
        "integer": "-?[0-9]+",
        "boolean": "true|false",
        "time": "",
        "weights": "[{].*[}]",
        "tools": "[{].*[}]",
    }
    if kind in form and not re.fullmatch(form[kind], value):
        stop_at(where, f'default "{value}" is no {kind}')
    if kind in ("number", "integer") and not float(low) <= float(value) <= float(high):
        stop_at(where, f"default {value} is out of range")
    allowed = ["" if part == "-" else part for part in row["allowed"].split()]
    if allowed and (kind != "text" or value not in allowed):
        stop_at(where, f'default "{value}" is not among the allowed')


def print_table(table: str, rows: Iterable[tuple[str, list[str]]]) -> None:
    """Check rows, each with the place it comes from, and print the function that returns them."""
    key_columns, shape = SHAPES[table]
    seen: set[tuple[str, ...]] = set()
    lines: list[str] = []
    for where, fields in rows:
        if len(fields) != len(shape):
            stop_at(where, f"{len(fields)} fields, not {len(shape)}")
        row = dict(zip(shape, fields, strict=True))
        for column, pattern in shape.items():
            optional = pattern.startswith("?")
            if not (optional and row[column] == "") and not re.fullmatch(pattern[optional:], row[column]):
                stop_at(where, f'{column} can\'t be "{row[column]}"')
        key = tuple(fields[:key_columns])
        if key in seen:
            stop_at(where, f"twice: {'/'.join(key)}")
        seen.add(key)
        if table == "settings":
            check_setting(where, row)
        if table == "jobs" and int(row["batch_least"]) > int(row["batch"]):
            stop_at(where, "batch_least is more than batch")
        values = ("null" if row[c] == "" and p.startswith("?") else quote(row[c]) for c, p in shape.items())
        lines.append(f"    ({len(lines) + 1}, {', '.join(values)})")
    if not lines:
        stop_at(table, "no rows")
    print(f"create or replace function _memoir.data_{table}()")
    print(f"returns table (nth integer, {', '.join(f'{column} text' for column in shape)})"
          " language sql immutable as $data$\n  values")  # fmt: skip
    print(",\n".join(lines) + "\n$data$;")


def read_lines(path: Path) -> Iterable[tuple[int, str]]:
    """Yield the lines of a file with their numbers. Rejects carriage returns and blanks at the end of a line."""
    for number, line in enumerate(path.read_bytes().decode().split("\n"), 1):
        if line.endswith(("\r", " ", "\t")):
            stop_at(f"{path}:{number}", "a line ends with a line feed alone, not with blanks before it")
        yield number, line


def csv_rows(path: Path, table: str) -> Iterable[tuple[str, list[str]]]:
    """Yield the rows of a table below its line of column names; lines that begin with # are comments."""
    columns = None
    for number, line in read_lines(path):
        where = f"{path.relative_to(ROOT)}:{number}"
        if line == "" or line.startswith("#"):
            continue
        try:
            fields = next(csv.reader([line], strict=True))
        except csv.Error as error:
            stop_at(where, str(error))
        if columns is None:
            columns = list(SHAPES[table][1])
            if fields != columns:
                stop_at(where, f"the columns must be {','.join(columns)}")
        else:
            yield where, fields


def print_tables() -> None:
    package = ROOT / "plpython" / "pg_memoir_language"
    for path in sorted([*(ROOT / "sql" / "data").glob("*.csv"), *package.glob("*.csv")]):
        table = path.stem
        if table == "markers":
            continue
        if table not in SHAPES:
            stop_at(str(path), f"there is no data table {table}")
        print(f"\n-- {path.relative_to(ROOT)}")
        if table == "ranking":
            print_ranking_head(path)
        print_table(table, csv_rows(path, table))


def print_ranking_head(path: Path) -> None:
    """Print the function that returns the version and the source that the comments of ranking.csv name."""
    text = path.read_text("utf-8")
    version, source = (re.search(rf"^# {name}: (.+)$", text, re.M) for name in ("version", "source"))
    if not version or not version[1].isdigit() or not source:
        stop_at(str(path), "needs # version: n and # source: ...")
    print("create or replace function _memoir.data_ranking_head(out version integer, out source text)")
    print(f"language sql immutable as $data$ select {version[1]}, {quote(source[1])} $data$;\n")


def in_array(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("'", "''") + '"'


def print_entries(entries: Iterable[str]) -> None:
    line = "     "
    for piece in ",\n".join(map(in_array, entries)).split("\n"):
        if len(line) > 5 and len(line) + len(piece) > 119:
            print(line)
            line = "     "
        line += " " + piece if line == "     " else piece
    print(line)


def lists_in_sql() -> list[tuple[str, str]]:
    """Return the lists that SQL reads, each as the form and the use in the name of its function."""
    text = "\n".join(path.read_text("utf-8") for path in (ROOT / "sql").glob("*/*.sql"))
    return sorted(set(re.findall(r"_memoir[.](list|lists|pattern)_(\w+)\(\)", text)))


def print_lists() -> None:
    """Print immutable functions, no tables: what reads them for every sentence has them in its plan."""
    languages = {name: data.load(name).lists for name in data.languages()}
    for form, use in lists_in_sql():
        entries = {name: lists[use] for name, lists in languages.items() if use in lists}
        if not entries:
            stop_at("sql", f"no language has the list {use}")
        returns = {"list": "text[]", "pattern": "text", "lists": "table (language text, entries text[])"}[form]
        print(f"create or replace function _memoir.{form}_{use}()")
        print(f"returns {returns} language sql immutable parallel safe as $data$")
        if form == "lists":
            for nth, (name, words) in enumerate(entries.items()):
                print(f"  {',' if nth else 'values'} ({quote(name)}, '{{")
                print_entries(words)
                print("    }'::text[])")
        else:
            every = [entry for words in entries.values() for entry in words]
            if form == "pattern":
                print(f"  select {quote('|'.join(every))}")
            else:
                print("  select '{")
                print_entries(every)
                print("    }'::text[]")
        print("$data$;\n")


if __name__ == "__main__":
    try:
        {"tables": print_tables, "lists": print_lists}[sys.argv[1]]()
    except ValueError as error:
        sys.exit(f"build_sql: {error}")
