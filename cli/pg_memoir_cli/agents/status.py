"""Describes an install for `pg-memoir agents status`: its files, and how its hooks fare, from their log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..places import agents_folder
from .clients import AFTER_INSTALL
from .installing import Install, list_missing

_LINES = 2_000


@dataclass(frozen=True)
class Condition:
    """`state`: ok, broken (files lack something), failing (the newest event of a kind failed), unused (no event), gone
    (the repository was moved or deleted)."""

    agent: str
    place: str
    state: str
    last_event: str
    median_ms: int | None
    note: str


def describe(install: Install, lines: list[dict[str, Any]]) -> Condition:
    """The condition of an install, by the newest lines of the log."""
    own = [line for line in lines if line["agent"] == install.agent]
    last = own[-1] if own else None
    newest = {line["event"]: line for line in own}
    failed = [line for line in newest.values() if str(line["note"]).startswith("failed")]
    missing = [] if install.is_gone else list_missing(install)
    state = "broken" if missing else "failing" if failed else "ok" if own else "unused"
    note = f"{', '.join(map(str, missing))} lacks the hooks: install again" if missing else ""
    if state == "unused" and install.agent == "codex":
        note = AFTER_INSTALL["codex"]
    if failed and not missing:
        note = f"{failed[-1]['event']}: {failed[-1]['note'].removeprefix('failed: ')}"
    if install.is_gone:
        state, note = "gone", "uninstall or install it where the repository is now"
    times = sorted(line["ms"] for line in own[-100:])
    return Condition(
        install.agent,
        install.root or "this machine",
        state,
        f"{last['event']} at {last['at']}" if last else "",
        times[len(times) // 2] if times else None,
        note,
    )


def read_log() -> list[dict[str, Any]]:
    """The newest lines of the hooks' log, oldest first."""
    return list(_read_lines())[-_LINES:]


def _read_lines() -> Iterator[dict[str, Any]]:
    for name in ("log.1", "log.jsonl"):
        try:
            text = (agents_folder() / name).read_text("utf-8", "replace")
        except OSError:
            continue
        for line in text.splitlines():
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if isinstance(found, dict) and {"agent", "event", "ms", "note", "at"} <= found.keys():
                yield found
