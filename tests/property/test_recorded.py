"""Stories answer as their snapshots say, which somebody has read (tests/support/recorded.py writes them)."""

from __future__ import annotations

import pytest
import recorded
from recorded import differences, record
from servers import has_plpython


def test_stories_answer_as_recorded(server_dsn: str) -> None:
    if not has_plpython(server_dsn):
        pytest.skip("the stories are recorded with PL/Python")
    found = differences(record(server_dsn))
    if found:
        pytest.fail(f"{len(found)} stories differ from their snapshots:\n" + "\n".join(found), pytrace=False)


def test_differences_are_named(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(recorded, "FOLDER", tmp_path)
    (tmp_path / "one.json").write_text("a\nb\n")
    (tmp_path / "gone.json").write_text("a\n")
    assert differences({"one": "a\nb\n", "gone": "a\n"}) == []
    gone, new, one = differences({"one": "a\nc\n", "new": "x\n"})
    assert "-a" in gone and "+x" in new and {"-b", "+c"} <= set(one.split("\n"))
