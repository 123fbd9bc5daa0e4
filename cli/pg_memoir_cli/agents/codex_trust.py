"""Codex runs a hook after the person has trusted it, and notes that in its config.toml. What it noted about our hooks
goes with them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from . import json_text
from .entries import identify, list_entries


def list_keys(hooks: Path) -> list[str]:
    """The names that Codex gives to our hooks in a hooks.json: its path, the event, and the places in two lists."""
    try:
        data = json_text.parse(hooks.read_text("utf-8")).value
        events = list(data.get("hooks", {}))
    except (OSError, ValueError, AttributeError):
        return []
    return [
        f"{hooks}:{re.sub('(?<!^)(?=[A-Z])', '_', event).lower()}:{path[2]}:{path[-1]}"
        for event in events
        for path, entry, _ in list_entries(data, ("hooks", event, "-"))
        if len(path) == 5 and identify(entry)
    ]


def forget(config: str | None, keys: list[str]) -> str | None:
    """Returns the text of a config.toml without what Codex noted about these hooks, and all else as it was."""
    if not config:
        return config
    text = config
    try:
        before = tomllib.loads(text).get("hooks", {}).get("state", {})
    except ValueError:
        return config
    for key in filter(before.get, keys):
        text = re.sub(rf"\n?\[hooks\.state\.{re.escape(_quote(key))}\][^\n]*\n(?:[^\[\n][^\n]*(?:\n|\Z))*", "", text)
    if before and not set(before) - set(keys):
        text = re.sub(r"\n?\[hooks\.state\][^\n]*(?:\n|\Z)(?=\s*(?:\[|\Z))", "", text)
    try:
        after = tomllib.loads(text).get("hooks", {}).get("state", {})
    except ValueError:
        return config
    return text if after == {key: value for key, value in before.items() if key not in keys} else config


def _quote(key: str) -> str:
    return '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'
