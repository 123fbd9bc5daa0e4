"""Data files: what the build refuses, by file and line; that everything in them is used, and the docs list the settings as they are."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "sql" / "data"


def build(path: Path, *variables: str) -> subprocess.CompletedProcess[str]:
    options = [word for variable in variables for word in ("-v", variable)]
    return subprocess.run(
        ["awk", *options, "-f", ROOT / "scripts" / "build_data.awk", path], capture_output=True, text=True
    )


def code() -> str:
    paths = [*(ROOT / "sql").glob("*/*.sql"), *(ROOT / "plpython").rglob("*.py")]
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


SETTINGS = "key,kind,default_value,min_value,max_value,allowed,overridable,description\n"


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        ("a,integer,5,1,9,,yes,A number.", None),
        ("a,integer,5,1,9,,yes", "7 fields, not 8"),
        ("a,integer,5,1,9,,yes,A number, or two.", "9 fields, not 8"),
        ("A,integer,5,1,9,,yes,A number.", 'key can\'t be "A"'),
        ("a,numbers,5,1,9,,yes,A number.", 'kind can\'t be "numbers"'),
        ("a,integer,10,1,9,,yes,A number.", "default 10 is out of range"),
        ("a,integer,1.5,1,9,,yes,A number.", 'default "1.5" is no integer'),
        ("a,integer,5,9,1,,yes,A number.", "the range ends before it begins"),
        ("a,integer,5,1,,,yes,A number.", "a range has two ends"),
        ("a,integer,5,,,,yes,A number.", "kind integer and the range don't fit"),
        ("a,text,x,1,2,,yes,A text.", "kind text and the range don't fit"),
        ("a,boolean,on,,,,yes,A choice.", 'default "on" is no boolean'),
        ("a,text,c,,,a b,yes,A choice.", 'default "c" is not among the allowed'),
        ("a,text,,,,- a,yes,A choice.", None),
        ("a,text,,,,a b,yes,A choice.", 'default "" is not among the allowed'),
        ("a,text,x,,,,maybe,A choice.", 'overridable can\'t be "maybe"'),
        ("a,text,x,,,,yes,", 'description can\'t be ""'),
        ('a,text,x,,,,yes,"A text.', "a quote that is not closed"),
        ('a,text,x,,,,yes,"A text" of two.', "text after a closing quote"),
        ("a,text,x,,,,yes,A text.\na,text,x,,,,yes,A text.", "twice: a"),
        ("a,text,x,,,,yes,A text. ", "a blank at the end of the line"),
    ],
)
def test_a_setting_of_the_wrong_shape_ends_the_build(tmp_path: Path, row: str, wrong: str | None) -> None:
    path = tmp_path / "settings.csv"
    path.write_text("# Settings\n" + SETTINGS + row + "\n")
    done = build(path, "table=settings")
    assert (done.returncode == 0) == (wrong is None), done.stderr
    if wrong:
        assert wrong in done.stderr and f"{path}:{3 + row.count(chr(10))}: " in done.stderr


def test_columns_have_their_names(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("job,schedule,least,batch,in_python,description\n")
    assert "column 3 must be batch_least, not least" in build(path, "table=jobs").stderr
    assert "there is no data table job" in build(path, "table=job").stderr


@pytest.mark.parametrize("head", ["# version: 1\n", "# source: x\n", "# version: one\n# source: x\n"])
def test_learnt_weights_have_a_version_and_a_source(tmp_path: Path, head: str) -> None:
    path = tmp_path / "ranking.csv"
    path.write_text(head + "part,signal,weight\nall,words,1\n")
    assert "must say # version: n and # source" in build(path, "table=ranking").stderr


RULE = "[a]\nroles: user\npattern: x\nat_least: 0\ntype: fact\nprovenance: user_stated\ncategory: fact\nimportance: normal\nutility: 0.5\n"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (RULE, None),
        (RULE + "\n" + RULE, "twice: english/a"),
        (RULE.replace("user\n", "users\n"), 'roles can\'t be "users"'),
        (RULE.replace("pattern: x\n", ""), 'pattern can\'t be ""'),
        (RULE + "utilities: 1\n", "no column, or twice: utilities"),
        (RULE + "utility: 1\n", "no column, or twice: utility"),
        ("roles: user\n", "a rule is [its name]"),
        ("[a]\n    x\n", "nothing to continue"),
        ("let one: x\n" + RULE.replace("pattern: x", "pattern: {{one}}|y"), None),
        (RULE.replace("pattern: x", "pattern: {{one}}"), "no piece of that name: {{one}}"),
        ("let one: x\nlet one: y\n" + RULE, "twice: one"),
    ],
)
def test_a_rule_of_the_wrong_shape_ends_the_build(tmp_path: Path, text: str, wrong: str | None) -> None:
    path = tmp_path / "english" / "extraction_rules.rules"
    path.parent.mkdir()
    path.write_text(text)
    done = build(path, "table=extraction_rules")
    assert (done.returncode == 0) == (wrong is None) and (wrong or "") in done.stderr


def test_what_is_continued_and_quoted_arrives_letter_by_letter(tmp_path: Path) -> None:
    path = tmp_path / "english" / "some.patterns"
    path.parent.mkdir()
    path.write_text('# Comment\n\\m(it\'s|"a"\n    |b c)\\M\nsecond\n', encoding="utf-8")
    made = build(path, "lists=1").stdout
    assert '''"\\\\m(it''s|\\"a\\"|b c)\\\\M","second"''' in made
    rules = tmp_path / "english" / "extraction_rules.rules"
    rules.write_text("let one: p|q\nlet two: (?:{{one}}|r)\n" + RULE.replace("pattern: x", "pattern: {{two}} {{one}}"))
    assert "'(?:p|q|r) p|q'" in build(rules, "table=extraction_rules").stdout
    path.write_text("same\nsame\n")
    assert "twice: same" in build(path, "lists=1").stderr


def test_every_setting_is_read_somewhere() -> None:
    lines = [line for line in (DATA / "settings.csv").read_text().splitlines() if not line.startswith("#")]
    keys = [row["key"] for row in csv.DictReader(lines)]
    text = code()
    beginnings = ("history_share_", "budget_microcents_")  # the code puts the rest of the name behind these

    def is_read(key: str) -> bool:
        return bool(re.search(rf"\b{key}\b", text)) or any(key.startswith(b) and f"'{b}'" in text for b in beginnings)

    assert len(keys) > 50 and [key for key in keys if not is_read(key)] == []


def test_every_list_is_asked_for() -> None:
    asked = set()
    for call in re.findall(r"(?:word_list|any_word)\(([^()]*)\)", code()):
        asked |= set(re.findall(r"'(\w+)'", call))
    uses = {path.stem for pattern in ("*/*.words", "*/*.phrases", "*/*.patterns") for path in DATA.glob(pattern)}
    assert uses - asked == set()
    languages = {path.name for path in DATA.iterdir() if path.is_dir()}
    assert {word for word in asked if word not in uses | languages} == set()


def test_the_docs_list_the_settings_as_they_are() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "docs_settings.py", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
