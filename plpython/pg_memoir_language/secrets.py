"""Find secrets: keys, passwords, cards, accounts, personal numbers and one-time codes, without a model or a network.

Three kinds of evidence: the shape of an issuer's token (token_shapes.csv), a number with its check digits, and a value
where values of secrets stand: behind a name like "password" in code, on a command line or in a sentence (names by
language), in a header, in a URL (secrets.toml).
"""

from __future__ import annotations

import csv
import tomllib
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from . import data
from .patterns import Pattern, compile_pattern, join_choices

WITHHELD = "(withheld)"
# Of more named values in one text the rest is judged by its look alone.
MOST_NAMED = 500
# A text with more different secrets is withheld whole.
MOST_SECRETS = 1000
# A second secret of one place is found once the first is replaced.
MOST_ROUNDS = 10
PIECE, OVERLAP = 4000, 600


@dataclass(frozen=True)
class Secret:
    """A secret and its kind: "password", "token", "card number" …"""

    kind: str
    value: str


@dataclass(frozen=True)
class Place:
    """A pattern whose first group is a secret, and the texts without which it is not tried."""

    kind: str
    marks: tuple[tuple[str, ...], ...]
    pattern: Pattern[str]
    strength: int | None = None
    deniable: bool = False


def find_secrets(text: str) -> list[Secret]:
    """Return all secrets of a text, each once. Disguises, as full-width digits, are undone first."""
    text = _undo_disguise(text)
    return list(dict.fromkeys(_found(text, _pieces(text))))


def secret_kinds(text: str) -> list[str]:
    """Return the kinds of secrets in a text, sorted: none for nearly every text."""
    return sorted({secret.kind for secret in find_secrets(text)})


def redact(text: str) -> str:
    """Return the text with each secret replaced by "(withheld)", or "" where a disguise hides what to replace."""
    for _ in range(MOST_ROUNDS):
        values = {secret.value for secret in find_secrets(text)}
        if not values:
            return text
        if len(values) > MOST_SECRETS:
            return ""
        for value in sorted(values, key=len, reverse=True):
            text = text.replace(value, WITHHELD)
    return ""


def _found(text: str, pieces: list[str]) -> Iterator[Secret]:
    yield from _tokens(text)
    for piece in pieces:
        lower = piece.lower()
        yield from _find_placed(piece, lower)
        if compile_pattern(r"[0-9][0-9A-Z .-]{0,2}[0-9]").search(piece):
            yield from _numbers(piece, lower)
            yield from _codes(piece, lower)
    yield from _find_named(text)
    yield from _seed_phrases(text, pieces)


# Texts -------------------------------------------------------------------------------------------------------------


def _undo_disguise(text: str) -> str:
    """Return full-width and other fancy digits and letters as plain ones, without invisible marks."""
    if text.isascii():
        return text
    text = text.translate({0xA0: " ", 0x202F: " ", 0x3000: " "})
    text = compile_pattern(r"[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]+").sub("", text)
    fancy = (
        r"[\u00b2\u00b3\u00b9\u2000-\u200a\u2070-\u209f\u2460-\u24ff\uff10-\uff19\uff20-\uff3a\uff3f\uff41-\uff5a"
        r"\U0001d400-\U0001d7ff]"
    )
    return unicodedata.normalize("NFKC", text) if compile_pattern(fancy).search(text) else text


def _pieces(text: str) -> list[str]:
    """Cut a long text where words end, each piece with the end of the one before it. Equal pieces are one."""
    if len(text) <= PIECE + OVERLAP:
        return [text]
    pieces, start = [], 0
    while True:
        end = min(start + PIECE, len(text))
        if end < len(text):
            blank = compile_pattern(r"^.*[\s,;&]").match(text[end - OVERLAP : end])
            end = end - OVERLAP + blank.end() if blank else end
        pieces.append(text[start:end])
        if end == len(text):
            return list(dict.fromkeys(pieces))
        behind = compile_pattern(r"[\s,;&]").search(text, max(start + 1, end - 300), end)
        start = behind.end() if behind and behind.end() < end else max(start + 1, end - 100)


