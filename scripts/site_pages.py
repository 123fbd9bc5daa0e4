"""A hook of mkdocs: the pages of the site are README.md and whatever its links lead to in this checkout, each as it is.

Sources are named as in the repository, so that a link works here as on a code host. A linked file that is no page is
shown as code, a linked folder as a list of its files.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)\s]*)?\)")
FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
LANGUAGES = {".sh": "sh", ".sql": "sql", ".py": "python", ".toml": "toml", ".json": "json", ".yml": "yaml"}
PICTURES = {".svg", ".png", ".webp", ".jpg"}
ASSETS = ROOT / "scripts" / "site"
UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n"


class Shown(File):
    """A page whose text is made of a file that is no Markdown."""

    def is_documentation_page(self) -> bool:
        return True


def linked(name: str, text: str) -> set[str]:
    """Returns the files and folders of the repository that a page links to."""
    found = set()
    for target in LINK.findall(FENCED.sub("", text)):
        path = ((ROOT / name).parent / target).resolve()
        if not re.match(r"[a-z]+:", target) and path.is_relative_to(ROOT) and path.exists():
            found.add(str(path.relative_to(ROOT)))
    return found


def notebook(raw: str) -> str:
    """Returns a notebook as Markdown: texts, code, and what the code prints."""
    parts = []
    for cell in json.loads(raw)["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        printed = "".join(line for output in cell.get("outputs", []) for line in output.get("text", []))
        parts += [f"```text\n{printed.rstrip()}\n```"] if printed else []
    return "\n\n".join(parts) + "\n"


def code(name: str) -> str:
    """Returns a source as a page: its text, or the names in a folder."""
    path = ROOT / name
    if path.is_dir():
        found = [each for each in path.iterdir() if not re.match(r"[_.]|.*\.egg-info$|build$", each.name)]
        is_short = len(found) <= 20  # then its sources are shown too
        names = [
            f"[`{each.name}`]({path.name}/{each.name})" if is_short and each.suffix in LANGUAGES else f"`{each.name}`"
            for each in sorted(found)
        ]
        return f"{UNSEARCHED}# {name}/\n\n" + "".join(f"- {each}\n" for each in names)
    return f"{UNSEARCHED}# {name}\n\n````{LANGUAGES.get(path.suffix, 'text')}\n{path.read_text()}\n````\n"


def text_of(name: str) -> str:
    """Returns the Markdown of a page."""
    path = ROOT / name
    if path.suffix == ".md":
        return path.read_text()
    return notebook(path.read_text()) if path.suffix == ".ipynb" else code(name)


def address(name: str) -> str:
    """Returns where a page is in the site: pages of docs/ at the top, README.md as the index of its folder."""
    path = name.removeprefix("docs/")
    if name.endswith((".md", ".ipynb")):
        path = re.sub(r"(^|/)README$", r"\1index", path.rpartition(".")[0])
    return path + ".html"


def on_files(files: Files, config: Any) -> Files:
    """Replaces the files of docs/ by the pages that can be reached from README.md, and all pages of docs/."""
    made: dict[str, File] = {}
    waiting = {"README.md", *(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md"))}
    while waiting:
        name = waiting.pop()
        if Path(name).suffix in PICTURES:
            made[name] = File(name, str(ROOT), config.site_dir, False, dest_uri=name.removeprefix("docs/"))
            continue
        text = text_of(name)
        is_page = name.endswith((".md", ".ipynb"))
        file = Shown(name, None, config.site_dir, False, dest_uri=address(name))
        file.content_string = text
        if not is_page or not name.startswith("docs/"):
            file.inclusion = InclusionLevel.NOT_IN_NAV
        made[name] = file
        waiting |= linked(name, text) - made.keys() if is_page or (ROOT / name).is_dir() else set()
    of_theme = [file for file in files if file.src_dir != config.docs_dir]
    for asset in ASSETS.iterdir():
        of_theme.append(File.generated(config, f"assets/{asset.name}", abs_src_path=str(asset)))
    return Files([*of_theme, *made.values()])
