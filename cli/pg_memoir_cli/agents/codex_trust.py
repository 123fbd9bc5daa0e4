"""Codex runs a hook after the person has trusted it, and notes that in its config.toml. What it noted about our hooks
goes with them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from . import json_text
from .files import is_ours, write_file


def list_keys(hooks: Path) -> list[str]:
    """The names that Codex gives to our hooks in a hooks.json: its path, the event, and the places in two lists."""
    try:
        events = json_text.parse(hooks.read_text("utf-8")).value.get("hooks", {})
    except (OSError, ValueError, AttributeError):
        return []
    return [
        f"{hooks}:{re.sub('(?<!^)(?=[A-Z])', '_', event).lower()}:{at}:0"
        for event, groups in events.items()
        for at, group in enumerate(groups if isinstance(groups, list) else [])
        if is_ours(group)
    ]


def forget(config: Path, keys: list[str]) -> None:
    """Removes what Codex noted about these hooks, and nothing else."""
    try:
        text = config.read_bytes().decode("utf-8")
        before = tomllib.loads(text).get("hooks", {}).get("state", {})
    except (OSError, ValueError):
        return
    for key in filter(before.get, keys):
        text = re.sub(rf"\n?\[hooks\.state\.{re.escape(_quote(key))}\][^\n]*\n(?:[^\[\n][^\n]*(?:\n|\Z))*", "", text)
    if before and not set(before) - set(keys):
        text = re.sub(r"\n?\[hooks\.state\][^\n]*(?:\n|\Z)(?=\s*(?:\[|\Z))", "", text)
    try:
        after = tomllib.loads(text).get("hooks", {}).get("state", {})
    except ValueError:
        return
    if after == {key: value for key, value in before.items() if key not in keys} and after != before:
        write_file(config, text)


def _quote(key: str) -> str:
    return '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'
