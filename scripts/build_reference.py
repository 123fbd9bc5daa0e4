#!/usr/bin/env python3
"""Writes docs/reference.md from the comments of an installed database: every function and view of schema memoir, in the
order of sql/. Writes the settings of sql/data/settings.csv into their two pages of docs/reference.

build_reference.py          of the database that PG_MEMOIR_DSN names
"""

import csv
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import check_layers
import psycopg

ROOT = Path(__file__).resolve().parents[1]
PLPYTHON = "plpython/functions.sql"
REFERENCE = ROOT / "docs" / "reference.md"
PAGES = {"settings.md": "", "settings-upkeep.md": "Memories"}
"""Each page begins with the group whose heading begins so."""

BEGIN, END = "<!-- settings: made by make reference -->\n", "<!-- end of settings -->\n"
HEAD = """# Reference

Every function and view of schema `memoir`, in the order of [sql/contents.sql](../sql/contents.sql). Made by `make reference` from
the comments that `\\df+ memoir.*` and `\\dv+ memoir.*` show; a test keeps it current. Arguments with a default may be left out;
name the others after the first: `p_name => value`. What raises says so by SQLSTATE, listed in
[sql/base/errors.sql](../sql/base/errors.sql).
"""
AREA = re.compile(r"^-- (\w+): (.+)$")
VIEW = re.compile(r"^create (?:or replace )?view memoir\.(\w+)", re.MULTILINE | re.IGNORECASE)
ROLES = ("reader", "app", "tenant", "admin", "jobs")
FUNCTIONS = """
  select p.proname, p.prokind = 'p', coalesce(obj_description(p.oid, 'pg_proc'), ''),
    case when p.prokind = 'p' then null else pg_get_function_result(p.oid) end,
    array(select array[coalesce(p.proargnames[n], ''), format_type(p.proargtypes[n - 1], null),
        coalesce(pg_get_function_arg_default(p.oid, n), '')]
      from generate_series(1, p.pronargs) n order by n),
    array(select r from unnest(%s::text[]) r where has_function_privilege('memoir_' || r, p.oid, 'execute'))
  from pg_proc p
  where p.pronamespace = 'memoir'::regnamespace
    and not exists (select from pg_depend d where d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e')
  order by p.proname, p.pronargs"""
VIEWS = """
  select c.relname, coalesce(obj_description(c.oid, 'pg_class'), ''),
    array(select array[a.attname, format_type(a.atttypid, a.atttypmod), coalesce(col_description(c.oid, a.attnum), '')]
      from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped order by a.attnum),
    array(select r from unnest(%s::text[]) r where has_any_column_privilege('memoir_' || r, c.oid, 'select'))
  from pg_class c where c.relnamespace = 'memoir'::regnamespace and c.relkind = 'v' order by c.relname"""
Entries = Iterator[tuple[str, str]]
"""Names of functions or views, and their texts in the reference."""


def shortened(default: str) -> str:
    """A default without the cast that PostgreSQL adds."""
    return re.sub(r"::[\w. \"]+(\(\d+\))?(\[\])?$", "", default).replace("NULL", "null")


def signature(name: str, is_procedure: bool, result: str | None, arguments: list[list[str]]) -> str:
    defaults = [f" default {shortened(default)}" if default else "" for _, _, default in arguments]
    shown = [f"{name} {kind}{default}" for (name, kind, _), default in zip(arguments, defaults)]
    start, end = ("call " if is_procedure else "") + f"memoir.{name}(", ")" if result is None else f") returns {result}"
    line = start + ", ".join(shown) + end
    return line if len(line) <= 110 else start + "\n  " + ",\n  ".join(shown) + end


def escaped(comment: str) -> str:
    """As Markdown shows it word for word."""
    return re.sub(r"([<*])", r"\\\1", comment)


def allowed(roles: list[str]) -> str:
    return "For " + ", ".join(f"`memoir_{role}`" for role in roles) + "." if roles else "For the owner alone."


def functions(db: psycopg.Connection[Any]) -> Entries:
    for name, is_procedure, comment, result, arguments, roles in db.execute(FUNCTIONS, [list(ROLES)]):
        code = signature(name, is_procedure, result, arguments)
        yield name, f"### {name}\n\n```sql\n{code}\n```\n{escaped(comment)}\n\n{allowed(roles)}\n"


