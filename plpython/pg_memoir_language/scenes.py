"""Scenes that are played over several messages: what is said in a part is no statement of who says it.

A message opens a scene where a learnt model is sure of it, or where it has the form ("you be the officer, I will be
Kojo") and either a word of play ("let's rp") or a model that does not think otherwise. What follows is played until a
message ends it ("okay cut!"), the session rests, or many messages have passed. English.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Protocol

from .data import choices
from .foreign import APOSTROPHES
from .memories import Turn
from .patterns import compile_pattern
from .text import search

# Messages of a person that one scene has at most, and the rest after which it is over.
MOST_MESSAGES, REST = 12, timedelta(hours=3)
LONGEST = 2000
# Chances from which on a message opens a scene, alone and beside its form, and a sentence ends one, with all that its
# message says. Short sentences sound like ends.
OPENS, OPENS_IN_FORM, ENDS, ENDS_WITH_ALL = 0.5, 0.15, 0.9, 0.1
SENTENCE = compile_pattern(r"[^.!?\n]+[.!?]*")


class Judge(Protocol):
    def scenes(self, texts: Sequence[str]) -> Sequence[float]:
        """Return the chance that a message opens a scene that is played, for each."""

    def scene_ends(self, texts: Sequence[str]) -> Sequence[float]:
        """Return the chance that a message in a scene ends it, for each."""


def without_scenes(turns: Sequence[Turn], judge: Judge, before: Sequence[Turn] = ()) -> list[Turn]:
    """Return turns of one session with what is played in them blanked out, so that positions stay.

    `before`: the last messages before them, in which a scene may have begun.
    """
    left, last_at = 0, None
    read: list[Turn] = []
    for turn in (*before, *turns):
        text = turn.text
        if turn.role == "user":
            if last_at is not None and turn.said_at - last_at > REST:
                left = 0
            last_at = turn.said_at
            text, left = _without_scene(turn, left, judge)
        elif left:
            text = _blank(text, 0, len(text))
        read.append(replace(turn, text=text))
    return read[len(before) :]


def _without_scene(turn: Turn, left: int, judge: Judge) -> tuple[str, int]:
    """Return a message without what is played, and how many messages may follow in the scene."""
    text = turn.text
    if len(text) > LONGEST or turn.language != "english":
        return text, left
    if left:
        end = _end_of_scene(text, judge)
        return _blank(text, 0, len(text) if end is None else end), 0 if end is not None else left - 1
    start = _start_of_scene(text, judge)
    return (text, 0) if start is None else (_blank(text, start, len(text)), MOST_MESSAGES)


def _start_of_scene(text: str, judge: Judge) -> int | None:
    """Return where a message begins to set a scene, None where it sets none."""
    if not search(choices("english", "scene_words"), text.lower(), False):
        return None
    form = compile_pattern(choices("english", "scene_openings") or "(?!)", True).search(text.translate(APOSTROPHES))
    sentences = list(SENTENCE.finditer(text))
    whole, *chances = judge.scenes([text, *(sentence[0].strip() for sentence in sentences)])
    plays = choices("english", "scene_plays")
    is_said = form is not None and bool(plays) and search(plays, text.lower(), False)
    if not is_said and max([whole, *chances]) < (OPENS_IN_FORM if form else OPENS):
        return None
    starts = [s.start() for s, chance in zip(sentences, chances, strict=True) if chance >= OPENS]
    return min([*starts, *([form.start()] if form else [])], default=0)


def _end_of_scene(text: str, judge: Judge) -> int | None:
    """Return where the words end with which a message leaves a scene, None where it goes on."""
    closing = compile_pattern(choices("english", "scene_closings") or "(?!)", True).search(text.translate(APOSTROPHES))
    if closing:
        end: int = closing.end()
        return end
    sentences = list(SENTENCE.finditer(text))
    whole, *chances = judge.scene_ends([text, *(sentence[0].strip() for sentence in sentences)])
    ends = [sentence.end() for sentence, chance in zip(sentences, chances, strict=True) if chance >= ENDS]
    return min(ends, default=None) if whole >= ENDS_WITH_ALL else None


def _blank(text: str, start: int, end: int) -> str:
    return text[:start] + "\n" * (end - start) + text[end:]
