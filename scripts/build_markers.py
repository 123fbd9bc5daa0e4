"""Patterns for what a reader could take for a mark of ours or of a chat template, for build_sql.py: the list
sql/data/markers.csv, each character with all that Unicode calls confusable with it.

Confusables are those of the package confusable-homoglyphs (Unicode's confusables.txt), compatibility forms and
properties those of Python's unicodedata: nobody keeps a list by hand.
"""

import csv
import sys
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from build_data import function, quote, stop_at
from confusable_homoglyphs.confusables import confusables_data

# Who speaks, in the words of the APIs and of templates.
ROLES = ("user", "human", "assistant", "system", "developer", "tool", "function", "model", "ai", "bot")
# The first character of a marker, as markup and code spell it.
SPELT = {
    "<": r"&(?:amp;)*(?:lt|LT|lang|langle|lsaquo);?|%3[cC]|\\[uUxX]\{?0*3[cC]\}?",
    "[": r"&(?:amp;)*(?:lsqb|lbrack);?|%5[bB]|\\[uUxX]\{?0*5[bB]\}?",
    "#": r"&(?:amp;)*num;?|%23|\\[uUxX]\{?0*23\}?",
}
ALL = [chr(code) for code in range(0x80, sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]


def name(char: str) -> str:
    return unicodedata.name(char, "")


@cache
def compatible() -> dict[str, set[str]]:
    """By ASCII character that is no letter: all whose compatibility form it is. Letters are compared in that form."""
    found: dict[str, set[str]] = {}
    for char in ALL:
        folded = unicodedata.normalize("NFKC", char)
        if len(folded) == 1 and "!" <= folded <= "~" and not folded.isalnum():
            found.setdefault(folded, set()).add(char)
    return found


@cache
def alike(char: str) -> frozenset[str]:
    """All that looks like an ASCII character, itself among them: characters, and sequences of ASCII ("rn" for "m")."""
    found = {char} | compatible().get(char, set())
    if char == "<":
        found |= {c for c in ALL if "LEFT" in name(c) and "ANGLE BRACKET" in name(c)}
    todo = set(found)
    while todo:
        for near in confusables_data.get(todo.pop(), ()):
            text = near["c"].strip("\u200e")
            if text not in found and (len(text) == 1 or text.isascii()):
                found.add(text)
                todo.update(text if len(text) == 1 else ())
    # Texts are compared as they are and in their compatibility form.
    forms = {unicodedata.normalize("NFKD", c).strip() for c in found}
    found |= {form for form in forms if len(form) == 1 and not form.isascii()}
    folds = {c for c in found if not c.isascii() and unicodedata.normalize("NFKD", c).isascii()}
    found -= folds - compatible().get(char, set())
    # Of single ASCII characters none but itself: in plain text 1, l and I are three letters. A bar is no letter.
    found -= {c for c in found if c != char and len(c) == 1 and c.isascii() or char == "|" and c.isalnum()}
    return frozenset(found)


def dropped() -> set[str]:
    """What a recalled text can do without: characters that show nothing, but for white space and for what words and
    emoji are written with (joiners, variation selectors, signs of Arabic and its like)."""
    kinds, scripts = ("Cc", "Cf", "Zl", "Zp"), ("ARABIC", "SYRIAC", "KAITHI")
    found = {c for c in ALL if unicodedata.category(c) in kinds and not name(c).startswith(scripts)}
    found |= {chr(code) for code in (*range(1, 9), *range(14, 28), 127, *range(0xE0000, 0xE1000))}
    return (found | set("\u034f\u061c\u3164")) - set("\u0085\u2028\u2029\u200c\u200d")


def escaped(char: str) -> str:
    if char.isascii():
        return char if char.isalnum() else f"\\x{ord(char):02x}"
    if char.isalpha() and char != "\u3164":
        return char
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


def inside(chars: Iterable[str]) -> str:
    """The inside of a bracket expression."""
    codes = set(map(ord, chars))
    begins, ends = ({code for code in codes if code + step not in codes} for step in (-1, 1))
    runs = zip(sorted(begins), sorted(ends))
    return "".join(escaped(chr(a)) + ("" if a == b else ("-" if b > a + 1 else "") + escaped(chr(b))) for a, b in runs)


@dataclass(frozen=True)
class Patterns:
    """Patterns of markers, in the writing that is asked for."""

    only_ascii: bool

    def characters(self, char: str) -> set[str]:
        return {c for c in alike(char) if len(c) == 1 and (c.isascii() or not self.only_ascii)}

    def looks_like(self, char: str) -> str:
        """One character of a marker; a small letter stands for both cases."""
        one = f"[{inside(self.characters(char) | (self.characters(char.upper()) if char.islower() else set()))}]"
        several = sorted(c for c in alike(char) if len(c) > 1)
        return f"(?:{'|'.join([one, *several])})" if several else one

    def opening(self, char: str) -> str:
        code = ord(char)
        number = f"&(?:amp;)*#(?:0*{code}|[xX]0*(?:{code:x}|{code:X}));?"
        return f"(?:{self.looks_like(char)}|{SPELT[char]}|{number})"

    def gap(self, opening: str, between: str) -> str:
        """What may stand between two characters: white space and, since no list of what is invisible is complete,
        anything beyond ASCII, but not another opening: so no text is read twice. anything: also what is no letter and
        no digit."""
        stops = inside(self.characters(opening)) if opening else ""
        return f"[^{'0-9A-Za-z' if between == 'anything' else '!-~'}{stops}]*"

    def step(self, char: str) -> str:
        if char == "*":
            return f"[^<>{inside(self.characters('|'))}\\n]*"
        return "" if char == " " else self.looks_like(char)

    def tree(self, endings: list[str], gap: str) -> str:
        """Any of these; what they begin with is written once."""
        if "" in endings:
            return ""
        by_first: dict[str, list[str]] = {}
        for ending in endings:
            by_first.setdefault(ending[0], []).append(ending[1:])
        branches = [self.step(char) + gap + self.tree(rest, gap) for char, rest in by_first.items()]
        return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"

    def markers(self, endings: dict[tuple[str, str], list[str]]) -> str:
        ways = []
        for (opening, between), rest in endings.items():
            gap = self.gap(opening, between)
            slash = f"(?:{self.looks_like('/')}{gap})?"
            ways.append(f"{self.opening(opening)}(?={gap}{slash}{self.tree(rest, gap)})")
        return "|".join(ways)

    def roles(self) -> str:
        gap = self.gap("", "anything")
        return f"^{gap}(?:{'|'.join(gap.join(map(self.looks_like, role)) for role in ROLES)}){gap}$"


def functions(path: Path) -> str:
    """Return the functions of a list of markers."""
    endings: dict[tuple[str, str], list[str]] = {}
    for row in csv.DictReader(path.read_text("utf-8").splitlines()):
        marker, between = row["marker"], row["between"]
        if marker[0] not in SPELT or between not in ("anything", "invisible"):
            stop_at(str(path), f"{marker!r}, {between!r}")
        endings.setdefault((marker[0], between), []).append(marker[1:])
    ascii_only, all_writing = Patterns(only_ascii=True), Patterns(only_ascii=False)
    openings = "|".join(map(all_writing.opening, dict.fromkeys(opening for opening, _ in endings)))
    wide = {c for opening, _ in endings for c in alike(opening) if not c.isascii()}
    needless = inside(dropped())
    made = (
        ("marker_openings", openings, "Openings of a marker."),
        ("wide_openings", inside(wide), "Those beyond ASCII: the inside of brackets."),
        ("ascii_markers", ascii_only.markers(endings), "The first character of a marker that is written in ASCII."),
        ("all_markers", all_writing.markers(endings), "The first character of a marker, however it is written."),
        ("role_names", all_writing.roles(), "A name that reads like a role."),
        ("dropped_characters", needless, "Characters that recalled text does not need: the inside of brackets."),
    )
    bodies = [(name, f"  select {quote(text)}", comment) for name, text, comment in made]
    return "".join(f"-- {of}\n{function(name, 'text', body, 'immutable parallel safe')}\n" for name, body, of in bodies)
