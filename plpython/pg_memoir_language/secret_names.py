"""Find secrets by the name before them: "password" and its like in code, on a command line, in a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from . import data
from .patterns import Pattern, compile_pattern
from .secret_tables import Secret, read_tables
from .secret_values import VALUE, is_about, is_passphrase, is_quoted, is_sample, strip_value, value_strength

# Of more named values in one text the rest is judged by its look alone.
MOST_NAMED = 500
CLOSING = (
    r"(?:[_-](?:base|prod|production|dev|development|stag(?:e|ing)|test|live|local|main|primary|secondary|old"
    r"|new|current"
    r"|next|backup|value|string|plain|raw|default|v?[0-9]{1,2})(?![A-Za-z0-9]))??"
    r"""["'`»“”*_\\\])}>」』]{0,8}?"""
)
SIGN = r"[ \t]*(?:(?:[?:+]{0,3}=>?|->|[→＝])[ \t*_]*|[:：][ \t*_]*\n?[ \t]*)"
UNSPACED = ("chinese", "japanese", "korean", "thai")


@dataclass(frozen=True)
class Named:
    """A value and how it is linked to its name: `option` holds the dashes of an option before the name, `end` what
    ends the sentence behind the value."""

    option: str | None
    name: str
    link: str
    value: str
    end: str | None

    @property
    def bare(self) -> str:
        return strip_value(self.value)

    @property
    def is_assigned(self) -> bool:
        return any(sign in self.link for sign in "=:：＝→>")


@cache
def _link(language: str) -> Pattern[str]:
    """Match the link between a name and its value: a suffix of the name, what closes around it, words that say whose it
    is; then a sign, a word for "is", or a blank before what no word is."""
    says = data.choices(language, "password_says")
    of = data.choices(language, "password_of") or "for|of|to|on|at|in|from"
    if language in UNSPACED:
        closing = rf"{CLOSING}[ \t]{{0,4}}?(?:{of})??"
        ways = rf"""|[ \t]*(?:{says})[ \t]*(?:[:：][ \t]*)?|[ \t]+(?=\S*[0-9@#$%^&*!=+~"'`])|"""
    else:
        closing = rf"""{CLOSING}(?:[ \t]+\([^()\n]{{1,60}}\)|[ \t]+(?:{of})(?:[ \t][^\n.:;!?="]{{0,60}}?)?)??"""
        ways = (
            rf"|(?:[ \t]+|(?=[,.;’']))(?:{says})(?:[ \t]*[:：][ \t]*|[ \t]+(?:(?:now|still|just|currently"
            rf"|actually|simply"
            r"|ahora|jetzt|nun|maintenant)[ \t]+)?(?:[:：][ \t]*)?)"
            r"""|[ \t]+(?=\S*[0-9@#$%^&*!=+~"'`]|[a-z]+(?:-[a-z]+){3})"""
        )
    return compile_pattern(rf"^(?:({closing})({SIGN}{ways}))", True, longest=True)


def _find_link(rest: str, language: str) -> tuple[str, str, str | None] | None:
    """Return the link behind a name, the value, and the end of the sentence if it ends there."""
    link = _link(language).match(rest)
    if not link:
        return None
    value = compile_pattern(f"^(?:{VALUE})").match(rest[link.end() :])
    if not value:
        return None
    end = compile_pattern(
        r"^(?:\s*(?:[.,;!?)\n]|\Z)|[ \t]+(?:and|but|so|und|y|et|e|en)(?=[ \t])"
        r"|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af])"
    ).match(rest[link.end() + value.end() :])
    return link[2], value[0], end[0] if end else None


def find_by_name(text: str) -> Iterator[Secret]:
    lower = text.lower()
    marks = read_tables()["marks"]
    if any(mark in lower for mark in marks["passwords"]):
        yield from _find_values(text, marks["passwords"], "password", "english")
    if any(mark in lower for mark in marks["keys"]) and (
        "secret" in lower or compile_pattern("[A-Za-z+/=_-][0-9]|[0-9][A-Za-z+/=_-]|[A-Za-z+/_-]{20}").search(text)
    ):
        yield from _find_values(text, marks["keys"], "key", "english")
    for language, stems in read_tables()["stems"].items():
        if any(stem in lower for stem in stems):
            yield from _find_values(text, stems, "password", language)


