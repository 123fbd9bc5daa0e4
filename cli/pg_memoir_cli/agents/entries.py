"""Tells the hooks and servers of `pg-memoir agents` from those of others, by the exact command that they run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Keys = tuple[str | int, ...]
_COMMAND = re.compile(
    "agents\0(?:hook\0(?P<event>[^\0]+)\0--agent\0(?P<agent>[^\0]+)(?:\0--project)?|mcp)"
    "(?:\0--user\0[^\0]+)?(?:\0--folder\0[^\0]+)?"
)


def identify(entry: Any) -> tuple[str, str] | None:
    """Returns event and agent of a hook of ours, two empty texts for a server, None for what others wrote. An install
    in another environment has another path, and options may differ."""
    command, arguments = (entry.get("command"), entry.get("args")) if isinstance(entry, dict) else (None, None)
    try:
        words = command if isinstance(command, list) else [command] if arguments else shlex.split(command or "")
    except (ValueError, AttributeError, TypeError):
        return None
    first, *rest = [*map(str, words), *map(str, arguments if isinstance(arguments, list) else [])] or [""]
    found = _COMMAND.fullmatch("\0".join(rest)) if Path(first).stem == "pg-memoir" else None
    return (found["event"] or "", found["agent"] or "") if found else None


def find_last(data: Any, keys: Keys, value: Any) -> Keys | None:
    """Returns the place of the last entry of ours where `value` is added, or that of its group if nothing else is in
    it."""
    group = value.get("hooks")
    wanted = identify(group[0] if group else value)
    found = None
    for path, entry, is_alone in list_entries(data, keys):
        if identify(entry) == wanted:
            found = path[:-2] if is_alone else path
    return found


def list_entries(data: Any, keys: Keys) -> Iterator[tuple[Keys, Any, bool]]:
    """All entries at the place of an addition, also those in groups: path, entry, and whether it is alone in one."""
    holder = find_value(data, keys[:-1] if keys[-1] == "-" else keys)
    if keys[-1] != "-":
        if holder is not None:
            yield keys, holder, False
        return
    for at, item in enumerate(holder if isinstance(holder, list) else []):
        group = item.get("hooks") if isinstance(item, dict) else None
        if isinstance(group, list):
            for number, entry in enumerate(group):
                yield (*keys[:-1], at, "hooks", number), entry, len(group) == 1
        else:
            yield (*keys[:-1], at), item, False


def find_value(data: Any, keys: Keys) -> Any:
    """The value at a path of keys and numbers, None where there is none."""
    for key in keys:
        if isinstance(key, str):
            data = data.get(key) if isinstance(data, dict) else None
        else:
            data = data[key] if isinstance(data, list) and key < len(data) else None
    return data
