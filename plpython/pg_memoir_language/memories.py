"""The memory that a rule makes of a sentence: its words, dates, slot and value."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Any

from .data import choices
from .dates import Resolved, resolve_dates
from .naming import name_speaker
from .patterns import compile_pattern
from .text import (
    Sentence,
    first_group,
    replace_all,
    replace_first,
    search,
    without_opening,
)

Rule = dict[str, Any]


@dataclass(frozen=True)
class Extracted:
    """A memory that a rule makes of a span of a text, with the slot and value where one value holds at a time."""

    text_no: int
    span_start: int
    span_length: int
    rule: str
    type: str
    provenance: str
    category: str
    importance: str
    utility: float
    content: str
    slot: str | None = None
    slot_value: str | None = None
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    event_from: date | None = None
    event_to: date | None = None
    standing: bool = False

    def overlaps(self, other: Extracted) -> bool:
        """Return whether both were made of some of the same words."""
        return (
            self.text_no == other.text_no
            and self.span_start < other.span_start + other.span_length
            and other.span_start < self.span_start + self.span_length
        )


@dataclass(frozen=True)
class Turn:
    """A turn to read: who speaks in which role ("user", "assistant", "tool"; "agent" for an agent in the user's place),
    when by their clock, in which language."""

    text: str
    role: str
    name: str | None
    said_at: datetime
    language: str
    tool: str | None = None


AHEAD = (
    r"\m(will|going to|plan(ning)?|starting|am|are|is(?= (?:on|at|due|from|by|now|\d))|due|comes|leaves|starts|begins"
    r"|opens|ends|expires|gets) "
)
NOT_NOW = r"\m(not|never|used|was|were|no longer|part-time|temporarily|for (now|the summer|a (while|few|couple)))\M"


def word_memory(
    sentence: Sentence,
    text_no: int,
    form: str,
    specifics: int,
    name: str,
    is_named: bool,
    said_at: datetime,
    rule: Rule,
) -> Extracted:
    """Return the memory that a rule makes of a sentence; `form` is the sentence in the bare form."""
    said, kind, provenance = sentence.said, rule["type"], rule["provenance"]
    text = without_opening(replace_first("^(no|nope)[,.!;]+ +", "", said))
    is_past = kind != "plan" and not search(AHEAD, form, False)
    # A birthday comes every year.
    dates = Resolved(text) if "birthday" in rule["name"] else resolve_dates(text, said_at.date(), is_past)
    text = dates.text[:1].upper() + dates.text[1:]
    # "Went to Ulm": the speaker did.
    if rule["name"] == "did, without saying who":
        first = text.split(" ", 1)[0].lower()
        who = "I have " if first == "been" else "I am " if first.endswith("ing") or first == "gonna" else "I "
        text = who + text[:1].lower() + text[1:]
    elif kind in ("event", "plan", "fact") and provenance == "user_stated":
        if search(rf"^({choices('english', 'past_verbs')})\M(?! by\M)", text, False):
            text = f"I {text[:1].lower()}{text[1:]}"
    # What asks for an answer goes with the answer.
    text = replace_all(r"(\*{1,3}|\m_)([^*_\s][^*_]*)\1|\*{2,}", r"\2", text, False)
    text = replace_first(r"( -|,|;|\.) (so )?(can|could|would|will) you .*$", ".", text)
    text = replace_first(
        r"( -|,|;)? (and|but|so) (I|we) (want|need|'d like|would like) to (make|be) (sure|certain) .*$",
        ".",
        text,
        False,
    )
    # "…, ok?", "…, any tips?" ask for no more than assent, or for help.
    text = replace_first(r",[^,.!?]{2,24}\?+$", "", text, False)
    text = name_speaker(text, name)
    if name not in text:
        asked = " asks: " if kind == "instruction" else " corrects: " if provenance == "correction" else ": "
        text = name + asked + text
    elif text.startswith(name) or kind != "instruction":
        text = text[:1].upper() + text[1:]
    else:
        text = f"{name} asks: {text}"
    if not search(r"""[.!…。]["”')]*$""", text):
        text = text.rstrip(" ,;:–—-") + "."
    slot, value = _find_slot(rule, said, form, name, is_named)
    # A thing that began is true from then; a plan is known from when it was said, and stays worth knowing after its
    # day.
    valid_from = said_at
    if dates.event_from:
        valid_from = min(said_at, datetime.combine(dates.event_from, time(), UTC))
    valid_to = datetime.combine(dates.valid_until, time(), UTC) if dates.valid_until else None
    return Extracted(
        text_no, sentence.start, sentence.length, rule["name"], kind, provenance, rule["category"], rule["importance"],
        min(1.0, rule["utility"] + 0.05 * specifics), text, slot, value, valid_from,
        valid_to if valid_to and valid_to > valid_from else None, dates.event_from, dates.event_to,
    )  # fmt: skip


# Where somebody has left, by its name.
LEFT = (
    r"\m(live|living|work|working|left|quit)(?: +(?:in|at|for))? +"
    r"([[:upper:]][[:alnum:]'-]+(?: [[:upper:]][[:alnum:]'-]+){0,3})"
)


def _find_slot(rule: Rule, said: str, form: str, name: str, is_named: bool) -> tuple[str | None, str | None]:
    if rule["name"] == "no longer":
        left = compile_pattern(LEFT).search(said)
        if left is None:
            return None, None
        slot = "home city" if left[1].startswith("liv") else "employer"
        return f"{name.lower()}: {slot}" if is_named else slot, f"no longer {left[2]}"
    if "slot" not in rule or search(NOT_NOW, form, False):
        return None, None
    value = first_group(rule.get("value"), said.translate({ord("’"): "'"}), False)
    dated = rf"\m({choices('english', 'full_weekdays', 'sure_months')}|mom|dad)\M"
    if value is None or (search(dated, value) and rule["slot"] != "birthday"):
        return None, None
    return f"{name.lower()}: {rule['slot']}" if is_named else rule["slot"], value
