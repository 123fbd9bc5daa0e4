"""Memory pages as files: pulled, edited, pushed, and what stands in the way."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import typer
from pg_memoir import Memoir

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def memoir(memoir_dsn: str, user: str) -> Iterator[Memoir]:
    with Memoir(memoir_dsn, max_size=2) as client:
        for text in ("The roof is green.", "The gate is old.", "The kiln is hot."):
            client.remember(user, text)
        yield client


@pytest.fixture
def run(run: Run) -> Run:
    return partial(run, "pages")


def texts(memoir: Memoir, user: str) -> list[str]:
    return sorted(one.text for one in memoir.memory_page(user).sentences)


def test_pages_are_pulled_edited_and_pushed(memoir: Memoir, user: str, run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    assert run("pull", user, folder)[:2] == (0, f"{folder}/{user}.md: 3 sentences\n")
    page = folder / f"{user}.md"
    assert page.stat().st_mode & 0o777 == 0o600
    untouched = page.read_bytes()
    (folder / "todo.md").write_text("# Things\n\n- Not a page\n")
    assert run("push", folder, "--yes") == (0, f"{page}: nothing was edited\n", "")
    page.rename(folder / "mine.md")
    page = folder / "mine.md"
    assert run("pull", folder)[0] == 0 and page.read_bytes() == untouched
    text = (
        page.read_text()
        .replace("roof is green", "roof is red")
        .replace("## Facts\n", "## Facts\n\n- The barn is new.\n")
    )
    page.write_text("\n".join(line for line in text.split("\n") if not line.startswith("- The gate")))
    before = page.read_text()
    code, out, err = run("push", folder, "--dry-run")
    assert (code, err) == (0, "") and "(not done yet)" in out
    for told in (
        "correct: The roof is green. -> The roof is red.",
        "forget: The gate is old.",
        "remember: The barn is new.",
    ):
        assert f"  {told}\n" in out
    code, _, err = run("push", folder)
    assert code == 1 and "--yes does it" in err and texts(memoir, user)[0] == "The gate is old."
    code, out, _ = run("push", folder, "--yes")
    assert code == 0 and "1 corrected, 1 forgotten, 1 remembered\n" in out
    assert texts(memoir, user) == ["The barn is new.", "The kiln is hot.", "The roof is red."]
    assert page.read_text() == memoir.memory_page(user).markdown != before
    assert [file.name for file in folder.iterdir() if file.name.startswith(".")] == []


def test_conflicts_lose_nothing(memoir: Memoir, user: str, run: Run, tmp_path: Path) -> None:
    run("pull", user, tmp_path)
    page = tmp_path / f"{user}.md"
    page.write_text(page.read_text().replace("roof is green", "roof is red").replace("kiln is hot", "kiln is warm"))
    roof = next(one for one in memoir.memory_page(user).sentences if "roof" in one.text)
    memoir.correct(user, roof.memory_id, "The roof is grey.")
    before = page.read_text()
    for _ in range(2):
        code, _, err = run("push", tmp_path, "--yes")
        assert code == 3 and page.read_text() == before
        assert "the page: The roof is red.\n    memory:   The roof is grey.\n" in err
    assert texts(memoir, user) == ["The gate is old.", "The kiln is warm.", "The roof is grey."]
    code, _, err = run("pull", tmp_path)
    assert code == 3 and "The roof is grey." in err and "The roof is red." in page.read_text()
    assert run("push", tmp_path, "--yes")[0] == 0 and "The roof is red." in texts(memoir, user)


def test_a_person_is_asked_first(
    memoir: Memoir, user: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("pull", user, tmp_path)
    page = tmp_path / f"{user}.md"
    page.write_text(page.read_text().replace("roof is green", "roof is red"))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    for answer in (False, True):
        monkeypatch.setattr(typer, "confirm", lambda *_, answer=answer, **__: answer)
        assert run("push", page)[0] == (0 if answer else 1)
        assert ("The roof is red." in texts(memoir, user)) is answer


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["pull", "a", "b", "c"], 2, "3 arguments were given: a b c"),
        (["pull", "{}", "--topic", "roof"], 2, "--topic need a user"),
        (["pull", "{}"], 1, "has no pages"),
        (["push", "{}"], 1, "has no pages"),
        (["push", "{}/nowhere"], 1, "nowhere does not exist"),
    ],
)
def test_wrong_calls_say_what_to_do(run: Run, tmp_path: Path, arguments: list[str], code: int, told: str) -> None:
    done = run(*(one.format(tmp_path) for one in arguments))
    assert done[0] == code and told in done[2]


def test_a_page_that_was_cut_off_is_named(memoir: Memoir, user: str, run: Run, tmp_path: Path) -> None:
    run("pull", user, tmp_path)
    run("pull", user, tmp_path, "--topic", "roof")
    page = tmp_path / f"{user}.md"
    page.write_text(page.read_text()[:400])
    (tmp_path / f"{user}.roof.md").write_text((tmp_path / f"{user}.roof.md").read_text().replace("green", "red"))
    code, _, err = run("push", tmp_path, "--yes")
    assert code == 3 and f"{page}: the page can't be read: its last comment" in err
    assert texts(memoir, user) == ["The gate is old.", "The kiln is hot.", "The roof is red."]
    code, _, err = run("pull", tmp_path)
    assert code == 1 and "can't be read" in err


def test_a_page_keeps_its_limit_and_its_link(memoir: Memoir, user: str, run: Run, tmp_path: Path) -> None:
    run("pull", user, tmp_path, "--limit", 2)
    page, target = tmp_path / f"{user}.md", tmp_path / "elsewhere"
    page.rename(target)
    page.symlink_to(target)
    page.write_text(page.read_text().replace("## Facts\n", "## Facts\n\n- The barn is new.\n"))
    assert run("push", tmp_path, "--yes")[0] == 0 and page.is_symlink()
    assert run("pull", tmp_path)[1] == f"{page}: 2 sentences, 2 left out\n" and "limit: 2\n" in target.read_text()
    page.write_bytes(page.read_bytes().replace(b"The", b"Th\xe9", 1))
    code, _, err = run("push", tmp_path, "--yes")
    assert code == 1 and f"{page} is not UTF-8: byte" in err and "0xe9" in err