def _holds(text: str, marks: tuple[str, ...]) -> bool:
    """Return whether a text holds these marks in this order."""
    at = 0
    for mark in marks:
        at = text.find(mark, at)
        if at < 0:
            return False
        at += len(mark)
    return True


@cache
def _tables() -> dict[str, Any]:
    with (Path(__file__).parent / "secrets.toml").open("rb") as file:
        return tomllib.load(file)


@cache
def _places(section: str) -> tuple[Place, ...]:
    places = []
    for row in _tables()[section]:
        pattern = row["pattern"] if isinstance(row["pattern"], str) else "".join(row["pattern"])
        places.append(
            Place(
                row["kind"],
                tuple(tuple(mark.split("&")) for mark in row["marks"]),
                compile_pattern(
                    pattern, not row.get("case", False), row.get("lines", False), longest=section == "places"
                ),
                row.get("strength"),
                row.get("deniable", False),
            )
        )
    return tuple(places)


def _words(use: str) -> frozenset[str]:
    return frozenset(data.entries("english", use))


# Tokens ------------------------------------------------------------------------------------------------------------


@cache
def _token_shapes() -> tuple[tuple[str, tuple[str, ...], Pattern[str]], ...]:
    with (Path(__file__).parent / "token_shapes.csv").open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return tuple(
            (
                row["kind"],
                tuple(m.lstrip("*") for m in row["marks"].split()),
                compile_pattern(f"(?<![A-Za-z0-9+])({row['pattern']})"),
            )
            for row in rows
        )


def _tokens(text: str) -> Iterator[Secret]:
    """Tokens by the shape that their issuers give them, in runs of eighteen letters and signs or more.

    A run of the same letter or a word like "your" is a placeholder. Of a run of more than 4,000, as base64 has them,
    the beginning is looked at.
    """
    is_mixed = compile_pattern(r"[0-9]|[a-z][A-Z].*[a-z][A-Z]")
    runs = "\n".join(
        dict.fromkeys(
            run for found in compile_pattern(r"[A-Za-z0-9_.:/+=~!%$@|-]{18,}").finditer(text)
            if is_mixed.search(run := found[0][:4000])
        )
    )  # fmt: skip
    if not runs:
        return
    is_long = compile_pattern("[A-Za-z0-9_.-]{50}").search(runs)
    for kind, marks, shape in _token_shapes():
        if not (any(mark in runs for mark in marks) if marks else is_long):
            continue
        for found in shape.finditer(runs):
            token = found[1]
            if is_mixed.search(token) and not compile_pattern(
                r"x{6}|0{12}|your|example-|[-_]here$|placeholder|[.]{3}", True
            ).search(token):
                yield Secret(kind, token)


# Values by their place ---------------------------------------------------------------------------------------------


def _find_placed(piece: str, lower: str) -> Iterator[Secret]:
    """Values where a secret stands without a name for it, or is recognised by what is around it."""
    for place in _places("places"):
        if not any(_holds(lower, marks) for marks in place.marks):
            continue
        for found in place.pattern.finditer(piece):
            value = found[1]
            if place.strength is not None and value is not None:
                value = _bare(value)
                least = 1 if place.strength == 9 else place.strength
                if (
                    _strength(value, True) < least
                    or (place.strength == 9 and _is_about(value))
                    or (place.kind == "password" and _is_sample(value))
                ):
                    continue
            if value:
                yield Secret(place.kind, value)


# A value in quotes, or up to a blank or what ends a field.
VALUE = (
    r"""\\*"[^"\n]+"|\\*'[^'\n]+'|`[^`\n]+`|「[^」\n]+」|『[^』\n]+』|[„“][^“”„\n]+[“”]|«[^»\n]+»"""
    r"""|(?:[^\s"'`<>&;,、。，；「」『』„“”«»\u1100-\u11ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"""
    r"""|[&;,](?![A-Za-z_.-]*[=:]|\s|\Z))+"""
)
OPENING_QUOTES = "\\\"'`「『„“«"


