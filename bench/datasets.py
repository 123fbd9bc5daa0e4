"""Conversations with gold evidence, each as what happened in order: said, remembered, asked.

`locomo(path)` reads a file in the LoCoMo format: two friends over months, in short turns. Its evidence names turns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from pg_memoir_cli.conversations import ConversationError
from pg_memoir_cli.formats import read_conversations


@dataclass(frozen=True)
class Said:
    """A message of a session. `key` is what evidence calls it."""

    key: str
    session: str
    message: dict[str, Any]


@dataclass(frozen=True)
class Remembered:
    """A ready-made memory."""

    key: str
    content: str
    at: datetime


@dataclass(frozen=True)
class Asked:
    """A question and the keys of its evidence. `session`: where it is asked; None where that holds nothing else."""

    text: str
    evidence: tuple[str, ...]
    category: str
    session: str | None = None
    at: datetime | None = None


@dataclass
class Corpus:
    """One user's events, oldest first. `kind` names the data in tables."""

    kind: str
    name: str
    events: list[Said | Remembered | Asked] = field(default_factory=list)

    def questions(self) -> list[Asked]:
        return [event for event in self.events if isinstance(event, Asked)]

    def items(self) -> list[Said | Remembered]:
        return [event for event in self.events if not isinstance(event, Asked)]


LOCOMO = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}


def locomo(path: Path) -> list[Corpus]:
    """Turns as the product's own importer reads them; all questions come after all sessions."""
    corpora: dict[str, Corpus] = {}
    for conversation in read_conversations(path, user_prefix="").conversations:
        if isinstance(conversation, ConversationError):
            raise conversation
        corpus = corpora.setdefault(conversation.user, Corpus("LoCoMo", conversation.user))
        for message in conversation.messages:
            key = _dia(str(message["metadata"]["dia_id"])) or [""]
            corpus.events.append(Said(key[0], conversation.session, dict(message)))
    for record in json.loads(path.read_text()):
        corpus = corpora[str(record["sample_id"])]
        known = {event.key for event in corpus.items()}
        for item in record["qa"]:
            gold = [key for entry in item.get("evidence") or [] for key in _dia(str(entry)) if key in known]
            if gold:
                corpus.events.append(
                    Asked(str(item["question"]), unique(gold), LOCOMO.get(item.get("category"), "other"))
                )
    return list(corpora.values())


def _dia(text: str) -> list[str]:
    """The turns named in a text: 'D8:6; D9:17' → D8:6, D9:17."""
    return [f"D{int(session)}:{int(turn)}" for session, turn in re.findall(r"D:?(\d+):(\d+)", text)]


def unique(keys: Iterable[str]) -> tuple[str, ...]:
    """Keys of evidence, each once."""
    return tuple(dict.fromkeys(keys))
