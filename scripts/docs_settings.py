"""The list of settings in docs/reference/settings.md, made from sql/data/settings.csv.

python scripts/docs_settings.py           # writes it
python scripts/docs_settings.py --check   # fails where it differs
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs" / "reference" / "settings.md"
BEGIN, END = "<!-- settings: made by scripts/docs_settings.py -->\n", "<!-- end of settings -->\n"


def shown(row: dict[str, str]) -> tuple[str, str]:
    """Default and range of a setting."""
    default = f"`{row['default_value']}`" if row["default_value"] else "none" if row["kind"] == "time" else "empty"
    if row["allowed"]:
        return default, ", ".join("empty" if word == "-" else f"`{word}`" for word in row["allowed"].split())
    return default, f"{row['min_value']} to {row['max_value']}" if row["min_value"] else row["kind"]


def table(lines: list[str]) -> str:
    """One table a heading of the file; what can be overridden per user and session has a star."""
    out, rows, heading = [], lines[1:], ""
    columns = next(csv.reader([rows[0]]))
    for line in rows[1:]:
        if line.startswith("#"):
            heading = line[1:].strip()
            out.append(f"\n{heading}:\n\n| setting | default | may be | |\n|---|---|---|---|\n")
            continue
        row = dict(zip(columns, next(csv.reader([line])), strict=True))
        default, may_be = shown(row)
        star = "*" if row["overridable"] == "yes" else ""
        out.append(f"| `{row['key']}`{star} | {default} | {may_be} | {row['description']} |\n")
    return "".join(out).lstrip("\n")


def main() -> int:
    text = DOCS.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    lines = (ROOT / "sql" / "data" / "settings.csv").read_text(encoding="utf-8").splitlines()
    wanted = before + BEGIN + table(lines) + END + rest.split(END)[1]
    if "--check" not in sys.argv:
        DOCS.write_text(wanted, encoding="utf-8")
    elif wanted != text:
        print(
            "docs/reference/settings.md lists other settings than sql/data/settings.csv: run scripts/docs_settings.py",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