def _is_quoted(value: str) -> bool:
    return value.lstrip("\\") != value.lstrip(OPENING_QUOTES)


def _bare(value: str) -> str:
    """Return a value without its quotes, or without what follows it in a sentence."""
    if _is_quoted(value):
        return value.strip(OPENING_QUOTES + "」』”»")
    return value.rstrip("\\.,:;)]}*")


@cache
def _no_value() -> Pattern[str]:
    """Match what is no value by its look: a placeholder, an expression, a path, an address, a date, a version, an
    amount, the name of an algorithm."""
    return compile_pattern(
        r"^[<\[{(%!]|^\*\*|^\$[a-z_{(]|^@[a-z_.]+\(?$|^(?:list|dict|set|tuple|optional|array|string|map|union)\["
        r"|^:[a-z_]+$"
        r"|^[*•●.x_?-]+$|[*•●]{3}|x{4}|\.{3}|…|0{8}"
        r"""|\$[{(]|(?<![A-Za-z0-9])[$][a-z_]{3}|\{\{|<%|%\(|%s|[a-z]\[["']|\(\)"""
        rf"|^(?:{join_choices(data.entries('english', 'placeholders'))})$"
        r"|(?:^|[-_. ])(?:your|example|placeholder|change|changeme|replace|insert|redacted|dummy|withheld"
        r"|goes)(?:[-_. ]|$)"
        r"|^(?:[~.]*/[^ ]*/|/[a-z]+|\./|[a-z]:\\|[a-z]+://"
        r"|(?:op|arn|vault|file|env|ssm|secretsmanager|projects|sops|enc|ref|keyring|pass)[:/!\[])"
        r"|\.(?:txt|pem|key|json|ya?ml|env|py|js|ts|tsx|md|html?|php|rb|go|java|pdf|png|jpe?g|cfg|conf|ini|crt"
        r"|cer|p12|pub"
        r"|sh|sql|com|org|net|kdbx?|gpg|csv)$"
        r"|^[0-9]{1,4}[-/.:][0-9]{1,2}(?:[-/.:T][0-9:.TZ+-]*)?$|^v?[0-9]+(?:\.[0-9]+)+$|^[0-9]{1,3}$"
        r"|^[0-9]+(?:[.,][0-9]+)+$"
        r"|^[0-9.,]+-?(?:px|m?s|[kmgt]i?b|[kmgt]|days?|chars?|characters?|digits?|bits?|bytes?|st|nd|rd|th|x|%|h|hours?"
        r"|min|mins|minutes?|years?|times|eur|usd|€|am|pm|ft|cm|mm|km|w|v)$"
        r"|^(?:sha[-_]?[0-9]+|md[45]|utf-?(?:8|16)|base-?(?:16|32|58|64)|o?auth-?[12]|argon2(?:id|i|d)?"
        r"|pbkdf2\S*|rsa-?[0-9]*"
        r"|aes-?[0-9]\S*|ed25519|x509|x25519|hmac\S*|[rhep]s(?:256|384|512)"
        r"|[2u]fa?2?|fido2?|web[1-4]|python[23]|ipv[46]|k8s|s3|ec2|win(?:dows)?[0-9]+|wpa[23]?|http/?[123]"
        r"|bcrypt2?|scrypt"
        r"|pkcs#?[0-9]+|[0-9]+-?(?:factor|step)|step[0-9]+|v[0-9]+|p[0-9]|q[1-4])$",
        True,
    )