def _find_stems(text: str, stems: Iterable[str], is_key: bool, back: int) -> Iterator[tuple[str, str]]:
    """Yield, for each stem of a name, what stands before it and the text from there on, in its line or the next."""
    ways = sorted({way for stem in stems for way in (stem, stem[:1].upper() + stem[1:], stem.upper())}, key=len)
    starts = [found.start() for found in compile_pattern("|".join(map(_escape, reversed(ways)))).finditer(text)]
    seen = set()
    for nth, start in enumerate(starts):
        stop = min(start + 220, starts[nth + 3] if nth + 3 < len(starts) else len(text))
        rest = text[start:stop]
        if len(rest) < (12 if is_key else 6):
            continue
        previous = starts[nth - 1] if nth else 0
        before = text[max(previous, start - 16) : start]
        if back:
            before, rest = "", before[-back:] + rest
        if is_key and 0 <= rest.find("\n") <= 11 and not compile_pattern(r"^[^\n]+[:=][ \t]*\n").search(rest):
            continue
        if rest.find("\n") > 15:
            rest = rest.split("\n", 1)[0]
        if (before, rest) not in seen:
            seen.add((before, rest))
            yield before, rest


def _escape(text: str) -> str:
    return "".join(character if character.isalnum() or character == " " else "\\" + character for character in text)


def _find_values(text: str, stems: Iterable[str], kind: str, language: str) -> Iterator[Secret]:
    """Yield the values behind names of one kind: "key" (keys and tokens) or "password"."""
    is_key = kind == "key"
    # In other languages than English the stem may stand within the name.
    back = 0 if language == "english" else 10
    names = data.choices(language, "key_names" if is_key else "password_names")
    name_of = compile_pattern(f"^()({names})" if not back else f"^(?:(.{{0,10}}?)({names}))", True)
    told = "token" if is_key else kind
    for tries, (before, rest) in enumerate(_find_stems(text, stems, is_key, back), 1):
        # The keys of machines are long.
        if is_key and not compile_pattern(r"""^[^\n]*?[=:>\s"'`][^\s"'`<>(){},;]{8}""").search(rest):
            continue
        if tries > MOST_NAMED:
            found = compile_pattern(r"""^[^\s=:：]{2,16}[ \t]*[=:：][ \t]*["'`]?([^\s"'`,;(){}<>]{8,})""").match(rest)
            if (
                found
                and (len(found[1]) >= 16 or not is_key)
                and compile_pattern("[A-Za-z].*[0-9]|[0-9].*[A-Za-z]").search(found[1])
            ):
                yield Secret(told, found[1])
            continue
        found = name_of.match(rest)
        linked = _find_link(rest[found.end() :], language) if found else None
        if not found or not linked:
            continue
        name = found[2]
        if not is_key and not back and len(name) <= 4 and compile_pattern("[A-Za-z]$").search(before):
            # "pass" and what is shorter are names where no letter is before them, but that of a machine's user.
            users = "(?:db|user|admin|root|smtp|mail|ftp|ssh|sudo|login|store|key)$"
            if not (
                name.lower() == "pwd"
                or (before[-1].islower() and name[0].isupper())
                or (name.lower() == "pass" and compile_pattern(users, True).search(before))
            ):
                continue
        option = compile_pattern("(?:^|[^A-Za-z0-9-])(--?[A-Za-z-]*)$").search(before)
        if is_key:
            name = compile_pattern("[A-Za-z]*[ _.-]?$").search(before)[0] + "/" + name
        value = Named(option[1] if option else None, name, *linked)
        if _is_key(value) if is_key else _is_password(value, language):
            yield Secret(told, value.bare)


