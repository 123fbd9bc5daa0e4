"""Turn data into SQL, for build_sql.py: a function for each table and for the lists of words and patterns.

A table, sql/data/*.csv (but markers.csv) or plpython/pg_memoir_language/*.csv, becomes `_memoir.data_<table>()` with text
columns and a row number. A list of words becomes `_memoir.list_<use>()` of all languages, `_memoir.lists_<use>()` by
language, or `_memoir.pattern_<use>()` that matches any of them, as SQL asks. Data in another form ends the build with the
file and the line.
"""

import csv
import itertools
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "plpython"))

from pg_memoir_language import data  # noqa: E402

COLUMNS = {
    "settings": "key kind default_value? min_value? max_value? allowed? overridable description",
    "jobs": "job schedule batch_least batch in_python description",
    "grants": "function roles",
    "chat_models": "model provider context_window max_output tokenizer message_overhead images prompt_microcents_per_1k"
    " completion_microcents_per_1k cache_read_rate cache_write_rate cache_write_1h_rate",
    "embedding_models": "name provider dimension languages",
    "languages": "number name iso script config? letters? stem?",
    "look_alikes": "letter look_alikes",
    "ranking": "part signal weight",
    "tools": "tool condition? does key? lines? texts?",
    "commands": "pattern words does key? first? last?",
    "token_shapes": "issuer kind marks? pattern",
    "memory_tools": "name door? reads required? properties more description",
    "memory_resources": "name template? title tools fields description",
    "export_rules": "name place how",
}
"""The columns of each table. A question mark allows an empty value."""
KEYS = {"ranking": 2, "tools": 2}
"""Tables whose first columns together are their key. Of others the first one is."""
WORD, ANY, NUMBER = r"[a-z][a-z0-9_]*", r"(?s:.+)", r"-?[0-9]+[.]?[0-9]*"
WORDS = "settings.key jobs.job languages.name languages.script languages.config ranking.signal"
VALUES = dict.fromkeys(WORDS.split(), WORD) | {
    "settings.kind": "number|integer|boolean|text|time|weights|tools",
    "settings.overridable": "yes|no",
    "jobs.in_python": "yes|no",
    "grants.function": rf"(_memoir[.])?{WORD}",
    "grants.roles": "((reader|app|tenant|admin|jobs)( |$))+",
    "chat_models.provider": "openai|anthropic",
    "chat_models.images": "(tiles|patches|area|flat):.*",
    "embedding_models.provider": "embedder|openai|in_process|none",
    "languages.iso": "[a-z][a-z]",
    "look_alikes.letter": "[0-9a-z]",
    "ranking.part": "all|named|unnamed|memory|long|unread|other|remark|strength|fit|memory_fit|bonus",
    "tools.condition": "[a-zA-Z_]+=.+",
    "tools.does": "read|write|edit|patch|run|search|list|fetch|plan",
    "commands.does": "read|write|edit|patch|routine|search|fetch",
    "commands.key": "[1-9]",
    "commands.first": "[+]?[1-9]",
    "commands.last": "[+]?[0-9]+",
    "memory_tools.door": "model|mcp|named",
    "memory_tools.reads": "yes|no",
    "memory_tools.properties": "[{].*[}]",
    "memory_tools.more": "[{].*[}]",
    "memory_resources.fields": "[{].*[}]",
    "export_rules.name": WORD,
    "export_rules.place": "[0-9]+",
    "export_rules.how": "rows|own|made anew|left",
    "token_shapes.kind": "access key|model key|private key|web token",
}
"""Patterns of the values of columns. Other columns take numbers (NUMBERS) or any text."""
NUMBERS = """min_value max_value batch_least batch number dimension weight context_window max_output message_overhead
    prompt_microcents_per_1k completion_microcents_per_1k cache_read_rate cache_write_rate cache_write_1h_rate""".split()


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
    form = {"number": NUMBER, "integer": "-?[0-9]+", "boolean": "true|false", "time": ""}
    form |= dict.fromkeys(("weights", "tools"), "[{].*[}]")
    if kind in form and not re.fullmatch(form[kind], value):
        stop_at(where, f'default "{value}" is no {kind}')
    if kind in ("number", "integer") and not float(low) <= float(value) <= float(high):
        stop_at(where, f"default {value} is out of range")
    allowed = ["" if part == "-" else part for part in row["allowed"].split()]
    if allowed and (kind != "text" or value not in allowed):
        stop_at(where, f'default "{value}" is not among the allowed')


