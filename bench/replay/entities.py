"""What a text names that cannot be guessed: paths, identifiers, numbers, codes, URLs, quotations, each with its kind.

Written apart from the product's own rules for what a shortened text loses, so that it can find what those miss.
"""

from __future__ import annotations

import re

_KINDS = (
    ("url", re.compile(r"https?://[^\s\"'<>)\]]+")),
    ("path", re.compile(r"(?:[\w.-]+/)+[\w.-]+\.\w{1,5}")),
    ("code", re.compile(r"\b[A-Z]{2,6}-\d{2,8}\b|\b(?:0x)?[0-9a-f]{7,40}\b(?<![a-z]{7})")),
    ("identifier", re.compile(r"\b[a-z]+(?:_[a-z0-9]+)+\b|\b[a-z]+(?:[A-Z][a-z0-9]+)+\b|\b(?:[A-Z][a-z0-9]+){2,}\b")),
    ("number", re.compile(r"(?<![\w.])\d{3,}(?![\w.])")),
    ("quotation", re.compile(r"\"([^\"\n]{6,60})\"|'([^'\n]{6,60})'")),
)


def entities(text: str) -> dict[str, str]:
    """Entity → its kind."""
    found: dict[str, str] = {}
    for kind, pattern in _KINDS:
        for match in pattern.finditer(text):
            value = next((group for group in match.groups() if group), match[0])
            if not value.isdigit() or kind == "number":
                found.setdefault(value, kind)
    return found
