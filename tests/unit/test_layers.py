"""scripts/check_layers.py finds what breaks the order of sql/. That ours keeps it is a step of `make check`."""

from pathlib import Path

import check_layers
import pytest


def function(name: str, *calls: str, lines: int = 4) -> str:
    body = "\n" * (lines - 4) + "".join(f"  perform {call}(1);\n" for call in calls)
    return f"create or replace function {name}(p integer)\nreturns void language plpgsql as $$\nbegin\n{body}end $$;\n"


# Two areas in order: b/two calls a/one. A comment, a COMMENT and a hint name what comes later.
IN_ORDER = {
    "contents.sql": "\\ir preamble.sql\n\\ir a/one.sql   -- first\n\\ir a/more.sql\n\\ir b/two.sql\n",
    "preamble.sql": "do $$ begin raise 'no' using hint = 'memoir.two()'; end $$;",
    "a/one.sql": f"-- see memoir.two()\n{function('memoir.one')}comment on function memoir.one(integer) is 'memoir.two()';",
    "a/more.sql": function("_memoir.more", "memoir.one"),
    "b/two.sql": function("memoir.two", "memoir.one", "_memoir.more"),
}
VIEW = "create or replace view memoir.all_of_it as select memoir.two(1);\n"


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        pytest.param("a/one.sql", IN_ORDER["a/one.sql"], [], id="in order"),
        pytest.param("a/more.sql", function("_memoir.more", "memoir.two"), ["(a/more.sql) calls memoir.two"], id="up"),
        pytest.param("a/more.sql", VIEW + function("_memoir.more"), ["views and triggers of a/more.sql"], id="a view"),
        pytest.param("a/one.sql", function("memoir.one", "_memoir.more"), ["in a circle"], id="circle"),
        pytest.param("b/two.sql", function("memoir.two", lines=120), [], id="long enough"),
        pytest.param(
            "b/two.sql", function("memoir.two", lines=121), ["memoir.two (sql/b/two.sql:1) has"], id="too long"
        ),
        pytest.param("b/left.sql", function("memoir.left"), ["sql/b/left.sql is not in"], id="not in the contents"),
    ],
)
def test_what_breaks_the_order_is_found(tmp_path: Path, file: str, text: str, says: list[str]) -> None:
    for name, content in (IN_ORDER | {file: text}).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    found = check_layers.problems(check_layers.read(tmp_path))
    assert bool(found) == bool(says) and all(any(said in problem for problem in found) for said in says)