def _strength(value: str, is_quoted: bool) -> int:
    """Return what a value may be by its look: 0 none, 1 a word or number, 2 mixed as passwords are, 3 random."""
    plain = value.rstrip(".,:;!?")
    if plain == "" or _no_value().search(plain):
        return 0
    if not is_quoted and compile_pattern(
        r"^[A-Za-z_][A-Za-z0-9_.:>$-]*\(|^[A-Za-z_$][A-Za-z_]*(?:(?:\.|->|::)[A-Za-z_][A-Za-z0-9_]*)+[;,]?$"
        r"|^(?:self|this|os|process|env|config|req|request|params|args|opts)[.\[]"
    ).search(value):
        return 0  # code: calls, attributes
    has_digits = any(character in "0123456789" for character in plain)
    has_letters = plain.lower() != plain.upper()
    if len(plain) >= 16 and has_letters and compile_pattern("^[A-Za-z0-9_+/=.~:%-]+$").search(plain):
        if has_digits:
            words = r"^[a-z]+(?:[._/-][a-z]+)*(?:[._-]?v?[0-9]{1,4})?$|^[A-Za-z]+(?:[_/.-][A-Za-z]+)+[0-9]{0,4}$"
            if not compile_pattern(words).search(plain):
                return 3
        elif len(plain) >= 20 and compile_pattern("(?:[a-z]+[A-Z]+){5}").search(plain):
            return 3
    is_mixed = (
        r"[[:alnum:]][]@#$%^&*+=~!|?\\[{}]+[[:alnum:]]|[0-9][@#$%^&*!?_-]|^[@#$%^&*!?]+[[:alnum:]]{4}"
        r"|^[a-z]+[-_.][a-z]+[-_.][a-z]+[-_.][a-z._-]+$"
    )
    if (has_digits and has_letters) or compile_pattern(is_mixed).search(plain):
        return 2
    if is_quoted and len(plain) >= 8 and compile_pattern("^[A-Za-z]*[a-z][A-Z][A-Za-z]*$").search(plain):
        return 2
    return 1


def _is_about(word: str) -> bool:
    """Return whether a word says something about a password rather than is one."""
    suffixes = r"^[a-z-]+(?:ed|ing|ly|able|ible|ous|less|ful|ive)$"
    return word.lower() in _words("password_stops") or compile_pattern(suffixes, True).search(word) is not None


def _is_passphrase(value: str, is_assigned: bool, strength: int) -> bool:
    """Return whether a value in quotes is several words, or a password with a blank."""
    if is_assigned and strength >= 2 and not compile_pattern(r"\s\S+\s\S+\s|^[A-Z]?[a-z]+\s").search(value):
        return True
    stops = r"(?:^| )(?:the|and|a|your|must|password|not|for|is|of|to|in|be|enter|please)(?: |$)"
    return bool(compile_pattern(r"^[a-z]{3,12}(?: [a-z0-9]{1,12}){2,7}$").search(value)) and not compile_pattern(
        stops
    ).search(value)


def _is_sample(value: str) -> bool:
    """Return whether a value is what examples and tests use for a password."""
    return (
        compile_pattern(
            r"^(?:(?:my|your|the|a|some|any|test|wrong|invalid|valid|new|old|good|bad|correct|strong|secure"
            r"|super|very|secret"
            r"|default|admin|user|db|root|plain|hashed|example|sample|fake|mock|dummy|another|different)[-_]?){0,4}"
            r"(?:pass(?:word|wd|phrase)?|p[a@]ssw[o0]rd|pwd|secret|token|test|admin|user|key|changeme|qwerty"
            r"|letmein|hunter2"
            r"|hash)?(?:[-_]?(?:key|hash|value|here|string))?[-_!@#$]*(?:1|12|123|1234|12345|123456|[0-9])?[!@#$]*$",
            True,
        ).search(value)
        is not None
    )


# Values behind names -----------------------------------------------------------------------------------------------

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
        return _bare(self.value)

    @property
    def is_assigned(self) -> bool:
        return any(sign in self.link for sign in "=:：＝→>")


@cache
def _link(language: str) -> Pattern[str]:
    """Match the link between a name and its value: a suffix of the name, what closes around it, words that say whose it
    is; then a sign, a word for "is", or a blank before what no word is."""
    says = join_choices(data.entries(language, "password_says"))
    of = join_choices(data.entries(language, "password_of")) or "for|of|to|on|at|in|from"
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


