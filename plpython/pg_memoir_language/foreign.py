"""The speaker's own words of a text: code, markup, quotations, logs and what is announced as another's blanked out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from . import data
from .data import choices
from .pasted import without_pasted
from .patterns import Match, Pattern, compile_pattern

APOSTROPHES = str.maketrans("’‘ʼ", "'''")


@dataclass(frozen=True)
class Foreign:
    """A pattern of what is not the speaker's own, and texts of which one must be there before it is tried (in small
    letters; none: always)."""

    pattern: Pattern[str]
    marks: tuple[str, ...] = ()


# Signs of code that plain text does not have.
CODE_MARKS = tuple(";{}=(&|>$#")
QUOTES = tuple('"“”«»„')


@cache
def _foreign_patterns() -> tuple[Foreign, ...]:
    """Match what is not the speaker's own: code, markup, quoted mail, text announced as somebody else's, logs."""
    announced = [
        *data.entries(None, "others_text"),
        rf"\m(?:{choices(None, 'text_commands')})\M(?![\"'”])[^\n:]{{0,80}}:.*$",
    ]
    rows: list[tuple[str, tuple[str, ...]]] = [
        (r"(?:<(?:/?[[:alpha:]][^<>]*|!--[^<>]*--)>\s*)+", ("<",)),
        (r"(?:(?:^|\n)[ \t]*(?:>|\|)[^\n]*)+", CODE_MARKS),
        *((pattern, _marks_of(pattern)) for pattern in announced),
        (r"(?:(?:^|\n)[^\n]*(?:[;{}]|=>|\(\)|==|&&|\|\|)[ \t]*(?=\n|$))+", CODE_MARKS),
        (
            r"(?:(?:^|\n)[ \t]*(?:\$|#|>>>|import|def|class|function|traceback|insert into|delete from"
            r"|\d{4}-\d\d-\d\d[ t]\d\d:\d\d)[ (:][^\n]*)+",
            (),
        ),
        (
            r"(?:(?:^|\n)[^\n]*(?:\d{4}-\d\d-\d\d[ t]\d\d:\d\d|[[:alnum:]_]\.[[:alnum:]_]+ ?= ?)[^\n]*)+",
            (*CODE_MARKS, ":"),
        ),
        (r"""(?:(?:^|\n)[ \t]*(?:select [^\n]*\mfrom|update [[:alnum:]_."]+ set)\M[^\n]*)+""", ("select ", "update ")),
        # Somebody else's words, where they are more than a title.
        (
            r"(?<!\m(?:with|as|no|not|than|is|it\'s) "
            r'(?=["“„«](?:(?!\m(?:i|i\'m|me|my|we|our)\M)[^"“”«»„\n]){1,50}["”“»]))'
            r'["“„«](?:[^"“”«»„\n]*[ \t][^"“”«»„\n]*){4,}["”“»]',
            QUOTES,
        ),
    ]
    return tuple(Foreign(compile_pattern(pattern, True), marks) for pattern, marks in rows)


def _marks_of(pattern: str) -> tuple[str, ...]:
    """Return the words with one of which a pattern begins, or the colon or quotation mark that it needs."""
    heads = compile_pattern(r"^\\m\(\?:([[:alpha:] |]+)\)").match(pattern)
    if heads:
        return tuple(heads[1].lower().split("|"))
    return (":",) if pattern.endswith(":.*$") else ('"',) if ')"(' in pattern else ()


def own_words(text: str) -> str:
    """Return the text with all that is not the speaker's own replaced by line feeds, so that positions stay."""
    text = text.translate(APOSTROPHES)
    if "```" in text:
        text = compile_pattern(r"(?:```(?:[^`]|`[^`]|``[^`])*(?:```|$)\s*)+").sub(_blank, text)
    text = without_pasted(_without_markup(text))
    lower = text.lower()
    quotes = " '" in text or text.startswith("'")
    for foreign in _foreign_patterns():
        # An apostrophe in a word opens no quotation.
        if ")'(" in foreign.pattern.pattern and not quotes:
            continue
        if not foreign.marks or any(mark in lower for mark in foreign.marks):
            text = foreign.pattern.sub(_blank, text)
    return text


def _blank(match: Match[str]) -> str:
    text: str = match[0]
    return "\n" * len(text)


def _without_markup(text: str) -> str:
    """Blank out all from the first opening tag to the last closing one. A pattern for both would be quadratic."""
    closing = text.rfind("</")
    while closing >= 0:
        end = compile_pattern(r"</[[:alpha:]][[:alnum:]]*>").match(text, closing)
        if end:
            start = compile_pattern(r"<[[:alpha:]][[:alnum:]]*(?: [^<>]*)?>").search(text, 0, closing)
            if start:
                first, last = start.start(), end.end()
                blanked: str = text[:first] + "\n" * (last - first) + text[last:]
                return blanked
            return text
        closing = text.rfind("</", 0, closing)
    return text
