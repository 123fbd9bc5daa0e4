"""Templates of texts with secrets: tests/cases/secrets.jsonl has them.

Every value is invented. What has an issuer's shape is put together here, from its parts, so that no file holds a token that
looks real: `<prefix|alphabet|length>` stands for the prefix and that many letters of an alphabet, always the same ones.
"""

import base64
import random
import re
import string

ALPHABETS = {
    "a": string.ascii_letters + string.digits,
    "u": string.ascii_uppercase + string.digits,
    "l": string.ascii_lowercase + string.digits,
    "h": "0123456789abcdef",
    "d": string.digits,
    "b": string.ascii_letters + string.digits + "+/",
    "w": string.ascii_letters + string.digits + "_-",
}


def fill(template: str) -> str:
    """Puts the tokens of a template together, with `<base64|text>` encoded."""
    chance = random.Random(template)

    def token(match: re.Match[str]) -> str:
        if match[1] == "base64":
            return base64.b64encode(match[2].encode()).decode()
        letters = ALPHABETS[match[2]]
        # A letter and a digit of those that there are, so that none is by chance a word or a number.
        sure = [chance.choice([c for c in letters if c.isdigit()]), chance.choice(letters)]
        drawn = [chance.choice(letters) for _ in range(int(match[3]) - 2)] + sure
        return match[1] + "".join(drawn)

    made = re.sub(r"<(base64)\|([^<>|]+)>", token, template)
    return re.sub(r"<([^<>|]*)\|([aulhdbw])\|(\d+)>", token, made)