def _find_named(text: str) -> Iterator[Secret]:
    lower = text.lower()
    marks = _tables()["marks"]
    if any(mark in lower for mark in marks["passwords"]):
        yield from _find_values(text, marks["passwords"], "password", "english")
    if any(mark in lower for mark in marks["keys"]) and (
        "secret" in lower or compile_pattern("[A-Za-z+/=_-][0-9]|[0-9][A-Za-z+/=_-]|[A-Za-z+/_-]{20}").search(text)
    ):
        yield from _find_values(text, marks["keys"], "key", "english")
    for language, stems in _tables()["stems"].items():
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
    names = join_choices(data.entries(language, "key_names" if is_key else "password_names"))
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
    is_quoted = _is_quoted(found.value)
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
    strength = _strength(value, is_quoted)
    # In code the password of an example or a test says what it is.
    if strength == 0 or _is_about(value.rstrip(".,:;!?")) or ((is_quoted or "=" in link) and _is_sample(value)):
        return False
    # A sentence in quotes is a message to people.
    if is_quoted and " " in value:
        return _is_passphrase(value, found.is_assigned, strength) or (found.is_assigned and name == "psk")
    is_option = found.option is not None
    # To pass is a verb.
    if name == "pass" and not is_linked and not is_option:
        return False
    if strength >= 2:
        return is_linked or is_option or is_quoted or len(value) >= 6
    ends = found.end is not None or found.value[-1] in ".!?"
    if all(character in "0123456789" for character in value):
        return (
            is_option
            or is_quoted
            or (is_linked and ends and (name != "pass" or "=" in link))
            or (len(value) >= 6 and ends and language in ("chinese", "japanese", "korean"))
        )
    if value.lower() == name or (
        not is_quoted and not is_option and compile_pattern("passw|pwd|_", True).search(value)
    ):
        return False
    if name == "pass" and not found.is_assigned and not is_option:
        return False
    # A plain word: where a value must stand, or the sentence ends with it.
    if (is_option and link.strip(" =") == "") or (is_quoted and is_linked):
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
    is_quoted = found.value.lstrip("\\") != found.value.lstrip("\\\"'`")
    is_assigned = found.is_assigned or found.option is not None
    if len(value) < 8 or value[0] in "=~:>" or link == "" or " " in value or before in _words("harmless_keys"):
        return False
    strength = _strength(value, is_quoted)
    if (
        strength == 0
        or _is_sample(value)
        or compile_pattern("^(?:my|your|test|dev|dummy|fake)[-_]?.*[-_]?(?:secret|key|token)s?$", True).search(value)
        or value.startswith(("ssh-", "pk_"))
        or compile_pattern("^sha[0-9]+[-:]").search(value)
    ):
        return False
    is_machine = before in _words("machine_keys")
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
        and not _is_about(value)
        and (is_quoted or link == "=")
        and "_" not in value
        and found.value[-1] not in ")];,"
        and (found.end or "").lstrip(" ")[:1] not in (")", ",", ";")
    )


# Numbers -----------------------------------------------------------------------------------------------------------


def _numbers(piece: str, lower: str) -> Iterator[Secret]:
    from .check_digits import is_number_of  # half of the time that it takes to load this module

    # An id of this kind holds what looks like an IBAN once in five thousand.
    uuid = r"\m[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\M"
    piece = compile_pattern(uuid, True).sub("id", piece)
    outline = None
    for place in _places("numbers"):
        for (mark,) in place.marks:
            if "9" in mark:
                if outline is None:
                    outline = _outline(piece)
                if mark in outline:
                    break
            elif mark in lower:
                break
        else:
            continue
        for found in place.pattern.finditer(piece):
            if not is_number_of(place.kind, found[1]):
                continue
            at = found.start(1)
            if not (place.deniable and _is_denied(piece[max(0, at - 40) : at])):
                yield Secret(place.kind, found[1])


OUTLINE = str.maketrans("012345678BCDEFGHIJKLMNOPQRSTUVWXYZ", "9" * 9 + "A" * 25)


