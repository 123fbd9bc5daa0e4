"""Check digits of numbers that are secrets: cards, accounts, personal numbers. Most are those of python-stdnum."""

from __future__ import annotations

import re
from collections.abc import Callable

from stdnum import iban, luhn, verhoeff
from stdnum.be import nn
from stdnum.br import cpf
from stdnum.ch import ssn as ahv
from stdnum.de import idnr
from stdnum.es import dni, nie
from stdnum.fi import hetu
from stdnum.fr import nir
from stdnum.gb import nhs
from stdnum.it import codicefiscale
from stdnum.nl import bsn
from stdnum.pl import pesel
from stdnum.tr import tckimlik


def is_number_of(kind: str, found: str) -> bool:
    """Return whether what a pattern found is the number that it looks like. A kind without a check is always one."""
    check = CHECKS.get(kind)
    return check is None or check(found)


def _digits(text: str) -> str:
    return re.sub(r"[^0-9]", "", text)


def _weigh(digits: str, *weights: int) -> int:
    """Sum digit times weight. The weights repeat from the left."""
    return sum(int(digit) * weights[n % len(weights)] for n, digit in enumerate(digits))


def _same_digits(digits: str) -> bool:
    return len(set(digits)) == 1


def _is_card(found: str) -> bool:
    """ISO/IEC 7812: the ranges and lengths of the issuers, and Luhn."""
    digits = _digits(found)
    ranges = (
        ("4", {13, 16, 19}),
        ("5[1-5]|222[1-9]|22[3-9]|2[3-6]|27[01]|2720", {16}),
        ("3[47]", {15}),
        ("6011|65|64[4-9]|62|60|508|35(?:2[89]|[3-8])", set(range(16, 20))),
        ("30[0-5]|36|38|39", set(range(14, 20))),
        ("50|5[6-9]|6", set(range(12, 20))),
    )
    lengths = next((lengths for start, lengths in ranges if re.match(start, digits)), set())
    return len(digits) in lengths and not _same_digits(digits) and luhn.is_valid(digits)


def _is_us_ssn(found: str) -> bool:
    """A number beginning with 9 is a taxpayer's, with 50 to 99 in the middle."""
    digits = _digits(found)
    if digits == "123456789":
        return "-" in found
    if re.search(r"^(?:000|666)|^...00|0000$", digits) or digits == "987654321" or _same_digits(digits):
        return False
    return not digits.startswith("9") or bool(re.match(r"9..(?:5|6[0-5]|[78]|9[0-24-9])", digits))


def _is_iban(found: str) -> bool:
    """ISO 13616. What follows the account in the text does not belong to it."""
    text = re.sub(r"[ -]", "", found).upper()
    return any(iban.is_valid(text[:length]) for length in range(len(text), 14, -1))


def _is_spanish(found: str) -> bool:
    number = found.replace("-", "").upper()
    return nie.is_valid(number) if number[0] in "XYZ" else dni.is_valid(number)


def _is_insee(found: str) -> bool:
    number = re.sub(r"\s", "", found).upper()
    return len(number) == 15 and nir.is_valid(number)


def _is_chinese(found: str) -> bool:
    """GB 11643: ISO 7064 mod 11-2."""
    return "10X98765432"[_weigh(found[:17], 7, 9, 10, 5, 8, 4, 2, 1, 6, 3) % 11] == found[-1].upper()


def _is_snils(found: str) -> bool:
    digits = _digits(found)
    return _weigh(digits[:9], 9, 8, 7, 6, 5, 4, 3, 2, 1) % 101 % 100 == int(digits[9:11])


def _is_chilean(found: str) -> bool:
    text = re.sub(r"[^0-9kK]", "", found)
    return "0K987654321"[_weigh(text[:-1].zfill(8), 3, 2, 7, 6, 5, 4, 3, 2) % 11] == text[-1].upper()


def _is_singaporean(found: str) -> bool:
    rest = (_weigh(_digits(found), 2, 7, 6, 5, 4, 3, 2) + (4 if found[0] in "TG" else 0)) % 11
    return ("JZIHGFEDCBA" if found[0] in "ST" else "XWUTRQPNMLK")[rest] == found[-1]


def _is_taiwanese(found: str) -> bool:
    letter = "ABCDEFGHJKLMNPQRSTUVXYWZIO".index(found[0]) + 10
    return (letter // 10 + letter % 10 * 9 + _weigh(_digits(found), 8, 7, 6, 5, 4, 3, 2, 1, 1)) % 10 == 0


def _is_my_number(found: str) -> bool:
    digits = _digits(found)
    rest = _weigh(digits[:11], 6, 5, 4, 3, 2, 7, 6, 5, 4, 3, 2) % 11
    return (0 if rest <= 1 else 11 - rest) == int(digits[11])


def _is_tfn(found: str) -> bool:
    digits = _digits(found)
    return len(digits) == 8 or _weigh(digits, 1, 4, 3, 7, 5, 8, 6, 9, 10) % 11 == 0


CHECKS: dict[str, Callable[[str], bool]] = {
    "card number": _is_card,
    "US social security number": _is_us_ssn,
    "IBAN": _is_iban,
    "ES id": _is_spanish,
    "IT id": codicefiscale.is_valid,
    "IN id": lambda found: verhoeff.is_valid(_digits(found)),
    "CH id": ahv.is_valid,
    "SE id": lambda found: luhn.is_valid(_digits(found)[-10:]),
    "NL id": bsn.is_valid,
    "PL id": pesel.is_valid,
    "CA id": lambda found: luhn.is_valid(_digits(found)),
    "AU id": _is_tfn,
    "RU id": _is_snils,
    "FR id": _is_insee,
    "BR id": cpf.is_valid,
    "CN id": _is_chinese,
    "DE id": idnr.is_valid,
    "FI id": hetu.is_valid,
    "CL id": _is_chilean,
    "BE id": nn.is_valid,
    "SG id": _is_singaporean,
    "TW id": _is_taiwanese,
    "TR id": tckimlik.is_valid,
    "JP id": _is_my_number,
    "UK health number": nhs.is_valid,
    "personal number": lambda found: len(_digits(found)) >= 4,
    "bank account": lambda found: 6 <= len(_digits(found)) <= 17,
}
