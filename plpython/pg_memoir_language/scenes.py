"""Scenes that are played over several messages: what is said in a part is no statement of who says it.

A message opens a scene ("you be the officer, I will be Kojo"), and what follows is played until a message ends it
("okay cut!", "real me loves tacos"), the session rests, or many messages have passed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from .data import choices
from .foreign import APOSTROPHES
from .memories import Turn
from .patterns import compile_pattern

# Messages of a person that one scene has at most, and the rest after which it is over.
MOST_MESSAGES, REST = 12, timedelta(hours=3)
LONGEST = 4000


def without_scenes(turns: Sequence[Turn], before: Sequence[Turn] = ()) -> list[Turn]:
    """Return turns of one session with what is played in them blanked out, so that positions stay.

    `before`: turns of the session before them, in which a scene may have begun.
    """
    left, last_at = 0, None
    read: list[Turn] = []
    for turn in (*before, *turns):
        text, text_left = turn.text, left
        if turn.role == "user":
            if last_at is not None and turn.said_at - last_at > REST:
                text_left = 0
            text, left = _without_scene(turn.text, text_left)
            last_at = _later(last_at, turn.said_at)
        elif left:
            text = _blank(text, len(text))
        read.append(replace(turn, text=text))
    return read[len(before) :]


def _later(one: datetime | None, other: datetime) -> datetime:
    return other if one is None else max(one, other)


def _without_scene(text: str, left: int) -> tuple[str, int]:
    """Return a message without what is played, and how many messages may follow in the scene."""
    said = text[:LONGEST].translate(APOSTROPHES)
    opening = compile_pattern(choices(None, "scene_openings") or "(?!)", True).search(said)
    closing = compile_pattern(choices(None, "scene_closings") or "(?!)", True)
    if opening:
        end = closing.search(said, opening.end())
        return text, 0 if end else MOST_MESSAGES
    if not left:
        return text, 0
    end = closing.search(said)
    if end:
        return _blank(text, end.end()), 0
    return _blank(text, len(text)), left - 1


def _blank(text: str, end: int) -> str:
    return "\n" * end + text[end:]