def _outline(piece: str) -> str:
    """Return what may be a number with check digits, its digits written 9 and its letters A."""
    runs = compile_pattern(
        r"(?<![A-Za-z0-9])((?:[A-Za-z]{2} )?[A-Za-z]{0,6}[0-9][A-Za-z0-9]{0,32}"
        r"(?:[ .+\u2010-\u2015-]{1,2}(?:[A-Za-z0-9]{0,3}[0-9][A-Za-z0-9]{0,18}|[A-Z]{4}))*(?: ?[A-Z])?)(?![A-Za-z0-9])"
    )
    text = "|".join(found[0] for found in runs.finditer(piece) if len(found[0]) >= 8).upper()
    return text.translate(OUTLINE)


def _is_denied(before: str) -> bool:
    """Return whether what stands before a number says that it is of another kind: a phone, an order, a serial number, a
    part of a longer one."""
    if compile_pattern(r"[0-9][.,]$|[+][0-9() -]*$|(?:^|[^0-9\\])0[0-9]+ $").search(before):
        return True
    denied = (
        r"(?:phone|mobile|tele?fon|tel|cell|call|fax|sms|whatsapp|handy|m[oó]vil|номер телефона|电话|手机|電話|전화"
        r"|order|invoice|tracking|parcel|shipment|shipping|ticket|booking|reservation|imei|serial|isbn|ean|upc"
        r"|gtin|sku|part"
        r"|article|item|model|ref|reference|case|bestell|auftrags|rechnungs|sendungs|artikel|kunden|pedido"
        r"|factura|commande"
        r"|facture|suivi|encomenda|ordine|fattura|zam[oó]wieni|заказ|трек|订单|単号|快递|注文|주문|송장|timestamp|version"
        r"|commit|id)"
        r"(?:[-_ ]?(?:numbers?|nummer|no|nr|num|n[°º]|id|code|#|号码?|番号|번호|me(?: on| at)?|us(?: on| at)?|is|was"
        r"|number is))*[ .:#=(]*$"
    )
    meant = (
        r"(?:card|visa|mastercard|amex|iban|karte|tarjeta|carte|cart[aã]o|ssn|social|national|personal|identity"
        r"|tax|dni|nif)"
        r"[^.\n]{0,30}$"
    )
    return bool(compile_pattern(denied, True).search(before)) and not compile_pattern(meant, True).search(before)


def _links_number(between: str) -> bool:
    """Return whether what stands between the name of a number and the number links the two."""
    if between.lower() == between.upper() and len(between) <= 4:
        return True
    if compile_pattern(r"""[:=：#][\s"'*「]*$""").search(between):
        return True
    word = compile_pattern(r"""([^\s:"'*]+)[\s:"'*「]*$""").search(between)
    return bool(word) and word[1].lower() in data.entries(None, "password_says")


