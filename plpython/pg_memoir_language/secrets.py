"""Find secrets: keys, passwords, cards, accounts, personal numbers and one-time codes, without a model or a network.

Three kinds of evidence: the shape of an issuer's token (token_shapes.csv), a number with its check digits, and a value
where values of secrets stand: behind a name like "password" in code, on a command line or in a sentence (names by
language), in a header, in a URL (secrets.toml).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

from .patterns import compile_pattern
from .secret_names import find_by_name
from .secret_numbers import find_codes, find_numbers
from .secret_tables import Secret, read_places, read_tables, read_token_shapes
from .secret_values import is_about, is_sample, strip_value, value_strength

WITHHELD = "(withheld)"
# A text with more different secrets is withheld whole.
MOST_SECRETS = 1000
# A second secret of one place is found once the first is replaced.
MOST_ROUNDS = 10
PIECE, OVERLAP = 4000, 600


def find_secrets(text: str) -> list[Secret]:
    """Return all secrets of a text, each once. Disguises, as full-width digits, are undone first."""
    text = _undo_disguise(text)
    return list(dict.fromkeys(_search(text, _pieces(text))))


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


def _search(text: str, pieces: list[str]) -> Iterator[Secret]:
    yield from _find_tokens(text)
    for piece in pieces:
        lower = piece.lower()
        yield from _find_in_places(piece, lower)
        if compile_pattern(r"[0-9][0-9A-Z .-]{0,2}[0-9]").search(piece):
            yield from find_numbers(piece, lower)
            yield from find_codes(piece, lower)
    yield from find_by_name(text)
    yield from _find_mnemonics(text, pieces)


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


# Tokens ------------------------------------------------------------------------------------------------------------


def _find_tokens(text: str) -> Iterator[Secret]:
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
    for kind, marks, shape in read_token_shapes():
        if not (any(mark in runs for mark in marks) if marks else is_long):
            continue
        for found in shape.finditer(runs):
            token = found[1]
            if is_mixed.search(token) and not compile_pattern(
                r"x{6}|0{12}|your|example-|[-_]here$|placeholder|[.]{3}", True
            ).search(token):
                yield Secret(kind, token)


# Values by their place ---------------------------------------------------------------------------------------------


def _find_in_places(piece: str, lower: str) -> Iterator[Secret]:
    """Values where a secret stands without a name for it, or is recognised by what is around it."""
    for place in read_places("places"):
        if not any(_holds(lower, marks) for marks in place.marks):
            continue
        for found in place.pattern.finditer(piece):
            value = found[1]
            if place.strength is not None and value is not None:
                value = strip_value(value)
                least = 1 if place.strength == 9 else place.strength
                if (
                    value_strength(value, True) < least
                    or (place.strength == 9 and is_about(value))
                    or (place.kind == "password" and is_sample(value))
                ):
                    continue
            if value:
                yield Secret(place.kind, value)


# Seed phrases ------------------------------------------------------------------------------------------------------


def _find_mnemonics(text: str, pieces: list[str]) -> Iterator[Secret]:
    """Twelve words or more of a wallet: alone on a line; beside a name, anywhere (BIP 39)."""
    lower = text.lower()
    is_named = any(mark in lower for mark in read_tables()["marks"]["seeds"]) and compile_pattern(
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
