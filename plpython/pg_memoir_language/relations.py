"""Read facts about something or somebody else that has one value at a time: "The capital of France is Paris", "Deploys
go out on Tuesdays". A later one of the same subject and relation takes the place of an earlier one.

Relations that can have several values at once (children, languages, likes) are none of these. English.
"""

from __future__ import annotations

from dataclasses import dataclass

from .data import choices
from .patterns import compile_pattern

LONGEST = 200
MOST_WORDS = 8  # of a value


@dataclass(frozen=True)
class Relation:
    """A subject with its relation, and the value that it has: "capital of France", "Paris"."""

    slot: str
    value: str


def read_relation(content: str) -> Relation | None:
    """Return what a whole sentence says of one subject; None of what doubts, denies, tells of the past or of more."""
    text = content.strip().rstrip(".! ").replace("’", "'")
    if len(text) > LONGEST or compile_pattern(r"[\n?;:]|[.!] [[:upper:]]").search(_without_initials(text)):
        return None
    if compile_pattern(rf"\m({choices('english', 'no_relation')})\M").search(text[:1].lower() + text[1:]):
        return None
    found = _named(text) or _framed(text)
    if found is None or len(found.value.split()) > MOST_WORDS or len(found.slot) > LONGEST:
        return None
    return found


def _without_initials(text: str) -> str:
    return str(compile_pattern(r"\m(?:[[:upper:]]|[JSD]r|Mrs?|Ms|St|Inc|Ltd|Co)\.").sub("", text))


def _named(text: str) -> Relation | None:
    """ "The chairperson of Fatah is Mahmoud Abbas", "Our team's standup is at 9:30": what is named has one value."""
    of = choices("english", "relation_of")
    match = compile_pattern(
        rf"^(?:the|our|my) (?:current |new )?((?:[[:alpha:]-]+ ){{0,3}}?([[:alpha:]-]+) (?:{of}) .+?) (?:is|are) (.+)$",
        True,
    ).search(text) or compile_pattern(
        r"^((?:[[:alnum:]&.-]+ ){0,4}[[:alnum:]&.-]+'s? (?:[[:alpha:]-]+ ){0,2}?([[:alpha:]-]+)) is (.+)$"
    ).search(text)
    if match is None:
        return None
    matter, head, value = match[1], match[2].lower(), match[3]
    if compile_pattern(rf"^({choices('english', 'several_values')})$").search(head):
        return None
    # A description is no value: "The capital of Italy is beautiful", "is a city".
    is_typed = compile_pattern(rf"\m({choices('english', 'valued_matters')})\M").search(matter.lower())
    if not is_typed and not compile_pattern(r"^(?:the |at |on )?[[:upper:][:digit:]€$£]").search(value):
        return None
    if compile_pattern(rf"^({choices('english', 'describing')})\M").search(value.lower()):
        return None
    return Relation(_plain(matter), value)


def _framed(text: str) -> Relation | None:
    """ "Amy Winehouse died in the city of Camden Town": the beginning up to a known frame, and what follows it."""
    frames = choices("english", "relation_frames")
    match = compile_pattern(rf"^(?P<subject>.+?) (?P<frame>{frames}) (?P<value>.+)$").search(text)
    if match is None:
        return None
    subject, frame, value = match["subject"], match["frame"], match["value"]
    if compile_pattern(r"^(?:i|we|you|they|he|she|it|this|that|there)\M", True).search(subject):
        return None
    # "Founded in 1976" and "founded in Cupertino" are two relations.
    kind = " (time)" if compile_pattern(r"^\d").search(value) else ""
    return Relation(_plain(f"{subject} {frame}") + kind, value)


def _plain(matter: str) -> str:
    return " ".join(matter.lower().split())
