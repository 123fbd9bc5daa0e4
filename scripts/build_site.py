"""Builds the documentation site with mkdocs, and checks what mkdocs does not.

python scripts/build_site.py [FOLDER]      # default: .local/site; prints what is wrong, ends with 1 if anything is
"""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parent.parent
MARKDOWN = MarkdownIt().enable("table")
# An element of a page, and the token of Markdown that asks for it. Counted on each side, since a list that one renderer
# takes for a paragraph is no error to it.
COUNTED = {"li": "list_item_open", "table": "table_open", "pre": "fence", "h2": "heading_open", "img": "image"}
LOADING = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href", "video": "src"}


class Page(HTMLParser):
    """Notes the files that a page loads, and how many elements of each kind its article has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.elements: Counter[str] = Counter()
        self.is_article = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes an element."""
        given = {name: value or "" for name, value in attrs}
        self.is_article = self.is_article or tag == "article"
        if self.is_article:
            self.elements[tag] += 1
        if tag in LOADING and LOADING[tag] in given and given.get("rel") not in ("canonical", "next", "prev"):
            self.loaded.append(given[LOADING[tag]])

    def handle_endtag(self, tag: str) -> None:
        """Notes the end of the article."""
        self.is_article = self.is_article and tag != "article"


def build(folder: Path) -> bool:
    """Builds the site. Returns False if mkdocs warned of something."""
    # Not --quiet: with it mkdocs does not count warnings.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(done.stdout if done.returncode else "", end="")
    return done.returncode == 0


def loaded_from_elsewhere(folder: Path) -> Iterator[str]:
    """Yields what would be loaded from another host. Links and anchors are checked by mkdocs."""
    for file in sorted(folder.rglob("*.html")):
        for target in Page(file.read_text()).loaded:
            if urlsplit(target).scheme or urlsplit(target).netloc:
                yield f"{file.relative_to(folder)}: is loaded from another host: {target}"


def lost_elements(folder: Path) -> Iterator[str]:
    """Yields pages that show fewer lists, tables, examples, headings or pictures than their Markdown asks for."""
    for file in sorted(folder.rglob("*.html")):
        name = str(file.relative_to(folder)).removesuffix(".html") + ".md"
        sources = [ROOT / path for path in (name, f"docs/{name}", re.sub(r"index\.md$", "README.md", name))]
        source = next((path for path in sources if path.is_file()), None)
        if source is None:
            continue
        shown = Page(file.read_text()).elements
        shown["h2"] = sum(shown[f"h{level}"] for level in range(1, 7))
        tokens = [token for block in MARKDOWN.parse(source.read_text()) for token in (block, *(block.children or []))]
        asked = Counter("fence" if token.type == "code_block" else token.type for token in tokens)
        for tag, kind in COUNTED.items():
            if shown[tag] != asked[kind]:
                yield f"{source.relative_to(ROOT)}: {asked[kind]} of {kind}, the site shows {shown[tag]} of <{tag}>"


def unsearched(folder: Path) -> Iterator[str]:
    """Yields pages of docs/ that the index of the search does not have."""
    index = json.loads((folder / "search" / "search_index.json").read_text())
    found = {entry["location"].partition("#")[0] for entry in index["docs"] if entry["text"]}
    for page in sorted((ROOT / "docs").rglob("*.md")):
        address = str(page.relative_to(ROOT / "docs").with_suffix(".html"))
        if address not in found:
            yield f"{page.relative_to(ROOT)}: is not in the index of the search"


def main() -> int:
    """Builds, checks and says where the site is."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / ".local" / "site").resolve()
    if not build(folder):
        return 1
    wrong = [line for check in (loaded_from_elsewhere, lost_elements, unsearched) for line in check(folder)]
    print("\n".join(wrong) if wrong else f"{folder}/index.html: {len(list(folder.rglob('*.html')))} pages")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
