"""Snapshots of what the public API answers in fixed stories (stories.py): tests/snapshots/stories/<story>.json.

    eval "$(scripts/cluster.sh env)"                             after make up
    .local/venv/bin/python tests/support/recorded.py             writes the snapshots; read the difference with git

A snapshot holds a few answers of a story, spread over it. The stories are told one after another in a database of their
own. Not in them: what depends on chance (an order by random ids), standbys, embedders, language models, archives.
"""

from __future__ import annotations

import difflib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
from servers import connect, database, install
from stories import STORIES
from story import DIMENSION, MODEL, Story

FOLDER = Path(__file__).resolve().parents[1] / "snapshots" / "stories"
CASES = 5  # answers of a story that are kept
WIDTH = 150
OPTIONS = "-c client_min_messages=warning -c timezone=UTC -c jit=off"
SETTINGS = {
    "compaction_tokens": "1500",
    "tail_items_max": "16",
    "job_seconds_max": "3600",
    "object_tokens_min": "100000",
}


def told(db: psycopg.Connection) -> Iterator[Story]:
    """All stories, one after another, in a database where nothing has happened yet."""
    db.execute("select memoir.register_embedding_model(%s, 'none', %s)", [MODEL, DIMENSION])
    db.execute("select memoir.switch_embedding_model(%s)", [MODEL])
    db.execute("select memoir.register_model('small', 'openai', 2500, 500)")
    for setting, value in SETTINGS.items():
        db.execute("select memoir.set_setting(%s, %s)", [setting, value])
    for tell in STORIES:
        story = Story(db, tell.__name__)
        story.later(minutes=0)
        tell(story)
        yield story


def record(server_dsn: str) -> dict[str, str]:
    """{story: its snapshot}, told in a new database of the server."""
    with database(server_dsn) as dsn:
        install(dsn)
        with connect(dsn, options=OPTIONS) as db:
            return {story.name: snapshot(story) for story in told(db)}


def snapshot(story: Story) -> str:
    """A few of a story's answers as JSON to read, evenly spread over it; texts as lists of their lines."""
    cases = list(story.cases())
    step = max(1, -(-len(cases) // CASES))
    chosen = {name: split_lines(answer) for name, answer in cases[::step]}
    return "\n".join(format_value(chosen)) + "\n"


def format_value(value: Any, before: str = "", indent: int = 0, after: str = "") -> list[str]:
    """A value as lines of JSON, each as long as WIDTH allows."""
    text = " " * indent + before + json.dumps(value, ensure_ascii=False) + after
    if len(text) <= WIDTH or not value or not isinstance(value, (dict, list)):
        return [text]
    inner = (
        [(f"{json.dumps(key)}: ", part) for key, part in value.items()]
        if isinstance(value, dict)
        else [("", part) for part in value]
    )
    lines = [" " * indent + before + ("{" if isinstance(value, dict) else "[")]
    for number, (key, part) in enumerate(inner, 1):
        lines += format_value(part, key, indent + 1, "," if number < len(inner) else "")
    return [*lines, " " * indent + ("}" if isinstance(value, dict) else "]") + after]


def split_lines(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: split_lines(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [split_lines(inner) for inner in value]
    return value.split("\n") if isinstance(value, str) and "\n" in value else value


def differences(recorded: dict[str, str]) -> list[str]:
    """How stories differ from their snapshots, as diffs; a story without snapshot and a snapshot without story count."""
    saved = {path.stem: path.read_text("utf-8") for path in FOLDER.glob("*.json")}
    found = []
    for name in sorted(saved.keys() | recorded.keys()):
        before, after = saved.get(name, ""), recorded.get(name, "")
        if before != after:
            lines = difflib.unified_diff(before.split("\n"), after.split("\n"), "saved", name, n=2, lineterm="")
            found.append("\n".join(list(lines)[:60]))
    return found


def main() -> None:
    if "PG_MEMOIR_DSN" not in os.environ:
        sys.exit('PG_MEMOIR_DSN is not set: eval "$(scripts/cluster.sh env)"')
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.json"):
        path.unlink()
    for name, text in record(os.environ["PG_MEMOIR_DSN"]).items():
        (FOLDER / f"{name}.json").write_text(text, "utf-8")


if __name__ == "__main__":
    main()
