"""Other names of the same thing (k8s and Kubernetes, GHA and GitHub Actions), where a text says so."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .data import entry_set
from .patterns import compile_pattern

LONGEST_TEXT, LONGEST_NAME, MOST_PARTS = 20000, 80, 50
SHORT_FORM = r"[[:alpha:]][[:alnum:]&.+-]{1,11}"
# Capitalised words, or one word with a digit or a capital inside.
NAME = (
    r"((?:[[:upper:]][[:alnum:].&+'’-]*)(?: (?:of |and |for |the |de |in )?[[:upper:]][[:alnum:].&+'’-]*){0,5}"
    r"|[[:alnum:]]*[[:alpha:]]\d[[:alnum:]]*|[[:alpha:]]{2,20})"
)
KNOWN_AS = r"\m(?:aka|a\.k\.a|known as|short for|stands for|for short)\M"
ALSO_CALLED = (
    rf"{NAME},? (?:\()?(?:[Aa][Kk][Aa]|[Aa]\.[Kk]\.[Aa]\.?|(?:(?:which|who) is )?also known as|better known as) "
    rf"(?:the )?[\"“]?{NAME}"
)
STANDS_FOR = (
    r"\m([[:alpha:]][[:alnum:]&.+-]{1,19}),? (?:is |was |\()?(?:short for|stands for|which stands for) (?:the )?[\"“]?"
    r"([^().,;:!?\n\"”]{2,90})"
)
FOR_SHORT = r"([^().;!?\n]{2,90}?),? (?:or |called |we say )?[\"“]?([[:alpha:]][[:alnum:]]{1,9})[\"”]?,? for short\M"
PHRASE = r"\m([[:upper:]][[:alnum:]]*(?: (?:of |the )?[[:upper:]][[:alnum:]]*)+)"


@dataclass(frozen=True)
class Alias:
    """Two names as they are compared. `stated`: the text says that they are one; else `name` is the initials of
    `other`.
    """

    name: str
    other: str
    stated: bool


def alias_key(name: str) -> str:
    """Return a name as names are compared."""
    key: str = compile_pattern("[^[:alnum:]]+").sub(" ", unicodedata.normalize("NFKC", name).lower())
    return key.strip()


def is_short_for(short: str, long: str) -> bool:
    """Return whether one is short for the other: capitals, initials, or the number of letters left out."""
    letters = "".join(character for character in short if character.isalnum()).lower()
    if len(letters) < 2 or len(letters) > 10 or not letters[0].isalpha() or len(long) <= len(short):
        return False
    if compile_pattern(r"^[[:alpha:]]\d+[[:alpha:]]$").search(letters):
        ends = long[0].lower() == letters[0] and long[-1].lower() == letters[-1]
        return ends and bool(compile_pattern("^[[:alpha:]-]+$").search(long)) and len(long) == int(letters[1:-1]) + 2
    words = compile_pattern("[[:space:]/-]+").split(long.strip())
    # GitHub Actions: GHA. One word of several capitals is none: JavaScript is not J S.
    capitals = "".join(character for character in long if character.isupper()).lower()
    if letters == capitals and (len(words) > 1 or len(letters) > 2):
        return True
    small = entry_set("english", "small_words")
    initials = ("".join(word[:1] for word in words), "".join(word[:1] for word in words if word.lower() not in small))
    return len(words) > 1 and letters in (one.lower() for one in initials)


def _long_form(short: str, text: str, is_beginning: bool = False) -> str | None:
    """Return the end of a text (or its beginning), as few words as possible, that a short form is short for."""
    words, small = text.split(), entry_set("english", "small_words")
    for count in range(1, min(len(words), 8) + 1):
        part = words[:count] if is_beginning else words[-count:]
        long = " ".join(part).strip(" ,;:\"'“”")
        first = long.split(" ")[0].lower()
        if not (" " in long and first in small) and is_short_for(short, long):
            return long
    return None


def _pairs_in_brackets(text: str) -> Iterator[tuple[str, str]]:
    """Kubernetes (k8s); machine learning (ML); GHA (GitHub Actions)."""
    parts = text.split("(")
    for before, after in list(zip(parts, parts[1:], strict=False))[:MOST_PARTS]:
        if not 2 <= after.find(")") <= 88:
            continue
        inside, before = after[: after.find(")")].strip(' "“”'), before[-90:]
        if compile_pattern(f"^{SHORT_FORM}$").search(inside):
            long = _long_form(inside, compile_pattern(r"[^().;!?\n]*$").search(before)[0])
            if long:
                yield inside, long
        elif " " in inside:
            short = compile_pattern(rf"\m({SHORT_FORM}) ?$").search(before)
            long = compile_pattern(r"^(?:short for|i\.e\.|that is|the) ").sub("", inside)
            if short and is_short_for(short[1], long):
                yield short[1], long


def _pairs_by_or(text: str) -> Iterator[tuple[str, str]]:
    """GitHub Actions, or GHA."""
    parts = text.split(" or ")
    for before, after in list(zip(parts, parts[1:], strict=False))[:MOST_PARTS]:
        short = compile_pattern(r'^(?:simply |just )?["“]?([[:alpha:]][[:alnum:]]{1,9})\M').search(after)
        if short and compile_pattern(r"[[:upper:]].*[[:upper:]]|\d").search(short[1]):
            end = compile_pattern(r"[^().;!?\n]*$").search(before[-90:])
            long = _long_form(short[1], end[0].rstrip(",") if end else "")
            if long:
                yield short[1], long


def _pairs_by_words(text: str) -> Iterator[tuple[str, str]]:
    """K8s, also known as Kubernetes; GHA stands for GitHub Actions; Kubernetes, k8s for short."""
    if not compile_pattern(KNOWN_AS, True).search(text):
        return
    for match in compile_pattern(ALSO_CALLED).finditer(text):
        yield match[1], match[2]
    for match in compile_pattern(STANDS_FOR).finditer(text):
        named = compile_pattern(r"^[[:upper:]][[:alnum:]'’-]*(?: [[:upper:]][[:alnum:]'’-]*)*").search(match[2])
        long = _long_form(match[1], match[2], True) or (named[0] if named else None)
        if long:
            yield match[1], long
    for match in compile_pattern(FOR_SHORT).finditer(text):
        long = _long_form(match[2], match[1])
        if long:
            yield match[2], long


def _initials(text: str) -> Iterator[Alias]:
    """Capitalised phrases by their initials."""
    for phrase in sorted(set(compile_pattern(PHRASE).findall(text))):
        capitals = sum(character.isupper() for character in phrase)
        if not 3 <= capitals <= 8 or compile_pattern(r"\m[[:upper:][:digit:]]+\M").search(phrase):
            continue
        long = phrase
        while True:
            name, other = "".join(c for c in long if c.isupper()).lower(), alias_key(long)
            if 3 <= len(name) <= 7 and len(other) <= LONGEST_NAME:
                yield Alias(name, other, False)
            # A sentence begins with a capital, too.
            if long != phrase or not (long.count(" ") > 1 or compile_pattern("^[[:upper:]][[:lower:]]+ ").search(long)):
                break
            long = long.partition(" ")[2]
            if " " not in long:
                break


def read_aliases(text: str) -> list[Alias]:
    """Return what a text says about names: pairs of names of one thing, each way, and phrases by their initials."""
    text = text[:LONGEST_TEXT]
    found = []
    for one, other in (*_pairs_in_brackets(text), *_pairs_by_or(text), *_pairs_by_words(text)):
        found += _both_ways(alias_key(one), alias_key(other))
    return [*dict.fromkeys((*found, *_initials(text)))]


def _both_ways(one: str, other: str) -> list[Alias]:
    if one == other or not 2 <= len(one) <= LONGEST_NAME or not 2 <= len(other) <= LONGEST_NAME:
        return []
    return [Alias(one, other, True), Alias(other, one, True)]


def given_aliases(content: str, names: Sequence[str], slot_value: str | None) -> list[Alias]:
    """Return what the names given with a memory are names of: each other, and the text beside them, a long form in
    the content, the slot's value, or the content itself where it is but a name.
    """
    keys = {alias_key(name) for name in names}
    for name in names:
        long = _form_in(name, content[:2000]) or slot_value or _only_name(content)
        if long:
            keys.add(alias_key(long))
    return [alias for one in sorted(keys) for other in sorted(keys) if one < other for alias in _both_ways(one, other)]


def _form_in(name: str, content: str) -> str | None:
    """Return the shortest run of words of a text that a name is short for, or that is short for it."""
    for part in compile_pattern(r"[^().;!?\n]+").findall(content):
        words = compile_pattern(r"[\s,]+").split(part.strip())
        runs = {" ".join(words[at : at + count]) for at in range(len(words)) for count in range(1, 8)}
        fitting = [run for run in runs if is_short_for(name, run) or is_short_for(run, name)]
        if fitting:
            return min(fitting, key=lambda run: (len(run), run))
    return None


def _only_name(content: str) -> str | None:
    if len(content.split()) <= 4:
        return content
    named = compile_pattern(r"\m([[:upper:]][[:alnum:]&+-]*(?: [[:upper:]][[:alnum:]&+-]*){0,4})").findall(
        content[:2000]
    )
    skipped = entry_set("english", "function_words")
    names = {one for one in named if not all(word.lower() in skipped for word in one.split())}
    return names.pop() if len(names) == 1 else None