def views(db: psycopg.Connection[Any]) -> Entries:
    for name, comment, columns, roles in db.execute(VIEWS, [list(ROLES)]):
        lines = [f"- `{column}` {kind}" + (f": {escaped(said)}" if said else "") for column, kind, said in columns]
        listed = "\n".join(lines)
        yield (name, f"### View {name}\n\n{escaped(comment)}\n\n{listed}\n\n{allowed(roles)}\n")


def places() -> dict[str, tuple[int, int, str]]:
    """Returns file, line and area of every function and view of schema memoir. The reference has that order."""
    code = check_layers.read(ROOT / "sql")
    beyond, _ = check_layers.read_file(PLPYTHON, (ROOT / PLPYTHON).read_text())
    found: dict[str, tuple[int, int, str]] = {}
    for number, file in enumerate([*code.files, PLPYTHON]):
        area = check_layers.area(file)
        for function in (f for f in (*code.functions, *beyond) if f.file == file):
            found.setdefault(function.name.removeprefix("memoir."), (number, function.line, area))
        text = "" if file == PLPYTHON else (ROOT / "sql" / file).read_text()
        for view in VIEW.finditer(text):
            found[view[1]] = number, text.count("\n", 0, view.start()) + 1, area
    return found


def areas() -> dict[str, str]:
    """What the table of contents says of each, in its order."""
    lines = (ROOT / "sql" / "contents.sql").read_text().splitlines()
    known = {match[1]: match[2] for line in lines if (match := AREA.match(line))}
    return {area: known[area] for area in known if (ROOT / "sql" / area).is_dir()} | {"plpython": "with PL/Python only"}


def setting_range(row: dict[str, str]) -> tuple[str, str]:
    """Default and range of a setting."""
    default = f"`{row['default_value']}`" if row["default_value"] else "none" if row["kind"] == "time" else "empty"
    if row["allowed"]:
        return default, ", ".join("empty" if word == "-" else f"`{word}`" for word in row["allowed"].split())
    return default, f"{row['min_value']} to {row['max_value']}" if row["min_value"] else row["kind"]


def settings_tables(lines: list[str]) -> dict[str, str]:
    """Returns for each page one table a group of settings. Those with a star can be overridden per user and session."""
    pages, rows, page = dict.fromkeys(PAGES, ""), lines[1:], next(iter(PAGES))
    columns = next(csv.reader([rows[0]]))
    for line in rows[1:]:
        if line.startswith("#"):
            heading = line[1:].strip()
            page = next((name for name, first in PAGES.items() if first and heading.startswith(first)), page)
            pages[page] += f"\n{heading}:\n\n| setting | default | may be | |\n|---|---|---|---|\n"
            continue
        row = dict(zip(columns, next(csv.reader([line])), strict=True))
        default, may_be = setting_range(row)
        star = "*" if row["overridable"] == "yes" else ""
        pages[page] += f"| `{row['key']}`{star} | {default} | {may_be} | {row['description']} |\n"
    return {name: text.lstrip("\n") for name, text in pages.items()}


def settings_pages() -> dict[Path, str]:
    """Returns the pages as they should be."""
    text = (ROOT / "sql" / "data" / "settings.csv").read_text("utf-8")
    listed = settings_tables(text.replace("\n    ", " ").splitlines())
    made = {}
    for path, table in ((REFERENCE.with_suffix("") / name, table) for name, table in listed.items()):
        before, rest = path.read_text("utf-8").split(BEGIN)
        made[path] = before + BEGIN + table + END + rest.split(END)[1]
    return made


def build(db: psycopg.Connection[Any]) -> str:
    """The whole text. Raises KeyError for what is installed and not in the sources."""
    with db.transaction():
        db.execute("set local search_path = pg_catalog")
        entries = [*functions(db), *views(db)]
    where = places()
    entries.sort(key=lambda entry: where[entry[0]])
    parts = [HEAD]
    for area, about in areas().items():
        if mine := [text for name, text in entries if where[name][2] == area]:
            parts += [f"## {area}: {about}\n", *mine]
    return "\n".join(parts)


if __name__ == "__main__":
    with psycopg.connect(os.environ["PG_MEMOIR_DSN"]) as database:
        REFERENCE.write_text(build(database))
    for page, text in settings_pages().items():
        page.write_text(text, "utf-8")