def table(name: str, rows: Iterable[tuple[str, list[str]]]) -> str:
    """Check rows, each with the place it comes from, and return the function that returns them."""
    columns = COLUMNS[name].replace("?", "").split()
    optional = {column[:-1] for column in COLUMNS[name].split() if column.endswith("?")}
    seen: set[tuple[str, ...]] = set()
    lines: list[str] = []
    for where, fields in rows:
        if len(fields) != len(columns):
            stop_at(where, f"{len(fields)} fields, not {len(columns)}")
        row = dict(zip(columns, fields, strict=True))
        for column, value in row.items():
            pattern = VALUES.get(f"{name}.{column}", NUMBER if column in NUMBERS else ANY)
            if not (value == "" and column in optional or re.fullmatch(pattern, value)):
                stop_at(where, f'{column} can\'t be "{value}"')
        key = tuple(fields[: KEYS.get(name, 1)])
        if key in seen:
            stop_at(where, f"twice: {'/'.join(key)}")
        seen.add(key)
        if name == "settings":
            check_setting(where, row)
        if name == "jobs" and int(row["batch_least"]) > int(row["batch"]):
            stop_at(where, "batch_least is more than batch")
        values = ("null" if value == "" and column in optional else quote(value) for column, value in row.items())
        lines.append(f"    ({len(lines) + 1}, {', '.join(values)})")
    if not lines:
        stop_at(name, "no rows")
    returned = f"table (nth integer, {' text, '.join(columns)} text)"
    return function(f"data_{name}", returned, "  values\n" + ",\n".join(lines))


def function(name: str, returns: str, body: str, header: str = "immutable") -> str:
    return f"create or replace function _memoir.{name}()\nreturns {returns} language sql {header} as $data$\n{body}\n$data$;\n"


def whole_lines(path: Path) -> Iterable[tuple[str, str]]:
    """Yield each line that is no comment (#), with its place. A line that begins with four blanks goes on the one above."""
    lines = path.read_bytes().decode().split("\n")
    for number, line in enumerate(lines):
        where = f"{path.relative_to(ROOT)}:{number + 1}"
        if line.endswith(("\r", " ", "\t")):
            stop_at(where, "a line ends with a line feed alone, not with blanks before it")
        if line != "" and not line.startswith(("#", "    ")):
            more = itertools.takewhile(lambda below: below.startswith("    "), lines[number + 1 :])
            yield where, " ".join([line, *(below.strip() for below in more)])


def csv_rows(path: Path, name: str) -> Iterable[tuple[str, list[str]]]:
    """Yield the rows of a table below its line of column names."""
    wanted = COLUMNS[name].replace("?", "").split()
    columns = None
    for where, line in whole_lines(path):
        try:
            fields = next(csv.reader([line], strict=True))
        except csv.Error as error:
            stop_at(where, str(error))
        if columns is not None:
            yield where, fields
        elif fields != wanted:
            stop_at(where, f"the columns must be {','.join(wanted)}")
        columns = wanted


def tables() -> str:
    """Return the functions of all tables."""
    made = ""
    package = ROOT / "plpython" / "pg_memoir_language"
    for path in sorted([*(ROOT / "sql" / "data").iterdir(), *package.glob("*.csv")]):
        if path.name in ("markers.csv", "README.md"):
            continue
        if path.suffix != ".csv" or path.stem not in COLUMNS:
            stop_at(str(path), f"there is no data table {path.stem}")
        made += f"\n-- {path.relative_to(ROOT)}\n"
        if path.stem == "ranking":
            made += ranking_head(path)
        made += table(path.stem, csv_rows(path, path.stem))
    return made


def ranking_head(path: Path) -> str:
    """Return the function that returns the version and the source that the comments of ranking.csv name."""
    text = path.read_text("utf-8").replace("\n#    ", "")
    found = dict(re.findall(r"^# (version|source): (.+)$", text, re.M))
    if len(found) < 2 or not found["version"].isdigit():
        stop_at(str(path), "needs # version: n and # source: ...")
    return f"""create or replace function _memoir.data_ranking_head(out version integer, out source text)
language sql immutable as $data$ select {found["version"]}, {quote(found["source"])} $data$;\n
"""


def in_array(entries: Iterable[str]) -> str:
    """Return the constant of a text array."""
    quoted = ('"' + entry.replace("\\", "\\\\").replace('"', '\\"') + '"' for entry in entries)
    return quote("{" + ",\n".join(quoted) + "}") + "::text[]"


def lists_in_sql() -> list[tuple[str, str]]:
    """Return the lists that SQL reads, each as the form and the use in the name of its function."""
    text = "\n".join(path.read_text("utf-8") for path in (ROOT / "sql").glob("*/*.sql"))
    return sorted(set(re.findall(r"_memoir[.](list|lists|pattern)_(\w+)\(\)", text)))


def lists() -> str:
    """Return immutable functions, no tables: queries that read them for every sentence have them in their plans."""
    languages = {name: data.load(name).lists for name in data.languages()}
    made = ""
    for form, use in lists_in_sql():
        entries = {name: lists[use] for name, lists in languages.items() if use in lists}
        if not entries:
            stop_at("sql", f"no language has the list {use}")
        every = [entry for words in entries.values() for entry in words]
        by_language = (f"({quote(name)}, {in_array(words)})" for name, words in entries.items())
        returned, body = {
            "list": ("text[]", f"  select {in_array(every)}"),
            "pattern": ("text", f"  select {quote('|'.join(every))}"),
            "lists": ("table (language text, entries text[])", "  values " + ",\n  ".join(by_language)),
        }[form]
        made += function(f"{form}_{use}", returned, body, "immutable parallel safe") + "\n"
    return made
