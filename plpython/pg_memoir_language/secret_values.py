"""Tell values of secrets from names and samples, by their alphabet and strength."""

from __future__ import annotations

from functools import cache

from . import data
from .patterns import Pattern, compile_pattern

# A value in quotes, or up to a blank or what ends a field.
VALUE = (
    r"""\\*"[^"\n]+"|\\*'[^'\n]+'|`[^`\n]+`|「[^」\n]+」|『[^』\n]+』|[„“][^“”„\n]+[“”]|«[^»\n]+»"""
    r"""|(?:[^\s"'`<>&;,、。，；「」『』„“”«»\u1100-\u11ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"""
    r"""|[&;,](?![A-Za-z_.-]*[=:]|\s|\Z))+"""
)
OPENING_QUOTES = "\\\"'`「『„“«"


def is_quoted(value: str) -> bool:
    return value.lstrip("\\") != value.lstrip(OPENING_QUOTES)


def strip_value(value: str) -> str:
    """Return a value without its quotes, or without what follows it in a sentence."""
    if is_quoted(value):
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
        rf"|^(?:{data.choices('english', 'placeholders')})$"
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


def value_strength(value: str, is_quoted: bool) -> int:
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


def is_about(word: str) -> bool:
    """Return whether a word says something about a password rather than is one."""
    suffixes = r"^[a-z-]+(?:ed|ing|ly|able|ible|ous|less|ful|ive)$"
    return (
        word.lower() in data.entry_set("english", "password_stops")
        or compile_pattern(suffixes, True).search(word) is not None
    )


def is_passphrase(value: str, is_assigned: bool, strength: int) -> bool:
    """Return whether a value in quotes is several words, or a password with a blank."""
    if is_assigned and strength >= 2 and not compile_pattern(r"\s\S+\s\S+\s|^[A-Z]?[a-z]+\s").search(value):
        return True
    stops = r"(?:^| )(?:the|and|a|your|must|password|not|for|is|of|to|in|be|enter|please)(?: |$)"
    return bool(compile_pattern(r"^[a-z]{3,12}(?: [a-z0-9]{1,12}){2,7}$").search(value)) and not compile_pattern(
        stops
    ).search(value)


def is_sample(value: str) -> bool:
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
