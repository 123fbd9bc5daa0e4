"""Memory pages as files of a folder: which file is which page, written whole or not at all."""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pg_memoir import MemoirError
from pg_memoir.extras.pages import is_page, read

from .app import Stop

Named = tuple[str, str | None, str | None]
"""The user, project and topic of a page."""


@dataclass(frozen=True)
class PageFile:
    """A file that has a page. `text` as it was read."""

    path: Path
    text: str

    @property
    def named(self) -> Named:
        """Whose page it is, and of what. Raises InvalidArgumentError."""
        page = read(self.text)
        return page.user, page.project, page.topic

    @property
    def limit(self) -> int | None:
        """The number of sentences that it was pulled with. Raises InvalidArgumentError."""
        return read(self.text).limit


def find_pages(place: Path) -> list[PageFile]:
    """Returns the pages of a folder, by name, or the page of a file. Other files are no pages, and left out. Raises
    FileNotFoundError."""
    if not place.exists():
        raise FileNotFoundError(f"{place} does not exist. pg-memoir pages pull USER {place} writes pages there")
    paths = sorted(place.glob("*.md")) if place.is_dir() else [place]
    found = [PageFile(path, read_text(path)) for path in paths if path.is_file()]
    return [file for file in found if is_page(file.text)]


def read_text(path: Path) -> str:
    """Returns the text of a file. A page with broken characters is refused, because they would count as an edit."""
    content = path.read_bytes()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        text = content.decode("utf-8-sig", "replace")
        if is_page(text):
            raise Stop(
                f"{path} is not UTF-8: byte {error.start} is {content[error.start]:#04x}", "save it as UTF-8"
            ) from error
        return text


def choose_path(folder: Path, named: Named, present: list[PageFile]) -> Path:
    """Returns where a page belongs: the file that has it, else a new one by its name."""
    for file in present:
        try:
            if file.named == named:
                return file.path
        except MemoirError:
            continue
    words = [re.sub(r"[^\w.@+-]+", "-", part).strip("-.")[:80] for part in named if part]
    stem = ".".join(filter(None, words)) or "page"
    taken = {path.name.lower() for path in folder.glob("*.md")}
    names = (f"{stem}{number}.md" for number in ("", *(f"-{count}" for count in range(2, 10_000))))
    return folder / next(name for name in names if name.lower() not in taken)


def write_page(path: Path, text: str) -> None:
    """Writes a file whole or not at all. A new one is for its owner only, since a page tells of a person."""
    path = path.resolve()  # what a link leads to
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".page-", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
