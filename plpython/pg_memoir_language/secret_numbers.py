"""Find numbers that are secrets: cards, accounts, personal numbers, PINs and codes for one use."""

from __future__ import annotations

from collections.abc import Iterator

from . import data
from .patterns import compile_pattern
from .secret_tables import Secret, read_places, read_tables


def find_numbers(piece: str, lower: str) -> Iterator[Secret]:
    from .check_digits import is_number_of  # half of the time that it takes to load this module

    # An id of this kind holds what looks like an IBAN once in five thousand.
    uuid = r"\m[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\M"
    piece = compile_pattern(uuid, True).sub("id", piece)
    outline = None
    for place in read_places("numbers"):
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
            if not (place.deniable and _denies(piece[max(0, at - 40) : at])):
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


def _denies(before: str) -> bool:
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


def find_codes(piece: str, lower: str) -> Iterator[Secret]:
    """PINs and codes for one use: digits first, then their name before them in the sentence."""
    if not any(mark in lower for mark in read_tables()["marks"]["codes"]):
        return
    names = compile_pattern(
        rf"^.*(?<![A-Za-z])({data.choices(None, 'pin_names', 'code_names')})(?![A-Za-z])(.*)$", True
    )
    codes = compile_pattern(rf"^(?:{data.choices(None, 'code_names')})$", True)
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