def _is_password(found: Named, language: str) -> bool:
    value, link, name = found.bare, found.link, found.name.lower()
    quoted = is_quoted(found.value)
    is_linked = link.strip(" \t\n*_") != ""
    follows = (found.end or "").lstrip(" ")
    # A name and its value touch only where words do.
    if (
        len(value) < 4
        or value[0] in "=~:>?"
        or ("\n" in link and (compile_pattern("^[A-Za-z_]+=").search(value) or "(" in value))
        or (link == "" and found.name.isascii())
    ):
        return False
    strength = value_strength(value, quoted)
    # In code the password of an example or a test says what it is.
    if strength == 0 or is_about(value.rstrip(".,:;!?")) or ((quoted or "=" in link) and is_sample(value)):
        return False
    # A sentence in quotes is a message to people.
    if quoted and " " in value:
        return is_passphrase(value, found.is_assigned, strength) or (found.is_assigned and name == "psk")
    is_option = found.option is not None
    # To pass is a verb.
    if name == "pass" and not is_linked and not is_option:
        return False
    if strength >= 2:
        return is_linked or is_option or quoted or len(value) >= 6
    ends = found.end is not None or found.value[-1] in ".!?"
    if all(character in "0123456789" for character in value):
        return (
            is_option
            or quoted
            or (is_linked and ends and (name != "pass" or "=" in link))
            or (len(value) >= 6 and ends and language in ("chinese", "japanese", "korean"))
        )
    if value.lower() == name or (not quoted and not is_option and compile_pattern("passw|pwd|_", True).search(value)):
        return False
    if name == "pass" and not found.is_assigned and not is_option:
        return False
    # A plain word: where a value must stand, or the sentence ends with it.
    if (is_option and link.strip(" =") == "") or (quoted and is_linked):
        return True
    if found.is_assigned:
        if found.value[-1] in ")];," or (follows and follows[0] in "),;"):
            return False
        if link.startswith("="):
            return True
        return ends and name != "pass" and follows not in ("and", "or", "but") and "\n" not in link
    if link.startswith("="):
        return True
    return (
        ends
        and language == "english"
        and link.strip(" ") in ("is", "to", "was")
        and compile_pattern("^[A-Za-z]{5,}[.!]*$|^[A-Za-z]{4,}(?:[-_][A-Za-z]{4,})+$").search(value) is not None
    )


def _is_key(found: Named) -> bool:
    """Return whether a value is a key or token: these are random, unless they stand where a value of theirs must."""
    before, stem = found.name.lower().split("/", 1)
    before = before.rstrip(" _.-")
    value, link = found.bare, found.link
    quoted = found.value.lstrip("\\") != found.value.lstrip("\\\"'`")
    is_assigned = found.is_assigned or found.option is not None
    if (
        len(value) < 8
        or value[0] in "=~:>"
        or link == ""
        or " " in value
        or before in data.entry_set("english", "harmless_keys")
    ):
        return False
    strength = value_strength(value, quoted)
    if (
        strength == 0
        or is_sample(value)
        or compile_pattern("^(?:my|your|test|dev|dummy|fake)[-_]?.*[-_]?(?:secret|key|token)s?$", True).search(value)
        or value.startswith(("ssh-", "pk_"))
        or compile_pattern("^sha[0-9]+[-:]").search(value)
    ):
        return False
    is_machine = before in data.entry_set("english", "machine_keys")
    if stem in ("code", "salt", "nonce", "auth"):
        is_hex = compile_pattern("^[0-9a-f]+$").search(value)
        return strength == 3 and len(value) >= 20 and is_assigned and not is_hex and value.lower() != value
    if strength == 3:
        if stem == "secret" or is_machine:
            return True
        return not compile_pattern("/.*[.]|^[a-z]+(?:[._:/-][a-z0-9]+)+$|^[A-Za-z]+-[A-Za-z]+-").search(value)
    if stem not in ("key", "token", "secret"):
        return strength == 2 and stem.startswith("connection") and is_assigned
    if strength == 2 and (stem == "secret" or is_machine):
        return is_assigned or (before != "" and len(value) >= 10)
    return (
        strength == 1
        and is_assigned
        and ("ecret" in found.name or "SECRET" in found.name)
        and not is_about(value)
        and (quoted or link == "=")
        and "_" not in value
        and found.value[-1] not in ")];,"
        and (found.end or "").lstrip(" ")[:1] not in (")", ",", ";")
    )
