"""What the model server and the backends read of texts, by name: functions of pg_memoir_language, text in, JSON out.

A function of several texts takes them as a JSON object in its text.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import asdict
from datetime import date, datetime
from typing import Any

from pg_memoir_language import changes, extraction, memories, questions, secrets, statements, text


def read_clauses(given: str) -> list[dict[str, Any]]:
    """{"texts": [text or null, …], "languages": […]} → the clauses of all texts, which count from 1."""
    asked = json.loads(given)
    return [
        asdict(clause)
        for number, (body, language) in enumerate(zip(asked["texts"], asked["languages"], strict=True), 1)
        if body is not None
        for clause in text.read_clauses(body, language, number)
    ]


def find_memories(given: str) -> list[dict[str, Any]]:
    """{"turns": [{"text", "role", "name", "said_at", "language", "tool"}, …], "requests": [[turn, start, length], …]} →
    what rules find in turns, which count from 1; nothing of what a request to forget says."""
    asked = json.loads(given)
    turns = [
        memories.Turn(
            turn["text"],
            turn["role"],
            turn["name"],
            datetime.fromisoformat(turn["said_at"]),
            turn["language"],
            turn["tool"],
        )
        for turn in asked["turns"]
    ]
    found = extraction.find_memories(turns, [tuple(request) for request in asked["requests"]])
    return [
        {key: value.isoformat() if isinstance(value, (date, datetime)) else value for key, value in asdict(one).items()}
        for one in found
    ]


LEARNT_LANGUAGES = frozenset({"english"})
_judges: list[Any] = []


def judge() -> Any:
    """Return the judge of this process, None where it can't be loaded. The first call loads it."""
    if not _judges:
        try:
            from .judge import Judge

            _judges.append(Judge())
        except (ImportError, OSError, RuntimeError, ValueError) as error:
            logging.getLogger("pg_memoir.judge").warning("without a judge nothing is certain: %s", error)
            _judges.append(None)
    return _judges[0]


def find_changes(given: str) -> dict[str, Any]:
    """{"text", "language", "earlier": [{"text", "language", "said_at", "turns_before", "is_near"}, …], "memories": [text, …]} →
    {"is_judged", "changes": [{"earlier" (from 0), "start", "length", …}, …], "ended": [index of a memory, …]}, as
    pg_memoir_language.changes has them. Without a judge a memory whose slot has another value has ended."""
    asked = json.loads(given)
    language = asked["language"]
    told = judge() if language in LEARNT_LANGUAGES else None
    earlier = [
        changes.Earlier(
            one["text"], one["language"], datetime.fromisoformat(one["said_at"]), one["turns_before"], one["is_near"]
        )
        for one in asked["earlier"] or []
    ]
    found = changes.find_changes(asked["text"], language, earlier, told.over if told else None)
    ended = changes.find_ended(asked["text"], asked["memories"] or [], told.over if told else None)
    return {"is_judged": told is not None, "changes": [asdict(change) for change in found], "ended": ended}


FUNCTIONS: dict[str, Callable[[str], Any]] = {
    "secret_kinds": secrets.secret_kinds,
    "redact": secrets.redact,
    "read_question": questions.read_question,
    "read_statement": statements.read_statement,
    "read_clauses": read_clauses,
    "find_memories": find_memories,
    "find_changes": find_changes,
}

# Functions that ask the judge.
JUDGED = frozenset({"find_changes"})
