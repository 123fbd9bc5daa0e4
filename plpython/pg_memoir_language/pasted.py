"""Lines of a text that are somebody else's: letters, chats with names before the words, records, texts that are
announced.

Told by structure: an announcement before or behind ("Can you shorten this testimonial?"), a salutation and a sign-off,
`Name:` at the beginning of lines, a heading with a colon. What is asked of the assistant stays the user's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from .data import choices
from .patterns import Pattern, compile_pattern

LONGEST = 20000


@dataclass(frozen=True)
class Line:
    start: int
    text: str

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@cache
def _patterns() -> dict[str, Pattern[str]]:
    salutations, signs = choices(None, "salutations"), choices(None, "sign_offs")
    material, works = choices(None, "material"), choices(None, "text_work")
    reports = choices(None, "reporting")
    name = r"[[:upper:]][[:alpha:].'-]*(?: [[:upper:]][[:alpha:].'-]*){0,2}"
    stamp = r"(?:\[[^\]\n]{4,40}\] ?|\d{1,2}[:.]\d\d(?:[:.]\d\d)? ?(?:[-–—] ?)?|<)"
    return {
        # "[12/03/2026, 18:04] Tom: ", "Tom: ", "Speaker 2: ".
        "label": compile_pattern(
            rf"^\s*({stamp})?({name}|[[:upper:]][[:alpha:]]+ \d)>? ?(?:\([^)\n]*\))?:(?: (?=\S)|(?=[^\s\d]))"
        ),
        "salutation": compile_pattern(rf"^\s*(?:{salutations})\M[^.?\n]{{0,40}}[,!:]?\s*$", True),
        "addressed": compile_pattern(rf"^\s*(?:(?i:{salutations}))\M.* ?{name}\M"),
        "sign": compile_pattern(rf"^\s*(?:{signs})\M[^.?\n]{{0,30}}[,!.]?\s*$", True),
        "announced": compile_pattern(
            rf"^(?:(?:please|pls|hey|hi|so|ok|bitte|por favor)[, ]+)?(?:{works})\M.{{0,60}}\m(?:{material})\M"
            rf"|\m(?:{works})\M.{{0,60}}\m(?:{material})\M.*[?:]\s*$"
            rf"|\m(?:{material})\M.{{0,60}}\m(?:{works})\M.*[?:]\s*$",
            True,
        ),
        "shown": compile_pattern(
            rf"\m(?:this|these|those|following|here(?:'s|'re| is| are))\M (?:[[:alpha:]'-]+ ){{0,3}}"
            rf"(?:{material}|words|lyrics|lines|verses?|rhyme)\M",
            True,
        ),
        "heading": compile_pattern(rf"^(?=.*\m(?:{material})\M)[^.?!\n]{{2,80}}:\s*$", True),
        "reported": compile_pattern(
            rf"(?:(?<!\m(?:my|our|the|for|meine?|unsere?|mi|mon|ma|mio|mia|meu|minha) )\m(?:{material})\M"
            rf"|\m(?:{reports})(?: (?:me|us|mir|uns|me|nos|mi|ci))?)\s?: +(?=\S)",
            True,
        ),
        "first": compile_pattern(
            r"\m(?:i|i'm|i've|i'd|i'll|im|my|me|we|our|ich|mein\w*|wir|yo|mi|soy|vivo|je|j'\w+|mon|ma|io|sono|eu|meu"
            r"|minha)\M",
            True,
        ),
        "own": compile_pattern(r"\m(?:me|my|myself|mine|i|mir|mich|mein\w*|mi|moi|mon|ma|mio|mia|meu|minha)\M", True),
    }


def _lines(text: str) -> list[Line]:
    lines, at = [], 0
    for part in text.split("\n"):
        lines.append(Line(at, part))
        at += len(part) + 1
    return lines


def without_pasted(text: str) -> str:
    """Return a text with lines that are somebody else's blanked out, so that positions stay."""
    if len(text) > LONGEST:
        return text
    lines = _lines(text)
    patterns = _patterns()
    spans = _label_lines(lines, patterns) + _letters(lines, patterns)
    spans += _announcements(lines, patterns) + _headings(lines, patterns) + _reports(lines, patterns)
    if not spans:
        return text
    out = list(text)
    for start, end in spans:
        out[start:end] = "\n" * (end - start)
    return "".join(out)