def _codes(piece: str, lower: str) -> Iterator[Secret]:
    """PINs and codes for one use: digits first, then their name before them in the sentence."""
    if not any(mark in lower for mark in _tables()["marks"]["codes"]):
        return
    names = compile_pattern(
        rf"^.*(?<![A-Za-z])({join_choices(data.entries(None, 'pin_names', 'code_names'))})(?![A-Za-z])(.*)$", True
    )
    codes = compile_pattern(rf"^(?:{join_choices(data.entries(None, 'code_names'))})$", True)
    numbers = compile_pattern(r"(?<![0-9])((?:[A-Z]{1,3}-)?[0-9]{3,8}(?:[ -][0-9]{2,4})?)(?![0-9A-Za-z]|[-./][0-9])")
    sentence = compile_pattern(r"[^0-9\n.;!?]*(?:2[Ff][Aa][^0-9\n.;!?]+)?\Z")
    near = compile_pattern(r"p[iu][nk]|cod|tan|otp|cv[vcn]|[^ -~]|geheim|num|kod|zahl|crypt|segret|secret")
    for found in numbers.finditer(piece):
        number = found[1]
        before = sentence.search(piece[max(0, found.start() - 90) : found.start()])[0]
        if not near.search(before.lower()):
            continue
        name = names.search(before)
        if not name or len(name[2]) > 60 or not _links_number(name[2]):
            continue
        if len(number) > 9:
            number = number.split(" ")[0]
        # Three digits stand on cards only; six behind "PIN code" are a place in India.
        cards = r"^c|sicherheit|segur|sicurezza|beveilig|安全|セキュ|prüf|krypto"
        if len(number) == 3 and not compile_pattern(cards, True).search(name[1]):
            continue
        own = r"(?:card|bank|sim|phone|atm|unlock|account|my|new) pin|pin (?:code )?(?:for|of) (?:my|the)"
        if (
            len(number) == 6
            and compile_pattern("^pin[ -]?code$", True).search(name[1])
            and not compile_pattern(own, True).search(before)
        ):
            continue
        yield Secret("one-time code" if codes.search(name[1]) else "PIN", number)
    sent = (
        r"(?<![0-9A-Za-z.-])((?:[A-Z]-)?[0-9]{4,8})\s+(?:is|ist|es|est|è|é)\s+"
        r"(?:your|the|my|ihr|dein|mein|tu|su|votre|seu|il tuo)\s[^\n.0-9]*?(?:code|otp|tan|c[oó]digo|codice"
        r"|pin)(?![a-z])"
    )
    for found in compile_pattern(sent, True).finditer(piece):
        yield Secret("one-time code", found[1])


# Seed phrases ------------------------------------------------------------------------------------------------------


def _seed_phrases(text: str, pieces: list[str]) -> Iterator[Secret]:
    """Twelve words or more of a wallet: alone on a line; beside a name, anywhere (BIP 39)."""
    lower = text.lower()
    is_named = any(mark in lower for mark in _tables()["marks"]["seeds"]) and compile_pattern(
        r"(?:seed|recovery|mnemonic|backup|secret|wallet|wiederherstellungs|semilla|recuperación|récupération)[ -]?"
        r"(?:phrase|words?|wörter|phrasen|frase)|mnemonic|bip-?39|metamask|phantom|ledger|trezor|助记词|助記詞|ニーモニック"
        r"|シードフレーズ|시드|니모닉|сид[- ]?фраз|мнемоник|frase semilla|phrase (?:de récupération|secrète)",
        True,
    ).search(text)
    has_list = r"(?:^|\n)[^A-Za-z\n]{0,8}[a-z]{3,8}[ \t,]{1,3}[^A-Za-z\n]{0,5}[a-z]{3,8}[ \t,]"
    if not is_named and not compile_pattern(has_list).search(text):
        return
    word = r"(?:[0-9]{1,2}[.):]?[ \t]*)?[a-z]{3,8}"
    whole = compile_pattern(rf"^{word}(?:[ \t,]{{1,3}}{word}){{11,23}}$")
    edges = ' \t\r"`“”「」.'
    found = [
        line.strip(edges) for line in text.split("\n") if 46 <= len(line) <= 300 and whole.search(line.strip(edges))
    ]
    if is_named:
        listed = compile_pattern(rf"(?<![A-Za-z'’-])({word}(?:[\s,]{{1,3}}{word}){{11,}})(?![A-Za-z'’-])")
        found += [phrase[1] for piece in pieces for phrase in listed.finditer(piece)]
    common = set(
        "the and for are was but his her had has not from have been were which their would could our its them"
        " please with"
        .split()
    )  # fmt: skip
    for phrase in found:
        words = compile_pattern("[^a-z]+").sub(" ", phrase).split()
        verbs = {w for w in words if compile_pattern("[a-z](?:ing|ed|[^siu]s)$").search(w)}
        counted = len(words) in (12, 15, 18, 21, 24)
        if len(words) <= 60 and 6 * len(verbs) <= len(words) and (is_named or counted) and not common & set(words):
            yield Secret("seed phrase", phrase)
            return
