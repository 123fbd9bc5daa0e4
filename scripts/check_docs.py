"""Checks the written pages: paragraphs of at most 80 words, names of functions, settings' files and tests that exist,
no path of a machine. Links and anchors are checked where the site is built (build_site.py).

    python scripts/check_docs.py        # prints what is wrong, ends with 1 if anything is
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parent.parent
DOCS = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))
PAGES = ["README.md", "CONTRIBUTING.md", "client/README.md", "examples/README.md", *DOCS]
MADE = {"docs/reference.md"}  # from the comments in sql/, which are not pages to read through
WORDS = 80

MARKDOWN = MarkdownIt().enable("table")
SPAN = re.compile(r"`([^`]+)`")
NAMED_FILE = re.compile(
    r"^(?:sql|migrations|plpython|client|cli|gateway|bench|research|scripts|tests|docs)/[\w./-]*\w/?$|^test_\w+\.py$"
    r"|^(?:base|text|history|search|sessions|memory|compile|privacy|work|tools|install)/\w+\.sql$")  # fmt: skip
QUALIFIED = re.compile(r"(?<![\w./-])(_?memoir)\.([a-z]\w*)\b(?![*@_<])")
MACHINE = re.compile(r"(?<![\w.])/(?:work|root|home|Users|tmp)/\w+")
DEFINED = re.compile(
    r"create\s+(?:or\s+replace\s+)?(?:unlogged\s+)?(?:function|procedure|view|table|type|domain|sequence)\s+"
    r"(?:if\s+not\s+exists\s+)?(_?memoir)\.(\w+)", re.IGNORECASE)  # fmt: skip


def defined_names() -> dict[str, set[str]]:
    files = [file for folder in ("sql", "migrations", "plpython") for file in (ROOT / folder).rglob("*.sql")]
    found = [(schema.lower(), name) for file in files for schema, name in DEFINED.findall(file.read_text())]
    return {schema: {name for its, name in found if its == schema} for schema in ("memoir", "_memoir")}


def client_names() -> set[str]:
    """Methods of the client: an object called memoir has them."""
    texts = [file.read_text() for file in (ROOT / "client/pg_memoir").glob("*.py")]
    return {name for text in texts for name in re.findall(r"def (\w+)", text)}


def file_exists(name: str) -> bool:
    if "/" not in name:
        return any((ROOT / "tests").rglob(name))
    return (ROOT / name).exists() or (ROOT / "sql" / name).exists()


def complaints(name: str, names: dict[str, set[str]], methods: set[str]) -> Iterator[str]:
    text, before = (ROOT / name).read_text(), ""
    for token in MARKDOWN.parse(text):
        where = f"{name}:{token.map[0] + 1 if token.map else 0}"
        if token.type == "inline":
            words = token.content.split()
            if before == "paragraph_open" and len(words) > WORDS and name not in MADE:
                yield f"{where}: a paragraph of {len(words)} words, at most {WORDS}: {' '.join(words[:6])} …"
            spans = (span for span in SPAN.findall(token.content) if NAMED_FILE.match(span))
            yield from (f"{where}: no such file: {span}" for span in spans if not file_exists(span))
        if token.type in ("inline", "fence", "code_block"):
            is_python = token.info.startswith("python") or name == "client/README.md"
            known = {"memoir": names["memoir"] | (methods if is_python else set()), "_memoir": names["_memoir"]}
            missing = (f"{schema}.{x}" for schema, x in QUALIFIED.findall(token.content) if x not in known[schema])
            yield from (f"{where}: no such name: {x}" for x in missing)
        before = token.type
    for number, line in enumerate(text.splitlines(), 1):
        yield from (f"{name}:{number}: a path of a machine: {path}" for path in MACHINE.findall(line))


if __name__ == "__main__":
    defined, methods = defined_names(), client_names()
    found = [line for page in PAGES for line in complaints(page, defined, methods)]
    print("\n".join(found) if found else f"{len(PAGES)} pages are in order")
    sys.exit(bool(found))
