"""Notes about sessions on this machine: which memory a session has, and which of its messages are never stored."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ..places import agents_folder

_KEPT = 500
"""Notes about so many of the newest sessions are kept, beside those that name messages to leave out."""
_FIRST_LINES = 50

Notes = dict[str, dict[str, Any]]
"""By session: `user`, whose memory it has; `is_off`: the last event had hooks switched off; `left_out`: chains of
messages that were said meanwhile."""


def find_folder(agent: str, payload: dict[str, Any]) -> str:
    """Returns the folder in which a session began. The `cwd` of an event follows each `cd` of the agent."""
    roots = payload.get("workspace_roots") or []
    began = roots[0] if roots else os.environ.get("CLAUDE_PROJECT_DIR") if agent == "claude-code" else None
    folder = str(began or _read_first_folder(payload))
    return folder if folder and Path(folder).is_dir() else str(payload.get("cwd") or os.getcwd())


def _read_first_folder(payload: dict[str, Any]) -> str:
    """Returns the first folder that a transcript names. Codex has it in `session_meta`."""
    from itertools import islice

    from .transcripts import load_line, read_lines

    for line in islice(read_lines(payload), _FIRST_LINES):
        record = load_line(line) if '"cwd"' in line else {}
        inner = record.get("payload")
        for holder in (record, inner if isinstance(inner, dict) else {}):
            if isinstance(holder.get("cwd"), str):
                return str(holder["cwd"])
    return ""


def read_notes() -> Notes:
    """Returns the notes. Raises ValueError where the file is damaged: it says what must not be stored."""
    path = agents_folder() / "sessions.json"
    try:
        told = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError:
        raise ValueError(f"{path} is no JSON. Repair or delete it.") from None
    return {name: note for name, note in told.items() if isinstance(note, dict)}


def add_note(session: str, *, left_out: list[str] | None = None, **members: Any) -> None:
    """Adds to the note about a session. Without an install there is no folder for it."""
    from .files import write_file
    from .locking import hold_lock

    folder = agents_folder()
    if not folder.is_dir():
        return
    with hold_lock(folder / "lock"):
        notes = read_notes()
        note = notes.pop(session, {}) | members
        if left_out:
            note["left_out"] = list(dict.fromkeys([*note.get("left_out", []), *left_out]))
        notes[session] = note
        old = [name for name in list(notes)[:-_KEPT] if not notes[name].get("left_out")]
        write_file(folder / "sessions.json", json.dumps({name: notes[name] for name in notes if name not in old}))
