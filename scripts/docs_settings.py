"""Writes the settings of sql/data/settings.csv into their two pages of docs/reference."""

from __future__ import annotations

import csv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs" / "reference"
PAGES = {"settings.md": "", "settings-upkeep.md": "Memories"}
"""Each page begins with the group whose heading begins so."""

BEGIN, END = "<!-- settings: made by scripts/docs_settings.py -->\n", "<!-- end of settings -->\n"


def shown(row: dict[str, str]) -> tuple[str, str]:
    """Default and range of a setting."""
    default = f"`{row['default_value']}`" if row["default_value"] else "none" if row["kind"] == "time" else "empty"
    if row["allowed"]:
        return default, ", ".join("empty" if word == "-" else f"`{word}`" for word in row["allowed"].split())
    return default, f"{row['min_value']} to {row['max_value']}" if row["min_value"] else row["kind"]


def tables(lines: list[str]) -> dict[str, str]:
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
        default, may_be = shown(row)
        star = "*" if row["overridable"] == "yes" else ""
        pages[page] += f"| `{row['key']}`{star} | {default} | {may_be} | {row['description']} |\n"
    return {name: text.lstrip("\n") for name, text in pages.items()}


def pages() -> dict[Path, str]:
    """Returns the pages as they should be."""
    listed = tables((ROOT / "sql" / "data" / "settings.csv").read_text("utf-8").splitlines())
    made = {}
    for path, table in ((DOCS / name, table) for name, table in listed.items()):
        before, rest = path.read_text("utf-8").split(BEGIN)
        made[path] = before + BEGIN + table + END + rest.split(END)[1]
    return made


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, "utf-8")
