"""Data files: what the build refuses, by file and line; that everything in them is used, and the docs list the settings as they are."""

import csv
import re
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import build_data
import build_reference
import pytest
from pg_memoir_language import data

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "sql" / "data"


def clear_caches() -> None:
    for cached in (data.languages, data.load, data.entries, data.choices, data.entry_set):
        cached.cache_clear()


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A checkout of its own, for tables and language data in other forms."""
    (tmp_path / "sql" / "data").mkdir(parents=True)
    monkeypatch.setattr(build_data, "ROOT", tmp_path)
    monkeypatch.setattr(data, "FOLDER", tmp_path)
    clear_caches()
    yield tmp_path
    clear_caches()


def build(root: Path, table: str, text: str) -> None:
    path = root / "sql" / "data" / f"{table}.csv"
    path.write_text(text, encoding="utf-8")
    build_data.table(table, build_data.csv_rows(path, table))


def code() -> str:
    paths = [*(ROOT / "sql").glob("*/*.sql"), *(ROOT / "plpython").rglob("*.py")]
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


SETTINGS = "key,kind,default_value,min_value,max_value,allowed,overridable,description\n"


def test_setting_of_the_wrong_shape(root: Path) -> None:
    for row, wrong in (
        ("a,integer,5,1,9,,yes,A number.", None),
        ("a,integer,5,1,9,,yes,A number, or two.", "9 fields, not 8"),
        ("A,integer,5,1,9,,yes,A number.", 'key can\'t be "A"'),
        ("a,integer,10,1,9,,yes,A number.", "default 10 is out of range"),
        ("a,integer,1.5,1,9,,yes,A number.", 'default "1.5" is no integer'),
        ("a,integer,5,1,,,yes,A number.", "a range has two ends"),
        ("a,boolean,on,,,,yes,A choice.", 'default "on" is no boolean'),
        ("a,text,c,,,a b,yes,A choice.", 'default "c" is not among the allowed'),
        ("a,text,,,,- a,yes,A choice.", None),
        ('a,text,x,,,,yes,"A text.', "unexpected end of data"),
        ("a,text,x,,,,yes,A text.\na,text,x,,,,yes,A text.", "twice: a"),
        ("a,text,x,,,,yes,A text\n    that goes on.", None),
        ("a,text,x,,,,yes,A text. ", "not with blanks before it"),
    ):
        says = wrong and rf"settings.csv:{3 + row.count(chr(10))}: .*{re.escape(wrong)}"
        with pytest.raises(SystemExit, match=says) if says else nullcontext():
            build(root, "settings", "# Settings\n" + SETTINGS + row + "\n")


def test_columns_have_their_names(root: Path) -> None:
    for head in ("# version: 1\n", "# source: x\n", "# version: one\n# source: x\n"):
        (root / "sql" / "data" / "ranking.csv").write_text(head + "part,signal,weight\nall,words,1\n")
        with pytest.raises(SystemExit, match="needs # version: n and # source"):
            build_data.tables()
    (root / "sql" / "data" / "ranking.csv").unlink()
    with pytest.raises(SystemExit, match="the columns must be job,schedule,batch_least,batch"):
        build(root, "jobs", "job,schedule,least,batch,in_python,description\n")
    (root / "sql" / "data" / "jobs.csv").rename(root / "sql" / "data" / "job.csv")
    with pytest.raises(SystemExit, match="there is no data table job"):
        build_data.tables()


SAID = "[extraction_rules]\na = { kind = 'fact user_stated fact normal 0.5', pattern = 'x' }\n"
WISH = "[statement_rules]\na = { pattern = 'x' }\n"


def test_language_data_of_the_wrong_shape(root: Path) -> None:
    for text, wrong in (
        (SAID, None),
        (WISH, None),
        (SAID + SAID.splitlines()[1], "Cannot overwrite a value"),
        (SAID.replace("}", ", roles = 'users' }"), "roles can't be 'users'"),
        (SAID.replace("pattern", "patterns"), "unknown key patterns"),
        (WISH.replace("pattern", "not_if"), "it has no pattern"),
        (WISH.replace("}", ", kind = 'fact home' }"), "must have the words type, category, importance"),
        ("[pieces]\none = 'x'\n" + WISH.replace("'x'", "'{{one}}|y'"), None),
        (WISH.replace("'x'", "'{{one}}'"), "no piece of that name: {{one}}"),
        ("[pattern]\none = ['x']\n", "unknown section 'pattern'"),
        ("[words]\none = 'x'\n[patterns]\none = ['x']\n", "one stands in two sections"),
        ("[words]\none = 'x x'\n", "one holds 'x' twice"),
        ("[phrases]\none = ['x|y']\n", "one holds a pattern among phrases"),
    ):
        (root / "english.toml").write_text(text)
        clear_caches()
        with pytest.raises(ValueError, match=f"english.*{re.escape(wrong)}") if wrong else nullcontext():
            data.load("english")


def test_rules_have_their_defaults(root: Path) -> None:
    rule = "a = { slot = 'x of {1}', pattern = '''^(b)\n  |({{day}})''' }\n"
    (root / "english.toml").write_text(f"[pieces]\nday = 'mon|tue'\n[statement_rules]\n{rule}{SAID}")
    loaded = data.load("english")
    wish = {"name": "a", "type": "instruction", "category": "instruction", "importance": "important"}
    wish |= {"pattern": "^(b)|(mon|tue)", "slot": "x of {1}", "value": "{2}"}
    assert loaded.statement_rules == (wish | {"whole": False, "exact": False, "standing": True},)
    defaults = {"roles": "user named", "at_least": 0, "utility": 0.5}
    assert loaded.extraction_rules[0].items() >= defaults.items()


def test_every_setting_is_read_somewhere() -> None:
    lines = [line for _, line in build_data.whole_lines(DATA / "settings.csv")]
    keys = [row["key"] for row in csv.DictReader(lines)]
    text = code()
    beginnings = ("history_share_", "budget_microcents_")  # the code puts the rest of the name behind these

    def is_read(key: str) -> bool:
        return bool(re.search(rf"\b{key}\b", text)) or any(key.startswith(b) and f"'{b}'" in text for b in beginnings)

    assert len(keys) > 50 and [key for key in keys if not is_read(key)] == []


def test_every_list_is_asked_for() -> None:
    asked = {use for _, use in build_data.lists_in_sql()}
    python = "\n".join(p.read_text() for p in (ROOT / "plpython" / "pg_memoir_language").glob("*.py"))
    uses = {use for name in data.languages() for use in data.load(name).lists}
    assert uses - asked - set(re.findall(r"[\"'](\w+)[\"']", python)) == set() and asked - uses == set()


def test_docs_list_the_settings() -> None:
    for path, text in build_reference.settings_pages().items():
        assert path.read_text() == text, "make reference, and commit the page"
