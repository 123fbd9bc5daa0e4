"""scripts/check_layers.py: finds what breaks the order of sql/. That ours keeps it is a step of `make check`."""

from __future__ import annotations

from pathlib import Path

import check_layers
import pytest


def body(*calls: str, lines: int = 4) -> str:
    return "as $$\nbegin\n" + "\n" * (lines - 4) + "".join(f"  perform {call}(1);\n" for call in calls) + "end $$;"


def function(name: str, *calls: str, lines: int = 4) -> str:
    return f"create or replace function {name}(p integer)\nreturns void language plpgsql {body(*calls, lines=lines)}\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two areas in order: b/two calls a/one; a comment, a COMMENT and a hint name what comes later."""
    (tmp_path / "contents.sql").write_text(
        "\\ir preamble.sql\n\\ir a/one.sql   -- first\n\\ir a/more.sql\n\\ir b/two.sql\n"
    )
    for name, text in {
        "preamble.sql": "do $$ begin raise 'no' using hint = 'memoir.two()'; end $$;",
        "a/one.sql": "-- see memoir.two()\n"
        + function("memoir.one")
        + "comment on function memoir.one(integer) is 'before memoir.two()';",
        "a/more.sql": function("_memoir.more", "memoir.one"),
        "b/two.sql": function("memoir.two", "memoir.one", "_memoir.more"),
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def found(tree: Path) -> list[str]:
    return check_layers.problems(check_layers.read(tree))


def test_nothing_is_found_where_all_is_in_order(tree: Path) -> None:
    assert found(tree) == []
    assert [f.name for f in check_layers.read(tree).functions] == ["memoir.one", "_memoir.more", "memoir.two"]


def test_a_call_from_an_area_to_a_later_one(tree: Path) -> None:
    (tree / "a/more.sql").write_text(function("_memoir.more", "memoir.two"))
    assert any("_memoir.more (a/more.sql) calls memoir.two (b/two.sql)" in problem for problem in found(tree))


def test_a_view_calls_too(tree: Path) -> None:
    (tree / "a/more.sql").write_text(
        "create or replace view memoir.all_of_it as select memoir.two(1);\n" + function("_memoir.more")
    )
    assert any("views and triggers of a/more.sql" in problem and "memoir.two" in problem for problem in found(tree))


def test_files_that_call_each_other(tree: Path) -> None:
    (tree / "a/one.sql").write_text(function("memoir.one", "_memoir.more"))
    [problem] = found(tree)
    assert (
        "in a circle" in problem
        and "memoir.one calls _memoir.more" in problem
        and "_memoir.more calls memoir.one" in problem
    )


@pytest.mark.parametrize(("lines", "is_long"), [(120, False), (121, True)])
def test_a_long_function(tree: Path, lines: int, is_long: bool) -> None:
    """Its lines are counted from its name to the end of its body."""
    (tree / "b/two.sql").write_text(function("memoir.two", lines=lines))
    assert [problem.split(" has ")[0] for problem in found(tree)] == (
        ["memoir.two (sql/b/two.sql:1)"] if is_long else []
    )


def test_a_file_that_the_contents_lack(tree: Path) -> None:
    (tree / "b/left.sql").write_text(function("memoir.left"))
    assert found(tree) == ["sql/b/left.sql is not in sql/contents.sql"]
