"""Stories answer as their snapshots say, which a person has read (tests/support/recorded.py writes them)."""

import pytest
import recorded
from recorded import find_differences, record
from servers import has_plpython


def test_stories_answer_as_recorded(server_dsn: str) -> None:
    if not has_plpython(server_dsn):
        pytest.skip("the stories are recorded with PL/Python")
    found = find_differences(record(server_dsn))
    if found:
        pytest.fail(f"{len(found)} stories differ from their snapshots:\n" + "\n".join(found), pytrace=False)


def test_differences_are_named(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(recorded, "FOLDER", tmp_path)
    (tmp_path / "one.txt").write_text("a\nb\n")
    (tmp_path / "gone.txt").write_text("a\n")
    assert find_differences({"one": "a\nb\n", "gone": "a\n"}) == []
    gone, new, one = find_differences({"one": "a\nc\n", "new": "x\n"})
    assert "-a" in gone and "+x" in new and {"-b", "+c"} <= set(one.split("\n"))
