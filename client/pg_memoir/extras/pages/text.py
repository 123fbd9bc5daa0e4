"""Sentences as Markdown has them, and back: escapes, line breaks, and the form in which two of them are compared."""

from __future__ import annotations

import html
import re
import unicodedata
from hashlib import sha256

_DROPPED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]")
"""Characters that no editor shows, among them those that turn the direction of a text."""

_ALIKE = str.maketrans({"‘": "'", "’": "'", "‚": "'", "“": '"', "”": '"', "„": '"', "–": "-", "—": "-", "\u00a0": " "})
# What Markdown would read, also where an editor's wrap begins a line with it.
_ESCAPED = re.compile(r"[\\`*\[\]<]|(?<!\w)_|_(?!\w)|~(?=~)|&(?=#?\w+;)|(?<=\s)(?:[-+]|#(?=#*(?:\s|$)))(?=\s|#|$)")
_AT_START = re.compile(r"^(?:(?=[#>+=|-])|(\d+)(?=[.)]))|(?<=\s1)(?=[.)](?:\s|$))")
_AT_END = re.compile(r"!$")  # it would make an image of the mark behind it
_MARKED = re.compile(r"\\([!-/:-@\[-`{-~])|(<br\s*/?>)|(&#?\w+;)", re.IGNORECASE)


def clean(text: str) -> str:
    """Returns a text without what no editor shows, its lines without spaces at their ends and without empty lines."""
    shown = _DROPPED.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    lines = (" ".join(line.split()) for line in shown.split("\n"))
    return "\n".join(line for line in lines if line)


def canonical(text: str) -> str:
    """Returns the form in which sentences are compared: white space, quotation marks and dashes do not count."""
    folded = unicodedata.normalize("NFC", text).translate(_ALIKE).replace("...", "…")
    return clean(folded)


def digest(text: str) -> str:
    """Returns a short hash of a text's canonical form."""
    return sha256(canonical(text).encode()).hexdigest()[:16]


def to_markdown(text: str) -> str:
    """Returns a text as one line of Markdown that shows it as it is."""
    lines = [_ESCAPED.sub(r"\\\g<0>", line) for line in clean(text).split("\n")]
    lines[0] = _AT_START.sub(lambda found: f"{found[1] or ''}\\", lines[0])
    lines[-1] = _AT_END.sub(r"\!", lines[-1])
    return "<br>".join(lines)


def from_markdown(line: str) -> str:
    """Returns the text that a stretch of Markdown shows: `to_markdown` backwards, however it was wrapped."""

    def read(found: re.Match[str]) -> str:
        if found[2]:
            return "\0"
        return found[1] or html.unescape(found[3])

    words = " ".join(_MARKED.sub(read, line.replace("\0", "")).split())
    return clean(words.replace("\0", "\n"))