def _label_lines(lines: list[Line], patterns: dict[str, Pattern[str]]) -> list[tuple[int, int]]:
    """Chat lines: a name and a colon before words in the first person, or a time before it."""
    ours = frozenset((choices(None, "own_labels") or "").split("|"))
    spans, labels, follows = [], 0, False
    for line in lines:
        match = patterns["label"].match(line.text)
        if match and match[2].lower() not in ours:
            labels += 1
            follows = True
            if match[1] or patterns["first"].search(line.text, match.end()):
                spans.append((line.start, line.end))
        elif not line.text.strip():
            follows = False
        elif follows and labels >= 2 and not line.text.rstrip().endswith("?"):
            spans.append((line.start, line.end))
    return spans


def _letters(lines: list[Line], patterns: dict[str, Pattern[str]]) -> list[tuple[int, int]]:
    """From a salutation to the sign-off and the name below it, or to the end."""
    spans = []
    for number, line in enumerate(lines):
        if not patterns["salutation"].match(line.text):
            continue
        signed = next((n for n in range(number + 1, len(lines)) if patterns["sign"].match(lines[n].text)), None)
        # At the very beginning the assistant may be meant: somebody else is where a name stands, and a sign-off.
        if number == 0 and (signed is None or not patterns["addressed"].match(line.text)):
            continue
        last = len(lines) - 1
        if signed is not None:
            last = min(signed + 1, last)
            # A name below; else the sign-off is the end.
            if len(lines[last].text.split()) > 4:
                last = signed
        spans.append((line.start, lines[last].end))
    return spans


def _announcements(lines: list[Line], patterns: dict[str, Pattern[str]]) -> list[tuple[int, int]]:
    """Lines below "Can you shorten this testimonial?", or above it where it stands last. Below "I found these words,
    which key are they in?" too, where an empty line follows."""
    filled = [n for n, line in enumerate(lines) if line.text.strip()]
    for place, number in enumerate(filled):
        line = lines[number]
        is_shown = place + 1 < len(filled) and line.text.rstrip()[-1] in ":?" and not lines[number + 1].text.strip()
        if len(line.text) > 300 or not (
            patterns["announced"].search(line.text) or (is_shown and patterns["shown"].search(line.text))
        ):
            continue
        if place + 1 < len(filled):
            # A question that follows at the end is the user's again.
            last = filled[-1]
            while last > number and lines[last].text.rstrip().endswith("?"):
                last -= 1
            return [(lines[n].start, lines[n].end) for n in range(number + 1, last + 1)]
        if place:
            return [(lines[n].start, lines[n].end) for n in filled[:place]]
    return []


def _headings(lines: list[Line], patterns: dict[str, Pattern[str]]) -> list[tuple[int, int]]:
    """The block below "Patient record:", up to an empty line; not below "About me:"."""
    spans, inside = [], False
    for line in lines:
        if inside and line.text.strip():
            spans.append((line.start, line.end))
        elif not line.text.strip():
            inside = False
        if patterns["heading"].match(line.text) and not patterns["own"].search(line.text):
            inside = True
    return spans


def _reports(lines: list[Line], patterns: dict[str, Pattern[str]]) -> list[tuple[int, int]]:
    """The rest of a line behind "My landlord's message:", "My friend texted me:"."""
    spans = []
    for line in lines:
        match = patterns["reported"].search(line.text)
        if match and match.start() < 120 and patterns["first"].search(line.text, match.end()):
            spans.append((line.start + match.end(), line.end))
    return spans
