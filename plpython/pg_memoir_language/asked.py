"""Requests to remember or to update: the frame goes, the content counts. "Remember that I park on level 3" says "I park
on level 3"; "change my address to Elm Road 4" says "My address is Elm Road 4"."""

from __future__ import annotations

from dataclasses import dataclass

from . import data
from .foreign import APOSTROPHES
from .patterns import compile_pattern

LONGEST = 400


@dataclass(frozen=True)
class Asked:
    """What a request asks to be kept. `start`: where it stands in the sentence, from 0; None where put together."""

    content: str
    start: int | None


def read_asked(sentence: str, language: str) -> Asked | None:
    """Return what a sentence asks to remember or to update, None where it asks for neither."""
    if len(sentence) > LONGEST:
        return None
    text = sentence.translate(APOSTROPHES)
    for entry in data.entries(language, "update_frames"):
        match = compile_pattern(entry, True).match(text)
        if match:
            matter, value = match[1].strip(), match[2].strip(" .!")
            # "Update that I'm not a fan of musicals to I am a fan of musicals."
            is_whole = compile_pattern(r"^(?:i|we|my|our)\M", True).match(value)
            content = value if is_whole else f"My {matter} is {value}"
            return Asked(content[:1].upper() + content[1:], None)
    for entry in data.entries(language, "remember_frames"):
        match = compile_pattern(entry, True).match(text)
        if match and len(match[1].split()) >= 2:
            content = match[1].rstrip()
            return Asked(content[:1].upper() + content[1:], match.start(1))
    return None
