"""Say who speaks: "I moved" becomes "Ida moved". English."""

from __future__ import annotations

from . import data
from .data import choices, entry_set
from .patterns import compile_pattern

ENDS = '.,!?;:)"”'
# Somebody named, and those with them.
OTHERS = {
    "we": "they", "us": "them", "our": "their", "ours": "theirs", "ourselves": "themselves", "we're": "they're",
    "we've": "they've", "we'll": "they'll", "we'd": "they'd",
}  # fmt: skip
SELF = {"i", "i'm", "im", "i've", "ive", "i'll", "i'd", "me", "my", "mine", "myself"}
# Verbs that end as adverbs do: "User always flies from Basel".
VERBS_IN_LY = frozenset("fly rely apply reply supply multiply comply imply rally bully tally ally".split())
HAD = {"been", "never", "better", "gone", "seen", "done", "just", "already"}
THIRD = {
    "am": "is",
    "have": "has",
    "haven't": "hasn't",
    "do": "does",
    "don't": "doesn't",
    "dont": "doesn't",
    "were": "was",
}


def without_label(text: str, name: str | None) -> str:
    """Return a text of a group chat with blanks for the labels of its speaker, so that positions stay: "[Ida]: …"."""
    if name is None or not text.startswith("["):
        return text
    label = compile_pattern(r"^\[([^\[\]\n]{1,40})\]: ")
    lines = []
    for line in text.split("\n"):
        found = label.match(line)
        is_own = found is not None and "_".join(found[1].split()) == name
        lines.append(" " * found.end() + line[found.end() :] if found and is_own else line)
    return "\n".join(lines)


def name_speaker(sentence: str, name: str) -> str:
    """Put the speaker's name where a sentence says I, me or my, and the verb with it into the third person."""
    kept, between = entry_set("english", "verbs_kept"), data.entries("english", "between_verb")
    numbered = compile_pattern(f"^({choices('english', 'numbered')})$")
    words = compile_pattern(r"\s+").split(sentence)
    out, pending, seen = [], False, False
    for at, word in enumerate(words):
        core = word.rstrip(ENDS).lower()
        tail = word[len(core) :]
        following = words[at + 1].rstrip(".,!?;:").lower() if at + 1 < len(words) else ""
        others = OTHERS.get(core) if seen else None
        # "Act I", "parts I and II".
        numeral = core == "i" and (
            (following in ("and", "or", "&") and at + 2 < len(words) and words[at + 2].lower().startswith("ii"))
            or (at > 1 and not tail.startswith("'") and numbered.match(words[at - 1]) is not None)
        )
        seen = seen or (not numeral and core in SELF)
        if numeral:
            pass
        elif others is not None:
            word = others + tail
        elif core == "i":
            word = name + tail
            pending = tail in ("", ",")
        elif core in ("i'm", "im"):
            word = f"{name} is{tail}"
        elif core in ("i've", "ive"):
            word = f"{name} has{tail}"
        elif core == "i'll":
            word = f"{name} will{tail}"
        elif core == "i'd":
            word = f"{name} {'had' if following in HAD or following.endswith('ed') else 'would'}{tail}"
        elif core == "me":
            word = name + tail
        elif core in ("my", "mine"):
            word = f"{name}'s{tail}"
        elif core == "myself":
            word = f"themselves{tail}"
        elif pending and core not in between and (core in VERBS_IN_LY or not core.endswith("ly")):
            pending = False
            word = _third_person(word, core, tail, kept)
        out.append(word)
    return " ".join(out)


def _third_person(word: str, core: str, tail: str, kept: frozenset[str]) -> str:
    if core in THIRD:
        return THIRD[core] + tail
    if core in kept or not compile_pattern("^[a-z]+$").search(core):
        return word
    if compile_pattern("([^e]ed|eed)$").search(core) and core not in ("need", "feed", "speed", "succeed", "proceed"):
        return word
    stem = word[: len(core)]
    if compile_pattern("(s|sh|ch|x|z|o)$").search(core):
        return f"{stem}es{tail}"
    if compile_pattern("[^aeiou]y$").search(core):
        return f"{stem[:-1]}ies{tail}"
    return f"{stem}s{tail}"
