"""The form in which a message changes an earlier statement: one of the two witnesses that certainty needs.

A form says that the message speaks of the same thing, and gives it another value or ends it. Barred is what speaks of
somebody else, or of another thing of the same sort ("my red bike", "my blue bike").
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache

from . import data
from .data import choices
from .foreign import APOSTROPHES
from .limits import ENDING
from .lists import find_remainder
from .patterns import Pattern, compile_pattern
from .stated import Statement
from .subjects import has_same_subject, is_of_another
from .text import first_group, has_phrase, has_words, pad, search
from .values import SOFT_KINDS, Content, Value, read_content, stem

SHORT = 160
RECENT = 6
ADJACENT = 2  # turns: the last exchange


@dataclass(frozen=True)
class Form:
    """How a message changes a statement; strong forms need less of the judge. `olds`: the values that are over."""

    name: str
    strength: float
    olds: tuple[str, ...] = ()
    is_barred: bool = False

    @property
    def is_strong(self) -> bool:
        return self.strength >= 0.8


def find_form(unit: Statement, statement: Statement, message: str, turns_before: int | None) -> Form | None:
    """Return the strongest form in which a statement of a message changes an earlier one, or None."""
    language = unit.language
    forms = [
        form
        for form in (
            _updates(unit, statement),
            _slip(unit, statement, message, turns_before),
            _slot(unit, statement),
            _name_over(unit, statement, message, turns_before),
            _value(unit, statement, message),
            _end(unit, statement, message),
            _opposite(unit, statement),
            _answer(unit, statement.said if statement.asked else message, turns_before),
            _matter(unit, statement),
        )
        if form
    ]
    if not forms:
        return None
    best = max(forms, key=lambda form: form.strength)
    if (
        is_of_another(unit, statement, language)
        or _is_of_another_sort(unit, statement, best, message)
        or _is_further(unit, statement, best)
    ):
        return Form(best.name, best.strength, best.olds, is_barred=True)
    return best


def _has_cue(text: str, language: str) -> bool:
    """Return whether a text sounds like a correction or a change."""
    return has_phrase(pad(text), data.entries(language, "change_cues")) or search(
        choices(language, "change_cue_forms"), text.lower(), False
    )


def _covers(unit: Content, statement: Content) -> tuple[float, float]:
    """Return the share of what a statement speaks of that the earlier one speaks of too, and the other way round."""
    shared = len(unit.stems & statement.stems)
    return shared / max(1, len(statement.stems)), shared / max(1, len(unit.stems))


# Forms ------------------------------------------------------------------------------------------------------------


def _updates(unit: Statement, statement: Statement) -> Form | None:
    """ "Change my address to Elm Road 4", "update X to Y"."""
    matter = first_group(choices(unit.language, "update_requests"), statement.said)
    if matter is None:
        return None
    stems = {stem(word, unit.language) for word in matter.lower().split()} & unit.content.stems
    return Form("update", 1.0, _differing(unit.content, statement.content)) if stems else None


def _slip(unit: Statement, statement: Statement, message: str, turns_before: int | None) -> Form | None:
    """A name that was misspelt in the last exchange: "sorry, typo up there, it is Ellerby Court"."""
    slips = choices(unit.language, "slips")
    if turns_before is None or turns_before > ADJACENT or not slips or not search(rf"\m(?:{slips})\M", message.lower()):
        return None
    word = compile_pattern("[[:alpha:]'-]{4,}")
    said, meant = word.findall(unit.said), word.findall(statement.said)
    known = {one.lower() for one in said}
    for new in meant:
        for old in said:
            if new[0] == old[0] and new.lower() not in known and _is_slip(old.lower(), new.lower()):
                return Form("slip", 1.0, (old,))
    return None


def _is_slip(old: str, new: str) -> bool:
    """Return whether two words differ by a letter or two, and not by an ending alone."""
    if old == new or abs(len(old) - len(new)) > 1 or stem(old, "english") == stem(new, "english"):
        return False
    return SequenceMatcher(None, old, new, autojunk=False).ratio() >= 0.8


def _slot(unit: Statement, statement: Statement) -> Form | None:
    """Another value of a slot that holds one at a time, said of oneself in the present."""
    mine, theirs = statement.rule, unit.rule
    if not mine or not theirs or mine.get("slot") != theirs.get("slot") or not mine.get("slot"):
        return None
    if str(mine["value"]).lower() == str(theirs["value"]).lower():
        return None
    return Form("slot", 0.95, (theirs["value"],))


@cache
def _replacements(language: str, is_short: bool) -> tuple[Pattern[str], ...]:
    uses = ("replaced", "replaced_briefly") if is_short else ("replaced",)
    return tuple(compile_pattern(entry, longest=True) for use in uses for entry in data.entries(language, use))


def values_over(message: str, language: str, is_short: bool) -> list[str]:
    """Return the values that a message says are over: "not Pepper but Pippa", "left Leipzig"."""
    text = message.translate(APOSTROPHES)
    found = []
    for pattern in _replacements(language, is_short):
        for match in pattern.finditer(text):
            value = (match[1] if match.re.groups else match[0] or "").strip(" .,;:\"'!?()")
            ends = choices(language, "value_ends")
            if ends:
                value = compile_pattern(rf"(.) (?:{ends})\M.*$", True, longest=True).sub(r"\1", value, count=1)
            if len(value) >= 2 and len(value.split()) <= 4:
                found.append(value)
    return found


def _name_over(unit: Statement, statement: Statement, message: str, turns_before: int | None) -> Form | None:
    """The old value is named as over."""
    for old in values_over(message, unit.language, len(message) <= SHORT):
        named = {value.key for value in read_content(old, unit.language).values}
        held = [value.raw for value in unit.content.values if value.key in named]
        if not has_words(unit.said, old) and not held:
            continue
        # "It's the 14th that we fly, not the 12th": of the same matter alone, with another value of the kind.
        told = statement.content.stems
        if told and told <= unit.content.stems | _around(unit) and _has_another(unit, statement, old):
            return Form("corrected", 1.0, (held[0] if held else old,))
        if not has_words(unit.said, old):
            continue
        # "Wait, not beige, sand!" said of the last exchange: nothing is named but both values.
        others = {value.key for value in statement.content.values} | statement.content.stems
        if turns_before is not None and turns_before <= ADJACENT and len(others) == 2:
            return Form("slip", 1.0, (old,))
        if any(c.isupper() or c.isdigit() for c in old):
            return Form("named", 1.0, (old,))
        if _covers(unit.content, statement.content)[1] >= 0.3:
            return Form("named", 0.85, (old,))
    return None


def _around(unit: Statement) -> frozenset[str]:
    """Return the stems of the sentence in which a clause stands: "it's for my class, I teach them on Tuesdays"."""
    return read_content(unit.sentence, unit.language).stems


def _has_another(unit: Statement, statement: Statement, old: str) -> bool:
    """Return whether a statement has another value of the kind that an old one is of."""
    keys = {value.key for value in read_content(old, unit.language).values}
    kinds = {value.kind for value in unit.content.values if has_words(value.raw, old) or value.key in keys}
    return any(
        value.kind in kinds and not has_words(value.raw, old) and value.key not in keys
        for value in statement.content.values
    )


def _value(unit: Statement, statement: Statement, message: str) -> Form | None:
    """Another value or name of the same thing."""
    mine, theirs = statement.content, unit.content
    cover, back = _covers(theirs, mine)
    if not mine.stems & theirs.stems:
        return None
    cue = _has_cue(message, unit.language)
    if has_same_subject(unit, statement):
        cover = max(cover, 0.9)
    olds = _differing(theirs, mine)
    if olds:
        # "The standup is at 9:30", "The standup is at 10:00".
        if mine.stems == theirs.stems and len(statement.sentence) - len(statement.said) < 4:
            return Form("same words", 0.85, olds)
        if cue and cover >= 0.5:
            # "Our budget is 8,500 euros", "the budget is 11,000 euros now".
            alike = statement.asked or has_same_subject(unit, statement) or _units(unit.said) & _units(statement.said)
            return Form("same subject" if alike else "value", 0.85, olds)
        if cover >= 0.95 and back >= 0.5:
            return Form("same subject", 0.8, olds)
        if cue and cover >= 0.3:
            return Form("value", 0.6, olds)
    gone, come = theirs.names - mine.names, mine.names - theirs.names
    named = {stem(word, unit.language) for name in mine.names | theirs.names for word in name.split()}
    others = mine.stems - named
    if gone and come and others & theirs.stems:
        rest = len(others & theirs.stems) / max(1, len(others))
        if rest >= 0.5 and (cue or (rest >= 0.95 and has_same_subject(unit, statement))):
            return Form("name", 0.8 if cue and has_same_subject(unit, statement) else 0.65, tuple(sorted(gone)))
    # A name alone that both have tells nothing: "my dentist in Vienna", "I moved to Vienna".
    if cue and others & theirs.stems and len(others & theirs.stems) >= 0.5 * len(others):
        return Form("cue", 0.5)
    return None


def _units(text: str) -> set[str]:
    """Return the words that follow numbers: "euros"."""
    return set(compile_pattern(r"\d ([[:alpha:]]{2,})").findall(text.lower()))


def _end(unit: Statement, statement: Statement, message: str) -> Form | None:
    """The same, denied or over."""
    language = unit.language
    over, denials = choices(language, "over_words"), choices(language, "negations")
    # Another sentence may say so of something else.
    says_over = over is not None and search(rf"\m(?:{over})", statement.sentence.lower(), False)
    # "I won't give up": it goes on.
    goes_on = choices(language, "goes_on")
    if goes_on and search(rf"\m(?:{goes_on})\M", message.lower(), False):
        return None
    denies = denials is not None and search(rf"\m(?:{denials})\M|n't\M", statement.plain)
    # "I quit smoking", "no cigarettes for me any more": it says the same again.
    if over is not None and search(rf"^(?:i|we) (?:[[:alpha:]']+ ){{0,2}}?(?:{over}|sworn off)", unit.plain):
        return None
    denied_before = denials is not None and search(rf"\m(?:{denials})\M|n't\M", unit.plain)
    cover, back = _covers(unit.content, statement.content)
    if not unit.content.stems & statement.content.stems:
        return None
    # "I no longer live in Rome" says nothing of who lives in Kiel.
    if unit.content.names and statement.content.names and not unit.content.names & statement.content.names:
        return None
    # One item of a list is named: "I have two cats, Miso and Tofu", "Miso died".
    if back < 0.5 and find_remainder(unit.said, statement.said, language):
        back = 0.5
    if says_over and max(cover, back) >= 0.5:
        return Form("ended", 0.8 if cover >= 0.5 else 0.6)
    # "Never use emojis", "you can use emojis again".
    if (
        denied_before
        and not denies
        and cover >= 0.5
        and search(r"^(?:you (?:can|may)|feel free to)\M.*\magain\M", statement.plain)
    ):
        return Form("permitted", 0.9)
    if denies != denied_before and max(cover, back) >= 0.5:
        return Form("denied", 0.8 if max(cover, back) >= 0.9 else 0.6)
    return None


def _opposite(unit: Statement, statement: Statement) -> Form | None:
    """The opposite liking of the same thing."""
    mine, theirs = _liking(statement), _liking(unit)
    if not mine or mine != -theirs:
        return None
    passed = {
        stem(word, unit.language) for word in "love like enjoy adore hate dislike detest stand fan fond keen".split()
    }
    return Form("liking", 0.9) if (unit.content.stems & statement.content.stems) - passed else None


def _liking(statement: Statement) -> int:
    language, text = statement.language, statement.plain
    for use, sign in (("disliking", -1), ("liking", 1)):
        words = choices(language, use) if language == "english" else None
        if words and search(rf"^(?:i|we) (?:also )?(?:{words})\M", text):
            return sign
    return 0


def _answer(unit: Statement, message: str, turns_before: int | None) -> Form | None:
    """A short answer that names the value alone: "oh right, yes 15:20"."""
    if turns_before is None or turns_before > RECENT or len(message) > 60:
        return None
    assent = choices(None, "assent")
    if not search(rf"^(?:(?:oh|ah|oops|ups|whoops),? )*(?:{assent})\M", message) and not search(
        choices(unit.language, "answer_cues"), message.lower(), False
    ):
        return None
    content = read_content(message, unit.language)
    olds = _differing(unit.content, content)
    return Form("answer", 0.8, olds) if olds and len(content.stems - unit.content.stems) <= 1 else None


def _matter(unit: Statement, statement: Statement) -> Form | None:
    """The same matter, by a word that is no name: a form so weak that the judge must be next to sure."""
    mine, theirs = statement.content, unit.content
    named = {stem(word, unit.language) for name in mine.names | theirs.names for word in name.split()}
    if not (mine.stems & theirs.stems) - named:
        return None
    olds = _differing(theirs, mine)
    return Form("another value", 0.45, olds) if olds else Form("matter", 0.4)


def _differing(old: Content, new: Content) -> tuple[str, ...]:
    """Return the values of the older text of which the newer one has another of the same kind."""
    for kind in ("date", "time", "email", "code", "number", "weekday", "often", "month"):
        before = [value for value in old.values if value.kind == kind]
        since = [value for value in new.values if value.kind == kind]
        if before and since and not {v.key for v in before} & {v.key for v in since}:
            if kind in SOFT_KINDS and _hard(old.values) and _hard(new.values):
                continue
            return tuple(value.raw for value in before)
    return ()


def _hard(values: Iterable[Value]) -> bool:
    return any(value.kind not in SOFT_KINDS for value in values)


# Bars -------------------------------------------------------------------------------------------------------------


SAME_SORT = frozenset("new old last next first same current former previous the a an my our his her their its".split())


# "My old phone has 64 GB", "my new phone has 256 GB": both are so.
CONTRASTS = ({"old", "new"}, {"first", "second"}, {"last", "next"}, {"former", "current"})


def _is_of_another_sort(unit: Statement, statement: Statement, form: Form, message: str) -> bool:
    """Return whether both have another word before the same noun, which the other does not have."""
    if form.name in ("update", "slot", "slip", "corrected") or (form.name == "named" and form.strength == 1.0):
        return False
    values = {
        word for text in (*form.olds, *(v.raw for v in statement.content.values)) for word in text.lower().split()
    }
    shared = unit.content.stems & statement.content.stems
    mine, theirs = _sorts(statement, shared), _sorts(unit, shared)
    for head, word in mine.items():
        other = theirs.get(head)
        if other is None or other == word or word in values or other in values:
            continue
        if {word, other} in CONTRASTS:
            return True
        if word in SAME_SORT or other in SAME_SORT:
            continue
        if not has_words(unit.said, word) and not has_words(message, other):
            return True
    return False


# Forms that name what they change, whatever stands beside it.
NAMING = frozenset({"update", "slot", "slip", "corrected", "named", "answer"})


def _is_further(unit: Statement, statement: Statement, form: Form) -> bool:
    """Return whether a clause tells of another one of the sort: "I've taken on two more hives"."""
    further = choices(statement.language, "further")
    return (
        form.name not in NAMING
        and form.name not in ENDING
        and further is not None
        and search(further, f"{statement.before} {statement.plain}".lower())
        and not search(further, unit.plain)
    )


def _sorts(statement: Statement, heads: frozenset[str]) -> dict[str, str]:
    """Return the word that stands before each noun: "blue" of "my blue bike"."""
    words = ["the", *compile_pattern("[[:alnum:]'-]+").findall(statement.said.lower().translate(APOSTROPHES))]
    little = data.entry_set(statement.language, "function_words")
    pronouns = frozenset("i we you he she it they".split())
    found = {}
    for leads, before, word in zip(words, words[1:], words[2:], strict=False):
        head = stem(word, statement.language)
        # A word behind "my" or "in" tells which one; behind "I" it is a verb.
        if head in heads and leads in little - pronouns and before not in little and len(before) > 2:
            found[head] = before
    return found
