"""What the model server and the backends read of texts, by name: functions of pg_memoir_language, text in, JSON out.

A function of several texts takes them as a JSON object in its text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from datetime import date, datetime
from typing import Any

from pg_memoir_language import extraction, memories, questions, secrets, statements, text


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


FUNCTIONS: dict[str, Callable[[str], Any]] = {
    "secret_kinds": secrets.secret_kinds,
    "redact": secrets.redact,
    "read_question": questions.read_question,
    "read_statement": statements.read_statement,
    "read_clauses": read_clauses,
    "find_memories": find_memories,
}
