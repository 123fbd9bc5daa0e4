"""Lists are as they were: every recorded case answers what the reviewed snapshot says, to the byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from recorded import Recorded, canonical, changes, compare, difference, digests, record, snapshot

HOW = """Record the code before the change with `python tests/support/recorded.py FILE` and see what differs with
`--compare FILE`; if it is meant, `python tests/support/recorded.py --snapshot`."""


@pytest.mark.parametrize("every", [40, pytest.param(1, marks=pytest.mark.acceptance)])
def test_every_case_answers_as_recorded(server_dsn: str, every: int) -> None:
    answered = digests(record(server_dsn, every))
    recorded = snapshot()
    if every > 1:
        asked = {story(case) for case in answered}
        recorded = {case: digest for case, digest in recorded.items() if story(case) in asked}
    found = changes(recorded, answered)
    listed = "\n".join(f"  {what}: {case}" for case, what in list(found.items())[:40])
    if found:
        pytest.fail(f"{len(found)} cases are not as recorded:\n{listed}\n{HOW}", pytrace=False)


def story(case: str) -> str:
    return case.split("/")[0]


def test_changes_are_named() -> None:
    found = changes({"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "4", "d": "5"})
    assert found == {"b": "changed", "c": "gone", "d": "new"}


def test_differences_are_shown_by_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = ({"messages": [{"role": "user", "content": f"one\n{word}"}]} for word in ("two", "three"))
    assert difference(canonical(before), canonical(before)) == ""
    assert {'-two",', '+three",'} <= set(difference(canonical(before), canonical(after)).split("\n"))
    (tmp_path / "base").write_text(Recorded("a case", canonical(before)).line + "\n")
    assert compare(tmp_path / "base", [Recorded("a case", canonical(before))])
    assert not compare(tmp_path / "base", [Recorded("a case", canonical(after))])
    assert "changed: a case" in capsys.readouterr().out
