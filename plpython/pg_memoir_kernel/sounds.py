"""Whether a name in Latin script and a word from another script, transliterated, may be the same name: by consonants,
as Soundex and its kin do. Of vowels only the first counts, and only where there are few consonants.
"""

from __future__ import annotations

import re
from functools import lru_cache

# Spellings of one sound, longer ones first; scripts without l, v or z write r, b and s.
_SPELLINGS = (
    ("ph", "f"), ("ck", "k"), ("dzh", "j"), ("dj", "j"), ("zh", "j"), ("sch", "s"), ("sh", "s"), ("th", "t"),
    ("qu", "k"), ("x", "ks"), ("l", "r"), ("v", "b"), ("z", "s"),
)  # fmt: skip
_VOWELS = {"a": "a", "e": "a", "i": "i", "o": "o", "u": "o"}


@lru_cache(1024)
def _sound(word: str) -> tuple[str, str]:
    """Return the consonants of a word in ASCII, doubled ones once, and its first vowel."""
    text = re.sub("[^a-z]", "", word.lower())
    text = re.sub("iy(?=[aou])|i(?=e)", "", text)  # as syllables are written: "jiyo", "jie"
    text = re.sub("g(?=[eiy])", "j", re.sub("c(?=[eiy])", "s", re.sub("ch(?=[lr])", "k", text)))
    for written, spoken in _SPELLINGS:
        text = text.replace(written, spoken)
    text = text.replace("ch", "s").replace("c", "k")
    vowel = next((_VOWELS[letter] for letter in text if letter in _VOWELS), "")
    return re.sub("[aeiouyhw]", "", re.sub(r"([^aeiouyhw])\1", r"\1", text)), vowel


def sounds_like(name: str, word: str) -> bool:
    """Return whether a transliterated word may be a name, with an ending where the name has three consonants."""
    (mine, vowel), (theirs, other) = _sound(name), _sound(word)
    if len(mine) >= 3:
        return theirs == mine or (theirs.startswith(mine) and len(theirs) <= len(mine) + 2)
    return len(mine) == 2 and theirs == mine and vowel == other
